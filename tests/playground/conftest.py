from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anyreward.playground.shelf import Shelf
from tests.playground.serving import Running, served

TOKEN = "a-token-of-these-tests"


@pytest.fixture(scope="module")
def shelf(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """The tiny agent of all tests, and those that come with the package."""
    return Shelf(run_folder, tmp_path_factory.mktemp("no-runs"))


@pytest.fixture(scope="module")
def server(shelf: Shelf) -> Iterator[Running]:
    with served(shelf) as running:
        yield running


@pytest.fixture(scope="module")
def secret_server(shelf: Shelf) -> Iterator[Running]:
    """A server that needs a token."""
    with served(shelf, TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
def identity(server: Running, shelf: Shelf) -> str:
    """The id of the tiny agent."""
    return str(shelf.entries()[0]["id"])
