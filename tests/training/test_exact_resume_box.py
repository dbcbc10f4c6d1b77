"""A run with continuous actions that is stopped and resumed ends like one that was never stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv

import anyreward as ar
from anyreward.storage.metrics import read_metrics
from anyreward.training import prepare

ACTOR: dict[str, Any] = {
    "landmarks": 0,
    "dim": 8,
    "hidden": 16,
    "batch_size": 16,
    "twin": "min",
    "steps_per_cycle": 24,
    "warmup_steps": 100,
    "action_repeat": 2,
    "z_steps": 10,
    "random_steps": 10,
    "updates": 80,
    "evaluate_every": 40,
}
PROCESSES = "tests/PendulumInAProcess-v0"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "novelty": ("Pendulum-v1", {**ACTOR, "explore": "novel"}),
    "one F": ("Pendulum-v1", {**ACTOR, "twin": "off", "explore": "z", "replay_size": 150}),
    "drawn actions": ("Pendulum-v1", {**ACTOR, "actor": "samples", "action_samples": 4}),
    "actions in B": ("Pendulum-v1", {**ACTOR, "method": "successor-features", "features_include_action": True}),
    "listed torques": ("Pendulum-v1", {"landmarks": 4, "dim": 24, "updates": 120, "steps_per_cycle": 200}),
    "point mass": ("point-mass-maze", {**ACTOR, "evaluate_every": 1_000}),
    "processes": (PROCESSES, {**ACTOR, "environments": 2}),
}


class InAProcess(PendulumEnv):
    """A pendulum that asks for a process of its own."""

    own_process = True


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """The pendulum in a process, and few held-out transitions, which only take time here."""
    gym.register(PROCESSES, entry_point=InAProcess, max_episode_steps=30)
    with pytest.MonkeyPatch.context() as patch:
        for kind in prepare.HELD_OUT:
            patch.setitem(prepare.HELD_OUT, kind, 100)
        yield
    gym.registry.pop(PROCESSES)


@pytest.mark.parametrize("case", CASES)
def test_a_run_in_pieces_is_the_whole_run(case: str, tmp_path: Path) -> None:
    world, changes = CASES[case]
    whole = ar.train(world, out=tmp_path / "whole", progress=False, **changes)
    part = ar.train(world, out=tmp_path / "parts", progress=False, minutes=1e-9, **changes)  # one cycle
    assert part.updates == 40
    while part.updates < whole.updates:
        part = ar.resume(tmp_path / "parts", progress=False, minutes=1e-9)
    assert part.fingerprint == whole.fingerprint == ar.load(tmp_path / "parts").fingerprint
    for one, other in zip(*(read_metrics(tmp_path / name) for name in ("whole", "parts")), strict=True):
        timing = {"seconds", "updates_per_second"}
        assert {k: v for k, v in one.items() if k not in timing} == {k: v for k, v in other.items() if k not in timing}


def test_a_dataset_in_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((2_000, 4)).astype(np.float32)
    columns = {"observations": states[:-1], "next_observations": states[1:], "terminations": rng.random(1_999) < 0.01}
    np.savez(tmp_path / "data.npz", **columns, actions=rng.uniform(-1, 1, (1_999, 2)))
    changes = {name: ACTOR[name] for name in ("landmarks", "dim", "hidden", "batch_size", "twin", "updates")}
    whole = ar.train(tmp_path / "data.npz", out=tmp_path / "whole", progress=False, **changes)
    ar.train(tmp_path / "data.npz", out=tmp_path / "parts", progress=False, minutes=1e-9, **changes)
    part = ar.resume(tmp_path / "parts", source=tmp_path / "data.npz", progress=False)
    assert part.fingerprint == whole.fingerprint
