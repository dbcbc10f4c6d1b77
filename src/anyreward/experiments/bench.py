"""Speed on this machine: the cost of an update against its matrix products, collection, and time to quality."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from anyreward.agent import Agent
from anyreward.learning.collect import Collector
from anyreward.learning.presets import Settings, preset
from anyreward.learning.replay import Replay
from anyreward.learning.train import learn
from anyreward.training import untrained
from anyreward.worlds.world import World, open_world

QUALITY = 0.9


@dataclass(frozen=True)
class BenchResult:
    """What `bench` measured for one preset."""

    preset: str
    dim: int
    threads: int
    update_ms: float
    """Median over blocks of a cycle; drawing, targets and their moves included, collecting and evaluating not."""
    update_gflop: float
    """Floating-point operations in the matrix products of an update as Algorithm 1 has it."""
    computed_gflop: float
    """Those that are really computed: B sees each distinct feature of a group of minibatches once."""
    peak_gflops: float
    """Best rate of a large matrix product, measured beside the updates."""
    ratio: float
    """update_ms over the time that update_gflop takes at that peak."""
    env_steps_per_second: float
    """Transitions collected per second with uniform actions."""
    seconds_to_quality: float | None
    """Training time, evaluation aside, until the mean quality over all goals is 0.9; None if not reached."""
    updates_to_quality: int | None

    def to_json(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)


def _parts(world: World, s: Settings) -> tuple[Agent, Replay, Collector]:
    agent = untrained(world, s)
    return agent, Replay(s.replay_size), Collector(world.make_vector(s.environments), agent.features, s.seed)


def _peak_gflops(size: int = 1024) -> float:
    a, out = torch.randn(size, size), torch.empty(size, size)
    best = np.inf
    for _ in range(6):
        started = time.perf_counter()
        torch.mm(a, a, out=out)
        best = min(best, time.perf_counter() - started)
    return float(2 * size**3 / best / 1e9)


def plain_flop(agent: Agent, s: Settings) -> int:
    """Floating-point operations in the matrix products of an update as Algorithm 1 has it: every network on every row.

    Forward, and backward twice as much, the first layers' inputs excepted; F's target on b rows, B's target on b; the
    b x b pairs.
    """
    b, d = s.batch_size, s.dim

    def layers(network: torch.nn.Module) -> tuple[int, int]:
        sizes = [m.in_features * m.out_features for m in network.modules() if isinstance(m, torch.nn.Linear)]
        return sum(sizes), sizes[0]

    (F, first_F), (B, first_B) = layers(agent.representation.F), layers(agent.representation.B)
    networks = b * (3 * F - first_F) + b * F + 2 * b * (3 * B - first_B) + b * B
    pairs = b * b * d * (1 + 1 + 2 + 2)  # F.B', the target, the gradients of F and B', and L_reg's two
    return 2 * (networks + pairs)


def bench_updates(world: World, s: Settings, cycles: int = 30) -> tuple[float, float, float, float, float]:
    """(ms per update, plain GFLOP, computed GFLOP, peak GFLOP/s, ratio), each a median over cycles.

    The peak is measured next to each timed cycle, and the ratio taken cycle by cycle: a machine that others share
    slows down and speeds up by the second.
    """
    agent, replay, collector = _parts(world, s)
    replay.add(collector.collect(5_000))
    s = s.with_(updates=(cycles + 2) * s.updates_per_cycle)
    learning = learn(agent.representation, replay, s)  # offline: nothing but updates
    with FlopCounterMode(display=False) as counter:
        next(learning)
    computed = counter.get_total_flops() / s.updates_per_cycle
    next(learning)
    times, peaks = [], []
    for _ in range(cycles):
        peaks.append(_peak_gflops())
        started = time.perf_counter()
        next(learning)
        times.append((time.perf_counter() - started) / s.updates_per_cycle * 1e3)
    gflop = plain_flop(agent, s) / 1e9
    ratio = float(np.median(np.array(times) / (gflop / np.array(peaks) * 1e3)))
    return float(np.median(times)), gflop, computed / 1e9, float(np.median(peaks)), ratio


def bench_collecting(world: World, s: Settings, steps: int = 20_000) -> float:
    """Transitions per second with uniform actions."""
    *_, collector = _parts(world, s)
    collector.collect(200)
    started = time.perf_counter()
    collector.collect(steps)
    return steps / (time.perf_counter() - started)


def bench_quality(world: World, s: Settings, show: Callable[[str], None]) -> tuple[float | None, int | None]:
    """(seconds, updates) of training until the mean quality over all goals is reached."""
    agent, replay, collector = _parts(world, s)
    mdp = agent.exact_mdp()
    spent, started = 0.0, time.perf_counter()
    for done, _ in learn(agent.representation, replay, s, collector):
        if done % 200 == 0:
            spent += time.perf_counter() - started
            quality = agent.goal_quality(mdp).ratio.mean()
            if done % 1000 == 0:
                show(f"  {done:,} updates, {spent:.0f} s: quality {quality:.3f}")
            if quality >= QUALITY:
                return spent, done
            started = time.perf_counter()
    return None, None


def run_bench(
    preset_name: str = "fast",
    dim: int = 100,
    updates: int = 20_000,
    quality: bool = True,
    show: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Measure one preset on the four rooms; run it on a quiet machine."""
    world, s = open_world("four-rooms"), preset(preset_name, dim=dim, updates=updates)
    show(f"preset {preset_name}, d = {dim}, {torch.get_num_threads()} threads: timing updates ...")
    ms, gflop, computed, peak, ratio = bench_updates(world, s)
    show("timing collection ...")
    steps = bench_collecting(world, s)
    seconds, count = None, None
    if quality:
        show(f"training until quality {QUALITY} (at most {updates:,} updates) ...")
        seconds, count = bench_quality(world, s, show)
    return BenchResult(
        preset_name, dim, torch.get_num_threads(), ms, gflop, computed, peak, ratio, steps, seconds, count
    )
