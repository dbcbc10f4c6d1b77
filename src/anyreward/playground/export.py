"""One HTML file that holds agents and computes their answers itself: no server, no installation, no network."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.playground.bundle import Bundle
from anyreward.playground.scene import Scene
from anyreward.storage import user_path
from anyreward.storage.files import write_atomically
from anyreward.storage.shipped import shipped_name

LARGEST = 8_000_000
"""Largest size of a page, in bytes."""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'none'; base-uri 'none'; form-action 'none'"
)
"""Content-Security-Policy of the page: it may load nothing."""
IMPORT = re.compile(r'(from |import )"\./([\w-]+)\.js"')


def page_files() -> dict[str, str]:
    """The text of the page's files, by name."""
    home = files("anyreward.playground") / "page"
    return {file.name: file.read_text(encoding="utf-8") for file in home.iterdir() if file.is_file()}


def export_page(runs: Sequence[Path], page: Path) -> int:
    """Write the agents of folders as one HTML page, the first of which is shown first, and return its size in bytes."""
    page = user_path(page)
    if page.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"The page is written as HTML; {page.name} does not end in .html.")
    bundles = []
    for number, run in enumerate(runs):
        shipped = shipped_name(run)
        scene = Scene(Agent.load(run), f"{number}", None if shipped else _public(run), shipped)
        bundles.append(Bundle(scene).as_json())
    content = html(bundles, page_files()).encode()
    if len(content) > LARGEST:
        raise UserError(
            f"The page would have {len(content) / 1e6:.1f} MB, and at most {LARGEST / 1e6:g} MB are written. Export "
            "fewer agents, or train with fewer states, or a smaller d (--dim)."
        )
    write_atomically(page, content)
    return len(content)


def _public(run: Path) -> str:
    """A folder as the page shows it: an absolute path would tell of the machine that it was made on."""
    return run.name if run.is_absolute() else str(run)


def html(bundles: list[dict[str, Any]], page: dict[str, str]) -> str:
    """The page with its modules, style sheet and agents inside.

    Each module becomes a data: URL that the others import by a bare name, "page/NAME".
    """
    modules = {name.removesuffix(".js"): text for name, text in page.items() if name.endswith(".js")}
    addresses = {
        f"page/{name}": f"data:text/javascript;base64,{base64.b64encode(_bare(text).encode()).decode()}"
        for name, text in modules.items()
    }
    text = page["index.html"]
    inside = [
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<style>\n{page['style.css']}</style>",
        f'<script type="importmap">{_inline({"imports": addresses})}</script>',
    ]
    text = _replaced(text, '<link rel="stylesheet" href="page/style.css">', "\n".join(inside))
    data = f'<script type="application/json" id="bundles">{_inline(bundles)}</script>'
    start = '<script type="module">import "page/main";</script>'
    return _replaced(text, '<script type="module" src="page/main.js"></script>', f"{data}\n{start}")


def _bare(module: str) -> str:
    return IMPORT.sub(r'\1"page/\2"', module)


def _inline(data: Any) -> str:
    """JSON inside of a script element, which "</" would end."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)
