"""Metrics of a run, as lines of JSON and optionally in TensorBoard."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from anyreward.errors import UserError
from anyreward.storage.files import write_atomically

FILE = "metrics.jsonl"
BEGINNING = b'{"updates"'
"""How each line begins."""


class MetricsLog:
    """Appends lines to ``metrics.jsonl`` of a run folder and flushes each."""

    def __init__(self, folder: Path, tensorboard: bool = False, after: int | None = None) -> None:
        """Start a new file, or continue one ``after`` this number of updates; later lines are dropped."""
        check_metrics(folder)
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError as error:
                raise UserError("TensorBoard is not installed: pip install 'anyreward[tensorboard]'.") from error
            self._board = SummaryWriter(str(folder / "tensorboard"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        known = read_metrics(folder) if after is not None and path.exists() else []
        kept = [json.dumps(line) + "\n" for line in known if line["updates"] <= (after or 0)]
        write_atomically(path, "".join(kept).encode())
        self._file = path.open("a", encoding="utf-8")

    def write(self, metrics: dict[str, float]) -> None:
        """Write one line; ``metrics`` must have the key "updates"."""
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in metrics.items():
                self._board.add_scalar(name, value, int(metrics["updates"]))

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def check_metrics(folder: Path) -> None:
    """Raise if the folder holds a metrics.jsonl that is not of a run, because a run would replace it."""
    path = folder / FILE
    content = path.read_bytes() if path.is_file() else b""
    torn = BEGINNING.startswith(content)  # empty, or a first line that was not finished
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file; choose another run folder.")
    if not torn and b"updates" not in content and content.strip():
        raise UserError(
            f"{path} was not written by anyreward: its lines have no 'updates'. A run would replace it; choose another "
            "run folder, or move the file away."
        )


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The metrics of a run, in order; a line without an end is left out: a run was writing it when it was killed."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise UserError(f"There is no {FILE} in {folder}; is it a run folder?")
    check_metrics(Path(folder))
    lines = [_read_line(line) for line in path.read_bytes().split(b"\n")[:-1]]
    bad = [str(number) for number, line in enumerate(lines, start=1) if line is None]
    if bad:
        which = ", ".join(bad[:5]) + ", ..." * (len(bad) > 5)
        raise UserError(f"{path} is damaged: line {which} cannot be read. Delete the line, or move the file away.")
    return [line for line in lines if line is not None]


def _read_line(line: bytes) -> dict[str, float] | None:
    """The metrics of one line; None unless they are numbers by name, with a number of updates."""
    try:
        metrics = json.loads(line)
        numbers = [float(value) for value in metrics.values() if type(value) in (int, float)]
        whole = len(numbers) == len(metrics) and 0 <= metrics["updates"] < math.inf
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return metrics if whole else None
