"""The gradient step for actions of a box, against finite differences and numbers computed by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import Tensor

from anyreward.learning.batch import Batch
from anyreward.learning.box_update import actor_q, box_targets, box_update
from anyreward.learning.fast.flat import FlatNetworks
from anyreward.learning.settings import Settings
from anyreward.learning.update import Learner, Targets
from anyreward.model.actor import Actor, ForwardBox, combined, smoothed
from anyreward.model.latent import preprocess_z
from anyreward.model.losses import fb_loss, orthonormality_loss
from anyreward.model.networks import Backward

b, d, width, actions = 6, 3, 2, 2


def settings(**changes: Any) -> Settings:
    return Settings().with_(dim=d, hidden=8, smoothing=0.0, **changes)


def made(members: int = 1, actor: bool = True) -> tuple[Learner, Batch]:
    torch.manual_seed(0)
    F = ForwardBox(width, actions, d, 8, 3, members).double()
    B, pi = Backward(width, d, 8, 2, False).double(), Actor(width, actions, d, 8, 3).double() if actor else None
    learner = Learner(F, B, actor=pi)
    z = torch.randn(1, b, d).double()
    batch = Batch(
        x=torch.randn(1, b, width).double(),
        actions=2 * torch.rand(1, b, actions).double() - 1,
        counts=torch.zeros(1, 0),
        next_x=torch.randn(1, b, width).double(),
        discount=torch.full((1, b), 0.9).double(),
        z=z,
        shown_z=preprocess_z(z),
        g=torch.randn(1, 2 * b, width).double(),
        here=torch.arange(b)[None],
        first=torch.full((1, b), 1 / b).double(),
        second=torch.full((1, b), 1 / b).double(),
    )
    return learner, batch


def test_two_f_by_hand() -> None:
    F = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, -1.0]]])  # (E, n, d)
    z = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert combined(F, z, least=False).tolist() == [[2.0, 0.0], [0.0, 0.5]]
    assert combined(F, z, least=True).tolist() == [[1.0, 0.0], [0.0, -1.0]]
    assert combined(F[:1], z, least=True).tolist() == F[0].tolist()


def test_smoothing_is_clipped_twice() -> None:
    middle = smoothed(torch.zeros(10_000, 1), 0.2, 0.3, torch.Generator().manual_seed(0))
    assert float(middle.abs().max()) == pytest.approx(0.3)
    assert float(middle.std()) == pytest.approx(0.174, abs=0.01)  # a normal of 0.2, clipped at 0.3
    assert float(smoothed(torch.ones(1_000, 1), 0.2, 0.3, torch.Generator()).max()) == 1.0


@pytest.mark.parametrize("twin", ["off", "mean", "min"])
def test_targets_are_those_of_the_target_actor(twin: Any) -> None:
    learner, batch = made(1 if twin == "off" else 2)
    s = settings(twin=twin)
    targets = box_targets(learner, batch, s, torch.Generator().manual_seed(0))
    assert learner.actor_target is not None
    with torch.no_grad():
        a = learner.actor_target(batch.next_x[0], batch.shown_z[0])
        F = learner.F_target(batch.next_x[0], a, batch.shown_z[0])
    Q = (F * batch.z[0]).sum(2)
    expected = F.mean(0) if twin == "mean" else F[Q.argmin(0), torch.arange(b)]
    assert torch.allclose(targets.F_next[0], 0.9 * expected)


def test_targets_without_an_actor_are_a_softmax_over_drawn_actions() -> None:
    learner, batch = made(actor=False)
    s = settings(actor="samples", action_samples=5, temperature=0.7)
    targets = box_targets(learner, batch, s, torch.Generator().manual_seed(4))
    a = 2 * torch.rand(b * 5, actions, generator=torch.Generator().manual_seed(4)) - 1
    for i in range(b):
        x, shown = batch.next_x[0, i : i + 1], batch.shown_z[0, i : i + 1]
        each = [learner.F_target(x, a[5 * i + k][None].double(), shown) for k in range(5)]
        F = torch.cat([f[0] for f in each])  # (5, d)
        pi = torch.softmax(F @ batch.z[0, i] / 0.7, 0)
        assert torch.allclose(targets.F_next[0, i], 0.9 * pi @ F)


@pytest.mark.parametrize("members", [1, 2])
def test_gradients_are_those_of_the_losses(members: int) -> None:
    """Of F and B by autograd of the losses; of the actor by finite differences."""
    learner, stack = made(members)
    batch, s = stack.each()[0], settings(twin="mean" if members == 2 else "off", orthonormality=0.7)
    targets = Targets(torch.randn(b, d).double(), torch.randn(b, d).double())
    before = [p.detach().clone() for net in (learner.F, learner.B, learner.actor) for p in net.parameters()]  # type: ignore[union-attr]
    random = torch.Generator().manual_seed(0)
    box_update(learner, batch, targets, s, learning_rate=0.0, random=random)
    found = learner.networks.gradient.clone()
    assert all(torch.equal(p, old) for p, old in zip(_all(learner), before, strict=True))  # a learning rate of zero

    Fs, B = learner.F(batch.x, batch.actions, batch.shown_z), learner.B(batch.g)
    one = torch.ones(b).double()
    bellman = [fb_loss(F, B[:b], B[b:], targets.F_next, targets.B, one, batch.second) for F in Fs]
    parts = list(learner.F.parameters()), list(learner.B.parameters())
    dF = torch.autograd.grad(sum(bellman), parts[0], retain_graph=True)  # type: ignore[arg-type]
    whole = sum(bellman) / members + 0.7 * orthonormality_loss(B[:b], B[b:], batch.second)
    dB = torch.autograd.grad(whole, parts[1])  # type: ignore[arg-type]
    for p, expected in zip([*parts[0], *parts[1]], [*dF, *dB], strict=True):
        assert p.grad is not None
        assert torch.allclose(p.grad, expected, atol=1e-10)
    assert found.abs().sum() > 0
    _check_actor(learner, batch, s)


def _all(learner: Learner) -> list[Tensor]:
    return [p for net in (learner.F, learner.B, learner.actor) for p in net.parameters()]  # type: ignore[union-attr]


def _check_actor(learner: Learner, batch: Batch, s: Settings) -> None:
    assert learner.actor is not None
    assert isinstance(learner.F, ForwardBox)
    F = learner.F

    def loss() -> float:
        with torch.no_grad():
            seen = F.seen(batch.x, batch.shown_z)
            return -float(actor_q(learner, batch.x, batch.z, batch.shown_z, seen, s, None).mean())

    for p in learner.actor.parameters():
        flat, gradient = p.data.view(-1) if p.data.is_contiguous() else p.data.t().reshape(-1), p.grad
        assert gradient is not None
        index = (0,) * p.ndim
        old, eps = float(p.data[index]), 1e-6
        p.data[index] = old + eps
        up = loss()
        p.data[index] = old - eps
        down = loss()
        p.data[index] = old
        assert (up - down) / (2 * eps) == pytest.approx(float(gradient[index]), abs=1e-6)
        assert flat.numel() == p.numel()


def test_each_network_has_its_own_learning_rate() -> None:
    nets = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    flat = FlatNetworks(nets, [1.0, 0.0, 0.1])
    before = flat.flat.clone()
    flat.gradient.fill_(1.0)
    flat.step(0.01)
    change = (before - flat.flat).split(6)
    assert [round(float(part.mean()), 5) for part in change] == [0.01, 0.0, 0.001]
    assert float(flat.count) == 1
    same = FlatNetworks([torch.nn.Linear(2, 2) for _ in range(2)])
    assert len(same.parts) == 1  # one Adam step for all, as without rates


def test_actors_of_images_and_categories() -> None:
    rows = torch.randint(0, 256, (3, 2 * 40 * 40), dtype=torch.uint8)
    pi = Actor(0, 2, d, 8, 3, image=(2, 40, 40))
    assert pi(rows, torch.randn(3, d)).shape == (3, 2)
    F = ForwardBox(5, 2, d, 8, 3)
    columns = torch.tensor([[0, 4], [1, 3]])  # one-hot columns
    dense = torch.zeros(2, 5).scatter_(1, columns, 1.0)
    z, a = torch.randn(2, d), torch.randn(2, 2)
    assert torch.equal(F(columns, a, z), F(dense, a, z))
    assert isinstance(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box)


@pytest.mark.parametrize("members", [1, 2])
def test_what_is_seen_of_a_state_serves_for_all_actions(members: int) -> None:
    F = ForwardBox(width, actions, d, 8, 3, members).double()
    x, z = torch.randn(b, width).double(), torch.randn(b, d).double()
    one, several = torch.randn(b, actions).double(), torch.randn(b, 5, actions).double()
    known = F.seen(x, z)
    assert torch.equal(F.at(known, one), F(x, one, z))
    every = F.at(known, several.flatten(0, 1)).view(members, b, 5, d)
    for k in range(5):
        assert torch.allclose(every[:, :, k], F(x, several[:, k], z))
