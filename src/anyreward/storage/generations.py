"""Folders that are never half-written: each save is a new generation of files, switched to by one rename.

A generation is an index file, JSON with the SHA-256 of every data file and of itself. Data files are written under new
names first; then the index ``agent.json`` is replaced, atomically. Earlier generations stay as ``agent-N.json``. A
reader verifies everything before it uses anything, and takes the newest generation that is intact.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from anyreward.errors import UserError
from anyreward.storage.files import TEMPORARY, as_json, file_sha256, read_json, sha256, write_atomically

INDEX = "agent.json"
KEPT = 2
"""Number of generations that are kept."""
EARLIER = re.compile(r"agent-(\d+)\.json")
DATA = re.compile(r"[a-z]+-(\d+)(?:-\d+)*\.safetensors")
"""Names of data files. An index cannot name any other file, so it cannot point outside of its folder."""
MARGIN = 2**20
"""Bytes that stay free on the disk."""


class Damaged(UserError):
    """A file of a generation is damaged, so that an earlier generation is used."""


class Generation(NamedTuple):
    """A verified generation of a folder."""

    number: int
    config: dict[str, Any]
    """what was saved with the files"""
    files: dict[str, str]
    """the SHA-256 of each data file, by name"""


def write_generation(
    folder: Path, config: dict[str, Any], contents: Iterable[tuple[str, bytes]], kept: Mapping[str, str]
) -> Generation:
    """Write a new generation, and then remove what belongs to none of the last `KEPT` ones.

    ``contents`` are new data files by name, in which {} stands for the number of the generation: "weights-{}".
    ``kept`` are data files of earlier generations that belong to the new one, with their SHA-256.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max([0, *_numbers(folder)])
    files = dict(kept)
    for template, data in contents:
        name = f"{template.format(number)}.safetensors"
        check_space(folder, len(data))
        write_atomically(folder / name, data)
        files[name] = sha256(data)
    index = {**config, "generation": number, "files": files}
    _keep_current(folder)
    write_atomically(folder / INDEX, as_json({**index, "sha256": index_hash(index)}))
    remove_unused(folder)
    return Generation(number, index, files)


def newest_generation(folder: Path, format: int, kinds: Collection[str] = ()) -> Generation | None:
    """The newest generation of which every file is intact; None if there is no index at all.

    Only files of these ``kinds`` are read, if any are given. Warns if the generation is not the last one. Raises
    `UserError` if no generation is intact, or if the format is not ``format``.
    """
    faults = []
    for path in indices(folder):
        try:
            found = _verified(folder, path, format, kinds)
        except Damaged as error:
            faults.append(str(error))
            continue
        if faults:
            warnings.warn(f"{faults[0]} The save before it is used, {path.name}.", stacklevel=4)
        return found
    if faults:
        raise UserError(faults[0] if len(faults) == 1 else f"{faults[0]} No earlier save is intact either.")
    return None


def remove_unused(folder: Path) -> None:
    """Remove generations before the last `KEPT`, data files that belong to none, and what a killed process left."""
    numbers: set[int] = set()
    used: set[str] = set()
    for path in indices(folder):
        try:
            index = read_json(path)
            number, files = int(index["generation"]), set(index["files"])
        except (UserError, KeyError, TypeError, ValueError):
            continue  # it is damaged, and will be replaced
        if path.name != INDEX and (number in numbers or len(numbers) >= KEPT):
            path.unlink(missing_ok=True)
        else:
            numbers.add(number)
            used |= files
    for path in folder.iterdir() if numbers else ():
        if path.name.startswith(TEMPORARY) or (DATA.fullmatch(path.name) and path.name not in used):
            path.unlink(missing_ok=True)


def check_space(folder: Path, needed: int) -> None:
    """Raise a UserError if the disk of a folder has no room for some bytes."""
    free = shutil.disk_usage(folder).free
    if needed + MARGIN > free:
        raise UserError(
            f"Saving in {folder} needs {needed / 1e6:,.1f} MB, but {free / 1e6:,.1f} MB are free on its disk. Free "
            "some space, or choose another disk (out)."
        )


def _verified(folder: Path, path: Path, format: int, kinds: Collection[str]) -> Generation:
    """The generation of an index file; raises if any of its files is damaged."""
    try:
        index = read_json(path)
    except UserError as error:
        raise Damaged(str(error)) from error
    if not isinstance(index, dict):
        raise Damaged(f"{path} is not the index of an agent: it holds {type(index).__name__}, not an object.")
    saved = index.pop("sha256", None)
    if saved != index_hash(index) and (saved is not None or index.get("format") == format):
        raise Damaged(f"{path} is damaged: its content does not have the SHA-256 that it was saved with.")
    if index.get("format") != format:
        raise UserError(f"{path} has agent format {index.get('format')!r}; this anyreward reads format {format}.")
    files = index.get("files")
    listed = isinstance(files, dict) and all(DATA.fullmatch(str(name)) for name in files)
    if not isinstance(files, dict) or not listed or type(index.get("generation")) is not int:
        raise Damaged(f"{path} is damaged: it does not list the files of an agent.")
    for name, expected in files.items():
        if kinds and name.split("-")[0] not in kinds:
            continue
        if not (folder / name).is_file() or file_sha256(folder / name) != expected:
            raise Damaged(f"{folder / name} is missing or damaged: it does not have the SHA-256 in {path.name}.")
    return Generation(index["generation"], index, files)


def index_hash(index: dict[str, Any]) -> str:
    """The SHA-256 of an index, without its own."""
    return sha256(json.dumps(index, sort_keys=True).encode())


def indices(folder: Path) -> list[Path]:
    """The index files of a folder, newest first."""
    earlier = [path for path in folder.glob("agent-*.json") if EARLIER.fullmatch(path.name)]
    earlier.sort(key=lambda path: int(path.name[6:-5]), reverse=True)
    return [folder / INDEX] * (folder / INDEX).is_file() + earlier


def _numbers(folder: Path) -> list[int]:
    """The numbers of the generations that a folder holds files of."""
    found = (EARLIER.fullmatch(path.name) or DATA.fullmatch(path.name) for path in folder.iterdir())
    return [int(match[1]) for match in found if match]


def _keep_current(folder: Path) -> None:
    """Keep the current index under its own number, so that it is not lost when it is replaced."""
    try:
        number = int(read_json(folder / INDEX)["generation"])
    except (UserError, KeyError, TypeError, ValueError):
        return  # there is none, or it is damaged
    path = folder / f"agent-{number}.json"
    if not path.exists():
        write_atomically(path, (folder / INDEX).read_bytes())
