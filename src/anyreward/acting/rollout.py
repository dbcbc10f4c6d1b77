"""Playing episodes with anything that acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.acting.policy import Acts
from anyreward.errors import UserError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Episode:
    """One episode: n + 1 observations, n actions, and the environment's own rewards (n,)."""

    observations: list[Any]
    actions: list[Any]
    rewards: Array
    terminated: bool

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(self.rewards.sum())


class RandomPolicy:
    """Acts uniformly."""

    def __init__(self, actions: int, start: int = 0, seed: int = 0) -> None:
        self._actions, self._start = actions, start
        self._rng = np.random.default_rng(seed)

    def act(self, observation: Any) -> int:
        """A uniform action, whatever the observation."""
        return int(self._start + self._rng.integers(self._actions))


def rollout(
    policy: Acts,
    env: gym.Env[Any, Any],
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = 10_000,
    options: dict[str, Any] | None = None,
) -> list[Episode]:
    """Play whole episodes; ``max_steps`` stops one that would never end."""
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1.")
    played = []
    for number in range(episodes):
        observation, _ = env.reset(seed=seed if number == 0 else None, options=options)
        observations, actions, rewards, terminated = [observation], [], [], False
        for _ in range(max_steps):
            action = policy.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            observations.append(observation)
            actions.append(action)
            rewards.append(float(reward))
            if terminated or truncated:
                break
        played.append(Episode(observations, actions, np.asarray(rewards), terminated))
    return played
