"""Goal-oriented DQN: Q(s, a, g) by Q-learning, with hindsight replay: the paper's baseline (sec:setup)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.draw import draw_rows
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Replay
from anyreward.learning.update import TARGET_ROWS, Learner, Losses
from anyreward.representation.encoding import Encoder
from anyreward.representation.fb import Representation
from anyreward.worlds.goals import GoalTest

Reached = Callable[[Tensor, Tensor], Tensor]
"""(n,) whether what is achieved (n, packed) counts as the goal (n, packed)."""


class Goals(NamedTuple):
    """What goal-oriented DQN is to know of a world."""

    draw: Callable[[int], Tensor]
    """(n, packed features) goals for new episodes"""
    reached: Reached


def goals_in(
    test: GoalTest | None, encoder: Encoder, replay: Replay, start: Tensor, random: torch.Generator, seed: int
) -> Goals:
    """The goals of a world by its own protocol; else, where features are categories, all that were visited.

    Before the first transitions are there, these are the features ``start`` (n, packed) of first observations.
    """
    if test is not None:
        rng = np.random.default_rng(seed)
        return Goals(
            lambda n: torch.from_numpy(test.draw(rng, n).astype(np.float32)),
            lambda achieved, goals: torch.from_numpy(test.reached(achieved.cpu().numpy(), goals.cpu().numpy())),
        )
    if not encoder.categorical:
        raise UserError(
            "goal-dqn needs to know when a goal is reached, and this world does not say: its features are numbers, for "
            "which it has no protocol of goals. Use method='fb', or a maze, the continuous maze, FetchReach or Ms. "
            "Pacman with the features that they come with."
        )

    def draw(n: int) -> Tensor:
        known, _ = encoder.distinct(replay.transitions.features if len(replay) else start)
        rows = torch.randint(len(known), (n,), generator=random, device=random.device)
        return known[rows.to(known.device)].cpu()

    return Goals(draw, lambda achieved, goals: (achieved == goals).all(1))


class GoalBatch(NamedTuple):
    """Minibatches for goal-oriented DQN, n of them stacked along the first dimension of every field."""

    x: Tensor
    """(n, b, width) encoded observations s_i"""
    actions: Tensor
    """(n, b) a_i, in ascending order"""
    counts: Tensor
    """(n, A) how often each action was taken; empty where actions come in any order"""
    next_x: Tensor
    """(n, b, width) next observations"""
    discount: Tensor
    """(n, b) gamma, or 0 where the transition terminated"""
    goals: Tensor
    """(n, b, goal width) encoded goals g_i"""
    rewards: Tensor
    """(n, b) one where the next state is the goal"""

    def split(self, n: int) -> tuple[GoalBatch, GoalBatch]:
        """The first n minibatches, and the others."""
        return GoalBatch(*(field[:n] for field in self)), GoalBatch(*(field[n:] for field in self))


def hindsight(left: Tensor, share: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """The "future" strategy: (n,) whose goals to replace, and by what was reached how many transitions later, (n,).

    ``left`` (n,) says how many transitions of its episode follow each; what the transition itself reaches counts too.
    """
    device = random.device
    replaced = torch.rand(left.shape, generator=random, device=device) < share
    later = (torch.rand(left.shape, generator=random, device=device, dtype=torch.float64) * (left + 1)).long()
    return replaced, torch.minimum(later, left)  # a product may round up to left + 1


def draw_goals(
    representation: Representation, replay: Replay, s: Settings, n: int, random: torch.Generator, reached: Reached
) -> GoalBatch:
    """The minibatches of n updates: transitions with the goals of their episodes, or with goals of hindsight."""
    drawn = draw_rows(representation, replay, s, n, random)
    rows, held = drawn.rows, replay.transitions
    assert rows.goals is not None
    assert rows.left is not None
    assert rows.next_features is not None
    assert held.next_features is not None
    goals = rows.goals
    if s.method == "goal-dqn-her":
        replaced, later = hindsight(rows.left, s.hindsight, random)
        future = held.next_features[(drawn.places + later) % replay.capacity]
        goals = torch.where(replaced[:, None], future, goals)
    b, observe = s.batch_size, representation.observation_encoder
    return GoalBatch(
        x=observe.compact(rows.observations).view(n, b, -1),
        actions=drawn.actions,
        counts=drawn.counts,
        next_x=observe.compact(rows.next_observations).view(n, b, -1),
        discount=drawn.discount,
        goals=representation.backward_map(goals).view(n, b, -1),
        rewards=reached(rows.next_features, goals).to(drawn.discount).view(n, b),
    )


def goal_targets(rewards: Tensor, discount: Tensor, Q_next: Tensor, gamma: float) -> Tensor:
    """(...) r + discount max_a Q(s', a, g), kept between 0 and 1 / (1 - gamma), of Q_next (..., A)."""
    return (rewards + discount * Q_next.amax(-1)).clamp(0.0, 1 / (1 - gamma))


@torch.inference_mode()
def goal_updates(learner: Learner, group: GoalBatch, learning_rates: Sequence[float], gamma: float) -> Losses:
    """The updates of a group of minibatches, between two moves of the target; the losses are the last one's."""
    n, b = group.actions.shape
    step = 1 if group.next_x.dtype == torch.uint8 else max(1, TARGET_ROWS // b)
    pieces = zip(torch.split(group.next_x, step), torch.split(group.goals, step), strict=True)
    Q_next = torch.cat([learner.F_target(x.flatten(0, 1), g.flatten(0, 1)) for x, g in pieces])  # (n b, A, 1)
    aims = goal_targets(group.rewards, group.discount, Q_next.view(n, b, -1), gamma)
    for i, rate in enumerate(learning_rates):
        counts = group.counts[i].tolist() if group.counts.numel() else []
        Q, pull_back = learner.run_F(group.x[i], group.goals[i], group.actions[i], counts)  # (b, 1)
        error = Q - aims[i, :, None]
        pull_back(error / b)
        learner.optimiser.learning_rate = rate
        learner.optimiser.step()
    return partial(_loss, error)


def _loss(error: Tensor) -> dict[str, Tensor]:
    return {"bellman_loss": 0.5 * error.square().mean()}
