from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import anyreward as ar
from anyreward.cli import main
from anyreward.cli.training import options
from anyreward.tools.doctor import check_parts
from tests.conftest import needs_compiler

TINY = ["--dim", "8", "--hidden", "16", "--batch-size", "16", "--updates", "80", "--environments", "2"]


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_train_ask_evaluate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "train", "four-rooms", "--seed", "2", "--warmup-steps", "3000", *TINY)
    assert code == 0
    assert "runs/four-rooms-fast-seed2" in out
    assert "updates/s" in err
    assert "s left" in err
    folder = "runs/four-rooms-fast-seed2"
    assert ar.load(folder).settings.seed == 2
    code, out, _ = run(capsys, "evaluate", folder, "--json", "figures.json")
    assert code == 0
    assert "greedy" in out
    figures = json.loads(Path("figures.json").read_text())["goals"]
    assert 0 < figures["greedy"]["worst"] <= figures["greedy"]["mean"] <= 1
    code, out, _ = run(
        capsys, "ask", folder, "--goal", "9,9", "1,9:2", "--avoid", "5,2", "--figure", "a.png", "--start", "1,1"
    )
    assert code == 0
    assert "2 * goal(1, 9)" in out
    assert run(capsys, "ask", folder, "--goal", "24", "--figure", "b.png")[0] == 0  # a cell by its number
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_presets_set_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "train", "four-rooms", "--preset", "paper", *TINY)[0] == 0
    agent = ar.load("runs/four-rooms-paper-seed0")
    assert agent.settings == ar.preset("paper", dim=8, hidden=16, batch_size=16, updates=80)
    assert agent.run == ar.RunSettings(environments=2)


def test_train_from_a_drawing_and_a_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tiny.txt").write_text("....\n.##.\n....\n")
    assert run(capsys, "train", "tiny.txt", "--out", "maze", *TINY)[0] == 0
    assert run(capsys, "evaluate", "maze")[0] == 0  # the drawing is saved with the agent
    Path("tiny.txt").unlink()
    assert run(capsys, "ask", "maze", "--goal", "3,2")[0] == 0
    rng = np.random.default_rng(0)
    np.savez(
        "walk.npz", observations=rng.random((50, 2)), actions=np.arange(50) % 3, next_observations=rng.random((50, 2))
    )
    assert run(capsys, "train", "walk.npz", "--out", "offline", *TINY)[0] == 0
    code, out, _ = run(capsys, "ask", "offline", "--goal", "0.5,0.5")
    assert code == 0
    assert "trust" in out


def test_a_world_changes_the_presets_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "train", "continuous-maze", "--out", "rbf", *TINY)[0] == 0
    assert ar.load("rbf").settings.encoding == "rbf"
    assert run(capsys, "train", "anyreward/ContinuousMaze-v0", "--encoding", "plain", "--out", "plain", *TINY)[0] == 0
    assert ar.load("plain").settings.encoding == "plain"
    assert ar.load("plain").settings.steps_per_cycle == 120


def test_an_option_that_names_a_default_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    """With continuous actions the presets differ, so that a default of the preset is not that of the run."""
    written = options(["train", "x", "--dim=5", "--no-layer-norm", "--z-mixture.goals", "0.5", "-3"])
    assert written == ("dim", "no_layer_norm", "z_mixture")
    names = ["--out", "a", "--landmarks", "0", "--updates", "40", "--hidden", "8", "--steps-per-cycle", "40"]
    assert run(capsys, "train", "MountainCarContinuous-v0", "--batch-size", "128", "--dim", "4", *names)[0] == 0
    s = ar.load("a").settings
    assert (s.batch_size, s.dim, s.random_steps) == (128, 4, 100)  # the last by the preset for continuous actions


def test_worlds_that_are_played(capsys: pytest.CaptureFixture[str]) -> None:
    """Train, resume, evaluate by playing, draw and film."""
    assert run(capsys, "train", "continuous-maze", "--out", "square", *TINY)[0] == 0
    code, out, err = run(capsys, "resume", "square")
    assert code == 2
    assert "has done its 80 updates" in err
    assert run(capsys, "resume", "square", "--updates", "120")[0] == 0
    assert ar.load("square").updates == 120
    code, out, _ = run(capsys, "evaluate", "square", "--goals", "20", "--json", "goals.json")
    assert code == 0
    assert "95% interval" in out
    rows = json.loads(Path("goals.json").read_text())["goals"]
    assert set(rows) == {"agent, epsilon 0.02", "random"}
    assert all(0 <= row["success_interval"][0] <= row["success"] <= row["success_interval"][1] for row in rows.values())
    code, out, _ = run(
        capsys, "ask", "square", "--goal", "0.9,0.9", "--avoid", "0.5,0.5", "--figure", "a.png", "--video", "a.gif"
    )
    assert code == 0
    assert Path("a.png").stat().st_size > 10_000
    assert Path("a.gif").read_bytes()[:3] == b"GIF"
    code, _, err = run(capsys, "ask", "square", "--goal", "0.9,0.9", "--video", "a.avi")
    assert code == 2
    assert "does not end in .gif" in err


def test_doctor_uses_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    works = {name: works for name, works, _ in check_parts()}
    for part in (
        "core",
        "FetchReach",
        "Ms. Pacman",
        "figures",
        "datasets",
        "TensorBoard",
        "playground",
    ):  # all installed
        assert part in out
        assert works[part]


def test_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    found = {name: (works, seen) for name, works, seen in check_parts()}
    assert found["core"][0]
    for name, install in (("FetchReach", "mujoco"), ("Ms. Pacman", "ale-py"), ("datasets", "anyreward[datasets]")):
        works, seen = found[name]
        assert not works
        assert "not installed" in seen
        assert install in seen


def test_the_suite_at_a_temperature(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "train", "four-rooms", "--out", "rooms", *TINY)[0] == 0
    means = []
    for temperature in ("0", "1e9"):
        arguments = ("--suite", "all-rewards", "--rewards", "5", "--temperature", temperature, "--json", "suite.json")
        assert run(capsys, "evaluate", "rooms", *arguments)[0] == 0
        means.append(json.loads(Path("suite.json").read_text())["families"]["dense normal"]["mean"])
    assert means[1] == pytest.approx(0, abs=1e-3)  # the hotter, the more random
    assert abs(means[0]) > 1e-2
    code, _, err = run(capsys, "evaluate", "rooms", "--suite", "all-rewards", "--temperature", "-1")
    assert code == 2
    assert "--temperature is -1" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "no-such-world", *TINY], "neither the name of a world"),
        (["train", "missing.txt"], "no maze drawing"),
        (["train", "missing.npz"], "no dataset"),
        (["train", "four-rooms", "--gamma", "1.5"], "gamma is 1.5"),
        (["evaluate", "nowhere"], "no agent folder"),
        (["ask", "run", "--goal", "corner"], "not a list of numbers"),
        (["ask", "run", "--goal", "5,1"], "never visited"),
        (["ask", "run", "--goal", "1,1", "--refine", "-3"], "refine is -3"),
        (["ask", "run", "--goal", "1,1", "--figure", "a.bmp"], "end"),
        (["evaluate", "run", "--json", "run/agent.json/x.json"], "agent.json"),
        (["ask", "run", "--goal", "1,1", "--start", "0,0", "--figure", "x.png"], "not a free cell"),
        (["ask", "run", "--goal", "1,1", "--start", "12,0"], "not a free cell"),
        (["ask", "run", "--goal", "1,1", "--start", "1"], "not a free cell"),
        (["train", "four-rooms", "--out", "run", *TINY], "holds an agent already"),
        (["train", "four-rooms", "--seed", str(2**70)], "seed is 1180591620717411303424; accepted"),
        (["train", "four-rooms", "--threads", "100000"], "threads is 100000; accepted"),
        (["train", "four-rooms", "--hidden", "10000"], "Lower hidden"),
        (["ask", "run", "--goal", "1,1", "--improve", "100000000"], "improve is 100000000; accepted"),
        (["ask", "run", "--goal", "1,1", "--improve", "9" * 5_000], "improve is '9999"),
        (["ask", "run", "--goal", "1,1", "--refine", "10000000000"], "refine is 10000000000; accepted"),
        (["ask", "run", "--goal", "1,1", "--seed", "-1"], "--seed is -1; accepted"),
        (["ask", "run", "--environment", "four-rooms", "--budget", str(10**15)], "--budget is 1000000000000000"),
        (["ask", "run", "--goal", "1,1:1e308"], "multiplied by 1e+308"),
        (["ask", "run", "--goal", "1e400,1"], "inf at index 0"),
        (["ask", "run", "--z", "huge.json"], "1e+308 at index 0"),
        (["ask", "run", "--z", "newer.json"], "has the format 7 of a z, and this anyreward reads format 1"),
        (["ask", "run", "--z", "."], "is not a file"),
        (["ask", "run", "--reward", "(" * 10_000], "has 10000 characters"),
        (["show", "run", "--figure", "a.bmp"], "a.bmp ends in none of these"),
        (["compare", "run", "--rewards", str(10**12)], "--rewards must be positive (at most 1,000,000)"),
        (["evaluate", "run", "--goals", "0"], "--goals is 0; accepted"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], run_folder: Path, arguments: list[str], message: str
) -> None:
    shutil.copytree(run_folder, "run")
    for name, version in (("huge", 1), ("newer", 7)):
        z = {"format": version, "agent": "a", "reward": "r", "z_R": [1e308] * 12}
        Path(f"{name}.json").write_text(json.dumps(z))
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert err.startswith("anyreward: ")
    assert "Traceback" not in err


def test_unknown_options_and_help() -> None:
    for arguments, code, text in (
        (["train", "--help"], 0, "d, the dimension"),
        (["train", "four-rooms", "--dimension", "3"], 2, "dimension"),
    ):
        done = subprocess.run([sys.executable, "-m", "anyreward", *arguments], capture_output=True, text=True)
        assert done.returncode == code
        assert text in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_evaluate_prints_the_suite_of_all_rewards(capsys: pytest.CaptureFixture[str], run_folder: Path) -> None:
    arguments = ("evaluate", str(run_folder), "--suite", "all-rewards", "--rewards", "10", "--json", "suite.json")
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "goal, 5 forbidden cells" in out
    assert "B sees no actions" in out
    families = json.loads(Path("suite.json").read_text())["families"]
    assert families["single goal"]["rewards"] == 68
    assert families["dense normal"]["worst"] <= families["dense normal"]["p5"] <= families["dense normal"]["median"]
    code, _, err = run(capsys, *arguments[:4], "--rewards", "0")
    assert code == 2
    assert "must be positive" in err


@needs_compiler
def test_bench_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "bench", "--dim", "10", "--cycles", "2", "--parts", "updates", "ask", "--json", "b.json")
    assert code == 0
    assert "update / its matrix products at peak" in out
    figures = json.loads(Path("b.json").read_text())
    updates = figures["updates, fast"]
    low, high = updates["update ms"]["quartiles"]
    assert 0 < low <= updates["update ms"]["median"] <= high
    assert updates["environment steps a second"] > 1000
    assert 0 < updates["matrix products computed, GFLOP"] < updates["matrix products of Algorithm 1, GFLOP"]
    assert figures["ask"]["four-rooms, ms"]["median"] > 0


@needs_compiler
def test_bench_against_the_plain_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    from anyreward.tools import bench

    class Sleeping:
        def __init__(self, seed: int, epochs: int) -> None: ...

        def cycle(self) -> None:
            time.sleep(0.01)

    monkeypatch.setattr(bench, "Plain", Sleeping)
    figures = bench.bench_epoch(ar.open_world("four-rooms"), True, ("fast",), cycles=2, dim=4, hidden=8)
    assert figures["plain, seconds"] == pytest.approx(0.02, rel=0.5)
    assert {"fast, seconds", "fast, compiled, seconds"} <= figures.keys()
    for name in ("fast", "fast, compiled"):
        assert figures[f"plain / {name}"] == pytest.approx(figures["plain, seconds"] / figures[f"{name}, seconds"])


def test_time_to_quality_stops_at_the_limit() -> None:
    from anyreward.tools.bench import bench_quality
    from anyreward.worlds.world import open_world

    tiny = {"dim": 4, "hidden": 8, "batch_size": 8, "updates": 400}
    figures = bench_quality(open_world("four-rooms"), lambda _: None, False, at_most=0.0, **tiny)
    assert figures["fast"]["updates"] == 400  # too small to learn: the end of the run
    assert not figures["fast"]["reached"]
    assert figures["paper"]["updates"] == 200  # the first look is beyond the limit
    assert figures["paper / fast, at least"] > 0


def test_memory_is_of_a_full_replay() -> None:
    from anyreward.tools.bench import bench_memory

    figures = bench_memory(20_000)
    assert figures["transitions"] == 20_000
    assert 100 < figures["resident MB"] < 2_000


def test_update_flop_is_what_the_plain_update_computes() -> None:
    """The formula against PyTorch's count of the plain update, which runs every network on every row."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from anyreward.learning.machine import update_flop
    from anyreward.tools.plain import Plain, plain_update
    from anyreward.training.train import untrained

    s = ar.preset("paper")
    agent, plain = untrained(ar.open_world("four-rooms"), s), Plain(seed=0, epochs=1)
    plain.cycle()
    with FlopCounterMode(display=False) as counter:
        plain_update(plain.networks, plain.adam, plain.minibatch(), 200.0, 1.0)
    torch.manual_seed(0)
    formula = update_flop(agent.model.F, agent.model.B, s)
    assert formula <= counter.get_total_flops() < 1.02 * formula


def test_seeds_train_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "train", "four-rooms", "--seeds", "3", "4", "--out", "both", *TINY)
    assert code == 0
    assert "both/seed3, both/seed4" in out
    assert "updates/s" in err
    assert [ar.load(f"both/seed{seed}").settings.seed for seed in (3, 4)] == [3, 4]
    assert run(capsys, "train", "four-rooms", "--seed", "3", "--threads", "1", "--out", "one", *TINY)[0] == 0
    assert ar.load("both/seed3").fingerprint == ar.load("one").fingerprint
    code, _, err = run(capsys, "train", "four-rooms", "--seeds", "4", "5", "--out", "both", *TINY)
    assert code == 2
    assert "both/seed4" in err
    assert not Path("both/seed5").exists()
    assert run(capsys, "train", "nowhere", "--seeds", "1", "--out", "none", *TINY)[0] == 2


def test_demo_draws_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "demo", "--updates", "120")
    assert code == 0
    for text in ("reach the goal", "two cells cost half", "nearest of two", "optimal", "ratio", "trust"):
        assert text in out
    assert Path("demo/answers.png").read_bytes().startswith(b"\x89PNG")
    assert run(capsys, "demo", "--updates", "120")[0] == 0  # again, into the same folder


def test_the_home_folder_is_expanded(
    capsys: pytest.CaptureFixture[str], run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell leaves ~ as it is in quotes, and after --out=."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert run(capsys, "train", "four-rooms", "--out=~/run", "--warmup-steps", "3000", *TINY)[0] == 0
    assert run(capsys, "ask", "~/run", "--goal", "9,9", "--save", "~/z.json", "--figure", "~/a.png")[0] == 0
    assert run(capsys, "ask", "~/run", "--z", "~/z.json:2")[0] == 0
    assert run(capsys, "evaluate", "~/run", "--json=~/e.json")[0] == 0
    home = tmp_path / "home"
    assert {path.name for path in home.iterdir()} >= {"run", "z.json", "a.png", "e.json"}
    assert not Path("~").exists()
    agent = ar.load("~/run")
    assert agent.load_policy("~/z.json").agent == agent.fingerprint
    assert agent.save("~/again") == home / "again"
    assert agent.ask(ar.goal(9, 9), refine=0).save("~/y.json") == home / "y.json"
    np.savez(home / "way.npz", observations=np.array([24, 25, 26]))
    assert run(capsys, "ask", "~/run", "--demonstration", "~/way.npz")[0] == 0


def test_names_that_mean_something_to_rich_and_matplotlib(capsys: pytest.CaptureFixture[str], run_folder: Path) -> None:
    assert run(capsys, "ask", str(run_folder), "--goal", "9,9", "--save", "z.json")[0] == 0
    data = json.loads(Path("z.json").read_text())
    del data["sha256"]
    Path("z.json").write_text(json.dumps(data | {"reward": "[/b] 5 $ \x1b[31m $^ [red]"}))
    code, out, _ = run(capsys, "ask", str(run_folder), "--z", "z.json", "--figure", "[/b].png")
    assert code == 0
    assert "[/b] 5 $" in out
    assert "\x1b[31m" not in out
    assert Path("[/b].png").stat().st_size > 10_000
