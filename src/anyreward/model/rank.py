"""The numerical rank of B: which of its directions count as learned."""

from __future__ import annotations

from torch import Tensor

RANK_SHARE = 1e-6
"""Directions with less than this share of the largest variance count as not learned."""


def learned_directions(variances: Tensor) -> Tensor:
    """(n,) which of these variances (eigenvalues of a covariance, in ascending order) count as learned."""
    return variances > RANK_SHARE * variances[-1].clamp(min=1e-300)
