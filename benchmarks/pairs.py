"""What each (s, a) is paired with in the losses: quality per update of each choice, and its cost (docs/speed.md).

python benchmarks/pairs.py            # trains, two processes of one thread each, about 10 minutes
python benchmarks/pairs.py --long     # preset `fast` as it is, 20,000 updates of three choices, about 10 minutes
python benchmarks/pairs.py --trace    # the trace of E[B B^T] over the first 300 updates
python benchmarks/pairs.py --time     # times the updates of each choice in turn; on a quiet machine
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from anyreward.learning.loop import learn
from anyreward.learning.settings import preset
from anyreward.learning.update import MovingMoments
from anyreward.model.losses import Moments
from anyreward.storage.files import read_json, write_json
from anyreward.tools.bench import prepared
from anyreward.training import train
from anyreward.worlds.world import open_world

RESULTS = Path(__file__).parent / "results" / "pairs.json"
UPDATES, SEEDS, EVERY = 5_000, (0, 1, 2), 200
TRACED = (1, 5, 10, 20, 30, 40, 60, 100, 150, 300)
CHOICES: dict[str, dict[str, Any]] = {"minibatch": {"pairs": "minibatch"}, "all": {"pairs": "all"}}
CHOICES |= {
    f"average, share {share}": {"pairs": "average", "average_share": share} for share in (0.5, 0.3, 0.1, 0.05, 0.02)
}


def curve(job: tuple[str, str, int]) -> tuple[str, str, int, dict[str, Any]]:
    """Policy quality over training, of one choice and seed, and the typical size of B at the end."""
    torch.set_num_threads(1)
    base, name, seed = job
    sooner = {"target_retention": 0.8} if base == "fast" else {}
    s = preset(base, seed=seed, updates=UPDATES, landmarks=0, dim=100, **sooner, **CHOICES[name])
    agent, replay, collector = prepared(open_world("four-rooms"), s)
    mdp, quality = agent.exact_mdp(), []
    for done, _ in learn(agent.model, replay, s, collector):
        if done % EVERY == 0:
            quality.append(float(agent.goal_quality(mdp).ratio.mean()))
    B = agent.model.backward_map(replay.transitions.features[:5000])
    reached = next(((i + 1) * EVERY for i, q in enumerate(quality) if q >= 0.9), None)
    greedy = float(agent.goal_quality(mdp, 0.0).ratio.mean())
    size = float(B.square().sum(1).mean().sqrt())
    return base, name, seed, {"quality": quality, "updates to 0.9": reached, "greedy": greedy, "size of B": size}


def whole_run(job: tuple[str, int]) -> dict[str, float]:
    """Policy quality after preset `fast` as it is, with one of the choices."""
    torch.set_num_threads(1)
    name, seed = job
    agent = train(
        "four-rooms",
        seed=seed,
        landmarks=0,
        progress=False,
        compile=CHOICES[name]["pairs"] != "average",
        **CHOICES[name],
    )
    soft, greedy = (agent.goal_quality(temperature=t).ratio for t in (1.0, 0.0))
    return {"mean": float(soft.mean()), "worst": float(soft.min()), "greedy mean": float(greedy.mean())}


def traces() -> dict[str, dict[str, float]]:
    """The trace of E[B B^T] over the replay's features, by update, and what the moving average says of it."""
    results: dict[str, dict[str, float]] = {}
    for name in ("minibatch", "average, share 0.3", "average, share 0.05"):
        s = preset(
            "fast", landmarks=0, dim=100, updates=max(TRACED), updates_per_cycle=1, steps_per_cycle=5, **CHOICES[name]
        )
        agent, replay, collector = prepared(open_world("four-rooms"), s.with_(warmup_steps=1_000))
        means: dict[str, float] = results.setdefault(name, {})
        kept: list[float] = []
        fold = MovingMoments.fold

        def remember(self: MovingMoments, newest: Moments, kept: list[float] = kept, fold: Any = fold) -> Moments:
            average: Moments = fold(self, newest)
            kept.append(float(average.BB.trace()))
            return average

        with patch.object(MovingMoments, "fold", remember):
            for done, _ in learn(agent.model, replay, s.with_(warmup_steps=1_000), collector):
                if done in TRACED:
                    B = agent.model.backward_map(replay.transitions.features)
                    means[str(done)] = float(B.square().sum(1).mean())
        if kept:
            results[f"what the average of {name} says"] = {str(done): kept[done - 1] for done in TRACED}
    return results


def cost() -> dict[str, float]:
    """Milliseconds an update, median over cycles taken in turn."""
    runs = {}
    for name, changes in CHOICES.items():
        if name in ("minibatch", "all", "average, share 0.3"):
            s = preset("fast", **{"landmarks": 0, "dim": 100} | changes)
            agent, replay, collector = prepared(open_world("four-rooms"), s)
            replay.add(collector.collect(5_000))
            runs[name] = learn(agent.model, replay, s)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(30):
        for name, run in runs.items():
            started = time.perf_counter()
            next(run)
            times[name].append((time.perf_counter() - started) / 40 * 1e3)
    return {name: float(np.median(values[2:])) for name, values in times.items()}


def main() -> None:
    """Train or time, print and write."""
    results: dict[str, Any] = {"updates": UPDATES, "every": EVERY, "runs": {}}
    if RESULTS.exists():
        results = read_json(RESULTS)
    if "--time" in sys.argv:
        results["ms an update"] = cost()
        print(results["ms an update"])
        write_json(RESULTS, results)
        return
    if "--trace" in sys.argv:
        results["trace of E[BB^T]"] = traces()
        for name, row in results["trace of E[BB^T]"].items():
            print(f"| {name} |", " | ".join(f"{value:.2g}" for value in row.values()), "|")
        write_json(RESULTS, results)
        return
    if "--long" in sys.argv:
        whole = [(name, seed) for name in ("all", "average, share 0.3") for seed in SEEDS]
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            for (name, seed), end in zip(whole, pool.map(whole_run, whole), strict=True):
                results.setdefault("20,000 updates of `fast`", {}).setdefault(name, {})[str(seed)] = end
                print(f"| {name} | {seed} |", " | ".join(f"{value:.3f}" for value in end.values()), "|", flush=True)
                write_json(RESULTS, results)
        return
    jobs = [("fast", name, seed) for seed in SEEDS for name in CHOICES]
    jobs += [("paper", name, 0) for name in ("minibatch", "all", "average, share 0.3", "average, share 0.02")]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for base, name, seed, figures in pool.map(curve, jobs):
            results["runs"].setdefault(base, {}).setdefault(name, {})[str(seed)] = figures
            tail = [round(q, 3) for q in figures["quality"][4::5]]
            print(base, name, seed, figures["updates to 0.9"], tail, f"|B| {figures['size of B']:.2f}", flush=True)
            write_json(RESULTS, results)


if __name__ == "__main__":
    main()
