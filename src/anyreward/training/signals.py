"""Signals that ask a run to stop: Ctrl-C, the stop of a container or a cluster job, the end of a session."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anyreward.worlds.processes import STOPPING


@contextmanager
def delayed_stop() -> Iterator[Callable[[], None]]:
    """Delay the first signal that asks to stop, so that a run can save a consistent state.

    Yields a function that raises if there was one: KeyboardInterrupt for Ctrl-C, else SystemExit with the conventional
    code, 128 + signal. A second signal is not delayed. Signals that are handled elsewhere, or ignored, stay so.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    default = {number: signal.getsignal(number) for number in STOPPING}
    default = {number: now for number, now in default.items() if now in (signal.SIG_DFL, signal.default_int_handler)}

    def first(number: int, frame: Any) -> None:
        received.append(number)
        restore()

    def restore() -> None:
        for number, handler in default.items():
            signal.signal(number, handler)

    def raise_if_stopped() -> None:
        if received and received[0] == signal.SIGINT:
            raise KeyboardInterrupt
        if received:
            raise SystemExit(128 + received[0])

    for number in default:
        signal.signal(number, first)
    try:
        yield raise_if_stopped
    finally:
        restore()
