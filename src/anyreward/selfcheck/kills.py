"""Runs that are killed, stopped by signals, or started twice: they continue, and end with the same weights."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from anyreward.selfcheck.runs import REFUSED, RUNS, Small, finish, start
from anyreward.selfcheck.table import Result

PATIENCE = 5.0
"""Seconds that a run has to save and end after a signal."""


class Known(NamedTuple):
    """What is known of a run that is never stopped."""

    fingerprint: str
    seconds: float
    operations: int
    """on files"""


@cache
def known(name: str) -> Known:
    """The outcome of a run that is never stopped."""
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary:
        folder, count = Path(temporary) / name, Path(temporary) / f"{name}.txt"
        begun = time.perf_counter()
        start(folder, RUNS[name], count=count).join()
        seconds = time.perf_counter() - begun
        return Known(finish(folder, RUNS[name]), seconds, int(count.read_text()))


def at_random(count: int, seed: int) -> Result:
    """Kill runs at random moments, some of them several times."""
    rng, result = np.random.default_rng(seed), Result("kill -9 at random moments")
    for name, run, out, text in _trials(count, "torques"):
        expected, seconds, _ = known(name)
        for _ in range(rng.integers(1, 4)):
            process = start(out, run)
            process.join(rng.uniform(0, seconds))
            process.kill()
            process.join()
        result.tell(finish(out, run) == expected, text)
    return result


def at_writes(count: int, seed: int) -> Result:
    """Kill runs at each of their operations on files in turn."""
    rng, result = np.random.default_rng(seed), Result("kill -9 at each write")
    for name, run, out, text in _trials(count, "actor"):
        expected, _, operations = known(name)
        process = start(out, run, kill_at=int(rng.integers(1, operations + 1)))
        process.join()
        killed = process.exitcode == -signal.SIGKILL
        result.tell(killed and finish(out, run) == expected, text)
    return result


def by_signals(count: int, seed: int) -> Result:
    """Stop runs by SIGTERM, SIGHUP and SIGINT: they save, and end soon with the conventional code."""
    rng, result = np.random.default_rng(seed), Result("SIGTERM, SIGHUP, SIGINT")
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    for trial, (name, run, out, text) in enumerate(_trials(count, "networks")):
        expected, seconds, _ = known(name)
        number = numbers[trial // len(RUNS) % 3]
        process = start(out, run)
        process.join(rng.uniform(0.3, 0.9) * seconds)
        begun = time.perf_counter()
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, number)
        process.join()
        quick = time.perf_counter() - begun < PATIENCE
        code = process.exitcode in (0, 128 + number, -number)  # done already, saved, or nothing had begun
        result.tell(quick and code and finish(out, run) == expected, f"{text}, {number}")
    return result


def two_at_once(count: int, seed: int) -> Result:
    """Start two runs in one folder: one of them is refused, the other one is not disturbed."""
    result = Result("two runs in one folder")
    for name, run, out, text in _trials(count, "tables"):
        both = [start(out, run), start(out, run)]
        for process in both:
            process.join()
        codes = sorted(process.exitcode or 0 for process in both)
        ended = codes in ([0, REFUSED], [0, 0])
        result.tell(ended and finish(out, run) == known(name).fingerprint, f"{text}, {codes}")
    return result


def _trials(count: int, first: str) -> Iterator[tuple[str, Small, Path, str]]:
    """For each trial: the name of a run, the run, an empty folder, and a text for the report.

    Every check begins with another run, so that a few trials try several of them.
    """
    names = list(RUNS)
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary:
        for i in range(count):
            name = names[(names.index(first) + i) % len(names)]
            yield name, RUNS[name], Path(temporary) / f"trial {i}", f"{name}, trial {i}"
