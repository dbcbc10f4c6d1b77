"""Ms. Pacman on the real emulator."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import anyreward as ar
from anyreward.errors import UserError
from anyreward.figures.films import unbroken
from anyreward.worlds.ms_pacman import ACTION_NAMES, SIDE, TOP, MsPacmanEnv, goals, shrink

Array = np.ndarray[Any, Any]
YELLOW = (210, 164, 74)
"""The colour of Ms. Pacman, and of nothing else in the maze."""


def game() -> MsPacmanEnv:
    env = gym.make("anyreward/MsPacman-v0").unwrapped
    assert isinstance(env, MsPacmanEnv)
    return env


def test_the_environment_checks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checker remarks on what is meant, such as a space that is not an image
        check_env(game(), skip_render_check=True)


def test_one_seed_one_game() -> None:
    def play(seed: int) -> list[Array]:
        env, rng = game(), np.random.default_rng(seed)
        first, _ = env.reset(seed=seed)
        steps = [env.step(rng.integers(5))[0] for _ in range(20)]
        return [o[key] for o in (first, *steps) for key in sorted(o)]

    for ours, theirs in zip(play(3), play(3), strict=True):
        assert np.array_equal(ours, theirs)
    assert any(not np.array_equal(a, b) for a, b in zip(play(3), play(4), strict=True))


def test_a_later_game_begins_like_the_first() -> None:
    env = game()
    first, _ = env.reset(seed=0)
    there = [env.step(np.int64(3))[0]["observation"] for _ in range(5)]
    again, _ = env.reset()
    assert np.array_equal(first["observation"], again["observation"])
    assert all(np.array_equal(o, env.step(np.int64(3))[0]["observation"]) for o in there)


def test_position_follows_the_sprite() -> None:
    """What the game's memory says is where the yellow pixels are."""
    env = game()
    env.render_mode = "rgb_array"
    env.reset(seed=0)
    rng, seen = np.random.default_rng(0), []
    for _ in range(40):
        _, _, lost, _, _ = env.step(rng.integers(5))
        if lost:
            break
        screen = env.render()
        assert screen is not None
        y, x = np.nonzero((screen[:TOP] == YELLOW).all(2))
        seen.append(env.position)
        assert np.abs(env.position - (x.mean(), y.mean())).max() < 2.5
    assert np.ptp(np.array(seen), axis=0).max() > 20


def test_actions_move_as_named() -> None:
    env = game()

    def after(*names: str) -> Array:
        for name in names:
            env.step(np.int64(ACTION_NAMES.index(name)))
        return env.position

    env.reset(seed=0)
    before = env.position  # in a corridor
    assert after(*["left"] * 4)[0] < before[0]
    assert env.position[1] == before[1]
    steps = 0
    while after("up")[1] == before[1]:  # she goes on to the left until a way leads up
        steps += 1
        assert steps < 10
    lower = env.position
    upper = after("up")
    assert upper[1] < lower[1]
    assert upper[0] == lower[0]
    assert after("down", "down")[1] > upper[1]
    env.reset(seed=0)
    assert after(*["right"] * 4)[0] > before[0]
    assert env.position[1] == before[1]


def test_frames_of_consecutive_states_overlap_in_one() -> None:
    env = game()
    before, _ = env.reset(seed=0)
    assert len(np.unique(before["observation"], axis=0)) == 1
    for action in (3, 3, 1, 2):
        after = env.step(np.int64(action))[0]
        assert np.array_equal(after["observation"][0], before["observation"][3])
        assert not np.array_equal(after["observation"][1], after["observation"][3])
        before = after


def test_a_lost_life_terminates() -> None:
    env, rng, lost = game(), np.random.default_rng(0), False
    env.reset(seed=0)
    last = before = env.reset(seed=0)[0]
    for _ in range(500):
        before = last
        last, _, lost, _, _ = env.step(rng.integers(5))
        if lost:
            break
    assert lost
    assert env.game.lives() == 2
    assert np.abs(env.position - (80, 104)).max() < 3  # the game has put her back to the start ...
    assert np.abs(last["achieved_goal"] - before["achieved_goal"]).max() < 20  # ... but that is where she was
    assert np.abs(last["achieved_goal"] - env.position).max() > 5


def test_shrinking_averages_areas() -> None:
    screen = np.random.default_rng(0).integers(0, 256, (210, 160), dtype=np.uint8)

    def overlaps(pixels: int) -> Array:
        """(84, pixels) how much of each old pixel is in each new one."""
        return np.repeat(np.eye(pixels), SIDE, axis=1).reshape(pixels, SIDE, pixels).mean(2).T  # each in 84 slices

    expected = overlaps(TOP) @ screen[:TOP] @ overlaps(160).T
    assert np.abs(shrink(screen) - expected).max() <= 0.5 + 1e-6
    assert (shrink(np.full((210, 160), 7, dtype=np.uint8)) == 7).all()


def test_every_goal_can_be_reached_alive() -> None:
    """Breadth first through the game itself, from place to place, no longer than an episode."""
    env, near = game(), 5
    env.reset(seed=0)
    for _ in range(2):  # she does not move at once
        env.step(np.int64(0))
    states, seen, left = [env.game.cloneState()], {tuple(env.position // near)}, goals()
    for _ in range(48):
        following = []
        for state in states:
            for action in range(1, 5):
                env.game.restoreState(state)
                if env.step(np.int64(action))[2]:
                    continue
                place = tuple(env.position // near)
                left = left[np.abs(left - env.position).max(1) > 6]
                if place not in seen:
                    seen.add(place)
                    following.append(env.game.cloneState())
        states = following
        if len(left) == 0:
            break
    assert len(left) == 0, f"not reached: {left.tolist()}"
    assert len(goals()) == 144


def test_goal_is_given_or_drawn() -> None:
    env = game()
    assert np.array_equal(env.reset(options={"goal": (11, 7)})[0]["desired_goal"], (11, 7))
    with pytest.raises(UserError, match="expected x and y from 0 to 170"):
        env.reset(options={"goal": (11, 700)})
    test = env.goal_test
    rng = np.random.default_rng(0)
    assert len(np.unique(test.draw(rng, 5_000), axis=0)) == 144
    assert test.reached(np.array([[10.0, 13.0], [10, 14]]), np.array([[11.0, 7.0]] * 2)).tolist() == [True, False]


def test_world_by_name() -> None:
    world = ar.open_world("ms-pacman")
    assert world.settings["gamma"] == 0.9
    assert world.frames_per_step == 3
    assert world.feature_names == ("x", "y")


def test_a_path_is_not_drawn_through_a_tunnel() -> None:
    way = np.array([[10.0, 50.0], [4.0, 50.0], [156.0, 50.0], [150.0, 50.0]])
    assert [part.tolist() for part in unbroken(way, 160)] == [way[:2].tolist(), way[2:].tolist()]
    assert [len(part) for part in unbroken(way[:1], 160)] == [1]
