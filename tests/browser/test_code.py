"""The programs and commands that the page writes: run by themselves, they give the z of the page's task."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyreward as ar
from anyreward.cli import _parse
from anyreward.playground.scene import Scene
from anyreward.playground.task import reward_of
from anyreward.rewards.painted import Painted
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import Demonstration, Function, Goal

Module = Callable[..., Any]
Terms = list[dict[str, Any]]
ODD_TEXTS = [
    "(x > 0.6) * exp(-y)",
    "(x +\n y)",
    'x # it\'s "odd": $HOME `ls` \\n \\ é 日本 \u2028 %',
    "-x",
    "--x # -- --save x",
    " x < y ",
]
NUMBERS = [1.0, -1.0, 0.5, -0.5, 0.1 + 0.2, 1 / 3, -2.0, 1e-7, -1e-05, 123456789.123, 1e21, 5e-324, 3]
RUN_EACH = """
import json, sys
found = []
for text in json.load(sys.stdin):
    names = {}
    exec(compile(text, "task", "exec"), names)
    found.append(names["policy"].belief.found.z.tolist())
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def scenes(run_folder: Path, pendulum_folder: Path) -> dict[str, Scene]:
    found = {"maze": Scene(ar.load(run_folder), "a", str(run_folder), None)}
    found["pendulum"] = Scene(ar.load(pendulum_folder), "c", str(pendulum_folder), None)
    for kind, name in {"square": "continuous-maze", "plane": "mountain-car"}.items():
        found[kind] = Scene(ar.Agent.load(f"shipped:{name}"), "b", None, name)
    assert all(scene.kind == kind for kind, scene in found.items())
    return found


def tasks(kind: str) -> list[Terms]:
    """Tasks for a scene, together with all kinds of terms and of weights."""
    paint = {"kind": "paint", "runs": [[24, 0.5, 1.0], [35, 1.0], [40, -0.25, 0.1 + 0.2, 7.0]], "weight": 1.0}
    if kind == "plane":
        return [[paint, {"kind": "expression", "text": "(f0 > 0.1) - 0.5 * abs(f1)", "weight": -0.3}]]
    if kind == "pendulum":
        return [[paint, {"kind": "expression", "text": "-arctan2(f1, f0)**2 - 0.1 * f2**2", "weight": 0.1 + 0.2}]]
    x, y, states = {
        "maze": (9.0, 9.0, [[2, 8], [3, 8], [4.0, 8.0]]),
        "square": (-0.0, 0.25, [[0.1, 0.2], [1 / 3, 0.1 + 0.2]]),
    }[kind]
    goals = [{"kind": "goal", "at": at, "weight": w} for at, w in (([x, y], 1.0), ([1, 1], -0.5), ([1, 1], -1))]
    if kind == "square":
        goals[1]["at"] = goals[2]["at"] = [0.5, 0.125]
    shown = {"kind": "demonstration", "states": states, "weight": 0.1 + 0.2}
    text = {"kind": "expression", "text": "(x > 0.5) * y # it's $HOME", "weight": 1.0}
    return [
        [goals[0]],
        [goals[2], goals[0]],
        [paint],
        [shown],
        [text, text | {"weight": 1 / 3}],
        [*goals, shown, text, paint, shown | {"weight": -1.0}, text | {"weight": -1 / 3}, paint | {"weight": -0.5}],
    ]


def written(module: Module, scene: Scene, terms: Terms, function: str = "asPython") -> str:
    code = f"(code, [scene, terms]) => code.{function}(scene, terms)"
    return str(module("code.js", code, [scene.describe(), terms]))


def reward_in(program: str) -> Reward:
    """The reward of a program, without its agent."""
    kept = [line for line in program.split("\n") if not line.startswith(("agent =", "policy =", "print("))]
    names: dict[str, Any] = {}
    exec(compile("\n".join(kept), "program", "exec"), names)
    assert isinstance(names["reward"], Reward)
    return names["reward"]


def content(reward: Reward) -> list[Any]:
    """The terms with their numbers, to the last bit."""
    found: list[Any] = []
    for weight, term in reward.terms:
        match term:
            case Goal():
                found.append((weight, "goal", term.at))
            case Function():
                found.append((weight, "expression", term.name))
            case Painted():
                found.append((weight, "paint", term.of.tolist(), term.low, term.high, term.features))
            case Demonstration():
                seen = np.asarray(term.observations)
                found.append((weight, "demonstration", seen.tolist(), seen.dtype.kind))
    return found


@pytest.mark.parametrize("kind", ["maze", "square", "plane", "pendulum"])
def test_a_program_has_the_terms_of_the_task(module: Module, scenes: dict[str, Scene], kind: str) -> None:
    scene = scenes[kind]
    for terms in tasks(kind):
        program = written(module, scene, terms)
        assert content(reward_in(program)) == content(reward_of({"terms": terms}, scene)), program
        assert ("import numpy as np" in program) == ("np." in program)


def test_numbers_and_texts_of_a_program_are_exact(module: Module, scenes: dict[str, Scene]) -> None:
    rng = np.random.default_rng(0)
    every = [*NUMBERS, *rng.normal(size=200).tolist(), *(10.0 ** rng.uniform(-20, 20, 100)).tolist()]
    terms: Terms = [{"kind": "goal", "at": [value, -value], "weight": value} for value in every]
    terms += [{"kind": "paint", "runs": [[0, *every[:100]], [110, *every[100:111]]], "weight": 2.5}]
    terms += [{"kind": "expression", "text": text, "weight": -1.0} for text in ODD_TEXTS]
    program = written(module, scenes["maze"], terms)
    expected = sum((reward_of({"terms": terms[i : i + 150]}, scenes["maze"]) for i in (0, 150, 300)), Reward(()))
    assert content(reward_in(program)) == content(expected)


def test_a_program_can_be_read(module: Module, scenes: dict[str, Scene]) -> None:
    terms: Terms = [
        {"kind": "goal", "at": [2.0, 8.0], "weight": 1.0},
        {"kind": "goal", "at": [5, 2], "weight": -0.5},
        {"kind": "goal", "at": [1, 1], "weight": 0},
        {"kind": "paint", "runs": [[37, 0.5, 1.0, 0.5], [48, 2.0], [64, 1.0, 1.0, 3.0]], "weight": 1.0},
        {"kind": "expression", "text": "x > 6", "weight": 1.0},
        {"kind": "demonstration", "states": [[2, 2], [3, 2]], "weight": 2.0},
    ]
    run = scenes["maze"].run
    assert written(module, scenes["maze"], terms) == "\n".join([
        "import numpy as np",
        "import anyreward as ar",
        "",
        f'agent = ar.Agent.load("{run}")',
        "paint = np.zeros((11, 11))",
        "paint[3, 4:7] = [0.5, 1, 0.5]",
        "paint[4, 4] = 2",
        "paint[5, 9:11] = 1",
        "paint[6, 0] = 3",
        "reward = (",
        "    ar.goal(2, 8)",
        "    - 0.5 * ar.goal(5, 2)",
        '    + ar.painted(paint, low=(0, 0), high=(10, 10), features=("x", "y"))',
        '    + ar.reward("x > 6")',
        "    + 2 * ar.demonstration([24, 25])",
        ")",
        "policy = agent.ask(reward)",
        "print(policy.trust)",
        "",
    ])  # fmt: skip
    short = written(module, scenes["square"], terms[1:2]).splitlines()
    assert short[2:4] == ['agent = ar.Agent.load("shipped:continuous-maze")', "reward = -0.5 * ar.goal(5, 2)"]


@pytest.mark.parametrize("function", ["asPython", "asCommand"])
def test_without_a_reward_there_is_a_comment(module: Module, scenes: dict[str, Scene], function: str) -> None:
    nothing: Terms = [
        {"kind": "goal", "at": [1, 1], "weight": 0},
        {"kind": "paint", "runs": [], "weight": 1.0},
        {"kind": "paint", "runs": [[3, 0.0, 0.0]], "weight": 1.0},
        {"kind": "demonstration", "states": [], "weight": 1.0},
    ]
    for terms in ([], nothing):
        text = written(module, scenes["maze"], terms, function)
        assert text.startswith("# There is no reward yet")
        assert all(line.startswith("#") for line in text.splitlines())


def test_programs_run_and_give_the_same_z(module: Module, scenes: dict[str, Scene]) -> None:
    programs, expected = [], []
    for kind, scene in scenes.items():
        for terms in tasks(kind)[-1:] if kind != "maze" else tasks(kind):
            programs.append(written(module, scene, terms))
            expected.append(scene.agent.ask(reward_of({"terms": terms}, scene), refine=0).belief.found.z.numpy())
    command = [sys.executable, "-c", RUN_EACH]
    done = subprocess.run(command, input=json.dumps(programs), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for program, z, there in zip(programs, expected, json.loads(done.stdout.splitlines()[-1]), strict=True):
        np.testing.assert_allclose(there, z, 1e-9, 1e-12, err_msg=program)


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment in which `python` and `anyreward` are those of these tests."""
    for name, start in {"python": "", "anyreward": " -m anyreward"}.items():
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{start} "$@"\n')
        file.chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.parametrize("kind", ["maze", "square", "plane", "pendulum"])
def test_a_command_runs_and_gives_the_same_z(
    module: Module, scenes: dict[str, Scene], kind: str, programs: dict[str, str], tmp_path: Path
) -> None:
    scene, terms = scenes[kind], tasks(kind)[-1]
    command = written(module, scene, terms, "asCommand").rstrip("\n") + " --save z.json"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=programs, capture_output=True, text=True)
    assert done.returncode == 0, command + done.stderr
    z = scene.agent.ask(reward_of({"terms": terms}, scene), refine=0).belief.found.z.numpy()
    found = json.loads((tmp_path / "z.json").read_text())["z_R"]
    np.testing.assert_allclose(found, z, 1e-9, 1e-9 * np.abs(z).max())


def test_commands_survive_the_shell_and_the_command_line(module: Module, scenes: dict[str, Scene]) -> None:
    terms: Terms = [{"kind": "expression", "text": text, "weight": w} for text in ODD_TEXTS for w in (1.0, -0.5)]
    places = [[value, -value] for value in NUMBERS]
    terms += [{"kind": "goal", "at": at, "weight": w} for at in places for w in (1.0, 1e-07, -2.0)]
    command = written(module, scenes["maze"], terms, "asCommand")
    shown = subprocess.run(["/bin/sh", "-c", f'anyreward() {{ printf "%s\\0" "$@"; }}\n{command}'], capture_output=True)
    words = shown.stdout.decode().split("\0")[:-1]
    assert words == shlex.split(command)[1:]
    ask = _parse(words)
    assert str(ask.run_folder) == scenes["maze"].run
    assert len(ask.goal) == len(places) * 3
    assert [[float(x) for x in text.split(":")[0].split(",")] for text in ask.goal[::3]] == places
    assert [text.split(":")[1] for text in ask.goal[1::3]] == ["1e-07"] * len(places)
    rewards = sum(map(ar.reward, ask.reward), Reward(()))
    columns = {"x": np.array([1.0, 2.0]), "y": np.array([3.0, 0.0])}
    for (_, term), sent in zip(rewards.terms, terms, strict=False):
        (_, own) = ar.reward(sent["text"]).terms[0]
        np.testing.assert_array_equal(term.of(columns), sent["weight"] * own.of(columns))


@pytest.mark.parametrize("text", ["+".join("x" * 499), "-" * 40 + "x"])
def test_an_expression_at_a_limit_has_no_room_for_its_weight(
    module: Module, scenes: dict[str, Scene], text: str
) -> None:
    terms = [{"kind": "expression", "text": text, "weight": 1.0}]
    assert "anyreward ask" in written(module, scenes["maze"], terms, "asCommand")
    terms[0]["weight"] = 0.5
    assert "too long for the command line" in written(module, scenes["maze"], terms, "asCommand")
    assert content(reward_in(written(module, scenes["maze"], terms))) == [(0.5, "expression", text)]


def test_code_is_written_at_once(module: Module, scenes: dict[str, Scene]) -> None:
    """A painting of the whole grid, 41 by 41 points."""
    paint: Terms = [{"kind": "paint", "runs": [[0, *np.linspace(0, 1, 41 * 41).tolist()]], "weight": 1.0}]
    began = time.perf_counter()
    program = written(module, scenes["square"], paint)
    assert time.perf_counter() - began < 1
    assert content(reward_in(program)) == content(reward_of({"terms": paint}, scenes["square"]))
