"""Environments whose episodes can be continued in another process.

The state of an environment cannot be read in general. Therefore the beginning of its current episode is recorded, with
the actions since: the same actions lead to the same state again. Environments that do not follow from their seed, or
remember something beyond an episode, cannot be continued; the observation at the end shows that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

STATE = (np.ndarray, np.random.Generator)
"""Types of attributes that are the state of a vector environment."""
State = dict[str, Any]
"""JSON: numbers, strings, lists and dictionaries."""


class Episode(NamedTuple):
    """The current episode of an environment, as JSON."""

    seed: int | None
    """with which the environment was reset"""
    random: State | None
    """the state of its random generator before the reset, if there was no seed"""
    actions: list[Any]
    """numbers, or lists of them"""
    over: bool
    """whether it has ended, and the next step begins a new one"""


class Recorded(gym.Wrapper[Any, Any, Any, Any]):
    """Records the current episode; setting ``episode`` plays a recorded one again."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._episode = Episode(None, None, [], False)
        self._resets = False  # whether the next step begins a new episode, as the vector environment would
        self.observation: Any = None
        """the last observation"""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        random = None if seed is not None else random_state(self.unwrapped.np_random)
        self._episode, self._resets = Episode(seed, random, [], False), False
        result = super().reset(seed=seed, options=options)
        self.observation = result[0]
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action."""
        if self._resets:
            observation, info = self.reset()
            return observation, 0.0, False, False, info
        result = super().step(action)
        self._episode.actions.append(np.asarray(action).tolist())
        self.observation = result[0]
        if result[2] or result[3]:
            self._episode = self._episode._replace(over=True)
        return result

    @property
    def episode(self) -> Episode:
        """The current episode."""
        return self._episode

    @episode.setter
    def episode(self, recorded: Episode) -> None:
        if recorded.random is not None:
            self.unwrapped.np_random = generator(recorded.random)
        self.reset(seed=recorded.seed)
        for action in recorded.actions:
            self.step(np.asarray(action, dtype=self.action_space.dtype) if isinstance(action, list) else action)
        self._episode = Episode(recorded.seed, recorded.random, list(recorded.actions), recorded.over)
        self._resets = recorded.over


def random_state(random: np.random.Generator) -> State:
    """The state of a random generator, as JSON."""
    return dict(random.bit_generator.state)


def generator(state: State) -> np.random.Generator:
    """A random generator in a state."""
    kind = getattr(np.random, str(state["bit_generator"]), None)
    if not (isinstance(kind, type) and issubclass(kind, np.random.BitGenerator)):
        raise ValueError(f"{state['bit_generator']!r} is no random generator of NumPy")
    bits = kind()
    bits.state = state
    return np.random.Generator(bits)


def can_continue(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether the episodes of a vector environment can be continued: it consists of recorded ones, or of arrays."""
    if isinstance(env, SyncVectorEnv):
        return all(isinstance(one, Recorded) for one in env.envs)
    if isinstance(env, AsyncVectorEnv):
        return env.metadata.get("recorded", False) is True
    arrays = isinstance(env.single_observation_space, gym.spaces.Box | gym.spaces.Discrete)
    return arrays and type(env.unwrapped).__module__.split(".")[0] in ("anyreward", "gymnasium")


def save_episodes(env: VectorEnv[Any, Any, Any], observations: Any) -> State:
    """The current episodes of a vector environment that can be continued, with their observations, as JSON."""
    if isinstance(env, SyncVectorEnv | AsyncVectorEnv):
        return {"episodes": [episode._asdict() for episode in env.call("episode")]}
    attributes = {name: _to_json(value) for name, value in vars(env.unwrapped).items() if isinstance(value, STATE)}
    return {"attributes": attributes, "observations": _to_json(observations)}


def load_episodes(env: VectorEnv[Any, Any, Any], state: State) -> Any:
    """Continue saved episodes in a new vector environment of the same kind; returns the batch of observations."""
    if isinstance(env, SyncVectorEnv | AsyncVectorEnv):
        env.set_attr("episode", [Episode(**episode) for episode in state["episodes"]])
        space = env.single_observation_space
        room: Any = create_empty_array(space, n=env.num_envs)
        return concatenate(space, env.call("observation"), room)
    for name, saved in state["attributes"].items():
        value, now = _from_json(saved), getattr(env.unwrapped, name)
        if type(value) is not type(now) or np.shape(value) != np.shape(now):
            raise ValueError(f"{name} of {type(env.unwrapped).__name__} has changed its type or shape")
        setattr(env.unwrapped, name, value)
    return _from_json(state["observations"])


def _to_json(value: Any) -> Any:
    if isinstance(value, np.random.Generator):
        return {"random": random_state(value)}
    return {"array": value.tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}


def _from_json(value: Any) -> Any:
    if "random" in value:
        return generator(value["random"])
    return np.array(value["array"], dtype=np.dtype(value["dtype"])).reshape(value["shape"])
