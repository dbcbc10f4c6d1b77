"""Parameters in flat memory: Adam and the target update are one operation each, instead of one per layer."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class FlatNetworks:
    """Networks and their target networks, with one Adam over all parameters.

    The parameters become views of one vector, and so do their gradients and the target networks' parameters. Weight
    matrices are stored transposed, so that a look-up of one-hot inputs reads whole rows.

    ``rates`` are the learning rates of the networks, relative to that of `step`; by default all are one.
    """

    def __init__(self, networks: Sequence[nn.Module], rates: Sequence[float] | None = None) -> None:
        online = nn.ModuleList(networks)
        target = copy.deepcopy(online).requires_grad_(False)
        self.flat = _flatten([*online.parameters()])
        self.gradient = torch.zeros_like(self.flat)
        _view_as_parts(self.gradient, [*online.parameters()], "grad")
        self.flat_target = _flatten([*target.parameters()])
        self.targets: list[nn.Module] = list(target)
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)  # of past gradients
        self.count = torch.zeros((), device=self.flat.device)  # steps of Adam
        self.parts: list[tuple[float, slice]] = []
        """networks that follow each other and have the same relative learning rate"""
        start = 0
        for network, rate in zip(networks, rates or [1.0] * len(networks), strict=True):
            end = start + sum(p.numel() for p in network.parameters())
            if self.parts and self.parts[-1][0] == rate:
                self.parts[-1] = (rate, slice(self.parts[-1][1].start, end))
            else:
                self.parts.append((rate, slice(start, end)))
            start = end

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """One step of PyTorch's fused Adam on all networks."""
        before = self.count.clone()
        for rate, part in self.parts:
            self.count.copy_(before)  # each call counts a step
            adam(
                [self.flat[part]],
                [self.gradient[part]],
                [self.mean[part]],
                [self.square[part]],
                [],
                [self.count],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=rate * learning_rate,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )

    @torch.no_grad()
    def move_targets(self, retention: float) -> None:
        """Update the target networks: theta- <- alpha theta- + (1 - alpha) theta, with alpha the retention."""
        self.flat_target.lerp_(self.flat, 1 - retention)

    def state(self) -> dict[str, Tensor]:
        """The target networks and Adam's averages: what a resumed run needs."""
        return {"targets": self.flat_target, "adam.mean": self.mean, "adam.square": self.square}

    def load_state(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """The inverse of `state`, after this many updates."""
        for name, own in self.state().items():
            own.copy_(tensors[name])
        self.count.fill_(updates)


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
    """The memory layout of a parameter: a weight matrix (outputs, inputs) transposed, a convolution channels last."""
    return weight.T if weight.ndim == 2 else weight.permute(0, 2, 3, 1) if weight.ndim == 4 else weight


def _as_used(stored: Tensor) -> Tensor:
    """The inverse of `_by_input`."""
    return stored.permute(0, 3, 1, 2) if stored.ndim == 4 else _by_input(stored)
