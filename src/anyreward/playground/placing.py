"""Episodes that begin where the user wants: values of features as the state of an environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError, shown
from anyreward.model.features import FeatureMap
from anyreward.playground.coordinates import Coordinate
from anyreward.worlds.maze import MazeEnv
from anyreward.worlds.spaces import Array

HOLDERS = ("state", "s", "position", "cell")
"""Attributes in which environments keep their state, where it is what they return as observation."""
NEAR = 1e-3
"""Difference between an angle of the state and that of its observed cosine and sine, by rounding."""


class Placing(gym.Wrapper[Any, Any, Any, Any]):
    """Begins an episode at chosen values of features, if the environment's state is what the agent observes."""

    def __init__(self, env: gym.Env[Any, Any], phi: FeatureMap, coordinates: Sequence[Coordinate] = ()) -> None:
        super().__init__(env)
        self._phi, self._coordinates = phi, coordinates
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
            return self._turned(observation, start)
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

    def _turned(self, observation: Any, start: dict[int, float]) -> Any:
        """Change a state of angles, which are observed as cosines and sines; the old observation if it is none."""
        inner, space, parts = self.env.unwrapped, self.observation_space, self._coordinates
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1 or not any(one.turns for one in parts):
            return observation
        seen = np.asarray(observation, dtype=np.float64)
        name = next((name for name in HOLDERS if _turns(getattr(inner, name, None), seen, parts)), None)
        given = [set(one.columns) & start.keys() for one in parts]
        partly = any(given[i] and len(given[i]) < len(one.columns) for i, one in enumerate(parts))
        if name is None or partly:
            return observation
        seen = _changed(seen, start, space)
        state = getattr(inner, name).copy()
        for i, one in enumerate(parts):
            if given[i]:
                state[i] = one.of(seen[None])[0]
        setattr(inner, name, state)
        self.placed = True
        return seen.astype(space.dtype)

    def _nearest(self, observation: int, start: dict[int, float]) -> int:
        """The number of the state that is nearest to the values of its features."""
        space, table = self.observation_space, self._phi.table
        assert isinstance(space, gym.spaces.Discrete)
        if table is None:
            return int(space.start) + round(min(max(start[0], 0), int(space.n) - 1))
        place = np.array(table[observation - int(space.start)], dtype=np.float64)
        place[list(start)] = list(start.values())
        return int(space.start) + int(np.linalg.norm(table - place, axis=1).argmin())


def wanted(start: Any, drawn: Sequence[str], coordinate: Callable[[Any], Coordinate]) -> dict[int, float]:
    """The features to start from, by column, for values by name; raises if they are no numbers or features."""
    if isinstance(start, Mapping):
        given = list(start.items())
    elif isinstance(start, Sequence | np.ndarray) and not isinstance(start, str) and len(start) == len(drawn):
        given = list(zip(drawn, start, strict=True))
    else:
        raise UserError(f"The start is {shown(start)}; expected {len(drawn)} numbers: {', '.join(drawn)}.")
    for name, value in given:
        if type(value) is bool or not isinstance(value, int | float | np.number) or not math.isfinite(value):
            raise UserError(f"The start has {name} = {shown(value)}; expected a finite number.")
    features: dict[int, float] = {}
    for name, value in given:
        features |= coordinate(name).features(float(value))
    return features


def _changed(held: Array, start: dict[int, float], space: gym.spaces.Box) -> Array:
    """A state with other values at some components, within the bounds of the space."""
    state = held.astype(np.float64)
    for column, value in start.items():
        state.flat[column] = np.clip(value, space.low.flat[column], space.high.flat[column])
    return (np.rint(state) if held.dtype.kind in "iu" else state).astype(held.dtype)


def _turns(held: Any, seen: Array, parts: Sequence[Coordinate]) -> bool:
    """Whether a state consists of the coordinates of the observation (k,)."""
    if not isinstance(held, np.ndarray) or held.shape != (len(parts),) or held.dtype.kind != "f":
        return False
    apart = held - np.array([one.of(seen[None])[0] for one in parts])
    angle = np.array([one.turns for one in parts])
    return bool((np.abs(np.where(angle, (apart + np.pi) % (2 * np.pi) - np.pi, apart)) < NEAR).all())


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
