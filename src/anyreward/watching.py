"""What is measured during training, beside the losses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from anyreward.acting.evaluate import goal_quality
from anyreward.acting.goals import goal_z, measures, play_goals, together
from anyreward.agent import Agent
from anyreward.learning.presets import Settings
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.world import World

MOST_STATES = 1_000
"""Exact evaluation during training stops paying above this many states."""
MOST_GOALS = 100
"""Goals looked at by the quality shown during training, at most."""
EVALUATION_WORK = 10**9
"""Goals times states cubed that one such look may cost."""
GOALS_PLAYED = 50
"""Goals played for the success shown during training."""


def losses_only() -> dict[str, float]:
    """Nothing beside the losses."""
    return {}


def evaluation(world: World, agent: Agent, s: Settings, stack: ExitStack) -> Callable[[], dict[str, float]]:
    """What is measured during training: exact values where the world can be solved, success where goals are played."""
    mdp = finite_mdp(world.make(), s.gamma, MOST_STATES) if world.make is not None else None
    if mdp is not None and len(mdp.live):
        return partial(_quality, agent, mdp)
    test = world.goal_test
    if test is None or world.recipe is None or not measures(test, agent.features):
        return losses_only
    goals = test.draw(np.random.default_rng(s.seed), GOALS_PLAYED)
    env = stack.enter_context(closing(world.make_vector(together(world, len(goals)), max_episode_steps=test.steps + 1)))
    return partial(_success, agent, env, test, goals, s)


def _success(
    agent: Agent, env: VectorEnv[Any, Any, Any], test: GoalTest, goals: np.ndarray[Any, Any], s: Settings
) -> dict[str, float]:
    """The share of some goals that are reached, and how far from them episodes end, acting as the paper does."""
    answer = agent.representation.answers(goal_z(agent.representation, agent.features, goals, s.z_norm == "sphere"))
    scores = play_goals(env, test, goals, agent.features, answer, seed=s.seed)
    return {"success": scores.success, "distance": float(scores.distance.mean())}


def _quality(agent: Agent, mdp: FiniteMDP) -> dict[str, float]:
    """The policy quality shown during training, where the world can be solved exactly."""
    most = min(len(mdp.live), MOST_GOALS, max(4, EVALUATION_WORK // mdp.states**3))
    goals = mdp.live[np.unique(np.linspace(0, len(mdp.live) - 1, most).astype(int))]
    soft, greedy = (
        goal_quality(agent.representation, agent.features, mdp, temperature, goals).ratio for temperature in (1.0, 0.0)
    )
    return {"quality": float(soft.mean()), "quality_worst": float(soft.min()), "quality_greedy": float(greedy.mean())}
