"""Fine-tuning with actions of a box: a residual of Q and one of the actor, both zero at the start, by TD3's rules."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from anyreward.acting.policy import Policy
from anyreward.learning.box_update import MOST_NOISE
from anyreward.learning.replay import Transitions
from anyreward.model.actor import smoothed
from anyreward.model.encoding import Encoder
from anyreward.model.latent import preprocess_z
from anyreward.model.model import Model
from anyreward.model.networks import ConvEncoder, mlp, run_mlp

HIDDEN, LAYERS = 128, 2
SMOOTHING = 0.2
"""Standard deviation of the noise of actions in targets."""
EXPLORATION = 0.1
"""Standard deviation of the noise of actions while learning online."""


class BoxResidual(nn.Module):
    """The changes that fine-tuning makes: q_theta(s, a), in units of ``unit``, and u_theta(s), added to pi_z(s)."""

    unit: Tensor

    def __init__(self, encoder: Encoder, width: int, unit: float = 1.0) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.conv = ConvEncoder(encoder.image) if encoder.image else None
        inputs = self.conv.width if self.conv else encoder.width
        self.of_q = mlp(inputs + width, 1, HIDDEN, LAYERS, layer_norm=True)
        self.of_action = mlp(inputs, width, HIDDEN, LAYERS, layer_norm=True)
        for net in (self.of_q, self.of_action):
            last = net[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
        self.register_buffer("unit", torch.tensor(unit))

    def _inputs(self, packed: Tensor) -> Tensor:
        x: Tensor = packed if self.conv is not None else self.encoder(packed)
        return x if self.conv is None else self.conv(x)

    def q(self, packed: Tensor, actions: Tensor) -> Tensor:
        """(n,) q_theta at packed observations (n, packed) and actions (n, width)."""
        return self.unit * run_mlp(self.of_q, torch.cat([self._inputs(packed), actions], 1))[:, 0]

    def actions(self, packed: Tensor, base: Tensor) -> Tensor:
        """(n, width) the changed actions, given those of pi_z."""
        return (base + run_mlp(self.of_action, self._inputs(packed))).clamp(-1.0, 1.0)


class TunedBox(NamedTuple):
    """How a fine-tuned policy chooses among the actions of a box."""

    change: BoxResidual

    def choose(self, policy: Policy, packed: Tensor) -> tuple[Tensor, Tensor]:
        """The changed actions and their Q."""
        with torch.no_grad():
            actions = self.change.actions(packed, policy.model.greedy(packed, policy.z))
        return actions, self.q_at(policy, packed, actions)

    def q_at(self, policy: Policy, packed: Tensor, actions: Tensor) -> Tensor:
        """F . z + q_theta."""
        with torch.no_grad():
            z = policy.z.expand(len(packed), -1)
            return policy.model.q_at(packed, z, actions[:, None])[:, 0] + self.change.q(packed, actions)


def fixed_q(model: Model, packed: Tensor, z: Tensor, actions: Tensor) -> Tensor:
    """(n,) F(s, a, z) . z of one z (d,), with gradients of the actions."""
    x = model.observation_encoder.compact(packed)
    F: Tensor = model.F(x, actions, preprocess_z(z).expand(len(x), -1)).mean(0)
    return F @ z


class BoxCritic:
    """Learns the residuals of a policy from transitions with rewards, in the units of z."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._model = policy, policy.model
        for module in self._model.modules.values():
            module.requires_grad_(False)

    def begin(self, unit: float, learning_rate: float) -> TunedBox:
        """Create the residuals, both zero everywhere."""
        model = self._model
        self.change = BoxResidual(model.observation_encoder, model.phi.action_set.width, unit)
        self._target = copy.deepcopy(self.change).requires_grad_(False)
        self._optimiser = torch.optim.Adam(self.change.parameters(), learning_rate, fused=True)
        return TunedBox(self.change)

    def update(
        self,
        rows: Transitions,
        rewards: Tensor,
        gamma: float,
        limits: tuple[float, float],
        learning_rate: float,
        retention: float,
        random: torch.Generator,
    ) -> float:
        """One gradient step of both residuals; returns the Bellman loss."""
        model, z = self._model, self._policy.z
        base, after = (model.greedy(o, z) for o in (rows.observations, rows.next_observations))
        with torch.no_grad():
            following = smoothed(self._target.actions(rows.next_observations, after), SMOOTHING, MOST_NOISE, random)
            ahead = fixed_q(model, rows.next_observations, z, following)
            ahead += self._target.q(rows.next_observations, following)
            targets = (rewards + gamma * torch.where(rows.terminated, 0.0, ahead)).clamp(*limits)
            now = fixed_q(model, rows.observations, z, rows.actions)
        loss = 0.5 * (now + self.change.q(rows.observations, rows.actions) - targets).square().mean()
        self._optimiser.zero_grad(set_to_none=True)
        (loss / self.change.unit.square()).backward()  # type: ignore[no-untyped-call]  # torch's is untyped
        actions = self.change.actions(rows.observations, base)
        Q = fixed_q(model, rows.observations, z, actions) + self.change.q(rows.observations, actions)
        own = list(self.change.of_action.parameters())  # q_theta is not changed to please the actor
        for parameter, gradient in zip(own, torch.autograd.grad(-Q.mean() / self.change.unit, own), strict=True):
            parameter.grad = gradient
        self._optimiser.param_groups[0]["lr"] = learning_rate
        self._optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self._target.parameters()), list(self.change.parameters()), 1 - retention)
        return float(loss.detach())
