"""What names a dataset, and which reader opens it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from anyreward.errors import UserError
from anyreward.learning.datasets import npz, rows
from anyreward.learning.datasets.dataset import Dataset
from anyreward.learning.datasets.exorl import is_exorl, read_exorl
from anyreward.learning.datasets.hdf5 import open_hdf5
from anyreward.learning.datasets.inferred import bounded
from anyreward.learning.datasets.minari import read_minari
from anyreward.storage.files import open_npz

HDF5 = (".hdf5", ".h5")
SUFFIXES = (".npz", *HDF5)
"""Endings of the names of files that hold a dataset."""


def is_dataset(source: object) -> TypeGuard[Dataset | str | Path]:
    """Whether a source names a dataset rather than a world (docs/datasets.md)."""
    if isinstance(source, Dataset):
        return True
    if not isinstance(source, str | Path):
        return False
    text = str(source)
    if "\n" in text:  # the drawing of a maze, not a path
        return False
    if text.endswith(SUFFIXES) or text.startswith("minari:"):
        return True
    return _kind(_path(text)) in ("minari", "exorl")


def open_dataset(
    source: Dataset | str | Path, *, action_low: Any = None, action_high: Any = None, progress: bool = True
) -> Dataset:
    """Read a dataset.

    Args:
        source: an .npz or HDF5 file, the folder of a Minari dataset or of ExORL's episodes, or ``minari:ID`` of a local
            Minari dataset.
        action_low: the smallest value of each number of an action, or of all, instead of that of the dataset.
        action_high: the largest one.
        progress: whether to show progress while a large dataset is read.
    """
    bounds = (action_low, action_high)
    if isinstance(source, Dataset):
        space = bounded(source.action_space, bounds, f"dataset {source.name}")
        return source if space is source.action_space else replace(source, action_space=space)
    text = str(source)
    path = _path(text)
    if text.endswith(SUFFIXES) and _kind(path) != "file":
        raise UserError(f"There is no dataset at {path}.")
    if text.endswith(HDF5):
        with open_hdf5(path, rows.KEYS) as file:
            return rows.read_rows(file, path, bounds, progress)
    if text.endswith(".npz"):
        with open_npz(path, {*rows.KEYS, *npz.KEYS}) as file:
            read = rows.read_rows if rows.is_rows(set(file.headers)) else npz.read_npz
            return read(file, path, bounds, progress)
    kind = "minari" if text.startswith("minari:") else _kind(path)
    if kind == "exorl":
        return read_exorl(path, bounds, progress)
    if kind == "folder":
        raise UserError(
            f"{path} holds no dataset: neither data/metadata.json (Minari), nor .npz files with the keys observation "
            "and action (ExORL)."
        )
    return read_minari(text if text.startswith("minari:") else str(path), bounds, progress)


def _kind(path: Path) -> str:
    """What is at a path: a "file", the folder of a dataset ("minari", "exorl"), any other "folder", or nothing ("")."""
    try:
        if (path / "data" / "metadata.json").is_file():
            return "minari"
        if path.is_dir():
            return "exorl" if is_exorl(path) else "folder"
        return "file" if path.is_file() else ""
    except OSError:  # too long for a path, or in a folder that may not be read
        return ""


def _path(text: str) -> Path:
    """A path, with ``~`` replaced by the home folder if there is one."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
