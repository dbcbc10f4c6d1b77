from __future__ import annotations

import hashlib
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest

from anyreward import UserError
from anyreward.storage import user_path
from anyreward.storage.files import read_json, sha256, write_atomically, write_json
from anyreward.storage.metrics import MetricsLog, read_metrics


def test_writes_and_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file.bin"
    for content in (b"old", b"new\x00\xff", b""):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_rename_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")
    written = []

    def fail(source: str, target: Any) -> None:
        written.append(Path(source).read_bytes())
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        write_atomically(path, b"new")
    assert written == [b"new"]  # whole before it is renamed
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"loss": math.nan})
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


def test_a_folder_in_the_way_leaves_no_litter(tmp_path: Path) -> None:
    (tmp_path / "file.bin" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match=r"file\.bin"):
        write_atomically(tmp_path / "file.bin", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


def test_json_round_trip(tmp_path: Path) -> None:
    data = {"a": [1, 2.5, None, True], "é": {"nested": "x"}}
    write_json(tmp_path / "a.json", data)
    assert read_json(tmp_path / "a.json") == data
    assert (tmp_path / "a.json").read_text().endswith("}\n")


def test_json_that_is_missing_or_broken(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"no agent\.json in {tmp_path}"):
        read_json(tmp_path / "agent.json")
    (tmp_path / "half.json").write_text('{"a": [1, 2')
    with pytest.raises(UserError, match=r"half\.json is not valid JSON: .*line 1"):
        read_json(tmp_path / "half.json")
    (tmp_path / "bytes.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UserError, match=r"bytes\.json is not valid JSON"):
        read_json(tmp_path / "bytes.json")


def test_sha256() -> None:
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(b"x") == hashlib.sha256(b"x").hexdigest()


LINES = [{"updates": 10, "loss": 1.5}, {"updates": 20, "loss": -0.25, "quality": 0.5}]


def test_metrics_are_whole_lines_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with MetricsLog(folder) as log:
        for i, line in enumerate(LINES, start=1):
            log.write(line)
            text = (folder / "metrics.jsonl").read_text()  # readable while the run goes on
            assert text.endswith("\n")
            assert [json.loads(x) for x in text.splitlines()] == LINES[:i]
    assert read_metrics(folder) == LINES
    assert [p.name for p in folder.iterdir()] == ["metrics.jsonl"]


def test_a_new_log_starts_empty(tmp_path: Path) -> None:
    for line in LINES:
        with MetricsLog(tmp_path) as log:
            log.write(line)
    assert read_metrics(tmp_path) == LINES[1:]


def test_no_metrics(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no metrics\.jsonl"):
        read_metrics(tmp_path)


def test_tensorboard_on_request(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with MetricsLog(tmp_path, tensorboard=True) as log:
        for line in LINES:
            log.write(line)
    assert read_metrics(tmp_path) == LINES
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(10, 1.5), (20, -0.25)]
    assert [(e.step, e.value) for e in events.Scalars("quality")] == [(20, 0.5)]


def test_a_bad_byte_in_the_metrics_is_a_user_error_or_nothing(tmp_path: Path) -> None:
    path, rng, messages = tmp_path / "metrics.jsonl", random.Random(0), set()
    whole = "".join(json.dumps(line) + "\n" for line in LINES).encode()
    for _ in range(300):
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :])
        try:
            assert all(math.isfinite(line["updates"]) for line in read_metrics(tmp_path))
        except UserError as error:
            messages.add(str(error))
    assert all(str(path) in message and "\n" not in message for message in messages)


@pytest.mark.parametrize(
    "line", ["[1]", "5", "{}", '{"loss": 1}', '{"updates": "3"}', '{"updates": 1e999}', '{"updates": -1}', "[" * 99_999]
)
def test_a_line_that_is_no_metrics_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(LINES[0])}\n{line}\n{json.dumps(LINES[1])}\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: line 2 cannot be read"):
        read_metrics(tmp_path)


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for torn in ("", "{", '{"updates": 30', '{"updates": 30, "loss": 1}'):
        path.write_text("".join(json.dumps(line) + "\n" for line in LINES) + torn)
        assert read_metrics(tmp_path) == LINES
        path.write_text(torn)
        assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("content", [b'{"epoch": 1}\n', b"hello", b"\xff\n", b'{"seconds": 3}'])
def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    for after in (None, 0):
        with pytest.raises(UserError, match=rf"{path} was not written by anyreward"):
            MetricsLog(tmp_path, after=after)
    assert path.read_bytes() == content
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=rf"{path} is not a file"):
        MetricsLog(tmp_path)


def test_paths_of_a_user() -> None:
    assert user_path("~/x") == Path.home() / "x"
    assert user_path(Path("~")) == Path.home()
    assert user_path("a/~") == Path("a/~")
    for bad in ("a\0b", None, 5):
        with pytest.raises(UserError, match="is not a path"):
            user_path(bad)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="~nobody-of-this-name/x cannot be expanded"):
        user_path("~nobody-of-this-name/x")
