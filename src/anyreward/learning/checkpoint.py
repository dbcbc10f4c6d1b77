"""What a stopped run needs to go on, beside its agent: targets, optimiser, random numbers, replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.replay import Replay, from_columns
from anyreward.learning.train import Learning
from anyreward.representation.losses import Moments

FILE = "training.safetensors"
LARGEST_REPLAY = 2 * 10**9
"""Bytes of a replay that are still saved; a larger one, and one of images, is collected anew."""


def checkpoint(learning: Learning, replay: Replay, agent: str) -> bytes:
    """What `load_checkpoint` needs; ``agent`` is the fingerprint of the agent saved at the same time."""
    tensors = {"random": learning.random.get_state(), "explore": learning.explore.get_state()}
    averages = None
    if learning.learner is not None:
        optimiser, averages = learning.learner.optimiser, learning.learner.averages
        tensors["targets"] = learning.learner.flat_target
        tensors |= {"adam.mean": optimiser.mean, "adam.square": optimiser.square}
    if averages is not None and averages.average is not None:
        tensors |= {f"average.{name}": value for name, value in averages.average._asdict().items()}
    columns = replay.transitions.columns
    if replay.frames is None and sum(c.numel() * c.element_size() for c in columns.values()) <= LARGEST_REPLAY:
        tensors |= {f"replay.{name}": column for name, column in columns.items()}
    about = {"done": learning.done, "seconds": learning.seconds, "agent": agent}
    about |= {"earlier": learning.earlier, "added": replay.added, "capacity": replay.capacity}
    return save_tensors(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        {"about": json.dumps(about)},
    )


def load_checkpoint(folder: Path, learning: Learning, replay: Replay, agent: str) -> None:
    """Bring a fresh learning of the saved agent's networks, and an empty replay, to where the run stopped."""
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"There is no {FILE} in {folder}, so this run cannot be continued; only its agent was kept.")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["about"])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        if about["agent"] != agent:
            raise UserError(f"{path} belongs to another agent than {folder / 'agent.json'}.")
        _restore(learning, replay, tensors, about)
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is damaged, or of other settings than {folder / 'agent.json'}: {error}") from error


def _restore(learning: Learning, replay: Replay, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    learner, done = learning.learner, about["done"]
    if learner is not None:
        learner.flat_target.copy_(tensors["targets"])
        learner.optimiser.mean.copy_(tensors["adam.mean"])
        learner.optimiser.square.copy_(tensors["adam.square"])
        learner.optimiser.count.fill_(done)
    learning.random.set_state(tensors["random"])
    learning.explore.set_state(tensors["explore"])
    learning.done, learning.seconds, learning.earlier = done, about["seconds"], about.get("earlier", 0)
    if learner is not None and learner.averages is not None and "average.FF" in tensors:
        learner.averages.average = Moments(*(tensors[f"average.{name}"] for name in Moments._fields))
    if "replay.actions" in tensors:
        rows = from_columns(tensors, "replay.")
        same = replay.capacity == about["capacity"]
        if not same and len(rows.actions) == about["capacity"]:
            rows = rows.map(lambda column: column.roll(-(about["added"] % about["capacity"]), 0))  # by age
        replay.add(rows)  # to the places where they were, if there are as many
        replay.added = about["added"] if same else replay.added
    else:
        learning.earlier += about["added"]
