"""The networks F(s, ., z) and B(phi(s, a))."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from anyreward.representation.latent import preprocess_z


def mlp(inputs: int, outputs: int, hidden: int, layers: int, layer_norm: bool) -> nn.Sequential:
    """ReLU layers of equal width; ``layer_norm`` normalises before every ReLU but the last."""
    parts: list[nn.Module] = []
    for layer in range(layers):
        parts.append(nn.Linear(inputs if layer == 0 else hidden, hidden))
        if layer_norm and layer < layers - 1:
            parts.append(nn.LayerNorm(hidden))
        parts.append(nn.ReLU(inplace=True))
    parts.append(nn.Linear(hidden, outputs))
    return nn.Sequential(*parts)


class Eyes(nn.Module):
    """The paper's convolutions: images of bytes (n, frames * height * width) to numbers (n, width).

    Channels come last in memory, with which PyTorch's convolutions on a CPU are faster (docs/speed.md).
    """

    def __init__(self, image: tuple[int, int, int]) -> None:
        super().__init__()
        self.image = image
        self.net = nn.Sequential(
            nn.Conv2d(image[0], 32, 8, stride=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(inplace=True),
        )
        _, height, width = image
        self.width = 64 * _cells(height) * _cells(width)

    def forward(self, rows: Tensor) -> Tensor:
        """What the three convolutions make of images of bytes, (n, width)."""
        first, *others = self.net
        assert isinstance(first, nn.Conv2d)
        images = rows.view(-1, *self.image).to(first.weight.dtype, memory_format=torch.channels_last)
        # bytes are scaled to 0 to 1 by the weights, of which there are fewer
        seen = nn.functional.conv2d(images, first.weight / 255, first.bias, first.stride)
        return _run(others, seen).flatten(1)


def _cells(pixels: int) -> int:
    """Outputs of the three convolutions along one side."""
    return ((pixels - 8) // 4 + 1 - 4) // 2 + 1 - 2


def input_layer(layer: nn.Linear, x: Tensor, z: Tensor | None = None) -> Tensor:
    """(n, hidden) the first layer on x with z beside it: z (n, d), or (1, d) for all rows.

    Where x holds whole numbers (n, k), they are the columns of a one-hot encoding that are one: the layer then looks
    k rows up in its weights instead of multiplying with zeros.
    """
    weight, bias = layer.weight.T, layer.bias  # (inputs, hidden)
    if x.dtype != torch.int64 and (z is None or len(z) == len(x)):
        return torch.addmm(bias, x if z is None else torch.cat([x, z], dim=1), weight)
    width = len(weight) - (0 if z is None else z.shape[1])
    beside = bias if z is None else torch.addmm(bias, z, weight[width:])
    if x.dtype != torch.int64:
        return torch.addmm(beside, x, weight[:width])
    looked_up = nn.functional.embedding(x, weight[:width])  # (n, k, hidden)
    return looked_up.sum(1) + beside


def input_layer_of_actions(layer: nn.Linear, x: Tensor, z: Tensor, actions: int) -> Tensor:
    """(n A, hidden) the first layer for every action of every row, where the action is an input beside x.

    Each action has weights of its own for x and shares those for z: z (n, d), or (1, d) for all rows.
    """
    weight, width = layer.weight.T, (layer.in_features - z.shape[1]) // actions
    of_x, of_z = weight[: actions * width], torch.addmm(layer.bias, z, weight[actions * width :])
    if x.dtype == torch.int64:
        starts = width * torch.arange(actions, device=x.device)
        y = nn.functional.embedding(x[:, None] + starts[:, None], of_x).sum(2)  # (n, A, hidden)
    else:
        y = torch.bmm(x.expand(actions, -1, -1), of_x.view(actions, width, -1)).transpose(0, 1)
    return (y + of_z[:, None]).reshape(len(x) * actions, -1)


class Forward(nn.Module):
    """F: an encoded observation (n, width), or its columns (n, k), and z (n, d) to one vector an action (n, A, d).

    The action chooses a block of the last layer's outputs or, with ``action_input``, the weights of the observation in
    the first layer. Then all actions share the rest, and whatever leads to the same place can look the same to it.
    With ``wide``, a network of one hidden layer, that many times as wide, is added to the deep one. Observations that
    are images (n, bytes), of shape ``image``, go through convolutions first.

    With ``goal``, the width of an encoded goal, it is Q(s, ., g) of goal-oriented DQN instead: the goal takes the place
    of z, and d is one.
    """

    def __init__(
        self,
        width: int,
        actions: int,
        dim: int,
        hidden: int,
        layers: int,
        layer_norm: bool,
        action_input: bool = False,
        wide: int = 0,
        image: tuple[int, int, int] | None = None,
        goal: int = 0,
    ) -> None:
        super().__init__()
        self.eyes = Eyes(image) if image else None
        width, task, dim = self.eyes.width if self.eyes else width, goal or dim, 1 if goal else dim
        self.width, self.actions, self.dim, self.action_input, self.goal = width, actions, dim, action_input, goal
        inputs, outputs = (width * actions, dim) if action_input else (width, actions * dim)
        self.net = mlp(inputs + task, outputs, hidden, layers, layer_norm)
        self.wide = mlp(inputs + task, outputs, wide * hidden, 1, layer_norm) if wide else None

    @property
    def parts(self) -> list[nn.Sequential]:
        """The networks whose sum F is."""
        return [self.net] if self.wide is None else [self.net, self.wide]

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), of z as `preprocess_z` shows it; the inner product with z uses it raw."""
        x = self.see(x)
        F = self._all_actions(self.net, x, z)
        for part in self.parts[1:]:
            F = F + self._all_actions(part, x, z)
        return F.view(-1, self.actions, self.dim)

    def q(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, A) F(s, a, z) . z for one raw z (d,): z folded into the last layer, which then has A outputs, not A d.

        Q(s, a, g) for one encoded goal, where it is that.
        """
        if self.goal:
            Q_of_goal: Tensor = self(x, z[None].expand(len(x), -1)).squeeze(2)
            return Q_of_goal
        x = self.see(x)
        Q = x.new_zeros(len(x), self.actions, dtype=z.dtype)
        for *trunk, last in self.parts:
            assert isinstance(last, nn.Linear)
            h = self._all_actions(trunk, x, preprocess_z(z)[None])
            weight = torch.einsum("adh,d->ah", last.weight.view(-1, self.dim, h.shape[1]), z)
            Q += torch.addmm(last.bias.view(-1, self.dim) @ z, h, weight.T).view(len(x), self.actions)
        return Q

    def see(self, x: Tensor) -> Tensor:
        """What the fully connected layers get: images after the convolutions, anything else as it is."""
        seen: Tensor = x if self.eyes is None else self.eyes(x)
        return seen

    def pair(self, x: Tensor, actions: Tensor) -> Tensor:
        """What the network sees of observations (n, ...) and actions (n,), where the action is an input."""
        if x.dtype == torch.int64:
            return x + self.width * actions[:, None]
        blocks = x.new_zeros(len(x), self.actions, self.width)
        blocks[torch.arange(len(x), device=x.device), actions] = x
        return blocks.flatten(1)

    def _all_actions(self, net: Iterable[nn.Module], x: Tensor, z: Tensor) -> Tensor:
        first, *others = net
        assert isinstance(first, nn.Linear)
        by_action = self.action_input
        y = input_layer_of_actions(first, x, z, self.actions) if by_action else input_layer(first, x, z)
        return _run(others, y)


class Backward(nn.Module):
    """B: encoded features (n, width), or their columns (n, k), to (n, d)."""

    def __init__(self, width: int, dim: int, hidden: int, layers: int, layer_norm: bool) -> None:
        super().__init__()
        self.net = mlp(width, dim, hidden, layers, layer_norm)

    def forward(self, g: Tensor) -> Tensor:
        """B(g), (n, d)."""
        first, *others = self.net
        assert isinstance(first, nn.Linear)
        return _run(others, input_layer(first, g))


class GoalInput(nn.Module):
    """In the place of B where a Q(s, a, g) is learned: the z of a goal is the goal itself, encoded, (n, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, g: Tensor) -> Tensor:
        """The encoding (n, width) of features, or of their columns (n, k)."""
        return dense(g, self.width)


def dense(g: Tensor, width: int) -> Tensor:
    """(n, width) an encoding that may be given as its columns that are one, (n, k) whole numbers."""
    if g.dtype != torch.int64:
        return g
    return torch.zeros(len(g), width, device=g.device).scatter_(1, g, 1.0)


class Bias(nn.Module):
    """m-bar(s, z, g) (Definition "fb2"): what of the successor density the action does not change.

    A network of s and z and a network of g end in a vector each; one ReLU layer of their sum gives a number for every
    pair. So its rank is not bounded, as that of F . B is by d, and pairs cost no more than that layer.
    """

    def __init__(
        self,
        width: int,
        features: int,
        dim: int,
        hidden: int,
        layers: int,
        layer_norm: bool,
        image: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.eyes = Eyes(image) if image else None
        width = self.eyes.width if self.eyes else width
        self.of_state = mlp(width + dim, hidden, hidden, max(layers - 1, 1), layer_norm)
        self.of_goal = mlp(features, hidden, hidden, max(layers - 1, 1), layer_norm)
        self.meet = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, z: Tensor, g: Tensor) -> Tensor:
        """(n, m) m-bar of n encoded observations with their z (n, d), as F sees it, and m encoded features."""
        first, *others = self.of_state
        first_g, *others_g = self.of_goal
        assert isinstance(first, nn.Linear)
        assert isinstance(first_g, nn.Linear)
        seen = x if self.eyes is None else self.eyes(x)
        u = _run(others, input_layer(first, seen, z))  # (n, hidden)
        v = _run(others_g, input_layer(first_g, g))  # (m, hidden)
        m: Tensor = self.meet(torch.relu(u[:, None] + v)).squeeze(2)
        return m


def _run(layers: Iterable[nn.Module], y: Tensor) -> Tensor:
    for layer in layers:
        y = layer(y)
    return y
