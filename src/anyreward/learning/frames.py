"""Storage for the images of a replay buffer: each frame is stored once, although stacked observations share frames."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.storage.files import available_memory
from anyreward.worlds.spaces import Array

SHARE = 0.9
"""Largest share of the free memory, or disk space, for frames."""
RECENT = 2**13
"""Number of recent frames that a new one is compared with; observations of one episode share frames."""


class Frames:
    """Frames by number, with reference counts; frames without references are replaced by new ones.

    Space for ``expected`` frames is reserved at once, but memory is allocated as they are written. For more frames, the
    space is enlarged. With a ``file`` the frames are in a memory-mapped file, which `close` removes.
    """

    def __init__(self, image: tuple[int, int, int], expected: int, file: str | Path | None = None) -> None:
        self.stack, self.size = image[0], image[1] * image[2]
        self.file = Path(file) if file else None
        if self.file is not None:
            try:
                self.file.open("x").close()
            except FileExistsError:
                raise UserError(f"{self.file} exists already. Name a new file for the frames, or remove it.") from None
            except OSError as error:
                raise UserError(f"Frames cannot be kept in {self.file}: {error.strerror}.") from error
        self.images = torch.empty(0, self.size, dtype=torch.uint8)
        self._uses = np.zeros(0, dtype=np.int32)
        self._fresh = 0  # numbers from here on have never been used
        self._free: list[int] = []
        self._recent: OrderedDict[bytes, int] = OrderedDict()
        self._reserve(expected)

    @property
    def kept(self) -> int:
        """The number of frames stored."""
        return self._fresh - len(self._free)

    def keep(self, rows: Tensor) -> Tensor:
        """(n, stack) the numbers of the frames of observations (n, stack * size); new frames are stored."""
        images = np.ascontiguousarray(rows.numpy()).reshape(-1, self.size)
        numbers = np.fromiter((self._number(image) for image in images), np.int64, len(images))
        return torch.from_numpy(numbers.reshape(-1, self.stack))

    def release(self, numbers: Tensor) -> None:
        """Remove one reference to each of these frames."""
        given = numbers.numpy().ravel()
        np.subtract.at(self._uses, given, 1)
        self._free += [int(number) for number in np.unique(given) if self._uses[number] == 0]

    def of(self, numbers: Tensor) -> Tensor:
        """(n, stack * size) the observations whose frames have these numbers (n, stack)."""
        return self.images.index_select(0, numbers.flatten()).view(len(numbers), -1)

    def close(self) -> None:
        """Release all frames, and remove the file."""
        self.images = torch.empty(0, self.size, dtype=torch.uint8)
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def _number(self, image: Array) -> int:
        digest = hashlib.blake2b(image.data, digest_size=16).digest()
        number = self._recent.get(digest, -1)
        if number < 0 or self._uses[number] == 0 or not np.array_equal(self.images[number].numpy(), image):
            number = self._place()
            self.images[number] = torch.from_numpy(image)
            self._recent[digest] = number
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        self._uses[number] += 1
        return number

    def _place(self) -> int:
        if self._free:
            return self._free.pop()
        if self._fresh == len(self.images):
            self._reserve(2 * self._fresh + 1)
        self._fresh += 1
        return self._fresh - 1

    def _reserve(self, frames: int) -> None:
        if self.file is None:
            room = torch.empty(frames, self.size, dtype=torch.uint8)  # memory is allocated when it is written to
            room[: self._fresh] = self.images[: self._fresh]
        else:
            os.truncate(self.file, frames * self.size)  # and so is disk space
            room = torch.from_numpy(np.memmap(self.file, np.uint8, "r+", shape=(frames, self.size)))
        self.images = room
        self._uses = np.concatenate([self._uses, np.zeros(frames - len(self._uses), dtype=np.int32)])


def check_memory(transitions: int, frames_each: int, frame_bytes: int, file: str) -> None:
    """Raise a UserError if a replay buffer of images does not fit into the free memory, or its file on the disk."""
    needed = transitions * frames_each * frame_bytes
    if file:
        folder = Path(file).resolve().parent
        if not folder.is_dir():
            raise UserError(f"replay_file is {file!r}, but there is no folder {folder}.")
        free, where, instead = shutil.disk_usage(folder).free, f"on the disk of {folder}", "use another disk"
    else:
        free, where, instead = available_memory(), "in memory", "keep frames in a file (replay_file)"
    fits = int(SHARE * free / (frames_each * frame_bytes))
    if transitions > fits:
        raise UserError(
            f"A replay buffer of {transitions:,} transitions with {frames_each} frames of {frame_bytes:,} bytes needs "
            f"{needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free {where}. Lower replay_size (to {fits:,}), or "
            f"{instead}."
        )
