"""Successor measures from t = 1, and a bias m-bar: with tables for networks both converge to exact answers."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anyreward import Agent, FiniteMDP, Policy, Settings, reward
from anyreward.learning.batch import Batch
from anyreward.learning.update import Learner, bellman_targets, update
from anyreward.model import Encoder, FeatureMap, Model, boltzmann
from anyreward.rewards.knowledge import Knowledge, with_backward
from anyreward.worlds.actions import ActionSet

S, A, GAMMA, TEMPERATURE, QUARTERS = 4, 2, 0.8, 3.0, 4
R = np.random.default_rng(1).standard_normal((S, A))
"""A reward on states and actions; on states alone it is its first column."""


class Table(nn.Module):
    """F, B or m-bar as a table, for the one z that is trained."""

    def __init__(self, *shape: int, scale: float = 1.0) -> None:
        super().__init__()
        self.table = nn.Parameter(scale * torch.randn(*shape, dtype=torch.float64))

    def forward(self, x: Tensor, z: Tensor | None = None, g: Tensor | None = None) -> Tensor:
        rows = self.table[category(x)]
        return rows if g is None else rows[:, category(g)]  # m-bar (n, m)


def category(x: Tensor) -> Tensor:
    """Which row of a table: of columns (n, 1) or (n, 2), as `Encoder.compact` gives them."""
    return x[:, 0] if x.shape[1] == 1 else x[:, 0] * A + x[:, 1] - S


def mdp_of(seed: int, terminating: bool = False) -> FiniteMDP:
    P = np.random.default_rng(seed).multinomial(QUARTERS, np.full(S, 1 / S), size=(S, A)) / QUARTERS
    if terminating:
        P[0, 0] = 0.0  # this action ends the episode
    return FiniteMDP(P, GAMMA, np.arange(S))


def population(mdp: FiniteMDP, first_step: int, pairs: bool) -> Batch:
    """Every (s, a, outcome) as often as it is likely, rho uniform: minibatch means are expectations."""
    rows = []
    for s in range(S):
        for a in range(A):
            outcomes = np.repeat(np.arange(S), (mdp.P[s, a] * QUARTERS).round().astype(int))
            rows += [(s, a, s1, GAMMA) for s1 in outcomes] or [(s, a, 0, 0.0)] * QUARTERS
    s, a, s1, discount = (torch.tensor(column) for column in zip(*rows, strict=True))
    goals, here = (torch.arange(S * A), s * A + a) if pairs else (torch.arange(S), s1 if first_step else s)
    g = torch.stack([goals // A, goals % A + S], 1) if pairs else goals[:, None]
    share = torch.full((len(goals),), 1 / len(goals), dtype=torch.float64)
    nothing = torch.empty(0)
    return Batch(s[:, None], a, nothing, s1[:, None], discount.double(), nothing, nothing, g, here, share, share)


def learned(
    mdp: FiniteMDP, d: int, first_step: int = 0, pairs: bool = False, bias: bool = False, steps: int = 2_500
) -> Policy:
    """The answer to R, of an agent that learned the one z of it."""
    torch.manual_seed(0)
    G = S * A if pairs else S
    F, B, m_bar = Table(S, A, d, scale=d**-0.5), Table(G, d), Table(S, G) if bias else None
    learner = Learner(F, B, m_bar, first_step)
    batch, r = population(mdp, first_step, pairs), torch.from_numpy(R.flatten() if pairs else R[:, 0])
    for step in range(steps):
        z = (r @ B.table.detach() / G).expand(len(batch.actions), -1)
        batch = batch._replace(z=z, shown_z=z)
        rate = 0.03 * min(1.0, 10.0 ** (2 - 6 * step / steps))
        (targets,) = bellman_targets(learner, Batch(*(field[None] for field in batch)), TEMPERATURE).each()
        update(learner, batch, targets, orthonormality=1.0, learning_rate=rate)
        learner.networks.move_targets(0.5)
    states, both = gym.spaces.Discrete(S), gym.spaces.Tuple([gym.spaces.Discrete(S), gym.spaces.Discrete(A)])
    phi = FeatureMap("observation", states, ActionSet(A), include_action=pairs)
    model = Model(phi, Encoder(states), Encoder(both if pairs else states), F, B, m_bar)
    rows = torch.tensor([[s, a] for s in range(S) for a in range(A)] if pairs else [[s] for s in range(S)]).float()
    sample = with_backward(model, rows, torch.full((G,), 1 / G, dtype=torch.float64))
    agent = Agent(Knowledge(model, Settings(dim=d, gamma=GAMMA, first_step=first_step, bias=bias), sample))
    return agent.ask(reward(lambda g: R[g[:, 0].astype(int), g[:, 1].astype(int) if pairs else 0]))


def density(policy: Policy) -> np.ndarray:
    """(S, A, G) what the representation says of m^{pi_z}."""
    F, B, bias = (policy.model.modules.get(name) for name in ("F", "B", "bias"))
    m = torch.einsum("sad,gd->sag", F.table, B.table)
    return (m if bias is None else m + bias.table[:, None]).detach().numpy()


def soft_policy(policy: Policy) -> np.ndarray:
    return boltzmann(torch.from_numpy(policy.q(np.arange(S))), TEMPERATURE).numpy()


def exact_q(mdp: FiniteMDP, policy: Policy, r: np.ndarray) -> np.ndarray:
    return mdp.q_value(mdp.policy_value(soft_policy(policy), r), r)


@pytest.mark.parametrize("terminating", [False, True])
def test_from_t_1_the_state_itself_is_left_out(terminating: bool) -> None:
    mdp, r = mdp_of(3, terminating), np.repeat(R[:, :1], A, 1)
    policy = learned(mdp, d=S, first_step=1)
    M = mdp.successor_measure(soft_policy(policy)).sum(3) - np.eye(S)[:, None]
    assert np.abs(density(policy) - M * S).max() < 1e-5 * np.abs(M * S).max()
    q = policy.q(np.arange(S))  # r + F . z_R
    assert np.abs(q - exact_q(mdp, policy, r)).max() < 1e-5
    assert policy.value(0) == pytest.approx(q[0].max())


def test_both_conventions_agree() -> None:
    mdp = mdp_of(5)
    now, after = learned(mdp, d=S), learned(mdp, d=S, first_step=1)
    assert now.q(np.arange(S)) == pytest.approx(after.q(np.arange(S)), abs=1e-5)
    assert (now.act(np.arange(S)) == after.act(np.arange(S))).all()
    difference = density(now) - density(after)
    assert difference == pytest.approx(np.broadcast_to(S * np.eye(S)[:, None], (S, A, S)), abs=1e-4)


def test_with_a_bias_half_the_dimension_is_enough() -> None:
    """Advantages of two actions have rank S; the whole density has rank S A, which F . B of d = S cannot have."""
    mdp = mdp_of(3)
    policy = learned(mdp, d=S, pairs=True, bias=True, steps=6_000)
    m = mdp.successor_measure(soft_policy(policy)).reshape(S * A, S * A) * S * A
    assert np.abs(density(policy).reshape(m.shape) - m).max() < 1e-5 * np.abs(m).max()
    singular = np.linalg.svd(m, compute_uv=False)
    assert singular[S] > 0.05 * singular[0]  # so much, at least, any matrix of rank S differs from m by (Eckart, Young)
    exact = exact_q(mdp, policy, R)
    assert np.abs(policy.q(np.arange(S)) - exact).max() < 1e-5
    z_R = policy.reward_scale * policy.z.double()
    alone = policy.model.modules["F"].table.detach().numpy() @ z_R.numpy()  # F . z_R is not Q, but advantages are
    assert np.abs(alone - exact).max() > 0.05
    assert alone[:, 0] - alone[:, 1] == pytest.approx(exact[:, 0] - exact[:, 1], abs=1e-5)


def test_a_bias_and_t_1_together() -> None:
    mdp, r = mdp_of(7, terminating=True), np.repeat(R[:, :1], A, 1)
    policy = learned(mdp, d=S, first_step=1, bias=True)
    M = mdp.successor_measure(soft_policy(policy)).sum(3) - np.eye(S)[:, None]
    assert np.abs(density(policy) - M * S).max() < 1e-5 * np.abs(M * S).max()
    assert np.abs(policy.q(np.arange(S)) - exact_q(mdp, policy, r)).max() < 1e-5
