"""Phase 3: the policy pi_z that answers a reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.model.model import Model
from anyreward.rewards.inference import Belief
from anyreward.rewards.knowledge import Knowledge, Task
from anyreward.rewards.reward import Reward
from anyreward.rewards.state_value import state_value
from anyreward.rewards.terms import TASK_FORMAT, check_task_path, from_z, sample_arrays, sample_rows
from anyreward.storage.files import as_json, sha256, write_together
from anyreward.worlds.spaces import as_batch, is_single, pack_seen

if TYPE_CHECKING:
    from anyreward.trust.report import Trust

Array = np.ndarray[Any, Any]
Correction = Callable[["Policy", Tensor, Tensor], Tensor]
"""(policy, packed observations (n, packed), Q (n, A)) -> corrected Q (n, A)."""


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

    ``z`` is z_R at the length that F was trained on; it decides the actions. ``reward_scale`` undoes this:
    z_R = reward_scale * z, so that `q` and `value` are in the units of the reward.
    """

    knowledge: Knowledge
    """What the agent knows."""
    reward: Reward
    """The reward that this answers."""
    belief: Belief
    """What is known of the reward."""
    task: Task
    """z, its scale, and the constant that was taken out of it."""
    agent: str
    """The fingerprint of the agent that this z belongs to."""
    corrections: tuple[Correction, ...] = ()
    """What refine and improve make of F . z, one after the other."""
    tuned: nn.Module | None = None
    """q_theta of a fine-tuned policy, which is added to all that."""
    whole: bool = False
    """Whether F . z with these corrections is all of Q, as value iteration and fine-tuning make it."""
    epsilon: float = 0.0
    temperature: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __repr__(self) -> str:
        how = f"temperature {self.temperature:g}" if self.temperature else f"epsilon {self.epsilon:g}"
        return f"Policy({how}, |z| = {float(self.z.norm()):.3g})"

    @property
    def model(self) -> Model:
        """F and B."""
        return self.knowledge.model

    @property
    def z(self) -> Tensor:
        """(d,) the task vector."""
        return self.task.z

    @property
    def reward_scale(self) -> float:
        """z_R = reward_scale * z."""
        return self.task.scale

    @cached_property
    def trust(self) -> Trust:
        """How far this answer can be trusted; computed when asked for, as it costs more than the answer itself."""
        from anyreward.trust.report import report  # trust takes policies, so its room comes after this one

        return report(self)

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
        landmarks = self.model.landmarks
        if landmarks is None or self.corrections or self.tuned is not None:
            raise UserError("Only a plain answer of an agent with landmarks can be explained by them.")
        single, packed, _ = self._packed(observations)
        which, ahead = landmarks.leading(packed, self.z)
        landmark = landmarks.landmarks[which.clamp(min=0)]
        places = torch.where((which < 0)[:, None], packed, landmarks.states.rows[landmark]).numpy()
        if self.model.phi.kind == "observation" and not self.model.phi.include_action:
            places = self.model.phi.readable(places)
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
        actions = actions + self.model.phi.action_start
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
        if self.knowledge.method.goals_only:
            raise UserError(f"{self.knowledge.settings.method} reaches a known goal; it cannot learn from rewards.")
        phi, r = sample_arrays(features, rewards)
        self.belief = self.belief.after(sample_rows(phi, self.knowledge), r, self.knowledge)
        self.task = self.knowledge.task(self.belief.found.z)
        self.reward = from_z(self.belief.found.z.numpy(), self.agent, "the rewards observed")
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
        data = {"format": TASK_FORMAT, "agent": self.agent, "reward": str(self.reward), "z_R": z_R}
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
        return plain and not self.knowledge.method.goals_only and not self.z.any()

    def _pi(self, preferences: Tensor) -> Tensor:
        return action_probabilities(preferences, 1.0 if self.clueless else self.epsilon, self.temperature)

    @property
    def _has_state_value(self) -> bool:
        """Whether Q has a part beside F . z_R."""
        s = self.knowledge.settings
        return bool(s.first_step or s.bias) and not self.whole

    def action_values(self, packed: Tensor, features: Tensor | None) -> Tensor:
        """(n, A) Q at packed observations and their packed features, in the units of z."""
        q = self.preferences(packed).double() + self.task.constant / self.reward_scale
        if not self._has_state_value:
            return q
        beside = state_value(self.reward, self.knowledge, self.z, packed, features)
        return q + beside[:, None] / self.reward_scale

    def _values(self, observations: Any) -> tuple[bool, Tensor]:
        single, packed, batch = self._packed(observations)
        if not self._has_state_value:
            return single, self.action_values(packed, None)
        nothing = np.zeros(len(packed), dtype=np.int64)
        return single, self.action_values(packed, torch.from_numpy(self.model.phi.of(batch, packed.numpy(), nothing)))

    def _preferences(self, observations: Any) -> tuple[bool, Tensor]:
        single, packed, _ = self._packed(observations)
        return single, self.preferences(packed)

    def _packed(self, observations: Any) -> tuple[bool, Tensor, Any]:
        """Whether it is a single observation, the batch packed, and the batch."""
        space = self.model.phi.observation_space
        single = is_single(space, observations)
        batch = as_batch(space, observations) if single else observations
        packed = torch.from_numpy(pack_seen(space, batch))
        if not torch.isfinite(packed).all():
            raise UserError("The observation holds NaN or infinity.")
        return single, packed, batch

    def preferences(self, packed: Tensor) -> Tensor:
        """(n, A) F . z at packed observations (n, packed), with all corrections; the largest decides the action."""
        Q = self.model.q(packed, self.z)
        for correct in self.corrections:
            Q = correct(self, packed, Q)
        if self.tuned is None:
            return Q
        with torch.no_grad():
            tuned: Tensor = Q + self.tuned(packed)
        return tuned
