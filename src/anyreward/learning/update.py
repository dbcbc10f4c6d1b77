"""One gradient step on F and B (Algorithm 1, lines 18 to 22), and the moving target networks."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyreward.representation.losses import expected_forward, fb_loss, orthonormality_loss


class Batch(NamedTuple):
    """Encoded rows that updates see: one minibatch (b, ...), or several of them stacked."""

    x: Tensor
    """(b, width) observations s_i"""
    actions: Tensor
    """(b,) a_i"""
    next_x: Tensor
    """(b, width) next observations s_{i+1}"""
    discount: Tensor
    """(b,) gamma, or 0 where the transition terminated"""
    z: Tensor
    """(b, d) z_i, independent of the second minibatch"""
    here: Tensor
    """(b,) phi(s_i, a_i), as rows of ``g``"""
    other: Tensor
    """(b,) phi(s'_j, a'_j) of the second, independent minibatch, as rows of ``g``"""
    g: Tensor
    """(m, features) the features that both minibatches refer to, each distinct one once where they are categories"""

    def minibatch(self, i: int, b: int) -> Batch:
        """The i-th minibatch of size b of a stack."""
        rows = slice(i * b, (i + 1) * b)
        return self._replace(**{name: getattr(self, name)[rows] for name in self._fields if name != "g"})


class Targets(NamedTuple):
    """The target networks' part of the Bellman loss; constant until the targets move."""

    F_next: Tensor
    """(b, d) sum_a pi_z(a | s_{i+1}) F(s_{i+1}, a, z_i)"""
    B: Tensor
    """(b, d) B(s'_j, a'_j)"""


@dataclass(frozen=True)
class Learner:
    """The networks being learned, their slowly moving targets, and one Adam over both.

    The parameters of F and B are views of one flat vector, and so are the targets': Adam and the moving targets then
    take one operation each instead of one for every layer.
    """

    F: nn.Module
    B: nn.Module
    F_target: nn.Module
    B_target: nn.Module
    flat: Tensor
    """(parameters,) of F and B"""
    flat_target: Tensor
    """(parameters,) of the targets"""
    optimiser: torch.optim.Optimizer

    def set_learning_rate(self, learning_rate: float) -> None:
        """Change Adam's learning rate from here on."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate

    @torch.no_grad()
    def move_targets(self, retention: float) -> None:
        """theta- <- alpha theta- + (1 - alpha) theta, for F and B."""
        self.flat_target.lerp_(self.flat, 1 - retention)


def make_learner(F: nn.Module, B: nn.Module, learning_rate: float) -> Learner:
    """A learner of F and B in place, with targets equal to them and one Adam over both."""
    F_target = copy.deepcopy(F).requires_grad_(False)
    B_target = copy.deepcopy(B).requires_grad_(False)
    flat = nn.Parameter(_flatten([*F.parameters(), *B.parameters()]))
    flat.grad = torch.zeros_like(flat)
    _view_as_parts(flat.grad, [*F.parameters(), *B.parameters()], "grad")
    flat_target = _flatten([*F_target.parameters(), *B_target.parameters()])
    optimiser = torch.optim.Adam([flat], lr=learning_rate, fused=True)
    return Learner(F, B, F_target, B_target, flat, flat_target, optimiser)


def _flatten(parameters: list[nn.Parameter]) -> Tensor:
    """Move parameters into one vector; they become views of it."""
    flat = torch.cat([parameter.detach().ravel() for parameter in parameters])
    _view_as_parts(flat, parameters, "data")
    return flat


def _view_as_parts(flat: Tensor, parameters: list[nn.Parameter], attribute: str) -> None:
    start = 0
    for parameter in parameters:
        setattr(parameter, attribute, flat[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()


def backward_rows(B: nn.Module, g: Tensor, index: Tensor) -> Tensor:
    """(n, d) B(g[index]); computed once for each row of g where that is fewer rows."""
    if len(g) < len(index):
        return torch.index_select(B(g), 0, index)
    rows: Tensor = B(g[index])
    return rows


@torch.no_grad()
def bellman_targets(learner: Learner, batch: Batch, temperature: float) -> Targets:
    """The targets of a stack of minibatches at once: larger matrix products, the same numbers."""
    F_next = expected_forward(learner.F_target(batch.next_x, batch.z), batch.z, temperature)
    return Targets(F_next, backward_rows(learner.B_target, batch.g, batch.other))


def update(learner: Learner, batch: Batch, targets: Targets, orthonormality: float) -> dict[str, Tensor]:
    """One gradient step on both networks; returns metrics that are still tensors, so that nothing waits for them."""
    b = len(batch.actions)
    B_both = backward_rows(learner.B, batch.g, torch.cat([batch.here, batch.other]))  # (2b, d), one pass for both
    B, B_other = B_both[:b], B_both[b:]
    F_all = learner.F(batch.x, batch.z)  # (b, A, d)
    taken = batch.actions[:, None, None].expand(-1, 1, F_all.shape[2])
    F = F_all.gather(1, taken).squeeze(1)  # (b, d); gather has a faster backward pass than indexing
    bellman = fb_loss(F, B, B_other, targets.F_next, targets.B, batch.discount)
    orthonormal = orthonormality_loss(B, B_other)
    learner.optimiser.zero_grad(set_to_none=False)  # the gradients are views too: they must stay in place
    (bellman + orthonormality * orthonormal).backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    learner.optimiser.step()
    return {"bellman_loss": bellman.detach(), "orthonormality_loss": orthonormal.detach()}
