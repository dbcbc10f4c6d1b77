"""The task vector z: its distributions in training, and its length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from anyreward.errors import UserError, shown

CAUCHY_SCALE = 0.5
SUM_SIZES = (2, 3, 4)
ASKED_LENGTH = 0.7
"""Length of the z of a reward, in units of the root mean square of |B|, where z has no fixed length in training. Below
1, greedy policies are steadier next to a goal; above, costs weigh more (docs/notebook/presets.md)."""

ZNorm = Literal["free", "sphere"]
"""``free``: z keeps the length that it is drawn with. ``sphere``: every z has the length sqrt(d)."""
Draw = Callable[[int, Tensor, torch.Generator], Tensor]
"""(n, B (m, d), generator) -> (n, d)"""


def preprocess_z(z: Tensor) -> Tensor:
    """The input of F for z: z / sqrt(1 + |z|^2 / d), bounded by sqrt(d) (Appendix, implementation details)."""
    d = z.shape[-1]
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z * torch.rsqrt(1 + norm.square() / d)


def cauchy_z(n: int, d: int, generator: torch.Generator) -> Tensor:
    """(n, d) the paper's distribution nu: sqrt(d) * u * x / |x| with x normal and u Cauchy of scale 0.5."""
    u = torch.empty(n, 1, device=generator.device).cauchy_(0, CAUCHY_SCALE, generator=generator)
    x = torch.randn(n, d, generator=generator, device=generator.device)
    return u * (math.sqrt(d) * functional.normalize(x, dim=1))


def goal_z(n: int, B: Tensor, generator: torch.Generator) -> Tensor:
    """(n, d) random rows of B (m, d): the z of single goals."""
    return B.index_select(0, torch.randint(len(B), (n,), generator=generator, device=generator.device))


def sum_z(n: int, B: Tensor, generator: torch.Generator) -> Tensor:
    """(n, d) sums of two to four rows of B with random signs: the z of goals to reach and goals to avoid."""
    most, device = max(SUM_SIZES), generator.device
    size = torch.randint(min(SUM_SIZES), most + 1, (n, 1), generator=generator, device=device)
    sign = 2.0 * torch.randint(2, (n, most), generator=generator, device=device) - 1.0
    weight = torch.where(torch.arange(most, device=device) < size, sign, 0.0).to(B)  # (n, most)
    rows = torch.randint(len(B), (n, most), generator=generator, device=device)
    return functional.embedding_bag(rows, B, per_sample_weights=weight, mode="sum")


def reward_z(n: int, B: Tensor, generator: torch.Generator) -> Tensor:
    """(n, d) sums of all rows of B (m, d) with normal weights: the z of dense random rewards."""
    weight = torch.randn(n, len(B), generator=generator, device=generator.device).to(B)
    return weight @ B / math.sqrt(len(B))


@dataclass(frozen=True)
class ZMixture:
    """Shares of the distributions that training draws z from; the rest is the paper's Cauchy distribution.

    To add a distribution, add a function above, a field here and an entry in ``DISTRIBUTIONS``.
    """

    goals: float = 0.0
    """z = B(s, a) of one transition in the replay buffer: single goals."""
    sums: float = 0.0
    """Signed sums of two to four such B: goals to reach and goals to avoid."""
    rewards: float = 0.0
    """Sums of a minibatch of such B with normal weights: dense random rewards."""

    def __post_init__(self) -> None:
        shares = {field.name: getattr(self, field.name) for field in fields(self)}
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in shares.values())
        if not numbers or not all(0 <= x <= 1 for x in shares.values()) or sum(shares.values()) > 1 + 1e-9:
            raise UserError(f"z_mixture is {shown(shares)}; accepted: shares from 0 to 1, with a sum of at most 1.")

    @property
    def needs_B(self) -> bool:
        """Whether any distribution other than Cauchy has a share."""
        return any(getattr(self, field.name) > 0 for field in fields(self))

    def draw(self, n: int, d: int, B: Tensor | None, generator: torch.Generator) -> Tensor:
        """(n, d) random z; B (m, d) are embeddings of rows of the replay buffer. Without B, all z are Cauchy."""
        if B is None or not self.needs_B:
            return cauchy_z(n, d, generator)
        choice = torch.rand(n, generator=generator, device=generator.device)
        parts: list[Tensor] = []
        before, share = 0, 0.0
        for name, distribution in DISTRIBUTIONS.items():
            share += getattr(self, name)
            upto = int((choice < share).sum())
            parts.append(distribution(upto - before, B, generator))
            before = upto
        parts.append(cauchy_z(n - before, d, generator).to(B))
        return torch.cat(parts).index_select(0, torch.randperm(n, generator=generator, device=generator.device))


DISTRIBUTIONS: dict[str, Draw] = {"goals": goal_z, "sums": sum_z, "rewards": reward_z}


def trained_length(z: Tensor, norm: ZNorm) -> Tensor:
    """Scale z (..., d) to its length in training; zero stays zero."""
    if norm == "free":
        return z
    size: Tensor = torch.linalg.vector_norm(z, dim=-1, keepdim=True).clamp_min(1e-12)
    return math.sqrt(z.shape[-1]) * (z / size)


def asked_length(z_R: Tensor, norm: ZNorm, radius: float) -> tuple[Tensor, Tensor]:
    """Scale z_R (n, d) to the length at which F is evaluated; returns z and the scale (n,), z_R = scale * z.

    Scaling a reward changes no optimal policy. ``radius`` is the root mean square of |B|.
    """
    length = z_R.shape[1] ** 0.5 if norm == "sphere" else ASKED_LENGTH * radius
    scale = z_R.norm(dim=1) / length
    scale = torch.where(scale > 0, scale, 1.0)
    return z_R / scale[:, None], scale
