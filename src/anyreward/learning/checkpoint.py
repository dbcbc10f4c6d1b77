"""Checkpoints: what a resumed run needs besides its agent, such as target networks, optimiser and replay buffer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.loop import Learning
from anyreward.learning.replay import from_columns

FILE = "training.safetensors"
LARGEST_REPLAY = 2 * 10**9
"""Largest replay buffer, in bytes, that is saved; a larger one, or one with images, is collected again."""


def checkpoint(learning: Learning, agent: str) -> bytes:
    """The state of a run as bytes; ``agent`` is the fingerprint of the agent saved at the same time."""
    replay = learning.replay
    tensors = learning.method.state()
    columns = replay.transitions.columns
    if replay.frames is None and sum(c.numel() * c.element_size() for c in columns.values()) <= LARGEST_REPLAY:
        tensors |= {f"replay.{name}": column for name, column in columns.items()}
    about = {"done": learning.done, "seconds": learning.seconds, "agent": agent}
    about |= {"earlier": learning.earlier, "added": replay.added, "capacity": replay.capacity}
    return save_tensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        {"about": json.dumps(about)},
    )


def load_checkpoint(folder: Path, learning: Learning, agent: str) -> None:
    """Restore the saved state in a new run of the saved agent's model."""
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"There is no {FILE} in {folder}, so this run cannot be continued; only its agent was kept.")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        if about["agent"] != agent:
            raise UserError(f"{path} belongs to another agent than {folder / 'agent.json'}.")
        _restore(learning, tensors, about)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is damaged, or does not match {folder / 'agent.json'}: {error}") from error


def _restore(learning: Learning, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    learning.done, learning.seconds, learning.earlier = about["done"], about["seconds"], about.get("earlier", 0)
    learning.method.load_state(tensors, learning.done)
    if "replay.actions" not in tensors:
        learning.earlier += about["added"]
        return
    replay, added, capacity = learning.replay, about["added"], about["capacity"]
    rows, same = from_columns(tensors, "replay."), replay.capacity == capacity
    if not same and len(rows.actions) == capacity:
        rows = rows.map(lambda column: column.roll(-(added % capacity), 0))  # oldest first
    replay.add(rows)  # at the same positions as before, if the capacity is the same
    replay.added = added if same else replay.added
