"""The continuous maze as a finite MDP on a fine grid: nearly exact values of any policy, and a nearly exact optimum."""

from __future__ import annotations

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP, from_entries
from anyreward.worlds.continuous_maze import ACTION_NAMES, NOISE, Plane


def grid_mdp(plane: Plane, gamma: float, step: float = 0.025, draws: int = 16, seed: int = 0) -> FiniteMDP:
    """The dynamics on the centres of small squares: some draws of the noise for every square and action.

    Where a move ends between four centres, it is taken to one of them, at random, so that it is right on average; but
    never through a wall: then it is the centre of the square that it ends in. A state's observation is its (x, y).
    """
    if not 0 < step <= 0.1 or draws < 1:
        raise UserError(f"step is {step} and draws {draws}; expected a step up to 0.1, as moves are, and draws >= 1.")
    rng, side = np.random.default_rng(seed), round(1 / step)
    ticks = (np.arange(side) + 0.5) / side
    points = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), -1).reshape(-1, 2)
    S, A = len(points), len(ACTION_NAMES)
    start, action = np.repeat(np.arange(S), A * draws), np.tile(np.repeat(np.arange(A), draws), S)
    moved = plane.move(points[start], action, rng.normal(0, NOISE, (len(start), 2)))
    near = np.clip(np.floor(moved * side - 0.5 + rng.random(moved.shape)), 0, side - 1)
    own = np.clip(np.floor(moved * side), 0, side - 1)
    through = plane.crossed(moved, (near + 0.5) / side)
    place = np.where(through[:, None], own, near).astype(np.int64) @ np.array([side, 1])
    shares = np.full(len(start), 1 / draws)
    return from_entries(start * A + action, place, shares, (S, A), gamma, points.astype(np.float32))
