"""Chromium for the tests of the playground's page. Without it, these tests are skipped."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import anyreward.playground

PAGE = Path(anyreward.playground.__file__).parent / "page"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SKIPPED = "the tests of the playground's page are skipped: "
BLANK = b'<!doctype html><title>blank</title><link rel="icon" href="data:,">'


@pytest.fixture(scope="package")  # not longer: while Playwright runs, other tests cannot start an event loop
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip(f"{SKIPPED}they need Playwright, which `make setup` or `pip install playwright` installs")
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next(filter(None, map(shutil.which, NAMES)), own if os.path.exists(own) else None)
        if found is None:
            pytest.skip(f"{SKIPPED}they need Chromium, which `apt-get install chromium` installs")
        root = hasattr(os, "geteuid") and os.geteuid() == 0  # Chromium's sandbox does not run as root
        with playwright.chromium.launch(executable_path=found, args=["--no-sandbox"] if root else []) as chromium:
            yield chromium


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty tab of its own; errors in its console fail the test."""
    with browser.new_context() as context:
        tab, problems = context.new_page(), []
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        yield tab
    assert not problems


class Files(SimpleHTTPRequestHandler):
    """The files of a folder, and a blank page beside them."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

    def do_GET(self) -> None:
        if self.path != "/blank":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(BLANK)))
        self.end_headers()
        self.wfile.write(BLANK)

    def log_message(self, *args: Any) -> None:
        """Nothing is written for each request."""


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve the files of a folder on this machine alone; the address has no slash at its end."""
    with ExitStack() as stack:

        def of(folder: Path) -> str:
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
            stack.callback(server.server_close)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield of


@pytest.fixture
def module(page: Any, serve: Callable[[Path], str]) -> Callable[..., Any]:
    """Call functions of the page's modules: ``module("gif.js", "({ encodeGif }, given) => ...", given)``."""
    page.goto(f"{serve(PAGE)}/blank")

    def call(name: str, function: str, given: Any = None) -> Any:
        return page.evaluate(f"async ([name, given]) => ({function})(await import(name), given)", [f"/{name}", given])

    return call
