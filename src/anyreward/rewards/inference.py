"""The task vector z_R = E_rho[r B] of a reward, eq. (zR), and its update as rewards are observed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.rewards.coverage import pays_elsewhere
from anyreward.rewards.knowledge import ROUNDING, Knowledge
from anyreward.rewards.regression import RewardStatistics, no_statistics, regression_z
from anyreward.rewards.reward import LARGEST, SMALLEST, Reward
from anyreward.rewards.terms import sample_statistics

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Inferred:
    """The z_R of a reward, and statistics of its estimate."""

    z: Tensor
    """(d,) z_R, in float64"""
    statistics: RewardStatistics | None = None
    """of the samples, if z_R was estimated from one set of samples only"""
    samples: int = 0
    effective_samples: float = 0.0
    factor: Tensor | None = None
    """(d, m) whose product with its transpose is the covariance of z_R; None if z_R was not estimated"""
    seen: int = 0
    of: int = 0
    """``seen`` of all ``of`` directions of B are determined by the samples"""
    explained: float | None = None
    """R^2 of those samples on the span of B"""
    values: Array | None = None
    """(n,) the reward at the rows of the sample of rho, if it consists of functions only"""
    waiting: bool = False
    """whether it is given by samples and there are none yet"""

    @property
    def error(self) -> float:
        """The standard error of z_R, as a length."""
        return 0.0 if self.factor is None else float(self.factor.norm())

    @property
    def relative_error(self) -> float:
        """The standard error of z, relative to its length."""
        size = float(self.z.norm())
        return self.error / size if size > 0 else 0.0


def infer(reward: Reward, knowledge: Knowledge, quiet: bool = False) -> Inferred:
    """z_R = E_rho[r B], in float64: the weighted sum of the z of each term."""
    parts = [(weight, term.part(knowledge, quiet)) for weight, term in reward.terms]
    z = torch.zeros(knowledge.dim, dtype=torch.float64)
    size = 0.0  # a sum that cancels up to rounding is set to zero
    for weight, part in parts:
        z, size = z + weight * part.z, size + abs(weight) * float(part.z.norm())
    if not float(z.abs().max()) <= LARGEST:
        raise UserError(
            f"z of the reward {reward} is not finite, or larger than {LARGEST:g}: its features, rewards or weights are "
            "too large. Divide the reward by a number; that changes no policy."
        )
    if 0 < max((abs(weight) * float(part.z.abs().max()) for weight, part in parts), default=0.0) < SMALLEST:
        raise UserError(
            f"The reward {reward} is almost zero in all training data: z has no number above {SMALLEST:g}. Multiply it "
            "by a number, which changes no policy, or give a reward for states that were visited."
        )
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
        factor=torch.cat([weight * estimate.factor for weight, estimate, _ in estimated], 1),
        seen=min(estimate.seen for _, estimate, _ in estimated),
        of=max(estimate.of for _, estimate, _ in estimated),
        explained=estimated[0][1].explained if alone else None,
        waiting=total == 0,
    )


def warn_if_constant(found: Inferred, reward: Reward, knowledge: Knowledge) -> None:
    """Warn if all policies are equally good: a zero reward, or a constant one if episodes do not terminate."""
    text = ""
    if not found.z.any() and not found.waiting:
        text = "zero in all samples" if found.samples else "zero everywhere in the training data"
    elif (
        found.values is not None
        and not knowledge.may_end
        and np.ptp(found.values) <= 1e-12 * np.abs(found.values).max()
    ):
        text = f"{found.values[0]:g} everywhere, and no episode was seen to terminate"
    if text:
        elsewhere = "" if found.z.any() or found.samples else pays_elsewhere(reward, knowledge)
        warnings.warn(f"This reward is {text}: every policy is equally good. {elsewhere}".rstrip(), stacklevel=3)


@dataclass(frozen=True)
class Belief:
    """The estimate of a reward while rewards are observed.

    Samples that the answer started from count like those observed later. Any other reward is a prior: observed rewards
    correct it where they differ from the reward linear in B that has its z.
    """

    found: Inferred
    prior: Tensor
    """(d,) z_R before any observation"""
    seen: RewardStatistics
    """of the observed rewards minus the prior's"""

    def after(self, rows: Tensor, rewards: Array, knowledge: Knowledge) -> Belief:
        """The belief after rewards (n,) were observed at packed features (n, packed)."""
        if len(rewards) == 0:
            return self
        expected = knowledge.B(rows) @ knowledge.linear_reward(self.prior)
        seen = self.seen.plus(sample_statistics(rows, rewards - expected.numpy(), knowledge))
        e = regression_z(seen, knowledge.sample.white, None if self.prior.any() else knowledge.one)
        own = seen if not self.prior.any() else None
        found = Inferred(
            self.prior + e.z,
            own,
            seen.samples,
            seen.effective,
            e.factor,
            e.seen,
            e.of,
            explained=e.explained if own else None,
        )
        return replace(self, found=found, seen=seen)


def belief(found: Inferred) -> Belief:
    """The initial belief of an answer."""
    if found.statistics is not None:
        return Belief(found, torch.zeros_like(found.z), found.statistics)
    return Belief(found, found.z, no_statistics(len(found.z)))
