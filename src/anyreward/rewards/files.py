"""Rewards from files: samples and demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from anyreward.errors import UserError, shown
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import demonstration, samples
from anyreward.storage import user_path
from anyreward.storage.files import read_arrays
from anyreward.worlds.spaces import Array

LARGEST_CSV = 2**28
"""Largest size of a .csv file, in bytes: each number takes many times its size as text."""


def read_samples(path: Path, names: Sequence[str], distribution: Literal["training", "other"] = "training") -> Reward:
    """Samples from an .npz file with ``features`` (n, k) and ``rewards`` (n,), or a .csv whose last column is reward.

    A .csv has a first line with the names of its columns: those of the features, in any order, or f0, f1, ...
    """
    path = user_path(path)
    if path.suffix == ".csv":
        if not path.is_file():
            raise UserError(f"There is no file {path}.")
        if path.stat().st_size > LARGEST_CSV:
            raise UserError(f"{path} is larger than {LARGEST_CSV >> 20} MB; give samples as .npz (features, rewards).")
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise UserError(f"{path} is not text in UTF-8; save it as such.") from None
        header = [name.strip() for name in lines[0].split(",")] if lines else []
        numbered = [f"f{i}" for i in range(len(header) - 1)]
        if len(header) < 2 or header[-1] != "reward" or sorted(header[:-1]) not in (sorted(names), sorted(numbered)):
            raise UserError(
                f"{path} begins with the names {shown(header)}; expected {', '.join(names)} in any "
                "order, or f0, f1, ..., and reward as the last."
            )
        try:
            table = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:] if line.strip()])
        except ValueError as error:
            raise UserError(
                f"{path} holds something that is not a number, or lines of unequal length: {shown(str(error))}"
            ) from None
        if table.ndim != 2 or table.shape[1] != len(header):
            raise UserError(f"{path} has no samples with one number for each column ({', '.join(header)}).")
        expected = list(names) if sorted(header[:-1]) == sorted(names) else numbered
        return samples(table[:, [header.index(name) for name in expected]], table[:, -1], distribution)
    data = _read_npz(path, ("features", "rewards"))
    return samples(data["features"], data["rewards"], distribution)


def read_demonstration(path: Path) -> Reward:
    """A demonstration from an .npz file with ``observations`` (n, ...) and optional ``actions`` (n,)."""
    data = _read_npz(path, ("observations",))
    return demonstration(data["observations"], data.get("actions"))


def _read_npz(path: Path, needed: tuple[str, ...]) -> dict[str, Array]:
    path = user_path(path)
    data = read_arrays(path)
    if not set(needed) <= set(data):
        raise UserError(f"{path} holds {', '.join(data) or 'nothing'}; it needs {', '.join(needed)}.")
    for name in {*needed, "actions"} & set(data):
        if data[name].dtype.kind not in "biuf":
            raise UserError(f"{name} of {path} has type {data[name].dtype}; expected numbers.")
    return data
