"""Evaluation during training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import numpy as np

from anyreward.acting.exact import score_goals
from anyreward.acting.play import goal_actions, measures, play_goals
from anyreward.learning.settings import Settings
from anyreward.model.features import FeatureMap
from anyreward.rewards.knowledge import Knowledge
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.spaces import Array
from anyreward.worlds.stepping import Stepper, opened, together
from anyreward.worlds.world import World

Watch = Callable[[], dict[str, float]]
"""Metrics of the current agent."""
KnowledgeNow = Callable[[], Knowledge]

MOST_STATES = 1_000
"""Largest number of states of a world that is solved exactly during training."""
MOST_GOALS = 100
"""Largest number of goals over which the quality shown during training is averaged."""
EVALUATION_WORK = 10**9
"""Largest cost of one evaluation: goals times states cubed."""
GOALS_PLAYED = 50
"""Number of goals for the success rate shown during training."""


def watch(world: World, phi: FeatureMap, knowledge: KnowledgeNow, s: Settings, stack: ExitStack) -> Watch:
    """Exact policy quality if the world can be solved, success rate if it has a protocol for goals, else nothing."""
    mdp = None
    if world.make is not None:
        env = world.make()
        mdp = finite_mdp(env, s.gamma, MOST_STATES)
        if world.recipe is not None:
            env.close()
    if mdp is not None and len(mdp.live):
        return partial(_quality, knowledge, mdp)
    test = world.goal_test
    if test is None or world.recipe is None or not measures(test, phi):
        return dict
    goals = test.draw(np.random.default_rng(s.seed), GOALS_PLAYED)
    options = {"max_episode_steps": test.steps + 1}
    stepper = stack.enter_context(opened(world, together(world, len(goals)), **options))
    return partial(_success, knowledge, stepper, test, goals, s.seed)


def _success(knowledge: KnowledgeNow, stepper: Stepper, test: GoalTest, goals: Array, seed: int) -> dict[str, float]:
    """The share of some goals that are reached, and the distance at the end, by the paper's protocol."""
    known = knowledge()
    scores = play_goals(stepper, test, goals, known.model.phi, goal_actions(known, goals), seed=seed)
    return {"success": scores.success, "distance": float(scores.distance.mean())}


def _quality(knowledge: KnowledgeNow, mdp: FiniteMDP) -> dict[str, float]:
    """The paper's policy quality over some goals."""
    most = min(len(mdp.live), MOST_GOALS, max(4, EVALUATION_WORK // mdp.states**3))
    goals, known = mdp.live[np.unique(np.linspace(0, len(mdp.live) - 1, most).astype(int))], knowledge()
    soft, greedy = (score_goals(known, mdp, temperature, goals).ratio for temperature in (1.0, 0.0))
    return {"quality": float(soft.mean()), "quality_worst": float(soft.min()), "quality_greedy": float(greedy.mean())}
