"""`World`: the description of an environment that the rest of the library uses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_all_start_methods
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from anyreward.errors import UserError
from anyreward.worlds import robotics
from anyreward.worlds.actions import action_set
from anyreward.worlds.checked import Checked, failed, name_of, space_of
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.processes import follow
from anyreward.worlds.recorded import Recorded
from anyreward.worlds.spaces import Array, Space, one_line

NAMED = {
    "four-rooms": "anyreward/FourRooms-v0",
    "labyrinth": "anyreward/Labyrinth-v0",
    "pillars": "anyreward/Pillars-v0",
    "random-maze": "anyreward/RandomMaze-v0",
    "continuous-maze": "anyreward/ContinuousMaze-v0",
    "fetch-reach": "anyreward/FetchReach-v0",
    "ms-pacman": "anyreward/MsPacman-v0",
    "point-mass-maze": "anyreward/PointMassMaze-v0",
}
"""Short names of the built-in worlds."""
DESCRIBED = {
    "settings": dict,
    "goal_settings": dict,
    "own_process": bool,
    "goal_test": GoalTest,
    "never_terminates": bool,
    "frames_per_step": int,
}
"""Attributes of an environment that are fields of its `World`, if it has them, and their types."""


@dataclass(frozen=True)
class World:
    """The description of an environment, with functions that create one instance or a vector environment.

    ``feature_table`` gives each value of a Discrete observation its readable coordinates (a maze: x and y), so that
    goals and rewards can refer to them; ``feature_names`` names the columns.
    """

    name: str
    observation_space: Space
    action_space: Space
    make: Callable[[], gym.Env[Any, Any]] | None
    """Creates one environment; None if only a vector environment was given."""
    make_vector: Callable[..., VectorEnv[Any, Any, Any]]
    """Creates a vector environment of n; uses ``max_episode_steps`` if the world is made from a Gymnasium id."""
    feature_names: tuple[str, ...] | None = None
    feature_table: Array | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that this world overrides in both presets."""
    goal_settings: dict[str, Any] = field(default_factory=dict)
    """Settings that it overrides in addition for goal-oriented DQN."""
    own_process: bool = False
    """Whether each environment of a vector environment runs in its own process."""
    goal_test: GoalTest | None = None
    """The protocol for evaluating goals, if the world defines one."""
    time_limit: int | None = None
    """Steps after which an episode is truncated, if that is known."""
    never_terminates: bool = False
    """Whether it is known that no episode terminates (truncation is not termination)."""
    frames_per_step: int = 0
    """New image frames per step, for estimating memory (0: unknown)."""
    recipe: dict[str, Any] | None = None
    """The Gymnasium id and arguments, {"id", "kwargs"}; None for an environment given as an object."""

    def settings_for(self, method: str) -> dict[str, Any]:
        """The settings that this world overrides in both presets, for a method."""
        return self.settings | (self.goal_settings if method.startswith("goal-") else {})

    @property
    def actions(self) -> int:
        """The number of listed actions; 0 if every action of a box is possible."""
        return action_set(self.action_space, self.name).count


def open_world(world: World | str | Path | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> World:
    """A world from a short name, a Gymnasium id, a maze drawing (text, or a .txt file), or an environment object."""
    if isinstance(world, World):
        return world
    if isinstance(world, VectorEnv):
        return _from_vector(world)
    if isinstance(world, gym.Env):
        return _from_env(world)
    if isinstance(world, str) and "\n" in world:
        return from_id("anyreward/Maze-v0", name="maze", drawing=world)
    if str(world).endswith(".txt"):
        path = Path(world)
        if not path.is_file():
            raise UserError(f"There is no maze drawing at {path}.")
        return from_id("anyreward/Maze-v0", name=path.stem, drawing=path.read_text(encoding="utf-8"))
    return from_id(NAMED.get(str(world), str(world)), name=str(world))


def from_id(identity: str, name: str | None = None, **kwargs: Any) -> World:
    """The world of a Gymnasium id."""
    robotics.register(identity)
    try:
        env = gym.make(identity, **kwargs)
        described = _described(env)
    except (gym.error.Error, ImportError) as error:
        raise UserError(
            f"{name or identity!r} is neither the name of a world ({', '.join(NAMED)}), nor a maze drawing (.txt), nor "
            f"an environment that Gymnasium can make: {one_line(error)} To use an environment of another package, "
            f"import the package first, or name it too: 'package:{identity.split(':')[-1]}'."
        ) from error
    except UserError:
        raise
    except Exception as error:
        raise failed(name or identity, "__init__", error) from error
    world = World(
        name=name or identity,
        make=lambda: gym.make(identity, **kwargs),
        make_vector=partial(_many, identity, kwargs, described.get("own_process", False)),
        recipe={"id": identity, "kwargs": kwargs},
        **described,
    )
    env.close()
    return world


def _many(identity: str, kwargs: dict[str, Any], own_process: bool, n: int, **more: Any) -> VectorEnv[Any, Any, Any]:
    """A vector environment of n; in separate processes if a step costs more than communication (``own_process``)."""
    if not own_process and gym.spec(identity.split(":")[-1]).vector_entry_point is not None:
        return gym.make_vec(identity, num_envs=n, **kwargs, **more)
    if not own_process:
        return gym.make_vec(identity, num_envs=n, wrappers=[Checked, Recorded], **kwargs, **more)
    # fork needs no `if __name__ == "__main__"` guard in the caller's program; spawn would
    fork = "fork" in get_all_start_methods() and sys.platform != "darwin"
    make = partial(_in_process, os.getpid(), identity, kwargs | more)
    env = AsyncVectorEnv([make] * n, context="fork" if fork else None)
    env.metadata = {**env.metadata, "recorded": True}
    return env


def _in_process(owner: int, identity: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    if os.getpid() != owner:
        follow(owner)
    return Recorded(Checked(gym.make(identity, **kwargs)))


def _from_env(env: gym.Env[Any, Any]) -> World:
    name = name_of(env)
    try:
        described = _described(env)
    except UserError:
        raise
    except Exception as error:
        raise failed(name, "__init__", error) from error

    def make_vector(n: int, **_: Any) -> VectorEnv[Any, Any, Any]:
        # an environment object cannot be copied, so the vector environment has size one
        return SyncVectorEnv([lambda: Recorded(Checked(env))], autoreset_mode=AutoresetMode.SAME_STEP)

    return World(name=name, make=lambda: env, make_vector=make_vector, **described)


def _from_vector(env: VectorEnv[Any, Any, Any]) -> World:
    return World(
        name=name_of(env),
        observation_space=space_of(env, "single_observation_space"),
        action_space=space_of(env, "single_action_space"),
        make=None,
        make_vector=lambda n, **_: env,
    )


def _described(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """The spaces of an environment, and the attributes with which it describes itself."""
    table, names = (getattr(env.unwrapped, name, None) for name in ("feature_table", "feature_names"))
    own = {name: getattr(env.unwrapped, name, None) for name in DESCRIBED}
    return {
        "observation_space": space_of(env, "observation_space"),
        "action_space": space_of(env, "action_space"),
        "feature_table": None if table is None else np.asarray(table),
        "feature_names": tuple(names) if names else None,
        "time_limit": env.spec.max_episode_steps if env.spec else None,
        # an attribute of the same name and another type has another meaning
        **{name: value for name, value in own.items() if isinstance(value, DESCRIBED[name])},
    }
