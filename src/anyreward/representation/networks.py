"""The networks F(s, ., z) and B(phi(s, a))."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anyreward.representation.latent import preprocess_z


def mlp(inputs: int, outputs: int, hidden: int, layers: int, layer_norm: bool) -> nn.Sequential:
    """ReLU layers of equal width; ``layer_norm`` normalises before every ReLU but the last."""
    parts: list[nn.Module] = []
    for layer in range(layers):
        parts.append(nn.Linear(inputs if layer == 0 else hidden, hidden))
        if layer_norm and layer < layers - 1:
            parts.append(nn.LayerNorm(hidden))
        parts.append(nn.ReLU(inplace=True))
    parts.append(nn.Linear(hidden, outputs))
    return nn.Sequential(*parts)


class Forward(nn.Module):
    """F: an encoded observation (n, width) and z (n, d) to one vector for each action (n, A, d)."""

    def __init__(self, width: int, actions: int, dim: int, hidden: int, layers: int, layer_norm: bool) -> None:
        super().__init__()
        self.actions, self.dim = actions, dim
        self.net = mlp(width + dim, actions * dim, hidden, layers, layer_norm)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """F(s, ., z), (n, A, d); z enters preprocessed, the inner product with z uses it raw."""
        F: Tensor = self.net(torch.cat([x, preprocess_z(z)], dim=1))
        return F.view(-1, self.actions, self.dim)


class Backward(nn.Module):
    """B: encoded features (n, width) to (n, d)."""

    def __init__(self, width: int, dim: int, hidden: int, layers: int, layer_norm: bool) -> None:
        super().__init__()
        self.net = mlp(width, dim, hidden, layers, layer_norm)

    def forward(self, g: Tensor) -> Tensor:
        """B(g), (n, d)."""
        B: Tensor = self.net(g)
        return B
