"""The command line with an agent of continuous actions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anyreward.cli import main

TINY = ["--landmarks", "0", "--dim", "8", "--hidden", "16", "--batch-size", "16", "--updates", "40"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run folder of the pendulum with an actor."""
    path = tmp_path_factory.mktemp("runs") / "pendulum"
    short = ["--steps-per-cycle", "40", "--action-repeat", "1", "--twin", "min", "--features-include-action", "True"]
    assert main(["train", "Pendulum-v1", "--out", str(path), *TINY, *short]) == 0
    return str(path)


def test_ask_with_a_film_and_a_picture(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film, picture = tmp_path / "swing.gif", tmp_path / "swing.png"
    asked = ["--reward", "f0 - 0.01 * action**2", "--refine", "0"]
    assert main(["ask", folder, *asked, "--video", str(film), "--figure", str(picture)]) == 0
    assert "trust" in capsys.readouterr().out
    assert film.read_bytes()[:4] == b"GIF8"
    assert picture.read_bytes()[1:4] == b"PNG"
    assert min(film.stat().st_size, picture.stat().st_size) > 5_000


def test_ask_with_generalised_policy_improvement(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", folder, "--reward", "f0", "--improve", "3"]) == 0
    assert "predicted" in capsys.readouterr().out


def test_the_picture_of_what_was_visited(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", folder, "--figure", str(tmp_path / "visited.png")]) == 0
    out = capsys.readouterr().out
    assert "action" in out
    assert (tmp_path / "visited.png").stat().st_size > 5_000


def test_evaluate_and_resume(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", folder, "--updates", "80"]) == 0
    assert main(["evaluate", folder]) == 2
    assert "anyreward.evaluate(policy, world)" in capsys.readouterr().err


def test_a_dataset_of_real_actions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    columns = {"observations": rng.normal(size=(300, 2)), "next_observations": rng.normal(size=(300, 2))}
    np.savez(tmp_path / "data.npz", **columns, actions=rng.uniform(-1, 1, (300, 2)))
    assert main(["train", str(tmp_path / "data.npz"), "--out", str(tmp_path / "run"), *TINY]) == 0
    assert main(["ask", str(tmp_path / "run"), "--reward", "f0", "--refine", "0"]) == 0
    assert "f0" in capsys.readouterr().out
