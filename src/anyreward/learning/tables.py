"""Landmarks learned exactly: from the transitions of a replay to the tables of F and B.

Where the states can be listed, the Bellman loss on the successor measure has its minimum in closed form, for all data
at once, so no gradient step is taken. The steps, in the order of `learn_tables`:

1. what is known: the states (categories: all; numbers: well-spread ones) and P(s' | s, a) as it was seen;
2. B, orthonormal under rho;
3. the landmarks, and for each the policy that reaches it and stays;
4. the successor features V_k of each policy: (I - gamma P_k) V_k = B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.representation.basis import far_points
from anyreward.representation.landmarks import KnownRows, LandmarkForward, TableBackward
from anyreward.worlds.spaces import Space, leaves

MOST_CATEGORIES = 20_000
"""States that a table may list."""
MOST_NUMBERS = 3
"""Numbers in an observation up to which well-spread points stand for all states."""
POINTS = 2_500
"""Such points, at most."""
ROWS_PER_POINT = 20
"""Transitions that each of them needs."""
NEIGHBOURS = 8
"""Transitions near a point that tell where an action leads from it."""
MODEL_ROWS = 200_000
"""Transitions that are searched for these, at most."""
NUMBER_FEATURES = 256
"""d where features are numbers."""
FEWEST_LANDMARKS = 128
"""Where memory does not hold all, d shrinks before there are fewer landmarks than this."""
BUDGET = 2**27
"""Numbers in all V_k together, at most: 512 MB."""
TIE = 0.1
"""Actions are equally good if one is worse by less than this share of what a step of delay costs."""
DENSE = 4_000
"""States up to which linear systems are solved densely."""


def can_list(space: Space) -> bool:
    """Whether the elements of a space can be listed, or covered by points."""
    parts = list(leaves(space))
    if all(leaf.kind != "number" for leaf in parts):
        return math.prod((leaf.categories or 2) ** leaf.packed for leaf in parts) <= MOST_CATEGORIES
    return sum(leaf.packed for leaf in parts) <= MOST_NUMBERS and all(leaf.kind == "number" for leaf in parts)


@dataclass(frozen=True)
class Model:
    """P(s' | s, a) as it was seen, among known states."""

    following: Tensor
    """(M, A, n)"""
    share: Tensor
    """(M, A, n) float; what is missing to one ends there"""
    seen: Tensor
    """(M, A)"""

    @property
    def states(self) -> int:
        """M"""
        return len(self.following)

    def under(self, pi: Tensor) -> tuple[Tensor, Tensor]:
        """(M, A n) following and share under the policy pi (M, A)."""
        return self.following.flatten(1), (self.share * pi[:, :, None]).flatten(1)


def learn_tables(
    F: LandmarkForward,
    B: TableBackward,
    data: Transitions,
    sample: Tensor,
    gamma: float,
    dim: int,
    landmarks: int,
    include_action: bool,
) -> dict[str, float]:
    """Fill the tables of F and B from transitions; ``sample`` (n,) are the rows that stand for rho.

    ``dim`` and ``landmarks`` are upper bounds (dim 0: none but memory). Returns figures for the log.
    """
    model, phi = know_states(F.states, data)
    # every feature that a known state has, for each action where B sees it
    by_action = [_with_action(phi, a) for a in range(F.actions)] if include_action else [phi]
    d, K = table_sizes(F.states, len(torch.unique(torch.cat(by_action), dim=0)), B.known.categorical, dim, landmarks)
    fit_backward(B, data, sample, model, by_action, d)
    own = torch.stack([B(rows) for rows in by_action], 1)  # (M, 1 or A, d)
    chosen = far_states(F.states, model, K)
    best = goal_policies(model, goal_rewards(F.states, chosen), gamma)  # (K, M, A)
    import os
    if os.environ.get('STAY'):
        same = (model.share * (model.following == torch.arange(model.states)[:, None, None])).sum(2)  # (M, A)
        same = same.masked_fill(~model.seen, -1)
        stay = (same >= same.amax(1, keepdim=True)).double(); stay = stay / stay.sum(1, keepdim=True)
        best = torch.cat([best, stay[None]]); chosen = torch.cat([chosen, chosen[:1]])
    V = torch.empty(len(chosen), model.states, own.shape[2], dtype=own.dtype)
    for k, pi in enumerate(best):
        paid = own[:, 0] if own.shape[1] == 1 else torch.einsum("ma,mad->md", pi.to(own), own)
        V[k] = successor_features(model, pi, paid, gamma)
    F.fill(
        V=V,
        B=own,
        following=model.following,
        share=(gamma * model.share).to(own),
        seen=model.seen,
        landmarks=chosen,
    )
    return {
        "states": float(model.states),
        "landmarks": float(len(chosen)),
        "dim": float(own.shape[2]),
        "unseen_pairs": float((~model.seen).float().mean()),
    }


def _with_action(phi: Tensor, action: int) -> Tensor:
    return torch.cat([phi[:, :-1], torch.full_like(phi[:, -1:], action)], dim=1)


def table_sizes(states: KnownRows, features: int, categorical: bool, dim: int, landmarks: int) -> tuple[int, int]:
    """d and the number of landmarks: what was asked for at most, what is there, and what memory holds."""
    d = min(features, dim or features) if categorical else min(dim or NUMBER_FEATURES, NUMBER_FEATURES, len(states))
    K, M = min(len(states), landmarks), max(len(states), 1)
    K = min(K, max(FEWEST_LANDMARKS, BUDGET // (M * d)))  # fewer landmarks cost less than fewer dimensions do
    return max(1, min(d, BUDGET // (M * K))), K


# 1. what is known ------------------------------------------------------------------------------------------------


def know_states(states: KnownRows, data: Transitions) -> tuple[Model, Tensor]:
    """List the states that transitions begin in; P between them; and the features (M, packed) that each state has."""
    actions = int(data.actions.max()) + 1 if len(data.actions) else 1
    return count_model(states, data, actions) if states.categorical else neighbour_model(states, data, actions)


def count_model(states: KnownRows, data: Transitions, actions: int) -> tuple[Model, Tensor]:
    """P(s' | s, a) by counting.

    Where an action led to a state that no transition begins in, nothing is known of what follows: it counts as staying.
    """
    rows, first = _distinct(data.observations, states)
    states.know(rows)
    M, A = len(rows), actions
    before = states.locate(data.observations)[0].squeeze(1)
    after, known = (column.squeeze(1) for column in states.locate(data.next_observations))
    after = torch.where(known > 0, after, before)
    pair = before * A + data.actions
    times = torch.bincount(pair, minlength=M * A).double()
    goes_on = ~data.terminated
    outcome, counts = torch.unique(pair[goes_on] * M + after[goes_on], return_counts=True)
    pair, after = outcome // M, outcome % M
    each = torch.bincount(pair, minlength=M * A)  # distinct outcomes of every pair
    n = max(int(each.max()), 1) if len(each) else 1
    place = torch.arange(len(pair)) - (each.cumsum(0) - each)[pair]  # of an outcome among those of its pair
    following = torch.arange(M).repeat_interleave(A)[:, None].repeat(1, n)  # what is not used points to itself
    share = torch.zeros(M * A, n, dtype=torch.float64)
    following[pair, place] = after
    share[pair, place] = counts / times[pair]
    features = data.features[first][_order(states, data.observations[first])]
    return Model(following.view(M, A, n), share.view(M, A, n), (times > 0).view(M, A)), features


def _distinct(rows: Tensor, states: KnownRows) -> tuple[Tensor, Tensor]:
    codes, index = torch.unique(states._code(rows), return_inverse=True)
    first = torch.full((len(codes),), len(rows)).scatter_reduce_(0, index, torch.arange(len(rows)), "amin")
    return rows[first], first


def _order(states: KnownRows, rows: Tensor) -> Tensor:
    return torch.argsort(states.locate(rows)[0].squeeze(1))


def neighbour_model(states: KnownRows, data: Transitions, actions: int) -> tuple[Model, Tensor]:
    """P(s' | s, a) among well-spread points: what changed in the nearest transitions with that action, from there on.

    Changes carry over from neighbours better than ends do: no transition begins exactly at a point.
    """
    n = len(data.actions)
    if n > MODEL_ROWS:
        data = data.at(torch.linspace(0, n - 1, MODEL_ROWS).long())
    x = data.observations.double()
    scale = x.std(0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    candidates = torch.linspace(0, len(x) - 1, min(len(x), 10 * POINTS)).long()
    distinct = torch.unique(data.observations[candidates], dim=0)
    M = max(1, min(POINTS, len(distinct), n // ROWS_PER_POINT))
    points, radius = far_points(distinct.double() / scale, M)
    points = torch.unique((points * scale).float(), dim=0)
    states.know(points, scale)
    M, A = len(states), actions

    following, share, seen = [], [], []
    unit = x / scale
    for action in range(A):
        rows = torch.nonzero(data.actions == action).squeeze(1)
        k = min(NEIGHBOURS, len(rows))
        if k == 0:
            following.append(torch.arange(M)[:, None].repeat(1, 1)), share.append(torch.zeros(M, 1))
            seen.append(torch.zeros(M, dtype=torch.bool))
            continue
        found = [torch.cdist(p, unit[rows]).topk(k, largest=False) for p in torch.split(points.double() / scale, 256)]
        index, far = rows[torch.cat([f.indices for f in found])], torch.cat([f.values for f in found])
        change = (data.next_observations - data.observations)[index]  # (M, k, packed)
        corners, parts = states.locate((points[:, None] + change).flatten(0, 1))
        goes_on = (~data.terminated[index]).flatten().double() / k
        following.append(corners.view(M, -1))
        share.append((parts.double() * goes_on[:, None]).view(M, -1))
        seen.append(far[:, 0] <= 2 * radius)
    model = _merged(following, share, torch.stack(seen, 1))
    nearest = torch.cat([torch.cdist(p, unit).argmin(1) for p in torch.split(points.double() / scale, 256)])
    return model, data.features[nearest]


def _merged(following: list[Tensor], share: list[Tensor], seen: Tensor) -> Model:
    """The model with equal outcomes of a pair added up."""
    M, A = seen.shape
    pair = torch.cat([(torch.arange(M) * A + a)[:, None].expand_as(f).flatten() for a, f in enumerate(following)])
    outcome, index = torch.unique(pair * M + torch.cat([f.flatten() for f in following]), return_inverse=True)
    total = torch.zeros(len(outcome), dtype=torch.float64).index_add_(
        0, index, torch.cat([s.flatten().double() for s in share])
    )
    pair, after = outcome // M, outcome % M
    each = torch.bincount(pair, minlength=M * A)
    n = int(each.max())
    place = torch.arange(len(pair)) - (each.cumsum(0) - each)[pair]
    to = torch.arange(M).repeat_interleave(A)[:, None].repeat(1, n)
    p = torch.zeros(M * A, n, dtype=torch.float64)
    to[pair, place] = after
    p[pair, place] = total
    return Model(to.view(M, A, n), p.view(M, A, n), seen)


# 2. B -------------------------------------------------------------------------------------------------------------


def fit_backward(
    B: TableBackward, data: Transitions, sample: Tensor, model: Model, by_action: list[Tensor], d: int
) -> None:
    """Choose B with E_rho[B B^T] = 1.

    Among categories the d smoothest functions on the graph of transitions, which are all functions where d is as large
    as that. Among numbers, hats around d points: a local basis, so that the projection of a goal has no ripples far
    away from it.
    """
    phi = data.features[sample]
    known = B.known
    if known.categorical:
        rows, _ = _distinct(torch.cat([phi, *by_action]), known)
        known.know(rows)
        rho = torch.bincount(known.locate(phi)[0].squeeze(1), minlength=len(known)).double() / len(phi)
        size = rho.clamp(min=1e-12).sqrt()
        if d >= len(known):
            B.table = torch.diag(torch.where(rho > 0, 1 / size, torch.zeros_like(size))).float()
            return
        B.table = smoothest(B, model, by_action, rho, d).float()
        return
    scale = phi.double().std(0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    centres, _ = far_points(torch.unique(torch.cat(by_action), dim=0).double() / scale, d)
    known.know(torch.unique((centres * scale).float(), dim=0), scale)
    B.table = torch.eye(len(known))
    hats = B(phi).double()
    values, vectors = torch.linalg.eigh(hats.T @ hats / len(hats))
    used = values > 1e-6 * values[-1]
    inverse = torch.where(used, values.clamp(min=1e-30).rsqrt(), torch.zeros_like(values))
    B.table = (vectors * inverse @ vectors.T).float()


def smoothest(B: TableBackward, model: Model, by_action: list[Tensor], rho: Tensor, d: int) -> Tensor:
    """(n, d) the functions of the known features that change least from one state to the next, orthonormal in rho."""
    n, (M, A, _) = len(B.known), model.following.shape
    feature = torch.stack([B.known.locate(rows)[0].squeeze(1) for rows in by_action], 1)  # (M, 1 or A)
    here = feature.expand(M, A)[:, :, None].expand_as(model.following)
    there = feature[:, :1][model.following].squeeze(3)
    mass = rho.clamp(min=1e-12)
    flow = torch.zeros(n * n, dtype=torch.float64) if n <= DENSE else None
    weight = (model.share / A) * mass[here]
    if flow is None:
        raise NotImplementedError
    flow.index_add_(0, (here * n + there).flatten(), weight.flatten())
    W = flow.view(n, n)
    W = (W + W.T) / 2
    degree = W.sum(1).clamp(min=1e-12)
    root = degree.rsqrt()
    _, vectors = torch.linalg.eigh(root[:, None] * W * root)
    raw = root[:, None] * vectors.flip(1)[:, :d]
    gram = raw.T @ (rho[:, None] * raw)
    return raw @ torch.linalg.inv(torch.linalg.cholesky(gram)).T


# 3. landmarks -----------------------------------------------------------------------------------------------------


def far_states(states: KnownRows, model: Model, K: int) -> Tensor:
    """(K,) known states, each as far as can be from those before it: in steps among categories, else in distance."""
    M = model.states
    if K >= M:
        return torch.arange(M)
    if not states.categorical:
        points, _ = far_points(states.rows.double() / states.scale, K)
        return torch.unique(torch.cdist(points, states.rows.double() / states.scale).argmin(1))
    chosen, nearest = [0], steps_from(model, 0)
    while len(chosen) < K:
        chosen.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, steps_from(model, chosen[-1]))
    return torch.tensor(chosen).sort().values


def steps_from(model: Model, start: int) -> Tensor:
    """(M,) how many steps each state is away from one, at least; what cannot be reached is M away."""
    steps = torch.full((model.states,), model.states)
    edge, reached = torch.tensor([start]), 0
    while len(edge):
        steps[edge] = reached
        after = model.following[edge][model.share[edge] > 0].unique()
        edge, reached = after[steps[after] == model.states], reached + 1
    return steps


def goal_rewards(states: KnownRows, chosen: Tensor) -> Tensor:
    """(M, K) what each landmark's policy is for: one at the landmark; among numbers a hill, as wide as they lie apart."""
    M = len(states)
    if states.categorical:
        return torch.zeros(M, len(chosen)).index_put_((chosen, torch.arange(len(chosen))), torch.ones(()))
    points = states.rows.double() / states.scale
    apart = torch.cdist(points[chosen], points[chosen]).fill_diagonal_(torch.inf).amin(1).median() if len(chosen) > 1 else torch.ones(())
    return torch.exp(-torch.cdist(points, points[chosen]).square() / (2 * (apart / 2) ** 2)).float()


@torch.no_grad()
def goal_policies(model: Model, paid: Tensor, gamma: float, least: int = 40) -> Tensor:
    """(K, M, A) the best policies for rewards (M, K) on states, by value iteration: all best actions are equally likely.

    So every shortest way to a landmark is taken, and more states lie on the way to one. It ends when no action has
    changed for some sweeps, and values have reached all states that they can reach.
    """
    share = (gamma * model.share).to(paid)
    blocked = torch.where(model.seen, 0.0, -torch.inf).to(paid)[..., None]
    blocked = torch.where(model.seen.any(1)[:, None, None], blocked, torch.zeros_like(blocked))
    V, actions, same = paid.clone(), None, 0
    for sweep in range(1, math.ceil(20 / (1 - gamma)) + 1):
        ahead = (V[model.following] * share[..., None]).sum(2) + blocked  # (M, A, K)
        V = paid + ahead.amax(1)
        if sweep % least == 0:
            now = ahead >= (1 - TIE * (1 - gamma)) * ahead.amax(1, keepdim=True)  # (M, A, K)
            same = same + 1 if actions is not None and torch.equal(now, actions) else 0
            actions = now
            if same == 2:
                break
    assert actions is not None
    best = (actions & (blocked == 0)).permute(2, 0, 1).double()
    return best / best.sum(2, keepdim=True)


# 4. successor features --------------------------------------------------------------------------------------------


@torch.no_grad()
def successor_features(model: Model, pi: Tensor, paid: Tensor, gamma: float) -> Tensor:
    """(M, d) V with V = B + gamma P_pi V, for the policy pi (M, A) and B (M, d) of what it does."""
    following, share = model.under(pi)  # (M, A n)
    share = (gamma * share).to(paid)
    M = model.states
    if M <= DENSE:
        system = torch.eye(M, dtype=paid.dtype)
        system.view(-1).index_add_(0, (torch.arange(M)[:, None] * M + following).flatten(), -share.flatten())
        return torch.linalg.solve(system, paid)
    V = paid
    for _ in range(math.ceil(10 / (1 - gamma))):
        new = paid + torch.einsum("mn,mnd->md", share, V[following])
        if float((new - V).abs().max()) <= 1e-5 * float(new.abs().max()):
            break
        V = new
    return new

