"""Interpolation between points: in a triangulation, on a surface among more numbers, or between the nearest ones.

States often lie on a surface although they have more than two numbers: an angle is observed as cosine and sine, so the
angle and speed of a pendulum are three numbers on a cylinder. A triangulation of all three has simplices that cut
through the cylinder, between points that are far apart on it; interpolated transitions would then jump across.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from scipy.spatial import Delaunay, KDTree
from torch import Tensor

from anyreward.worlds.spaces import Array

RIDGE = 1e-3
"""Regularisation of interpolation weights, relative to the distances."""
AROUND, NEAR = 12, 7
"""Nearest points to which a tangent plane is fitted, and among which the triangle around a place is chosen."""
FLAT = 0.02
"""Largest share of the variance of neighbouring points that is outside of their plane, if points are on a surface."""
CLOSE = 0.1
"""Weight of the distance of two points, beside that of their mixture."""
AT_ONCE = 20_000
"""Number of places that are located at once."""
SLACK = 1e-9
"""A share may be below zero by this much, by rounding."""


class Surface:
    """Points (m, p) on a surface of two dimensions among p numbers, and interpolation in their tangent planes."""

    def __init__(self, points: Array) -> None:
        self._points, self._tree = points, KDTree(points)
        around = points[self._tree.query(points, AROUND)[1]]  # (m, AROUND, p)
        _, size, axes = np.linalg.svd(around - around.mean(1, keepdims=True), full_matrices=False)
        self._axes = axes[:, :2]  # (m, 2, p)
        beyond = np.square(size[:, 2:]).sum(1) / np.square(size).sum(1).clip(1e-300)
        self.flat = bool(np.median(beyond) <= FLAT)
        """whether the points are on a surface"""

    def locate(self, x: Array) -> tuple[Array, Array]:
        """The corners of the triangle around each place x (n, p), and their shares, (n, 3) each.

        Of all triangles of near points around a place, it is the one of the Delaunay triangulation. Where there is
        none, at the edge of the surface, it is the nearest place between two points.
        """
        parts = [self._locate(x[i : i + AT_ONCE]) for i in range(0, max(len(x), 1), AT_ONCE)]
        corners, shares = (np.concatenate(column) for column in zip(*parts, strict=True))
        return corners, shares

    def _locate(self, x: Array) -> tuple[Array, Array]:
        near, row = self._tree.query(x, NEAR)[1], np.arange(len(x))[:, None]
        apart = self._points[near] - x[:, None]
        flat = apart @ self._axes[near[:, 0]].transpose(0, 2, 1)  # (n, NEAR, 2) in the plane of the nearest point
        corners, shares, inside = around_zero(flat)
        ends, parts = beside_zero(flat[~inside])
        corners[~inside], shares[~inside] = ends, parts
        return near[row, corners], shares


def around_zero(points: Array) -> tuple[Array, Array, Array]:
    """Three of the points (n, k, 2) around zero, their shares (n, 3), and whether there are such (n,).

    Of all triangles around zero, that of the Delaunay triangulation has the least mean square of its corners.
    """
    sets, row = np.array(list(combinations(range(points.shape[1]), 3))), np.arange(len(points))
    one, two, three = points[:, sets].transpose(2, 0, 1, 3)  # (n, t, 2) each
    shares = np.stack([_cross(two, three), _cross(three, one), _cross(one, two)], 2)  # (n, t, 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares /= shares.sum(2, keepdims=True)
        spread = (shares * np.square(points).sum(2)[:, sets]).sum(2)
        spread = np.where((shares >= -SLACK).all(2) & np.isfinite(spread), spread, np.inf)
    best = spread.argmin(1)
    shares = shares[row, best].clip(0, None)
    inside = np.isfinite(spread[row, best])
    return sets[best], shares / np.where(inside, shares.sum(1), 1.0)[:, None], inside


def beside_zero(points: Array) -> tuple[Array, Array]:
    """Two of the points (n, k, 2), and a third of no share, whose mixture is nearest to zero; their shares (n, 3).

    Of mixtures that are about as near, it is that of near points.
    """
    sets, row = np.array([(i, j, i) for i, j in combinations(range(points.shape[1]), 2)]), np.arange(len(points))
    one, two = points[:, sets[:, 0]], points[:, sets[:, 1]]  # (n, t, 2)
    way = two - one
    share = np.clip(-(one * way).sum(2) / np.square(way).sum(2).clip(1e-300), 0.0, 1.0)
    spread = (1 - share) * np.square(one).sum(2) + share * np.square(two).sum(2)
    best = (np.square(one + share[..., None] * way).sum(2) + CLOSE * spread).argmin(1)
    share = share[row, best]
    return sets[best], np.stack([1 - share, share, np.zeros(len(share))], 1)


def _cross(a: Array, b: Array) -> Array:
    return np.asarray(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])


def barycentric(triangles: Delaunay, x: Array) -> tuple[Array, Array, Array]:
    """Whether points x (n, p) lie in a triangulation (n,), their corners (n, p + 1), and the shares of these."""
    which, p = triangles.find_simplex(x), x.shape[1]
    affine = triangles.transform[which]  # (n, p + 1, p)
    most = np.einsum("nij,nj->ni", affine[:, :p], x - affine[:, p])
    shares = np.concatenate([most, 1 - most.sum(1, keepdims=True)], 1)
    inside = (which >= 0) & np.isfinite(shares).all(1)  # flat triangles have no shares
    shares = np.where(inside[:, None], shares.clip(0, None), 1.0)
    return inside, triangles.simplices[which], shares / shares.sum(1, keepdims=True)


def simplex_shares(x: Tensor, corners: Tensor) -> Tensor:
    """(n, k) nonnegative shares, with a sum of one, of corners (n, k, p) whose mixture approximates x (n, p)."""
    apart = corners - x[:, None]  # (n, k, p)
    gram = apart @ apart.transpose(1, 2)  # (n, k, k)
    size = gram.diagonal(dim1=1, dim2=2).mean(1)
    gram = gram + (RIDGE * size + 1e-18)[:, None, None] * torch.eye(corners.shape[1], dtype=x.dtype)
    share = torch.linalg.solve(gram, torch.ones(*corners.shape[:2], 1, dtype=x.dtype)).squeeze(2).clamp(min=0)
    normalised: Tensor = share / share.sum(1, keepdim=True)
    return normalised
