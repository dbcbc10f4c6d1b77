"""The suite `all-rewards`: scores of answers to families of rewards on a finite world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.better import refinable
from anyreward.acting.exact import Scores, packed_states, score_policies, state_features
from anyreward.acting.policy import action_probabilities
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.spaces import Array

Family = Callable[[np.random.Generator, FiniteMDP, Array, int], Array]
"""(rng, mdp, places (S, 2), n) -> rewards, (n, S) on states or (n, S, A) on states and actions"""

BARELY = 0.02
"""The optimum is barely better than random if it gains less than this share of the reward's range per step."""


def _ones(rng: np.random.Generator, mdp: FiniteMDP, n: int, least: int, most: int) -> tuple[Array, Array]:
    """(n, S) one in ``least`` to ``most`` distinct live states, and these states in order (n, most), padded with -1."""
    chosen = rng.permuted(np.tile(mdp.live, (n, 1)), axis=1)[:, :most]
    count = rng.integers(least, most + 1, size=(n, 1))
    chosen = np.where(np.arange(most) < count, chosen, -1)
    r = np.zeros((n, mdp.states + 1))
    np.put_along_axis(r, chosen, 1.0, axis=1)
    return r[:, :-1], chosen


def single_goal(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """A reward of one in a state, for every live state."""
    return np.eye(mdp.states)[mdp.live]


def several_goals(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """A reward of one in each of two to five states."""
    return _ones(rng, mdp, n, 2, 5)[0]


def forbidden_cells(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """A reward of one in a state, and -0.5 in each of five others."""
    r, chosen = _ones(rng, mdp, n, 6, 6)
    return np.where(np.arange(mdp.states) == chosen[:, :1], 1.0, -0.5 * r)


def near_and_far(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """A reward of one in a state, and of 0.2 to 0.8 in another one that is nearer to the other states on average."""
    _, chosen = _ones(rng, mdp, n, 2, 2)
    far = np.abs(places[:, None] - places).sum(-1).mean(1)  # (S,) mean distance from the other states
    large, small = np.where(far[chosen[:, :1]] >= far[chosen[:, 1:]], chosen, chosen[:, ::-1]).T
    r = np.zeros((n, mdp.states))
    r[np.arange(n), small] = rng.uniform(0.2, 0.8, size=n)
    r[np.arange(n), large] = 1.0
    return r


def smooth_bump(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """A Gaussian around a state, with a standard deviation of one to three cells."""
    centre, width = places[rng.choice(mdp.live, n)], rng.uniform(1.0, 3.0, size=(n, 1))
    return np.asarray(np.exp(-((places - centre[:, None]) ** 2).sum(-1) / (2 * width**2)))


def linear_in_position(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """A linear function of the position, with a random direction."""
    angle = rng.uniform(0, 2 * np.pi, size=n)
    spread = places - places.mean(0)
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], 1) @ (spread / np.abs(spread).max()).T)


def dense_normal(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """An independent normal number in every state."""
    return rng.standard_normal((n, mdp.states))


def sparse_signed(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """Normal numbers in three to eight states, zero elsewhere; at least one is positive."""
    r, chosen = _ones(rng, mdp, n, 3, 8)
    r *= rng.standard_normal(r.shape)
    rows = np.arange(n)
    r[rows, chosen[:, 0]] = np.abs(r[rows, chosen[:, 0]])
    return r


def on_state_actions(rng: np.random.Generator, mdp: FiniteMDP, places: Array, n: int) -> Array:
    """An independent normal number for every state and action."""
    return rng.standard_normal((n, mdp.states, mdp.actions))


FAMILIES: dict[str, Family] = {
    "single goal": single_goal,
    "2 to 5 goals": several_goals,
    "goal, 5 forbidden cells": forbidden_cells,
    "small near, large far": near_and_far,
    "smooth bump": smooth_bump,
    "linear in position": linear_in_position,
    "dense normal": dense_normal,
    "sparse signed": sparse_signed,
    "states and actions": on_state_actions,
}


@dataclass(frozen=True)
class FamilyScores:
    """Normalised scores of one family: 0 for the uniformly random policy, 1 for the optimal one."""

    scores: Scores
    barely: Array
    """(n,) whether the optimum is barely better than random, so that the score is not informative"""

    def summary(self) -> dict[str, float]:
        """Mean, median, 5th percentile, worst, and the numbers of rewards and of those with a barely better optimum."""
        x = self.scores.normalised
        return {
            "mean": float(x.mean()),
            "median": float(np.median(x)),
            "p5": float(np.percentile(x, 5)),
            "worst": float(x.min()),
            "rewards": len(x),
            "barely": int(self.barely.sum()),
        }


def family_rewards(agent: Agent, mdp: FiniteMDP, name: str, n: int, seed: int) -> Array:
    """(n, S, A) the rewards of a family, the same for every agent of a world."""
    table = agent.model.phi.table
    if table is None:
        raise UserError(f"The suite all-rewards needs states with positions, as in mazes; {agent.world_name} has none.")
    rng = np.random.default_rng([seed, *name.encode()])
    r = FAMILIES[name](rng, mdp, np.asarray(table, dtype=np.float64)[mdp.observations], n)
    return r if r.ndim == 3 else mdp.on_states(r)


def tables_to_z(agent: Agent, mdp: FiniteMDP, r: Array) -> tuple[Tensor, Tensor]:
    """(n, d) the z that `Agent.ask` gives to rewards (n, S, A) of a finite world, and their scales (n,)."""
    knowledge = agent.knowledge
    if knowledge.method.goals_only:
        goals = state_features(mdp, agent.model.phi)[r[:, :, 0].argmax(1), :1]
        return knowledge.scaled(knowledge.goal_z(goals))
    values = rewards_of(agent, mdp, r, agent.sample.rows)
    return knowledge.scaled((values * agent.sample.weights) @ agent.sample.B)


def rewards_of(agent: Agent, mdp: FiniteMDP, r: Array, features: Tensor) -> Tensor:
    """(n, rows) the values of rewards r (n, S, A) of a finite world at packed features (rows, packed).

    Terminal states pay nothing.
    """
    every = state_features(mdp, agent.model.phi).flatten(0, 1).numpy()  # (S A, packed)
    place = {row.tobytes(): i for i, row in enumerate(every)}
    index = np.array([place.get(row.tobytes(), -1) for row in features.numpy()])
    return torch.from_numpy(np.where(index >= 0, r.reshape(len(r), -1)[:, index], 0.0))


def score_family(
    agent: Agent, mdp: FiniteMDP, name: str, n: int = 300, seed: int = 0, temperature: float = 0.0, refine: int = 0
) -> FamilyScores:
    """Scores of the answers to a family of rewards, acting greedily or by Boltzmann at a temperature."""
    r = family_rewards(agent, mdp, name, n, seed)
    z, scale = tables_to_z(agent, mdp, r)
    states = packed_states(mdp, agent.model.phi)
    Q = agent.model.q_tables(states, z)
    if refine:
        kept = refinable(agent.knowledge)
        rewards = rewards_of(agent, mdp, r, kept.rows.features) / scale[:, None]
        start = agent.model.q_tables(kept.states, z) + state_values(agent, mdp, r, z, scale)[..., None]
        Q = kept.at(states, kept.refine(start, rewards, agent.settings.gamma, refine), Q)
    scores = score_policies(mdp, np.asarray(action_probabilities(Q, temperature=temperature)), r)
    reach = np.ptp(r, axis=(1, 2)) / (1 - mdp.gamma)
    return FamilyScores(scores, scores.optimal - scores.random < BARELY * reach)


def state_values(agent: Agent, mdp: FiniteMDP, r: Array, z: Tensor, scale: Tensor) -> Tensor:
    """(n, kept states) the part of Q besides F . z for rewards r (n, S, A): `rewards.state_value` for many rewards."""
    kept, s = refinable(agent.knowledge), agent.settings
    total = torch.zeros(len(r), len(kept.states), dtype=torch.float64)
    if s.first_step == 1:
        total += rewards_of(agent, mdp, r, kept.features)
    if s.bias:
        mass = agent.sample.weights * rewards_of(agent, mdp, r, agent.sample.rows)  # (n, rows)
        bias = agent.model.bias_map
        total += torch.stack([bias(kept.states, z[i], agent.sample.rows).double() @ m for i, m in enumerate(mass)])
    return total / scale[:, None]


def suite(
    agent: Agent, n: int = 300, seed: int = 0, temperature: float = 0.0, refine: int = 0
) -> dict[str, FamilyScores]:
    """Scores of all families that the agent can answer: on actions only if B sees actions, for goal-dqn only goals.

    With ``refine``, answers are refined as in `Agent.ask`.
    """
    mdp = agent.exact_mdp()
    names = [name for name in FAMILIES if name != "states and actions" or agent.model.phi.include_action]
    if agent.knowledge.method.goals_only:
        names = ["single goal"]
    return {name: score_family(agent, mdp, name, n, seed, temperature, refine) for name in names}
