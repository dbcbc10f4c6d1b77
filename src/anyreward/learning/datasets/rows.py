"""Datasets of one row for each step, episodes one after another: D4RL's HDF5 files and OGBench's .npz files.

OGBench marks the last row of each trajectory in ``terminals``: its observation is the last, and its action was not
taken. D4RL marks transitions into a terminal state in ``terminals``, and those after which an episode was cut off in
``timeouts``; ``next_observations`` are in some of its files only.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from anyreward.errors import UserError
from anyreward.learning.datasets.checks import check_actions, check_flags
from anyreward.learning.datasets.dataset import Dataset
from anyreward.learning.datasets.hdf5 import Hdf5File
from anyreward.learning.datasets.inferred import BOUNDS, Bounds, actions_of, observed
from anyreward.learning.datasets.reading import Reading
from anyreward.storage.files import CHUNK, NpzFile, check_fits
from anyreward.worlds.spaces import Array, Space

NEEDED = ("observations", "actions", "terminals")
OPTIONAL = ("timeouts", "next_observations", "valids", "n_actions", *BOUNDS)
KEYS = NEEDED + OPTIONAL
"""Keys that are read; others are ignored."""
FLAGS = ("terminals", "timeouts", "valids")


class Steps(NamedTuple):
    """Which rows are transitions: m of the n rows of a file."""

    rows: Array
    """(m,) the numbers of these rows."""
    following: Array
    """(m,) the rows that hold the next observations; in the order of the file."""
    terminated: Array
    """(m,) bool: whether the episode ended in a terminal state."""
    column: str = "observations"
    """The array with the next observations."""


def is_rows(keys: set[str]) -> bool:
    """Whether an .npz file with these keys is of this layout, rather than of the library's own."""
    return keys >= set(NEEDED) and not keys & {"next_observations", "terminations"}


def read_rows(file: NpzFile | Hdf5File, path: Path, bounds: Bounds, progress: bool) -> Dataset:
    """The transitions of an open file, of which `KEYS` are read."""
    headers = file.headers
    missing = [key for key in NEEDED if key not in headers]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(headers)) or 'no known key'}. Keys: "
            f"{', '.join(NEEDED)}; optional: {', '.join(OPTIONAL)} (docs/datasets.md)."
        )
    shape = headers["actions"].shape
    n = shape[0] if shape else 0
    for key in ("observations", "next_observations", *FLAGS):
        if key in headers and headers[key].shape[:1] != (n,):
            raise UserError(f"{key} of {path} has the shape {headers[key].shape}, but there are {n} actions.")
    for key in (*BOUNDS, "n_actions"):
        if key in headers and headers[key].size > headers["actions"].size + 64:
            raise UserError(
                f"{key} of {path} has the shape {headers[key].shape}; expected one number, or one for each."
            )
    small = sum(headers[key].size for key in headers if "observations" not in key)
    check_fits(small + 2 * headers["actions"].size, str(path))
    steps = _steps(file, n, path)
    if len(steps.rows) == 0:
        raise UserError(f"{path} holds no transitions.")
    before, after, space = _observations(file, steps, path, progress)
    actions, possible = _actions(file, steps, path, bounds)
    return Dataset(path.stem, space, possible, before, actions, after, steps.terminated, source=str(path))


def _actions(file: NpzFile | Hdf5File, steps: Steps, path: Path, bounds: Bounds) -> tuple[Array, Space]:
    """The actions of the transitions, and their space."""
    data = {key: file.read(key) for key in ("actions", "n_actions", *BOUNDS) if key in file.headers}
    actions = data["actions"]
    unused = np.ones(len(actions), dtype=bool)
    unused[steps.rows] = False
    actions[unused] = actions[steps.rows[0]]  # whatever they are
    data["actions"] = actions[:, 0] if actions.dtype.kind in "iu" and actions.shape[1:] == (1,) else actions
    actions, possible = actions_of(data, str(path), bounds)
    check_actions(possible, actions, len(actions), str(path))  # here, so that errors name rows of the file
    return actions[steps.rows], possible


def _steps(file: NpzFile | Hdf5File, n: int, path: Path) -> Steps:
    """Which rows are transitions, by the flags of a file."""
    flags = {}
    for key in FLAGS:
        if key in file.headers:
            values = file.read(key)
            flags[key] = check_flags(values[:, 0] if values.shape == (n, 1) else values, n, f"{key} of {path}")
    ends = flags["terminals"]
    if "next_observations" in file.headers:
        return Steps(np.arange(n), np.arange(n), ends, "next_observations")
    if "timeouts" in flags:  # D4RL
        going = ~flags["timeouts"]
        going[-1:] &= ends[-1:]  # no row follows
        rows = np.flatnonzero(going)
        return Steps(rows, rows + ~ends[rows], ends[rows])  # the terminal state itself was not recorded
    if isinstance(file, Hdf5File):
        raise UserError(
            f"{path} has neither next_observations nor timeouts, so that it is not known where episodes were cut off. "
            "Add timeouts (n,), true in the last row of each such episode."
        )
    last = ~flags["valids"] if "valids" in flags else ends  # beside valids, the row before the last is marked too
    if not last[-1:].all():
        raise UserError(
            f"terminals of {path} is false in the last row. Without next_observations, it must be true in the last row "
            "of each trajectory, as in OGBench's files; for D4RL's, add timeouts."
        )
    rows = np.flatnonzero(~last)
    return Steps(rows, rows + 1, np.zeros(len(rows), dtype=bool))


def _observations(file: NpzFile | Hdf5File, steps: Steps, path: Path, progress: bool) -> tuple[Array, Array, Space]:
    """The observations before and after each transition, and their space."""
    headers, m = file.headers, len(steps.rows)
    columns = dict.fromkeys(("observations", steps.column))
    how = observed([headers[key] for key in columns], str(path))
    check_fits(2 * m * how.size + 4 * min(CHUNK, m * how.size), str(path))
    before, after = (np.empty((m, *how.space.shape), how.space.dtype) for _ in range(2))
    with Reading(sum(headers[key].size for key in columns), progress) as bar:
        for key in columns:
            start = 0
            for given in file.rows(key):
                rows = how.converted(given, f"{key} of {path}", start)
                for kept, column, index in (
                    (before, "observations", steps.rows),
                    (after, steps.column, steps.following),
                ):
                    if column == key:
                        first, end = np.searchsorted(index, (start, start + len(rows)))
                        kept[first:end] = rows[index[first:end] - start]
                start += len(rows)
                bar.add(given.nbytes)
    return before, after, how.space
