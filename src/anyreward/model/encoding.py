"""Encoding of packed rows for the networks: one-hot categories; numbers normalised, scaled, or as an RBF grid."""

from __future__ import annotations

import math
from functools import reduce

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.model.networks import dense
from anyreward.worlds.spaces import Space, image_shape, leaves

STD_FLOOR = 0.01
CLIP = 5.0
RBF_CENTRES = 21
"""Centres of radial basis functions along each number (Appendix, continuous maze)."""
RBF_SIGMA = 0.05
"""Their width, as a share of the number's range."""


class Encoder(nn.Module):
    """Encodes packed rows of a space; its running mean and variance are saved with the agent.

    Without normalisation the "plain" encoding of a row is `gymnasium.spaces.flatten` of the element. For a bounded
    Box, "unit" scales each number to 0..1, and "rbf" gives the activations of a grid of Gaussians, with a sum of one.
    Images stay as they are; the convolutions scale them.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, space: Space, normalise: bool = True, encoding: str = "plain") -> None:
        super().__init__()
        self.image = image_shape(space)
        self.leaves = list(leaves(space))
        if self.image:
            encoding = "plain"
        self.rbf = encoding == "rbf"
        self.box = _bounds(space, encoding) if encoding != "plain" else None
        self.packed = sum(leaf.packed for leaf in self.leaves)
        self.width = (
            RBF_CENTRES**self.packed if self.rbf else sum(leaf.categories or leaf.packed for leaf in self.leaves)
        )
        self.normalise = (
            normalise and self.box is None and not self.image and any(leaf.kind == "number" for leaf in self.leaves)
        )
        # float64 on purpose: a mean over 10^6 rows in float32 would drift
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(self.packed, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(self.packed, dtype=torch.float64))

    @property
    def categorical(self) -> bool:
        """Whether all columns are categories, so that rows can be compared for equality."""
        return all(leaf.kind != "number" for leaf in self.leaves)

    @property
    def one_hot(self) -> bool:
        """Whether all leaves are one-hot, so that `columns` determines the encoding."""
        return all(leaf.kind == "one-hot" for leaf in self.leaves)

    def columns(self, rows: Tensor) -> Tensor:
        """(n, packed) integers: the indices of the ones in the encoding of one-hot rows (n, packed)."""
        starts = torch.tensor([0, *(leaf.categories for leaf in self.leaves[:-1])], device=rows.device).cumsum(0)
        return rows.long() + starts

    def compact(self, rows: Tensor) -> Tensor:
        """The cheapest network input: `columns` if all leaves are one-hot, images as they are, else the encoding."""
        if self.image:
            return rows
        encoded: Tensor = self.columns(rows) if self.one_hot else self(rows)
        return encoded

    @property
    def categories(self) -> int:
        """The number of elements of a categorical space."""
        return math.prod(leaf.categories or 2 for leaf in self.leaves for _ in range(leaf.packed))

    def codes(self, rows: Tensor) -> Tensor:
        """(n,) an integer code below `categories` for each categorical row (n, packed); codes sort as rows do."""
        sizes = [leaf.categories or 2 for leaf in self.leaves for _ in range(leaf.packed)]
        code = rows[:, 0].long()
        for column, size in zip(rows[:, 1:].long().T, sizes[1:], strict=True):
            code = code * size + column
        return code

    def distinct(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct rows among categorical rows (n, packed), sorted, and the index (n,) of each row among them."""
        if self.categories > 2**62:
            found, index = torch.unique(rows, dim=0, return_inverse=True)
            return found, index
        # sorting numbers is many times faster than sorting rows
        codes, index = torch.unique(self.codes(rows), return_inverse=True)
        example = torch.empty_like(codes).scatter_(0, index, torch.arange(len(rows), device=rows.device))
        return rows.index_select(0, example), index

    def observe(self, rows: Tensor) -> None:
        """Update the running mean and variance with new packed rows (n, packed)."""
        if not self.normalise or len(rows) == 0:
            return
        rows = rows.to(self.mean)
        n, mean, variance = len(rows), rows.mean(0), rows.var(0, unbiased=False)
        total = self.count + n
        delta = mean - self.mean
        spread = self.variance * self.count + variance * n + delta.square() * self.count * n / total
        self.mean += delta * n / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)

    def forward(self, rows: Tensor) -> Tensor:
        """(n, packed) -> (n, width)."""
        if self.box is not None:
            low, high = (torch.tensor(bound, dtype=rows.dtype, device=rows.device) for bound in self.box)
            unit = (rows - low) / (high - low)
            return radial_basis(unit) if self.rbf else unit
        parts, start = [], 0
        for leaf in self.leaves:
            columns = rows[:, start : start + leaf.packed]
            if leaf.kind == "one-hot":
                parts.append(dense(columns.long(), leaf.categories).to(rows.dtype))
            elif leaf.kind == "number" and self.normalise:
                mean, variance = self.mean[start : start + leaf.packed], self.variance[start : start + leaf.packed]
                std = variance.sqrt().clamp_min(STD_FLOOR)
                parts.append(((columns - mean) / std).clamp(-CLIP, CLIP).to(rows.dtype))
            else:
                parts.append(columns)
            start += leaf.packed
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def radial_basis(x: Tensor) -> Tensor:
    """(n, centres^k) the activations of a grid of Gaussians at points x (n, k) of the unit cube, with a sum of one.

    Gaussians in k numbers are products, and so is their sum over the grid: each number is normalised separately.
    """
    centres = torch.linspace(0, 1, RBF_CENTRES, dtype=x.dtype, device=x.device)
    along = torch.softmax(-(x.unsqueeze(2) - centres).square() / (2 * RBF_SIGMA**2), dim=2)  # (n, k, centres)
    return reduce(lambda grid, other: (grid.unsqueeze(2) * other.unsqueeze(1)).flatten(1), along.unbind(1))


def _bounds(space: Space, encoding: str) -> tuple[list[float], list[float]]:
    few = encoding != "rbf" or space.shape in ((1,), (2,))
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1 or not few or not space.is_bounded():
        numbers = "one or two numbers" if encoding == "rbf" else "numbers"
        raise UserError(f"encoding is {encoding!r}, which needs a bounded Box of {numbers}; got {space}.")
    return np.asarray(space.low, dtype=float).tolist(), np.asarray(space.high, dtype=float).tolist()
