"""Exact evaluation on finite MDPs: the value of pi_z against the optimum, for many rewards at once, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.policy import action_probabilities
from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.spaces import pack_seen

Array = np.ndarray[Any, Any]

LARGEST_BATCH = 10**7
"""Numbers in the largest array that scoring makes."""


@dataclass(frozen=True)
class Scores:
    """Values averaged over the states, one entry a reward."""

    value: Array
    optimal: Array
    random: Array

    @property
    def ratio(self) -> Array:
        """The policy quality of the paper, value / optimal value.

        NaN where the optimum is not positive; `normalised` says more about rewards that are somewhere negative.
        """
        return np.divide(self.value, self.optimal, out=np.full_like(self.value, np.nan), where=self.optimal > 0)

    @property
    def normalised(self) -> Array:
        """0 for the uniformly random policy, 1 for the optimal one: fair to rewards of either sign."""
        return np.asarray((self.value - self.random) / (self.optimal - self.random))


def score_policies(mdp: FiniteMDP, pi: Array, r: Array) -> Scores:
    """Scores of policies pi (n, S, A) on rewards r (n, S, A)."""
    if pi.shape != r.shape or pi.ndim != 3:
        raise UserError(f"score_policies got policies {pi.shape} and rewards {r.shape}; expected (n, S, A) each.")
    uniform = np.full((1, mdp.states, mdp.actions), 1.0 / mdp.actions)
    step = max(1, LARGEST_BATCH // mdp.states**2)  # a transition matrix for each policy: not all at once
    parts = [
        (mdp.policy_value(p, q).mean(-1), mdp.optimal_value(q).mean(-1), mdp.policy_value(uniform, q).mean(-1))
        for p, q in ((pi[i : i + step], r[i : i + step]) for i in range(0, len(pi), step))
    ]
    return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def q_tables(representation: Representation, observations: Tensor, Z: Tensor) -> Tensor:
    """(n, S, A) F(s, a, z) . z for every z of Z (n, d) at every packed observation (S, packed)."""
    S = len(observations)
    if representation.landmarks is not None:
        answer, every = representation.answers(Z), np.repeat(np.arange(len(Z)), S)
        return answer(observations.repeat(len(Z), 1), every).view(len(Z), S, -1)
    tables = []
    for z in torch.split(Z.to(representation.dtype), max(1, 16_384 // S)):  # bounded memory: n * S rows go through F
        rows = representation.q(observations.repeat(len(z), 1), z.repeat_interleave(S, dim=0))
        tables.append(rows.view(len(z), S, -1))
    return torch.cat(tables)


def policy_tables(
    representation: Representation,
    observations: Tensor,
    Z: Tensor,
    epsilon: float = 0.0,
    temperature: float = 0.0,
) -> Array:
    """(n, S, A) pi_z(a|s) for every z of Z (n, d) at every packed observation (S, packed)."""
    Q = q_tables(representation, observations, Z)
    return np.asarray(action_probabilities(Q, epsilon, temperature).numpy())


def state_features(mdp: FiniteMDP, features: FeatureMap) -> Tensor:
    """(S, A, packed features) phi(s, a) of every state and action."""
    packed = pack_seen(features.observation_space, mdp.observations)
    by_action = [
        features.of(mdp.observations, packed, np.full(mdp.states, a, dtype=np.int64)) for a in range(mdp.actions)
    ]
    return torch.from_numpy(np.stack(by_action, axis=1))


def goal_quality(
    representation: Representation,
    features: FeatureMap,
    mdp: FiniteMDP,
    temperature: float = 1.0,
    goals: Array | None = None,
) -> Scores:
    """The paper's policy quality: z = B(g), for every live state as the goal (or those listed), reward one at the goal.

    ``temperature`` 1 is the paper's Boltzmann policy, 0 is greedy.
    """
    goals = mdp.live if goals is None else goals
    rows = state_features(mdp, features)[goals]  # (n, A, packed)
    B = representation.backward_map(rows.flatten(0, 1)).view(len(goals), mdp.actions, -1)
    observations = torch.from_numpy(pack_seen(features.observation_space, mdp.observations))
    pi = policy_tables(representation, observations, B.mean(1), temperature=temperature)
    return score_policies(mdp, pi, mdp.on_states(np.eye(mdp.states)[goals]))
