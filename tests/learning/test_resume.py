"""A run that is stopped and continued."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import anyreward as ar
import anyreward.learning.forward_backward as method_module
import anyreward.training.run as run_module
from anyreward.learning.collect import Collector
from anyreward.storage.metrics import read_metrics
from tests.conftest import TINY, needs_compiler

SMALL = {**TINY, "evaluate_every": 40}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 9, 800)
    actions = rng.integers(0, 2, 800)
    path = tmp_path_factory.mktemp("data") / "ring.npz"
    following = (states + 2 * actions - 1) % 9
    np.savez(path, observations=states, actions=actions, next_observations=following)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"preset": "paper"},
        {"pairs": "minibatch"},
        {"learning_rate_decay": 0.0, "target_every": 7},
        {"bias": True},
        {"method": "successor-features"},
        pytest.param({"compile": True, "threads": 1}, marks=needs_compiler),
    ],
)
def test_a_continued_run_ends_like_one_that_never_stopped(
    changes: dict[str, object], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, where nothing is collected."""
    whole = ar.train(data, **(SMALL | changes))
    stop_after(80, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ar.train(data, out=tmp_path, **(SMALL | changes))
    monkeypatch.undo()
    assert ar.load(tmp_path).updates == 80
    continued = ar.resume(tmp_path, source=data, progress=False)
    assert continued.updates == 200
    assert continued.fingerprint == whole.fingerprint == ar.load(tmp_path).fingerprint
    assert [line["updates"] for line in read_metrics(tmp_path)] == [40, 80, 120, 160, 200]
    seconds = [line["seconds"] for line in read_metrics(tmp_path)]
    assert seconds == sorted(seconds)


def stop_after(updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run_module.learn

    def stopping(*arguments: object) -> object:
        for done, report in real(*arguments):
            yield done, report
            if done >= updates:
                raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "learn", stopping)


def test_online_runs_keep_their_replay(tmp_path: Path) -> None:
    ar.train("four-rooms", out=tmp_path, **(SMALL | {"updates": 80}))
    agent = ar.resume(tmp_path, updates=160, progress=False)
    assert agent.updates == agent.settings.updates == 160
    assert [line["transitions"] for line in read_metrics(tmp_path)] == [200, 400, 600, 800]


def test_it_learns_on(tmp_path: Path) -> None:
    """Ten short runs in a row come as far as one long one would."""
    changes = {"dim": 48, "hidden": 64, "batch_size": 64, "learning_rate_decay": 0.0, "progress": False}
    ar.train("four-rooms", out=tmp_path, updates=80, **changes)
    for updates in range(160, 1_601, 160):
        agent = ar.resume(tmp_path, updates=updates, progress=False)
    quality = agent.score(temperature=1.0).ratio.mean()
    whole = ar.train("four-rooms", updates=1_600, **changes).score(temperature=1.0).ratio.mean()
    assert quality > 0.8 * whole > 0.3


def test_a_run_stops_in_time(tmp_path: Path) -> None:
    agent = ar.train("four-rooms", out=tmp_path, minutes=1e-6, **SMALL)
    assert agent.updates == 40 == ar.load(tmp_path).updates
    assert ar.resume(tmp_path, minutes=1e-6, progress=False).updates == 80
    assert ar.resume(tmp_path, minutes=10, progress=False).updates == 200
    with pytest.raises(ar.UserError, match="minutes is 0"):
        ar.train("four-rooms", minutes=0, **SMALL)


@pytest.mark.parametrize("capacity", [150, 900])
def test_the_replay_may_change_its_size(capacity: int, tmp_path: Path) -> None:
    ar.train("four-rooms", out=tmp_path, **(SMALL | {"updates": 80, "replay_size": 300}))
    agent = ar.resume(tmp_path, updates=160, replay_size=capacity, progress=False)
    assert agent.settings.replay_size == capacity
    assert agent.updates == 160
    with pytest.raises(ar.UserError, match="gamma cannot be changed"):
        ar.resume(tmp_path, updates=200, gamma=0.5)


def test_ctrl_c_waits_for_the_end_of_a_cycle(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressed within a cycle, it changes nothing: a run that goes on then ends like one that never stopped."""
    whole = ar.train(data, **SMALL)
    real, cycles = method_module.draw, itertools.count()

    def pressing(*arguments: object) -> object:
        if next(cycles) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(method_module, "draw", pressing)
    with pytest.raises(KeyboardInterrupt):
        ar.train(data, out=tmp_path, **SMALL)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ar.load(tmp_path).updates == 80
    assert ar.resume(tmp_path, source=data, progress=False).fingerprint == whole.fingerprint


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a group of processes")
def test_ctrl_c_with_environments_in_processes_of_their_own(tmp_path: Path) -> None:
    """As a terminal sends it: to all processes at once."""
    command = [sys.executable, "-m", "anyreward", "train", "ms-pacman", "--out", "run", "--dim", "8", "--hidden", "16"]
    command += ["--batch-size", "8", "--steps-per-cycle", "16", "--updates-per-cycle", "4", "--target-every", "4"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (tmp_path / "run" / "metrics.jsonl").exists() and run.poll() is None:  # written after the first cycle
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert "Stopped; the agent is saved in run. To continue: anyreward resume run" in err
    assert "Traceback" not in err
    assert run.returncode == 130
    assert ar.load(tmp_path / "run").updates > 0


def test_damaged_metrics(tmp_path: Path) -> None:
    ar.train("four-rooms", out=tmp_path, **(SMALL | {"updates": 80}))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"updates": 1')  # the machine lost its power here
    assert len(read_metrics(tmp_path)) == 2
    path.write_text("nonsense\n" + whole)
    with pytest.raises(ar.UserError, match="is damaged"):
        read_metrics(tmp_path)
    path.unlink()
    ar.resume(tmp_path, updates=120, progress=False)
    assert [line["updates"] for line in read_metrics(tmp_path)] == [120]


def test_what_cannot_be_continued_says_why(tmp_path: Path, run_folder: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    with pytest.raises(ar.UserError, match="has done its 200 updates"):
        ar.resume(folder)
    with pytest.raises(ar.UserError, match=r"trained on observations Discrete\(121\) and 5 actions; maze has"):
        ar.resume(folder, updates=240, source="...\n.#.\n...", progress=False)
    first, last = sorted(folder.glob("training-*"))
    last.write_bytes(b"nothing")
    first.write_bytes(b"nothing")
    with pytest.raises(ar.UserError, match=f"{last.name} is missing or damaged.* No earlier save is intact"):
        ar.resume(folder, updates=240, progress=False)
    assert ar.load(folder).updates == 200  # nothing was lost
    ar.load(folder).save(tmp_path / "agent")
    with pytest.raises(ar.UserError, match="holds an agent, but no state of training"):
        ar.resume(tmp_path / "agent", updates=240, progress=False)


def test_a_damaged_save_is_replaced_by_the_one_before(tmp_path: Path, run_folder: Path) -> None:
    shutil.copytree(run_folder, tmp_path / "run")
    _, last = sorted((tmp_path / "run").glob("training-*"))
    last.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match=f"{last.name} is missing or damaged.* The save before it is used"):
        agent = ar.resume(tmp_path / "run", progress=False)
    assert agent.fingerprint == ar.load(run_folder).fingerprint


def test_a_long_run_saves_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a machine that loses its power would find."""
    real, seen = run_module.learn, []

    def looking(*arguments: object) -> object:
        for done, report in real(*arguments):
            if done > 40:
                seen.append(ar.load(tmp_path).updates)
            yield done, report

    monkeypatch.setattr(run_module, "learn", looking)
    ar.train("four-rooms", out=tmp_path, save_every=1e-9, **SMALL)
    assert seen == [40, 80, 120, 160]


def test_an_environment_that_breaks_at_the_end_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last transitions are gathered to judge answers by, all is learned already."""
    collect, calls = Collector.collect, []

    def break_late(self: Collector, steps: int, *how: object) -> object:
        calls.append(steps)
        if len(calls) == 4:  # two cycles, each with its share of held-out transitions
            raise RuntimeError("the simulator is gone")
        return collect(self, steps, *how)

    monkeypatch.setattr(Collector, "collect", break_late)
    with pytest.raises(RuntimeError, match="simulator is gone"):
        ar.train("four-rooms", out=tmp_path, dim=4, hidden=8, updates=80, progress=False)
    saved = ar.load(tmp_path)
    assert calls == [200, 2_000, 200, 2_000]
    assert saved.updates == 80
    assert saved.held_out is not None
    assert len(saved.held_out.actions) == 2_000
