"""The networks F(s, ., z) and B(phi(s, a))."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from anyreward.model.latent import preprocess_z, trained_length


def mlp(inputs: int, outputs: int, hidden: int, layers: int, layer_norm: bool) -> nn.Sequential:
    """A multilayer perceptron with ReLU; ``layer_norm`` adds a LayerNorm before every ReLU except the last."""
    parts: list[nn.Module] = []
    for layer in range(layers):
        parts.append(nn.Linear(inputs if layer == 0 else hidden, hidden))
        if layer_norm and layer < layers - 1:
            parts.append(nn.LayerNorm(hidden))
        parts.append(nn.ReLU(inplace=True))
    parts.append(nn.Linear(hidden, outputs))
    return nn.Sequential(*parts)


class ConvEncoder(nn.Module):
    """The paper's convolutions: maps uint8 images (n, frames * height * width) to features (n, width).

    It uses the memory format channels_last, which is faster on a CPU (docs/speed.md).
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
        with torch.no_grad():
            self.width = self.net(torch.zeros(1, *image)).numel()

    def forward(self, rows: Tensor) -> Tensor:
        """(n, width) the output of the three convolutions."""
        first, *others = self.net
        assert isinstance(first, nn.Conv2d)
        images = rows.view(-1, *self.image).to(first.weight.dtype, memory_format=torch.channels_last)
        # scale the weights by 1 / 255 instead of the images, which are larger
        y = nn.functional.conv2d(images, first.weight / 255, first.bias, first.stride)
        return _run(others, y).flatten(1)


def input_layer(layer: nn.Linear, x: Tensor, z: Tensor | None = None) -> Tensor:
    """(n, hidden) the first layer, applied to x and z side by side: z (n, d), or (1, d) for all rows.

    An integer x (n, k) holds the indices of the ones of a one-hot encoding: the layer then sums k rows of its weights
    instead of multiplying by zeros.
    """
    weight, bias = layer.weight.T, layer.bias  # (inputs, hidden)
    if x.dtype != torch.int64 and (z is None or len(z) == len(x)):
        return torch.addmm(bias, x if z is None else torch.cat([x, z], dim=1), weight)
    if z is None:
        return _look_up(weight, x).add_(bias)
    of_x, of_z = torch.split(weight, [len(weight) - z.shape[1], z.shape[1]])
    if x.dtype != torch.int64:
        return torch.addmm(torch.addmm(bias, z, of_z), x, of_x)
    y = _look_up(of_x, x).add_(bias)
    return torch.addmm(y, z, of_z) if len(z) == len(x) else y + z @ of_z


def _look_up(weight: Tensor, columns: Tensor) -> Tensor:
    """(n, hidden) the sum of the rows of weight (inputs, hidden) at ``columns`` (n, k)."""
    return reduce(torch.add, [weight.index_select(0, column) for column in columns.unbind(1)])


def input_layer_of_actions(layer: nn.Linear, x: Tensor, z: Tensor, actions: int) -> Tensor:
    """(n A, hidden) the first layer for every action of every row, where the action is an input.

    Each action has its own weights for x and shares those for z: z (n, d), or (1, d) for all rows.
    """
    weight, width = layer.weight.T, (layer.in_features - z.shape[1]) // actions
    of_x, of_z = weight[: actions * width], torch.addmm(layer.bias, z, weight[actions * width :])
    if x.dtype == torch.int64:
        starts = width * torch.arange(actions, device=x.device)
        y = nn.functional.embedding(x[:, None] + starts[:, None], of_x).sum(2)  # (n, A, hidden)
    else:
        y = torch.bmm(x.expand(actions, -1, -1), of_x.view(actions, width, -1)).transpose(0, 1)
    return (y + of_z[:, None]).reshape(len(x) * actions, -1)


def input_layer_of_taken(layer: nn.Linear, x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> Tensor:
    """(n, hidden) the first layer for the action taken in each row; rows are sorted by action, ``counts`` of each."""
    weight, width = layer.weight.T, (layer.in_features - z.shape[1]) // len(counts)
    if x.dtype == torch.int64:
        return input_layer(layer, x + width * actions[:, None], z)
    *of_x, of_z = torch.split(weight, [*[width] * len(counts), z.shape[1]])
    y = torch.cat([torch.mm(rows, own) for rows, own in zip(x.split_with_sizes(counts), of_x, strict=True)])
    return torch.addmm(y.add_(layer.bias), z, of_z)


class Forward(nn.Module):
    """F: maps an encoded observation (n, width), or its one-hot columns (n, k), and z (n, d) to a vector per action.

    The action chooses a block of the last layer's outputs or, with ``action_input``, the weights of the observation in
    the first layer. Then all actions share the other layers, which helps where several actions have the same effect.
    ``wide`` adds a network with one hidden layer of ``wide * hidden`` units to the deep one. Images (n, bytes) of shape
    ``image`` pass through a `ConvEncoder` first.

    With ``goal``, the width of an encoded goal, this is Q(s, ., g) of goal-oriented DQN: the goal takes the place of z,
    and d is one.
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
        self.conv = ConvEncoder(image) if image else None
        width, task, dim = self.conv.width if self.conv else width, goal or dim, 1 if goal else dim
        self.width, self.actions, self.dim, self.action_input, self.goal = width, actions, dim, action_input, goal
        inputs, outputs = (width * actions, dim) if action_input else (width, actions * dim)
        self.net = mlp(inputs + task, outputs, hidden, layers, layer_norm)
        self.wide = mlp(inputs + task, outputs, wide * hidden, 1, layer_norm) if wide else None

    @property
    def parts(self) -> list[nn.Sequential]:
        """The networks that are summed to F."""
        return [self.net] if self.wide is None else [self.net, self.wide]

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), for z as returned by `preprocess_z`; the inner product F . z uses the raw z."""
        x = self._convolved(x)
        F = reduce(torch.add, [self._all_actions(part, x, z) for part in self.parts])
        return F.view(-1, self.actions, self.dim)

    def taken(self, x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> Tensor:
        """(n, d) F(s_i, a_i, z_i) for the actions taken (n,), without computing the other actions.

        Rows are sorted by action, and ``counts`` says how often each action occurs.
        """
        x = self._convolved(x)
        return reduce(torch.add, [self._taken(part, x, z, actions, counts) for part in self.parts])

    def q(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, A) F(s, a, z) . z for raw z (n, d), or one z (d,) for all rows; Q(s, a, g) for encoded goals."""
        if self.goal:
            Q_of_goal: Tensor = self(x, z.expand(len(x), -1)).squeeze(2)
            return Q_of_goal
        if z.ndim == 2:
            return torch.bmm(self(x, preprocess_z(z)), z.unsqueeze(2)).squeeze(2)
        # one z: fold it into the last layer, which then has A outputs, not A d
        x = self._convolved(x)
        Q = x.new_zeros(len(x), self.actions, dtype=z.dtype)
        for *trunk, last in self.parts:
            assert isinstance(last, nn.Linear)
            h = self._all_actions(trunk, x, preprocess_z(z)[None])
            weight = torch.einsum("adh,d->ah", last.weight.view(-1, self.dim, h.shape[1]), z)
            Q += torch.addmm(last.bias.view(-1, self.dim) @ z, h, weight.T).view(len(x), self.actions)
        return Q

    def _convolved(self, x: Tensor) -> Tensor:
        y: Tensor = x if self.conv is None else self.conv(x)
        return y

    def _all_actions(self, net: Iterable[nn.Module], x: Tensor, z: Tensor) -> Tensor:
        first, *others = net
        assert isinstance(first, nn.Linear)
        by_action = self.action_input
        y = input_layer_of_actions(first, x, z, self.actions) if by_action else input_layer(first, x, z)
        return _run(others, y)

    def _taken(self, net: nn.Sequential, x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> Tensor:
        first, *hidden, last = net
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        if self.action_input:
            return _run([*hidden, last], input_layer_of_taken(first, x, z, actions, counts))
        h = _run(hidden, input_layer(first, x, z))
        weights, biases = last.weight.T.chunk(self.actions, 1), last.bias.chunk(self.actions)
        blocks = zip(biases, h.split_with_sizes(counts), weights, strict=True)
        return torch.cat([torch.addmm(bias, rows, weight) for bias, rows, weight in blocks])


class Backward(nn.Module):
    """B: maps encoded features (n, width), or their one-hot columns (n, k), to (n, d).

    With ``sphere``, all values have the length sqrt(d).
    """

    def __init__(self, width: int, dim: int, hidden: int, layers: int, layer_norm: bool, sphere: bool = False) -> None:
        super().__init__()
        self.net, self.sphere = mlp(width, dim, hidden, layers, layer_norm), sphere

    def forward(self, g: Tensor) -> Tensor:
        """B(g), (n, d)."""
        B = run_mlp(self.net, g)
        return trained_length(B, "sphere") if self.sphere else B


class GoalInput(nn.Module):
    """Replaces B in goal-oriented DQN: the z of a goal is the encoded goal itself, (n, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, g: Tensor) -> Tensor:
        """The encoding (n, width) of features, or of their one-hot columns (n, k)."""
        return dense(g, self.width)


def dense(g: Tensor, width: int) -> Tensor:
    """(n, width) a dense encoding, also from the integer indices (n, k) of its ones."""
    if g.dtype != torch.int64:
        return g
    return torch.zeros(len(g), width, device=g.device).scatter_(1, g, 1.0)


class Bias(nn.Module):
    """m-bar(s, z, g) (Definition "fb2"): the part of the successor density that does not depend on the action.

    A network of s and z and a network of g return a vector each; a ReLU and a linear layer map the sum of two vectors
    to a number. The rank of m-bar is not bounded by d, unlike that of F . B, and each pair costs only this layer.
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
        self.conv = ConvEncoder(image) if image else None
        width = self.conv.width if self.conv else width
        self.of_state = mlp(width + dim, hidden, hidden, max(layers - 1, 1), layer_norm)
        self.of_goal = mlp(features, hidden, hidden, max(layers - 1, 1), layer_norm)
        self.meet = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, z: Tensor, g: Tensor) -> Tensor:
        """(n, m) m-bar of n encoded observations with their z (n, d), as F sees it, and m encoded features."""
        u = run_mlp(self.of_state, x if self.conv is None else self.conv(x), z)  # (n, hidden)
        v = run_mlp(self.of_goal, g)  # (m, hidden)
        m: Tensor = self.meet(torch.relu(u[:, None] + v)).squeeze(2)
        return m


def run_mlp(net: Iterable[nn.Module], x: Tensor, z: Tensor | None = None) -> Tensor:
    """The layers of an `mlp` on x and z, as `input_layer` takes them."""
    first, *others = net
    assert isinstance(first, nn.Linear)
    return _run(others, input_layer(first, x, z))


def _run(layers: Iterable[nn.Module], y: Tensor) -> Tensor:
    for layer in layers:
        y = layer(y)
    return y
