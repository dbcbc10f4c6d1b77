"""How goals are measured in a world: which there are, when one counts as reached, how long an episode is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tolerance:
    """How far from a goal still counts as the goal."""

    shape: Literal["box", "ball"]
    """box: no number may be off by more than the size; ball: the distance in a straight line must be below it"""
    size: float

    def __call__(self, achieved: Array, goals: Array) -> Array:
        """(n,) whether what is achieved (n, k) counts as the goal (n, k)."""
        apart = np.asarray(achieved) - goals
        if self.shape == "box":
            return np.asarray(np.abs(apart).max(-1) <= self.size)
        return np.asarray(np.linalg.norm(apart, axis=-1) < self.size)


@dataclass(frozen=True)
class GoalTest:
    """A protocol of the paper's appendix: reach a goal at any step of an episode that begins anywhere the world likes.

    Goals and what is achieved are features, as B sees them before they are encoded.
    """

    draw: Callable[[np.random.Generator, int], Array]
    """(n, k) random goals"""
    reached: Callable[[Array, Array], Array]
    """(n,) whether what is achieved (n, k) counts as the goal (n, k)"""
    steps: int
    """of an episode"""
    epsilon: float = 0.02
    """share of random actions"""
    every: Array | None = None
    """(n, k) all goals, where they are a list"""


def within(box: float) -> Tolerance:
    """Reached when no number is off by more than this."""
    return Tolerance("box", box)


def nearer_than(distance: float) -> Tolerance:
    """Reached when closer than this in a straight line."""
    return Tolerance("ball", distance)
