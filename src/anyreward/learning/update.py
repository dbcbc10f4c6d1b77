"""One gradient step on F and B (Algorithm 1, lines 18 to 22), and the moving target networks.

All of it runs in inference mode: without autograd's bookkeeping each of its hundred small operations is cheaper.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from anyreward.representation.derivatives import (
    RunBackward,
    RunBias,
    RunForward,
    backward_all,
    bias_all,
    forward_taken,
    rounding,
)
from anyreward.representation.losses import (
    BiasTerms,
    Moments,
    expected_forward,
    fb_gradients,
    fb_loss,
    moments,
    orthonormality_loss,
)

Losses = Callable[[], dict[str, Tensor]]
"""Computes the losses of an update when they are asked for."""

TARGET_ROWS = 640
"""Rows that the target networks see at once: large matrix products, and small enough for a processor's cache. Of images
one minibatch is as much."""


class Batch(NamedTuple):
    """Encoded rows that updates see: one minibatch, or n of them stacked along a first dimension of every field."""

    x: Tensor
    """(b, width) observations s_i, or (b, k) their one-hot columns"""
    actions: Tensor
    """(b,) a_i, in ascending order"""
    counts: Tensor
    """(A,) how often each action was taken; empty where actions come in any order"""
    next_x: Tensor
    """(b, width) next observations s_{i+1}"""
    discount: Tensor
    """(b,) gamma, or 0 where the transition terminated"""
    z: Tensor
    """(b, d) z_i, independent of the second minibatch"""
    shown_z: Tensor
    """(b, d) z_i as F sees it"""
    g: Tensor
    """(m, features) the features of both minibatches, each distinct one once where they are categories"""
    here: Tensor
    """(b,) phi(s_i, a_i), as rows of ``g``; phi(s_{i+1}) where successor measures count from t = 1"""
    first: Tensor
    """weights of the first rows of ``g`` in the first minibatch"""
    second: Tensor
    """weights of the last rows of ``g`` in the second, independent minibatch"""

    def split(self, n: int) -> tuple[Batch, Batch]:
        """The first n minibatches of a stack, and the others."""
        return Batch(*(field[:n] for field in self)), Batch(*(field[n:] for field in self))

    def each(self) -> list[Batch]:
        """The minibatches of a stack."""
        return [Batch(*fields) for fields in zip(*(field.unbind() for field in self), strict=True)]


class Targets(NamedTuple):
    """The target networks' part of the Bellman loss, stacked as the batch is; constant until the targets move."""

    F_next: Tensor
    """(b, d) discount_i sum_a pi_z(a | s_{i+1}) F(s_{i+1}, a, z_i)"""
    B: Tensor
    """(len(second), d) B of the second minibatch"""
    bias: Tensor | None = None
    """(b, len(second)) discount_i m-bar(s_{i+1}, z_i, g'_j), where there is a bias"""

    def each(self) -> list[Targets]:
        """Those of the minibatches of a stack."""
        biases = [None] * len(self.B) if self.bias is None else self.bias.unbind()
        return [Targets(*fields) for fields in zip(self.F_next.unbind(), self.B.unbind(), biases, strict=True)]


class MovingMoments:
    """Moving averages of the moments, which let every pair of samples meet many others.

    For fixed networks they are unbiased, with less variance the smaller the share. Behind networks that move they lag
    by about 1/share updates, and a gradient that lags overshoots: docs/speed.md has the measurements.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.average: Moments | None = None

    def fold(self, newest: Moments) -> Moments:
        """The averages with the moments of the newest minibatch taken in."""
        old = self.average or newest
        self.average = Moments(*(torch.lerp(a, n, self.share) for a, n in zip(old, newest, strict=True)))
        return self.average


class KnownMoments:
    """The moments of a B that is given: those of the data in the place of a minibatch's."""

    def __init__(self) -> None:
        self.average: Moments | None = None
        """never: there is nothing to remember"""
        self.BB: Tensor | None = None
        """(d, d) E[B B^T]"""

    def fold(self, newest: Moments) -> Moments:
        """The moments of the newest minibatch, but for those of B."""
        assert self.BB is not None
        return newest._replace(BB=self.BB, BB_target=self.BB)


class Adam:
    """PyTorch's Adam on one flat vector, without the bookkeeping of an optimiser of many."""

    def __init__(self, flat: Tensor, gradient: Tensor, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.flat, self.gradient, self.count = flat, gradient, torch.zeros((), device=flat.device)
        self.mean, self.square = torch.zeros_like(flat), torch.zeros_like(flat)  # of past gradients

    def step(self) -> None:
        """One step along the gradient."""
        adam(
            [self.flat],
            [self.gradient],
            [self.mean],
            [self.square],
            [],
            [self.count],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )


@dataclass(frozen=True)
class Learner:
    """The networks being learned, their slowly moving targets, and one Adam over all.

    The parameters of F and B, and of m-bar where there is a bias, are views of one flat vector, and so are the
    targets': Adam and the moving targets then take one operation each instead of one for every layer. Weight matrices
    lie in it by input, so that a look-up of one-hot inputs reads whole rows.
    """

    F_target: nn.Module
    B_target: nn.Module
    run_F: RunForward
    """F for the actions taken, with its derivative"""
    run_B: RunBackward
    """B, with its derivative"""
    flat: Tensor
    """(parameters,) of F and B"""
    gradient: Tensor
    """(parameters,) where the derivatives are written"""
    flat_target: Tensor
    """(parameters,) of the targets"""
    optimiser: Adam
    averages: MovingMoments | KnownMoments | None = None
    bfloat16: bool = False
    first_step: int = 0
    """from which t on successor measures count"""
    bias_target: nn.Module | None = None
    run_bias: RunBias | None = None
    """m-bar, with its derivative, where there is one"""

    @torch.no_grad()
    def move_targets(self, retention: float) -> None:
        """theta- <- alpha theta- + (1 - alpha) theta, for F and B."""
        self.flat_target.lerp_(self.flat, 1 - retention)


def make_learner(
    F: nn.Module,
    B: nn.Module,
    learning_rate: float,
    averages: MovingMoments | KnownMoments | None = None,
    prepare: Callable[[nn.Module], nn.Module] | None = None,
    bfloat16: bool = False,
    bias: nn.Module | None = None,
    first_step: int = 0,
) -> Learner:
    """A learner of F and B in place, and of a bias if there is one, with targets equal to them and one Adam over all.

    ``prepare`` makes of each network what is run in its place, such as a compiled one. Then, and with ``bfloat16``,
    autograd finds the derivatives.
    """
    online = nn.ModuleList([F, B] if bias is None else [F, B, bias])
    targets = copy.deepcopy(online).requires_grad_(False)
    flat = _flatten([*online.parameters()])
    gradient = torch.zeros_like(flat)
    _view_as_parts(gradient, [*online.parameters()], "grad")
    flat_target = _flatten([*targets.parameters()])
    F_target, B_target, *bias_target = targets
    if not any(True for _ in B.parameters()):
        B_target = B  # it is given, and never moves
    if prepare is not None:
        F, B, F_target, B_target = (prepare(network) for network in (F, B, F_target, B_target))
    return Learner(
        F_target,
        B_target,
        forward_taken(F, bfloat16),
        backward_all(B, bfloat16),
        flat,
        gradient,
        flat_target,
        Adam(flat, gradient, learning_rate),
        averages,
        bfloat16,
        first_step,
        *bias_target,
        *([] if bias is None else [bias_all(bias, bfloat16)]),
    )


def _flatten(parameters: list[nn.Parameter]) -> Tensor:
    """Move parameters into one vector; they become views of it."""
    flat = torch.cat([_by_input(parameter.detach()).reshape(-1) for parameter in parameters])
    _view_as_parts(flat, parameters, "data")
    return flat


def _view_as_parts(flat: Tensor, parameters: list[nn.Parameter], attribute: str) -> None:
    start = 0
    for parameter in parameters:
        part = flat[start : start + parameter.numel()].view(_by_input(parameter).shape)
        setattr(parameter, attribute, _as_used(part))
        start += parameter.numel()


def _by_input(weight: Tensor) -> Tensor:
    """As it lies in memory: a weight matrix (outputs, inputs) turned, a convolution's with its channels last."""
    return weight.T if weight.ndim == 2 else weight.permute(0, 2, 3, 1) if weight.ndim == 4 else weight


def _as_used(stored: Tensor) -> Tensor:
    """The inverse of `_by_input`."""
    return stored.permute(0, 3, 1, 2) if stored.ndim == 4 else _by_input(stored)


@torch.inference_mode()
def bellman_targets(learner: Learner, batch: Batch, temperature: float) -> Targets:
    """The targets of a stack of minibatches at once: larger matrix products, the same numbers."""
    n, b = batch.actions.shape
    images = batch.next_x.dtype == torch.uint8
    k, step = batch.second.shape[1], 1 if images else max(1, TARGET_ROWS // b)
    g = batch.g[:, batch.g.shape[1] - k :]
    shared = g.stride(0) == 0  # categories: all minibatches refer to the same features
    with rounding(batch.z.device, learner.bfloat16):
        F_next = [
            expected_forward(learner.F_target(x.flatten(0, 1), shown.flatten(0, 1)), z.flatten(0, 1), temperature)
            for x, z, shown in zip(*(torch.split(t, step) for t in (batch.next_x, batch.z, batch.shown_z)), strict=True)
        ]
        B = learner.B_target(g[0] if shared else g.flatten(0, 1)).to(batch.z.dtype)
        bias = None
        if learner.bias_target is not None:  # (n, b, k)
            m = [learner.bias_target(*one) for one in zip(batch.next_x, batch.shown_z, g, strict=True)]
            bias = batch.discount[:, :, None] * torch.stack(m).to(batch.z.dtype)
    discounted = batch.discount.view(-1, 1) * torch.cat(F_next)  # (n b, d)
    return Targets(discounted.view(n, b, -1), B.expand(n, -1, -1) if shared else B.view(n, k, -1), bias)


def updates(
    learner: Learner, group: Batch, learning_rates: Sequence[float], temperature: float, orthonormality: float
) -> Losses:
    """The updates of a group of minibatches, between two moves of the targets; the losses are the last one's."""
    targets = bellman_targets(learner, group, temperature)
    for batch, target, rate in zip(group.each(), targets.each(), learning_rates, strict=True):
        learner.optimiser.learning_rate = rate
        last = update(learner, batch, target, orthonormality)
    return last


@torch.inference_mode()
def update(learner: Learner, batch: Batch, targets: Targets, orthonormality: float) -> Losses:
    """One gradient step on both networks; returns a function that computes the losses before the step."""
    B, pull_back_B = learner.run_B(batch.g)  # (m, d)
    counts = batch.counts.tolist() if batch.counts.numel() else []
    F, pull_back_F = learner.run_F(batch.x, batch.shown_z, batch.actions, counts)  # (b, d)
    average = None
    if learner.averages is not None:
        B_second = B[len(B) - len(batch.second) :]
        average = learner.averages.fold(moments(F, B_second, batch.second, targets.F_next, targets.B))
    m_bar, offset, pull_back_bias = None, None, None
    if learner.run_bias is not None:
        assert targets.bias is not None
        m_bar, pull_back_bias = learner.run_bias(batch.x, batch.shown_z, batch.g)  # (b, m)
        offset = m_bar[:, len(B) - len(batch.second) :] - targets.bias
    weight = batch.discount if learner.first_step else None
    dF, dB, doffset = fb_gradients(
        F, B, batch.here, batch.first, batch.second, targets.F_next, targets.B, orthonormality, average, weight, offset
    )
    pull_back_F(dF)
    pull_back_B(dB)
    if pull_back_bias is not None:
        assert m_bar is not None
        pull_back_bias(bias_gradient(m_bar, doffset, batch.here, weight))
    learner.optimiser.step()
    return partial(losses, F, B, batch, targets, weight, m_bar)


def bias_gradient(m_bar: Tensor, doffset: Tensor | None, here: Tensor, weight: Tensor | None) -> Tensor:
    """(b, m) the gradient of fb_loss with respect to m-bar of all rows of features, of which the last k are others'."""
    assert doffset is not None
    b, k = doffset.shape
    gradient = torch.zeros_like(m_bar)
    gradient[:, m_bar.shape[1] - k :] = doffset
    own = torch.ones_like(doffset[:, 0]) if weight is None else weight
    return gradient.scatter_add_(1, here[:, None], -own[:, None] / b)


def losses(
    F: Tensor,
    B: Tensor,
    batch: Batch,
    targets: Targets,
    weight: Tensor | None = None,
    m_bar: Tensor | None = None,
) -> dict[str, Tensor]:
    """Both losses of a minibatch, of F (b, d) for the actions taken, B (m, d) and m-bar (b, m) if there is one."""
    k = len(batch.second)
    B_here, B_second = B[batch.here], B[len(B) - k :]
    whole = torch.ones_like(batch.discount)  # F_next is discounted already
    bias = None
    if m_bar is not None and targets.bias is not None:
        bias = BiasTerms(m_bar.gather(1, batch.here[:, None]).squeeze(1), m_bar[:, len(B) - k :], targets.bias)
    return {
        "bellman_loss": fb_loss(
            F, B_here, B_second, targets.F_next, targets.B, whole, batch.second, here=weight, bias=bias
        ),
        "orthonormality_loss": orthonormality_loss(B_here, B_second, batch.second),
    }
