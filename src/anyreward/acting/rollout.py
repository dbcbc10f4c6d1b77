"""Playing episodes with anything that acts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.acting.policy import Acts
from anyreward.errors import UserError
from anyreward.worlds.world import World, open_world

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


@dataclass(frozen=True)
class Returns:
    """Undiscounted returns of whole episodes, by the environment's own reward."""

    totals: Array
    """(episodes,)"""

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(self.totals.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; NaN for one episode."""
        return float(self.totals.std(ddof=1) / np.sqrt(len(self.totals))) if len(self.totals) > 1 else float("nan")

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.standard_error:.2g} over {len(self.totals)} episodes"


def evaluate(
    policy: Acts, world: World | str | Path | gym.Env[Any, Any], episodes: int = 100, seed: int = 0
) -> Returns:
    """Play a policy in a world, by its name, its Gymnasium id or as an object, and count the world's own reward."""
    make = open_world(world).make
    if make is None:
        raise UserError("evaluate() plays one environment at a time; give a single environment, not a vector one.")
    return Returns(np.array([episode.total for episode in rollout(policy, make(), episodes, seed)]))


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
