"""Datasets of ExORL: a folder of .npz files, one for each episode.

Row 0 of an episode holds its first observation and an action that was not taken; row t holds the action taken in
observation t - 1, and what came of it. A discount of 0 marks a terminal state.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anyreward.errors import UserError
from anyreward.learning.datasets.checks import check_actions, described, holds, refuse
from anyreward.learning.datasets.dataset import Dataset
from anyreward.learning.datasets.inferred import Bounds, Observed, box, box_of, observed
from anyreward.learning.datasets.reading import Reading
from anyreward.storage.files import Header, check_fits, open_npz
from anyreward.worlds.spaces import Array

KEYS = ("observation", "action", "discount")
"""Arrays of each file; others are ignored."""


def episodes_in(folder: Path) -> list[Path]:
    """The .npz files of a folder, or of its folder ``buffer``, in the order of their names."""
    return sorted(folder.glob("*.npz")) or sorted(folder.glob("buffer/*.npz"))


def is_exorl(folder: Path) -> bool:
    """Whether a folder holds episodes: by the names of its files, or the arrays of the first one."""
    files = episodes_in(folder)
    if not files or files[0].name.startswith("episode_"):
        return bool(files)
    try:
        with open_npz(files[0], KEYS) as file:
            return set(KEYS[:2]) <= set(file.headers)
    except UserError:
        return False


def read_exorl(folder: Path, bounds: Bounds, progress: bool) -> Dataset:
    """The transitions of all episodes of a folder."""
    files = episodes_in(folder)
    headers = [_headers(file) for file in files]
    longest = max(sum(header.size for header in episode) for episode in headers)
    steps = [episode[1].shape[0] - 1 for episode in headers]
    for path, episode in zip(files, headers, strict=True):
        for name, first, other in zip(KEYS, headers[0], episode, strict=True):
            if (first.shape[1:], first.dtype.kind) != (other.shape[1:], other.dtype.kind) and name != "discount":
                raise UserError(
                    f"{name} of {path} has the shape {other.shape} and type {other.dtype}, but that of {files[0].name} "
                    f"has {first.shape} and {first.dtype}; expected episodes of one environment."
                )
    n, how = sum(steps), observed([headers[0][0]], str(files[0]))
    if n == 0:
        raise UserError(f"{folder} holds no transitions.")
    width = int(np.prod(headers[0][1].shape[1:]))
    check_fits(n * (2 * how.size + 2 * 4 * width + 1) + 2 * longest, str(folder))
    before, after = (np.empty((n, *how.space.shape), how.space.dtype) for _ in range(2))
    actions, ends = np.empty((n, width), dtype=np.float32), np.zeros(n, dtype=bool)
    given = box(*bounds, (width,), str(folder)) if any(one is not None for one in bounds) else None
    end = 0
    with Reading(sum(header.size for episode in headers for header in episode), progress) as bar:
        for path, length in zip(files, steps, strict=True):
            start, end = end, end + length
            rows, taken, over = _episode(path, how, length)
            if given is not None:
                check_actions(given, taken, length, str(path), first=1)
            before[start:end], after[start:end] = rows[:-1], rows[1:]
            actions[start:end], ends[start:end] = taken, over
            bar.add(rows.nbytes)
    space = given or box_of(actions, None, None, str(folder))
    return Dataset(folder.name, how.space, space, before, actions, after, ends, source=str(folder))


def _headers(path: Path) -> list[Header]:
    """The headers of the arrays of an episode, in the order of `KEYS`."""
    with open_npz(path, KEYS) as file:
        headers = file.headers
    missing = [key for key in KEYS if key not in headers]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; expected {', '.join(KEYS)} (docs/datasets.md).")
    shapes = {key: headers[key].shape for key in KEYS}
    rows = shapes["observation"][:1]
    if not rows or rows[0] == 0 or any(shape[:1] != rows for shape in shapes.values()):
        raise UserError(
            f"The arrays of {path} have the shapes {shapes}; expected the same number of rows, at least one."
        )
    action = headers["action"]
    if action.dtype.kind != "f" or len(action.shape) != 2 or action.shape[1] == 0:
        raise UserError(
            f"action of {path} has shape {action.shape} and type {action.dtype}; expected real-valued actions (n, k)."
        )
    return [headers[key] for key in KEYS]


def _episode(path: Path, how: Observed, length: int) -> tuple[Array, Array, Array]:
    """The observations, actions and ends of an episode of this ``length``."""
    with open_npz(path, KEYS) as file:
        observations, actions, discounts = (file.read(key) for key in KEYS)
    if len(observations) != length + 1:
        raise UserError(f"{path} was changed while the folder was read.")
    rows = how.converted(observations, f"observation of {path}")
    refuse(~holds(actions[1:]), actions[1:], f"action of {path}", "finite numbers", "Leave out the episode.", 1)
    if discounts.dtype.kind not in "biuf" or discounts.size != length + 1:
        raise UserError(
            f"discount of {path} has {described(discounts)}; expected a number in each of {length + 1} rows."
        )
    discounts = discounts.reshape(-1)
    refuse(~((discounts >= 0) & (discounts <= 1)), discounts, f"discount of {path}", "numbers from 0 to 1")
    over = discounts[1:] == 0
    if over[:-1].any():
        raise UserError(
            f"discount of {path} is 0 in row {over.argmax() + 1}, but the episode goes on; accepted: 0 in the last row."
        )
    return rows, actions[1:], over
