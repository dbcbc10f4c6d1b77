"""Observations that hold text beside numbers, as those of MiniGrid do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import anyreward as ar

ID = "anyreward-tests/Corridor-v0"


class Mission(gym.Space[str]):
    """A space of text that is not Gymnasium's own, such as MiniGrid's."""

    def __init__(self) -> None:
        super().__init__(dtype=str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "get to the goal"

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    @property
    def is_np_flattenable(self) -> bool:
        return False


class Corridor(gym.Env[dict[str, Any], np.int64]):
    """A corridor of five cells, seen as a small image of bytes; the last one ends the episode."""

    observation_space = spaces.Dict(
        {"direction": spaces.Discrete(2), "image": spaces.Box(0, 255, (5, 1, 3), np.uint8), "mission": Mission()}
    )
    action_space = spaces.Discrete(2)

    def _seen(self) -> dict[str, Any]:
        image = np.zeros((5, 1, 3), np.uint8)
        image[self.cell] = 10
        return {"direction": np.int64(self.facing), "image": image, "mission": "get to the goal"}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.cell, self.facing = int(self.np_random.integers(4)), 0
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        self.facing = int(action)
        self.cell = int(np.clip(self.cell + (1 if action else -1), 0, 4))
        return self._seen(), float(self.cell == 4), self.cell == 4, False, {}


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    gym.register(ID, entry_point=Corridor, max_episode_steps=20)


def test_text_is_left_out_and_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ar.train(ID, updates=40, hidden=16, dim=8, seed=0, out=tmp_path)
    assert "because it is text: 'mission'." in " ".join(capsys.readouterr().err.split())
    assert agent.model.observation_encoder.packed == 1 + 15 + 1  # direction, image, ended
    observation, _ = gym.make(ID).reset(seed=0)
    for each in (agent, ar.load(tmp_path)):
        policy = each.ask(ar.goal(state=observation) + ar.end())
        assert policy.act(observation) in (0, 1)
        assert len(ar.evaluate(policy, ID, episodes=3).totals) == 3
        assert len(ar.rollout(policy, gym.make(ID), max_steps=3)[0].observations) > 1
    samples = agent.sample_rewards(ID, budget=100, progress=False)
    assert agent.ask(samples).belief.found.samples == 100


def test_no_word_about_text_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    ar.train("four-rooms", updates=40)
    assert "text" not in capsys.readouterr().err


def test_an_environment_that_is_not_registered_names_the_remedy() -> None:
    with pytest.raises(ar.UserError, match=r"import the package first.*'package:MiniGrid-Nowhere-v0'"):
        ar.train("MiniGrid-Nowhere-v0")
