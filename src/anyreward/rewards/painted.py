"""Rewards painted as an array over two features, or over expressions of features such as an angle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from anyreward.errors import UserError, shown
from anyreward.rewards.expression import parse
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Part, Reward, Term
from anyreward.rewards.terms import columns, finite_numbers, over_sample
from anyreward.storage import user_path
from anyreward.storage.files import read_json
from anyreward.worlds.spaces import Array

INSIDE = 1e-9
"""Rounding that is allowed at the edge of a painted array, in columns and rows."""
MOST_PAINTED = 2**22
"""Largest number of entries of a painted array."""
LARGEST_FILE = 2**26
"""Largest size of a file with a painted array, in bytes."""


@dataclass(frozen=True, eq=False)
class Painted(Term):
    """A reward given by an array over two features or expressions, interpolated bilinearly; zero outside."""

    of: Array
    """(height, width) the rewards: a column for each value of the first feature, a row for each of the second"""
    low: tuple[float, float]
    """The values of the two features in the first column and the first row."""
    high: tuple[float, float]
    """Those in the last column and the last row."""
    features: tuple[str, str]

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """E_rho[r B] over the sample of rho."""
        return over_sample(self, knowledge)

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """The interpolated values."""
        phi = knowledge.model.phi
        named = columns(phi.readable(rows.numpy()), phi.column_names)
        for name in self.features:
            if name not in named and name.isidentifier():
                raise UserError(
                    f"painted() refers to the feature {shown(name)}; this agent's features are "
                    f"{', '.join(phi.column_names)}. Name two of them, or expressions: features=(..., ...)."
                )
        return self.at(np.stack([named[name] if name in named else parse(name)(named) for name in self.features], 1))

    def at(self, points: Array) -> Array:
        """(n,) the values at points (n, 2)."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        last = np.asarray(self.of.shape[::-1]) - 1
        place = (points - low) / (high - low) * last  # (n, 2) in columns and rows
        inside = ((place >= -INSIDE) & (place <= last + INSIDE)).all(1)
        place = np.clip(place, 0, last)
        cell = np.minimum(place.astype(np.int64), np.maximum(last - 1, 0))
        beyond = np.minimum(cell + 1, last)
        (u, v), ((x0, y0), (x1, y1)) = (place - cell).T, (cell.T, beyond.T)
        above = (1 - u) * self.of[y0, x0] + u * self.of[y0, x1]
        below = (1 - u) * self.of[y1, x0] + u * self.of[y1, x1]
        return np.where(inside, (1 - v) * above + v * below, 0.0)

    def __str__(self) -> str:
        return f"painted({self.of.shape[1]} x {self.of.shape[0]} over {', '.join(self.features)})"


def painted(values: Any, low: Any, high: Any, features: Sequence[str] = ("x", "y")) -> Reward:
    """A reward given by an array over two features, interpolated bilinearly; zero outside of it.

    Args:
        values: rewards (height, width): a column for each value of the first feature, a row for each of the second.
        low: the values of the two features in the first column and the first row.
        high: those in the last column and the last row. In a maze, ``low=(0, 0)`` and ``high=(width - 1, height - 1)``
            give each cell its entry ``values[y, x]``.
        features: the names of the two features. Instead of a name there may be an expression of features (see
            `anyreward.reward`): over an angle that is observed as its cosine f0 and its sine f1, ``"arctan2(f1, f0)"``
            from -pi to pi, where the first and the last column are the same place and should have the same values.
    """
    of = finite_numbers(values, "The values of painted()")
    if of.ndim != 2 or min(of.shape) < 2 or of.size > MOST_PAINTED:
        raise UserError(
            f"painted() takes an array (height, width) of at least 2 x 2 and at most {MOST_PAINTED:,} numbers, got "
            f"the shape {of.shape}."
        )
    edges = [finite_numbers(edge, f"{name} of painted()") for name, edge in (("low", low), ("high", high))]
    if any(edge.shape != (2,) for edge in edges) or not (edges[0] < edges[1]).all():
        raise UserError(
            f"painted() got low={shown(low)} and high={shown(high)}; expected two numbers each, with low < high."
        )
    names = tuple(features) if isinstance(features, list | tuple) else ()
    if len(names) != 2 or not all(isinstance(name, str) for name in names) or names[0] == names[1]:
        raise UserError(f"painted() got features={shown(features)}; expected the names of two features.")
    (x0, y0), (x1, y1) = (edge.tolist() for edge in edges)
    return Reward(((1.0, Painted(of.copy(), (x0, y0), (x1, y1), (names[0], names[1]))),))


def read_painted(given: str) -> Reward:
    """A painted reward from JSON, or from a .json file: features, low, high, shape (height, width) and runs.

    A run is the index of an entry, counted row by row, and the values from there on. All other entries are zero.
    """
    text = given.strip()
    path = None if text.startswith("{") else user_path(given)
    try:
        data: Any = json.loads(text) if path is None else _read(path)
    except (ValueError, RecursionError) as error:
        raise UserError(f"The painted reward is not JSON: {error}.") from None
    if not isinstance(data, dict) or set(data) != {"features", "low", "high", "shape", "runs"}:
        raise UserError(
            f"{'The painted reward' if path is None else path} holds {shown(data)}; expected a JSON object with "
            "features, low, high, shape and runs."
        )
    return painted(from_runs(data["shape"], data["runs"]), data["low"], data["high"], data["features"])


def from_runs(shape: Any, runs: Any) -> Array:
    """(height, width) the array with these runs: the first index of each, then its values; zero elsewhere."""
    whole = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and 0 < n <= MOST_PAINTED for n in shape)
    if not whole or shape[0] * shape[1] > MOST_PAINTED:
        raise UserError(f"The shape of a painted reward is {shown(shape)}; expected [height, width].")
    values = np.zeros(shape[0] * shape[1])
    if not isinstance(runs, list):
        raise UserError(f"The runs of a painted reward are {shown(runs)}; expected a list of lists of numbers.")
    for run in runs:
        first = run[0] if isinstance(run, list) and run else None
        if not isinstance(run, list) or type(first) is not int or not 0 <= first <= len(values) - len(run) + 1:
            size = f"[index, value, value, ...] within {len(values):,} entries"
            raise UserError(f"A run of a painted reward is {shown(run)}; expected {size}.")
        values[first : first + len(run) - 1] = finite_numbers(run[1:], "A run of a painted reward")
    return values.reshape(shape)


def _read(path: Path) -> Any:
    try:
        if path.is_file() and path.stat().st_size > LARGEST_FILE:
            raise UserError(f"{path} is larger than {LARGEST_FILE >> 20} MB; it is no painted reward.")
        return read_json(path)
    except OSError as error:
        raise UserError(f"{shown(str(path))} cannot be read: {error.strerror or error}.") from error
