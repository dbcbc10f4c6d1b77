"""F and B of one policy as successor and predecessor features of each other; z_R from another distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.fb import FB, check_weights, goals_are_pairs
from anyreward.worlds.spaces import Array


@dataclass(frozen=True)
class SuccessorDensity:
    """m^pi of one policy as a matrix, with the weights of its rows and columns. z is fixed, so F is (n, d)."""

    m: Array
    """(n, G) density of goals after each of n starts (s, a)"""
    rho: Array
    """(n,) weights of the starts: positive, with sum one"""
    rho_goals: Array
    """(G,) weights of the goals: positive, with sum one; m is a density with respect to them"""

    def __post_init__(self) -> None:
        check_weights(self.rho)
        check_weights(self.rho_goals)
        if self.m.shape != (len(self.rho), len(self.rho_goals)):
            raise UserError(
                f"m has shape {self.m.shape}; expected ({len(self.rho)}, {len(self.rho_goals)}), as the weights."
            )


def density_of(fb: FB, z: Array, rho: Array | None = None) -> SuccessorDensity:
    """The true m^{pi_z} of a representation; rho (S A,) weights the starts; default: fb.rho, if goals are pairs."""
    if rho is None:
        if not np.array_equal(fb.phi, goals_are_pairs(fb.mdp)):
            raise UserError("The goals are not the pairs (s, a), so fb.rho cannot weight the starts; give rho (S A,).")
        rho = fb.rho
    return SuccessorDensity(fb.true_density(z).reshape(-1, fb.goals), rho, fb.rho)


def fb_loss(density: SuccessorDensity, F: Array, B: Array) -> float:
    """l(F, B) = |F . B - m|^2 in L2(rho) x L2(rho) for F (n, d), B (G, d), eq. (loss2)."""
    return float(density.rho @ (F @ B.T - density.m) ** 2 @ density.rho_goals)


def successor_features(density: SuccessorDensity, B: Array) -> Array:
    """(n, d) sum_t gamma^t E[B(g_t) | s, a, pi], right-hand side of thm:forwardbackwardinterpretation, claim 1."""
    return np.asarray(density.m @ (density.rho_goals[:, None] * B))


def predecessor_features(density: SuccessorDensity, F: Array) -> Array:
    """(G, d) E_{(s,a) ~ rho}[m(s, a, g) F(s, a)], right-hand side of thm:forwardbackwardinterpretation, claim 2."""
    return np.asarray(density.m.T @ (density.rho[:, None] * F))


def singular_values(density: SuccessorDensity) -> Array:
    """The singular values of m in L2(rho), largest first.

    The least loss in dimension d is the sum of the squares of those beyond d.
    """
    return np.asarray(np.linalg.svd(_weighed(density), compute_uv=False))


def truncated(density: SuccessorDensity, d: int) -> tuple[Array, Array]:
    """F (n, d), B (G, d) of least loss in dimension d: the truncated singular value decomposition of m in L2(rho).

    Cov B = Id and Cov F is diagonal, one of the standard forms after rem:normB.
    """
    if not 1 <= d <= min(density.m.shape):
        raise UserError(f"d is {d}; expected 1 to {min(density.m.shape)}, the number of singular values.")
    left, size, right = np.linalg.svd(_weighed(density), full_matrices=False)
    return (left * size)[:, :d] / np.sqrt(density.rho)[:, None], right[:d].T / np.sqrt(density.rho_goals)[:, None]


def _weighed(density: SuccessorDensity) -> Array:
    """(n, G) m, scaled so that its sum of squares is its squared norm in L2(rho) x L2(rho)."""
    return np.asarray(np.sqrt(density.rho)[:, None] * density.m * np.sqrt(density.rho_goals))


def regression(r: Array, B: Array, rho_test: Array) -> Array:
    """(d,) w = (Cov_test B)^-1 E_test[r B]: linear regression of r (G,) on B (G, d), eq. (linearhatr)."""
    covariance = B.T @ (rho_test[:, None] * B)
    if np.linalg.matrix_rank(covariance, hermitian=True) < len(covariance):
        raise UserError(
            f"Under rho_test, the {len(covariance)} components of B are linearly dependent, so the regression is not "
            "unique. Observe rewards at more goals, or use fewer components."
        )
    return np.asarray(np.linalg.solve(covariance, B.T @ (rho_test * r)))


def linear_z(r: Array, B: Array, rho: Array, rho_test: Array) -> Array:
    """(d,) z_R-hat = (Cov_rho B) w from rewards seen under rho_test, eq. (linearhatzR) (prop:linearz).

    It is z_R where rho_test = rho, or where r is linear in B.
    """
    return np.asarray(B.T @ (rho[:, None] * B) @ regression(r, B, rho_test))
