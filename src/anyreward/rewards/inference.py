"""From a reward, however it is given, to the task vector z_R = E_rho[r B], eq. (zR)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Replay
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.representation.latent import Coordinates, on_sphere, sample_z
from anyreward.rewards.places import demonstrated_rows, goal_rows, sample_rows
from anyreward.rewards.regression import (
    ENOUGH,
    Estimate,
    Moments,
    Whitening,
    mean_z,
    moments,
    regression_z,
    warn_if_blind,
    whitening,
)
from anyreward.rewards.reward import Demonstration, Function, Goal, Reward, Samples, TaskVector, Term

Array = np.ndarray[Any, Any]

ROUNDING = 1e-6
"""What is left of a z whose parts cancel, relative to them, for nothing but float32 in B."""
FEW = 0.05
"""Share of samples that may lie where training never was before it is worth a warning."""
ROWS_AT_ONCE = 8_192
"""Rows that go through B together."""
ASK_SIZE = 0.7
"""The size of an asked z, in units of a typical goal's z. Below 1, greedy policies are steadier next to a goal, above,
costs weigh more; docs/presets.md has the figures."""


@dataclass(frozen=True)
class FeatureSample:
    """The training distribution rho of the features, as weighted rows with their B: all that asking needs of it."""

    rows: Tensor
    """(n, packed)"""
    weights: Tensor
    """(n,) float64, their sum is one"""
    B: Tensor
    """(n, d) float64"""
    covariance: Tensor
    """(d, d) float64, Cov_rho B = E_rho[B B^T]"""
    coordinates: Coordinates | None = None
    """of B, where they are not those that it was learned in"""

    def own(self, z: Tensor) -> Tensor:
        """(n, d) of z (n, d), in the coordinates that F and B were learned in: its size there is what F knows."""
        return z if self.coordinates is None else self.coordinates.own(z)

    @property
    def radius(self) -> float:
        """The root mean square of |B| under rho: the size of a typical goal's z."""
        return float((self.weights * self.own(self.B).square().sum(1)).sum().sqrt())

    @cached_property
    def white(self) -> Whitening:
        """Coordinates in which Cov_rho B is the identity."""
        return whitening(self.covariance)


def feature_sample(representation: Representation, replay: Replay, most: int, seed: int) -> FeatureSample:
    """A sample of rho from the replay: all distinct rows where features are categories, else ``most`` random rows."""
    categorical = representation.feature_encoder.categorical
    rows = replay.transitions.features[replay.sample(most, seed, every=categorical)]
    if categorical:
        rows, index = representation.feature_encoder.distinct(rows)
        weights = torch.bincount(index).double() / len(index)
    else:
        weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    return with_backward(representation, rows.clone(), weights)


def with_backward(
    representation: Representation, rows: Tensor, weights: Tensor, covariance: Tensor | None = None
) -> FeatureSample:
    """The sample with B computed from its rows, in pieces that fit in memory; Cov_rho B too unless it is known."""
    B = torch.cat([representation.backward_map(piece) for piece in torch.split(rows, ROWS_AT_ONCE)]).double()
    covariance = (B * weights[:, None]).T @ B if covariance is None else covariance
    return FeatureSample(rows, weights, B, covariance, representation.coordinates)


def known_size(z_R: Tensor, sample: FeatureSample, s: Settings) -> tuple[Tensor, Tensor]:
    """z_R (n, d) at the size that F knows best, and by what each was divided, (n,).

    Scaling a reward changes no optimal policy.
    """
    size = z_R.shape[1] ** 0.5 if s.z_norm == "sphere" else ASK_SIZE * sample.radius
    scale = sample.own(z_R).norm(dim=1) / size
    scale = torch.where(scale > 0, scale, 1.0)
    return z_R / scale[:, None], scale


def training_z(sample: FeatureSample, s: Settings, n: int, random: torch.Generator) -> Tensor:
    """(n, d) task vectors drawn as in training, with B of the agent's own sample of features."""
    B = None
    if s.z_sampling == "mixture":
        rows = torch.multinomial(sample.weights, s.batch_size, replacement=True, generator=random)
        B = sample.own(sample.B[rows]).float()
    d = sample.B.shape[1] if sample.coordinates is None else sample.coordinates.C.shape[1]
    z = sample_z(s.z_sampling, n, d, B, (s.z_goals, s.z_sums, s.z_rewards), random)
    z = on_sphere(z) if s.z_norm == "sphere" else z
    return z if sample.coordinates is None else sample.coordinates.new(z)


def reward_values(
    target: Reward, rows: Tensor, features: FeatureMap, representation: Representation, sample: FeatureSample
) -> Array:
    """(n,) the reward of packed features (n, packed), as far as it is known.

    A goal pays where the features equal it. Samples, demonstrations and a z itself have no values elsewhere: they
    stand for the reward linear in B that has their z.
    """
    values = np.zeros(len(rows))
    readable = features.readable(rows.numpy())
    B = None
    for weight, term in target.terms:
        if isinstance(term, Function):
            values += weight * term(readable, features.column_names)
        elif isinstance(term, Goal):
            here = features.reached(rows.numpy(), goal_rows(term, features, representation)).sum(1)
            if len(rows) and goals_are_points(features, representation) and not np.any(here):
                raise UserError(
                    f"{term} is a single point among numbers, where no reward is ever seen. To fine-tune or to count, "
                    "give it a size: anyreward.reward('hypot(x - 0.2, y - 0.5) < 0.05')."
                )
            values += weight * here
        else:
            B = representation.backward_map(rows).double() if B is None else B
            z = infer(Reward(((weight, term),)), sample, features, representation, quiet=True).z
            values += (B @ linear_reward(z, sample)).numpy()
    return values


def goals_are_points(features: FeatureMap, representation: Representation) -> bool:
    """Whether a goal is a single point among numbers, which has no values anywhere else."""
    return not representation.feature_encoder.categorical and features.tolerance is None


def settled(target: Reward, sample: FeatureSample, features: FeatureMap, representation: Representation) -> Reward:
    """The same reward, with samples and demonstrations replaced by the z that they have."""
    terms: list[tuple[float, Term]] = []
    for weight, term in target.terms:
        if isinstance(term, Samples | Demonstration):
            z = infer(Reward(((1.0, term),)), sample, features, representation, quiet=True).z
            term = TaskVector(tuple(z.tolist()), None, str(term))
        terms.append((weight, term))
    return Reward(tuple(terms))


def linear_reward(z: Tensor, sample: FeatureSample) -> Tensor:
    """(d,) w with E_rho[(B . w) B] = z: the reward linear in B that has this z."""
    white = sample.white
    return white.into.T @ (white.into @ z)


@dataclass(frozen=True)
class Inferred:
    """What asking found out about a reward."""

    z: Tensor
    """(d,) z_R, in float64"""
    moments: Moments | None = None
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
    """(n,) the reward of the sample's rows, where it is made of functions alone"""


def infer(
    target: Reward, sample: FeatureSample, features: FeatureMap, representation: Representation, quiet: bool = False
) -> Inferred:
    """z_R = E_rho[r B], in float64, and how it came about.

    Where features are categories this is exact on the sample, goals included: a goal g counts with its frequency
    rho(g). Where they are numbers, no sampled row equals a goal, and goal(g) stands for a unit of mass at g, as in
    the paper: it adds B(g).
    """
    z = torch.zeros(sample.B.shape[1], dtype=torch.float64)
    size = 0.0  # of what is added up: where it cancels but for rounding, nothing is left
    known: Array | None = None
    seen: list[tuple[float, Moments, Estimate]] = []
    categorical = representation.feature_encoder.categorical
    for weight, term in target.terms:
        match term:
            case Function():
                readable = features.readable(sample.rows.numpy())
                values = weight * term(readable, features.column_names)
                known = values if known is None else known + values
                continue
            case Goal():
                new = _goal_z(term, sample, features, representation, quiet)
            case Demonstration():
                rows = torch.from_numpy(demonstrated_rows(term, features))
                if not quiet:
                    _warn_if_unvisited(rows, sample, categorical, "the demonstration")
                new = representation.backward_map(rows).double().mean(0)
            case TaskVector():
                if len(term.z) != len(z):
                    raise UserError(f"This z has {len(term.z)} numbers; this agent's d is {len(z)}.")
                new = torch.tensor(term.z, dtype=torch.float64)
            case Samples():
                rows = sample_rows(term.features, features, representation)
                m = sample_moments(rows, term.rewards, representation, len(z))
                few = m.samples < ENOUGH * len(sample.white.into)
                averaged = term.distribution == "training" and not few
                estimate = (mean_z if averaged else regression_z)(m, sample.white)
                if not quiet:
                    _warn_if_unvisited(rows, sample, categorical, f"{m.samples:,} samples")
                    warn_if_blind(estimate, m.samples)
                new = estimate.z
                seen.append((weight, m, estimate))
        z, size = z + weight * new, size + abs(weight) * float(new.norm())
    if known is not None:
        new = (sample.weights * torch.from_numpy(known)) @ sample.B
        z, size = z + new, size + float(new.norm())
    if not torch.isfinite(z).all():
        raise UserError(f"z of the reward {target} is not finite: its features or rewards are too large.")
    if float(z.norm()) <= ROUNDING * size:
        z = torch.zeros_like(z)
    if not seen:
        functions = all(isinstance(term, Function) for _, term in target.terms)
        return Inferred(z, values=known if functions else None)
    return Inferred(
        z,
        seen[0][1] if len(target.terms) == 1 and seen[0][0] == 1.0 else None,
        sum(m.samples for _, m, _ in seen),
        sum(m.effective for _, m, _ in seen),
        float(np.sqrt(sum((weight * estimate.error) ** 2 for weight, _, estimate in seen))),
        min(estimate.seen for _, _, estimate in seen),
        max(estimate.of for _, _, estimate in seen),
        seen[0][2].explained if len(target.terms) == 1 else None,
    )


def _warn_if_unvisited(rows: Tensor, sample: FeatureSample, categorical: bool, what: str) -> None:
    if categorical:
        visited = {row.tobytes() for row in sample.rows.numpy()}
        beyond = sum(row.tobytes() not in visited for row in rows.numpy())
    else:
        low, high = (sample.rows.amin(0), sample.rows.amax(0)) if len(sample.rows) else (rows, rows)
        beyond = int(((rows < low) | (rows > high)).any(1).sum())
    if beyond > FEW * len(rows):
        warnings.warn(
            f"Of {what}, {beyond:,} of {len(rows):,} rows lie where training never was: B means little there.",
            stacklevel=4,
        )


def warn_if_moot(target: Reward, found: Inferred, may_end: bool) -> None:
    """Say so where a reward does not tell policies apart; a constant one does where episodes may end by themselves."""
    said = ""
    if not found.z.any() and found.samples == 0 and any(isinstance(term, Samples) for _, term in target.terms):
        return  # they are still to come
    if not found.z.any():
        said = "zero wherever it was seen" if found.samples else "zero wherever the agent has been"
    elif found.values is not None and not may_end and np.ptp(found.values) <= 1e-12 * np.abs(found.values).max():
        said = f"{found.values[0]:g} everywhere, and no episode was seen to end by itself"
    if said:
        warnings.warn(f"This reward is {said}: every policy is equally good.", stacklevel=3)


@dataclass(frozen=True)
class Belief:
    """What is believed of a reward, and becomes of it as rewards are seen.

    Samples that were asked about count like those that follow. Any other reward is what is believed before; what is
    seen corrects it where it differs from the reward linear in B that has its z.
    """

    found: Inferred
    before: Tensor
    """(d,) z_R as it was believed before anything was seen"""
    seen: Moments
    """of what was seen since, as far as it differs from that"""

    def after(self, rows: Tensor, rewards: Array, sample: FeatureSample, representation: Representation) -> Belief:
        """The belief after rewards (n,) were seen at packed features (n, packed)."""
        w = linear_reward(self.before, sample)
        expected = [representation.backward_map(piece).double() @ w for piece in torch.split(rows, ROWS_AT_ONCE)]
        new = rewards - torch.cat(expected).numpy()
        m = self.seen.plus(sample_moments(rows, new, representation, len(self.before)))
        e = regression_z(m, sample.white)
        own = m if not self.before.any() else None
        found = Inferred(
            self.before + e.z, own, m.samples, m.effective, e.error, e.seen, e.of, e.explained if own else None
        )
        return replace(self, found=found, seen=m)


def belief(found: Inferred) -> Belief:
    """What is believed once a reward was asked for."""
    if found.moments is not None:
        return Belief(found, torch.zeros_like(found.z), found.moments)
    return Belief(found, found.z, _no_moments(len(found.z)))


def sample_moments(rows: Tensor, rewards: Array, representation: Representation, dim: int) -> Moments:
    """The moments of rewards (n,) seen at packed features (n, packed), in pieces that fit in memory."""
    total, r = _no_moments(dim), torch.from_numpy(rewards)
    for i in range(0, len(rows), ROWS_AT_ONCE):
        piece = slice(i, i + ROWS_AT_ONCE)
        total = total.plus(moments(representation.backward_map(rows[piece]).double(), r[piece]))
    return total


def _no_moments(dim: int) -> Moments:
    return moments(torch.zeros(0, dim, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))


def _goal_z(
    term: Goal, sample: FeatureSample, features: FeatureMap, representation: Representation, quiet: bool
) -> Tensor:
    """(d,) B of a goal, times its frequency where features are categories; where a goal has a size, E_rho[B; there]."""
    rows = torch.from_numpy(goal_rows(term, features, representation))
    if features.tolerance is not None:
        check_visited(term, rows, sample, representation, quiet)
        return regions_z(rows, sample, features, representation).sum(0)
    B = representation.backward_map(rows).double()
    mass = check_visited(term, rows, sample, representation, quiet)
    return B.mean(0) if mass is None else mass @ B


def regions_z(goals: Tensor, sample: FeatureSample, features: FeatureMap, representation: Representation) -> Tensor:
    """(m, d) E_rho[B; within the tolerance of a goal] for goals (m, packed); where nothing was seen, one row's."""
    z = []
    for piece in torch.split(goals, 256):
        inside = torch.from_numpy(features.reached(sample.rows.numpy(), piece.numpy())).double()  # (n, m)
        inside *= sample.weights[:, None]
        alone = representation.backward_map(piece).double() * sample.weights.min()
        z.append(torch.where(inside.any(0)[:, None], inside.T @ sample.B, alone))
    return torch.cat(z)


def check_visited(
    term: Goal, rows: Tensor, sample: FeatureSample, representation: Representation, quiet: bool = False
) -> Tensor | None:
    """(n,) the frequency of each row of a goal, where features are categories; complains where training never was."""
    if not representation.feature_encoder.categorical:
        low, high = sample.rows.min(0).values, sample.rows.max(0).values
        if not quiet and ((rows < low) | (rows > high)).any():
            warnings.warn(f"{term} lies outside what training visited: do not rely on this answer.", stacklevel=4)
        return None
    mass = torch.stack([sample.weights[(sample.rows == row).all(1)].sum() for row in rows])
    if not mass.any():
        raise UserError(
            f"{term} was never visited in training, so this agent knows nothing about it. In a maze: is it a wall? "
            "Elsewhere: explore more, or add data that visits it."
        )
    return mass
