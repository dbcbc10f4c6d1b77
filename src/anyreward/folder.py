"""Saving and loading of an agent's folder: agent.json, weights and the state of training. No pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from anyreward.errors import UserError, shown
from anyreward.learning.checkpoint import Checkpoint, earlier_progress, read_checkpoint
from anyreward.learning.explorer import few_actions
from anyreward.learning.methods import method_of
from anyreward.learning.replay import from_columns
from anyreward.learning.settings import Count, Range, RunSettings, Settings, check_fields
from anyreward.learning.shards import Shard
from anyreward.model.features import FeatureMap
from anyreward.model.landmark_values import LandmarkValues
from anyreward.model.landmarks import TransitionTable
from anyreward.model.model import Model
from anyreward.rewards.kept import KeptPoints, KeptTransitions
from anyreward.rewards.knowledge import Episodes, Knowledge, with_backward
from anyreward.storage.files import as_json, file_sha256, read_json
from anyreward.storage.generations import INDEX, Generation, indices, newest_generation, write_generation
from anyreward.storage.shipped import opened_folder
from anyreward.worlds.actions import ActionSet, action_set
from anyreward.worlds.goals import Tolerance
from anyreward.worlds.spaces import MOST_EXACT, space_from_json, space_to_json

FORMAT = 3
"""Version of the folder's format."""
EARLIER = 2
"""The earlier version that is still read: one file of weights, without generations and checksums of everything."""

UNFIT = (KeyError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError, SafetensorError)
"""What is raised where the parts of a folder do not fit each other."""


class Saved(NamedTuple):
    """The contents of an agent's folder."""

    knowledge: Knowledge
    run: RunSettings
    world_name: str
    world_recipe: dict[str, Any] | None
    """{"id", "kwargs"} of the world; None if it cannot be opened again"""


class RunState(NamedTuple):
    """What is saved with the agent of a run, so that the run can be continued."""

    tensors: bytes
    state: dict[str, Any]
    """JSON"""
    transitions: Iterable[tuple[int, int, bytes]]
    """new transitions: first, end and content of each file"""
    kept: Mapping[str, str]
    """files of transitions that were saved before, with their SHA-256"""


def holds_agent(folder: Path) -> bool:
    """Whether a folder holds an agent."""
    return bool(indices(folder))


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
        tensors |= {"points.features": knowledge.points.features, "points.kept": torch.tensor(knowledge.points.kept)}
        if (values := knowledge.points.values) is not None:
            tensors |= {"points.landmarks": values.Z, "points.unit": torch.tensor(values.unit, dtype=torch.float64)}
    if knowledge.held_out is not None:
        tensors |= {f"held_out.{name}": column for name, column in knowledge.held_out.columns.items()}
    if knowledge.episodes is not None:
        tensors |= {"starts": knowledge.episodes.starts, "starts.new": knowledge.episodes.new}
    for name, module in knowledge.model.modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    return save_tensors({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})


def save_folder(folder: Path, saved: Saved, overwrite: bool = False, run: RunState | None = None) -> dict[str, str]:
    """Write an agent's folder, as a new generation; with a ``run`` it can be continued. Returns the files' SHA-256."""
    if holds_agent(folder) and not overwrite:
        raise UserError(f"{folder} holds an agent already. Choose another folder, or pass overwrite=True.")
    knowledge, phi = saved.knowledge, saved.knowledge.model.phi
    config = {
        "format": FORMAT,
        "updates": knowledge.updates,
        "world": {"name": saved.world_name, "recipe": saved.world_recipe},
        "time_limit": knowledge.episodes.limit if knowledge.episodes else 0,
        "observation_space": space_to_json(phi.observation_space),
        "actions": {
            "n": phi.actions,
            "start": phi.action_set.start,
            "box": None if phi.action_set.box is None else space_to_json(phi.action_set.box),
            "levels": phi.action_set.levels,
        },
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
        "training": None if run is None else run.state,
    }
    config = json.loads(as_json(config))  # tuples are lists from here on, as in the file

    def contents() -> Iterator[tuple[str, bytes]]:
        yield "weights-{}", serialised(knowledge)
        if run is not None:
            yield "training-{}", run.tensors
            for first, end, content in run.transitions:
                yield f"replay-{{}}-{first}-{end}", content

    return write_generation(folder, config, contents(), {} if run is None else run.kept).files


def load_folder(folder: Path, features: Callable[[Any], Any] | None = None) -> Saved:
    """Read an agent's folder. ``features`` is the feature function, if the agent was trained with one."""
    with opened_folder(folder) as place:
        return _read(place, _open(place, ("weights",)), features)


def load_run(folder: Path, features: Callable[[Any], Any] | None = None) -> tuple[Saved, Checkpoint, dict[str, str]]:
    """Read a run's folder: its agent, its state, and the SHA-256 of its files; raises if only the agent was saved."""
    found = _open(folder, ())
    file = next((name for name in found.files if name.startswith("training")), None)
    state = found.config.get("training")
    if file is None or not isinstance(state, dict):
        raise UserError(f"{folder} holds an agent, but no state of training, so there is no run to continue.")
    shards = sorted((Shard.of(name) for name in found.files if name.startswith("replay")), key=lambda one: one.first)
    return _read(folder, found, features), read_checkpoint(folder, file, state, shards), found.files


def _read(folder: Path, found: Generation, features: Callable[[Any], Any] | None) -> Saved:
    """The agent of a verified generation."""
    weights = folder / next(name for name in found.files if name.startswith("weights"))
    try:
        tensors = load_tensors(weights.read_bytes())
        damaged = [name for name, t in tensors.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
        if damaged:
            raise UserError(f"{weights} holds NaN or infinity in {damaged[0]}, so this agent cannot be used.")
        with torch.random.fork_rng():  # new networks draw random weights before the saved ones are loaded
            return _restore(found.config, tensors, features)
    except UNFIT as error:
        raise UserError(f"{folder / INDEX} does not fit its weights: {' '.join(str(error).split())}") from error


def _open(folder: Path, kinds: tuple[str, ...]) -> Generation:
    """The newest intact generation of an agent's folder, of which files of these kinds are verified (none: all)."""
    if not folder.is_dir():
        raise UserError(f"There is no agent folder at {folder}.")
    found = _of_earlier_format(folder) or newest_generation(folder, FORMAT, kinds)
    if found is None:
        raise UserError(f"There is no {INDEX} in {folder}.")
    return found


def _of_earlier_format(folder: Path) -> Generation | None:
    """The agent of a folder with the earlier format, in which files have no numbers; None if it has another format."""
    try:
        config = read_json(folder / INDEX)
    except UserError:
        return None
    if not isinstance(config, dict) or config.get("format") != EARLIER:
        return None
    weights, training = folder / "weights.safetensors", folder / "training.safetensors"
    if not weights.is_file() or file_sha256(weights) != config.get("weights_sha256"):
        raise UserError(f"{weights} does not match {INDEX}: it is missing, damaged or from another agent.")
    files = {weights.name: config["weights_sha256"]}
    if training.is_file():
        files[training.name] = file_sha256(training)
        config["training"] = earlier_progress(training)
    return Generation(0, config, files)


@dataclass(frozen=True)
class _Described:
    """The numbers and words of agent.json, with their types and ranges."""

    updates: Count
    time_limit: Count
    world: str
    actions: Annotated[int, Range(0, most=MOST_EXACT)]
    action_start: Annotated[int, Range(-MOST_EXACT, most=MOST_EXACT)]
    action_levels: Annotated[int, Range(0, most=MOST_EXACT)]
    kind: Literal["observation", "achieved_goal", "function"]
    include_action: bool
    ends: bool
    function_width: Annotated[int, Range(0, most=MOST_EXACT)]


def _described(config: dict[str, Any]) -> _Described:
    """The checked numbers and words of agent.json."""
    of_phi, world = config["features"], config["world"]
    found = _Described(
        config["updates"],
        config.get("time_limit", 0),  # earlier versions did not record it
        world["name"],
        config["actions"]["n"],
        config["actions"]["start"],
        config["actions"].get("levels", 0),  # earlier versions had no boxes
        of_phi["kind"],
        of_phi["include_action"],
        of_phi.get("ends", False),
        of_phi["function_width"],
    )
    check_fields(found)
    names, recipe = of_phi["names"], world["recipe"]
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"the names of features are {shown(names)}; expected texts")
    if recipe is not None and not (isinstance(recipe["id"], str) and isinstance(recipe["kwargs"], dict)):
        raise ValueError(f"the recipe of the world is {shown(recipe)}; expected an id and its arguments")
    return found


def _restore(config: dict[str, Any], tensors: dict[str, Tensor], function: Callable[[Any], Any] | None) -> Saved:
    s, of_phi, known = Settings().with_(**config["settings"]), config["features"], _described(config)
    table, names, tolerance = tensors.get("feature_table"), of_phi["names"], of_phi["tolerance"]
    phi = FeatureMap(
        kind=known.kind,
        observation_space=space_from_json(config["observation_space"]),
        action_set=_actions(known, config["actions"].get("box")),
        include_action=known.include_action,
        function=function,
        function_width=known.function_width,
        names=tuple(names) if names else None,
        table=None if table is None else table.numpy(),
        tolerance=Tolerance(**tolerance) if tolerance else None,
        ends=known.ends,
    )
    model = _filled(phi, s, tensors)
    kept = None
    if "transitions.counts" in tensors:
        kept = KeptTransitions(from_columns(tensors, "transitions."), tensors["transitions.counts"])
    rows, weights, covariance = (tensors[f"sample.{name}"] for name in ("rows", "weights", "covariance"))
    knowledge = Knowledge(
        model,
        s,
        with_backward(model, rows, weights, covariance),
        kept,
        _points(model, tensors, s.dim),
        from_columns(tensors, "held_out.") if "held_out.actions" in tensors else None,
        known.updates,
        _episodes(tensors, known.time_limit),
    )
    return Saved(knowledge, RunSettings().with_(**config["run"]), known.world, config["world"]["recipe"])


def _actions(known: _Described, box: dict[str, Any] | None) -> ActionSet:
    """The actions of a saved agent."""
    if box is None:
        if known.actions == 0:
            raise ValueError("it has no actions")
        return ActionSet(known.actions, known.action_start)
    acts = action_set(space_from_json(box))
    if acts.box is None or known.actions != (known.action_levels**acts.width if known.action_levels else 0):
        raise ValueError(f"{known.actions} actions are not {known.action_levels} values for each number of the box")
    return acts.listed(known.action_levels) if known.action_levels else acts


def _filled(phi: FeatureMap, s: Settings, tensors: dict[str, Tensor]) -> Model:
    """A model with the saved weights. If it needs more numbers than were saved, it is refused before it is made."""
    method = method_of(phi, s)
    with torch.device("meta"):  # shapes without memory
        empty = method.fresh(phi, s)
    needed = sum(value.numel() for module in empty.modules.values() for value in module.state_dict().values())
    if needed > sum(tensor.numel() for tensor in tensors.values()):
        raise ValueError(f"its settings and spaces need {needed:,} numbers, which are more than the file holds")
    model = method.fresh(phi, s)
    for name, module in model.modules.items():
        prefix = f"{name}."
        module.load_state_dict({k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)})
    return model


def _episodes(tensors: dict[str, Tensor], limit: int) -> Episodes | None:
    if "starts" not in tensors:
        return None
    starts = tensors["starts"]
    new = tensors.get("starts.new")  # not recorded by earlier versions
    return Episodes(starts, limit, torch.zeros(len(starts), dtype=torch.bool) if new is None else new)


def _points(model: Model, tensors: dict[str, Tensor], dim: int) -> KeptPoints | None:
    if "points.features" not in tensors:
        return None
    acts = few_actions(model.phi.action_set)
    if acts is None:
        raise ValueError("it holds points, but its actions cannot be listed")
    table = TransitionTable(model.observation_encoder, acts.count)
    table.load_state_dict({name: tensors[f"points.{name}"] for name in table.state_dict()})
    if "points.landmarks" in tensors:
        Z = tensors["points.landmarks"]
        if Z.ndim != 2 or len(Z) == 0 or Z.shape[1] != dim:
            raise ValueError(f"its points have landmarks {tuple(Z.shape)}; expected (m, {dim})")
        table.states.beside = LandmarkValues(model, Z, float(tensors["points.unit"]))
    return KeptPoints(table, tensors["points.features"], acts, int(tensors.get("points.kept", torch.tensor(1))))
