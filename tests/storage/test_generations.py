"""Folders that are never half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyreward.errors import UserError
from anyreward.storage.generations import KEPT, newest_generation, remove_unused, write_generation
from anyreward.storage.lock import locked


def save(folder: Path, what: int, kept: dict[str, str] | None = None) -> dict[str, str]:
    contents = [("weights-{}", b"w%d" % what), (f"replay-{{}}-{what}-{what + 1}", b"r%d" % what)]
    return write_generation(folder, {"format": 3, "what": what}, contents, kept or {}).files


def test_the_last_generations_are_kept_and_no_others(tmp_path: Path) -> None:
    kept: dict[str, str] = {}
    for what in range(5):
        files = save(tmp_path, what, kept)
        kept = {name: sha for name, sha in files.items() if name.startswith("replay")}
    found = newest_generation(tmp_path, 3)
    assert found is not None
    assert found.config["what"] == 4
    assert found.number == 5
    names = {path.name for path in tmp_path.iterdir()}
    assert {name for name in names if name.startswith("weights")} == {
        f"weights-{5 - i}.safetensors" for i in range(KEPT)
    }
    assert {name for name in names if name.startswith("replay")} == set(kept)  # shared by all of them
    assert {name for name in names if name.startswith("agent")} == {"agent.json", "agent-4.json"}


def test_what_does_not_belong_to_us_stays(tmp_path: Path) -> None:
    for name in ("notes.txt", "weights-best.safetensors", "agent-old.json", ".hidden"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".anyreward-left").write_text("of a process that was killed")
    (tmp_path / "weights-7.safetensors").write_text("of a save that was never finished")
    save(tmp_path, 0)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"notes.txt", "weights-best.safetensors", "agent-old.json", ".hidden"} < names
    assert ".anyreward-left" not in names
    assert "weights-7.safetensors" not in names
    remove_unused(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names


@given(st.data())
def test_any_flipped_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flip")
    save(folder, 0)
    files = save(folder, 1)
    path = folder / data.draw(st.sampled_from(["agent.json", *files]))
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = newest_generation(folder, 3)
    assert found is not None
    assert found.config["what"] == 0
    assert "The save before it is used" in str(told[0].message)


def test_without_an_intact_generation_the_error_names_the_file(tmp_path: Path) -> None:
    files = save(tmp_path, 0)
    weights = next(name for name in files if name.startswith("weights"))
    (tmp_path / weights).unlink()
    with pytest.raises(UserError, match=f"{weights} is missing or damaged"):
        newest_generation(tmp_path, 3)
    assert newest_generation(tmp_path / "..", 3) is None
    with pytest.raises(UserError, match="has agent format 3; this anyreward reads format 4"):
        newest_generation(tmp_path, 4)


def test_an_index_cannot_point_outside(tmp_path: Path) -> None:
    save(tmp_path, 0)
    index = json.loads((tmp_path / "agent.json").read_text())
    from anyreward.storage.generations import index_hash

    del index["sha256"]
    index["files"] = {"../secret.safetensors": "0"}
    (tmp_path / "agent.json").write_text(json.dumps({**index, "sha256": index_hash(index)}))
    with pytest.raises(UserError, match="does not list the files"):
        newest_generation(tmp_path, 3)


def test_a_full_disk_is_noticed_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 0)
    usage = os.statvfs(tmp_path)
    monkeypatch.setattr("anyreward.storage.generations.MARGIN", usage.f_bavail * usage.f_frsize * 2)
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match="MB are free on its disk"):
        save(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UserError, match=f"in use by process {os.getpid()} on "), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()  # nothing was written into it


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = "import sys, time; from pathlib import Path; from anyreward.storage.lock import locked\n"
    program += "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match=f"in use by process {child.pid}"), locked(tmp_path):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert (tmp_path / "lock").exists()
    with locked(tmp_path):
        pass
    assert not (tmp_path / "lock").exists()
