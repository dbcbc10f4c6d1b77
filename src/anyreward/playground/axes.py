"""The two coordinates of an agent's states that are drawn, and the values at which they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.playground.coordinates import Coordinate, coordinates_of, labels
from anyreward.playground.live import screen
from anyreward.theory.pendulum import MOST_SPEED
from anyreward.worlds.maze import Maze, MazeEnv
from anyreward.worlds.point_mass import ARENA, PointMassMazeEnv
from anyreward.worlds.spaces import Array, leaves

SQUARE_POINTS, PLANE_POINTS, SCREEN_POINTS, MOST_POINTS = 41, 33, 41, 101
"""Points along an axis: of the continuous maze and the pendulum, of other numbers, of a screen, and of categories at
most."""
EDGE = 0.005
"""Share of the training data that may lie beyond each end of an axis."""
ROWS = 3_000
"""Number of held-out observations at which values are computed where features are not observations."""
TOLD_BY = 500
"""Number of these by which the coordinates are chosen that are drawn."""


@dataclass(frozen=True)
class Axis:
    """A coordinate that is drawn, and the values at which it is."""

    of: Coordinate
    index: int
    """its number among the coordinates"""
    low: float
    high: float
    points: int
    whole: bool = False
    """whether its values are whole numbers: categories, cells"""
    label: str = ""
    """what is written beside the axis, if not its name"""

    @property
    def name(self) -> str:
        """The name of the feature, or the expression of the angle."""
        return self.of.name

    @property
    def values(self) -> Array:
        """(points,) the drawn values."""
        return np.linspace(self.low, self.high, self.points)

    def describe(self) -> dict[str, Any]:
        """The axis as JSON."""
        of = {"name": self.name, "label": self.label or self.name, "columns": list(self.of.columns)}
        ends = {"low": self.low, "high": self.high, "points": self.points, "whole": self.whole}
        return of | ends | {"index": self.index, "turns": self.of.turns}


@dataclass(frozen=True, eq=False)
class View:
    """An agent, its world if it can be opened, and in which way it is drawn."""

    agent: Agent
    env: gym.Env[Any, Any] | None
    kind: str
    """"maze", "square", "pendulum", "screen", "arm", or "plane" for all others"""

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """What can be drawn of a state."""
        return coordinates_of(self.agent)

    @property
    def labels(self) -> list[str]:
        """What is written beside the axes of the coordinates."""
        return labels(self.coordinates, self.env)

    @property
    def maze(self) -> Maze | None:
        """The drawn maze, if the world is one."""
        return self.env.maze if isinstance(self.env, MazeEnv) and self.kind == "maze" else None

    def axes(self, chosen: tuple[int, int] | None) -> tuple[Axis, Axis]:
        """The axes across and up: those of two chosen coordinates, where there are more than two."""
        maze, every = self.maze, self.coordinates
        if maze is not None:
            return Axis(every[0], 0, 0, maze.width - 1, maze.width), Axis(every[1], 1, 0, maze.height - 1, maze.height)
        if self.kind == "square":
            return Axis(every[0], 0, 0.0, 1.0, SQUARE_POINTS), Axis(every[1], 1, 0.0, 1.0, SQUARE_POINTS)
        if seen := screen(self.agent):
            (x0, y0), (x1, y1) = seen["low"], seen["high"]
            return Axis(every[0], 0, x0, x1, SCREEN_POINTS), Axis(every[1], 1, y0, y1, SCREEN_POINTS)
        names = [one.name for one in every]
        if len(every) < 2:
            raise UserError(
                f"The playground draws two features, and this agent has one ({names[0]}). Train with a feature_table "
                "that gives each state two coordinates (docs/datasets.md)."
            )
        first, second = chosen or self._usual()
        if first == second or not {first, second} <= set(range(len(every))):
            raise UserError(f"The features {first} and {second} cannot be drawn; choose two of {', '.join(names)}.")
        return self._axis(first), self._axis(second)

    def _axis(self, index: int) -> Axis:
        """The axis of a coordinate: the range of the training data, without its extremes; angles turn all the way."""
        phi, sample, of = self.agent.model.phi, self.agent.sample, self.coordinates[index]
        label, pendulum = self.labels[index], self.kind == "pendulum"
        points = SQUARE_POINTS if pendulum else PLANE_POINTS
        if of.turns or pendulum:
            most = math.pi if of.turns else MOST_SPEED
            return Axis(of, index, -most, most, points, label=label)
        if isinstance(self.env, PointMassMazeEnv) and index < 2:  # the whole maze, also rooms that are rarely visited
            return Axis(of, index, -ARENA, ARENA, points, label=label)
        values = of.of(phi.readable(sample.rows.numpy()))
        parts = [leaf for leaf in leaves(phi.state_space) for _ in range(leaf.packed)]
        if phi.table is not None or parts[of.columns[0]].kind != "number":
            low, high = values.min(), max(values.max(), values.min() + 1)
            points = min(int(high - low) + 1, MOST_POINTS)
            return Axis(of, index, float(low), float(high), points, True, label)
        low, high = np.quantile(values, [EDGE, 1 - EDGE])
        if not low < high:
            low, high = low - 0.5, high + 0.5
        return Axis(of, index, float(low), float(high), points, label=label)

    def _usual(self) -> tuple[int, int]:
        """The two coordinates that are drawn first: of many, those that values depend on most.

        For random z, this is the variance of values between bins of the coordinate.
        """
        knowledge, phi = self.agent.knowledge, self.agent.model.phi
        rows = self.known_rows
        placed = self.kind == "arm" or isinstance(self.env, PointMassMazeEnv)
        if len(self.coordinates) == 2 or placed or rows is None:
            return 0, 1
        features = phi.readable(rows[1].numpy())
        places = [one.of(features)[:TOLD_BY] for one in self.coordinates]
        Z, _ = knowledge.scaled(knowledge.training_z(8, torch.Generator().manual_seed(0)).double())
        explained = np.zeros(len(places))
        for z in Z:
            V = self.agent.model.choose(rows[0][:TOLD_BY], z)[1].numpy()
            V = (V - V.mean()) / max(V.std(), 1e-12)
            for i, place in enumerate(places):
                order = np.argsort(place, kind="stable")
                explained[i] += np.mean([part.mean() ** 2 for part in np.array_split(V[order], 12)])
        first, second = np.sort(np.argsort(-explained)[:2])
        return int(first), int(second)

    @cached_property
    def known_rows(self) -> tuple[Tensor, Tensor] | None:
        """(m, packed) held-out observations, and their packed features."""
        held_out = self.agent.held_out
        if held_out is None or len(held_out.actions) < 2:
            return None
        observations, features = held_out.observations, held_out.features
        return observations[:ROWS], features[:ROWS]
