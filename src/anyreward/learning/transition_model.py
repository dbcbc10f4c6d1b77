"""Estimates of transition probabilities among listed states, from which landmark tables are computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from anyreward.learning.local_model import LocalModel
from anyreward.learning.replay import Transitions
from anyreward.model.basis import far_points
from anyreward.model.landmarks import KnownRows
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.spaces import Array

POINTS = 2_500
"""Largest number of points that represent continuous states."""
ROWS_PER_POINT = 20
"""Smallest number of transitions for each point."""
CANDIDATES, PER_POINT, KMEANS = 25_000, 50, 5
"""Largest number of rows that points are chosen from, in all and for each point, and the number of k-means steps."""
NEIGHBOURS = 8
"""Number of nearest transitions from which the effect of an action at a point is estimated."""
NOISY = 0.5
"""Largest median difference of neighbouring transitions, relative to a typical change, for effects to be compared."""
UNLIKE = 0.5
"""Difference of an action's effects, relative to a typical change, above which two points count as separated."""
ALIKE, EXAMPLES = 8, 20_000
"""Number of points to interpolate between, and of rows of the data that determine the side of a wall of a state."""
ENDED = 0.01
"""Unit of distance of the flag of terminal states: they are a hundred standard deviations from all others."""
MODEL_ROWS = 200_000
"""Largest number of transitions that are searched for neighbours."""


@dataclass(frozen=True)
class TransitionModel:
    """An estimate of P(s' | s, a) among M known states, with n outcomes for each pair."""

    following: Tensor
    """(M, A, n) the next states"""
    share: Tensor
    """(M, A, n) float, their probabilities; the rest to one is the probability of termination"""
    seen: Tensor
    """(M, A) whether there are data for the pair"""
    kept: int = 1
    """the number of transitions for which each action is kept"""

    @property
    def states(self) -> int:
        """M, the number of known states."""
        return len(self.following)

    def under(self, pi: Tensor) -> tuple[Tensor, Tensor]:
        """(M, A n) following and share under the policy pi (M, A)."""
        return self.following.flatten(1), (self.share * pi[:, :, None]).flatten(1)


def count_model(
    states: KnownRows, data: Transitions, actions: int, ends: bool = False
) -> tuple[TransitionModel, Tensor]:
    """Estimate P(s' | s, a) by counting; also returns the features of the states.

    A transition to a state in which no transition starts counts as staying in place. With ``ends`` the last column of
    an observation marks terminal states, where all actions end the episode.
    """
    rows, first = distinct_rows(data.observations, states)
    states.know(rows)
    M, A = len(rows), actions
    before = states.locate(data.observations)[0].squeeze(1)
    after, known = (column.squeeze(1) for column in states.locate(data.next_observations))
    after = torch.where(known > 0, after, before)
    pair = before * A + data.actions
    times = torch.bincount(pair, minlength=M * A).double()
    continues = ~data.terminated
    seen = (times > 0).view(M, A) | _ended(states, ends)[:, None]
    model = merged(pair[continues], after[continues], 1 / times[pair[continues]], seen)
    features = data.features[first][_order(states, data.observations[first])]
    return model, features


def _ended(states: KnownRows, ends: bool) -> Tensor:
    """(M,) which of the known states are terminal."""
    return states.rows[:, -1] > 0.5 if ends else torch.zeros(len(states), dtype=torch.bool)


def distinct_rows(rows: Tensor, states: KnownRows) -> tuple[Tensor, Tensor]:
    """The distinct rows among categorical rows (n, packed), and the index of the first of each, (m,)."""
    codes, index = torch.unique(states._code(rows), return_inverse=True)
    first = torch.full((len(codes),), len(rows)).scatter_reduce_(0, index, torch.arange(len(rows)), "amin")
    return rows[first], first


def _order(states: KnownRows, rows: Tensor) -> Tensor:
    return torch.argsort(states.locate(rows)[0].squeeze(1))


def neighbour_model(
    states: KnownRows,
    data: Transitions,
    actions: int,
    ends: bool = False,
    most: int = POINTS,
    rows: int = MODEL_ROWS,
    effects: bool = True,
    neighbours: int = NEIGHBOURS,
    per_point: int = ROWS_PER_POINT,
    box: ActionSet | None = None,
) -> tuple[TransitionModel, Tensor]:
    """Estimate P(s' | s, a) among well-spread points, from the changes s' - s in the nearest transitions with action a.

    Changes are used instead of next states, because no transition starts exactly at a point. The distance of states
    includes the difference of actions' effects (`behaviours`), so that states on two sides of a wall are not near.
    With ``ends`` the last column marks terminal states, which are far from all others. ``most`` limits the points, and
    ``rows`` the transitions that are searched. Without ``effects``, distances are those of the numbers alone, and
    changes are those of a `LocalModel`, if the environment is smooth. Otherwise an action's effect is that of its
    ``neighbours`` nearest transitions. There are ``per_point`` transitions for each point. If the data have actions of
    a box, the model is that of some listed ones, ``box``. For data without terminal states, see also `box_model`.
    """
    ended = data.observations[:, -1] > 0.5 if ends else torch.zeros(len(data.actions), dtype=torch.bool)
    data = data.at(some_rows(len(data.actions), rows, ended | arrives(data, ends)))
    given = data
    if box is not None:
        data = data._replace(actions=torch.from_numpy(box.nearest(data.actions.numpy())))
    scale, most = spread_of(data.observations, ends), min(most, max(1, len(data.actions) // per_point))
    x = data.observations.double() / scale
    change = (data.next_observations.double() - data.observations.double()) / scale
    over = x[:, -1] > 0.5 if ends else None
    _, radius = far_points(_some(x, most, over), min(most, len(x)))
    described = _described(x, change, data.actions, actions, radius, over) if effects else x
    points, _ = spread_points(described, most, over)
    centres = points[:, : x.shape[1]]
    local = None
    if effects:
        _tell_apart(states, points, x, described, scale, radius, actions)
    else:
        states.know((centres * scale).float(), scale)
        states.triangulate(ends)
        local = LocalModel(given, 0 if box else actions, ends, scale[: x.shape[1] - ends].numpy())
    M, A, last = len(states), actions, _ended(states, ends)
    pairs, after, shares, seen = [], [], [], []
    for action in range(A):
        own = torch.nonzero(data.actions == action).squeeze(1)
        k = min(neighbours, len(own))
        if k == 0:  # never taken
            seen.append(last)
            continue
        if local is not None and local.smooth:
            k = 1
            taken = np.array([action] if box is None else box.table[action : action + 1])
            arrived, continues = _smooth_outcomes(local, centres, scale, taken, last, ends)
        else:
            index = own[nearest_rows(described[own], points, k)]  # (M, k)
            arrived = (centres[:, None] + change[index]).flatten(0, 1) * scale
            continues = (~data.terminated[index] & ~last[:, None]).flatten().double() / k
        corners, parts = states.locate(arrived.float())
        pairs.append((torch.arange(M) * A + action).repeat_interleave(k * corners.shape[1]))
        after.append(corners.flatten())
        shares.append((parts.double() * continues[:, None]).flatten())
        near = x[own][nearest_rows(x[own], centres, 1)[:, 0]]
        seen.append(((near - centres).norm(dim=1) <= 2 * radius) | last)
    model = merged(torch.cat(pairs), torch.cat(after), torch.cat(shares), torch.stack(seen, 1))
    return model, data.features[nearest_rows(described, points, 1)[:, 0]]


def _described(x: Tensor, change: Tensor, taken: Tensor, actions: int, radius: float, over: Tensor | None) -> Tensor:
    """(n, p + A p) rows x (n, p), with the effects of actions; a typical one counts like the distance of points."""
    does = behaviours(x, change if over is None else change[:, :-1], taken, actions)
    if over is not None:
        does[over] = 0.0  # nothing follows a terminal state
    return torch.cat([x, radius * does.flatten(1)], 1)


def _smooth_outcomes(
    local: LocalModel, centres: Tensor, scale: Tensor, action: Array, last: Tensor, ends: bool
) -> tuple[Tensor, Tensor]:
    """(M, packed) the states after an action at points (M, packed), by a local model, and whether they continue (M,).

    The ``action`` is one row, (1, ...). ``last`` (M,) marks the points that are terminal states.
    """
    p = len(local.scale)
    reached, stops, _ = local.step(centres[:, :p].numpy(), np.repeat(action, len(centres), axis=0))
    terminal = torch.from_numpy(stops)
    arrived = torch.cat([torch.from_numpy(reached) * scale[:p], terminal[:, None][:, : int(ends)]], 1)
    return arrived, (~last & (ends | ~terminal)).double()


def behaviours(x: Tensor, change: Tensor, taken: Tensor, actions: int) -> Tensor:
    """(n, A, p) the effect of each action near each row of x (n, p): the mean over the nearest two other rows with it.

    In units of a typical change. All zero if outcomes are too random to be estimated from two rows.
    """
    size = change.square().sum(1).mean().sqrt().clamp(min=1e-12)
    means, noise = torch.zeros(len(x), actions, change.shape[1], dtype=torch.float64), torch.zeros(())
    for action in range(actions):
        rows = torch.nonzero(taken == action).squeeze(1)
        if len(rows) < 3:
            continue
        near = rows[nearest_rows(x[rows], x, 3)]  # (n, 3)
        itself = near == torch.arange(len(x))[:, None]
        near = near.masked_select(~torch.where(itself.any(1, keepdim=True), itself, _last(itself))).view(-1, 2)
        one, two = change[near].unbind(1)
        means[:, action] = (one + two) / 2
        noise = torch.maximum(noise, (one - two).norm(dim=1).median())
    return means / size if float(noise) < NOISY * float(size) else torch.zeros_like(means)


def _last(mask: Tensor) -> Tensor:
    """(n, k) true in the last column only."""
    return torch.arange(mask.shape[1]).expand_as(mask) == mask.shape[1] - 1


def nearest_rows(rows: Tensor, wanted: Tensor, k: int) -> Tensor:
    """(n, k) the indices of the rows (m, p) that are nearest to each of ``wanted`` (n, p)."""
    index: Tensor = torch.from_numpy(KDTree(rows.numpy()).query(wanted.numpy(), k, workers=-1)[1])
    return index.view(len(wanted), k)


def _tell_apart(
    states: KnownRows, points: Tensor, x: Tensor, described: Tensor, scale: Tensor, radius: float, actions: int
) -> None:
    """Set the known points of states, (M, p) with effects of actions beside them, and which points are alike.

    Some rows of x (n, p) are assigned to points by the same descriptions.
    """
    M, p = len(points), x.shape[1]
    states.know((points[:, :p] * scale).float(), scale)
    around = nearest_rows(points[:, :p], points[:, :p], min(M, 3 * ALIKE))  # (M, c), itself first
    here = torch.arange(M)[:, None]
    between = points[around] - points[:, None]  # (M, c, p + A p)
    differ = (between[..., p:] / radius).reshape(M, around.shape[1], actions, -1).norm(dim=3).amax(2)
    apart = between[..., :p].norm(dim=2)
    apart = torch.where((differ > UNLIKE) & (around != here), torch.inf, apart)
    order = apart.topk(min(M, ALIKE), largest=False)
    alike = torch.where(order.values < torch.inf, around.gather(1, order.indices), here)
    rows = torch.linspace(0, len(x) - 1, min(len(x), EXAMPLES)).long()
    states.tell_apart((x[rows] * scale).float(), nearest_rows(points, described[rows], 1)[:, 0], alike)


def spread_of(x: Tensor, ends: bool) -> Tensor:
    """(p,) the unit of distance in each column of x (n, p); with ``ends``, terminal states are far from all others."""
    scale = x.double().std(0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if ends:
        scale[-1] = ENDED
    return scale


def local_model(
    rows: Transitions, actions: int, ends: bool, values: Callable[[Tensor], Tensor] | None = None
) -> LocalModel:
    """The local model of transitions; with ``ends`` the last column marks terminal states."""
    scale = spread_of(rows.observations, ends)[: rows.observations.shape[1] - ends]
    return LocalModel(rows, actions, ends, scale.numpy(), values)


def arrives(data: Transitions, ends: bool) -> Tensor:
    """(n,) which transitions lead to a terminal state."""
    return data.next_observations[:, -1] > 0.5 if ends else torch.zeros(len(data.actions), dtype=torch.bool)


def terminates(data: Transitions, ends: bool) -> bool:
    """Whether any of the transitions leads to a terminal state; with ``ends`` the last column marks these."""
    return bool((data.terminated | arrives(data, ends)).any())


def some_rows(n: int, most: int, always: Tensor | None) -> Tensor:
    """(m,) about ``most`` of n rows, evenly spaced; those in ``always`` (n,) are included, at most a quarter."""
    chosen = torch.linspace(0, n - 1, min(n, most)).long()
    if always is None or n <= most:
        return chosen
    rare = torch.nonzero(always).squeeze(1)
    rare = rare[torch.linspace(0, len(rare) - 1, min(len(rare), most // 4)).long()] if len(rare) else rare
    both: Tensor = torch.unique(torch.cat([chosen, rare]))
    return both


def _some(x: Tensor, most: int, always: Tensor | None = None) -> Tensor:
    """Distinct rows of x (n, p) from which ``most`` points are chosen."""
    rows = min(CANDIDATES, PER_POINT * most)
    some: Tensor = torch.unique(x[some_rows(len(x), rows, always)], dim=0)
    return some


def spread_points(x: Tensor, most: int, always: Tensor | None = None) -> tuple[Tensor, float]:
    """(m, p) distinct points that cover x (n, p) evenly, by k-means, and the distance of its initial points.

    The rows in ``always`` (n,) are considered even if they are few.
    """
    x = _some(x, most, always)
    points, radius = far_points(x, min(most, len(x)))
    for _ in range(KMEANS):
        own = nearest_rows(points, x, 1)[:, 0]
        count = torch.bincount(own, minlength=len(points))[:, None]
        mean = torch.zeros_like(points).index_add_(0, own, x) / count.clamp(min=1)
        points = torch.where(count > 0, mean, points)
    return torch.unique(points, dim=0), radius


def merged(pair: Tensor, after: Tensor, share: Tensor, seen: Tensor) -> TransitionModel:
    """The model of n outcomes: pairs s A + a, next states and shares, (n,) each; equal outcomes are summed."""
    M, A = seen.shape
    outcome, index = torch.unique(pair * M + after, return_inverse=True)
    total = torch.zeros(len(outcome), dtype=torch.float64).index_add_(0, index, share.double())
    pair, after = outcome // M, outcome % M
    each = torch.bincount(pair, minlength=M * A)  # outcomes per pair
    n = max(int(each.max()), 1)
    number = torch.arange(len(pair)) - (each.cumsum(0) - each)[pair]  # index of an outcome in its pair
    following = torch.arange(M).repeat_interleave(A)[:, None].repeat(1, n)  # unused: the state itself
    shares = torch.zeros(M * A, n, dtype=torch.float64)
    following[pair, number], shares[pair, number] = after, total
    return TransitionModel(following.view(M, A, n), shares.view(M, A, n), seen)
