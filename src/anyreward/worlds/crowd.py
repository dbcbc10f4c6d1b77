"""A base class for vector environments that move all agents with array operations."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from anyreward.errors import UserError
from anyreward.worlds.spaces import Array


class CrowdEnv(VectorEnv[Array, Array, Array]):
    """A vector environment of independent agents without rewards; an agent is reset in the step that truncates it."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(
        self, num_envs: int, observation: gym.Space[Any], actions: int, max_episode_steps: int, render_mode: str | None
    ) -> None:
        if render_mode is not None:
            raise UserError("A vector environment cannot be rendered; render a single one: gymnasium.make(...).")
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps
        self.single_observation_space, self.single_action_space = observation, gym.spaces.Discrete(actions)
        self.observation_space = gym.vector.utils.batch_space(observation, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.state: Array = np.zeros(0)
        self.elapsed = np.zeros(num_envs, dtype=np.int64)

    @abstractmethod
    def start(self, n: int) -> Array:
        """(n, ...) random first states."""

    @abstractmethod
    def move(self, actions: Array) -> Array:
        """(num_envs, ...) the states that actions lead to from ``self.state``."""

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Reset every agent."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed)
        self.state = self.start(self.num_envs)
        self.elapsed[:] = 0
        return self._observed(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Move every agent; an agent at its time limit is truncated and reset."""
        self.state = self.move(np.asarray(actions))
        self.elapsed += 1
        truncated = self.elapsed >= self.max_episode_steps
        infos: dict[str, Any] = {}
        if truncated.any():
            infos = {"final_obs": self._observed(), "_final_obs": truncated.copy()}
            self.state[truncated] = self.start(int(truncated.sum()))
            self.elapsed[truncated] = 0
        zeros = np.zeros(self.num_envs)
        return self._observed(), zeros, zeros.astype(bool), truncated, infos

    def _observed(self) -> Array:
        """The observations: a copy of the states, in the type of the space."""
        return self.state.astype(self.single_observation_space.dtype)
