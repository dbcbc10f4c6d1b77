"""From a reward to the task vector z_R = E_rho[r B], eq. (zR)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.replay import Replay
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.reward import Function, Goal, Reward

Array = np.ndarray[Any, Any]


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

    @property
    def radius(self) -> float:
        """The root mean square of |B| under rho: the size of a typical goal's z."""
        return float((self.weights * self.B.square().sum(1)).sum().sqrt())


def feature_sample(representation: Representation, replay: Replay, most: int, seed: int) -> FeatureSample:
    """A sample of rho from the replay: all distinct rows where features are categories, else ``most`` random rows."""
    rows = replay.transitions.features
    if representation.feature_encoder.categorical:
        rows, index = representation.feature_encoder.distinct(rows)
        weights = torch.bincount(index).double() / len(index)
    else:
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]]
        weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    return with_backward(representation, rows.clone(), weights)


def with_backward(
    representation: Representation, rows: Tensor, weights: Tensor, covariance: Tensor | None = None
) -> FeatureSample:
    """The sample with B computed from its rows, in pieces that fit in memory; Cov_rho B too unless it is known."""
    B = torch.cat([representation.backward_map(piece) for piece in torch.split(rows, 8192)]).double()
    return FeatureSample(rows, weights, B, (B * weights[:, None]).T @ B if covariance is None else covariance)


def goal_row(target: Goal, features: FeatureMap, representation: Representation) -> Array:
    """(packed,) the packed features of a goal; raises when the numbers do not name one."""
    given, names = target.at, features.column_names
    packed = representation.feature_encoder.packed
    if features.table is not None and len(given) == len(names):
        coordinates = given[: features.table.shape[1]]
        match = np.flatnonzero((features.table == np.asarray(coordinates)).all(1))
        if len(match) == 0:
            low, high = features.table.min(0), features.table.max(0)
            spans = ", ".join(f"{n} {a:g} to {b:g}" for n, a, b in zip(names, low, high, strict=False))
            raise UserError(f"There is no state at {target}; accepted: {spans}.")
        row = np.asarray([match[0], *given[features.table.shape[1] :]], dtype=np.float32)
    elif len(given) == packed:
        row = np.asarray(given, dtype=np.float32)
    else:
        expected = f"{len(names)} numbers ({', '.join(names)})"
        if features.table is not None:
            expected += f" or {packed} (the state's number{', action' if features.include_action else ''})"
        raise UserError(f"{target} has {len(given)} numbers; this agent's goals have {expected}.")
    start = 0
    for leaf in representation.feature_encoder.leaves:
        column = row[start : start + leaf.packed]
        top = leaf.categories - 1 if leaf.kind == "one-hot" else 1
        if leaf.kind != "number" and ((column < 0) | (column > top) | (column != np.round(column))).any():
            raise UserError(f"{target}: {column.tolist()} is out of range; accepted: whole numbers from 0 to {top}.")
        start += leaf.packed
    return row


def reward_values(target: Reward, rows: Tensor, features: FeatureMap, representation: Representation) -> Array:
    """(n,) the reward of packed features (n, packed); a goal pays where the features equal it."""
    values = np.zeros(len(rows))
    readable = features.readable(rows.numpy())
    for weight, term in target.terms:
        if isinstance(term, Function):
            values += weight * term(readable)
        else:
            values += weight * (rows.numpy() == goal_row(term, features, representation)).all(1)
    return values


def infer_z(target: Reward, sample: FeatureSample, features: FeatureMap, representation: Representation) -> Tensor:
    """(d,) z_R = E_rho[r B], in float64.

    Where features are categories this is exact on the sample, goals included: a goal g counts with its frequency
    rho(g). Where they are numbers, no sampled row equals a goal, and goal(g) stands for a unit of mass at g, as in
    the paper: it adds B(g).
    """
    z = torch.zeros(sample.B.shape[1], dtype=torch.float64)
    readable = features.readable(sample.rows.numpy())
    for weight, term in target.terms:
        if isinstance(term, Function):
            z += weight * (sample.weights * torch.from_numpy(term(readable))) @ sample.B
            continue
        row = torch.from_numpy(goal_row(term, features, representation))
        mass = 1.0
        if not representation.feature_encoder.categorical:
            low, high = sample.rows.min(0).values, sample.rows.max(0).values
            if ((row < low) | (row > high)).any():
                warnings.warn(f"{term} lies outside what training visited: do not rely on this answer.", stacklevel=3)
        else:
            mass = float(sample.weights[(sample.rows == row).all(1)].sum())
            if mass == 0.0:
                raise UserError(
                    f"{term} was never visited in training, so this agent knows nothing about it. In a maze: is it a "
                    "wall? Elsewhere: explore more, or add data that visits it."
                )
        z += weight * mass * representation.backward_map(row[None])[0].double()
    return z
