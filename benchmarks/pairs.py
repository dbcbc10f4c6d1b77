"""What each (s, a) is paired with in the losses, a second minibatch or all features: quality per update, and cost.

python benchmarks/pairs.py            # trains, two processes of one thread each, about 5 minutes
python benchmarks/pairs.py --long     # preset `fast` as it is, 20,000 updates of both, about 10 minutes
python benchmarks/pairs.py --time     # times the updates of both in turn; on a quiet machine

The results hold those of a third choice too, which was removed (docs/notebook/removed_settings.md).
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch

import anyreward as ar
from anyreward.learning.loop import begin, learn
from anyreward.storage.files import read_json, write_json
from anyreward.storage.metrics import read_metrics
from anyreward.tools.bench import prepared

RESULTS = Path(__file__).parent / "results" / "pairs.json"
UPDATES, SEEDS, EVERY = 5_000, (0, 1, 2), 200
Pairs = Literal["minibatch", "all"]
CHOICES: tuple[Pairs, ...] = ("minibatch", "all")


def curve(job: tuple[str, Pairs, int]) -> dict[str, Any]:
    """Policy quality over training, of one choice and seed, and the typical size of B at the end."""
    torch.set_num_threads(1)
    base, pairs, seed = job
    changes: dict[str, Any] = {"updates": UPDATES, "landmarks": 0, "dim": 100, "evaluate_every": EVERY}
    if base == "fast":
        changes["target_retention"] = 0.8
    with TemporaryDirectory() as out:
        agent = ar.train("four-rooms", preset=base, seed=seed, pairs=pairs, out=out, progress=False, **changes)
        quality = [line["quality"] for line in read_metrics(Path(out))]
    size = float((agent.sample.weights @ agent.sample.B.double().square().sum(1)).sqrt())
    reached = next(((i + 1) * EVERY for i, q in enumerate(quality) if q >= 0.9), None)
    greedy = float(agent.score().ratio.mean())
    return {"quality": quality, "updates to 0.9": reached, "greedy": greedy, "size of B": size}


def whole_run(job: tuple[Pairs, int]) -> dict[str, float]:
    """Policy quality after preset `fast` as it is, with one of the choices."""
    torch.set_num_threads(1)
    agent = ar.train("four-rooms", pairs=job[0], seed=job[1], landmarks=0, progress=False, compile=True)
    soft, greedy = (agent.score(temperature=t).ratio for t in (1.0, 0.0))
    return {"mean": float(soft.mean()), "worst": float(soft.min()), "greedy mean": float(greedy.mean())}


def cost() -> dict[str, float]:
    """Milliseconds an update, median over cycles taken in turn."""
    runs = {}
    for pairs in CHOICES:
        s = ar.preset("fast", landmarks=0, dim=100, pairs=pairs)
        ready = prepared(ar.open_world("four-rooms"), s)
        ready.replay.add(ready.collector.collect(5_000))
        runs[pairs] = learn(begin(ready.agent.model, ready.replay, s))
    times: dict[Pairs, list[float]] = {name: [] for name in runs}
    for _ in range(30):
        for name, run in runs.items():
            started = time.perf_counter()
            next(run)
            times[name].append((time.perf_counter() - started) / 40 * 1e3)
    return {name: float(np.median(values[2:])) for name, values in times.items()}


def main() -> None:
    """Train or time, print and write."""
    results: dict[str, Any] = read_json(RESULTS) if RESULTS.exists() else {"updates": UPDATES, "every": EVERY}
    if "--time" in sys.argv:
        results.setdefault("ms an update", {}).update(cost())
        print(results["ms an update"])
        write_json(RESULTS, results)
        return
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        if "--long" in sys.argv:
            whole = [(name, seed) for name in CHOICES for seed in SEEDS]
            for (name, seed), end in zip(whole, pool.map(whole_run, whole), strict=True):
                results.setdefault("20,000 updates of `fast`", {}).setdefault(name, {})[str(seed)] = end
                print(f"| {name} | {seed} |", " | ".join(f"{value:.3f}" for value in end.values()), "|", flush=True)
                write_json(RESULTS, results)
            return
        jobs = [("fast", name, seed) for seed in SEEDS for name in CHOICES] + [("paper", name, 0) for name in CHOICES]
        for (base, name, seed), figures in zip(jobs, pool.map(curve, jobs), strict=True):
            results.setdefault("runs", {}).setdefault(base, {}).setdefault(name, {})[str(seed)] = figures
            tail = [round(q, 3) for q in figures["quality"][4::5]]
            print(base, name, seed, figures["updates to 0.9"], tail, f"|B| {figures['size of B']:.2f}", flush=True)
            write_json(RESULTS, results)


if __name__ == "__main__":
    main()
