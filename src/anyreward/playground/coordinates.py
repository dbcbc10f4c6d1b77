"""The numbers of a state that can be drawn: its features, and angles that are observed as a cosine and a sine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.agent import Agent
from anyreward.errors import UserError, shown
from anyreward.worlds.spaces import Array, leaves

ROUND = 1e-3
"""Two features are the cosine and the sine of an angle if in all data their point is this near to the unit circle."""
LEAST_SPREAD = 0.1
"""Smallest range of each of them: constants are no angle."""
LABELS = {
    "Pendulum": ("angle", "speed"),
    "Acrobot": ("first angle", "second angle", "first speed", "second speed"),
    "MountainCar": ("position", "speed"),
    "MountainCarContinuous": ("position", "speed"),
    "CartPole": ("position", "speed", "angle", "angular speed"),
}
"""What the coordinates of environments mean, by their Gymnasium id without version."""


@dataclass(frozen=True)
class Coordinate:
    """A number that is drawn, as a function of features, and the features as a function of it."""

    name: str
    """the name of the feature, or for an angle an expression of two: ``arctan2(f1, f0)``"""
    columns: tuple[int, ...]
    """the column of the feature, or those of the cosine and the sine"""

    @property
    def turns(self) -> bool:
        """Whether it is an angle, from -pi to pi, which are the same place."""
        return len(self.columns) == 2

    def of(self, features: Array) -> Array:
        """(n,) its values at features (n, k)."""
        first = features[:, self.columns[0]]
        return np.arctan2(features[:, self.columns[1]], first) if self.turns else np.asarray(first)

    def features(self, values: Any) -> dict[int, Any]:
        """The features that it stands for, by column, at values."""
        parts = (np.cos(values), np.sin(values)) if self.turns else (values,)
        return dict(zip(self.columns, parts, strict=True))


def coordinates_of(agent: Agent) -> tuple[Coordinate, ...]:
    """The coordinates of an agent's states, in the order of their features."""
    phi, sample = agent.model.phi, agent.sample
    names = phi.column_names
    width = len(names) - phi.action_width - phi.ends
    numbers = [leaf.kind == "number" for leaf in leaves(phi.state_space) for _ in range(leaf.packed)]
    if phi.table is not None or len(numbers) != width:
        return tuple(Coordinate(name, (i,)) for i, name in enumerate(names[:width]))
    rows = phi.readable(sample.rows.numpy())[:, :width].astype(np.float64)
    moving = [i for i in range(width) if numbers[i] and np.ptp(rows[:, i]) > LEAST_SPREAD]
    sines: dict[int, int] = {}
    for i in moving:
        free = [j for j in moving if j > i and not {i, j} & (sines.keys() | set(sines.values()))]
        sine = next((j for j in free if np.abs(np.hypot(rows[:, i], rows[:, j]) - 1).max() < ROUND), None)
        if sine is not None:
            sines[i] = sine
    return tuple(
        Coordinate(f"arctan2(f{sines[i]}, f{i})", (i, sines[i])) if i in sines else Coordinate(names[i], (i,))
        for i in range(width)
        if i not in sines.values()
    )


def named(coordinates: Sequence[Coordinate], names: Sequence[str], name: Any) -> Coordinate:
    """The coordinate of a name, which may be a feature's, or f0, f1, ...; raises if there is none."""
    known = {f"f{i}": Coordinate(one, (i,)) for i, one in enumerate(names)}
    known |= {one.name: one for one in known.values()} | {one.name: one for one in coordinates}
    if isinstance(name, str) and name in known:
        return known[name]
    raise UserError(f"There is no feature {shown(name)}; this agent's features are {', '.join(names)}.")


def state_names(agent: Agent) -> tuple[str, ...]:
    """The names of the features of a state, without the action and the flag of its end."""
    phi = agent.model.phi
    return phi.column_names[: len(phi.column_names) - phi.action_width - phi.ends]


def short_id(env: gym.Env[Any, Any]) -> str:
    """The Gymnasium id of an environment without namespace of a module and version; empty if it has none."""
    return env.spec.id.split(":")[-1].rpartition("-v")[0] if env.spec else ""


def labels(coordinates: Sequence[Coordinate], env: gym.Env[Any, Any] | None) -> list[str]:
    """What is written beside the axes of coordinates: what each means, where that is known, and its name."""
    known = LABELS.get(short_id(env), ()) if env is not None else ()
    meant = known if len(known) == len(coordinates) else ["angle" if one.turns else "" for one in coordinates]
    return [f"{word}: {one.name}" if word else one.name for word, one in zip(meant, coordinates, strict=True)]
