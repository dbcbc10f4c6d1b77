"""A fixed B that is not learned: the features of universal successor features."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from anyreward.errors import UserError
from anyreward.model.encoding import Encoder
from anyreward.model.networks import dense
from anyreward.model.rank import learned_directions
from anyreward.worlds.spaces import Array

LANDMARKS = 500
"""Number of Gaussians that eigenfunctions of the Laplacian are combined from, if features are numbers."""
MOST_ROWS = 20_000
"""Largest number of rows of data that a basis is fitted to."""
CANDIDATES = 4_000
"""Largest number of rows of data that centres are chosen from."""


class Basis(nn.Module):
    """Functions of the features, made orthonormal on the data and then fixed: B(g) = mix^T raw(g), (n, d).

    - state: the encoded features themselves, and a constant; d is their width.
    - rbf: d Gaussians around well-spread points of the data, normalised to a sum of one.
    - fourier: d cosines of random frequencies, on the scale of those Gaussians.
    - laplacian: the d functions that change least from a state to the next: eigenvectors of the Laplacian of the graph
      of transitions. If features are numbers, they are linear combinations of Gaussians.

    With E_rho[B B^T] = 1, the F of least Bellman loss is F = Succ(B), successor features, and z_R = E_rho[r B] are the
    weights of the linear regression of r on B (end of sec:rhotest). If the data has fewer directions than d, the
    other components are zero.
    """

    fitted: Tensor
    coordinates: Tensor
    centres: Tensor
    sharpness: Tensor
    phase: Tensor
    mix: Tensor

    def __init__(self, kind: str, encoder: Encoder, dim: int, coordinates: Array | None = None) -> None:
        super().__init__()
        self.kind, self.dim, self.width, self.one_hot = kind, dim, encoder.width, encoder.one_hot
        self.by_position = kind in ("rbf", "fourier") or (kind == "laplacian" and not self.one_hot)
        if self.by_position and self.one_hot and coordinates is None:
            raise UserError(
                f"basis is {kind!r}, which needs numbers, or coordinates for each category; the features here are "
                "categories without coordinates. Use basis='laplacian' or 'state'."
            )
        if kind != "state" and self.one_hot and len(encoder.leaves) > 1:
            raise UserError(
                f"basis is {kind!r}, which needs one category per state; the features have "
                f"{len(encoder.leaves)} (including the action if B sees it). Use basis='state'."
            )
        # coordinates, if given, replace the categories, as standardised numbers
        table = np.zeros((0, 1))
        if coordinates is not None and self.by_position:
            table = np.asarray(coordinates, dtype=np.float64)
            table = (table - table.mean(0)) / np.maximum(table.std(0), 1e-9)
        self.register_buffer("fitted", torch.tensor(False))
        self.register_buffer("coordinates", torch.tensor(table, dtype=torch.float32))
        inputs = table.shape[1] if len(table) else encoder.width
        m = LANDMARKS if kind == "laplacian" else dim
        self.register_buffer("centres", torch.zeros(m if self.by_position else 0, inputs))
        self.register_buffer("sharpness", torch.tensor(1.0))
        self.register_buffer("phase", torch.zeros(m if kind == "fourier" else 0))
        self.register_buffer("mix", torch.zeros(m if self.by_position else state_width(encoder), dim))

    def forward(self, g: Tensor) -> Tensor:
        """B(g), (n, d), of encoded features (n, width), or their columns (n, k)."""
        return self.raw(g) @ self.mix

    def raw(self, g: Tensor) -> Tensor:
        """(n, m) the functions before they are made orthonormal."""
        if not self.by_position:
            x = dense(g, self.width)
            return x if self.one_hot else torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        x = self.coordinates[g[:, 0]] if len(self.coordinates) else g  # (n, k)
        if self.kind == "fourier":
            return math.sqrt(2) * torch.cos(x @ self.centres.T + self.phase)
        return torch.softmax(-self.sharpness * torch.cdist(x, self.centres).square(), dim=1)

    @torch.no_grad()
    def fit(self, g: Tensor, following: Tensor, random: torch.Generator) -> None:
        """Choose the functions for encoded features (n, ...) of the data, and of their next states."""
        rows = torch.randperm(len(g), generator=random, device=random.device)[:MOST_ROWS].to(g.device)
        g = g[rows]
        if self.by_position:
            x = self.coordinates[g[:, 0]] if len(self.coordinates) else g
            centres, radius = far_points(x[:CANDIDATES], len(self.centres))
            self.sharpness.fill_(1 / (2 * radius**2))
            self.centres.copy_(centres)
            if self.kind == "fourier":
                normal = torch.randn(self.centres.shape, generator=random, device=random.device)
                self.centres.copy_(normal / radius)
                self.phase.copy_(2 * math.pi * torch.rand(len(self.phase), generator=random, device=random.device))
        raw = self.raw(g).double()
        size, directions = torch.linalg.eigh(raw.T @ raw / len(raw))  # ascending
        used = learned_directions(size)
        white = directions[:, used] * size[used].rsqrt()  # (m, r) raw @ white is orthonormal on the data
        if self.kind == "laplacian":
            change = (raw - self.raw(following[rows]).double()) @ white
            _, smooth = torch.linalg.eigh(change.T @ change / len(raw))
            mix = (white @ smooth)[:, : self.dim]
        else:
            mix = white @ directions[:, used].T  # symmetric: it changes the functions least
        self.mix.zero_()
        self.mix[:, : mix.shape[1]] = mix.float()
        self.fitted.fill_(True)


def state_width(encoder: Encoder) -> int:
    """The number of functions of the basis "state": the width of the encoding, plus a constant unless it is one-hot."""
    return encoder.width + (0 if encoder.one_hot else 1)


def far_points(x: Tensor, n: int) -> tuple[Tensor, float]:
    """(n, k) points of x (m, k) by farthest-point sampling, and the distance of the last new one from the others.

    Once all points are taken, the last one is repeated.
    """
    chosen, distance, radius = [x[0]], torch.linalg.vector_norm(x - x[0], dim=1), 1.0
    for _ in range(n - 1):
        farthest = int(distance.argmax())
        if float(distance[farthest]) > 1e-6:
            radius = float(distance[farthest])
            chosen.append(x[farthest])
            distance = torch.minimum(distance, torch.linalg.vector_norm(x - x[farthest], dim=1))
        else:
            chosen.append(chosen[-1])
    return torch.stack(chosen), radius
