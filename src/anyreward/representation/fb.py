"""The representation as a whole: packed observations and features in, F, B, Q and pi_z out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.representation.basis import Basis
from anyreward.representation.encoding import Encoder
from anyreward.representation.landmarks import LandmarkForward, TableBackward
from anyreward.representation.latent import Coordinates, preprocess_z
from anyreward.representation.networks import Backward, Bias, Forward, GoalInput
from anyreward.worlds.spaces import Space, channels_last

Array = np.ndarray[Any, Any]

GOAL_METHODS = ("goal-dqn", "goal-dqn-her")
"""Methods that learn Q(s, a, g), and answer goals alone."""


@dataclass(frozen=True)
class Representation:
    """The forward-backward representation: F and B, with the encoders of what they see."""

    observation_encoder: Encoder
    feature_encoder: Encoder
    F: nn.Module
    B: nn.Module
    actions: int
    bias: nn.Module | None = None
    """m-bar(s, z, g), where the representation is extended by one"""
    coordinates: Coordinates | None = None
    """of z, F and B, where they are not those that the networks learned in"""

    @property
    def dtype(self) -> torch.dtype:
        """The number type of the networks."""
        return self._some_tensor.dtype

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return self._some_tensor.device

    @property
    def _some_tensor(self) -> Tensor:
        return next(self.F.parameters()) if self.landmarks is None else self.landmarks.B

    @property
    def landmarks(self) -> LandmarkForward | None:
        """F, where it is a table with a policy for each landmark; None where it is a network."""
        return self.F if isinstance(self.F, LandmarkForward) else None

    def to(self, device: torch.device | str) -> None:
        """Move networks and encoders there, in place."""
        for module in self.modules.values():
            module.to(device)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The networks and encoders by name: what is saved of a representation."""
        parts = {"F": self.F, "B": self.B, "bias": self.bias}
        parts |= {"observation_encoder": self.observation_encoder, "feature_encoder": self.feature_encoder}
        return {name: module for name, module in parts.items() if module is not None}

    @torch.no_grad()
    def forward_map(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), of packed observations (n, packed) and z (n, d)."""
        own = self.own(z.to(self.device))
        if self.landmarks is not None:
            F: Tensor = self.landmarks(observations, own)
        else:
            F = self.F(self.observation_encoder.compact(observations.to(self.device)), preprocess_z(own))
        return F if self.coordinates is None else self.coordinates.forward(F)

    @torch.no_grad()
    def backward_map(self, features: Tensor) -> Tensor:
        """B(g), (n, d), of packed features (n, packed)."""
        encoder, features = self.feature_encoder, features.to(self.device)
        if isinstance(self.B, TableBackward):
            table: Tensor = self.B(features)
            return table if self.coordinates is None else self.coordinates.new(table)
        index = None
        if encoder.categorical:
            features, index = encoder.distinct(features)  # few, often: B need not see each more than once
        B: Tensor = self.B(encoder.compact(features))
        B = B if self.coordinates is None else self.coordinates.new(B)
        return B if index is None else B.index_select(0, index)

    @torch.no_grad()
    def bias_map(self, observations: Tensor, z: Tensor, features: Tensor) -> Tensor:
        """m-bar(s, z, g), (n, m), of packed observations (n, packed), one z (d,) and packed features (m, packed)."""
        x, g = self.observation_encoder.compact(observations), self.feature_encoder.compact(features)
        if self.bias is None:
            return torch.zeros(len(x), len(g))
        m: Tensor = self.bias(x, preprocess_z(self.own(z)).expand(len(x), -1), g)
        return m

    @property
    def of_goals(self) -> bool:
        """Whether it is Q(s, a, g) of goal-oriented DQN, which knows no other z than goals."""
        return isinstance(self.F, Forward) and self.F.goal > 0

    def own(self, z: Tensor) -> Tensor:
        """The same z (..., d), in the coordinates that the networks learned in."""
        return z if self.coordinates is None else self.coordinates.own(z)

    def greedy(self, observations: Tensor, z: Tensor) -> Tensor:
        """pi_z(s) = argmax_a F(s, a, z) . z, (n,)."""
        return self.q(observations, z).argmax(1)

    def normalise(self, observations: Tensor, features: Tensor) -> None:
        """Fold new packed observations and features into the encoders' running statistics.

        What a fixed B sees stays as it was when that was fitted.
        """
        self.observation_encoder.observe(observations)
        if not isinstance(self.B, Basis) or not self.B.fitted:
            self.feature_encoder.observe(features)

    def q(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, a, z) . z, (n, A) on the CPU, of packed observations (n, packed) and z (n, d), or one z (d,) for all."""
        if self.landmarks is not None:
            return self.landmarks.q(observations, self.own(z).to(self.dtype))
        if z.ndim == 1:
            return self._q_of_one(observations.to(self.device), z.to(self.device)).cpu()
        if self.of_goals:
            return self._q_of_goals(observations.to(self.device), z.to(self.device)).cpu()
        F = self.forward_map(observations, z)
        return torch.bmm(F, z.to(F.device).unsqueeze(2)).squeeze(2).cpu()

    def answers(self, Z: Tensor) -> Callable[[Tensor, Array], Tensor]:
        """Q as a function of packed observations (n, packed) and which of Z (m, d) each is for (n,): (n, A).

        For many steps with the same z: whatever depends on z alone is computed once.
        """
        if self.landmarks is None:
            return lambda observations, which: self.q(observations, Z[which])
        Q, landmarks = self.landmarks.tables(self.own(Z).to(self.dtype)), self.landmarks
        return lambda observations, which: landmarks.look_up(observations, Q, torch.as_tensor(which))

    @torch.no_grad()
    def _q_of_goals(self, observations: Tensor, z: Tensor) -> Tensor:
        Q: Tensor = self.F(self.observation_encoder.compact(observations), z)
        return Q.squeeze(2)

    @torch.no_grad()
    def _q_of_one(self, observations: Tensor, z: Tensor) -> Tensor:
        encoder, index = self.observation_encoder, None
        if encoder.categorical:
            observations, index = encoder.distinct(observations)  # few, often
        x, z = encoder.compact(observations), self.own(z)  # F' . z' = F . z
        F, shown = self.F, preprocess_z(z).expand(len(x), -1)
        Q: Tensor = F.q(x, z) if isinstance(F, Forward) else F(x, shown) @ z
        return Q if index is None else Q.index_select(0, index)


def make_representation(
    observation_space: Space,
    feature_space: Space,
    actions: int,
    dim: int,
    hidden: int,
    layers: int,
    layer_norm: bool,
    normalise: bool = True,
    action_input: bool = False,
    wide: int = 0,
    encoding: str = "plain",
    bias: bool = False,
    method: str = "fb",
    basis: str = "state",
    places: Array | None = None,
    tables: bool = False,
) -> Representation:
    """Fresh networks for a pair of spaces; seed torch before calling.

    ``method`` decides what stands for B: a network, a ``basis`` for successor features, with the places of categories
    on a map, or the goals themselves. With ``tables``, F and B are tables over what was seen.
    """
    if channels_last(observation_space):
        raise UserError(
            f"Observations are colour images of shape {observation_space.shape}; supported: stacks of grey frames, "
            "(frames, height, width). Wrap the environment: gymnasium.wrappers.GrayscaleObservation, "
            "ResizeObservation, FrameStackObservation."
        )
    observe = Encoder(observation_space, normalise, encoding)
    features = Encoder(feature_space, normalise, "plain" if method == "successor-features" else encoding)
    if features.image:
        raise UserError(
            "B would see whole images, for which it has no network. Give features: a function of the observation, or "
            "a goal environment whose achieved_goal holds a few numbers."
        )
    if tables:
        return Representation(observe, features, LandmarkForward(observe, actions), TableBackward(features), actions)
    goal = features.width if method in GOAL_METHODS else 0
    F = Forward(observe.width, actions, dim, hidden, layers, layer_norm, action_input, wide, observe.image, goal)
    B: nn.Module
    if goal:
        B = GoalInput(goal)
    elif method == "successor-features":
        B = Basis(basis, features, dim, places)
    else:
        B = Backward(features.width, dim, hidden, layers, layer_norm)
    m_bar = Bias(observe.width, features.width, dim, hidden, layers, layer_norm, observe.image) if bias else None
    return Representation(observe, features, F, B, actions, m_bar)
