"""Phase 3: the policy pi_z that answers a reward."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from anyreward.errors import UserError, shown
from anyreward.model.model import PROPOSALS, Model
from anyreward.rewards.inference import Belief
from anyreward.rewards.kept import KeptPoints
from anyreward.rewards.knowledge import Knowledge, Task
from anyreward.rewards.reward import LARGEST, Reward
from anyreward.rewards.state_value import state_value
from anyreward.rewards.terms import (
    NEVER_VISITED,
    TASK_FORMAT,
    UNFIT,
    check_task_path,
    from_z,
    sample_arrays,
    sample_rows,
)
from anyreward.storage.files import as_json, sha256, write_together
from anyreward.storage.generations import index_hash
from anyreward.worlds.spaces import is_single, take

if TYPE_CHECKING:
    from anyreward.trust.report import Trust

Array = np.ndarray[Any, Any]
Correction = Callable[["Policy", Tensor, Tensor], Tensor]
"""(policy, packed observations (n, packed), Q (n, A)) -> corrected Q (n, A)."""
PLAN = "plan"
"""The name of a plan's Q in the file beside a saved policy."""


class Chooser(Protocol):
    """How a policy chooses among the actions of a box, if not as pi_z does."""

    def choose(self, policy: Policy, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The actions (n, width) at packed observations (n, packed), and their Q (n,)."""
        ...

    def q_at(self, policy: Policy, packed: Tensor, actions: Tensor) -> Tensor:
        """(n,) Q of actions (n, width) at packed observations (n, packed)."""
        ...


@dataclass(frozen=True, eq=False)
class Plan:
    """A correction: Q at points among states of numbers, for listed actions, instead of F . z."""

    points: KeptPoints
    Q: Tensor
    """(1, M, A)"""

    def __call__(self, policy: Policy, packed: Tensor, _: Tensor) -> Tensor:
        """(n, A) Q at packed observations (n, packed)."""
        return self.points.table.look_up(packed, self.Q)

    def choose(self, policy: Policy, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The best listed actions of a box, and their Q."""
        Q = self.points.table.look_up(packed, self.Q)
        best = Q.argmax(1)
        return torch.from_numpy(self.points.action_set.table)[best], Q.amax(1)

    def q_at(self, policy: Policy, packed: Tensor, actions: Tensor) -> Tensor:
        """Q of the nearest listed actions."""
        Q, listed = self.points.table.look_up(packed, self.Q), torch.from_numpy(self.points.action_set.table)
        near = torch.cdist(actions.float(), listed).argmin(1, keepdim=True)
        return Q.gather(1, near).squeeze(1)


def checked_plan(points: KeptPoints, Q: Tensor, actions: int) -> Plan:
    """A plan that was read from a file; raises a ValueError unless its Q fits the points."""
    expected = (1, len(points.features), actions)
    if Q.shape != expected or Q.dtype != torch.float32:
        raise ValueError(f"the plan is {tuple(Q.shape)} of {Q.dtype}, expected {expected} of torch.float32")
    return Plan(points, Q)


class Acts(Protocol):
    """The interface of a policy: learned, random or optimal."""

    def act(self, observation: Any) -> Any:
        """An action for one observation, or actions for a batch."""
        ...


def action_probabilities(preferences: Tensor, epsilon: float = 0.0, temperature: float = 0.0) -> Tensor:
    """(..., A) pi for preferences (..., A): greedy, or Boltzmann at a temperature; uniform with probability epsilon."""
    if temperature > 0:
        p = torch.softmax(preferences.double() / temperature, dim=-1)
    else:
        p = torch.zeros_like(preferences, dtype=torch.float64)
        p.scatter_(-1, preferences.argmax(-1, keepdim=True), 1.0)
    return (1 - epsilon) * p + epsilon / preferences.shape[-1]


@dataclass(eq=False, repr=False)
class Policy:
    """The policy pi_z for one reward. It acts greedily; `epsilon_greedy` and `boltzmann` return other variants.

    ``z`` is z_R at the length that F is evaluated at; it determines the actions. ``reward_scale`` undoes the scaling:
    z_R = reward_scale * z, so that `q` and `value` are in the units of the reward.
    """

    knowledge: Knowledge
    """The agent's model and its sample of rho."""
    reward: Reward
    """The reward that this answers."""
    belief: Belief
    """The estimate of the reward."""
    task: Task
    """z, its scale, and the constant that was removed from it."""
    agent: str
    """The fingerprint of the agent that this z belongs to."""
    corrections: tuple[Correction, ...] = ()
    """Corrections of F . z by refine and improve, applied in order."""
    tuned: nn.Module | None = None
    """q_theta of a fine-tuned policy, which is added to the corrected F . z."""
    whole: bool = False
    """Whether the corrected F . z is all of Q, as after value iteration and fine-tuning."""
    chooser: Chooser | None = None
    """For actions of a box: what chooses them instead of pi_z, as after refine and improve."""
    refined: bool = False
    """Whether it was planned on transitions that the agent keeps."""
    epsilon: float = 0.0
    temperature: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    warned: set[str] = field(default_factory=set)
    """The warnings that were given, each once; variants of a policy share them."""

    def __repr__(self) -> str:
        how = f"temperature {self.temperature:g}" if self.temperature else f"epsilon {self.epsilon:g}"
        return f"Policy({how}, |z| = {float(self.z.norm()):.3g}{', refined' if self.refined else ''})"

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
        """How far this answer can be trusted; computed on first access, because it costs more than the answer."""
        from anyreward.trust.report import report  # here, to avoid a circular import

        return report(self)

    def greedy(self) -> Policy:
        """The same answer, acting by argmax."""
        return replace(self, epsilon=0.0, temperature=0.0)

    def epsilon_greedy(self, epsilon: float) -> Policy:
        """The same answer, acting uniformly with probability epsilon."""
        if not isinstance(epsilon, int | float | np.number) or not 0 <= epsilon <= 1:
            raise UserError(f"epsilon is {shown(epsilon)}; accepted: 0 to 1.")
        return replace(self, epsilon=epsilon, temperature=0.0)

    def boltzmann(self, temperature: float) -> Policy:
        """The same answer, acting by softmax(F . z / temperature), where actions are listed."""
        self._needs_list("boltzmann() chooses among listed actions")
        number = isinstance(temperature, int | float | np.number)
        if not number or not (0 < temperature <= LARGEST or temperature == math.inf):
            raise UserError(f"temperature is {shown(temperature)}; it must be positive. For the limit 0 use greedy().")
        return replace(self, epsilon=0.0, temperature=temperature)

    def seeded(self, seed: int) -> Policy:
        """The same policy, with a new seed for its random actions."""
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise UserError(f"seed is {shown(seed)}; accepted: whole numbers from 0.")
        return replace(self, rng=np.random.default_rng(seed))

    def q(self, observations: Any, actions: Any = None) -> Array:
        """Q(s, a) = F(s, a, z) . z_R in units of the reward: (n, A) for a batch, (A,) for one observation.

        With ``actions``, one for each observation, it is that of these: (n,), or () for one observation. Actions of a
        box have to be given.

        For successor measures from t = 1 it is r + F . z_R, and a bias adds E_rho[m-bar(s, z, g) r(g)].

        F is trained on the softmax policies of Algorithm 1, so these are the values of a soft policy: they rank actions
        well, but are below the values of the greedy policy.
        """
        if actions is None:
            self._needs_list("q() of all actions needs a list of them: give actions, q(observations, actions)")
            single, q = self._values(observations)
        else:
            single, packed, batch = self._packed(observations)
            taken = np.asarray(actions)[None] if single else np.asarray(actions)
            if taken.ndim == 0 or len(taken) != len(packed):
                raise UserError(f"q() got {len(packed)} observations and actions of shape {np.shape(actions)}.")
            own = torch.from_numpy(self.model.phi.action_set.checked(taken, "Actions of q()"))
            q = self.q_taken(packed, own, self._features(packed, batch))
        values = self.reward_scale * q.numpy()
        return np.asarray(values[0] if single else values)

    def value(self, observations: Any) -> Array:
        """V(s) = sum_a pi(a|s) Q(s, a): (n,) for a batch, () for one observation."""
        single, packed, batch = self._packed(observations)
        value = self.reward_scale * self.state_values(packed, self._features(packed, batch)).numpy()
        return np.asarray(value[0] if single else value)

    def landmark(self, observations: Any) -> tuple[Array, Array]:
        """Explain an answer of landmarks: the landmark that it goes to from each observation, and its lead.

        The landmark is the state (n, k), in readable features, whose policy has the largest value. The lead (n,) is the
        difference to the value of the second best landmark, in units of the reward. For one observation: (k,) and ().
        """
        landmarks = self.model.landmarks
        if landmarks is None or not len(landmarks.landmarks) or self.corrections or self.tuned is not None:
            raise UserError("landmark() needs an agent with landmarks, and a policy without refine, improve or tuning.")
        single, packed, _ = self._packed(observations)
        which, ahead = landmarks.leading(packed, self.z)
        landmark = landmarks.landmarks[which.clamp(min=0)]
        places = torch.where((which < 0)[:, None], packed, landmarks.P.states.rows[landmark]).numpy()
        if self.model.phi.kind == "observation" and not self.model.phi.include_action:
            places = self.model.phi.readable(places)
        gaps = self.reward_scale * ahead.double().numpy()
        return (places[0], gaps[0]) if single else (places, gaps)

    def probabilities(self, observations: Any) -> Array:
        """pi(a|s): (n, A) for a batch, (A,) for one observation, where actions are listed."""
        self._needs_list("probabilities() are those of listed actions")
        single, preferences = self._preferences(observations)
        p = self._pi(preferences).numpy()
        return np.asarray(p[0] if single else p)

    def act(self, observation: Any, warn: bool = True) -> Any:
        """An action for one observation, or actions for a batch: (n,), or (n, ...) in a box.

        With ``warn``, there is a warning, once, if observations are categories and training never visited this one:
        then the action means nothing.
        """
        single, packed, _ = self._packed(observation)
        if warn:
            self._warn_if_unvisited(packed)
        acts = self.model.phi.action_set
        if acts.continuous:
            actions = acts.sample(self.rng, len(packed)) if self.clueless else self.choose(packed)[0].numpy()
            if self.epsilon > 0:
                uniform = self.rng.random(len(packed)) < self.epsilon
                actions = np.where(uniform[:, None], acts.sample(self.rng, len(packed)), actions)
        elif self.epsilon == 0 and self.temperature == 0 and not self.clueless:
            actions = self.preferences(packed).argmax(1).numpy()
        else:
            p = self._pi(self.preferences(packed)).numpy()
            actions = (p.cumsum(1) < self.rng.random((len(p), 1)) * p.sum(1, keepdims=True)).sum(1)
        taken = acts.outward(actions)
        if not single:
            return taken
        return np.asarray(taken[0]) if acts.box is not None else int(taken[0])

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Actions by the interface of Stable-Baselines3; ``state`` is returned, ``deterministic`` means greedy."""
        policy = self.greedy() if deterministic else self
        return np.asarray(policy.act(observation)), state

    def observe(self, features: Any, rewards: Any) -> None:
        """Update this policy's z with rewards (n,), or one reward, observed at features (n, k) while acting.

        They may come from any distribution: the estimate is that of `anyreward.samples` with ``"other"``, from all
        observed rewards. If the answer did not start from samples, its reward is the prior.
        """
        if self.corrections or self.tuned is not None or self.chooser is not None:
            raise UserError(
                "observe() updates z, but a policy with refine, improve or tuning has more than z. Ask with refine=0."
            )
        if self.knowledge.method.goals_only:
            raise UserError(f"{self.knowledge.settings.method} supports single goals; it cannot use observed rewards.")
        phi, r = sample_arrays(features, rewards)
        self.belief = self.belief.after(sample_rows(phi, self.knowledge), r, self.knowledge)
        self.task = self.knowledge.task(self.belief.found.z)
        self.reward = from_z(self.belief.found.z.numpy(), self.agent, "the rewards observed")
        self.__dict__.pop("trust", None)  # it was computed for the previous z

    def save(self, path: str | Path) -> Path:
        """Write z_R and its agent's fingerprint to a JSON file, and fine-tuning or a plan to a file beside it.

        `anyreward.from_z(path)` reads the z as a reward, `Agent.load_policy(path)` the policy, which acts greedily.
        """
        path = check_task_path(path)
        changes = [*self.corrections, *([] if self.chooser is None else [self.chooser])]
        plans = [one for one in changes if isinstance(one, Plan) and one.points is self.knowledge.points]
        tuned = self.tuned if self.chooser is None else getattr(self.chooser, "change", None)
        if len(plans) + (self.chooser is not None and tuned is not None) < len(changes) or len(plans) > 1:
            raise UserError(
                "The effects of improve, and of refine among categories, are not saved; ask with refine=0 and without "
                "improve."
            )
        beside = path.with_suffix(".safetensors")
        z_R = self.belief.found.z.tolist()
        data = {"format": TASK_FORMAT, "agent": self.agent, "reward": str(self.reward), "z_R": z_R}
        files = {}
        if tuned is not None or plans:
            if beside.exists() and not path.exists():
                raise UserError(f"{beside} exists and belongs to something else; choose another name.")
            tensors = {PLAN: plans[0].Q} if tuned is None else tuned.state_dict()
            files[beside] = save_tensors({name: value.contiguous() for name, value in tensors.items()})
            data |= {"tensors_sha256": sha256(files[beside]), "scale": self.reward_scale}
        write_together({**files, path: as_json({**data, "sha256": index_hash(data)})})
        return path

    @property
    def clueless(self) -> bool:
        """Whether z is zero, so that no action is preferred; then all actions are equally likely."""
        plain = not self.corrections and self.tuned is None and self.chooser is None
        return plain and not self.knowledge.method.goals_only and not self.z.any()

    def _pi(self, preferences: Tensor) -> Tensor:
        return action_probabilities(preferences, 1.0 if self.clueless else self.epsilon, self.temperature)

    @property
    def _has_state_value(self) -> bool:
        """Whether Q has a part besides F . z_R."""
        s = self.knowledge.settings
        return bool(s.first_step or s.bias) and not self.whole

    def action_values(self, packed: Tensor, features: Tensor | None) -> Tensor:
        """(n, A) Q at packed observations and their packed features, in the units of z, for listed actions."""
        return self.preferences(packed).double() + self._beside(packed, features)[:, None]

    def q_taken(self, packed: Tensor, actions: Tensor, features: Tensor | None) -> Tensor:
        """(n,) Q of actions as the library counts them, (n, ...), at packed observations, in the units of z."""
        if not self.model.phi.action_set.continuous:
            return self.action_values(packed, features).gather(1, actions[:, None]).squeeze(1)
        z = self.z.expand(len(packed), -1)
        if self.chooser is None:
            Q = self.model.q_at(packed, z, actions[:, None])[:, 0]
        else:
            Q = self.chooser.q_at(self, packed, actions)
        return Q.double() + self._beside(packed, features)

    def state_values(self, packed: Tensor, features: Tensor | None) -> Tensor:
        """(n,) V at packed observations and their packed features, in the units of z."""
        if not self.model.phi.action_set.continuous:
            Q = self.action_values(packed, features)
            return (self._pi(Q) * Q).sum(1)
        V = self.choose(packed)[1].double() + self._beside(packed, features)
        epsilon = 1.0 if self.clueless else self.epsilon
        if epsilon > 0:
            some = torch.from_numpy(self.model.phi.action_set.spread(PROPOSALS))
            rows = packed.repeat_interleave(len(some), 0)
            again = None if features is None else features.repeat_interleave(len(some), 0)
            uniform = self.q_taken(rows, some.repeat(len(packed), 1), again).view(len(packed), -1).mean(1)
            V = (1 - epsilon) * V + epsilon * uniform
        return V

    def _beside(self, packed: Tensor, features: Tensor | None) -> Tensor:
        """(n,) the part of Q beside F . z: the value of the reward's mean, which was removed, and `state_value`."""
        constant = torch.full((len(packed),), self.task.constant / self.reward_scale, dtype=torch.float64)
        if not self._has_state_value:
            return constant
        return constant + state_value(self.reward, self.knowledge, self.z, packed, features) / self.reward_scale

    def choose(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The greedy actions at packed observations, as the library counts them, and their F . z (n,)."""
        if not self.model.phi.action_set.continuous:
            Q = self.preferences(packed)
            return Q.argmax(1), Q.amax(1)
        return self.model.choose(packed, self.z) if self.chooser is None else self.chooser.choose(self, packed)

    def _needs_list(self, what: str) -> None:
        if self.model.phi.action_set.continuous:
            raise UserError(f"{what}; the actions of this agent are all those of {self.model.phi.action_set.box}.")

    def _features(self, packed: Tensor, batch: Any) -> Tensor | None:
        """The packed features of observations, where Q needs them."""
        if not self._has_state_value:
            return None
        nothing = self.model.phi.action_set.none(len(packed))
        return torch.from_numpy(self.model.phi.of(batch, packed.numpy(), nothing))

    def _values(self, observations: Any) -> tuple[bool, Tensor]:
        single, packed, batch = self._packed(observations)
        return single, self.action_values(packed, self._features(packed, batch))

    def _preferences(self, observations: Any) -> tuple[bool, Tensor]:
        single, packed, _ = self._packed(observations)
        return single, self.preferences(packed)

    def _warn_if_unvisited(self, packed: Tensor) -> None:
        """Warn of the first of packed observations (n, packed) that training never visited, once for a policy.

        Not an error: a policy that is used may reach states that are new.
        """
        if "unvisited" in self.warned:
            return
        unvisited = self.knowledge.unvisited(packed)
        if not unvisited.any():
            return
        self.warned.add("unvisited")
        phi, row, which = self.model.phi, packed[unvisited][:1].numpy(), "an observation"
        if phi.kind == "observation":
            values = phi.readable(row[:, : phi.state_packed])[0]
            which = ", ".join(f"{name} = {value:g}" for name, value in zip(phi.column_names, values, strict=False))
        warnings.warn(f"The policy was asked to act in {which}, which {NEVER_VISITED}", stacklevel=3)

    def _packed(self, observations: Any) -> tuple[bool, Tensor, Any]:
        """Whether it is a single observation, the batch packed, and the batch."""
        space = self.model.phi.observation_space
        try:
            single = is_single(space, observations)
            batch = take(space, observations, None) if single else observations
            packed = torch.from_numpy(self.model.phi.seen(batch))
        except UNFIT as error:
            raise UserError(f"{shown(observations)} is not an observation of {space}, nor a batch of them.") from error
        if not torch.isfinite(packed).all():
            raise UserError("The observation holds NaN or infinity.")
        return single, packed, batch

    def preferences(self, packed: Tensor) -> Tensor:
        """(n, A) F . z at packed observations (n, packed), with all corrections; the largest determines the action."""
        Q = self.model.q(packed, self.z)
        for correct in self.corrections:
            Q = correct(self, packed, Q)
        if self.tuned is None:
            return Q
        with torch.no_grad():
            tuned: Tensor = Q + self.tuned(packed)
        return tuned
