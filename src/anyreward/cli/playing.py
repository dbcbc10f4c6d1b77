"""`anyreward play` and `anyreward export`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.learning.settings import Range, check_fields

NEEDED = ("fastapi", "uvicorn", "websockets")
"""The packages of the extra `play`."""


@dataclass(frozen=True)
class Play:
    """Paint rewards on a web page and watch the answers: a server for this machine, and a browser that shows it."""

    run_folder: tyro.conf.Positional[Path | None] = None
    """The folder of the agent to begin with. Without it: one of --runs, or one that comes with the package."""
    host: str = "127.0.0.1"
    """Address to listen at. At any other than this machine's own, a token is needed and printed."""
    port: Annotated[int, Range(1, most=65535)] | None = None
    """Port to listen at. Without it: 8765, or the next free one."""
    token: str | None = None
    """Token that browsers must have, of at least 16 letters, digits, - and _; or "random". Other users of the machine
    can read a token that is given here."""
    runs: Path = Path("runs")
    """Folder whose run folders can be chosen on the page."""
    browser: bool = True
    """Open the page in a browser. With a token, it is not opened."""

    def __post_init__(self) -> None:
        check_fields(self, "--")

    def run(self) -> None:
        """Serve until Ctrl-C."""
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise UserError(f"The playground needs {', '.join(missing)}: pip install 'anyreward[play]'.")
        from anyreward.playground.server import serve
        from anyreward.playground.shelf import Shelf

        if self.run_folder is not None:
            Agent.load(self.run_folder)  # a mistake is shown here, before the page
        shelf = Shelf(self.run_folder, self.runs)
        token = secrets.token_urlsafe(32) if self.token == "random" else self.token
        serve(shelf, host=self.host, port=self.port, token=token, browser=self.browser)


@dataclass(frozen=True)
class Export:
    """Write agents as one HTML page that needs nothing: no server, no installation, no network."""

    run_folder: tyro.conf.Positional[Path]
    """The folder of an agent of a maze or of the continuous maze."""
    page: tyro.conf.Positional[Path]
    """The page to write, a .html file."""
    also: tuple[Path, ...] = ()
    """Folders of more agents, which can be chosen on the page: for example of the same world, with another d."""

    def run(self) -> None:
        """Write the page, and print its size."""
        from anyreward.playground.export import export_page

        size = export_page([self.run_folder, *self.also], self.page)
        print(f"Page: {self.page} ({size / 1e6:.1f} MB); open it in a browser.")
