"""Datasets of Minari, in a folder each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.learning.datasets.checks import check_actions, check_elements, check_flags
from anyreward.learning.datasets.dataset import Dataset
from anyreward.learning.datasets.hdf5 import check_stored
from anyreward.learning.datasets.inferred import Bounds, bounded
from anyreward.learning.datasets.reading import Reading
from anyreward.storage.files import check_fits, read_json, reason
from anyreward.worlds.spaces import Array, Space, take

METADATA = {"dataset_id": str, "minari_version": str, "data_format": str, "total_episodes": int, "total_steps": int}
"""Keys that the metadata.json of a Minari dataset must have, and SPACES, unless it names an environment."""
SPACES = ("observation_space", "action_space")


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Turn errors of Minari into a UserError: damage makes JSON, h5py, Minari and Gymnasium raise many kinds."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Minari cannot read {source}: {reason(error)}. Download or write it again.") from error


def read_minari(source: str, bounds: Bounds, progress: bool) -> Dataset:
    """The transitions of a dataset in a folder, or of ``minari:ID`` in Minari's own folder."""
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
        size = _check_minari(folder)
        data = minari.MinariDataset(folder)
        space, actions = data.observation_space, bounded(data.action_space, bounds, source)
        columns: list[tuple[Any, Array, Any, Array]] = []
        with Reading(size, progress) as bar:
            for number, episode in enumerate(data.iterate_episodes()):
                steps = _transitions(episode, space, actions, f"episode {number} of {source}")
                if len(steps[1]):
                    columns.append(steps)
                bar.add(size // max(1, data.total_episodes))
    if not columns:
        raise UserError(f"The Minari dataset {source} holds no transitions.")
    before, taken, after, ends = zip(*columns, strict=True)
    parts = (_concatenate(space, before), np.concatenate(taken), _concatenate(space, after), np.concatenate(ends))
    return Dataset(name, space, actions, *parts, source=source)


def _transitions(episode: Any, space: Space, actions: Space, where: str) -> tuple[Any, Array, Any, Array]:
    """The observations, actions, next observations and terminations of one episode."""
    observations, taken, ends = episode.observations, np.asarray(episode.actions), np.asarray(episode.terminations)
    n = len(taken) if taken.ndim else 1
    ends = ends.reshape(n) if ends.size == n else ends
    if not isinstance(actions, gym.spaces.Box) and taken.size == n:
        taken = taken.reshape(n)
    check_actions(actions, taken, n, where)
    check_elements(space, observations, n + 1, f"observations of {where}, which has {n} actions,")
    ends = check_flags(ends, n, f"terminations of {where}")
    if ends[:-1].any():
        raise UserError(
            f"terminations of {where} is true in row {ends.argmax()}, but the episode has {n} steps; accepted: true in "
            "the last step only. Split the episode there."
        )
    before, after = (take(space, observations, slice(i, n + i)) for i in (0, 1))
    return before, taken, after, ends


def _check_minari(folder: Path) -> int:
    """Raise unless the sizes that a Minari dataset declares agree with its content and fit into memory.

    Returns the bytes of an HDF5 file, and zero for any other.
    """
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
    if metadata["data_format"] != "hdf5":
        return 0
    return _check_hdf5(folder / "main_data.hdf5", metadata["total_episodes"])


def _entries(space: Any) -> int:
    """The number of entries of the Boxes of a space in Minari's JSON."""
    parts = space.get("subspaces", [])
    inner = parts.values() if isinstance(parts, dict) else parts
    return int(math.prod(space.get("shape", [0]))) + sum(_entries(part) for part in inner)


def _check_hdf5(path: Path, episodes: int) -> int:
    """The bytes of an HDF5 file; raises unless it holds these episodes, and all of the data that its arrays declare."""
    import h5py

    with h5py.File(path) as file:
        if len(file) != episodes or set(file) != {f"episode_{i}" for i in range(episodes)}:
            raise UserError(
                f"{path} holds {len(file)} groups, but metadata.json declares {episodes} episodes, episode_0 and so on."
            )
        arrays: list[Any] = []
        file.visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        sizes = {array.name: check_stored(array, path) for array in arrays}
    size = sum(sizes.values())
    copies = 2 * sum(size for name, size in sizes.items() if "/observations" in name)  # before and after each step
    check_fits(size + copies, str(path))
    return size


def _concatenate(space: Space, batches: Sequence[Any]) -> Any:
    match space:
        case gym.spaces.Tuple():
            return tuple(_concatenate(part, [b[i] for b in batches]) for i, part in enumerate(space.spaces))
        case gym.spaces.Dict():
            return {key: _concatenate(part, [b[key] for b in batches]) for key, part in space.spaces.items()}
    return np.concatenate(batches)
