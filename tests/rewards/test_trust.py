from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import anyreward as ar
from anyreward.learning.replay import Transitions
from anyreward.representation import Encoder, Representation
from anyreward.rewards.inference import FeatureSample
from anyreward.rewards.trust import LookaheadSample, consistent, represented


def test_represented_is_the_r_squared_of_the_projection() -> None:
    rng = np.random.default_rng(0)
    B = torch.from_numpy(rng.standard_normal((50, 4)))
    weights = torch.from_numpy(rng.dirichlet(np.ones(50)))
    sample = FeatureSample(torch.zeros(50, 1), weights, B, (B * weights[:, None]).T @ B)
    inside = (B @ torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)).numpy()
    assert represented(inside, sample) == pytest.approx(1.0, abs=1e-5)
    r = rng.standard_normal(50)
    root = weights.sqrt().numpy()
    fit, *_ = np.linalg.lstsq(B.numpy() * root[:, None], r * root, rcond=None)
    expected = 1 - ((r - B.numpy() @ fit) ** 2 * root**2).sum() / (r**2 * root**2).sum()
    assert represented(r, sample) == pytest.approx(expected, abs=1e-5)
    assert represented(np.zeros(50), sample) == 1.0


class FixedQ(nn.Module):
    """F whose product with z = (1,) is a given Q table."""

    def __init__(self, Q: np.ndarray) -> None:
        super().__init__()
        self.Q = nn.Parameter(torch.from_numpy(Q)[..., None])

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.Q[x[:, 0]]  # x holds one-hot columns


def lookahead(Q: np.ndarray, mdp: ar.FiniteMDP, r: np.ndarray) -> float | None:
    """`consistent` on every transition of an MDP, each as often as it is likely."""
    s, a, following = np.nonzero(mdp.P)
    rows = Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.from_numpy(following[:, None]).float(),
        torch.zeros(len(s), dtype=torch.bool),
        torch.from_numpy(s[:, None]).float(),
    )
    encoder = Encoder(gym.spaces.Discrete(mdp.states))
    representation = Representation(encoder, encoder, FixedQ(Q), nn.Identity(), mdp.actions)
    sample = LookaheadSample(rows, torch.from_numpy(100 * mdp.P[s, a, following]))
    return consistent(representation, sample, r[s], torch.ones(1, dtype=torch.float64), mdp.gamma)


def slippery(seed: int) -> ar.FiniteMDP:
    rng = np.random.default_rng(seed)
    return ar.FiniteMDP(rng.dirichlet(np.full(6, 0.3), size=(6, 3)), 0.9, np.arange(6))


@pytest.mark.parametrize("stochastic", [False, True])
def test_consistent_is_one_for_the_optimal_q_and_falls_with_wrong_actions(stochastic: bool) -> None:
    mdp = slippery(0) if stochastic else ar.finite_mdp(ar.open_world("four-rooms").make(), 0.9)
    assert mdp is not None
    r = np.random.default_rng(0).standard_normal(mdp.states)
    Q = mdp.q_value(mdp.optimal_value(r), r)
    assert lookahead(Q, mdp, r) == pytest.approx(1.0)
    wrong, some = Q.copy(), slice(0, mdp.states // 3)
    wrong[some] = 2 * wrong[some].mean(1, keepdims=True) - wrong[some]  # the worst action looks best in a third
    assert lookahead(wrong, mdp, r) < 0.9


def test_consistent_weighs_outcomes_by_how_often_they_were_seen() -> None:
    # one state, two actions: the first pays through a rare good outcome, the second a sure smaller one
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1] = [0.0, 0.1, 0.9], [0.0, 0.0, 1.0]
    P[1:, :, 2] = 1.0
    mdp = ar.FiniteMDP(P, 0.9, np.arange(3))
    Q = np.array([[1.0, 0.0], [10.0, 10.0], [1.5, 1.5]])
    # backups: 0.9 * (0.1 * 10 + 0.9 * 1.5) = 2.115 against 0.9 * 1.5: the first is better, and Q takes it
    assert lookahead(Q, mdp, np.zeros(3)) == pytest.approx(1.0)
    Q[1] = 0.0  # now 0.9 * 0.9 * 1.5 against 0.9 * 1.5: the second is better, and Q takes the first
    assert lookahead(Q, mdp, np.zeros(3)) == pytest.approx(-1.0)


def test_unknown_where_it_cannot_be_known() -> None:
    agent = ar.train("CartPole-v1", dim=4, hidden=8, batch_size=8, updates=40, progress=False)
    trust = agent.ask(ar.goal(0.0, 0.0, 0.0, 0.0)).trust
    assert str(trust) == "unknown"
    assert trust.score is None
    dense = agent.ask(ar.reward(lambda g: g[:, 0])).trust
    assert dense.consistent is None
    assert dense.represented is not None
    assert 0 <= dense.score <= 1
