"""Where a reward speaks of: the packed features of goals, samples and demonstrations, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.reward import Demonstration, Goal
from anyreward.worlds.spaces import as_batch, is_single, pack_seen, stack

Array = np.ndarray[Any, Any]


def packed_features(given: Array, features: FeatureMap, representation: Representation, what: Any) -> Array:
    """Packed features (n, packed) of readable or packed ones (n, k); raises when the numbers do not name any."""
    names, encoder = features.column_names, representation.feature_encoder
    rows = np.asarray(given, dtype=np.float32)
    if features.table is not None and given.shape[1] == len(names):
        k = features.table.shape[1]
        places = {tuple(place): number for number, place in enumerate(features.table.tolist())}
        found = [places.get(tuple(place)) for place in given[:, :k].tolist()]
        if None in found:
            low, high = features.table.min(0), features.table.max(0)
            spans = ", ".join(f"{n} {a:g} to {b:g}" for n, a, b in zip(names, low, high, strict=False))
            place = ", ".join(f"{x:g}" for x in given[found.index(None)])
            raise UserError(f"There is no state at {_named(what, place)}; accepted: {spans}.")
        rows = np.concatenate([np.asarray(found)[:, None], given[:, k:]], axis=1, dtype=np.float32)
    elif given.shape[1] != encoder.packed:
        expected = f"{len(names)} numbers ({', '.join(names)})"
        if features.table is not None:
            expected += f" or {encoder.packed} (the state's number{', action' if features.include_action else ''})"
        raise UserError(f"{what} has {given.shape[1]} numbers; this agent's features have {expected}.")
    start = 0
    for leaf in encoder.leaves:
        column = rows[:, start : start + leaf.packed]
        top = leaf.categories - 1 if leaf.kind == "one-hot" else 1
        wrong = ((column < 0) | (column > top) | (column != np.round(column))).any(1)
        if leaf.kind != "number" and wrong.any():
            bad = column[wrong][0].tolist()
            raise UserError(f"{what}: {bad} is out of range; accepted: whole numbers from 0 to {top}.")
        start += leaf.packed
    return _finite_rows(rows, what)


def _finite_rows(rows: Array, what: Any) -> Array:
    bad = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(bad):
        raise UserError(f"{what}: row {bad[0]} of its features is {rows[bad[0]].tolist()}, which is not finite.")
    return rows


def _named(what: Any, place: str) -> str:
    return str(what) if isinstance(what, Goal) else f"{place} ({what})"


def goal_rows(target: Goal, features: FeatureMap, representation: Representation) -> Array:
    """(1, packed) the packed features of a goal; (A, packed) where B sees actions and the goal names none."""
    every = features.include_action
    if not target.at:
        if not is_single(features.observation_space, target.state):
            raise UserError("goal(state=...) takes one observation; add goals for more of them.")
        batch = as_batch(features.observation_space, target.state)
        actions = np.arange(features.actions if every else 1)
        packed = pack_seen(features.observation_space, batch)
        rows = np.concatenate([features.of(batch, packed, actions[i : i + 1]) for i in range(len(actions))])
        return _finite_rows(rows, target)
    given = np.asarray(target.at)[None]
    short = (len(features.column_names) - 1, representation.feature_encoder.packed - 1)
    if every and given.shape[1] in short and given.shape[1] > 0:
        given = np.concatenate([np.repeat(given, features.actions, 0), np.arange(features.actions)[:, None]], axis=1)
    return packed_features(given, features, representation, target)


def demonstrated_rows(target: Demonstration, features: FeatureMap) -> Array:
    """(n, packed) the packed features along a demonstration."""
    space, observations = features.observation_space, target.observations
    if isinstance(observations, list):
        try:
            observations = stack(space, observations)
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"A demonstration holds observations of {space}; {observations[0]!r} is none.") from error
    if is_single(space, observations):
        raise UserError("A demonstration is a trajectory of observations; this is a single one. Use goal(state=...).")
    packed = pack_seen(space, observations)
    if not np.isfinite(packed).all():
        raise UserError(
            f"The demonstration holds NaN or infinity in row {int(np.argwhere(~np.isfinite(packed))[0][0])}."
        )
    actions = target.actions
    if features.include_action:
        if actions is None or len(actions) not in (len(packed), len(packed) - 1):
            raise UserError(
                f"This agent's B sees actions, so a demonstration needs them: one for each of its {len(packed)} "
                f"observations but perhaps the last, got {'none' if actions is None else len(actions)}."
            )
        actions = np.asarray(actions, dtype=np.int64)
        if ((actions < 0) | (actions >= features.actions)).any():
            raise UserError(f"The demonstration's actions must lie between 0 and {features.actions - 1}.")
        missing = np.zeros(len(packed) - len(actions), dtype=np.int64)
        rows = features.of(observations, packed, np.concatenate([actions, missing]))[: len(actions)]
    else:
        rows = features.of(observations, packed, np.zeros(len(packed), dtype=np.int64))
    return _finite_rows(rows, "The demonstration")


def sample_rows(phi: Array, features: FeatureMap, representation: Representation) -> Tensor:
    """Packed features (n, packed) of samples at readable or packed ones (n, k)."""
    if len(phi) == 0:
        return torch.zeros(0, representation.feature_encoder.packed)
    return torch.from_numpy(packed_features(phi, features, representation, "A sample"))
