"""Fine-tuning on the real reward: Q = F . z_R + q_theta, with q_theta = 0 at the start, by Q-learning."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from anyreward.acting.finetune_box import EXPLORATION, BoxCritic, TunedBox
from anyreward.acting.policy import Policy
from anyreward.errors import UserError
from anyreward.learning.collect import Collector, GreedyActions, Noise
from anyreward.learning.datasets import packed_transitions
from anyreward.learning.frames import Frames
from anyreward.learning.gradient import learning_rate_factor
from anyreward.learning.machine import threads
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.replay import Replay, Transitions
from anyreward.model.encoding import Encoder
from anyreward.model.networks import ConvEncoder, mlp, run_mlp
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import samples
from anyreward.worlds.spaces import Array
from anyreward.worlds.stepping import opened, together
from anyreward.worlds.world import World, open_world

Rewards = Callable[[Transitions], Array]
"""(n,) the rewards of some transitions."""

HIDDEN, LAYERS = 128, 2
RETENTION = 0.9
"""Retention of the target network, at each update."""
ENVIRONMENTS = 10
"""Online: number of environments stepped together, unless each needs its own process."""
ROWS_AT_ONCE = 4_096
"""Number of rows in one pass of F."""
STEPS_AT_ONCE = 100
"""Online: number of transitions collected at a time."""


class RewardedTransitions(NamedTuple):
    """Arrays of n transitions with rewards, for offline fine-tuning."""

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminated: Any = None


NO_LIMITS = (-math.inf, math.inf)


class TunedBatch(NamedTuple):
    """A minibatch of transitions with rewards and F . z."""

    observations: Tensor
    actions: Tensor
    next_observations: Tensor
    terminated: Tensor
    rewards: Tensor
    """(n,) in the units of z"""
    base: Tensor
    """(n, A) F . z at the observations"""
    next_base: Tensor
    """(n, A) F . z at the next observations"""


class Residual(nn.Module):
    """q_theta(s, .): packed observations (n, packed) to (n, A); zero everywhere at the start."""

    unit: Tensor

    def __init__(self, encoder: Encoder, actions: int, unit: float = 1.0) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.conv = ConvEncoder(encoder.image) if encoder.image else None
        self.net = mlp(self.conv.width if self.conv else encoder.width, actions, HIDDEN, LAYERS, layer_norm=True)
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.register_buffer("unit", torch.tensor(unit))

    def forward(self, packed: Tensor) -> Tensor:
        """(n, A)."""
        x = self.encoder.compact(packed)
        return self.unit * run_mlp(self.net, x if self.conv is None else self.conv(x))


class Experience:
    """A replay buffer of transitions with rewards, and with F . z, which is fixed, at both observations."""

    def __init__(self, policy: Policy, most: int) -> None:
        self._q, image = policy.preferences, policy.model.observation_encoder.image
        if policy.model.phi.action_set.continuous:  # Q depends on the actions, which change
            self._q = lambda packed: policy.choose(packed)[1][:, None]
        # each new transition may bring a stack of new frames
        self._replay = Replay(most, frames=Frames(image, (most + 1) * image[0], None) if image else None)
        self._beside: tuple[Tensor, ...] = ()
        self._terminates = False

    def add(self, rows: Transitions, r: Tensor) -> None:
        """Append rows with their rewards (n,)."""
        self._replay.add(rows)
        self._terminates = self._terminates or bool(rows.terminated.any())
        ends = (torch.split(o, ROWS_AT_ONCE) for o in (rows.observations, rows.next_observations))
        columns = (r, *(torch.cat([self._q(piece).float() for piece in pieces]) for pieces in ends))
        self._beside = tuple(map(torch.cat, zip(self._beside, columns, strict=True))) if self._beside else columns

    def __len__(self) -> int:
        return len(self._replay)

    def at(self, index: Tensor) -> TunedBatch:
        """The rows at ``index`` (n,)."""
        rows = self._replay.at(index)
        beside = (column.index_select(0, index) for column in self._beside)
        return TunedBatch(rows.observations, rows.actions, rows.next_observations, rows.terminated, *beside)

    def unit(self, gamma: float) -> float:
        """The unit of q_theta: the standard deviation of Q, or a tenth of rms(r) / (1 - gamma) if that is larger."""
        _, base, _ = self._beside
        spread = float(base.std()) if base.numel() > 1 else 0.0
        return max(spread, float(self.rewards.square().mean().sqrt()) / (1 - gamma) / 10) or 1.0

    def limits(self, gamma: float) -> tuple[float, float]:
        """The smallest and the largest possible Q, for the rewards seen so far; 0 is possible if episodes terminate."""
        low, high = (float(x) / (1 - gamma) for x in torch.aminmax(self.rewards))
        return (min(low, 0.0), max(high, 0.0)) if self._terminates else (low, high)

    @property
    def rewards(self) -> Tensor:
        """(n,) in the units of z."""
        return self._beside[0]

    def rows(self, index: Tensor) -> Transitions:
        """The transitions at ``index`` (n,)."""
        return self._replay.at(index)


def q_learning_loss(
    q: nn.Module,
    target: nn.Module,
    batch: TunedBatch,
    gamma: float,
    limits: tuple[float, float] = (-math.inf, math.inf),
) -> Tensor:
    """Half the mean squared error of Q = F . z + q_theta against r + gamma Q_target(s', argmax_a Q(s', a)).

    The online network chooses the next action and the target network evaluates it (double Q-learning). Targets are
    clipped to the possible values, ``limits``, since a maximum over estimates would otherwise raise itself.
    """
    with torch.no_grad():
        best = (batch.next_base + q(batch.next_observations)).argmax(1, keepdim=True)
        ahead = (batch.next_base + target(batch.next_observations)).gather(1, best).squeeze(1)
        targets = batch.rewards + gamma * torch.where(batch.terminated, 0.0, ahead)  # (n,)
        targets = targets.clamp(*limits)
    now = (batch.base + q(batch.observations)).gather(1, batch.actions[:, None]).squeeze(1)
    loss: Tensor = 0.5 * (now - targets).square().mean()
    return loss


class Tuner:
    """Learns q_theta on top of a policy's F . z, which is fixed."""

    def __init__(self, policy: Policy, most: int, rewards: Rewards | None) -> None:
        self._policy, self._gamma, self._rewards = policy, policy.knowledge.settings.gamma, rewards
        self._mean = (1 - self._gamma) * policy.task.constant  # of the reward asked for, which was removed from z
        self._seen: list[tuple[Tensor, Array]] = []
        self.experience = Experience(policy, most)
        self._box: BoxCritic | None = None

    def remember(self, rows: Transitions, received: Array) -> None:
        """Add transitions with the source's rewards (n,), or with those of ``rewards`` if it was given."""
        r = np.asarray(received if self._rewards is None else self._rewards(rows), dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(r))
        if len(bad):
            at = len(self.experience) + bad[0]
            raise UserError(f"The reward of transition {at} is {r[bad[0]]}; it must be finite.")
        self._seen.append((rows.features, r))
        self.experience.add(rows, torch.from_numpy((r - self._mean) / self._policy.reward_scale).float())

    def begin(self, learning_rate: float, seed: int) -> Policy:
        """Create q_theta, zero everywhere, and return the policy with it."""
        model, unit = self._policy.model, self.experience.unit(self._gamma)
        plain = replace(self._policy.greedy(), whole=True)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            if model.phi.action_set.continuous:
                self._box, self._random = BoxCritic(self._policy), torch.Generator().manual_seed(seed)
                return replace(plain, chooser=self._box.begin(unit, learning_rate))
            self.q = Residual(model.observation_encoder, model.actions, unit)
        self._target = copy.deepcopy(self.q).requires_grad_(False)
        self._optimiser = torch.optim.Adam(self.q.parameters(), learning_rate, fused=True)
        return replace(plain, tuned=self.q)

    def update(self, index: Tensor, learning_rate: float) -> float:
        """One gradient step on the transitions at ``index`` (n,); returns the Bellman error, in units of the reward."""
        limits = self.experience.limits(self._gamma)
        if self._box is not None:
            data = (self.experience.rows(index), self.experience.rewards[index], self._gamma, limits)
            error = self._box.update(*data, learning_rate, RETENTION, self._random)
            return float((2 * error) ** 0.5 * self._policy.reward_scale)
        loss = q_learning_loss(self.q, self._target, self.experience.at(index), self._gamma, limits)
        self._optimiser.zero_grad(set_to_none=True)
        (loss / self.q.unit.square()).backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        self._optimiser.param_groups[0]["lr"] = learning_rate
        self._optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self._target.parameters()), list(self.q.parameters()), 1 - RETENTION)
        return float((2 * float(loss.detach())) ** 0.5 * self._policy.reward_scale)

    def seen(self) -> Reward:
        """All observed rewards, as samples."""
        phi, rewards = (torch.cat([p for p, _ in self._seen]), np.concatenate([r for _, r in self._seen]))
        if not rewards.any():
            warnings.warn(f"All {len(rewards):,} observed rewards are zero: there was nothing to learn.", stacklevel=4)
        return samples(self._policy.model.phi.readable(phi.numpy()), rewards, "other")


def finetune(
    policy: Policy,
    source: World | str | Path | gym.Env[Any, Any] | RewardedTransitions,
    rewards: Rewards | None,
    steps: int,
    updates: int,
    batch_size: int,
    learning_rate: float,
    epsilon: float,
    seed: int,
    progress: bool,
) -> Policy:
    """See `Agent.finetune`. ``rewards`` replaces the rewards of the source."""
    for name, value in (("steps", steps), ("updates", updates), ("batch_size", batch_size)):
        if value < 1:
            raise UserError(f"{name} is {value}; it must be positive.")
    if not 0 <= epsilon <= 1 or not learning_rate > 0:
        raise UserError(f"epsilon is {epsilon} and learning_rate {learning_rate}; expected 0 to 1, and above 0.")
    if policy.corrections or policy.tuned is not None or policy.chooser is not None:
        raise UserError("finetune() needs a policy without refine, improve and earlier fine-tuning: ask with refine=0.")
    random = torch.Generator().manual_seed(seed)
    with ExitStack() as stack:
        if not policy.model.observation_encoder.image:
            stack.enter_context(threads(1))  # the operations are too small for several threads
        collector = None
        if isinstance(source, RewardedTransitions):
            rows, received = _offline(policy, source)
            tuner = Tuner(policy, len(received), rewards)
        else:
            world = open_world(source)
            policy.model.phi.check_fits(world.name, world.observation_space, world.action_space)
            stepper = stack.enter_context(opened(world, together(world, ENVIRONMENTS)))
            collector = Collector(
                stepper,
                policy.model.phi,
                seed,
                noise=Noise(of_actions=EXPLORATION),
                repeat=policy.knowledge.settings.action_repeat,
            )
            tuner = Tuner(policy, steps + 2 * (STEPS_AT_ONCE + stepper.num_envs), rewards)
            rows, received = collector.collect_rewarded(min(STEPS_AT_ONCE, steps))
        tuner.remember(rows, received)
        tuned = tuner.begin(learning_rate, seed)
        bar = stack.enter_context(TrainingProgress(updates, progress))
        for done in range(updates):
            while collector is not None and len(tuner.experience) < (done + 1) * steps / updates:
                tuner.remember(*collector.collect_rewarded(STEPS_AT_ONCE, epsilon, _greedy(tuned), _no_z))
            index = torch.randint(len(tuner.experience), (batch_size,), generator=random)
            error = tuner.update(index, learning_rate * learning_rate_factor(done / updates, 0.5))
            if not math.isfinite(error):
                raise UserError("Fine-tuning diverged. Lower learning_rate.")
            if (done + 1) % 200 == 0 or done + 1 == updates:
                bar.show(done + 1, f"Bellman error {error:.3g}")
    for module in (tuned.tuned, tuned.chooser):
        if isinstance(module, nn.Module | TunedBox):
            (module.change if isinstance(module, TunedBox) else module).requires_grad_(False)
    return replace(tuned, reward=tuner.seen(), epsilon=policy.epsilon, temperature=policy.temperature)


def _greedy(policy: Policy) -> GreedyActions:
    return lambda packed, z: policy.choose(packed)[0]


def _no_z(n: int) -> Tensor:
    return torch.zeros(n, 1)


def _offline(policy: Policy, given: RewardedTransitions) -> tuple[Transitions, Array]:
    phi, n = policy.model.phi, len(np.asarray(given.actions))
    actions = phi.action_set.checked(given.actions, "Actions")
    terminated = np.zeros(n, dtype=bool) if given.terminated is None else np.asarray(given.terminated, dtype=bool)
    rewards = np.asarray(given.rewards, dtype=np.float64)
    columns = (given.observations, actions, given.next_observations, terminated, rewards)
    return packed_transitions(phi, *columns, "the given transitions")
