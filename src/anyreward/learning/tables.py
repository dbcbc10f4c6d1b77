"""Computation of the tables of F and B for landmarks, from the transitions of a replay buffer.

If the states can be listed, the Bellman loss on the successor measure is minimised in closed form, over all data at
once, so no gradient steps are needed. The steps of `learn_tables`:

1. the known states (categories: all; numbers: well-spread points) and an estimate of P(s' | s, a);
2. B, orthonormal under rho;
3. the landmarks, and for each the policy that reaches it and stays there;
4. the successor features V_k of each policy: (I - gamma P_k) V_k = B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.learning.transition_model import (
    POINTS,
    TransitionModel,
    count_model,
    distinct_rows,
    neighbour_model,
    spread_of,
    spread_points,
)
from anyreward.model.basis import far_points
from anyreward.model.features import FeatureMap
from anyreward.model.landmarks import KnownRows, LandmarkForward, TableBackward, mixture, successor_features
from anyreward.model.rank import learned_directions
from anyreward.worlds.spaces import Space, leaves

Sample = tuple[Tensor, Tensor]
"""Rows (n,) of the data that represent rho, and their weights (n,)."""
MOST_CATEGORIES = 20_000
"""Largest number of categorical states or features in a table."""
MOST_NUMBERS = 3
"""Largest number of continuous components of an observation for which tables over well-spread points are used."""
NUMBER_FEATURES = 1_000
"""d if features are numbers: the number of points that features are interpolated between."""
MOST_DIM = 4_096
"""Largest d."""
ENOUGH_LANDMARKS = 16
"""Largest number of landmarks if their V_k are too large to be stored whole."""
FEW_NUMBERS = 2**24
"""Largest total number of entries of the V_k that are stored whole (64 MB); else only the most visited features are."""
BUDGET = 2**27
"""Largest total number of stored visits (512 MB)."""
DROPPED = 0.05
"""Share of a policy's discounted visits that may be left out."""
PROBES = 8
"""Number of landmarks used to estimate how many features a policy visits."""
TIE = 0.1
"""Actions count as equally good if they differ by less than this share of the cost of one step of delay."""


def can_list(space: Space, ends: bool = False, numbers: int = MOST_NUMBERS) -> bool:
    """Whether the elements of a space can be listed or, if they are at most ``numbers`` numbers, covered by points.

    With ``ends`` its last leaf marks terminal states.
    """
    parts = list(leaves(space))[: -1 if ends else None]
    if all(leaf.kind != "number" for leaf in parts):
        return listed(space, ends) <= MOST_CATEGORIES
    return sum(leaf.packed for leaf in parts) <= numbers and all(leaf.kind == "number" for leaf in parts)


def listed(space: Space, ends: bool = False) -> int:
    """The largest number of rows of a table over a space: its number of elements, or of points if it has numbers.

    Terminal states, which ``ends`` marks, are not counted again.
    """
    parts = list(leaves(space))[: -1 if ends else None]
    if any(leaf.kind == "number" for leaf in parts):
        return POINTS
    return int(math.prod((leaf.categories or 2) ** leaf.packed for leaf in parts))


def landmarks_for(states: int, dim: int, most: int) -> int:
    """The number of landmarks: all states or ``most`` of them, but fewer if tables would be large."""
    K = min(states, most)
    return K if K * states * dim <= FEW_NUMBERS else min(K, ENOUGH_LANDMARKS)


def plan(phi: FeatureMap, dim: int, most: int) -> str:
    """A text with the size of the tables: upper bounds, because the states that will be visited are not known yet."""
    features, each = phi.space, phi.actions if phi.include_action else 1
    S, n = listed(phi.seen_space, phi.ends), listed(features, phi.ends)
    numbers = n == POINTS and any(leaf.kind == "number" for leaf in leaves(features))
    d = min(NUMBER_FEATURES if numbers else n, MOST_DIM, dim or n)
    K = landmarks_for(S, d, most)
    size = 4 * (min(K * S * d, BUDGET) + S * each * d + (d if numbers else n) * d)  # V, B of states, B of features
    text = f"Tables of at most {S:,} states, {K:,} landmarks and d = {d:,}: up to {max(size / 1e6, 1):,.0f} MB."
    if not numbers and n > MOST_DIM:
        text += (
            f" If more than {MOST_DIM:,} features are visited, B distinguishes only groups of features, and rewards "
            "for single features are answered less well: use coarser features."
        )
    return text


class TableBuilder:
    """The steps of `learn_tables`, and the data that they share."""

    def __init__(
        self,
        F: LandmarkForward,
        B: TableBackward,
        data: Transitions,
        sample: Sample,
        gamma: float,
        dim: int,
        phi: FeatureMap,
    ) -> None:
        self.F, self.gamma = F, gamma
        learn_states = count_model if F.P.states.categorical else neighbour_model
        self.model, rows = learn_states(F.P.states, data, F.actions, phi.ends)
        # the features of the known states, for each action if B sees actions
        by_action = [phi.with_action(rows, a) for a in range(F.actions)] if phi.include_action else [rows]
        features = len(torch.unique(torch.cat(by_action), dim=0)) if B.known.categorical else NUMBER_FEATURES
        fit_backward(B, data, sample, self.model, by_action, min(features, MOST_DIM, dim or features), phi.ends)
        self.own = torch.stack([B(rows) for rows in by_action], 1)  # (M, 1 or A, d)
        self.mean = mean_share(B, data.features[sample[0]], sample[1]) @ B.table  # (d,) E_rho[B]
        self.has_visits = bool((B.table >= 0).all())  # a B with negative entries has none
        self.report: Callable[[str], None] = lambda note: None

    @property
    def M(self) -> int:
        """The number of known states."""
        return self.model.states

    @property
    def d(self) -> int:
        """The dimension of B."""
        return self.own.shape[2]

    def choose(self, most: int) -> Tensor:
        """(K,) landmarks: well-spread states."""
        return far_states(self.F.P.states, self.model, max(1, most))

    def measures(self, goals: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield successor features (M, d) of each landmark's policy, and E[gamma^T] (M,), T the time to the landmark.

        If not all states are landmarks, the policy of staying in place comes last.
        """
        F, model, gamma = self.F, self.model, self.gamma
        rewards = goal_rewards(F.P.states, goals)[:, None]  # (M, 1, K)
        for k, (goal, pi) in enumerate(zip(goals, goal_policies(model, rewards, gamma), strict=True)):  # (M, A)
            self.report(f"landmark {k + 1} of {len(goals)}")
            at_goal = torch.zeros(self.M, 1).index_fill_(0, goal, 1.0)
            solved = self._successor_features(pi, torch.cat([self._own_under(pi), at_goal], 1))
            yield solved[:, :-1], solved[:, -1] / solved[goal, -1]  # visits of the goal: E[gamma^T] times its own
        if len(goals) < self.M:
            pi = staying_policy(model)
            yield self._successor_features(pi, self._own_under(pi)), torch.zeros(self.M)

    def _successor_features(self, pi: Tensor, paid: Tensor) -> Tensor:
        """(M, d) V with V = paid + gamma P_pi V, for a policy pi (M, A) and ``paid`` (M, d)."""
        following, share = self.model.under(pi)
        return successor_features(following, (self.gamma * share).to(paid), paid)

    def _own_under(self, pi: Tensor) -> Tensor:
        """(M, d) the mean of B(s, a) over the actions of a policy pi (M, A)."""
        own = self.own
        return own[:, 0] if own.shape[1] == 1 else torch.einsum("ma,mad->md", pi.to(own), own)

    def whole_tables(self, K: int) -> tuple[Tensor, dict[str, Tensor]]:
        """(K,) landmarks, and their successor features, stored whole."""
        chosen = self.choose(min(K, BUDGET // (2 * self.M * self.d)))
        V, reach = (torch.stack(column) for column in zip(*self.measures(chosen), strict=True))
        return chosen, {"V": V, "reach": reach}

    def visit_tables(self, K: int) -> tuple[Tensor, dict[str, Tensor]]:
        """(K,) landmarks, and their successor features, restricted to the most visited features."""
        M, d = self.M, self.d
        needed = max(entries(V_k * self.mean) for V_k, _ in self.measures(self.choose(PROBES)))
        chosen = self.choose(min(K, BUDGET // (M * needed)))
        n = max(needed, min(d, 2 * needed, FEW_NUMBERS // (M * len(chosen))))
        policies = len(chosen) + (len(chosen) < M)
        visits, where = (torch.empty(policies, M, n, dtype=t) for t in (torch.float16, torch.int16))
        mass, reach = torch.empty(policies, M), torch.empty(policies, M)
        for k, (V_k, reach[k]) in enumerate(self.measures(chosen)):
            where[k], visits[k], mass[k] = most_visited(V_k * self.mean, n)
        return chosen, {"visits": visits, "where": where, "mass": mass, "reach": reach}


def learn_tables(
    F: LandmarkForward,
    B: TableBackward,
    data: Transitions,
    sample: Sample,
    gamma: float,
    dim: int,
    landmarks: int,
    phi: FeatureMap,
    report: Callable[[str], None] = lambda note: None,
) -> dict[str, float]:
    """Fill the tables of F and B from transitions, and return metrics.

    ``sample`` are the rows that represent rho, and their weights. ``dim`` and ``landmarks`` are upper bounds (dim 0:
    `MOST_DIM`). ``report`` is called with notes on the progress.
    """
    builder = TableBuilder(F, B, data, sample, gamma, dim, phi)
    builder.report, model, own = report, builder.model, builder.own
    K = landmarks_for(model.states, builder.d, landmarks)
    whole = K * model.states * builder.d <= FEW_NUMBERS or not builder.has_visits
    chosen, tables = builder.whole_tables(K) if whole else builder.visit_tables(K)
    empty = {name: getattr(F, name)[:0] for name in ("V", "visits", "where", "mass")}
    F.fill(
        **empty | tables,
        mean=builder.mean,
        B=own,
        following=model.following,
        share=(gamma * model.share).to(own),
        seen=model.seen,
        landmarks=chosen,
    )
    return {
        "states": float(model.states),
        "landmarks": float(len(chosen)),
        "dim": float(builder.d),
        "unseen_pairs": float((~model.seen).float().mean()),
    }


def entries(visits: Tensor) -> int:
    """The number of largest entries of discounted visits (M, d) that hold nearly all of the sum, in every row."""
    largest = visits.sort(1, descending=True).values.cumsum(1)
    return int((largest < (1 - DROPPED) * largest[:, -1:]).sum(1).max()) + 1


def most_visited(visits: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Indices (M, n) of the largest discounted visits (M, d), their shares (M, n), and the sum of all visits (M,).

    A policy that goes to a state and stays there visits few other states.
    """
    largest, where = visits.topk(n, dim=1)
    return where.short(), (largest / largest.sum(1, keepdim=True)).half(), visits.sum(1)


# 2. B -------------------------------------------------------------------------------------------------------------


def fit_backward(
    B: TableBackward,
    data: Transitions,
    sample: Sample,
    model: TransitionModel,
    by_action: list[Tensor],
    d: int,
    ends: bool = False,
) -> None:
    """Choose B with E_rho[B B^T] = I.

    Categories: the d smoothest functions on the graph of transitions, or all functions if d is large enough. Numbers:
    the interpolation weights of d points. B is then local, as successor measures are, and E[B B^T] is nearly I; a
    reward is represented by its local averages.
    """
    phi, weights = data.features[sample[0]], sample[1]
    known = B.known
    if known.categorical:
        rows, _ = distinct_rows(torch.cat([phi, *by_action]), known)
        known.know(rows)
        rho = torch.bincount(known.locate(phi)[0].squeeze(1), minlength=len(known)).double() / len(phi)
        size = rho.clamp(min=1e-12).sqrt()
        if d >= len(known):
            B.table = torch.diag(torch.where(rho > 0, 1 / size, torch.zeros_like(size))).float()
            return
        by_group = d == MOST_DIM  # too many features to distinguish all of them
        B.table = (grouped if by_group else smoothest)(B, model, by_action, rho, d).float()
        return
    scale = spread_of(phi, ends)
    centres, _ = spread_points(phi.double() / scale, d, phi[:, -1] > 0.5 if ends else None)
    known.know((centres * scale).float(), scale)
    B.table = torch.diag(mean_share(B, phi, weights).double().clamp(min=1e-9).rsqrt()).float()


def mean_share(B: TableBackward, phi: Tensor, weights: Tensor) -> Tensor:
    """(n,) the mean interpolation weight of each known feature of B, over weighted packed features (m, packed)."""
    index, share = B.known.locate(phi)
    return torch.zeros(len(B.known)).index_add_(0, index.flatten(), (share * weights[:, None].to(share)).flatten())


def smoothest(B: TableBackward, model: TransitionModel, by_action: list[Tensor], rho: Tensor, d: int) -> Tensor:
    """(n, d) the functions of the known features that change least along transitions, orthonormal under rho."""
    n, (M, A, _) = len(B.known), model.following.shape
    feature = torch.stack([B.known.locate(rows)[0].squeeze(1) for rows in by_action], 1)  # (M, 1 or A)
    here = feature.expand(M, A)[:, :, None].expand_as(model.following)
    there = feature[:, :1][model.following].squeeze(3)
    weight = (model.share / A) * rho.clamp(min=1e-12)[here]
    W = torch.zeros(n * n, dtype=torch.float64).index_add_(0, (here * n + there).flatten(), weight.flatten()).view(n, n)
    W = (W + W.T) / 2
    degree = W.sum(1).clamp(min=1e-12)
    root = degree.rsqrt()
    _, vectors = torch.linalg.eigh(root[:, None] * W * root)
    raw = root[:, None] * vectors.flip(1)[:, :d]
    size, directions = torch.linalg.eigh(raw.T @ (rho[:, None] * raw))
    used = learned_directions(size)  # without directions that have no variance under rho
    white: Tensor = raw @ (directions[:, used] * size[used].rsqrt()) @ directions[:, used].T
    return white


def grouped(B: TableBackward, model: TransitionModel, by_action: list[Tensor], rho: Tensor, d: int) -> Tensor:
    """(n, d) normalised indicators of d groups of features: the states nearest, in steps, to each of d states."""
    group = torch.full((model.states,), -1)
    edge = torch.linspace(0, model.states - 1, d // len(by_action)).long()
    group[edge] = torch.arange(len(edge))
    while len(edge):
        after = model.following[edge].flatten(1)  # (m, A n)
        new = (model.share[edge].flatten(1) > 0) & (group[after] < 0)
        group[after[new]] = group[edge][:, None].expand_as(after)[new]
        edge = torch.unique(after[new])
    group = torch.where(group < 0, 0, group)
    n = int(group.max()) + 1
    table = torch.zeros(len(B.known), n * len(by_action), dtype=torch.float64)
    for a, rows in enumerate(by_action):
        table[B.known.locate(rows)[0].squeeze(1), group + a * n] = 1.0
    scaled: Tensor = table * (rho @ table).clamp(min=1e-12).rsqrt()
    return scaled


# 3. landmarks -----------------------------------------------------------------------------------------------------


def far_states(states: KnownRows, model: TransitionModel, K: int) -> Tensor:
    """(K,) known states by farthest-point sampling: by number of steps for categories, else by distance."""
    M = model.states
    if K >= M:
        return torch.arange(M)
    if not states.categorical:
        points, _ = far_points(states.rows.double() / states.scale, K)
        nearest: Tensor = torch.unique(torch.cdist(points, states.rows.double() / states.scale).argmin(1))
        return nearest
    chosen, nearest = [0], steps_from(model, torch.tensor([0]))
    while len(chosen) < K:
        chosen.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, steps_from(model, torch.tensor(chosen[-1:])))
    return torch.tensor(chosen).sort().values


def steps_from(model: TransitionModel, starts: Tensor) -> Tensor:
    """(M,) the smallest number of steps from any of ``starts`` (m,) to each state; M if it cannot be reached."""
    steps = torch.full((model.states,), model.states)
    edge, reached = starts, 0
    while len(edge):
        steps[edge] = reached
        after = torch.unique(model.following[edge][model.share[edge] > 0])
        edge, reached = after[steps[after] == model.states], reached + 1
    return steps


def goal_rewards(states: KnownRows, chosen: Tensor) -> Tensor:
    """(M, K) the reward of each landmark's policy: one at the landmark; for numbers, a Gaussian around it."""
    M = len(states)
    if states.categorical:
        return torch.zeros(M, len(chosen)).index_put_((chosen, torch.arange(len(chosen))), torch.ones(()))
    points = states.rows.double() / states.scale
    apart = (
        torch.cdist(points[chosen], points[chosen]).fill_diagonal_(torch.inf).amin(1).median()
        if len(chosen) > 1
        else torch.ones(())
    )
    gaussians: Tensor = torch.exp(-torch.cdist(points, points[chosen]).square() / (2 * (apart / 2) ** 2)).float()
    return gaussians


def staying_policy(model: TransitionModel) -> Tensor:
    """(M, A) the policy that most likely stays in the same state; equally good actions are equally likely."""
    here = torch.arange(model.states)[:, None, None]
    same = (model.share * (model.following == here)).sum(2) + model.seen.double()  # (M, A)
    best = (same >= same.amax(1, keepdim=True) - 1e-9).double()
    return best / best.sum(1, keepdim=True)


@torch.no_grad()
def goal_policies(model: TransitionModel, paid: Tensor, gamma: float, least: int = 40) -> Tensor:
    """(K, M, A) optimal policies for rewards ``paid`` (M, 1 or A, K), by value iteration; ties are equally likely.

    All shortest paths to a landmark are taken, so more states lie on one. Iteration stops once the best actions are the
    same in three checks, ``least`` sweeps apart.
    """
    M, A, n = model.following.shape
    following, share = model.following.view(M * A, n), (gamma * model.share).to(paid).view(M * A, n)
    blocked = torch.where(model.seen, 0.0, -torch.inf).to(paid)[..., None]
    blocked = torch.where(model.seen.any(1)[:, None, None], blocked, torch.zeros_like(blocked))
    V, actions, same = paid.amax(1), None, 0
    for sweep in range(1, math.ceil(20 / (1 - gamma)) + 1):
        ahead = mixture(V, following, share).view(M, A, -1) + blocked  # (M, A, K)
        Q = paid + ahead
        V = Q.amax(1)
        if sweep % least == 0:
            now = V[:, None] - TIE * (1 - gamma) * ahead.amax(1, keepdim=True) <= Q  # (M, A, K)
            same = same + 1 if actions is not None and torch.equal(now, actions) else 0
            actions = now
            if same == 2:
                break
    assert actions is not None
    best = (actions & (blocked == 0)).permute(2, 0, 1).double()
    return best / best.sum(2, keepdim=True)
