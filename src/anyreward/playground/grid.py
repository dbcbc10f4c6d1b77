"""The grid of points over the two drawn coordinates, and an answer's values and greedy actions on it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.policy import Policy
from anyreward.playground.axes import Axis, View
from anyreward.worlds.spaces import Array

NEAREST = 3
"""Number of held-out observations whose values are averaged at a point, where features are not observations."""
REACH = 1.5
"""A point is then drawn if one of these lies within this number of grid steps."""
NO_ACTION = 255
"""The action at a point where there is none."""


class Grid:
    """The points at which two axes are drawn."""

    def __init__(self, view: View, axes: tuple[Axis, Axis]) -> None:
        self._view, self._axes, self._phi = view, axes, view.agent.model.phi

    @cached_property
    def fixed(self) -> dict[int, float]:
        """The features that are not drawn, by index, and the values that they are held at: medians."""
        phi, drawn = self._phi, {axis.of.columns for axis in self._axes}
        if phi.kind != "observation" or phi.table is not None:
            return {}
        rows = self._view.agent.sample.rows.numpy()[:, : phi.state_packed]
        held: dict[int, Any] = {}
        for one in self._view.coordinates:
            if one.columns not in drawn:
                held |= one.features(float(np.quantile(one.of(rows), 0.5, method="nearest")))
        return {column: float(value) for column, value in held.items()}

    @cached_property
    def points(self) -> Array:
        """(n, 2) the points of the grid, row by row."""
        x, y = np.meshgrid(*(axis.values for axis in self._axes))
        return np.stack([x.ravel(), y.ravel()], 1)

    @cached_property
    def rows(self) -> tuple[Array, Tensor]:
        """The indices of the points of the grid that have a state, and the packed observations (m, packed) there."""
        phi, maze = self._phi, self._view.maze
        if maze is not None:
            return maze.free, torch.from_numpy(phi.seen(maze.free))
        if phi.table is not None:
            numbers = {tuple(place): number for number, place in enumerate(phi.table[:, :2].tolist())}
            found = [(i, numbers[tuple(p)]) for i, p in enumerate(self.points.tolist()) if tuple(p) in numbers]
            which, states = np.array(found, dtype=np.int64).reshape(-1, 2).T
            return which, torch.from_numpy(phi.seen(states))
        return np.arange(len(self.points)), torch.from_numpy(self.rows_at(self.points))

    def rows_at(self, points: Array) -> Array:
        """(n, packed) observations at points (n, 2) of numbers."""
        rows = np.zeros((len(points), self._phi.state_packed), dtype=np.float32)
        for axis, values in zip(self._axes, points.T, strict=True):
            for column, features in axis.of.features(values).items():
                rows[:, column] = features
        for i, value in self.fixed.items():
            rows[:, i] = value
        return self._phi.marked(rows)

    @cached_property
    def _scatter(self) -> tuple[Array, Array, Tensor]:
        """Where features are not observations: points of the grid (m,), the rows near each (m, k), and all rows."""
        rows = self._view.known_rows
        if rows is None:  # no values are drawn
            return np.zeros(0, dtype=np.int64), np.zeros((0, NEAREST), dtype=np.int64), torch.zeros(0, 0)
        steps = np.array([(axis.high - axis.low) / (axis.points - 1) for axis in self._axes])
        features = self._phi.readable(rows[1].numpy())
        places = np.stack([axis.of.of(features) for axis in self._axes], 1) / steps
        apart = np.linalg.norm(self.points[:, None] / steps - places, axis=2)  # (n, rows)
        near = np.argsort(apart, axis=1)[:, :NEAREST]
        which = np.flatnonzero(np.take_along_axis(apart, near, 1)[:, 0] <= REACH)
        return which, near[which], rows[0]

    def answer(self, policy: Policy) -> tuple[Array, Array]:
        """(n,) values, in units of the reward, and greedy actions at the points of the grid.

        Listed actions are numbers (n,), and those of a box rows (n, width) from -1 to 1, NaN where there is none.
        """
        value, acts = np.full(len(self.points), np.nan), self._phi.action_set
        action = np.full((len(value), acts.width), np.nan) if acts.continuous else np.full(len(value), NO_ACTION)
        if self._phi.kind == "observation":
            (which, rows), near = self.rows, None
        else:
            which, near, rows = self._scatter
            if not len(which):
                return value, action
        if acts.continuous:
            V, greedy = self._chosen(policy, rows)
            if near is not None:
                V, greedy = V[near].mean(1), greedy[near].mean(1)
        else:
            Q = self._q_of_tables(policy) if near is None and _has_tables(policy) else self._q(policy, rows)
            V, greedy = (Q if near is None else Q[near].mean(1)).max(1)
        value[which] = V.numpy()
        if not policy.clueless:
            action[which] = greedy.numpy()
        return value, action

    @cached_property
    def _shares(self) -> tuple[Tensor, Tensor]:
        """(m, c) the known states that the points of the grid are interpolated from, and (m, c, 1) their shares."""
        tables = self._view.agent.model.landmarks
        assert tables is not None
        index, share = tables.P.states.locate(self.rows[1])
        return index, share[..., None]

    def _q_of_tables(self, policy: Policy) -> Tensor:
        """(m, A) the same as `_q` at the points of the grid, without looking them up each time."""
        tables, (index, share) = policy.model.landmarks, self._shares
        assert tables is not None
        Q = (tables.table(policy.z)[index] * share).sum(1).double()
        return policy.reward_scale * Q + policy.task.constant

    def _q(self, policy: Policy, rows: Tensor) -> Tensor:
        """(m, A) Q at packed observations (m, packed), in units of the reward."""
        return policy.action_values(rows, self._features(rows)) * policy.reward_scale

    def _chosen(self, policy: Policy, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(m,) Q of the greedy actions of a box (m, width) at packed observations, in units of the reward."""
        actions, _ = policy.choose(rows)
        return policy.q_taken(rows, actions, self._features(rows)) * policy.reward_scale, actions

    def _features(self, rows: Tensor) -> Tensor | None:
        """The packed features of packed observations, where they are the observations."""
        phi = self._phi
        if phi.kind != "observation":
            return None
        return torch.from_numpy(phi.of(None, rows.numpy(), phi.action_set.none(len(rows))))


def _has_tables(policy: Policy) -> bool:
    return policy.model.landmarks is not None and not policy.corrections and policy.tuned is None
