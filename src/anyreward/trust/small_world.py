"""A small MDP made of transitions, in which a policy is evaluated: the prediction of `Trust`.

An action in a state does what it did in the transitions that began there. Where there are none, it does what happened
in the few most similar transitions: two pairs (s, a) are similar if F predicts similar futures for them. In this MDP
the answer, the random policy and the optimal policy are evaluated for the asked reward; the answer's score is its
position between the other two. All values are fixed points of averages, so nothing can diverge, and no constant is
fitted to true scores.

Where states are categories, the MDP consists of the held-out transitions and those kept from training. Where outcomes
are random, or the reward was estimated from samples, several MDPs are drawn from what is uncertain (probabilities by
the Bayesian bootstrap, rewards by the covariance of z_R), and the score is that of all of them together. With thin
data, the best policy of each differs from the answer, which lowers the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.model.model import Model
from anyreward.rewards.kept import KeptTransitions
from anyreward.rewards.knowledge import Episodes

NEIGHBOURS = 3
"""Number of most similar pairs (s, a) that stand for an action in a state."""
CODE = 64
"""Length of the vectors by which pairs (s, a) are compared."""
BOX_ACTIONS = 16
"""Number of actions of a box that stand for all of them."""
COMPARED = 4_000
"""Largest number of pairs that are compared with one that was never seen."""
NO_GAIN = 1e-5
"""Gain of the optimal policy, relative to the largest possible value, below which there is nothing to gain."""
SWEEPS = 20
"""Sweeps of policy evaluation between two checks of convergence, or two policy improvements."""
DRAWS = 8
"""Number of MDPs that are drawn where transitions are random, or the reward is uncertain."""


@dataclass(frozen=True)
class SmallWorld:
    """N distinct transitions as an MDP of M states; they began in P different pairs (s, a)."""

    rows: Transitions
    """(N, ...)"""
    count: Tensor
    """(N,) how often each transition was seen"""
    states: Tensor
    """(M, packed) observations"""
    weights: Tensor
    """(M,) the distribution of starts, with a sum of one"""
    over: Tensor
    """(M,) whether the state is terminal"""
    pair: Tensor
    """(N,) the index of each transition's pair"""
    end: Tensor
    """(N,) the index of each transition's next state"""
    near: Tensor
    """(M, A, k) the pairs most similar to each action in each state"""
    share: Tensor
    """(M, A, k) their weights, with a sum of one"""
    gamma: float
    limit: int
    """steps after which an episode is over, if policies are compared by returns without discount; else 0"""

    unknown: float
    """the expected share of starts in states that were never visited, of which nothing is expected"""
    untried: float
    """the share of pairs (s, a) of known states that were never tried; 0 where states are numbers"""
    merged: bool
    """whether equal transitions were counted together, so that probabilities can be drawn"""
    similar_to: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None
    """for actions of a box, of which A random ones are in ``near``: the pairs (M, 1, k) most similar to given actions
    (M, width) in each state, and their weights"""

    def with_actions(self, actions: Tensor) -> tuple[SmallWorld, Tensor]:
        """The world and the numbers (M,) of actions in it; actions of a box (M, width) are added to it."""
        if self.similar_to is None:
            return self, actions
        near, share = self.similar_to(actions)
        both = (torch.cat([self.near, near], 1), torch.cat([self.share, share.to(self.share)], 1))
        return replace(self, near=both[0], share=both[1]), torch.full((len(actions),), self.near.shape[1])

    @property
    def certain(self) -> bool:
        """Whether every pair has one outcome, as far as that is known."""
        return not self.merged or int(self.pair.max()) + 1 == len(self.pair)

    def probabilities(self, random: torch.Generator | None) -> Tensor:
        """(N,) the probability of each transition in its pair; drawn by the Bayesian bootstrap with ``random``."""
        count = self.count
        if random is not None:
            count = torch._standard_gamma(count, generator=random).clamp(min=1e-12)
        return count / torch.zeros_like(count).index_add_(0, self.pair, count)[self.pair]

    def score(self, actions: Tensor, rewards: Tensor) -> tuple[float | None, float]:
        """The score of the policy with these actions (M,), random (0) to optimal (1), and its discounted value.

        ``rewards`` (n, N) are those of the transitions: the reward itself first, then draws of it if it is uncertain.
        The score is None if the optimal policy is no better than the random one, up to rounding.
        """
        rewards, ends = rewards.to(self.weights), bool(self.rows.terminated.any())
        mean = torch.zeros(()) if ends else rewards[0].mean()  # a constant changes no policy
        value = _Drawn(self, self.probabilities(None), rewards[0]).discounted(actions)
        draws = rewards[1:] if len(rewards) > 1 else rewards[:1].expand(1 if self.certain else DRAWS, -1)
        random, J, total, most = torch.Generator().manual_seed(0), 0.0, 0.0, 0.0
        for r in draws - mean:
            drawn = _Drawn(self, self.probabilities(None if self.certain else random), r)
            answer, uniform, best = drawn.values(actions)
            J, total, most = J + answer, total + uniform, most + max(best, answer)
        horizon = self.limit or 1 / (1 - self.gamma)
        gain = (most - total) / len(draws)
        if gain <= NO_GAIN * horizon * float((draws - mean).abs().max()):
            return None, value
        score = max(-1.0, min(1.0, (J - total) / (most - total)))
        return score * (1 - self.unknown), value


class _Drawn:
    """A small world with probabilities (N,) and rewards (N,) of its transitions."""

    def __init__(self, world: SmallWorld, probabilities: Tensor, r: Tensor) -> None:
        self.world, pairs = world, int(world.pair.max()) + 1
        self._continues = probabilities * (~world.rows.terminated)
        self._r = torch.zeros(pairs, dtype=r.dtype).index_add_(0, world.pair, probabilities * r)

    def ahead(self, V: Tensor, gamma: float) -> Tensor:
        """(M, A) r + gamma E[V(s')] of every action in every state, for V (M,)."""
        world = self.world
        after = torch.zeros_like(self._r).index_add_(0, world.pair, self._continues * V[world.end])
        return (world.share * (self._r + gamma * after)[world.near]).sum(2)

    def values(self, actions: Tensor) -> list[float]:
        """The values of the policy with these actions (M,), of the random policy and of the optimal one."""
        policies: list[Callable[[Tensor], Tensor]] = [
            lambda Q: Q.gather(1, actions[:, None]).squeeze(1),
            lambda Q: Q[:, : Q.shape[1] - (self.world.similar_to is not None)].mean(1),  # without the policy's own
            lambda Q: Q.amax(1),
        ]
        return [float(self.world.weights @ self._value(choose)) for choose in policies]

    def discounted(self, actions: Tensor) -> float:
        """The discounted value of the policy with these actions (M,)."""
        V = self._settled(lambda Q: Q.gather(1, actions[:, None]).squeeze(1))
        return float(self.world.weights @ V)

    def _value(self, choose: Callable[[Tensor], Tensor]) -> Tensor:
        """(M,) the value of acting by Q (M, A) -> V (M,): the return within the time limit, or the discounted value."""
        world = self.world
        if not world.limit:
            return self._settled(choose)
        V = torch.where(world.over, self.ahead(torch.zeros_like(world.weights), 1.0).amax(1), 0.0)
        for _ in range(world.limit):
            V = choose(self.ahead(V, 1.0))
        return V

    def _settled(self, choose: Callable[[Tensor], Tensor]) -> Tensor:
        V, gamma = torch.zeros_like(self.world.weights), self.world.gamma
        for _ in range(math.ceil(12 / (1 - gamma) / SWEEPS)):  # until gamma^t is below 1e-5
            new = V
            for _ in range(SWEEPS):
                new = choose(self.ahead(new, gamma))
            done = float((new - V).abs().max()) <= 1e-5 * float(new.abs().max())
            V = new
            if done:
                break
        return V


def small_world(
    held_out: Transitions,
    kept: KeptTransitions | None,
    model: Model,
    Z: Tensor,
    gamma: float,
    episodes: Episodes | None,
) -> SmallWorld:
    """The small world of held-out and kept transitions; Z (m, d) are a few z for which F is compared.

    It starts where episodes start, if they may terminate, and else where held-out transitions lead.
    """
    rows, count = held_out, torch.ones(len(held_out.actions), dtype=torch.float64)
    categorical, ends = model.observation_encoder.categorical, model.phi.ends
    similar_to = None
    if not categorical or model.phi.action_set.continuous:
        categorical, states, end = False, rows.next_observations, torch.arange(len(count))
        starts, pair = rows.observations, end
        if model.phi.action_set.continuous:
            similar_to = box_pairs(model, starts, rows.actions, states, Z)
            spread = torch.from_numpy(model.phi.action_set.spread(BOX_ACTIONS))
            each = [similar_to(action.expand(len(states), -1)) for action in spread]
            near, share = (torch.cat(column, 1) for column in zip(*each, strict=True))
        else:
            near, share = similar_pairs(model, starts, rows.actions, states, Z, rows.features)
        continues = (~rows.terminated).double()
    else:
        if kept is not None:
            rows, count = rows.joined(kept.rows), torch.cat([count, kept.counts])
        n = len(count)
        states, index = torch.unique(torch.cat([rows.observations, rows.next_observations]), dim=0, return_inverse=True)
        distinct = torch.stack([index[:n] * model.actions + rows.actions, index[n:], rows.terminated.long()], 1)
        distinct, which = torch.unique(distinct, dim=0, return_inverse=True)
        count = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, which, count)
        first = torch.full((len(distinct),), n).scatter_reduce_(0, which, torch.arange(n), "amin")
        continues = torch.bincount(index[n:][: len(held_out.actions)], ~held_out.terminated, len(states)).double()
        rows, end = rows.at(first), distinct[:, 1]
        begun, pair = torch.unique(distinct[:, 0], return_inverse=True)  # s A + a of the P pairs
        near, share = same_pairs(begun, states, model, Z, rows.features, ends)
    over = states[:, -1] > 0.5 if ends else torch.zeros(len(states), dtype=torch.bool)
    weights, unknown, untried = torch.where(over, 0.0, continues), 0.0, 0.0
    if categorical:
        tried = torch.bincount(begun // model.actions, minlength=len(states)).double()
        untried = float(1 - tried[~over].mean() / model.actions)
    if ends and categorical and episodes is not None:
        unknown = episodes.unknown
        weights = all_starts(located(episodes.starts, states), ~over, unknown)
    if not bool(weights.any()):
        weights = torch.ones_like(weights)
    limit = episodes.limit if ends and episodes is not None else 0
    return SmallWorld(
        rows,
        count,
        states,
        weights / weights.sum(),
        over,
        pair,
        end,
        near,
        share.to(weights),
        gamma,
        limit,
        unknown,
        untried,
        categorical,
        similar_to,
    )


def all_starts(counts: Tensor, possible: Tensor, unknown: float) -> Tensor:
    """(M,) the distribution of starts in known states, given how often each was a start (M,).

    The next start is one that was no start before with the probability of Good and Turing, the share of starts that
    were seen once. Of these, a share ``unknown`` of all starts is in unknown states; the others are spread over the
    known states that are ``possible`` (M,).
    """
    others = possible & (counts == 0)
    new = float((counts == 1).sum()) / (1 + float(counts.sum()))
    if new <= unknown or not bool(others.any()):
        return counts
    share = (new - unknown) / (1 - unknown)
    return (1 - share) * counts / counts.sum() + share * others / others.sum()


def located(rows: Tensor, states: Tensor) -> Tensor:
    """(M,) how many of the rows (n, packed) equal each of the distinct states (M, packed)."""
    number = {row.tobytes(): i for i, row in enumerate(states.numpy())}
    found = torch.tensor([number.get(row.tobytes(), -1) for row in rows.to(states).numpy()])
    return torch.bincount(found[found >= 0], minlength=len(states)).double()


def same_pairs(
    begun: Tensor, states: Tensor, model: Model, Z: Tensor, features: Tensor, ends: bool
) -> tuple[Tensor, Tensor]:
    """(M, A, k) the pairs that stand for each action in each state, and their shares (M, A, k).

    These are the pair itself, if it is among the P pairs ``begun`` (P,), s A + a; any pair of a terminal state; and
    else the most similar pairs.
    """
    M, A = len(states), model.actions
    itself = torch.full((M * A,), -1).index_copy_(0, begun, torch.arange(len(begun))).view(M, A)
    if ends:
        itself = torch.where((states[:, -1:] > 0.5) & (itself < 0), itself.amax(1, keepdim=True), itself)
    near, share = itself[..., None].repeat(1, 1, NEIGHBOURS), torch.zeros(M, A, NEIGHBOURS, dtype=torch.float64)
    share[..., 0] = 1.0
    rare = torch.nonzero((itself < 0).any(1)).squeeze(1)
    if len(rare):
        some = torch.linspace(0, len(begun) - 1, min(COMPARED, len(begun))).long()
        found, parts = similar_pairs(model, states[begun[some] // A], begun[some] % A, states[rare], Z, features)
        unknown = (itself[rare] < 0)[..., None]
        k = found.shape[2]
        near[rare, :, :k] = torch.where(unknown, some[found], near[rare, :, :k])
        share[rare, :, :k] = torch.where(unknown, parts.double(), share[rare, :, :k])
    return near.clamp(min=0), share


def similar_pairs(
    model: Model, starts: Tensor, actions: Tensor, states: Tensor, Z: Tensor, features: Tensor
) -> tuple[Tensor, Tensor]:
    """(M, A, k) the most similar of P pairs (s, a) for each action in states (M, packed), and their shares."""
    goals = features[:: max(1, len(features) // CODE)]
    codes = pair_codes(model, torch.cat([starts, states]), Z, goals)  # (P + M, A, code)
    return nearest(codes[len(starts) :], codes[torch.arange(len(starts)), actions])


def box_pairs(
    model: Model, starts: Tensor, taken: Tensor, states: Tensor, Z: Tensor
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The most similar of P pairs (s, a) to actions of a box in states (M, packed), as in `SmallWorld.similar_to`."""

    def codes(observations: Tensor, actions: Tensor) -> Tensor:
        random, parts = torch.Generator().manual_seed(0), []
        for z in Z:
            pieces = zip(*(torch.split(rows, 2_048) for rows in (observations, actions)), strict=True)
            F = [model.forward_at(o, z.expand(len(o), -1), a[:, None])[:, 0].cpu() for o, a in pieces]
            parts.append(torch.cat(F) @ torch.randn(len(z), CODE, generator=random) / CODE**0.5)
        return torch.stack(parts)  # (m, n, code)

    of_pairs = codes(starts, taken)
    mean = of_pairs.mean(1, keepdim=True)
    size = (of_pairs - mean).square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-12)
    known = (of_pairs / size).sum(0)
    return lambda actions: nearest((codes(states, actions) / size).sum(0)[:, None], known)


def pair_codes(model: Model, observations: Tensor, Z: Tensor, goals: Tensor) -> Tensor:
    """(n, A, code) the sum over the z of Z (m, d) of random projections of F(s, a, z), each normalised.

    With a bias, F distinguishes actions but not states, so m-bar at some packed features ``goals`` is added.
    """
    random, total = torch.Generator().manual_seed(0), torch.zeros(())
    for z in Z:
        pieces = torch.split(observations, 2_048)
        F = torch.cat([model.forward_map(piece, z.expand(len(piece), -1)).cpu() for piece in pieces])
        parts = [F]
        if model.bias is not None:
            parts.append(torch.cat([model.bias_map(piece, z, goals) for piece in pieces])[:, None])
        for part in parts:
            size = (part - part.mean((0, 1))).square().mean().sqrt().clamp(min=1e-12)
            total = total + (part / size) @ torch.randn(part.shape[2], CODE, generator=random).to(part) / CODE**0.5
    return total


def nearest(of_states: Tensor, of_pairs: Tensor) -> tuple[Tensor, Tensor]:
    """(M, A, k) the pairs whose codes (P, code) are nearest to those of every action in every state (M, A, code)."""
    M, A, _ = of_states.shape
    k = min(NEIGHBOURS, len(of_pairs))
    pairs = of_pairs.double()  # in float32, equal rows would not have a distance of zero
    pieces = torch.split(of_states.flatten(0, 1), 2_048)
    found = [torch.cdist(piece.double(), pairs).topk(k, largest=False) for piece in pieces]
    far = torch.cat([f.values for f in found])
    share = 1 / (far + 1e-3 * far.mean() + 1e-12)  # nearly one for an equal pair
    share = share / share.sum(1, keepdim=True)
    return torch.cat([f.indices for f in found]).view(M, A, k), share.view(M, A, k)
