"""Random datasets, valid and damaged: each must load as it was written, or be refused with one line."""

from __future__ import annotations

import io
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.learning.datasets import Dataset, open_dataset
from anyreward.learning.replay import Transitions
from anyreward.model.features import feature_map
from anyreward.selfcheck import layouts
from anyreward.selfcheck.layouts import Arrays, Rng, faithful_box, real
from anyreward.worlds.actions import action_set

TYPES = ["?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", ">i4", ">i8", "<f2", "<f4", ">f4", "<f8", ">f8"]
TYPES += ["g", "<c8", "<c16", "U5", "S5", "O", "<M8[s]", "<m8[s]"]
VALUES: list[Any] = [
    np.nan,
    np.inf,
    -np.inf,
    0.5,
    -0.5,
    -1,
    2,
    7,
    255,
    256,
    2**24,
    2**24 + 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
]
VALUES += [-(2**24) - 1, -(2**63), 1e30, 1e39, -1e39, 1e300, 1e-300, "False", "", "1", None, True, 1j]
HEADERS = [
    b"(1000000000000,)",
    b"(99999999999999999999,)",
    b"(-1,)",
    b"(-2, -3)",
    b"()",
    b"(0,)",
    b"(0, 10000000000000)",
]
HEADERS += [b"(3.0,)", b"('a',)", b"((3,),)", b"(" * 300, b"None", b"3", b"(3L,)", b"\xff\xfe"]
KEYS = ["observations", "actions", "next_observations", "terminations", "n_states", "n_actions"]
KEYS += ["action_low", "action_high"]


def valid(rng: Rng) -> Arrays:
    """The arrays of a valid dataset: states, numbers or images."""
    n = int(rng.integers(1, 7))
    arrays: Arrays = {"actions": rng.integers(4, size=n).astype(rng.choice(TYPES[1:11]))}
    kind = rng.choice(["states", "numbers", "integers", "images"], p=[0.4, 0.4, 0.15, 0.05])
    for key in ("observations", "next_observations"):
        if kind == "states":
            arrays[key] = rng.integers(6, size=n)
        elif kind == "integers":
            arrays[key] = rng.integers(-(2**24), 2**24, size=(n, 2), endpoint=True)
        elif kind == "images":
            arrays[key] = rng.integers(256, size=(n, 2, 36, 40), dtype=np.uint8)
        else:
            arrays[key] = rng.normal(size=(n, 2, 1)) * 10.0 ** rng.integers(-3, 30)
    if rng.random() < 0.7:
        arrays["terminations"] = (rng.random(n) < 0.3).astype(rng.choice(["?", "u1", "i8", "f4", ">f8"]))
    if rng.random() < 0.4:
        arrays["actions"] = real(rng, n) if rng.random() < 0.8 else rng.uniform(-1, 1, n)
        if rng.random() < 0.5:
            arrays |= {"action_low": np.array(-4e6), "action_high": np.full(arrays["actions"].shape[1:] or 1, 4e6)}
    elif rng.random() < 0.5:
        arrays["n_actions"] = np.array(int(rng.integers(4, 9)))
    if kind == "states" and rng.random() < 0.5:
        arrays["feature_table"] = rng.normal(size=(6, 2))
        arrays["feature_names"] = np.array(["x", "y"])
    elif kind == "states" and rng.random() < 0.5:
        arrays["n_states"] = np.array([int(rng.integers(6, 9))])
    if rng.random() < 0.3:
        arrays["rewards"] = np.array([{}, "?"], dtype=object)  # never read
    return arrays


def odd(rng: Rng, arrays: Arrays) -> None:
    """Change one column: its type, one of its values, its shape, or remove it."""
    key = str(rng.choice([key for key in arrays if key != "rewards"] if rng.random() < 0.8 else KEYS))
    column = np.asarray(arrays.get(key, np.arange(3)))
    n = len(arrays.get("rewards", column)) if np.ndim(column) == 0 else len(column)
    shapes = [(), (0,), (n,), (n, 1), (1, n), (n + 1,), (n, 3), (n, 0), (n, 40, 36), (n, 40, 40, 3), (n, 2, 2, 2, 2)]
    match rng.integers(4):
        case 0:
            arrays[key] = column.astype(str(rng.choice(TYPES)))
        case 1:
            value = VALUES[rng.integers(len(VALUES))]
            cells = column.astype(object)
            if cells.size:
                cells.flat[rng.integers(cells.size)] = value
            common = np.array([*cells.ravel()[:50].tolist(), value])  # NumPy's choice of a type
            arrays[key] = cells if rng.random() < 0.1 else cells.astype(common.dtype)
        case 2:
            arrays[key] = np.resize(column, shapes[rng.integers(len(shapes))])
        case 3:
            arrays.pop(key, None)


def written(rng: Rng, arrays: Arrays) -> bytes:
    """The .npz file of these arrays."""
    file = io.BytesIO()
    (np.savez_compressed if rng.random() < 0.3 else np.savez)(file, **arrays)
    return file.getvalue()


def zipped(rng: Rng, content: bytes, arrays: Arrays) -> bytes:
    """The file with one member renamed, doubled, replaced by junk, or with another header or a false entry."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        members: list[tuple[str, bytes]] = [(name, source.read(name)) for name in source.namelist()]
    at = int(rng.integers(len(members)))
    name, data = members[at]
    lies: dict[str, int] = {}
    match rng.integers(6):
        case 0:
            other = [name.upper(), f"../{name}", f"{name}.npy", name.removesuffix(".npy") + "s"]
            members[at] = (other[rng.integers(4)], data)
            arrays.pop(name.removesuffix(".npy"))
        case 1:
            members.append((name, members[int(rng.integers(len(members)))][1]))
        case 2:
            junk = [b"", b"junk", data[:7], data[:-1], data + b"\0", rng.bytes(90)]
            members[at] = (name, junk[rng.integers(6)])
        case 3:
            start, end = data.find(b"'shape': ") + 9, data.find(b", }")
            shape = HEADERS[rng.integers(len(HEADERS))]
            members[at] = (name, data[:start] + shape + data[start + len(shape) if rng.random() < 0.5 else end :])
        case 4:
            entry = str(
                rng.choice(["file_size", "compress_size", "CRC", "flag_bits", "compress_type", "header_offset"])
            )
            lies[entry] = int(rng.choice([0, 1, 8, 12, 99, 2**31, 2**40] if entry.endswith("size") else [1, 8, 12, 99]))
        case 5:
            members += [(f"junk{i}", rng.bytes(9)) for i in range(3)]
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", int(rng.choice([0, 8, 12, 14]))) as target:
        warnings.simplefilter("ignore")  # doubled names
        for name, data in members:
            target.writestr(name, data)
        for entry, value in lies.items():
            setattr(target.infolist()[at], entry, value)  # goes into the list at the end of the file
    return file.getvalue()


def damaged(rng: Rng, content: bytes) -> bytes:
    """The file with some bytes changed, cut off, removed or added."""
    data, at = bytearray(content), int(rng.integers(len(content)))
    match rng.integers(5):
        case 0:
            for place in rng.integers(len(data), size=rng.integers(1, 4)):
                data[place] ^= 1 << int(rng.integers(8))
        case 1:
            del data[at:]
        case 2:
            del data[at : at + int(rng.integers(1, 99))]
        case 3:
            data[at : at + 40] = rng.bytes(40)
        case 4:
            data[at:at] = rng.bytes(int(rng.integers(1, 99)))
    return bytes(data)


def faithful(arrays: Arrays, data: Dataset, rows: Transitions) -> bool:
    """Whether a dataset holds what was written, without the library's own checks."""
    if not set(KEYS[:3]) <= set(arrays):
        return False
    actions, n = np.asarray(arrays["actions"]), len(rows.actions)
    ends = np.asarray(arrays.get("terminations", np.zeros(n)))
    if ends.dtype.kind not in "biuf" or ends.shape != (n,) or rows.terminated.tolist() != ends.tolist():
        return False
    numbered = actions.dtype.kind in "iu" and actions.shape == (n,) and rows.actions.tolist() == actions.tolist()
    if not numbered and ("n_actions" in arrays or not faithful_box(arrays, actions, data, rows)):
        return False
    if numbered and "n_actions" in arrays and data.action_space != gym.spaces.Discrete(int(arrays["n_actions"].item())):
        return False
    before, after = np.asarray(arrays["observations"]), np.asarray(arrays["next_observations"])
    for given, held in ((before, rows.observations), (after, rows.next_observations)):
        if given.dtype.kind not in "biuf" or given.shape != before.shape:
            return False
        flat, values = given.reshape(n, -1).astype(np.longdouble), held.numpy().astype(np.longdouble)
        close = 0 if given.dtype.kind in "biu" else 2.0**-24
        if flat.shape != values.shape or not (abs(flat - values) <= close * abs(flat) + 1e-44 * (close > 0)).all():
            return False
    if before.ndim == 1 and before.dtype.kind in "iu":
        table = arrays.get("feature_table")
        count = len(table) if table is not None else int(max(before.max(), after.max())) + 1
        count = int(arrays["n_states"].item()) if "n_states" in arrays else count
        loaded = data.feature_table
        same = table is loaded if table is None or loaded is None else np.array_equal(table, loaded)
        return same and data.observation_space == gym.spaces.Discrete(count)
    images = before.dtype == np.uint8 and sum(side >= 36 for side in before.shape[1:]) > 1
    shape = before.shape[1:] if images else (int(np.prod(before.shape[1:])),)
    space = data.observation_space
    return space.shape == shape and space.dtype == (np.uint8 if images else np.float32) and "n_states" not in arrays


def load(path: Path) -> tuple[Dataset, Transitions]:
    """A dataset and its transitions, as training reads them."""
    data = open_dataset(path)
    return data, data.transitions(feature_map("auto", data.observation_space, action_set(data.action_space)))


def outcome(path: Path, arrays: Arrays) -> str:
    """What becomes of a file that should hold these arrays: refused, loaded, tracebacks or silent."""
    return outcome_of(path, lambda data, rows: faithful(arrays, data, rows))


def outcome_of(path: Path, is_faithful: Callable[[Dataset, Transitions], bool]) -> str:
    """What becomes of a dataset: refused, loaded, tracebacks or silent."""
    try:
        data, rows = load(path)
    except UserError as error:
        return "refused" if len(str(error).splitlines()) == 1 else "tracebacks"
    except Exception:
        traceback.print_exc()
        return "tracebacks"
    return "loaded" if is_faithful(data, rows) else "silent"


WAYS = ["valid", "odd", "zipped", "damaged"]


def made_odd(rng: Rng, arrays: Arrays) -> bool:
    """Change one or two columns; whether NumPy can convert them."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in range(rng.integers(1, 3)):
                odd(rng, arrays)
        except (TypeError, ValueError, OverflowError):
            return False
    return True


def case(rng: Rng) -> tuple[Arrays, bytes, bool]:
    """The arrays of an .npz file, its content, and whether it is valid."""
    arrays = valid(rng)
    way = rng.choice(WAYS, p=[0.1, 0.4, 0.25, 0.25])
    if way == "odd" and not made_odd(rng, arrays):
        way = "skipped"
    content = written(rng, arrays)
    if way == "zipped":
        content = zipped(rng, content, arrays)
    if way == "damaged":
        content = damaged(rng, content)
    return arrays, content, way == "valid"


def other_case(rng: Rng, folder: Path) -> tuple[str, Path, list[Arrays], str]:
    """Write a dataset of another layout: its layout, source and arrays, and in which way it is changed."""
    name = str(rng.choice(list(layouts.LAYOUTS)))
    layout, source = layouts.LAYOUTS[name], layouts.place(folder, name)
    files = layout.valid(rng)
    way, chosen = str(rng.choice(WAYS, p=[0.15, 0.35, 0.2, 0.3])), int(rng.integers(len(files)))
    if way == "odd":
        made_odd(rng, files[chosen])
    for number, arrays in enumerate(files):
        path = folder / layout.name(number)
        if path.suffix == ".npz":
            content = written(rng, arrays)
            if way == "zipped" and number == chosen:
                content = zipped(rng, content, arrays)
            path.write_bytes(content)
        else:
            layouts.write_hdf5(rng, arrays, path)
        if way == "damaged" and number == chosen:
            path.write_bytes(damaged(rng, path.read_bytes()))
    return name, source, files, way


def attack(count: int, seed: int) -> dict[str, int]:
    """Load ``count`` random datasets; how many were refused, loaded, raised another error, or loaded something else."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(["tried", "refused", "loaded", "tracebacks", "silent", "refused although valid"], 0)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = Path(name)
        for _ in range(count):
            if rng.random() < 0.6:
                layout, (arrays, content, is_valid) = "npz", case(rng)
                files = [arrays]
                (folder / "data.npz").write_bytes(content)
                result = outcome(folder / "data.npz", arrays)
            else:
                layout, source, files, way = other_case(rng, folder / "other")
                is_valid = way == "valid"
                result = outcome_of(source, partial(layouts.faithful, layout, files))
                if result == "silent" and layout == "d4rl" and way == "damaged":
                    result = "loaded"  # HDF5 has no checksums: the damage is in a number
            counts["tried"] += 1
            counts[result] += 1
            counts["refused although valid"] += is_valid and result == "refused"
            if result in ("tracebacks", "silent"):
                shown = [{key: (np.asarray(a).dtype, np.shape(a)) for key, a in arrays.items()} for arrays in files]
                print(result, layout, counts["tried"], shown, file=sys.stderr)
    return counts
