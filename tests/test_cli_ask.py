"""`anyreward ask`: every form of a reward that a command line can give."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import anyreward as ar
from anyreward.cli import main


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_folder: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run_folder, "run")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["ask", "run", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def saved_z(capsys: pytest.CaptureFixture[str], *arguments: str) -> np.ndarray:
    code, _, err = run(capsys, *arguments, "--save", "z.json")
    assert code == 0, err
    return np.array(json.loads(Path("z.json").read_text())["z_R"])


def z_of(agent: ar.Agent, target: ar.Reward) -> np.ndarray:
    return agent.ask(target).belief.found.z.numpy()


def test_every_form(capsys: pytest.CaptureFixture[str], agent: ar.Agent) -> None:
    places = agent.model.phi.readable(agent.sample.rows.numpy())
    r = np.sin(places[:, 0])
    np.savez("seen.npz", features=np.tile(places, (3, 1)), rewards=np.tile(r, 3))
    lines = [f"{y},{x},{v!r}" for (x, y), v in zip(places, r.tolist(), strict=True)]
    Path("seen.csv").write_text("\n".join(["y,x,reward", *lines]))  # names say which is which
    np.savez("way.npz", observations=np.array([24, 25, 26]))
    seen = ar.samples(np.tile(places, (3, 1)), np.tile(r, 3))
    once = ar.samples(places, r, "other")
    way = ar.demonstration(np.array([24, 25, 26]))
    forms: list[tuple[list[str], ar.Reward]] = [
        (["--goal", "9,9", "1,9:2"], ar.goal(9, 9) + 2 * ar.goal(1, 9)),
        (["--goal", "9,9", "--avoid", "5,2", "4,2:3"], ar.goal(9, 9) - 0.5 * ar.goal(5, 2) - 3 * ar.goal(4, 2)),
        (["--reward", "(x > 6) * exp(-y)"], ar.reward("(x > 6) * exp(-y)")),
        (["--reward", "x", "y / 2", "--goal", "24"], ar.reward("x + y / 2") + ar.goal(24)),
        (["--samples", "seen.npz"], seen),
        (["--samples", "seen.csv:0.5", "--distribution", "other"], once / 2),
        (["--demonstration", "way.npz:2"], 2 * way),
    ]
    for arguments, target in forms:
        assert saved_z(capsys, *arguments) == pytest.approx(z_of(agent, target), abs=1e-6), arguments
    kept = saved_z(capsys, "--goal", "9,9")
    Path("z.json").rename("kept.json")
    assert saved_z(capsys, "--z", "kept.json:-2") == pytest.approx(-2 * kept, abs=1e-6)


def test_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--environment", "four-rooms", "--budget", "600", "--goal", "9,9", "--seed", "3")
    code, out, err = run(capsys, *arguments)
    assert code == 0
    assert "600/600 steps" in err
    assert "600 samples" in out


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--reward", "x * y", "--improve", "8", "--figure", "a.png")
    assert code == 0
    assert "x * y" in out
    for word in ("trust", "predicted", "represented", "consistent", "coverage", "expected to earn"):
        assert word in out
    assert Path("a.png").stat().st_size > 10_000
    code, out, _ = run(capsys, "--reward", "4", "--improve", "goals")
    assert code == 0
    assert "Note: This reward is 4 everywhere" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "No reward is given"),
        (["--reward", "x.real"], "attribute"),
        (["--reward", "speed > 1"], "x, y"),
        (["--reward", "log(x - 30)"], "is nan in row 0"),
        (["--samples", "nowhere.npz"], "There is no file nowhere.npz"),
        (["--samples", "text.npz"], "is not a readable .npz"),
        (["--samples", "way.npz"], "it needs features, rewards"),
        (["--samples", "bad.csv"], "expected x, y in any order"),
        (["--samples", "latin.csv"], "not text in UTF-8"),
        (["--samples", "nothing.npz"], "is not a readable .npz"),
        (["--samples", "array.npy"], "is not a readable .npz"),
        (["--demonstration", "names.npz"], "expected numbers"),
        (["--z", "number.json"], "not a list of numbers"),
        (["--goal", "9,9", "--improve", "²"], "improve is '²'"),
        (["--goal", "9,9", "--save", "run/agent.json"], "is not a saved z"),
        (["--samples", "words.csv"], "not a number"),
        (["--samples", "empty.csv"], "has no samples"),
        (["--demonstration", "nowhere.npz"], "There is no file"),
        (["--demonstration", "far.npz"], "outside"),
        (["--environment", "Nowhere-v3"], "neither the name of a world"),
        (["--environment", "CartPole-v1"], "was trained on observations"),
        (["--goal", "9,9", "--improve", "much"], "improve is 'much'"),
        (["--goal", "9,9", "--improve", "-2"], "improve is -2"),
        (["--z", "nowhere.json"], "There is no nowhere.json"),
        (["--z", "run/agent.json"], "is not a saved z"),
        (["--z", "other.json"], "agents cannot use each other's z"),
        (["--goal", "9,9", "--save", "z.txt"], "does not end in .json"),
    ],
)
def test_mistakes_get_one_message_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    Path("text.npz").write_text("hello")
    Path("nothing.npz").touch()
    np.save("array.npy", np.ones(3))
    np.savez("names.npz", observations=np.array(["a", "b"]))
    Path("latin.csv").write_bytes("größe,y,reward\n".encode("latin-1"))
    Path("number.json").write_text('{"format": 1, "agent": "a", "reward": "r", "z_R": 5}')
    np.savez("way.npz", observations=np.array([24, 25, 26]))
    np.savez("far.npz", observations=np.array([24, 500]))
    Path("bad.csv").write_text("x,y\n1,2\n")
    Path("words.csv").write_text("x,y,reward\n1,2,lots\n")
    Path("empty.csv").write_text("x,y,reward\n")
    Path("other.json").write_text(json.dumps({"format": 1, "agent": "abc", "reward": "goal(1)", "z_R": [0.0] * 12}))
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert err.startswith("anyreward: ")
    assert "Traceback" not in err
