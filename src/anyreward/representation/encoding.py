"""From packed rows to what the networks see: one-hot for categories, running normalisation for numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from anyreward.worlds.spaces import Space, leaves

STD_FLOOR = 0.01
CLIP = 5.0


class Encoder(nn.Module):
    """Encodes packed rows of a space; its running mean and variance are saved with the agent.

    Without normalisation the encoding of a row is `gymnasium.spaces.flatten` of the element.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, space: Space, normalise: bool = True) -> None:
        super().__init__()
        self.leaves = list(leaves(space))
        self.packed = sum(leaf.packed for leaf in self.leaves)
        self.width = sum(leaf.categories or leaf.packed for leaf in self.leaves)
        self.normalise = normalise and any(leaf.kind == "number" for leaf in self.leaves)
        # float64 on purpose: a mean over 10^6 rows in float32 would drift
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(self.packed, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(self.packed, dtype=torch.float64))

    @property
    def categorical(self) -> bool:
        """Whether every column is a category, so that equal rows mean equal elements."""
        return all(leaf.kind != "number" for leaf in self.leaves)

    def distinct(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct ones of some categorical rows (n, packed), sorted, and where each row is among them, (n,)."""
        sizes = [leaf.categories or 2 for leaf in self.leaves for _ in range(leaf.packed)]
        if math.prod(sizes) > 2**62:
            found, index = torch.unique(rows, dim=0, return_inverse=True)
            return found, index
        # one whole number a row, in the order of the rows: sorting numbers is many times faster than sorting rows
        code = torch.zeros(len(rows), dtype=torch.int64)
        for column, size in zip(rows.long().T, sizes, strict=True):
            code = code * size + column
        codes, index = torch.unique(code, return_inverse=True)
        example = torch.empty_like(codes).scatter_(0, index, torch.arange(len(rows)))
        return rows[example], index

    def observe(self, rows: Tensor) -> None:
        """Fold new packed rows (n, packed) into the running mean and variance."""
        if not self.normalise or len(rows) == 0:
            return
        rows = rows.to(torch.float64)
        n, mean, variance = len(rows), rows.mean(0), rows.var(0, unbiased=False)
        total = self.count + n
        delta = mean - self.mean
        spread = self.variance * self.count + variance * n + delta.square() * self.count * n / total
        self.mean += delta * n / total
        self.variance.copy_(spread / total)
        self.count.copy_(total)

    def forward(self, rows: Tensor) -> Tensor:
        """(n, packed) -> (n, width)."""
        parts, start = [], 0
        for leaf in self.leaves:
            columns = rows[:, start : start + leaf.packed]
            if leaf.kind == "one-hot":
                one_hot = torch.zeros(len(rows), leaf.categories, dtype=rows.dtype, device=rows.device)
                parts.append(one_hot.scatter_(1, columns.long(), 1.0))
            elif leaf.kind == "number" and self.normalise:
                mean, variance = self.mean[start : start + leaf.packed], self.variance[start : start + leaf.packed]
                std = variance.sqrt().clamp_min(STD_FLOOR)
                parts.append(((columns - mean) / std).clamp(-CLIP, CLIP).to(rows.dtype))
            else:
                parts.append(columns)
            start += leaf.packed
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
