"""Measures of an answer that do not need the optimal policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.model.latent import preprocess_z
from anyreward.model.rank import RANK_SHARE, learned_directions
from anyreward.rewards.knowledge import FeatureSample

Array = np.ndarray[Any, Any]

THIN_NEIGHBOUR, THIN_ROWS = 10, 2_000
"""For numbers, data is thin where the 10th neighbour among 2,000 rows is more than twice as far as the median."""
CLOSE = 0.05
"""Smallest median distance, in standard deviations, for data with many equal rows."""
EXACT = "donot_use_mm_for_euclid_dist"
"""Mode of `torch.cdist` in which equal rows have a distance of exactly zero."""
THIN_SHARE = 0.1
"""For categories, data is thin where its weight is less than this share of a uniform distribution."""


def represented(values: Array, sample: FeatureSample) -> float:
    """R^2 of a reward on the span of B: 1 - |r - Pr|^2 / |r|^2 in L2(rho), P the projection with a small ridge."""
    r = torch.from_numpy(np.asarray(values, dtype=np.float64))
    covariance = sample.covariance
    size = float((sample.weights * r.square()).sum())
    if size == 0.0:
        return 1.0
    ridge = RANK_SHARE * torch.linalg.eigvalsh(covariance)[-1]
    z = (sample.weights * r) @ sample.B
    coefficients = torch.linalg.solve(covariance + ridge * torch.eye(len(z), dtype=torch.float64), z)
    residual = r - sample.B @ coefficients
    return 1.0 - float((sample.weights * residual.square()).sum()) / size


def conditioning(covariance: Tensor) -> tuple[float, float]:
    """The effective rank exp(entropy) of Cov B, and the ratio of its extreme eigenvalues among learned directions."""
    values = torch.linalg.eigvalsh(covariance).clamp(min=0.0)
    share = values / values.sum()
    rank = torch.exp(-torch.special.xlogy(share, share).sum())
    learned = values[learned_directions(values)]
    return float(rank), float(learned[-1] / learned[0])


def typicality(z: Tensor, training: Tensor) -> float:
    """The share of ``training`` z (n, d) with a larger Mahalanobis distance than z (d,), after preprocessing for F."""
    seen, one = (preprocess_z(x.double()) for x in (training, z[None]))
    moment = seen.T @ seen / len(seen)
    moment += 1e-6 * moment.trace() / len(z) * torch.eye(len(z), dtype=torch.float64)
    far = [(x * torch.linalg.solve(moment, x.T).T).sum(1) for x in (seen, one)]
    return float((far[0] >= far[1] * (1 - 1e-9)).double().mean())


def bellman_residual(
    Q: Tensor, next_Q: Tensor, rows: Transitions, r: Tensor, gamma: float, temperature: float
) -> float:
    """Root mean square of Q(s, a) - r - gamma V(s') relative to the spread of Q, both (n, A), on transitions.

    V is the value of the policy of Q: softmax(Q / temperature), as in training, or greedy at temperature 0.
    """
    pi = torch.softmax(next_Q / temperature, 1) if temperature > 0 else None
    V = next_Q.amax(1) if pi is None else (pi * next_Q).sum(1)
    return residual_of(Q.gather(1, rows.actions[:, None]).squeeze(1), V, rows, r, gamma)


def residual_of(now: Tensor, V: Tensor, rows: Transitions, r: Tensor, gamma: float) -> float:
    """Root mean square of Q - r - gamma V(s') relative to the spread of Q, for the Q (n,) of transitions and V (n,)."""
    error = now - r - torch.where(rows.terminated, 0.0, gamma * V)
    return float(error.square().mean().sqrt() / now.std().clamp(min=1e-12))


def thin_rows(rows: Tensor, sample: FeatureSample, categorical: bool) -> Tensor:
    """(n,) whether training data is thin at packed features (n, packed)."""
    if categorical:
        even = 1 / len(sample.rows)
        common = {row.tobytes() for row in sample.rows[sample.weights >= THIN_SHARE * even].numpy()}
        return torch.tensor([row.tobytes() not in common for row in rows.numpy()])
    known = sample.rows[:: -(-len(sample.rows) // THIN_ROWS)].double()
    size = known.std(0)
    size = torch.where(size > 0, size, 1.0)
    k = min(THIN_NEIGHBOUR, len(known) - 1)

    def far(x: Tensor) -> Tensor:
        pieces = torch.split(x / size, 2_048)
        distances = (torch.cdist(piece, known / size, compute_mode=EXACT) for piece in pieces)
        return torch.cat([d.kthvalue(k, dim=1).values for d in distances])

    usual = far(known).median().clamp(min=CLOSE)
    return far(rows.double()) > 2 * usual
