"""One gradient step on F and B (Algorithm 1, lines 15 to 22), and the moving target networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyreward.representation.losses import expected_forward, fb_loss, orthonormality_loss


class Batch(NamedTuple):
    """What one update sees, already encoded."""

    x: Tensor
    """(b, width) observations s_i"""
    actions: Tensor
    """(b,) a_i"""
    next_x: Tensor
    """(b, width) next observations s_{i+1}"""
    discount: Tensor
    """(b,) gamma, or 0 where the transition terminated"""
    g: Tensor
    """(b, features) phi(s_i, a_i)"""
    other_g: Tensor
    """(b, features) phi(s'_j, a'_j) of the second, independent minibatch"""


@dataclass
class Learner:
    """The networks being learned, their slowly moving targets, and the optimiser over both."""

    F: nn.Module
    B: nn.Module
    F_target: nn.Module
    B_target: nn.Module
    optimiser: torch.optim.Optimizer

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters that the optimiser moves, F's then B's."""
        return [*self.F.parameters(), *self.B.parameters()]

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change Adam's learning rate from here on."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate

    def move_targets(self, retention: float) -> None:
        """theta- <- alpha theta- + (1 - alpha) theta, for F and B."""
        online = [parameter.detach() for parameter in self.parameters]
        target: list[Tensor] = [*self.F_target.parameters(), *self.B_target.parameters()]
        torch._foreach_lerp_(target, online, 1 - retention)


def make_learner(F: nn.Module, B: nn.Module, learning_rate: float) -> Learner:
    """A learner with targets equal to the networks and one Adam over both."""
    optimiser = torch.optim.Adam([*F.parameters(), *B.parameters()], lr=learning_rate, fused=True)
    F_target = copy.deepcopy(F).requires_grad_(False)
    B_target = copy.deepcopy(B).requires_grad_(False)
    return Learner(F, B, F_target, B_target, optimiser)


def update(
    learner: Learner,
    batch: Batch,
    draw_z: Callable[[Tensor], Tensor],
    temperature: float,
    orthonormality: float,
) -> dict[str, Tensor]:
    """One gradient step on both networks; returns metrics that are still tensors, so that nothing waits for them.

    ``draw_z`` is given B(s_i, a_i), (b, d) without gradient, and returns the z_i (b, d). They may depend on the first
    minibatch, never on the second: the Bellman loss needs (s', a') independent of z and of the transition.
    """
    b = len(batch.actions)
    B_both = learner.B(torch.cat([batch.g, batch.other_g]))  # (2b, d), one pass for both minibatches
    B, B_other = B_both[:b], B_both[b:]
    with torch.no_grad():
        z = draw_z(B.detach())  # (b, d)
        F_next = expected_forward(learner.F_target(batch.next_x, z), z, temperature)  # (b, d)
        B_target = learner.B_target(batch.other_g)  # (b, d)
    F_all = learner.F(batch.x, z)  # (b, A, d)
    F = F_all[torch.arange(b), batch.actions]  # (b, d)
    bellman = fb_loss(F, B, B_other, F_next, B_target, batch.discount)
    orthonormal = orthonormality_loss(B, B_other)
    learner.optimiser.zero_grad(set_to_none=True)
    (bellman + orthonormality * orthonormal).backward()  # type: ignore[no-untyped-call]
    learner.optimiser.step()
    return {"bellman_loss": bellman.detach(), "orthonormality_loss": orthonormal.detach()}
