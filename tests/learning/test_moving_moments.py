"""Moving averages of the moments, on a population small enough to draw every minibatch of it."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor

from anyreward.learning.update import Batch, MovingMoments, bellman_targets, make_learner, update
from anyreward.model import Backward, Forward, fb_loss, orthonormality_loss
from anyreward.model.losses import Moments, fb_gradients, moments

N, D, SHARE = 4, 3, 0.3


def population(seed: int = 0) -> list[Tensor]:
    """F, B, F_next and B_target, (N, D) each."""
    torch.manual_seed(seed)
    return [torch.randn(N, D, dtype=torch.float64) for _ in range(4)]


def moments_of(rows: list[Tensor], first: list[int], second: list[int]) -> Moments:
    """Those of two minibatches, of F's rows and of B's."""
    F, B, F_next, B_target = rows
    weights = torch.full((len(second),), 1 / len(second), dtype=torch.float64)
    return moments(F[first], B[second], weights, F_next[first], B_target[second])


def close(a: Moments, b: Moments) -> bool:
    return all(torch.allclose(x, y, rtol=1e-12, atol=1e-12) for x, y in zip(a, b, strict=True))


def mean(parts: list[Moments]) -> Moments:
    return Moments(*(torch.stack(column).mean(0) for column in zip(*parts, strict=True)))


WHOLE = list(range(N))
PAIRS = [list(pair) for pair in itertools.product(WHOLE, repeat=2)]
MINIBATCHES = list(itertools.product(PAIRS, PAIRS))
"""Every two minibatches of two rows, drawn with replacement."""


def test_unbiased_for_fixed_networks() -> None:
    """Whatever came before: over all minibatches of two steps, the mean is the population's moments."""
    rows = population()
    exact = moments_of(rows, WHOLE, WHOLE)
    assert close(mean([moments_of(rows, *drawn) for drawn in MINIBATCHES]), exact)
    for steps in (1, 2):
        found = []
        for drawn in itertools.product(itertools.product(WHOLE, repeat=2), repeat=steps):  # one row a minibatch
            averages = MovingMoments(SHARE)
            for i, j in drawn:
                average = averages.fold(moments_of(rows, [i], [j]))
            found.append(average)
        assert close(mean(found), exact)
    averages = MovingMoments(SHARE)
    averages.fold(exact)
    converged = [copy.copy(averages).fold(moments_of(rows, *drawn)) for drawn in MINIBATCHES]
    assert close(mean(converged), exact)


def test_less_variance_than_a_minibatch() -> None:
    rows = population()
    exact = moments_of(rows, WHOLE, WHOLE)

    def variance(found: list[Moments]) -> list[float]:
        return [
            float((torch.stack(m) - e).square().mean()) for m, e in zip(zip(*found, strict=True), exact, strict=True)
        ]

    averages, random = MovingMoments(SHARE), torch.Generator().manual_seed(0)
    plain, smooth = [], []
    for _ in range(4_000):
        i, j = torch.randint(N, (2, 2), generator=random).tolist()
        plain.append(moments_of(rows, i, j))
        smooth.append(averages.fold(plain[-1]))
    for ours, minibatchs in zip(variance(smooth), variance(plain), strict=True):
        # share^2 (1 + (1 - share)^2 + ...) of it
        assert ours / minibatchs == pytest.approx(SHARE / (2 - SHARE), rel=0.15)


def test_a_change_of_the_networks_comes_through_at_the_rate_of_the_share() -> None:
    old, new = (moments_of(population(seed), WHOLE, WHOLE) for seed in (0, 1))
    averages = MovingMoments(SHARE)
    assert close(averages.fold(old), old)
    for step in range(1, 4):
        left = (1 - SHARE) ** step
        expected = Moments(*(left * o + (1 - left) * n for o, n in zip(old, new, strict=True)))
        assert close(averages.fold(new), expected)


def test_the_gradient_is_unbiased() -> None:
    """Of the pair drawn second, averaged over all that may be drawn: the gradient of the losses on the population."""
    rows, one = population(), torch.ones(N, dtype=torch.float64)
    F, B, F_next, B_target = rows
    leaves = [F.clone().requires_grad_(), B.clone().requires_grad_()]
    loss = fb_loss(*leaves, leaves[1], F_next, B_target, one) + 0.7 * orthonormality_loss(leaves[1], leaves[1])
    expected = torch.autograd.grad(loss, leaves)
    dF, dB = torch.zeros_like(F), torch.zeros_like(B)
    for earlier, later in itertools.product(itertools.product(WHOLE, repeat=2), repeat=2):
        averages, (i, j) = MovingMoments(SHARE), later
        averages.fold(moments_of(rows, [earlier[0]], [earlier[1]]))
        average = averages.fold(moments_of(rows, [i], [j]))
        found = fb_gradients(
            F[[i]], B[[i, j]], torch.tensor([0]), one[:1], one[:1], F_next[[i]], B_target[[j]], 0.7, average
        )
        dF[i] += found[0][0] / N**4
        dB.index_add_(0, torch.tensor([i, j]), found[1], alpha=1 / N**4)
    assert torch.allclose(dF, expected[0], rtol=1e-10, atol=1e-12)
    assert torch.allclose(dB, expected[1], rtol=1e-10, atol=1e-12)


def test_updates_take_the_averages() -> None:
    """With the newest minibatch alone in them, nothing changes; with older ones, the next update does."""
    torch.manual_seed(0)
    F, B = Forward(6, 2, D, 8, 2, True).double(), Backward(6, D, 8, 2, True).double()
    groups = []
    for _ in range(3):
        x, z, g = (torch.randn(1, n, width, dtype=torch.float64) for n, width in ((5, 6), (5, D), (10, 6)))
        actions, share = torch.tensor([[0, 0, 1, 1, 1]]), torch.full((1, 5), 0.2, dtype=torch.float64)
        counts, discount = torch.tensor([[2, 3]]), torch.full((1, 5), 0.9, dtype=torch.float64)
        groups.append(Batch(x, actions, counts, x.flip(1), discount, z, z, g, torch.arange(5)[None], share, share))

    def learned(averages: MovingMoments | None) -> list[Tensor]:
        learner, found = make_learner(copy.deepcopy(F), copy.deepcopy(B), 1e-2, averages), []
        for group in groups:
            (targets,) = bellman_targets(learner, group, 2.0).each()
            update(learner, group.each()[0], targets, 0.7)
            found.append(learner.flat.detach().clone())
        return found

    plain, newest, averaged = (learned(averages) for averages in (None, MovingMoments(1.0), MovingMoments(SHARE)))
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(plain, newest, strict=True))
    assert torch.allclose(plain[0], averaged[0], rtol=1e-9, atol=1e-12)
    assert not torch.allclose(plain[1], averaged[1], rtol=1e-3, atol=1e-4)
