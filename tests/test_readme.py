"""What the README and the docs promise runs."""

from __future__ import annotations

import importlib
import re
import warnings
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
    out = capsys.readouterr().out.splitlines()
    assert any(line.startswith("trust  ") for line in out)
    assert out[-1].startswith("[")


def test_datasets_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("docs/datasets.md"):
        exec(compile(block, "datasets.md", "exec"), {})


def test_own_environment_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/own_environment.md"):
        exec(compile(block, "own_environment.md", "exec"), names)
    assert float(capsys.readouterr().out.split(" +- ")[0]) >= -17  # the best is -13


def test_continuous_actions_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for block in blocks("docs/continuous_actions.md"):
        exec(compile(block, "continuous_actions.md", "exec"), names)
    assert float(capsys.readouterr().out.split(" +- ")[0]) > -220  # the best is about -140


def test_theory_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("docs/theory.md"):
        exec(compile(block, "theory.md", "exec"), {})
    assert "Bound(bound=" in capsys.readouterr().out


def test_every_function_that_the_theory_page_names_exists() -> None:
    """Statement -> function -> test: the second and third column of the table."""
    table = (ROOT / "docs" / "theory.md").read_text().split("## From statement to function to test")[1].split("##")[0]
    rows = [line.split("|")[2:4] for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 20
    named, tests = set(), set()
    for functions, where in rows:
        room = "fb"
        for name in re.findall(r"`([\w.]+)", functions):
            head, _, tail = name.partition(".")
            room = head or room  # `.pointwise` belongs to the room named before
            named.add((room, tail))
        tests |= set(re.findall(r"`([\w/]+\.py)`", where))
    homes = {
        name: importlib.import_module(f"anyreward.theory.{name}")
        for name in ("bounds", "fb", "navigation", "stationary")
    }
    homes |= {"FiniteMDP": ar.FiniteMDP, "FB": homes["fb"].FB, "Agent": ar.Agent, "anyreward": ar}
    for room, name in named:
        home = homes.get(room, ar)
        name = name or room
        assert hasattr(home, name) or name in getattr(home, "__dataclass_fields__", {}), (room, name)
    found = {str(path.relative_to(ROOT / "tests")) for path in (ROOT / "tests").rglob("test_*.py")}
    assert tests
    assert all(any(path.endswith(test) for path in found) for test in tests), tests


def test_rewards_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way to give a reward, one block after the other."""
    monkeypatch.chdir(tmp_path)
    small = {"updates": 400, "hidden": 32, "progress": False}
    monkeypatch.setattr(ar, "train", lambda *a, _train=ar.train, **k: _train(*a, **k, **small))
    names: dict[str, object] = {}
    found = blocks("docs/rewards.md")
    assert len(found) >= 11
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # samples that are few say so
        for block in found:
            exec(compile(block, "rewards.md", "exec"), names)
    assert Path("task.json").exists()
    assert Path("tuned.safetensors").exists()


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md"]
    notes = sorted((ROOT / "docs").rglob("*.md"))
    assert ROOT / "docs" / "notebook" / "README.md" in notes
    for page in [*pages, *notes]:
        for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text()):
            if not target.startswith("http"):
                there = page.parent / target if target else page
                assert there.exists(), f"{page.name} links to {target}"
                assert not heading or heading in headings(there), f"{page.name} links to {target}#{heading}"


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_settings_page_lists_every_difference_of_the_presets() -> None:
    from anyreward.learning.settings import FAST

    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(FAST)


def test_settings_page_explains_every_setting_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyreward.learning.settings import SettingChanges

    page = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in [*SettingChanges.__annotations__, "features"] if f"`{name}` (" not in page] == []
    small = {"updates": 40, "hidden": 16, "landmarks": 0, "progress": False}
    monkeypatch.setattr(ar, "train", lambda *a, _train=ar.train, **k: _train(*a, **k | small))
    names: dict[str, object] = {"ar": ar}
    exec(compile(page.split("```")[1], "settings.md", "exec"), names)
    agent = names["agent"]
    assert isinstance(agent, ar.Agent)
    assert agent.settings.z_mixture == ar.ZMixture(goals=0.5)
    assert agent.run.threads == 1


def test_make_targets_are_the_first_commands() -> None:
    commands = re.findall(r"^(make \w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]
    assert "make test" in (ROOT / ".ci" / "run").read_text()
