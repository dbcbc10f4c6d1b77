"""A small MDP made of held-out transitions, in which a policy is evaluated: the prediction of `Trust`.

Its states are the next states s' of the transitions. An action in a state does what it did in the transitions that
began there. Where there are none, it does what happened in the few most similar transitions: two pairs (s, a) are
similar if F predicts similar futures for them. In this MDP the answer, the random policy and the optimal policy are
evaluated for the asked reward; the answer's score is its position between the other two. All values are fixed points
of averages, so nothing can diverge, and no constant is fitted to true scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.model.model import Model

NEIGHBOURS = 3
"""Number of most similar pairs (s, a) that stand for an action in a state."""
CODE = 64
"""Length of the vectors by which pairs (s, a) are compared."""
NO_GAIN = 1e-5
"""Gain of the optimal policy, relative to the largest possible value, below which there is nothing to gain."""
SWEEPS = 20
"""Sweeps of policy evaluation between two checks of convergence, or two policy improvements."""


@dataclass(frozen=True)
class SmallWorld:
    """N transitions as an MDP of M states; they began in P different pairs (s, a)."""

    states: Tensor
    """(M, packed) observations"""
    weights: Tensor
    """(M,) the frequency of each as a next state without termination, with a sum of one"""
    pair: Tensor
    """(N,) the index of each transition's pair"""
    times: Tensor
    """(P,) the number of transitions of each pair"""
    end: Tensor
    """(N,) the index of each transition's next state"""
    discount: Tensor
    """(N,) gamma, or zero where the episode ended"""
    near: Tensor
    """(M, A, k) the pairs most similar to each action in each state"""
    share: Tensor
    """(M, A, k) their weights, with a sum of one"""

    def ahead(self, V: Tensor, r: Tensor) -> Tensor:
        """(P,) the mean of r + gamma V(s') over the transitions of each pair."""
        outcome = r + self.discount * V[self.end]
        return torch.zeros_like(self.times).index_add_(0, self.pair, outcome) / self.times

    @cached_property
    def random_visits(self) -> Tensor:
        """(N,) the discounted visits of each transition by the random policy; their product with r is its value."""
        here, share = self.weights, self.share / self.share.shape[1]
        total = torch.zeros(len(self.pair), dtype=here.dtype)
        while float(here.sum()) > 1e-4:
            begun = torch.zeros_like(self.times).index_add_(
                0, self.near.flatten(), (here[:, None, None] * share).flatten()
            )
            taken = (begun / self.times)[self.pair]
            total += taken
            here = torch.zeros_like(here).index_add_(0, self.end, self.discount * taken)
        return total

    def evaluate(self, actions: Tensor, r: Tensor, V: Tensor) -> Tensor:
        """(M,) V after SWEEPS sweeps under the policy with these actions (M,), for rewards r (N,) of transitions."""
        rows = torch.arange(len(actions))
        near, share = self.near[rows, actions], self.share[rows, actions]
        for _ in range(SWEEPS):
            V = (share * self.ahead(V, r)[near]).sum(1)
        return V

    def improve(self, V: Tensor, r: Tensor) -> Tensor:
        """(M,) the greedy action in each state for the value function V."""
        return (self.share * self.ahead(V, r)[self.near]).sum(2).argmax(1)

    def score(self, actions: Tensor, r: Tensor) -> tuple[float | None, float]:
        """The score of the policy with these actions (M,), random (0) to optimal (1), and its value, for r (N,).

        The score is None if the optimal policy is no better than the random one, up to rounding.
        """
        r = r.to(self.weights)
        mean = r.mean() if bool((self.discount > 0).all()) else torch.zeros(())  # a constant changes no policy
        r = r - mean
        rounds = math.ceil(12 / (1 - float(self.discount.max())) / SWEEPS)  # until gamma^t is below 1e-5
        answer = _settle(lambda V: self.evaluate(actions, r, V), torch.zeros_like(self.weights), rounds)
        best = _settle(lambda V: self.evaluate(self.improve(V, r), r, V), answer, rounds)
        J, most = (float(self.weights @ V) for V in (answer, torch.maximum(best, answer)))
        random = float(self.random_visits @ r)
        horizon = 1 / (1 - float(self.discount.max()))
        gain = most - random
        score = None if gain <= NO_GAIN * horizon * float(r.abs().max()) else max(-1.0, min(1.0, (J - random) / gain))
        return score, J + float(mean) * horizon


def _settle(sweep: Callable[[Tensor], Tensor], V: Tensor, rounds: int) -> Tensor:
    for _ in range(rounds):
        new = sweep(V)
        if float((new - V).abs().max()) <= 1e-5 * float(new.abs().max()):
            return new
        V = new
    return V


def small_world(rows: Transitions, model: Model, Z: Tensor, gamma: float) -> SmallWorld:
    """The small world of held-out transitions; Z (m, d) are a few z for which F is compared."""
    n, categorical = len(rows.actions), model.observation_encoder.categorical
    if categorical:  # merge equal pairs and equal next states
        states, end = torch.unique(rows.next_observations, dim=0, return_inverse=True)
        begun = torch.cat([rows.observations, rows.actions[:, None].to(rows.observations)], dim=1)
        distinct, pair, times = torch.unique(begun, dim=0, return_inverse=True, return_counts=True)
        starts, actions = distinct[:, :-1], distinct[:, -1].long()
    else:
        states, end = rows.next_observations, torch.arange(n)
        starts, actions, pair, times = rows.observations, rows.actions, end, torch.ones(n)
    goals = rows.features[:: max(1, n // CODE)]
    codes = pair_codes(model, torch.cat([starts, states]), Z, goals)  # (P + M, A, code)
    of_pairs = codes[torch.arange(len(starts)), actions]  # (P, code)
    near, share = nearest(codes[len(starts) :], of_pairs)
    if categorical:  # transitions of the pair itself take precedence over similar ones
        itself = same_pairs(states, distinct, model.actions)  # (M, A)
        known = (itself >= 0)[..., None]
        near = torch.where(known, itself[..., None], near)
        share = torch.where(known, torch.eye(near.shape[2], dtype=share.dtype)[0], share)
    live = ~rows.terminated
    if model.phi.ends:  # terminal states are no states to start from
        live &= rows.next_observations[:, -1] < 0.5
    continues = live.double() if bool(live.any()) else torch.ones(n, dtype=torch.float64)
    return SmallWorld(
        states,
        torch.bincount(end, continues, len(states)) / continues.sum(),
        pair,
        times.double(),
        end,
        torch.where(rows.terminated, 0.0, gamma).double(),
        near,
        share,
    )


def same_pairs(states: Tensor, pairs: Tensor, actions: int) -> Tensor:
    """(M, A) the index among pairs (P, packed + 1) of each action in each state (M, packed); -1 if there is none."""
    every = torch.cat([states.repeat_interleave(actions, 0), torch.arange(actions).repeat(len(states))[:, None]], 1)
    number = {row.tobytes(): i for i, row in enumerate(pairs.numpy())}
    found = [number.get(row.tobytes(), -1) for row in every.to(pairs).numpy()]
    return torch.tensor(found).view(len(states), actions)


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
