"""Collecting transitions without reward, from many environments at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from anyreward.errors import UserError
from anyreward.learning.replay import Transitions
from anyreward.representation.features import FeatureMap
from anyreward.worlds.spaces import pack_seen, with_final
from anyreward.worlds.world import autoreset_mode, discrete_actions

Array = np.ndarray[Any, Any]

GreedyActions = Callable[[Tensor, Tensor], Tensor]
"""argmax_a F(s, a, z) . z for packed observations (n, packed) and z (n, d): (n,)."""

LONGEST_EPISODE = 1_000
"""Transitions that wait for the end of their episode; a longer one comes in parts, each with a goal of its own."""


class Collector:
    """Steps a vector environment with the behaviour policy and keeps its place between cycles.

    The behaviour policy acts uniformly with probability epsilon, else greedily in pi_z, with one z for each episode.
    ``look_ahead`` lets transitions have the features of their next states as well. With ``whole_episodes``, z are
    goals, which transitions have too, and an episode's transitions come together, in their order, once it is over.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        features: FeatureMap,
        seed: int,
        look_ahead: bool = False,
        whole_episodes: bool = False,
    ) -> None:
        self._mode = autoreset_mode(env)
        self._env = env
        self._features, self._look_ahead = features, look_ahead
        self._rng = np.random.default_rng(seed)
        self._observations, _ = env.reset(seed=seed)
        self._packed = self._pack(self._observations)
        self._begins = np.zeros(env.num_envs, dtype=bool)  # NEXT_STEP: this step only resets
        self._z: Tensor | None = None
        self._running: list[list[tuple[Array, ...]]] | None = [[] for _ in self._begins] if whole_episodes else None

    @property
    def features_now(self) -> Array:
        """(n, packed) phi of where the environments are, as if the first action were taken."""
        return self._features.of(self._observations, self._packed, np.zeros(len(self._packed), dtype=np.int64))

    def collect(
        self,
        steps: int,
        epsilon: float = 1.0,
        greedy: GreedyActions | None = None,
        draw_z: Callable[[int], Tensor] | None = None,
    ) -> Transitions:
        """At least ``steps`` transitions (a whole number of steps of all environments), without their rewards."""
        return self.collect_rewarded(steps, epsilon, greedy, draw_z)[0]

    def collect_rewarded(
        self,
        steps: int,
        epsilon: float = 1.0,
        greedy: GreedyActions | None = None,
        draw_z: Callable[[int], Tensor] | None = None,
    ) -> tuple[Transitions, Array]:
        """The transitions of `collect`, and what the environments paid for each, (n,): learning F and B never asks."""
        columns: list[tuple[Array, ...]] = []
        gathered = 0
        while gathered < steps:
            rows = self._step(epsilon, greedy, draw_z)
            gathered += len(rows[0])
            columns.append(rows)
        rewards, *whole = (np.concatenate(column) for column in zip(*columns, strict=True))
        return Transitions(*map(torch.from_numpy, whole)), rewards

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    def _step(
        self, epsilon: float, greedy: GreedyActions | None, draw_z: Callable[[int], Tensor] | None
    ) -> tuple[Array, ...]:
        n = self._env.num_envs
        start = discrete_actions(self._env.single_action_space).start
        actions = self._rng.integers(self._features.actions, size=n)
        if self._z is None and draw_z is not None and (epsilon < 1.0 or self._running is not None):
            self._z = draw_z(n)
        if epsilon < 1.0 and greedy is not None and self._z is not None:
            chosen = greedy(torch.from_numpy(self._packed), self._z).numpy()
            actions = np.where(self._rng.random(n) < epsilon, actions, chosen)
        phi = self._features.of(self._observations, self._packed, actions)  # now: step() may reuse their memory
        observations, rewards, terminated, truncated, infos = self._env.step(actions + start)
        packed = self._pack(observations)
        done = np.logical_or(terminated, truncated)
        after, following = observations, packed
        if self._mode is AutoresetMode.SAME_STEP and done.any():
            after = with_final(self._env.single_observation_space, observations, infos["final_obs"], done)
            following = self._pack(after)
        ahead = (self._features.of(after, following, actions),) if self._look_ahead else ()
        if self._mode is AutoresetMode.DISABLED and done.any():
            observations, _ = self._env.reset(options={"reset_mask": done})
            packed = self._pack(observations)
        keep = ~self._begins
        paid = np.asarray(rewards, dtype=np.float64)
        rows = (paid, self._packed, actions, following, np.asarray(terminated), phi, *ahead)
        over = done
        if self._running is not None and self._z is not None:
            over = done | np.array([len(episode) + 1 >= LONGEST_EPISODE for episode in self._running])
            rows = self._finished((*rows, self._z.numpy()), keep, over)
        else:
            rows = tuple(np.array(column[keep]) for column in rows)
        self._observations, self._packed = observations, packed
        self._begins = done if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(done)
        if self._z is not None and draw_z is not None and over.any():
            self._z[torch.from_numpy(over)] = draw_z(int(over.sum()))
        return rows

    def _finished(self, rows: tuple[Array, ...], keep: Array, ended: Array) -> tuple[Array, ...]:
        """The transitions of the episodes that this step (n, ...) ends, and how many of the same follow each."""
        assert self._running is not None
        over: list[tuple[Array, ...]] = []
        for i, episode in enumerate(self._running):
            if keep[i]:
                episode.append(tuple(np.array(column[i]) for column in rows))
            if episode and ended[i]:
                over += [(*row, np.array(len(episode) - 1 - t)) for t, row in enumerate(episode)]
                episode.clear()
        if not over:
            return (*(column[:0] for column in rows), np.zeros(0, dtype=np.int64))
        return tuple(np.stack(column) for column in zip(*over, strict=True))

    def _pack(self, observations: Any) -> Array:
        packed = pack_seen(self._env.single_observation_space, observations)
        if not np.isfinite(packed).all():
            raise UserError("The environment returned an observation with NaN or infinity; training cannot use it.")
        return packed
