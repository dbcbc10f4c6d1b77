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

from anyreward.learning.replay import Replay, Transitions
from anyreward.representation.fb import Representation
from anyreward.rewards.inference import FeatureSample

RIDGE = 1e-4
"""Directions of B with less than this share of the largest variance count as not learned."""
MOST_TRANSITIONS = 20_000
"""Transitions looked at when choosing what to keep for lookahead."""


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


@dataclass(frozen=True)
class LookaheadSample:
    """Distinct transitions of the training data, and how often each was seen."""

    rows: Transitions
    counts: Tensor
    """(n,) float64"""


def lookahead_sample(representation: Representation, replay: Replay, seed: int) -> LookaheadSample | None:
    """Distinct transitions of the replay, for `consistent`; None where observations are not categories."""
    if not representation.observation_encoder.categorical:
        return None
    random = torch.Generator().manual_seed(seed)
    rows = replay.transitions.at(torch.randperm(len(replay), generator=random)[:MOST_TRANSITIONS])
    table = torch.cat([column.reshape(len(rows.actions), -1).double() for column in rows], dim=1)
    _, group, counts = torch.unique(table, dim=0, return_inverse=True, return_counts=True)
    first = torch.full((len(counts),), len(group)).scatter_reduce_(0, group, torch.arange(len(group)), "amin")
    return LookaheadSample(rows.at(first), counts.double())


def consistent(
    representation: Representation, sample: LookaheadSample, rewards: np.ndarray[Any, Any], z: Tensor, gamma: float
) -> float | None:
    """Share of the one-step lookahead gain that argmax_a F(s, a, z) . z takes, over the states whose actions are known.

    ``rewards`` (n,) are those of the sample's rows, in the scale of z. Outcomes of one state and action are averaged
    as often as they were seen.
    """
    rows, counts = sample.rows, sample.counts
    states, state = torch.unique(rows.observations, dim=0, return_inverse=True)
    Q = representation.q(states, z.expand(len(states), -1)).double()  # (S, A)
    Q_next = representation.q(rows.next_observations, z.expand(len(counts), -1)).double()  # (n, A)
    outcome = torch.from_numpy(rewards) + torch.where(rows.terminated, 0.0, gamma * Q_next.max(1).values)  # (n,)
    where = (state, rows.actions)
    seen = torch.zeros_like(Q).index_put_(where, counts, accumulate=True)
    backup = torch.zeros_like(Q).index_put_(where, counts * outcome, accumulate=True) / seen
    whole = (seen > 0).all(1)
    if not whole.any():
        return None
    backup, Q = backup[whole], Q[whole]
    taken = backup.gather(1, Q.argmax(1, keepdim=True)).squeeze(1)
    most = (backup.max(1).values - backup.mean(1)).sum()
    return float((taken - backup.mean(1)).sum() / most) if most > 0 else 1.0
