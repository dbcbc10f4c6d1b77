"""Pictures and films are written whole or not at all."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from anyreward import UserError
from anyreward.figures.curves import draw_curves
from anyreward.figures.films import Film, draw_film, save_gif

RUNS = {"a $ b $^": [[{"updates": 1, "success": 0.5}, {"updates": 2, "success": 0.7}]]}
NONE = np.zeros((0, 2))
FILM = Film([np.full((40, 40, 3), 40 * i, dtype=np.uint8) for i in range(3)], NONE, NONE, NONE)


@contextmanager
def full_disk() -> Iterator[None]:
    """Files cannot grow beyond a few bytes here, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a.svg", "a.gif", "a.PNG"])
def test_a_full_disk_leaves_the_old_picture_and_names_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name

    def draw() -> Path:
        return save_gif(FILM, path) if name.endswith("gif") else draw_curves(RUNS, path, "cost: 5$, or 6$")

    with full_disk(), pytest.raises(UserError, match=rf"{path} cannot be written"):
        draw()
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    with full_disk(), pytest.raises(UserError, match="cannot be written"):
        draw()
    assert path.read_bytes() == b"old"
    assert draw() == path
    assert path.stat().st_size > 100
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_paths_of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert draw_film(FILM, Path("~/deep/a.png"), "three images") == tmp_path / "deep" / "a.png"
    assert save_gif(FILM, Path("~/a.gif")).read_bytes().startswith(b"GIF")
    with pytest.raises(UserError, match=r"a\.bmp ends in none of these"):
        draw_film(FILM, tmp_path / "a.bmp")
    with pytest.raises(UserError, match=r"a\.mp4 does not end in \.gif"):
        save_gif(FILM, tmp_path / "a.mp4")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/a\.png cannot be written"):
        draw_film(FILM, tmp_path / "file" / "a.png")
