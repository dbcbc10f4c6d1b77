from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from anyreward import UserError
from anyreward.model import boltzmann, expected_forward, fb_loss, orthonormality_loss
from anyreward.model.losses import BiasTerms, fb_gradients, given_gradient

F = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
B = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
B_OTHER = torch.tensor([[1.0, 1.0], [2.0, 0.0]])
F_NEXT = torch.tensor([[1.0, 0.0], [2.0, 1.0]])
B_TARGET = torch.tensor([[0.0, 1.0], [1.0, 1.0]])


def test_fb_loss_by_hand() -> None:
    # F.B'   = [[3, 2], [-1, 0]];  F_next.B_target = [[0, 1], [1, 3]];  discount 0.5 for row 0 and 0 for row 1
    # residual = [[3, 1.5], [-1, 0]];  squares 9 + 2.25 + 1 + 0 = 12.25;  1/(2*4) of it = 1.53125
    # diagonal: F_0.B_0 = 3, F_1.B_1 = -1, mean 1
    loss = fb_loss(F, B, B_OTHER, F_NEXT, B_TARGET, torch.tensor([0.5, 0.0]))
    assert loss.item() == pytest.approx(1.53125 - 1.0)


def test_fb_loss_is_the_sum_over_all_pairs() -> None:
    torch.manual_seed(0)
    b, d = 5, 3
    f, g, g2, fn, gt = (torch.randn(b, d, dtype=torch.float64) for _ in range(5))
    discount = torch.rand(b, dtype=torch.float64)
    total = sum((f[i] @ g2[j] - discount[i] * fn[i] @ gt[j]) ** 2 for i, j in itertools.product(range(b), range(b)))
    expected = total / (2 * b * b) - sum(f[i] @ g[i] for i in range(b)) / b
    assert fb_loss(f, g, g2, fn, gt, discount).item() == pytest.approx(float(expected))


def test_termination_masks_only_its_own_row() -> None:
    full = fb_loss(F, B, B_OTHER, F_NEXT, B_TARGET, torch.tensor([0.5, 0.5]))
    other_target = fb_loss(F, B, B_OTHER, F_NEXT + torch.tensor([[0.0], [7.0]]), B_TARGET, torch.tensor([0.5, 0.0]))
    masked = fb_loss(F, B, B_OTHER, F_NEXT, B_TARGET, torch.tensor([0.5, 0.0]))
    assert masked.item() == other_target.item() != full.item()


def test_targets_get_no_gradient() -> None:
    leaves = [t.clone().requires_grad_() for t in (F, B, B_OTHER, F_NEXT, B_TARGET)]
    fb_loss(*leaves, torch.tensor([0.5, 0.5])).backward()
    assert all(leaf.grad is not None for leaf in leaves[:3])
    assert all(leaf.grad is None for leaf in leaves[3:])


def test_losses_check_shapes() -> None:
    with pytest.raises(UserError, match="expected \\(b, d\\)"):
        fb_loss(F[:, :1], B, B_OTHER, F_NEXT, B_TARGET, torch.ones(2))
    with pytest.raises(UserError, match="discount"):
        fb_loss(F, B, B_OTHER, F_NEXT, B_TARGET, torch.ones(2, 1))
    with pytest.raises(UserError, match="orthonormality_loss"):
        orthonormality_loss(B, torch.ones(2, 3))


def test_orthonormality_loss_by_hand() -> None:
    # B_i.B'_j = [[3, 6], [2, 2]]: the first term is the mean of their squares, (9 + 36 + 4 + 4) / 4 = 13.25;
    # the second is the mean of |B_i|^2, (9 + 2) / 2 = 5.5
    b = B.clone().requires_grad_()
    other = B_OTHER.clone().requires_grad_()
    loss = orthonormality_loss(b, other)
    assert loss.item() == pytest.approx(13.25 - 5.5)
    loss.backward()
    # row 0: (3 B'_0 + 6 B'_1) / 4 - B_0 / 2 = (15, 3) / 4 - (1.5, 0);  row 1: (2 B'_0 + 2 B'_1) / 4 - B_1 / 2
    assert b.grad is not None
    assert torch.allclose(b.grad, torch.tensor([[2.25, 0.75], [1.0, 0.0]]))
    assert other.grad is None


def test_orthonormality_gradient_is_unbiased() -> None:
    """Averaged over all pairs of minibatches of a small population, it is the gradient of 1/4 |E[BB^T] - I|^2."""
    torch.manual_seed(1)
    n, d, width = 4, 3, 5
    inputs = torch.randn(n, width, dtype=torch.float64)
    W = torch.randn(width, d, dtype=torch.float64, requires_grad=True)

    def backward_map(rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(rows @ W)

    population = backward_map(inputs)
    exact = 0.25 * (population.T @ population / n - torch.eye(d, dtype=torch.float64)).square().sum()
    (expected,) = torch.autograd.grad(exact, W)
    # two independent minibatches of two rows, drawn with replacement: enumerate all 4^4 of them
    total, count = torch.zeros_like(W), 0
    for i, j, k, m in itertools.product(range(n), repeat=4):
        both = backward_map(inputs[[i, j, k, m]])
        (gradient,) = torch.autograd.grad(orthonormality_loss(both[:2], both[2:]), W)
        total, count = total + gradient, count + 1
    assert torch.allclose(total / count, expected, rtol=1e-10, atol=1e-12)


def test_expected_forward_is_the_softmax_average() -> None:
    torch.manual_seed(2)
    f, z = torch.randn(4, 3, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    for i in range(4):
        q = np.array([float(f[i, a] @ z[i]) for a in range(3)]) / 1.7
        p = np.exp(q) / np.exp(q).sum()
        expected = sum(p[a] * f[i, a].numpy() for a in range(3))
        assert np.allclose(expected_forward(f, z, 1.7)[i], expected)


def test_a_low_temperature_is_greedy() -> None:
    Q = torch.tensor([[1.0, 3.0, 2.0]])
    assert torch.allclose(boltzmann(Q, 1e-3), torch.tensor([[0.0, 1.0, 0.0]]))
    assert torch.allclose(boltzmann(Q, 1e6), torch.full((1, 3), 1 / 3), atol=1e-5)


def test_weights_are_repeated_rows() -> None:
    torch.manual_seed(3)
    b, m, d = 5, 4, 3
    f, g, fn, other, gt = (torch.randn(n, d, dtype=torch.float64) for n in (b, b, b, m, m))
    discount, counts = torch.rand(b, dtype=torch.float64), torch.tensor([3, 0, 1, 2])
    weights = counts.double() / counts.sum()
    again = torch.arange(m).repeat_interleave(counts)
    weighted = fb_loss(f, g, other, fn, gt, discount, weights)
    assert weighted.item() == pytest.approx(fb_loss(f, g, other[again], fn, gt[again], discount).item(), rel=1e-12)
    assert weighted.item() != pytest.approx(fb_loss(f, g, other, fn, gt, discount).item(), rel=0.01)
    weighted = orthonormality_loss(g, other, weights)
    assert weighted.item() == pytest.approx(orthonormality_loss(g, other[again]).item(), rel=1e-12)
    assert weighted.item() != pytest.approx(orthonormality_loss(g, other).item(), rel=0.01)


@pytest.mark.parametrize("variant", ["as it is", "from t = 1", "bias", "bias, from t = 1"])
@pytest.mark.parametrize("by_pairs", [True, False])
@pytest.mark.parametrize("features", ["categories", "numbers", "frequencies"])
@pytest.mark.parametrize("seed", range(2))
def test_gradients_in_closed_form_are_autograds(features: str, by_pairs: bool, seed: int, variant: str) -> None:
    """Both minibatches refer to rows of one B; spelled out row by row, autograd finds the same gradient."""
    torch.manual_seed(seed)
    b, d = (6, 5) if by_pairs else (12, 3)
    if features == "numbers":  # no row twice: one minibatch after the other
        m, here, there = 2 * b, torch.arange(b), torch.arange(b, 2 * b)
        first = second = torch.full((b,), 1 / b, dtype=torch.float64)
    else:  # rows that repeat; with frequencies, the second minibatch is a whole replay
        m = 9
        here, there = torch.randint(m - 1, (b,)), torch.randint(1, m, (40 if features == "frequencies" else b,))
        first, second = (torch.bincount(rows, minlength=m).double() / len(rows) for rows in (here, there))
    k = len(second)
    assert (b * k <= (b + k) * d) is by_pairs
    f, fn = (torch.randn(b, d, dtype=torch.float64) for _ in range(2))
    g, gt = torch.randn(m, d, dtype=torch.float64), torch.randn(m, d, dtype=torch.float64)
    discount = torch.tensor([0.0, 0.9, 0.5]).double().repeat(b // 3)

    own = torch.rand(b, dtype=torch.float64) if "t = 1" in variant else None

    leaves = [f.requires_grad_(), g.requires_grad_()]
    bias, given = None, ()
    if "bias" in variant:
        m_bar, target = (torch.randn(b, m, dtype=torch.float64) for _ in range(2))
        leaves.append(m_bar.requires_grad_())
        bias = BiasTerms(m_bar[torch.arange(b), here], m_bar[:, there], target[:, there])
        given = (m_bar.detach(), target[:, m - k :])
    loss = fb_loss(f, g[here], g[there], fn, gt[there], discount, here=own, bias=bias)
    loss = loss + 0.7 * orthonormality_loss(g[here], g[there])
    expected = torch.autograd.grad(loss, leaves)
    f, g, fn, gt = f.detach(), g.detach(), discount[:, None] * fn, gt[m - k :]
    found = fb_gradients(f, g, here, first, second, fn, gt, 0.7, own, *given)
    assert all(torch.allclose(a, e, rtol=1e-10, atol=1e-10) for a, e in zip(found, expected, strict=True))


@pytest.mark.parametrize(("b", "d"), [(1, 3), (2, 3), (3, 1)], ids=["one row", "by pairs", "by moments"])
def test_the_gradient_is_unbiased(b: int, d: int) -> None:
    """Averaged over all two minibatches that may be drawn: the gradient of the losses on the population."""
    torch.manual_seed(0)
    n = 3 if b == 3 else 4
    f, g, fn, gt = (torch.randn(n, d, dtype=torch.float64) for _ in range(4))
    one, share = torch.ones(n, dtype=torch.float64), torch.full((b,), 1 / b, dtype=torch.float64)
    leaves = [f.clone().requires_grad_(), g.clone().requires_grad_()]
    loss = fb_loss(*leaves, leaves[1], fn, gt, one) + 0.7 * orthonormality_loss(leaves[1], leaves[1])
    expected = torch.autograd.grad(loss, leaves)
    dF, dB = torch.zeros_like(f), torch.zeros_like(g)
    minibatches = [torch.tensor(rows) for rows in itertools.product(range(n), repeat=b)]
    for i, j in itertools.product(minibatches, repeat=2):
        both = torch.cat([i, j])
        found = fb_gradients(f[i], g[both], torch.arange(b), share, share, fn[i], gt[j], 0.7)
        dF.index_add_(0, i, found[0], alpha=1 / len(minibatches) ** 2)
        dB.index_add_(0, both, found[1], alpha=1 / len(minibatches) ** 2)
    assert torch.allclose(dF, expected[0], rtol=1e-10, atol=1e-12)
    assert torch.allclose(dB, expected[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("from_t_1", [False, True])
def test_the_gradient_for_a_given_b_is_autograds_with_all_data_as_second_minibatch(from_t_1: bool) -> None:
    torch.manual_seed(5)
    b, n, d = 6, 40, 3
    f, fn = (torch.randn(b, d, dtype=torch.float64) for _ in range(2))
    everything, here = torch.randn(n, d, dtype=torch.float64), torch.randint(n, (b,))
    discount = torch.rand(b, dtype=torch.float64)
    own = discount if from_t_1 else None
    loss = fb_loss(f.requires_grad_(), everything[here], everything, fn, everything, discount, here=own)
    (expected,) = torch.autograd.grad(loss, f)
    BB = everything.T @ everything / n
    found = given_gradient(f.detach(), everything[here], discount[:, None] * fn, BB, own)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_bias_and_weights_in_the_loss_by_hand() -> None:
    F, B, other, F_next, target = (torch.tensor([[x]], dtype=torch.float64) for x in (2.0, 3.0, 5.0, 7.0, 11.0))
    bias = BiasTerms(torch.tensor([0.5]), torch.tensor([[4.0]]), torch.tensor([[6.0]]))
    half = torch.tensor([0.5], dtype=torch.float64)
    residual = 2 * 5 + 4 - (0.5 * 7 * 11 + 6)
    assert fb_loss(F, B, other, F_next, target, half, bias=bias).item() == residual**2 / 2 - (2 * 3 + 0.5)
    assert fb_loss(F, B, other, F_next, target, half, here=half, bias=bias).item() == residual**2 / 2 - 0.5 * 6.5
    assert fb_loss(F, B, other, F_next, target, half, here=half).item() == (10 - 38.5) ** 2 / 2 - 3
