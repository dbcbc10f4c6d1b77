"""The agents that come with the package: small folders of agents, each in a .zip file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anyreward.errors import UserError, shown

PREFIX = "shipped:"
"""What the names of these agents begin with, where a folder is expected."""
HOME = Path(__file__).parent.parent / "shipped"


def shipped_agents() -> dict[str, Path]:
    """The .zip files of the agents, by name."""
    return {path.stem: path for path in sorted(HOME.glob("*.zip"))}


def shipped_name(folder: Path | str) -> str | None:
    """NAME of "shipped:NAME"; None for the folders of users."""
    text = str(folder)
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) else None


def _archive(name: str) -> Path:
    known = shipped_agents()
    if name not in known:
        raise UserError(f"No agent named {shown(name)} comes with the package; it has {', '.join(known)}.")
    return known[name]


@contextmanager
def opened_folder(folder: Path) -> Iterator[Path]:
    """The folder as it was given, or for "shipped:NAME" a temporary one with that agent's files."""
    name = shipped_name(folder)
    if name is None:
        yield folder
        return
    with TemporaryDirectory(prefix="anyreward-") as place, zipfile.ZipFile(_archive(name)) as archive:
        archive.extractall(place)
        yield Path(place)


def shipped_index(name: str, file: str) -> Any:
    """The JSON of a file of an agent, without unpacking the others."""
    with zipfile.ZipFile(_archive(name)) as archive:
        return json.loads(archive.read(file))


def ship(folder: Path, name: str) -> Path:
    """Pack an agent's folder for the package; equal folders give equal files."""
    HOME.mkdir(exist_ok=True)
    path = HOME / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    return path
