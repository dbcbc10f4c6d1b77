from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anyreward as ar
from anyreward.cli import main

TINY = ["--dim", "8", "--hidden", "16", "--batch-size", "16", "--updates", "80", "--environments", "2"]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_train_ask_evaluate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "train", "four-rooms", "--seed", "2", "--warmup-steps", "3000", *TINY)
    assert code == 0
    assert "runs/four-rooms-fast-seed2" in out
    assert "updates/s" in err
    assert "s left" in err
    folder = "runs/four-rooms-fast-seed2"
    assert ar.load(folder).settings.seed == 2
    code, out, _ = run(capsys, "evaluate", folder, "--json", "figures.json")
    assert code == 0
    assert "greedy" in out
    figures = json.loads(Path("figures.json").read_text())["goals"]
    assert 0 < figures["greedy"]["worst"] <= figures["greedy"]["mean"] <= 1
    code, out, _ = run(
        capsys, "ask", folder, "--goal", "9,9", "1,9:2", "--avoid", "5,2", "--figure", "a.png", "--start", "1,1"
    )
    assert code == 0
    assert "2 * goal(1, 9)" in out
    assert run(capsys, "ask", folder, "--goal", "24", "--figure", "b.png")[0] == 0  # a cell by its number
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_presets_set_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "train", "four-rooms", "--preset", "paper", *TINY)[0] == 0
    s = ar.load("runs/four-rooms-paper-seed0").settings
    assert s == ar.preset("paper", dim=8, hidden=16, batch_size=16, updates=80, environments=2)


def test_train_from_a_drawing_and_a_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tiny.txt").write_text("....\n.##.\n....\n")
    assert run(capsys, "train", "tiny.txt", "--out", "maze", *TINY)[0] == 0
    assert run(capsys, "evaluate", "maze")[0] == 0  # the drawing is saved with the agent
    Path("tiny.txt").unlink()
    assert run(capsys, "ask", "maze", "--goal", "3,2")[0] == 0
    rng = np.random.default_rng(0)
    np.savez(
        "walk.npz", observations=rng.random((50, 2)), actions=np.arange(50) % 3, next_observations=rng.random((50, 2))
    )
    assert run(capsys, "train", "walk.npz", "--out", "offline", *TINY)[0] == 0
    code, out, _ = run(capsys, "ask", "offline", "--goal", "0.5,0.5")
    assert code == 0
    assert "trust" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "no-such-world", *TINY], "neither one of our worlds"),
        (["train", "missing.txt"], "no maze drawing"),
        (["train", "missing.npz"], "no dataset"),
        (["train", "four-rooms", "--gamma", "1.5"], "gamma is 1.5"),
        (["evaluate", "nowhere"], "no agent folder"),
        (["ask", "run", "--goal", "corner"], "not a list of numbers"),
        (["ask", "run", "--goal", "5,1"], "never visited"),
        (["ask", "run", "--goal", "1,1", "--start", "0,0", "--figure", "x.png"], "not a free cell"),
        (["ask", "run", "--goal", "1,1", "--start", "12,0"], "not a free cell"),
        (["ask", "run", "--goal", "1,1", "--start", "1"], "not a free cell"),
        (["train", "four-rooms", "--out", "run", *TINY], "holds an agent already"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], run_folder: Path, arguments: list[str], message: str
) -> None:
    shutil.copytree(run_folder, "run")
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert err.startswith("anyreward: ")
    assert "Traceback" not in err


def test_unknown_options_and_help() -> None:
    for arguments, code, text in (
        (["train", "--help"], 0, "d, the dimension"),
        (["train", "four-rooms", "--dimension", "3"], 2, "dimension"),
    ):
        done = subprocess.run([sys.executable, "-m", "anyreward", *arguments], capture_output=True, text=True)
        assert done.returncode == code
        assert text in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_bench_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "bench", "--dim", "10", "--no-quality", "--json", "bench.json")
    assert code == 0
    assert "ratio to them" in out
    figures = json.loads(Path("bench.json").read_text())
    assert figures["update_ms"] > 0
    assert figures["ratio"] > 1
    assert figures["env_steps_per_second"] > 1000
    assert 0 < figures["computed_gflop"] < figures["update_gflop"]


def test_plain_flop_is_what_pytorch_counts() -> None:
    """Where no feature repeats, nothing is saved, and the formula equals the count of what really runs."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from anyreward.experiments.bench import plain_flop
    from anyreward.learning.replay import Replay, Transitions
    from anyreward.learning.train import learn
    from anyreward.training import untrained

    s = ar.preset("paper", dim=10, hidden=32, updates=40)
    agent, replay = untrained(ar.open_world("CartPole-v1"), s), Replay(1000)
    rows = torch.randn(1000, 4)
    replay.add(Transitions(rows, torch.randint(2, (1000,)), rows, torch.zeros(1000, dtype=torch.bool), rows))
    with FlopCounterMode(display=False) as counter:
        next(learn(agent.representation, replay, s))
    policy = 2 * 2 * 128 * 2 * 10  # the two small products that average F over the actions of the target
    assert counter.get_total_flops() / 40 - policy == plain_flop(agent, s)


def test_demo_draws_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "demo", "--updates", "120")
    assert code == 0
    for text in ("reach the goal", "not by that door", "nearest of two", "optimal", "ratio", "trust"):
        assert text in out
    assert Path("demo/answers.png").read_bytes().startswith(b"\x89PNG")
    assert run(capsys, "demo", "--updates", "120")[0] == 0  # again, into the same folder
