"""Display of progress: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class TrainingProgress:
    """A progress display: updates done, updates/s, time left, and a note such as the current policy quality."""

    def __init__(
        self,
        total: int,
        enabled: bool = True,
        begun: int = 0,
        console: Console | None = None,
        lines: int = 10,
        what: tuple[str, str] = ("training", "updates"),
        seconds: float | None = None,
    ) -> None:
        """Show progress to ``total`` updates, of which ``begun`` were done before; ``what`` is (title, unit).

        Without a terminal there are ``lines`` in all, or one every so many ``seconds``.
        """
        title, self._unit = what
        self._console = console or Console(stderr=True)
        self._total, self._enabled, self._begun = total, enabled, begun
        self._started = time.perf_counter()
        self._line_every, self._next_line = max(1, total // lines), max(1, total // lines)
        self._seconds, self._next_second = seconds, seconds or 0.0
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if enabled and self._console.is_terminal:
            self._bar = Progress(
                TextColumn(title),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:.0f} " + f"{self._unit}/s"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._console,
            )
            self._task = self._bar.add_task(title, total=total, rate=0.0, note="")

    def __enter__(self) -> TrainingProgress:
        self._started = time.perf_counter()
        if self._bar:
            self._bar.start()
        return self

    def say(self, text: str) -> None:
        """Print a line above the display; nothing for an empty text."""
        if self._enabled and text:
            self._console.print(text, highlight=False, soft_wrap=True)

    def remark(self, note: str) -> None:
        """Show a note beside the bar; ignored if there is no bar."""
        if self._bar:
            self._bar.update(self._task, note=note)

    def show(self, done: int, note: str = "") -> None:
        """Update the display."""
        elapsed = time.perf_counter() - self._started
        rate = (done - self._begun) / max(elapsed, 1e-9)
        if self._bar:
            self._bar.update(self._task, completed=done, rate=rate, note=note)
        elif self._enabled and (done >= self._next_line if self._seconds is None else elapsed >= self._next_second):
            left = (self._total - done) / max(rate, 1e-9)
            pace = f"{rate:.0f} {self._unit}/s  {left:.0f} s left"
            self.say(f"{done:,}/{self._total:,} {self._unit}  {pace}  {note}".rstrip())
            self._next_line = (done // self._line_every + 1) * self._line_every
            self._next_second = elapsed + (self._seconds or 0.0)

    def __exit__(self, *failure: object) -> None:
        if self._bar:
            self._bar.stop()
