"""A soak test: train, resume, ask and evaluate again and again; memory and open files must not grow."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from anyreward.acting.play import evaluate
from anyreward.rewards.terms import reward
from anyreward.selfcheck.runs import RUNS
from anyreward.selfcheck.table import Result
from anyreward.training import resume, train

SETTLED = 0.3
"""Share of the time after which memory is expected to stay the same: caches are filled by then."""
GROWTH = 0.05
"""Largest growth of memory after that."""


def soak(minutes: float, seed: int) -> Result:
    """Repeat everything for some minutes; a repetition fails if memory or the number of open files has grown."""
    result, begun = Result("soak test: memory, open files"), time.perf_counter()
    settled: tuple[int, int] | None = None
    first = _used()
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while (passed := time.perf_counter() - begun) < 60 * minutes:
            for name, run in RUNS.items():
                out = Path(temporary) / name
                changes = run.changes | {"seed": seed + result.tried}
                train(run.world, out=out, overwrite=True, minutes=1e-9, progress=False, save_every=0.02, **changes)
                policy = resume(out, progress=False).ask(reward("1"))
                evaluate(policy, run.world, episodes=5, seed=0)
                str(policy.trust)
            memory, files = _used()
            if settled is None and passed > SETTLED * 60 * minutes:
                settled = (memory, files)
            good = settled is None or (memory <= (1 + GROWTH) * settled[0] and files <= settled[1])
            result.tell(good, f"after {passed / 60:.0f} min: {memory / 1e6:.0f} MB, {files} files")
    memory, files = _used()
    then = settled or (memory, files)
    result.note = (
        f"memory {first[0] / 1e6:.0f} MB at the start, {then[0] / 1e6:.0f} MB when settled, {memory / 1e6:.0f} MB at "
        f"the end; open files {first[1]}, {then[1]}, {files}"
    )
    return result


def _used() -> tuple[int, int]:
    """Bytes of memory in use, and the number of open files, of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))
