"""How goals are measured in a world: which there are, when one counts as reached, how long an episode is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


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


def within(box: float) -> Callable[[Array, Array], Array]:
    """Reached when no number is off by more than this."""
    return lambda achieved, goals: np.asarray(np.abs(achieved - goals).max(1) <= box)


def nearer_than(distance: float) -> Callable[[Array, Array], Array]:
    """Reached when closer than this in a straight line."""
    return lambda achieved, goals: np.asarray(np.linalg.norm(achieved - goals, axis=1) < distance)
