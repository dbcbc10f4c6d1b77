"""Agents as the page shows them: scenes, tasks, the list of agents, and exported pages."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward as ar
from anyreward.playground.export import export_page
from anyreward.playground.grid import NO_ACTION
from anyreward.playground.scene import Scene
from anyreward.playground.shelf import Shelf
from anyreward.playground.task import reward_of
from anyreward.storage.shipped import shipped_agents
from tests.conftest import TINY

GOAL = {"kind": "goal", "at": [2, 8], "weight": 1.0}


def numbers(text: str, dtype: str = "<f4") -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.fixture(scope="module")
def rooms() -> Scene:
    return Scene(ar.Agent.load("shipped:four-rooms"))


def test_an_answer_is_the_policy_that_ask_returns(rooms: Scene) -> None:
    terms = [
        GOAL,
        {"kind": "expression", "text": "-x", "weight": 0.1},
        {"kind": "paint", "runs": [[24, -1, 0.5]], "weight": 2},
        {"kind": "demonstration", "states": [[2, 2], [3, 2]], "weight": 0.3},
    ]
    paint = np.zeros((11, 11))
    paint[2, 2:4] = [-1, 0.5]
    reward = (
        ar.goal(2, 8)
        + 0.1 * ar.reward("-x")
        + 2 * ar.painted(paint, (0, 0), (10, 10))
        + 0.3 * ar.demonstration([24, 25])
    )
    policy = rooms.agent.ask(reward)
    found = rooms.answer({"terms": terms})
    np.testing.assert_allclose(numbers(found["z"]), policy.belief.found.z.numpy(), rtol=1e-6)
    maze = rooms.maze
    assert maze is not None
    value, action = numbers(found["value"]), numbers(found["action"], "u1")
    np.testing.assert_allclose(value[maze.free], policy.value(maze.free), rtol=1e-5)
    np.testing.assert_array_equal(action[maze.free], policy.act(maze.free))
    walls = np.setdiff1d(np.arange(maze.cells), maze.free)
    assert np.isnan(value[walls]).all()
    assert (action[walls] == NO_ACTION).all()
    assert found["notes"] == []


def test_what_takes_longer(rooms: Scene) -> None:
    found = rooms.explain({"terms": [GOAL]})
    assert found["trust"]["verdict"] == "good"
    assert found["optimum"]["normalised"] == pytest.approx(1.0)
    best = numbers(found["optimum"]["value"])
    assert np.nanargmax(best) == 8 * 11 + 2
    assert found["landmarks"]["places"] == [[2.0, 8.0]]
    nothing = rooms.explain({"terms": []})
    assert nothing["trust"]["verdict"] == "do not rely on it"
    assert "every policy is equally good" in nothing["notes"][0]
    assert rooms.acts({"terms": [GOAL]}, [[2, 8], [1, 8]])["actions"] == [4, 1]


@pytest.mark.parametrize(
    "task",
    [
        None,
        [],
        {},
        {"terms": {}},
        {"terms": [GOAL], "more": 1},
        {"terms": [GOAL] * 201},
        {"terms": [1]},
        {"terms": [{"kind": "goal"}]},
        {"terms": [{**GOAL, "kind": ["goal"]}]},
        {"terms": [{**GOAL, "kind": "file"}]},
        {"terms": [{**GOAL, "weight": "1"}]},
        {"terms": [{**GOAL, "weight": True}]},
        {"terms": [{**GOAL, "weight": float("inf")}]},
        {"terms": [{**GOAL, "weight": 10**400}]},
        {"terms": [{**GOAL, "at": []}]},
        {"terms": [{**GOAL, "at": [0, 0]}]},
        {"terms": [{**GOAL, "at": [2, 8, 1]}]},
        {"terms": [{**GOAL, "at": "2,8"}]},
        {"terms": [{"kind": "expression", "text": 3, "weight": 1}]},
        {"terms": [{"kind": "expression", "text": "__import__('os')", "weight": 1}]},
        {"terms": [{"kind": "expression", "text": "1 / (x - x)", "weight": 1}]},
        {"terms": [{"kind": "paint", "runs": [[120, 1, 1]], "weight": 1}]},
        {"terms": [{"kind": "paint", "runs": [["0", 1]], "weight": 1}]},
        {"terms": [{"kind": "paint", "runs": 3, "weight": 1}]},
        {"terms": [{"kind": "demonstration", "states": [], "weight": 1}]},
        {"terms": [{"kind": "demonstration", "states": [[0, 0]], "weight": 1}]},
        {"terms": [{"kind": "demonstration", "states": [[1e9, -5]], "weight": 1}]},
        {"terms": [{"kind": "demonstration", "states": [[1]], "weight": 1}]},
    ],
)
def test_bad_tasks_get_one_sentence(rooms: Scene, task: Any) -> None:
    with pytest.raises(ar.UserError):
        rooms.answer(task)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["kind", "at", "weight"]), inner),
    max_leaves=12,
)


HOLDS = {"goal": "at", "paint": "runs", "demonstration": "states"}


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(sorted(HOLDS)), weight=ANYTHING, held=ANYTHING)
def test_hostile_tasks_raise_nothing_else(rooms: Scene, kind: str, weight: Any, held: Any) -> None:
    with contextlib.suppress(ar.UserError):
        reward_of({"terms": [{"kind": kind, "weight": weight, HOLDS[kind]: held}]}, rooms)


def test_other_worlds_are_planes(tmp_path: Path) -> None:
    agent = ar.train("CartPole-v1", **TINY)
    scene = Scene(agent)
    about = scene.describe()
    assert about["kind"] == "plane"
    assert len({axis["index"] for axis in about["axes"]}) == 2
    assert set(about["fixed"]) == set(about["features"][:4]) - {axis["name"] for axis in about["axes"]}
    name = about["axes"][0]["name"]
    found = scene.answer({"terms": [{"kind": "expression", "text": f"-abs({name})", "weight": 1}]})
    assert np.isfinite(numbers(found["value"])).all()
    chosen = Scene(agent, drawn=(0, 3))
    assert [axis.index for axis in chosen.axes] == [0, 3]
    row = np.zeros(4, dtype=np.float32)
    for i, value in chosen.grid.fixed.items():
        row[i] = value
    row[[0, 3]] = chosen.grid.points[40]
    policy = agent.ask(ar.reward("-abs(f2)"), refine=0)
    assert chosen.grid.answer(policy)[0][40] == pytest.approx(float(policy.value(row)), rel=1e-4)
    with pytest.raises(ar.UserError, match="cannot be drawn"):
        Scene(agent, drawn=(2, 2))
    with pytest.raises(ar.UserError, match="cannot be drawn"):
        Scene(agent, drawn=(0, 9))


def test_categories_with_coordinates_and_worlds_that_cannot_be_opened() -> None:
    env = gym.make("FrozenLake-v1", is_slippery=False)
    with pytest.raises(ar.UserError, match="two features"):
        Scene(ar.train("FrozenLake-v1", updates=200, progress=False))
    env.unwrapped.feature_table = np.stack(np.divmod(np.arange(16), 4)[::-1], 1)
    env.unwrapped.feature_names = ("x", "y")
    agent = ar.train(env, updates=200, progress=False)
    scene = Scene(agent)
    assert (scene.kind, scene.describe()["live"]) == ("plane", False)
    found = scene.answer({"terms": [{"kind": "goal", "at": [3, 3], "weight": 1}]})
    assert np.nanargmax(numbers(found["value"])) in (11, 14)  # one step from the goal, which ends the episode
    blackjack = Scene(ar.train("Blackjack-v1", updates=200, progress=False))
    task = {"terms": [{"kind": "expression", "text": blackjack.axes[0].name, "weight": 1}]}
    assert np.isfinite(numbers(blackjack.answer(task)["value"])).any()


def test_features_that_are_not_observations_are_drawn_from_held_out_ones() -> None:
    scene = Scene(ar.Agent.load("shipped:fetch-reach"))
    assert scene.kind == "arm"
    found = scene.answer({"terms": [{"kind": "goal", "at": [1.35, 0.75, 0.6], "weight": 1}]})
    value = numbers(found["value"])
    assert 0.3 < np.isfinite(value).mean() <= 1
    best = scene.grid.points[np.nanargmax(value)]
    assert np.abs(best - [1.35, 0.75]).max() < 0.2


def test_goal_oriented_baselines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ar.UserError, match="single goals"):
        Scene(ar.train("four-rooms", method="goal-dqn", updates=40, hidden=16, progress=False))


def test_the_list_of_agents(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "agent.json").write_text('{"format": 3}')
    agent = ar.load(run_folder)
    agent.save(tmp_path / "mine")
    shelf = Shelf(None, tmp_path)
    entries = shelf.entries()
    assert entries[0]["shipped"] == "four-rooms"
    assert {entry["name"] for entry in entries} == {*shipped_agents(), "mine"}
    assert Shelf(tmp_path / "mine", tmp_path).entries()[0]["run"] == str(tmp_path / "mine")
    assert all(str(tmp_path) not in entry["id"] for entry in entries)
    mine = next(entry for entry in entries if entry["name"] == "mine")
    assert shelf.scene(mine["id"]).agent.fingerprint == agent.fingerprint
    assert shelf.scene(mine["id"]) is shelf.scene(mine["id"])
    for unknown in (
        "",
        "../mine",
        str(tmp_path / "mine"),
        f"{mine['id']}.0",
        f"{mine['id']}.a.b",
        f"{mine['id']}.0.1.2",
    ):
        with pytest.raises(KeyError):
            shelf.scene(unknown)


def test_agents_that_come_with_the_package() -> None:
    assert sum(path.stat().st_size for path in shipped_agents().values()) < 8e6
    agent = ar.Agent.load("shipped:four-rooms")
    assert agent.score().ratio.min() > 0.999
    assert ar.Agent.load("shipped:continuous-maze").model.landmarks is not None
    with pytest.raises(ar.UserError, match=r"four-rooms"):
        ar.Agent.load("shipped:unknown")
    with pytest.raises(ar.UserError):
        ar.Agent.load("shipped:../four-rooms")


def test_large_agents_without_landmarks_answer_alike() -> None:
    """The package leaves the tables of landmarks' policies out; answers do not need them."""
    agent = ar.train("continuous-maze", updates=400, dim=60, landmarks=3, progress=False)
    F = agent.model.landmarks
    assert F is not None
    rows = F.P.states.rows[:50]
    reward = ar.reward("exp(-hypot(x - 0.2, y - 0.3))")
    full = agent.ask(reward, refine=0).preferences(rows)
    F.fill(**{name: getattr(F, name)[:0] for name in ("V", "visits", "where", "mass", "landmarks", "reach")})
    light = agent.ask(reward, refine=0)
    torch.testing.assert_close(light.preferences(rows), full, rtol=1e-5, atol=1e-5)
    with pytest.raises(ar.UserError, match="landmark"):
        light.landmark(np.array([0.5, 0.5], dtype=np.float32))


def test_pages_that_cannot_be_exported(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(ar.UserError, match="mazes, the continuous maze and Pendulum-v1"):
        export_page([Path("shipped:mountain-car")], page)
    with pytest.raises(ar.UserError, match=r"\.html"):
        export_page([Path("shipped:four-rooms")], tmp_path / "page.png")
    with pytest.raises(ar.UserError, match="cannot be exported"):
        export_page([ar.train("four-rooms", bias=True, **TINY).save(tmp_path / "bias")], page)
    assert not page.exists()


def test_a_page_holds_everything(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    size = export_page([Path("shipped:four-rooms")], page)
    text = page.read_text()
    assert size == page.stat().st_size < 2_000_000
    assert "src=" not in text.replace("img-src", "").replace("script-src", "").replace("style-src", "")
    assert "http:" not in text.split("<body>")[0]
    bundle = text.split('id="bundles">')[1].split("</script>")[0]
    assert json.loads(bundle)[0]["scene"]["name"] == "four-rooms"
    assert "default-src 'none'" in text
