"""The point mass in the maze: its physics and rewards by hand, its environments."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import anyreward as ar
from anyreward.worlds.point_mass import (
    EDGE,
    GOALS,
    SPEED,
    TASKS,
    Physics,
    PointMassMazeEnv,
    PointMassMazeVectorEnv,
    draw,
    free,
)
from anyreward.worlds.recorded import can_continue, load_episodes, save_episodes

Rows = np.ndarray[Any, Any]
NAME = "anyreward/PointMassMaze-v0"


def pushed(start: tuple[float, float], push: tuple[float, float], steps: int, at: tuple[float, float] = (0, 0)) -> Rows:
    """(steps, 4) the states after each step with one action."""
    physics, state = Physics(1), np.array([[*start, *at]], dtype=float)
    states = []
    for _ in range(steps):
        state = physics.step(state, np.array([push], dtype=float))
        states.append(state[0])
    return np.array(states)


def test_free_motion_is_that_of_a_damped_mass() -> None:
    """MuJoCo treats damping implicitly: (mass + step x damping) dv = step (force - damping v): dv = (force - v) / 16.

    Then v = force (1 - r^t) with r = 15/16 from rest, and x is the sum of 0.02 v.
    """
    t, r = np.arange(1, 61), 15 / 16
    states = pushed((-0.25, 0.1), (1.0, 0.5), 60)
    for axis, (start, force) in enumerate([(-0.25, 0.1), (0.1, 0.05)]):
        assert np.allclose(states[:, 2 + axis], force * (1 - r**t), atol=1e-12)
        assert np.allclose(states[:, axis], start + 0.02 * force * (t - 15 * (1 - r**t)), atol=1e-12)
    coasting = pushed((-0.25, 0.1), (0.0, 0.0), 60, at=(0.0, 0.1))
    assert np.allclose(coasting[:, 3], 0.1 * r**t, atol=1e-12)
    assert coasting[-1, 1] < 0.1 + 0.02 * 0.1 * 15  # the sum of 0.002 r^t over all t


@pytest.mark.parametrize(
    ("start", "push", "end"),
    [
        ((-0.1, 0.1), (1, 0), (-0.03, 0.1)),  # the wall's side, less the radius
        ((-0.1, 0.1), (0, -1), (-0.1, 0.03)),
        ((-0.1, 0.1), (1, -1), (-0.03, 0.03)),  # the inner corner of a room
        ((0.25, 0.0), (-1, 0), (0.19, 0.0)),  # the wall's end
        ((0.0, -0.25), (0, 1), (0.0, -0.19)),
        ((0.1, 0.1), (1, 0), (0.29, 0.1)),  # the outer walls
        ((0.1, -0.1), (0, -1), (0.1, -0.29)),
        ((-0.1, -0.1), (-1, 0), (-0.29, -0.1)),
        ((-0.1, 0.1), (-1, 1), (-0.29, 0.29)),
    ],
)
def test_walls_stop_the_mass(start: tuple[float, float], push: tuple[float, float], end: tuple[float, float]) -> None:
    x, y, vx, vy = pushed(start, push, 300)[-1]
    assert np.allclose((x, y), end, atol=5e-4)
    assert np.allclose((vx, vy), 0, atol=1e-3)


def test_rooms_are_connected_at_the_outer_walls_alone() -> None:
    assert pushed((-0.2, 0.25), (1, 0), 400)[-1, 0] > 0.28
    assert pushed((0.25, 0.2), (0, -1), 400)[-1, 1] < -0.28
    assert pushed((-0.2, 0.15), (1, 0), 400)[-1, 0] < -0.029


def test_no_walk_leaves_the_arena_or_enters_a_wall() -> None:
    env, rng = PointMassMazeVectorEnv(300, starts="everywhere", max_episode_steps=10**6), np.random.default_rng(0)
    env.reset(seed=0)
    actions = np.zeros((300, 2))
    seen = []
    for _ in range(600):
        new = rng.random(300) < 0.02  # long pushes with full power
        actions[new] = rng.choice([-1, 0, 1], (int(new.sum()), 2))
        observations, *_ = env.step(actions)
        seen.append(observations)
    rows = np.concatenate(seen)
    assert env.single_observation_space.contains(rows.min(0))
    assert env.single_observation_space.contains(rows.max(0))
    assert np.abs(rows[:, :2]).max() > EDGE
    assert np.abs(rows[:, 2:]).max() < SPEED
    # every state can be begun in again
    last = PointMassMazeVectorEnv(len(rows)).reset(options={"position": rows[:, :2], "velocity": rows[:, 2:]})[0]
    assert np.array_equal(last, rows)


def paid(task: str, features: Any, actions: Any = None) -> float:
    rewards = TASKS[task](np.array([features]), None if actions is None else np.array([actions]))
    assert rewards.shape == (1,)
    return float(rewards[0])


@pytest.mark.parametrize("task", GOALS)
def test_rewards_of_goals_by_hand(task: str) -> None:
    x, y = GOALS[task]
    assert ("left" in task, "top" in task) == (x < 0, y > 0)
    assert paid(task, (x, y, 0, 0)) == 1
    assert paid(task, (x + 0.009, y - 0.012, 0.1, 0)) == pytest.approx(1)  # at distance 0.015
    assert paid(task, (x, y + 0.06, 0, 0)) == pytest.approx(0.1**0.25)  # half of the margin of 0.09
    assert paid(task, (x + 0.063, y + 0.084, 0, 0)) == pytest.approx(0.1)  # at distance 0.105
    assert paid(task, (x, y, 0, 0), (0, 0)) == 1
    assert paid(task, (x, y, 0, 0), (1, -1)) == pytest.approx(0.8)
    assert paid(task, (x, y, 0, 0), (0.5, 0)) == pytest.approx(0.975)  # (4 + (0.75 + 1) / 2) / 5
    assert paid(task, (x + 0.063, y + 0.084, 0, 0), (1, 0)) == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("task", "features", "expected"),
    [
        ("reach_bottom_left_long", (0, 0.25, 0.05, 0), 0.25),  # to the right along the top
        ("reach_bottom_left_long", (0, 0.25, 0.2, 0), 0.5),
        ("reach_bottom_left_long", (0, 0.25, -0.05, 0), -5),
        ("reach_bottom_left_long", (0.25, 0, 0, -0.05), 0.25),  # down on the right
        ("reach_bottom_left_long", (0.25, 0, 0, 0.2), -10),
        ("reach_bottom_left_long", (0, -0.25, -0.05, 0), 0.25),  # to the left along the bottom
        ("reach_bottom_left_long", (0, -0.25, 0.05, 0), -5),
        ("reach_bottom_left_long", (-0.25, 0.01, 0, -0.05), -5),  # the short way
        ("reach_bottom_left_long", (0.25, 0.25, 0.05, 0.05), 0),
        ("reach_bottom_left_long", (0.1, 0.1, 0.1, 0.1), 0),
        ("loop", (-0.12, 0.12, 0.08, 0.08), 1),
        ("loop", (0.12, 0.12, 0.08, -0.08), 1),
        ("loop", (0.12, -0.12, -0.08, -0.08), 1),
        ("loop", (-0.12, -0.12, -0.08, 0.08), 1),
        ("loop", (-0.12, 0.12, 0, 0), 1 / 3),
        ("loop", (-0.12, 0.12, -0.08, -0.08), 1 / 3),
        ("loop", (-0.12, 0.12, 0.055, 0.105), 2 / 3),  # one, and twice a half
        ("loop", (-0.12, 0.12 + 0.03 * np.sqrt(2), 0, 0), 1 / 6),  # 0.03 beside the path
        ("loop", (0.0, 0.2, 0, 0), (2 - np.sqrt(2)) / 3),  # 0.04 / sqrt(2) beside it, of 0.02 to 0.04
        ("square", (0, 0.25, 0.05, 0), 0.5),
        ("square", (0, 0.25, 0.2, 0), 1),
        ("square", (0, 0.25, -0.05, 0), 0),
        ("square", (0.25, 0, 0, -0.05), 0.5),
        ("square", (0, -0.25, -0.05, 0), 0.5),
        ("square", (-0.25, 0, 0, 0.05), 0.5),
        ("square", (-0.25, 0.25, 0.05, 0.05), 0),
        ("square", (0, 0.19, 0.05, 0), 0),
        ("fast_slow", (0, 0.25, -0.045, 0), 1),
        ("fast_slow", (0, 0.25, -0.055, 0), 0.5),
        ("fast_slow", (0, 0.25, -0.095, 0), 0),
        ("fast_slow", (0, 0.25, 0.045, 0), 0),
        ("fast_slow", (0.25, 0, 0, 0.095), 1),
        ("fast_slow", (0.25, 0, 0, 0.085), 0.5),
        ("fast_slow", (0, -0.25, 0.045, 0), 1),
        ("fast_slow", (-0.25, 0, 0, -0.095), 1),
        ("fast_slow", (0, 0.285, -0.045, 0), 0),  # too near the wall
        ("fast_slow", (0.25, 0.25, -0.045, 0.095), 0),
        ("fast_slow", (0.25, 0.285, 0, 0.095), 1),
    ],
)
def test_rewards_of_the_way_by_hand(task: str, features: Any, expected: float) -> None:
    assert paid(task, features) == pytest.approx(expected, abs=1e-12)
    assert paid(task, features, (0, 0)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_can_be_asked_and_is_paid(task: str) -> None:
    assert task in str(ar.reward(TASKS[task]))
    env, rng = gym.make(NAME, task=task), np.random.default_rng(0)
    inner = env.unwrapped
    assert isinstance(inner, PointMassMazeEnv)
    env.reset(seed=0, options={"position": (0.0, 0.25), "velocity": (0.05, 0.0)})
    for _ in range(20):
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        _, reward, *_ = env.step(action)
        assert reward == TASKS[task](inner.state, action[None])[0]


def test_gymnasium_accepts_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(NAME, render_mode="rgb_array").unwrapped)
    world = ar.open_world("point-mass-maze")
    assert world.never_terminates
    assert world.feature_names == ("x", "y", "vx", "vy")
    assert world.time_limit == 1_000


def test_one_episode_follows_from_its_seed_and_has_no_reward() -> None:
    def walk(seed: int) -> Rows:
        env, rng = gym.make(NAME), np.random.default_rng(0)
        observations = [env.reset(seed=seed)[0]]
        for i in range(1_000):
            observation, reward, terminated, truncated, _ = env.step(rng.uniform(-1, 1, 2).astype(np.float32))
            observations.append(observation)
            assert (reward, terminated, truncated) == (0.0, False, i == 999)
        return np.array(observations)

    assert np.array_equal(walk(3), walk(3))
    assert not np.array_equal(walk(3), walk(4))


@pytest.mark.parametrize("task", [None, "reach_top_left", "fast_slow"])
def test_many_are_as_one(task: str | None) -> None:
    """Also bit for bit, with walls in the way: MuJoCo carries nothing from one mass or step to the next."""
    rng = np.random.default_rng(0)
    many = PointMassMazeVectorEnv(6, task=task)
    at = draw(rng, 6, "everywhere")[:, :2]
    first, _ = many.reset(seed=0, options={"position": at})
    ones = [PointMassMazeEnv(task=task) for _ in range(6)]
    assert np.array_equal(first, [env.reset(options={"position": p})[0] for env, p in zip(ones, at, strict=True)])
    for i in range(300):
        if i % 50 == 0:
            actions = rng.uniform(-1.5, 1.5, (6, 2))  # too much power is cut
        observations, rewards, *_ = many.step(actions)
        steps = [env.step(a) for env, a in zip(ones, actions, strict=True)]
        assert np.array_equal(observations, [step[0] for step in steps])
        assert np.array_equal(rewards, [step[1] for step in steps])
    assert np.abs(observations[:, :2]).max() > 0.289


def test_many_begin_anew_in_the_step_that_ends_an_episode() -> None:
    env = gym.make_vec(NAME, num_envs=5, max_episode_steps=10)
    first, _ = env.reset(seed=5)
    assert np.array_equal(gym.make_vec(NAME, num_envs=5).reset(seed=5)[0], first)
    full = np.ones((5, 2), dtype=np.float32)
    for _ in range(9):
        observations, rewards, terminated, truncated, infos = env.step(full)
        assert not np.any([rewards, terminated, truncated])
        assert not infos
    fresh, _, terminated, truncated, infos = env.step(full)
    assert truncated.all()
    assert infos["_final_obs"].all()
    assert not terminated.any()
    assert np.abs(infos["final_obs"][:, :2] - observations[:, :2]).max() < 0.002
    assert np.array_equal(fresh[:, 2:], np.zeros((5, 2)))
    assert not np.array_equal(fresh, first)
    env.step(full)
    assert gym.make_vec(NAME, num_envs=5).unwrapped.max_episode_steps == 1_000  # type: ignore[attr-defined]


def test_episodes_continue_where_they_were() -> None:
    def make() -> PointMassMazeVectorEnv:
        return PointMassMazeVectorEnv(4, starts="everywhere", task="loop", max_episode_steps=70)

    one, other, rng = make(), make(), np.random.default_rng(0)
    assert can_continue(one)
    observations, _ = one.reset(seed=3)
    other.reset(seed=4)
    for _ in range(57):
        observations, *_ = one.step(rng.uniform(-1, 1, (4, 2)))
    state = json.loads(json.dumps(save_episodes(one, observations)))
    assert np.array_equal(load_episodes(other, state), observations)
    for _ in range(60):
        actions = np.sign(rng.uniform(-1, 1, (4, 2)))
        for a, b in zip(one.step(actions)[:4], other.step(actions)[:4], strict=True):
            assert np.array_equal(a, b)


def test_starts() -> None:
    corner, _ = PointMassMazeVectorEnv(2_000).reset(seed=0)
    assert np.allclose(corner.min(0), (-0.29, 0.15, 0, 0), atol=1e-3)
    assert np.allclose(corner.max(0), (-0.15, 0.29, 0, 0), atol=1e-3)
    everywhere, _ = PointMassMazeVectorEnv(4_000, starts="everywhere").reset(seed=0)
    assert free(everywhere[:, :2].astype(float)).all()
    assert not everywhere[:, 2:].any()
    rooms = np.unique(everywhere[:, :2] > 0, axis=0, return_counts=True)[1]
    assert np.abs(rooms - 1_000).max() < 5 * np.sqrt(1_000)
    assert free(np.array([[0.1, 0.1], [0.1, 0.029], [0.185, 0.0], [0.2, 0.0], [0.28, 0.295]])).tolist() == [
        *(True, False, False, True, False)
    ]


def test_bad_options_are_named() -> None:
    env = gym.make(NAME)
    placed, _ = env.reset(options={"position": (0.1, -0.2), "velocity": (0.05, -0.1)})
    assert np.allclose(placed, (0.1, -0.2, 0.05, -0.1))
    for options, message in [
        ({"position": (0.1, 0.31)}, r"\[0.1, 0.31\] is outside of the arena.*-0.29 to 0.29"),
        ({"position": (np.nan, 0.1)}, "outside of the arena"),
        ({"position": (0.1, 0.01)}, "inside a wall.*0.18.*0.01 away"),
        ({"position": (0.1, 0.1, 0.1)}, "position is .*expected two numbers, for x and for y"),
        ({"position": "left"}, "position is 'left'; expected two numbers"),
        ({"velocity": (1, 0)}, "velocity is .*from -0.15 to 0.15"),
        ({"velocity": 0.1}, "velocity is 0.1; expected two numbers"),
    ]:
        with pytest.raises(ar.UserError, match=message):
            env.reset(options=options)
    with pytest.raises(ar.UserError, match="3 rows of two numbers"):
        PointMassMazeVectorEnv(3).reset(options={"position": np.zeros((2, 2))})
    with pytest.raises(ar.UserError, match=r"task is 'run'; accepted: None .*'loop'"):
        gym.make(NAME, task="run")
    with pytest.raises(ar.UserError, match="starts is 'middle'; accepted: 'corner', 'everywhere'"):
        gym.make(NAME, starts="middle")
    for action in ([0.1], [np.nan, 0.1], "up"):
        with pytest.raises(ar.UserError, match="expected two numbers from -1 to 1"):
            PointMassMazeEnv().step(action)  # type: ignore[arg-type]
    for make in (PointMassMazeEnv, PointMassMazeVectorEnv):
        with pytest.raises(ar.UserError, match=r"rgb_array|single"):
            make(render_mode="human")


def test_missing_mujoco_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ar.UserError, match=r"needs mujoco, which is not installed: pip install 'anyreward\[worlds\]'"):
        ar.open_world("point-mass-maze")


def test_it_can_be_seen() -> None:
    env = PointMassMazeEnv(task="reach_bottom_right", render_mode="rgb_array")
    assert PointMassMazeEnv().render() is None
    env.reset(options={"position": (-0.15, 0.2)})
    image = env.render()
    assert isinstance(image, np.ndarray)
    assert image.shape == (240, 240, 3)
    for colour, at in [((230, 120, 20), (-0.15, 0.2)), ((40, 160, 70), (0.15, -0.15)), ((60, 60, 60), (0, 0))]:
        row, column = np.argwhere((image == colour).all(-1)).mean(0)
        assert np.allclose(env.pixels(np.array([[*at, 0, 0]]))[0], (column, row), atol=0.5)
    dark = (image == 60).all(-1)
    # 0.6 are 240 pixels: two walls of 144 x 16 pixels, which share 16 x 16
    assert dark.sum() == 2 * 144 * 16 - 16 * 16
    assert dark[120, 48:192].all()
    assert not dark[120, :48].any()
