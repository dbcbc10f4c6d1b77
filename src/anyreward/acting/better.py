"""Improvement of answers: generalised policy improvement, and value iteration on kept transitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.policy import Plan, Policy
from anyreward.acting.simulation import greedy_actions, horizon, reward_function, simulator
from anyreward.errors import UserError, shown
from anyreward.learning.machine import threads
from anyreward.learning.tables import can_list
from anyreward.model.latent import trained_length
from anyreward.rewards.kept import KeptPoints, KeptTransitions
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.terms import plain_numbers

Array = np.ndarray[Any, Any]

MOST_GOALS = 256
"""Largest number of training features whose B are used as z'."""
MOST_DRAWN = 2**26
"""Largest number of numbers in the z' that are drawn: 0.25 GB, several of which are needed to draw them."""
MOST_STEPS = 1_000_000
"""Largest number of steps of value iteration."""
ROWS_AT_ONCE = 4_096
"""Number of rows in one pass of F."""


def improved(policy: Policy, Z: Tensor) -> Policy:
    """Act by sup over z' of F(s, a, z') . z_R, z' in Z (m, d) or z itself (the end of Theorem "main-extended")."""

    def best(policy: Policy, packed: Tensor, Q: Tensor) -> Tensor:
        for z in torch.split(Z.to(policy.z), max(1, ROWS_AT_ONCE // max(len(packed), 1))):
            m, n = len(z), len(packed)
            F = policy.model.forward_map(packed.repeat(m, 1), z.repeat_interleave(n, 0)).cpu()  # (m n, A, d)
            Q = torch.maximum(Q, (F @ policy.z).view(m, n, -1).amax(0).to(Q.dtype))
        return Q

    if policy.model.phi.action_set.continuous:
        return replace(policy, chooser=Improved(Z.to(policy.z)))
    return replace(policy, corrections=(*policy.corrections, best))


@dataclass(frozen=True, eq=False)
class Improved:
    """Generalised policy improvement among actions of a box: those of pi_z' for each z' of Z (m, d), and of pi_z."""

    Z: Tensor

    def _every(self, policy: Policy) -> Tensor:
        return torch.cat([policy.z[None], self.Z])

    def choose(self, policy: Policy, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The action of the pi_z' with the largest F(s, pi_z'(s), z') . z_R, and that value."""
        n, width = len(packed), policy.model.phi.action_set.width
        best, value = torch.zeros(n, width), torch.full((n,), -torch.inf)
        for z in self._every(policy):
            actions = policy.model.greedy(packed, z)
            Q = self._value(policy, packed, actions, z)
            best = torch.where((value < Q)[:, None], actions, best)
            value = torch.maximum(Q, value)
        return best, value

    def q_at(self, policy: Policy, packed: Tensor, actions: Tensor) -> Tensor:
        """The largest F(s, a, z') . z_R."""
        return torch.stack([self._value(policy, packed, actions, z) for z in self._every(policy)]).amax(0)

    def _value(self, policy: Policy, packed: Tensor, actions: Tensor, z: Tensor) -> Tensor:
        F = policy.model.forward_at(packed, z.expand(len(packed), -1), actions[:, None])[:, 0].cpu()
        return F @ policy.z


def other_z(improve: int | str | Array, knowledge: Knowledge) -> Tensor:
    """(m, d) the z' of `Agent.ask`'s ``improve``: drawn as in training, B of training features, or given."""
    sample, s = knowledge.sample, knowledge.settings
    most = MOST_DRAWN // max(knowledge.dim, s.batch_size)  # a z' may be a sum over a minibatch
    if isinstance(improve, int | np.integer) and not isinstance(improve, bool) and 0 < improve <= most:
        return knowledge.training_z(int(improve), torch.Generator().manual_seed(s.seed))
    if isinstance(improve, str) and improve == "goals":
        Z = sample.B[:: -(-len(sample.B) // MOST_GOALS)]
    else:
        Z = torch.zeros(0)
        if not isinstance(improve, str | int):
            Z = torch.from_numpy(plain_numbers(improve, f"improve ({shown(improve)})"))
        if Z.ndim != 2 or Z.shape[1] != knowledge.dim or len(Z) == 0 or not torch.isfinite(Z).all():
            raise UserError(
                f"improve is {shown(improve)}; accepted: a positive number of z' to draw (at most {most:,}), 'goals', "
                f"or finite z' themselves, (m, {knowledge.dim})."
            )
    return trained_length(Z, s.z_norm)


def check_steps(steps: Any) -> None:
    """Raise unless ``refine`` is a number of steps."""
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 <= steps <= MOST_STEPS:
        raise UserError(
            f"refine is {shown(steps)}; accepted: a whole number of steps, from 0 (at most {MOST_STEPS:,})."
        )


def refined(policy: Policy, steps: int) -> Policy:
    """The policy after some steps of value iteration for its reward, on the transitions kept with the agent.

    Among points, where observations are numbers, it iterates until nothing changes.
    """
    knowledge = policy.knowledge
    check_steps(steps)
    if knowledge.points is not None:
        return refined_on_points(policy, knowledge.points)
    kept = refinable(knowledge)
    rewards = torch.from_numpy(policy.reward.values(knowledge, kept.rows.features) / policy.reward_scale)
    start = policy.action_values(kept.states, kept.features)
    known = kept.refine(start, rewards, knowledge.settings.gamma, steps)
    return replace(
        policy,
        corrections=(*policy.corrections, lambda policy, packed, Q: kept.at(packed, known, Q)),
        task=policy.task._replace(constant=0.0),
        whole=True,
        refined=True,
    )


def refined_on_points(policy: Policy, points: KeptPoints) -> Policy:
    """The optimal policy for the reward among points, by value iteration from the policy's own values."""
    table, pays = points.table, reward_function(policy.reward, policy.knowledge)
    gamma = policy.knowledge.settings.gamma
    paid = (1 - gamma**points.kept) / (1 - gamma)  # the reward of a point counts for as long as its action is kept
    r = paid * rewards_at(points, pays, policy.knowledge) / policy.reward_scale
    start = policy.greedy().state_values(table.states.rows, points.features).to(table.share)
    Q = table.seen_only(r + table.ahead(table.optimal(r, start[None])))  # (1, M, A)
    return planned(policy, Plan(points, Q))


def planned(policy: Policy, plan: Plan) -> Policy:
    """The policy that acts by a plan."""
    task = policy.task._replace(constant=0.0)
    if policy.model.phi.action_set.continuous:
        return replace(policy, chooser=plan, task=task, whole=True, refined=True)
    return replace(policy, corrections=(*policy.corrections, plan), task=task, whole=True, refined=True)


def rewards_at(points: KeptPoints, pays: Callable[[Tensor], Array], knowledge: Knowledge) -> Tensor:
    """(1, M, 1 or A) the reward of packed features at points, for each action if B sees actions."""
    phi = knowledge.model.phi
    every = np.arange(points.action_set.count if phi.include_action else 1)
    acts = points.action_set.table if phi.action_set.continuous else every
    rewards = np.stack([pays(phi.with_action(points.features, acts[a])) for a in every], 1)
    return torch.from_numpy(rewards).to(points.table.share)[None]


def promised(points: KeptPoints, pays: Callable[[Tensor], Array], knowledge: Knowledge, starts: Tensor) -> float:
    """The mean return that a plan among points promises at starts (n, packed).

    It is without discount up to the time limit of episodes, if they have one and terminate, and else discounted.
    """
    table, r, (steps, whole) = points.table, rewards_at(points, pays, knowledge), horizon(knowledge)
    gamma, kept = knowledge.settings.gamma, points.kept
    V = torch.zeros(1, len(points.features))
    if whole:
        r = r * kept
        if knowledge.model.phi.ends:  # also if there are no steps left, the reward of a terminal state is paid
            V = torch.where(table.states.rows[:, -1] > 0.5, r.amax(2), V)
        for _ in range(math.ceil(steps / kept)):
            V = table.seen_only(r + gamma**-kept * table.ahead(V)).amax(2)  # the table's shares include gamma
    else:
        V = table.optimal(r * (1 - gamma**kept) / (1 - gamma), V)
    index, share = table.states.locate(starts)
    return float((V[0, index] * share).sum(1).mean())


def better_refined(policy: Policy) -> Policy:
    """The policy, or the one refined among points if that has the larger return in simulated episodes.

    Where tables are possible, networks were chosen on purpose: their answer is not refined.
    """
    points, simulate, model = policy.knowledge.points, simulator(policy.knowledge), policy.model
    chosen = model.landmarks is None and can_list(model.phi.seen_space, model.phi.ends)
    if points is None or simulate is None or policy.clueless or chosen:
        return policy
    other, reward = refined_on_points(policy, points), reward_function(policy.reward, policy.knowledge)
    with threads(1):  # the operations are too small for several threads
        returns = simulate.play([greedy_actions(policy), greedy_actions(other)], reward).returns.mean(1)
    return other if returns[1] > returns[0] else policy


def refinable(knowledge: Knowledge) -> KeptTransitions:
    """The transitions that answers are refined on; raises if there are none."""
    if knowledge.method.goals_only:
        raise UserError(f"refine corrects F . z, which {knowledge.settings.method} does not have. Ask without refine.")
    if knowledge.kept is None:
        raise UserError(
            "refine needs transitions kept with the agent, and this agent has none: they are kept only if observations "
            "are categories, or at most eight numbers. Ask without refine."
        )
    return knowledge.kept
