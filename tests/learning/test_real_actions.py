"""Datasets with real-valued actions: their bounds, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward import Dataset, UserError, open_dataset
from anyreward.model.features import feature_map
from anyreward.worlds.actions import action_set
from tests.learning.test_datasets import NUMBERS, record, save, transitions

RNG = np.random.default_rng(0)
REAL = NUMBERS | {"actions": np.array([[0.5, -1.0], [0.25, 1.0], [-0.5, 0.0]])}
TINY = {"dim": 4, "hidden": 8, "updates": 4, "batch_size": 8, "progress": False}


def refused(source: Any, **options: Any) -> str:
    """The one line with which a dataset is refused."""
    with pytest.raises(UserError) as caught:
        transitions(open_dataset(source, **options))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_real_actions_are_scaled_to_their_bounds(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, **REAL, action_low=-1.0, action_high=np.array([1, 3])))
    low, high = np.array([-1, -1], np.float32), np.array([1, 3], np.float32)
    assert data.action_space == gym.spaces.Box(low, high)
    assert np.array_equal(data.actions, REAL["actions"])  # in the environment's own units
    t = transitions(data)
    assert t.actions.dtype == torch.float32
    assert t.actions.tolist() == [[0.5, -1.0], [0.25, 0.0], [-0.5, -0.5]]


@pytest.mark.parametrize("actions", [np.array([0.5, -1.0, 0.0]), np.array([[0.5], [-1.0], [0.0]], np.float16)])
def test_one_number_for_each_action(tmp_path: Path, actions: Any) -> None:
    data = open_dataset(save(tmp_path, **(REAL | {"actions": actions})))
    assert data.action_space == gym.spaces.Box(-1.0, 1.0, (1,))
    assert transitions(data).actions.tolist() == [[0.5], [-1.0], [0.0]]


def test_without_bounds_they_are_those_of_the_data(tmp_path: Path) -> None:
    unit, wide = (REAL["actions"] * factor for factor in (1 + 1e-6, 3))  # 1 up to rounding is 1
    assert open_dataset(save(tmp_path, **(REAL | {"actions": unit}))).action_space == gym.spaces.Box(-1.0, 1.0, (2,))
    space = open_dataset(save(tmp_path, **(REAL | {"actions": wide}))).action_space
    assert isinstance(space, gym.spaces.Box)
    assert (space.low.tolist(), space.high.tolist()) == ([-1.5, -3], [1.5, 3])


def test_bounds_can_be_given(tmp_path: Path) -> None:
    path = save(tmp_path, **REAL, action_low=-1.0, action_high=1.0)
    data = open_dataset(path, action_low=-2, action_high=[2, 4])
    assert data.action_space == gym.spaces.Box(np.array([-2, -2], np.float32), np.array([2, 4], np.float32))
    assert open_dataset(open_dataset(path), action_low=-2, action_high=[2, 4]).action_space == data.action_space
    for bad in ([1, [2, 3]], "one", {}, [1, 2, 3], np.nan, 1e39, True):
        assert "action_high of" in refused(path, action_low=-1, action_high=bad)
    assert "row 0; accepted: numbers from -0.5 to 0.5" in refused(path, action_low=-0.5, action_high=0.5)
    discrete = open_dataset(save(tmp_path, **NUMBERS))
    assert "only real-valued actions (Box) have bounds" in refused(discrete, action_low=0, action_high=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"action_low": 0.0, "action_high": 1.0},
            "has -1.0 in row 0; accepted: numbers from 0 to 1. If they are right",
        ),
        ({"action_low": 0.0}, "action_high of .* is missing; expected finite numbers, one or (2,)"),
        ({"action_low": np.zeros(3), "action_high": 1.0}, "expected finite numbers, one or (2,)"),
        ({"action_low": -np.inf, "action_high": 1.0}, "action_low of"),
        ({"action_low": np.array("a"), "action_high": 1.0}, "action_low of"),
        ({"action_low": 2.0, "action_high": np.array([3, 1])}, "action_low of .* has 2.0 in row 1; accepted: at most"),
        ({"actions": np.array([[0.5, 0], [np.nan, 0], [0, 0]])}, "actions of .* has nan in row 1; accepted: finite"),
        ({"actions": np.array([[0.5, 0], [0, 0], [0, np.inf]])}, "actions of .* has inf in row 2"),
        ({"actions": np.array([[0.5, 0], [0, 0], [0, -1e39]])}, "actions of .* has -1e+39 in row 2"),
        ({"actions": np.zeros((3, 2, 2))}, "shape (3, 2, 2) and type float64; expected (n,) whole numbers"),
        ({"actions": np.zeros((3, 0))}, "shape (3, 0)"),
        ({"actions": np.zeros((3, 2), complex)}, "type complex128; expected (n,) whole numbers"),
        ({"n_actions": 3}, "has n_actions, and actions of the type float64. Save numbered actions as integers"),
        ({"actions": np.arange(3), "action_low": 0, "action_high": 2}, "Save real-valued actions as floats"),
    ],
)
def test_bad_real_actions(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    found = refused(save(tmp_path, **(REAL | changes)))
    assert all(part in found for part in message.split(".*")), found


def test_numbers_of_actions_that_were_saved_as_floats_are_not_taken_for_real_values(tmp_path: Path) -> None:
    path = save(tmp_path, **(REAL | {"actions": np.array([[0.0], [1.0], [0.0]])}))
    assert "holds whole numbers only. Save the numbers of actions as integers" in refused(path)
    assert open_dataset(path, action_low=0, action_high=1).action_space == gym.spaces.Box(0.0, 1.0, (1,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"actions": np.array([[0, 0], [0, 2.0001], [0, 0]])}, "has 2.0001 in row 1; accepted: numbers from -2 to 2"),
        ({"actions": np.array([[0, 0], [0, 2.00001], [0, 0]])}, ""),
        ({"actions": np.array([[0, 0], [0, np.nan], [0, 0]])}, "has nan in row 1; .*Leave out such rows"),
        ({"actions": np.zeros((3, 3))}, "expected numbers of shape (3, 2)"),
        ({"actions": np.zeros(3)}, "expected numbers of shape (3, 2)"),
        ({"action_space": gym.spaces.Box(-np.inf, 1.0, (2,))}, "without finite bounds; .*action_low"),
        ({"action_space": gym.spaces.Box(-1.0, 1.0, (0,)), "actions": np.zeros((3, 0))}, "at least one number"),
        ({"action_space": gym.spaces.MultiDiscrete([2, 2])}, "supported: Discrete, and Box"),
    ],
)
def test_real_actions_in_memory(changes: dict[str, Any], message: str) -> None:
    columns = {"observations": np.arange(3), "actions": np.zeros((3, 2)), "next_observations": np.arange(3)}
    spaces = {"observation_space": gym.spaces.Discrete(3), "action_space": gym.spaces.Box(-2.0, 2.0, (2,))}
    given: dict[str, Any] = {"name": "mine", "terminated": np.zeros(3, bool)} | spaces | columns | changes
    if not message:
        assert transitions(Dataset(**given)).actions.shape == (3, 2)
        return
    with pytest.raises(UserError) as caught:
        Dataset(**given)
    assert all(part in str(caught.value) for part in message.split(".*"))


def test_actions_of_any_shape_and_a_last_action_in_terminal_states() -> None:
    rows = RNG.uniform(-2, 2, (40, 2, 3))
    observations, ends = RNG.random((40, 1)).astype(np.float32), np.arange(40) % 10 == 9
    spaces = (gym.spaces.Box(0, 1, (1,)), gym.spaces.Box(-2.0, 2.0, (2, 3)))
    data = Dataset("mine", *spaces, observations, rows, observations, ends)
    phi = feature_map("auto", data.observation_space, action_set(data.action_space))
    assert np.allclose(data.transitions(phi).actions.numpy(), rows.reshape(40, 6) / 2)
    with_ends = data.transitions(replace(phi, ends=True))
    assert with_ends.actions.shape == (44, 6)
    assert with_ends.terminated.tolist() == [False] * 40 + [True] * 4
    assert with_ends.actions[40:].unique().numel() == 24  # arbitrary ones


def test_training_from_real_actions(tmp_path: Path) -> None:
    x = RNG.uniform(-1, 1, (300, 2))
    actions = RNG.uniform(-3, 3, (300, 2))
    arrays = {"observations": x, "actions": actions, "next_observations": np.clip(x + 0.03 * actions, -1, 1)}
    path = save(tmp_path, **arrays, action_low=-3, action_high=3)
    agent = ar.train(path, out=tmp_path / "run", **TINY)
    for each in (agent, ar.load(tmp_path / "run")):
        action = each.ask(ar.goal(0.9, 0.9)).act(np.zeros(2))
        assert np.shape(action) == (2,)
        assert (abs(np.asarray(action)) <= 3).all()


class Pushed(gym.Env[Any, Any]):
    """One number, which the action is added to; its bounds are wider than those of the space of actions."""

    observation_space = gym.spaces.Box(-99, 99, (1,), np.float32)
    action_space = gym.spaces.Box(-np.inf, np.inf, (2, 1), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.sum(action, axis=0), 0.0, False, False, {}


def test_minari_without_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    stepped = record(Pushed(), "pushed-v0", 12)
    assert "without finite bounds; actions are scaled to them. Give" in refused("minari:pushed-v0")
    assert "actions of episode 0 of minari:pushed-v0 has" in refused("minari:pushed-v0", action_low=0, action_high=1e-3)
    data = open_dataset("minari:pushed-v0", action_low=-20, action_high=[[20], [20]])
    assert data.action_space == gym.spaces.Box(-20.0, 20.0, (2, 1))
    actions = np.array([action for _, action, _, _ in stepped])
    assert np.array_equal(data.actions, actions)
    assert np.allclose(transitions(data).actions.numpy(), actions.reshape(12, 2) / 20, atol=1e-6)
