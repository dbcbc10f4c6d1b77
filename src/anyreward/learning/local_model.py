"""A model of the steps of an environment whose states are numbers, from the nearest transitions.

If the environment is smooth and nearly deterministic, the next state is a local linear regression on the nearest
transitions with the same action; otherwise it is the change in the nearest one, so that walls and noise stay. Actions
of a box are numbers like those of the state: the regression is on both.

The regression is of the change of state. If states lie on a surface, such as the cosine and sine of an angle, it is of
the next state instead: regressions of changes keep whatever leads away from the surface, and many steps add it up. One
of next states leads back, because no data determine their slope across the surface, which is therefore zero. For
actions of a box, the next state lies within the range of those of the neighbours: a wall that stops them stops it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.model.landmark_values import unit_of

Array = np.ndarray[Any, Any]

PER_COEFFICIENT = 3
"""Neighbours of a local linear regression, for each coefficient."""
ACTION_UNIT = 0.5
"""Half the range of an action's number counts like this many standard deviations of one of the state."""
RIDGE = 1e-4
"""Regularisation of its slopes, in units of the distance of the farthest neighbour."""
TESTED = 500
"""Number of transitions on which the two estimates are compared."""
AROUND, THIN = 50, 0.01
"""Nearest states, and the smallest share of their variance in a direction that does not lead across a surface: it is
0.001 to 0.003 in Pendulum and Acrobot, and 0.04 or more in CartPole, MountainCar and PointMaze."""
SMOOTH = 0.1
"""Largest median error of the regression, relative to a typical change, for an environment to count as smooth."""


class LocalModel:
    """Steps among states x (n, p): numbers in units of ``scale`` (p,), without the flag of terminal states.

    ``actions`` is the number of listed actions; 0 for rows with actions of a box (n, width). Transitions are near a
    state if numbers are, and ``values`` (n, m) of packed observations, if they are given: on one side of a wall.
    """

    def __init__(
        self,
        rows: Transitions,
        actions: int,
        ends: bool,
        scale: Array,
        values: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if ends:
            rows = rows.at(torch.nonzero(rows.observations[:, -1] < 0.5).squeeze(1))
        p = len(scale)
        self.rows, self.scale, self._ends = rows, scale, ends
        self.x, after = (x[:, :p].double().numpy() / scale for x in (rows.observations, rows.next_observations))
        self._change, self._taken = after - self.x, rows.actions.numpy()
        self._box = actions == 0
        self._inputs = np.concatenate([self.x, ACTION_UNIT * self._taken], 1) if self._box else self.x
        self._of_action = [np.flatnonzero(self._taken == action) for action in range(actions)]
        if self._box:
            self._of_action = [np.arange(len(self.x))]
        self._values, beside, self._unit = values, self._inputs[:, :0], 1.0
        if values is not None:
            known = values(rows.observations)
            self._unit = unit_of(known, torch.from_numpy(self.x))
            beside = known.numpy() / self._unit
        places = np.concatenate([self._inputs, beside], 1)
        self._trees = [KDTree(places[own]) if len(own) else None for own in self._of_action]
        self._over = rows.next_observations[:, -1].numpy() > 0.5 if ends else rows.terminated.numpy()
        self._after = KDTree(after) if self._over.any() else None
        self._on_surface = on_surface(self.x)
        k = PER_COEFFICIENT * (self._inputs.shape[1] + 1)
        self.smooth = self._is_smooth(k)
        self._neighbours = k if self.smooth else 1

    def _is_smooth(self, k: int) -> bool:
        """Whether regression on k neighbours is precise, and better than the nearest transition."""
        if min(len(own) for own in self._of_action) <= k + 1:
            return False
        some = np.linspace(0, len(self.x) - 1, min(TESTED, len(self.x))).astype(int)
        found = [self._changes(self.x[some], self._taken[some], n, leave_out=True)[0] for n in (1, k)]
        nearest, linear = (np.median(np.linalg.norm(x - self._change[some], axis=1)) for x in found)
        return bool(linear < nearest and linear < SMOOTH * np.sqrt(np.square(self._change).sum(1).mean()))

    def _changes(self, x: Array, actions: Array, k: int, leave_out: bool = False) -> tuple[Array, Array]:
        """(n, p) changes by actions (n, ...) in states x (n, p), from k neighbours, and (n,) the nearest of these."""
        change, nearest, beside = np.zeros_like(x), np.zeros(len(x), dtype=np.int64), self._beside(x)
        if self._box:
            x, actions = np.concatenate([x, ACTION_UNIT * actions], 1), np.zeros(len(x), dtype=np.int64)
        places = np.concatenate([x, beside], 1)
        for action, (own, tree) in enumerate(zip(self._of_action, self._trees, strict=True)):
            rows = np.flatnonzero(actions == action)
            if tree is None or len(rows) == 0:
                continue
            apart, index = (
                found.reshape(len(rows), -1)[:, leave_out:] for found in tree.query(places[rows], k + leave_out)
            )
            near, nearest[rows] = own[index], own[index[:, 0]]
            if k == 1:
                change[rows] = self._change[near[:, 0]]
            else:
                inputs = self._inputs[near] - x[rows][:, None]
                after = inputs[..., : change.shape[1]] + self._change[near]  # next states, relative to x
                change[rows] = local_linear(inputs, apart, after if self._on_surface else self._change[near])
                if self._box:
                    change[rows] = np.clip(change[rows], after.min(1), after.max(1))
        return change, nearest

    def _beside(self, x: Array) -> Array:
        """(n, m) the values at states x (n, p), in their unit; none if there are none."""
        if self._values is None:
            return x[:, :0]
        packed = np.concatenate([x * self.scale, np.zeros((len(x), int(self._ends)))], 1, dtype=np.float32)
        return self._values(torch.from_numpy(packed)).numpy() / self._unit

    def step(self, x: Array, actions: Array) -> tuple[Array, Array, Array]:
        """(n, p) the next states of states x (n, p), whether these are terminal (n,), and the nearest transitions (n,).

        A state is terminal if the nearest next state of all transitions is.
        """
        change, nearest = self._changes(x, actions, self._neighbours)
        after = x + change
        over = np.zeros(len(x), dtype=bool) if self._after is None else self._over[self._after.query(after)[1]]
        return after, over, nearest


def on_surface(x: Array) -> bool:
    """Whether rows x (n, p) lie on a surface: near each of them, one direction has nearly none of the variance."""
    if len(x) < AROUND:
        return False
    some = x[np.linspace(0, len(x) - 1, min(TESTED, len(x))).astype(int)]
    around = x[KDTree(x).query(some, AROUND)[1]]  # (m, AROUND, p)
    variance = np.square(np.linalg.svd(around - around.mean(1, keepdims=True), compute_uv=False))
    return bool(np.median(variance[:, -1] / variance.sum(1).clip(1e-300)) < THIN)


def local_linear(apart: Array, distance: Array, values: Array) -> Array:
    """(n, p) linear regressions of ``values`` (n, k, p) on ``apart`` (n, k, q), evaluated at zero.

    ``distance`` (n, k) is the length of ``apart``, ascending; near rows count more.
    """
    far = distance[:, -1:] + 1e-9
    weight = 1 / (distance + 1e-2 * far)
    inputs = np.concatenate([np.ones((*apart.shape[:2], 1)), apart / far[..., None]], 2)
    weighted = (inputs * weight[..., None]).transpose(0, 2, 1)  # (n, p + 1, k)
    slopes = np.eye(inputs.shape[2])
    slopes[0, 0] = 0.0
    gram = weighted @ inputs + RIDGE * weight.sum(1)[:, None, None] * slopes
    return np.asarray(np.linalg.solve(gram, weighted @ values)[:, 0])
