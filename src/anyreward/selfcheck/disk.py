"""A disk that is full: a run says so in one line, and its last save stays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from anyreward.errors import UserError
from anyreward.folder import holds_agent, load_run
from anyreward.selfcheck.runs import REFUSED, RUNS, start
from anyreward.selfcheck.table import Result


def full_disk(count: int, seed: int) -> Result:
    """Train on a small disk that fills up during the run."""
    rng, result = np.random.default_rng(seed), Result("full disk")
    for trial in range(count):
        with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary:
            disk = Path(temporary) / "disk"
            disk.mkdir()
            size = int(rng.integers(1_100, 1_800))  # kilobytes
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(disk)]
            if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
                result.note = "not tried: mounting a small disk needs an administrator"
                return result
            try:
                process = start(disk / "run", RUNS["networks"])
                process.join()
                result.tell(process.exitcode in (0, REFUSED) and _intact(disk / "run"), f"trial {trial}, {size} kB")
            finally:
                subprocess.run(["umount", str(disk)], capture_output=True, check=True)
    return result


def _intact(folder: Path) -> bool:
    """Whether a folder holds nothing, or a run that can be continued; and nothing half-written."""
    try:
        if holds_agent(folder):
            load_run(folder)
    except UserError:
        return False
    return not folder.is_dir() or not any(path.name.startswith(".anyreward-") for path in folder.iterdir())
