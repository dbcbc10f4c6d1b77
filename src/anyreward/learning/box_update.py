"""The gradient step for actions of a box: F and B as in Algorithm 1, and an actor that maximises F(s, pi_z(s), z) . z.

Without an actor, pi_z is a softmax over actions that are drawn anew for each state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from anyreward.learning.batch import Batch
from anyreward.learning.method import Metrics, Report
from anyreward.learning.settings import Settings
from anyreward.learning.update import Learner, Targets, in_pieces
from anyreward.model.actor import ForwardBox, Seen, combined, smoothed
from anyreward.model.losses import expected_forward, fb_gradients, fb_loss, given_gradient, orthonormality_loss

MOST_NOISE = 0.3
"""Largest noise of an action by smoothing, as in TD3."""


@torch.inference_mode()
def box_targets(learner: Learner, batch: Batch, s: Settings, random: torch.Generator) -> Targets:
    """F- and B- for a stack of minibatches, with the actions of the target actor or drawn ones."""
    (n, b), k = batch.discount.shape, batch.second.shape[1]
    g = batch.g[:, batch.g.shape[1] - k :]
    shared = g.stride(0) == 0  # categories: all minibatches refer to the same features
    width, F_target, actor = batch.actions.shape[2], learner.F_target, learner.actor_target
    assert isinstance(F_target, ForwardBox)

    def ahead(x: Tensor, shown: Tensor, z: Tensor) -> Tensor:
        if actor is not None:
            actions = smoothed(actor(x, shown), s.smoothing, MOST_NOISE, random)
            return combined(F_target(x, actions, shown), z, s.twin == "min")
        m, K = len(x), s.action_samples
        actions = 2 * torch.rand(m * K, width, generator=random, device=random.device) - 1
        F = combined(F_target.at(F_target.seen(x, shown), actions), z.repeat_interleave(K, 0), s.twin == "min")
        return expected_forward(F.view(m, K, -1), z, s.temperature)

    F_next = in_pieces(ahead, batch.next_x, batch.shown_z, batch.z)  # (n b, d)
    B = learner.B_target(g[0] if shared else g.flatten(0, 1))
    discounted = batch.discount.view(-1, 1) * F_next
    return Targets(discounted.view(n, b, -1), B.expand(n, -1, -1) if shared else B.view(n, k, -1))


def box_update(
    learner: Learner, batch: Batch, targets: Targets, s: Settings, learning_rate: float, random: torch.Generator
) -> Report:
    """One step of Adam on fb_loss + lambda orthonormality_loss for each F, and on the actor's loss.

    B gets the mean of the gradients that it has from each F.
    """
    assert isinstance(learner.F, ForwardBox)
    seen = learner.F.seen(batch.x, batch.shown_z)  # the same for the actions taken and for those of the actor
    Fs = learner.F.at(seen, batch.actions)  # (E, b, d)
    B = learner.B(batch.g)  # (m, d)
    weight = learner.weight(batch)
    data = (batch.here, batch.first, batch.second, targets.F_next, targets.B)
    with torch.no_grad():
        if learner.BB is not None:
            dF = torch.stack([given_gradient(F, B[batch.here], targets.F_next, learner.BB, weight) for F in Fs])
            dB = torch.zeros_like(B)
        else:
            parts = [fb_gradients(F, B, *data, s.orthonormality, weight) for F in Fs]
            dF, dB = torch.stack([part[0] for part in parts]), torch.stack([part[1] for part in parts]).mean(0)
    learner.networks.gradient.zero_()
    learned = [(value, gradient) for value, gradient in ((Fs, dF), (B, dB)) if value.requires_grad]
    torch.autograd.backward([value for value, _ in learned], [gradient for _, gradient in learned])
    Q = None
    if learner.actor is not None:
        fixed = [(x.detach(), of_z.detach()) for x, of_z in seen]
        Q = actor_q(learner, batch.x, batch.z, batch.shown_z, fixed, s, random)
        (-Q.mean()).backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        Q = Q.detach()
    learner.networks.step(learning_rate)
    F, B = Fs.detach(), B.detach()
    return Report(partial(_losses, learner, F, B, batch, targets), partial(_diagnostics, learner, F, B, batch, Q))


def actor_q(
    learner: Learner,
    x: Tensor,
    z: Tensor,
    shown: Tensor,
    seen: list[Seen],
    s: Settings,
    random: torch.Generator | None,
) -> Tensor:
    """(n,) F(s, pi_z(s), z) . z, whose mean the actor maximises; with smoothing, if ``random`` is given.

    ``seen`` is what F computes of (s, z), without gradients.
    """
    assert learner.actor is not None
    assert isinstance(learner.F_fixed, ForwardBox)
    actions = learner.actor(x, shown)
    if random is not None:
        actions = smoothed(actions, s.smoothing, MOST_NOISE, random)
    Q: Tensor = (combined(learner.F_fixed.at(seen, actions), z, s.actor_twin == "min") * z).sum(1)
    return Q


def box_updates(
    learner: Learner,
    s: Settings,
    random: torch.Generator,
    group: Batch,
    learning_rates: Sequence[float],
) -> Report:
    """The gradient updates of a group of minibatches between two target updates; reports the last one."""
    targets = box_targets(learner, group, s, random)
    for batch, target, rate in zip(group.each(), targets.each(), learning_rates, strict=True):
        last = box_update(learner, batch, target, s, rate, random)
    return last


@torch.inference_mode()
def _losses(learner: Learner, F: Tensor, B: Tensor, batch: Batch, targets: Targets) -> Metrics:
    """Both losses of a minibatch; that of the first F, if there are two."""
    k = len(batch.second)
    here, second, whole = B[batch.here], B[len(B) - k :], torch.ones_like(batch.discount)  # F_next is discounted
    data = (here, second, targets.F_next, targets.B, whole, batch.second)
    return {
        "bellman_loss": fb_loss(F[0], *data, here=learner.weight(batch)),
        "orthonormality_loss": orthonormality_loss(here, second, batch.second),
    }


@torch.inference_mode()
def _diagnostics(learner: Learner, F: Tensor, B: Tensor, batch: Batch, Q: Tensor | None) -> Metrics:
    """Metrics for debugging a run (docs/metrics.md)."""
    k = len(batch.second)
    second = B[len(B) - k :]
    BB = second.T @ (batch.second[:, None] * second)  # (d, d) E[B B^T]
    off = BB - torch.diag(BB.diagonal())
    taken = (F[0] * batch.z).sum(1)
    found = {
        "F_norm": F[0].norm(dim=1).mean(),
        "B_norm": batch.second @ second.norm(dim=1),
        "B_diagonal": BB.diagonal().mean(),
        "B_off_diagonal": off.norm() / max(len(BB) * (len(BB) - 1), 1) ** 0.5,
        "q_mean": taken.mean(),
        "q_std": taken.std(correction=0),
        **learner.gradient_norms(),
    }
    return found if Q is None else found | {"q_actor": Q.mean()}
