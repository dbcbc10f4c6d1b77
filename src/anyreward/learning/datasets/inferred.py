"""The spaces of observations and actions in files that hold arrays only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError, shown
from anyreward.learning.datasets.checks import (
    LARGEST,
    LARGEST_WHOLE,
    ROUNDING,
    check_elements,
    described,
    holds,
    refuse,
)
from anyreward.storage.files import Header
from anyreward.worlds.spaces import SMALLEST_IMAGE, Array, Space, channels_last, image_shape

BOUNDS = ("action_low", "action_high")
"""Keys of the bounds of real-valued actions."""
Bounds = tuple[Any, Any]
"""The smallest and the largest value of each number of an action, or of all; None if they are not given."""


class Observed(NamedTuple):
    """How the observations of a file become those of a dataset."""

    space: gym.spaces.Box[Any]
    colours: bool = False
    """Whether they are images (n, height, width, colours), whose colours become frames."""

    @property
    def size(self) -> int:
        """The bytes of an observation."""
        return int(np.prod(self.space.shape)) * np.dtype(self.space.dtype).itemsize

    def converted(self, rows: Array, column: str, start: int = 0) -> Array:
        """Some rows of a file; raises for numbers that float32 does not hold, or that are not finite."""
        if image_shape(self.space):
            return rows.transpose(0, 3, 1, 2) if self.colours else rows
        check_elements(gym.spaces.Box(-np.inf, np.inf, rows.shape[1:]), rows, len(rows), column, start)
        if rows.dtype.kind == "f":
            refuse(~np.isfinite(rows), rows, column, "finite numbers", "Leave out such rows.", start)
        return rows.reshape(len(rows), -1).astype(np.float32, copy=False)


def numbers_or_images(header: Header, where: str, follow: np.dtype[np.generic] | None = None) -> gym.spaces.Box[Any]:
    """The space of observations (n, ...): images, or numbers in one row each; ``follow`` is the type of the next ones.

    ``where`` is the file.
    """
    shape, following = header.shape[1:], header.dtype if follow is None else follow
    if math.prod(shape) == 0:
        raise UserError(f"observations of {where} has shape {header.shape}; expected at least one number in a row.")
    if np.uint8 in (header.dtype, following) and sum(side >= SMALLEST_IMAGE for side in shape) > 1:
        images = gym.spaces.Box(0, 255, shape, np.uint8)
        if image_shape(images) is None or header.dtype != following:
            raise UserError(
                f"observations of {where} has shape {header.shape} and type {header.dtype}, next_observations "
                f"{following}; expected images of bytes (uint8) in both, as stacks of grey frames, (n, frames, height, "
                "width). Save a single frame as x[:, None], colours as x.mean(-1).astype('uint8')[:, None], and pixels "
                "that are plain numbers as x.reshape(len(x), -1)."
            )
        return images
    return gym.spaces.Box(-np.inf, np.inf, (math.prod(shape),), np.float32)


def observed(headers: Sequence[Header], where: str) -> Observed:
    """How the observations (n, ...) of some arrays of a file become those of a dataset.

    Images in colour become stacks of one frame for each colour.
    """
    shape, dtype = headers[0]
    numbered = len(shape) == 1 and dtype.kind in "iu"
    if numbered or any(header.shape[1:] != shape[1:] or header.dtype.kind not in "biuf" for header in headers):
        got = " and ".join(f"shape {header.shape} and type {header.dtype}" for header in headers)
        raise UserError(
            f"observations of {where} have {got}; expected numbers (n, k) or images. States that are numbered need the "
            "library's own .npz file."
        )
    if len(shape) == 4 and all(header.dtype == np.uint8 for header in headers):
        height, width, colours = shape[1:]
        if channels_last(gym.spaces.Box(0, 255, shape[1:], np.uint8)):
            return Observed(gym.spaces.Box(0, 255, (colours, height, width), np.uint8), colours=True)
    wide = Header(shape if len(shape) > 1 else (*shape, 1), dtype)
    return Observed(numbers_or_images(wide, where, headers[-1].dtype))


def count_of(data: Mapping[str, Array], key: str, columns: tuple[str, ...], where: str) -> int:
    """The number of states or actions: as declared, or the largest seen, plus one."""
    for column in columns:
        accepted = f"whole numbers from 0 to {LARGEST_WHOLE - 1:,}"
        refuse(data[column] >= LARGEST_WHOLE, data[column], f"{column} of {where}", accepted, "Number them from 0.")
    declared, table, called = data.get(key), data.get("feature_table"), f"{key} of {where}"
    if declared is None and key == "n_states" and table is not None and table.ndim:
        declared, called = np.asarray(len(table)), f"{called}, the number of rows of feature_table,"
    if declared is None:
        return max(1, *(int(data[column].max()) + 1 for column in columns))
    if declared.size != 1 or declared.dtype.kind not in "iu":
        raise UserError(f"{called} has {described(declared)}; expected one whole number.")
    count = int(declared.reshape(()))
    for column in columns:
        above = np.flatnonzero(data[column] >= count)
        if len(above):
            occurs = f"{'an action' if key == 'n_actions' else 'a state'} {data[column][above[0]]} occurs"
            raise UserError(
                f"{called} is {count}, but {occurs} in row {above[0]} of {column}; accepted: whole numbers from 0 to "
                f"{key} - 1 = {count - 1}."
            )
    if count > LARGEST_WHOLE:
        raise UserError(f"{called} is {count:,}; accepted: up to {LARGEST_WHOLE:,}.")
    return count


def actions_of(data: Mapping[str, Array], where: str, bounds: Bounds = (None, None)) -> tuple[Array, Space]:
    """The actions of a file, (n,) whole numbers or (n, k) real numbers, and their space.

    ``bounds`` replace those of the file.
    """
    actions = data["actions"]
    given = [data.get(key) if end is None else end for key, end in zip(BOUNDS, bounds, strict=True)]
    kind, fits = actions.dtype.kind, actions.ndim in (1, 2) and math.prod(actions.shape[1:]) > 0
    if not (kind in "iu" and actions.ndim == 1) and not (kind == "f" and fits):
        raise UserError(
            f"actions of {where} has {described(actions)}; expected (n,) whole numbers from 0, of an integer type, or "
            "(n, k) real-valued actions, of a float type."
        )
    if kind in "iu":
        if any(end is not None for end in given):
            raise UserError(
                f"{where} has bounds of actions, and actions of the type {actions.dtype}. Save real-valued actions as "
                "floats; numbered ones have no bounds."
            )
        return actions, gym.spaces.Discrete(count_of(data, "n_actions", ("actions",), where))
    if "n_actions" in data:
        raise UserError(
            f"{where} has n_actions, and actions of the type {actions.dtype}. Save numbered actions as integers; "
            "real-valued ones have bounds instead (action_low, action_high)."
        )
    actions = actions.reshape(len(actions), -1)
    return actions, box_of(actions, given[0], given[1], where)


def box_of(actions: Array, low: Any, high: Any, where: str) -> gym.spaces.Box[Any]:
    """The space of real-valued actions (n, k): with these bounds, or -1 to 1, or the range of the data."""
    column, accepted = f"actions of {where}", f"finite numbers, from {-LARGEST:.1e} to {LARGEST:.1e}"
    seen = (actions.min(0), actions.max(0))
    if not holds(np.stack(seen)).all():
        refuse(~holds(actions), actions, column, accepted, "Leave out such rows.")
    if low is None and high is None:
        unit = np.abs(seen).max() <= 1 + ROUNDING
        low, high = (np.array(-1), np.array(1)) if unit else seen
    return box(low, high, actions.shape[1:], where)


def bounded(space: Space, bounds: Bounds, where: str) -> Space:
    """A space of actions, with these bounds if they are given."""
    if all(end is None for end in bounds):
        return space
    if not isinstance(space, gym.spaces.Box):
        raise UserError(f"The action space of {where} is {shown(space)}; only real-valued actions (Box) have bounds.")
    return box(*bounds, space.shape, where, space.dtype)


def box(low: Any, high: Any, shape: tuple[int, ...], where: str, dtype: Any = np.float32) -> gym.spaces.Box[Any]:
    """A space of actions with given bounds; raises unless they fit."""
    ends = []
    for name, end in zip(BOUNDS, (low, high), strict=True):
        try:
            values = np.asarray(end)
        except ValueError:  # lists of different lengths
            values = np.array(None)
        fits = values.dtype.kind in "iuf" and values.shape in ((), (1,), shape)
        if not fits or not holds(values if values.dtype.kind == "f" else values * 1.0).all():
            got = "is missing" if end is None else f"has {described(values)}" if values.size > 9 else f"is {shown(end)}"
            raise UserError(f"{name} of {where} {got}; expected finite numbers, one or {shape}, for both bounds.")
        ends.append(np.broadcast_to(values, shape).astype(dtype))
    refuse(ends[0] > ends[1], ends[0], f"{BOUNDS[0]} of {where}", f"at most {BOUNDS[1]}, {ends[1].tolist()}")
    return gym.spaces.Box(ends[0], ends[1], dtype=dtype)
