"""The paper's theorems for a trained agent: its F and B as tables, the tightness of bounds, and the effect of d."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from anyreward.acting.exact import packed_states, state_features
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.theory import bounds
from anyreward.theory.bounds import Bound
from anyreward.theory.fb import FB, exact
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.spaces import Array

KINDS = ("single goal", "smooth", "dense")
"""Kinds of rewards on the goals of a finite world, each with |r| <= 1."""
SAMPLES, DELTA = 1_000, 0.1
"""Number of observed rewards, and failure probability of the bound, if z_R is estimated."""
WEAK, L1_Q = "F, B weakly", "F, B in L1: Q"
NOISE = 0.1
"""Error of an approximate reward, uniform between minus and plus this share of its size."""


def fb_tables(agent: Agent, mdp: FiniteMDP | None = None) -> FB:
    """An agent's F, B and m-bar on its finite world, with rho of its training data; goals are its distinct features.

    No transition starts in a terminal state, so the tables are restricted to the states that were visited. F(., ., z)
    is evaluated at z scaled as in `Agent.ask`: scaling a reward changes no policy.
    """
    if agent.knowledge.method.goals_only:
        raise UserError(f"The theorems are about F and B, and {agent.settings.method} has neither.")
    mdp = mdp or agent.exact_mdp()
    seen = {row.tobytes(): w for row, w in zip(agent.sample.rows.numpy(), agent.sample.weights.numpy(), strict=True)}
    visited = [all(row.tobytes() in seen for row in pairs) for pairs in state_features(mdp, agent.model.phi).numpy()]
    try:
        mdp = mdp if all(visited) else mdp.restricted(np.flatnonzero(visited))
    except UserError as error:
        raise UserError(
            f"In {len(visited) - sum(visited)} of the {len(visited)} states some features were never visited in "
            f"training, so there is no density with respect to rho there. {error} Train on more transitions."
        ) from error
    rows = state_features(mdp, agent.model.phi)  # (S, A, packed)
    goals, phi = np.unique(rows.flatten(0, 1).numpy(), axis=0, return_inverse=True)
    rho = np.array([seen[row.tobytes()] for row in goals])
    states = packed_states(mdp, agent.model.phi)

    def at_known_size(z: Array) -> torch.Tensor:
        return agent.knowledge.scaled(torch.from_numpy(np.asarray(z, dtype=np.float64))[None])[0][0]

    def forward(z: Array) -> Array:
        known = at_known_size(z)
        return agent.model.forward_map(states, known.expand(len(states), -1)).double().numpy()

    def bias(z: Array) -> Array:
        return agent.model.bias_map(states, at_known_size(z), torch.from_numpy(goals)).double().numpy()

    B = agent.model.backward_map(torch.from_numpy(goals)).double().numpy()
    m_bar = bias if agent.settings.bias else None
    first = agent.settings.first_step
    return FB(mdp, forward, B, rho / rho.sum(), phi.reshape(mdp.states, mdp.actions), m_bar, first)


def rewards_on_goals(fb: FB, kind: str, n: int, seed: int) -> Array:
    """(n, G) rewards of a kind, each with max |r| = 1.

    Single goals have a reward of one; dense rewards are normal numbers; smooth rewards are the values of dense ones
    from the next step on, under the random policy with half the horizon, and differ little between neighbours.
    """
    rng = np.random.default_rng([seed, *kind.encode()])
    if kind == "single goal":
        return np.eye(fb.goals)[rng.permutation(fb.goals)[:n]]
    r = rng.standard_normal((n, fb.goals))
    if kind == "smooth":
        mdp = fb.mdp
        uniform = np.full((mdp.states, mdp.actions), 1 / mdp.actions)
        spread = FiniteMDP(mdp.P, 1 - 2 * (1 - mdp.gamma) if mdp.gamma > 0.5 else mdp.gamma)
        V = spread.policy_value(uniform, fb.on_pairs(r))
        ahead = spread.q_value(V, np.zeros_like(fb.on_pairs(r))).reshape(n, -1)
        among = np.eye(fb.goals)[fb.phi.ravel()]  # (S A, G)
        r = ahead @ among / among.sum(0)
        r = r - r.mean(1, keepdims=True)
    return np.asarray(r / np.abs(r).max(1, keepdims=True))


def steps_between(fb: FB) -> Array:
    """(S, S) the number of steps between two states, in the direction that takes longer."""
    from scipy.sparse.csgraph import shortest_path

    mdp = fb.mdp
    P = mdp.P.toarray() if mdp.is_sparse else mdp.P
    moves = np.ascontiguousarray(P.reshape(mdp.states, mdp.actions, mdp.states).sum(1) > 0)
    steps = shortest_path(moves, unweighted=True)
    return np.asarray(np.maximum(steps, steps.T))


class Tightness(NamedTuple):
    """A bound and the gap that it bounds, for some rewards."""

    statement: str
    kind: str
    bound: Array
    """(n,)"""
    gap: Array
    """(n,)"""
    trivial: Array
    """(n,) the trivial bound: the largest difference between two policies or, for Q, the largest possible |Q|"""
    held: Array
    """(n,) whether the bound held, for all states and actions if there is one for each"""

    def summary(self) -> dict[str, Any]:
        """Means, and the share of rewards for which the bound is below the trivial one."""
        return {
            "statement": self.statement,
            "rewards": self.kind,
            "n": len(self.gap),
            "gap": float(self.gap.mean()),
            "bound": float(self.bound.mean()),
            "trivial": float(self.trivial.mean()),
            "informative": float((self.bound < self.trivial).mean()),
            "holds": bool(self.held.all()),
        }


def statements(fb: FB, seed: int = 0) -> dict[str, Callable[[Array], Bound[Any]]]:
    """Every bound of the paper on an optimality gap, as a function of a reward on goals (docs/theory.md)."""
    fixed = exact(fb.mdp, fb.rho, fb.phi, fb.B, fb.first)
    rng = np.random.default_rng(seed)

    def nearly(r: Array) -> Array:
        return np.asarray(r + NOISE * rng.uniform(-1, 1, len(r)))

    found: dict[str, Callable[[Array], Bound[Any]]] = {
        "F, B in L1": lambda r: bounds.approximation(fb, r),
        L1_Q: lambda r: bounds.q_approximation(fb, r),
        "F, B in L2": lambda r: bounds.dual_approximation(fb, r)[0],
        "F, B pointwise": lambda r: bounds.pointwise(fb, r),
        "approximate r": lambda r: bounds.approximate_reward(fb, r, nearly(r)),
        "sampled z_R": lambda r: bounds.sampled_reward(fb, r, SAMPLES, DELTA, seed=seed),
        "fixed B": lambda r: bounds.fixed_backward(fixed, r)[0],
        "fixed B, precise": lambda r: bounds.fixed_backward(fixed, r)[1],
    }
    if (fb.phi == np.arange(fb.mdp.states)[:, None]).all():
        distance = steps_between(fb)
        found[WEAK] = lambda r: bounds.lipschitz(fb, r, distance)
    return found


def tightness(agent: Agent, n: int = 10, seed: int = 0, weak: int = 2) -> Iterator[Tightness]:
    """Every bound of the paper for an agent, on n rewards of each kind; the slow one, by linear programs, on a few."""
    fb = fb_tables(agent)
    for kind in KINDS:
        rewards = rewards_on_goals(fb, kind, n, seed)
        for statement, bound in statements(fb, seed).items():
            some = rewards[:weak] if statement == WEAK else rewards
            found = [bound(r) for r in some]
            largest, gap = (np.array([np.max(pair[i]) for pair in found]) for i in (0, 1))
            held = np.array([np.all(np.asarray(b.bound) >= np.asarray(b.gap) - 1e-9) for b in found])
            trivial = np.abs(some).max(1) / (1 - fb.mdp.gamma) if statement == L1_Q else apart(fb.mdp, some)
            yield Tightness(statement, kind, largest, gap, trivial, held)


def apart(mdp: FiniteMDP, rewards: Array) -> Array:
    """(n,) the largest possible difference between the values of two policies, for rewards (n, G).

    This is (max r - min r) / (1 - gamma); if episodes can terminate, r includes zero.
    """
    ends = bool((mdp.P.sum(-1) < 1 - 1e-9).any())
    most, least = rewards.max(1), rewards.min(1)
    return np.asarray(((np.maximum(most, 0) - np.minimum(least, 0)) if ends else most - least) / (1 - mdp.gamma))
