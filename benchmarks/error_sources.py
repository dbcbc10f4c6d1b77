"""Which part of an agent costs how much of the score: B, the temperature, the policy, or F."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.exact import packed_states, policy_tables, score_policies, state_features
from anyreward.agent import Agent
from anyreward.experiments.all_rewards import family_rewards, tables_to_z
from anyreward.model.rank import RANK_SHARE
from anyreward.theory.finite_mdp import FiniteMDP

Array = np.ndarray[Any, Any]


def error_sources(agent: Agent, mdp: FiniteMDP, name: str, n: int = 100, seed: int = 0) -> dict[str, float]:
    """Mean normalised score of a family, as sources of error are added one by one.

    - *span*: the optimal policy for the projection of the reward on the span of B.
    - *temperature*: greedy on the exact Q of the soft policy pi = softmax(Q^pi / tau) of that reward, as scaled by ask.
    - *policy*: greedy on the exact Q of the policy of the networks, softmax(F . z / tau).
    - *F*: greedy on F . z itself, as in ask.
    """
    r = family_rewards(agent, mdp, name, n, seed)
    z, _ = tables_to_z(agent, mdp, r)
    seen = reward_of_z(agent, mdp, z)
    tau = agent.settings.temperature
    greedy = np.eye(mdp.actions)
    soft = soft_fixed_point(mdp, seen, tau)
    learned = policy_tables(agent.model, packed_states(mdp, agent.model.phi), z, tau)
    steps = {
        "span": greedy[mdp.q_value(mdp.optimal_value(seen), seen).argmax(-1)],
        "temperature": greedy[mdp.q_value(mdp.policy_value(soft, seen), seen).argmax(-1)],
        "policy": greedy[mdp.q_value(mdp.policy_value(learned, seen), seen).argmax(-1)],
        "F": policy_tables(agent.model, packed_states(mdp, agent.model.phi), z),
    }
    return {step: float(score_policies(mdp, pi, r).normalised.mean()) for step, pi in steps.items()}


def reward_of_z(agent: Agent, mdp: FiniteMDP, z: Tensor) -> Array:
    """(n, S, A) the reward in the span of B with this z: B(s, a)^T Cov(B)^+ z."""
    rows = state_features(mdp, agent.model.phi)
    B = agent.model.backward_map(rows.flatten(0, 1)).double()  # (S A, d)
    values = z.double() @ torch.linalg.pinv(agent.sample.covariance, rtol=RANK_SHARE, hermitian=True) @ B.T
    return np.asarray(values.numpy()).reshape(len(z), mdp.states, mdp.actions)


def soft_fixed_point(mdp: FiniteMDP, r: Array, temperature: float, tolerance: float = 1e-6) -> Array:
    """(n, S, A) pi = softmax(Q^pi / tau) for rewards r (n, S, A): the limit of training with exact networks."""
    pi = np.full(r.shape, 1.0 / mdp.actions)
    for _ in range(2_000):
        Q = mdp.q_value(mdp.policy_value(pi, r), r) / temperature
        new = np.exp(Q - Q.max(-1, keepdims=True))
        new /= new.sum(-1, keepdims=True)
        if np.abs(new - pi).max() < tolerance:
            break
        pi = new
    return pi
