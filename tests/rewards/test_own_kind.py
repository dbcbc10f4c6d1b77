"""A new kind of reward is one class: everything else takes it as it is."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import anyreward as ar
from anyreward.rewards import Knowledge, Part, Term
from tests.exact import exact_agent, garnet


@dataclass(frozen=True, eq=False)
class Between(Term):
    """A reward of one where a feature lies between two bounds."""

    column: int
    low: float
    high: float

    def values(self, knowledge: Knowledge, rows: Tensor) -> np.ndarray[Any, Any]:
        x = knowledge.model.phi.readable(rows.numpy())[:, self.column]
        return ((x >= self.low) & (x <= self.high)).astype(np.float64)

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        sample = knowledge.sample
        values = self.values(knowledge, sample.rows)
        return Part((sample.weights * torch.from_numpy(values)) @ sample.B, values)

    def __str__(self) -> str:
        return f"{self.low:g} <= f{self.column} <= {self.high:g}"


def between(column: int, low: float, high: float) -> ar.Reward:
    return ar.Reward(((1.0, Between(column, low, high)),))


def test_it_is_answered_like_the_same_reward_as_a_function() -> None:
    """Exactly, on an exact representation: alone, in sums, scaled and refined."""
    mdp = garnet(seed=3)
    agent = exact_agent(mdp)
    same = ar.reward(lambda g: ((g[:, 0] >= 1) & (g[:, 0] <= 3)).astype(float))
    for mine, theirs in (
        (between(0, 1, 3), same),
        (2 * between(0, 1, 3) - ar.goal(4), 2 * same - ar.goal(4)),
        (-between(0, 1, 3) / 4, -same / 4),
    ):
        a, b = agent.ask(mine), agent.ask(theirs)
        assert torch.allclose(a.z, b.z, atol=1e-12)
        assert np.allclose(a.q(mdp.observations), b.q(mdp.observations), atol=1e-10)
        assert (a.act(mdp.observations) == b.act(mdp.observations)).all()
    r = between(0, 1, 3).values(agent.knowledge, torch.arange(mdp.states)[:, None].float())
    optimal = mdp.q_value(mdp.optimal_value(mdp.on_states(r)), mdp.on_states(r))
    assert np.allclose(agent.ask(between(0, 1, 3)).q(mdp.observations), optimal, atol=1e-8)


@pytest.mark.parametrize("changes", [{}, {"landmarks": 0, "hidden": 24, "dim": 12}])
def test_trust_scores_refine_finetune_evaluate_and_save_take_it(changes: dict[str, Any], tmp_path: Path) -> None:
    agent = ar.train("four-rooms", updates=400, progress=False, **changes)
    reward = between(0, 7, 9) - 0.5 * ar.goal(5, 2)
    same = ar.reward("(f0 >= 7) * (f0 <= 9)") - 0.5 * ar.goal(5, 2)
    policy = agent.ask(reward)
    assert str(reward) == "7 <= f0 <= 9 - 0.5 * goal(5, 2)"
    assert policy.trust.represented == pytest.approx(agent.ask(same).trust.represented)
    assert policy.trust.predicted == pytest.approx(agent.ask(same).trust.predicted)
    assert agent.score(reward).value == pytest.approx(agent.score(same).value)
    assert agent.score(reward, refine=50).normalised[0] > 0.99
    played = ar.evaluate(policy, "four-rooms", episodes=3, seed=1, reward=reward)
    assert played.totals == pytest.approx(ar.evaluate(policy, "four-rooms", episodes=3, seed=1, reward=same).totals)
    tuned = agent.finetune(policy, reward=reward, steps=200, updates=20, progress=False)
    assert tuned.reward is reward
    assert agent.can_answer(reward)
    path = policy.save(tmp_path / "task.json")
    assert torch.equal(agent.load_policy(path).z, policy.z)


def test_a_constant_of_the_new_kind_is_noticed() -> None:
    agent = ar.train("four-rooms", updates=200, progress=False)
    with pytest.warns(UserWarning, match="every policy is equally good"):
        agent.ask(between(0, 0, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.ask(between(0, 0, 3))


def test_goal_oriented_dqn_says_that_it_has_no_answer() -> None:
    agent = ar.train("four-rooms", method="goal-dqn", landmarks=0, hidden=24, batch_size=32, updates=40, progress=False)
    assert not agent.can_answer(between(0, 1, 3))
    with pytest.raises(ar.UserError, match="Not possible"):
        agent.ask(between(0, 1, 3))
