"""Who may import whom: each room only those before it."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ORDER = [
    "errors", "storage", "worlds", "theory", "model", "learning", "rewards", "acting", "trust", "folder", "agent",
    "training", "figures", "experiments", "tools", "selfcheck", "playground", "cli",
]  # fmt: skip
UPWARD = {"acting/policy.py": {"trust"}}
"""The one import to the right: `policy.trust` is a shorthand for `trust.report(policy)`."""
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "anyreward"


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {
            name.split(".")[1] if "." in name else "the package itself"
            for name in names
            if name.split(".")[0] == "anyreward"
        }
    return found


def foreign(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name.split(".")[0] for name in modules}


def test_every_room_has_a_place() -> None:
    rooms = {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms == set(ORDER)


def test_rooms_import_only_from_the_left() -> None:
    for path in PACKAGE.rglob("*.py"):
        if room(path) in ("__init__", "__main__"):
            continue
        name = path.relative_to(PACKAGE).as_posix()
        allowed = set(ORDER[: ORDER.index(room(path)) + 1])
        assert imports(path) - allowed == UPWARD.get(name, set()), f"{name} imports {imports(path) - allowed}"


def test_the_architecture_page_shows_the_same_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert "`" + " -> ".join(ORDER) + "`" in " ".join(page.split())


def walk(title: str) -> list[tuple[str, str]]:
    """The steps of a walk on the architecture page, as (file, name)."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.split(f"### {title}")[1].split("\n#")[0]
    return re.findall(r"^\d+\. `([\w/.]+):([\w.]+)`", section, re.MULTILINE)


@pytest.mark.parametrize("title", ["A transition", "A reward"])
def test_the_walks_lead_through_code_that_exists_from_left_to_right(title: str) -> None:
    steps = walk(title)
    assert len(steps) > 5
    rooms = [room(PACKAGE / file) for file, _ in steps]
    assert rooms == sorted(rooms, key=ORDER.index)
    for file, name in steps:
        module = importlib.import_module("anyreward." + file.removesuffix(".py").replace("/", "."))
        found: object = module
        for part in name.split("."):
            found = getattr(found, part)


def test_every_module_stands_on_the_architecture_page() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in PACKAGE.rglob("*.py"):
        if not path.name.startswith("__"):
            assert f"{path.name}" in page, path


def test_no_pickle_in_the_package() -> None:
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert not foreign(path) & {"pickle", "cloudpickle", "dill", "joblib"}
        assert "torch.load(" not in text
        assert "allow_pickle=True" not in text


def test_everything_public_has_a_docstring_and_exists() -> None:
    import anyreward

    for name in anyreward.__all__:
        assert getattr(anyreward, name).__doc__
