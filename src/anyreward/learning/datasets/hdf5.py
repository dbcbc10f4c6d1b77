"""HDF5 files: their arrays are there as a whole, and are read some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.errors import UserError
from anyreward.storage.files import CHUNK, Header, reason
from anyreward.worlds.spaces import Array


class Hdf5File:
    """The arrays of an open HDF5 file that are not in a group, with the same methods as an `NpzFile`."""

    def __init__(self, path: Path, file: Any, names: Collection[str]) -> None:
        import h5py

        self._arrays: dict[str, Any] = {}
        for key in names:
            link = file.get(key, getlink=True)
            if link is None:
                continue
            if not isinstance(link, h5py.HardLink) or not isinstance(file[key], h5py.Dataset):
                raise UserError(f"{key} of {path} is not an array; write it as an HDF5 dataset of its own.")
            self._arrays[key] = file[key]
            check_stored(self._arrays[key], path)
        self.headers = {key: Header(array.shape, array.dtype) for key, array in self._arrays.items()}

    def read(self, key: str) -> Array:
        """An array."""
        return _native(self._arrays[key][()])

    def rows(self, key: str) -> Iterator[Array]:
        """The rows of an array, some at a time; whole chunks of the file, if these are not large."""
        array, at_once = self._arrays[key], self.headers[key].rows_at_once
        if array.chunks:
            at_once = max(1, at_once // array.chunks[0]) * array.chunks[0]
        for start in range(0, len(array), at_once):
            yield _native(array[start : start + at_once])


def _native(values: Any) -> Array:
    """An array in the byte order of this machine."""
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


@contextmanager
def open_hdf5(path: Path, names: Collection[str]) -> Iterator[Hdf5File]:
    """An HDF5 file with the headers of its arrays of these ``names``; nothing else is read yet.

    Raises `UserError` if it is unreadable, also while it is read.
    """
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"Reading {path} needs h5py: pip install 'anyreward[datasets]'.") from error
    try:
        with h5py.File(path, "r") as file:
            yield Hdf5File(path, file, names)
    except UserError:
        raise
    except Exception as error:  # damage makes h5py raise many kinds
        raise UserError(f"{path} is not a readable HDF5 file: {reason(error)}. Download or write it again.") from error


def check_stored(array: Any, path: Path) -> int:
    """The number of bytes that an array declares; raises unless they are in its file."""
    shape, chunks = array.shape or (), array.chunks
    size = math.prod(shape) * int(array.dtype.itemsize)
    whole = array.id.get_storage_size() >= size and array.external is None and not array.is_virtual
    if chunks:  # compressed or not, all of them must be there; h5py would fill in zeros, or run out of memory
        expected = math.prod(-(-side // chunk) for side, chunk in zip(shape, chunks, strict=True))
        whole = array.id.get_num_chunks() == expected
    if not whole or array.shape is None:
        raise UserError(f"{array.name} of {path} declares the shape {array.shape}, but holds less data.")
    if chunks and math.prod(chunks) * array.dtype.itemsize > max(16 * CHUNK, 2 * size):
        raise UserError(f"{array.name} of {path} is stored in parts of the shape {chunks}; that cannot be right.")
    return size
