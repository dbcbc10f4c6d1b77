"""Exact evaluation on finite MDPs: the value of pi_z and the optimal value, for many rewards at once, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.policy import action_probabilities
from anyreward.errors import UserError
from anyreward.model.features import FeatureMap
from anyreward.model.model import Model
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward
from anyreward.theory.finite_mdp import FiniteMDP

Array = np.ndarray[Any, Any]

LARGEST_BATCH = 10**7
"""Largest number of entries of an array in scoring."""


@dataclass(frozen=True)
class Scores:
    """Values averaged over the states, one entry for each reward."""

    value: Array
    optimal: Array
    random: Array

    @property
    def ratio(self) -> Array:
        """The policy quality of the paper, value / optimal value.

        NaN if the optimum is not positive; use `normalised` for rewards with negative values.
        """
        return np.divide(self.value, self.optimal, out=np.full_like(self.value, np.nan), where=self.optimal > 0)

    @property
    def normalised(self) -> Array:
        """0 for the uniformly random policy, 1 for the optimal one, for rewards of either sign."""
        return np.asarray((self.value - self.random) / (self.optimal - self.random))


def score_policies(mdp: FiniteMDP, pi: Array, r: Array) -> Scores:
    """Scores of policies pi (n, S, A) on rewards r (n, S, A)."""
    if pi.shape != r.shape or pi.ndim != 3:
        raise UserError(f"score_policies got policies {pi.shape} and rewards {r.shape}; expected (n, S, A) each.")
    uniform = np.full((1, mdp.states, mdp.actions), 1.0 / mdp.actions)
    step = max(1, LARGEST_BATCH // mdp.states**2)  # one transition matrix for each policy
    parts = [
        (mdp.policy_value(p, q).mean(-1), mdp.optimal_value(q).mean(-1), mdp.policy_value(uniform, q).mean(-1))
        for p, q in ((pi[i : i + step], r[i : i + step]) for i in range(0, len(pi), step))
    ]
    return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def policy_tables(model: Model, observations: Tensor, Z: Tensor, temperature: float = 0.0) -> Array:
    """(n, S, A) pi_z(a|s) for every z of Z (n, d) at every packed observation (S, packed)."""
    return np.asarray(action_probabilities(model.q_tables(observations, Z), temperature=temperature).numpy())


def packed_states(mdp: FiniteMDP, phi: FeatureMap) -> Tensor:
    """(S, packed) the observation of every state of a finite MDP."""
    return torch.from_numpy(phi.seen(mdp.observations))


def state_features(mdp: FiniteMDP, phi: FeatureMap) -> Tensor:
    """(S, A, packed features) phi(s, a) of every state and action."""
    seen = phi.seen(mdp.observations)
    by_action = [phi.of(mdp.observations, seen, np.full(mdp.states, a, dtype=np.int64)) for a in range(mdp.actions)]
    return torch.from_numpy(np.stack(by_action, axis=1))


def reward_table(reward: Reward, knowledge: Knowledge, mdp: FiniteMDP) -> Array:
    """(S, A) the reward of every state and action of a finite MDP.

    If terminal states are states, it includes gamma times the reward of the terminal state in which the action ends.
    """
    phi = knowledge.model.phi
    rows = state_features(mdp, phi)  # (S, A, packed)
    r = reward.values(knowledge, rows.flatten(0, 1)).reshape(mdp.states, mdp.actions)
    if not phi.ends or mdp.ends is None or mdp.ends.nnz == 0:
        return r
    where = np.flatnonzero(mdp.ends.sum(0))  # terminal states
    observations, at_end = mdp.observations[where], np.zeros(mdp.states)
    ended = phi.of(observations, phi.seen(observations, True), phi.action_set.none(len(where)))
    at_end[where] = reward.values(knowledge, torch.from_numpy(ended))
    return np.asarray(r + mdp.gamma * (mdp.ends @ at_end).reshape(r.shape))


def score_goals(knowledge: Knowledge, mdp: FiniteMDP, temperature: float = 0.0, goals: Array | None = None) -> Scores:
    """The paper's policy quality: every live state as the goal (or those listed), with a reward of one there.

    ``temperature`` 1 is the paper's Boltzmann policy, 0 is greedy.
    """
    goals, phi = mdp.live if goals is None else goals, knowledge.model.phi
    rows = state_features(mdp, phi)[goals]  # (n, A, packed)
    z, _ = knowledge.scaled(knowledge.goal_z(rows if phi.include_action else rows[:, :1]))
    pi = policy_tables(knowledge.model, packed_states(mdp, phi), z, temperature)
    return score_policies(mdp, pi, mdp.on_states(np.eye(mdp.states)[goals]))
