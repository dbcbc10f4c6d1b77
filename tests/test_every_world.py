"""Every world is trained for a few seconds, measured, saved and loaded: `pytest tests/test_every_world.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyreward as ar
import anyreward.training as training
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
    world: str, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "GOALS_PLAYED", 4)
    agent = ar.train(world, preset=preset, out=tmp_path, progress=False, **SMALL)
    lines = read_metrics(tmp_path)
    assert [line["updates"] for line in lines] == [40, 80]
    place = agent.world()
    if place.goal_test is not None:
        assert all(0 <= line["success"] <= 1 and line["distance"] > 0 for line in lines)
        scores = agent.reach_goals(goals=4, seed=1)
        assert scores.reached.shape == scores.distance.shape == (4,)
        assert np.isfinite(scores.distance).all()
    again = ar.load(tmp_path)
    assert again.fingerprint == agent.fingerprint
    rows = again.sample.rows
    features = again.features.readable(rows[:1].numpy())[0]
    policy = again.ask(ar.reward(lambda g: np.exp(-((g - features) ** 2).sum(1))))
    assert place.make is not None
    env = place.make()
    episode = ar.rollout(policy, env, max_steps=5)[0]
    assert all(env.action_space.contains(action) for action in episode.actions)
    env.close()
    if world in ("continuous-maze", "ms-pacman"):
        assert ar.resume(tmp_path, updates=120, progress=False).updates == 120
    if world == "ms-pacman":
        assert again.representation.observation_encoder.image == (4, 84, 84)
        place_of = torch.tensor([[85.0, 34.0]])
        assert again.representation.feature_encoder(place_of).tolist() == [[0.5, pytest.approx(0.2)]]
        assert again.features.column_names == ("x", "y")
    if world == "fetch-reach":
        assert again.representation.observation_encoder.width == 10
        assert again.representation.feature_encoder.width == 3
        assert again.representation.feature_encoder.count > 0  # the normalisers are saved with the agent
