from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from anyreward import UserError
from anyreward.model.latent import (
    ZMixture,
    asked_length,
    cauchy_z,
    goal_z,
    preprocess_z,
    reward_z,
    sum_z,
    trained_length,
)

D = 100


def test_preprocessing_by_hand() -> None:
    z = torch.tensor([[3.0, 4.0, 0.0, 0.0]])  # |z|^2 = 25, d = 4: divided by sqrt(1 + 25/4) = sqrt(7.25)
    assert torch.allclose(preprocess_z(z), z / math.sqrt(7.25))
    assert preprocess_z(1e6 * z).norm().item() == pytest.approx(2.0, rel=1e-5)  # bounded by sqrt(d)


def test_cauchy_has_the_papers_distribution() -> None:
    z = cauchy_z(40_000, D, torch.Generator().manual_seed(0))
    size = (z.norm(dim=1) / math.sqrt(D)).numpy()  # |u| with u Cauchy of scale 0.5
    for quantile in (0.25, 0.5, 0.75, 0.95):
        assert np.quantile(size, quantile) == pytest.approx(0.5 * math.tan(math.pi * quantile / 2), rel=0.06)
    directions = z / z.norm(dim=1, keepdim=True)
    assert directions.mean(0).abs().max() < 0.005
    assert torch.allclose(directions.square().mean(0), torch.full((D,), 1 / D), atol=1e-3)


def test_sphere_has_radius_sqrt_d() -> None:
    z = trained_length(cauchy_z(50, D, torch.Generator().manual_seed(0)), "sphere")
    assert torch.allclose(z.norm(dim=1), torch.tensor(math.sqrt(D)))


def test_goals_are_rows_of_b_equally_often() -> None:
    B = torch.randn(5, D, generator=torch.Generator().manual_seed(1))
    z = goal_z(20_000, B, torch.Generator().manual_seed(0))
    which = (z[:, None] == B).all(2)  # (n, 5)
    assert which.any(1).all()
    assert which.float().mean(0).tolist() == pytest.approx([0.2] * 5, abs=0.01)


def test_sums_are_signed_sums_of_two_to_four_rows() -> None:
    B = torch.eye(D)
    z = sum_z(2_000, B, torch.Generator().manual_seed(0))
    assert torch.equal(z, z.round())
    terms = z.abs().sum(1)  # rows drawn twice may cancel, never add up to more than four
    assert set(terms.int().tolist()) <= {0, 1, 2, 3, 4}
    assert {2, 3, 4} <= set(terms.int().tolist())
    assert abs(z.sum().item()) < 300  # signs are even


def test_mixture_has_its_shares() -> None:
    B = 7 * torch.eye(D)
    z = ZMixture(goals=0.5, sums=0.3).draw(20_000, D, B, torch.Generator().manual_seed(0))
    whole = (z == z.round()).all(1)
    single = whole & (z.count_nonzero(1) == 1) & (z.sum(1) == 7)
    assert single.float().mean().item() == pytest.approx(0.5, abs=0.02)  # a few sums cancel down to one row
    assert (~whole).float().mean().item() == pytest.approx(0.2, abs=0.02)


def test_shares_are_checked() -> None:
    for shares in ({"goals": 1.2}, {"goals": -0.1}, {"goals": 0.4, "sums": 0.7}, {"rewards": "all"}, {"sums": True}):
        with pytest.raises(UserError, match=r"z_mixture is .*; accepted: shares from 0 to 1, with a sum of"):
            ZMixture(**shares)


def test_without_shares_or_without_b_all_z_are_cauchy() -> None:
    B, expected = torch.eye(D), cauchy_z(50, D, torch.Generator().manual_seed(3))
    for mixture, rows in ((ZMixture(), B), (ZMixture(), None), (ZMixture(0.3, 0.3, 0.3), None)):
        assert torch.equal(mixture.draw(50, D, rows, torch.Generator().manual_seed(3)), expected)
    assert not ZMixture().needs_B
    assert ZMixture(rewards=0.1).needs_B


def test_rewards_are_normal_sums_of_every_row() -> None:
    B = torch.randn(30, 4, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 2.0, 0.5, 1.0])
    z = reward_z(100_000, B, torch.Generator().manual_seed(0))
    assert z.mean(0).abs().max() < 0.03
    assert torch.allclose(z.T @ z / len(z), B.T @ B / len(B), atol=0.05)  # E[z z^T] = mean of B B^T
    kurtosis = (z**4).mean(0) / (z**2).mean(0) ** 2
    assert torch.allclose(kurtosis, torch.full((4,), 3.0), atol=0.1)


def test_the_length_in_training() -> None:
    drawn = torch.tensor([[3.0, 4.0, 0.0, 0.0], [1e-3, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert torch.equal(trained_length(drawn, "free"), drawn)
    z = trained_length(drawn, "sphere")
    assert torch.allclose(z, torch.tensor([[1.2, 1.6, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))


def test_the_length_when_asked() -> None:
    z_R = torch.tensor([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    for norm, length in (("sphere", 2.0), ("free", 0.7 * 10.0)):
        z, scale = asked_length(z_R, norm, radius=10.0)
        assert z[0].tolist() == pytest.approx([0.6 * length, 0.8 * length, 0.0, 0.0])
        assert not z[1].any()
        assert torch.allclose(scale[:, None] * z, z_R)


def test_a_mixture_with_rewards_has_its_shares() -> None:
    """B of two opposite rows in the first dimension: single rows and signed sums of them are whole numbers there."""
    B = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    z = ZMixture(goals=0.2, sums=0.3, rewards=0.4).draw(40_000, 2, B, torch.Generator().manual_seed(0))
    in_span = z[:, 1] == 0
    whole = in_span & (z[:, 0] == z[:, 0].round())
    assert in_span.float().mean().item() == pytest.approx(0.9, abs=0.01)
    assert whole.float().mean().item() == pytest.approx(0.5, abs=0.01)
