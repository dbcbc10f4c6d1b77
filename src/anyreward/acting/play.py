"""Rollouts: returns of policies, and the paper's protocols for goals."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from anyreward.acting.policy import Acts, Policy
from anyreward.errors import UserError
from anyreward.model.features import FeatureMap
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward
from anyreward.worlds.actions import ActionSet, action_set
from anyreward.worlds.checked import failed
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.spaces import Array, Space, stack
from anyreward.worlds.stepping import Stepper, around, opened, together
from anyreward.worlds.world import World, open_world

GoalActions = Callable[[Tensor, Array], Tensor]
"""(n, ...) actions, for packed observations (n, packed) and the index of each one's goal (n,)."""
ActBatch = Callable[[Any], Array]
"""Actions (n,) for a batch of observations, as numbered by the environment."""

MOST_STEPS = 10_000
"""Largest number of steps of an episode."""


@dataclass(frozen=True)
class Episode:
    """One episode: n + 1 observations, n actions, and the environment's own rewards (n,)."""

    observations: list[Any]
    actions: list[Any]
    rewards: Array
    terminated: bool

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(self.rewards.sum())


class RandomPolicy:
    """The uniformly random policy, for a number of actions or an action space."""

    def __init__(self, actions: int | Space, start: int = 0, seed: int = 0) -> None:
        self._actions = ActionSet(actions, start) if isinstance(actions, int) else action_set(actions)
        self._rng = np.random.default_rng(seed)

    def act(self, observation: Any) -> Any:
        """A uniformly random action."""
        action = self._actions.outward(self._actions.sample(self._rng, 1))[0]
        return int(action) if self._actions.box is None else action


@dataclass(frozen=True)
class Returns:
    """Undiscounted returns of whole episodes."""

    totals: Array
    """(episodes,)"""

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(self.totals.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; NaN for one episode."""
        return float(self.totals.std(ddof=1) / np.sqrt(len(self.totals))) if len(self.totals) > 1 else float("nan")

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.standard_error:.2g} over {len(self.totals)} episodes"


def evaluate(
    policy: Acts,
    world: World | str | Path | gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
    episodes: int = 100,
    seed: int = 0,
    reward: Reward | None = None,
) -> Returns:
    """Run a policy in a world, in several environments at once, and return the returns of its episodes.

    Args:
        policy: anything with ``act(observation)``; it is asked for the steps of several episodes in turn, so it should
            not depend on earlier calls.
        world: a short name, a Gymnasium id, or an environment; environments that are opened here are closed here.
        episodes: number of episodes.
        seed: of the starts.
        reward: the reward to sum, if not the environment's own; ``policy`` must then come from `Agent.ask`.
    """
    world = open_world(world)
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1.")
    if reward is not None and not isinstance(policy, Policy):
        raise UserError("evaluate() with reward=... needs a policy from Agent.ask.")
    with opened(world, together(world, episodes)) as stepper:
        played = play(policy, stepper, episodes, seed)
    if reward is None:
        return Returns(np.array([episode.total for episode in played]))
    assert isinstance(policy, Policy)
    return Returns(np.array([_counted(reward, episode, policy.knowledge) for episode in played]))


def _counted(reward: Reward, episode: Episode, knowledge: Knowledge) -> float:
    """The sum of a reward along an episode, with its terminal state, if it has one."""
    phi = knowledge.model.phi
    observations = stack(phi.observation_space, episode.observations[:-1])
    actions = phi.action_set.inward(episode.actions)
    rows = phi.of(observations, phi.seen(observations), actions)
    if phi.ends and episode.terminated:
        last = stack(phi.observation_space, episode.observations[-1:])
        rows = np.concatenate([rows, phi.of(last, phi.seen(last, True), actions[:1])])
    return float(reward.values(knowledge, torch.from_numpy(rows)).sum())


def rollout(
    policy: Acts,
    env: gym.Env[Any, Any],
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = MOST_STEPS,
    options: dict[str, Any] | None = None,
    on_step: Callable[[], Any] = lambda: None,
) -> list[Episode]:
    """Run whole episodes in one environment, which is not closed.

    ``max_steps`` limits the length of an episode; ``options`` are passed to ``reset``; ``on_step`` is called after the
    reset and after every step, for example to render.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1.")
    stepper = around(env)

    def observed() -> None:
        try:
            on_step()
        except Exception as error:
            calls = [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]
            if isinstance(error, UserError) or "render" not in calls:  # on_step itself failed
                raise
            raise failed(stepper.name, f"render after {stepper.steps} steps", error) from error

    return play(policy, stepper, episodes, seed, max_steps, options, observed)


def play(
    policy: Acts,
    stepper: Stepper,
    episodes: int,
    seed: int = 0,
    max_steps: int = MOST_STEPS,
    options: dict[str, Any] | None = None,
    on_step: Callable[[], Any] = lambda: None,
) -> list[Episode]:
    """Run whole episodes, one in each environment at a time."""
    act = acting(policy, stepper)
    played: list[Episode] = []
    for first in range(0, episodes, stepper.num_envs):
        n = min(stepper.num_envs, episodes - first)  # the other environments are stepped but not recorded
        stepper.reset(seed if first == 0 else None, options)
        on_step()
        records = [_Record(o) for o in _each(stepper, stepper.observations)[:n]]
        for _ in range(max_steps):
            actions = act(stepper.observations)
            step = stepper.step(actions)
            on_step()
            observations = _each(stepper, step.observations)
            for i, record in enumerate(records):
                if not record.over:
                    record.add(actions[i], observations[i], step.rewards[i], step.terminated[i], step.over[i])
            if all(record.over for record in records):
                break
        played += [record.episode for record in records]
    return played


class _Record:
    """An episode in progress; observations are copied, because the environments may reuse their memory."""

    def __init__(self, observation: Any) -> None:
        self._observations = [deepcopy(observation)]
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._terminated = self.over = False

    def add(self, action: Any, observation: Any, reward: float, terminated: bool, over: bool) -> None:
        self._observations.append(deepcopy(observation))
        self._actions.append(action)
        self._rewards.append(float(reward))
        self._terminated, self.over = bool(terminated), bool(over)

    @property
    def episode(self) -> Episode:
        return Episode(self._observations, self._actions, np.asarray(self._rewards), self._terminated)


def acting(policy: Acts, stepper: Stepper) -> ActBatch:
    """A policy as a function of batches; policies other than `Policy` get one observation at a time."""
    if isinstance(policy, Policy):
        _check_actions(policy.model.phi.action_set.space, stepper)
        # an environment visits no walls, and a state that is new is no mistake
        return lambda observations: np.asarray(policy.act(observations, warn=False))
    return lambda observations: np.array([policy.act(o) for o in _each(stepper, observations)])


def _check_actions(own: Space, stepper: Stepper) -> None:
    """Raise if an environment takes actions of another kind, or of another shape, than a policy's ``own``."""
    other = stepper.action_set.space
    if type(own) is not type(other) or own.shape != other.shape:
        raise UserError(
            f"The policy chooses among the actions {own}; {stepper.name} takes {other}. Play it in an environment with "
            "the actions that its agent was trained with, or wrap this one (gymnasium.wrappers.TransformAction)."
        )


def _each(stepper: Stepper, observations: Any) -> list[Any]:
    """The observations of a batch, one by one."""
    return list(gym.vector.utils.iterate(stepper.env.observation_space, observations))


@dataclass(frozen=True)
class GoalScores:
    """The outcome of one episode for each goal."""

    goals: Array
    """(n, k)"""
    reached: Array
    """(n,) whether the goal was reached at any step"""
    distance: Array
    """(n,) distance to the goal at the end of the episode"""

    @property
    def success(self) -> float:
        """The share of goals reached."""
        return float(self.reached.mean())

    def summary(self) -> dict[str, Any]:
        """Success and mean distance with 95% bootstrap intervals over goals."""
        return {
            "goals": len(self.goals),
            "success": self.success,
            "success_interval": bootstrap(self.reached.astype(float)),
            "distance": float(self.distance.mean()),
            "distance_interval": bootstrap(self.distance),
        }


def bootstrap(values: Array, share: float = 0.95, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
    """A bootstrap confidence interval for the mean of values (n,), at the level ``share``."""
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [values[rng.integers(len(values), size=(100, len(values)))].mean(1) for _ in range(draws // 100)]
    )
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def measures(test: GoalTest, phi: FeatureMap) -> bool:
    """Whether an agent's features are those that the world's goals are given in."""
    width = test.draw(np.random.default_rng(0), 1).shape[1]
    return phi.kind != "function" and phi.state_packed == width


def goal_actions(knowledge: Knowledge, goals: Array) -> GoalActions:
    """The greedy actions of the policies that reach goals (n, k)."""
    rows = torch.from_numpy(knowledge.model.phi.with_actions(np.asarray(goals, dtype=np.float32)))
    z, _ = knowledge.scaled(knowledge.goal_z(rows))
    return knowledge.model.choose_for(z)


def play_goals(
    stepper: Stepper,
    test: GoalTest,
    goals: Array,
    phi: FeatureMap,
    greedy: GoalActions,
    epsilon: float | None = None,
    seed: int = 0,
) -> GoalScores:
    """Run one episode for each goal, one in each environment at a time, acting epsilon-greedily.

    An episode ends after the test's number of steps, or when its environment ends it.
    """
    epsilon = test.epsilon if epsilon is None else epsilon
    rng, n = np.random.default_rng(seed), stepper.num_envs
    reached, distance = np.zeros(len(goals), dtype=bool), np.full(len(goals), np.nan)
    for wave in range(0, len(goals), n):
        which = np.arange(wave, min(wave + n, len(goals)))
        number = np.resize(which, n)  # the other environments are stepped but not recorded
        running = np.arange(n) < len(which)
        stepper.reset(int(rng.integers(2**31)))
        for _ in range(test.steps):
            actions = phi.action_set.sample(rng, n)
            if epsilon < 1:
                best = greedy(torch.from_numpy(stepper.packed), number).numpy()
                uniform = rng.random(n) < epsilon
                actions = np.where(uniform[:, None] if actions.ndim == 2 else uniform, actions, best)
            step = stepper.step(phi.action_set.outward(actions))
            achieved = phi.of(step.observations, step.packed, actions)[:, : goals.shape[1]]
            there = test.reached(achieved, goals[number]) & running
            reached[number[there]] = True
            distance[number[running]] = np.linalg.norm(achieved - goals[number], axis=1)[running]
            running &= ~step.over
            if not running.any():
                break
    return GoalScores(goals, reached, distance)


def reach_goals(
    world: World, knowledge: Knowledge, goals: int | Array | None = None, seed: int = 0, epsilon: float | None = None
) -> GoalScores:
    """See `Agent.reach_goals`."""
    test = goal_test_of(world)
    if not measures(test, knowledge.model.phi):
        raise UserError(f"Goals of {world.name} are given in its default features; this agent's B has other features.")
    if epsilon is not None and not 0 <= epsilon <= 1:
        raise UserError(f"epsilon is {epsilon}; accepted: 0 to 1.")
    if goals is None:
        goals = 1_000 if test.every is None else test.every
    if isinstance(goals, int):
        if goals < 1:
            raise UserError(f"goals is {goals}; it must be positive.")
        goals = test.draw(np.random.default_rng(seed), goals)
    goals, width = np.asarray(goals, dtype=np.float64), test.draw(np.random.default_rng(0), 1).shape[1]
    if goals.ndim != 2 or len(goals) == 0 or goals.shape[1] != width:
        raise UserError(f"goals have the shape {goals.shape}; expected (n, {width}), or a number of goals to draw.")
    with opened(world, together(world, len(goals)), max_episode_steps=test.steps + 1) as stepper:
        greedy = goal_actions(knowledge, goals)
        return play_goals(stepper, test, goals, knowledge.model.phi, greedy, epsilon, seed)


def goal_test_of(world: World) -> GoalTest:
    """The world's protocol for goals; raises if it has none."""
    if world.goal_test is None:
        raise UserError(
            f"{world.name} has no protocol for goals: it is not a finite MDP that can be solved exactly, and does not "
            "define when a goal is reached. Evaluate a policy by its reward: anyreward.evaluate(policy, world)."
        )
    return world.goal_test
