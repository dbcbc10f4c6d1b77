"""Phase 3: the policy pi_z that answers a reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.rewards.trust import Trust
from anyreward.worlds.spaces import Space, as_batch, is_single, pack_seen

Array = np.ndarray[Any, Any]


class Acts(Protocol):
    """Anything that acts is a policy: learned, random or optimal."""

    def act(self, observation: Any) -> Any:
        """An action for one observation, or actions for a batch."""
        ...


def action_probabilities(preferences: Tensor, epsilon: float = 0.0, temperature: float = 0.0) -> Tensor:
    """(..., A) pi of preferences (..., A): greedy, or Boltzmann at a temperature, mixed with epsilon of uniform."""
    if temperature > 0:
        p = torch.softmax(preferences.double() / temperature, dim=-1)
    else:
        p = torch.zeros_like(preferences, dtype=torch.float64)
        p.scatter_(-1, preferences.argmax(-1, keepdim=True), 1.0)
    return (1 - epsilon) * p + epsilon / preferences.shape[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """pi_z for one reward: acts greedily unless `epsilon_greedy` or `boltzmann` is asked for.

    ``z`` is z_R brought to the size that F was trained on; it decides the actions. ``reward_scale`` undoes this:
    z_R = reward_scale * z, so that `q` and `value` are in the units of the reward.
    """

    representation: Representation
    observation_space: Space
    action_start: int
    z: Tensor
    reward_scale: float
    judge: Callable[[Policy], Trust]
    """Computes `trust`; it costs more than the answer itself, so it waits until it is asked for."""
    agent: str
    """The fingerprint of the agent that this z belongs to."""
    correct: Callable[[Tensor, Tensor], Tensor] | None = None
    """What refining made of F . z (n, A) at packed observations (n, packed); None for an answer as it is."""
    epsilon: float = 0.0
    temperature: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __repr__(self) -> str:
        how = f"temperature {self.temperature:g}" if self.temperature else f"epsilon {self.epsilon:g}"
        return f"Policy({how}, |z| = {float(self.z.norm()):.3g})"

    @cached_property
    def trust(self) -> Trust:
        """How far this answer can be trusted."""
        return self.judge(self)

    def greedy(self) -> Policy:
        """The same answer, acting by argmax."""
        return replace(self, epsilon=0.0, temperature=0.0)

    def epsilon_greedy(self, epsilon: float) -> Policy:
        """The same answer, acting uniformly with probability epsilon."""
        if not 0 <= epsilon <= 1:
            raise UserError(f"epsilon is {epsilon}; accepted: 0 to 1.")
        return replace(self, epsilon=epsilon, temperature=0.0)

    def boltzmann(self, temperature: float) -> Policy:
        """The same answer, acting by softmax(F . z / temperature)."""
        if not temperature > 0:
            raise UserError(f"temperature is {temperature}; it must be positive. For the limit 0 use greedy().")
        return replace(self, epsilon=0.0, temperature=temperature)

    def seeded(self, seed: int) -> Policy:
        """The same policy, with its random actions seeded anew."""
        return replace(self, rng=np.random.default_rng(seed))

    def q(self, observations: Any) -> Array:
        """Q(s, a) = F(s, a, z) . z_R in units of the reward: (n, A) for a batch, (A,) for one observation.

        F is trained on the softmax policies of Algorithm 1, so these are the values of such a soft policy: their order
        decides well, their size is below what the greedy policy earns.
        """
        single, preferences = self._preferences(observations)
        q = self.reward_scale * preferences.double().numpy()
        return np.asarray(q[0] if single else q)

    def value(self, observations: Any) -> Array:
        """V(s) = sum_a pi(a|s) Q(s, a): (n,) for a batch, () for one observation."""
        single, preferences = self._preferences(observations)
        p = action_probabilities(preferences, self.epsilon, self.temperature)
        value = self.reward_scale * (p * preferences.double()).sum(1).numpy()
        return np.asarray(value[0] if single else value)

    def probabilities(self, observations: Any) -> Array:
        """pi(a|s): (n, A) for a batch, (A,) for one observation."""
        single, preferences = self._preferences(observations)
        p = action_probabilities(preferences, self.epsilon, self.temperature).numpy()
        return np.asarray(p[0] if single else p)

    def act(self, observation: Any) -> Any:
        """An action for one observation, or (n,) actions for a batch."""
        single, preferences = self._preferences(observation)
        if self.epsilon == 0 and self.temperature == 0:
            actions = preferences.argmax(1).numpy()
        else:
            p = action_probabilities(preferences, self.epsilon, self.temperature).numpy()
            actions = (p.cumsum(1) < self.rng.random((len(p), 1)) * p.sum(1, keepdims=True)).sum(1)
        actions = actions + self.action_start
        return int(actions[0]) if single else actions

    def _preferences(self, observations: Any) -> tuple[bool, Tensor]:
        single = is_single(self.observation_space, observations)
        batch = as_batch(self.observation_space, observations) if single else observations
        packed = torch.from_numpy(pack_seen(self.observation_space, batch))
        if not torch.isfinite(packed).all():
            raise UserError("The observation holds NaN or infinity.")
        return single, self.preferences(packed)

    def preferences(self, packed: Tensor) -> Tensor:
        """(n, A) F . z at packed observations (n, packed), refined if that was asked for: what decides the actions."""
        Q = self.representation.q(packed, self.z)
        return Q if self.correct is None else self.correct(packed, Q)
