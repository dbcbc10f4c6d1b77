"""Agents of one world side by side, whatever method learned them: the same questions, the same scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from anyreward.acting.goals import bootstrap
from anyreward.acting.policy import action_probabilities
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.experiments.all_rewards import FAMILIES
from anyreward.rewards.reward import Reward, goal
from anyreward.rewards.reward import reward as reward_of
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.theory.grid import grid_mdp
from anyreward.worlds.continuous_maze import Plane

Array = np.ndarray[Any, Any]

NOT_POSSIBLE = "not possible"
QUESTIONS = {
    "goals": "single goal",
    "sums of goals": "2 to 5 goals",
    "goals with forbidden states": "goal, 5 forbidden cells",
    "dense rewards": "dense normal",
}
"""What is asked, and the family of the suite all-rewards that it is in a finite world."""
WAVES = 12
"""Cosines that a dense reward among numbers is made of."""


class Question(NamedTuple):
    """A reward, as a user would ask for it, and what it pays."""

    asked: Reward
    paid: Array
    """(S, A)"""


@dataclass(frozen=True)
class Exam:
    """The questions of one world with the values that random and optimal policies have."""

    mdp: FiniteMDP
    questions: dict[str, list[Question]]
    references: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """by family, (n,) each: random, optimal; means over the states"""

    def solve(self) -> Exam:
        """The same with its references."""
        mdp, uniform = self.mdp, np.full((self.mdp.states, self.mdp.actions), 1 / self.mdp.actions)
        for name, questions in self.questions.items():
            pairs = [(mdp.policy_value(uniform, q.paid).mean(), mdp.optimal_value(q.paid).mean()) for q in questions]
            random, optimal = np.array(pairs).T
            self.references[name] = random, optimal
        return self

    def score(self, agent: Agent, name: str) -> Array | None:
        """(n,) what greedy answers reach, 0 = random, 1 = optimal; None where the method cannot answer."""
        questions, (random, optimal) = self.questions[name], self.references[name]
        if not all(agent.can_answer(q.asked) for q in questions):
            return None
        states = agent.packed_states(self.mdp)
        values = []
        for q in questions:
            pi = action_probabilities(agent.ask(q.asked).preferences(states)).numpy()
            values.append(self.mdp.policy_value(pi, q.paid).mean())
        return np.asarray((np.array(values) - random) / (optimal - random))


def exam(agent: Agent, n: int = 100, seed: int = 0) -> Exam | None:
    """N questions of each kind for the agent's world, solved; None where it is neither finite nor has a fine grid."""
    make = agent.world().make
    env = make().unwrapped if make else None
    mdp = finite_mdp(env, agent.settings.gamma) if env is not None else None
    if mdp is not None:
        return Exam(mdp, {name: _in_states(mdp, family, n, seed) for name, family in QUESTIONS.items()}).solve()
    plane = getattr(env, "plane", None)
    if isinstance(plane, Plane):
        mdp = grid_mdp(plane, agent.settings.gamma)
        return Exam(mdp, _in_the_plane(agent, mdp, n, seed)).solve()
    return None


def _in_states(mdp: FiniteMDP, family: str, n: int, seed: int) -> list[Question]:
    rng = np.random.default_rng([seed, *family.encode()])
    nowhere = np.zeros((mdp.states, 2))  # these families do not look at the map
    rewards = rng.permutation(FAMILIES[family](rng, mdp, nowhere, n))[:n]
    return [
        Question(
            sum((float(r[s]) * goal(state=mdp.observations[s]) for s in np.flatnonzero(r)), start=Reward(())),
            mdp.on_states(r),
        )
        for r in rewards
    ]


def _in_the_plane(agent: Agent, mdp: FiniteMDP, n: int, seed: int) -> dict[str, list[Question]]:
    test, rng, places = agent.world().goal_test, np.random.default_rng(seed), np.asarray(mdp.observations)
    assert test is not None

    def goals(weights: Sequence[float]) -> Question:
        points = test.draw(rng, len(weights))
        asked = sum((w * goal(p.tolist()) for w, p in zip(weights, points, strict=True)), start=Reward(()))
        paid = sum(w * test.reached(places, np.tile(p, (len(places), 1))) for w, p in zip(weights, points, strict=True))
        return Question(asked, mdp.on_states(np.asarray(paid, dtype=np.float64)))

    def dense() -> Question:
        frequency, phase = rng.normal(0, 15, (WAVES, places.shape[1])), rng.uniform(0, 2 * np.pi, WAVES)

        def waves(x: Array) -> Array:
            return np.asarray(np.cos(x @ frequency.T + phase).sum(1))

        return Question(reward_of(waves, "waves"), mdp.on_states(waves(places)))

    return {
        "goals": [goals([1.0]) for _ in range(n)],
        "sums of goals": [goals([1.0] * int(rng.integers(2, 6))) for _ in range(n)],
        "goals with forbidden states": [goals([1.0, *[-0.5] * 5]) for _ in range(n)],
        "dense rewards": [dense() for _ in range(n)],
    }


class Row(NamedTuple):
    """What some agents of one kind reach, or a reference policy."""

    label: str
    agents: Sequence[Agent]
    scores: dict[str, Array | None]
    """by question, (agents, n): 0 = random, 1 = optimal; None where the method cannot answer"""
    reached: Array | None = None
    """(agents, goals) whether each goal was reached that was played for, where the world has goals to play for"""

    def summary(self) -> dict[str, Any]:
        """Means and 5th percentiles over agents and questions, as a table shows them."""
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
    """The same questions for all agents, which must be of one world; then those of the random and the optimal policy.

    Args:
        groups: agents by what to call them; those of one group count together, such as several seeds.
        n: questions of each kind.
        goals: how many are played for, in worlds where they are; by default as in `Agent.reach_goals`.
        seed: of the questions.
    """
    first, *others = [agent for members in groups.values() for agent in members]
    for other in others:
        if (other.world_recipe, other.settings.gamma) != (first.world_recipe, first.settings.gamma):
            raise UserError(
                f"Compare agents of one world and one gamma; here are {first.world_name} (gamma "
                f"{first.settings.gamma:g}) and {other.world_name} (gamma {other.settings.gamma:g})."
            )
    if n < 1:
        raise UserError(f"The number of rewards is {n}; it must be positive.")
    asked, plays = exam(first, n, seed), first.world().goal_test is not None
    if asked is None and not plays:
        raise UserError(
            f"{first.world_name} can be neither solved exactly nor played for goals, so there is nothing to compare."
        )
    names = list(asked.questions) if asked else []

    def reached(agents: Sequence[Agent], epsilon: float | None = None) -> Array | None:
        return np.stack([agent.reach_goals(goals, seed, epsilon).reached for agent in agents]) if plays else None

    for name, members in groups.items():
        scores: dict[str, Array | None] = {}
        for question in names:
            assert asked is not None
            found = [x for x in (asked.score(agent, question) for agent in members) if x is not None]
            scores[question] = np.stack(found) if len(found) == len(members) else None
        yield Row(name, members, scores, reached(members))
    yield Row("random policy", (), {name: np.zeros((1, 1)) for name in names}, reached([first], epsilon=1.0))
    if asked:
        yield Row("optimal policy", (), {name: np.ones((1, 1)) for name in names})
