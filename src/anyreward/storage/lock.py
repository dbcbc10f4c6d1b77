"""A lock on a folder, so that two runs do not write into it at the same time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anyreward.errors import UserError

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, a file with the owner's process and host; raises if another process holds it.

    The operating system releases the lock of a process that was killed, so a file that it left does no harm.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(folder / LOCK)
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()
            if new:
                folder.rmdir()  # nothing was written: leave no folder behind
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """The descriptor of the locked file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(descriptor)
            os.close(descriptor)
            raise UserError(
                f"{path.parent} is in use by {owner}. Wait until that ends, or choose another folder (out)."
            ) from error
        if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
            break
        os.close(descriptor)  # its owner has just removed it: lock a new one
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
    return descriptor


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4_096, 0))
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
