"""The paper's robot arm: FetchReach of gymnasium-robotics on MuJoCo, with six discrete actions."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.errors import UserError
from anyreward.worlds import robotics
from anyreward.worlds.goals import GoalTest, Tolerance
from anyreward.worlds.spaces import Array

ACTION_NAMES = ("+x", "+y", "+z", "-x", "-y", "-z")
_MOVES = np.concatenate([np.eye(3), -np.eye(3)])  # of the gripper, whose fingers do not move
INSTALL = "pip install 'anyreward[worlds]', or: pip install 'gymnasium-robotics>=1.4.2' 'mujoco>=3.8.1,<3.12'"


class FetchReachEnv(gym.Env[dict[str, Array], np.int64]):
    """The arm of `FetchReach-v4`: observation (10 numbers), achieved_goal (the gripper) and desired_goal, 6 actions.

    The reward is the environment's own: 0 where the gripper is within 0.05 of the desired goal, else -1. Training
    does not use it. ``reset(options={"goal": (x, y, z)})`` sets the goal.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 (Gymnasium's own convention)
    never_terminates = True
    own_process = True

    def __init__(self, render_mode: str | None = None, width: int = 320, height: int = 320) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; accepted: None or 'rgb_array'.")
        check_mujoco()
        if render_mode and sys.platform == "linux" and not os.environ.get("DISPLAY"):
            os.environ.setdefault("MUJOCO_GL", "egl")
        robotics.register("FetchReach-v4")
        size: dict[str, Any] = {"render_mode": render_mode, "width": width, "height": height} if render_mode else {}
        self.arm: Any = gym.make("FetchReach-v4", disable_env_checker=True, **size).unwrapped
        self.render_mode = render_mode
        self.observation_space = self.arm.observation_space
        self.action_space = gym.spaces.Discrete(len(ACTION_NAMES))

    settings = {  # noqa: RUF012 (constant)
        "gamma": 0.9,
        "learning_rate": 0.0005,
        "exploration": 0.2,
        "environments": 2,
        "steps_per_cycle": 100,
    }
    """Settings that this world overrides in both presets: the paper's hyperparameters."""
    feature_names = ("gx", "gy", "gz")
    """The names of the numbers of achieved_goal."""

    @property
    def goal_test(self) -> GoalTest:
        """Random goals within 0.15 of the gripper's start along each axis; 25 steps, as in the paper's code."""
        centre, reach = self.arm.initial_gripper_xpos, self.arm.target_range

        def draw(rng: np.random.Generator, n: int) -> Array:
            return np.asarray(centre + rng.uniform(-reach, reach, (n, 3)))

        return GoalTest(draw, Tolerance("ball", float(self.arm.distance_threshold)), steps=25)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Move the arm to its initial position and draw a new goal."""
        super().reset(seed=seed)
        self.arm.unwrapped.np_random = self.np_random  # one generator, so that its state is that of the arm
        observation, info = self.arm.reset()
        if options and "goal" in options:
            goal = np.asarray(options["goal"], dtype=np.float64)
            if goal.shape != (3,) or not np.isfinite(goal).all():
                raise UserError(f"The goal is {options['goal']}; expected three numbers x, y, z.")
            self.arm.goal = goal
            observation["desired_goal"] = goal.copy()
        return observation, info

    def step(self, action: np.int64) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Move the gripper along one axis with full strength."""
        push = np.append(_MOVES[action], 0.0).astype(np.float32)  # the fingers stay
        observation, reward, terminated, truncated, info = self.arm.step(push)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def hide_goal(self) -> None:
        """Leave the goal out of rendered images, for rewards that have nothing to do with it."""
        self.arm.model.site("target0").rgba[3] = 0.0

    def pixels(self, features: Array) -> Array:
        """(n, 2) where positions of the gripper (n, 3 or more columns) are in the rendered images."""
        import mujoco

        viewer = self.arm.mujoco_renderer.viewer
        camera, (height, width) = mujoco.mjv_averageCamera(*viewer.scn.camera), (self.arm.height, self.arm.width)
        forward, up = np.asarray(camera.forward), np.asarray(camera.up)
        apart = np.asarray(features, dtype=np.float64)[:, :3] - camera.pos
        # one unit of x or y is half the height of the image
        scale = 2 * camera.frustum_near / (camera.frustum_top - camera.frustum_bottom) / (apart @ forward)
        x, y = scale * (apart @ np.cross(forward, up)), scale * (apart @ up)
        # pixel 0 reaches from -0.5 to 0.5
        return np.stack([(width + x * height - 1) / 2, (height - y * height - 1) / 2], axis=1)

    def render(self) -> Any:
        """An RGB image of the arm and the goal."""
        try:
            return self.arm.render()
        except Exception as error:  # the type depends on the graphics library
            raise UserError(
                f"MuJoCo could not render ({type(error).__name__}: {error}) with MUJOCO_GL="
                f"{os.environ.get('MUJOCO_GL', '')!r}. Without a display install libegl1 (MUJOCO_GL=egl) or libosmesa6 "
                "(MUJOCO_GL=osmesa)."
            ) from error

    def close(self) -> None:
        """Close the MuJoCo environment."""
        self.arm.close()


def check_mujoco() -> str:
    """The versions of gymnasium-robotics and mujoco as text; raises if one is missing or incompatible."""
    found = {}
    for name in ("gymnasium-robotics", "mujoco"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise UserError(f"FetchReach needs {name}, which is not installed: {INSTALL}.") from None
    version = tuple(int(part) for part in found["mujoco"].split(".")[:2])
    if version >= (3, 12):
        raise UserError(
            f"mujoco {found['mujoco']} is installed, but FetchReach of gymnasium-robotics "
            f"{found['gymnasium-robotics']} needs mujoco 3.8.1 to 3.11: pip install 'mujoco>=3.8.1,<3.12'."
        )
    return ", ".join(f"{name} {number}" for name, number in found.items())


def register() -> None:
    """Register the arm with Gymnasium: ``anyreward/FetchReach-v0``."""
    gym.register(
        id="anyreward/FetchReach-v0", entry_point="anyreward.worlds.fetch_reach:FetchReachEnv", max_episode_steps=50
    )
