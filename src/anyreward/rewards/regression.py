"""Estimates of z_R from reward samples: a mean under rho, or a regression on B under any other distribution."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from anyreward.model.rank import learned_directions

WELL_SPREAD = 1e-3
"""Samples determine a direction of B if its variance in them is at least this share of its variance under rho."""
MOST_SEEN = 0.9
"""Share of the directions of B below which samples are too few for a reliable answer."""
ENOUGH = 10
"""Samples for each direction of B from which on no ridge is needed, and a mean under rho is precise enough."""
RIDGES = torch.logspace(-8, 3, 45, dtype=torch.float64)
"""Ridges that cross-validation chooses from, relative to the variance of B under rho."""


@dataclass(frozen=True)
class RewardStatistics:
    """Sums over reward samples from which z_R is estimated; the sums of further samples can be added."""

    samples: int
    B: Tensor
    """(d,) sum of B"""
    BB: Tensor
    """(d, d) sum of B B^T"""
    rB: Tensor
    """(d,) sum of r B"""
    spread: Tensor
    """(d,) sum of (r B)^2"""
    r: float
    """sum of r"""
    rr: float
    """sum of r^2"""
    size: float
    """sum of |r B|"""

    def plus(self, other: RewardStatistics) -> RewardStatistics:
        """The statistics of both sets of samples."""
        return RewardStatistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def effective(self) -> float:
        """The effective number of samples: the number of equal |r B| with the same spread."""
        total = float(self.spread.sum())
        return self.size**2 / total if total > 0 else 0.0


def no_statistics(dim: int) -> RewardStatistics:
    """The statistics of no samples."""
    return statistics(torch.zeros(0, dim, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))


def statistics(B: Tensor, r: Tensor) -> RewardStatistics:
    """The statistics of rewards r (n,) observed at B (n, d), in float64."""
    rB = r[:, None] * B
    return RewardStatistics(
        len(r),
        B.sum(0),
        B.T @ B,
        rB.sum(0),
        rB.square().sum(0),
        float(r.sum()),
        float(r.square().sum()),
        float(rB.norm(dim=1).sum()),
    )


class Estimate(NamedTuple):
    """An estimate of z_R from samples."""

    z: Tensor
    """(d,)"""
    factor: Tensor
    """(d, m) whose product with its transpose is the covariance of the estimate"""
    seen: int
    """the number of directions of B that the samples determine"""
    of: int
    """the number of all directions of B"""
    ridge: float = 0.0
    explained: float = 0.0
    """R^2 of the rewards on the span of B; the rest is noise or outside the span"""

    @property
    def error(self) -> float:
        """The standard error, as a length in the space of z."""
        return float(self.factor.norm())


@dataclass(frozen=True)
class Whitening:
    """B in coordinates whose covariance under rho is the identity, without the directions that B has not learned."""

    into: Tensor
    """(k, d)"""
    back: Tensor
    """(d, k)"""


def whitening(covariance: Tensor) -> Whitening:
    """The whitening of B with covariance Cov_rho B (d, d)."""
    variances = covariance.diagonal()
    if torch.equal(covariance, torch.diag(variances)):  # diagonal, as for many categories
        values, order = variances.sort()
        vectors = torch.eye(len(values), dtype=values.dtype)[:, order]
    else:
        values, vectors = torch.linalg.eigh(covariance)
    keep = learned_directions(values)
    root, U = values[keep].sqrt(), vectors[:, keep]
    return Whitening((U / root).T, U * root)


def mean_z(m: RewardStatistics) -> Estimate:
    """E_rho[r B] from samples of rho, eq. (zR)."""
    n, d = m.samples, len(m.rB)
    if n == 0:
        return _no_estimate(d, d)
    z = m.rB / n
    variance = (m.spread / n - z.square()).clamp(min=0.0) / max(n - 1, 1)
    return Estimate(z, torch.diag(variance.sqrt()), d, d)


def _no_estimate(d: int, directions: int) -> Estimate:
    zero = torch.zeros(d, dtype=torch.float64)
    return Estimate(zero, zero[:, None], 0, directions)


def regression_z(m: RewardStatistics, white: Whitening, one: Tensor | None = None) -> Estimate:
    """Cov_rho B (Cov_test B)^-1 E_test[r B] (Proposition "linearz"), from samples of any distribution.

    If the samples do not determine all directions of B, or are few, a ridge penalty on E_rho[r^2] is added; its size is
    chosen by generalised cross-validation. With ``one`` (d,), the z of a reward of one on every step, the penalty is on
    the difference from the mean reward: what was not seen pays the mean.
    """
    n, k = m.samples, len(white.into)
    if n == 0 or k == 0:
        return _no_estimate(len(m.rB), k)
    # in white coordinates Cov_rho B is the identity, and E_test[r B], Cov_test B are b, C
    b, C = white.into @ m.rB / n, white.into @ m.BB @ white.into.T / n
    s, V = torch.linalg.eigh(C)
    s, b = s.clamp(min=0.0), V.T @ b
    seen = int((s > WELL_SPREAD).sum())
    enough = seen == k and n >= ENOUGH * k
    mean = m.r / n if one is not None and not enough else 0.0
    rr = m.rr / n - 2 * mean * m.r / n + mean**2
    if mean:
        b = b - mean * (V.T @ (white.into @ m.B / n))
    ridge = 0.0 if enough else _cross_validated(s, b, rr, n)
    shrunk = 1 / (s + ridge) if ridge else torch.where(s > 0, 1 / s, 0.0)
    left = max(rr - float((2 * b.square() * shrunk - s * (b * shrunk).square()).sum()), 0.0)
    freedom = float((s * shrunk).sum())
    noise = left * n / max(n - freedom, 1.0)
    out = white.back @ V  # (d, k)
    # with a ridge, the posterior standard deviation for the corresponding prior: unseen directions are uncertain
    factor = out * (noise / n * shrunk).sqrt()
    z = out @ (b * shrunk)
    if one is not None and mean:
        z = z + mean * one
    return Estimate(z, factor, seen, k, ridge, 1 - left * n / m.rr if m.rr > 0 else 1.0)


def _cross_validated(s: Tensor, b: Tensor, rr: float, n: int) -> float:
    """The ridge with the least generalised cross-validation error."""
    shrunk = 1 / (s + RIDGES[:, None])  # (ridges, k)
    left = (rr - (2 * b.square() * shrunk - s * (b * shrunk).square()).sum(1)).clamp(min=0.0)
    freedom = (s * shrunk).sum(1)
    score = left / (1 - freedom / (n + 1)).square()  # n + 1 avoids a division by zero if the fit is exact
    return float(RIDGES[score.argmin()])


def warn_if_blind(estimate: Estimate, count: int) -> None:
    """Warn if the samples do not determine most directions of B."""
    if count and estimate.seen < MOST_SEEN * estimate.of:
        warnings.warn(
            f"These {count:,} samples determine only {estimate.seen} of the {estimate.of} directions of B (their "
            f"covariance of B is ill-conditioned); a ridge of {estimate.ridge:.2g} assumes the mean reward along the "
            "others. Give more samples, from other states.",
            stacklevel=4,
        )
