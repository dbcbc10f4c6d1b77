"""The continuous maze as a finite MDP on a fine grid, and values of policies from rollouts in the maze itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP, from_entries
from anyreward.worlds.continuous_maze import ACTION_NAMES, NOISE, Plane
from anyreward.worlds.spaces import Array


def ticks(step: float) -> Array:
    """(n,) the grid's coordinates: the midpoints of intervals of length ``step``, and the border, where moves end."""
    side = round(1 / step)
    return np.concatenate([[0.0], (np.arange(side) + 0.5) / side, [1.0]])


def lattice_noise(deviation: float) -> tuple[Array, Array]:
    """Integers and their probabilities: a normal distribution of mean 0 and this standard deviation, on integers."""
    if deviation < 0.5:  # too narrow to sample its density: match its variance
        p = deviation**2 / 2
        return np.array([-1, 0, 1]), np.array([p, 1 - 2 * p, p])
    reach = int(np.ceil(4 * deviation))
    k = np.arange(-reach, reach + 1)
    density = np.exp(-(k**2) / (2 * deviation**2))
    return k, density / density.sum()


def grid_mdp(plane: Plane, gamma: float, step: float = 0.0125) -> FiniteMDP:
    """The dynamics on a grid, with noise of the same variance as in the maze. A state's observation is (x, y).

    ``step`` must divide 0.1, the length of a move, so that moves end at grid points. Moves from the border may end
    between points: their probability is split among the points around, but never across a wall.
    """
    if not 0 < step <= 0.1 or abs(0.1 / step - round(0.1 / step)) > 1e-9:
        raise UserError(f"step is {step}; expected one that divides 0.1, the length of a move.")
    axis = ticks(step)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    k, likely = lattice_noise(NOISE / step)
    noise = step * np.stack(np.meshgrid(k, k, indexing="ij"), -1).reshape(-1, 2)
    both = np.outer(likely, likely).reshape(-1)
    S, A, n = len(points), len(ACTION_NAMES), len(both)
    rows, places, shares = [], [], []
    for action in range(A):
        start = np.repeat(np.arange(S), n)
        moved = plane.move(points[start], np.full(S * n, action), np.tile(noise, (S, 1)))
        low = np.clip(np.searchsorted(axis, moved + 1e-9) - 1, 0, len(axis) - 2)  # (S n, 2)
        above = (moved - axis[low]) / (axis[low + 1] - axis[low])
        above = np.where(np.abs(above - np.round(above)) < 1e-6, np.round(above), above)
        corners = [(i, j) for i in (0, 1) for j in (0, 1)]
        share = np.stack([np.where(c, above, 1 - above).prod(1) for c in np.array(corners)], 1)  # (S n, 4)
        corner = (low[:, None] + np.array(corners)) @ np.array([len(axis), 1])
        between = (share > 0).sum(1) > 1
        through = np.zeros_like(share, dtype=bool)
        through[between] = plane.crossed(
            np.repeat(moved[between], 4, axis=0), points[corner[between]].reshape(-1, 2)
        ).reshape(-1, 4)
        share = np.where(through, 0.0, share)
        share *= np.tile(both, S)[:, None] / share.sum(1, keepdims=True)
        used = share > 0
        rows.append((start * A + action)[:, None].repeat(4, 1)[used])
        places.append(corner[used])
        shares.append(share[used])
    row, place, likely = (np.concatenate(column) for column in (rows, places, shares))
    return from_entries(row, place, likely, (S, A), gamma, points.astype(np.float32))


def grid_actions(actions: Array, step: float, positions: Array, which: Array) -> Array:
    """(n,) the action of policy ``which`` (n,) of ``actions`` (m, S) at the point nearest to each position (n, 2)."""
    axis = ticks(step)
    middles = (axis[1:] + axis[:-1]) / 2
    near = np.searchsorted(middles, positions)  # (n, 2)
    return np.asarray(actions[which, near @ np.array([len(axis), 1])])


def played_value(
    plane: Plane,
    act: Callable[[Array, Array], Array],
    paid: list[Callable[[Array], Array]],
    gamma: float,
    starts: int = 100,
    steps: int = 300,
    seed: int = 0,
) -> Array:
    """(n,) mean discounted returns of n policies, each for its own reward, over rollouts from random starts.

    ``act`` takes positions (m, 2) and the index of each one's policy (m,). All share the same starts and noise.
    """
    rng, n = np.random.default_rng(seed), len(paid)
    which = np.repeat(np.arange(n), starts)
    position, total = np.tile(rng.random((starts, 2)), (n, 1)), np.zeros((n, starts))
    for t in range(steps):
        total += gamma**t * np.stack([r(x) for r, x in zip(paid, np.split(position, n), strict=True)])
        noise = np.tile(rng.normal(0, NOISE, (starts, 2)), (n, 1))
        position = plane.move(position, np.asarray(act(position, which)), noise)
    return np.asarray(total.mean(1))
