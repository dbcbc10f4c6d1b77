"""The losses of Algorithm 1, as pure functions of the networks' outputs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anyreward.errors import UserError


def boltzmann(Q: Tensor, temperature: float) -> Tensor:
    """(b, A) softmax(Q / tau): the regularised pi_z of training (Algorithm 1, line 18)."""
    return torch.softmax(Q / temperature, dim=-1)


def expected_forward(F_next: Tensor, z: Tensor, temperature: float) -> Tensor:
    """(b, d) sum_a pi_z(a | s_1) F(s_1, a, z), from F_next (b, A, d) and z (b, d)."""
    Q = (F_next * z.unsqueeze(1)).sum(2)  # (b, A)
    return torch.bmm(boltzmann(Q, temperature).unsqueeze(1), F_next).squeeze(1)


class BiasTerms(NamedTuple):
    """The values of m-bar in the loss."""

    here: Tensor
    """(b,) m-bar(s_i, z_i, g_i), at the features whose B multiplies F_i"""
    other: Tensor
    """(b, k) m-bar(s_i, z_i, g'_j)"""
    target: Tensor
    """(b, k) discount_i times the target network's m-bar(s_{i+1}, z_i, g'_j); no gradient"""


def fb_loss(
    F: Tensor,
    B: Tensor,
    B_other: Tensor,
    F_next: Tensor,
    B_target: Tensor,
    discount: Tensor,
    weights: Tensor | None = None,
    here: Tensor | None = None,
    bias: BiasTerms | None = None,
) -> Tensor:
    """The Bellman loss on the successor density (Algorithm 1, line 19), over all b x b pairs.

    1/(2 b^2) sum_ij (F_i . B'_j - discount_i F_next_i . B_target_j)^2 - 1/b sum_i here_i F_i . B_i

    With a bias, F . B + m-bar replaces F . B.

    Args:
        F: (b, d) F(s_i, a_i, z_i).
        B: (b, d) B(s_i, a_i), of the same transitions as F; B(s_{i+1}) where successor measures count from t = 1.
        B_other: (k, d) B(s'_j, a'_j), of the second, independent minibatch.
        F_next: (b, d) the target network's sum_a pi_z(a | s_{i+1}) F(s_{i+1}, a, z_i); no gradient.
        B_target: (k, d) the target network's B(s'_j, a'_j); no gradient.
        discount: (b,) gamma, or 0 where the transition terminated.
        weights: (k,) weights of the rows of the second minibatch, with a sum of one; default: 1/k each.
        here: (b,) weights of F_i . B_i; default: 1. The discount where successor measures count from t = 1.
        bias: the values of m-bar, if there is a bias.
    """
    if not (F.shape == B.shape == F_next.shape and B_other.shape == B_target.shape and F.shape[1] == B_other.shape[1]):
        shapes = [tuple(t.shape) for t in (F, B, B_other, F_next, B_target)]
        raise UserError(f"fb_loss got shapes {shapes} for F, B, B_other, F_next, B_target; expected (b, d) each.")
    if discount.shape != F.shape[:1]:
        raise UserError(f"fb_loss got a discount of shape {tuple(discount.shape)}; expected ({F.shape[0]},).")
    target = (discount[:, None] * F_next).detach() @ B_target.detach().T  # (b, k)
    residual, m = F @ B_other.T - target, (F * B).sum(1)  # (b, k), (b,)
    if bias is not None:
        residual, m = residual + bias.other - bias.target, m + bias.here
    return 0.5 * (residual.square() @ _shares(B_other, weights)).mean() - (m if here is None else here * m).mean()


def orthonormality_loss(B: Tensor, B_other: Tensor, weights: Tensor | None = None) -> Tensor:
    """L_reg (Algorithm 1, line 21): its gradient is an unbiased estimate of that of 1/4 |E[B B^T] - I|^2.

    1/b^2 sum_ij B_i . sg(B'_j) sg(B_i . B'_j) - 1/b sum_i B_i . sg(B_i), with sg = stop-gradient.

    Args:
        B: (b, d) B(s_i, a_i).
        B_other: (k, d) B(s'_j, a'_j), of the second, independent minibatch.
        weights: (k,) weights of the rows of the second minibatch, with a sum of one; default: 1/k each.
    """
    if B.ndim != 2 or B.shape[1:] != B_other.shape[1:]:
        raise UserError(f"orthonormality_loss got shapes {tuple(B.shape)} and {tuple(B_other.shape)}; expected (b, d).")
    fixed, other = B.detach(), B_other.detach()
    gradient = (fixed @ other.T * _shares(other, weights)) @ other - fixed  # (b, d), b times the gradient
    return (B * gradient).sum(1).mean()


def _shares(rows: Tensor, weights: Tensor | None) -> Tensor:
    return rows.new_full((len(rows),), 1 / len(rows)) if weights is None else weights


def given_gradient(F: Tensor, B_here: Tensor, F_next: Tensor, BB: Tensor, weight: Tensor | None = None) -> Tensor:
    """(b, d) the gradient of fb_loss with respect to F, for a fixed B: B_here (b, d) for the transitions of F.

    BB (d, d), E[B B^T] over all data, takes the place of a second minibatch; the others are as in `fb_gradients`.
    """
    b = len(F)
    if weight is not None:
        B_here = weight[:, None] * B_here
    return torch.addmm(F @ BB - B_here, F_next, BB, beta=1 / b, alpha=-1 / b)


def fb_gradients(
    F: Tensor,
    B: Tensor,
    here: Tensor,
    first: Tensor,
    second: Tensor,
    F_next: Tensor,
    B_target: Tensor,
    orthonormality: float,
    weight: Tensor | None = None,
    m_bar: Tensor | None = None,
    m_target: Tensor | None = None,
) -> list[Tensor]:
    """The gradients of fb_loss + lambda orthonormality_loss, in closed form: of F (b, d), B (m, d) and m-bar (b, m).

    Both minibatches refer to rows of one B. Features that are categories repeat within a minibatch: one that is drawn
    c times is one row with the weight c/b. Features that never repeat have the weights 1/b.

    ``here``, ``first`` and ``second`` are as in `learning.batch.Batch`; ``F_next`` (b, d), ``B_target`` (k, d) and
    ``m_target`` (b, k) as in `learning.update.Targets`; ``weight`` (b,) are the weights of F_i . B_i, by default 1.
    """
    b, d, m, k = len(F), F.shape[1], len(B), len(second)
    B_first, B_second, B_here, F_here = B[: len(first)], B[m - k :], B.index_select(0, here), F
    if weight is not None:
        B_here, F_here = weight[:, None] * B_here, weight[:, None] * F
    weighted = second[:, None] * B_second  # (k, d)
    if m_bar is not None or b * k <= (b + k) * d:  # by pairs: sum_j (F_i . B_j) B_j as (F B^T) B
        residual = torch.addmm(F @ B_second.T, F_next, B_target.T, alpha=-1)  # (b, k)
        if m_bar is not None and m_target is not None:
            residual += m_bar[:, m - k :] - m_target
        dresidual = residual * (second / b)
        dF = torch.addmm(B_here, residual, weighted, beta=-1 / b, alpha=1 / b)  # (b, d)
        dB = torch.mm(dresidual.T, F)  # (k, d)
        G = torch.addmm(B_first, B_first @ B_second.T, weighted, beta=-1)  # sum_j (B_i . B_j) B_j - B_i
    else:  # by moments: the same sums as F (B^T B), linear in b where pairs are quadratic
        BB, BB_target, FF, FF_next = B_second.T @ weighted, B_target.T @ weighted, F.T @ F / b, F_next.T @ F / b
        dF = torch.addmm(F @ BB - B_here, F_next, BB_target, beta=1 / b, alpha=-1 / b)
        dB = second[:, None] * torch.addmm(B_second @ FF, B_target, FF_next, alpha=-1)
        G = torch.addmm(B_first, B_first, BB, beta=-1)
    if k < m:  # the gradients so far are of the last k rows
        dB = torch.cat([dB.new_zeros(m - k, d), dB])
    dB.index_add_(0, here, F_here, alpha=-1 / b)
    dB[: len(first)].addcmul_(first[:, None], G, value=orthonormality)
    if m_bar is None:
        return [dF, dB]
    dm = torch.zeros_like(m_bar)
    dm[:, m - k :] = dresidual
    own = torch.ones_like(dm[:, 0]) if weight is None else weight
    return [dF, dB, dm.scatter_add_(1, here[:, None], -own[:, None] / b)]
