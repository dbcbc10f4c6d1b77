"""The data from which an agent answers rewards: its model and a sample of the training distribution rho."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from anyreward.learning.batch import rho_rows
from anyreward.learning.method import Method
from anyreward.learning.methods import method_of
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import Settings
from anyreward.model.latent import asked_length, trained_length
from anyreward.model.model import Model
from anyreward.rewards.kept import KeptPoints, KeptTransitions
from anyreward.rewards.regression import Whitening, whitening

Array = np.ndarray[Any, Any]

ROUNDING = 1e-6
"""Relative size below which the z of a sum whose terms cancel is rounding error of B in float32."""
SMALL_MEAN = 0.5
"""The mean of a reward is removed only if it is larger than this share of the standard deviation."""
ROWS_AT_ONCE = 8_192
"""Number of rows in one pass of B."""
SPARSE = 0.05
"""Share of nonzero entries of B below which products with it are sparse."""


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """The training distribution rho of the features, as weighted rows with their B."""

    rows: Tensor
    """(n, packed)"""
    weights: Tensor
    """(n,) float64, with a sum of one"""
    B: Tensor
    """(n, d) float64"""
    saved_covariance: Tensor | None = None
    """(d, d) float64, if it was saved"""

    @cached_property
    def covariance(self) -> Tensor:
        """(d, d) float64, Cov_rho B = E_rho[B B^T]."""
        if self.saved_covariance is not None:
            return self.saved_covariance
        return (self.B * self.weights[:, None]).T @ self.B

    @cached_property
    def radius(self) -> float:
        """The root mean square of |B| under rho: the length of a typical goal's z."""
        return float((self.weights * self.B.square().sum(1)).sum().sqrt())

    @cached_property
    def white(self) -> Whitening:
        """Coordinates in which Cov_rho B is the identity."""
        return whitening(self.covariance)

    @cached_property
    def mean_B(self) -> Tensor:
        """(d,) E_rho[B], the z of a reward that is one everywhere."""
        return self.weights @ self.B

    def mean_with(self, values: Array) -> Tensor:
        """(d,) E_rho[r B] of a reward with values (n,) at the rows."""
        weighted = self.weights.numpy() * values
        return torch.from_numpy(weighted @ (self.B.numpy() if self._sparse_B is None else self._sparse_B))

    @cached_property
    def _sparse_B(self) -> csr_array | None:
        """B as a sparse matrix, if most of its entries are zero, as those of local functions are."""
        few = len(self.B) > 0 and float((self.B != 0).double().mean()) < SPARSE
        return csr_array(self.B.numpy()) if few else None

    @cached_property
    def _weight_of(self) -> dict[bytes, float]:
        return {row.tobytes(): w for row, w in zip(self.rows.numpy(), self.weights.tolist(), strict=True)}

    def frequency(self, rows: Tensor) -> Tensor:
        """(n,) rho of packed features (n, packed), where they are categories."""
        found = [self._weight_of.get(row.tobytes(), 0.0) for row in rows.numpy()]
        return torch.tensor(found, dtype=torch.float64)


def feature_sample(model: Model, replay: Replay, most: int, seed: int) -> FeatureSample:
    """A sample of rho from the replay buffer: all distinct rows of categories, else ``most`` random rows."""
    chosen, weights = rho_rows(model, replay, most, seed)
    rows = replay.transitions.features[chosen]
    if model.feature_encoder.categorical:
        rows, index = model.feature_encoder.distinct(rows)
        weights = torch.bincount(index).double() / len(index)
    return with_backward(model, rows.clone(), weights)


def with_backward(model: Model, rows: Tensor, weights: Tensor, covariance: Tensor | None = None) -> FeatureSample:
    """The sample with B computed from its rows."""
    return FeatureSample(rows, weights, backward(model, rows), covariance)


def backward(model: Model, rows: Tensor) -> Tensor:
    """(n, d) B of packed features (n, packed) in float64, in pieces that fit in memory."""
    return torch.cat([model.backward_map(piece) for piece in torch.split(rows, ROWS_AT_ONCE)]).double()


class Episodes(NamedTuple):
    """How episodes of the world begin and when they are cut off, as far as training saw it."""

    starts: Tensor
    """(n, packed) first observations"""
    limit: int
    """steps after which an episode is truncated; 0 if there is no limit, or it is not known"""
    new: Tensor
    """(n,) bool: which of the first observations had never been visited before, if they are categories"""

    @property
    def unknown(self) -> float:
        """The probability that the next episode starts in a state that was never visited: that of recent episodes."""
        recent = self.new[len(self.new) // 2 :]
        return float(recent.sum()) / (1 + len(recent))


class Task(NamedTuple):
    """z_R, scaled and without the mean of the reward, as a policy needs it."""

    z: Tensor
    """(d,) z_R at the length that F is evaluated at, in the model's dtype"""
    scale: float
    """z_R = scale * z, up to the mean of the reward"""
    constant: float
    """the value of the reward's mean, which was removed from z if it changes no policy"""


@dataclass(frozen=True, eq=False)
class Knowledge:
    """F, B, phi and their encoders (the model), a sample of rho, and the settings that they were learned with."""

    model: Model
    settings: Settings
    sample: FeatureSample
    kept: KeptTransitions | None = None
    """Distinct transitions of the training data, where observations are categories: answers are refined on them."""
    points: KeptPoints | None = None
    """Points among states of few numbers, with their transitions: answers are refined on them."""
    held_out: Transitions | None = None
    """Transitions not used in training, for the evaluation of answers."""
    updates: int = 0
    """Gradient updates done."""
    episodes: Episodes | None = None
    """The starts of episodes and their time limit; None after training on a dataset."""

    @property
    def method(self) -> type[Method]:
        """The method that learned the model."""
        return method_of(self.model.phi, self.settings)

    @property
    def dim(self) -> int:
        """d, the dimension of z."""
        return self.sample.B.shape[1]

    @property
    def categorical(self) -> bool:
        """Whether features are categories, so that equal rows mean equal features."""
        return self.model.feature_encoder.categorical

    @property
    def may_end(self) -> bool:
        """Whether episodes were seen to terminate; True if that is not known."""
        if self.model.phi.ends:
            return bool((self.sample.rows[:, -1] > 0.5).any())  # rare ends may be missing in the held-out rows
        rows = self.held_out or (self.kept.rows if self.kept else None)
        return rows is None or bool(rows.terminated.any())

    @cached_property
    def _visited(self) -> frozenset[bytes] | None:
        """The observations of the training data, if they are categories and all of them are kept; else None."""
        encoder, phi = self.model.observation_encoder, self.model.phi
        if not encoder.categorical or encoder.image:
            return None
        if self.model.landmarks is not None:
            rows = self._without_end(self.model.landmarks.P.states.rows)
        elif self.kept is not None and phi.kind == "observation":
            rows = torch.cat([self._without_end(self.kept.states), self.sample.rows[:, : phi.state_packed]])
        else:
            return None
        return frozenset(row.tobytes() for row in rows.numpy())

    def _without_end(self, observations: Tensor) -> Tensor:
        """Packed observations without the flag ``ended``."""
        return observations[:, :-1] if self.model.phi.ends else observations

    def unvisited(self, observations: Tensor) -> Tensor:
        """(n,) whether packed observations (n, packed) were never visited in training; False if that is not known.

        A terminal state counts as visited.
        """
        visited = self._visited
        if visited is None:
            return torch.zeros(len(observations), dtype=torch.bool)
        return torch.tensor([row.tobytes() not in visited for row in self._without_end(observations).numpy()])

    @cached_property
    def one(self) -> Tensor:
        """(d,) the z of a reward of one on every step, and of zero in terminal states."""
        sample = self.sample
        if not self.model.phi.ends:
            return sample.mean_B
        return (sample.weights * (sample.rows[:, -1] < 0.5)) @ sample.B

    def B(self, rows: Tensor) -> Tensor:
        """(n, d) B of packed features (n, packed), in float64."""
        return backward(self.model, rows)

    def goal_z(self, goals: Tensor) -> Tensor:
        """(n, d) z_R of goals (n, m, packed), each given by m rows of packed features.

        For categories, a goal is a reward of one in its rows, so z_R = sum of rho(g) B(g); the mean of B if none of
        them was visited. For numbers, it is a unit of mass at a point, so z_R = B(g), as in the paper; or, if goals
        have a tolerance, a reward of one within it. For goal-oriented DQN, z is the encoded goal.
        """
        n, m, _ = goals.shape
        rows = goals.flatten(0, 1)
        if self.method.goals_only:
            return self.model.backward_map(goals[:, 0]).double()
        if self.model.phi.tolerance is not None:
            regions = torch.cat([self._region_z(piece) for piece in torch.split(rows, 256)])
            return regions.view(n, m, -1).sum(1)
        B = self.B(rows).view(n, m, -1)
        if not self.categorical:
            return B.mean(1)
        share = self.sample.frequency(rows).view(n, 1, m)
        return torch.where(share.any(2), (share @ B).squeeze(1), B.mean(1))

    def _region_z(self, goals: Tensor) -> Tensor:
        """(m, d) E_rho[B; within the tolerance of g] for goals g (m, packed); if empty, B(g) at the smallest weight."""
        sample = self.sample
        inside = torch.from_numpy(self.model.phi.reached(sample.rows.numpy(), goals.numpy())).double()  # (n, m)
        inside *= sample.weights[:, None]
        alone = self.B(goals) * sample.weights.min()
        return torch.where(inside.any(0)[:, None], inside.T @ sample.B, alone)

    def scaled(self, z_R: Tensor) -> tuple[Tensor, Tensor]:
        """The z (n, d) of z_R (n, d), without the mean of the reward and at the length for F, and the scales (n,).

        If no episode terminates, a constant reward changes no policy, but would dominate z.
        """
        if self.method.goals_only:
            return z_R.to(self.model.dtype), torch.ones(len(z_R), dtype=torch.float64)
        z_R = z_R.double()
        centred = z_R - self.mean_reward(z_R)[:, None] * self.sample.mean_B
        centred = torch.where(
            centred.norm(dim=1, keepdim=True) > ROUNDING * z_R.norm(dim=1, keepdim=True), centred, 0.0
        )
        z, scale = asked_length(centred, self.settings.z_norm, self.sample.radius)
        return z.to(self.model.dtype), scale

    def task(self, z_R: Tensor) -> Task:
        """The task of z_R (d,)."""
        z, scale = self.scaled(z_R[None])
        constant = 0.0 if self.method.goals_only else float(self.mean_reward(z_R)) / (1 - self.settings.gamma)
        return Task(z[0], float(scale[0]), constant)

    def mean_reward(self, z_R: Tensor) -> Tensor:
        """(...) the mean under rho of the rewards with these z_R (..., d), if a constant changes no policy, else 0.

        This holds if no episode terminates and F . z is all of Q. A mean that is small relative to the standard
        deviation counts as 0.
        """
        if self.may_end or self.settings.first_step or self.settings.bias:
            return torch.zeros(z_R.shape[:-1], dtype=z_R.dtype)
        w = z_R @ self.sample.white.into.T @ self.sample.white.into  # (..., d) the reward is B . w, on the span of B
        mean = w @ self.sample.mean_B
        spread = ((z_R * w).sum(-1) - mean.square()).clamp(min=0).sqrt()
        return torch.where(mean.abs() > SMALL_MEAN * spread, mean, 0.0)

    def linear_reward(self, z_R: Tensor) -> Tensor:
        """(d,) w with E_rho[(B . w) B] = z_R: the reward linear in B that has this z_R."""
        white = self.sample.white
        return white.into.T @ (white.into @ z_R)

    def training_z(self, n: int, random: torch.Generator) -> Tensor:
        """(n, d) z drawn as in training, with B of the sample."""
        s, B = self.settings, None
        if s.z_mixture.needs_B:
            rows = torch.multinomial(self.sample.weights, s.batch_size, replacement=True, generator=random)
            B = self.sample.B[rows].float()
        return trained_length(s.z_mixture.draw(n, self.dim, B, random), s.z_norm)
