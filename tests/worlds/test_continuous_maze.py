"""The continuous maze: its physics by hand, its statistics, its environments."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import anyreward as ar
from anyreward.worlds.continuous_maze import NOISE, STEP, ContinuousMazeEnv, ContinuousMazeVectorEnv, plane

LEFT, RIGHT, UP, DOWN, STAY = range(5)
STILL = np.zeros((1, 2))


def moved(x: float, y: float, action: int, noise: Any = STILL, **kwargs: Any) -> np.ndarray[Any, Any]:
    return np.asarray(plane(**kwargs).move(np.array([[x, y]]), np.array([action]), np.asarray(noise))[0])


@pytest.mark.parametrize(
    ("action", "to"),
    [(LEFT, (0.4, 0.5)), (RIGHT, (0.6, 0.5)), (UP, (0.5, 0.6)), (DOWN, (0.5, 0.4)), (STAY, (0.5, 0.5))],
)
def test_actions_move_as_named(action: int, to: tuple[float, float]) -> None:
    assert np.allclose(moved(0.5, 0.5, action), to)


def test_the_border_stops_each_coordinate_by_itself() -> None:
    assert np.allclose(moved(0.05, 0.5, LEFT, [[0.0, 0.02]]), (0.0, 0.52))
    assert np.allclose(moved(0.98, 0.99, UP, [[0.03, 0.0]]), (1.0, 1.0))


@pytest.mark.parametrize(
    ("x", "y", "action", "stopped"),
    [
        (0.2, 0.3, RIGHT, True),
        (0.3, 0.3, LEFT, True),  # from the other side
        (0.2, 0.45, RIGHT, False),  # above the wall's end
        (0.2, 0.4, RIGHT, True),  # its very end
        (0.7, 0.7, RIGHT, True),
        (0.7, 0.55, RIGHT, False),
        (0.15, 0.3, RIGHT, True),  # ending on the wall
        (0.25, 0.3, RIGHT, False),  # leaving it
        (0.24, 0.3, UP, False),  # along it
        (0.25, 0.45, DOWN, False),  # along it, in line with it
    ],
)
def test_a_wall_undoes_the_move_that_would_cross_it(x: float, y: float, action: int, stopped: bool) -> None:
    assert (np.abs(moved(x, y, action) - (x, y)).max() == 0) == stopped


def test_noise_alone_can_run_into_a_wall() -> None:
    assert np.allclose(moved(0.249, 0.2, STAY, [[0.01, 0.01]]), (0.249, 0.2))
    assert np.allclose(moved(0.249, 0.2, STAY, [[-0.01, 0.01]]), (0.239, 0.21))


def test_walls_of_ones_own() -> None:
    slanted = [(0.2, 0.2, 0.8, 0.8)]
    assert np.allclose(moved(0.45, 0.55, RIGHT, walls=slanted), (0.45, 0.55))
    assert np.allclose(moved(0.85, 0.9, RIGHT, walls=slanted), (0.95, 0.9))
    assert np.allclose(moved(0.2, 0.3, RIGHT, walls=[]), (0.3, 0.3))
    with pytest.raises(ar.UserError, match="leave the square"):
        plane([(0, 0, 2, 0)])
    with pytest.raises(ar.UserError, match="segments of four numbers"):
        plane([(0.1, 0.2, 0.3)])


def test_no_walk_ever_passes_through_a_wall() -> None:
    """A wall across the whole square: whoever starts on one side stays there."""
    env = ContinuousMazeVectorEnv(500, walls=[(0.5, 0.0, 0.5, 1.0)], max_episode_steps=10**6)
    start, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(300):
        position, *_ = env.step(rng.integers(5, size=500))
    assert ((start[:, 0] < 0.5) == (position[:, 0] < 0.5)).all()
    assert 0.2 < (start[:, 0] < 0.5).mean() < 0.8
    assert np.abs(position - start).max() > 0.4


def test_noise_has_the_papers_size() -> None:
    env = ContinuousMazeVectorEnv(20_000, walls=[], max_episode_steps=10)
    before, _ = env.reset(seed=1)
    after, *_ = env.step(np.full(20_000, RIGHT))
    inside = (before > 0.2).all(1) & (before < 0.8).all(1)
    change = (after - before)[inside]
    n = inside.sum()
    assert np.allclose(change.mean(0), (STEP, 0), atol=5 * NOISE / np.sqrt(n))
    assert np.allclose(change.std(0), NOISE, rtol=5 / np.sqrt(2 * n))
    assert abs(np.corrcoef(change.T)[0, 1]) < 5 / np.sqrt(n)


def test_gymnasium_accepts_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it advises against Box observations without images
        check_env(gym.make("anyreward/ContinuousMaze-v0").unwrapped, skip_render_check=True)


def test_one_and_many_are_seeded_and_alike() -> None:
    def walk(seed: int) -> np.ndarray[Any, Any]:
        env = gym.make("anyreward/ContinuousMaze-v0")
        observations = [env.reset(seed=seed)[0]]
        for i in range(30):
            observation, reward, terminated, truncated, _ = env.step(i % 5)
            observations.append(observation)
            assert (reward, terminated, truncated) == (0.0, False, i == 29)
        return np.array(observations)

    assert np.array_equal(walk(3), walk(3))
    assert not np.array_equal(walk(3), walk(4))
    many = gym.make_vec("anyreward/ContinuousMaze-v0", num_envs=7)
    first, _ = many.reset(seed=5)
    for _ in range(29):
        observations, rewards, terminated, truncated, infos = many.step(np.full(7, STAY))
        assert not np.any([rewards, terminated, truncated])
        assert not infos
    assert np.abs(observations - first).max() < 0.5
    fresh, _, _, truncated, infos = many.step(np.full(7, STAY))
    assert truncated.all()
    assert np.abs(infos["final_obs"] - observations).max() < 6 * NOISE
    assert np.abs(fresh - infos["final_obs"]).max() > 0.1
    assert np.array_equal(gym.make_vec("anyreward/ContinuousMaze-v0", num_envs=7).reset(seed=5)[0], first)


def test_starts_are_uniform_or_as_asked() -> None:
    env = gym.make("anyreward/ContinuousMaze-v0")
    position, _ = env.reset(options={"position": (0.1, 0.9)})
    assert np.allclose(position, (0.1, 0.9))
    with pytest.raises(ar.UserError, match="two numbers from 0 to 1"):
        env.reset(options={"position": (0.1, 1.9)})
    starts, _ = ContinuousMazeVectorEnv(10_000).reset(seed=0)
    counts = np.histogram2d(starts[:, 0], starts[:, 1], bins=4, range=[[0, 1], [0, 1]])[0]
    assert np.abs(counts - 625).max() < 5 * np.sqrt(625)


def test_it_can_be_seen() -> None:
    env = gym.make("anyreward/ContinuousMaze-v0", render_mode="rgb_array")
    env.reset(options={"position": (0.1, 0.9)})
    image = env.render()
    assert isinstance(image, np.ndarray)
    assert image.shape == (240, 240, 3)
    orange = np.argwhere((image == (230, 120, 20)).all(-1)).mean(0)  # row, column
    assert np.allclose(orange, (0.1 * 240, 0.1 * 240), atol=1)
    dark = (image == 60).all(-1)
    assert dark[int(0.8 * 240), int(0.25 * 240)]  # the left wall is at the bottom
    assert dark[int(0.2 * 240), int(0.75 * 240)]
    assert not dark[int(0.5 * 240)].any()
    with pytest.raises(ar.UserError, match="rgb_array"):
        ContinuousMazeEnv(render_mode="human")


def test_it_trains_and_answers() -> None:
    agent = ar.train("continuous-maze", updates=40, landmarks=0, hidden=16, dim=8, progress=False)
    assert agent.settings.encoding == "rbf"
    assert agent.model.F.width == 441
    policy = agent.ask(ar.goal(0.9, 0.1))
    assert policy.act(np.array([0.5, 0.5], dtype=np.float32)) in range(5)
    assert agent.model.phi.column_names == ("x", "y")
    assert ar.train(
        "continuous-maze", updates=40, landmarks=0, hidden=16, dim=8, encoding="plain", progress=False
    ).settings
