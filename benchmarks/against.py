"""The time of an update relative to an earlier version of the package: both run in turn, one cycle at a time.

    git worktree add /tmp/earlier COMMIT
    python benchmarks/against.py /tmp/earlier/src

The earlier version may be one with the module names of before the restructuring (docs/notebook/restructuring.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
CYCLES, UPDATES = 40, 40
CASES = [
    (preset, world, threads, compiled)
    for compiled in (0, 1)
    for world in ("four-rooms", "continuous-maze")
    for preset in ("paper", "fast")
    for threads in ((2,) if compiled else (2, 1))
]


def serve(preset_name: str, world_name: str, threads: int, compiled: bool) -> None:
    """Train for one cycle for each line of standard input, and print its seconds."""
    import torch

    from anyreward.worlds.world import open_world

    torch.set_num_threads(threads)
    changes: dict[str, Any] = {"landmarks": 0, "updates": (CYCLES + 2) * UPDATES, "dim": 100}
    world, options = open_world(world_name), list[Any]()
    try:
        bench, settings = (import_module(f"anyreward.{name}") for name in ("tools.bench", "learning.settings"))
        options = [settings.preset(preset_name, **changes), settings.RunSettings(threads=threads, compile=compiled)]
    except ImportError:  # before the restructuring
        bench, settings = (import_module(f"anyreward.{name}") for name in ("experiments.bench", "learning.presets"))
        options = [settings.preset(preset_name, threads=threads, compile=compiled, **changes)]
    cycle = bench._cycles(world, *options, offline=5_000)[0]
    for _ in range(2):
        cycle()
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        cycle()
        print(time.perf_counter() - begun, flush=True)


def start(source: Path, case: tuple[str, str, int, int]) -> subprocess.Popen[str]:
    """A process that serves one case with the package at ``source``."""
    command = [sys.executable, __file__, "serve", *map(str, case)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd="/"
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def seconds(process: subprocess.Popen[str]) -> float:
    """The time of the process's next cycle."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(earlier: Path, case: tuple[str, str, int, int]) -> dict[str, Any]:
    """Milliseconds of an update with both versions, and the quartiles of their ratio, now / earlier."""
    both = [start(source, case) for source in (earlier, HERE.parent / "src")]
    times = np.array([[seconds(process) for process in both] for _ in range(CYCLES)]) / UPDATES * 1e3
    for process in both:
        process.communicate()
    ratios = np.percentile(times[:, 1] / times[:, 0], [25, 50, 75]).round(3).tolist()
    preset_name, world, threads, compiled = case
    ms = np.median(times, 0).round(2).tolist()
    found = {"world": world, "preset": preset_name, "threads": threads, "compiled": bool(compiled)}
    found |= {"ms": ms, "ratio": ratios}
    print(found, flush=True)
    return found


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "1")
    else:
        results = [compare(Path(sys.argv[1]).resolve(), case) for case in CASES]
        (HERE / "results" / "against.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
