"""Bad datasets: each is refused with one line, and none is loaded as something else than what was written."""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

import anyreward as ar
from anyreward import Dataset, UserError, open_dataset
from anyreward.selfcheck.datasets import attack, case, load, outcome
from anyreward.storage import files
from anyreward.storage.files import available_memory, read_arrays
from tests.learning.test_datasets import NUMBERS, STATES, Offset, record, save

few = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused(source: Any) -> str:
    """The one line with which a dataset is refused."""
    with pytest.raises(UserError) as caught:
        load(source)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_an_attack_finds_nothing() -> None:
    counts = attack(300, seed=0)
    assert counts["tried"] == counts["refused"] + counts["loaded"] == 300
    assert counts["refused although valid"] == 0
    assert min(counts["refused"], counts["loaded"]) > 50


@few
@given(seed=st.integers(0, 2**32))
def test_damaged_files(tmp_path: Path, seed: int) -> None:
    arrays, content, is_valid = case(np.random.default_rng(seed))
    (tmp_path / "data.npz").write_bytes(content)
    assert outcome(tmp_path / "data.npz", arrays) in (["loaded"] if is_valid else ["loaded", "refused"])


ANY = stn.scalar_dtypes() | stn.unicode_string_dtypes(max_len=5) | stn.byte_string_dtypes(max_len=5)
SHAPES = stn.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4) | st.just((3,)) | st.just((3, 2))


@few
@given(key=st.sampled_from([*STATES, "n_states", "n_actions", "feature_table", "feature_names"]), data=st.data())
def test_odd_columns(tmp_path: Path, key: str, data: st.DataObject) -> None:
    arrays = {**data.draw(st.sampled_from([STATES, NUMBERS]))}
    arrays[key] = data.draw(stn.arrays(ANY, SHAPES))
    if key == "observations" and data.draw(st.booleans()):
        arrays["next_observations"] = arrays[key]
    assert outcome(save(tmp_path, **arrays), arrays) in ("loaded", "refused")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminations": np.array(["False"] * 3)}, r"terminations of .*data\.npz has shape \(3,\) and type <U5; exp"),
        ({"terminations": np.array([0, 1, np.nan])}, r"terminations of .* has nan in row 2; accepted: true and false"),
        ({"terminations": np.array([0, 0.5, 1])}, r"terminations of .* has 0\.5 in row 1; accepted: true and false"),
        ({"terminations": np.array([0, 2, 1])}, r"terminations of .* has 2 in row 1"),
        ({"terminations": np.array(True)}, r"terminations of .* has shape \(\), one number, actions has 3"),
        ({"observations": np.array(3)}, r"observations of .* has shape \(\)"),
        ({"actions": np.array([0, 2**24, 1])}, r"actions of .* has 16777216 in row 1; accepted: .* to 16,777,215"),
        ({"actions": np.array([0, 1, 2**64 - 1], np.uint64)}, r"has 18446744073709551615 in row 2"),
        ({"n_actions": 10**12}, r"n_actions of .* is 1,000,000,000,000; accepted: up to 16,777,216"),
        ({"n_states": 2**63}, r"n_states of .* is 9,223,372,036,854,775,808; accepted"),
        ({"n_states": 5.0}, r"n_states of .*data\.npz has shape \(\) and type float64; expected one whole number"),
        ({"n_states": 0}, r"n_states of .* is 0, but a state 0 occurs in row 0 of observations"),
        ({"observations": np.array([0, -1, 1])}, r"observations of .* has -1 in row 1; accepted: .* from 0 to 4"),
        ({"observations": np.array([0.0, 1.0, 2.0]), "n_states": 5}, r"n_states .*Save states as integers"),
        ({"observations": np.zeros((3, 0)), "next_observations": np.zeros((3, 0))}, r"\(3, 0\); expected at least one"),
        ({"feature_table": np.array(3.0)}, r"feature_table of .* has shape \(\)"),
    ],
)
def test_the_message_names_file_column_and_row(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_dataset(save(tmp_path, **(STATES | changes)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**24 + 1, "has 16777217 in row 1; accepted: whole numbers from -16,777,216 to 16,777,216"),
        (-(2**53), "has -9007199254740992 in row 1"),
        (1e39, r"has 1e\+39 in row 1; accepted: numbers that float32 holds"),
    ],
)
def test_numbers_that_float32_does_not_hold(tmp_path: Path, value: float, message: str) -> None:
    arrays = STATES | {key: np.zeros((3, 2), type(value)) for key in ("observations", "next_observations")}
    arrays["next_observations"][1, 1] = value
    with pytest.raises(UserError, match=f"next_observations of .* {message}"):
        open_dataset(save(tmp_path, **arrays))


IMAGES = np.random.default_rng(0).integers(256, size=(3, 4, 84, 84), dtype=np.uint8)


def test_images_stay_images(tmp_path: Path) -> None:
    data = open_dataset(save(tmp_path, **(STATES | {"observations": IMAGES, "next_observations": IMAGES[::-1]})))
    assert data.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert np.array_equal(data.observations, IMAGES)
    assert np.array_equal(data.next_observations, IMAGES[::-1])
    agent = ar.train(data, features=lambda x: x.mean((2, 3)), dim=3, hidden=8, updates=4, batch_size=4, progress=False)
    assert agent.model.observation_encoder.image == (4, 84, 84)
    with pytest.raises(UserError, match=r"input of B would be images.*Give features"):
        ar.train(data, updates=4, progress=False)


@pytest.mark.parametrize("images", [IMAGES[:, 0], IMAGES.transpose(0, 2, 3, 1)[..., :3], IMAGES[..., None]])
def test_other_images_name_the_remedy(tmp_path: Path, images: Any) -> None:
    arrays = STATES | {"observations": images, "next_observations": images}
    assert "grey frames, (n, frames, height, width). Save a single frame as x[:, None]" in refused(
        save(tmp_path, **arrays)
    )
    flat = images.reshape(3, -1)
    assert open_dataset(save(tmp_path, **(STATES | {"observations": flat, "next_observations": flat}))).source
    mixed = STATES | {"observations": IMAGES, "next_observations": IMAGES.astype(float)}
    assert "next_observations float64; expected images of bytes (uint8) in both" in refused(save(tmp_path, **mixed))


def declared(shape: tuple[int, ...], size: int | None) -> bytes:
    """An .npz file with only a header, which declares this shape; the zip file declares ``size`` bytes for it."""
    file, header = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("observations.npy", header.getvalue())
        if size is not None:
            target.infolist()[0].file_size = size
    return file.getvalue()


@pytest.mark.parametrize(
    ("shape", "size", "message"),
    [
        ((10**12,), None, "shape (1000000000000,) of float64, 8,000,000,000,000 bytes, but holds 0 bytes"),
        ((10**12, 10**12), None, "bytes, but holds 0 bytes"),
        ((-1,), None, "declares the shape (-1,)"),
        ((-1, 0), None, "declares the shape (-1, 0)"),
        ((10**12,), 8 * 10**12 + 128, "data.npz declares 8,000.0 GB, but"),
    ],
)
def test_declared_sizes_are_checked_before_reading(
    tmp_path: Path, shape: tuple[int, ...], size: int | None, message: str
) -> None:
    (tmp_path / "data.npz").write_bytes(declared(shape, size))
    assert message in refused(tmp_path / "data.npz")


def test_the_memory_of_the_machine_and_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_memory()
    assert 0 < free < 2**50
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.stat").write_text("anon 4000000\nfile 900000\n")
    monkeypatch.setattr(files, "CONTAINERS", ((str(tmp_path), "memory.max", "anon"),))
    assert available_memory() == 1_000_000
    np.savez_compressed(tmp_path / "zeros.npz", zeros=np.zeros(10**6))
    assert (tmp_path / "zeros.npz").stat().st_size < 20_000
    with pytest.raises(UserError, match=r"zeros\.npz declares 0\.0 GB, but 0\.0 GB of memory are free"):
        read_arrays(tmp_path / "zeros.npz")
    (tmp_path / "memory.max").write_text("max\n")
    assert len(read_arrays(tmp_path / "zeros.npz")["zeros"]) == 10**6


def test_members_that_went_missing_by_damage(tmp_path: Path) -> None:
    """An entry of the zip file's directory declares a comment so long that the next entries are in it."""
    content = bytearray(save(tmp_path, **STATES).read_bytes())
    entry = content.index(b"PK\1\2", content.index(b"PK\1\2") + 1)  # that of actions
    content[entry + 32 : entry + 34] = (len(content) - 22 - entry - 46 - len("actions.npy")).to_bytes(2, "little")
    (tmp_path / "data.npz").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "data.npz") as file:
        assert file.namelist() == ["observations.npy", "actions.npy"]
    assert "declares 4 members, but lists 2" in refused(tmp_path / "data.npz")


def test_big_endian_arrays_become_native(tmp_path: Path) -> None:
    arrays = read_arrays(save(tmp_path, a=np.arange(3, dtype=">f8"), b=np.array(["x"], dtype=">U1")))
    assert all(array.dtype.isnative for array in arrays.values())
    assert (arrays["a"].tolist(), arrays["b"].tolist()) == ([0, 1, 2], ["x"])


def memory_dataset(**changes: Any) -> Dataset:
    columns = {"observations": np.arange(3), "actions": np.array([0, 1, 1]), "next_observations": np.arange(3)}
    spaces = {"observation_space": gym.spaces.Discrete(3), "action_space": gym.spaces.Discrete(2)}
    return Dataset(**({"name": "mine", "terminated": np.zeros(3, bool)} | spaces | columns | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.array([0, 0.5, 1])}, r"^actions of dataset mine has 0\.5 in row 1; accepted: whole numbers fr"),
        ({"actions": [0, 1, 1]}, "^actions of dataset mine has the type list"),
        ({"actions": np.array(["0", "1", "1"])}, "type <U1"),
        ({"actions": np.zeros(0, int)}, "holds no transitions"),
        ({"observations": np.array([0, 1, 3])}, "^observations of dataset mine has 3 in row 2; accepted: .*0 to 2"),
        ({"observations": np.array([0, np.nan, 3])}, "has nan in row 1"),
        ({"next_observations": np.arange(4)}, r"shape \(4,\) and type int64; expected numbers of shape \(3,\)"),
        ({"terminated": np.array([0, 1, np.nan])}, "^terminated of dataset mine has nan in row 2"),
        ({"terminated": np.array([None] * 3)}, r"type object; expected \(3,\) booleans"),
        ({"observation_space": gym.spaces.Discrete(2**30)}, "1,073,741,824 categories; accepted: up to 16,777,216"),
        ({"observation_space": gym.spaces.MultiBinary(1), "observations": np.full((3, 1), 2)}, "has 2 in row 0"),
        ({"observation_space": gym.spaces.Dict(a=gym.spaces.Discrete(3))}, r"must be a dict with \['a'\], got shape"),
        ({"feature_names": ("a", "b")}, "2 entries; expected 1 different texts"),
    ],
)
def test_datasets_in_memory(changes: dict[str, Any], message: str) -> None:
    assert len(memory_dataset().actions) == 3
    with pytest.raises(UserError, match=message):
        memory_dataset(**changes)


def test_goals_that_are_not_finite() -> None:
    box = gym.spaces.Box(-9, 9, (2,))
    batch = {key: np.zeros((3, 2), np.float32) for key in ("observation", "achieved_goal", "desired_goal")}
    bad = batch | {"achieved_goal": np.array([[0, 0], [0, np.nan], [0, 0]], np.float32)}
    spaces = {"observation_space": gym.spaces.Dict(dict.fromkeys(batch, box))}
    data = memory_dataset(observations=batch, next_observations=bad, **spaces)
    with pytest.raises(UserError, match="next achieved goals of dataset mine hold NaN or infinity, first in row 1"):
        ar.train(data, progress=False)


@pytest.fixture(scope="module")
def minari_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Minari datasets as Minari writes them; not to be written to."""
    folder = tmp_path_factory.mktemp("minari")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", str(folder))
        record(gym.make("CartPole-v1"), "cart-v0", 30)
        record(Offset(), "offset-v0", 4)
        record(gym.make("Pendulum-v1"), "pendulum-v0", 30)
    return folder


def copied(folder: Path, name: str, to: Path) -> Path:
    shutil.rmtree(to / name, ignore_errors=True)
    return Path(shutil.copytree(folder / name, to / name))


@few
@given(data=st.data())
def test_damaged_minari_datasets(minari_folder: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = copied(minari_folder, data.draw(st.sampled_from(["cart-v0", "offset-v0", "pendulum-v0"])), tmp_path)
    path = copy / "data" / data.draw(st.sampled_from(["main_data.hdf5", "metadata.json"]))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content)))
    content[at : at + data.draw(st.integers(1, 400))] = data.draw(st.binary(max_size=400))
    path.write_bytes(content)
    assert outcome(copy, {}) in ("refused", "silent")  # HDF5 has no checksums: the damage may be in a number


def replaced(key: str, make: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A change of an HDF5 file: another array in episode 0, made from the one that is there."""

    def change(file: Any) -> None:
        given = file["episode_0"][key][()]
        del file["episode_0"][key]
        if make(given) is not None:
            file["episode_0"].create_dataset(key, data=make(given))

    return change


def unwritten(file: Any) -> None:
    del file["episode_0"]["observations"]
    file["episode_0"].create_dataset("observations", shape=(10**12, 4), dtype="f4", chunks=(9, 4))
    file["episode_0"]["observations"][:20] = 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("observations", lambda x: x[:-1]), r"observations of episode 0 of .*\(19, 4\)"),
        (replaced("observations", lambda x: x.astype("S4")), r"type \|S4; expected numbers"),
        (replaced("observations", lambda x: x.astype(float) * 1e300), "in row 0; accepted: numbers that float32 holds"),
        (replaced("observations", lambda x: None), "Minari cannot read .*'observations' doesn't exist"),
        (replaced("actions", lambda x: x + 0.5), r"actions of episode 0 of .* has \d\.5 in row 0; accepted: .*0 to 1"),
        (replaced("actions", lambda x: x - 2), "actions of episode 0 of .* in row 0; accepted: whole numbers from 0"),
        (replaced("actions", lambda x: x[:-1]), "observations of episode 0 of .*, which has 17 actions, has shape"),
        (replaced("actions", lambda x: h5py.Empty("i8")), "/episode_0/actions of .* holds less data"),
        (replaced("terminations", lambda x: x.astype("S5")), r"terminations of episode 0 of .* type \|S5"),
        (replaced("terminations", lambda x: x * np.nan), "terminations of episode 0 of .* has nan in row 0"),
        (replaced("terminations", lambda x: x[1:]), r"terminations of episode 0 of .*expected \(18,\)"),
        (replaced("terminations", lambda x: np.arange(18) == 3), "true in row 3, but the episode has 18 steps"),
        (unwritten, r"observations of .* declares the shape \(1000000000000, 4\), but holds less data"),
        (lambda file: file.__delitem__("episode_0"), "holds 1 groups, but metadata.json declares 2 episodes"),
        (lambda file: file.create_group("episode_2"), "holds 3 groups, but metadata.json declares 2 episodes"),
    ],
)
def test_bad_columns_of_minari(
    minari_folder: Path, tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    copy = copied(minari_folder, "cart-v0", tmp_path)
    load(copy)
    with h5py.File(copy / "data" / "main_data.hdf5", "a") as file:
        change(file)
    with pytest.raises(UserError, match=message):
        load(copy)
    assert refused(copy)


def test_bad_real_actions_of_minari(minari_folder: Path, tmp_path: Path) -> None:
    for change, message in [
        (replaced("actions", lambda x: x + 9), r"has \d+\.\d+ in row 0; accepted: numbers from -2 to 2"),
        (replaced("actions", lambda x: x * np.nan), "actions of episode 0 of .* has nan in row 0"),
        (replaced("actions", lambda x: x[:, 0]), r"expected numbers of shape \(30, 1\)"),
        (replaced("actions", lambda x: x.astype("S5")), r"type \|S5; expected numbers"),
    ]:
        copy = copied(minari_folder, "pendulum-v0", tmp_path)
        load(copy)
        with h5py.File(copy / "data" / "main_data.hdf5", "a") as file:
            change(file)
        assert re.search(message, refused(copy))


BOX = {"type": "Box", "dtype": "float32", "shape": [10**12], "low": 0, "high": 1}
CATEGORIES = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 10**10}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_episodes": 10**12}, "holds 2 groups, but metadata.json declares 1000000000000 episodes"),
        ({"total_episodes": 1}, "holds 2 groups, but metadata.json declares 1 episodes"),
        ({"total_episodes": "2"}, "total_episodes of .* is '2'; expected a whole number"),
        ({"total_episodes": None}, "lacks total_episodes"),
        ({"observation_space": None}, "lacks observation_space"),
        ({"observation_space": json.dumps(BOX)}, r"observation_space of .* declares 8,000\.0 GB"),
        ({"observation_space": 3}, "observation_space of .* is 3; expected text"),
        ({"action_space": json.dumps(CATEGORIES)}, "10,000,000,000 categories; accepted: up to 16,777,216"),
        ({"data_format": "tape"}, "Minari cannot read .*KeyError: 'tape'"),
        ({"minari_version": "0.0"}, "does not support the dataset generated by Minari 0.0"),
    ],
)
def test_bad_metadata_of_minari(minari_folder: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    copy = copied(minari_folder, "cart-v0", tmp_path)
    path = copy / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in metadata.items() if value is not None}))
    with pytest.raises(UserError, match=message):
        load(copy)
    assert refused(copy)


@pytest.mark.parametrize("source", ["minari:", "minari:a\0b", "minari:" + "x" * 5000, "x" * 5000 + ".npz", "a\0.npz"])
def test_names_of_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    message = refused(source)
    assert "here is no" in message or "File name too long" in message


@pytest.mark.parametrize("name", ["terminated", "terminals", "dones", "done"])
def test_ends_under_another_name_are_not_lost(name: str, tmp_path: Path) -> None:
    columns = {"observations": np.arange(5), "actions": np.zeros(5, dtype=int), "next_observations": np.arange(5)}
    np.savez(tmp_path / "data.npz", **columns, **{name: np.ones(5, dtype=bool)})
    with pytest.raises(UserError, match=f"holds {name}, but no terminations.* rename"):
        open_dataset(tmp_path / "data.npz")
    np.savez(tmp_path / "data.npz", **columns, terminations=np.zeros(5, dtype=bool), **{name: np.ones(5, dtype=bool)})
    assert not open_dataset(tmp_path / "data.npz").terminated.any()
