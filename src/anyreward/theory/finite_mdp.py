"""Finite MDPs, solved exactly in float64: the ground truth for everything that is learned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, overload

import gymnasium as gym
import numpy as np
from scipy.sparse import csr_array

from anyreward.errors import UserError
from anyreward.theory import sparse
from anyreward.worlds.maze import Maze, parse_maze
from anyreward.worlds.spaces import Array

SPARSE_ABOVE = 150
"""Number of states above which P is sparse; the break-even is at about 70 for optimal values, 200 for policy values."""
MOST_PAIRS = 5_000
"""Largest number of pairs (s, a) for a successor measure: 200 MB, and some seconds for the inverse."""


@dataclass(frozen=True)
class FiniteMDP:
    """A reward-free MDP (S, A, P, gamma) with finitely many states and actions.

    A row of ``P`` sums to less than one if the episode can terminate: the rest is the probability of termination.
    With a sparse ``P``, values and policies need no dense S x S array. Linear systems are solved by sparse LU, which is
    fast for local transitions, as in mazes.
    """

    P: Any
    """P[s, a, s'] = P(s' | s, a) as an array (S, A, S), or as a SciPy sparse matrix (S*A, S) with row s*A + a."""
    gamma: float
    observations: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """(S,) the observation of each state; default: 0, 1, ..."""
    ends: Any = None
    """(S*A, S) the probability that the episode terminates in s' after s, a, as a SciPy sparse matrix with row s*A + a;
    None if it is not known in which states episodes terminate"""

    def __post_init__(self) -> None:
        if hasattr(self.P, "tocsr"):
            P = csr_array(self.P, dtype=np.float64)
            fits, expected = P.shape[0] % max(P.shape[1], 1) == 0, "(states * actions, states) for a sparse P"
        else:
            P = np.asarray(self.P, dtype=np.float64)
            fits, expected = P.ndim == 3 and P.shape[0] == P.shape[2], "(states, actions, states)"
        if not fits or 0 in P.shape:
            raise UserError(f"P has shape {P.shape}; expected {expected}.")
        if not ((P.data if hasattr(P, "tocsr") else P) >= 0).all() or not (P.sum(-1) <= 1 + 1e-9).all():
            raise UserError("P must hold probabilities: no negative entry and no row with a sum above one.")
        if not 0 < self.gamma < 1:
            raise UserError(f"gamma is {self.gamma}; expected 0 < gamma < 1.")
        object.__setattr__(self, "P", P)
        if not len(self.observations):
            object.__setattr__(self, "observations", np.arange(self.states))
        if len(self.observations) != self.states:
            raise UserError(f"{len(self.observations)} observations for {self.states} states; give one for each state.")

    @property
    def is_sparse(self) -> bool:
        """Whether P is a sparse matrix."""
        return not isinstance(self.P, np.ndarray)

    @property
    def states(self) -> int:
        """The number of states."""
        return int(self.P.shape[-1])

    @property
    def actions(self) -> int:
        """The number of actions."""
        return int(self.P.shape[0] // self.states if self.is_sparse else self.P.shape[1])

    @property
    def live(self) -> Array:
        """The states in which an episode can continue; only these can be goals to stay at."""
        return np.flatnonzero(self.P.sum(-1).reshape(self.states, self.actions).sum(1) > 0)

    def restricted(self, states: Array) -> FiniteMDP:
        """The MDP on a subset (n,) of its states; raises if an action leads out of the subset."""
        P = (self.P.toarray() if self.is_sparse else self.P).reshape(self.states, self.actions, self.states)[states]
        inside = P[..., states]
        beyond = np.flatnonzero((P.sum((0, 1)) > 0) & ~np.isin(np.arange(self.states), states))
        if len(beyond):
            shown = ", ".join(str(x) for x in self.observations[beyond[:5]].tolist())
            raise UserError(f"Actions lead to {len(beyond)} states that are left out, such as {shown}; include them.")
        return FiniteMDP(inside, self.gamma, self.observations[states])

    def on_states(self, r: Array) -> Array:
        """Rewards on states (..., S) as rewards on states and actions (..., S, A)."""
        r = np.asarray(r, dtype=np.float64)
        return np.broadcast_to(r[..., None], (*r.shape, self.actions))

    def policy_value(self, pi: Array, r: Array) -> Array:
        """(..., S) V^pi for policies pi (..., S, A) and rewards r, (..., S) or (..., S, A), from t = 0 on."""
        pi, r = self._policies(pi), self._state_action(r)
        r_pi = (pi * r).sum(-1)
        if self.is_sparse:
            return sparse.solve(self.P, self.gamma, pi, r_pi)
        P_pi = np.einsum("...sa,sat->...st", pi, self.P)  # (..., S, S)
        return np.linalg.solve(np.eye(self.states) - self.gamma * P_pi, r_pi[..., None])[..., 0]

    def q_value(self, V: Array, r: Array) -> Array:
        """(..., S, A) Q(s, a) = r(s, a) + gamma E V(s')."""
        r = self._state_action(r)
        if not self.is_sparse:
            ahead = np.asarray(V) @ self.P.reshape(-1, self.states).T  # (..., S A)
            return np.asarray(r + self.gamma * ahead.reshape(*ahead.shape[:-1], self.states, self.actions))
        V = np.asarray(V, dtype=np.float64)
        ahead = (self.P @ V.reshape(-1, self.states).T).T  # (n, S A)
        return np.asarray(r + self.gamma * ahead.reshape(*V.shape, self.actions))

    def optimal_value(self, r: Array) -> Array:
        """(..., S) V* for rewards r, (..., S) or (..., S, A), by policy iteration: exact up to rounding."""
        return self._optimum(r)[1]

    def optimal_policy(self, r: Array) -> Array:
        """(..., S, A) an optimal policy for each reward, one-hot: the one whose value is `optimal_value`."""
        return np.asarray(np.eye(self.actions)[self._optimum(r)[0]])

    def successor_measure(self, pi: Array) -> Array:
        """(S, A, S, A) M^pi(s, a, s', a') = sum_t gamma^t Pr(s_t = s', a_t = a' | s, a, pi), eq. (defM)."""
        self.check_pairs()
        n = self.states * self.actions
        P = (self.P.toarray() if self.is_sparse else self.P).reshape(self.states, self.actions, self.states)
        step = np.einsum("sat,tb->satb", P, self._policies(pi)).reshape(n, n)  # (s, a) -> (s', a')
        M = np.linalg.inv(np.eye(n) - self.gamma * step)
        return M.reshape(self.states, self.actions, self.states, self.actions)

    def check_pairs(self) -> None:
        """Raise if there are too many pairs (s, a) for an array of pairs x pairs entries."""
        n = self.states * self.actions
        if n > MOST_PAIRS:
            raise UserError(
                f"The successor measure of {self.states:,} states and {self.actions} actions has {n:,} x {n:,} "
                f"entries. Above {MOST_PAIRS:,} pairs (s, a) it is not computed: memory grows with their square, "
                "time with their cube. Use policy_value or q_value, which do not need it."
            )

    def successor_density(self, pi: Array, rho: Array) -> Array:
        """(S, A, S, A) m^pi = M^pi / rho for a positive rho (S, A); modelled by F(s, a, z)^T B(s', a')."""
        rho = np.asarray(rho, dtype=np.float64)
        if rho.shape != (self.states, self.actions):
            raise UserError(f"rho has shape {rho.shape}; expected ({self.states}, {self.actions}), one entry per pair.")
        if not (rho > 0).all():
            raise UserError(f"rho has an entry {rho.min()}; a density needs rho > 0 at every (s, a).")
        return np.asarray(self.successor_measure(pi) / rho)

    def _optimum(self, r: Array) -> tuple[Array, Array]:
        """(..., S) the actions of an optimal policy, and its value."""
        r = self._state_action(r)
        if self.is_sparse:
            solved = [sparse.optimum(self.P, self.gamma, one) for one in r.reshape(-1, self.states, self.actions)]
            choices, values = np.array([a for a, _ in solved], dtype=np.int64), np.array([V for _, V in solved])
            return choices.reshape(r.shape[:-1]), values.reshape(r.shape[:-1])
        size = np.abs(r).max((-2, -1), initial=0.0)[..., None] / (1 - self.gamma)  # (..., 1) the scale of values
        choice = self._sweeps(r)  # (..., S)
        for _ in range(10_000):
            pi = np.eye(self.actions)[choice]
            Q = self.q_value(self.policy_value(pi, r), r)
            current = np.take_along_axis(Q, choice[..., None], -1)[..., 0]
            # switch only if the gain exceeds rounding errors, so that equal actions do not alternate
            better = Q.max(-1) > current + sparse.ROUNDING / (1 - self.gamma) * size
            if not better.any():
                return choice, np.asarray(current)
            choice = np.where(better, Q.argmax(-1), choice)
        raise RuntimeError("policy iteration did not converge")  # impossible: finitely many policies, each better

    def _sweeps(self, r: Array) -> Array:
        """(..., S) the greedy actions of value iteration from zero, which stops when they no longer change.

        Policy iteration from the greedy actions of r alone would propagate a goal by only one state per iteration.
        """
        flat, P = r.reshape(-1, self.states * self.actions), self.P.reshape(-1, self.states).T
        V, choice = np.zeros((len(flat), self.states)), np.full((len(flat), self.states), -1)
        for sweep in range(1, sparse.MOST_SWEEPS + 1):
            Q = (flat + self.gamma * (V @ P)).reshape(-1, self.states, self.actions)
            V = Q.max(-1)
            if sweep % sparse.SWEEPS_BETWEEN_LOOKS == 0:
                last, choice = choice, Q.argmax(-1)
                if (choice == last).all():
                    break
        return choice.reshape(r.shape[:-1])

    def _policies(self, pi: Array) -> Array:
        pi = np.asarray(pi)
        if pi.shape[-2:] != (self.states, self.actions):
            raise UserError(
                f"A policy of shape {pi.shape} does not fit this MDP; expected (..., {self.states}, {self.actions}), "
                "the probability of each action in each state."
            )
        if not ((pi >= 0).all() and (np.abs(pi.sum(-1) - 1) < 1e-4).all()):
            raise UserError("A policy must hold probabilities: no negative entry, and a sum of one in each state.")
        return pi

    def _state_action(self, r: Array) -> Array:
        # If S = A, a batch of rewards on states looks like one reward on states and actions; use `on_states` for it.
        r = np.asarray(r, dtype=np.float64)
        if not np.isfinite(r).all():
            raise UserError("The reward holds NaN or infinity; expected finite numbers.")
        if r.shape[-2:] == (self.states, self.actions):
            return r
        if r.shape[-1:] == (self.states,):
            return self.on_states(r)
        raise UserError(
            f"A reward of shape {r.shape} does not fit this MDP; expected (..., {self.states}) for rewards on states "
            f"or (..., {self.states}, {self.actions}) for rewards on states and actions."
        )


@overload
def finite_mdp(source: Maze | str, gamma: float) -> FiniteMDP: ...
@overload
def finite_mdp(
    source: gym.Env[Any, Any] | Maze | str, gamma: float, most_states: int | None = None
) -> FiniteMDP | None: ...
def finite_mdp(
    source: gym.Env[Any, Any] | Maze | str, gamma: float, most_states: int | None = None
) -> FiniteMDP | None:
    """The exact MDP of a maze, a maze drawing, or an environment that has a `Maze` or a toy-text table ``P``.

    None for any other environment, and above ``most_states`` states; then nothing large is built.
    """
    most = most_states or float("inf")
    maze: Any = None
    table: Any = None
    if isinstance(source, gym.Env):
        maze = getattr(source.unwrapped, "maze", None)
        if isinstance(source.observation_space, gym.spaces.Discrete):
            table = getattr(source.unwrapped, "P", None)
    elif isinstance(source, Maze | str):
        maze = parse_maze(source) if isinstance(source, str) else source
    else:
        raise UserError(
            f"finite_mdp got a {type(source).__name__}; it takes a Gymnasium environment (of a world: world.make()), "
            "a Maze or a maze drawing. For arrays, use FiniteMDP(P, gamma)."
        )
    if isinstance(maze, Maze):
        return None if len(maze.free) > most else _maze_mdp(maze, gamma)
    if isinstance(table, dict):
        return None if len(table) > most else _table_mdp(table, gamma)
    return None


def _maze_mdp(maze: Maze, gamma: float) -> FiniteMDP:
    to = maze.free_successors  # (S, A)
    return from_entries(np.arange(to.size), to.reshape(-1), np.ones(to.size), to.shape, gamma, maze.free)


def _table_mdp(table: dict[int, Any], gamma: float) -> FiniteMDP:
    """The MDP of a table {state: {action: [(probability, next state, reward, terminated), ...]}}."""
    states, actions = len(table), len(table[0])
    entries = [
        (s * actions + a, successor, probability, terminated)
        for s, by_action in table.items()
        for a, outcomes in by_action.items()
        for probability, successor, _reward, terminated in outcomes
    ]
    rows, to, probabilities, terminated = np.array(entries).reshape(-1, 4).T
    rows, to, over = rows.astype(np.int64), to.astype(np.int64), terminated > 0
    mdp = from_entries(rows[~over], to[~over], probabilities[~over], (states, actions), gamma)
    ends = csr_array((probabilities[over], (rows[over], to[over])), shape=(states * actions, states))
    return replace(mdp, ends=ends)


def from_entries(
    rows: Array,
    to: Array,
    probabilities: Array,
    shape: tuple[int, ...],
    gamma: float,
    observations: Array | None = None,
) -> FiniteMDP:
    """An MDP of shape (states, actions) from its transitions: rows s*A + a, next states and probabilities.

    P is sparse above `SPARSE_ABOVE` states.
    """
    S, A = shape
    observations = np.arange(S) if observations is None else observations
    if S > SPARSE_ABOVE:
        return FiniteMDP(csr_array((probabilities, (rows, to)), shape=(S * A, S)), gamma, observations)
    P = np.zeros((S * A, S))
    np.add.at(P, (rows, to), probabilities)
    return FiniteMDP(P.reshape(S, A, S), gamma, observations)


def garnet(states: int, actions: int, branches: int, seed: int, gamma: float = 0.9, ending: float = 0.0) -> FiniteMDP:
    """A random MDP: each (s, a) leads to ``branches`` different states, with Dirichlet(1, ..., 1) probabilities.

    With ``ending``, the episode ends after (s, a) with a probability drawn uniformly from 0 to ``ending``.
    """
    if states < 1 or actions < 1 or not 1 <= branches <= states:
        raise UserError(
            f"garnet got {states} states, {actions} actions and {branches} branches; expected at least one of each, "
            "and no more branches than states."
        )
    if not 0 <= ending <= 1:
        raise UserError(f"ending is {ending}; expected a probability, 0 <= ending <= 1.")
    rng = np.random.default_rng(seed)
    pairs = states * actions
    to = np.stack([rng.choice(states, branches, replace=False) for _ in range(pairs)])  # (S A, branches)
    probabilities = rng.dirichlet(np.ones(branches), pairs) * (1 - ending * rng.random((pairs, 1)))
    rows = np.repeat(np.arange(pairs), branches)
    return from_entries(rows, to.reshape(-1), probabilities.reshape(-1), (states, actions), gamma)
