"""Threads, devices, and the cost of an update."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from anyreward.errors import UserError
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.actor import ForwardBox
from anyreward.model.networks import Forward

FLOP_PER_THREAD = 10**8
"""Work of an update for each thread; with less, the overhead of threads is larger than their gain."""


def update_flop(F: nn.Module, B: nn.Module, s: Settings) -> int:
    """Floating-point operations in the matrix products of an update of Algorithm 1, with every network on every row.

    Counts the forward passes; the backward passes, twice that without the inputs of first layers; the target networks
    on b rows each; and the b x b pairs.
    """
    b, d = s.batch_size, s.dim
    if isinstance(F, ForwardBox):
        return box_update_flop(F, B, s)

    def layers(network: nn.Module) -> tuple[int, int]:
        """Weights in all linear layers, and in the first ones."""
        parts = network.parts if isinstance(network, Forward) else [network]
        sizes = [[m.in_features * m.out_features for m in part.modules() if isinstance(m, nn.Linear)] for part in parts]
        return sum(map(sum, sizes)), sum(part[0] for part in sizes if part)  # a fixed B has none

    (all_F, first_F), (all_B, first_B) = layers(F), layers(B)
    if isinstance(F, Forward) and F.conv is not None:  # each weight is used at every position of the output
        side, places = F.conv.image[1], []
        for conv in (m for m in F.conv.modules() if isinstance(m, nn.Conv2d)):
            side = (side - conv.kernel_size[0]) // conv.stride[0] + 1
            places.append(conv.weight.numel() * side * side)
        all_F += sum(places)
        first_F = places[0]
    passes = F.actions if isinstance(F, Forward) and F.action_input else 1  # of the target network, for every action
    networks = b * (3 * all_F - first_F) + passes * b * all_F + 2 * b * (3 * all_B - first_B) + b * all_B
    pairs = b * b * d * (1 + 1 + 2 + 2)  # F.B', the target, the gradients of F and B', and L_reg's two
    return 2 * (networks + pairs)


def box_update_flop(F: ForwardBox, B: nn.Module, s: Settings) -> int:
    """As `update_flop`, for actions of a box: F and B, and an actor of about the size of one F."""
    b, d = s.batch_size, s.dim

    def weights(network: nn.Module) -> int:
        return sum(m.in_features * m.out_features for m in network.modules() if isinstance(m, nn.Linear))

    all_F, all_B, actor = weights(F), weights(B), weights(F) // len(F.members) if s.actor == "network" else 0
    targets = (all_F + actor) if actor else s.action_samples * all_F
    of_actor = (3 * actor + 2 * all_F) if actor else 0  # forward and backward, through F to its actions
    networks = b * (3 * all_F + targets + of_actor) + 2 * b * 3 * all_B + b * all_B
    return 2 * (networks + 6 * b * b * d)


def peak_gflops(size: int = 1024, repeats: int = 6) -> float:
    """The best rate of several large matrix products."""
    a, out, seconds = torch.ones(size, size), torch.empty(size, size), []
    for _ in range(repeats):
        started = time.perf_counter()
        torch.mm(a, a, out=out)
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds) / 1e9


def threads_for(flop: int, available: int) -> int:
    """The number of threads for updates of this many floating-point operations, at most those available."""
    return max(1, min(available, round(flop / FLOP_PER_THREAD)))


def threads_of_one(run: RunSettings) -> int:
    """The number of PyTorch's threads: half of them if compiled updates run F and B in parallel."""
    return max(1, run.threads // 2) if run.compile else run.threads


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with this many PyTorch threads, then restore the number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def open_device(name: str) -> torch.device:
    """The device of a setting; raises a UserError if it is not available."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "device is 'cuda', but PyTorch sees no CUDA device here. Use device='cpu', or install a CUDA build of "
            "PyTorch (https://pytorch.org/get-started) on a machine with one."
        )
    return device
