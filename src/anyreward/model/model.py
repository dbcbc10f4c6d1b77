"""The model: F, B, Q and greedy actions as functions of packed observations and features."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.model.actor import ForwardBox
from anyreward.model.basis import Basis
from anyreward.model.encoding import Encoder
from anyreward.model.features import FeatureMap
from anyreward.model.landmarks import LandmarkForward, TableBackward
from anyreward.model.latent import preprocess_z
from anyreward.model.networks import Forward
from anyreward.worlds.spaces import Array, channels_last, leaves, seen_space

PROPOSALS = 32
"""Number of actions of a box among which pi_z chooses without an actor."""
ROWS_AT_ONCE = 8_192
"""Number of observations in one pass of F at given actions."""


@dataclass(frozen=True, eq=False)
class Model:
    """The forward-backward representation: F and B, with phi and the encoders of their inputs."""

    phi: FeatureMap
    observation_encoder: Encoder
    feature_encoder: Encoder
    F: nn.Module
    B: nn.Module
    bias: nn.Module | None = None
    """m-bar(s, z, g); None for a representation without bias"""
    actor: nn.Module | None = None
    """pi_z(s), if actions are those of a box; without it, pi_z takes the best of `proposals`"""

    @property
    def actions(self) -> int:
        """The number of listed actions; 0 if every action of a box is possible."""
        return self.phi.actions

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the networks."""
        return self._some_tensor.dtype

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return self._some_tensor.device

    @property
    def _some_tensor(self) -> Tensor:
        return next(self.F.parameters()) if self.landmarks is None else self.landmarks.B

    @property
    def landmarks(self) -> LandmarkForward | None:
        """F, if it consists of tables with a policy for each landmark; None if it is a network."""
        return self.F if isinstance(self.F, LandmarkForward) else None

    @property
    def goals_are_points(self) -> bool:
        """Whether a goal is a single point among continuous features, which no sampled row ever equals."""
        return not self.feature_encoder.categorical and self.phi.tolerance is None

    @property
    def size(self) -> int:
        """The bytes of its weights."""
        tensors = (value for module in self.modules.values() for value in module.state_dict().values())
        return sum(value.numel() * value.element_size() for value in tensors)

    def to(self, device: torch.device | str) -> None:
        """Move networks and encoders to a device, in place."""
        for module in self.modules.values():
            module.to(device)

    def copied(self) -> Model:
        """A copy with each weight in memory of its own, in PyTorch's usual layout, as after loading.

        Training holds the weights in one vector. Sums over weights in another layout are rounded in another way.
        """
        modules: dict[str, Any] = copy.deepcopy(self.modules)  # together: a basis shares an encoder
        for module in modules.values():
            for weight in module.parameters():
                weight.data = weight.data.clone(memory_format=torch.contiguous_format)
        return replace(self, **modules)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The networks and encoders by name, as they are saved."""
        parts = {"F": self.F, "B": self.B, "bias": self.bias, "actor": self.actor}
        parts |= {"observation_encoder": self.observation_encoder, "feature_encoder": self.feature_encoder}
        return {name: module for name, module in parts.items() if module is not None}

    @torch.no_grad()
    def forward_map(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), of packed observations (n, packed) and z (n, d)."""
        z = z.to(self.device)
        if self.landmarks is not None:
            tables: Tensor = self.landmarks(observations, z)
            return tables
        F: Tensor = self.F(self.observation_encoder.compact(observations.to(self.device)), preprocess_z(z))
        return F

    @torch.no_grad()
    def backward_map(self, features: Tensor) -> Tensor:
        """B(g), (n, d), of packed features (n, packed)."""
        encoder, features = self.feature_encoder, features.to(self.device)
        if isinstance(self.B, TableBackward):
            table: Tensor = self.B(features)
            return table
        index = None
        if encoder.categorical:
            features, index = encoder.distinct(features)  # often few: B is computed once for each
        B: Tensor = self.B(encoder.compact(features))
        return B if index is None else B.index_select(0, index)

    @torch.no_grad()
    def bias_map(self, observations: Tensor, z: Tensor, features: Tensor) -> Tensor:
        """m-bar(s, z, g), (n, m), of packed observations (n, packed), one z (d,) and packed features (m, packed)."""
        x, g = self.observation_encoder.compact(observations), self.feature_encoder.compact(features)
        if self.bias is None:
            return torch.zeros(len(x), len(g))
        m: Tensor = self.bias(x, preprocess_z(z).expand(len(x), -1), g)
        return m

    @torch.no_grad()
    def forward_at(self, observations: Tensor, z: Tensor, actions: Tensor) -> Tensor:
        """F(s, a, z), (n, K, d), of packed observations (n, packed), z (n, d) and actions of the box (n, K, width)."""
        n, K, width = actions.shape
        assert isinstance(self.F, ForwardBox)
        seen = self.F.seen(
            self.observation_encoder.compact(observations.to(self.device)), preprocess_z(z.to(self.device))
        )
        return self.F.at(seen, actions.to(self.device).reshape(n * K, width)).mean(0).view(n, K, self.F.dim)

    @torch.no_grad()
    def proposals(self, observations: Tensor, z: Tensor) -> Tensor:
        """(n, K, width) the actions of the box among which pi_z chooses, for packed observations and z (n, d).

        Only that of the actor; or without an actor, actions that cover the box, always the same.
        """
        if self.actor is None:
            spread = torch.from_numpy(self.phi.action_set.spread(PROPOSALS))
            return spread.to(self.device).expand(len(observations), -1, -1)
        x = self.observation_encoder.compact(observations.to(self.device))
        actions: Tensor = self.actor(x, preprocess_z(z.to(self.device)))
        return actions[:, None]

    def q_at(self, observations: Tensor, z: Tensor, actions: Tensor) -> Tensor:
        """F(s, a, z) . z, (n, K) on the CPU, as in `forward_at`."""
        pieces = zip(*(torch.split(rows, ROWS_AT_ONCE) for rows in (observations, z, actions)), strict=True)
        F = [(self.forward_at(o, w, a) @ w.to(self.device)[..., None])[..., 0] for o, w, a in pieces]
        return torch.cat(F).cpu() if F else torch.zeros(0, actions.shape[1])

    def choose(self, observations: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """The actions of pi_z (n,), or (n, width) of a box, and their Q (n,), for packed observations and z."""
        if not self.phi.action_set.continuous:
            Q = self.q(observations, z)
            return Q.argmax(1), Q.amax(1)
        z = z.expand(len(observations), -1)
        proposals = self.proposals(observations, z)
        Q = self.q_at(observations, z, proposals)
        best = Q.argmax(1)
        return proposals.cpu()[torch.arange(len(best)), best], Q.amax(1)

    @torch.no_grad()
    def q(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, a, z) . z, (n, A) on the CPU, of packed observations (n, packed) and z (n, d), or one z (d,) for all.

        For every listed action; `q_at` is that of given actions of a box.
        """
        if self.landmarks is not None:
            return self.landmarks.q(observations, z.to(self.dtype))
        encoder, index = self.observation_encoder, None
        observations, z = observations.to(self.device), z.to(self.device)
        if z.ndim == 1 and encoder.categorical:
            observations, index = encoder.distinct(observations)  # often few
        x = encoder.compact(observations)
        if isinstance(self.F, Forward):
            Q = self.F.q(x, z)
        else:
            Z = z.expand(len(x), -1)
            Q = torch.bmm(self.F(x, preprocess_z(Z)), Z.unsqueeze(2)).squeeze(2)
        return (Q if index is None else Q.index_select(0, index)).cpu()

    def greedy(self, observations: Tensor, z: Tensor) -> Tensor:
        """pi_z(s) = argmax_a F(s, a, z) . z, (n,), or (n, width) in a box."""
        if self.actor is not None:  # its action needs no F
            return self.proposals(observations, z.expand(len(observations), -1))[:, 0].cpu()
        return self.choose(observations, z)[0]

    def choose_for(self, Z: Tensor) -> Callable[[Tensor, Array], Tensor]:
        """Greedy actions as a function of packed observations and the index of each one's z, as in `q_for`."""
        if self.phi.action_set.continuous:
            return lambda observations, which: self.greedy(observations, Z[which])
        q = self.q_for(Z)
        return lambda observations, which: q(observations, which).argmax(1)

    def q_for(self, Z: Tensor) -> Callable[[Tensor, Array], Tensor]:
        """Q as a function of packed observations (n, packed) and the index of each one's z among Z (m, d): (n, A).

        For many steps with the same z: what depends only on z is computed once.
        """
        if self.landmarks is None:
            return lambda observations, which: self.q(observations, Z[which])
        tables, landmarks = self.landmarks.tables(Z.to(self.dtype)), self.landmarks
        return lambda observations, which: landmarks.P.look_up(observations, tables, torch.as_tensor(which))

    def q_tables(self, observations: Tensor, Z: Tensor) -> Tensor:
        """(m, n, A) F(s, a, z) . z for every z of Z (m, d) at every packed observation (n, packed)."""
        n, q, tables = len(observations), self.q_for(Z.to(self.dtype)), []
        for which in torch.split(torch.arange(len(Z)), max(1, 16_384 // n)):  # bounds the memory
            rows = q(observations.repeat(len(which), 1), which.repeat_interleave(n).numpy())
            tables.append(rows.view(len(which), n, -1))
        return torch.cat(tables)

    def normalise(self, observations: Tensor, features: Tensor) -> None:
        """Update the encoders' running statistics with new packed observations and features.

        The inputs of a fixed B keep the statistics that it was fitted with.
        """
        self.observation_encoder.observe(observations)
        if not isinstance(self.B, Basis) or not self.B.fitted:
            self.feature_encoder.observe(features)


def make_encoders(phi: FeatureMap, normalise: bool, encoding: str, feature_encoding: str) -> tuple[Encoder, Encoder]:
    """The encoders of observations and of features; raises for unsupported images."""
    space = phi.seen_space
    if channels_last(space):
        raise UserError(
            f"Observations are colour images of shape {space.shape}; supported: stacks of grey frames, "
            "(frames, height, width). Wrap the environment: gymnasium.wrappers.GrayscaleObservation, "
            "ResizeObservation, FrameStackObservation."
        )
    observed = seen_space(phi.observation_space)
    if not any(leaf.packed for leaf in leaves(observed)):
        raise UserError(
            f"Observations {observed} hold no numbers and no categories: text is left out. Wrap the environment with "
            "gymnasium.wrappers.TransformObservation to turn the text into numbers."
        )
    observe, features = Encoder(space, normalise, encoding), Encoder(phi.space, normalise, feature_encoding)
    if features.image:
        raise UserError(
            "The input of B would be images, which is not supported. Give features: a function of the observation, or "
            "a goal environment whose achieved_goal holds a few numbers."
        )
    return observe, features
