"""One gradient step on F and B: Algorithm 1, lines 15 to 22.

`update` is the readable version. `learning.fast.compiled` computes the same, faster.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyreward.learning.batch import Batch
from anyreward.learning.fast.flat import FlatNetworks
from anyreward.learning.method import Metrics, Report
from anyreward.model.losses import (
    BiasTerms,
    boltzmann,
    expected_forward,
    fb_gradients,
    fb_loss,
    given_gradient,
    orthonormality_loss,
)
from anyreward.model.networks import Forward

Updates = Callable[[Batch, Sequence[float], float, float], Report]
"""(minibatches, learning rates, temperature, orthonormality) -> report of the last update."""

TARGET_ROWS = 640
"""Number of rows in one pass of the target networks: large matrix products that still fit in a processor's cache."""


class Learner:
    """F and B, their target networks F- and B-, and one Adam over all parameters."""

    def __init__(
        self,
        F: nn.Module,
        B: nn.Module,
        bias: nn.Module | None = None,
        first_step: int = 0,
        actor: nn.Module | None = None,
        rates: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        """``rates`` are the learning rates of B and of the actor, relative to that of F."""
        self.F, self.B, self.bias, self.first_step, self.actor = F, B, bias, first_step, actor
        networks = [(F, 1.0), (B, rates[0]), (bias, 1.0), (actor, rates[1])]
        present = [(network, rate) for network, rate in networks if network is not None]
        self.networks = FlatNetworks([network for network, _ in present], [rate for _, rate in present])
        self.F_target, target, *others = self.networks.targets
        self.B_target = target if any(True for _ in B.parameters()) else B  # a given B is its own target
        self.bias_target = others[0] if bias is not None else None
        self.actor_target = others[-1] if actor is not None else None
        self.F_fixed = with_shared_weights(F) if actor is not None else F
        """F without gradients of its weights, for those of the actor"""
        self.BB: Tensor | None = None
        """(d, d) E[B B^T] of all data, if B is fixed"""

    def weight(self, batch: Batch) -> Tensor | None:
        """(b,) the weights of F_i . B_i in the loss, if they are not one."""
        return batch.discount if self.first_step else None

    def gradient_norms(self) -> Metrics:
        """The gradient norms of the last update."""
        norms = {}
        for name, network in (("F", self.F), ("B", self.B), ("actor", self.actor or nn.Identity())):
            if parts := [p.grad.norm() for p in network.parameters() if p.grad is not None]:  # a fixed B has none
                norms[f"{name}_gradient_norm"] = torch.stack(parts).norm()
        return norms


def with_shared_weights(network: nn.Module) -> nn.Module:
    """A copy of a network that shares its weights, through which no gradients of the weights are computed."""
    shared = copy.deepcopy(network).requires_grad_(False)
    for own, weight in zip(shared.parameters(), network.parameters(), strict=True):
        own.data = weight.data
    return shared


class Targets(NamedTuple):
    """The target networks' part of the Bellman loss, stacked like the batch; constant until the next target update."""

    F_next: Tensor
    """(b, d) discount_i sum_a pi_z(a | s_{i+1}) F-(s_{i+1}, a, z_i)"""
    B: Tensor
    """(len(second), d) B- of the second minibatch"""
    bias: Tensor | None = None
    """(b, len(second)) discount_i m-bar-(s_{i+1}, z_i, g'_j), where there is a bias"""

    def each(self) -> list[Targets]:
        """The targets of each minibatch of a stack."""
        biases = [None] * len(self.B) if self.bias is None else self.bias.unbind()
        return [Targets(*fields) for fields in zip(self.F_next.unbind(), self.B.unbind(), biases, strict=True)]


@torch.inference_mode()
def bellman_targets(learner: Learner, batch: Batch, temperature: float) -> Targets:
    """Line 18: F- and B- for a stack of minibatches at once, in larger matrix products."""
    (n, b), k = batch.actions.shape, batch.second.shape[1]
    g = batch.g[:, batch.g.shape[1] - k :]
    shared = g.stride(0) == 0  # categories: all minibatches refer to the same features
    F_next = in_pieces(
        lambda x, shown, z: expected_forward(learner.F_target(x, shown), z, temperature),
        *(batch.next_x, batch.shown_z, batch.z),
    )
    B = learner.B_target(g[0] if shared else g.flatten(0, 1))
    bias = None
    if learner.bias_target is not None:  # (n, b, k)
        m = [learner.bias_target(*one) for one in zip(batch.next_x, batch.shown_z, g, strict=True)]
        bias = batch.discount[:, :, None] * torch.stack(m)
    discounted = batch.discount.view(-1, 1) * F_next  # (n b, d)
    return Targets(discounted.view(n, b, -1), B.expand(n, -1, -1) if shared else B.view(n, k, -1), bias)


def in_pieces(function: Callable[..., Tensor], *stacks: Tensor) -> Tensor:
    """(n b, ...) a function of the rows of stacks (n, b, ...), computed for several minibatches at once."""
    step = 1 if stacks[0].dtype == torch.uint8 else max(1, TARGET_ROWS // stacks[0].shape[1])
    pieces = zip(*(torch.split(stack, step) for stack in stacks), strict=True)
    return torch.cat([function(*(piece.flatten(0, 1) for piece in each)) for each in pieces])


def update(
    learner: Learner, batch: Batch, targets: Targets, orthonormality: float, learning_rate: float, tau: float = 1.0
) -> Report:
    """Lines 19 to 22: one step of Adam on fb_loss + lambda orthonormality_loss.

    The losses are quadratic in F and B, so their gradients dF, dB with respect to the outputs of the networks have a
    closed form; autograd propagates them through the networks. ``tau`` is the temperature, for the report.
    """
    F = forward_taken(learner.F, batch.x, batch.shown_z, batch.actions, batch.counts)  # (b, d) F(s_i, a_i, z_i)
    B = learner.B(batch.g)  # (m, d) B of the features of both minibatches
    m_bar = None if learner.bias is None else learner.bias(batch.x, batch.shown_z, batch.g)  # (b, m)
    weight = learner.weight(batch)
    with torch.no_grad():
        if learner.BB is not None and m_bar is None:
            gradients = [given_gradient(F, B[batch.here], targets.F_next, learner.BB, weight)]
        else:
            data = (batch.here, batch.first, batch.second, targets.F_next, targets.B)
            gradients = fb_gradients(F, B, *data, orthonormality, weight, m_bar, targets.bias)
    outputs = zip((F, B, m_bar), gradients, strict=False)
    learned = [(value, gradient) for value, gradient in outputs if value.requires_grad]  # a fixed B is not learned
    learner.networks.gradient.zero_()
    torch.autograd.backward([value for value, _ in learned], [gradient for _, gradient in learned])
    learner.networks.step(learning_rate)
    F, B, m_bar = F.detach(), B.detach(), None if m_bar is None else m_bar.detach()
    return Report(
        partial(losses, learner, F, B, batch, targets, m_bar), partial(diagnostics, learner, F, B, batch, tau)
    )


def updates(
    learner: Learner, group: Batch, learning_rates: Sequence[float], temperature: float, orthonormality: float
) -> Report:
    """The gradient updates of a group of minibatches between two target updates; reports the last one."""
    targets = bellman_targets(learner, group, temperature)
    for batch, target, rate in zip(group.each(), targets.each(), learning_rates, strict=True):
        last = update(learner, batch, target, orthonormality, rate, temperature)
    return last


def forward_taken(F: nn.Module, x: Tensor, z: Tensor, actions: Tensor, counts: Tensor) -> Tensor:
    """(b, d) F(s_i, a_i, z_i) for the actions taken; without counts, and by other networks, all are computed."""
    if isinstance(F, Forward) and counts.numel():
        return F.taken(x, z, actions, counts.tolist())
    every: Tensor = F(x, z)  # (b, A, d)
    return every.gather(1, actions[:, None, None].expand(-1, 1, every.shape[2])).squeeze(1)


@torch.inference_mode()
def losses(
    learner: Learner, F: Tensor, B: Tensor, batch: Batch, targets: Targets, m_bar: Tensor | None = None
) -> Metrics:
    """Both losses of a minibatch, of F (b, d) for the actions taken, B (m, d) and m-bar (b, m) if there is one."""
    k = len(batch.second)
    B_here, B_second = B[batch.here], B[len(B) - k :]
    whole = torch.ones_like(batch.discount)  # F_next is discounted already
    bias = None
    if m_bar is not None and targets.bias is not None:
        bias = BiasTerms(m_bar.gather(1, batch.here[:, None]).squeeze(1), m_bar[:, len(B) - k :], targets.bias)
    return {
        "bellman_loss": fb_loss(
            F, B_here, B_second, targets.F_next, targets.B, whole, batch.second, here=learner.weight(batch), bias=bias
        ),
        "orthonormality_loss": orthonormality_loss(B_here, B_second, batch.second),
    }


@torch.inference_mode()
def diagnostics(learner: Learner, F: Tensor, B: Tensor, batch: Batch, temperature: float) -> Metrics:
    """Metrics for debugging a run (docs/metrics.md), from F (b, d) for the actions taken and B (m, d)."""
    d, B_second = F.shape[1], B[len(B) - len(batch.second) :]
    BB = B_second.T @ (batch.second[:, None] * B_second)  # (d, d) E[B B^T]
    off = BB - torch.diag(BB.diagonal())
    Q = (F * batch.z).sum(1)  # (b,)
    every = learner.F(batch.x, batch.shown_z)  # (b, A, d)
    pi = boltzmann((every * batch.z.unsqueeze(1)).sum(2), temperature)  # (b, A)
    return {
        "F_norm": F.norm(dim=1).mean(),
        "B_norm": batch.second @ B_second.norm(dim=1),
        "B_diagonal": BB.diagonal().mean(),
        "B_off_diagonal": off.norm() / math.sqrt(max(d * (d - 1), 1)),
        "q_mean": Q.mean(),
        "q_std": Q.std(correction=0),
        "policy_entropy": torch.special.entr(pi).sum(1).mean(),
        **learner.gradient_norms(),
    }
