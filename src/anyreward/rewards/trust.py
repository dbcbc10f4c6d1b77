"""How far an answer can be trusted, from what the agent itself knows. The first part of a longer story.

Two questions are asked. Can B represent the reward at all? And does one step of lookahead, with real transitions and
the real reward, agree with the actions that the policy takes? The second is what catches an F that has not learned
the policy of this z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.rewards.inference import FeatureSample
from anyreward.rewards.lookahead import LookaheadSample

RIDGE = 1e-4
"""Directions of B with less than this share of the largest variance count as not learned."""


@dataclass(frozen=True)
class Trust:
    """What can be said of an answer without knowing the best one. None: cannot be known here."""

    represented: float | None
    """R^2 under rho of the reward on the span of B; what B cannot represent is treated as zero. None for a goal among
    continuous features, which has no values on the sample."""
    consistent: float | None
    """Of what one step of lookahead could gain over a random action, the share that the policy's action gains. None
    where observations are not categories: there no state is seen twice, so its actions cannot be compared."""

    @property
    def score(self) -> float | None:
        """The lower of the two, between 0 and 1; not yet calibrated against the true quality."""
        known = [x for x in (self.represented, self.consistent) if x is not None]
        return min(max(min(known), 0.0), 1.0) if known else None

    def __str__(self) -> str:
        return "unknown" if self.score is None else f"{self.score:.2f}"


def represented(values: np.ndarray[Any, Any], sample: FeatureSample) -> float:
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


def consistent(sample: LookaheadSample, Q: Tensor, rewards: Tensor, gamma: float) -> float | None:
    """Share of the one-step lookahead gain that the greedy action takes, over the states whose actions are known.

    Q (S, A) is that of the sample's states, and ``rewards`` (n,) are those of its rows, in the same scale.
    """
    whole = (sample.seen(Q.shape[1]) > 0).all(1)
    if not whole.any():
        return None
    ahead = sample.backup(Q, rewards, gamma)[whole]
    taken = ahead.gather(1, Q[whole].argmax(1, keepdim=True)).squeeze(1)
    most = (ahead.max(1).values - ahead.mean(1)).sum()
    return float((taken - ahead.mean(1)).sum() / most) if most > 0 else 1.0
