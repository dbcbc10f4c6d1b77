"""Playing for goals: the paper's protocols for worlds that are too large to be solved exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.spaces import pack_seen
from anyreward.worlds.world import World, discrete_actions

Array = np.ndarray[Any, Any]
Preferences = Callable[[Tensor, Array], Tensor]
"""(n, A) preferences among actions, for packed observations (n, packed) and which goals (n,) they are for."""

MOST_AT_ONCE = 1_000
"""Episodes played together, at most."""


@dataclass(frozen=True)
class GoalScores:
    """What came of one episode a goal."""

    goals: Array
    """(n, k)"""
    reached: Array
    """(n,) whether the goal was reached at any step"""
    distance: Array
    """(n,) how far from it the episode ended"""

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
    """An interval for the mean of values (n,): what that share of resampled means fall into."""
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [values[rng.integers(len(values), size=(100, len(values)))].mean(1) for _ in range(draws // 100)]
    )
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def goal_z(representation: Representation, features: FeatureMap, goals: Array) -> Tensor:
    """(n, d) z_R of goals (n, k): B of their features (the mean over actions, where B sees actions)."""
    if features.kind == "function":
        raise UserError("Goals of this world are measured in its own features; this agent's features are a function.")
    rows = torch.as_tensor(np.asarray(goals), dtype=torch.float32)
    if not features.include_action:
        return representation.backward_map(rows)
    actions = torch.arange(features.actions).repeat(len(rows))[:, None]
    every = torch.cat([rows.repeat_interleave(features.actions, 0), actions], dim=1)
    return representation.backward_map(every).view(len(rows), features.actions, -1).mean(1)


def play_goals(
    env: VectorEnv[Any, Any, Any],
    test: GoalTest,
    goals: Array,
    features: FeatureMap,
    preferences: Preferences,
    epsilon: float | None = None,
    seed: int = 0,
) -> GoalScores:
    """One episode a goal, as many together as there are environments, acting greedily but for epsilon.

    An episode that terminates is over. The environments must not end episodes by themselves within the test's steps.
    """
    epsilon = test.epsilon if epsilon is None else epsilon
    rng, start = np.random.default_rng(seed), discrete_actions(env.single_action_space).start
    reached, distance = np.zeros(len(goals), dtype=bool), np.full(len(goals), np.nan)
    for wave in range(0, len(goals), env.num_envs):
        which = np.arange(wave, min(wave + env.num_envs, len(goals)))
        places = np.resize(which, env.num_envs)  # environments without a goal of their own play along
        running = np.arange(env.num_envs) < len(which)
        observations, _ = env.reset(seed=int(rng.integers(2**31)))
        for _ in range(test.steps):
            packed = pack_seen(env.single_observation_space, observations)
            best = preferences(torch.from_numpy(packed), places).argmax(1).numpy()
            actions = rng.integers(features.actions, size=env.num_envs)
            actions = np.where(rng.random(env.num_envs) < epsilon, actions, best)
            observations, _, terminated, truncated, _ = env.step(actions + start)
            after = pack_seen(env.single_observation_space, observations)
            achieved = features.of(observations, after, actions)[:, : goals.shape[1]]
            there = test.reached(achieved, goals[places]) & running
            reached[places[there]] = True
            distance[places[running]] = np.linalg.norm(achieved - goals[places], axis=1)[running]
            running &= ~np.logical_or(terminated, truncated)
            if not running.any():
                break
    return GoalScores(goals, reached, distance)


def together(world: World, episodes: int) -> int:
    """How many episodes to play at once: all, but where each needs a process no more than keeps the machine busy."""
    return min(episodes, 2 * (os.cpu_count() or 1) if world.own_process else MOST_AT_ONCE)


def goal_test_of(world: World) -> GoalTest:
    """The world's protocol; raises where it has none."""
    if world.goal_test is None:
        raise UserError(
            f"{world.name} has no protocol for goals: it is not a finite MDP that can be solved exactly, and does not "
            "say when a goal counts as reached. Measure a policy by its reward: anyreward.evaluate(policy, world)."
        )
    return world.goal_test
