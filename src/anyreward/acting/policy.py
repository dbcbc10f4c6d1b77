"""Phase 3: the policy pi_z that answers a reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.inference import Belief
from anyreward.rewards.reward import TASK_FORMAT, Reward, check_task_path, from_z, sample_arrays
from anyreward.rewards.trust import Trust
from anyreward.storage.files import as_json, sha256, write_together
from anyreward.worlds.spaces import as_batch, is_single, pack_seen

Array = np.ndarray[Any, Any]
Correction = Callable[["Policy", Tensor, Tensor], Tensor]
"""What becomes of a policy's Q (n, A) at packed observations (n, packed)."""
Baseline = Callable[["Policy", Tensor, Tensor], Tensor]
"""(n,) what Q has beside F . z_R, for all actions alike, at packed observations and their packed features."""


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


@dataclass(eq=False, repr=False)
class Policy:
    """pi_z for one reward: acts greedily unless `epsilon_greedy` or `boltzmann` is asked for.

    ``z`` is z_R brought to the size that F was trained on; it decides the actions. ``reward_scale`` undoes this:
    z_R = reward_scale * z, so that `q` and `value` are in the units of the reward.
    """

    representation: Representation
    features: FeatureMap
    action_start: int
    target: Reward
    """The reward that this answers."""
    z: Tensor
    reward_scale: float
    belief: Belief
    """What is known of the reward."""
    judge: Callable[[Policy], Trust]
    """Computes `trust`; it costs more than the answer itself, so it waits until it is asked for."""
    revise: Callable[[Belief, Array, Array], tuple[Belief, Tensor, float, float]]
    """The belief, z, its scale and ``constant`` after more rewards (n,) were seen at features (n, k)."""
    agent: str
    """The fingerprint of the agent that this z belongs to."""
    corrections: tuple[Correction, ...] = ()
    """What refining or improving made of F . z, one after the other; none for an answer as it is."""
    tuned: nn.Module | None = None
    """q_theta of a fine-tuned answer, which is added to all that."""
    baseline: Baseline | None = None
    """What Q has beside F . z, with a bias and for successor measures from t = 1."""
    constant: float = 0.0
    """What the mean of the reward is worth, which was taken out of z where it changes no policy."""
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

        For successor measures from t = 1 it is r + F . z_R, and a bias adds E_rho[m-bar(s, z, g) r(g)].

        F is trained on the softmax policies of Algorithm 1, so these are the values of such a soft policy: their order
        decides well, their size is below what the greedy policy earns.
        """
        single, q = self._values(observations)
        values = self.reward_scale * q.numpy()
        return np.asarray(values[0] if single else values)

    def value(self, observations: Any) -> Array:
        """V(s) = sum_a pi(a|s) Q(s, a): (n,) for a batch, () for one observation."""
        single, q = self._values(observations)
        value = self.reward_scale * (self._pi(q) * q).sum(1).numpy()
        return np.asarray(value[0] if single else value)

    def landmark(self, observations: Any) -> tuple[Array, Array]:
        """Explain an answer of landmarks: where it heads for from each observation, and by how much that is best.

        The landmark is a state, (n, k) as rewards see it, whose policy earns most from there; the second result (n,) is
        how much more than the second best landmark's, in units of the reward. Of one observation (k,) and ().
        """
        landmarks = self.representation.landmarks
        if landmarks is None or self.corrections or self.tuned is not None:
            raise UserError("Only a plain answer of an agent with landmarks can be explained by them.")
        single, packed, _ = self._packed(observations)
        which, ahead = landmarks.leading(packed, self.representation.own(self.z))
        landmark = landmarks.landmarks[which.clamp(min=0)]
        places = torch.where((which < 0)[:, None], packed, landmarks.states.rows[landmark]).numpy()
        if self.features.kind == "observation" and not self.features.include_action:
            places = self.features.readable(places)
        gaps = self.reward_scale * ahead.double().numpy()
        return (places[0], gaps[0]) if single else (places, gaps)

    def probabilities(self, observations: Any) -> Array:
        """pi(a|s): (n, A) for a batch, (A,) for one observation."""
        single, preferences = self._preferences(observations)
        p = self._pi(preferences).numpy()
        return np.asarray(p[0] if single else p)

    def act(self, observation: Any) -> Any:
        """An action for one observation, or (n,) actions for a batch."""
        single, preferences = self._preferences(observation)
        if self.epsilon == 0 and self.temperature == 0 and not self.clueless:
            actions = preferences.argmax(1).numpy()
        else:
            p = self._pi(preferences).numpy()
            actions = (p.cumsum(1) < self.rng.random((len(p), 1)) * p.sum(1, keepdims=True)).sum(1)
        actions = actions + self.action_start
        return int(actions[0]) if single else actions

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Actions as Stable-Baselines3 asks for them; ``state`` is handed back, ``deterministic`` means greedy."""
        policy = self.greedy() if deterministic else self
        return np.asarray(policy.act(observation)), state

    def observe(self, features: Any, rewards: Any) -> None:
        """Learn from rewards (n,), or one, seen at features (n, k), while acting: this policy's z changes.

        They may come from any distribution: the estimate is that of `anyreward.samples` with ``"other"``, of all that
        was seen. An answer that began with another reward than samples keeps it as what is believed to begin with.
        """
        if self.corrections or self.tuned is not None:
            raise UserError("observe() changes z, which an answer that was refined or tuned does not depend on alone.")
        phi, r = sample_arrays(features, rewards)
        self.belief, self.z, self.reward_scale, self.constant = self.revise(self.belief, phi, r)
        self.target = from_z(self.belief.found.z.numpy(), self.agent, "the rewards observed")
        self.__dict__.pop("trust", None)  # it was that of the z before

    def save(self, path: str | Path) -> Path:
        """Write z_R to a small JSON file that names its agent, and what fine-tuning learned to a file beside it.

        `anyreward.from_z(path)` reads the z as a reward, `Agent.load_policy(path)` the policy, which acts greedily.
        """
        path = check_task_path(path)
        if self.corrections:
            raise UserError("What refine and improve do is not saved; save the plain answer, and ask again with them.")
        beside = path.with_suffix(".safetensors")
        if self.tuned is not None and beside.exists() and not path.exists():
            raise UserError(f"{beside} exists and belongs to something else; choose another name.")
        z_R = self.belief.found.z.tolist()
        data = {"format": TASK_FORMAT, "agent": self.agent, "reward": str(self.target), "z_R": z_R}
        files = {}
        if self.tuned is not None:
            weights = save_tensors({name: value.contiguous() for name, value in self.tuned.state_dict().items()})
            files[beside] = weights
            data |= {"tuned_sha256": sha256(weights), "scale": self.reward_scale}
        write_together({**files, path: as_json(data)})
        return path

    @property
    def clueless(self) -> bool:
        """Whether no action is preferred to any other, as z is zero: then all are equally likely."""
        plain = not self.corrections and self.tuned is None
        return plain and not self.representation.of_goals and not self.z.any()

    def _pi(self, preferences: Tensor) -> Tensor:
        return action_probabilities(preferences, 1.0 if self.clueless else self.epsilon, self.temperature)

    def action_values(self, packed: Tensor, features: Tensor) -> Tensor:
        """(n, A) Q at packed observations and their packed features, in the units of z: preferences and all beside."""
        q = self.preferences(packed).double() + self.constant / self.reward_scale
        return q if self.baseline is None else q + self.baseline(self, packed, features)[:, None] / self.reward_scale

    def _values(self, observations: Any) -> tuple[bool, Tensor]:
        single, packed, batch = self._packed(observations)
        if self.baseline is None:
            return single, self.preferences(packed).double() + self.constant / self.reward_scale
        nothing = np.zeros(len(packed), dtype=np.int64)
        return single, self.action_values(packed, torch.from_numpy(self.features.of(batch, packed.numpy(), nothing)))

    def _preferences(self, observations: Any) -> tuple[bool, Tensor]:
        single, packed, _ = self._packed(observations)
        return single, self.preferences(packed)

    def _packed(self, observations: Any) -> tuple[bool, Tensor, Any]:
        """Whether it is a single observation, the batch packed, and the batch."""
        space = self.features.observation_space
        single = is_single(space, observations)
        batch = as_batch(space, observations) if single else observations
        packed = torch.from_numpy(pack_seen(space, batch))
        if not torch.isfinite(packed).all():
            raise UserError("The observation holds NaN or infinity.")
        return single, packed, batch

    def preferences(self, packed: Tensor) -> Tensor:
        """(n, A) F . z at packed observations (n, packed), with all corrections: what decides the actions."""
        Q = self.representation.q(packed, self.z)
        for correct in self.corrections:
            Q = correct(self, packed, Q)
        if self.tuned is None:
            return Q
        with torch.no_grad():
            tuned: Tensor = Q + self.tuned(packed)
        return tuned
