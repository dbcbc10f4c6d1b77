"""The pendulum's phase plane in a real browser: served by the library, and as one file that swings it itself."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright (pip install playwright)")
import torch
from playwright.sync_api import Browser

import anyreward as ar
from anyreward.model.landmarks import KnownRows
from anyreward.playground.export import export_page
from anyreward.playground.scene import Scene
from anyreward.playground.shelf import Shelf
from anyreward.playground.task import reward_of
from anyreward.theory.pendulum import pendulum_grid
from tests.browser.test_code import content, reward_in
from tests.browser.test_page import Tab, near
from tests.playground.serving import served

Module = Callable[..., Any]
HANGING, UPRIGHT = (0.0, 0.5), (0.5, 0.5)
"""Shares of the width and of the height of the phase plane."""


@pytest.fixture(scope="module")
def scene(pendulum_folder: Path) -> Scene:
    return Scene(ar.load(pendulum_folder), "0", str(pendulum_folder))


@pytest.fixture(scope="module")
def exported(pendulum_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    page = tmp_path_factory.mktemp("page") / "page.html"
    export_page([pendulum_folder], page)
    return page.as_uri()


@pytest.fixture(params=["served", "exported"])
def tab(request: pytest.FixtureRequest, browser: Browser, pendulum_folder: Path, exported: str) -> Iterator[Tab]:
    if request.param == "exported":
        found = Tab(browser, exported)
        yield found
        found.close()
        return
    with served(Shelf(pendulum_folder, pendulum_folder / "none")) as running:
        found = Tab(browser, f"http://{running.host}/")
        yield found
        found.close()


def click(tab: Tab, tool: str, place: tuple[float, float]) -> None:
    tab.tool(tool)
    tab.page.mouse.click(*tab.at(*place))


def test_it_swings_up_and_stands(tab: Tab) -> None:
    before = tab.pixels()
    tab.page.select_option("#preset", label="swing up and stand")
    tab.settled()
    assert tab.pixels() != before
    assert tab.run("playground.explanation.optimum.normalised") > 0.97
    assert "of what is possible" in tab.page.inner_text("#score")
    assert "torque, down -2 to up 2" in tab.page.inner_text("#scale-text")
    served_here = tab.page.inner_text("#live-title") == "The real environment"
    if served_here:
        tab.page.click("#live-run")
        tab.wait("document.getElementById('frame').naturalWidth > 0", 30)
    click(tab, "agent", HANGING)
    tab.wait("playground.live.dots && Math.abs(playground.live.dots[0].at[0]) > 3 && playground.live.trail.length < 9")
    shown = "#frame" if served_here else "#rod"
    first = tab.page.locator(shown).screenshot()
    tab.wait("Math.max(...playground.live.dots[0].at.map(Math.abs)) < 0.5", 30)
    assert tab.page.locator(shown).screenshot() != first
    assert tab.run("playground.live.trail.length") > 20
    tab.page.wait_for_timeout(700)
    assert tab.run("Math.abs(playground.live.dots[0].at[0])") < 0.5  # it stands
    assert "torque" in tab.page.inner_text("#live-text")
    tab.page.click("#live-run")
    assert tab.page.inner_text("#live-run") == "Continue"


def test_paint_and_goals_take_the_angle_as_an_angle(tab: Tab, scene: Scene) -> None:
    click(tab, "goal", (0.999, 0.5))
    tab.settled()
    (text,) = tab.page.locator("#terms .what").all_inner_texts()
    assert text.startswith("goal (3.1")
    (term,) = tab.run("playground.task.terms")
    values = ar.reward(term["text"]).terms[0][1].of
    angles = np.array([np.pi - 0.1, -np.pi + 0.1, np.pi, -np.pi, np.pi - 0.5, 0.0])
    seen = {"f0": np.cos(angles), "f1": np.sin(angles), "f2": np.zeros(6)}
    np.testing.assert_array_equal(values(seen), [1, 1, 1, 1, 0, 0])
    click(tab, "erase", (0.001, 0.5))  # the same place, at the other end
    tab.wait("playground.answered === playground.version")
    assert tab.page.locator("#terms li").count() == 0
    tab.tool("reward")
    tab.stroke((0.01, 0.5), (0.001, 0.5))
    tab.settled()
    reward = reward_of(tab.run("playground.task"), scene)
    paint: Any = reward.terms[0][1]
    np.testing.assert_array_equal(paint.of[:, 0], paint.of[:, -1])
    assert paint.of[20, 38] > 0
    values = tab.values().reshape(41, 41)
    np.testing.assert_allclose(values[:, 0], values[:, -1], rtol=1e-5, atol=1e-5 * np.abs(values).max())
    policy = scene.agent.ask(reward, refine=0)
    np.testing.assert_allclose(tab.z(), policy.belief.found.z.numpy(), rtol=0, atol=1e-5 * np.abs(tab.z()).max())
    program = tab.page.inner_text("#code")
    assert 'features=("arctan2(f1, f0)", "f2")' in program
    assert content(reward_in(program)) == content(reward)


def test_demonstrations_are_hidden_and_presets_are_answered(tab: Tab) -> None:
    assert tab.page.locator("#tools button[data-tool=follow]").is_hidden()
    for name in tab.page.locator("#preset > option").all_inner_texts()[1:]:
        tab.page.select_option("#preset", label=name)
        tab.settled()
        assert tab.run("playground.explanation.optimum.normalised") > 0.7, name
    tab.page.select_option("#preset", label="faster than it can turn (never visited: zero)")
    tab.settled()
    assert "every policy is equally good" in tab.page.inner_text("#status")


def test_the_exported_page_computes_what_python_computes(browser: Browser, exported: str, scene: Scene) -> None:
    """z, values, torques, the optimum and R^2, at a relative error below 1e-4."""
    tab, rng = Tab(browser, exported), np.random.default_rng(0)
    for trial in range(4):
        runs = [[int(i), *rng.uniform(-1, 1, 3).round(2).tolist()] for i in np.sort(rng.choice(400, 3)) * 4]
        terms: list[dict[str, Any]] = [{"kind": "paint", "runs": runs, "weight": 1.0}]
        if trial:
            terms.append({"kind": "expression", "text": f"exp(-(f0 - {trial / 3 - 1:.2f})**2)", "weight": -0.5})
        task = {"terms": terms}
        theirs = tab.run(
            """async task => {
                const { engine } = playground;
                const answer = await engine.answer(task);
                const { optimum } = await engine.explain(task, answer);
                const places = Array.from({ length: 200 }, (_, i) => [(((i * 37) % 100) / 50 - 1) * 3.1, ((i * 61) % 100) / 6.3 - 7.9]);
                return { z: Array.from(answer.z), value: Array.from(answer.value), action: Array.from(answer.action), places,
                    pushes: places.map(place => engine.push(place)[0]), share: engine.represented(task),
                    scores: [optimum.achieved, optimum.optimal, optimum.random], best: Array.from(optimum.value),
                    torques: Array.from(optimum.push) };
            }""",  # noqa: E501
            task,
        )
        policy = scene.agent.ask(reward_of(task, scene), refine=0)
        value, action = scene.grid.answer(policy)
        near(theirs["z"], policy.belief.found.z.numpy())
        near(theirs["value"], value)
        assert np.mean(np.array(theirs["action"]) != action) <= 0.01  # ties
        angle, speed = np.array(theirs["places"]).T
        ours = policy.act(np.stack([np.cos(angle), np.sin(angle), speed], 1).astype(np.float32))[:, 0]
        assert np.mean(np.abs(2 * np.array(theirs["pushes"]) - ours) > 1e-6) <= 0.02
        assert scene.optimum is not None
        best = scene.optimum.compare(policy, scene.grid.points)
        assert best is not None
        near(theirs["scores"], [best[key] for key in ("achieved", "optimal", "random")])
        near(theirs["best"], decoded(best["value"]))
        assert np.mean(np.abs(np.array(theirs["torques"]) - decoded(best["push"])) > 1e-6) <= 0.01
        assert policy.trust.represented == pytest.approx(theirs["share"], abs=1e-3)
    tab.close()


def decoded(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), "<f4")


def test_a_step_is_that_of_gymnasium(module: Module) -> None:
    env, rng = gym.make("Pendulum-v1").unwrapped, np.random.default_rng(0)
    env.reset(seed=0)
    states, torques = rng.uniform([-9, -8], [9, 8], (200, 2)), rng.uniform(-3, 3, 200)
    expected, seen = [], []
    for state, torque in zip(states, torques, strict=True):
        env.state = state.copy()  # type: ignore[attr-defined]
        seen.append(env.step(np.array([torque]))[0])
        expected.append(env.state)  # type: ignore[attr-defined]
    step = """({ pendulumStep, observed }, given) =>
        given.map(([at, u]) => pendulumStep(at, u)).map(at => [at, observed(at)])"""
    found = module(
        "pendulum.js", step, [[state.tolist(), torque] for state, torque in zip(states, torques, strict=True)]
    )
    np.testing.assert_allclose([at for at, _ in found], expected, rtol=1e-12)
    np.testing.assert_allclose([features for _, features in found], seen, atol=1e-6)


def test_the_grid_of_the_page_is_that_of_python(module: Module) -> None:
    ours = pendulum_grid(0.95, 9, 7, 5)
    code = """({ PendulumGrid }, given) => {
        const { mdp, states, torques } = new PendulumGrid(given);
        return { states, torques, start: [...mdp.start], column: [...mdp.column], share: [...mdp.share] };
    }"""
    found = module("pendulum.js", code, {"angles": 9, "speeds": 7, "torques": 5, "gamma": 0.95})
    np.testing.assert_allclose(found["states"], ours.states, atol=1e-12)
    np.testing.assert_allclose(found["torques"], ours.torques)
    theirs = np.zeros((len(ours.states) * 5, len(ours.states)))
    for row, (first, last) in enumerate(zip(found["start"], found["start"][1:], strict=False)):
        np.add.at(theirs[row], found["column"][first:last], found["share"][first:last])
    np.testing.assert_allclose(theirs, 0.95 * np.asarray(ours.mdp.P).reshape(theirs.shape), atol=1e-12)


@pytest.mark.parametrize("how", ["surface", "alike", "nearest"])
def test_points_among_three_numbers_are_located_alike(module: Module, scene: Scene, how: str) -> None:
    tables = scene.agent.model.landmarks
    assert tables is not None
    known = KnownRows(scene.agent.model.observation_encoder)
    states = tables.P.states
    known.know(states.rows, states.scale)
    arrays: dict[str, Any] = {"points": states.rows[:, :3].flatten().tolist(), "scale": states.scale[:3].tolist()}
    if how == "surface":
        known.triangulate(ends=True)
        assert known._surface is not None
        arrays["planes"] = known._surface[0]._axes.ravel().tolist()
    elif how == "alike":
        known.tell_apart(states.examples, states.example_of, states.alike)
        arrays["examples"] = states.examples[:, :3].flatten().tolist()
        arrays |= {"exampleOf": states.example_of.tolist(), "alike": states.alike.flatten().tolist()}
    rng = np.random.default_rng(0)
    angle, speed = rng.uniform(-np.pi, np.pi, 300), rng.uniform(-8, 8, 300)
    places = np.stack([np.cos(angle), np.sin(angle), speed], 1).astype(np.float32)
    code = """({ Known }, [given, corners, places]) => {
        const arrays = { ...given, planes: given.planes && Float64Array.from(given.planes) };
        if (given.alike) Object.assign(arrays, { alike: Uint16Array.from(given.alike) });
        const known = new Known({ ...arrays, corners });
        return places.map(place => known.locate(place));
    }"""
    found = module("locate.js", code, [arrays, known.corners, places.tolist()])
    index, share = known.locate(torch.from_numpy(np.pad(places, ((0, 0), (0, 1)))))
    wrong = 0
    for (theirs, parts), own, shares in zip(found, index.tolist(), share.numpy(), strict=True):
        ours, other = np.zeros(len(states)), np.zeros(len(states))
        np.add.at(ours, own, shares)
        np.add.at(other, theirs, parts)
        wrong += np.abs(ours - other).max() > 1e-4
    assert wrong <= 2  # two points may be equally near
