"""Playing for goals: the paper's protocols for worlds that are too large to be solved exactly."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.representation.latent import on_sphere
from anyreward.rewards.inference import FeatureSample, regions_z
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.spaces import leaves, pack_seen, with_final
from anyreward.worlds.world import World, autoreset_mode, discrete_actions

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


def goal_z(
    representation: Representation,
    features: FeatureMap,
    goals: Array,
    sphere: bool,
    sample: FeatureSample | None = None,
) -> Tensor:
    """(n, d) z of goals (n, k), as the paper has it: B of their features (the mean over actions, where B sees those).

    Where goals have a size, and a sample of rho is given, they are those regions. ``sphere`` brings them to the length
    that F was trained with, where that is one.
    """
    rows = torch.as_tensor(np.asarray(goals), dtype=torch.float32)
    if features.tolerance is not None and sample is not None:
        return regions_z(rows, sample, features, representation).to(representation.dtype)
    if features.include_action:
        actions = torch.arange(features.actions).repeat(len(rows))[:, None]
        rows = torch.cat([rows.repeat_interleave(features.actions, 0), actions], dim=1)
    B = representation.backward_map(rows)
    z = B.view(len(goals), -1, B.shape[1]).mean(1)
    return on_sphere(z, representation.own(z)) if sphere else z


def measures(test: GoalTest, features: FeatureMap) -> bool:
    """Whether an agent's features are those that the world's goals are given in."""
    width = test.draw(np.random.default_rng(0), 1).shape[1]
    return features.kind != "function" and sum(leaf.packed for leaf in leaves(features.state_space)) == width


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

    An episode that ends before the test's steps are over is over.
    """
    epsilon = test.epsilon if epsilon is None else epsilon
    space, same_step = env.single_observation_space, autoreset_mode(env) is AutoresetMode.SAME_STEP
    rng, start = np.random.default_rng(seed), discrete_actions(env.single_action_space).start
    reached, distance = np.zeros(len(goals), dtype=bool), np.full(len(goals), np.nan)
    for wave in range(0, len(goals), env.num_envs):
        which = np.arange(wave, min(wave + env.num_envs, len(goals)))
        places = np.resize(which, env.num_envs)  # environments without a goal of their own play along
        running = np.arange(env.num_envs) < len(which)
        observations, _ = env.reset(seed=int(rng.integers(2**31)))
        for _ in range(test.steps):
            actions = rng.integers(features.actions, size=env.num_envs)
            if epsilon < 1:
                packed = torch.from_numpy(pack_seen(space, observations))
                best = preferences(packed, places).argmax(1).numpy()
                actions = np.where(rng.random(env.num_envs) < epsilon, actions, best)
            observations, _, terminated, truncated, infos = env.step(actions + start)
            done, seen = np.logical_or(terminated, truncated), observations
            if same_step and done.any():
                seen = with_final(space, observations, infos["final_obs"], done)
            achieved = features.of(seen, pack_seen(space, seen), actions)[:, : goals.shape[1]]
            there = test.reached(achieved, goals[places]) & running
            reached[places[there]] = True
            distance[places[running]] = np.linalg.norm(achieved - goals[places], axis=1)[running]
            running &= ~done
            if not running.any():
                break
    return GoalScores(goals, reached, distance)


def reach_goals(
    world: World,
    features: FeatureMap,
    representation: Representation,
    sphere: bool,
    goals: int | Array | None,
    seed: int,
    epsilon: float | None,
    sample: FeatureSample,
) -> GoalScores:
    """See `Agent.reach_goals`; ``sphere`` and ``sample`` as in `goal_z`."""
    test = goal_test_of(world)
    if not measures(test, features):
        raise UserError(
            f"Goals of {world.name} are given in the features that it names itself; this agent's B sees others."
        )
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
        raise UserError(f"goals have the shape {goals.shape}; expected (n, {width}), or how many to draw.")
    answer = representation.answers(goal_z(representation, features, goals, sphere, sample))
    env = world.make_vector(together(world, len(goals)), max_episode_steps=test.steps + 1)
    with closing(env) if world.recipe is not None else nullcontext():  # an object stays its owner's to close
        return play_goals(env, test, goals, features, answer, epsilon, seed)


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
