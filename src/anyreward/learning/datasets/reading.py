"""Progress while a large dataset is read."""

from __future__ import annotations

from anyreward.learning.progress import TrainingProgress

MEGABYTE = 10**6
SHOWN_FROM = 100 * MEGABYTE
"""Bytes of data from which on progress is shown."""
SECONDS = 30.0
"""Time between two lines of progress, if there is no terminal."""


class Reading:
    """A progress bar for bytes, or lines now and then; nothing for data that is read at once."""

    def __init__(self, size: int, progress: bool) -> None:
        shown = progress and size >= SHOWN_FROM
        self._bar = TrainingProgress(max(1, size // MEGABYTE), shown, what=("reading", "MB"), seconds=SECONDS)
        self._read = 0

    def __enter__(self) -> Reading:
        self._bar.__enter__()
        return self

    def add(self, size: int) -> None:
        """Count some bytes that were read."""
        self._read += size
        self._bar.show(self._read // MEGABYTE)

    def __exit__(self, *failure: object) -> None:
        self._bar.__exit__(*failure)
