"""Two seeds side by side against one after the other, and torch.compile against the written-out chain rule.

python benchmarks/side_by_side.py     # two minutes, on a quiet machine
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.experiments.bench import prepared
from anyreward.experiments.sweep import train_seeds
from anyreward.learning.presets import preset
from anyreward.learning.train import learn
from anyreward.storage.files import write_json
from anyreward.training import train
from anyreward.worlds.world import open_world

RESULTS = Path(__file__).parent / "results" / "side_by_side.json"
UPDATES = 3_000


def seeds() -> dict[str, float]:
    """Seconds for two seeds, both ways; starting the processes counts."""
    s = preset("fast", updates=UPDATES)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for seed in (0, 1):
            train("four-rooms", settings=s.with_(seed=seed), out=Path(folder) / f"one{seed}", progress=False)
        after = time.perf_counter() - started
        started = time.perf_counter()
        train_seeds("four-rooms", s, {seed: Path(folder) / f"both{seed}" for seed in (0, 1)}, progress=False)
        beside = time.perf_counter() - started
    return {"one after the other, seconds": after, "side by side, seconds": beside, "ratio": after / beside}


def compilation() -> dict[str, Any]:
    """Milliseconds an update with and without torch.compile, cycles in turn, and the seconds that compiling takes."""
    runs, first = {}, {}
    for compiled in (False, True):
        s = preset("fast", compile=compiled)
        agent, replay, collector = prepared(open_world("four-rooms"), s)
        replay.add(collector.collect(5_000))
        runs[compiled] = learn(agent.representation, replay, s)
        started = time.perf_counter()
        for _ in range(3):
            next(runs[compiled])
        first[compiled] = time.perf_counter() - started
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(20):
        for compiled, run in runs.items():
            started = time.perf_counter()
            next(run)
            times[compiled].append((time.perf_counter() - started) / 40 * 1e3)
    plain, fast = (float(np.median(times[c])) for c in (False, True))
    return {"ms an update": plain, "ms an update, compiled": fast, "seconds of compiling": first[True] - first[False]}


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler itself
        results = {"updates": UPDATES, "two seeds": seeds(), "compile": compilation()}
    write_json(RESULTS, results)
    print(results)
