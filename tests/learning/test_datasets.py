from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
import torch
from minari.data_collector import EpisodeBuffer

import anyreward as ar
from anyreward import Dataset, UserError, open_dataset
from anyreward.learning.datasets import is_dataset
from anyreward.learning.replay import Transitions
from anyreward.model.features import feature_map
from anyreward.worlds.actions import action_set

STATES = {
    "observations": np.array([0, 1, 4]),
    "actions": np.array([1, 0, 2]),
    "next_observations": np.array([1, 4, 4]),
    "terminations": np.array([False, False, True]),
}
NUMBERS = STATES | {
    "observations": np.arange(12, dtype=np.float64).reshape(3, 2, 2),
    "next_observations": np.arange(12, dtype=np.float64).reshape(3, 2, 2) + 4,
}


def save(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def transitions(data: Dataset) -> Transitions:
    return data.transitions(feature_map("auto", data.observation_space, action_set(data.action_space)))


def test_states_round_trip(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, **STATES))
    assert (data.name, data.observation_space) == ("data", gym.spaces.Discrete(5))
    assert data.action_space == gym.spaces.Discrete(3)
    t = transitions(data)
    assert t.observations.tolist() == [[0], [1], [4]]
    assert t.actions.tolist() == [1, 0, 2]
    assert t.next_observations.tolist() == [[1], [4], [4]]
    assert t.terminated.tolist() == [False, False, True]
    assert torch.equal(t.features, t.observations)
    assert [c.dtype for c in t.columns.values()] == [
        torch.float32,
        torch.int64,
        torch.float32,
        torch.bool,
        torch.float32,
    ]


def test_numbers_round_trip(tmp_path: Path) -> None:
    data = open_dataset(str(save(tmp_path, **NUMBERS)))
    assert isinstance(data.observation_space, gym.spaces.Box)
    assert data.observation_space.shape == (4,)
    t = transitions(data)
    assert t.observations.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert torch.equal(t.next_observations, t.observations + 4)


def test_terminations_are_optional_and_sizes_can_be_given(tmp_path: Path) -> None:
    arrays = {key: STATES[key] for key in ("observations", "actions", "next_observations")}
    data = open_dataset(save(tmp_path, **arrays, n_states=9, n_actions=7))
    assert (data.observation_space, data.action_space) == (gym.spaces.Discrete(9), gym.spaces.Discrete(7))
    assert not transitions(data).terminated.any()


@pytest.mark.parametrize("rewards", [np.full(3, np.nan), np.arange(99), np.array(["?", "!"]), np.array([{}, print])])
def test_rewards_are_not_read(tmp_path: Path, rewards: Any) -> None:
    plain = transitions(open_dataset(save(tmp_path, **STATES)))
    with_rewards = transitions(open_dataset(save(tmp_path, **STATES, rewards=rewards, reward=rewards)))
    assert all(torch.equal(a, b) for a, b in zip(plain.columns.values(), with_rewards.columns.values(), strict=True))


def test_other_keys_are_not_read(tmp_path: Path) -> None:
    infos = np.array([{"a": 1}, {}, {}])
    t = transitions(open_dataset(save(tmp_path, **STATES, infos=infos, truncations=np.ones(8))))
    assert t.terminated.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": None}, r"lacks actions; it has next_observations, observations, terminations.*Keys:"),
        ({"observations": None, "next_observations": None}, "lacks observations, next_observations"),
        ({"observations": np.arange(4)}, "observations of .* has 4 rows, actions has 3"),
        ({"next_observations": np.arange(2)}, "next_observations of .* has 2 rows, actions has 3"),
        ({"terminations": np.zeros(5, bool)}, "terminations of .* has 5 rows, actions has 3"),
        ({"terminations": np.zeros((3, 1), bool)}, r"terminations of .*\(3, 1\)"),
        ({key: value[:0] for key, value in STATES.items()}, "no transitions"),
        ({"next_observations": np.zeros((3, 2))}, r"differ in shape: \(3,\) and \(3, 2\)"),
        ({"next_observations": np.array([0.5, 1.0, 2.0])}, "next_observations"),
        ({"observations": np.array(list("abc")), "next_observations": np.array(list("abc"))}, "observations"),
        ({"actions": np.array([0.0, 1.0, 2.0])}, r"actions of .*float64, but holds whole numbers.*Save the numbers"),
        ({"actions": np.zeros((3, 2), int)}, r"shape \(3, 2\).*expected \(n,\)"),
        ({"actions": np.array([True, False, True])}, r"type bool; expected \(n,\) whole numbers"),
        ({"actions": np.array(2)}, r"actions of .*shape \(\)"),
        ({"actions": np.array([0, -1, 1])}, "whole numbers from 0"),
        ({"n_actions": 2}, "n_actions of .* is 2, but an action 2 occurs"),
        ({"n_states": 4}, "from 0 to n_states - 1 = 3"),
        ({"observations": np.array([0, -1, 1])}, "from 0 to"),
        ({"observations": np.array([{}, {}, {}])}, "not a readable .npz of plain arrays"),
    ],
)
def test_what_is_no_dataset(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arrays = {key: value for key, value in (STATES | changes).items() if value is not None}
    with pytest.raises(UserError, match=f"(?s){message}"):
        open_dataset(save(tmp_path, **arrays))


@pytest.mark.parametrize("damage", ["empty", "text", "half", "flipped", "npy"])
def test_a_file_that_is_no_npz(tmp_path: Path, damage: str) -> None:
    path = save(tmp_path, **STATES)
    content = path.read_bytes()
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, STATES["actions"])
    else:
        flipped = content[:140] + bytes([content[140] ^ 255]) + content[141:]
        path.write_bytes(
            {"empty": b"", "text": b"hello", "half": content[: len(content) // 2], "flipped": flipped}[damage]
        )
    with pytest.raises(UserError, match=r"data\.npz is not a readable \.npz"):
        open_dataset(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no dataset at .*none\.npz"):
        open_dataset(tmp_path / "none.npz")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("key", ["observations", "next_observations"])
def test_numbers_that_are_not_finite_are_found_by_row(tmp_path: Path, key: str, bad: float) -> None:
    values = NUMBERS[key].copy()
    values[1, 0, 1] = bad
    values[2] = bad
    data = open_dataset(save(tmp_path, **(NUMBERS | {key: values})))
    with pytest.raises(UserError, match=rf"^The {key.replace('_', ' ')} of dataset data .*first in row 1"):
        transitions(data)


def test_what_names_a_dataset(tmp_path: Path) -> None:
    assert is_dataset("x.npz")
    assert is_dataset(Path("x.npz"))
    assert is_dataset("minari:a/b-v0")
    assert not is_dataset("four-rooms")
    assert not is_dataset(tmp_path)
    assert not is_dataset(gym.make("CartPole-v1"))
    data = open_dataset(save(tmp_path, **STATES))
    assert is_dataset(data)
    assert open_dataset(data) is data


def record(env: gym.Env[Any, Any], dataset_id: str, steps: int) -> list[tuple[Any, Any, Any, bool]]:
    """Make a Minari dataset of uniform actions; what was stepped, as (s, a, s', terminated)."""
    space, stepped, episodes = env.observation_space, [], []
    env.action_space.seed(0)
    while len(stepped) < steps:
        observation, _ = env.reset(seed=len(stepped))
        observations, actions, ends = [observation], [], []
        while len(stepped) < steps and not (ends and any(ends[-1])):
            actions.append(env.action_space.sample())
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            observations.append(observation)
            ends.append((terminated, truncated))
            stepped.append((observations[-2], actions[-1], observation, terminated))
        empty = gym.vector.utils.create_empty_array(space, len(observations))
        batch = gym.vector.utils.concatenate(space, observations, empty)
        terminations, truncations = (list(flags) for flags in zip(*ends, strict=True))
        truncations[-1] = not terminations[-1]
        rewards = [0.0] * len(actions)
        episodes.append(EpisodeBuffer(len(episodes), None, None, batch, actions, rewards, terminations, truncations))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* None", UserWarning)  # Minari asks for author, environment, ...
        minari.create_dataset_from_buffers(dataset_id, episodes, observation_space=space, action_space=env.action_space)
    return stepped


@pytest.mark.parametrize(("name", "steps"), [("anyreward/FourRooms-v0", 130), ("CartPole-v1", 150)])
def test_minari_gives_back_what_was_stepped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, steps: int
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gym.make(name)
    stepped = record(env, "test/uniform-v0", steps)
    folder = tmp_path / "test" / "uniform-v0"
    assert is_dataset(folder)
    for source in ("minari:test/uniform-v0", folder, str(folder)):
        data = open_dataset(source)
        assert (data.observation_space, data.action_space) == (env.observation_space, env.action_space)
        t = transitions(data)
        assert len(t.actions) == steps
        before, actions, after, terminated = (np.array(column) for column in zip(*stepped, strict=True))
        assert np.array_equal(t.observations.numpy(), before.reshape(steps, -1))
        assert np.array_equal(t.actions.numpy(), actions)
        assert np.array_equal(t.next_observations.numpy(), after.reshape(steps, -1))
        assert np.array_equal(t.terminated.numpy(), terminated)
        assert t.terminated.any() == (name == "CartPole-v1")  # the maze only truncates


class Offset(gym.Env[Any, Any]):
    """Dict observations, actions from 5, each step a termination."""

    observation_space = gym.spaces.Dict({"a": gym.spaces.Discrete(9), "b": gym.spaces.Box(-9, 9, (2,), np.float32)})
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"a": np.int64(0), "b": np.zeros(2, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {"a": np.int64(action), "b": np.full(2, -action, np.float32)}, 0.0, True, False, {}


def test_minari_with_nested_observations_and_shifted_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    stepped = record(Offset(), "offset-v0", 12)
    t = transitions(open_dataset("minari:offset-v0"))
    actions = torch.tensor([a for _, a, _, _ in stepped])
    assert torch.equal(t.actions, actions - 5)
    assert not t.observations.any()
    assert torch.equal(t.next_observations, torch.stack([actions, -actions, -actions], 1).float())
    assert t.terminated.all()


def test_minari_without_such_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for source in ("minari:none-v0", str(tmp_path / "none")):
        with pytest.raises(UserError, match=f"Minari cannot read {source}"):
            open_dataset(source)


def test_minari_with_real_valued_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gym.make("Pendulum-v1")
    before, actions, after, _ = (np.array(column) for column in zip(*record(env, "pendulum-v0", 210), strict=True))
    data = open_dataset("minari:pendulum-v0")
    assert (data.observation_space, data.action_space) == (env.observation_space, env.action_space)
    assert np.array_equal(data.actions, actions)
    t = transitions(data)
    assert t.actions.dtype == torch.float32
    assert np.allclose(t.actions.numpy(), actions / 2, atol=1e-6)  # the torque is between -2 and 2
    assert np.array_equal(t.observations.numpy(), before)
    assert np.array_equal(t.next_observations.numpy(), after)


def test_a_table_of_coordinates(tmp_path: Path) -> None:
    places = np.array([[i % 3, i // 3] for i in range(6)])
    data = open_dataset(save(tmp_path, **STATES, feature_table=places, feature_names=np.array(["x", "y"])))
    assert data.observation_space == gym.spaces.Discrete(6)  # one more than in the data
    assert data.feature_names == ("x", "y")
    agent = ar.train(data, updates=40, progress=False, out=tmp_path / "run")
    by_number = agent.ask(ar.goal(4)).z
    for each in (agent, ar.load(tmp_path / "run")):
        assert torch.equal(each.ask(ar.goal(1, 1)).z, by_number)
        assert each.ask(ar.reward("x + y")).z.any()
    unnamed = open_dataset(save(tmp_path, **STATES, feature_table=places))
    assert unnamed.feature_names is None
    assert torch.equal(ar.train(unnamed, updates=40, progress=False).ask(ar.goal(1, 1)).z, by_number)


def test_names_of_numbers(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, **NUMBERS, feature_names=np.array(list("abcd"))))
    agent = ar.train(data, landmarks=0, dim=4, hidden=8, updates=4, progress=False)
    assert agent.model.phi.column_names == ("a", "b", "c", "d", "ended")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (STATES | {"feature_table": np.zeros((4, 2))}, r"n_states - 1 = 3"),
        (STATES | {"feature_table": np.zeros((6, 2)), "n_states": 7}, r"shape \(6, 2\).*each of the 7 states"),
        (STATES | {"feature_table": np.zeros(6)}, r"shape \(6,\).*expected finite numbers \(6, k\)"),
        (STATES | {"feature_table": np.full((6, 1), np.nan)}, "finite"),
        (NUMBERS | {"feature_table": np.zeros((6, 2))}, "needs observations that are states"),
        (STATES | {"feature_table": np.zeros((6, 2)), "feature_names": np.array(["x"])}, "expected 2 different texts"),
        (NUMBERS | {"feature_names": np.array(list("abca"))}, "expected 4 different texts"),
        (NUMBERS | {"feature_names": np.arange(4)}, "type int64; expected 4 different texts"),
    ],
)
def test_names_and_tables_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_dataset(save(tmp_path, **arrays))


def test_coordinates_without_a_table_name_the_remedy(tmp_path: Path) -> None:
    arrays = {key: value for key, value in STATES.items() if key != "terminations"}
    agent = ar.train(save(tmp_path, **arrays), updates=40, progress=False)
    remedy = r"by their number only.*feature_table.*key of the \.npz"
    with pytest.raises(UserError, match=rf"has 2 numbers; this agent's features have 1 number \(f0\).*{remedy}"):
        agent.ask(ar.goal(2, 8))
    agent = ar.train(save(tmp_path, **STATES), updates=40, progress=False)
    assert agent.model.phi.include_action  # so that the second number is an action
    with pytest.raises(UserError, match=rf"action is 8, which is out of range.*from 0 to 2\..*{remedy}"):
        agent.ask(ar.goal(2, 8))
