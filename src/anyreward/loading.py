"""Reading an agent folder: the inverse of `Agent.save`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from anyreward.agent import FORMAT, Agent
from anyreward.errors import UserError
from anyreward.learning.presets import Settings, settings_from_json
from anyreward.learning.replay import from_columns
from anyreward.learning.tables import can_list
from anyreward.representation.fb import Representation, make_representation
from anyreward.representation.features import FeatureMap
from anyreward.representation.latent import Coordinates
from anyreward.rewards.inference import with_backward
from anyreward.rewards.lookahead import LookaheadSample
from anyreward.storage.files import read_json, sha256
from anyreward.worlds.goals import Tolerance
from anyreward.worlds.spaces import space_from_json


def fresh_representation(features: FeatureMap, s: Settings) -> Representation:
    """The networks of some settings, with weights as torch's own generator draws them."""
    return make_representation(
        features.seen_space,
        features.space,
        features.actions,
        s.dim,
        s.hidden,
        s.layers,
        s.layer_norm,
        s.normalise,
        s.action_input,
        s.wide,
        s.encoding,
        s.bias,
        s.method,
        s.basis,
        features.table,
        uses_tables(features, s),
    )


def uses_tables(features: FeatureMap, s: Settings) -> bool:
    """Whether F and B are tables with landmarks: asked for, and possible in this world."""
    plain = s.method == "fb" and s.first_step == 0 and not s.bias
    return s.landmarks > 0 and plain and can_list(features.seen_space) and can_list(features.space)


def load(folder: str | Path, features: Callable[[Any], Any] | None = None) -> Agent:
    """Read an agent folder. ``features`` gives a feature function again, if the agent was trained with one."""
    folder = Path(folder)
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
        with torch.random.fork_rng():  # fresh networks draw their weights before they are given the saved ones
            return _restore(config, load_tensors(content), features)
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{folder / 'agent.json'} does not fit its weights: {error}") from error


def _restore(config: dict[str, Any], tensors: dict[str, Tensor], features: Callable[[Any], Any] | None) -> Agent:
    s = settings_from_json(config["settings"])
    space = space_from_json(config["observation_space"])
    tolerance = config["features"].get("tolerance")
    table, names = tensors.get("feature_table"), config["features"]["names"]
    fm = FeatureMap(
        kind=config["features"]["kind"],
        observation_space=space,
        actions=config["actions"]["n"],
        include_action=config["features"]["include_action"],
        function=features,
        function_width=config["features"]["function_width"],
        names=tuple(names) if names else None,
        table=None if table is None else table.numpy(),
        tolerance=Tolerance(**tolerance) if tolerance else None,
    )
    representation = fresh_representation(fm, s)
    for name, module in representation.modules.items():
        prefix = f"{name}."
        module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    if "coordinates.C" in tensors:
        change = Coordinates(tensors["coordinates.C"], tensors["coordinates.inverse"])
        representation = replace(representation, coordinates=change)
    kept = None
    if "transitions.counts" in tensors:
        kept = LookaheadSample(from_columns(tensors, "transitions."), tensors["transitions.counts"])
    return Agent(
        representation,
        fm,
        with_backward(representation, tensors["sample.rows"], tensors["sample.weights"], tensors["sample.covariance"]),
        s,
        action_start=config["actions"]["start"],
        world_name=config["world"]["name"],
        world_recipe=config["world"]["recipe"],
        transitions=kept,
        held_out=from_columns(tensors, "held_out.") if "held_out.actions" in tensors else None,
        updates=config["updates"],
    )
