"""`train`: from a world or a dataset to an agent, with progress, metrics and a run folder."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from anyreward.acting.goals import measures
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.learning.checkpoint import FILE, checkpoint, load_checkpoint
from anyreward.learning.collect import Collector
from anyreward.learning.compiled import load_updates
from anyreward.learning.datasets import Dataset, is_dataset, open_dataset
from anyreward.learning.frames import Frames, check_memory
from anyreward.learning.goal_dqn import goals_in
from anyreward.learning.machine import open_device, threads, threads_for, threads_of_one, update_flop
from anyreward.learning.presets import Settings
from anyreward.learning.presets import preset as settings_of
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.tables import plan
from anyreward.learning.train import begin, behaviour, fill_tables, learn, stream_seed
from anyreward.loading import fresh_representation, load, uses_tables
from anyreward.representation.basis import state_width
from anyreward.representation.encoding import Encoder
from anyreward.representation.features import feature_map
from anyreward.rewards.inference import FeatureSample, feature_sample
from anyreward.rewards.lookahead import lookahead_sample
from anyreward.storage.metrics import MetricsLog
from anyreward.watching import evaluation, losses_only
from anyreward.worlds.goals import Tolerance
from anyreward.worlds.world import World, discrete_actions, open_world

HELD_OUT = {"categories": 4_000, "numbers": 2_000, "images": 100}
"""Transitions kept with the agent that training has not seen, at most; of a dataset, no more than a tenth. Images
are large, and among categories a small world of more of them costs no more."""
CHANGEABLE = {"replay_size", "replay_file", "threads", "compile", "environments", "evaluate_every"}
"""Settings that may differ when a run goes on."""
NETWORK_DIM = 100
"""d of networks, where it is not given."""
SAVE_EVERY = 300.0
"""Seconds between two savings of a run that goes on."""

Source = World | Dataset | str | Path | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


def train(
    source: Source,
    *,
    preset: str = "fast",
    settings: Settings | None = None,
    features: str | Callable[[Any], Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
    tensorboard: bool = False,
    minutes: float | None = None,
    **changes: Any,
) -> Agent:
    """Learn a representation without reward, online in a world or offline from a dataset.

    Args:
        source: a world (``"four-rooms"``, a Gymnasium id, a maze drawing in a .txt file, an environment object, single
            or vector) or a dataset (an .npz file, a Minari folder, ``"minari:ID"``).
        preset: ``fast`` or ``paper``.
        settings: all settings at once, instead of a preset.
        features: phi, if not as in the settings: a vectorised function of a batch of observations.
        out: the run folder, for metrics.jsonl and the saved agent; nothing is written without it.
        overwrite: whether ``out`` may hold an agent already.
        progress: whether to show progress.
        tensorboard: whether to write TensorBoard events to the run folder too.
        minutes: stop after so long, if not done before; `resume` goes on.
        changes: settings to change, by name, such as ``dim=50`` or ``seed=1``.
    """
    place = _open(source)
    own = place.settings_for(changes.get("method", "fb")) if isinstance(place, World) else {}
    s = settings.with_(**changes) if settings else settings_of(preset, **{**own, **changes})
    if out is not None and (Path(out) / "agent.json").exists() and not overwrite:
        raise UserError(f"{out} holds an agent already. Choose another folder, or allow overwriting it.")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise UserError(f"out is {out}, which is a file; name a folder for the run.")
    if tensorboard and out is None:
        raise UserError("TensorBoard events need a run folder: give out=... too.")
    if isinstance(features, str):
        s, features = s.with_(features=features), None
    folder = None if out is None else Path(out)
    agent = untrained(place, s, features)
    return _run(place, agent, agent.settings, folder, progress, tensorboard, minutes)


def _open(source: Source) -> World | Dataset:
    # the type checker cannot know that what is no dataset is a world
    return open_dataset(source) if is_dataset(source) else open_world(source)  # type: ignore[arg-type]  # see above


def resume(
    folder: str | Path,
    *,
    updates: int | None = None,
    source: Source | None = None,
    features: Callable[[Any], Any] | None = None,
    progress: bool = True,
    tensorboard: bool = False,
    minutes: float | None = None,
    **changes: Any,
) -> Agent:
    """Go on with a run that was stopped, or that shall learn for longer.

    The replay is the one it had, unless it holds images or more than 2 GB: then the agent first collects some anew.
    Episodes begin anew in either case.

    Args:
        folder: the run folder.
        updates: how many updates in all, if not as many as the run was to have.
        source: its world or dataset, where the run was given an object or data, which cannot be opened by name.
        features: phi again, where that was a function.
        progress: whether to show progress.
        tensorboard: whether to write TensorBoard events too.
        minutes: stop after so long, if not done before.
        changes: settings that do not change what is learned: ``replay_size``, ``replay_file``, ``threads``,
            ``compile``, ``environments``, ``evaluate_every``.
    """
    folder = Path(folder)
    agent = load(folder, features)
    if not set(changes) <= CHANGEABLE:
        raise UserError(
            f"A run goes on with its settings; {', '.join(sorted(set(changes) - CHANGEABLE))} cannot be changed. "
            f"Changeable: updates, {', '.join(sorted(CHANGEABLE))}."
        )
    s = agent.settings.with_(**changes) if updates is None else agent.settings.with_(updates=updates, **changes)
    if s.updates <= agent.updates:
        raise UserError(f"{folder} has done its {agent.updates:,} updates; to go on, ask for more of them in all.")
    place = agent.world() if source is None else _open(source)
    agent.features.check_fits(place.name, place.observation_space, place.action_space)
    return _run(place, replace(agent, settings=s), s, folder, progress, tensorboard, minutes, go_on=True)


def _run(
    place: World | Dataset,
    agent: Agent,
    s: Settings,
    out: Path | None,
    progress: bool,
    tensorboard: bool,
    minutes: float | None = None,
    go_on: bool = False,
) -> Agent:
    """The loop with all that surrounds it: metrics, evaluation, saving, and an end that loses nothing."""
    if minutes is not None and not minutes > 0:
        raise UserError(f"minutes is {minutes}; it must be positive.")
    device = open_device(s.device)
    if s.compile and device.type == "cpu" and not load_updates():
        s = s.with_(compile=False)
    done, begun, representation = agent.updates, time.perf_counter(), agent.representation
    if representation.of_goals and not isinstance(place, World):
        raise UserError(
            f"method is {s.method}, which learns online: a dataset says nothing of goals and episodes. Use a world, or "
            "method='fb' or 'successor-features'."
        )
    look_ahead = s.first_step == 1 or s.method != "fb"
    flop = update_flop(representation.F, representation.B, s)
    with ExitStack() as stack:
        most = torch.get_num_threads()
        s = s.with_(threads=s.threads or (threads_for(flop, most) if representation.landmarks is None else most))
        stack.enter_context(threads(threads_of_one(s)))
        replay = _empty_replay(place, agent, s)
        if replay.frames is not None:
            stack.callback(replay.frames.close)
        learning = begin(representation, s)
        if go_on:
            assert out is not None
            load_checkpoint(out, learning, replay, agent.fingerprint)
        collector, goals, evaluate = None, None, losses_only
        if isinstance(place, World):
            env = place.make_vector(s.environments)
            if place.recipe is not None:  # an environment object stays its owner's to close
                stack.enter_context(closing(env))
            seed = stream_seed(s.seed, f"from {done}") if done else s.seed
            collector = Collector(env, agent.features, seed, look_ahead, representation.of_goals)
            evaluate = evaluation(place, agent, s, stack)
            if representation.of_goals:
                test = place.goal_test if place.goal_test and measures(place.goal_test, agent.features) else None
                start, seed = torch.from_numpy(collector.features_now), stream_seed(s.seed, f"goals from {done}")
                goals = goals_in(test, representation.feature_encoder, replay, start, learning.explore, seed)
        elif len(replay) == 0:
            given = place.transitions(agent.features, look_ahead)
            rows, unseen = split_off(given, _held_out(agent), s.seed)
            agent = replace(agent, held_out=unseen)
            replay.add(rows)
        log = None

        def open_log() -> MetricsLog:
            """From here on the folder belongs to this run: not before a first cycle has gone well."""
            assert out is not None
            log = stack.enter_context(MetricsLog(out, tensorboard, after=agent.updates if go_on else None))
            for name in () if go_on else ("agent.json", FILE):
                (out / name).unlink(missing_ok=True)
            return log

        def save(done: int, unseen: Transitions | None = None) -> Agent:
            fill_tables(representation, replay, s, learning)
            whole = replace(
                agent,
                held_out=unseen or agent.held_out,
                sample=feature_sample(representation, replay, s.feature_sample, s.seed),
                transitions=None if goals else lookahead_sample(representation, replay, s.seed),
                updates=done,
            )
            if out is not None:
                whole.save(out, overwrite=True, beside={FILE: checkpoint(learning, replay, whole.fingerprint)})
            return whole

        def finish(done: int, unseen: Transitions | None = None) -> Agent:
            representation.to("cpu")  # wherever it learned, an agent answers on the CPU
            replay.to("cpu")
            return save(done, unseen)

        def gather() -> Transitions | None:
            """Transitions of the behaviour policy that do not enter the replay."""
            if collector is None or goals is not None:
                return None
            random = torch.Generator(device).manual_seed(stream_seed(s.seed, "held out"))
            return collector.collect(_held_out(agent), s.exploration, *behaviour(representation, replay, s, random))

        bar = stack.enter_context(TrainingProgress(s.updates, progress, done))
        bar.say(cost(agent, s, flop))
        learning.report = bar.remark
        stopped = stack.enter_context(stop_between_cycles())
        clock, note = time.perf_counter(), ""
        reported, saved = done // s.evaluate_every, time.perf_counter()
        try:
            for done, losses in learn(representation, replay, s, collector, learning, goals):
                learning.seconds += time.perf_counter() - clock  # of training: evaluating is not counted
                if out is not None and log is None:
                    log = open_log()
                due = done // s.evaluate_every > reported or done == s.updates
                if due and representation.landmarks is not None:
                    losses = fill_tables(representation, replay, s, learning, now=done == s.updates)
                figures = _checked({name: float(value) for name, value in losses.items()}, done)
                if due:
                    reported = done // s.evaluate_every
                    transitions = learning.earlier + replay.added
                    metrics = {"updates": done, "seconds": learning.seconds, "transitions": transitions, **figures}
                    metrics |= evaluate()
                    kind = next(kind for kind in ("quality", "success", "bellman_loss", "states") if kind in metrics)
                    note = f"{kind.replace('_', ' ')} {metrics[kind]:.3f}"
                    if log:
                        log.write(metrics)
                bar.show(done, note)
                if out is not None and device.type == "cpu" and time.perf_counter() - saved > SAVE_EVERY:
                    save(done)
                    saved = time.perf_counter()
                if stopped():
                    raise KeyboardInterrupt
                if minutes is not None and time.perf_counter() - begun > 60 * minutes:
                    break
                clock = time.perf_counter()
        except BaseException as error:
            if done > agent.updates and not isinstance(error, UserError):
                finish(done)  # an interrupted run keeps what it has learned
            raise
        try:
            unseen = gather()
        except BaseException:
            finish(done)  # whatever happened to the environment, what was learned is kept
            raise
        return finish(done, unseen)


def cost(agent: Agent, s: Settings, flop: float) -> str:
    """What a run will cost, in words."""
    fm, representation = agent.features, agent.representation
    if representation.landmarks is not None:
        each = fm.actions if s.features_include_action else 1
        return plan(fm.seen_space, fm.space, s.dim, s.landmarks, each)
    weights = sum(p.numel() for module in (representation.F, representation.B) for p in module.parameters())
    said = f"Networks of {weights:,} weights, d = {s.dim}: {s.updates:,} updates of {flop / 1e9:.2f} GFLOP each."
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if s.device == "cpu" and not s.compile and s.threads > 1 and load + s.threads > cores + 0.8:
        said += (
            f" Other programs keep about {load:.1f} of {cores} cores busy, and threads would wait for each other: "
            "compile (--compile), or take fewer of them (--threads 1)."
        )
    return said


@contextmanager
def stop_between_cycles() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait for the end of a cycle, when all that is saved fits together; the second does not wait.

    Gives a function that tells whether it was pressed.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield lambda: False  # not ours to handle
        return

    def first(number: int, frame: Any) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _empty_replay(place: World | Dataset, agent: Agent, s: Settings) -> Replay:
    """The replay of a run; of images, only where they fit."""
    size, each, image = s.replay_size, 0, agent.representation.observation_encoder.image
    if isinstance(place, World):
        most, each = size, place.frames_per_step
    else:
        most = len(place.actions)
        size = max(size, most)  # data that is given is used, not replaced
    frames = None
    if image:
        each = each or image[0]
        check_memory(most, each, image[1] * image[2], s.replay_file)
        frames = Frames(image, int(1.1 * most * each) + image[0], s.replay_file or None)  # episodes' first ones too
    return Replay(size, open_device(s.device), frames)


def _held_out(agent: Agent) -> int:
    encoder = agent.representation.observation_encoder
    return HELD_OUT["images" if encoder.image else "categories" if encoder.categorical else "numbers"]


def split_off(rows: Transitions, most: int, seed: int) -> tuple[Transitions, Transitions | None]:
    """A dataset's transitions without some random ones, and those; none where there are few."""
    n = len(rows.actions)
    held_out = min(n // 10, most)
    if held_out < 100:
        return rows, None
    order = torch.randperm(n, generator=torch.Generator().manual_seed(stream_seed(seed, "held out")))
    return rows.at(order[held_out:].sort().values), rows.at(order[:held_out])


def untrained(place: World | Dataset, s: Settings, features: Callable[[Any], Any] | None = None) -> Agent:
    """An agent with fresh networks for a world or a dataset; the seed decides their weights."""
    world = place if isinstance(place, World) else None
    space = discrete_actions(place.action_space)
    actions = int(space.n)
    fm = feature_map(
        features or s.features,
        place.observation_space,
        actions,
        s.features_include_action,
        world.feature_names if world else None,
        world.feature_table if world else None,
    )
    tables, test = uses_tables(fm, s), world.goal_test if world else None
    if s.dim == 0 and not tables:
        s = s.with_(dim=NETWORK_DIM)
    if tables and test is not None and isinstance(test.reached, Tolerance) and measures(test, fm):
        fm = replace(fm, tolerance=test.reached)
    if s.method == "successor-features" and s.basis == "state":
        s = s.with_(dim=state_width(Encoder(fm.space, s.normalise)))
    with torch.random.fork_rng():
        torch.manual_seed(s.seed)
        representation = fresh_representation(fm, s)
    return Agent(
        representation,
        fm,
        sample=FeatureSample(torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0)),
        settings=s,
        action_start=int(space.start),
        world_name=place.name,
        world_recipe=world.recipe if world else None,
    )


def _checked(losses: dict[str, float], done: int) -> dict[str, float]:
    if not np.isfinite(list(losses.values())).all():
        raise UserError(
            f"Training diverged: after {done:,} updates the losses are {losses}. Lower learning_rate, raise "
            "temperature, or turn layer_norm on."
        )
    return losses
