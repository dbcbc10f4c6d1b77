"""Checks of what an environment returns, and the error that names the environment and the step.

Vector environments cast wrong values without a word, or fail where they copy them. Therefore each environment of a
vector environment is checked by itself, and `anyreward.worlds.stepping.Stepper` checks values of whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv

from anyreward.errors import UserError, shown
from anyreward.worlds.spaces import MOST_EXACT, Space, is_text, one_line, parts_of, places

NUMBERS = {float, int, bool, np.float64, np.float32, np.int64}
"""Types of rewards that need no further test."""
CONSTANT = {int, np.int64, str}
"""Types of observations that need no copy."""
FLAGS = {bool, np.bool_}
"""Types of terminated and truncated that need no further test."""
RETURNS = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}
CHECK = "Correct the environment; gymnasium.utils.env_checker.check_env(env) tests it."


class WorldError(UserError):
    """An environment failed, or returned what Gymnasium's interface does not allow."""


def name_of(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> str:
    """What to call an environment: its Gymnasium id, or its class."""
    if isinstance(env.unwrapped, SyncVectorEnv):
        return name_of(env.unwrapped.envs[0])
    spec = getattr(env, "spec", None)
    return str(spec.id) if spec else type(env.unwrapped).__name__


def space_of(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any], which: str) -> Space:
    """A space of an environment; raises if it is missing, or is no space."""
    space = getattr(env, which, None)
    if not isinstance(space, gym.Space):
        given = "missing" if space is None else shown(space)
        raise WorldError(
            f"{name_of(env)}, __init__: {which} is {given}; expected a gymnasium.Space. Set self.{which} in __init__."
        )
    return space


def fault(name: str, where: str, wrong: str, mend: str = CHECK) -> WorldError:
    """The error for a fault of an environment, in one line."""
    return WorldError(one_line(f"{name}, {where}: {wrong}. {mend}"))


def failed(name: str, where: str, error: Exception) -> WorldError:
    """The error for an exception that an environment raised."""
    mend = CHECK
    if "unpack" in str(error):
        mend = (
            f"reset returns {RETURNS['reset']}, step {RETURNS['step']}; an environment of the old Gym needs a wrapper."
        )
    text = f": {one_line(error, 300).rstrip('.')}" if str(error) else ""
    return fault(name, where, f"the environment raised {type(error).__name__}{text}", mend)


class Checked(gym.Wrapper[Any, Any, Any, Any]):
    """Checks what an environment returns.

    Infos are dropped: nothing uses them, and vector environments fail if their types differ between environments.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.steps = 0
        self.space = space_of(env, "observation_space")
        space_of(env, "action_space")
        self._fits = quick_fit(self.space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        try:
            result = self.env.reset(seed=seed, options=options)
        except UserError:
            raise
        except Exception as error:
            raise failed(self._name, self._where("reset"), error) from error
        if type(result) is not tuple or len(result) != 2:
            self._values("reset", result, 2)
        observation, info = result
        if type(info) is not dict or not self._fits(observation):
            self._check("reset", observation, info)
        return observation, {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action."""
        self.steps += 1
        try:
            result = self.env.step(action)
        except UserError:
            raise
        except Exception as error:
            raise failed(self._name, self._where("step"), error) from error
        if type(result) is not tuple or len(result) != 5:
            self._values("step", result, 5)
        observation, reward, terminated, truncated, info = result
        if type(info) is not dict or not self._fits(observation):
            self._check("step", observation, info)
        if type(reward) is not float and type(reward) not in NUMBERS:
            reward = self._number(reward)
        if terminated is False and truncated is False:  # most steps
            return observation, reward, False, False, {}
        if type(terminated) not in FLAGS or type(truncated) not in FLAGS:
            terminated, truncated = self._flag("terminated", terminated), self._flag("truncated", truncated)
        if terminated or truncated:
            observation = copied(observation)  # the reset that follows may reuse its memory
        return observation, reward, terminated, truncated, {}

    def render(self) -> Any:
        """Render the environment."""
        try:
            return self.env.render()
        except UserError:
            raise
        except Exception as error:
            raise failed(self._name, self._where("render"), error) from error

    @property
    def _name(self) -> str:
        return name_of(self.env)

    def _where(self, call: str) -> str:
        return f"step {self.steps}" if call == "step" else f"{call} after {self.steps} steps"

    def _values(self, call: str, result: Any, count: int) -> Any:
        if isinstance(result, tuple | list) and len(result) == count:
            return result
        given = f"{len(result)} values" if isinstance(result, tuple | list) else shown(result)
        mend = f"Return {RETURNS[call]}; an environment of the old Gym needs a wrapper."
        raise fault(self._name, self._where(call), f"{call} returned {given}; expected {count} values", mend)

    def _check(self, call: str, observation: Any, info: Any) -> None:
        if not isinstance(info, dict):
            wrong = f"the info is {shown(info)}; expected a dictionary"
            raise fault(self._name, self._where(call), wrong, f"Return {RETURNS[call]}.")
        if wrong := misfit(self.space, observation):
            mend = "Correct the observation or observation_space (gymnasium.wrappers.TransformObservation)."
            raise fault(self._name, self._where(call), f"the observation {wrong}", mend)

    def _number(self, reward: Any) -> float:
        values = np.asarray(reward) if isinstance(reward, np.ndarray | np.generic | float | int) else np.array(None)
        if values.dtype.kind not in "biuf" or values.ndim:
            wrong = f"the reward is {shown(reward)}; expected one number"
            raise fault(self._name, self._where("step"), wrong, "Return a float as reward.")
        return float(values)

    def _flag(self, which: str, value: Any) -> bool:
        number = isinstance(value, bool | int | float | np.bool_ | np.number | np.ndarray) and np.ndim(value) == 0
        if number and (value == 0 or value == 1):
            return bool(value)
        wrong = f"{which} is {shown(value)}; expected a boolean"
        raise fault(self._name, self._where("step"), wrong, f"Return True or False as {which}.")


def copied(observation: Any) -> Any:
    """A copy of an observation; faster than deepcopy."""
    if type(observation) in CONSTANT:
        return observation
    if type(observation) is np.ndarray:
        return observation.copy()
    return tuple(map(copied, observation)) if type(observation) is tuple else deepcopy(observation)


def misfit(space: Space, element: Any, batch: tuple[int, ...] = ()) -> str:
    """What is wrong with the structure, shapes and types of an element, or of a batch; empty if nothing is.

    Values are checked where they are packed. Values outside the bounds of a Box are common, and fit.
    """
    match space:
        case spaces.Tuple():
            if not isinstance(element, tuple | list) or len(element) != len(space.spaces):
                return f"is {shown(element)}; expected a tuple of {len(space.spaces)} parts"
        case spaces.Dict():
            if not isinstance(element, Mapping):
                return f"is {shown(element)}; expected a dictionary with the keys {list(space.spaces)}"
            if set(element) != set(space.spaces):
                return f"has the keys {shown(list(element))}; expected {list(space.spaces)}"
        case _:
            return _wrong_array(space, element, batch + (space.shape or ()))
    for key, name, part in parts_of(space):
        if wrong := misfit(part, element[key], batch):
            return f"at {name} {wrong}"
    return ""


def _wrong_array(space: Space, element: Any, shape: tuple[int, ...]) -> str:
    try:
        values = np.asarray(element)
    except Exception:  # whatever an object does when it is turned into an array
        values = np.array(None)
    if values.dtype.kind not in "biuf" or space.dtype is None:
        return f"is {shown(element)}; expected numbers of the type {space.dtype} and the shape {shape}"
    if values.shape != shape:
        return f"has the shape {values.shape}; expected {shape}"
    if not np.can_cast(values.dtype, space.dtype, "same_kind"):
        return f"has the type {values.dtype}; expected {space.dtype}"
    if values.dtype.kind in "iu" and values.dtype != space.dtype and values.size:
        most = MOST_EXACT if space.dtype.kind == "f" else int(np.iinfo(space.dtype).max)
        least = -most if space.dtype.kind == "f" else int(np.iinfo(space.dtype).min)
        low, high = int(values.min()), int(values.max())
        if low < least or high > most:
            return f"holds {low if low < least else high}; expected whole numbers from {least} to {most}"
    return ""


def quick_fit(space: Space, batch: tuple[int, ...] = ()) -> Callable[[Any], bool]:
    """A fast test of elements, or of batches: true only if `misfit` finds nothing wrong."""
    if is_text(space):
        return lambda _: True
    if isinstance(space, spaces.Tuple | spaces.Dict):
        kind, parts = (tuple if isinstance(space, spaces.Tuple) else dict), places(space)
        tests = [(key, quick_fit(part, batch)) for key, _, part in parts]

        def fits(element: Any) -> bool:
            try:
                fitting = type(element) is kind and len(element) == len(tests)
                return fitting and False not in [test(element[key]) for key, test in tests]
            except KeyError:
                return False

        return fits
    if isinstance(space, spaces.Discrete) and not batch and space.dtype == np.int64:
        return lambda element: type(element) is int or type(element) is np.int64
    shape = batch + (space.shape or ())
    types = {np.dtype(np.float32), np.dtype(np.float64)} if space.dtype == np.float32 else {space.dtype}
    return lambda element: type(element) is np.ndarray and element.dtype in types and element.shape == shape
