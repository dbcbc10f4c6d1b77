"""Checkpoints: what a resumed run needs besides its agent and the replay buffer, to continue exactly where it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.loop import Learning
from anyreward.learning.replay import Replay
from anyreward.learning.shards import Shard, fill


@dataclass(frozen=True)
class Progress:
    """The counters of a run."""

    done: int
    """updates"""
    seconds: float
    earlier: int
    wanted: int
    added: int
    """transitions that were added to the replay buffer"""
    size: int
    """transitions in the replay buffer"""
    capacity: int
    """of the replay buffer"""


def checkpoint(learning: Learning, collector: Collector | None) -> tuple[bytes, dict[str, Any]]:
    """The state of a run: a file of tensors, and JSON."""
    replay = learning.replay
    counters = Progress(
        learning.done, learning.seconds, learning.earlier, learning.wanted, replay.added, len(replay), replay.capacity
    )
    tensors, about = learning.method.state()
    state: dict[str, Any] = {"progress": asdict(counters), "method": about}
    if collector is not None:
        collected, state["collector"] = collector.state()
        tensors |= {f"collector.{name}": tensor for name, tensor in collected.items()}
    return save_tensors({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}), state


@dataclass(frozen=True)
class Checkpoint:
    """A saved state of a run, which `resume_from` restores."""

    folder: Path
    tensors: Mapping[str, Tensor]
    state: Mapping[str, Any]
    shards: list[Shard]

    def same_positions(self, replay: Replay) -> bool:
        """Whether transitions have the positions in the replay buffer that they had."""
        return bool(self.state["progress"]["capacity"] == replay.capacity)


def read_checkpoint(folder: Path, file: str, state: Mapping[str, Any], shards: list[Shard]) -> Checkpoint:
    """Read the files of a checkpoint, which are verified already."""
    try:
        return Checkpoint(folder, load_file(folder / file), state, shards)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder / file} is not readable: {error}") from error


def earlier_progress(path: Path) -> dict[str, Any]:
    """The state of a run that an earlier version saved; its transitions are collected again, in new episodes."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
        counters = Progress(
            about["done"], about["seconds"], about.get("earlier", 0), 0, about["added"], 0, about["capacity"]
        )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    return {"progress": asdict(counters), "method": {}, "collector": None}


def restore_data(saved: Checkpoint, learning: Learning) -> None:
    """Restore the counters and the replay buffer of a new run."""
    at = Progress(**saved.state["progress"])
    learning.done, learning.seconds, learning.earlier = at.done, at.seconds, at.earlier
    if saved.shards or at.added == 0:
        moved = not saved.same_positions(learning.replay)
        fill(learning.replay, saved.folder, saved.shards, at.added, at.size, moved)
        learning.wanted = at.wanted + learning.replay.added - at.added
    else:
        learning.earlier += at.added  # they are collected again


def restore_state(saved: Checkpoint, learning: Learning, collector: Collector | None) -> bool:
    """Restore the method and the collector; returns whether the run continues exactly where it was."""
    learning.method.load_state(saved.tensors, saved.state["method"], learning.done)
    exact = bool(saved.shards) or learning.earlier == 0
    if collector is None:
        return exact
    tensors = {name[10:]: tensor for name, tensor in saved.tensors.items() if name.startswith("collector.")}
    state = saved.state["collector"]
    return state is not None and collector.load_state(tensors, state) and exact
