"""Atomic writing of files, reading of JSON and .npz files, and SHA-256 hashes."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from anyreward.errors import UserError

TEMPORARY = ".anyreward-"
"""Beginning of the names of temporary files."""
MEMORY_SHARE = 0.9
"""Largest share of the free memory that the content of a file may take."""
CHUNK = 2**24
"""Number of bytes of a large array that are read at a time."""
CONTAINERS = (
    ("/sys/fs/cgroup", "memory.max", "anon"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "total_rss"),
)
"""Folders of the cgroups, versions 2 and 1, with the file of the limit and the name of what is used; the rest of what
the kernel counts is its cache, which it gives up."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a temporary file, fsync it and rename it: a reader sees the old file or the new one, never a part."""
    write_together({path: content})


def write_together(contents: dict[Path, bytes]) -> None:
    """Write several files like `write_atomically`: first all temporary files, then all are renamed, in order."""
    written: list[tuple[str, Path]] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
            written.append((name, path))
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
        for name, path in written:
            os.replace(name, path)
        for folder in {path.parent for path in contents}:
            _sync(folder)
    except BaseException as error:
        for name, _ in written:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise UserError(f"{path} cannot be written: no space is left on its disk.") from error
        raise


def _sync(folder: Path) -> None:
    """Make renames in a folder survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # not every file system can
        pass
    finally:
        os.close(descriptor)


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
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and brackets in brackets
        raise UserError(f"{path} is not valid JSON: {error}") from error


def reason(error: Exception) -> str:
    """The kind and the text of an exception, in one line, as the reason in a `UserError`."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(".").removesuffix(":")


class Header(NamedTuple):
    """What a file declares of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def rows_at_once(self) -> int:
        """The number of rows that are read at a time."""
        return max(1, CHUNK * max(1, self.shape[0]) // max(1, self.size))


class NpzFile:
    """The arrays of an open .npz file; the sizes that it declares agree with its content. See `open_npz`."""

    def __init__(self, path: Path, file: zipfile.ZipFile, names: Collection[str] | None) -> None:
        self._file = file
        self._members: dict[str, zipfile.ZipInfo] = {}
        _check_members(path, file)
        for info in file.infolist():
            key = info.filename.removesuffix(".npy")
            if info.filename.endswith(".npy") if names is None else key in names:
                if key in self._members:
                    raise ValueError(f"{key} occurs twice")
                self._members[key] = info
        self.headers = {key: _header(file, key, info) for key, info in self._members.items()}

    def read(self, key: str, count: Callable[[int], object] | None = None) -> Any:
        """An array; ``count`` is told the number of bytes of each part that was read."""
        with self._file.open(self._members[key]) as stream:
            source: Any = stream if count is None else _Counted(stream, count)
            array = np.lib.format.read_array(source, allow_pickle=False)
        return array.astype(array.dtype.newbyteorder("="), copy=False)  # PyTorch takes no other byte order

    def rows(self, key: str) -> Iterator[Any]:
        """The rows of an array, some at a time."""
        shape, dtype = self.headers[key]
        n, at_once = shape[0], self.headers[key].rows_at_once
        with self._file.open(self._members[key]) as stream:
            np.lib.format.read_magic(stream)
            if np.lib.format.read_array_header_1_0(stream)[1]:  # the order of Fortran: a row is in many places
                whole = self.read(key)
                yield from (whole[start : start + at_once] for start in range(0, n, at_once))
                return
            for start in range(0, n, at_once):
                part = (min(at_once, n - start), *shape[1:])
                content = stream.read(math.prod(part) * dtype.itemsize)
                yield np.frombuffer(content, dtype).reshape(part).astype(dtype.newbyteorder("="), copy=False)


class _Counted:
    """A stream that reports the number of bytes of each part that is read."""

    def __init__(self, stream: IO[bytes], count: Callable[[int], object]) -> None:
        self._stream, self._count = stream, count

    def read(self, size: int) -> bytes:
        content = self._stream.read(size)
        self._count(len(content))
        return content


@contextmanager
def open_npz(path: Path, names: Collection[str] | None = None) -> Iterator[NpzFile]:
    """An .npz file with the headers of its arrays, or of those of ``names``; nothing else is read yet.

    Raises `UserError` if it is unreadable or holds Python objects, also while it is read.
    """
    try:
        if not path.is_file():
            raise UserError(f"There is no file {path}.")
        with zipfile.ZipFile(path) as file:
            yield NpzFile(path, file, names)
    except UserError:
        raise
    except Exception as error:  # damage makes zipfile, its decompressors and NumPy raise errors of a dozen kinds
        raise UserError(f"{path} is not a readable .npz of plain arrays: {reason(error)}.") from error


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """The arrays of an .npz file, or those of ``names``; raises `UserError` if it is unreadable or holds objects.

    The sizes that the file declares are compared with its content and with the free memory before an array is read.
    """
    with open_npz(path, names) as file:
        check_fits(sum(header.size for header in file.headers.values()), str(path))
        return {key: file.read(key) for key in file.headers}


def _check_members(path: Path, file: zipfile.ZipFile) -> None:
    """Raise if members of a zip file went missing or were renamed by damage, which zipfile does not notice."""
    with path.open("rb") as raw:
        raw.seek(-22 - len(file.comment), os.SEEK_END)  # the last record, with the number of members in bytes 10 and 11
        declared = int.from_bytes(raw.read(12)[10:], "little")
    members = file.infolist()
    if declared != min(len(members), 0xFFFF):  # the largest number there
        raise ValueError(f"it declares {declared} members, but lists {len(members)}")
    for info in members:
        file.open(info).close()  # compares both places of its name


def _header(file: zipfile.ZipFile, key: str, info: zipfile.ZipInfo) -> Header:
    """The header of an .npy file in a zip file; raises unless the file holds as many bytes as it declares."""
    with file.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):  # NumPy writes others for structured arrays only
            raise ValueError(f"{key} has the .npy version {version}; expected (1, 0)")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.hasobject:
            raise ValueError(f"{key} holds Python objects")
        declared, held = math.prod(shape) * dtype.itemsize, info.file_size - stream.tell()
        if min(shape, default=0) < 0 or dtype.itemsize == 0 or declared != held:
            raise ValueError(
                f"{key} declares the shape {shape} of {dtype}, {declared:,} bytes, but holds {held:,} bytes"
            )
    return Header(shape, dtype)


def check_fits(needed: int, what: str) -> None:
    """Raise a UserError if some bytes to be read do not fit into the free memory; ``what`` names them."""
    free = available_memory()
    if needed > MEMORY_SHARE * free:
        raise UserError(
            f"{what} declares {needed / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB of memory are free. If the size is "
            "right, give fewer rows, or use a machine with more memory."
        )


def available_memory() -> int:
    """Bytes of memory that are available without swapping, on this machine and in this container."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):  # not Linux: the total memory
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder, limit, used in CONTAINERS:
        try:
            counts = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            free = min(free, int(Path(folder, limit).read_text()) - int(counts[used]))
        except (OSError, KeyError, ValueError):  # there is no such container, or its limit is "max"
            continue
    return max(free, 0)


def sha256(content: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
