"""Comparison of agents of one world, trained by any method, on the same rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from anyreward.acting.exact import packed_states, policy_tables
from anyreward.acting.play import bootstrap
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.experiments.all_rewards import FAMILIES, tables_to_z
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import goal
from anyreward.rewards.terms import reward as reward_of
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.theory.grid import grid_actions, grid_mdp, played_value
from anyreward.worlds.continuous_maze import ACTION_NAMES, Plane
from anyreward.worlds.spaces import Array

NOT_POSSIBLE = "not possible"
KINDS = {
    "goals": "single goal",
    "sums of goals": "2 to 5 goals",
    "goals with forbidden states": "goal, 5 forbidden cells",
    "dense rewards": "dense normal",
}
"""The kinds of rewards, and their families in the suite all-rewards for finite worlds."""
WAVES = 12
"""Number of cosines in a dense reward of the continuous maze."""
STEP = 1 / 60
"""Spacing of the grid whose optimal policies are the reference in the continuous maze; 1 / 80 earns 0.7% more."""


class Questions(NamedTuple):
    """Rewards of one kind on the states of a finite world, with the values of a random and an optimal policy."""

    mdp: FiniteMDP
    paid: Array
    """(n, S, A)"""
    random: Array
    """(n,) means over the states"""
    optimal: Array
    """(n,)"""

    def score(self, agent: Agent) -> Array | None:
        """(n,) scores of greedy answers, 0 = random, 1 = optimal; None if the method cannot answer."""
        if agent.knowledge.method.goals_only and ((self.paid[:, :, 0] != 0).sum(1) > 1).any():
            return None
        z, _ = tables_to_z(agent, self.mdp, self.paid)
        pi = policy_tables(agent.model, packed_states(self.mdp, agent.model.phi), z)
        values = np.stack([self.mdp.policy_value(p, r).mean(-1) for p, r in zip(pi, self.paid, strict=True)])
        return np.asarray((values - self.random) / (self.optimal - self.random))


class PlayedQuestions(NamedTuple):
    """Rewards of one kind in the continuous maze, scored by rollouts, because a grid is too coarse to score policies.

    Optimal policies of a grid of 1,600 points and of one of 6,400 points each score 0.9 on the other grid, and have
    nearly the same returns in the maze itself.
    """

    plane: Plane
    gamma: float
    asked: list[Reward]
    paid: list[Callable[[Array], Array]]
    """each reward as a function of positions (n, 2)"""
    random: Array
    """(n,) mean returns"""
    optimal: Array
    """(n,) those of policies that are optimal on a fine grid"""

    def score(self, agent: Agent) -> Array | None:
        """(n,) scores of greedy answers, 0 = random, 1 = optimal on a fine grid; None if the method cannot answer."""
        if not all(agent.can_answer(reward) for reward in self.asked):
            return None
        prefer = agent.model.q_for(torch.stack([agent.ask(reward).z for reward in self.asked]))

        def act(positions: Array, which: Array) -> Array:
            return prefer(torch.from_numpy(positions.astype(np.float32)), which).argmax(1).numpy()

        values = played_value(self.plane, act, self.paid, self.gamma)
        return np.asarray((values - self.random) / (self.optimal - self.random))


def questions(agent: Agent, n: int = 100, seed: int = 0) -> Mapping[str, Questions | PlayedQuestions]:
    """The rewards of each kind for the agent's world; empty if it is neither finite nor the continuous maze."""
    make = agent.world().make
    env = make().unwrapped if make else None
    mdp = finite_mdp(env, agent.settings.gamma) if env is not None else None
    if mdp is not None:
        return {name: _in_states(mdp, family, n, seed) for name, family in KINDS.items()}
    plane = getattr(env, "plane", None)
    return _in_the_plane(agent, plane, n, seed) if isinstance(plane, Plane) else {}


def _in_states(mdp: FiniteMDP, family: str, n: int, seed: int) -> Questions:
    rng = np.random.default_rng([seed, *family.encode()])
    nowhere = np.zeros((mdp.states, 2))  # these families do not use positions
    paid = mdp.on_states(rng.permutation(FAMILIES[family](rng, mdp, nowhere, n))[:n])
    uniform = np.full((mdp.states, mdp.actions), 1 / mdp.actions)
    return Questions(mdp, paid, mdp.policy_value(uniform, paid).mean(-1), mdp.optimal_value(paid).mean(-1))


def _in_the_plane(agent: Agent, plane: Plane, n: int, seed: int) -> dict[str, PlayedQuestions]:
    test, rng, gamma = agent.world().goal_test, np.random.default_rng(seed), agent.settings.gamma
    assert test is not None
    mdp = grid_mdp(plane, gamma, STEP)
    places = np.asarray(mdp.observations, dtype=np.float64)

    def goals(weights: Sequence[float]) -> tuple[Reward, Callable[[Array], Array]]:
        points = test.draw(rng, len(weights))
        asked = sum((w * goal(p.tolist()) for w, p in zip(weights, points, strict=True)), start=Reward(()))

        def values(x: Array) -> Array:
            reached = [test.reached(x, np.tile(p, (len(x), 1))) for p in points]  # (goals, n)
            return np.asarray(np.array(weights) @ np.array(reached))

        return asked, values

    def dense() -> tuple[Reward, Callable[[Array], Array]]:
        frequency, phase = rng.normal(0, 15, (WAVES, 2)), rng.uniform(0, 2 * np.pi, WAVES)

        def waves(x: Array) -> Array:
            return np.asarray(np.cos(x[:, :2] @ frequency.T + phase).sum(1))

        return reward_of(waves, "waves"), waves

    def of(draw: Callable[[], tuple[Reward, Callable[[Array], Array]]]) -> PlayedQuestions:
        asked, rewards = zip(*(draw() for _ in range(n)), strict=True)
        best = mdp.optimal_policy(mdp.on_states(np.stack([r(places) for r in rewards]))).argmax(-1)  # (n, S)
        chance = np.random.default_rng(seed)
        random, optimal = (
            played_value(plane, act, list(rewards), gamma)
            for act in (
                lambda x, _: chance.integers(len(ACTION_NAMES), size=len(x)),
                lambda x, which: grid_actions(best, STEP, x, which),
            )
        )
        return PlayedQuestions(plane, gamma, list(asked), list(rewards), random, optimal)

    return {
        "goals": of(lambda: goals([1.0])),
        "sums of goals": of(lambda: goals([1.0] * int(rng.integers(2, 6)))),
        "goals with forbidden states": of(lambda: goals([1.0, *[-0.5] * 5])),
        "dense rewards": of(dense),
    }


class Row(NamedTuple):
    """The scores of a group of agents, or of a reference policy."""

    label: str
    agents: Sequence[Agent]
    scores: dict[str, Array | None]
    """by kind of reward, (agents, n): 0 = random, 1 = optimal; None if the method cannot answer"""
    reached: Array | None = None
    """(agents, goals) whether each goal was reached, if the world has a protocol for goals"""

    def summary(self) -> dict[str, Any]:
        """Means and 5th percentiles over agents and rewards, for a table."""
        found: dict[str, Any] = {"label": self.label, "seeds": [agent.settings.seed for agent in self.agents]}
        for name, x in self.scores.items():
            if x is None:
                found[name] = NOT_POSSIBLE
                continue
            found[name] = {"mean": float(x.mean()), "p5": float(np.percentile(x, 5)), "by agent": x.mean(1).tolist()}
        if self.reached is not None:
            low, high = bootstrap(self.reached.mean(0))
            each = self.reached.mean(1).tolist()
            found["goals reached"] = {"mean": float(self.reached.mean()), "low": low, "high": high, "by agent": each}
        return found


def compare(
    groups: Mapping[str, Sequence[Agent]], n: int = 100, goals: int | None = None, seed: int = 0
) -> Iterator[Row]:
    """Scores of groups of agents on the same n rewards of each kind, then of the random and the optimal policy."""
    first, *others = [agent for members in groups.values() for agent in members]
    for other in others:
        if (other.world_recipe, other.settings.gamma) != (first.world_recipe, first.settings.gamma):
            raise UserError(
                f"Compare agents of one world and one gamma; got {first.world_name} (gamma "
                f"{first.settings.gamma:g}) and {other.world_name} (gamma {other.settings.gamma:g})."
            )
    if n < 1 or seed < 0:
        raise UserError(f"rewards is {n} and seed {seed}; rewards must be positive, and seed 0 or more.")
    asked, plays = questions(first, n, seed), first.world().goal_test is not None
    if not asked and not plays:
        raise UserError(
            f"{first.world_name} is not a finite MDP and does not define when a goal is reached: nothing to compare."
        )

    def reached(agents: Sequence[Agent], epsilon: float | None = None) -> Array | None:
        return np.stack([agent.reach_goals(goals, seed, epsilon).reached for agent in agents]) if plays else None

    for name, members in groups.items():
        scores: dict[str, Array | None] = {}
        for kind, some in asked.items():
            found = [x for x in map(some.score, members) if x is not None]
            scores[kind] = np.stack(found) if len(found) == len(members) else None
        yield Row(name, members, scores, reached(members))
    yield Row("random policy", (), {kind: np.zeros((1, 1)) for kind in asked}, reached([first], epsilon=1.0))
    if asked:
        yield Row("optimal policy", (), {kind: np.ones((1, 1)) for kind in asked})
