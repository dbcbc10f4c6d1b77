"""Episodes that begin where the user wants: values of features as the state of an environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError, shown
from anyreward.model.features import FeatureMap
from anyreward.worlds.maze import MazeEnv
from anyreward.worlds.spaces import Array

HOLDERS = ("state", "s", "position", "cell")
"""Attributes in which environments keep their state, where it is what they return as observation."""


class Placing(gym.Wrapper[Any, Any, Any, Any]):
    """Begins an episode at chosen values of features, if the environment's state is what the agent observes."""

    def __init__(self, env: gym.Env[Any, Any], phi: FeatureMap) -> None:
        super().__init__(env)
        self._phi = phi
        self.start: dict[int, float] = {}
        """where the next episode is to begin: values of columns of readable features"""
        self.placed = False
        """whether the present episode began there"""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        start, self.start, self.placed = self.start, {}, False
        observation, info = self.env.reset(seed=seed, options=options)
        if start and self._phi.kind == "observation":
            observation = self._place(observation, start)
        return observation, info

    def _place(self, observation: Any, start: dict[int, float]) -> Any:
        """Change the state; returns the new observation, or the old one if the state is not the observation."""
        inner, space = self.env.unwrapped, self.observation_space
        name = next((name for name in HOLDERS if _equal(getattr(inner, name, None), observation)), None)
        if name is None:
            return observation
        held = getattr(inner, name)
        if isinstance(space, gym.spaces.Discrete):
            number = self._nearest(int(observation), start)
            if isinstance(inner, MazeEnv) and number not in inner.maze.free:
                return observation
            state, placed = type(held)(number), type(observation)(number)
        elif isinstance(space, gym.spaces.Box):
            values = _changed(np.asarray(held), start, space)
            state = values if isinstance(held, np.ndarray) else type(held)(values.tolist())
            placed = values.astype(space.dtype)
        else:
            return observation
        try:
            setattr(inner, name, state)
        except AttributeError:  # a property that cannot be set
            return observation
        self.placed = True
        return placed

    def _nearest(self, observation: int, start: dict[int, float]) -> int:
        """The number of the state that is nearest to the values of its features."""
        space, table = self.observation_space, self._phi.table
        assert isinstance(space, gym.spaces.Discrete)
        if table is None:
            return int(space.start) + round(min(max(start[0], 0), int(space.n) - 1))
        place = np.array(table[observation - int(space.start)], dtype=np.float64)
        place[list(start)] = list(start.values())
        return int(space.start) + int(np.linalg.norm(table - place, axis=1).argmin())


def columns_of(phi: FeatureMap) -> dict[str, int]:
    """The columns of the readable features of a state, by name."""
    names = phi.column_names
    width = len(names) - phi.include_action - phi.ends
    return {name: i for i, name in enumerate(names[:width])}


def column_of(columns: dict[str, int], name: Any) -> int:
    """The column of a feature, by its name or as f0, f1, ...; raises if there is none."""
    numbered = {f"f{i}": i for i in columns.values()}
    if isinstance(name, str) and name in numbered | columns:
        return (numbered | columns)[name]
    raise UserError(f"There is no feature {shown(name)}; this agent's features are {', '.join(columns)}.")


def wanted(start: Any, drawn: tuple[str, ...], columns: dict[str, int]) -> dict[int, float]:
    """The values to start from, by column; raises if they are no numbers or features."""
    if isinstance(start, Mapping):
        given = list(start.items())
    elif isinstance(start, Sequence | np.ndarray) and not isinstance(start, str) and len(start) == len(drawn):
        given = list(zip(drawn, start, strict=True))
    else:
        raise UserError(f"The start is {shown(start)}; expected {len(drawn)} numbers: {', '.join(drawn)}.")
    for name, value in given:
        if type(value) is bool or not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise UserError(f"The start has {name} = {shown(value)}; expected a finite number.")
    return {column_of(columns, name): float(value) for name, value in given}


def _changed(held: Array, start: dict[int, float], space: gym.spaces.Box) -> Array:
    """A state with other values at some components, within the bounds of the space."""
    state = held.astype(np.float64)
    for column, value in start.items():
        state.flat[column] = np.clip(value, space.low.flat[column], space.high.flat[column])
    return (np.rint(state) if held.dtype.kind in "iu" else state).astype(held.dtype)


def _equal(held: Any, observation: Any) -> bool:
    """Whether a state has the same numbers as the observation."""
    if not isinstance(held, int | np.integer | np.ndarray | list | tuple) or isinstance(held, bool):
        return False
    try:
        seen = np.asarray(observation)
        state = np.asarray(held, dtype=np.float64).astype(seen.dtype)
    except (TypeError, ValueError):
        return False
    return state.shape == seen.shape and bool(np.array_equal(state, seen))
