"""Real environments that real agents play: stepped, placed and drawn."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

import anyreward as ar
from anyreward.errors import UserError
from anyreward.playground.live import Live, action_names, ranges, screen
from anyreward.playground.pictures import png, smaller
from anyreward.worlds.checked import WorldError

ROOT = Path(__file__).parent.parent.parent
TINY: dict[str, Any] = {
    "landmarks": 0, "dim": 8, "hidden": 16, "batch_size": 16, "updates": 10, "evaluate_every": 1_000, "progress": False
}  # fmt: skip
GOAL = (1.45, 0.85, 0.6)


@cache
def trained(world: str) -> ar.Agent:
    """A barely trained agent of a world."""
    return ar.train(world, **TINY)


@cache
def arm() -> ar.Agent:
    """The trained agent of FetchReach that comes with the package."""
    return ar.load("shipped:fetch-reach")


@cache
def pacman() -> ar.Agent:
    """The committed agent of Ms. Pacman."""
    return ar.load(ROOT / "benchmarks" / "results" / "worlds" / "ms-pacman-fast-seed0")


def asked(agent: ar.Agent, reward: ar.Reward) -> ar.Policy:
    return agent.ask(reward, refine=0)


def decoded(frame: bytes) -> np.ndarray[Any, Any]:
    """(height, width, 3) the pixels of a PNG file, by another library."""
    image = Image.open(io.BytesIO(frame))
    assert image.format == "PNG"
    return np.asarray(image)


def red(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(n, 2) the pixels of the arm's goal."""
    channels = image.astype(int)
    return np.argwhere(channels[..., 0] > channels[..., 1:].max(-1) + 90)


STARTS: list[tuple[str, Any, dict[int, float]]] = [
    ("MountainCar-v0", {"f0": 0.3, "f1": 0.02}, {0: 0.3, 1: 0.02}),
    ("MountainCar-v0", [-0.9, 0.5], {0: -0.9, 1: 0.07}),  # no car is faster
    ("CartPole-v1", np.array([1.5, -0.5]), {0: 1.5, 1: -0.5}),
    ("CartPole-v1", {"f2": -0.1}, {2: -0.1}),
]


@pytest.mark.parametrize(("world", "start", "expected"), STARTS)
def test_an_episode_begins_where_it_was_asked_to(world: str, start: Any, expected: dict[int, float]) -> None:
    agent = trained(world)
    policy = asked(agent, ar.reward("f0"))
    with closing(Live(agent)) as live:
        ordinary = live.restart()
        before = live.frame()
        placed = live.restart(start)
        assert (ordinary["placed"], placed["placed"]) == (False, True)
        features = placed["features"]
        assert {i: features[i] for i in expected} == pytest.approx(expected, abs=1e-6)
        assert np.abs(np.delete(features, list(expected))).max(initial=0) < 0.051  # as at an ordinary start
        assert live.frame() != before
        moved = live.step(policy)
    # the state itself has changed, and not only what is observed of it
    twin = gym.make(world).unwrapped
    twin.reset()
    twin.state = np.array(features)
    after = twin.step(np.int64(moved["action"]))[0]
    assert moved["features"] == pytest.approx(after.tolist(), abs=1e-5)


def test_states_with_a_number_or_coordinates_are_placed() -> None:
    with closing(Live(trained("FrozenLake-v1"))) as live:
        assert live.restart({"f0": 10})["features"] == [10.0]
        assert live.restart([99])["features"] == [15.0]
        assert live.restart()["features"] == [0.0]
    with closing(Live(ar.load("shipped:four-rooms"))) as live:
        placed = live.restart({"x": 8, "y": 2})
        assert (placed["features"], placed["placed"]) == ([8.0, 2.0], True)
        assert not live.restart((5, 1))["placed"]  # a wall
    with closing(Live(ar.load("shipped:continuous-maze-d25"), drawn=("y", "x"))) as live:
        placed = live.restart((0.125, 0.75))
        assert (placed["features"], placed["placed"]) == ([0.75, 0.125], True)


def test_a_state_that_is_not_observed_cannot_be_placed() -> None:
    with closing(Live(trained("Acrobot-v1"))) as live:
        started = live.restart({"f0": -1.0})
        assert not started["placed"]
        assert started["features"][0] > 0.99  # it hangs down, as ever


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([0.1], "expected 2 numbers: f0, f1"),
        ({"speed": 1.0}, "no feature 'speed'"),
        ([float("nan"), 0], "f0 = nan"),
        (["left", 0], "f0 = 'left'"),
        ("01", "expected 2 numbers"),
        (3.0, "expected 2 numbers"),
    ],
)
def test_wrong_starts_are_named(start: Any, message: str) -> None:
    with closing(Live(trained("MountainCar-v0"))) as live:
        with pytest.raises(UserError, match=message):
            live.restart(start)
        assert live.restart([0.1, 0.0])["placed"]


def test_drawn_features_must_exist() -> None:
    with pytest.raises(UserError, match="no feature 'z'"):
        Live(trained("MountainCar-v0"), drawn=("f0", "z"))


@pytest.mark.parametrize(
    ("world", "size"),
    [
        ("CartPole-v1", (480, 320)),
        ("MountainCar-v0", (480, 320)),
        ("Acrobot-v1", (480, 480)),
        ("FrozenLake-v1", (256, 256)),
    ],
)
def test_worlds_are_drawn(world: str, size: tuple[int, int]) -> None:
    agent = trained(world)
    policy = asked(agent, ar.reward("f0"))
    with closing(Live(agent)) as live:
        told = live.describe()
        assert told["rendered"] is live.rendered is True
        assert (told["width"], told["height"]) == size
        assert len(told["actions"]) == agent.model.phi.actions
        assert told["screen"] is None
        json.dumps(told)
        frames = [live.frame()]
        for _ in range(12):
            step = live.step(policy)
            assert step["action_name"] == told["actions"][step["action"]]
            json.dumps(step, allow_nan=False)
            frames.append(live.frame())
    images = [decoded(frame) for frame in frames]
    assert all(image.shape == (size[1], size[0], 3) and image.std() > 5 for image in images)
    assert len(set(frames)) > 1


def test_episodes_end_and_begin_again() -> None:
    agent = trained("CartPole-v1")
    policy = asked(agent, ar.reward("f0"))
    with closing(Live(agent)) as live:
        assert live.restart()["episode"] == 2
        steps = [live.step(policy) for _ in range(120)]
    ends = [i for i, step in enumerate(steps[:-1]) if step["over"]]
    assert ends
    assert all(step["reward"] == 1 for step in steps)
    for i in ends:
        last, first = steps[i], steps[i + 1]
        assert abs(last["features"][0]) > 2.4 or abs(last["features"][2]) > 0.2  # the true end, not a new start
        assert (first["steps"], first["episode"], last["episode"]) == (1, last["episode"] + 1, last["episode"])
        assert np.abs(first["features"]).max() < 0.5
    assert [step["steps"] for step in steps[: ends[0] + 1]] == list(range(1, ends[0] + 2))


def test_the_arm_moves_to_the_goal_that_is_asked() -> None:
    agent = arm()
    policy = asked(agent, ar.goal(*GOAL))
    with closing(Live(agent)) as live:
        assert not live.restart(GOAL[:2])["placed"]
        assert not len(red(decoded(live.frame())))  # nothing has been asked yet
        steps = [live.step(policy) for _ in range(25)]
        distances = [np.linalg.norm(np.subtract(step["features"], GOAL)) for step in steps]
        assert min(distances) < 0.05
        # the arm's own reward is about the goal that was asked
        assert [step["reward"] == 0 for step in steps] == [bool(d < 0.05) for d in distances]
        live.step(asked(agent, ar.goal(1.25, 0.6, 0.7)))
        marked = red(decoded(live.frame()))
        assert len(marked) > 2
        live.step(asked(agent, ar.reward("gz")))
        assert not len(red(decoded(live.frame())))
    low, high = np.array(ranges(agent)).T
    assert low.shape == high.shape == (3,)
    assert (low < GOAL).all()
    assert (high > GOAL).all()


def test_ms_pacman_is_where_her_features_say() -> None:
    agent = pacman()
    policy = asked(agent, ar.goal(11, 103))
    view = screen(agent)
    assert view is not None
    size = np.array([view["width"], view["height"]])
    twin = gym.make("anyreward/MsPacman-v0", render_mode="rgb_array")
    twin.reset(seed=0)
    seen = 0
    with closing(Live(agent)) as live:
        assert live.describe()["screen"] == view
        for _ in range(20):
            step = live.step(policy)
            assert not step["over"]
            twin.step(np.int64(step["action"]))
            ram = twin.unwrapped.game.getRAM()
            assert step["features"] == [float(ram[10]) - 8, float(ram[16]) + 6]
            image = decoded(live.frame())
            assert np.array_equal(image, twin.render())
            yellow = np.argwhere((image[:170] == (210, 164, 74)).all(2))[:, ::-1]
            if len(yellow):  # she blinks
                at = np.array(view["low"]) + (yellow.mean(0) + 0.5) / size * np.subtract(view["high"], view["low"])
                assert np.abs(at - step["features"]).max() < 3
                seen += 1
    twin.close()
    assert seen > 10
    assert ranges(agent)[0][0] >= 0
    assert step["features"][0] < 40  # from 80, to the goal on the left


def test_calls_may_come_from_any_thread() -> None:
    agent = arm()
    policy = asked(agent, ar.goal(*GOAL))

    def play(live: Live, call: Callable[[Callable[[], Any]], Any]) -> list[Any]:
        call(live.restart)
        return [(call(lambda: live.step(policy)), call(live.frame)) for _ in range(5)]

    with closing(Live(agent, seed=3)) as live:
        alone = play(live, lambda function: function())
    assert all(decoded(frame).std() > 20 for _, frame in alone)  # OpenGL is black in a thread that is not its own

    def elsewhere(function: Callable[[], Any]) -> Any:
        with ThreadPoolExecutor(1) as other:
            return other.submit(function).result()

    with ThreadPoolExecutor(2) as pool:  # two at once, each used by many threads
        lives = list(pool.map(lambda seed: Live(agent, seed=seed), (3, 3)))
        both = [pool.submit(play, live, elsewhere) for live in lives]
        assert [one.result() for one in both] == [alone, alone]
        list(pool.map(Live.close, [*lives, *lives]))


def test_closing_one_does_not_disturb_another() -> None:
    first, second = (Live(trained(world)) for world in ("CartPole-v1", "MountainCar-v0"))
    before = second.frame()
    first.close()
    assert second.frame() == before
    second.close()
    second.close()
    policy = asked(trained("MountainCar-v0"), ar.reward("f0"))
    for call in (second.frame, second.restart, second.describe, lambda: second.step(policy)):
        with pytest.raises(UserError, match="is closed"):
            call()


def test_a_program_that_forgets_to_close_ends_quietly() -> None:
    program = """
import anyreward as ar
from anyreward.playground.live import Live
live = Live(ar.load("shipped:fetch-reach"))
print(live.frame()[:4])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'\\x89PNG'\n", "")


class Odd(gym.Env[Any, Any]):
    """An environment that counts its steps."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    picture: Any = None
    """what it draws, or the error that drawing raises"""
    breaks = False
    """whether the third step raises an error"""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, 1_000, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2, start=5)
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if Odd.breaks and self.count == 3:
            raise ZeroDivisionError("no step three")
        return np.full(1, self.count, dtype=np.float32), 0.5, False, False, {}

    def render(self) -> Any:
        if isinstance(self.picture, Exception):
            raise self.picture
        return self.picture


class Hidden(Odd):
    """It has no picture at all."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()


@pytest.fixture(scope="module")
def odd() -> Iterator[Callable[[str], ar.Agent]]:
    """Agents of these worlds."""
    for name, kind in (("Odd", Odd), ("Hidden", Hidden)):
        gym.register(id=f"tests/{name}-v0", entry_point=kind, max_episode_steps=10)
    yield lambda name: trained(f"tests/{name}-v0")
    for name in ("Odd", "Hidden"):
        gym.registry.pop(f"tests/{name}-v0")


@pytest.mark.parametrize(
    ("name", "picture", "reason"),
    [
        ("Hidden", None, "has no render_mode 'rgb_array'"),
        ("Odd", OSError("no display"), "Odd-v0, render after 0 steps: the environment raised OSError: no display"),
        ("Odd", None, "expected an image"),
        ("Odd", np.zeros((4, 4, 3)), "expected an image"),
        ("Odd", np.zeros((4, 4, 7), dtype=np.uint8), "expected an image"),
    ],
)
def test_without_pictures_it_still_runs(
    odd: Callable[[str], ar.Agent], monkeypatch: pytest.MonkeyPatch, name: str, picture: Any, reason: str
) -> None:
    monkeypatch.setattr(Odd, "picture", picture)
    agent = odd(name)
    with closing(Live(agent)) as live:
        told = live.describe()
        assert told["rendered"] is live.rendered is False
        assert reason in told["reason"]
        assert (told["width"], told["height"], told["actions"], told["first_action"]) == (0, 0, [], 5)
        assert live.frame() == b""
        steps = [live.step(asked(agent, ar.reward("f0"))) for _ in range(11)]
        assert live.frame() == b""
    assert [step["features"] for step in steps] == [[float(i)] for i in (*range(1, 11), 1)]
    assert [step["over"] for step in steps] == [False] * 9 + [True, False]
    assert {step["action"] for step in steps} <= {5, 6}
    assert "action_name" not in steps[0]


def test_faults_of_an_environment_are_named(odd: Callable[[str], ar.Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    grey = np.arange(20, dtype=np.uint8).reshape(4, 5)
    monkeypatch.setattr(Odd, "picture", grey)
    agent = odd("Odd")
    policy = asked(agent, ar.reward("f0"))
    with closing(Live(agent)) as live:
        assert np.array_equal(decoded(live.frame()), np.repeat(grey[..., None], 3, 2))
        monkeypatch.setattr(Odd, "picture", OSError("the display is gone"))
        with pytest.raises(WorldError, match=r"Odd-v0, render after 0 steps: .*OSError: the display is gone"):
            live.frame()
        monkeypatch.setattr(Odd, "breaks", True)
        live.step(policy)
        live.step(policy)
        with pytest.raises(WorldError, match=r"Odd-v0, step 3: the environment raised ZeroDivisionError"):
            live.step(policy)
        assert live.restart()["features"] == [0.0]
        with pytest.raises(UserError, match="belongs to another agent"):
            live.step(asked(trained("CartPole-v1"), ar.reward("f0")))


def test_agents_without_a_world_have_nothing_to_watch(odd: Callable[[str], ar.Agent]) -> None:
    env = gym.make("tests/Hidden-v0")
    with pytest.raises(UserError, match="cannot be reopened"):
        Live(ar.train(env, **TINY))
    env.close()


def test_on_macos_the_arm_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = arm()
    policy = asked(agent, ar.goal(*GOAL))
    monkeypatch.setattr(sys, "platform", "darwin")
    with closing(Live(agent)) as live:
        assert "main thread" in live.describe()["reason"]
        assert live.frame() == b""
        assert live.step(policy)["steps"] == 1


def test_names_of_actions_fit_the_actions() -> None:
    for name in ("CliffWalking-v1", "Taxi-v4", "FrozenLake8x8-v1", "anyreward/Labyrinth-v0"):
        env = gym.make(name)
        assert len(action_names(env)) == env.action_space.n
        env.close()
    env = gym.make("MountainCar-v0")
    env.reset(seed=0)
    velocity = [env.step(i)[0][1] - env.reset(seed=0)[0][1] for i in range(3)]
    assert action_names(env) == ("left", "coast", "right")
    assert velocity == sorted(velocity)
    env.close()


def test_large_images_are_averaged() -> None:
    rng = np.random.default_rng(0)
    small = rng.integers(256, size=(100, 240, 3), dtype=np.uint8)
    assert smaller(small) is small
    big = small.repeat(4, axis=0).repeat(4, axis=1)
    assert np.array_equal(smaller(big), small.repeat(2, axis=0).repeat(2, axis=1))
    odd = rng.integers(256, size=(700, 531, 3), dtype=np.uint8)
    assert smaller(odd).shape == (480, 364, 3)
    assert smaller(odd).mean() == pytest.approx(odd.mean(), abs=0.1)
    assert smaller(np.zeros((1, 2_000, 3), dtype=np.uint8)).shape == (1, 480, 3)
    assert np.array_equal(decoded(png(odd)), odd)
