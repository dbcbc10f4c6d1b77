"""Datasets of other libraries: each is written here in exactly its layout."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
import pytest
from rich.console import Console

import anyreward as ar
from anyreward import open_dataset
from anyreward.cli import main
from anyreward.learning.datasets import is_dataset, reading
from anyreward.learning.datasets.reading import Reading
from anyreward.learning.progress import TrainingProgress
from anyreward.storage import files
from anyreward.storage.files import open_npz, read_arrays
from tests.learning.test_datasets import transitions
from tests.learning.test_real_actions import TINY, refused

RNG = np.random.default_rng(0)


# ---------------------------------------------------------------- ExORL


def exorl(folder: Path, lengths: tuple[int, ...] = (5, 3), **changes: Any) -> list[dict[str, Any]]:
    """Write episodes as ExORL does, with a dummy first action; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    episodes = []
    for number, length in enumerate(lengths):
        rows = length + 1
        episode = {
            "observation": RNG.normal(size=(rows, 4)).astype(np.float32),
            "action": RNG.uniform(-1, 1, (rows, 2)).astype(np.float32),
            "reward": RNG.random((rows, 1)).astype(np.float32),
            "discount": np.ones((rows, 1), np.float32),
            "physics": RNG.normal(size=(rows, 7)),
        }
        episode["action"][0] = 99.0  # not an action
        for key, change in changes.items():
            episode[key] = change(episode.get(key))
        np.savez_compressed(
            folder / f"episode_{number:06d}_{length}.npz", **{k: v for k, v in episode.items() if v is not None}
        )
        episodes.append(episode)
    return episodes


def falls(discount: Any) -> Any:
    discount[-1] = 0
    return discount


@pytest.mark.parametrize("nested", [False, True])
def test_exorl(tmp_path: Path, nested: bool) -> None:
    episodes = exorl(tmp_path / "proto" / "buffer" if nested else tmp_path / "proto", discount=falls)
    data = open_dataset(tmp_path / "proto")
    assert (data.name, data.action_space) == ("proto", gym.spaces.Box(-1.0, 1.0, (2,)))
    t = transitions(data)
    assert np.array_equal(t.observations.numpy(), np.concatenate([e["observation"][:-1] for e in episodes]))
    assert np.array_equal(t.next_observations.numpy(), np.concatenate([e["observation"][1:] for e in episodes]))
    assert np.allclose(t.actions.numpy(), np.concatenate([e["action"][1:] for e in episodes]))
    assert t.terminated.tolist() == [False] * 4 + [True] + [False] * 2 + [True]


def test_exorl_with_flat_discounts_and_pixels(tmp_path: Path) -> None:
    exorl(tmp_path, discount=np.ravel, observation=lambda x: np.zeros((len(x), 9, 84, 84), np.uint8))
    data = open_dataset(tmp_path)
    assert data.observation_space == gym.spaces.Box(0, 255, (9, 84, 84), np.uint8)
    assert data.observations.shape == (8, 9, 84, 84)
    assert not data.terminated.any()


def test_what_names_a_folder_of_episodes(tmp_path: Path) -> None:
    assert not is_dataset(tmp_path)
    assert "holds no dataset: neither data/metadata.json" in refused(tmp_path)
    assert "Minari cannot read" in refused("x" * 5000)
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    assert not is_dataset(tmp_path)
    episodes = exorl(tmp_path / "named")
    (tmp_path / "any").mkdir()
    np.savez(tmp_path / "any" / "20260101T000000_0_5.npz", **episodes[0])  # as its collector names them
    assert is_dataset(tmp_path / "named")
    assert is_dataset(str(tmp_path / "any") + "/")
    (tmp_path / "named" / "episode_000000_5.npz").write_bytes(b"")
    assert is_dataset(tmp_path / "named")  # an error then says what is wrong with it


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action": lambda x: None}, "episode_000000_5.npz lacks action; expected observation, action, discount"),
        ({"action": lambda x: x[:-1]}, "have the shapes {'observation': (6, 4), 'action': (5, 2), 'discount': (6, 1)}"),
        ({"action": lambda x: x.astype(int)}, "action of .*type int64; expected real-valued actions (n, k)"),
        ({"action": lambda x: x[:, 0]}, "expected real-valued actions (n, k)"),
        ({"action": lambda x: np.where(np.arange(len(x)) == 2, np.nan, x.T).T}, "has nan in row 2; accepted: finite"),
        ({"observation": lambda x: x * np.nan}, "observation of .*episode_000000_5.npz has nan in row 0"),
        ({"observation": lambda x: x.astype(float) * 1e300}, "in row 0; accepted: numbers that float32 holds"),
        ({"observation": lambda x: x[:, :0]}, "expected at least one number in a row"),
        ({"observation": lambda x: np.array([{}] * len(x))}, "not a readable .npz of plain arrays"),
        ({"observation": lambda x: np.array(["a"] * len(x))}, "type <U1; expected numbers"),
        ({"discount": lambda x: x * np.nan}, "discount of .* has nan in row 0; accepted: numbers from 0 to 1"),
        ({"discount": lambda x: x + 0.5}, "has 1.5 in row 0; accepted: numbers from 0 to 1"),
        ({"discount": lambda x: np.where(np.arange(len(x)) == 2, 0, x.T).T}, "is 0 in row 2, but the episode goes on"),
        ({"discount": lambda x: x.astype(str)}, "discount of .*expected a number in each of 6 rows"),
        ({"discount": lambda x: np.ones((len(x), 2))}, "discount of .*expected a number in each of 6 rows"),
        ({key: lambda x: x[:1] for key in ("observation", "action", "discount")}, "holds no transitions"),
        ({key: lambda x: x[:0] for key in ("observation", "action", "discount")}, "at least one"),
    ],
)
def test_bad_episodes(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    exorl(tmp_path / "bad", **changes)
    found = refused(tmp_path / "bad")
    assert all(part in found for part in message.split(".*")), found


def test_episodes_of_two_environments_and_bounds(tmp_path: Path) -> None:
    folder, widths = tmp_path / "mixed", itertools.count(4)
    exorl(folder)
    assert "has -" in refused(folder, action_low=-0.01, action_high=1.0)
    assert "episode_000000_5.npz has -" in refused(folder, action_low=-0.01, action_high=1.0)
    assert open_dataset(folder, action_low=-2, action_high=2).action_space == gym.spaces.Box(-2.0, 2.0, (2,))
    exorl(folder, observation=lambda x: np.zeros((len(x), next(widths)), np.float32))
    assert "episode_000001_3.npz has the shape (4, 5)" in refused(folder)


# ---------------------------------------------------------------- D4RL


def steps(n: int = 12) -> dict[str, Any]:
    """Columns of D4RL: a terminal state in row 3, a time limit in row 7, and the data ends with row 11."""
    return {
        "observations": np.arange(2 * n, dtype=np.float32).reshape(n, 2),
        "actions": RNG.uniform(-1, 1, (n, 3)).astype(np.float32),
        "rewards": RNG.random(n).astype(np.float32),
        "terminals": np.arange(n) == 3,
        "timeouts": np.arange(n) == 7,
    }


def d4rl(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        for key, column in columns.items():
            file.create_dataset(key, data=column, compression="gzip", **options)
        file.create_dataset("infos/qpos", data=np.zeros((len(columns["actions"]), 2)), compression="gzip")
        file["metadata/algorithm"] = np.bytes_("SAC")
        file["metadata/iteration"] = 3
    return path


def test_d4rl(tmp_path: Path) -> None:
    columns = steps()
    data = open_dataset(d4rl(tmp_path / "ant.hdf5", columns))
    assert (data.name, data.action_space) == ("ant", gym.spaces.Box(-1.0, 1.0, (3,)))
    kept = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]
    following = [1, 2, 3, 3, 5, 6, 7, 9, 10, 11]  # the state after row 3 was not recorded
    t = transitions(data)
    assert np.array_equal(t.observations.numpy(), columns["observations"][kept])
    assert np.array_equal(t.next_observations.numpy(), columns["observations"][following])
    assert np.allclose(t.actions.numpy(), columns["actions"][kept])
    assert t.terminated.tolist() == [i == 3 for i in kept]


def test_d4rl_with_next_observations(tmp_path: Path) -> None:
    columns = steps() | {"next_observations": RNG.normal(size=(12, 2)), "terminals": (np.arange(12) == 3)[:, None]}
    del columns["timeouts"]
    data = open_dataset(d4rl(tmp_path / "hopper.h5", columns))
    assert np.array_equal(data.observations, columns["observations"])
    assert np.array_equal(data.next_observations, columns["next_observations"].astype(np.float32))
    assert data.terminated.tolist() == columns["terminals"][:, 0].tolist()


@pytest.mark.parametrize("actions", [np.arange(12) % 3, (np.arange(12) % 3)[:, None].astype(np.uint8)])
def test_d4rl_with_numbered_actions(tmp_path: Path, actions: Any) -> None:
    data = open_dataset(d4rl(tmp_path / "grid.hdf5", steps() | {"actions": actions}))
    assert data.action_space == gym.spaces.Discrete(3)
    assert transitions(data).actions.tolist() == [0, 1, 2, 0, 1, 2, 0, 2, 0, 1]


def test_rows_are_read_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = steps(500) | {"timeouts": np.arange(500) % 50 == 49}
    path = d4rl(tmp_path / "long.hdf5", columns, chunks=None)
    d4rl(tmp_path / "parts.hdf5", columns)
    np.savez_compressed(tmp_path / "rows.npz", **columns)
    np.savez(tmp_path / "fortran.npz", **(columns | {"observations": np.asfortranarray(columns["observations"])}))
    whole = open_dataset(path)
    monkeypatch.setattr(files, "CHUNK", 100)
    for name in ("long.hdf5", "parts.hdf5", "rows.npz", "fortran.npz"):
        part = open_dataset(tmp_path / name)
        assert np.array_equal(part.observations, whole.observations)
        assert np.array_equal(part.next_observations, whole.next_observations)
    with open_npz(tmp_path / "rows.npz") as file:
        assert len(list(file.rows("observations"))) == 42  # of 12 rows each


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminals": None}, "lacks terminals; it has actions, observations, timeouts"),
        ({"timeouts": None}, "has neither next_observations nor timeouts"),
        ({"observations": np.zeros((11, 2))}, "observations of .* has the shape (11, 2), but there are 12 actions"),
        ({"observations": np.full((12, 2), np.nan)}, "observations of .* has nan in row 0"),
        ({"observations": np.array([[0.0, 1]] * 11 + [[0, np.inf]])}, "has inf in row 11"),
        ({"observations": np.full((12, 2), 2**25)}, "observations of .* has 33554432 in row 0; accepted: whole"),
        ({"observations": np.zeros(12, int)}, "States that are numbered need the library's own .npz file"),
        ({"observations": np.array([b"a"] * 12)}, "type |S1; expected numbers"),
        ({"observations": np.zeros((12, 0))}, "expected at least one number"),
        ({"next_observations": np.zeros((12, 3))}, "shape (12, 2) and type float32 and shape (12, 3)"),
        ({"actions": np.array([[0.5]] * 9 + [[np.nan]] * 3)}, "actions of .* has nan in row 9"),
        ({"actions": np.zeros((12, 2, 2))}, "expected (n,) whole numbers"),
        ({"actions": np.array(3.0)}, "but there are 0 actions"),
        ({"action_low": np.zeros(3), "action_high": np.ones(3)}, "accepted: numbers from 0 to 1"),
        ({"action_low": np.zeros(3)}, "action_high of .* is missing"),
        ({"terminals": np.full(12, 2)}, "terminals of .* has 2 in row 0; accepted: true and false"),
        ({"timeouts": np.ones(12, bool)}, "holds no transitions"),
        ({key: column[:0] for key, column in steps().items()}, "holds no transitions"),
    ],
)
def test_bad_columns_of_d4rl(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    columns = {key: column for key, column in (steps() | changes).items() if column is not None}
    with h5py.File(tmp_path / "bad.hdf5", "w") as file:
        for key, column in columns.items():
            file[key] = column
    found = refused(tmp_path / "bad.hdf5")
    assert all(part in found for part in message.split(".*")), found


def test_hdf5_files_that_are_no_dataset(tmp_path: Path) -> None:
    path = tmp_path / "bad.hdf5"
    assert f"no dataset at {path}" in refused(path)
    path.write_bytes(b"hello")
    assert "bad.hdf5 is not a readable HDF5 file" in refused(path)
    d4rl(path, steps())
    path.write_bytes(path.read_bytes()[:3000])
    assert "bad.hdf5 is not a readable HDF5 file" in refused(path)


def test_arrays_that_are_elsewhere_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "bad.hdf5"
    d4rl(tmp_path / "other.hdf5", steps())
    for change in ("link", "group", "virtual", "external", "empty", "unwritten", "huge"):
        d4rl(path, steps())
        with h5py.File(path, "a") as file:
            del file["observations"]
            match change:
                case "link":
                    file["observations"] = h5py.ExternalLink("other.hdf5", "/observations")
                case "group":
                    file.create_group("observations")
                case "virtual":
                    layout = h5py.VirtualLayout((12, 2), "f4")
                    layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "observations", (12, 2))
                    file.create_virtual_dataset("observations", layout)
                case "external":
                    (tmp_path / "raw").write_bytes(bytes(96))
                    options = [(str(tmp_path / "raw"), 0, 96)]
                    file.create_dataset("observations", (12, 2), "f4", external=options)
                case "empty":
                    file["observations"] = h5py.Empty("f4")
                case "unwritten":
                    file.create_dataset("observations", (12, 10**9), "f4", chunks=(1, 10**4))
                case "huge":
                    file.create_dataset(
                        "observations", (12, 2), "f4", chunks=(2**28, 2), maxshape=(None, 2), compression=1
                    )
                    file["observations"].id.write_direct_chunk((0, 0), b"x")
        found = refused(path)
        assert "observations of" in found, change
        assert "holds less data" in found or "is not an array" in found or "cannot be right" in found, found


def test_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    d4rl(tmp_path / "ant.hdf5", steps())
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "needs h5py: pip install 'anyreward[datasets]'" in refused(tmp_path / "ant.hdf5")


# ---------------------------------------------------------------- OGBench


def ogbench(folder: Path, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """Two trajectories of four transitions: terminals are 1.0 in the last row of each, whose action was not taken."""
    columns: dict[str, Any] = {
        "observations": RNG.normal(size=(10, 3)).astype(np.float32),
        "actions": RNG.uniform(-1, 1, (10, 2)).astype(np.float32),
        "terminals": np.array([0.0, 0, 0, 0, 1] * 2, np.float32),
        "qpos": RNG.normal(size=(10, 7)),
        "qvel": RNG.normal(size=(10, 6)),
        "button_states": np.zeros((10, 2), np.int64),
    }
    columns |= changes
    path = folder / "cube-single-play-v0.npz"
    np.savez_compressed(path, **{key: column for key, column in columns.items() if column is not None})
    return path, columns


def test_ogbench(tmp_path: Path) -> None:
    path, columns = ogbench(tmp_path)
    data = open_dataset(path)
    assert (data.name, data.action_space) == ("cube-single-play-v0", gym.spaces.Box(-1.0, 1.0, (2,)))
    kept = np.array([0, 1, 2, 3, 5, 6, 7, 8])
    t = transitions(data)
    assert np.array_equal(t.observations.numpy(), columns["observations"][kept])
    assert np.array_equal(t.next_observations.numpy(), columns["observations"][kept + 1])
    assert np.allclose(t.actions.numpy(), columns["actions"][kept])
    assert not t.terminated.any()  # these trajectories are cut off


def test_ogbench_in_memory_as_it_is_compacted(tmp_path: Path) -> None:
    """With ``valids``, terminals are 1 in the last two rows of a trajectory."""
    path, columns = ogbench(tmp_path)
    plain = open_dataset(path)
    flags = {"valids": 1 - columns["terminals"], "terminals": np.array([0.0, 0, 0, 1, 1] * 2)}
    path, _ = ogbench(tmp_path, **(columns | flags))
    assert np.array_equal(open_dataset(path).observations, plain.observations)


def test_ogbench_with_images(tmp_path: Path) -> None:
    images = RNG.integers(256, size=(10, 64, 64, 3), dtype=np.uint8)
    data = open_dataset(ogbench(tmp_path, observations=images)[0])
    assert data.observation_space == gym.spaces.Box(0, 255, (3, 64, 64), np.uint8)
    assert np.array_equal(data.observations[4], images[5].transpose(2, 0, 1))
    assert np.array_equal(data.next_observations[4], images[6].transpose(2, 0, 1))
    agent = ar.train(data, features=lambda x: x.mean((2, 3)), **TINY)
    assert agent.model.observation_encoder.image == (3, 64, 64)


def test_ogbench_with_numbered_actions(tmp_path: Path) -> None:
    data = open_dataset(ogbench(tmp_path, actions=np.arange(10, dtype=np.int32))[0])
    assert data.action_space == gym.spaces.Discrete(9)  # the last action was not taken
    assert data.actions.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]


def test_actions_that_were_not_taken_may_be_anything(tmp_path: Path) -> None:
    actions = RNG.uniform(-1, 1, (10, 2))
    actions[[4, 9]] = np.nan
    assert open_dataset(ogbench(tmp_path, actions=actions)[0]).action_space == gym.spaces.Box(-1.0, 1.0, (2,))
    actions[6] = np.nan
    assert "actions of" in refused(ogbench(tmp_path, actions=actions)[0])
    assert "has nan in row 6" in refused(ogbench(tmp_path, actions=actions)[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminals": np.zeros(10)}, "terminals of .* is false in the last row"),
        ({"terminals": np.ones(10)}, "holds no transitions"),
        ({"terminals": np.full(10, np.nan)}, "terminals of .* has nan in row 0"),
        ({"terminals": np.ones(9)}, "terminals of .* has the shape (9,), but there are 10 actions"),
        ({"terminals": None}, "lacks next_observations"),
        ({"terminations": np.zeros(10)}, "lacks next_observations"),
        ({"next_observations": np.zeros((10, 3))}, "holds terminals, but no terminations"),
        ({"observations": np.zeros((10, 64, 64, 5), np.uint8)}, "expected images of bytes (uint8)"),
        ({"observations": np.array([{}] * 10)}, "not a readable .npz of plain arrays"),
    ],
)
def test_bad_columns_of_ogbench(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    found = refused(ogbench(tmp_path, **changes)[0])
    assert all(part in found for part in message.split(".*")), found


# ---------------------------------------------------------------- all of them


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A dataset of each layout, with 40 transitions or more; not to be written to."""
    folder = tmp_path_factory.mktemp("sources")
    exorl(folder / "proto", (30, 30))
    long = {key: np.concatenate([column] * 9) for key, column in steps().items()}
    trajectories = {key: np.concatenate([column] * 9) for key, column in ogbench(folder)[1].items()}
    path, _ = ogbench(folder, **trajectories)
    x = RNG.random((60, 2))
    np.savez(folder / "own.npz", observations=x, next_observations=x, actions=RNG.uniform(-1, 1, (60, 1)))
    return [folder / "proto", d4rl(folder / "ant.hdf5", long), path, folder / "own.npz"]


@pytest.mark.parametrize("number", range(4))
def test_each_can_be_trained_on(sources: list[Path], number: int, tmp_path: Path) -> None:
    source = sources[number]
    assert is_dataset(source)
    assert is_dataset(str(source))
    agent = ar.train(str(source), **TINY)
    width = agent.model.phi.action_set.width
    observation = open_dataset(source).observations[0]
    assert np.shape(agent.ask(ar.goal(*observation)).act(observation)) == (width,)


def test_the_command_line_takes_a_folder(sources: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--dim", "4", "--hidden", "8", "--updates", "4", "--batch-size", "8"]
    assert main(["train", str(sources[0]), "--out", "a", *options]) == 0
    assert main(["train", str(sources[1]), "--seed", "3", *options]) == 0
    found = [folder.name for folder in (tmp_path / "runs").iterdir()]
    assert found == ["ant-fast-seed3"]
    assert (tmp_path / "a" / "agent.json").is_file()


@pytest.mark.parametrize("number", range(4))
def test_memory_is_checked_before_data_is_read(
    sources: list[Path], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "available_memory", lambda: 1_000)
    monkeypatch.setattr(files.NpzFile, "read", None)
    monkeypatch.setattr(files.NpzFile, "rows", None)
    assert "of memory are free" in refused(sources[number])


def test_the_memory_for_both_columns_of_observations_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((10**6, 3), np.float32)  # 12 MB
    columns = {"actions": np.zeros((10**6, 1), np.float32), "terminals": np.arange(10**6) % 1000 == 999}
    np.savez_compressed(tmp_path / "large.npz", observations=x, **columns)
    monkeypatch.setattr(files, "available_memory", lambda: 20_000_000)
    assert "of memory are free" in refused(tmp_path / "large.npz")
    monkeypatch.setattr(files, "available_memory", lambda: 100_000_000)
    assert len(open_dataset(tmp_path / "large.npz").actions) == 999_000


def test_progress_is_shown_for_large_data_only(
    sources: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for source in sources:
        open_dataset(source)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(reading, "SHOWN_FROM", 1)
    monkeypatch.setattr(reading, "MEGABYTE", 100)
    monkeypatch.setattr(reading, "SECONDS", 0.0)
    for source in sources:
        open_dataset(source)
        assert "MB/s" in capsys.readouterr().err
        open_dataset(source, progress=False)
        ar.train(source, **TINY)
        assert capsys.readouterr().err == ""


def test_a_line_every_half_minute_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("anyreward.learning.progress.time.perf_counter", lambda: clock[0])
    console = Console(file=io.StringIO(), width=200)
    with TrainingProgress(100, console=console, what=("reading", "MB"), seconds=30.0) as bar:
        for done in range(1, 101):
            clock[0] += 1.0
            bar.show(done)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert [line.split(" MB ")[0] for line in lines] == ["30/100", "60/100", "90/100"]
    assert Reading(10**6, True)._bar._enabled is False


def test_arrays_are_counted_as_they_are_read(tmp_path: Path) -> None:
    parts: list[int] = []
    np.savez(tmp_path / "a.npz", x=np.arange(200_000))
    with open_npz(tmp_path / "a.npz") as file:
        assert file.headers["x"].size == 1_600_000
        assert np.array_equal(file.read("x", parts.append), np.arange(200_000))
    assert len(parts) > 5
    assert 1_600_000 <= sum(parts) < 1_600_200  # with the header
    assert list(read_arrays(tmp_path / "a.npz")) == ["x"]
