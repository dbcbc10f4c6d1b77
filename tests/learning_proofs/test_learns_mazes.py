"""The whole loop, on worlds small enough to learn in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import anyreward as ar

MAZE = """
#######
#  #  #
#     #
#  #  #
#######
"""


def test_a_small_maze_is_learned_without_reward(tmp_path: Path) -> None:
    (tmp_path / "two_rooms.txt").write_text(MAZE)
    agent = ar.train(tmp_path / "two_rooms.txt", dim=25, hidden=64, updates=2_500, gamma=0.95, seed=0, progress=False)
    quality = agent.goal_quality(temperature=0.0).ratio
    assert quality.mean() > 0.98
    assert quality.min() > 0.9
    # rewards of other kinds, through ask(): on the scale 0 = random, 1 = optimal
    targets = [ar.goal(1, 1) + ar.goal(5, 3), ar.reward(lambda g: (g[:, 0] > 3).astype(float))]
    assert agent.score(targets).normalised.min() > 0.95


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
    table = agent.reward_table(stay_safe, agent.exact_mdp())
    assert table.shape == (16, 4)
    assert np.argwhere(table).tolist() == [[0, 3]]
