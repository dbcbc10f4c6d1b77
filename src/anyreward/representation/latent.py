"""The task vector z: the distributions it is drawn from in training, and how it is shown to F."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

CAUCHY_SCALE = 0.5
SUM_SIZES = (2, 3, 4)


@dataclass(frozen=True)
class Coordinates:
    """A change of variables (Remark "normB"): B' = C B, F'(s, a, z) = C^-T F(s, a, C^-1 z), and so z_R' = C z_R.

    It changes neither policies nor Q-values. Where C (k, d) has fewer rows than columns it leaves out directions that
    B, and so z_R, never takes; the inverse then is one on all others.
    """

    C: Tensor
    """(k, d) float64"""
    inverse: Tensor
    """(d, k) float64"""

    def new(self, z: Tensor) -> Tensor:
        """(..., k) C z, of z or B (..., d)."""
        return (z.double() @ self.C.T).to(z.dtype)

    def own(self, z: Tensor) -> Tensor:
        """(..., d) C^-1 z, of z or B (..., k)."""
        return (z.double() @ self.inverse.T).to(z.dtype)

    def forward(self, F: Tensor) -> Tensor:
        """(..., k) C^-T F, of F (..., d)."""
        return (F.double() @ self.inverse).to(F.dtype)


def preprocess_z(z: Tensor) -> Tensor:
    """What F sees of z: z / sqrt(1 + |z|^2 / d), bounded by sqrt(d) (Appendix, implementation details)."""
    d = z.shape[-1]
    norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z * torch.rsqrt(1 + norm.square() / d)


def cauchy_z(n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
    """(n, d) the paper's nu: sqrt(d) * u * x / |x| with x normal and u Cauchy of scale 0.5."""
    u = torch.empty(n, 1, device=_device(generator)).cauchy_(0, CAUCHY_SCALE, generator=generator)
    return u * sphere_z(n, d, generator)


def sphere_z(n: int, d: int, generator: torch.Generator | None = None) -> Tensor:
    """(n, d) uniform on the sphere of radius sqrt(d)."""
    x = torch.randn(n, d, generator=generator, device=_device(generator))
    return math.sqrt(d) * functional.normalize(x, dim=1)


def backward_z(n: int, B: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(n, d) rows of B (b, d) drawn at random: the z of single goals."""
    return B.index_select(0, torch.randint(len(B), (n,), generator=generator, device=_device(generator)))


def backward_sum_z(n: int, B: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(n, d) sums of two to four rows of B with random signs: the z of goals with others to avoid."""
    most, device = max(SUM_SIZES), _device(generator)
    size = torch.randint(min(SUM_SIZES), most + 1, (n, 1), generator=generator, device=device)
    sign = 2.0 * torch.randint(2, (n, most), generator=generator, device=device) - 1.0
    weight = torch.where(torch.arange(most, device=device) < size, sign, 0.0).to(B)  # (n, most)
    rows = torch.randint(len(B), (n, most), generator=generator, device=device)
    return functional.embedding_bag(rows, B, per_sample_weights=weight, mode="sum")


def backward_reward_z(n: int, B: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """(n, d) sums of all rows of B (b, d) with normal weights: the z of dense random rewards."""
    weight = torch.randn(n, len(B), generator=generator, device=_device(generator)).to(B)
    return weight @ B / math.sqrt(len(B))


def on_sphere(z: Tensor, own: Tensor | None = None) -> Tensor:
    """Every z (..., d) scaled to length sqrt(d), as measured in the coordinates of ``own``; zero stays zero."""
    own = z if own is None else own
    size: Tensor = torch.linalg.vector_norm(own, dim=-1, keepdim=True).clamp_min(1e-12)
    return math.sqrt(own.shape[-1]) * (z / size)


def sample_z(
    kind: str,
    n: int,
    d: int,
    B: Tensor | None = None,
    shares: tuple[float, float, float] = (0.4, 0.4, 0.0),
    generator: torch.Generator | None = None,
) -> Tensor:
    """(n, d) task vectors.

    Args:
        kind: "cauchy" (the paper), "sphere", or "mixture": Cauchy together with B of replay features.
        n: how many.
        d: their dimension.
        B: (m, d) backward embeddings of replay features, no gradient, for the mixture.
        shares: of the mixture, the probability of a single row of B, of a signed sum of a few rows of B, and of a
            sum of all rows of B with normal weights.
        generator: source of randomness.
    """
    if kind == "cauchy":
        return cauchy_z(n, d, generator)
    if kind == "sphere":
        return sphere_z(n, d, generator)
    if kind != "mixture" or B is None:
        raise ValueError(
            f"z sampling is {kind!r} with B {'given' if B is not None else 'missing'}; accepted: cauchy, "
            "sphere, or mixture with B"
        )
    choice = torch.rand(n, generator=generator, device=_device(generator))
    single = int((choice < shares[0]).sum())
    sums = int((choice < shares[0] + shares[1]).sum()) - single
    rewards = int((choice < sum(shares)).sum()) - single - sums
    parts = [
        backward_z(single, B, generator),
        backward_sum_z(sums, B, generator),
        *([backward_reward_z(rewards, B, generator)] if rewards else []),
        cauchy_z(n - single - sums - rewards, d, generator).to(B),
    ]
    return torch.cat(parts).index_select(0, torch.randperm(n, generator=generator, device=_device(generator)))


def _device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
