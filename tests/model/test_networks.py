"""The networks in float64: actions taken against all actions, gradients of an update against plain autograd."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from anyreward.learning.batch import Batch
from anyreward.learning.update import Learner, bellman_targets, forward_taken, update
from anyreward.model import Backward, Encoder, Forward, expected_forward, fb_loss, orthonormality_loss
from anyreward.model.latent import preprocess_z
from anyreward.model.networks import input_layer

Network = TypeVar("Network", bound=nn.Module)

WIDTH, A, D, HIDDEN = 6, 3, 4, 8
COUNTS = ([5, 0, 7], [0, 12, 0])
"""How often each action is taken, one after the other; one at least never is."""
N = sum(COUNTS[0])


class Rows(NamedTuple):
    given: Tensor
    """what our networks take: the encoding itself, or its columns"""
    dense: Tensor
    """(n, WIDTH) the encoding"""


def rows(kind: str) -> Rows:
    """Random inputs; with so few columns, many of them repeat."""
    if kind == "numbers":
        x = torch.randn(N, WIDTH, dtype=torch.float64)
        return Rows(x, x)
    sizes = [WIDTH] if kind == "one column" else [WIDTH // 2, WIDTH // 2]
    encoder = Encoder(spaces.MultiDiscrete(sizes))
    packed = torch.stack([torch.randint(size, (N,)) for size in sizes], dim=1).double()
    return Rows(encoder.columns(packed), encoder(packed))


def randomised(network: Network) -> Network:
    """In float64, and with no parameter at 0 or 1, where layer normalisation starts."""
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.7)
    return network.double()


def networks(layer_norm: bool, **shape: Any) -> tuple[Forward, Backward]:
    F, B = Forward(WIDTH, A, D, HIDDEN, 3, layer_norm, **shape), Backward(WIDTH, D, HIDDEN, 3, layer_norm)
    return randomised(F), randomised(B)


class CustomF(nn.Module):
    """No network of ours; it takes numbers only."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(WIDTH, A, D))
        self.scale = nn.Linear(D, D)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return torch.einsum("bw,wad->bad", x, self.table).tanh() * self.scale(z)[:, None]


class AnyF(nn.Module):
    """F of ours on dense rows as one would first write it: the deep and the wide network on every action's inputs."""

    def __init__(self, F: Forward) -> None:
        super().__init__()
        self.parts, self.action_input = nn.ModuleList(copy.deepcopy(F.parts)), F.action_input

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        if not self.action_input:
            whole = torch.cat([x, z], dim=1)
            return sum(part(whole) for part in self.parts).view(len(x), A, D)
        blocks = torch.eye(A, dtype=x.dtype)[:, None, :, None] * x[None, :, None]  # (A, n, A, WIDTH)
        inputs = torch.cat([blocks.flatten(2), z.expand(A, -1, -1)], dim=2)
        return sum(part(inputs) for part in self.parts).transpose(0, 1)


def gradients_of(network: nn.Module) -> list[Tensor]:
    """Its parameters' gradients, of which none is missing."""
    found = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None for gradient in found)
    return found  # type: ignore[return-value]


def assert_close(found: list[Tensor], expected: tuple[Tensor, ...] | list[Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-10)


KINDS = pytest.mark.parametrize("kind", ["numbers", "one column", "two columns"])
LAYER_NORM = pytest.mark.parametrize("layer_norm", [False, True])
SHAPES = pytest.mark.parametrize(
    "shape",
    [{}, {"wide": 2}, {"action_input": True}, {"action_input": True, "wide": 2}],
    ids=["deep", "deep and wide", "action as input", "action as input, deep and wide"],
)


def actions_of(counts: list[int], in_order: bool) -> Tensor:
    actions = torch.arange(A).repeat_interleave(torch.tensor(counts))
    return actions if in_order else actions[torch.randperm(N)]


@KINDS
@LAYER_NORM
@SHAPES
@pytest.mark.parametrize("in_order", [True, False])
def test_taken_is_the_gather_of_all_actions(kind: str, layer_norm: bool, shape: dict[str, Any], in_order: bool) -> None:
    """The value, and the gradients that autograd finds; without counts, actions may come in any order."""
    torch.manual_seed(0)
    F, _ = networks(layer_norm, **shape)
    plain = AnyF(F)
    for counts in COUNTS:
        x, z, weight = rows(kind), torch.randn(N, D).double(), torch.randn(N, D).double()
        actions = actions_of(counts, in_order)
        value = forward_taken(F, x.given, z, actions, torch.tensor(counts if in_order else []))
        every = F(x.given, z)
        assert every.shape == (N, A, D)
        assert torch.allclose(value, every[torch.arange(N), actions], rtol=1e-10, atol=1e-10)
        expected = plain(x.dense, z)[torch.arange(N), actions]
        assert torch.allclose(value, expected, rtol=1e-10, atol=1e-10)
        found = torch.autograd.grad((weight * value).sum(), list(F.parameters()))
        assert_close(list(found), torch.autograd.grad((weight * expected).sum(), list(plain.parameters())))


def minibatch(kind: str, counts: list[int], in_order: bool, shared: bool) -> tuple[Batch, Batch]:
    """A minibatch as our networks take it, and the same with dense rows; features are shared rows, or all different."""
    x, next_x, g = rows(kind), rows(kind), rows(kind)
    m = N if shared else N // 2  # rows of each minibatch: the gradients by moments, and by pairs
    share = torch.rand(m).double() if shared else torch.ones(m, dtype=torch.float64)
    here = torch.randint(m, (N,))
    batch = Batch(
        x=x.given,
        actions=actions_of(counts, in_order),
        counts=torch.tensor(counts if in_order else [], dtype=torch.int64),
        next_x=next_x.given,
        discount=torch.where(torch.rand(N) < 0.2, 0.0, 0.9).double(),
        z=torch.randn(N, D).double(),
        shown_z=torch.randn(N, D).double(),
        g=g.given,
        here=here,
        first=torch.bincount(here, minlength=m).double() / N,
        second=share / share.sum(),
    )
    return batch, batch._replace(x=x.dense, next_x=next_x.dense, g=g.dense)


def assert_step_follows_autograd(
    learner: Learner, plain_F: nn.Module, plain_B: nn.Module, batch: Batch, dense: Batch
) -> None:
    """The gradient of an update is that of autograd for the losses of plain networks on dense rows."""
    (targets,) = bellman_targets(learner, Batch(*(field[None] for field in batch)), 2.0).each()
    k, one = len(dense.second), torch.ones(N, dtype=torch.float64)
    with torch.no_grad():
        F_next = dense.discount[:, None] * expected_forward(plain_F(dense.next_x, dense.shown_z), dense.z, 2.0)
        B_target = plain_B(dense.g)[len(dense.g) - k :]
    f, g = plain_F(dense.x, dense.shown_z)[torch.arange(N), dense.actions], plain_B(dense.g)
    here, other = g[dense.here], g[len(g) - k :]
    loss = fb_loss(f, here, other, F_next, B_target, one, dense.second)
    loss = loss + 0.7 * orthonormality_loss(here, other, dense.second)
    expected = torch.autograd.grad(loss, [*plain_F.parameters(), *plain_B.parameters()])
    report = update(learner, batch, targets, 0.7, learning_rate=0.0).losses()
    total = report["bellman_loss"] + 0.7 * report["orthonormality_loss"]
    assert float(total) == pytest.approx(float(loss.detach()), rel=1e-10)
    assert_close([*gradients_of(learner.F), *gradients_of(learner.B)], expected)


@KINDS
@LAYER_NORM
@SHAPES
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_gradients_of_an_update_are_as_autograd_has_them(
    kind: str, layer_norm: bool, shape: dict[str, Any], in_order: bool, shared: bool
) -> None:
    """The closed form enters at the outputs; with respect to all parameters it is the gradient of the losses."""
    torch.manual_seed(0)
    F, B = networks(layer_norm, **shape)
    plain_F, plain_B = AnyF(F), copy.deepcopy(B.net)
    learner = Learner(F, B)
    for counts in COUNTS:  # the second time, nothing of the first may be left
        batch, dense = minibatch(kind, counts, in_order, shared)
        assert_step_follows_autograd(learner, plain_F, plain_B, batch, dense)
        if not F.action_input:
            untaken = torch.tensor(counts) == 0
            for part in F.parts:
                assert not part[-1].weight.grad.view(A, D, -1)[untaken].any()  # type: ignore[union-attr,operator]


@pytest.mark.parametrize("counts", [*COUNTS, []])
@pytest.mark.parametrize("shared", [True, False])
def test_any_other_module_learns_too(counts: list[int], shared: bool) -> None:
    torch.manual_seed(2)
    F, B = randomised(CustomF()), randomised(nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, D)))
    plain_F, plain_B = copy.deepcopy(F), copy.deepcopy(B)
    learner = Learner(F, B)
    for _ in range(2):
        batch, dense = minibatch("numbers", counts or COUNTS[0], bool(counts), shared)
        assert_step_follows_autograd(learner, plain_F, plain_B, batch, dense)


def test_gradients_lie_where_the_optimiser_reads_them() -> None:
    torch.manual_seed(3)
    F, B = networks(True)
    learner = Learner(F, B)
    batch, _ = minibatch("two columns", COUNTS[0], in_order=True, shared=True)
    (targets,) = bellman_targets(learner, Batch(*(field[None] for field in batch)), 2.0).each()
    update(learner, batch, targets, 0.7, learning_rate=1e-3)
    parts = [gradient.T if gradient.ndim == 2 else gradient for gradient in (*gradients_of(F), *gradients_of(B))]
    gradient = learner.networks.gradient
    assert torch.equal(gradient, torch.cat([part.reshape(-1) for part in parts]))
    assert gradient.count_nonzero() > len(learner.networks.flat) / 2
    lies = gradient.untyped_storage().data_ptr()
    assert all(part.untyped_storage().data_ptr() == lies for part in parts)


@pytest.mark.parametrize("kind", ["one column", "two columns"])
@pytest.mark.parametrize("with_z", [False, True])
def test_looking_columns_up_is_multiplying_with_one_hot(kind: str, with_z: bool) -> None:
    torch.manual_seed(4)
    x, z = rows(kind), torch.randn(N, D).double() if with_z else None
    layer = nn.Linear(WIDTH + (D if with_z else 0), HIDDEN).double()
    weight = torch.randn(N, HIDDEN).double()
    looked_up, expected = input_layer(layer, x.given, z), input_layer(layer, x.dense, z)
    assert torch.allclose(expected, layer(x.dense if z is None else torch.cat([x.dense, z], dim=1)), rtol=1e-12)
    assert torch.allclose(looked_up, expected, rtol=1e-12)
    found, wanted = (torch.autograd.grad((weight * y).sum(), list(layer.parameters())) for y in (looked_up, expected))
    assert all(torch.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(found, wanted, strict=True))


@LAYER_NORM
def test_networks_on_columns_are_networks_on_one_hot(layer_norm: bool) -> None:
    torch.manual_seed(5)
    F, B = networks(layer_norm)
    x, z = rows("two columns"), torch.randn(N, D).double()
    assert torch.allclose(F(x.given, z), F(x.dense, z), rtol=1e-10, atol=1e-12)
    assert torch.allclose(F(x.given, z).flatten(1), F.net(torch.cat([x.dense, z], dim=1)), rtol=1e-10, atol=1e-12)
    assert torch.allclose(B(x.given), B.net(x.dense), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["numbers", "one column", "two columns"])
def test_an_action_as_input_chooses_the_weights_of_the_observation(kind: str) -> None:
    """By hand: the network on the observation in the action's block of inputs, zeros in the others, z beside them."""
    F = randomised(Forward(WIDTH, A, D, HIDDEN, 3, True, action_input=True, wide=2))
    assert F.wide is not None
    x, z = rows(kind), torch.randn(N, D, dtype=torch.float64)
    value = F(x.given, z)
    for a in range(A):
        blocks = torch.zeros(N, A, WIDTH, dtype=torch.float64)
        blocks[:, a] = x.dense
        whole = torch.cat([blocks.flatten(1), z], dim=1)
        assert torch.allclose(value[:, a], F.net(whole) + F.wide(whole))
    one = torch.randn(D, dtype=torch.float64)
    Q = F(x.given, preprocess_z(one).expand(N, -1)) @ one
    assert torch.allclose(F.q(x.given, one), Q)
