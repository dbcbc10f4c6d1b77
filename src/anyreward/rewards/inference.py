"""From a reward to the task vector z_R = E_rho[r B], eq. (zR), and what becomes of it as rewards are seen."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.rewards.knowledge import ROUNDING, Knowledge
from anyreward.rewards.regression import RewardStatistics, no_statistics, regression_z
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import sample_statistics

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Inferred:
    """What asking found out about a reward."""

    z: Tensor
    """(d,) z_R, in float64"""
    statistics: RewardStatistics | None = None
    """of the samples it came from, where it came from nothing else"""
    samples: int = 0
    effective_samples: float = 0.0
    error: float = 0.0
    """standard error of z_R, as a length"""
    seen: int = 0
    of: int = 0
    """directions of B that the samples tell apart, of how many"""
    explained: float | None = None
    """R^2 of those samples on the span of B"""
    values: Array | None = None
    """(n,) the reward at the rows of the sample of rho, where it is made of functions alone"""
    waiting: bool = False
    """whether it is to be estimated from samples that are still to come"""

    @property
    def relative_error(self) -> float:
        """The standard error of z, relative to its length."""
        size = float(self.z.norm())
        return self.error / size if size > 0 else 0.0


def infer(reward: Reward, knowledge: Knowledge, quiet: bool = False) -> Inferred:
    """z_R = E_rho[r B], in float64: the weighted sum of what each term contributes."""
    parts = [(weight, term.part(knowledge, quiet)) for weight, term in reward.terms]
    z = torch.zeros(knowledge.dim, dtype=torch.float64)
    size = 0.0  # where the sum cancels but for rounding, nothing is left
    for weight, part in parts:
        z, size = z + weight * part.z, size + abs(weight) * float(part.z.norm())
    if not torch.isfinite(z).all():
        raise UserError(f"z of the reward {reward} is not finite: its features or rewards are too large.")
    if float(z.norm()) <= ROUNDING * size:
        z = torch.zeros_like(z)
    values = None
    if parts and all(part.values is not None for _, part in parts):
        values = np.sum([weight * part.values for weight, part in parts if part.values is not None], axis=0)
    estimated = [(w, p.estimate, p.statistics) for w, p in parts if p.estimate and p.statistics]
    if not estimated:
        return Inferred(z, values=values)
    alone = len(parts) == 1
    total = sum(seen.samples for _, _, seen in estimated)
    return Inferred(
        z,
        statistics=estimated[0][2] if alone and estimated[0][0] == 1.0 else None,
        samples=total,
        effective_samples=sum(seen.effective for _, _, seen in estimated),
        error=float(np.sqrt(sum((weight * estimate.error) ** 2 for weight, estimate, _ in estimated))),
        seen=min(estimate.seen for _, estimate, _ in estimated),
        of=max(estimate.of for _, estimate, _ in estimated),
        explained=estimated[0][1].explained if alone else None,
        waiting=total == 0,
    )


def warn_if_constant(found: Inferred, may_end: bool) -> None:
    """Warn where all policies are equally good; a constant reward may prefer one where episodes end by themselves."""
    said = ""
    if not found.z.any() and not found.waiting:
        said = "zero wherever it was seen" if found.samples else "zero wherever the agent has been"
    elif found.values is not None and not may_end and np.ptp(found.values) <= 1e-12 * np.abs(found.values).max():
        said = f"{found.values[0]:g} everywhere, and no episode was seen to end by itself"
    if said:
        warnings.warn(f"This reward is {said}: every policy is equally good.", stacklevel=3)


@dataclass(frozen=True)
class Belief:
    """What is believed of a reward while rewards are seen.

    Samples that were asked about count like those that follow. Any other reward is a prior: what is seen corrects it
    where it differs from the reward linear in B that has its z.
    """

    found: Inferred
    prior: Tensor
    """(d,) z_R before anything was seen"""
    seen: RewardStatistics
    """of the rewards seen since, minus the prior's"""

    def after(self, rows: Tensor, rewards: Array, knowledge: Knowledge) -> Belief:
        """The belief after rewards (n,) were seen at packed features (n, packed)."""
        if len(rewards) == 0:
            return self
        expected = knowledge.B(rows) @ knowledge.linear_reward(self.prior)
        seen = self.seen.plus(sample_statistics(rows, rewards - expected.numpy(), knowledge))
        e = regression_z(seen, knowledge.sample.white)
        own = seen if not self.prior.any() else None
        found = Inferred(
            self.prior + e.z,
            own,
            seen.samples,
            seen.effective,
            e.error,
            e.seen,
            e.of,
            explained=e.explained if own else None,
        )
        return replace(self, found=found, seen=seen)


def belief(found: Inferred) -> Belief:
    """What is believed once a reward was asked for."""
    if found.statistics is not None:
        return Belief(found, torch.zeros_like(found.z), found.statistics)
    return Belief(found, found.z, no_statistics(len(found.z)))
