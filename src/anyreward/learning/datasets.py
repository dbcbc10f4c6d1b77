"""Offline datasets: transitions from an .npz file or a Minari dataset. Rewards are not read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import gymnasium as gym
import numpy as np
import torch

from anyreward.errors import UserError
from anyreward.learning.collect import with_ends
from anyreward.learning.replay import Transitions
from anyreward.model.features import FeatureMap
from anyreward.storage.files import read_arrays
from anyreward.worlds.spaces import Array, Space, pack_seen, take
from anyreward.worlds.world import discrete_actions

KEYS = ("observations", "actions", "next_observations", "terminations", "n_states", "n_actions")
NAMES_KEYS = ("feature_names", "feature_table")
NPZ_KEYS = """\
  observations       (n, ...) numbers, or (n,) whole numbers for states 0, 1, 2, ...
  actions            (n,) whole numbers from 0
  next_observations  like observations
  terminations       (n,) optional, true where the episode ended in a terminal state (default: never)
  n_states, n_actions  optional, the numbers of states and actions (default: the largest seen, plus one)
  feature_table      (n_states, k) optional, the coordinates of each state, in which goals and rewards are given
  feature_names      (k,) optional, the names of the numbers of an observation, or of the coordinates
Other keys (rewards, truncations, ...) are ignored."""


@dataclass(frozen=True)
class Dataset:
    """Transitions with their spaces; observations are batched as in Gymnasium's vector environments."""

    name: str
    observation_space: Space
    action_space: Space
    observations: Any
    actions: Array
    next_observations: Any
    terminated: Array
    feature_names: tuple[str, ...] | None = None
    """The names of the features, as in `World`."""
    feature_table: Array | None = None
    """(n_states, k) the coordinates of each state, as in `World`."""

    def transitions(self, features: FeatureMap, next_features: bool = False) -> Transitions:
        """The packed transitions, with phi(s, a), and with ``next_features`` phi of the next state as well."""
        actions = (self.actions - discrete_actions(self.action_space).start).astype(np.int64)
        given = (self.observations, actions, self.next_observations, self.terminated.astype(bool))
        no_rewards, what = np.zeros(len(actions)), f"dataset {self.name}"
        return packed_transitions(features, *given, no_rewards, what, next_features)[0]


def packed_transitions(
    phi: FeatureMap,
    observations: Any,
    actions: Array,
    next_observations: Any,
    terminated: Array,
    rewards: Array,
    what: str,
    next_features: bool = False,
) -> tuple[Transitions, Array]:
    """Transitions of raw observations and of actions that count from zero, packed, and their rewards (n,).

    With terminal states as states, there are further rows for these. ``what`` describes the data in error messages.
    """
    n = len(actions)
    before, after = (pack_seen(phi.observation_space, batch) for batch in (observations, next_observations))
    shapes = {"observations": before.shape[:1], "next_observations": after.shape[:1], "actions": actions.shape}
    shapes |= {"rewards": rewards.shape, "terminated": terminated.shape}
    wrong = {name: shape for name, shape in shapes.items() if shape != (n,)}
    if wrong:
        raise UserError(
            f"There are {n} actions in {what}, so all other arrays must have the shape ({n},); got {wrong}."
        )
    if n == 0:
        raise UserError(f"There are no transitions in {what}.")
    for name, packed in (("observations", before), ("next observations", after)):
        bad = np.flatnonzero(~np.isfinite(packed).all(1))
        if len(bad):
            raise UserError(f"The {name} of {what} hold NaN or infinity, first in row {bad[0]}.")
    before, after = phi.marked(before), phi.marked(after, terminated)
    rows = {
        "observations": before,
        "actions": actions,
        "next_observations": after,
        "terminated": terminated,
        "features": phi.of(observations, before, actions),
        "rewards": rewards,
    }
    if next_features or phi.ends:
        rows["next_features"] = phi.of(next_observations, after, actions)
    if phi.ends:
        rows = with_ends(rows, np.random.default_rng(0), phi.actions)
    rewards = rows.pop("rewards")
    return Transitions(**{name: torch.from_numpy(np.ascontiguousarray(row)) for name, row in rows.items()}), rewards


def is_dataset(source: object) -> TypeGuard[Dataset | str | Path]:
    """Whether a source names a dataset rather than a world: an .npz file, a Minari folder, or ``minari:ID``."""
    if isinstance(source, Dataset):
        return True
    if not isinstance(source, str | Path):
        return False
    text = str(source)
    if "\n" in text:  # the drawing of a maze, not a path
        return False
    if text.endswith(".npz") or text.startswith("minari:"):
        return True
    try:
        return (Path(text) / "data" / "metadata.json").is_file()
    except OSError:  # too long for a path
        return False


def open_dataset(source: Dataset | str | Path) -> Dataset:
    """Read an .npz file, a Minari dataset folder, or a local Minari dataset by ``minari:ID``."""
    if isinstance(source, Dataset):
        return source
    text = str(source)
    return _read_npz(Path(text)) if text.endswith(".npz") else _read_minari(text)


def _read_npz(path: Path) -> Dataset:
    if not path.is_file():
        raise UserError(f"There is no dataset at {path}.")
    data = read_arrays(path, KEYS + NAMES_KEYS)
    missing = [key for key in ("observations", "actions", "next_observations") if key not in data]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(data))}. Keys:\n{NPZ_KEYS}")
    actions = data["actions"]
    if actions.ndim != 1 or actions.dtype.kind not in "iu" or (actions < 0).any():
        raise UserError(
            f"actions of {path} has shape {actions.shape} and type {actions.dtype}; expected (n,) whole numbers from "
            "0. Continuous actions are not supported."
        )
    n = len(actions)
    data.setdefault("terminations", np.zeros(n, dtype=bool))
    for key in ("observations", "next_observations", "terminations"):
        if len(data[key]) != n:
            raise UserError(f"{key} of {path} has {len(data[key])} rows, actions has {n}; they must be equal.")
    if data["terminations"].ndim != 1:
        raise UserError(f"terminations of {path} has shape {data['terminations'].shape}; expected ({n},).")
    for key in ("observations", "next_observations"):
        if data[key].dtype.kind not in "biuf":
            raise UserError(f"{key} of {path} has type {data[key].dtype}; expected numbers.")
    if n == 0:
        raise UserError(f"{path} holds no transitions.")
    if data["observations"].shape != data["next_observations"].shape:
        shapes = f"{data['observations'].shape} and {data['next_observations'].shape}"
        raise UserError(f"observations and next_observations of {path} differ in shape: {shapes}.")
    n_actions = _scalar(data, "n_actions", int(actions.max()) + 1)
    if actions.max() >= n_actions:
        raise UserError(f"n_actions of {path} is {n_actions}, but an action {actions.max()} occurs.")
    observations, following = data["observations"], data["next_observations"]
    space: Space
    if observations.ndim == 1 and observations.dtype.kind in "iu":
        if following.dtype.kind not in "iu":
            raise UserError(f"next_observations of {path} has type {following.dtype}; expected whole numbers.")
        largest = int(max(observations.max(), following.max()))
        n_states = _scalar(data, "n_states", len(data.get("feature_table", range(largest + 1))))
        if largest >= n_states or min(observations.min(), following.min()) < 0:
            raise UserError(f"observations of {path} must be states from 0 to n_states - 1 = {n_states - 1}.")
        space = gym.spaces.Discrete(n_states)
    else:
        observations = observations.reshape(n, -1).astype(np.float32)
        following = following.reshape(n, -1).astype(np.float32)
        space = gym.spaces.Box(-np.inf, np.inf, observations.shape[1:], np.float32)
    ends, (names, table) = data["terminations"], _named(data, space, path)
    possible = gym.spaces.Discrete(n_actions)
    return Dataset(path.stem, space, possible, observations, actions, following, ends, names, table)


def _named(data: dict[str, Array], space: Space, path: Path) -> tuple[tuple[str, ...] | None, Array | None]:
    """The names of the features and the coordinates of the states, if the file holds them."""
    table, names = data.get("feature_table"), data.get("feature_names")
    states = int(space.n) if isinstance(space, gym.spaces.Discrete) else None
    if table is not None:
        if states is None:
            raise UserError(f"feature_table of {path} needs observations that are states, (n,) whole numbers.")
        if table.ndim != 2 or len(table) != states or table.dtype.kind not in "biuf" or not np.isfinite(table).all():
            raise UserError(
                f"feature_table of {path} has shape {table.shape} and type {table.dtype}; expected finite numbers "
                f"({states}, k), a row for each of the {states} states."
            )
    if names is None:
        return None, table
    width = table.shape[1] if table is not None else 1 if states else int(np.prod(space.shape or ()))
    if names.dtype.kind != "U" or names.shape != (width,) or len(set(names.tolist())) != width:
        raise UserError(
            f"feature_names of {path} has shape {names.shape} and type {names.dtype}; expected {width} different texts."
        )
    return tuple(names.tolist()), table


def _scalar(data: dict[str, Array], key: str, default: int) -> int:
    value = data.get(key, np.asarray(default))
    if value.size != 1 or value.dtype.kind not in "iu":
        raise UserError(f"{key} has shape {value.shape} and type {value.dtype}; expected one whole number.")
    return int(value.reshape(()))


def _read_minari(source: str) -> Dataset:
    try:
        import minari
    except ImportError as error:
        raise UserError("Reading Minari datasets needs Minari: pip install 'anyreward[datasets]'.") from error
    try:
        if source.startswith("minari:"):
            data = minari.load_dataset(source.removeprefix("minari:"))
        else:
            data = minari.MinariDataset(Path(source) / "data")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"Minari cannot read {source}: {error}") from error
    discrete_actions(data.action_space)
    space = data.observation_space
    before, actions, after, terminated = [], [], [], []
    for episode in data.iterate_episodes():
        steps = len(episode)
        if steps == 0:
            continue
        before.append(take(space, episode.observations, slice(0, steps)))
        after.append(take(space, episode.observations, slice(1, steps + 1)))
        actions.append(np.asarray(episode.actions).reshape(steps))
        terminated.append(np.asarray(episode.terminations).reshape(steps))
    if not actions:
        raise UserError(f"The Minari dataset {source} holds no transitions.")
    return Dataset(
        source.removeprefix("minari:"),
        space,
        data.action_space,
        _concatenate(space, before),
        np.concatenate(actions),
        _concatenate(space, after),
        np.concatenate(terminated),
    )


def _concatenate(space: Space, batches: list[Any]) -> Any:
    match space:
        case gym.spaces.Tuple():
            return tuple(_concatenate(part, [b[i] for b in batches]) for i, part in enumerate(space.spaces))
        case gym.spaces.Dict():
            return {key: _concatenate(part, [b[key] for b in batches]) for key, part in space.spaces.items()}
    return np.concatenate(batches)
