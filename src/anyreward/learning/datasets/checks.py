"""Checks of the columns of a dataset; each raises a `UserError` that names the column and the first bad row."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError, shown
from anyreward.worlds.actions import action_set
from anyreward.worlds.spaces import Array, Space, image_shape, leaves, parts_of

LARGEST_WHOLE = 2**24
"""Observations are stored as float32, which holds whole numbers up to this one exactly."""
LARGEST = float(np.finfo(np.float32).max)
ROUNDING = 1e-5
"""Share of the range of an action, and of its largest bound, by which it may be out of bounds."""
ROWS = 2**18
"""Number of actions that are compared with their bounds at a time."""


def described(values: Any) -> str:
    """The shape and type of an array, or the type of something else."""
    if isinstance(values, np.ndarray):
        return f"shape {values.shape} and type {values.dtype}"
    return f"the keys {sorted(map(str, values))}" if isinstance(values, dict) else f"the type {type(values).__name__}"


def refuse(bad: Array, values: Array, column: str, accepted: str, remedy: str = "", start: int = 0) -> None:
    """Raise if an entry is bad, with the row of the first one; ``start`` is the number of the first row."""
    if bad.any():
        at = np.unravel_index(bad.argmax(), bad.shape)
        raise UserError(f"{column} has {values[at]} in row {start + at[0]}; accepted: {accepted}. {remedy}".rstrip())


def check_elements(space: Space, batch: Any, n: int, column: str, start: int = 0) -> None:
    """Raise unless a batch has n elements of a space that float32 can hold; ``column`` names it in the error message.

    The bounds of a Box are not checked: many environments leave theirs. ``start`` is the number of the first row.
    """
    if isinstance(space, gym.spaces.Tuple | gym.spaces.Dict):
        kind, keys = (tuple, range(len(space.spaces))) if isinstance(space, gym.spaces.Tuple) else (dict, space.spaces)
        given = range(len(batch)) if isinstance(batch, tuple) else batch
        if not isinstance(batch, kind) or set(given) != set(keys):
            raise UserError(f"{column} must be a {kind.__name__} with {list(keys)}, got {described(batch)}.")
        for key, name, part in parts_of(space):
            check_elements(part, batch[key], n, f"{name} of {column}", start)
        return
    for _ in leaves(space, column):
        pass  # raises for an unsupported space
    shape = (n, *(space.shape or ()))
    if not isinstance(batch, np.ndarray) or batch.dtype.kind not in "biuf" or batch.shape != shape:
        raise UserError(f"{column} has {described(batch)}; expected numbers of shape {shape}, an array.")
    if batch.size == 0:
        return
    accepted, remedy = f"numbers that float32 holds, from {-LARGEST:.1e} to {LARGEST:.1e}", "Change their unit."
    match space:
        case gym.spaces.Discrete() | gym.spaces.MultiDiscrete():
            size = int(space.n) if isinstance(space, gym.spaces.Discrete) else space.nvec
            if np.max(size) > LARGEST_WHOLE:
                raise UserError(f"{column} can be {np.max(size):,} categories; accepted: up to {LARGEST_WHOLE:,}.")
            low, high = (np.broadcast_to(end, batch.shape) for end in (space.start, space.start + (size - 1)))
            bad = (batch < low) | (batch > high) | (batch != np.floor(batch))
            at = np.unravel_index(bad.argmax(), bad.shape)
            accepted, remedy = f"whole numbers from {low[at]} to {high[at]}", ""
        case gym.spaces.MultiBinary():
            bad, accepted, remedy = (batch != 0) & (batch != 1), "0 and 1", ""
        case _ if image_shape(space) and batch.dtype != np.uint8:
            raise UserError(f"{column} has type {batch.dtype}; expected images of bytes (uint8).")
        case _ if batch.dtype.kind in "iu" and batch.dtype.itemsize > 2:
            bad = (batch > LARGEST_WHOLE) | (batch < -LARGEST_WHOLE)
            accepted = f"whole numbers from {-LARGEST_WHOLE:,} to {LARGEST_WHOLE:,}, which float32 holds exactly"
            remedy = "Give differences or parts of larger ones, or fractions (a float type) if rounding does no harm."
        case _ if batch.dtype.kind == "f" and batch.dtype.itemsize > 4:
            bad = ((batch > LARGEST) | (batch < -LARGEST)) & np.isfinite(batch)
        case _:
            return
    refuse(bad, batch, column, accepted, remedy, start)


def holds(values: Array) -> Array:
    """Whether float32 holds each number of a float type, except for rounding; false for NaN and infinity."""
    return abs(values) <= LARGEST if values.dtype.itemsize > 4 else np.isfinite(values)


def check_actions(space: Space, actions: Any, n: int, where: str, first: int = 0) -> None:
    """Raise unless these are n actions of a Discrete space, or of a Box with finite bounds, up to rounding.

    ``first`` is the number of their first row in ``where``.
    """
    column = f"actions of {where}"
    if not isinstance(space, gym.spaces.Box):
        check_elements(action_set(space).space, actions, n, column, first)
        return
    where_to = "action_low and action_high, in the file or to ar.open_dataset, or the Box of an ar.Dataset"
    if not np.isfinite(space.low).all() or not np.isfinite(space.high).all():
        raise UserError(
            f"The action space of {where} is {shown(space)}, without finite bounds; actions are scaled to them. "
            f"Give those of the environment: {where_to}."
        )
    action_set(space)  # raises for an empty one
    check_elements(space, actions, n, column, first)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    slack = ROUNDING * (high - low + np.maximum(abs(low), abs(high)))
    for start in range(0, n, ROWS):
        rows = actions[start : start + ROWS]
        bad = ~((rows >= low - slack) & (rows <= high + slack))  # also NaN
        if bad.any():
            at = np.unravel_index(bad.argmax(), bad.shape)
            ends, finite = (low[at[1:]], high[at[1:]]), bool(np.isfinite(rows[at]))
            mend = f"If they are right, give wider bounds: {where_to}." if finite else "Leave out such rows."
            refuse(bad, rows, column, f"numbers from {ends[0]:g} to {ends[1]:g}", mend, first + start)


def check_flags(flags: Any, n: int, column: str) -> Array:
    """(n,) flags as booleans; raises unless they are booleans, or numbers that are all 0 or 1."""
    if not isinstance(flags, np.ndarray) or flags.dtype.kind not in "biuf" or flags.shape != (n,):
        raise UserError(f"{column} has {described(flags)}; expected ({n},) booleans, or 0 and 1.")
    if flags.dtype.kind != "b":
        refuse((flags != 0) & (flags != 1), flags, column, "true and false, or 0 and 1")
    return flags.astype(bool)


def check_named(names: tuple[str, ...] | None, table: Array | None, space: Space, where: str) -> None:
    """Raise unless the names of the features and the coordinates of the states fit the observations."""
    states = int(space.n) if isinstance(space, gym.spaces.Discrete) else None
    if table is not None:
        if states is None:
            raise UserError(f"feature_table of {where} needs observations that are states, (n,) whole numbers.")
        numbers = isinstance(table, np.ndarray) and table.dtype.kind in "biuf" and table.ndim == 2
        if not numbers or len(table) != states or table.shape[1] == 0 or not np.isfinite(table).all():
            raise UserError(
                f"feature_table of {where} has {described(table)}; expected finite numbers ({states}, k), a row for "
                f"each of the {states} states."
            )
    if names is not None:
        width = table.shape[1] if table is not None else sum(leaf.packed for leaf in leaves(space))
        if parts_of(space):  # these may be the names of achieved_goal only
            width = len(names)
        if len(names) != width or not all(isinstance(name, str) for name in names) or len(set(names)) != width:
            raise UserError(f"feature_names of {where} has {len(names)} entries; expected {width} different texts.")
