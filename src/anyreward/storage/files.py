"""Atomic writing of files, reading of JSON and .npz files, and SHA-256 hashes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.errors import UserError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file, fsync it and rename it: a reader sees the old file or the new one, never a part."""
    write_together({path: content})


def write_together(contents: dict[Path, bytes]) -> None:
    """Write several files like `write_atomically`: first all temporary files, then all are renamed, in order."""
    written: list[tuple[str, Path]] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            written.append((name, path))
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
        for name, path in written:
            os.replace(name, path)
    except BaseException:
        for name, _ in written:
            Path(name).unlink(missing_ok=True)
        raise


def as_json(data: Any) -> bytes:
    """Indented JSON."""
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON, atomically."""
    write_atomically(path, as_json(data))


def read_json(path: Path) -> Any:
    """Read JSON; raises `UserError` if the file is missing or invalid."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"There is no {path.name} in {path.parent}.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """The arrays of an .npz file, or those of ``names``; raises `UserError` if it is unreadable or holds objects."""
    if not path.is_file():
        raise UserError(f"There is no file {path}.")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {key: file[key] for key in file.files if names is None or key in names}
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz of plain arrays: {error}") from error


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
