"""The replay buffer: packed transitions in contiguous tensors, without rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.frames import Frames


class Transitions(NamedTuple):
    """A batch of n transitions, without rewards: the only data used in training."""

    observations: Tensor
    """(n, packed)"""
    actions: Tensor
    """(n,) int64, or (n, width) float32 in a box, from -1 to 1"""
    next_observations: Tensor
    """(n, packed)"""
    terminated: Tensor
    """(n,) bool; true masks the bootstrap term. Truncation does not, so it is not recorded."""
    features: Tensor
    """(n, packed features) phi(s, a), the input of B"""
    next_features: Tensor | None = None
    """(n, packed features) phi of the next state, if the method needs it"""
    goals: Tensor | None = None
    """(n, packed features) the goal of the episode, if the method has goals"""
    left: Tensor | None = None
    """(n,) the number of later transitions of the same episode, which are the next rows"""

    def at(self, index: Tensor) -> Transitions:
        """The rows at ``index``, of every column."""
        return self.map(lambda column: column.index_select(0, index))

    def joined(self, *others: Transitions) -> Transitions:
        """These rows and then the others, which have the same columns."""
        return Transitions(
            **{name: torch.cat([own, *(o.columns[name] for o in others)]) for name, own in self.columns.items()}
        )

    def map(self, function: Callable[[Tensor], Tensor]) -> Transitions:
        """Apply a function to every column."""
        return Transitions(**{name: function(column) for name, column in self.columns.items()})

    @property
    def columns(self) -> dict[str, Tensor]:
        """The columns that are not None, by name."""
        return {name: column for name, column in self._asdict().items() if column is not None}


def from_columns(tensors: Mapping[str, Tensor], prefix: str) -> Transitions:
    """The inverse of `Transitions.columns`, for tensors whose names have this prefix."""
    return Transitions(
        **{name: tensors[f"{prefix}{name}"] for name in Transitions._fields if f"{prefix}{name}" in tensors}
    )


class Replay:
    """A ring buffer of the last ``capacity`` transitions; memory is allocated as it fills.

    If observations are images, ``frames`` stores them, and the buffer holds the numbers of their frames.
    """

    def __init__(self, capacity: int, device: torch.device | str = "cpu", frames: Frames | None = None) -> None:
        self.capacity = capacity
        self.frames = frames
        self.device = torch.device(device)
        self.size = 0
        self.added = 0
        self._columns: Transitions | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def transitions(self) -> Transitions:
        """All stored transitions, oldest first until the buffer wraps around; for images, the numbers of frames."""
        if self._columns is None:
            raise UserError("The replay buffer is empty: collect transitions or load a dataset first.")
        return self._columns.map(lambda column: column[: self.size])

    def at(self, index: Tensor) -> Transitions:
        """The transitions at ``index`` (n,), with their images."""
        rows = self.transitions.at(index)
        if self.frames is None:
            return rows
        observations, following = (
            self.frames.of(numbers.cpu()).to(self.device) for numbers in (rows.observations, rows.next_observations)
        )
        return rows._replace(observations=observations, next_observations=following)

    def sample(self, most: int, seed: int, every: bool = False) -> Tensor:
        """(n,) indices of rows that represent the training distribution: at most ``most`` random ones, or every one."""
        if every:
            return torch.arange(self.size, device=self.device)
        return torch.randperm(self.size, generator=torch.Generator().manual_seed(seed))[:most].to(self.device)

    def add(self, rows: Transitions) -> None:
        """Append rows; once the buffer is full, the oldest are replaced."""
        rows = rows.map(lambda column: column[-self.capacity :])
        n = len(rows.actions)
        if n == 0:
            return
        if self.frames is not None:
            numbers = self.frames.keep(torch.stack([rows.observations, rows.next_observations], 1).flatten(0, 1))
            before, after = numbers.view(n, 2, -1).unbind(1)
            rows = rows._replace(observations=before, next_observations=after)
        self._reserve(rows, self.size + n)
        assert self._columns is not None
        where = (self.added + torch.arange(n, device=self.device)) % self.capacity
        if self.frames is not None:
            for old in (self._columns.observations, self._columns.next_observations):
                self.frames.release(old[where[where < self.size]].cpu())
        for name, new in rows.columns.items():
            column = self._columns.columns[name]
            column[where] = new.to(column)
        self.added += n
        self.size = min(self.size + n, self.capacity)

    def to(self, device: torch.device | str) -> None:
        """Move all transitions to a device."""
        self.device = torch.device(device)
        if self._columns is not None:
            self._columns = self._columns.map(lambda column: column.to(self.device))

    def close(self) -> None:
        """Release the frames of images."""
        if self.frames is not None:
            self.frames.close()

    def _reserve(self, like: Transitions, needed: int) -> None:
        held = 0 if self._columns is None else len(self._columns.actions)
        if needed <= held or held == self.capacity:
            return
        grown = min(self.capacity, max(needed, 2 * held, 4096))
        fresh = like.map(lambda column: torch.empty((grown, *column.shape[1:]), dtype=column.dtype, device=self.device))
        if self._columns is not None:
            for name, old in self._columns.columns.items():
                fresh.columns[name][: self.size] = old[: self.size]
        self._columns = fresh
