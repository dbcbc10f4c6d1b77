"""The optimum that an answer is compared with: mazes exactly, the continuous maze and the pendulum on a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from anyreward.acting.exact import packed_states, reward_table, score_policies
from anyreward.acting.policy import Policy, action_probabilities
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.experiments.pendulum import TORQUES, on_grid
from anyreward.playground.arrays import encoded
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.theory.grid import grid_mdp
from anyreward.theory.pendulum import MOST_TORQUE, PendulumGrid, pendulum_grid
from anyreward.worlds.continuous_maze import ContinuousMazeEnv
from anyreward.worlds.maze import MazeEnv
from anyreward.worlds.spaces import Array

STEP = 0.025
"""Distance of the points of the grid on which the continuous maze is solved."""
ANGLES, SPEEDS = 61, 61
"""Points of the grid on which the pendulum is solved."""
MOST_STATES = 2_500
"""Largest number of states of a maze that is solved beside each answer."""
GAIN = 1e-9
"""An optimum that is better than the random policy by at most this share of its size leaves nothing to gain."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """A finite MDP of the world, with the place of each state."""

    mdp: FiniteMDP
    places: Array
    """(S, 2) the values of the two drawn features"""

    def compare(self, policy: Policy, points: Array) -> dict[str, Any] | None:
        """The optimal values and actions at points (n, 2), and the policy's score; None for a goal that is a point."""
        mdp = self.mdp
        try:
            r = reward_table(policy.reward, policy.knowledge, mdp)
        except UserError:  # no state of the grid has the reward of a single point
            return None
        pi = self.probabilities(policy)
        scores = score_policies(mdp, pi[None], r[None])
        V = mdp.optimal_value(r)
        value, random, optimal = (float(x[0]) for x in (scores.value, scores.random, scores.optimal))
        gain = optimal - random > GAIN * max(abs(optimal), abs(random), 1e-300)
        return {
            "achieved": value,
            "optimal": optimal,
            "random": random,
            "normalised": float(scores.normalised[0]) if gain else None,
            **self.drawn(V, mdp.q_value(V, r), points),
        }

    def probabilities(self, policy: Policy) -> Array:
        """(S, A) the policy at the states of the MDP."""
        return action_probabilities(policy.preferences(packed_states(self.mdp, policy.model.phi))).numpy()

    def drawn(self, V: Array, Q: Array, points: Array) -> dict[str, Any]:
        """Optimal values and actions at points (n, 2), for V (S,) and Q (S, A)."""
        near, inside = self.nearest(points)
        return {
            "value": encoded(np.where(inside, V[near], np.nan)),
            "action": encoded(np.where(inside, Q.argmax(1)[near], 255), "u1"),
        }

    def nearest(self, points: Array) -> tuple[Array, Array]:
        """(n,) the state nearest to each point (n, 2), and whether it stands for the point."""
        apart = np.linalg.norm(points[:, None] - self.places, axis=2)
        near = apart.argmin(1)
        return near, apart[np.arange(len(points)), near] < 0.5


@dataclass(frozen=True, eq=False)
class PendulumOptimum(Optimum):
    """The pendulum on a grid, with more torques than agents may list."""

    grid: PendulumGrid

    def probabilities(self, policy: Policy) -> Array:
        """A torque between two of the grid's is split among them."""
        return on_grid(policy, self.grid)

    def drawn(self, V: Array, Q: Array, points: Array) -> dict[str, Any]:
        """Interpolated; the torques are from -1 to 1."""
        torque = self.grid.torques[self.grid.at(Q, points).argmax(1)] / MOST_TORQUE
        return {"value": encoded(self.grid.at(V, points)), "push": encoded(torque)}


def optimum_of(agent: Agent, env: gym.Env[Any, Any] | None) -> Optimum | None:
    """The finite MDP of an agent's maze, continuous maze or pendulum; None for other worlds and large mazes."""
    if isinstance(env, MazeEnv) and len(env.maze.free) <= MOST_STATES:
        mdp = agent.exact_mdp()
        return Optimum(mdp, env.maze.coordinates[np.asarray(mdp.observations)].astype(np.float64))
    if isinstance(env, ContinuousMazeEnv):
        mdp = grid_mdp(env.plane, agent.settings.gamma, STEP)
        return Optimum(mdp, np.asarray(mdp.observations, dtype=np.float64))
    if isinstance(env, PendulumEnv) and not agent.model.phi.include_action:
        grid = pendulum_grid(agent.settings.gamma, ANGLES, SPEEDS, TORQUES)
        return PendulumOptimum(grid.mdp, grid.states, grid)
    return None
