"""Stepping vector environments, with the true final observation of every episode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from anyreward.errors import UserError
from anyreward.worlds.spaces import Array, pack_seen, with_final
from anyreward.worlds.world import World, discrete_actions

MOST_AT_ONCE = 1_000
"""Maximum number of environments that are stepped together."""


class Step(NamedTuple):
    """The result of one step of n environments."""

    observations: Any
    """a batch of n: the next observations; where an episode ended, its final observation"""
    packed: Array
    """(n, packed) the part of them that F sees, packed"""
    rewards: Array
    """(n,) the environments' own rewards"""
    terminated: Array
    """(n,)"""
    truncated: Array
    """(n,)"""
    valid: Array
    """(n,) false where the step only reset the environment and ignored the action"""

    @property
    def over(self) -> Array:
        """(n,) whether the episode ended."""
        return np.logical_or(self.terminated, self.truncated)


class Stepper:
    """Steps a vector environment in any autoreset mode. Actions count from zero."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, self.num_envs, self.space = env, env.num_envs, env.single_observation_space
        self.action_start = int(discrete_actions(env.single_action_space).start)
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._ended = np.zeros(env.num_envs, dtype=bool)  # the episodes that ended in the last step
        self._observations: Any = None
        self._packed: Array = np.zeros((0, 0))

    @property
    def observations(self) -> Any:
        """A batch of n: the current observations, in which the next actions are taken."""
        self._begin_anew()
        return self._observations

    @property
    def packed(self) -> Array:
        """(n, packed) the part of the current observations that F sees, packed."""
        self._begin_anew()
        return self._packed

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new episode in every environment."""
        self._look(self.env.reset(seed=seed, options=options)[0])
        self._ended = np.zeros_like(self._ended)

    def step(self, actions: Array) -> Step:
        """Take actions (n,); environments whose episode has ended are reset."""
        self._begin_anew()
        observations, rewards, terminated, truncated, infos = self.env.step(actions + self.action_start)
        self._look(observations)
        after, packed, done = observations, self._packed, np.logical_or(terminated, truncated)
        if self._mode is AutoresetMode.SAME_STEP and done.any():
            after = with_final(self.space, observations, infos["final_obs"], done)
            packed = self._pack(after)
        valid = ~self._ended if self._mode is AutoresetMode.NEXT_STEP else np.ones_like(done)
        self._ended = done
        return Step(
            after, packed, np.asarray(rewards, dtype=np.float64), np.asarray(terminated), np.asarray(truncated), valid
        )

    def _begin_anew(self) -> None:
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            self._look(self.env.reset(options={"reset_mask": self._ended})[0])
            self._ended = np.zeros_like(self._ended)

    def _look(self, observations: Any) -> None:
        self._observations, self._packed = observations, self._pack(observations)

    def _pack(self, observations: Any) -> Array:
        packed = pack_seen(self.space, observations)
        if not np.isfinite(packed).all():
            raise UserError("The environment returned an observation with NaN or infinity; it cannot be used.")
        return packed


@contextmanager
def opened(world: World, n: int, **options: Any) -> Iterator[Stepper]:
    """Open n environments of a world and close them at the end; an environment given as an object stays open."""
    env = world.make_vector(n, **options)
    try:
        yield Stepper(env)
    finally:
        if world.recipe is not None:
            env.close()


def around(env: gym.Env[Any, Any]) -> Stepper:
    """A `Stepper` of a single environment, which the caller closes."""
    return Stepper(SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.DISABLED))


def together(world: World, episodes: int) -> int:
    """The number of episodes to run at once: at most `MOST_AT_ONCE`, or two per CPU if each needs a process."""
    return min(episodes, 2 * (os.cpu_count() or 1) if world.own_process else MOST_AT_ONCE)
