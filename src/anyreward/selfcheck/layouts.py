"""Random datasets in the layouts of ExORL, D4RL and OGBench, and the transitions that each of them means."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from anyreward.learning.datasets import Dataset
from anyreward.learning.replay import Transitions

Array = np.ndarray[Any, Any]
Arrays = dict[str, Any]
Rng = np.random.Generator
Step = tuple[Array, Array, Array, bool]
"""Observation, action, next observation, and whether the episode terminated."""


class Layout(NamedTuple):
    """A layout: how it is made, how it is named, and what it means."""

    valid: Callable[[Rng], list[Arrays]]
    """The arrays of each file of a random, valid dataset."""
    name: Callable[[int], str]
    """The name of each file."""
    meant: Callable[[Arrays], list[Step]]
    """The transitions of the arrays of a file, without the library's own code; fails if there are none."""


def real(rng: Rng, n: int) -> Array:
    """Real-valued actions; most of them between -1 and 1."""
    actions = rng.uniform(-1, 1, (n, int(rng.integers(1, 4)))) * rng.choice([1, 1, 3, 1e6])
    return np.asarray(actions.astype(rng.choice(["<f4", ">f4", "<f8"])))


def faithful_box(given: Arrays, actions: Array, data: Dataset, rows: Transitions) -> bool:
    """Whether real-valued actions (n, k) are held as they are, with the right bounds, and scaled."""
    space, ends = data.action_space, [given.get(key) for key in ("action_low", "action_high")]
    if actions.dtype.kind != "f" or not isinstance(space, gym.spaces.Box) or space.dtype != np.float32:
        return False
    flat = actions.reshape(len(actions), -1).astype(np.float64)
    unit = np.abs(flat).max() <= 1.001
    seen = (-1, 1) if unit else (flat.min(0), flat.max(0))
    for held, end, other in zip((space.low, space.high), ends, seen, strict=True):
        wanted = np.asarray(other if end is None else end, dtype=np.float64)
        if not np.isfinite(held).all() or not np.allclose(held, wanted, rtol=1e-5, atol=1e-30):
            return False
    low, high = (end.astype(np.float64) for end in (space.low, space.high))
    scaled = np.clip(2 * (flat - low) / np.where(high > low, high - low, 1) - 1, -1, 1)
    held = np.asarray(data.actions, dtype=np.float64).reshape(flat.shape)
    close = np.allclose(held, flat, rtol=1e-6, atol=1e-30) and np.allclose(rows.actions.numpy(), scaled, atol=1e-5)
    return close and bool((flat >= low - 1e-3 * (high - low) - 1e-3 * abs(low)).all())


def _exorl(rng: Rng) -> list[Arrays]:
    width, kind = int(rng.integers(1, 4)), rng.choice(["f4", "f8"])
    files: list[Arrays] = []
    for _ in range(rng.integers(1, 4)):
        n = int(rng.integers(2, 7))
        columns = (n, 1) if rng.random() < 0.8 else (n,)
        discount = np.ones(columns, np.float32)
        discount[-1] = rng.random() < 0.7
        files.append(
            {
                "observation": rng.normal(size=(n, width)).astype(kind),
                "action": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
                "reward": np.zeros(columns, np.float32),
                "discount": discount,
                "physics": rng.normal(size=(n, 3)),
            }
        )
    return files


def _exorl_means(a: Arrays) -> list[Step]:
    observation, action, discount = (np.asarray(a[key]) for key in ("observation", "action", "discount"))
    assert len(observation) == len(action) == len(discount)
    assert discount.size == len(action)
    assert action.ndim == 2
    over = [float(x) == 0 for x in discount.ravel()]
    return [(observation[t - 1], action[t], observation[t], over[t]) for t in range(1, len(action))]


def _rows(rng: Rng) -> Arrays:
    n = int(rng.integers(3, 12))
    arrays: Arrays = {"observations": rng.normal(size=(n, 2)).astype(rng.choice(["f4", "f8"])), "actions": real(rng, n)}
    if rng.random() < 0.2:
        arrays["actions"] = rng.integers(4, size=n)
    elif rng.random() < 0.3:
        arrays |= {"action_low": -2e6, "action_high": np.full(arrays["actions"].shape[1], 2e6)}
    return arrays


def _d4rl(rng: Rng) -> list[Arrays]:
    arrays = _rows(rng)
    n = len(arrays["actions"])
    arrays["terminals"] = (rng.random(n) < 0.2).astype(rng.choice(["?", "u1", "f4"]))
    arrays["rewards"] = rng.normal(size=n)
    if rng.random() < 0.3:
        arrays["next_observations"] = rng.normal(size=arrays["observations"].shape)
    if "next_observations" not in arrays or rng.random() < 0.5:
        arrays["timeouts"] = (np.arange(n) % 5 == 4) & ~arrays["terminals"].astype(bool)
    return [arrays]


def _d4rl_means(a: Arrays) -> list[Step]:
    before, actions, n = np.asarray(a["observations"]), np.asarray(a["actions"]), len(a["actions"])
    ends = [_flag(x) for x in np.asarray(a["terminals"]).reshape(n)]
    if "next_observations" in a:
        after = np.asarray(a["next_observations"])
        assert len(before) == len(after) == n
        return [(before[i], actions[i], after[i], ends[i]) for i in range(n)]
    late = [_flag(x) for x in np.asarray(a["timeouts"]).reshape(n)]
    assert len(before) == n
    steps: list[Step] = []
    for i in range(n):
        if late[i] or (i == n - 1 and not ends[i]):
            continue
        steps.append((before[i], actions[i], before[i] if ends[i] else before[i + 1], ends[i]))
    return steps


def _ogbench(rng: Rng) -> list[Arrays]:
    arrays = _rows(rng)
    n = len(arrays["actions"])
    arrays["terminals"] = (np.arange(n) % 4 == 3).astype(rng.choice(["?", "f4", "f8"]))
    arrays["terminals"][-1] = 1
    if rng.random() < 0.05:
        arrays["observations"] = rng.integers(256, size=(n, 36, 40, 3), dtype=np.uint8)
    if rng.random() < 0.5:
        arrays["qpos"] = rng.normal(size=(n, 3))
    return [arrays]


def _ogbench_means(a: Arrays) -> list[Step]:
    before, actions, n = np.asarray(a["observations"]), np.asarray(a["actions"]), len(a["actions"])
    ends = [_flag(x) for x in np.asarray(a["terminals"]).reshape(n)]
    assert len(before) == len(ends) == n
    assert ends[-1]
    if before.dtype == np.uint8 and before.ndim == 4 and before.shape[3] <= 4 and min(before.shape[1:3]) >= 36:
        before = np.moveaxis(before, 3, 1)
    return [(before[i], actions[i], before[i + 1], False) for i in range(n) if not ends[i]]


def _flag(value: Any) -> bool:
    assert value.dtype.kind in "biuf"
    assert float(value) in (0.0, 1.0)
    return float(value) == 1.0


LAYOUTS: dict[str, Layout] = {
    "exorl": Layout(_exorl, lambda i: f"episode_{i:06d}_{i}.npz", _exorl_means),
    "ogbench": Layout(_ogbench, lambda _: "data.npz", _ogbench_means),
}
if find_spec("h5py"):
    LAYOUTS["d4rl"] = Layout(_d4rl, lambda _: "data.hdf5", _d4rl_means)


def write_hdf5(rng: Rng, arrays: Arrays, path: Path) -> None:
    """Write arrays as an HDF5 file; those that it does not hold are left out of both."""
    import h5py

    with h5py.File(path, "w") as file:
        for key, column in list(arrays.items()):
            compressed = np.ndim(column) > 0 and np.size(column) > 0 and rng.random() < 0.5
            try:
                file.create_dataset(key, data=column, compression="gzip" if compressed else None)
            except TypeError:
                del arrays[key]
        file["infos/qpos"] = np.zeros(3)
        file["metadata/algorithm"] = np.bytes_("SAC")


def place(folder: Path, name: str) -> Path:
    """An empty folder for a dataset of this layout; the source is the folder, or the one file in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder if name == "exorl" else folder / LAYOUTS[name].name(0)


def faithful(name: str, files: list[Arrays], data: Dataset, rows: Transitions) -> bool:
    """Whether a dataset of this layout holds what was written."""
    try:
        steps = [step for arrays in files for step in LAYOUTS[name].meant(arrays)]
        before, actions, after = (np.array([step[i] for step in steps]) for i in range(3))
    except (AssertionError, KeyError, TypeError, ValueError, IndexError):
        return False
    if rows.terminated.tolist() != [step[3] for step in steps]:
        return False
    for given, held in ((before, rows.observations), (after, rows.next_observations)):
        if given.dtype.kind not in "biuf":
            return False
        flat, values = given.reshape(len(steps), -1).astype(np.longdouble), held.numpy().astype(np.longdouble)
        if flat.shape != values.shape or not (abs(flat - values) <= 2.0**-23 * abs(flat) + 1e-44).all():
            return False
    if actions.dtype.kind in "iu" and actions.size == len(steps):
        return rows.actions.tolist() == actions.ravel().tolist()
    return faithful_box({} if name == "exorl" else files[0], actions, data, rows)
