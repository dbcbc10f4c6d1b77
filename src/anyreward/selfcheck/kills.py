"""Runs that are killed, stopped by signals, or started twice: they continue, and end with the same weights."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from anyreward.selfcheck.runs import REFUSED, RUNS, finish, start
from anyreward.selfcheck.table import Result

PATIENCE = 5.0
"""Seconds that a run has to save and end after a signal."""


@cache
def references() -> dict[str, tuple[str, float, int]]:
    """For each run that is never stopped: the fingerprint, its time, and its operations on files."""
    found = {}
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary:
        for name, run in RUNS.items():
            folder, count = Path(temporary) / name, Path(temporary) / f"{name}.txt"
            begun = time.perf_counter()
            start(folder, run, count=count).join()
            seconds = time.perf_counter() - begun
            found[name] = (finish(folder, run), seconds, int(count.read_text()))
    return found


def at_random(count: int, seed: int) -> Result:
    """Kill runs at random moments, some of them several times."""
    rng, result = np.random.default_rng(seed), Result("kill -9 at random moments")
    with _prepared() as (folder, known):
        for trial, name in enumerate(_names(count)):
            expected, seconds, _ = known[name]
            run, out = RUNS[name], folder / f"trial {trial}"
            for _ in range(rng.integers(1, 4)):
                process = start(out, run)
                process.join(rng.uniform(0, seconds))
                process.kill()
                process.join()
            result.tell(finish(out, run) == expected, f"{name}, trial {trial}")
    return result


def at_writes(count: int, seed: int) -> Result:
    """Kill runs at each of their operations on files in turn."""
    rng, result = np.random.default_rng(seed), Result("kill -9 at each write")
    with _prepared() as (folder, known):
        for trial, name in enumerate(_names(count)):
            expected, _, operations = known[name]
            run, out = RUNS[name], folder / f"trial {trial}"
            process = start(out, run, kill_at=int(rng.integers(1, operations + 1)))
            process.join()
            killed = process.exitcode == -signal.SIGKILL
            result.tell(killed and finish(out, run) == expected, f"{name}, trial {trial}")
    return result


def by_signals(count: int, seed: int) -> Result:
    """Stop runs by SIGTERM, SIGHUP and SIGINT: they save, and end soon with the conventional code."""
    rng, result = np.random.default_rng(seed), Result("SIGTERM, SIGHUP, SIGINT")
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    with _prepared() as (folder, known):
        for trial, name in enumerate(_names(count)):
            expected, seconds, _ = known[name]
            run, out, number = RUNS[name], folder / f"trial {trial}", numbers[trial // len(RUNS) % 3]
            process = start(out, run)
            process.join(rng.uniform(0.3, 0.9) * seconds)
            begun = time.perf_counter()
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)
            process.join()
            quick = time.perf_counter() - begun < PATIENCE
            code = process.exitcode in (0, 128 + number, -number)  # done already, saved, or nothing had begun
            result.tell(quick and code and finish(out, run) == expected, f"{name}, {number}, trial {trial}")
    return result


def two_at_once(count: int, seed: int) -> Result:
    """Start two runs in one folder: one of them is refused, the other one is not disturbed."""
    result = Result("two runs in one folder")
    with _prepared() as (folder, known):
        for trial, name in enumerate(_names(count)):
            run, out = RUNS[name], folder / f"trial {trial}"
            both = [start(out, run), start(out, run)]
            for process in both:
                process.join()
            codes = sorted(process.exitcode or 0 for process in both)
            result.tell(codes in ([0, REFUSED], [0, 0]) and finish(out, run) == known[name][0], f"{name}, {codes}")
    return result


class _prepared:
    """A temporary folder, and the runs that are never stopped."""

    def __enter__(self) -> tuple[Path, dict[str, tuple[str, float, int]]]:
        self._folder = TemporaryDirectory(prefix="anyreward-selfcheck-")
        return Path(self._folder.name), references()

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()


def _names(count: int) -> Iterator[str]:
    names = list(RUNS)
    for i in range(count):
        yield names[i % len(names)]
