"""Offline datasets: transitions from an .npz file or a Minari dataset. Rewards are not read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from anyreward.storage.files import check_fits, read_arrays, read_json, reason
from anyreward.worlds.spaces import (
    SMALLEST_IMAGE,
    Array,
    Space,
    image_shape,
    leaves,
    pack,
    pack_seen,
    parts_of,
    take,
)
from anyreward.worlds.world import discrete_actions

NEEDED = ("observations", "actions", "next_observations")
OPTIONAL = ("terminations", "n_states", "n_actions", "feature_table", "feature_names")
LIKE_TERMINATIONS = ("terminated", "terminals", "dones", "done")
"""Names that other libraries use: without an error, the ends of episodes would be lost in silence."""
"""Keys of an .npz file (docs/datasets.md); others are ignored."""
METADATA = {"dataset_id": str, "minari_version": str, "data_format": str, "total_episodes": int, "total_steps": int}
"""Keys that the metadata.json of a Minari dataset must have, and SPACES, unless it names an environment."""
SPACES = ("observation_space", "action_space")
LARGEST_WHOLE = 2**24
"""Observations are stored as float32, which holds whole numbers up to this one exactly."""
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Dataset:
    """Transitions with their spaces; observations are batched as in Gymnasium's vector environments.

    Raises a `UserError` unless all arrays fit the spaces and each other. NaN and infinity are found by `transitions`.
    """

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
    source: str = ""
    """The file that the transitions are from, for error messages."""

    def __post_init__(self) -> None:
        where = self.source or f"dataset {self.name}"
        rows = self.actions.shape[0] if isinstance(self.actions, np.ndarray) and self.actions.ndim else 1
        if rows == 0:
            raise UserError(f"{where} holds no transitions.")
        check_elements(discrete_actions(self.action_space), self.actions, rows, f"actions of {where}")
        check_elements(self.observation_space, self.observations, rows, f"observations of {where}")
        check_elements(self.observation_space, self.next_observations, rows, f"next_observations of {where}")
        check_flags(self.terminated, rows, f"terminated of {where}")
        _check_named(self.feature_names, self.feature_table, self.observation_space, where)

    def transitions(self, features: FeatureMap, next_features: bool = False) -> Transitions:
        """The packed transitions, with phi(s, a), and with ``next_features`` phi of the next state as well."""
        actions = (self.actions - discrete_actions(self.action_space).start).astype(np.int64)
        given = (self.observations, actions, self.next_observations, self.terminated.astype(bool))
        no_rewards = np.zeros(len(actions))
        what = f"dataset {self.name}" + (f" ({self.source})" if self.source not in ("", self.name) else "")
        return packed_transitions(features, *given, no_rewards, what, next_features)[0]


def check_elements(space: Space, batch: Any, n: int, column: str) -> None:
    """Raise unless a batch has n elements of a space that float32 can hold; ``column`` names it in the error message.

    The bounds of a Box are not checked: many environments leave theirs.
    """
    if isinstance(space, gym.spaces.Tuple | gym.spaces.Dict):
        kind, keys = (tuple, range(len(space.spaces))) if isinstance(space, gym.spaces.Tuple) else (dict, space.spaces)
        given = range(len(batch)) if isinstance(batch, tuple) else batch
        if not isinstance(batch, kind) or set(given) != set(keys):
            raise UserError(f"{column} must be a {kind.__name__} with {list(keys)}, got {_described(batch)}.")
        for key, name, part in parts_of(space):
            check_elements(part, batch[key], n, f"{name} of {column}")
        return
    for _ in leaves(space, column):
        pass  # raises for an unsupported space
    shape = (n, *(space.shape or ()))
    if not isinstance(batch, np.ndarray) or batch.dtype.kind not in "biuf" or batch.shape != shape:
        raise UserError(f"{column} has {_described(batch)}; expected numbers of shape {shape}, an array.")
    if batch.size == 0:
        return
    accepted, remedy = f"numbers that float32 holds, from {-LARGEST:.1e} to {LARGEST:.1e}", "Change their unit."
    match space:
        case gym.spaces.Discrete() | gym.spaces.MultiDiscrete():
            size = int(space.n) if isinstance(space, gym.spaces.Discrete) else space.nvec
            if np.max(size) > LARGEST_WHOLE:
                raise UserError(f"{column} can be {np.max(size):,} categories; accepted: up to {LARGEST_WHOLE:,}.")
            low, high = (np.broadcast_to(end, batch.shape) for end in (space.start, space.start + (size - 1)))
            bad = (batch < low) | (batch > high) | (batch != np.floor(batch))
            at = np.unravel_index(bad.argmax(), bad.shape)
            accepted, remedy = f"whole numbers from {low[at]} to {high[at]}", ""
        case gym.spaces.MultiBinary():
            bad, accepted, remedy = (batch != 0) & (batch != 1), "0 and 1", ""
        case _ if image_shape(space) and batch.dtype != np.uint8:
            raise UserError(f"{column} has type {batch.dtype}; expected images of bytes (uint8).")
        case _ if batch.dtype.kind in "iu" and batch.dtype.itemsize > 2:
            bad = (batch > LARGEST_WHOLE) | (batch < -LARGEST_WHOLE)
            accepted = f"whole numbers from {-LARGEST_WHOLE:,} to {LARGEST_WHOLE:,}, which float32 holds exactly"
            remedy = "Give differences or parts of larger ones, or fractions (a float type) if rounding does no harm."
        case _ if batch.dtype.kind == "f" and batch.dtype.itemsize > 4:
            bad = ((batch > LARGEST) | (batch < -LARGEST)) & np.isfinite(batch)
        case _:
            return
    _refuse(bad, batch, column, accepted, remedy)


def check_flags(flags: Any, n: int, column: str) -> Array:
    """(n,) flags as booleans; raises unless they are booleans, or numbers that are all 0 or 1."""
    if not isinstance(flags, np.ndarray) or flags.dtype.kind not in "biuf" or flags.shape != (n,):
        raise UserError(f"{column} has {_described(flags)}; expected ({n},) booleans, or 0 and 1.")
    if flags.dtype.kind != "b":
        _refuse((flags != 0) & (flags != 1), flags, column, "true and false, or 0 and 1")
    return flags.astype(bool)


def _refuse(bad: Array, values: Array, column: str, accepted: str, remedy: str = "") -> None:
    """Raise if an entry is bad, with the row of the first one."""
    if bad.any():
        at = np.unravel_index(bad.argmax(), bad.shape)
        raise UserError(f"{column} has {values[at]} in row {at[0]}; accepted: {accepted}. {remedy}".rstrip())


def _described(values: Any) -> str:
    """The shape and type of an array, or the type of something else."""
    if isinstance(values, np.ndarray):
        return f"shape {values.shape} and type {values.dtype}"
    return f"the keys {sorted(map(str, values))}" if isinstance(values, dict) else f"the type {type(values).__name__}"


def _check_named(names: tuple[str, ...] | None, table: Array | None, space: Space, where: str) -> None:
    """Raise unless the names of the features and the coordinates of the states fit the observations."""
    states = int(space.n) if isinstance(space, gym.spaces.Discrete) else None
    if table is not None:
        if states is None:
            raise UserError(f"feature_table of {where} needs observations that are states, (n,) whole numbers.")
        numbers = isinstance(table, np.ndarray) and table.dtype.kind in "biuf" and table.ndim == 2
        if not numbers or len(table) != states or table.shape[1] == 0 or not np.isfinite(table).all():
            raise UserError(
                f"feature_table of {where} has {_described(table)}; expected finite numbers ({states}, k), a row for "
                f"each of the {states} states."
            )
    if names is not None:
        width = table.shape[1] if table is not None else sum(leaf.packed for leaf in leaves(space))
        if parts_of(space):  # these may be the names of achieved_goal only
            width = len(names)
        if len(names) != width or not all(isinstance(name, str) for name in names) or len(set(names)) != width:
            raise UserError(f"feature_names of {where} has {len(names)} entries; expected {width} different texts.")


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
    seen = {"observations": before, "next observations": after}
    if phi.kind == "achieved_goal":
        goals = (pack(phi.state_space, batch["achieved_goal"]) for batch in (observations, next_observations))
        seen |= dict(zip(("achieved goals", "next achieved goals"), goals, strict=True))
    for name, packed in seen.items():
        bad = np.flatnonzero(~np.isfinite(packed).all(1))
        if len(bad):
            raise UserError(
                f"The {name} of {what} hold NaN or infinity, first in row {bad[0]}; accepted: finite numbers. Leave "
                "out such rows."
            )
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
    try:
        exists = path.is_file()
    except OSError:  # too long for a path, or in a folder that may not be read
        exists = False
    if not exists:
        raise UserError(f"There is no dataset at {path}.")
    data = read_arrays(path, NEEDED + OPTIONAL + LIKE_TERMINATIONS)
    alike = [name for name in LIKE_TERMINATIONS if name in data]
    if alike and "terminations" not in data:
        raise UserError(
            f"{path} holds {alike[0]}, but no terminations. If these are terminal states, rename the array to "
            "terminations; truncated episodes must not be marked. If not, add terminations of zeros."
        )
    missing = [key for key in NEEDED if key not in data]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(data)) or 'no known key'}. Keys: "
            f"{', '.join(NEEDED)}; optional: {', '.join(OPTIONAL)} (docs/datasets.md)."
        )
    actions, observations, following = data["actions"], data["observations"], data["next_observations"]
    if actions.ndim != 1 or actions.dtype.kind not in "iu":
        raise UserError(
            f"actions of {path} has {_described(actions)}; expected (n,) whole numbers from 0, of an integer type. "
            "Continuous actions are not supported."
        )
    n = len(actions)
    if n == 0:
        raise UserError(f"{path} holds no transitions.")
    for key in ("observations", "next_observations", "terminations"):
        if key in data and data[key].shape[:1] != (n,):
            rows = f"{len(data[key])} rows" if data[key].ndim else "shape (), one number"
            raise UserError(f"{key} of {path} has {rows}, actions has {n}; they must be equal.")
    if observations.shape != following.shape:
        shapes = f"{observations.shape} and {following.shape}"
        raise UserError(f"observations and next_observations of {path} differ in shape: {shapes}.")
    ends = check_flags(data.get("terminations", np.zeros(n, dtype=bool)), n, f"terminations of {path}")
    n_actions = _count(data, "n_actions", ("actions",), path)
    space = _npz_space(data, path)
    if isinstance(space, gym.spaces.Box) and not image_shape(space):
        for key in ("observations", "next_observations"):
            check_elements(gym.spaces.Box(-np.inf, np.inf, observations.shape[1:]), data[key], n, f"{key} of {path}")
        observations, following = (batch.reshape(n, -1).astype(np.float32) for batch in (observations, following))
    names = data.get("feature_names")
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        width = sum(leaf.packed for leaf in leaves(space))
        raise UserError(f"feature_names of {path} has {_described(names)}; expected {width} different texts.")
    texts = None if names is None else tuple(names.tolist())
    table, possible = data.get("feature_table"), gym.spaces.Discrete(n_actions)
    return Dataset(path.stem, space, possible, observations, actions, following, ends, texts, table, str(path))


def _npz_space(data: dict[str, Array], path: Path) -> Space:
    """The space of the observations of an .npz file: states, images, or numbers in one row each."""
    observations, following = data["observations"], data["next_observations"]
    for key in ("observations", "next_observations"):
        if data[key].dtype.kind not in "biuf":
            raise UserError(f"{key} of {path} has type {data[key].dtype}; expected numbers.")
    if observations.ndim == 1 and observations.dtype.kind in "iu":
        if following.dtype.kind not in "iu":
            raise UserError(f"next_observations of {path} has type {following.dtype}; expected whole numbers.")
        return gym.spaces.Discrete(_count(data, "n_states", ("observations", "next_observations"), path))
    if "n_states" in data:
        raise UserError(
            f"n_states of {path} needs observations that are states, (n,) whole numbers; they have "
            f"{_described(observations)}. Save states as integers, or leave n_states out."
        )
    shape = observations.shape[1:]
    if math.prod(shape) == 0:
        raise UserError(
            f"observations of {path} has shape {observations.shape}; expected at least one number in a row."
        )
    if np.uint8 in (observations.dtype, following.dtype) and sum(side >= SMALLEST_IMAGE for side in shape) > 1:
        images = gym.spaces.Box(0, 255, shape, np.uint8)
        if image_shape(images) is None or observations.dtype != following.dtype:
            raise UserError(
                f"observations of {path} has {_described(observations)}, next_observations {following.dtype}; expected "
                "images of bytes (uint8) in both, as stacks of grey frames, (n, frames, height, width). Save a single "
                "frame as x[:, None], colours as x.mean(-1).astype('uint8')[:, None], and pixels that are plain "
                "numbers as x.reshape(len(x), -1)."
            )
        return images
    return gym.spaces.Box(-np.inf, np.inf, (math.prod(shape),), np.float32)


def _count(data: dict[str, Array], key: str, columns: tuple[str, ...], path: Path) -> int:
    """The number of states or actions: as declared, or the largest seen, plus one."""
    for column in columns:
        accepted = f"whole numbers from 0 to {LARGEST_WHOLE - 1:,}"
        _refuse(data[column] >= LARGEST_WHOLE, data[column], f"{column} of {path}", accepted, "Number them from 0.")
    declared, table, called = data.get(key), data.get("feature_table"), f"{key} of {path}"
    if declared is None and key == "n_states" and table is not None and table.ndim:
        declared, called = np.asarray(len(table)), f"{called}, the number of rows of feature_table,"
    if declared is None:
        return max(1, *(int(data[column].max()) + 1 for column in columns))
    if declared.size != 1 or declared.dtype.kind not in "iu":
        raise UserError(f"{called} has {_described(declared)}; expected one whole number.")
    count = int(declared.reshape(()))
    for column in columns:
        above = np.flatnonzero(data[column] >= count)
        if len(above):
            occurs = f"{'an action' if key == 'n_actions' else 'a state'} {data[column][above[0]]} occurs"
            raise UserError(
                f"{called} is {count}, but {occurs} in row {above[0]} of {column}; accepted: whole numbers from 0 to "
                f"{key} - 1 = {count - 1}."
            )
    if count > LARGEST_WHOLE:
        raise UserError(f"{called} is {count:,}; accepted: up to {LARGEST_WHOLE:,}.")
    return count


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Turn errors of Minari into a UserError: damage makes JSON, h5py, Minari and Gymnasium raise many kinds."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Minari cannot read {source}: {reason(error)}. Download or write it again.") from error


def _read_minari(source: str) -> Dataset:
    try:
        import h5py  # noqa: F401, Minari needs it for nearly all datasets
        import minari
    except ImportError as error:
        raise UserError("Reading Minari datasets needs Minari: pip install 'anyreward[datasets]'.") from error
    name = source.removeprefix("minari:")
    with _reading(source):
        folder = (minari.storage.get_dataset_path(name) if source.startswith("minari:") else Path(source)) / "data"
        if not (folder / "metadata.json").is_file():
            raise UserError(
                f"Minari cannot read {source}: there is no {folder / 'metadata.json'}. Give a dataset's folder, or "
                "minari:ID of a downloaded one (minari download ID)."
            )
        _check_minari(folder)
        data = minari.MinariDataset(folder)
        space, actions = data.observation_space, discrete_actions(data.action_space)
        episodes = [(e.observations, e.actions, e.terminations) for e in data.iterate_episodes()]
    columns: list[tuple[Any, Array, Any, Array]] = []
    for number, (observations, taken, ends) in enumerate(episodes):
        where, taken, ends = f"episode {number} of {source}", np.asarray(taken), np.asarray(ends)
        steps = len(taken) if taken.ndim else 1
        taken, ends = (flat.reshape(steps) if flat.size == steps else flat for flat in (taken, ends))
        check_elements(actions, taken, steps, f"actions of {where}")
        check_elements(space, observations, steps + 1, f"observations of {where}, which has {steps} actions,")
        ends = check_flags(ends, steps, f"terminations of {where}")
        if ends[:-1].any():
            raise UserError(
                f"terminations of {where} is true in row {ends.argmax()}, but the episode has {steps} steps; accepted: "
                "true in the last step only. Split the episode there."
            )
        if steps:
            before, after = (take(space, observations, slice(i, steps + i)) for i in (0, 1))
            columns.append((before, taken, after, ends))
    if not columns:
        raise UserError(f"The Minari dataset {source} holds no transitions.")
    before, taken, after, ends = zip(*columns, strict=True)
    parts = (_concatenate(space, before), np.concatenate(taken), _concatenate(space, after), np.concatenate(ends))
    return Dataset(name, space, actions, *parts, source=source)


def _check_minari(folder: Path) -> None:
    """Raise unless the sizes that a Minari dataset declares agree with its content and fit into memory."""
    path = folder / "metadata.json"
    metadata = read_json(path)
    missing = [key for key in METADATA if not isinstance(metadata, dict) or key not in metadata]
    if not missing and "env_spec" not in metadata:  # with which Minari makes the environment, to ask for its spaces
        missing = [key for key in SPACES if key not in metadata]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; is it the metadata of a Minari dataset?")
    for key in (*METADATA, *SPACES):
        kind, given = METADATA.get(key, str), metadata.get(key, "")
        if type(given) is not kind:
            raise UserError(f"{key} of {path} is {given!r}; expected {'text' if kind is str else 'a whole number'}.")
    for key in SPACES:
        if key in metadata:
            check_fits(8 * _entries(json.loads(metadata[key])), f"{key} of {path}")
    if metadata["data_format"] == "hdf5":
        _check_hdf5(folder / "main_data.hdf5", metadata["total_episodes"])


def _entries(space: Any) -> int:
    """The number of entries of the Boxes of a space in Minari's JSON."""
    parts = space.get("subspaces", [])
    inner = parts.values() if isinstance(parts, dict) else parts
    return int(math.prod(space.get("shape", [0]))) + sum(_entries(part) for part in inner)


def _check_hdf5(path: Path, episodes: int) -> None:
    """Raise unless an HDF5 file holds these episodes, and all of the data that its arrays declare."""
    import h5py

    with h5py.File(path) as file:
        if len(file) != episodes or set(file) != {f"episode_{i}" for i in range(episodes)}:
            raise UserError(
                f"{path} holds {len(file)} groups, but metadata.json declares {episodes} episodes, episode_0 and so on."
            )
        arrays: list[Any] = []
        file.visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        needed = 0
        for array in arrays:
            shape, chunks = array.shape or (), array.chunks
            size = math.prod(shape) * array.dtype.itemsize
            whole = array.id.get_storage_size() >= size
            if chunks:  # compressed or not, all of them must be there; h5py would fill in zeros, or run out of memory
                expected = math.prod(-(-side // chunk) for side, chunk in zip(shape, chunks, strict=True))
                whole = array.id.get_num_chunks() == expected
            if not whole:
                raise UserError(f"{array.name} of {path} declares the shape {array.shape}, but holds less data.")
            needed += size
        check_fits(needed, str(path))


def _concatenate(space: Space, batches: Sequence[Any]) -> Any:
    match space:
        case gym.spaces.Tuple():
            return tuple(_concatenate(part, [b[i] for b in batches]) for i, part in enumerate(space.spaces))
        case gym.spaces.Dict():
            return {key: _concatenate(part, [b[key] for b in batches]) for key, part in space.spaces.items()}
    return np.concatenate(batches)
