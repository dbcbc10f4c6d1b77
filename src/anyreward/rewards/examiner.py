"""The examiner of an agent's answers: what judging them needs, computed once, and the report on each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.machine import threads
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Transitions
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.inference import (
    FeatureSample,
    Inferred,
    goals_are_points,
    known_size,
    reward_values,
    settled,
    training_z,
)
from anyreward.rewards.places import goal_rows
from anyreward.rewards.reward import Goal, Reward, TaskVector
from anyreward.rewards.smallworld import SmallWorld, small_world
from anyreward.rewards.trust import (
    LEAST_TRANSITIONS,
    Trust,
    bellman_residual,
    conditioning,
    judge,
    relative_error,
    represented,
    thin_rows,
    typicality,
)

Array = np.ndarray[Any, Any]

CODES = 4
"""z by which the small world's F tells what is alike."""
TRAINING_Z = 2_000
"""z drawn as in training, to see what is typical of them."""
AROUND_GOAL = 20
"""A goal among numbers is as many of the held-out features, those nearest to it."""


@dataclass(frozen=True, eq=False)
class Examiner:
    """Judges the answers of one agent."""

    sample: FeatureSample
    features: FeatureMap
    representation: Representation
    settings: Settings
    held_out: Transitions | None

    @cached_property
    def world(self) -> SmallWorld | None:
        """The small world of held-out transitions; None if there are too few."""
        if self.held_out is None or len(self.held_out.actions) < LEAST_TRANSITIONS:
            return None
        s, random = self.settings, torch.Generator().manual_seed(0)
        Z, _ = known_size(training_z(self.sample, s, CODES, random).double(), self.sample, s)
        return small_world(self.held_out, self.representation, Z.to(self.representation.dtype), s.gamma)

    @cached_property
    def _training_z(self) -> Tensor:
        return training_z(self.sample, self.settings, TRAINING_Z, torch.Generator().manual_seed(1))

    @cached_property
    def _thin(self) -> Tensor:
        return thin_rows(self.sample.rows, self.sample, self._categorical)

    @property
    def _categorical(self) -> bool:
        return self.representation.feature_encoder.categorical

    @property
    def _points(self) -> bool:
        return goals_are_points(self.features, self.representation)

    def trust(
        self,
        target: Reward,
        found: Inferred,
        z: Tensor,
        scale: float,
        preferences: Callable[[Tensor], Tensor],
        q: Callable[[Tensor, Tensor], Tensor],
        temperature: float,
    ) -> Trust:
        """The report on an answer: a policy greedy in preferences (n, A) at packed observations (n, packed).

        ``q`` gives its Q (n, A) at packed observations and their features, and ``temperature`` is that of the
        policy whose values they are; z * scale is z_R.
        """
        share = found.explained
        target = settled(target, self.sample, self.features, self.representation)
        points = [term for _, term in target.terms if isinstance(term, Goal)] if self._points else []
        values = None if points else self._values(target, self.sample.rows)
        if values is not None and not any(isinstance(term, TaskVector) for _, term in target.terms):
            share = represented(values, self.sample)
        predicted = value = residual = None
        if self.held_out is not None:
            r = torch.from_numpy(self.held_out_rewards(target)) / scale
            rows = self.held_out
            before = q(rows.observations, rows.features)
            after = q(rows.next_observations, rows.features if rows.next_features is None else rows.next_features)
            residual = bellman_residual(before, after, self.held_out, r, self.settings.gamma, temperature)
        if self.world is not None and z.any():
            actions = preferences(self.world.places).argmax(1)
            with threads(1):  # many small operations: a second thread would mostly wait
                predicted, value = self.world.score(actions, r)
            value *= scale
            if predicted > 0:  # times the cosine expected of z with the true one
                predicted /= math.sqrt(1 + relative_error(found) ** 2)
        typical = typicality(self.sample.own(z), self.sample.own(self._training_z))
        thin = self._thin_share(values, points)
        transitions = 0 if self.held_out is None else len(self.held_out.actions)
        verdict, reasons = judge(predicted, share, thin, typical, found, transitions)
        rank, condition = conditioning(self.sample.covariance)
        return Trust(
            verdict,
            reasons,
            predicted,
            value,
            share,
            residual,
            typical,
            rank,
            condition,
            thin,
            found.samples,
            found.effective_samples,
            relative_error(found),
        )

    def held_out_rewards(self, target: Reward) -> Array:
        """(n,) the reward of the held-out transitions; a goal among numbers pays around it, with its unit of mass."""
        assert self.held_out is not None
        rows = self.held_out.features
        spread = [(w, term) for w, term in target.terms if not self._points or not isinstance(term, Goal)]
        values = self._values(Reward(tuple(spread)), rows)
        for weight, term in target.terms:
            if self._points and isinstance(term, Goal):
                size = rows.std(0).clamp(min=1e-6)
                places = torch.from_numpy(goal_rows(term, self.features, self.representation))
                near = torch.cdist(places / size, rows / size).amin(0).topk(AROUND_GOAL, largest=False).indices
                values[near.numpy()] += weight * len(values) / AROUND_GOAL
        return values

    def _values(self, target: Reward, rows: Tensor) -> Array:
        return reward_values(target, rows, self.features, self.representation, self.sample)

    def _thin_share(self, values: Array | None, points: list[Goal]) -> float | None:
        """E_rho[|r|; thin] / E_rho[|r|]; of goals among numbers, the share of those that lie so."""
        if points:
            rows = np.concatenate([goal_rows(term, self.features, self.representation) for term in points])
            return float(thin_rows(torch.from_numpy(rows), self.sample, False).double().mean())
        assert values is not None
        size = self.sample.weights * torch.from_numpy(np.abs(values))
        return float(size[self._thin].sum() / size.sum()) if float(size.sum()) > 0 else None
