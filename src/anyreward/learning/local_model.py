"""A model of the steps of an environment whose states are numbers, from the nearest transitions.

If the environment is smooth and nearly deterministic, the change of state is a local linear regression on the nearest
transitions with the same action; otherwise it is the change in the nearest one, so that walls and noise stay. Actions
of a box are numbers like those of the state: the regression is on both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree

from anyreward.learning.replay import Transitions

Array = np.ndarray[Any, Any]

PER_COEFFICIENT = 3
"""Neighbours of a local linear regression, for each coefficient."""
ACTION_UNIT = 0.5
"""Half the range of an action's number counts like this many standard deviations of one of the state."""
RIDGE = 1e-4
"""Regularisation of its slopes, in units of the distance of the farthest neighbour."""
TESTED = 500
"""Number of transitions on which the two estimates are compared."""
SMOOTH = 0.1
"""Largest median error of the regression, relative to a typical change, for an environment to count as smooth."""


class LocalModel:
    """Steps among states x (n, p): numbers in units of ``scale`` (p,), without the flag of terminal states.

    ``actions`` is the number of listed actions; 0 for rows with actions of a box (n, width).
    """

    def __init__(self, rows: Transitions, actions: int, ends: bool, scale: Array) -> None:
        if ends:
            rows = rows.at(torch.nonzero(rows.observations[:, -1] < 0.5).squeeze(1))
        p = len(scale)
        self.rows, self.scale = rows, scale
        self.x, after = (x[:, :p].double().numpy() / scale for x in (rows.observations, rows.next_observations))
        self._change, self._taken = after - self.x, rows.actions.numpy()
        self._box = actions == 0
        self._inputs = np.concatenate([self.x, ACTION_UNIT * self._taken], 1) if self._box else self.x
        self._of_action = [np.flatnonzero(self._taken == action) for action in range(actions)]
        if self._box:
            self._of_action = [np.arange(len(self.x))]
        self._trees = [KDTree(self._inputs[own]) if len(own) else None for own in self._of_action]
        self._over = rows.next_observations[:, -1].numpy() > 0.5 if ends else rows.terminated.numpy()
        self._after = KDTree(after) if self._over.any() else None
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
        change, nearest = np.zeros_like(x), np.zeros(len(x), dtype=np.int64)
        if self._box:
            x, actions = np.concatenate([x, ACTION_UNIT * actions], 1), np.zeros(len(x), dtype=np.int64)
        for action, (own, tree) in enumerate(zip(self._of_action, self._trees, strict=True)):
            rows = np.flatnonzero(actions == action)
            if tree is None or len(rows) == 0:
                continue
            apart, index = (found.reshape(len(rows), -1)[:, leave_out:] for found in tree.query(x[rows], k + leave_out))
            near, nearest[rows] = own[index], own[index[:, 0]]
            if k == 1:
                change[rows] = self._change[near[:, 0]]
            else:
                change[rows] = local_linear(self._inputs[near] - x[rows][:, None], apart, self._change[near])
        return change, nearest

    def step(self, x: Array, actions: Array) -> tuple[Array, Array, Array]:
        """(n, p) the next states of states x (n, p), whether these are terminal (n,), and the nearest transitions (n,).

        A state is terminal if the nearest next state of all transitions is.
        """
        change, nearest = self._changes(x, actions, self._neighbours)
        after = x + change
        over = np.zeros(len(x), dtype=bool) if self._after is None else self._over[self._after.query(after)[1]]
        return after, over, nearest


def local_linear(apart: Array, distance: Array, change: Array) -> Array:
    """(n, p) linear regressions of ``change`` (n, k, p) on ``apart`` (n, k, p), evaluated at zero.

    ``distance`` (n, k) is the length of ``apart``, ascending; near rows count more.
    """
    far = distance[:, -1:] + 1e-9
    weight = 1 / (distance + 1e-2 * far)
    inputs = np.concatenate([np.ones((*apart.shape[:2], 1)), apart / far[..., None]], 2)
    weighted = (inputs * weight[..., None]).transpose(0, 2, 1)  # (n, p + 1, k)
    slopes = np.eye(inputs.shape[2])
    slopes[0, 0] = 0.0
    gram = weighted @ inputs + RIDGE * weight.sum(1)[:, None, None] * slopes
    return np.asarray(np.linalg.solve(gram, weighted @ change)[:, 0])
