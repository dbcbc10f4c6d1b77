"""A real environment that a policy of an agent plays, rendered for the web page."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import gymnasium as gym
import numpy as np

from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError, shown
from anyreward.model.features import FeatureMap
from anyreward.playground.coordinates import coordinates_of, named, short_id, state_names
from anyreward.playground.pictures import png, smaller
from anyreward.playground.placing import Placing, wanted
from anyreward.worlds import continuous_maze, fetch_reach, maze, ms_pacman
from anyreward.worlds.checked import failed, fault, name_of
from anyreward.worlds.fetch_reach import FetchReachEnv
from anyreward.worlds.spaces import Array, one_line
from anyreward.worlds.stepping import around
from anyreward.worlds.world import World

SCREENS: dict[str, dict[str, Any]] = {
    "anyreward/MsPacman-v0": {"width": 160, "height": 210, "low": [0.0, 0.0], "high": [160.0, 210.0]}
}
"""Worlds whose frames show two features to scale; see `screen`."""
ACTIONS = {
    "MountainCar": ("left", "coast", "right"),
    "CartPole": ("left", "right"),
    "Acrobot": ("torque -1", "no torque", "torque +1"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "anyreward/FetchReach": fetch_reach.ACTION_NAMES,
    "anyreward/MsPacman": ms_pacman.ACTION_NAMES,
    "anyreward/ContinuousMaze": continuous_maze.ACTION_NAMES,
    "Pendulum": ("torque",),
    "MountainCarContinuous": ("force",),
    "anyreward/PointMassMaze": ("push in x", "push in y"),
} | {f"anyreward/{name}": maze.ACTION_NAMES for name in ("FourRooms", "Labyrinth", "Pillars", "RandomMaze", "Maze")}
"""The names of the actions of environments, or of the numbers of an action, by their Gymnasium id without version."""

P = ParamSpec("P")
T = TypeVar("T")


class Live:
    """One real environment of an agent's world, which policies of the agent play step by step.

    It may be used by several threads, but all calls run in one thread of its own: MuJoCo draws with OpenGL, whose
    context belongs to one thread, and returns black images in any other.

    Args:
        agent: the agent; its world is opened again, with rendering where the world supports it.
        seed: of the first episode; the later ones continue its random numbers.
        drawn: names of the features that `restart` takes as a sequence; by default the first two. For an angle whose
            cosine and sine are features f0 and f1, the name may be ``"arctan2(f1, f0)"``.
    """

    def __init__(self, agent: Agent, seed: int = 0, drawn: Sequence[str] = ()) -> None:
        self._lock, self._closed = threading.Lock(), False
        self._thread = ThreadPoolExecutor(1, "anyreward-live")
        try:
            self._stage = self._call(_Stage, agent, seed, tuple(drawn))
        except BaseException:
            self._thread.shutdown()
            raise

    def describe(self) -> dict[str, Any]:
        """What the page needs to know of the environment.

        ``rendered``: whether there are frames, and if not, ``reason`` says why. ``width`` and ``height`` of the frames
        (0: none). ``fps``: the steps per second at which the world is usually shown. ``actions``: their names, or an
        empty list; for a Box ``name``, ``low`` and ``high`` of each number. ``first_action``: the number of the first
        one. ``screen``: see `screen`.
        """
        return self._call(self._stage.describe)

    @property
    def rendered(self) -> bool:
        """Whether the environment can be rendered; if not, `frame` returns no bytes."""
        return not self._stage.hidden

    def restart(self, start: Mapping[str, float] | Sequence[float] | None = None) -> dict[str, Any]:
        """Begin a new episode, where possible at ``start``: values of features by name, or in the order of ``drawn``.

        Returns ``features`` of the state, ``placed`` (whether the episode begins at ``start``), ``over`` (false),
        ``steps`` (0) and ``episode``. An episode can begin at ``start`` only if the environment's state is what the
        agent observes; features that are not given are those of an ordinary start, and values outside the observation
        space are clipped to it.
        """
        return self._call(self._stage.restart, start)

    def step(self, policy: Policy) -> dict[str, Any]:
        """Take one step of a policy of this agent; after the end of an episode, the first step of the next one.

        Returns ``features`` of the new state, as rewards see them, without action and ``ended``; ``action`` as the
        environment numbers it, and ``action_name`` if it is known, or the list of its numbers for a Box; ``reward``,
        the environment's own; ``over``, whether this step ended the episode; ``steps`` of this episode; ``episode``,
        its number, from 1. After the last step, `frame` still shows the end.
        """
        return self._call(self._stage.step, policy)

    def frame(self) -> bytes:
        """The present state as a PNG image of at most `LARGEST` pixels on each side; empty if it is not rendered.

        FetchReach shows as a red sphere the first goal of the policy of the last step, and no sphere if it has none.
        """
        return self._call(self._stage.frame)

    def close(self) -> None:
        """Close the environment, if it is still open; else it is closed when the program ends."""
        with self._lock:
            if self._closed:
                return
            self._closed, last = True, self._thread.submit(self._stage.close)
        last.result()
        self._thread.shutdown()

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            if self._closed:
                raise UserError("This environment is closed; open another one with Live(agent).")
            result = self._thread.submit(function, *args, **kwargs)
        return result.result()


class _Stage:
    """The environment of a `Live`, and its present episode; all calls come from one thread."""

    def __init__(self, agent: Agent, seed: int, drawn: tuple[str, ...]) -> None:
        self._agent, self._phi = agent, agent.model.phi
        names, coordinates = state_names(agent), coordinates_of(agent)
        self._coordinate = partial(named, coordinates, names)
        self._drawn = drawn or names[:2]
        for name in self._drawn:
            self._coordinate(name)
        world = agent.world()
        self._phi.check_fits(world.name, world.observation_space, world.action_space)
        self._env, self.hidden = _open(world)
        self._size, self._closed = (0, 0), False
        self._steps = self._episode = 0
        self._over = False
        self._policy: Policy | None = None
        self._goal: Array | None = None
        try:
            self._placing = Placing(self._env, self._phi, coordinates)
            self._stepper = around(self._placing)
            self._begin(seed)
            self._draw_first()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)  # after MuJoCo's own, so that it runs before OpenGL is closed

    def describe(self) -> dict[str, Any]:
        return {
            "rendered": not self.hidden,
            **({"reason": self.hidden} if self.hidden else {}),
            "width": self._size[0],
            "height": self._size[1],
            "fps": float(_metadata(self._env).get("render_fps") or 10),
            "actions": described_actions(self._phi, self._env),
            "first_action": self._phi.action_set.start,
            "screen": screen(self._agent),
        }

    def restart(self, start: Mapping[str, float] | Sequence[float] | None) -> dict[str, Any]:
        self._placing.start = {} if start is None else wanted(start, self._drawn, self._coordinate)
        self._begin()
        features = self._features(self._stepper.observations)
        return {"features": features, "placed": self._placing.placed, **self._progress()}

    def step(self, policy: Policy) -> dict[str, Any]:
        if policy.agent != self._agent.fingerprint:
            raise UserError("This policy belongs to another agent; ask the agent whose environment this is.")
        if policy is not self._policy:
            self._policy, self._goal = policy, _goal_of(policy)
        observations = self._stepper.observations  # of a new episode, if the last one is over
        if self._over:
            self._over, self._steps, self._episode = False, 0, self._episode + 1
        self._mark()
        actions = np.asarray(policy.act(observations, warn=False))
        step = self._stepper.step(actions)
        self._steps, self._over = self._steps + 1, bool(step.over[0])
        features = self._features(step.observations, bool(step.terminated[0]))
        return {
            "features": features,
            **self._taken(actions[0]),
            "reward": float(step.rewards[0]) + 0.0,  # never -0.0
            **self._progress(),
        }

    def _taken(self, action: Any) -> dict[str, Any]:
        """An action, as the environment takes it, in JSON."""
        if self._phi.action_set.box is not None:
            return {"action": np.asarray(action, dtype=np.float64).ravel().tolist()}
        number, names = int(action), action_names(self._env)
        return {"action": number} | ({"action_name": names[number - self._phi.action_set.start]} if names else {})

    def frame(self) -> bytes:
        return b"" if self.hidden else png(self._picture())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            self._env.close()
        except Exception as error:  # there is nothing left to do with it
            text = f"{name_of(self._env)}, close: {type(error).__name__}: {one_line(error, 300)}"
            warnings.warn(text, stacklevel=2)

    def _begin(self, seed: int | None = None) -> None:
        self._stepper.reset(seed)
        self._over, self._steps, self._episode = False, 0, self._episode + 1

    def _draw_first(self) -> None:
        """Render the first state; if that fails, there are no frames."""
        if self.hidden:
            return
        try:
            height, width = self._picture().shape[:2]
            self._size = (width, height)
        except UserError as error:
            self.hidden = str(error)

    def _progress(self) -> dict[str, Any]:
        return {"over": self._over, "steps": self._steps, "episode": self._episode}

    def _features(self, observations: Any, terminated: bool = False) -> list[float]:
        """The readable features of a batch of one observation."""
        phi = self._phi
        rows = phi.of(observations, phi.seen(observations, terminated), np.zeros(1, dtype=np.int64))
        return [float(value) for value in phi.readable(rows[:, : phi.state_packed])[0]]

    def _picture(self) -> Array:
        """(height, width, 3) the rendered image."""
        self._mark()
        where = f"render after {self._stepper.steps} steps"
        try:
            image = np.asarray(self._env.render())
        except UserError:
            raise
        except Exception as error:
            raise failed(self._stepper.name, where, error) from error
        if image.ndim == 2:
            image = np.repeat(image[:, :, None], 3, axis=2)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (3, 4) or not image.size:
            wrong = f"it returned {shown(image)}; expected an image of bytes (uint8), (height, width, 3)"
            raise fault(self._stepper.name, where, wrong)
        return smaller(image[:, :, :3])

    def _mark(self) -> None:
        """Show the policy's goal instead of the one that the reset has drawn; the reward of the arm follows it."""
        inner = self._env.unwrapped
        if isinstance(inner, FetchReachEnv):
            inner.arm.model.site("target0").rgba[3] = 0.0 if self._goal is None else 1.0
            if self._goal is not None and self._goal.shape == (3,):
                inner.arm.goal = self._goal.copy()


def screen(agent: Agent) -> dict[str, Any] | None:
    """How positions in the frames are features, for worlds whose frames show two features to scale, else None.

    A frame has ``width`` and ``height`` pixels; ``low`` are the features at its top left corner, ``high`` at its bottom
    right one. Between them features are linear, so a click at (px, py) from the top left corner is the goal
    low + (px / width, py / height) * (high - low). In Ms. Pacman, this is the pixel itself.
    """
    recipe = agent.world_recipe or {}
    return SCREENS.get(str(recipe.get("id"))) if agent.model.phi.kind == "achieved_goal" else None


def ranges(agent: Agent) -> list[tuple[float, float]]:
    """The smallest and the largest value of each readable feature of a state in the agent's training sample."""
    phi = agent.model.phi
    rows = phi.readable(agent.sample.rows.numpy()[:, : phi.state_packed])
    return [(float(low), float(high)) for low, high in zip(rows.min(0), rows.max(0), strict=True)]


def action_names(env: gym.Env[Any, Any]) -> tuple[str, ...]:
    """The names of the actions of an environment, or of the numbers of a Box, if they are known; else empty."""
    space, meanings = env.action_space, getattr(env.unwrapped, "get_action_meanings", None)
    names = ACTIONS.get(short_id(env), ())
    if isinstance(space, gym.spaces.Box):
        return names if len(names) == np.prod(space.shape) else ()
    if not names and callable(meanings):
        names = tuple(str(name) for name in meanings())
    return names if isinstance(space, gym.spaces.Discrete) and len(names) == space.n else ()


def described_actions(phi: FeatureMap, env: gym.Env[Any, Any] | None) -> list[Any]:
    """The names of an agent's actions, if they are known; for a Box, the name and the range of each of its numbers."""
    box, names = phi.action_set.box, () if env is None else action_names(env)
    if box is None:
        return list(names)
    names = names or tuple(f"action{i}" if phi.action_set.width > 1 else "action" for i in range(phi.action_set.width))
    ends = zip(names, box.low.ravel().tolist(), box.high.ravel().tolist(), strict=True)
    return [{"name": name, "low": low, "high": high} for name, low, high in ends]


def _open(world: World) -> tuple[gym.Env[Any, Any], str]:
    """An environment of a world, rendered if possible; if not, also why."""
    recipe = world.recipe
    assert world.make is not None
    assert recipe is not None
    try:
        plain = world.make()
    except UserError:
        raise
    except Exception as error:
        raise failed(world.name, "__init__", error) from error
    if "rgb_array" not in (_metadata(plain).get("render_modes") or ()):
        return plain, f"{world.name} has no render_mode 'rgb_array'."
    if sys.platform == "darwin" and _with_mujoco(plain):
        return plain, "On macOS, MuJoCo draws only in the main thread of a program."
    # without a window, pygame needs neither a display nor, on macOS, the main thread
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    try:
        options = {**recipe["kwargs"], "render_mode": "rgb_array", "disable_env_checker": True}
        rendered = gym.make(recipe["id"], **options)
    except Exception as error:  # whatever the graphics library raises
        return plain, f"{world.name} cannot be rendered: {type(error).__name__}: {one_line(error, 300)}"
    plain.close()
    return rendered, ""


def _metadata(env: gym.Env[Any, Any]) -> dict[str, Any]:
    metadata: Any = env.metadata  # whatever a class calls so
    return metadata if isinstance(metadata, dict) else {}


def _with_mujoco(env: gym.Env[Any, Any]) -> bool:
    return isinstance(env.unwrapped, FetchReachEnv) or hasattr(env.unwrapped, "mujoco_renderer")


def _goal_of(policy: Policy) -> Array | None:
    """The packed features of the first goal of a policy's reward that has a positive weight."""
    phi = policy.model.phi
    rows = [term.goal_rows(policy.knowledge) for weight, term in policy.reward.terms if weight > 0]
    goals = [goal[0, : phi.state_packed].double().numpy() for goal in rows if goal is not None]
    return goals[0] if goals and phi.kind == "achieved_goal" else None
