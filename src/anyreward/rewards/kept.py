"""Kept transitions of an agent, on which answers are refined by value iteration: planning for one reward."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.box_model import box_model
from anyreward.learning.explorer import can_explore, few_actions
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.tables import MOST_NUMBERS
from anyreward.learning.transition_model import local_model, neighbour_model, terminates
from anyreward.model.landmark_values import LandmarkValues
from anyreward.model.landmarks import TransitionTable
from anyreward.model.model import Model
from anyreward.worlds.actions import ActionSet

POINTS, PER_POINT = 10_000, 10
"""Largest number of points that represent states of numbers, and the smallest number of transitions for each."""
NEIGHBOURS = 4
"""Number of nearest transitions from which the effect of an action at a point is estimated."""
MOST_TRANSITIONS = 100_000
"""Largest number of transitions of which the distinct ones are kept."""


@dataclass(frozen=True)
class KeptTransitions:
    """Distinct transitions of the training data, and how often each was seen."""

    rows: Transitions
    counts: Tensor
    """(n,) float64"""

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """All states (S, packed), and the indices (n,) of the states where each transition starts and ends."""
        both = torch.cat([self.rows.observations, self.rows.next_observations])
        states, index = torch.unique(both, dim=0, return_inverse=True)
        before, after = index.view(2, -1)
        return states, before, after

    @property
    def states(self) -> Tensor:
        """(S, packed) the observations in which transitions start or end."""
        return self._ends[0]

    @cached_property
    def features(self) -> Tensor:
        """(S, packed features) the features of the states; zero if a next state's features were not recorded."""
        _, before, after = self._ends
        known = torch.zeros(len(self.states), self.rows.features.shape[1])
        if self.rows.next_features is not None:
            known[after] = self.rows.next_features
        known[before] = self.rows.features
        return known

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {row.tobytes(): i for i, row in enumerate(self.states.numpy())}

    def at(self, packed: Tensor, known: Tensor, otherwise: Tensor) -> Tensor:
        """(..., n, A) the ``known`` values (..., S, A) at observations (n, packed); ``otherwise`` for other states."""
        index = torch.tensor([self._numbers.get(row.tobytes(), -1) for row in packed.numpy()])
        return torch.where(index[:, None] >= 0, known.index_select(-2, index.clamp(min=0)), otherwise.double())

    def seen(self, actions: int) -> Tensor:
        """(S, A) how often each action was seen in each state."""
        where = (self._ends[1], self.rows.actions)
        return torch.zeros(len(self.states), actions, dtype=torch.float64).index_put_(where, self.counts, True)

    def backup(self, Q: Tensor, rewards: Tensor, gamma: float) -> Tensor:
        """(..., S, A) r + gamma max_a Q(s', a), for Q (..., S, A) and the rewards (..., n) of the transitions.

        Outcomes of one state and action are averaged by their counts; actions never seen keep their Q.
        """
        _, before, after = self._ends
        following = Q.max(-1).values.index_select(-1, after)
        outcome = rewards + torch.where(self.rows.terminated, 0.0, gamma * following)  # (..., n)
        pair, seen = before * Q.shape[-1] + self.rows.actions, self.seen(Q.shape[-1])
        total = torch.zeros_like(Q).flatten(-2).index_add_(-1, pair, self.counts * outcome).view_as(Q)
        return torch.where(seen > 0, total / seen, Q)

    def refine(self, Q: Tensor, rewards: Tensor, gamma: float, steps: int) -> Tensor:
        """Q (..., S, A) after ``steps`` steps of value iteration on these transitions, in float64."""
        if not isinstance(steps, int) or steps < 0:
            raise UserError(f"refine is {steps!r}; accepted: a whole number of steps, from 0.")
        Q = Q.double()
        for _ in range(steps):
            Q = self.backup(Q, rewards, gamma)
        return Q


def kept_transitions(model: Model, replay: Replay, seed: int) -> KeptTransitions | None:
    """Distinct transitions of the replay buffer; None if observations are not categories."""
    if not model.observation_encoder.categorical or model.phi.action_set.continuous:
        return None
    random = torch.Generator().manual_seed(seed)
    rows = replay.transitions.at(torch.randperm(len(replay), generator=random)[:MOST_TRANSITIONS])
    table = torch.cat([column.reshape(len(rows.actions), -1).double() for column in rows.columns.values()], dim=1)
    _, group, counts = torch.unique(table, dim=0, return_inverse=True, return_counts=True)
    first = torch.full((len(counts),), len(group)).scatter_reduce_(0, group, torch.arange(len(group)), "amin")
    return KeptTransitions(rows.at(first), counts.double())


@dataclass(frozen=True, eq=False)
class KeptPoints:
    """Well-spread states of numbers with their transitions, on which answers are refined."""

    table: TransitionTable
    features: Tensor
    """(M, packed features) of the points"""
    action_set: ActionSet
    """the listed actions of the table"""
    kept: int = 1
    """the number of transitions for which an action is kept"""

    @property
    def values(self) -> LandmarkValues | None:
        """The values of landmarks by which points are told apart, if they are."""
        beside = self.table.states.beside
        return beside if isinstance(beside, LandmarkValues) else None


def kept_points(model: Model, replay: Replay, gamma: float) -> KeptPoints | None:
    """Points for the states of the replay buffer; None if states are categories or many numbers.

    Beside tables, they are kept only if the environment is smooth: elsewhere the tables' own points are better.
    """
    phi, rows = model.phi, replay.transitions
    if model.observation_encoder.categorical or not can_explore(phi):
        return None
    if model.landmarks is not None and not local_model(rows.map(Tensor.cpu), phi.actions, phi.ends).smooth:
        return None
    return points_of(rows, model, gamma, PER_POINT)


def points_of(rows: Transitions, model: Model, gamma: float, per_point: int, effects: bool = False) -> KeptPoints:
    """Points for the states of transitions, of which each stands for ``per_point``; ``effects``: `neighbour_model`."""
    phi = model.phi
    acts = few_actions(phi.action_set)
    assert acts is not None
    table, box = TransitionTable(model.observation_encoder, acts.count), phi.action_set.continuous
    if box and not effects and not terminates(rows, phi.ends):
        many = rows.observations.shape[1] - phi.ends > MOST_NUMBERS  # fewer are triangulated, or on a surface
        values = LandmarkValues.among(rows.features, model) if many else None
        found, features = box_model(table.states, rows, acts, phi.ends, POINTS, per_point, values)
    else:
        found, features = neighbour_model(
            table.states,
            rows,
            acts.count,
            phi.ends,
            POINTS,
            effects=effects,
            neighbours=NEIGHBOURS,
            per_point=per_point,
            box=acts if box else None,
        )
    table.following, table.seen = found.following, found.seen
    table.share = (gamma**found.kept * found.share).float()
    return KeptPoints(table, features, acts, found.kept)
