"""How far an answer can be trusted: the first part, how much of the reward B can represent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from anyreward.rewards.inference import FeatureSample

RIDGE = 1e-4
"""Directions of B with less than this share of the largest variance count as not learned."""


@dataclass(frozen=True)
class Trust:
    """What can be said of an answer from the representation alone."""

    represented: float | None
    """R^2 under rho of the reward on the span of B; what B cannot represent is treated as zero. None when unknown (a
    goal among continuous features has no values on the sample)."""

    def __str__(self) -> str:
        return "unknown" if self.represented is None else f"{self.represented:.2f}"


def represented(values: np.ndarray, sample: FeatureSample) -> float:
    """1 - |r - Pr|^2 / |r|^2 in L2(rho), P the (slightly ridged) projection on the span of B."""
    r = torch.from_numpy(np.asarray(values, dtype=np.float64))
    covariance = sample.covariance
    size = float((sample.weights * r.square()).sum())
    if size == 0.0:
        return 1.0
    ridge = RIDGE * torch.linalg.eigvalsh(covariance)[-1]
    z = (sample.weights * r) @ sample.B
    coefficients = torch.linalg.solve(covariance + ridge * torch.eye(len(z), dtype=torch.float64), z)
    residual = r - sample.B @ coefficients
    return 1.0 - float((sample.weights * residual.square()).sum()) / size
