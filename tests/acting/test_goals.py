"""Playing for goals, against what can be counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

import anyreward as ar
from anyreward.acting.play import GoalScores, bootstrap, goal_actions, goal_test_of, play_goals
from anyreward.model.features import feature_map
from anyreward.worlds.goals import GoalTest, Tolerance
from anyreward.worlds.stepping import Stepper
from tests.conftest import TINY

Array = np.ndarray[Any, Any]


def towards(goals: Array) -> Any:
    """Preferences that walk straight to the goal in a square without walls: along the axis that is further off."""

    def preferences(packed: Tensor, which: Array) -> Tensor:
        dx, dy = (torch.from_numpy(goals[which]) - packed).T  # actions: left, right, up, down, stay
        return torch.stack([-dx, dx, dy, -dy, torch.full_like(dx, 0.05)], dim=1).argmax(1)

    return preferences


def test_a_policy_that_walks_straight_reaches_every_goal() -> None:
    world = ar.open_world("continuous-maze")
    test = goal_test_of(world)
    goals = test.draw(np.random.default_rng(0), 250)
    no_walls = ar.worlds.world.from_id("anyreward/ContinuousMaze-v0", walls=())
    stepper = Stepper(no_walls.make_vector(100, max_episode_steps=31))
    features = feature_map("auto", world.observation_space, world.actions)
    scores = play_goals(stepper, test, goals, features, towards(goals), epsilon=0.0)
    assert scores.reached.all()
    assert scores.distance.max() < 0.12  # it stays near, as far as steps of 0.1 let it
    random = play_goals(stepper, test, goals, features, towards(goals), epsilon=1.0)
    assert random.success < 0.5
    assert random.distance.mean() > 0.2
    with_walls = Stepper(world.make_vector(250, max_episode_steps=31))
    assert 0.6 < play_goals(with_walls, test, goals, features, towards(goals), epsilon=0.0).success < 1.0
    again = play_goals(stepper, test, goals, features, towards(goals), epsilon=1.0)
    assert np.array_equal(again.distance, random.distance)  # one seed, one outcome


class Line(ar.worlds.continuous_maze.ContinuousMazeVectorEnv):
    """Agents that end for good after some steps, each its own number."""

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        observations, rewards, _, truncated, infos = super().step(actions)
        ended = self.elapsed == np.arange(2, 2 + self.num_envs)
        return observations, rewards, ended, truncated, infos | {"final_obs": observations}


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_what_comes_after_the_end_does_not_count(mode: AutoresetMode) -> None:
    env = Line(3, walls=(), max_episode_steps=100)
    env.metadata = env.metadata | {"autoreset_mode": mode}
    goals = np.array([[0.5, 0.5]] * 3)
    steps = []

    def never(achieved: Array, wanted: Array) -> Array:
        steps.append(len(achieved))
        return np.full(len(achieved), len(steps) > 3)  # everywhere, but only after the third step

    test = GoalTest(lambda rng, n: goals[:n], never, steps=6)
    features = feature_map("auto", env.single_observation_space, 5)
    scores = play_goals(
        Stepper(env), test, goals, features, lambda packed, which: torch.zeros(len(packed), dtype=torch.int64)
    )
    assert scores.reached.tolist() == [False, False, True]  # they end after steps 2, 3 and 4
    assert len(steps) == 4  # nothing is played once all have ended


def test_bootstrap_covers_the_mean_as_often_as_it_says() -> None:
    rng, hits = np.random.default_rng(1), 0
    for i in range(300):
        low, high = bootstrap((rng.random(80) < 0.3).astype(float), draws=400, seed=i)
        hits += low <= 0.3 <= high
    assert 0.90 <= hits / 300 <= 0.98


def test_scores_are_summarised() -> None:
    scores = GoalScores(np.zeros((4, 2)), np.array([True, True, False, True]), np.array([0.0, 1, 2, 1]))
    row = scores.summary()
    assert (row["goals"], row["success"], row["distance"]) == (4, 0.75, 1.0)
    low, high = row["success_interval"]
    assert low <= 0.75 <= high


def test_when_a_goal_counts_as_reached() -> None:
    there, goals = np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([[0.05, -0.05], [0.051, 0.0]])
    assert Tolerance("box", 0.05)(there, goals).tolist() == [True, False]
    assert Tolerance("ball", 0.051)(there, goals).tolist() == [False, False]


@pytest.mark.parametrize("include_action", [False, True])
def test_z_of_goals_is_that_of_asking(include_action: bool) -> None:
    agent = ar.train("continuous-maze", features_include_action=include_action, encoding="plain", **TINY)
    goals = np.array([[0.2, 0.3], [0.8, 0.1]], dtype=np.float32)
    knowledge, rows = agent.knowledge, torch.from_numpy(agent.model.phi.with_actions(goals))
    Z, _ = knowledge.scaled(knowledge.goal_z(rows))
    greedy, somewhere = goal_actions(knowledge, goals), torch.tensor([[0.5, 0.6], [0.1, 0.9]])
    for i, (z, at) in enumerate(zip(Z, goals, strict=True)):
        targets = [ar.goal(*at, a) for a in range(5)] if include_action else [ar.goal(*at)]
        asked = agent.ask(sum(targets, start=ar.Reward(())))
        assert torch.allclose(asked.z, z, atol=1e-4)
        assert asked.choose(somewhere)[0].tolist() == greedy(somewhere, np.array([i, i])).tolist()


def test_worlds_without_a_protocol_say_so() -> None:
    with pytest.raises(ar.UserError, match="no protocol for goals"):
        goal_test_of(ar.open_world("CartPole-v1"))
    agent = ar.train("continuous-maze", **TINY)
    with pytest.raises(ar.UserError, match="goals is 0"):
        agent.reach_goals(0)


def test_goals_and_epsilon_are_checked() -> None:
    agent = ar.train("continuous-maze", dim=4, hidden=8, updates=40, progress=False)
    for bad, message in (
        ([0.5, 0.5], r"shape \(2,\)"),
        (np.zeros((0, 2)), r"shape \(0, 2\)"),
        (np.zeros((3, 3)), r"expected \(n, 2\)"),
        (0, "must be positive"),
    ):
        with pytest.raises(ar.UserError, match=message):
            agent.reach_goals(bad)
    with pytest.raises(ar.UserError, match="epsilon is 2"):
        agent.reach_goals(3, epsilon=2)
    assert agent.reach_goals([[0.5, 0.5]]).goals.shape == (1, 2)
