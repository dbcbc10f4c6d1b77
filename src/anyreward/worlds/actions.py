"""The actions of an environment: a list of them, which are numbered, or all points of a box."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats.qmc import Halton

from anyreward.errors import UserError, shown
from anyreward.worlds.spaces import Array, Space

ROUNDING = 1e-4
"""Share of an action's range by which it may be outside of it."""
BEYOND = 1.25
"""Actions that cover a box are spread over one larger by this factor, then clipped: the ends are often best."""
LARGEST_WHOLE = 2**53
"""Bounds of whole numbers that are as large mean that there are none; float64 holds all whole numbers below."""


@dataclass(frozen=True, eq=False)
class ActionSet:
    """The actions of an environment, and how they are counted or scaled.

    Inside the library, listed actions are whole numbers (n,) from zero, and the actions of a box are rows (n, width)
    of numbers from -1 to 1, one for each number of the environment's own actions. Some actions of a box can be listed.
    """

    count: int
    """The number of listed actions; 0 if every action of the box is possible."""
    start: int = 0
    """The environment's first action, if its space is Discrete."""
    box: gym.spaces.Box | None = None
    """The environment's space, if it is a Box."""
    levels: int = 0
    """How many values of each number of the box are listed; 0 if every action is possible."""

    @property
    def continuous(self) -> bool:
        """Whether every action of a box is possible."""
        return self.box is not None and self.levels == 0

    @cached_property
    def table(self) -> Array:
        """(count, width) the listed actions of the box, from -1 to 1."""
        values = np.linspace(-1.0, 1.0, self.levels)
        return np.array(list(product(values, repeat=self.width)), dtype=np.float32)

    @property
    def width(self) -> int:
        """The number of numbers of an action of the box; 0 without a box."""
        return 0 if self.box is None else int(np.prod(self.box.shape))

    @property
    def space(self) -> Space:
        """The action space of the environment."""
        return self.box if self.box is not None else gym.spaces.Discrete(self.count, start=self.start)

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        """(width,) the smallest and the largest value of each number of an action."""
        assert self.box is not None
        return self.box.low.astype(np.float64).ravel(), self.box.high.astype(np.float64).ravel()

    def sample(self, random: np.random.Generator, n: int) -> Array:
        """(n,) the numbers of uniformly random listed actions, or (n, width) uniformly random actions of the box."""
        if not self.continuous:
            return random.integers(self.count, size=n)
        return random.uniform(-1.0, 1.0, (n, self.width)).astype(np.float32)

    def none(self, n: int) -> Array:
        """(n,) the first listed action, or (n, width) the middle of the box: where the action does not matter."""
        return np.zeros((n, self.width), dtype=np.float32) if self.continuous else np.zeros(n, dtype=np.int64)

    def outward(self, actions: Array) -> Array:
        """Actions as the environment takes them, (n, ...)."""
        if self.box is None:
            return np.asarray(actions) + self.start
        rows = self.numbers(actions)
        if self.box.dtype is not None and self.box.dtype.kind in "iu":
            rows = np.round(rows)
        return rows.reshape(-1, *self.box.shape).astype(self.box.dtype)

    def numbers(self, actions: Array) -> Array:
        """(n, width) actions of the box in its own units, as numbers; they are clipped to its bounds."""
        scaled = np.asarray(self.table[np.asarray(actions)] if self.levels else actions, dtype=np.float64)
        low, high = self._ends
        rows = low + (np.clip(scaled, -1.0, 1.0) + 1) / 2 * (high - low)
        return np.asarray(np.clip(rows, low, high))  # the sum may be rounded up

    def inward(self, actions: Any) -> Array:
        """The inverse of `outward`; a listed action of a box becomes the number of the nearest one."""
        if self.box is None:
            return np.asarray(actions) - self.start
        low, high = self._ends
        rows = np.asarray(actions, dtype=np.float64).reshape(len(actions), -1)
        span = np.where(high > low, high - low, 1.0)
        scaled = np.clip(2 * (rows - low) / span - 1, -1.0, 1.0)
        if self.levels == 0:
            return scaled.astype(np.float32)
        return self.nearest(scaled)

    def nearest(self, actions: Array) -> Array:
        """(n,) the numbers of the listed actions of the box that are nearest to actions (n, width) from -1 to 1."""
        steps = np.round((np.asarray(actions, dtype=np.float64) + 1) / 2 * (self.levels - 1)).astype(np.int64)
        return np.asarray(steps @ self.levels ** np.arange(self.width - 1, -1, -1))

    def checked(self, given: Any, what: str) -> Array:
        """Actions of the environment (n, ...) as the library counts them; raises unless they are actions of it.

        ``what`` describes them in error messages.
        """
        actions = np.asarray(given)
        expected = (len(actions), *(self.box.shape if self.box is not None else ())) if actions.ndim else ()
        if actions.dtype.kind not in "biuf" or actions.ndim == 0 or actions.shape != expected:
            shape = "(n,)" if self.box is None else f"(n, {', '.join(map(str, self.box.shape))})"
            raise UserError(f"{what} have shape {actions.shape} and type {actions.dtype}; expected numbers {shape}.")
        low: Array = np.asarray(self.start if self.box is None else self.box.low)
        high: Array = np.asarray(self.start + self.count - 1 if self.box is None else self.box.high)
        slack = 0.0 if self.box is None else ROUNDING * (1 + np.abs(high - low))
        bad = ~((actions >= low - slack) & (actions <= high + slack))
        if self.box is None:
            bad |= actions != np.floor(actions)
        if bad.any():
            at = tuple(np.argwhere(bad)[0])
            least, most = (np.broadcast_to(end, actions.shape)[at] for end in (low, high))
            kind = "whole numbers" if self.box is None else "numbers"
            raise UserError(
                f"{what} must be {kind} that lie between {least:g} and {most:g}; row {at[0]} has {actions[at]:g}."
            )
        return self.inward(actions) if self.box is not None else (actions - self.start).astype(np.int64)

    def spread(self, n: int) -> Array:
        """(n, width) actions that cover the box evenly, with its ends: always the same."""
        if self.width == 1:
            return np.linspace(-1.0, 1.0, n, dtype=np.float32)[:, None]
        points = Halton(self.width, rng=0).random(n)
        return np.asarray(np.clip(BEYOND * (2 * points - 1), -1.0, 1.0), dtype=np.float32)

    def listed(self, levels: int) -> ActionSet:
        """These actions, of which a box keeps a grid of ``levels`` values for each number."""
        return self if self.box is None else ActionSet(levels**self.width, box=self.box, levels=levels)


def action_set(space: Space, world: str = "") -> ActionSet:
    """The actions of a space, Discrete or a bounded Box; raises for any other.

    ``world`` names the environment in error messages.
    """
    if isinstance(space, gym.spaces.Discrete):
        return ActionSet(int(space.n), int(space.start))
    given = f"The action space{f' of {world}' if world else ''} is {shown(space)}"
    if not isinstance(space, gym.spaces.Box):
        raise UserError(
            f"{given}; supported: Discrete, and Box with finite bounds. Wrap the environment so that it takes one of "
            "these (gymnasium.wrappers.TransformAction)."
        )
    if space.dtype is None or space.dtype.kind not in "fiu" or int(np.prod(space.shape)) == 0:
        raise UserError(
            f"{given}; supported: a Box of at least one number, of floats or whole numbers. Wrap the environment "
            "(gymnasium.wrappers.TransformAction)."
        )
    most = np.inf if space.dtype.kind == "f" else LARGEST_WHOLE  # integers have no infinity
    if not all((np.isfinite(end) & (end > -most) & (end < most)).all() for end in (space.low, space.high)):
        raise UserError(
            f"{given}, which has no finite bounds; actions are scaled to them, so they are needed. Wrap the "
            "environment: gymnasium.wrappers.TransformAction(env, lambda action: action, "
            f"gymnasium.spaces.Box(-1.0, 1.0, {tuple(space.shape)})), with the bounds that are useful."
        )
    if (space.low > space.high).any():
        at = tuple(np.argwhere(space.low > space.high)[0])
        raise UserError(
            f"{given}, where low {space.low[at]:g} is larger than high {space.high[at]:g}; expected low <= high. "
            "Exchange the bounds in the environment."
        )
    return ActionSet(0, box=space)
