"""Environments of gymnasium-robotics, by their ids."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import anyreward as ar

SCRIPT = """
import anyreward as ar
world = ar.open_world("PointMaze_Medium-v3")
env = world.make_vector(2)
observations, _ = env.reset(seed=0)
assert observations["achieved_goal"].shape == (2, 2), observations
env.close()
"""


@pytest.mark.parametrize("prefix", ["", "gymnasium_robotics:"])
def test_an_id_is_enough(prefix: str) -> None:
    """In a process of its own, where nobody has imported the package."""
    script = SCRIPT.replace("PointMaze", prefix + "PointMaze")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_goals_of_point_maze_are_places_in_the_maze() -> None:
    tiny = {"updates": 40, "hidden": 16, "batch_size": 16, "steps_per_cycle": 100, "dim": 8, "action_repeat": 4}
    agent = ar.train("PointMaze_Medium-v3", landmarks=0, progress=False, **tiny)
    assert agent.model.phi.kind == "achieved_goal"
    policy = agent.ask(ar.goal(*agent.sample.rows[0, :2].tolist()))  # a place that was visited
    observation, _ = agent.world().make().reset(seed=0)  # type: ignore[misc]  # it is made from an id
    action = policy.act(observation)
    assert action.shape == (2,)
    assert np.abs(action).max() <= 1
