"""The continuous maze as a finite MDP on a fine grid: nearly exact values of any policy, and a nearly exact optimum."""

from __future__ import annotations

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP, from_entries
from anyreward.worlds.continuous_maze import ACTION_NAMES, NOISE, Plane


def grid_mdp(plane: Plane, gamma: float, step: float = 0.025, draws: int = 16, seed: int = 0) -> FiniteMDP:
    """The dynamics on the points of a grid: some draws of the noise for every point and action.

    Where a move ends between points, it is taken to one of the four around it, at random, so that it is right on
    average. A state's observation is its (x, y).
    """
    if not 0 < step <= 0.1 or draws < 1:
        raise UserError(
            f"step is {step} and draws {draws}; expected a step up to 0.1, as moves are, and a draw or more."
        )
    rng, side = np.random.default_rng(seed), round(1 / step) + 1
    ticks = np.clip(np.arange(side) * step, 1e-4, 1 - 1e-4)  # inside, so that no point lies in a wall's end
    points = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), -1).reshape(-1, 2)
    S, A = len(points), len(ACTION_NAMES)
    start, action = np.repeat(np.arange(S), A * draws), np.tile(np.repeat(np.arange(A), draws), S)
    moved = plane.move(points[start], action, rng.normal(0, NOISE, (len(start), 2)))
    place = np.clip(np.floor(moved / step + rng.random(moved.shape)), 0, side - 1).astype(np.int64)
    shares = np.full(len(start), 1 / draws)
    observations = points.astype(np.float32)
    return from_entries(start * A + action, place @ np.array([side, 1]), shares, (S, A), gamma, observations)
