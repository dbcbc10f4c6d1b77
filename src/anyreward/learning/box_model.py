"""An estimate of transitions among points for continuous actions, each of which is kept for some transitions.

A state between points is interpolated. If one transition is much shorter than the distance of points, most of the
interpolated state stays where it was, and some of it passes through walls: values would spread like heat. So points are
finer in numbers that change slowly, and an action is kept until even the slowest number has changed by the distance of
points. Where F is a network, near states are also told apart by the values of landmarks (model/landmark_values.py).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from anyreward.learning.local_model import LocalModel
from anyreward.learning.replay import Transitions
from anyreward.learning.transition_model import (
    CANDIDATES,
    MODEL_ROWS,
    TransitionModel,
    merged,
    nearest_rows,
    some_rows,
    spread_of,
    spread_points,
)
from anyreward.model.landmark_values import LandmarkValues, unit_of
from anyreward.model.landmarks import KnownRows
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.spaces import Array

MOST_KEPT = 8
"""Largest number of transitions for which an action is kept."""
SLOWEST = 0.01
"""Smallest relative change of a number that still makes points finer."""


def box_model(
    states: KnownRows,
    data: Transitions,
    acts: ActionSet,
    ends: bool,
    most: int,
    per_point: int,
    values: LandmarkValues | None = None,
) -> tuple[TransitionModel, Tensor]:
    """Estimate P(s' | s, a) among at most ``most`` well-spread points, for listed actions, and the points' features.

    The outcome of an action is that of a `LocalModel`. There are ``per_point`` transitions for each point. No
    transition terminates; with ``ends`` the last column is the flag of terminal states. Points are near each other if
    their numbers and ``values`` are.
    """
    data = data.at(some_rows(len(data.actions), MODEL_ROWS, None))
    spread, p = spread_of(data.observations, ends), data.observations.shape[1] - ends
    scale = by_pace(spread, data, ends)
    x = data.observations.double() / scale
    most = min(most, max(1, len(x) // per_point))
    if values is None:
        points, radius = spread_points(x, most)
        states.know((points * scale).float(), scale)
        states.triangulate(ends)
    else:
        rows = some_rows(len(x), CANDIDATES, None)
        found = values(data.observations[rows])
        unit = unit_of(found, x[rows])
        points, radius = spread_points(torch.cat([x[rows], found / unit], 1), most)
        points = points[:, : x.shape[1]]
        states.know((points * scale).float(), scale, replace(values, unit=unit))
    change = (data.next_observations.double() - data.observations.double()) / scale
    kept = kept_for(points[:, :p], change[:, :p])
    local = LocalModel(data, 0, ends, spread[:p].numpy(), values)
    M, A = len(points), acts.count
    pairs, after, shares = [], [], []
    for action in range(A):
        reached = (points * scale)[:, :p].numpy() / local.scale
        for _ in range(kept):
            reached, *_ = local.step(reached, np.repeat(acts.table[action][None], M, axis=0))
        arrived = torch.cat([torch.from_numpy(reached * local.scale), torch.zeros(M, int(ends))], 1)
        corners, parts = states.locate(arrived.float())
        pairs.append((torch.arange(M) * A + action).repeat_interleave(corners.shape[1]))
        after.append(corners.flatten())
        shares.append(parts.double().flatten())
    near = nearest_rows(x, points, 1)[:, 0]
    seen = ((x[near] - points).norm(dim=1) <= 2 * radius)[:, None].expand(M, A)
    model = merged(torch.cat(pairs), torch.cat(after), torch.cat(shares), seen)
    return replace(model, kept=kept), data.features[near]


def by_pace(spread: Tensor, data: Transitions, ends: bool) -> Tensor:
    """(packed,) the unit of distance in each column: its spread, but smaller in numbers that change slowly.

    A position changes by little in a transition, and a speed by much, so points must tell positions apart better. The
    unit is the spread times the square root of the change in a transition, relative to that of the fastest number.
    """
    change = ((data.next_observations - data.observations).double() / spread).square().mean(0).sqrt()
    p = len(spread) - ends
    pace = change[:p] / change[:p].max().clamp(min=1e-12)
    unit = spread.clone()
    unit[:p] *= torch.where(pace > 0, pace, torch.ones_like(pace)).clamp(min=SLOWEST).sqrt()
    return unit


def kept_for(points: Tensor, change: Tensor) -> int:
    """For how many transitions an action is kept among points (M, p), given the changes (n, p) in one transition."""
    apart: Array = KDTree(points.numpy()).query(points.numpy(), min(2, len(points)))[0].reshape(len(points), -1)[:, -1]
    change = change.square().mean(0).sqrt()
    moving = change[change > 0]
    if len(moving) == 0:
        return 1
    each = float(np.median(apart)) / math.sqrt(len(moving))  # of the distance, in each number
    return min(max(math.ceil(each / float(moving.min())), 1), MOST_KEPT)
