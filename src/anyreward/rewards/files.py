"""Rewards that are kept in files: samples and demonstrations."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from anyreward.errors import UserError
from anyreward.rewards.reward import Reward, demonstration, samples

Array = np.ndarray[Any, Any]


def read_samples(path: Path, distribution: Literal["training", "other"] = "training") -> Reward:
    """Samples from an .npz file with ``features`` (n, k) and ``rewards`` (n,), or a .csv whose last column is reward.

    A .csv has a first line with the names of its columns.
    """
    if path.suffix == ".csv":
        if not path.is_file():
            raise UserError(f"There is no file {path}.")
        lines = path.read_text(encoding="utf-8").splitlines()
        names = [name.strip() for name in lines[0].split(",")] if lines else []
        if len(names) < 2 or names[-1] != "reward":
            raise UserError(f"{path} must begin with a line of names that ends in reward, such as x,y,reward.")
        try:
            table = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:] if line.strip()])
        except ValueError as error:
            raise UserError(
                f"{path} holds something that is not a number, or lines of unequal length: {error}"
            ) from None
        if table.ndim != 2 or table.shape[1] != len(names):
            raise UserError(f"{path} has no samples with as many numbers as it has names ({', '.join(names)}).")
        return samples(table[:, :-1], table[:, -1], distribution)
    data = _read_npz(path, ("features", "rewards"))
    return samples(data["features"], data["rewards"], distribution)


def read_demonstration(path: Path) -> Reward:
    """A demonstration from an .npz file with ``observations`` (n, ...) and perhaps ``actions`` (n,)."""
    data = _read_npz(path, ("observations",))
    return demonstration(data["observations"], data.get("actions"))


def _read_npz(path: Path, needed: tuple[str, ...]) -> dict[str, Array]:
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            data = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise UserError(f"{path} is not an .npz file of arrays: {error}") from None
    missing = [name for name in needed if name not in data]
    if missing:
        raise UserError(f"{path} holds {', '.join(data) or 'nothing'}; it needs {', '.join(needed)}.")
    return data
