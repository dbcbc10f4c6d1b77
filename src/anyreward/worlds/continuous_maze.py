"""The paper's continuous maze as Gymnasium environments: a square with walls and noisy moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.worlds.crowd import CrowdEnv
from anyreward.worlds.goals import GoalTest, Tolerance
from anyreward.worlds.spaces import Array

WALLS = ((0.25, 0.0, 0.25, 0.4), (0.75, 0.6, 0.75, 1.0))
"""The paper's interior walls, as segments x0, y0, x1, y1."""
ACTION_NAMES = ("left", "right", "up", "down", "stay")
STEP, NOISE = 0.1, 0.01
_MOVES = STEP * np.array([(-1, 0), (1, 0), (0, 1), (0, -1), (0, 0)])  # (dx, dy), y counted upwards

Walls = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Plane:
    """The unit square with its interior walls, and how agents move in it."""

    walls: Array
    """(k, 4) segments x0, y0, x1, y1"""

    def move(self, positions: Array, actions: Array, noise: Array) -> Array:
        """(n, 2) the positions that actions (n,) with this noise (n, 2) lead to from positions (n, 2).

        Each coordinate is clipped to the square; a move that would cross an interior wall is undone.
        """
        proposed = np.clip(positions + _MOVES[actions] + noise, 0.0, 1.0)
        return np.where(self.crossed(positions, proposed)[:, None], positions, proposed)

    def crossed(self, start: Array, end: Array) -> Array:
        """(n,) whether the path from start to end (n, 2) meets a wall: touching one counts, leaving one does not."""
        a, b = self.walls[:, :2], self.walls[:, 2:]  # (k, 2)
        path, wall = (end - start)[:, None], b - a
        offset = a - start[:, None]  # (n, k, 2)
        # start + t path = a + u wall, by Cramer's rule
        determinant = _cross(path, wall)
        with np.errstate(divide="ignore", invalid="ignore"):  # parallel: they do not meet, or the agent slides along
            t, u = _cross(offset, wall) / determinant, _cross(offset, path) / determinant
        meets = (determinant != 0) & (t > 0) & (t <= 1) & (u >= 0) & (u <= 1)
        return np.asarray(meets.any(1))


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])


def plane(walls: Walls = WALLS) -> Plane:
    """The square with these walls; raises if they are not segments in it."""
    try:
        segments = np.asarray(walls, dtype=np.float64).reshape(-1, 4) if len(walls) else np.zeros((0, 4))
    except (TypeError, ValueError) as error:
        raise UserError(f"walls is {walls!r}; expected segments of four numbers: x0, y0, x1, y1.") from error
    if not ((segments >= 0) & (segments <= 1)).all():
        raise UserError(f"The walls {segments.tolist()} leave the square; coordinates go from 0 to 1.")
    return Plane(segments)


class ContinuousMazeEnv(gym.Env[Array, np.int64]):
    """One agent in the square. Reward-free: every reward is zero, and no episode terminates.

    The observation is (x, y), the start is uniform, and the actions move by 0.1: left, right, up, down, stay.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012 (Gymnasium's own convention)
    never_terminates = True
    feature_names = ("x", "y")
    """The names of the numbers of an observation."""
    settings = {  # noqa: RUF012 (constant)
        "encoding": "rbf",
        "steps_per_cycle": 120,
        "learning_rate": 0.0005,
        "explore": "z",
    }
    """Settings that this world overrides in both presets: the paper's features and hyperparameters. Episodes start
    everywhere, so uniform actions suffice."""

    def __init__(self, walls: Walls = WALLS, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; accepted: None or 'rgb_array'.")
        self.plane, self.render_mode = plane(walls), render_mode
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(len(ACTION_NAMES))
        self.position = np.zeros(2)

    @property
    def goal_test(self) -> GoalTest:
        """Random goals in the square, reached within 0.05 in x and y; episodes of 30 steps."""
        return GoalTest(lambda rng, n: rng.random((n, 2)), Tolerance("box", 0.05), steps=30)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start at a random position, or at ``options={"position": (x, y)}``."""
        super().reset(seed=seed)
        given = (options or {}).get("position")
        self.position = self.np_random.random(2) if given is None else np.asarray(given, dtype=np.float64)
        if self.position.shape != (2,) or not ((self.position >= 0) & (self.position <= 1)).all():
            raise UserError(f"The position is {given}; expected two numbers from 0 to 1.")
        return self.position.astype(np.float32), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Move, with noise."""
        noise = self.np_random.normal(0, NOISE, (1, 2))
        self.position = self.plane.move(self.position[None], np.array([action]), noise)[0]
        return self.position.astype(np.float32), 0.0, False, False, {}

    def render(self) -> Array | None:
        """The square as an RGB image of 240 x 240 pixels: walls dark, the agent orange."""
        if self.render_mode is None:
            return None
        side = 240
        row, column = np.indices((side, side)) + 0.5
        centres = np.stack([column, side - row], -1) / side  # (side, side, 2) the (x, y) of every pixel
        image = np.full((side, side, 3), 245, dtype=np.uint8)
        for x0, y0, x1, y1 in self.plane.walls:
            a, d = np.array([x0, y0]), np.array([x1 - x0, y1 - y0])
            t = np.clip((centres - a) @ d / max(d @ d, 1e-12), 0, 1)
            image[np.linalg.norm(centres - a - t[..., None] * d, axis=-1) < 0.008] = 60
        image[np.linalg.norm(centres - self.position, axis=-1) < 0.025] = (230, 120, 20)
        return image


class ContinuousMazeVectorEnv(CrowdEnv):
    """Many agents in one square, moved together."""

    def __init__(
        self, num_envs: int = 1, walls: Walls = WALLS, max_episode_steps: int = 30, render_mode: str | None = None
    ) -> None:
        self.plane = plane(walls)
        square = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        super().__init__(num_envs, square, len(ACTION_NAMES), max_episode_steps, render_mode)

    def start(self, n: int) -> Array:
        """(n, 2) random points."""
        return self.np_random.random((n, 2))

    def move(self, actions: Array) -> Array:
        """(num_envs, 2) the next points."""
        return self.plane.move(self.state, actions, self.np_random.normal(0, NOISE, (self.num_envs, 2)))


def register() -> None:
    """Register the continuous maze with Gymnasium: ``anyreward/ContinuousMaze-v0``."""
    gym.register(
        id="anyreward/ContinuousMaze-v0",
        entry_point="anyreward.worlds.continuous_maze:ContinuousMazeEnv",
        vector_entry_point="anyreward.worlds.continuous_maze:ContinuousMazeVectorEnv",
        max_episode_steps=30,
    )
