"""The chain rule as we write it out against autograd, in float64."""

from __future__ import annotations

import copy
from typing import NamedTuple, TypeVar

import pytest
import torch
from anyreward.model.derivatives import backward_all, forward_taken
from gymnasium import spaces
from torch import Tensor, nn

from anyreward.learning.update import make_learner
from anyreward.model import Backward, Encoder, Forward
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


def networks(layer_norm: bool) -> tuple[Forward, Backward]:
    F, B = Forward(WIDTH, A, D, HIDDEN, 3, layer_norm), Backward(WIDTH, D, HIDDEN, 3, layer_norm)
    return randomised(F), randomised(B)


class CustomF(nn.Module):
    """No network of ours; it takes numbers only."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(WIDTH, A, D))
        self.scale = nn.Linear(D, D)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return torch.einsum("bw,wad->bad", x, self.table).tanh() * self.scale(z)[:, None]


def assert_gradients(network: nn.Module, value: Tensor, expected: Tensor, weight: Tensor, plain: nn.Module) -> None:
    """The value is as expected, and the gradients of ``network`` are those that autograd finds for ``plain``."""
    assert torch.allclose(value, expected, rtol=1e-10, atol=1e-10)
    gradients = torch.autograd.grad((weight * expected).sum(), list(plain.parameters()))
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, rtol=1e-10, atol=1e-10)


KINDS = pytest.mark.parametrize("kind", ["numbers", "one column", "two columns"])
LAYER_NORM = pytest.mark.parametrize("layer_norm", [False, True])


@KINDS
@LAYER_NORM
@pytest.mark.parametrize("in_order", [True, False])
def test_forward_is_as_autograd_has_it(kind: str, layer_norm: bool, in_order: bool) -> None:
    torch.manual_seed(0)
    F, B = networks(layer_norm)
    plain = copy.deepcopy(F)
    learner = make_learner(F, B, 1e-3)
    for counts in COUNTS:  # the second time, nothing of the first may be left
        x, z, weight = rows(kind), torch.randn(N, D).double(), torch.randn(N, D).double()
        actions = torch.arange(A).repeat_interleave(torch.tensor(counts))
        if not in_order:
            actions = actions[torch.randperm(N)]
        value, pull_back = learner.run_F(x.given, z, actions, counts if in_order else [])
        pull_back(weight)
        every = plain.net(torch.cat([x.dense, z], dim=1)).view(N, A, D)
        assert_gradients(F, value, every[torch.arange(N), actions], weight, plain)
        untaken = F.net[-1].weight.grad.view(A, D, HIDDEN)[torch.tensor(counts) == 0]  # type: ignore[union-attr]
        assert not untaken.any()


@KINDS
@LAYER_NORM
def test_backward_is_as_autograd_has_it(kind: str, layer_norm: bool) -> None:
    torch.manual_seed(1)
    F, B = networks(layer_norm)
    plain = copy.deepcopy(B)
    learner = make_learner(F, B, 1e-3)
    for _ in range(2):
        g, weight = rows(kind), torch.randn(N, D).double()
        value, pull_back = learner.run_B(g.given)
        pull_back(weight)
        assert_gradients(B, value, plain.net(g.dense), weight, plain)


@pytest.mark.parametrize("counts", [*COUNTS, []])
def test_any_other_module_goes_through_autograd(counts: list[int]) -> None:
    torch.manual_seed(2)
    F, B = randomised(CustomF()), randomised(nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, D)))
    plain_F, plain_B = copy.deepcopy(F), copy.deepcopy(B)
    learner = make_learner(F, B, 1e-3)
    actions = torch.arange(A).repeat_interleave(torch.tensor(counts or COUNTS[0]))
    for _ in range(2):
        x, z, weight = rows("numbers").given, torch.randn(N, D).double(), torch.randn(N, D).double()
        value, pull_back = learner.run_F(x, z, actions, counts)
        pull_back(weight)
        assert_gradients(F, value, plain_F(x, z)[torch.arange(N), actions], weight, plain_F)
        value, pull_back = learner.run_B(x)
        pull_back(weight)
        assert_gradients(B, value, plain_B(x), weight, plain_B)


def test_gradients_lie_where_the_optimiser_reads_them() -> None:
    torch.manual_seed(3)
    F, B = networks(True)
    learner = make_learner(F, B, 1e-3)
    x, z, ones = rows("two columns").given, torch.randn(N, D).double(), torch.ones(N, D).double()
    actions = torch.arange(A).repeat_interleave(torch.tensor(COUNTS[0]))
    learner.run_F(x, z, actions, COUNTS[0])[1](ones)
    learner.run_B(x)[1](ones)
    parts = [p.grad.T if p.ndim == 2 else p.grad for p in (*F.parameters(), *B.parameters())]  # type: ignore[union-attr]
    assert learner.gradient is not None
    assert torch.equal(learner.gradient, torch.cat([part.reshape(-1) for part in parts]))
    assert learner.gradient.count_nonzero() > len(learner.flat) / 2


def test_networks_without_gradients_to_set_are_refused() -> None:
    F, B = networks(False)
    for make in (lambda: forward_taken(F), lambda: backward_all(B)):
        with pytest.raises(ValueError, match="make a Learner first"):
            make()


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
