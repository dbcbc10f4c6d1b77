"""The replay buffer on disk: files of transitions that are only ever appended, so that a save costs what is new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors

from anyreward.errors import UserError
from anyreward.learning.replay import Replay, Transitions, from_columns

LARGEST_SHARD = 2**27
"""Bytes of transitions in one file; images are counted without the frames that they share."""
IMAGES = ("observations", "next_observations")


class Shard(NamedTuple):
    """A file with the transitions ``first`` to ``end``, counted from the beginning of the run."""

    file: str
    """replay-GENERATION-FIRST-END.safetensors"""
    first: int
    end: int

    @classmethod
    def of(cls, file: str) -> Shard:
        """The shard of a file name."""
        _, _, first, end = file.removesuffix(".safetensors").split("-")
        return cls(file, int(first), int(end))


def new_shards(replay: Replay, saved: int) -> Iterator[tuple[int, int, bytes]]:
    """The transitions that were added after the first ``saved`` ones, in pieces: first, end, content."""
    first = max(saved, replay.added - len(replay))
    if first >= replay.added:
        return
    one = replay.at(torch.tensor([first % replay.capacity], device=replay.device))
    row = sum(column.numel() * column.element_size() for column in one.columns.values())
    most = max(1, LARGEST_SHARD // row)
    for start in range(first, replay.added, most):
        end = min(start + most, replay.added)
        index = torch.arange(start, end, device=replay.device) % replay.capacity
        yield start, end, _packed(replay, replay.transitions.at(index))


def _packed(replay: Replay, rows: Transitions) -> bytes:
    """Transitions as bytes; each frame of images once."""
    tensors = dict(rows.columns)
    if replay.frames is not None:
        numbers = torch.stack([rows.observations, rows.next_observations])
        used, index = torch.unique(numbers.cpu(), return_inverse=True)
        tensors |= dict(zip(IMAGES, index.to(torch.int32), strict=True))
        tensors["frames"] = replay.frames.images[used]
    return save_tensors({name: tensor.cpu().contiguous() for name, tensor in tensors.items()})


def needed(shards: list[Shard], replay: Replay) -> list[Shard]:
    """The shards that hold transitions of the replay buffer."""
    return [shard for shard in shards if shard.end > replay.added - len(replay)]


def fill(replay: Replay, folder: Path, shards: list[Shard], added: int, size: int, moved: bool) -> None:
    """Fill an empty replay buffer with the last ``size`` of ``added`` transitions, at the positions they had.

    If they are ``moved``, because the buffer has another capacity, they are counted anew, from zero.
    """
    next_row = added - min(size, replay.capacity)
    replay.added = 0 if moved else next_row
    for shard in shards:
        tensors = load_file(folder / shard.file)
        frames = tensors.pop("frames", None)
        rows = from_columns(tensors, "")
        if frames is not None:
            images = (frames[tensors[name].long()].flatten(1) for name in IMAGES)
            rows = rows._replace(**dict(zip(IMAGES, images, strict=True)))
        if shard.first <= next_row < shard.end:
            before, next_row = next_row - shard.first, shard.end
            replay.add(rows.map(lambda column, before=before: column[before:]))  # type: ignore[misc]  # bound now
    if next_row != added:
        raise UserError(f"The transitions saved in {folder} end at {next_row:,}, not at {added:,}: it is damaged.")
