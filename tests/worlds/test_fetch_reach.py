"""The arm on the real MuJoCo."""

from __future__ import annotations

import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import anyreward as ar
from anyreward.errors import UserError
from anyreward.figures.films import Film
from anyreward.tools import answers
from anyreward.worlds.fetch_reach import ACTION_NAMES, FetchReachEnv, check_mujoco


@pytest.fixture(scope="module")
def arm() -> FetchReachEnv:
    env = gym.make("anyreward/FetchReach-v0").unwrapped
    assert isinstance(env, FetchReachEnv)
    return env


def test_the_environment_checks(arm: FetchReachEnv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checker remarks on the arm's unbounded spaces
        check_env(arm, skip_render_check=True)


@pytest.mark.parametrize("action", range(6))
def test_actions_move_the_gripper_as_named(arm: FetchReachEnv, action: int) -> None:
    before = arm.reset(seed=0)[0]["achieved_goal"]
    for _ in range(4):
        after = arm.step(np.int64(action))[0]["achieved_goal"]
    sign, axis = ACTION_NAMES[action]
    moved = (after - before) * (1 if sign == "+" else -1)
    index = "xyz".index(axis)
    assert moved[index] > 0.05
    assert np.abs(np.delete(moved, index)).max() < 0.02


def test_one_seed_one_episode(arm: FetchReachEnv) -> None:
    def play() -> Any:
        rng = np.random.default_rng(1)
        first = arm.reset(seed=7)[0]
        return [first, *(arm.step(rng.integers(6))[0] for _ in range(20))]

    for ours, theirs in zip(play(), play(), strict=True):
        for key in ours:
            assert np.allclose(ours[key], theirs[key], atol=1e-9)


def test_goals_are_drawn_as_the_arm_draws_them(arm: FetchReachEnv) -> None:
    test = arm.goal_test
    theirs = np.array([arm.reset(seed=i)[0]["desired_goal"] for i in range(60)])
    ours = test.draw(np.random.default_rng(0), 20_000)
    assert (theirs >= ours.min(0) - 0.002).all()
    assert (theirs <= ours.max(0) + 0.002).all()
    assert np.allclose(theirs.mean(0), ours.mean(0), atol=0.05)
    reached = test.reached(np.zeros((2, 3)), np.array([[0.049, 0, 0], [0.04, 0.04, 0]]))
    assert reached.tolist() == [True, False]


def test_goal_by_option(arm: FetchReachEnv) -> None:
    goal = (1.4, 0.7, 0.5)
    assert np.array_equal(arm.reset(seed=0, options={"goal": goal})[0]["desired_goal"], goal)
    assert np.array_equal(arm.step(np.int64(0))[0]["desired_goal"], goal)
    with pytest.raises(UserError, match="expected three numbers"):
        arm.reset(options={"goal": (1, 2)})


def test_versions_that_break_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "mujoco" in check_mujoco()
    monkeypatch.setattr(metadata, "version", lambda name: "3.12.1" if name == "mujoco" else "1.4.2")
    with pytest.raises(UserError, match=r"mujoco 3\.12\.1 is installed.*pip install 'mujoco>=3\.8\.1,<3\.12'"):
        gym.make("anyreward/FetchReach-v0")

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(UserError, match=r"gymnasium-robotics, which is not installed: pip install"):
        ar.open_world("fetch-reach")


def test_off_screen_picture() -> None:
    env = gym.make("anyreward/FetchReach-v0", render_mode="rgb_array", width=96, height=64)
    env.reset(seed=0)
    image = np.asarray(env.render())
    env.close()
    assert image.shape == (64, 96, 3)
    assert image.std() > 10


def test_pixels_are_where_the_goal_is_drawn() -> None:
    env = gym.make("anyreward/FetchReach-v0", render_mode="rgb_array", width=480, height=360).unwrapped
    assert isinstance(env, FetchReachEnv)
    for goal in ((1.45, 0.85, 0.65), (1.25, 0.9, 0.5)):
        env.reset(seed=0, options={"goal": goal})
        image = np.asarray(env.render()).astype(int)
        red = np.argwhere(image[..., 0] > image[..., 1:].max(-1) + 90)[:, ::-1]  # the sphere, as (x, y)
        assert len(red) > 2
        assert np.allclose(env.pixels(np.array([goal]))[0], red.mean(0), atol=1.0)
    env.hide_goal()
    image = np.asarray(env.render()).astype(int)
    env.close()
    assert not (image[..., 0] > image[..., 1:].max(-1) + 90).any()


def test_a_picture_marks_the_goals_that_were_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"dim": 8, "hidden": 16, "batch_size": 16, "updates": 20, "evaluate_every": 1_000, "progress": False}
    agent = ar.train("fetch-reach", **small)
    drawn: list[Film] = []
    monkeypatch.setattr(answers, "draw_film", lambda film, path, heading: drawn.append(film))
    first, second = agent.sample.rows[:2].tolist()
    for asked in (ar.goal(first) - ar.goal(second), ar.reward("gz")):
        answers.show_played(agent, agent.ask(asked), tmp_path / "a.png", None)
    marked, plain = drawn
    assert marked.goals.shape == marked.forbidden.shape == (1, 2)
    assert not np.allclose(marked.goals, marked.forbidden)
    assert plain.goals.shape == plain.forbidden.shape == (0, 2)
    assert marked.path.shape == (len(marked.images), 2)
    for where in (marked.path, marked.goals, marked.forbidden):
        assert ((where > 0) & (where < 320)).all()
