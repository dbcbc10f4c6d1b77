"""Gymnasium's pendulum as a finite MDP on a fine grid of angle and speed: the optimum of any reward over the two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP, from_entries
from anyreward.worlds.spaces import Array

MOST_SPEED, MOST_TORQUE = 8.0, 2.0
GRAVITY, STEP = 10.0, 0.05
"""Gymnasium's values; mass and length are one."""


def pendulum_step(states: Array, torques: Array) -> Array:
    """(n, 2) the angle and speed after a step from (n, 2) with torques (n,), as in Gymnasium's Pendulum-v1."""
    angle, speed = states.T
    torques = np.clip(torques, -MOST_TORQUE, MOST_TORQUE)
    speed = np.clip(speed + (1.5 * GRAVITY * np.sin(angle) + 3.0 * torques) * STEP, -MOST_SPEED, MOST_SPEED)
    return np.stack([angle + speed * STEP, speed], 1)


def swing_up_reward(states: Array, torques: Array) -> Array:
    """(n,) the environment's own reward: minus a cost of angle, speed and torque, for states (n, 2)."""
    angle, speed = states.T
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    return np.asarray(-(angle**2 + 0.1 * speed**2 + 0.001 * torques**2))


@dataclass(frozen=True, eq=False)
class PendulumGrid:
    """The pendulum on a grid: states at the points, and torques in equal steps."""

    mdp: FiniteMDP
    angles: Array
    """(a,) from -pi on, without pi, which is the same place"""
    speeds: Array
    """(s,) from -8 to 8"""
    torques: Array
    """(A,) from -2 to 2"""

    @property
    def states(self) -> Array:
        """(a s, 2) angle and speed of each state, in the order of the MDP."""
        return np.stack(np.meshgrid(self.angles, self.speeds, indexing="ij"), -1).reshape(-1, 2)

    def shares(self, states: Array) -> tuple[Array, Array]:
        """The points of the grid around each state (n, 2), and their shares in bilinear interpolation, (n, 4) each."""
        return _shares(states, self.angles, self.speeds)

    def at(self, values: Array, states: Array) -> Array:
        """(n, ...) values (a s, ...) at the points of the grid, interpolated at states (n, 2)."""
        index, share = self.shares(states)
        return np.asarray(np.einsum("nk,nk...->n...", share, values[index]))


def _shares(states: Array, angles: Array, speeds: Array) -> tuple[Array, Array]:
    wide, tall = len(angles), len(speeds)
    u = (states[:, 0] + np.pi) / (2 * np.pi) * wide
    v = np.clip((states[:, 1] + MOST_SPEED) / (2 * MOST_SPEED) * (tall - 1), 0, tall - 1)
    i, j = np.floor(u).astype(np.int64), np.minimum(np.floor(v).astype(np.int64), tall - 2)
    right, above = u - i, v - j
    index = np.stack([(i + k) % wide * tall + j + m for k in (0, 1) for m in (0, 1)], 1)
    share = np.stack([(right if k else 1 - right) * (above if m else 1 - above) for k in (0, 1) for m in (0, 1)], 1)
    return index, share


def pendulum_grid(gamma: float, angles: int = 121, speeds: int = 121, torques: int = 9) -> PendulumGrid:
    """The pendulum with ``angles`` x ``speeds`` states and ``torques`` actions.

    The state after a step lies between points of the grid: it becomes each of the four around it, with the probability
    of its share in bilinear interpolation. This blurs the pendulum's motion, the less the finer the grid. A state's
    observation is that of Gymnasium: the cosine and the sine of the angle, and the speed.
    """
    if min(angles, speeds) < 3 or torques < 2:
        raise UserError(
            f"pendulum_grid got {angles} angles, {speeds} speeds and {torques} torques; expected at least 3, 3 and 2."
        )
    angle = -np.pi + 2 * np.pi * np.arange(angles) / angles
    speed = np.linspace(-MOST_SPEED, MOST_SPEED, speeds)
    torque = np.linspace(-MOST_TORQUE, MOST_TORQUE, torques)
    states = np.stack(np.meshgrid(angle, speed, indexing="ij"), -1).reshape(-1, 2)
    S = len(states)
    after = pendulum_step(np.repeat(states, torques, axis=0), np.tile(torque, S))  # (S A, 2)
    index, share = _shares(after, angle, speed)
    rows = np.repeat(np.arange(S * torques), 4)
    used = share.ravel() > 0
    seen = np.stack([np.cos(states[:, 0]), np.sin(states[:, 0]), states[:, 1]], 1).astype(np.float32)
    mdp = from_entries(rows[used], index.ravel()[used], share.ravel()[used], (S, torques), gamma, seen)
    return PendulumGrid(mdp, angle, speed, torque)
