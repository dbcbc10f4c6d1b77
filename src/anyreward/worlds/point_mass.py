"""A point mass in a maze of four rooms on MuJoCo: two motors, continuous actions, and eight published tasks.

The dynamics are those of DeepMind Control's point mass with a cross of walls, and the tasks are those that papers on
zero-shot reinforcement learning evaluate in it: four goals, a goal that is to be reached the long way round, and three
ways of circling.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from anyreward.errors import UserError, shown
from anyreward.worlds.fetch_reach import INSTALL
from anyreward.worlds.spaces import Array

ARENA, LENGTH, THICKNESS, RADIUS = 0.3, 0.18, 0.02, 0.01
"""Half the side of the arena, half the length and half the thickness of a wall of the cross, and the mass's radius."""
EDGE = ARENA - RADIUS
"""Largest x and y of the mass, where it touches the outer walls."""
START = ((-0.29, -0.15), (0.15, 0.29))
"""The range of x and of y in which episodes start: the room at the top left."""
SOFT = 0.003
"""The walls are soft: this far the centre of a mass that arrives at full speed can get beyond where it would touch."""
SPEED = 0.15
"""Largest speed along an axis that `reset` accepts. The motors lead to 0.1; a corner can deflect a mass to more."""
EPISODE = 1_000
Starts = Literal["corner", "everywhere"]

MODEL = f"""
<mujoco model="point mass in a maze">
  <!-- without a warm start, a step depends on the positions, velocities and controls alone -->
  <option timestep="0.02"> <flag warmstart="disable"/> </option>
  <worldbody>
    <geom name="west" type="plane" pos="-{ARENA} 0 0" zaxis="1 0 0" size="1 1 1"/>
    <geom name="east" type="plane" pos="{ARENA} 0 0" zaxis="-1 0 0" size="1 1 1"/>
    <geom name="south" type="plane" pos="0 -{ARENA} 0" zaxis="0 1 0" size="1 1 1"/>
    <geom name="north" type="plane" pos="0 {ARENA} 0" zaxis="0 -1 0" size="1 1 1"/>
    <geom name="along_x" type="box" size="{LENGTH} {THICKNESS} {2 * RADIUS}"/>
    <geom name="along_y" type="box" size="{THICKNESS} {LENGTH} {2 * RADIUS}"/>
    <body name="mass">
      <joint name="x" type="slide" axis="1 0 0" damping="1" limited="true" range="-{EDGE} {EDGE}"/>
      <joint name="y" type="slide" axis="0 1 0" damping="1" limited="true" range="-{EDGE} {EDGE}"/>
      <geom name="ball" type="sphere" size="{RADIUS}" mass="0.3"/>
    </body>
  </worldbody>
  <actuator>
    <motor name="push_x" joint="x" gear="0.1" ctrllimited="true" ctrlrange="-1 1"/>
    <motor name="push_y" joint="y" gear="0.1" ctrllimited="true" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""
"""MuJoCo's model. Gravity has no effect, because the mass only slides in x and y. The outer walls have friction."""


class Task(Protocol):
    """A reward of features (x, y, vx, vy), (n, 4), and, if they are given, of the actions (n, 2) that led to them."""

    def __call__(self, features: Array, actions: Array | None = None) -> Array:
        """(n,) the rewards; without actions, as if the motors had been at rest."""
        ...


GOALS = {
    "reach_top_left": (-0.15, 0.15),
    "reach_top_right": (0.15, 0.15),
    "reach_bottom_left": (-0.15, -0.15),
    "reach_bottom_right": (0.15, -0.15),
    "reach_bottom_left_long": (-0.15, -0.15),
}
"""The goals of the tasks that have one."""
GOAL_SIZE = 0.015
"""The distance from a goal within which its reward is largest."""


def _reach(name: str) -> Task:
    """The task to be at a goal: up to 1 within 0.015 of it, 0.1 where it is 0.09 further away; and to save power.

    The reward is multiplied by a factor from 0.8, if both motors had full power, to 1, if they were at rest.
    """

    def reward(features: Array, actions: Array | None = None) -> Array:
        apart = np.linalg.norm(np.asarray(features, dtype=np.float64)[:, :2] - GOALS[name], axis=1)
        near = 0.1 ** np.square(np.maximum(apart - GOAL_SIZE, 0) / (6 * GOAL_SIZE))
        if actions is None:
            return np.asarray(near)
        spared = np.maximum(1 - np.square(np.asarray(actions, dtype=np.float64)), 0).mean(1)
        return np.asarray(near * (4 + spared) / 5)

    reward.__name__ = reward.__qualname__ = name
    return reward


def reach_bottom_left_long(features: Array, actions: Array | None = None) -> Array:
    """(n,) The task to reach the bottom left clockwise, by way of the other two rooms.

    Where the reward for the goal is below 0.01, the clockwise speed along an outer wall pays instead: 5 times the
    speed, or a cost of 100 times the speed anticlockwise, for speeds up to 0.1.
    """
    at_goal = _reach("reach_bottom_left_long")(features, actions)
    speed, _ = _clockwise(features, 0.15, np.inf)
    on_the_way = np.clip(speed, -0.1, 0.1) * np.where(speed >= 0, 5, 100)
    return np.where(at_goal < 0.01, on_the_way, at_goal)


def loop(features: Array, actions: Array | None = None) -> Array:
    """(n,) The task to circle clockwise on a square that stands on its corner: |x| + |y| = 0.24.

    The reward is the mean of three parts: being within 0.02 of the path, and a speed of 0.06 to 0.1 in each of x and y.
    """
    x, y, vx, vy = np.asarray(features, dtype=np.float64).T
    beside = np.abs(np.abs(x) + np.abs(y) - 0.24) / np.sqrt(2)
    right, up = np.where(y >= 0, vx, -vx), np.where(x <= 0, vy, -vy)  # the speeds in the direction of the path
    parts = _within(beside, 0, 0.02, margin=0.02), _within(right, 0.06, 0.1), _within(up, 0.06, 0.1)
    return np.asarray(sum(parts) / 3)


def square(features: Array, actions: Array | None = None) -> Array:
    """(n,) The task to circle clockwise along the outer walls: 10 times the speed, up to 0.1, beyond 0.2 in x or y.

    In corners, which are beyond 0.2 in both, the reward is zero.
    """
    return np.asarray(10 * np.clip(_clockwise(features, 0.2, np.inf)[0], 0, 0.1))


def fast_slow(features: Array, actions: Array | None = None) -> Array:
    """(n,) The task to circle anticlockwise, slowly (0.04 to 0.05) at top and bottom, fast (0.09 to 0.1) at the sides.

    It pays where one of |x| and |y| is between 0.2 and 0.28.
    """
    speed, level = _clockwise(features, 0.2, 0.28)
    return _within(-speed, np.where(level, 0.04, 0.09), np.where(level, 0.05, 0.1))


def _clockwise(features: Array, inner: float, outer: float) -> tuple[Array, Array]:
    """(n,) the clockwise speed in one of four strips along the outer walls, and whether it is the top or the bottom.

    A strip is from ``inner`` to ``outer``. The speed is zero outside of them, and where two of them overlap.
    """
    x, y, vx, vy = np.asarray(features, dtype=np.float64).T
    outward = np.stack([y, x, -y, -x])  # (4, n)
    strips = (outward > inner) & (outward < outer)
    speed = (strips * np.stack([vx, -vy, -vx, vy])).sum(0)
    return np.where(strips.sum(0) == 1, speed, 0.0), strips[0] | strips[2]


def _within(values: Array, low: Any, high: Any, margin: float = 0.01) -> Array:
    """1 for values from low to high, falling linearly to 0 within a margin on both sides."""
    apart = np.maximum(np.maximum(low - values, values - high), 0)
    return np.asarray(np.maximum(1 - apart / margin, 0))


TASKS: dict[str, Task] = {
    **{name: _reach(name) for name in GOALS},
    "reach_bottom_left_long": reach_bottom_left_long,
    "loop": loop,
    "square": square,
    "fast_slow": fast_slow,
}
"""The eight tasks, as functions of features: ``anyreward.reward(TASKS["loop"])``. The environment passes actions too.

The definitions are those of the published suite, in our own words. There too, rewards of stored states are computed
with motors at rest, and rewards of episodes with the actions.
"""


class Physics:
    """MuJoCo's steps of n masses that do not meet; a step is a function of states and actions alone."""

    def __init__(self, n: int) -> None:
        try:
            import mujoco
            from mujoco import rollout
        except ImportError:
            raise UserError(f"PointMassMaze needs mujoco, which is not installed: {INSTALL}.") from None
        model = mujoco.MjModel.from_xml_string(MODEL)
        self._models, self._data = [model] * n, [mujoco.MjData(model)]
        self._controls = int(mujoco.mjtState.mjSTATE_CTRL)
        self._rollout = rollout.Rollout(nthread=0)

    def step(self, states: Array, actions: Array) -> Array:
        """(n, 4) the states x, y, vx, vy after actions (n, 2)."""
        n = len(states)
        before, after = np.zeros((n, 5)), np.zeros((n, 1, 5))  # the first column is the time, which has no effect
        before[:, 1:] = states
        self._rollout.rollout(
            self._models,
            self._data,
            before,
            np.array(actions, dtype=np.float64).reshape(n, 1, 2),
            control_spec=self._controls,
            skip_checks=True,
            nstep=1,
            state=after,
        )
        return after[:, 0, 1:]


def free(positions: Array) -> Array:
    """(n,) whether a mass at positions (n, 2) is in the arena and touches no wall."""
    return (np.abs(positions) <= EDGE).all(1) & (_from_cross(positions) >= RADIUS)


def _from_cross(positions: Array) -> Array:
    """(n,) the distance of positions (n, 2) from the cross."""
    ends, sides = np.maximum(np.abs(positions) - LENGTH, 0), np.maximum(np.abs(positions) - THICKNESS, 0)
    return np.minimum(np.hypot(ends[:, 0], sides[:, 1]), np.hypot(sides[:, 0], ends[:, 1]))


def draw(random: np.random.Generator, n: int, starts: Starts) -> Array:
    """(n, 4) random states at rest: in the corner at the top left, or everywhere."""
    if starts == "corner":
        positions = np.stack([random.uniform(*bounds, n) for bounds in START], axis=1)
    else:
        positions = np.zeros((0, 2))
        while len(positions) < n:
            more = random.uniform(-EDGE, EDGE, (n, 2))
            positions = np.concatenate([positions, more[free(more)]])[:n]
    return np.concatenate([positions, np.zeros((n, 2))], axis=1)


def _begin(states: Array, options: dict[str, Any] | None) -> Array:
    """(n, 4) the states, with the options' position and velocity where these are given."""
    position, velocity = _option(options, "position", len(states)), _option(options, "velocity", len(states))
    if position is not None:
        outside, inside = ~(np.abs(position) <= EDGE + SOFT).all(1), _from_cross(position) < RADIUS - SOFT
        if outside.any():
            raise UserError(
                f"The position {position[outside][0].tolist()} is outside of the arena; accepted: x and y from -{EDGE} "
                f"to {EDGE}, where the mass touches the outer walls."
            )
        if inside.any():
            raise UserError(
                f"The position {position[inside][0].tolist()} is inside a wall. The walls are a cross: |x| up to "
                f"{LENGTH} with |y| up to {THICKNESS}, and |y| up to {LENGTH} with |x| up to {THICKNESS}; the centre "
                f"of the mass must be {RADIUS} away from them."
            )
        states[:, :2] = position
    if velocity is not None:
        if not (np.abs(velocity) <= SPEED).all():
            raise UserError(
                f"The velocity is {shown(velocity.tolist())}; accepted: vx and vy from -{SPEED} to {SPEED}."
            )
        states[:, 2:] = velocity
    return states


def _option(options: dict[str, Any] | None, name: str, n: int) -> Array | None:
    """An option as (n, 2) numbers; None if it is not given."""
    given = (options or {}).get(name)
    if given is None:
        return None
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        rows = np.zeros(0)
    if rows.shape not in ((2,), (n, 2)):
        each = f", or {n} rows of two numbers, one for each environment" if n > 1 else ""
        raise UserError(f"The {name} is {shown(given)}; expected two numbers, for x and for y{each}.")
    return np.broadcast_to(rows, (n, 2))


class _Maze:
    """What one environment and a vector environment have in common."""

    def __init__(self, n: int, task: str | None, starts: Starts) -> None:
        if task is not None and task not in TASKS:
            raise UserError(f"task is {shown(task)}; accepted: None (no reward), {', '.join(map(repr, TASKS))}.")
        if starts not in get_args(Starts):
            raise UserError(f"starts is {shown(starts)}; accepted: {', '.join(map(repr, get_args(Starts)))}.")
        self.n, self.task, self.starts, self.physics = n, task, starts, Physics(n)
        high = np.array([ARENA, ARENA, 0.2, 0.2], dtype=np.float32)  # a mass reaches neither of these ends
        self.observations = gym.spaces.Box(-high, high)
        self.actions = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.middle = np.tile([*np.mean(START, axis=1), 0.0, 0.0], (n, 1))  # the state before the first reset

    def step(self, states: Array, actions: Any) -> tuple[Array, Array]:
        """The next states (n, 4) and the rewards (n,)."""
        try:
            pushes = np.asarray(actions, dtype=np.float64)
        except (TypeError, ValueError):
            pushes = np.zeros(0)
        if pushes.size != 2 * self.n or not np.isfinite(pushes).all():
            raise UserError(f"The action is {shown(actions)}; expected two numbers from -1 to 1 for each environment.")
        pushes = np.clip(pushes.reshape(self.n, 2), -1, 1)
        states = self.physics.step(states, pushes)
        return states, np.zeros(self.n) if self.task is None else TASKS[self.task](states, pushes)


class PointMassMazeEnv(gym.Env[Array, Array]):
    """One mass in the maze; the observation is (x, y, vx, vy), the action the power of the two motors, from -1 to 1.

    No episode terminates. The reward is that of ``task``, one of `TASKS`, or zero without a task. Episodes start at
    rest, in the room at the top left, or anywhere (``starts="everywhere"``), for data that cover the maze.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's own convention)
    never_terminates = True
    feature_names = ("x", "y", "vx", "vy")
    """The names of the numbers of an observation."""

    def __init__(self, task: str | None = None, starts: Starts = "corner", render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; accepted: None or 'rgb_array'.")
        self._maze, self.task, self.render_mode = _Maze(1, task, starts), task, render_mode
        self.observation_space, self.action_space = self._maze.observations, self._maze.actions
        self.state = self._maze.middle.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start at random, or as told: ``options={"position": (x, y), "velocity": (vx, vy)}``, either or both."""
        super().reset(seed=seed)
        self.state = _begin(draw(self.np_random, 1, self._maze.starts), options)
        return self.state[0].astype(np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Push for 0.02 s."""
        self.state, rewards = self._maze.step(self.state, action)
        return self.state[0].astype(np.float32), float(rewards[0]), False, False, {}

    def render(self) -> Array | None:
        """The maze from above, an RGB image of 240 x 240 pixels: walls dark, the mass orange, the task's goal green."""
        if self.render_mode is None:
            return None
        side = 240
        row, column = np.indices((side, side)) + 0.5
        centres = np.stack([column, side - row], -1) / side * 2 * ARENA - ARENA  # (side, side, 2) (x, y) of every pixel
        image = np.full((side, side, 3), 245, dtype=np.uint8)
        image[_from_cross(centres.reshape(-1, 2)).reshape(side, side) == 0] = 60
        if self.task in GOALS:
            image[np.linalg.norm(centres - GOALS[self.task], axis=-1) < GOAL_SIZE] = (40, 160, 70)
        image[np.linalg.norm(centres - self.state[0, :2], axis=-1) < RADIUS] = (230, 120, 20)
        return image

    def pixels(self, features: Array) -> Array:
        """(n, 2) where features (n, 2 or more columns) are in the rendered images."""
        x, y = np.asarray(features, dtype=np.float64)[:, :2].T
        # pixel 0 reaches from -0.5 to 0.5
        return np.stack([ARENA + x, ARENA - y], axis=1) / (2 * ARENA) * 240 - 0.5


class PointMassMazeVectorEnv(VectorEnv[Array, Array, Array]):
    """Many masses, each in a maze of its own, which MuJoCo steps in one call; see `PointMassMazeEnv`.

    An environment is reset in the step that truncates it. ``state`` and ``elapsed``, with the random generator, are
    all that the next steps depend on.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self,
        num_envs: int = 1,
        task: str | None = None,
        starts: Starts = "corner",
        max_episode_steps: int = EPISODE,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise UserError("A vector environment cannot be rendered; render a single one: gymnasium.make(...).")
        self._maze = _Maze(num_envs, task, starts)
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps
        self.single_observation_space, self.single_action_space = self._maze.observations, self._maze.actions
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.state = self._maze.middle.copy()
        self.elapsed = np.zeros(num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start every mass; an option is for all of them, (2,), or for each, (num_envs, 2)."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.state = _begin(draw(self.np_random, self.num_envs, self._maze.starts), options)
        self.elapsed[:] = 0
        return self.state.astype(np.float32), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Push every mass for 0.02 s; one at its time limit is truncated and starts again."""
        self.state, rewards = self._maze.step(self.state, actions)
        self.elapsed += 1
        truncated = self.elapsed >= self.max_episode_steps
        infos: dict[str, Any] = {}
        if truncated.any():
            infos = {"final_obs": self.state.astype(np.float32), "_final_obs": truncated.copy()}
            self.state[truncated] = draw(self.np_random, int(truncated.sum()), self._maze.starts)
            self.elapsed[truncated] = 0
        return self.state.astype(np.float32), rewards, np.zeros(self.num_envs, dtype=bool), truncated, infos


def register() -> None:
    """Register the maze with Gymnasium: ``anyreward/PointMassMaze-v0``."""
    gym.register(
        id="anyreward/PointMassMaze-v0",
        entry_point="anyreward.worlds.point_mass:PointMassMazeEnv",
        vector_entry_point="anyreward.worlds.point_mass:PointMassMazeVectorEnv",
        max_episode_steps=EPISODE,
    )
