"""Two seeds side by side, on a thread each, against one after the other on two threads.

python benchmarks/side_by_side.py     # two minutes, on a quiet machine
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from anyreward.learning.settings import RunSettings, preset
from anyreward.storage.files import write_json
from anyreward.tools.sweep import train_seeds
from anyreward.training import train

RESULTS = Path(__file__).parent / "results" / "side_by_side.json"
UPDATES = 3_000


def seeds(compiled: bool) -> dict[str, float]:
    """Seconds for two seeds, both ways; starting the processes counts."""
    s, run = preset("fast", updates=UPDATES, landmarks=0), RunSettings(compile=compiled)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for seed in (0, 1):
            train("four-rooms", settings=s, run=run, seed=seed, out=Path(folder) / f"one{seed}", progress=False)
        after = time.perf_counter() - started
        started = time.perf_counter()
        train_seeds("four-rooms", s, run, {seed: Path(folder) / f"both{seed}" for seed in (0, 1)}, progress=False)
        beside = time.perf_counter() - started
    return {"one after the other, seconds": after, "side by side, seconds": beside, "ratio": after / beside}


if __name__ == "__main__":
    results = {"updates": UPDATES, **{("compiled" if c else "not compiled"): seeds(c) for c in (False, True)}}
    write_json(RESULTS, results)
    print(results)
