"""Estimates of transition probabilities among listed states, from which landmark tables are computed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.spatial import KDTree
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.model.basis import far_points
from anyreward.model.landmarks import KnownRows

POINTS = 2_500
"""Largest number of points that represent continuous states."""
ROWS_PER_POINT = 20
"""Smallest number of transitions for each point."""
CANDIDATES, KMEANS = 25_000, 5
"""Largest number of rows that points are chosen from, and the number of k-means steps."""
NEIGHBOURS = 8
"""Number of nearest transitions from which the effect of an action at a point is estimated."""
NOISY = 0.5
"""Largest median difference of neighbouring transitions, relative to a typical change, for effects to be compared."""
UNLIKE = 0.5
"""Difference of an action's effects, relative to a typical change, above which two points count as separated."""
ALIKE, EXAMPLES = 8, 20_000
"""Number of points to interpolate between, and of rows of the data that determine the side of a wall of a state."""
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

    @property
    def states(self) -> int:
        """M, the number of known states."""
        return len(self.following)

    def under(self, pi: Tensor) -> tuple[Tensor, Tensor]:
        """(M, A n) following and share under the policy pi (M, A)."""
        return self.following.flatten(1), (self.share * pi[:, :, None]).flatten(1)


def count_model(states: KnownRows, data: Transitions, actions: int) -> tuple[TransitionModel, Tensor]:
    """Estimate P(s' | s, a) by counting; also returns the features of the states.

    A transition to a state in which no transition starts counts as staying in place.
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
    model = _merged(pair[continues], after[continues], 1 / times[pair[continues]], (times > 0).view(M, A))
    features = data.features[first][_order(states, data.observations[first])]
    return model, features


def distinct_rows(rows: Tensor, states: KnownRows) -> tuple[Tensor, Tensor]:
    """The distinct rows among categorical rows (n, packed), and the index of the first of each, (m,)."""
    codes, index = torch.unique(states._code(rows), return_inverse=True)
    first = torch.full((len(codes),), len(rows)).scatter_reduce_(0, index, torch.arange(len(rows)), "amin")
    return rows[first], first


def _order(states: KnownRows, rows: Tensor) -> Tensor:
    return torch.argsort(states.locate(rows)[0].squeeze(1))


def neighbour_model(states: KnownRows, data: Transitions, actions: int) -> tuple[TransitionModel, Tensor]:
    """Estimate P(s' | s, a) among well-spread points, from the changes s' - s in the nearest transitions with action a.

    Changes are used instead of next states, because no transition starts exactly at a point. The distance of states
    includes the difference of actions' effects (`behaviours`), so that states on two sides of a wall are not near.
    """
    n = len(data.actions)
    if n > MODEL_ROWS:
        data = data.at(torch.linspace(0, n - 1, MODEL_ROWS).long())
        n = MODEL_ROWS
    x = data.observations.double()
    scale = x.std(0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    x, most = x / scale, min(POINTS, max(1, n // ROWS_PER_POINT))
    change = (data.next_observations.double() - data.observations.double()) / scale
    _, radius = far_points(_some(x), min(most, len(x)))
    effects = behaviours(x, change, data.actions, actions)  # (n, A, p), in units of a typical change
    described = torch.cat([x, radius * effects.flatten(1)], 1)  # a typical change counts like the distance of points
    points, _ = spread_points(described, most)
    centres = points[:, : x.shape[1]]
    _tell_apart(states, points, x, described, scale, radius)
    M, A = len(states), actions

    pairs, after, shares, seen = [], [], [], []
    for action in range(A):
        rows = torch.nonzero(data.actions == action).squeeze(1)
        k = min(NEIGHBOURS, len(rows))
        if k == 0:  # never taken
            seen.append(torch.zeros(M, dtype=torch.bool))
            continue
        index = rows[_nearest(described[rows], points, k)]  # (M, k)
        ends = (centres[:, None] + change[index]).flatten(0, 1) * scale
        corners, parts = states.locate(ends.float())
        continues = (~data.terminated[index]).flatten().double() / k
        pairs.append((torch.arange(M) * A + action).repeat_interleave(k * corners.shape[1]))
        after.append(corners.flatten())
        shares.append((parts.double() * continues[:, None]).flatten())
        near = x[rows][_nearest(x[rows], centres, 1)[:, 0]]
        seen.append((near - centres).norm(dim=1) <= 2 * radius)
    model = _merged(torch.cat(pairs), torch.cat(after), torch.cat(shares), torch.stack(seen, 1))
    return model, data.features[_nearest(described, points, 1)[:, 0]]


def behaviours(x: Tensor, change: Tensor, taken: Tensor, actions: int) -> Tensor:
    """(n, A, p) the effect of each action near each row of x (n, p): the mean over the nearest two other rows with it.

    In units of a typical change. All zero if outcomes are too random to be estimated from two rows.
    """
    size = change.square().sum(1).mean().sqrt().clamp(min=1e-12)
    means, noise = torch.zeros(len(x), actions, x.shape[1], dtype=torch.float64), torch.zeros(())
    for action in range(actions):
        rows = torch.nonzero(taken == action).squeeze(1)
        if len(rows) < 3:
            continue
        near = rows[_nearest(x[rows], x, 3)]  # (n, 3)
        itself = near == torch.arange(len(x))[:, None]
        near = near.masked_select(~torch.where(itself.any(1, keepdim=True), itself, _last(itself))).view(-1, 2)
        one, two = change[near].unbind(1)
        means[:, action] = (one + two) / 2
        noise = torch.maximum(noise, (one - two).norm(dim=1).median())
    return means / size if float(noise) < NOISY * float(size) else torch.zeros_like(means)


def _last(mask: Tensor) -> Tensor:
    """(n, k) true in the last column only."""
    return torch.arange(mask.shape[1]).expand_as(mask) == mask.shape[1] - 1


def _nearest(rows: Tensor, wanted: Tensor, k: int) -> Tensor:
    """(n, k) the indices of the rows (m, p) that are nearest to each of ``wanted`` (n, p)."""
    index: Tensor = torch.from_numpy(KDTree(rows.numpy()).query(wanted.numpy(), k, workers=-1)[1])
    return index.view(len(wanted), k)


def _tell_apart(states: KnownRows, points: Tensor, x: Tensor, described: Tensor, scale: Tensor, radius: float) -> None:
    """Set the known points (M, p + A p) of states, which points are alike, and the points of some rows of x (n, p)."""
    M, p = len(points), x.shape[1]
    states.know((points[:, :p] * scale).float(), scale)
    around = _nearest(points[:, :p], points[:, :p], min(M, 3 * ALIKE))  # (M, c), itself first
    here = torch.arange(M)[:, None]
    between = points[around] - points[:, None]  # (M, c, p + A p)
    differ = (between[..., p:] / radius).reshape(M, around.shape[1], -1, p).norm(dim=3).amax(2)
    apart = between[..., :p].norm(dim=2)
    apart = torch.where((differ > UNLIKE) & (around != here), torch.inf, apart)
    order = apart.topk(min(M, ALIKE), largest=False)
    alike = torch.where(order.values < torch.inf, around.gather(1, order.indices), here)
    rows = torch.linspace(0, len(x) - 1, min(len(x), EXAMPLES)).long()
    states.tell_apart((x[rows] * scale).float(), _nearest(points, described[rows], 1)[:, 0], alike)


def _some(x: Tensor) -> Tensor:
    """At most CANDIDATES distinct rows of x (n, p)."""
    some: Tensor = torch.unique(x[torch.linspace(0, len(x) - 1, min(len(x), CANDIDATES)).long()], dim=0)
    return some


def spread_points(x: Tensor, most: int) -> tuple[Tensor, float]:
    """(m, p) distinct points that cover x (n, p) evenly, by k-means, and the distance of its initial points."""
    x = _some(x)
    points, radius = far_points(x, min(most, len(x)))
    for _ in range(KMEANS):
        own = _nearest(points, x, 1)[:, 0]
        count = torch.bincount(own, minlength=len(points))[:, None]
        mean = torch.zeros_like(points).index_add_(0, own, x) / count.clamp(min=1)
        points = torch.where(count > 0, mean, points)
    return torch.unique(points, dim=0), radius


def _merged(pair: Tensor, after: Tensor, share: Tensor, seen: Tensor) -> TransitionModel:
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
