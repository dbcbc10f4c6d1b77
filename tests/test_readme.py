"""What the README and the docs promise runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import anyreward as ar

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks(name: str) -> list[str]:
    found = BLOCK.findall((ROOT / name).read_text())
    assert found
    return found


def test_readme_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ar, "train", lambda *a, _train=ar.train, **k: _train(*a, **k, updates=400, hidden=32))
    for block in blocks("README.md"):
        exec(compile(block, "README.md", "exec"), {})
    trust_line, ratio_line = capsys.readouterr().out.splitlines()[-2:]
    assert 0 <= float(trust_line.split()[0]) <= 1
    assert ratio_line.startswith("[")


def test_datasets_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("docs/datasets.md"):
        exec(compile(block, "datasets.md", "exec"), {})


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_presets_page_lists_every_difference() -> None:
    from anyreward.learning.presets import FAST

    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "presets.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(FAST)


def test_make_targets_are_the_first_commands() -> None:
    commands = re.findall(r"^(make \w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]
    assert "make test" in (ROOT / ".ci" / "run").read_text()
