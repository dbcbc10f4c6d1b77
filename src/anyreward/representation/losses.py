"""The losses of Algorithm 1, as pure functions of the networks' outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from anyreward.errors import UserError


def boltzmann(Q: Tensor, temperature: float) -> Tensor:
    """(b, A) softmax(Q / tau): the regularised pi_z of training (Algorithm 1, line 18)."""
    return torch.softmax(Q / temperature, dim=-1)


def expected_forward(F_next: Tensor, z: Tensor, temperature: float) -> Tensor:
    """(b, d) sum_a pi_z(a | s_1) F(s_1, a, z), from F_next (b, A, d) and z (b, d)."""
    Q = torch.bmm(F_next, z.unsqueeze(2)).squeeze(2)  # (b, A)
    return torch.bmm(boltzmann(Q, temperature).unsqueeze(1), F_next).squeeze(1)


def fb_loss(F: Tensor, B: Tensor, B_other: Tensor, F_next: Tensor, B_target: Tensor, discount: Tensor) -> Tensor:
    """The Bellman loss on the successor density (Algorithm 1, line 19), over all b x b pairs.

    1/(2 b^2) sum_ij (F_i . B'_j - discount_i F_next_i . B_target_j)^2 - 1/b sum_i F_i . B_i

    Args:
        F: (b, d) F(s_i, a_i, z_i).
        B: (b, d) B(s_i, a_i), of the same transitions as F.
        B_other: (b, d) B(s'_j, a'_j), of the second, independent minibatch.
        F_next: (b, d) the target network's sum_a pi_z(a | s_{i+1}) F(s_{i+1}, a, z_i); no gradient.
        B_target: (b, d) the target network's B(s'_j, a'_j); no gradient.
        discount: (b,) gamma, or 0 where the transition terminated.
    """
    if not (F.shape == B.shape == F_next.shape and B_other.shape == B_target.shape and F.shape[1] == B_other.shape[1]):
        shapes = [tuple(t.shape) for t in (F, B, B_other, F_next, B_target)]
        raise UserError(f"fb_loss got shapes {shapes} for F, B, B_other, F_next, B_target; expected (b, d) each.")
    if discount.shape != F.shape[:1]:
        raise UserError(f"fb_loss got a discount of shape {tuple(discount.shape)}; expected ({F.shape[0]},).")
    target = (discount[:, None] * F_next).detach() @ B_target.detach().T  # (b, b)
    residual = F @ B_other.T - target  # (b, b)
    return 0.5 * residual.square().mean() - (F * B).sum(1).mean()


def orthonormality_loss(B: Tensor, B_other: Tensor) -> Tensor:
    """L_reg (Algorithm 1, line 21): its gradient is an unbiased estimate of that of 1/4 |E[B B^T] - I|^2.

    1/b^2 sum_ij B_i . sg(B'_j) sg(B_i . B'_j) - 1/b sum_i B_i . sg(B_i), with sg = stop-gradient.

    Args:
        B: (b, d) B(s_i, a_i).
        B_other: (b, d) B(s'_j, a'_j), of the second, independent minibatch.
    """
    if B.ndim != 2 or B.shape[1:] != B_other.shape[1:]:
        raise UserError(f"orthonormality_loss got shapes {tuple(B.shape)} and {tuple(B_other.shape)}; expected (b, d).")
    fixed, other = B.detach(), B_other.detach()
    gradient = (fixed @ other.T) @ other / len(other) - fixed  # (b, d), b times the gradient with respect to B
    return (B * gradient).sum(1).mean()
