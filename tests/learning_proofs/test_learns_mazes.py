"""The whole loop, on worlds small enough to learn in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anyreward as ar
from anyreward.acting.exact import reward_table

MAZE = """
#######
#  #  #
#     #
#  #  #
#######
"""


@pytest.mark.parametrize("landmarks", [0, 128], ids=["networks", "landmarks"])
def test_a_small_maze_is_learned_without_reward(tmp_path: Path, landmarks: int) -> None:
    (tmp_path / "two_rooms.txt").write_text(MAZE)
    how = {"dim": 25, "hidden": 64, "updates": 2_500, "gamma": 0.95, "seed": 0, "progress": False}
    agent = ar.train(tmp_path / "two_rooms.txt", landmarks=landmarks, **how)
    assert (agent.model.landmarks is None) == (landmarks == 0)
    quality = agent.score().ratio
    assert quality.mean() > 0.98
    assert quality.min() > 0.9
    # rewards of other kinds, through ask(): on the scale 0 = random, 1 = optimal
    targets = [ar.goal(1, 1) + ar.goal(5, 3), ar.reward(lambda g: (g[:, 0] > 3).astype(float))]
    assert agent.score(targets).normalised.min() > 0.95
    # a constant changes no policy, so it changes no answer, and adds its worth to the value
    one, goals = ar.reward(lambda g: np.ones(len(g)), "1"), [ar.goal(1, 1), ar.goal(5, 3), ar.goal(3, 2)]
    plain = agent.score(goals).normalised
    start = agent.exact_mdp().observations[:1]
    for c in (-10.0, -1.0, 1.0, 10.0):
        np.testing.assert_allclose(agent.score([goal + c * one for goal in goals]).normalised, plain, atol=0.01)
        worth = agent.ask(goals[0] + c * one).value(start) - agent.ask(goals[0] + 5 * one).value(start)
        np.testing.assert_allclose(worth, 20 * (c - 5), rtol=1e-3)


def test_b_of_state_and_action_answers_rewards_on_actions() -> None:
    agent = ar.train(
        "FrozenLake-v1",
        dim=40,
        hidden=64,
        updates=2_500,
        gamma=0.9,
        features_include_action=True,
        seed=0,
        progress=False,
    )
    stay_safe = ar.reward(lambda g: ((g[:, 0] == 0) & (g[:, 1] == 3)).astype(float))  # push up in the first cell
    score = agent.score(stay_safe)
    assert score.normalised[0] > 0.6
    table = reward_table(stay_safe, agent.knowledge, agent.exact_mdp())
    assert table.shape == (16, 4)
    assert np.argwhere(table).tolist() == [[0, 3]]
