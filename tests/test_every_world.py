"""Every world is trained for a few seconds, measured, saved and loaded: `pytest tests/test_every_world.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyreward as ar
import anyreward.training.watch as watch
from anyreward.cli import main
from anyreward.storage.metrics import read_metrics
from anyreward.worlds.world import NAMED

SMALL: dict[str, Any] = {
    "dim": 16,
    "hidden": 32,
    "batch_size": 32,
    "updates": 80,
    "evaluate_every": 40,
    "steps_per_cycle": 24,
}


@pytest.mark.parametrize(
    ("world", "preset"), [*((name, "fast") for name in [*NAMED, "CartPole-v1"]), ("continuous-maze", "paper")]
)
def test_a_world_from_training_to_an_answer(
    world: str, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "GOALS_PLAYED", 4)
    agent = ar.train(world, preset=preset, out=tmp_path, progress=False, **SMALL)
    lines = read_metrics(tmp_path)
    assert [line["updates"] for line in lines] == [40, 80]
    place = agent.world()
    if place.goal_test is not None:
        assert all(0 <= line["success"] <= 1 and line["distance"] > 0 for line in lines)
        scores = agent.reach_goals(goals=4, seed=1)
        assert scores.reached.shape == scores.distance.shape == (4,)
        assert np.isfinite(scores.distance).all()
        assert main(["evaluate", str(tmp_path), "--goals", "4", "--seed", "1"]) == 0
        assert f"{scores.distance.mean():.3g}" in capsys.readouterr().out
        assert main(["ask", str(tmp_path), "--goal", visited(agent), "--figure", "a.png"]) == 0
        assert Path("a.png").stat().st_size > 10_000
    again = ar.load(tmp_path)
    assert again.fingerprint == agent.fingerprint
    rows = again.sample.rows
    features = again.model.phi.readable(rows[:1].numpy())[0]
    policy = again.ask(ar.reward(lambda g: np.exp(-((g - features) ** 2).sum(1))))
    trust = policy.trust
    assert (trust.predicted is None) == (world == "ms-pacman")  # whose held-out images are few
    assert trust.residual is not None
    assert trust.residual > 0
    assert place.make is not None
    env = place.make()
    episode = ar.rollout(policy, env, max_steps=5)[0]
    assert all(env.action_space.contains(action) for action in episode.actions)
    env.close()
    if world in ("continuous-maze", "ms-pacman"):
        assert ar.resume(tmp_path, updates=120, progress=False).updates == 120
        collected = [line["transitions"] for line in read_metrics(tmp_path)]
        assert collected == sorted(collected)  # also where the replay was not kept
    if world == "ms-pacman":
        assert (
            main(["ask", str(tmp_path), "--goal", visited(agent), "--avoid", visited(agent, 5), "--video", "film.gif"])
            == 0
        )
        assert Path("film.gif").read_bytes()[:3] == b"GIF"
        with pytest.raises(ar.UserError, match="Lower replay_size"):
            ar.train(world, replay_size=10**9)
        file = tmp_path / "frames"
        ar.train(world, replay_file=str(file), progress=False, **(SMALL | {"updates": 4, "evaluate_every": 100}))
        assert not file.exists()
        assert again.model.observation_encoder.image == (4, 84, 84)
        place_of = torch.tensor([[85.0, 34.0]])
        assert again.model.feature_encoder(place_of).tolist() == [[0.5, pytest.approx(0.2)]]
        assert again.model.phi.column_names == ("x", "y")
    if world == "fetch-reach":
        assert again.model.observation_encoder.width == 10
        assert again.model.feature_encoder.width == 3
        assert again.model.feature_encoder.count > 0  # the normalisers are saved with the agent


def visited(agent: ar.Agent, row: int = 0) -> str:
    """The features of some place that training has seen, as one would type them."""
    return ",".join(f"{x}" for x in agent.sample.rows[row].tolist())


@pytest.mark.parametrize("method", ["goal-dqn-her", "successor-features"])
@pytest.mark.parametrize("world", ["fetch-reach", "ms-pacman"])
def test_baselines_learn_there_too(world: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "GOALS_PLAYED", 4)
    small = {**SMALL, "updates": 40, "warmup_steps": 60, "environments": 2}
    agent = ar.train(world, method=method, out=tmp_path, progress=False, **small)
    assert [line["updates"] for line in read_metrics(tmp_path)] == [40]
    assert agent.reach_goals(goals=4, seed=1).reached.shape == (4,)
    again = ar.load(tmp_path)
    features = again.model.phi.readable(again.sample.rows[:1].numpy())[0]
    policy = again.ask(ar.goal(features.tolist()))
    place = again.world()
    assert place.make is not None
    assert len(ar.rollout(policy, place.make(), max_steps=5)[0].actions) == 5
