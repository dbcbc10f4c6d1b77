"""Benchmarks of speed. Ratios are measured in one run, because the speed of a shared machine varies."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from anyreward.acting.exact import score_goals
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.fast.compiled import load_updates
from anyreward.learning.frames import Frames
from anyreward.learning.loop import begin, learn
from anyreward.learning.machine import peak_gflops, threads, threads_of_one, update_flop
from anyreward.learning.methods import BOX_DIM
from anyreward.learning.replay import Replay
from anyreward.learning.settings import BOX, RunSettings, Settings, preset, split_changes
from anyreward.model.latent import trained_length
from anyreward.rewards.knowledge import Knowledge, feature_sample
from anyreward.rewards.terms import reward
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.tools.plain import Plain, PlainImages
from anyreward.training.train import train, untrained
from anyreward.worlds.ms_pacman import check_ale
from anyreward.worlds.spaces import Array
from anyreward.worlds.stepping import Stepper
from anyreward.worlds.world import World, open_world

QUALITY = 0.9
Part = Literal["updates", "epoch", "ask", "memory", "quality", "images"]
PARTS: tuple[Part, ...] = get_args(Part)
Show = Callable[[str], None]
Figures = dict[str, Any]


class Prepared(NamedTuple):
    """The objects of a new training run."""

    agent: Agent
    replay: Replay
    stepper: Stepper
    collector: Collector

    def quality(self, mdp: FiniteMDP) -> float:
        """The paper's policy quality of the current model, over all goals."""
        model, s = self.agent.model, self.agent.settings
        knowledge = Knowledge(model, s, feature_sample(model, self.replay, s.feature_sample, s.seed))
        return float(score_goals(knowledge, mdp, temperature=1.0).ratio.mean())


def prepared(world: World, s: Settings, run: RunSettings | None = None) -> Prepared:
    """Prepare a training run; the caller closes its stepper."""
    run = run or RunSettings()
    agent = untrained(world, s, run)
    image = agent.model.observation_encoder.image
    replay = Replay(s.replay_size, frames=Frames(image, 10_000) if image else None)
    stepper = Stepper(world.make_vector(run.environments))
    return Prepared(agent, replay, stepper, Collector(stepper, agent.model.phi, s.seed))


def _seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _in_turns(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, Array]:
    """(rounds,) the values of each measure, one of each in every round, because the speed of a machine varies."""
    values = [[measure() for measure in measures.values()] for _ in range(rounds)]
    return dict(zip(measures, np.array(values).T, strict=True))


def _spread(values: Array | list[float]) -> Figures:
    low, median, high = (float(p) for p in np.percentile(values, [25, 50, 75]))
    return {"median": median, "quartiles": [low, high]}


def _ways(compiled: bool) -> dict[str, RunSettings]:
    """Run settings by suffix of their name: without compiled updates and, if requested, with them."""
    run = RunSettings(threads=torch.get_num_threads())
    return {"": run, **({", compiled": run.with_(compile=True)} if compiled else {})}


def _cycles(world: World, s: Settings, run: RunSettings, offline: int = 0) -> tuple[Callable[[], Any], Prepared]:
    """A function that trains for one cycle, online or on ``offline`` transitions collected first, and its objects."""
    ready = prepared(world, s, run)
    if offline:
        ready.replay.add(ready.collector.collect(offline))
    learning = learn(begin(ready.agent.model, ready.replay, s, run), None if offline else ready.collector)

    def cycle() -> None:
        with threads(threads_of_one(run)):
            next(learning)

    return cycle, ready


def bench_updates(world: World, s: Settings, cycles: int, compiled: bool) -> Figures:
    """The time of an update relative to its matrix products at the peak rate, which is measured before each cycle."""
    s = s.with_(updates=(cycles + 2) * s.updates_per_cycle)
    runs, computed = {}, 0.0
    for suffix, run_settings in _ways(compiled).items():
        runs[suffix], ready = _cycles(world, s, run_settings, offline=5_000)
        with FlopCounterMode(display=False) as counter:
            runs[suffix]()
        computed = computed or counter.get_total_flops() / s.updates_per_cycle / 1e9  # compiled updates are not counted
        runs[suffix]()
    plain = update_flop(ready.agent.model.F, ready.agent.model.B, s) / 1e9
    found = _in_turns({"peak": peak_gflops, **{suffix: partial(_seconds, run) for suffix, run in runs.items()}}, cycles)
    peaks = found.pop("peak")
    figures: Figures = {}
    for suffix, seconds in found.items():
        ms = seconds / s.updates_per_cycle * 1e3
        figures[f"update ms{suffix}"] = _spread(ms)
        figures[f"update / its matrix products at peak{suffix}"] = _spread(ms / (plain / peaks * 1e3))
    return figures | {
        "matrix products of Algorithm 1, GFLOP": plain,
        "matrix products computed, GFLOP": computed,
        "peak GFLOP/s": float(np.median(peaks)),
        "environment steps a second": 20_000 / _seconds(lambda: ready.collector.collect(20_000)),
    }


def bench_epoch(
    world: World, compiled: bool, presets: tuple[str, ...] = ("paper", "fast"), cycles: int = 25, **changes: Any
) -> Figures:
    """The time of an epoch (25 cycles: 1,000 updates, 5,000 steps) relative to `Plain`, in alternating cycles."""
    runs: dict[str, Callable[[], Any]] = {"plain": Plain(seed=0, epochs=2).cycle}
    for name in presets:
        s = preset(name, **{"landmarks": 0, "dim": 100} | changes)
        for suffix, run_settings in _ways(compiled).items():
            runs[name + suffix], _ = _cycles(world, s, run_settings)
    for run in runs.values():
        run()  # warm-up
    times = _in_turns({name: partial(_seconds, run) for name, run in runs.items()}, cycles)
    figures: Figures = {f"{name}, seconds": float(seconds.sum()) for name, seconds in times.items()}
    for name in list(runs)[1:]:
        figures[f"plain / {name}"] = figures["plain, seconds"] / figures[f"{name}, seconds"]
        figures[f"plain / {name}, cycle by cycle"] = _spread(times["plain"] / times[name])
    return figures


def bench_quality(world: World, show: Show, compiled: bool, at_most: float = 21.0, **changes: Any) -> Figures:
    """Training time to a mean quality of 0.9 over all goals: `fast`, then `paper`, at most ``at_most`` times that."""
    figures: Figures = {}
    limit = np.inf
    for name in ("fast", "paper"):
        s = preset(name, **{"landmarks": 0, "dim": 100} | changes)
        *_, fastest = _ways(compiled).values()
        cycle, ready = _cycles(world, s, fastest)
        mdp, spent, reached = ready.agent.exact_mdp(), 0.0, False
        for done in range(s.updates_per_cycle, s.updates + 1, s.updates_per_cycle):
            spent += _seconds(cycle)
            if done % 200 == 0:
                quality = ready.quality(mdp)
                if done % 2000 == 0:
                    show(f"  {name}: {done:,} updates, {spent:.0f} s, quality {quality:.3f}")
                reached = quality >= QUALITY
                if reached or spent > limit:
                    break
        figures[name] = {"reached": reached, "seconds": spent, "updates": done, "quality": quality}
        limit = at_most * spent
    ratio = figures["paper"]["seconds"] / figures["fast"]["seconds"]
    return {**figures, "paper / fast, at least" if not figures["paper"]["reached"] else "paper / fast": ratio}


def bench_ask(states: int = 10_000, repeats: int = 20) -> Figures:
    """The time of an answer to a new reward and its value in ``states`` states, after a warm-up.

    The four rooms have 68 distinct states, so most of the 10,000 repeat; those of CartPole are all distinct.
    """
    figures: Figures = {"states": states}
    rng = np.random.default_rng(0)
    for name in ("four-rooms", "CartPole-v1"):
        agent = train(name, updates=80, progress=False)
        space = agent.model.phi.observation_space
        rows = agent.sample.rows.numpy()
        seen = rows[rng.integers(len(rows), size=states)]
        seen = seen[:, : agent.model.phi.state_packed]
        observations = seen[:, 0].astype(int) if space.shape == () else seen + rng.normal(0, 0.01, seen.shape)
        centres = rows[rng.integers(len(rows), size=repeats + 2)]

        def question(agent: Agent, centre: Any, observations: Any) -> None:
            first = agent.model.phi.readable(centre[None])
            agent.ask(reward(lambda g: np.exp(-((g - first) ** 2).sum(1)))).value(observations)

        times = [_seconds(partial(question, agent, centre, observations)) * 1e3 for centre in centres]
        figures[f"{name}, ms"] = _spread(times[2:])
    return figures


def bench_memory(rows: int = 1_000_000) -> Figures:
    """The peak resident memory of a separate process that trains with a full replay buffer."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_train_with_full_replay, (rows,))


def _train_with_full_replay(rows: int) -> Figures:
    import resource  # here, because Windows does not have it

    world, s = open_world("four-rooms"), preset("fast", replay_size=rows, landmarks=0, dim=100)
    ready = prepared(world, s)
    replay, some = ready.replay, ready.collector.collect(10_000)
    while len(replay) < rows:
        replay.add(some.map(torch.clone))
    learning = learn(begin(ready.agent.model, replay, s), ready.collector)
    for _ in range(5):
        next(learning)
    ready.quality(ready.agent.exact_mdp())
    scale = 1024 if sys.platform != "darwin" else 1  # kilobytes, on macOS bytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    return {"transitions": len(replay), "resident MB": peak / 1e6}


def _bench_drawing(like: Frames, repeats: int, frames: int = 300_000, batch: int = 128) -> Figures:
    """The time to draw 128 states and their next states from 2 GB of frames."""
    large = Frames((like.stack, 1, like.size), frames)
    for piece in torch.split(large.images, 1_000):
        piece.copy_(like.images[: len(piece)])
    numbers = torch.randint(frames, (repeats, 2 * batch, like.stack))
    return {
        "frames drawn from": frames,
        "a minibatch of states and next states, ms": _spread([_seconds(partial(large.of, i)) * 1e3 for i in numbers]),
    }


def bench_images(dim: int, cycles: int = 6) -> Figures:
    """Ms. Pacman: the time of an update relative to the plain one, of drawing a minibatch, and of collecting."""
    world = open_world("ms-pacman")
    figures: Figures = {}
    runs: dict[str, Callable[[], Any]] = {}
    opened: list[Stepper] = []
    for name in ("paper", "fast"):
        of_settings, of_run = split_changes(world.settings)
        s, run_settings = preset(name, **of_settings).with_(updates=10**6, dim=dim), RunSettings(**of_run)
        agent, replay, stepper, collector = prepared(world, s, run_settings)
        opened.append(stepper)
        started = time.perf_counter()
        rows = collector.collect(1_000)
        figures["environment steps a second, random actions"] = 1_000 / (time.perf_counter() - started)
        replay.add(rows)
        runs[name] = partial(next, learn(begin(agent.model, replay, s, run_settings)))
    shape = agent.model.observation_encoder.image or ()
    images = (rows.observations.view(-1, *shape).numpy(), rows.next_observations.view(-1, *shape).numpy())
    unit = agent.model.feature_encoder(rows.features)
    reference = PlainImages(
        images[0], rows.actions.numpy(), images[1], rows.terminated.numpy(), unit.numpy(), world.actions, s.gamma
    )
    assert replay.frames is not None
    figures["frames kept a transition"] = replay.frames.kept / len(replay)
    figures |= _bench_drawing(replay.frames, 20 * cycles)
    for run in (*runs.values(), reference.update):
        run()
    few = 5
    plain = {"plain": lambda: sum(_seconds(reference.update) for _ in range(few))}
    times = _in_turns(plain | {name: partial(_seconds, run) for name, run in runs.items()}, cycles)
    ms = {name: 1e3 * seconds / (few if name == "plain" else s.updates_per_cycle) for name, seconds in times.items()}
    figures |= {f"update ms, {name}": _spread(values) for name, values in ms.items()}
    figures |= {f"plain / {name}": _spread(ms["plain"] / ms[name]) for name in runs}
    z = trained_length(torch.randn(8, s.dim), "sphere")
    greedy = partial(collector.collect, 400, 0.2, agent.model.greedy, lambda n: z[:n].clone())
    figures["environment steps a second, greedy in F"] = 400 / _seconds(greedy)
    for one in opened:
        one.env.close()
    return figures


def run_bench(parts: tuple[Part, ...], dim: int, show: Show, cycles: int, compiled: bool) -> Figures:
    """Run the benchmarks, on a machine without other load. With ``compiled``, compiled updates are timed too."""
    if "images" in parts:
        try:
            check_ale()
        except UserError as error:
            show(f"leaving images out: {error}")
            parts = tuple(part for part in parts if part != "images")
    compiled = compiled and load_updates()
    world = open_world("four-rooms")
    figures: Figures = {"threads": torch.get_num_threads(), "dim": dim}
    if "updates" in parts:
        for name in ("fast", "paper"):
            show(f"timing updates of preset {name} ...")
            figures[f"updates, {name}"] = bench_updates(world, preset(name, dim=dim, landmarks=0), cycles, compiled)
        show("timing updates with continuous actions ...")
        box = preset("fast", **BOX["fast"] | {"dim": BOX_DIM, "landmarks": 0, "action_repeat": 1})
        figures["updates, continuous actions"] = bench_updates(open_world("Pendulum-v1"), box, cycles, compiled=False)
    others: dict[Part, tuple[str, Callable[[], Figures]]] = {
        "epoch": ("timing an epoch against the plain implementation ...", lambda: bench_epoch(world, compiled)),
        "ask": ("timing answers ...", bench_ask),
        "memory": ("measuring memory with a full replay buffer ...", bench_memory),
        "quality": (f"training until quality {QUALITY} ...", lambda: bench_quality(world, show, compiled)),
        "images": ("timing updates from images ...", lambda: bench_images(dim)),
    }
    for part, (message, bench) in others.items():
        if part in parts:
            show(message)
            figures[part] = bench()
    return figures
