"""Low-dimensional representations that suffice to reach every state, but not to solve every reward (sec:dimension)."""

from __future__ import annotations

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.fb import FB, goals_are_states, greedy
from anyreward.theory.finite_mdp import FiniteMDP, from_entries
from anyreward.worlds.spaces import Array

MOST_CELLS = 10**6
"""Largest number of cells of a toric grid."""


def toric_grid(k: int, n: int, gamma: float = 0.9) -> FiniteMDP:
    """The grid {0, ..., k-1}^n with periodic boundaries and 2 n + 1 actions.

    Action 0 stays, action 2 j + 1 adds one to coordinate j, and action 2 j + 2 subtracts one.
    """
    _, successors = _torus(k, n)
    rows = np.arange(successors.size)
    return from_entries(rows, successors.reshape(-1), np.ones(successors.size), successors.shape, gamma)


def toric_fb(k: int, n: int, gamma: float = 0.9) -> FB:
    """F(s, a, z)_j = exp(2 i pi (s + a)_j / k) and B(s)_j = exp(2 i pi s_j / k): d = 2 n real components.

    pi_{B(s')} is optimal for reaching s', for each s'. F . B is not a successor density, so Q-values are meaningless.
    """
    places, successors = _torus(k, n)
    angle = 2 * np.pi * places / k  # (S, n)
    B = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)  # (S, 2n)
    mdp = toric_grid(k, n, gamma)
    return FB(mdp, lambda z: B[successors], B, np.full(len(B), 1 / len(B)), goals_are_states(mdp))


def navigation_fb(mdp: FiniteMDP, B: Array, rho: Array | None = None) -> FB:
    """A representation whose pi_{B(s)} is optimal for reaching s, for any injective B (S, d) (sec:dimension).

    F(s', a, B(s)) = B(s) for the action that is best for reaching s from s', and -B(s) for the others. B(s) = 0 is not
    allowed, since then F . z = 0 for each action. Any other z stands for the nearest B(s); rho is uniform by default.
    z_R is B(s) for the reward 1 / rho(s) at s.
    """
    B = np.asarray(B, dtype=np.float64)
    if B.ndim != 2 or len(B) != mdp.states:
        raise UserError(f"B has shape {B.shape}; expected ({mdp.states}, d), a row for each state.")
    if len(np.unique(B, axis=0)) < len(B) or not B.any(1).all():
        raise UserError("B has two equal rows or a row of zeros; expected distinct rows, none of them zero.")
    rho = np.full(mdp.states, 1 / mdp.states) if rho is None else rho

    def forward(z: Array) -> Array:
        goal = np.linalg.norm(B - z, axis=1).argmin()
        r = mdp.on_states(np.eye(mdp.states)[goal])
        best = greedy(mdp.q_value(mdp.optimal_value(r), r))  # (S, A)
        return np.asarray((2 * best - 1)[..., None] * B[goal])

    return FB(mdp, forward, B, rho, goals_are_states(mdp))


def _torus(k: int, n: int) -> tuple[Array, Array]:
    """(S, n) the coordinates of each state, and (S, 2 n + 1) where each action leads."""
    if k < 2 or n < 1 or k**n > MOST_CELLS:
        raise UserError(
            f"k={k}, n={n}; expected cycles of k >= 2 cells in n >= 1 directions, at most {MOST_CELLS:,} in total."
        )
    places = np.stack(np.unravel_index(np.arange(k**n), (k,) * n), axis=1)
    one = np.eye(n, dtype=np.int64)
    steps = np.concatenate([0 * one[:1], np.stack([one, -one], axis=1).reshape(-1, n)])  # (2n + 1, n)
    moved = (places[:, None] + steps) % k  # (S, 2n + 1, n)
    return places, np.ravel_multi_index(tuple(np.moveaxis(moved, -1, 0)), (k,) * n)
