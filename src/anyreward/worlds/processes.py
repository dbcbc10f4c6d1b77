"""Processes that belong to another one: they leave signals to it, and end with it."""

from __future__ import annotations

import os
import signal
import threading
import time

CHECK_EVERY = 0.5
"""Seconds between two looks at whether the parent process still runs."""
STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a run to stop: Ctrl-C, the stop of a container or a cluster job, and the end of a session."""
PATIENCE = 10.0
"""Seconds that a process has to save what it did after its parent has ended."""


def follow(parent: int) -> None:
    """Let this process ignore signals that ask to stop, and end it as soon as its parent process has ended.

    Signals reach all processes of a terminal or a job. The parent handles them, and then ends its processes.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    end_with(parent, save=False)


def end_with(parent: int, save: bool = True) -> None:
    """End this process soon after its parent has ended; with ``save`` a run in it is asked to stop, and saves."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(CHECK_EVERY)
        if save:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
