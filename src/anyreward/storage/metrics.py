"""Metrics of a run: a line of JSON each, and TensorBoard on request."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from anyreward.errors import UserError


class MetricsLog:
    """Appends to ``metrics.jsonl`` of a run folder; each line is whole once written."""

    def __init__(self, folder: Path, tensorboard: bool = False, after: int | None = None) -> None:
        """Begin anew, or go on ``after`` so many updates, without the lines of later ones."""
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError as error:
                raise UserError("TensorBoard is not installed: pip install 'anyreward[tensorboard]'.") from error
            self._board = SummaryWriter(str(folder / "tensorboard"))
        folder.mkdir(parents=True, exist_ok=True)
        kept = [] if after is None else [line for line in read_metrics(folder) if line["updates"] <= after]
        self._file = (folder / "metrics.jsonl").open("w", encoding="utf-8")
        for line in kept:
            self._file.write(json.dumps(line) + "\n")

    def write(self, metrics: dict[str, float]) -> None:
        """One line; ``metrics`` must hold "updates"."""
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in metrics.items():
                self._board.add_scalar(name, value, int(metrics["updates"]))

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The metrics of a run, in order."""
    path = Path(folder) / "metrics.jsonl"
    if not path.is_file():
        raise UserError(f"There is no metrics.jsonl in {folder}; is it a run folder?")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
