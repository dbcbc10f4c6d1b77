"""Saving and loading of an agent's folder: agent.json and weights.safetensors. No pickle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.methods import method_of
from anyreward.learning.replay import from_columns
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.features import FeatureMap
from anyreward.model.landmarks import TransitionTable
from anyreward.model.model import Model
from anyreward.rewards.kept import KeptPoints, KeptTransitions
from anyreward.rewards.knowledge import Episodes, Knowledge, with_backward
from anyreward.storage.files import as_json, read_json, sha256, write_together
from anyreward.worlds.goals import Tolerance
from anyreward.worlds.spaces import space_from_json, space_to_json

FORMAT = 2
"""Version of the folder's format."""


class Saved(NamedTuple):
    """The contents of an agent's folder."""

    knowledge: Knowledge
    run: RunSettings
    world_name: str
    world_recipe: dict[str, Any] | None
    """{"id", "kwargs"} of the world; None if it cannot be opened again"""


def holds_agent(folder: Path) -> bool:
    """Whether a folder holds an agent."""
    return (folder / "agent.json").exists()


def serialised(knowledge: Knowledge) -> bytes:
    """An agent's tensors as bytes, without its settings."""
    sample, phi = knowledge.sample, knowledge.model.phi
    tensors = {"sample.rows": sample.rows, "sample.weights": sample.weights, "sample.covariance": sample.covariance}
    if phi.table is not None:
        tensors["feature_table"] = torch.from_numpy(np.asarray(phi.table, dtype=np.float64))
    if knowledge.kept is not None:
        tensors |= {f"transitions.{name}": column for name, column in knowledge.kept.rows.columns.items()}
        tensors["transitions.counts"] = knowledge.kept.counts
    if knowledge.points is not None:
        tensors |= {f"points.{key}": value for key, value in knowledge.points.table.state_dict().items()}
        tensors["points.features"] = knowledge.points.features
    if knowledge.held_out is not None:
        tensors |= {f"held_out.{name}": column for name, column in knowledge.held_out.columns.items()}
    if knowledge.episodes is not None:
        tensors |= {"starts": knowledge.episodes.starts, "starts.new": knowledge.episodes.new}
    for name, module in knowledge.model.modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    return save_tensors({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})


def save_folder(folder: Path, saved: Saved, overwrite: bool = False, beside: Mapping[str, bytes] | None = None) -> None:
    """Write an agent's folder atomically; ``beside`` are further files by name, written together with it."""
    if holds_agent(folder) and not overwrite:
        raise UserError(f"{folder} holds an agent already. Choose another folder, or pass overwrite=True.")
    knowledge, phi = saved.knowledge, saved.knowledge.model.phi
    content = serialised(knowledge)
    config = {
        "format": FORMAT,
        "weights_sha256": sha256(content),
        "updates": knowledge.updates,
        "world": {"name": saved.world_name, "recipe": saved.world_recipe},
        "time_limit": knowledge.episodes.limit if knowledge.episodes else 0,
        "observation_space": space_to_json(phi.observation_space),
        "actions": {"n": phi.actions, "start": phi.action_start},
        "features": {
            "kind": phi.kind,
            "include_action": phi.include_action,
            "ends": phi.ends,
            "function_width": phi.function_width,
            "names": phi.names,
            "tolerance": None if phi.tolerance is None else asdict(phi.tolerance),
        },
        "settings": asdict(knowledge.settings),
        "run": asdict(saved.run),
    }
    files = {"weights.safetensors": content, **(beside or {}), "agent.json": as_json(config)}
    write_together({folder / name: data for name, data in files.items()})  # agent.json last: it holds their hash


def load_folder(folder: Path, features: Callable[[Any], Any] | None = None) -> Saved:
    """Read an agent's folder. ``features`` is the feature function, if the agent was trained with one."""
    if not folder.is_dir():
        raise UserError(f"There is no agent folder at {folder}.")
    config = read_json(folder / "agent.json")
    if config.get("format") != FORMAT:
        raise UserError(f"{folder} has agent format {config.get('format')!r}; this anyreward reads format {FORMAT}.")
    weights = folder / "weights.safetensors"
    content = weights.read_bytes() if weights.is_file() else b""
    if sha256(content) != config["weights_sha256"]:
        raise UserError(f"{weights} does not match agent.json: it is missing, damaged or from another agent.")
    try:
        with torch.random.fork_rng():  # new networks draw random weights before the saved ones are loaded
            return _restore(config, load_tensors(content), features)
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder / 'agent.json'} does not fit its weights: {error}") from error


def _restore(config: dict[str, Any], tensors: dict[str, Tensor], function: Callable[[Any], Any] | None) -> Saved:
    s, of_phi = Settings().with_(**config["settings"]), config["features"]
    table, names, tolerance = tensors.get("feature_table"), of_phi["names"], of_phi["tolerance"]
    phi = FeatureMap(
        kind=of_phi["kind"],
        observation_space=space_from_json(config["observation_space"]),
        actions=config["actions"]["n"],
        include_action=of_phi["include_action"],
        function=function,
        function_width=of_phi["function_width"],
        names=tuple(names) if names else None,
        table=None if table is None else table.numpy(),
        tolerance=Tolerance(**tolerance) if tolerance else None,
        action_start=config["actions"]["start"],
        ends=of_phi.get("ends", False),
    )
    model = method_of(phi, s).fresh(phi, s)
    for name, module in model.modules.items():
        prefix = f"{name}."
        module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    kept = None
    if "transitions.counts" in tensors:
        kept = KeptTransitions(from_columns(tensors, "transitions."), tensors["transitions.counts"])
    rows, weights, covariance = (tensors[f"sample.{name}"] for name in ("rows", "weights", "covariance"))
    knowledge = Knowledge(
        model,
        s,
        with_backward(model, rows, weights, covariance),
        kept,
        _points(model, tensors),
        from_columns(tensors, "held_out.") if "held_out.actions" in tensors else None,
        config["updates"],
        _episodes(tensors, config["time_limit"]),
    )
    return Saved(knowledge, RunSettings().with_(**config["run"]), config["world"]["name"], config["world"]["recipe"])


def _episodes(tensors: dict[str, Tensor], limit: int) -> Episodes | None:
    if "starts" not in tensors:
        return None
    starts = tensors["starts"]
    new = tensors.get("starts.new")  # not recorded by earlier versions
    return Episodes(starts, limit, torch.zeros(len(starts), dtype=torch.bool) if new is None else new)


def _points(model: Model, tensors: dict[str, Tensor]) -> KeptPoints | None:
    if "points.features" not in tensors:
        return None
    table = TransitionTable(model.observation_encoder, model.actions)
    table.load_state_dict({name: tensors[f"points.{name}"] for name in table.state_dict()})
    return KeptPoints(table, tensors["points.features"])
