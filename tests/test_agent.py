from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.storage.generations import index_hash
from anyreward.storage.metrics import read_metrics

from .conftest import TINY


class GoalWorld(gym.Env[Any, Any]):
    """A point on a line, as a Gymnasium goal environment with a mixed observation."""

    observation_space = gym.spaces.Dict(
        {
            "achieved_goal": gym.spaces.Box(-10, 10, (1,), np.float64),
            "observation": gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.MultiBinary(3)]),
            "speed": gym.spaces.MultiDiscrete([3, 4]),
        }
    )
    action_space = gym.spaces.Discrete(3, start=-1)

    def _observe(self) -> dict[str, Any]:
        parity = np.int64(abs(int(self.x)) % 2)
        bits = np.array([parity, 1, 0], dtype=np.int8)
        return {"achieved_goal": np.array([self.x]), "observation": (parity, bits), "speed": np.array([1, 3])}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = float(self.np_random.integers(-5, 6))
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (-1, 0, 1)
        self.x = float(np.clip(self.x + action, -10, 10))
        return self._observe(), 0.0, abs(self.x) == 10, False, {}


def test_a_saved_agent_answers_identically(agent: ar.Agent, run_folder: Path, tmp_path: Path) -> None:
    files = json.loads((run_folder / "agent.json").read_text())["files"]
    kinds = sorted({name.split("-")[0] for name in files})
    assert kinds == ["replay", "training", "weights"]
    assert {"agent.json", "metrics.jsonl", *files} <= {path.name for path in run_folder.iterdir()}
    again = ar.load(agent.save(tmp_path / "copy"))
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["agent.json", "weights-1.safetensors"]
    assert again.fingerprint == agent.fingerprint == files[weights_of(run_folder).name]
    assert again.settings == agent.settings
    for target in (ar.goal(2, 8) - 0.5 * ar.goal(5, 2), ar.reward(lambda g: -abs(g[:, 0] - 3))):
        ours, theirs = agent.ask(target), again.ask(target)
        assert torch.equal(ours.z, theirs.z)
        assert np.array_equal(ours.q(np.arange(121)), theirs.q(np.arange(121)))
        assert ours.trust == theirs.trust
        assert ours.agent == theirs.agent == agent.fingerprint


def test_covariance_is_saved_and_right(agent: ar.Agent, run_folder: Path) -> None:
    from safetensors.torch import load_file

    saved = load_file(weights_of(run_folder))["sample.covariance"]
    B = agent.model.backward_map(agent.sample.rows).double()
    expected = sum(w * torch.outer(b, b) for w, b in zip(agent.sample.weights, B, strict=True))
    assert torch.allclose(saved, expected)


def test_damaged_folders_are_refused(agent: ar.Agent, tmp_path: Path) -> None:
    with pytest.raises(ar.UserError, match="no agent folder"):
        ar.load(tmp_path / "nowhere")
    with pytest.raises(ar.UserError, match=r"no agent\.json"):
        ar.load(tmp_path)
    folder = agent.save(tmp_path / "agent")
    with pytest.raises(ar.UserError, match="holds an agent already"):
        agent.save(folder)
    content = bytearray(weights_of(folder).read_bytes())
    content[-1] ^= 1
    weights_of(folder).write_bytes(content)
    with pytest.raises(ar.UserError, match="is missing or damaged"):
        ar.load(folder)
    agent.save(folder, overwrite=True)
    (folder / "agent-1.json").unlink()  # the damaged one
    config = json.loads((folder / "agent.json").read_text())
    config["settings"]["dim"] = 13
    (folder / "agent.json").write_text(json.dumps(config))
    with pytest.raises(ar.UserError, match=r"agent\.json is damaged"):
        ar.load(folder)
    write_index(folder, config)
    with pytest.raises(ar.UserError, match="does not fit its weights"):
        ar.load(folder)
    config["settings"]["learning_speed"] = 3
    write_index(folder, config)
    with pytest.raises(ar.UserError, match="no setting 'learning_speed'"):
        ar.load(folder)


def weights_of(folder: Path) -> Path:
    """The file of an agent's weights."""
    files = json.loads((folder / "agent.json").read_text())["files"]
    return folder / next(name for name in files if name.startswith("weights"))


def write_index(folder: Path, config: dict[str, Any]) -> None:
    """Write agent.json as somebody would who knows its checksum."""
    config.pop("sha256", None)
    (folder / "agent.json").write_text(json.dumps({**config, "sha256": index_hash(config)}))


def test_metrics_tell_the_story(run_folder: Path) -> None:
    metrics = read_metrics(run_folder)
    assert [line["updates"] for line in metrics] == [80, 160, 200]
    assert [line["transitions"] for line in metrics] == [400, 800, 1000]
    assert all(0 <= line["quality_worst"] <= line["quality"] <= 1 for line in metrics)
    assert "reward" not in " ".join(metrics[0])


@pytest.mark.parametrize("source", ["CartPole-v1", "Taxi-v4", "Acrobot-v1", "Blackjack-v1"])
def test_gymnasium_worlds_train_by_id(source: str, tmp_path: Path) -> None:
    agent = ar.train(source, out=tmp_path, **{**TINY, "updates": 40})
    again = ar.load(tmp_path)
    env = gym.make(source)
    observation, _ = env.reset(seed=0)
    target = ar.reward(lambda g: g[:, 0])
    assert again.ask(target).act(observation) == agent.ask(target).act(observation)
    assert env.action_space.contains(np.int64(agent.ask(target).act(observation)))


def test_environment_objects_single_and_vector() -> None:
    single = ar.train(GoalWorld(), **TINY)
    assert single.model.phi.kind == "achieved_goal"
    assert single.model.observation_encoder.width == 1 + 2 + 3 + 7 + 2  # the last: whether the episode has ended
    assert single.model.feature_encoder.width == 1 + 2
    vector = gym.vector.SyncVectorEnv([GoalWorld] * 3)
    agent = ar.train(vector, **TINY)
    observation, _ = GoalWorld().reset(seed=0)
    assert agent.ask(ar.goal(4)).act(observation) in (-1, 0, 1)
    batch, _ = vector.reset(seed=0)
    assert agent.ask(ar.goal(4)).act(batch).shape == (3,)
    with pytest.raises(ar.UserError, match="cannot be reopened"):
        agent.exact_mdp()


def test_terminations_are_learned_from() -> None:
    agent = ar.train(GoalWorld(), **{**TINY, "updates": 40}, warmup_steps=2_000)
    place, ended = agent.sample.rows.T
    assert set(place[ended == 1].tolist()) == {-10.0, 10.0}  # terminal states are states
    assert place[ended == 0].abs().max() <= 9


def test_a_users_feature_function(tmp_path: Path) -> None:
    agent = ar.train(GoalWorld(), features=lambda o: np.abs(o["achieved_goal"]), out=tmp_path, **TINY)
    assert agent.model.phi.kind == "function"
    assert agent.sample.rows.min() >= 0
    again = ar.load(tmp_path)
    observation, _ = GoalWorld().reset(seed=0)
    assert again.ask(ar.goal(4)).act(observation) == agent.ask(ar.goal(4)).act(observation)
    with pytest.raises(ar.UserError, match=r"expected \(2, k\)"):
        ar.train(GoalWorld(), features=lambda o: o["achieved_goal"].mean(), **TINY)


def test_unsupported_spaces_are_named() -> None:
    env = GoalWorld()
    env.action_space = gym.spaces.MultiDiscrete([2, 3])
    with pytest.raises(ar.UserError, match=r"action space of GoalWorld is MultiDiscrete.*supported: Discrete, and Box"):
        ar.train(env, **TINY)
    env = GoalWorld()
    env.observation_space = gym.spaces.Dict({"words": gym.spaces.Text(5)})
    with pytest.raises(ar.UserError, match=r"Text.* hold no numbers.*TransformObservation"):
        ar.train(env, **TINY)
    with pytest.raises(ar.UserError, match="'NoSuchWorld-v0' is neither"):
        ar.train("NoSuchWorld-v0", **TINY)
    with pytest.raises(ar.UserError, match="features is 'achieved_goal'"):
        ar.train("CartPole-v1", **TINY, features="achieved_goal")
    with pytest.raises(ar.UserError, match="features is 'bogus'; accepted: auto"):
        ar.train("CartPole-v1", **TINY, features="bogus")


def test_an_existing_agent_is_not_overwritten(run_folder: Path) -> None:
    before = weights_of(run_folder).read_bytes()
    with pytest.raises(ar.UserError, match="holds an agent already"):
        ar.train("four-rooms", out=run_folder, **TINY)
    assert weights_of(run_folder).read_bytes() == before


def test_an_interrupted_run_keeps_what_it_learned(tmp_path: Path) -> None:
    class Impatient(GoalWorld):
        left = 300

        def step(self, action: int) -> Any:
            Impatient.left -= 1
            if Impatient.left == 0:
                raise KeyboardInterrupt
            return super().step(action)

    with pytest.raises(KeyboardInterrupt):
        ar.train(Impatient(), out=tmp_path, **TINY)
    assert 0 < ar.load(tmp_path).updates < 200
    Impatient.left = 1
    with pytest.raises(KeyboardInterrupt):
        ar.train(Impatient(), out=tmp_path, overwrite=True, **TINY)
    assert 0 < ar.load(tmp_path).updates < 200  # this run learned nothing, so what was there stays


def test_divergence_is_an_error_and_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ar.UserError, match=r"diverged.*Lower learning_rate"):
        ar.train("four-rooms", preset="paper", out=tmp_path, learning_rate=1e18, evaluate_every=40, **TINY)
    assert not (tmp_path / "agent.json").exists()
    with pytest.raises(ar.UserError, match="diverged"):  # however seldom it is looked at
        ar.train("four-rooms", preset="paper", out=tmp_path, learning_rate=1e18, evaluate_every=10_000, **TINY)
    assert not (tmp_path / "agent.json").exists()


def test_a_run_that_cannot_begin_leaves_the_old_one_alone(tmp_path: Path) -> None:
    ar.train("four-rooms", out=tmp_path, **TINY)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ar.UserError, match="replay buffer is empty"):
        ar.train("four-rooms", out=tmp_path, overwrite=True, **(TINY | {"warmup_steps": 0, "steps_per_cycle": 0}))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(ar.UserError, match="which is a file"):
        ar.train("four-rooms", out=tmp_path / "agent.json", **TINY)


def test_colour_images_say_what_to_wrap() -> None:
    class Screen(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (210, 160, 3), np.uint8)
        action_space = gym.spaces.Discrete(2)

    with pytest.raises(ar.UserError, match="FrameStackObservation"):
        ar.train(Screen(), features=lambda x: x[:, 0, 0], **TINY)


def test_a_drawing_as_text_and_loading_leaves_the_generator_alone(tmp_path: Path) -> None:
    agent = ar.train("...\n.#.\n...", out=tmp_path, **TINY)
    assert agent.exact_mdp().states == 8
    torch.manual_seed(0)
    expected = torch.randn(2)
    torch.manual_seed(0)
    ar.load(tmp_path)
    assert torch.equal(torch.randn(2), expected)


def test_data_larger_than_the_replay_is_used_whole(tmp_path: Path) -> None:
    states = np.arange(300) % 100
    np.savez(tmp_path / "d.npz", observations=states, actions=np.zeros(300, int), next_observations=states)
    agent = ar.train(tmp_path / "d.npz", replay_size=50, **TINY)
    assert len(agent.sample.rows) == 100


def test_far_goals_get_a_warning() -> None:
    agent = ar.train("CartPole-v1", **{**TINY, "updates": 40})
    with pytest.warns(UserWarning, match="outside the training data"):
        agent.ask(ar.goal(1e6, 0, 0, 0))


def test_an_agent_of_the_sphere_asks_there() -> None:
    tiny = {"dim": 9, "hidden": 8, "batch_size": 8, "updates": 80, "steps_per_cycle": 1000, "progress": False}
    sphere = ar.train("four-rooms", z_norm="sphere", action_input=True, **tiny)
    target = ar.goal(2, 8) - 0.5 * ar.goal(5, 2)
    policy, double = sphere.ask(target), sphere.ask(2.0 * target)
    assert float(policy.z.norm()) == pytest.approx(3.0, rel=1e-5)
    assert torch.allclose(policy.z, double.z)
    assert double.value([24]) == pytest.approx(2 * policy.value([24]), rel=1e-5)


def test_a_number_that_is_no_state_is_refused() -> None:
    agent = ar.train("four-rooms", **TINY)
    with pytest.raises(ar.UserError, match="accepted: whole numbers from 0 to 120"):
        agent.ask(ar.reward("x")).act(24.7)


def test_a_name_longer_than_a_path_is_refused() -> None:
    with pytest.raises(ar.UserError, match="is neither the name of a world"):
        ar.train("#" * 300)
