"""Episodes that continue in another process."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from anyreward.worlds.stepping import opened
from anyreward.worlds.world import open_world

WORLDS = {
    "four-rooms": 10,
    "continuous-maze": 4,
    "CartPole-v1": 5,
    "FrozenLake-v1": 3,
    "MountainCar-v0": 2,
    "Blackjack-v1": 4,
    "fetch-reach": 2,
    "ms-pacman": 2,
}


@pytest.mark.parametrize(("name", "n"), WORLDS.items())
def test_episodes_continue_where_they_were(name: str, n: int) -> None:
    world, rng = open_world(name), np.random.default_rng(0)
    with opened(world, n) as one, opened(world, n) as other:
        one.reset(3)
        other.reset(4)
        for _ in range(57):
            one.step(rng.integers(world.actions, size=n))
        assert other.load_state(json.loads(json.dumps(one.state())))
        for _ in range(60):
            actions = rng.integers(world.actions, size=n)
            a, b = one.step(actions), other.step(actions)
            assert np.array_equal(a.packed, b.packed)
            assert np.array_equal(a.over, b.over)
            assert np.array_equal(a.valid, b.valid)
            assert np.array_equal(a.rewards, b.rewards)


class Moody(gym.Env[Any, Any]):
    """An environment that does not follow from its seed."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.random.default_rng().random(2, dtype=np.float32), {}

    def step(self, action: int) -> Any:
        return np.random.default_rng().random(2, dtype=np.float32), 0.0, False, False, {}


def test_an_environment_that_does_not_follow_from_its_seed_says_so() -> None:
    world = open_world(Moody())
    with opened(world, 1) as one, opened(open_world(Moody()), 1) as other:
        one.reset(0)
        other.reset(0)
        one.step(np.array([0]))
        assert not other.load_state(one.state())


def test_another_number_of_environments_begins_anew() -> None:
    with opened(open_world("four-rooms"), 4) as one, opened(open_world("four-rooms"), 3) as other:
        one.reset(0)
        other.reset(0)
        assert not other.load_state(one.state())
        assert not other.load_state(None)
