"""Datasets in .npz files of the library's own layout: a row for each transition."""

from __future__ import annotations

import math
from pathlib import Path

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.learning.datasets.checks import check_elements, check_flags, described
from anyreward.learning.datasets.dataset import Dataset
from anyreward.learning.datasets.inferred import BOUNDS, Bounds, actions_of, count_of, numbers_or_images
from anyreward.learning.datasets.reading import Reading
from anyreward.storage.files import Header, NpzFile, check_fits
from anyreward.worlds.spaces import Array, Space, image_shape, leaves

NEEDED = ("observations", "actions", "next_observations")
OPTIONAL = ("terminations", "n_states", "n_actions", *BOUNDS, "feature_table", "feature_names")
LIKE_TERMINATIONS = ("terminated", "terminals", "dones", "done")
"""Names that other libraries use: without an error, the ends of episodes would be lost in silence."""
KEYS = NEEDED + OPTIONAL + LIKE_TERMINATIONS
"""Keys of an .npz file (docs/datasets.md); others are ignored."""


def read_npz(file: NpzFile, path: Path, bounds: Bounds, progress: bool) -> Dataset:
    """The transitions of an open file, of which `KEYS` are read."""
    size = sum(header.size for header in file.headers.values())
    check_fits(size, str(path))
    check_fits(size + sum(_copied(file.headers[key]) for key in NEEDED if key in file.headers), str(path))
    with Reading(size, progress) as bar:
        data: dict[str, Array] = {key: file.read(key, bar.add) for key in file.headers}
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
    if actions.ndim == 0:
        raise UserError(f"actions of {path} has {described(actions)}; expected a row for each transition.")
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
    _check_numbered(data, path, bounds)
    actions, possible = actions_of(data, str(path), bounds)
    space = _space(data, path)
    if isinstance(space, gym.spaces.Box) and not image_shape(space):
        for key in ("observations", "next_observations"):
            check_elements(gym.spaces.Box(-np.inf, np.inf, observations.shape[1:]), data[key], n, f"{key} of {path}")
        observations, following = (
            batch.reshape(n, -1).astype(np.float32, copy=False) for batch in (observations, following)
        )
    names = data.get("feature_names")
    if names is not None and (names.dtype.kind != "U" or names.ndim != 1):
        width = sum(leaf.packed for leaf in leaves(space))
        raise UserError(f"feature_names of {path} has {described(names)}; expected {width} different texts.")
    texts = None if names is None else tuple(names.tolist())
    table = data.get("feature_table")
    return Dataset(path.stem, space, possible, observations, actions, following, ends, texts, table, str(path))


def _copied(header: Header) -> int:
    """The bytes of a copy of numbers in float32; images need none."""
    images = header.dtype == np.uint8 and len(header.shape) == 4
    return 0 if images or header.dtype == np.float32 else 4 * math.prod(header.shape)


def _check_numbered(data: dict[str, Array], path: Path, bounds: Bounds) -> None:
    """Raise if actions may be numbers of actions that were saved as floats."""
    actions = data["actions"]
    bounded = any(key in data for key in BOUNDS) or any(end is not None for end in bounds)
    if (
        actions.dtype.kind == "f"
        and actions.size == len(actions)
        and not bounded
        and (actions == actions.round()).all()
    ):
        raise UserError(
            f"actions of {path} has {described(actions)}, but holds whole numbers only. Save the numbers of actions as "
            "integers. If they are real-valued, add their bounds, action_low and action_high."
        )


def _space(data: dict[str, Array], path: Path) -> Space:
    """The space of the observations: states, images, or numbers in one row each."""
    observations, following = data["observations"], data["next_observations"]
    for key in ("observations", "next_observations"):
        if data[key].dtype.kind not in "biuf":
            raise UserError(f"{key} of {path} has type {data[key].dtype}; expected numbers.")
    if observations.ndim == 1 and observations.dtype.kind in "iu":
        if following.dtype.kind not in "iu":
            raise UserError(f"next_observations of {path} has type {following.dtype}; expected whole numbers.")
        return gym.spaces.Discrete(count_of(data, "n_states", ("observations", "next_observations"), str(path)))
    if "n_states" in data:
        raise UserError(
            f"n_states of {path} needs observations that are states, (n,) whole numbers; they have "
            f"{described(observations)}. Save states as integers, or leave n_states out."
        )
    return numbers_or_images(Header(observations.shape, observations.dtype), str(path), following.dtype)
