from __future__ import annotations

from pathlib import Path

import pytest

import anyreward as ar
from anyreward.learning.fast.compiled import build_command

TINY = {"landmarks": 0, "dim": 12, "hidden": 24, "batch_size": 32, "updates": 200, "progress": False}


needs_compiler = pytest.mark.skipif(build_command() is None, reason="there is no C++ compiler here")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a barely trained four-rooms agent; not to be written to."""
    folder = tmp_path_factory.mktemp("runs") / "four-rooms"
    ar.train("four-rooms", out=folder, evaluate_every=80, **TINY)
    return folder


@pytest.fixture(scope="session")
def agent(run_folder: Path) -> ar.Agent:
    """That agent."""
    return ar.load(run_folder)


@pytest.fixture(scope="session")
def pendulum_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a small agent of the pendulum, which swings up; not to be written to."""
    folder = tmp_path_factory.mktemp("runs") / "pendulum"
    few = {"updates": 300, "landmarks": 4, "dim": 24, "action_repeat": 2}  # two steps go farther with so few points
    ar.train("Pendulum-v1", out=folder, seed=0, **few, progress=False)
    return folder


@pytest.fixture(scope="session")
def point_mass_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a barely trained agent whose actions are those of an actor network; not to be written to."""
    folder = tmp_path_factory.mktemp("runs") / "point-mass"
    ar.train("point-mass-maze", out=folder, seed=0, **{**TINY, "updates": 40})
    return folder
