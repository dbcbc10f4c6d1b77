"""The page in a real browser: served by the library, and as one file without any server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright (pip install playwright)")
from playwright.sync_api import Browser, Page, ViewportSize

import anyreward as ar
from anyreward.playground.export import export_page
from anyreward.playground.scene import Scene
from anyreward.playground.shelf import Shelf
from anyreward.playground.task import reward_of
from tests.playground.serving import Running, served

WIDE, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with served(Shelf(None, tmp_path_factory.mktemp("no-runs"))) as running:
        yield running


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the agents of both kinds of mazes."""
    page = tmp_path_factory.mktemp("page") / "page.html"
    export_page([Path(f"shipped:{name}") for name in ("four-rooms", "four-rooms-d4", "continuous-maze")], page)
    return page


@pytest.fixture(params=["served", "exported"])
def home(request: pytest.FixtureRequest, server: Running, exported: Path) -> str:
    """The address of the page in each of its homes."""
    return f"http://{server.host}/" if request.param == "served" else exported.as_uri()


class Tab:
    """A page with the words of these tests; errors in the page fail them."""

    def __init__(self, browser: Browser, address: str, size: ViewportSize = WIDE, **more: Any) -> None:
        self.context = browser.new_context(viewport=size, offline=address.startswith("file:"), **more)
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(address)
        self.wait("playground.ready === true")

    def _heard(self, line: Any) -> None:
        if line.type == "error" and not line.text.startswith("Failed to load resource"):  # a refusal is no error
            self.errors.append(line.text)

    def run(self, code: str, *arguments: Any) -> Any:
        return self.page.evaluate(code, *arguments)

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Wait until JavaScript is true: `Page.wait_for_function` would need eval, which the page forbids."""
        until = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < until, f"waited for {condition}; {self.errors}"
            self.page.wait_for_timeout(30)

    def settled(self) -> None:
        """Wait for the answer and the explanation of the present task."""
        self.wait("playground.answered === playground.version && playground.explained === playground.version", 40)

    def choose(self, name: str) -> None:
        self.page.select_option("#agent", label=name)
        self.wait(f"playground.engine.scene.shipped === '{name}'")

    def tool(self, name: str) -> None:
        self.page.click(f"#tools button[data-tool={name}]")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixels of a place, in the world's own units."""
        box = self.page.locator("#world").bounding_box()
        assert box is not None
        scene = self.run("playground.engine.scene")
        if scene["kind"] == "maze":
            across, down = (x + 0.5) / scene["grid"]["width"], (y + 0.5) / scene["grid"]["height"]
            return box["x"] + across * box["width"], box["y"] + down * box["height"]
        return box["x"] + 34 + x * (box["width"] - 44), box["y"] + 8 + (1 - y) * (box["height"] - 42)

    def stroke(self, *places: tuple[float, float]) -> None:
        """Drag over places."""
        mouse = self.page.mouse
        mouse.move(*self.at(*places[0]))
        mouse.down()
        for place in places[1:]:
            mouse.move(*self.at(*place), steps=4)
        mouse.up()

    def values(self) -> np.ndarray[Any, Any]:
        value = self.run("Array.from(playground.answer.value, v => Number.isNaN(v) ? null : v)")
        return np.array([np.nan if v is None else v for v in value])

    def z(self) -> np.ndarray[Any, Any]:
        return np.array(self.run("Array.from(playground.answer.z)"))

    def pixels(self) -> bytes:
        return self.page.locator("#world").screenshot()

    def close(self) -> None:
        self.context.close()
        assert self.errors == []


@pytest.fixture
def tab(browser: Browser, home: str) -> Iterator[Tab]:
    found = Tab(browser, home, permissions=["clipboard-read", "clipboard-write"] if home.startswith("http") else [])
    yield found
    found.close()


def path_of(tab: Tab, steps: int = 60) -> list[tuple[int, int]]:
    """The greedy path in the four rooms from the first cell, by the actions that the page draws."""
    actions = tab.run("Array.from(playground.answer.action)")
    maze = ar.open_world("four-rooms").make().unwrapped.maze
    cell = int(maze.free[0])
    cells = [cell]
    for _ in range(steps):
        cell = int(maze.successors[cell, actions[cell]])
        cells.append(cell)
    return [(c % maze.width, c // maze.width) for c in cells]


def test_painting_changes_the_picture_and_the_path_reaches_the_paint(tab: Tab) -> None:
    assert "Paint a reward here" in tab.page.inner_text("#empty")
    before = tab.pixels()
    tab.stroke((9, 9), (9, 8))
    tab.settled()
    assert tab.page.inner_text("#empty") == ""
    assert tab.pixels() != before
    values = tab.values().reshape(11, 11)
    assert np.unravel_index(np.nanargmax(values), values.shape) in [(9, 9), (8, 9)]
    assert path_of(tab)[-1] in [(9, 9), (9, 8)]
    assert "1.000 of what is possible" in tab.page.inner_text("#score")
    assert "good" in tab.page.inner_text("#trust")
    first = tab.values()
    tab.tool("cost")
    tab.stroke((8, 2))
    tab.settled()
    assert not np.array_equal(tab.values(), first, equal_nan=True)


def test_forbidden_cells_are_avoided(tab: Tab) -> None:
    tab.tool("goal")
    tab.page.mouse.click(*tab.at(9, 1))
    tab.settled()
    assert (5, 2) in path_of(tab)
    tab.page.fill("#expression", "-20 * (x == 5) * (y == 2)")
    tab.page.press("#expression", "Enter")
    tab.settled()
    way = path_of(tab)
    assert (5, 2) not in way
    assert way[-1] == (9, 1)
    tab.page.click("#undo")
    tab.tool("avoid")
    tab.page.mouse.click(*tab.at(5, 2))
    assert tab.page.locator("#terms .what").all_inner_texts() == ["goal (9, 1)", "forbidden (5, 2)"]
    tab.settled()
    way = path_of(tab)
    assert (5, 2) not in way
    assert way[-1] == (9, 1)
    tab.page.locator("#terms input").nth(1).fill("-0.5")
    tab.page.locator("#terms input").nth(1).press("Enter")
    tab.settled()
    assert (5, 2) in path_of(tab)  # this costs less than the detour


def test_errors_of_expressions_appear_in_place(tab: Tab) -> None:
    page = tab.page
    page.fill("#expression", "(x > 6) * exq(-y)")
    assert "exq" in page.inner_text("#expression-error")
    assert page.locator("#caret").evaluate("e => e.textContent").index("^") == 10
    page.press("#expression", "Enter")
    assert page.locator("#terms li").count() == 0
    page.fill("#expression", "x +* 3")
    assert page.locator("#caret").evaluate("e => e.textContent").index("^") == 3
    page.fill("#expression", "speed > 3")
    assert "speed" in page.inner_text("#expression-error")
    assert "x, y" in page.inner_text("label[for=expression]")
    page.fill("#expression", "")
    page.locator("#expression").press_sequentially("sq")
    assert page.inner_text("#completions li >> nth=0").startswith("sqrt")
    page.press("#expression", "Tab")
    assert page.input_value("#expression") == "sqrt("
    page.fill("#expression", "1 / (x - x)")
    page.press("#expression", "Enter")
    tab.wait("document.getElementById('status').textContent.includes('finite')")
    assert "bad" in (page.get_attribute("#status", "class") or "")
    tab.page.click("#undo")
    tab.wait("playground.answered === playground.version")


def test_undo_and_redo(tab: Tab) -> None:
    tab.stroke((9, 9), (8, 9), (7, 9))
    tab.settled()
    painted = tab.z()
    tab.stroke((1, 1), (2, 1))
    tab.settled()
    both = tab.z()
    assert not np.allclose(painted, both)
    tab.page.keyboard.press("Control+z")
    tab.settled()
    np.testing.assert_array_equal(tab.z(), painted)
    tab.page.click("#redo")
    tab.settled()
    np.testing.assert_array_equal(tab.z(), both)
    tab.page.click("#undo")
    tab.page.click("#undo")
    tab.wait("playground.answer === null")
    assert tab.page.is_disabled("#undo")
    assert "Paint a reward here" in tab.page.inner_text("#empty")


def rich_task(tab: Tab) -> None:
    """Paint, a cost, a goal, an expression and a demonstration, blended with another task."""
    maze = tab.run("playground.engine.scene.kind") == "maze"
    places = [(9, 9), (8, 8), (2, 2), (1, 1)] if maze else [(0.9, 0.1), (0.85, 0.2), (0.3, 0.8), (0.1, 0.9)]
    tab.tool("reward")
    tab.stroke(*places[:2])
    tab.tool("goal")
    tab.page.mouse.click(*tab.at(*places[2]))
    tab.tool("follow")
    tab.stroke((1, 1), (3, 1), (3, 2), (6, 2)) if maze else tab.stroke((0.1, 0.1), (0.4, 0.5), (0.6, 0.5))
    tab.page.fill("#expression", "0.3 * exp(-y / 2) - 0.01 * x**2")
    tab.page.press("#expression", "Enter")
    tab.page.click("#task-b")
    tab.tool("cost")
    tab.stroke(places[3], places[2])
    tab.page.locator("#blend").fill("0.3")
    tab.settled()


@pytest.mark.parametrize("name", ["four-rooms", "continuous-maze"])
def test_the_copied_code_runs_and_gives_the_same_z(tab: Tab, name: str, tmp_path: Path) -> None:
    tab.choose(name)
    rich_task(tab)
    python, z = tab.page.inner_text("#code"), tab.z()
    assert len(tab.run("playground.task.terms")) == 5
    tab.page.click("#as-command")
    command = tab.page.inner_text("#code")
    script = f"{python}\nimport json\njson.dump(policy.belief.found.z.tolist(), open('z.json', 'w'))\n"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    ours = np.array(json.loads((tmp_path / "z.json").read_text()))
    np.testing.assert_allclose(z, ours, rtol=0, atol=1e-5 * np.abs(ours).max())
    folder = Path(sys.executable).parent
    line = f"export PATH={folder}:$PATH; {command.rstrip()} --save saved.json"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    saved = np.array(json.loads((tmp_path / "saved.json").read_text())["z_R"])
    np.testing.assert_allclose(saved, ours, rtol=1e-12, atol=1e-14 * np.abs(ours).max())


def test_an_address_opens_the_same_task(tab: Tab, browser: Browser) -> None:
    tab.choose("continuous-maze")
    rich_task(tab)
    tab.page.click("#share")
    address = tab.page.url
    assert "#" in address
    other = Tab(browser, address)
    other.settled()
    assert other.run("playground.engine.scene.shipped") == "continuous-maze"
    np.testing.assert_array_equal(other.z(), tab.z())
    assert other.page.locator("#terms li").count() == tab.page.locator("#terms li").count()
    other.close()
    broken = Tab(browser, address.split("#")[0] + "#not-a-task!")
    assert "cannot be read" in broken.page.inner_text("#status")
    broken.close()


def test_presets_and_those_that_fail(tab: Tab) -> None:
    for agent in ("four-rooms", "continuous-maze"):
        tab.choose(agent)
        names = tab.page.locator("#preset > option").all_inner_texts()[1:]
        assert len(names) >= 5
        for name in names:
            tab.page.select_option("#preset", label=name)
            tab.settled()
            score = tab.run("playground.explanation.optimum.normalised")
            assert score > 0.9, (agent, name, score)
    tab.choose("four-rooms-d4")
    tab.page.select_option("#preset", label="checkerboard (fails where d is small)")
    tab.settled()
    assert tab.run("playground.explanation.optimum.normalised") < 0.5
    assert "good" not in tab.page.inner_text("#trust")


def test_agents_walk_to_the_reward_and_landmarks_explain(tab: Tab) -> None:
    tab.stroke((9, 9), (9, 8))
    tab.tool("agent")
    for place in [(1, 1), (1, 9), (9, 1)]:
        tab.page.mouse.click(*tab.at(*place))
    tab.settled()
    assert tab.run("playground.walkers.all.length") == 3
    tab.wait("playground.walkers.all.every(walker => walker.steps >= 2)")
    tab.wait("playground.walkers.all.some(({ at }) => at[0] === 9 && at[1] >= 8)")
    leads = tab.run("[playground.explanation.landmarks.places, Array.from(playground.explanation.landmarks.leads)]")
    assert leads[0][leads[1][12]] in [[9, 9], [9, 8]]
    tab.page.mouse.move(*tab.at(1, 1))
    tab.wait("document.getElementById('landmark').textContent.includes('heads for the landmark at (9,')")


def test_it_can_be_used_by_keyboard(tab: Tab) -> None:
    page = tab.page
    page.locator("#world").focus()
    for key in ["4", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "Enter"]:  # a goal at (8, 6)
        page.keyboard.press(key)
    tab.settled()
    assert page.locator("#terms .what").all_inner_texts() == ["goal (8, 6)"]
    page.keyboard.press("1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    tab.settled()
    assert page.locator("#terms li").count() == 2


def test_it_fits_a_phone_and_the_dark(browser: Browser, home: str) -> None:
    tab = Tab(browser, home, PHONE, color_scheme="dark", has_touch=True)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    world = tab.page.locator("#world")
    world.scroll_into_view_if_needed()
    tab.page.touchscreen.tap(*tab.at(9, 9))
    tab.settled()
    assert path_of(tab)[-1] == (9, 9)
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    assert tab.run("document.documentElement.scrollWidth") <= 390
    tab.close()


def test_pictures_and_films_are_saved(tab: Tab, tmp_path: Path) -> None:
    from PIL import Image

    tab.stroke((9, 9), (8, 9))
    tab.settled()
    for button, kind in (("png", "PNG"), ("gif", "GIF")):
        with tab.page.expect_download(timeout=60_000) as saving:
            tab.page.click(f"#{button}")
        saving.value.save_as(tmp_path / f"picture.{button}")
        with Image.open(tmp_path / f"picture.{button}") as image:
            assert image.format == kind
            assert min(image.size) > 200
            frames = getattr(image, "n_frames", 1)
            assert frames > 10 if kind == "GIF" else frames == 1


def test_the_exported_page_computes_what_python_computes(browser: Browser, exported: Path) -> None:
    """z, values, actions, optimum and R^2, at a relative error below 1e-4."""
    tab = Tab(browser, exported.as_uri())
    rng = np.random.default_rng(0)
    for name in ("four-rooms", "four-rooms-d4", "continuous-maze"):
        tab.choose(name)
        scene = Scene(ar.Agent.load(f"shipped:{name}"))
        n = len(scene.grid.points)
        scale = 10.0 if scene.kind == "maze" else 1.0
        for trial in range(4):
            runs = [[int(i), *rng.uniform(-1, 1, 3).round(2).tolist()] for i in np.sort(rng.choice(n // 4, 3)) * 4]
            terms: list[dict[str, Any]] = [{"kind": "paint", "runs": runs, "weight": 1.0}]
            if trial % 2:
                text = f"exp(-hypot(x - {rng.uniform(0, scale):.3f}, y - {rng.uniform(0, scale):.3f}) / {scale / 5})"
                terms.append({"kind": "expression", "text": text, "weight": -1.5})
            if trial > 1 and scene.kind == "maze":
                terms.append({"kind": "goal", "at": [8, 2], "weight": 0.7})
            task = {"terms": terms}
            theirs = tab.run(
                """async task => {
                    const { engine } = playground;
                    const answer = await engine.answer(task);
                    const found = await engine.explain(task, answer);
                    const places = Array.from({ length: 50 }, (_, i) => [((i * 37) % 100) / 99, ((i * 61) % 100) / 99]);
                    const acts = engine.scene.kind === "square" ? await engine.acts(task, places, answer) : [];
                    const { achieved, optimal, random } = found.optimum;
                    const plain = v => Array.from(v, x => Number.isNaN(x) ? null : x);
                    return { z: plain(answer.z), value: plain(answer.value), action: plain(answer.action), places, acts,
                        scores: [achieved, optimal, random], share: engine.represented(task) };
                }""",
                task,
            )
            policy = scene.agent.ask(reward_of(task, scene), refine=0)
            value, action = scene.grid.answer(policy)
            near(theirs["z"], policy.belief.found.z.numpy())
            near(theirs["value"], value)
            if theirs["acts"]:
                ours = policy.act(np.array(theirs["places"], dtype=np.float32))
                assert np.mean(ours != np.array(theirs["acts"])) <= 0.02  # ties
            assert np.mean(np.array(theirs["action"]) != action) <= 0.01
            assert scene.optimum is not None
            best = scene.optimum.compare(policy, scene.grid.points)
            assert best is not None
            near(theirs["scores"], [best[key] for key in ("achieved", "optimal", "random")])
            assert policy.trust.represented == pytest.approx(theirs["share"], abs=1e-3)
    tab.close()


def near(theirs: list[float | None], ours: Any) -> None:
    got = np.array([np.nan if x is None else x for x in theirs])
    expected = np.asarray(ours, dtype=np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.nanmax(np.abs(expected)), rtol=0)


def test_networks_are_exported_too(browser: Browser, tmp_path: Path) -> None:
    """The forward pass in JavaScript, for one-hot states, radial basis functions and both presets."""
    small = {"landmarks": 0, "dim": 8, "hidden": 24, "updates": 120, "batch_size": 32, "progress": False}
    agents = {
        "rooms": ar.train("four-rooms", **small),
        "rooms-paper": ar.train("four-rooms", preset="paper", **small),
        "square": ar.train("continuous-maze", **small),
    }
    folders = [agent.save(tmp_path / name) for name, agent in agents.items()]
    export_page(folders, tmp_path / "page.html")
    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    for number, agent in enumerate(agents.values()):
        tab.page.select_option("#agent", value=str(number))
        tab.wait(f"playground.engine.scene.id === '{number}'")
        scene = Scene(agent)
        for text in ("x * y", "x > 3" if scene.kind == "maze" else "x > 0.4"):
            terms: list[dict[str, Any]] = [{"kind": "expression", "text": text, "weight": 1.0}]
            if scene.kind == "square":
                terms.append({"kind": "demonstration", "states": [[0.2, 0.3], [0.4, 0.5]], "weight": 0.1})
            theirs = tab.run(
                """async task => {
                    const answer = await playground.engine.answer(task);
                    return [answer.z, answer.value].map(v => Array.from(v, x => Number.isNaN(x) ? null : x));
                }""",
                {"terms": terms},
            )
            policy = agent.ask(reward_of({"terms": terms}, scene), refine=0)
            near(theirs[0], policy.belief.found.z.numpy())
            near(theirs[1], scene.grid.answer(policy)[0])
    tab.close()


def test_other_worlds_are_planes_and_the_real_one_is_watched(browser: Browser, server: Running) -> None:
    tab = Tab(browser, f"http://{server.host}/")
    tab.choose("mountain-car")
    tab.page.select_option("#preset", label="a goal")
    tab.settled()
    page = tab.page
    page.click("#live-run")
    tab.wait("document.getElementById('frame').naturalWidth > 0", 30)
    tab.wait("/step [2-9]/.test(document.getElementById('live-text').textContent)", 30)
    tab.tool("agent")
    page.mouse.click(*tab.at(0.5, 0.5))
    tab.wait("!document.getElementById('live-text').textContent.includes('where it likes')")
    page.click("#live-run")
    assert page.inner_text("#live-run") == "Continue"
    tab.close()


def test_actions_of_many_numbers_are_drawn_and_watched(browser: Browser, point_mass_folder: Path) -> None:
    with served(Shelf(point_mass_folder, point_mass_folder / "none")) as running:
        tab = Tab(browser, f"http://{running.host}/")
        before = tab.pixels()
        tab.page.select_option("#preset", label="large y")
        tab.settled()
        assert tab.pixels() != before
        assert "arrows: push in x and push in y" in tab.page.inner_text("#scale-text")
        assert tab.page.locator("#across option").all_inner_texts() == ["x", "y", "vx", "vy"]
        tab.page.click("#live-run")
        tab.wait("/step [2-9], push in x .*, push in y/.test(document.getElementById('live-text').textContent)", 30)
        tab.page.select_option("#across", label="vx")
        tab.wait("playground.engine.scene.axes[0].name === 'vx'")
        tab.settled()
        tab.close()


def test_words_for_a_server_that_is_gone(browser: Browser, tmp_path: Path) -> None:
    with served(Shelf(None, tmp_path)) as running:
        tab = Tab(browser, f"http://{running.host}/")
    tab.stroke((9, 9), (9, 8))
    tab.wait("document.getElementById('status').textContent.includes('anyreward play')", 30)
    tab.context.close()


def test_a_task_stays_in_its_world(tab: Tab, browser: Browser) -> None:
    tab.stroke((9, 9), (9, 8))
    tab.settled()
    tab.choose("four-rooms-d4")
    tab.settled()
    assert tab.page.locator("#terms li").count() == 1  # the same world: the task stays
    tab.choose("continuous-maze")
    tab.wait("playground.answer === null && playground.answered === playground.version")
    assert tab.page.locator("#terms li").count() == 0
    assert tab.page.is_disabled("#undo")
    tab.page.click("#share")
    unknown = tab.run(
        """() => {
            const data = JSON.parse(atob(location.hash.slice(1)));
            data.agent.name = "nobody";
            return location.href.split("#")[0] + "#" + btoa(JSON.stringify(data));
        }"""
    )
    other = Tab(browser, unknown)
    assert '"nobody", which is not offered here' in other.page.inner_text("#status")
    assert other.page.locator("#terms li").count() == 0
    other.close()


def test_an_error_replaces_the_answer(tab: Tab) -> None:
    tab.stroke((9, 9), (9, 8))
    tab.settled()
    assert "1.000" in tab.page.inner_text("#score")
    tab.page.fill("#expression", "1e300 * x")
    tab.page.press("#expression", "Enter")
    tab.wait("playground.answer === null")
    assert "No answer" in tab.page.inner_text("#score")
    assert tab.page.inner_text("#trust") == ""
    tab.page.click("#undo")
    tab.settled()
    assert "1.000" in tab.page.inner_text("#score")


def test_a_task_without_a_share_says_so(tab: Tab) -> None:
    tab.tool("goal")
    tab.page.mouse.click(*tab.at(1, 1))
    tab.page.click("#task-b")
    tab.page.locator("#blend").fill("0")
    tab.page.mouse.click(*tab.at(9, 9))
    tab.settled()
    assert "Task B has no share" in tab.page.inner_text("#status")
    assert path_of(tab)[-1] == (1, 1)
    tab.page.locator("#blend").fill("1")
    tab.settled()
    assert path_of(tab)[-1] == (9, 9)
