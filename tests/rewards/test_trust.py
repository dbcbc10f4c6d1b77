from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import anyreward as ar
from anyreward.learning.replay import Transitions
from anyreward.representation import Encoder, Representation
from anyreward.rewards.inference import FeatureSample
from anyreward.rewards.trust import consistent, represented


def test_represented_is_the_r_squared_of_the_projection() -> None:
    rng = np.random.default_rng(0)
    B = torch.from_numpy(rng.standard_normal((50, 4)))
    weights = torch.from_numpy(rng.dirichlet(np.ones(50)))
    sample = FeatureSample(torch.zeros(50, 1), weights, B)
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
        return self.Q[x.argmax(1)]


def lookahead(Q: np.ndarray, mdp: ar.FiniteMDP, r: np.ndarray) -> float | None:
    import gymnasium as gym

    s, a = (index.ravel() for index in np.indices((mdp.states, mdp.actions)))
    following = mdp.P.argmax(-1)[s, a]
    rows = Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.from_numpy(following[:, None]).float(),
        torch.zeros(len(s), dtype=torch.bool),
        torch.from_numpy(s[:, None]).float(),
    )
    encoder = Encoder(gym.spaces.Discrete(mdp.states))
    representation = Representation(encoder, encoder, FixedQ(Q), nn.Identity())
    return consistent(representation, rows, r[s], torch.ones(1, dtype=torch.float64), mdp.gamma)


def test_consistent_is_one_for_the_optimal_q_and_falls_with_wrong_actions() -> None:
    mdp = ar.finite_mdp(ar.open_world("four-rooms").make(), 0.9)
    assert mdp is not None
    r = np.random.default_rng(0).standard_normal(mdp.states)
    Q = mdp.q_value(mdp.optimal_value(r), r)
    assert lookahead(Q, mdp, r) == pytest.approx(1.0)
    wrong = Q.copy()
    wrong[:20] = -wrong[:20] + 2 * wrong[:20].mean(1, keepdims=True)  # the worst action looks best in 20 states
    assert lookahead(wrong, mdp, r) < 0.9


def test_unknown_where_it_cannot_be_known() -> None:
    agent = ar.train("CartPole-v1", dim=4, hidden=8, batch_size=8, updates=40, progress=False)
    trust = agent.ask(ar.goal(0.0, 0.0, 0.0, 0.0)).trust
    assert str(trust) == "unknown"
    assert trust.score is None
    dense = agent.ask(ar.reward(lambda g: g[:, 0])).trust
    assert dense.consistent is None
    assert dense.represented is not None
    assert 0 <= dense.score <= 1
