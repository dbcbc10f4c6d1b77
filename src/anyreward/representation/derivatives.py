"""The networks with their derivatives: `value, pull_back = run(...)`, and pull_back(dvalue) sets the gradients.

For our own networks the chain rule is written out, each layer beside its derivative. It computes what autograd would,
with less: F's last layer only for the actions taken, gradients written where the optimiser reads them, no graph to
build and walk, and every view of the parameters made once. Convolutions and any other module go through autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from anyreward.representation.networks import Backward, Forward

PullBack = Callable[[Tensor], Any]
Layer = Callable[[Any], tuple[Tensor, PullBack]]
"""x -> (y, pull_back), where pull_back(dy) sets the parameters' gradients and returns dx."""
RunForward = Callable[[Tensor, Tensor, Tensor, Sequence[int]], tuple[Tensor, PullBack]]
RunBackward = Callable[[Tensor], tuple[Tensor, PullBack]]
RunBias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, PullBack]]


def forward_taken(F: nn.Module, bfloat16: bool = False) -> RunForward:
    """The function from x, shown z, actions (b,) and counts to F(s_i, a_i, z_i) (b, d), with its derivative.

    The counts say how often each action was taken, with ``actions`` in ascending order; they are empty for actions in
    any order. The parameters of F must have their gradients by now, and keep their places. ``bfloat16`` lets autocast
    choose where that will do.
    """

    def for_all(x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> tuple[Tensor, PullBack]:
        return _by_autograd(F, lambda: taken(F(x, z), actions), bfloat16)

    if not isinstance(F, Forward) or F.eyes is not None or bfloat16:
        return for_all
    sums = [_taken_of(part, F) for part in F.parts]

    def run(x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> tuple[Tensor, PullBack]:
        if not counts and not F.action_input:
            return for_all(x, z, actions, counts)
        (value, *others), backs = zip(*(part(x, z, actions, counts) for part in sums), strict=True)
        for other in others:
            value = value + other

        def pull_back(dvalue: Tensor) -> None:
            for back in backs:
                back(dvalue)

        return value, pull_back

    return run


def _taken_of(net: nn.Sequential, F: Forward) -> RunForward:
    """`forward_taken` of one of the networks whose sum F is."""
    first, *others, last = net
    trunk: list[Layer] = [_layer(layer) for layer in others]
    if F.action_input:
        of_pairs, of_blocks = _input(first), _input_by_action(first, F.actions)

        def run_input(x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> tuple[Tensor, PullBack]:
            if x.dtype == torch.int64 or not counts:
                return _chain([of_pairs, *trunk, _layer(last)], (F.pair(x, actions), z))
            return _chain([of_blocks, *trunk, _layer(last)], (x, z, counts))

        return run_input
    head = _head(last, F.actions, F.dim)
    trunk = [_input(first), *trunk]

    def run(x: Tensor, z: Tensor, actions: Tensor, counts: Sequence[int]) -> tuple[Tensor, PullBack]:
        h, back_trunk = _chain(trunk, (x, z))
        value, back_head = head(h, actions, counts)
        return value, lambda dvalue: back_trunk(back_head(dvalue))

    return run


def backward_all(B: nn.Module, bfloat16: bool = False) -> RunBackward:
    """The function from g (m, width) to B(g) (m, d), with its derivative; as `forward_taken` for the parameters."""
    if not any(True for _ in B.parameters()):  # a B that is given
        return lambda g: (B(g), lambda dB: None)
    if not isinstance(B, Backward) or bfloat16:
        return lambda g: _by_autograd(B, lambda: B(g), bfloat16)
    first, *others = B.net
    layers: list[Layer] = [_input(first), *(_layer(layer) for layer in others)]
    return lambda g: _chain(layers, (g, None))


def bias_all(bias: nn.Module, bfloat16: bool = False) -> RunBias:
    """The function from x, shown z (b, d) and g (m, width) to m-bar (b, m), with its derivative by autograd."""
    return lambda x, z, g: _by_autograd(bias, lambda: bias(x, z, g), bfloat16)


def taken(F: Tensor, actions: Tensor) -> Tensor:
    """(b, d) of F (b, A, d) for the actions (b,)."""
    return F.gather(1, actions[:, None, None].expand(-1, 1, F.shape[2])).squeeze(1)


def rounding(device: torch.device, bfloat16: bool) -> AbstractContextManager[Any]:
    """Where autocast may run operations in bfloat16, if that is wanted."""
    return torch.autocast(device.type, torch.bfloat16) if bfloat16 else nullcontext()


def _by_autograd(network: nn.Module, run: Callable[[], Tensor], bfloat16: bool = False) -> tuple[Tensor, PullBack]:
    parameter = next(network.parameters())
    with torch.inference_mode(False), torch.enable_grad(), rounding(parameter.device, bfloat16):
        value = run().to(parameter.dtype)

    def pull_back(dvalue: Tensor) -> None:
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        with torch.inference_mode(False):
            torch.autograd.backward(value, dvalue.clone())

    return value.detach(), pull_back


def _chain(layers: Sequence[Layer], x: Any) -> tuple[Tensor, PullBack]:
    """Layers one after the other, and the chain rule."""
    backs = []
    for layer in layers:
        x, back = layer(x)
        backs.append(back)

    def pull_back(dy: Tensor) -> None:
        for back in reversed(backs):
            dy = back(dy)

    return x, pull_back


def _layer(layer: nn.Module) -> Layer:
    match layer:
        case nn.Linear():
            return _linear(layer)
        case nn.LayerNorm():
            return _layer_norm(layer)
        case nn.ReLU():
            return _relu
    # only if `networks.mlp` grows a new kind of layer: its derivative then belongs here
    raise NotImplementedError(f"no derivative is written for {type(layer).__name__}")


def _input(layer: nn.Module) -> Layer:
    """The first layer on (x, z): see `networks.input_layer`. Nothing asks for dx."""
    assert isinstance(layer, nn.Linear)
    weight, bias, dweight, dbias = _by_input(layer)

    def run(inputs: tuple[Tensor, Tensor | None]) -> tuple[Tensor, PullBack]:
        x, z = inputs
        if x.dtype != torch.int64:
            whole = x if z is None else torch.cat([x, z], dim=1)

            def back(dy: Tensor) -> None:
                torch.mm(whole.T, dy, out=dweight)
                torch.sum(dy, 0, out=dbias)

            return torch.addmm(bias, whole, weight), back

        columns = x.unbind(1)
        width = len(weight) - (0 if z is None else z.shape[1])
        y = weight.index_select(0, columns[0]).add_(bias)
        for column in columns[1:]:
            y.add_(weight.index_select(0, column))
        if z is not None:
            y.addmm_(z, weight[width:])

        def back_columns(dy: Tensor) -> None:
            if z is not None:
                torch.mm(z.T, dy, out=dweight[width:])
            looked_up = dweight[:width].zero_()
            for column in columns:
                looked_up.index_add_(0, column, dy)
            torch.sum(dy, 0, out=dbias)

        return y, back_columns

    return run


def _input_by_action(layer: nn.Module, actions: int) -> Layer:
    """The first layer on (x, z, counts) where the action is an input and rows are in the order of their actions."""
    assert isinstance(layer, nn.Linear)
    weight, bias, dweight, dbias = _by_input(layer)

    def run(inputs: tuple[Tensor, Tensor, Sequence[int]]) -> tuple[Tensor, PullBack]:
        x, z, counts = inputs
        width = actions * x.shape[1]
        xs, weights = x.split_with_sizes(counts), weight[:width].chunk(actions)
        y = torch.cat([torch.mm(rows, own) for rows, own in zip(xs, weights, strict=True)])

        def back(dy: Tensor) -> None:
            blocks = zip(xs, dy.split_with_sizes(counts), dweight[:width].chunk(actions), strict=True)
            for rows, drows, own in blocks:
                torch.mm(rows.T, drows, out=own)
            torch.mm(z.T, dy, out=dweight[width:])
            torch.sum(dy, 0, out=dbias)

        return y.add_(bias).addmm_(z, weight[width:]), back

    return run


def _linear(layer: nn.Linear) -> Layer:
    weight, bias, dweight, dbias = _by_input(layer)
    turned = weight.T

    def run(x: Tensor) -> tuple[Tensor, PullBack]:
        def back(dy: Tensor) -> Tensor:
            torch.mm(x.T, dy, out=dweight)
            torch.sum(dy, 0, out=dbias)
            return torch.mm(dy, turned)

        return torch.addmm(bias, x, weight), back

    return run


def _layer_norm(layer: nn.LayerNorm) -> Layer:
    weight, bias, shape = layer.weight.detach(), layer.bias.detach(), list(layer.normalized_shape)
    dweight, dbias = _gradient(layer.weight), _gradient(layer.bias)

    def run(x: Tensor) -> tuple[Tensor, PullBack]:
        y, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, layer.eps)

        def back(dy: Tensor) -> Tensor:
            dx, dw, db = torch.ops.aten.native_layer_norm_backward(
                dy, x, shape, mean, rstd, weight, bias, [True, True, True]
            )
            dweight.copy_(dw)
            dbias.copy_(db)
            return dx  # type: ignore[no-any-return]  # operators are untyped

        return y, back

    return run


def _relu(x: Tensor) -> tuple[Tensor, PullBack]:
    y = x.relu_()  # in place: no layer before it remembers its own output
    return y, lambda dy: torch.ops.aten.threshold_backward(dy, y, 0)


def _head(layer: nn.Module, actions: int, dim: int) -> Callable[..., tuple[Tensor, PullBack]]:
    """The last layer of F, for the action of each row alone."""
    assert isinstance(layer, nn.Linear)
    weight, bias, dweight, dbias = _by_input(layer)
    weights, biases, dweights = (
        weight.chunk(actions, 1),
        bias.chunk(actions),
        dweight.chunk(actions, 1),
    )  # one an action
    turned, dbias = [block.T for block in weights], dbias.view(actions, dim)

    def run(h: Tensor, taken: Tensor, counts: Sequence[int]) -> tuple[Tensor, PullBack]:
        hs = h.split_with_sizes(counts)
        value = torch.cat([torch.addmm(b, x, w) for b, x, w in zip(biases, hs, weights, strict=True)])

        def back(dvalue: Tensor) -> Tensor:
            dvalues = dvalue.split_with_sizes(counts)
            for x, dv, dw in zip(hs, dvalues, dweights, strict=True):
                torch.mm(x.T, dv, out=dw)
            dbias.zero_().index_add_(0, taken, dvalue)
            return torch.cat([torch.mm(dv, w) for dv, w in zip(dvalues, turned, strict=True)])

        return value, back

    return run


def _by_input(layer: nn.Linear) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(inputs, outputs) the weight and the bias, and their gradients."""
    return layer.weight.detach().T, layer.bias.detach(), _gradient(layer.weight).T, _gradient(layer.bias)


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        raise ValueError("the parameters have no gradients to be set: make a Learner first")
    return parameter.grad
