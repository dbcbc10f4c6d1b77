from __future__ import annotations

from pathlib import Path

import pytest

import anyreward as ar

TINY = {"dim": 12, "hidden": 24, "batch_size": 32, "updates": 200, "progress": False}


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
