"""The representation as a whole: packed observations and features in, F, B, Q and pi_z out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyreward.representation.encoding import Encoder
from anyreward.representation.latent import preprocess_z
from anyreward.representation.networks import Backward, Forward
from anyreward.worlds.spaces import Space


@dataclass(frozen=True)
class Representation:
    """The forward-backward representation: F and B, with the encoders of what they see."""

    observation_encoder: Encoder
    feature_encoder: Encoder
    F: nn.Module
    B: nn.Module
    actions: int

    @property
    def dtype(self) -> torch.dtype:
        """The number type of the networks."""
        return next(self.F.parameters()).dtype

    @torch.no_grad()
    def forward_map(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), of packed observations (n, packed) and z (n, d)."""
        F: Tensor = self.F(self.observation_encoder.compact(observations), preprocess_z(z))
        return F

    @torch.no_grad()
    def backward_map(self, features: Tensor) -> Tensor:
        """B(g), (n, d), of packed features (n, packed)."""
        encoder = self.feature_encoder
        if not encoder.categorical:
            every: Tensor = self.B(encoder.compact(features))
            return every
        distinct, index = encoder.distinct(features)  # few, often: B need not see each more than once
        B: Tensor = self.B(encoder.compact(distinct))
        return B[index]

    def greedy(self, observations: Tensor, z: Tensor) -> Tensor:
        """pi_z(s) = argmax_a F(s, a, z) . z, (n,)."""
        return self.q(observations, z).argmax(1)

    def normalise(self, observations: Tensor, features: Tensor) -> None:
        """Fold new packed observations and features into the encoders' running statistics."""
        self.observation_encoder.observe(observations)
        self.feature_encoder.observe(features)

    def q(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, a, z) . z, (n, A), of packed observations (n, packed) and z (n, d)."""
        return torch.bmm(self.forward_map(observations, z), z.unsqueeze(2)).squeeze(2)


def make_representation(
    observation_space: Space,
    feature_space: Space,
    actions: int,
    dim: int,
    hidden: int,
    layers: int,
    layer_norm: bool,
    normalise: bool = True,
) -> Representation:
    """Fresh networks for a pair of spaces; seed torch before calling."""
    observe, features = Encoder(observation_space, normalise), Encoder(feature_space, normalise)
    F = Forward(observe.width, actions, dim, hidden, layers, layer_norm)
    B = Backward(features.width, dim, hidden, layers, layer_norm)
    return Representation(observe, features, F, B, actions)
