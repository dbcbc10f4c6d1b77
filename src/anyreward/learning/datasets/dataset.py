"""The dataset in memory: arrays with their spaces, checked, and packed as transitions for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anyreward.errors import UserError
from anyreward.learning.collect import with_ends
from anyreward.learning.datasets.checks import check_actions, check_elements, check_flags, check_named
from anyreward.learning.replay import Transitions
from anyreward.model.features import FeatureMap
from anyreward.worlds.actions import ActionSet, action_set
from anyreward.worlds.spaces import Array, Space, pack, pack_seen

SCALED_AT_ONCE = 2**22
"""Number of entries of the arrays in which actions are scaled, or compared with listed ones."""


@dataclass(frozen=True)
class Dataset:
    """Transitions with their spaces; observations are batched as in Gymnasium's vector environments.

    Raises a `UserError` unless all arrays fit the spaces and each other. NaN and infinity in observations are found by
    `transitions`.
    """

    name: str
    observation_space: Space
    action_space: Space
    observations: Any
    actions: Array
    """(n,) whole numbers, or (n, ...) numbers of a Box in the environment's own units."""
    next_observations: Any
    terminated: Array
    feature_names: tuple[str, ...] | None = None
    """The names of the features, as in `World`."""
    feature_table: Array | None = None
    """(n_states, k) the coordinates of each state, as in `World`."""
    source: str = ""
    """The file that the transitions are from, for error messages."""

    def __post_init__(self) -> None:
        where = self.source or f"dataset {self.name}"
        rows = self.actions.shape[0] if isinstance(self.actions, np.ndarray) and self.actions.ndim else 1
        if rows == 0:
            raise UserError(f"{where} holds no transitions.")
        check_actions(self.action_space, self.actions, rows, where)
        check_elements(self.observation_space, self.observations, rows, f"observations of {where}")
        check_elements(self.observation_space, self.next_observations, rows, f"next_observations of {where}")
        check_flags(self.terminated, rows, f"terminated of {where}")
        check_named(self.feature_names, self.feature_table, self.observation_space, where)

    def transitions(self, features: FeatureMap, next_features: bool = False) -> Transitions:
        """The packed transitions, with phi(s, a), and with ``next_features`` phi of the next state as well."""
        acts = action_set(self.action_space) if features.action_set.box is None else features.action_set
        actions = _inward(acts, self.actions)
        given = (self.observations, actions, self.next_observations, self.terminated.astype(bool))
        no_rewards = np.zeros(len(actions))
        what = f"dataset {self.name}" + (f" ({self.source})" if self.source not in ("", self.name) else "")
        return packed_transitions(features, *given, no_rewards, what, next_features)[0]


def _inward(acts: ActionSet, actions: Array) -> Array:
    """Actions of the environment as the library counts or scales them, some at a time."""
    rows = max(1, SCALED_AT_ONCE // max(1, acts.width * max(1, acts.count)))
    parts = [acts.inward(actions[start : start + rows]) for start in range(0, len(actions), rows)]
    return np.concatenate(parts).astype(np.float32 if acts.continuous else np.int64, copy=False)


def packed_transitions(
    phi: FeatureMap,
    observations: Any,
    actions: Array,
    next_observations: Any,
    terminated: Array,
    rewards: Array,
    what: str,
    next_features: bool = False,
) -> tuple[Transitions, Array]:
    """Transitions of raw observations and of actions as the library counts or scales them, and their rewards (n,).

    Observations are packed. With terminal states as states, there are further rows for these. ``what`` describes the
    data in error messages.
    """
    n = len(actions)
    before, after = (pack_seen(phi.observation_space, batch) for batch in (observations, next_observations))
    if actions.shape[1:] != ((phi.action_set.width,) if phi.action_set.continuous else ()):
        expected = f"(n, {phi.action_set.width})" if phi.action_set.continuous else "(n,)"
        raise UserError(f"The actions of {what} have the shape {actions.shape}; expected {expected}.")
    shapes = {"observations": before.shape[:1], "next_observations": after.shape[:1]}
    shapes |= {"rewards": rewards.shape, "terminated": terminated.shape}
    wrong = {name: shape for name, shape in shapes.items() if shape != (n,)}
    if wrong:
        raise UserError(
            f"There are {n} actions in {what}, so all other arrays must have the shape ({n},); got {wrong}."
        )
    if n == 0:
        raise UserError(f"There are no transitions in {what}.")
    seen = {"observations": before, "next observations": after}
    if phi.kind == "achieved_goal":
        goals = (pack(phi.state_space, batch["achieved_goal"]) for batch in (observations, next_observations))
        seen |= dict(zip(("achieved goals", "next achieved goals"), goals, strict=True))
    for name, packed in seen.items():
        bad = np.flatnonzero(~np.isfinite(packed).all(1))
        if len(bad):
            raise UserError(
                f"The {name} of {what} hold NaN or infinity, first in row {bad[0]}; accepted: finite numbers. Leave "
                "out such rows."
            )
    before, after = phi.marked(before), phi.marked(after, terminated)
    rows = {
        "observations": before,
        "actions": actions,
        "next_observations": after,
        "terminated": terminated,
        "features": phi.of(observations, before, actions),
        "rewards": rewards,
    }
    if next_features or phi.ends:
        rows["next_features"] = phi.of(next_observations, after, actions)
    if phi.ends:
        rows = with_ends(rows, np.random.default_rng(0), phi.action_set)
    rewards = rows.pop("rewards")
    return Transitions(**{name: torch.from_numpy(np.ascontiguousarray(row)) for name, row in rows.items()}), rewards
