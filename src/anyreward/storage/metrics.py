"""Metrics of a run, as lines of JSON and optionally in TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anyreward.errors import UserError
from anyreward.storage.files import write_atomically


class MetricsLog:
    """Appends lines to ``metrics.jsonl`` of a run folder and flushes each."""

    def __init__(self, folder: Path, tensorboard: bool = False, after: int | None = None) -> None:
        """Start a new file, or continue one ``after`` this number of updates; later lines are dropped."""
        self._board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError as error:
                raise UserError("TensorBoard is not installed: pip install 'anyreward[tensorboard]'.") from error
            self._board = SummaryWriter(str(folder / "tensorboard"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
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


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The metrics of a run, in order."""
    path = Path(folder) / "metrics.jsonl"
    if not path.is_file():
        raise UserError(f"There is no metrics.jsonl in {folder}; is it a run folder?")
    whole = path.read_text(encoding="utf-8").split("\n")[:-1]  # a line without a newline is incomplete
    try:
        return [json.loads(line) for line in whole]
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is damaged: {error}") from error
