"""Finite MDPs solved exactly, in float64: the ground truth that everything learned is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.worlds.maze import Maze

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FiniteMDP:
    """A reward-free MDP (S, A, P, gamma) with finitely many states and actions.

    Where an episode can terminate, the rows of ``P`` sum to less than one: what is missing ends there.
    """

    P: Array
    """(S, A, S) P[s, a, s'] = P(s' | s, a)."""
    gamma: float
    observations: Array
    """(S,) the observation that belongs to each state."""

    def __post_init__(self) -> None:
        if self.P.ndim != 3 or self.P.shape[0] != self.P.shape[2]:
            raise UserError(f"P has shape {self.P.shape}; expected (states, actions, states).")
        if not ((self.P >= 0).all() and (self.P.sum(-1) <= 1 + 1e-9).all()):
            raise UserError("P must hold probabilities: no negative entry and no row with a sum above one.")
        if not 0 < self.gamma < 1:
            raise UserError(f"gamma is {self.gamma}; expected 0 < gamma < 1.")

    @property
    def states(self) -> int:
        """The number of states."""
        return int(self.P.shape[0])

    @property
    def actions(self) -> int:
        """The number of actions."""
        return int(self.P.shape[1])

    @property
    def live(self) -> Array:
        """The states that do not end the episode at once; only these can be a goal that is stayed at."""
        return np.flatnonzero(self.P.sum((1, 2)) > 0)

    def transition_matrix(self, pi: Array) -> Array:
        """(..., S, S) P_pi(s'|s) of policies pi (..., S, A)."""
        return np.asarray(np.einsum("...sa,sat->...st", pi, self.P))

    def on_states(self, r: Array) -> Array:
        """Rewards on states (..., S) as rewards on states and actions (..., S, A)."""
        r = np.asarray(r, dtype=np.float64)
        return np.broadcast_to(r[..., None], (*r.shape, self.actions))

    def policy_value(self, pi: Array, r: Array) -> Array:
        """(..., S) V^pi for policies pi (..., S, A) and rewards r, (..., S) or (..., S, A); t = 0 counts."""
        r = self._state_action(r)
        r_pi = (pi * r).sum(-1)  # (..., S)
        return np.linalg.solve(np.eye(self.states) - self.gamma * self.transition_matrix(pi), r_pi[..., None])[..., 0]

    def q_value(self, V: Array, r: Array) -> Array:
        """(..., S, A) Q(s, a) = r(s, a) + gamma E V(s')."""
        return np.asarray(self._state_action(r) + self.gamma * np.einsum("sat,...t->...sa", self.P, V))

    def optimal_value(self, r: Array) -> Array:
        """(..., S) V* for rewards r, (..., S) or (..., S, A), by policy iteration: exact up to rounding."""
        r = self._state_action(r)
        scale = np.abs(r).max((-2, -1), keepdims=True)[..., 0] if r.size else 1.0  # (..., 1)
        choice = r.argmax(-1)  # (..., S)
        for _ in range(10_000):
            pi = np.eye(self.actions)[choice]
            Q = self.q_value(self.policy_value(pi, r), r)
            current = np.take_along_axis(Q, choice[..., None], -1)[..., 0]
            # switch only for a real gain: rounding must not make two equal actions take turns
            better = Q.max(-1) > current + 1e-10 * np.maximum(scale, np.abs(current))
            if not better.any():
                return np.asarray(current)
            choice = np.where(better, Q.argmax(-1), choice)
        raise RuntimeError("policy iteration did not settle")  # impossible: finitely many policies, each better

    def successor_measure(self, pi: Array) -> Array:
        """(S, A, S, A) M^pi(s, a, s', a') = sum_t gamma^t Pr(s_t = s', a_t = a' | s, a, pi), eq. (defM)."""
        n = self.states * self.actions
        step = np.einsum("sat,tb->satb", self.P, pi).reshape(n, n)  # (s, a) -> (s', a')
        M = np.linalg.inv(np.eye(n) - self.gamma * step)
        return M.reshape(self.states, self.actions, self.states, self.actions)

    def _state_action(self, r: Array) -> Array:
        # Where S = A, a batch of state rewards looks like one reward on states and actions: say so with `on_states`.
        r = np.asarray(r, dtype=np.float64)
        if r.shape[-2:] == (self.states, self.actions):
            return r
        if r.shape[-1:] == (self.states,):
            return self.on_states(r)
        raise UserError(
            f"A reward of shape {r.shape} does not fit this MDP; expected (..., {self.states}) for rewards on states "
            f"or (..., {self.states}, {self.actions}) for rewards on states and actions."
        )


def finite_mdp(env: gym.Env[Any, Any], gamma: float, most_states: int | None = None) -> FiniteMDP | None:
    """The exact MDP behind an environment, if it shows one: our mazes, or a toy-text table ``P``; else None.

    Also None, before anything large is built, where it has more than ``most_states`` states.
    """
    most = most_states or float("inf")
    base = env.unwrapped
    maze = getattr(base, "maze", None)
    if isinstance(maze, Maze):
        return None if len(maze.free) > most else FiniteMDP(maze.transitions, gamma, maze.free)
    table = getattr(base, "P", None)
    if isinstance(table, dict) and isinstance(env.observation_space, gym.spaces.Discrete):
        states, actions = len(table), len(table[0])
        if states > most:
            return None
        P = np.zeros((states, actions, states))
        for s, by_action in table.items():
            for a, outcomes in by_action.items():
                for probability, successor, _reward, terminated in outcomes:
                    if not terminated:
                        P[s, a, successor] += probability
        return FiniteMDP(P, gamma, np.arange(states))
    return None
