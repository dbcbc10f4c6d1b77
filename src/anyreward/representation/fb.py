"""The representation as a whole: packed observations and features in, F, B, Q and pi_z out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.representation.encoding import Encoder
from anyreward.representation.latent import preprocess_z
from anyreward.representation.networks import Backward, Forward
from anyreward.worlds.spaces import Space, channels_last


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

    @property
    def dim(self) -> int:
        """d, from B's last layer."""
        return list(self.B.parameters())[-1].shape[0]

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return next(self.F.parameters()).device

    def to(self, device: torch.device | str) -> None:
        """Move networks and encoders there, in place."""
        for module in (self.observation_encoder, self.feature_encoder, self.F, self.B):
            module.to(device)

    @torch.no_grad()
    def forward_map(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d), of packed observations (n, packed) and z (n, d)."""
        F: Tensor = self.F(
            self.observation_encoder.compact(observations.to(self.device)), preprocess_z(z.to(self.device))
        )
        return F

    @torch.no_grad()
    def backward_map(self, features: Tensor) -> Tensor:
        """B(g), (n, d), of packed features (n, packed)."""
        encoder, features = self.feature_encoder, features.to(self.device)
        if not encoder.categorical:
            every: Tensor = self.B(encoder.compact(features))
            return every
        distinct, index = encoder.distinct(features)  # few, often: B need not see each more than once
        B: Tensor = self.B(encoder.compact(distinct))
        return B.index_select(0, index)

    def greedy(self, observations: Tensor, z: Tensor) -> Tensor:
        """pi_z(s) = argmax_a F(s, a, z) . z, (n,)."""
        return self.q(observations, z).argmax(1)

    def normalise(self, observations: Tensor, features: Tensor) -> None:
        """Fold new packed observations and features into the encoders' running statistics."""
        self.observation_encoder.observe(observations)
        self.feature_encoder.observe(features)

    def q(self, observations: Tensor, z: Tensor) -> Tensor:
        """F(s, a, z) . z, (n, A) on the CPU, of packed observations (n, packed) and z (n, d), or one z (d,) for all."""
        if z.ndim == 1:
            return self._q_of_one(observations.to(self.device), z.to(self.device)).cpu()
        F = self.forward_map(observations, z)
        return torch.bmm(F, z.to(F.device).unsqueeze(2)).squeeze(2).cpu()

    @torch.no_grad()
    def _q_of_one(self, observations: Tensor, z: Tensor) -> Tensor:
        encoder, index = self.observation_encoder, None
        if encoder.categorical:
            observations, index = encoder.distinct(observations)  # few, often
        x = encoder.compact(observations)
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
) -> Representation:
    """Fresh networks for a pair of spaces; seed torch before calling."""
    if channels_last(observation_space):
        raise UserError(
            f"Observations are colour images of shape {observation_space.shape}; supported: stacks of grey frames, "
            "(frames, height, width). Wrap the environment: gymnasium.wrappers.GrayscaleObservation, "
            "ResizeObservation, FrameStackObservation."
        )
    observe, features = (Encoder(space, normalise, encoding) for space in (observation_space, feature_space))
    if features.image:
        raise UserError(
            "B would see whole images, for which it has no network. Give features: a function of the observation, or "
            "a goal environment whose achieved_goal holds a few numbers."
        )
    F = Forward(observe.width, actions, dim, hidden, layers, layer_norm, action_input, wide, observe.image)
    B = Backward(features.width, dim, hidden, layers, layer_norm)
    return Representation(observe, features, F, B, actions)
