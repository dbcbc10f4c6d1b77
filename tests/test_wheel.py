"""An installed package is complete: its wheel holds every file that it needs, and nothing beside it is read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from anyreward.learning.fast.compiled import build_command

ROOT = Path(__file__).parent.parent
ALONE = """
import json, os, sys
from pathlib import Path

repository, compiled = Path(sys.argv[1]), sys.argv[2] == "compiled"

def refuse(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)):
        path = Path(os.fsdecode(args[0])).absolute()
        if path.is_relative_to(repository) and not path.is_relative_to(sys.prefix):
            raise PermissionError(f"{path} lies outside of the package")

sys.addaudithook(refuse)
import anyreward
from anyreward.cli import main
from anyreward.tools.bench import bench_epoch

assert Path(anyreward.__file__).is_relative_to(Path.cwd())
try:
    (repository / "pyproject.toml").read_text()
except PermissionError:
    pass
else:
    raise AssertionError("the repository could be read")
tiny = {"dim": 4, "hidden": 8, "batch_size": 8}
figures = bench_epoch(anyreward.open_world("four-rooms"), compiled, cycles=1, **tiny)
Path("epoch.json").write_text(json.dumps(figures))
told = [] if compiled else ["--no-compile"]
sys.exit(main(["bench", "--parts", "updates", "--cycles", "1", "--dim", "4", "--json", "updates.json", *told]))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package as its wheel would unpack it: Hatch leaves out what git ignores."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    shutil.copytree(ROOT / "src" / "anyreward", tmp_path / "anyreward", ignore=shutil.ignore_patterns(*ignored))
    return tmp_path


def test_the_wheel_takes_the_whole_package(installed: Path) -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert build == {"targets": {"wheel": {"packages": ["src/anyreward"]}}}  # nothing is excluded
    here, there = (
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        for folder in (ROOT / "src", installed)
    )
    assert there == here
    for needed in ("learning/fast/updates.cpp", "tools/plain.py", "tools/bench.py"):
        assert Path("anyreward", needed) in there


def test_bench_needs_nothing_but_the_package(installed: Path) -> None:
    """`anyreward bench`, the plain implementation and the compiled updates, where no file of the repository opens."""
    compiled = build_command() is not None
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(ROOT), "compiled" if compiled else "plain"],
        cwd=installed,
        env=os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"},  # one thread: no waiting for others
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "update / its matrix products at peak" in done.stdout
    figures = json.loads((installed / "epoch.json").read_text())
    ways = ("", ", compiled") if compiled else ("",)
    for name in (f"{preset}{way}" for preset in ("paper", "fast") for way in ways):
        assert figures[f"plain / {name}"] == pytest.approx(figures["plain, seconds"] / figures[f"{name}, seconds"])
    assert json.loads((installed / "updates.json").read_text())["updates, fast"]["update ms"]["median"] > 0
