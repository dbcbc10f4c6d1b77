"""A run that is stopped and resumed ends like one that was never stopped."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import anyreward as ar
import anyreward.training.watch as watch
from anyreward.storage.metrics import read_metrics

NETWORKS: dict[str, Any] = {
    "dim": 8,
    "hidden": 16,
    "batch_size": 16,
    "steps_per_cycle": 24,
    "warmup_steps": 60,
    "updates": 200,
    "evaluate_every": 80,
}
TABLES: dict[str, Any] = {"updates": 200}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "tables": ("four-rooms", TABLES),
    "networks": ("four-rooms", {**NETWORKS, "landmarks": 0}),
    "paper": ("four-rooms", {**NETWORKS, "preset": "paper"}),
    "successor features": ("four-rooms", {**NETWORKS, "method": "successor-features"}),
    "goal-dqn": ("continuous-maze", {**NETWORKS, "method": "goal-dqn-her"}),
    "greedy exploration of tables": ("four-rooms", {**TABLES, "exploration": 0.2}),
    "ends": ("FrozenLake-v1", TABLES),
    "numbers": ("MountainCar-v0", {"updates": 120, "steps_per_cycle": 300}),
    "a replay buffer that wraps around": ("CartPole-v1", {**NETWORKS, "steps_per_cycle": 200, "replay_size": 500}),
    "robot": ("fetch-reach", {**NETWORKS, "environments": 2, "updates": 80, "evaluate_every": 1_000}),
    "pixels": ("ms-pacman", {**NETWORKS, "environments": 2, "updates": 80, "evaluate_every": 1_000}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_in_pieces_is_the_whole_run(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "GOALS_PLAYED", 2)
    world, changes = CASES[case]
    whole = ar.train(world, out=tmp_path / "whole", progress=False, **changes)
    part = ar.train(world, out=tmp_path / "parts", progress=False, minutes=1e-9, **changes)  # one cycle
    assert part.updates == 40
    while part.updates < whole.updates:
        part = ar.resume(tmp_path / "parts", progress=False, minutes=1e-9)
    assert part.fingerprint == whole.fingerprint
    for one, other in zip(*(read_metrics(tmp_path / name) for name in ("whole", "parts")), strict=True):
        timing = {"seconds", "updates_per_second"}
        assert {k: v for k, v in one.items() if k not in timing} == {k: v for k, v in other.items() if k not in timing}


def test_a_dataset_in_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((3_000, 4)).astype(np.float32)
    columns = {"observations": states[:-1], "actions": rng.integers(3, size=2_999), "next_observations": states[1:]}
    np.savez(tmp_path / "data.npz", **columns, terminations=np.zeros(2_999, dtype=bool))
    changes = {name: NETWORKS[name] for name in ("dim", "hidden", "batch_size", "updates")}
    whole = ar.train(tmp_path / "data.npz", out=tmp_path / "whole", progress=False, **changes)
    ar.train(tmp_path / "data.npz", out=tmp_path / "parts", progress=False, minutes=1e-9, **changes)
    part = ar.resume(tmp_path / "parts", source=tmp_path / "data.npz", progress=False)
    assert part.fingerprint == whole.fingerprint


def test_saves_do_not_change_a_run(tmp_path: Path) -> None:
    often = ar.train("FrozenLake-v1", out=tmp_path / "often", save_every=1e-9, progress=False, **TABLES)
    assert often.fingerprint == ar.train("FrozenLake-v1", progress=False, **TABLES).fingerprint


def test_a_save_costs_what_is_new(tmp_path: Path) -> None:
    ar.train("four-rooms", out=tmp_path, progress=False, save_every=1e-9, **{**NETWORKS, "landmarks": 0})
    shards = sorted(
        (tuple(map(int, path.stem.split("-")[2:])) for path in tmp_path.glob("replay-*")), key=lambda shard: shard[0]
    )
    assert len(shards) >= 4
    assert shards[0][0] == 0
    assert all(one[1] == other[0] for one, other in itertools.pairwise(shards))


def test_a_replay_buffer_of_another_size(tmp_path: Path) -> None:
    changes = {**NETWORKS, "landmarks": 0, "steps_per_cycle": 200}
    ar.train("four-rooms", out=tmp_path, progress=False, replay_size=300, minutes=1e-9, **changes)
    assert ar.resume(tmp_path, progress=False, replay_size=1_000).updates == 200


def run_folder_program(folder: Path, extra: str = "") -> list[str]:
    program = (
        "import anyreward as ar, torch, sys; torch.set_num_threads(1)\n"
        f"ar.train('four-rooms', out={str(folder)!r}, updates=200_000, landmarks=0, dim=8, hidden=16, batch_size=16, "
        f"progress=False, evaluate_every=40 {extra})"
    )
    return [sys.executable, "-c", program]


def wait_for(path: Path, seconds: float = 60) -> None:
    end = time.time() + seconds
    while not path.exists():
        assert time.time() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_save_and_exit_with_the_conventional_code(number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "anyreward", "train", "four-rooms", "--landmarks", "0", "--updates", "200000"]
    command += ["--dim", "8", "--hidden", "16", "--batch-size", "16", "--out", str(folder), "--threads", "1"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_for(folder / "metrics.jsonl")
    begun = time.time()
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert time.time() - begun < 5
    assert child.returncode == 128 + number
    assert "Stopped; the agent is saved in" in errors
    assert "Traceback" not in errors
    assert ar.load(folder).updates > 0
    assert not (folder / "lock").exists()


def test_a_killed_run_continues(tmp_path: Path) -> None:
    child = subprocess.Popen(run_folder_program(tmp_path / "run"))
    wait_for(tmp_path / "run" / "metrics.jsonl")
    with pytest.raises(ar.UserError, match=f"in use by process {child.pid}"):
        ar.train("four-rooms", out=tmp_path / "run", overwrite=True, updates=40, progress=False)
    child.kill()
    child.wait()
    before = ar.load(tmp_path / "run").updates
    assert ar.resume(tmp_path / "run", updates=200_000, minutes=1e-9, progress=False).updates == before + 40


def test_sweeps_stop_with_their_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "anyreward", "train", "four-rooms", "--landmarks", "0", "--updates", "200000"]
    command += ["--dim", "8", "--hidden", "16", "--seeds", "0", "1", "2", "--evaluate-every", "40"]
    command += ["--overwrite", "--out", str(tmp_path)]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        wait_for(tmp_path / "seed0" / "metrics.jsonl")
        workers = [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(p) == child.pid]
        assert workers
        child.send_signal(number)
        child.communicate(timeout=60)
        assert child.returncode == code
        end = time.time() + 20
        while any(_parent(p) is not None and _command(p) for p in workers):
            assert time.time() < end, "a worker outlived its parent"
            time.sleep(0.1)
        assert ar.load(tmp_path / "seed0").updates > 0
        for path in (tmp_path / "seed0").iterdir():
            path.unlink()
    assert not (tmp_path / "seed2" / "agent.json").exists()  # it had not begun


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _command(pid: int) -> bytes:
    """The command of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_weights_with_nan_are_refused(tmp_path: Path) -> None:
    agent = ar.train("four-rooms", progress=False, **{**NETWORKS, "landmarks": 0, "updates": 40})
    with torch.no_grad():
        next(agent.model.F.parameters())[0, 0] = float("nan")
    agent.save(tmp_path / "agent")
    with pytest.raises(ar.UserError, match="holds NaN or infinity in "):
        ar.load(tmp_path / "agent")


@pytest.mark.parametrize("kind", ["tables", "networks"])
def test_agents_of_earlier_versions_load(kind: str, tmp_path: Path) -> None:
    folder = Path(__file__).parent.parent / "fixtures" / f"format-2-{kind}"
    agent = ar.load(folder)
    assert agent.updates == 40
    known = json.loads((folder / "agent.json").read_text())
    assert known["format"] == 2
    assert agent.ask(ar.reward("f0")).act(0 if kind == "tables" else [0, 0, 0, 0]) in range(4)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    more = ar.resume(tmp_path, updates=80, progress=False)
    assert more.updates == 80
    assert json.loads((tmp_path / "agent.json").read_text())["format"] == 3
    known["format"] = 99
    (tmp_path / "agent.json").write_text(json.dumps(known))
    with pytest.raises(ar.UserError, match="has agent format 99; this anyreward reads format 3"):
        ar.load(tmp_path)


class Breaking(gym.Env[Any, Any]):
    """A walk on a line that breaks after some steps."""

    observation_space, action_space = gym.spaces.Box(-10, 10, (1,)), gym.spaces.Discrete(2)

    def __init__(self, how: str) -> None:
        self.how, self.left = how, 3_000

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = np.zeros(1, dtype=np.float32)
        return self.x.copy(), {}

    def step(self, action: int) -> Any:
        self.left -= 1
        self.x = np.clip(self.x + (2 * action - 1), -10, 10).astype(np.float32)
        if self.left < 0 and self.how == "raises":
            raise RuntimeError("the simulator is gone")
        if self.left < 0 and self.how == "hangs":
            time.sleep(30)
        return (self.x * np.nan if self.left < 0 else self.x.copy()), 0.0, False, bool(abs(self.x) == 10), {}


@pytest.mark.parametrize("how", ["raises", "hangs", "returns NaN"])
def test_an_environment_that_breaks_late_loses_nothing(how: str, tmp_path: Path) -> None:
    changes = {**NETWORKS, "steps_per_cycle": 200, "updates": 2_000, "landmarks": 0, "step_timeout": 1.0}
    with pytest.raises(ar.UserError, match=r"^Breaking, step [\d,]+: ") as error:
        ar.train(Breaking(how), out=tmp_path, progress=False, **changes)
    assert "\n" not in str(error.value)
    assert ar.load(tmp_path).updates >= 40
    assert not (tmp_path / "lock").exists()


def test_a_full_disk_is_noticed_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyreward.storage.generations.MARGIN", 2**60)
    with pytest.raises(ar.UserError, match="MB are free on its disk"):
        ar.train("four-rooms", out=tmp_path / "run", progress=False, **{**NETWORKS, "landmarks": 0})
    assert not (tmp_path / "run").exists()
