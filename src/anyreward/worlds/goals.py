"""Protocols for evaluating goals: how goals are drawn, when one counts as reached, and how long an episode is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from anyreward.worlds.spaces import Array


@dataclass(frozen=True)
class Tolerance:
    """The tolerance within which a goal counts as reached."""

    shape: Literal["box", "ball"]
    """box: no number differs by more than ``size``; ball: the Euclidean distance is below ``size``"""
    size: float

    def __post_init__(self) -> None:
        if self.shape not in ("box", "ball") or type(self.size) not in (int, float) or not 0 <= self.size < math.inf:
            raise ValueError(f"a tolerance is a box or a ball of finite size, not {self.shape!r} of {self.size!r}")

    def __call__(self, achieved: Array, goals: Array) -> Array:
        """(n,) whether achieved features (n, k) count as the goals (n, k)."""
        apart = np.asarray(achieved) - goals
        if self.shape == "box":
            return np.asarray(np.abs(apart).max(-1) <= self.size)
        return np.asarray(np.linalg.norm(apart, axis=-1) < self.size)


@dataclass(frozen=True)
class GoalTest:
    """A protocol of the paper's appendix: a goal counts as reached if it is achieved at any step of an episode.

    Episodes start as the environment starts them. Goals are features, as B sees them before they are encoded.
    """

    draw: Callable[[np.random.Generator, int], Array]
    """(n, k) random goals"""
    reached: Callable[[Array, Array], Array]
    """(n,) whether achieved features (n, k) count as the goals (n, k)"""
    steps: int
    """number of steps in an episode"""
    epsilon: float = 0.02
    """share of random actions"""
    every: Array | None = None
    """(n, k) all goals, if they can be listed"""
