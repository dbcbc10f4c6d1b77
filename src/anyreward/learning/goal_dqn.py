"""Goal-oriented DQN, Q(s, a, g), without or with hindsight replay: the paper's baseline (sec:setup)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.batch import draw_rows
from anyreward.learning.gradient import GradientMethod
from anyreward.learning.method import Behaviour, Report
from anyreward.learning.settings import Settings
from anyreward.learning.update import Learner, forward_taken, in_pieces
from anyreward.model.features import FeatureMap
from anyreward.model.model import Model, make_encoders
from anyreward.model.networks import Forward, GoalInput
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.recorded import State, generator, random_state


class GoalDQN(GradientMethod):
    """Q(s, a, g) as a network; z is the encoded goal, so that acting, evaluating and saving work as for FB."""

    goals_only = True
    uses_next_features = True  # they determine whether the goal was reached
    whole_episodes = True
    goals: Goals | None = None
    """the goals of the world, set by `enter`"""
    _goal_random = np.random.default_rng(0)

    @classmethod
    def fresh(cls, phi: FeatureMap, s: Settings) -> Model:
        """A network with random weights."""
        observe, features = make_encoders(phi, s.normalise, s.encoding, s.encoding)
        shape = (s.dim, s.hidden, s.layers, s.layer_norm, s.action_input, s.wide, observe.image)
        Q = Forward(observe.width, phi.actions, *shape, goal=features.width)
        return Model(phi, observe, features, Q, GoalInput(features.width))

    def enter(self, test: GoalTest | None, start: Tensor, seed: int) -> None:
        """Set the goals: those of the world's own protocol or, for categories, all visited features.

        Before the first transitions, these are the features ``start`` (n, packed) of the first observations.
        """
        encoder, replay, random = self.model.feature_encoder, self.replay, self.explore
        if test is not None:
            self._goal_random = np.random.default_rng(seed)
            self.goals = Goals(
                lambda n: torch.from_numpy(test.draw(self._goal_random, n).astype(np.float32)),
                lambda achieved, goals: torch.from_numpy(test.reached(achieved.cpu().numpy(), goals.cpu().numpy())),
            )
            return
        if not encoder.categorical:
            raise UserError(
                "goal-dqn needs a definition of when a goal is reached. This environment has none, and its features "
                "are numbers. Use method='fb', or a maze, the continuous maze, FetchReach or Ms. Pacman with their "
                "default features."
            )

        def draw(n: int) -> Tensor:
            known, _ = encoder.distinct(replay.transitions.features if len(replay) else start)
            rows = torch.randint(len(known), (n,), generator=random, device=random.device)
            return known[rows.to(known.device)].cpu()

        self.goals = Goals(draw, lambda achieved, goals: (achieved == goals).all(1))

    def state(self) -> tuple[dict[str, Tensor], State]:
        """With the random generator of goals."""
        tensors, about = super().state()
        return tensors, about | {"goals": random_state(self._goal_random)}

    def load_state(self, tensors: Mapping[str, Tensor], about: State, done: int) -> None:
        """The inverse of `state`."""
        super().load_state(tensors, about, done)
        if "goals" in about:
            self._goal_random = generator(about["goals"])

    def behaviour(self, random: torch.Generator) -> Behaviour:
        """Greedy actions for one goal of the world per episode."""
        if self.goals is None:
            raise UserError("goal-dqn cannot be trained from a dataset; it needs an environment that defines goals.")
        model = self.model
        return Behaviour(lambda packed, goal: model.greedy(packed, model.backward_map(goal)), self.goals.draw)

    def draw(self, n: int) -> GoalBatch:
        """Transitions with the goals of their episodes, or with hindsight goals."""
        replay, s = self.replay, self.s
        numbers, rows, columns = draw_rows(self.model, replay, s, n, self.random)
        held, goals, b = replay.transitions, rows.goals, s.batch_size
        assert self.goals is not None
        assert goals is not None
        assert rows.left is not None
        assert rows.next_features is not None
        assert held.next_features is not None
        if s.method == "goal-dqn-her":
            replaced, later = hindsight(rows.left, s.hindsight, self.random)
            future = held.next_features[(numbers + later) % replay.capacity]
            goals = torch.where(replaced[:, None], future, goals)
        return GoalBatch(
            **columns,
            goals=self.model.backward_map(goals).view(n, b, -1),
            rewards=self.goals.reached(rows.next_features, goals).to(columns["discount"]).view(n, b),
        )

    def update(self, group: GoalBatch, learning_rates: Sequence[float]) -> Report:
        """Gradient steps on Q."""
        return goal_updates(self.learner, group, learning_rates, self.s.gamma)


class Goals(NamedTuple):
    """The goals of a world, and the test of whether one is reached."""

    draw: Callable[[int], Tensor]
    """(n, packed features) goals for new episodes"""
    reached: Callable[[Tensor, Tensor], Tensor]
    """(n,) whether achieved features (n, packed) reach the goals (n, packed)"""


class GoalBatch(NamedTuple):
    """Minibatches for goal-oriented DQN, n of them stacked along the first dimension of every field."""

    x: Tensor
    """(n, b, width) encoded observations s_i"""
    actions: Tensor
    """(n, b) a_i, in ascending order"""
    counts: Tensor
    """(n, A) how often each action was taken; empty on a GPU"""
    next_x: Tensor
    """(n, b, width) next observations"""
    discount: Tensor
    """(n, b) gamma, or 0 where the transition terminated"""
    goals: Tensor
    """(n, b, goal width) encoded goals g_i"""
    rewards: Tensor
    """(n, b) one where the next state is the goal"""


def hindsight(left: Tensor, share: float, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """The "future" strategy: (n,) which goals to replace, and (n,) how many transitions later the new goal is reached.

    ``left`` (n,) is the number of later transitions in the episode; the transition itself is included.
    """
    device = random.device
    replaced = torch.rand(left.shape, generator=random, device=device) < share
    later = (torch.rand(left.shape, generator=random, device=device, dtype=torch.float64) * (left + 1)).long()
    return replaced, torch.minimum(later, left)  # a product may round up to left + 1


def goal_targets(rewards: Tensor, discount: Tensor, Q_next: Tensor, gamma: float) -> Tensor:
    """(...) r + discount max_a Q(s', a, g), clipped to 0 to 1 / (1 - gamma), for Q_next (..., A)."""
    return (rewards + discount * Q_next.amax(-1)).clamp(0.0, 1 / (1 - gamma))


def goal_updates(learner: Learner, group: GoalBatch, learning_rates: Sequence[float], gamma: float) -> Report:
    """The gradient updates of a group of minibatches between two target updates; reports the last one."""
    n, b = group.actions.shape
    with torch.no_grad():
        Q_next = in_pieces(learner.F_target, group.next_x, group.goals)  # (n b, A, 1)
        targets = goal_targets(group.rewards, group.discount, Q_next.view(n, b, -1), gamma)
    for i, rate in enumerate(learning_rates):
        Q = forward_taken(learner.F, group.x[i], group.goals[i], group.actions[i], group.counts[i])  # (b, 1)
        error = Q.detach() - targets[i, :, None]
        learner.networks.gradient.zero_()
        torch.autograd.backward([Q], [error / b])
        learner.networks.step(rate)
    Q = Q.detach()
    return Report(
        lambda: {"bellman_loss": 0.5 * error.square().mean()},
        lambda: {"q_mean": Q.mean(), "q_std": Q.std(correction=0), **learner.gradient_norms()},
    )
