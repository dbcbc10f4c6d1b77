"""What each (s, a) is paired with in the losses: quality per update of each choice, and its cost (docs/speed.md).

python benchmarks/pairs.py            # trains, two processes of one thread each, about 10 minutes
python benchmarks/pairs.py --time     # times the updates of each choice in turn; on a quiet machine
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anyreward.experiments.bench import prepared
from anyreward.learning.presets import preset
from anyreward.learning.train import learn
from anyreward.storage.files import read_json, write_json
from anyreward.worlds.world import open_world

RESULTS = Path(__file__).parent / "results" / "pairs.json"
UPDATES, SEEDS, EVERY = 5_000, (0, 1, 2), 200
CHOICES: dict[str, dict[str, Any]] = {"minibatch": {"pairs": "minibatch"}, "all": {"pairs": "all"}}
CHOICES |= {
    f"average, share {share}": {"pairs": "average", "average_share": share} for share in (0.5, 0.3, 0.1, 0.05, 0.02)
}


def curve(job: tuple[str, str, int]) -> tuple[str, str, int, dict[str, Any]]:
    """Policy quality over training, of one choice and seed, and the typical size of B at the end."""
    torch.set_num_threads(1)
    base, name, seed = job
    sooner = {"target_retention": 0.8} if base == "fast" else {}
    s = preset(base, seed=seed, updates=UPDATES, **sooner, **CHOICES[name])
    agent, replay, collector = prepared(open_world("four-rooms"), s)
    mdp, quality = agent.exact_mdp(), []
    for done, _ in learn(agent.representation, replay, s, collector):
        if done % EVERY == 0:
            quality.append(float(agent.goal_quality(mdp).ratio.mean()))
    B = agent.representation.backward_map(replay.transitions.features[:5000])
    reached = next(((i + 1) * EVERY for i, q in enumerate(quality) if q >= 0.9), None)
    greedy = float(agent.goal_quality(mdp, 0.0).ratio.mean())
    size = float(B.square().sum(1).mean().sqrt())
    return base, name, seed, {"quality": quality, "updates to 0.9": reached, "greedy": greedy, "size of B": size}


def cost() -> dict[str, float]:
    """Milliseconds an update, median over cycles taken in turn."""
    runs = {}
    for name, changes in CHOICES.items():
        if name in ("minibatch", "all", "average, share 0.3"):
            s = preset("fast", **changes)
            agent, replay, collector = prepared(open_world("four-rooms"), s)
            replay.add(collector.collect(5_000))
            runs[name] = learn(agent.representation, replay, s)
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
