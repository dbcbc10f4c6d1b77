"""Worlds whose actions are a box: the pendulum's phase plane, and others as planes."""

from __future__ import annotations

import base64
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.playground.bundle import Bundle
from anyreward.playground.export import export_page
from anyreward.playground.live import Live
from anyreward.playground.optimum import PendulumOptimum
from anyreward.playground.scene import Scene
from anyreward.theory.pendulum import pendulum_step
from tests.conftest import TINY

UP = "-(arctan2(f1, f0)**2 + 0.1 * f2**2)"
UP_TASK = {"terms": [{"kind": "expression", "text": UP, "weight": 1}]}
Array = np.ndarray[Any, Any]


def numbers(text: str, dtype: str = "<f4") -> Array:
    return np.frombuffer(base64.b64decode(text), dtype)


def observed(states: Array) -> Array:
    """(n, 3) what an agent observes of angles and speeds (n, 2)."""
    return np.stack([np.cos(states[:, 0]), np.sin(states[:, 0]), states[:, 1]], 1).astype(np.float32)


@pytest.fixture(scope="module")
def pendulum(pendulum_folder: Path) -> Scene:
    return Scene(ar.load(pendulum_folder))


@pytest.fixture(scope="module")
def mass(point_mass_folder: Path) -> Scene:
    return Scene(ar.load(point_mass_folder))


def test_the_phase_plane(pendulum: Scene) -> None:
    about = pendulum.describe()
    json.dumps(about, allow_nan=False)
    assert (about["kind"], about["paintable"], about["demonstrable"], about["live"]) == ("pendulum", True, False, True)
    angle, speed = about["axes"]
    assert (angle["name"], angle["low"], angle["high"], angle["turns"]) == ("arctan2(f1, f0)", -np.pi, np.pi, True)
    assert (speed["name"], speed["low"], speed["high"], speed["turns"]) == ("f2", -8, 8, False)
    assert about["coordinates"] == ["angle: arctan2(f1, f0)", "speed: f2"]
    assert about["box"] == [{"name": "torque", "low": -2.0, "high": 2.0}]
    assert about["actions"] == []
    assert pendulum.pace > 1  # its steps are short
    assert about["listed"] == [[-1.0], [-0.5], [0.0], [0.5], [1.0]]


def test_an_answer_is_the_policy_that_ask_returns(pendulum: Scene) -> None:
    policy = pendulum.agent.ask(ar.reward(UP), refine=0)
    found, states = pendulum.answer(UP_TASK), observed(pendulum.grid.points)
    np.testing.assert_allclose(numbers(found["value"]), policy.value(states), rtol=1e-5)
    torque = 2 * np.array(pendulum.describe()["listed"])[numbers(found["action"], "u1"), 0]
    np.testing.assert_allclose(torque, policy.act(states)[:, 0], atol=1e-6)
    assert found["notes"] == []


def test_paint_crosses_the_ends_of_the_angle(pendulum: Scene) -> None:
    """The first and the last column are the same place."""
    width = pendulum.axes[0].points
    middle = width * (pendulum.axes[1].points // 2)
    paint = {"kind": "paint", "runs": [[middle, 1.0], [middle + width - 1, 1.0]], "weight": 1.0}
    policy = pendulum.policy({"terms": [paint]})
    around = np.array([[np.pi - 0.05, 0.0], [-np.pi + 0.05, 0.0], [np.pi, 0.0], [0.0, 0.0]])
    rows = pendulum.agent.model.phi.marked(observed(around))
    values = policy.reward.values(policy.knowledge, torch.from_numpy(rows))
    assert values[0] == pytest.approx(values[1], abs=1e-4)
    np.testing.assert_allclose(values, [1 - 0.05 / (np.pi / 20)] * 2 + [1.0, 0.0], atol=1e-3)


def test_the_optimum_and_the_score(pendulum: Scene) -> None:
    found = pendulum.explain(UP_TASK)["optimum"]
    assert found["random"] < found["achieved"] < found["optimal"]
    assert 0.97 < found["normalised"] <= 1
    value, push = numbers(found["value"]), numbers(found["push"])
    assert np.abs(pendulum.grid.points[value.argmax()]).max() < 0.5
    assert set(np.round(8 * push)) <= set(range(-8, 9))
    hanging_swings = np.abs(pendulum.grid.points[:, 0]) > 3
    assert np.abs(push[hanging_swings]).mean() > 0.8


def test_demonstrations_are_refused(pendulum: Scene) -> None:
    with pytest.raises(ar.UserError, match="in mazes only"):
        pendulum.answer({"terms": [{"kind": "demonstration", "states": [[0, 0]], "weight": 1}]})


def test_the_real_pendulum_swings(pendulum: Scene) -> None:
    policy = pendulum.policy(UP_TASK)
    with closing(Live(pendulum.agent, drawn=[axis.name for axis in pendulum.axes])) as live:
        told = live.describe()
        assert told["rendered"]
        assert told["actions"] == [{"name": "torque", "low": -2.0, "high": 2.0}]
        placed = live.restart([3.0, -1.5])
        assert placed["placed"]
        np.testing.assert_allclose(placed["features"], [np.cos(3.0), np.sin(3.0), -1.5], atol=1e-6)
        state, frames = np.array([[3.0, -1.5]]), set()
        for _ in range(150):
            step = live.step(policy)
            json.dumps(step, allow_nan=False)
            state = pendulum_step(state, np.array(step["action"]))
            np.testing.assert_allclose(step["features"], observed(state)[0], atol=1e-4)
            frames.add(live.frame())
        assert step["features"][0] > 0.95  # upright
        assert abs(step["features"][2]) < 1
        assert len(frames) > 20
        half = live.restart({"f0": 0.5})  # a cosine without its sine is no angle
        assert not half["placed"]
        only = live.restart({"f2": 2.0})
        assert (only["placed"], only["features"][2]) == (True, 2.0)


def test_a_page_holds_the_pendulum(pendulum: Scene, pendulum_folder: Path, tmp_path: Path) -> None:
    bundle = Bundle(pendulum).as_json()
    assert isinstance(pendulum.optimum, PendulumOptimum)
    mdp = pendulum.optimum.mdp
    weights = numbers(bundle["arrays"]["worldRandom"]["data"], "<f8")
    r = np.random.default_rng(0).normal(size=mdp.states)
    uniform = np.full((1, mdp.states, mdp.actions), 1 / mdp.actions)
    ours = mdp.policy_value(uniform, np.repeat(r[None, :, None], mdp.actions, 2)).mean()
    assert weights @ r == pytest.approx(ours, rel=1e-6, abs=1e-6)
    page = tmp_path / "page.html"
    assert export_page([pendulum_folder], page) < 4_000_000
    assert '"kind":"pendulum"' in page.read_text()


def test_an_agent_with_networks_is_served_and_not_exported(
    mass: Scene, point_mass_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ar.UserError, match="Pendulum-v1 can be computed in a page") as refused:
        export_page([point_mass_folder], tmp_path / "page.html")
    assert "\n" not in str(refused.value)
    agent = ar.train("Pendulum-v1", **{**TINY, "updates": 20})
    scene = Scene(agent)
    found = scene.answer(UP_TASK)
    push = numbers(found["push"])
    assert push.shape == (len(scene.grid.points),)
    policy = agent.ask(ar.reward(UP), refine=0)
    np.testing.assert_allclose(2 * push, policy.act(observed(scene.grid.points))[:, 0], atol=1e-5)
    with pytest.raises(ar.UserError, match="this agent has networks") as refused:
        export_page([agent.save(tmp_path / "agent")], tmp_path / "page.html")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "page.html").exists()


def test_the_point_mass_is_a_plane_with_two_pushes(mass: Scene) -> None:
    about = mass.describe()
    json.dumps(about, allow_nan=False)
    assert (about["kind"], about["listed"], about["live"]) == ("plane", None, True)
    assert [one["name"] for one in about["box"]] == ["push in x", "push in y"]
    assert [axis["name"] for axis in about["axes"]] == ["x", "y"]
    assert len(about["walls"]) == 2
    task = {"terms": [{"kind": "expression", "text": "y - x", "weight": 1}]}
    found = mass.answer(task)
    push = numbers(found["push"]).reshape(-1, 2)
    assert len(push) == len(mass.grid.points)
    assert np.abs(push).max() <= 1
    nothing = mass.answer({"terms": []})
    assert np.isnan(numbers(nothing["push"])).all()
    assert "optimum" not in mass.explain(task)
    with closing(Live(mass.agent, drawn=["x", "y"])) as live:
        steps = [live.step(mass.policy(task)) for _ in range(3)]
    assert all(len(step["action"]) == 2 and len(step["features"]) == 4 for step in steps)
    json.dumps(steps, allow_nan=False)


def test_other_boxes_are_planes() -> None:
    car = Scene(ar.train("MountainCarContinuous-v0", updates=60, landmarks=2, dim=12, progress=False))
    about = car.describe()
    assert (about["kind"], about["coordinates"]) == ("plane", ["position: f0", "speed: f1"])
    assert about["box"] == [{"name": "force", "low": -1.0, "high": 1.0}]
    found = car.answer({"terms": [{"kind": "expression", "text": "f0", "weight": 1}]})
    assert numbers(found["action"], "u1").max() < len(about["listed"])
    with closing(Live(car.agent)) as live:
        assert live.restart([-0.5, 0.03])["placed"]
        policy = car.policy({"terms": [{"kind": "expression", "text": "f0", "weight": 1}]})
        assert len(live.step(policy)["action"]) == 1


def test_another_gravity_is_another_world() -> None:
    gym.register(id="tests/Moon-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv", kwargs={"g": 1.6})
    try:
        scene = Scene(ar.train("tests/Moon-v0", **{**TINY, "updates": 20}))
        about = scene.describe()
        assert (about["kind"], about["exact"], about["axes"][0]["turns"]) == ("plane", False, True)
        assert np.isfinite(numbers(scene.answer(UP_TASK)["value"])).all()
    finally:
        gym.registry.pop("tests/Moon-v0")


def test_two_angles_are_recognised() -> None:
    scene = Scene(ar.train("Acrobot-v1", **{**TINY, "updates": 20}), drawn=(0, 1))
    names = ["arctan2(f1, f0)", "arctan2(f3, f2)"]
    assert [axis.name for axis in scene.axes] == names
    assert set(scene.grid.fixed) == {4, 5}
    rows = scene.grid.rows[1].numpy()
    np.testing.assert_allclose(np.arctan2(rows[:, 1], rows[:, 0]), scene.grid.points[:, 0], atol=1e-6)
    with closing(Live(scene.agent, drawn=names)) as live:
        placed = live.restart([0.5, -0.25])
    assert placed["placed"]
    np.testing.assert_allclose(
        placed["features"][:4], [np.cos(0.5), np.sin(0.5), np.cos(-0.25), np.sin(-0.25)], atol=1e-6
    )
