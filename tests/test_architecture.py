"""Who may import whom: each room only those before it."""

from __future__ import annotations

import ast
from pathlib import Path

ORDER = [
    "errors", "storage", "worlds", "theory", "representation", "learning", "rewards", "acting", "agent", "loading",
    "watching", "training", "figures", "experiments", "cli",
]  # fmt: skip
PACKAGE = Path(__file__).parent.parent / "src" / "anyreward"


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
        allowed = set(ORDER[: ORDER.index(room(path)) + 1])
        assert imports(path) <= allowed, f"{path.relative_to(PACKAGE)} imports {imports(path) - allowed}"


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
