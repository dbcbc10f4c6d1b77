"""`anyreward selfcheck`, at a small scale. The attacks on input have tests of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anyreward.cli import main
from anyreward.selfcheck.check import CHECKS, attacked, run_checks
from anyreward.selfcheck.soak import soak


def test_runs_survive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "checks.json"
    only = ["kill", "write", "signal", "twice", "disk", "flip"]
    assert main(["selfcheck", "--scale", "0.02", "--only", *only, "--json", str(path)]) == 0
    found = {check["fault"]: check for check in json.loads(path.read_text())["checks"]}
    assert len(found) == 11
    assert all(check["failed"] == 0 for check in found.values())
    assert all(check["tried"] > 0 or check["note"] for check in found.values())
    assert "kill -9 at random moments" in capsys.readouterr().out


def test_a_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def attack(count: int, seed: int) -> dict[str, int]:
        return {"tried": count, "refused": count - 1, "silent": 1}

    monkeypatch.setitem(CHECKS, "dataset", (attacked("datasets", attack), 1_000))
    (result,) = run_checks(0.01, 0, ("dataset",))
    assert (result.tried, result.failed, result.failures) == (10, 1, ["silent: 1"])
    with pytest.raises(SystemExit) as error:
        main(["selfcheck", "--only", "dataset"])
    assert error.value.code == 1


def test_a_short_soak() -> None:
    result = soak(0.05, 0)
    assert result.tried > 0
    assert result.failed == 0
    assert "open files" in result.note
