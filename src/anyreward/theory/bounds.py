"""The paper's bounds on optimality gaps, each with the gap that it bounds, for any F and B, exact or not.

Functions of an FB take rewards r (G,) on its goals; functions of an MDP take rewards (S,) or (S, A).
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import eye_array

from anyreward.errors import UserError
from anyreward.theory.fb import (
    FB,
    check_weights,
    goal_measure,
    goals_are_pairs,
    greedy,
    inverse_covariance,
    orthonormaliser,
)
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.spaces import Array

Number = TypeVar("Number", float, Array)


class Bound(NamedTuple, Generic[Number]):
    """The bound of a statement and the actual gap: the statement says gap <= bound."""

    bound: Number
    gap: Number


class Draws(NamedTuple):
    """Results for z_R estimated from a sample, one for each draw of the sample."""

    z: Array
    """(draws, d) z_hat"""
    gap: Array
    """(draws,) |V^{pi_z-hat} - V*|_inf for the reward itself"""
    eps_fb: Array
    """(draws,) the same for r-hat, the reward whose z_R is z_hat: the part due to the errors of F and B"""


def q_from_successors(mdp: FiniteMDP, pi: Array, r: Array, phi: Array | None = None) -> Array:
    """(S, A) Q^pi = sum_g r(g) M^pi(s, a, g) for rewards r (G,) on goals phi (prop:Qsucc); default: g = s A + a."""
    phi = goals_are_pairs(mdp) if phi is None else phi
    return np.asarray(goal_measure(mdp, pi, phi, len(r)) @ r)


def reward_lipschitz(mdp: FiniteMDP, r1: Array, r2: Array, pi: Array | None = None) -> Bound[float]:
    """|Q_1 - Q_2|_inf <= |r1 - r2|_inf / (1 - gamma) for the optimal Q, or for that of a policy pi (prop:rtoQ).

    The V-functions differ by no more than the Q-functions do.
    """
    difference = _difference(r1, r2)
    q1, q2 = (_optimal(mdp, r)[0] if pi is None else _q(mdp, pi, r) for r in (r1, r2))
    return Bound(_sup(difference) / (1 - mdp.gamma), _sup(q1 - q2))


def greedy_gap(mdp: FiniteMDP, f: Array, r: Array) -> tuple[Bound[float], Bound[float]]:
    """|f - Q*|_inf and |Q^{pi_f} - Q*|_inf for pi_f = argmax_a f(s, a), f (S, A) (prop:pifgap, both claims).

    At most 2 / (1 - gamma) and 3 / (1 - gamma) times |f - Q^{pi_f}|_inf.
    """
    Q, (Q_star, _) = _q(mdp, greedy(f), r), _optimal(mdp, r)
    unit = _sup(f - Q) / (1 - mdp.gamma)
    return Bound(2 * unit, _sup(f - Q_star)), Bound(3 * unit, _sup(Q - Q_star))


def pointwise_gap(mdp: FiniteMDP, r1: Array, r2: Array) -> Bound[Array]:
    """(S, A) Q*_1 - Q_1^{pi_2} <= (M_1 - M_2)(r1 - r2) for policies optimal for r1 and r2 (prop:pointwisegap)."""
    difference = _difference(r1, r2)
    (Q_star, pi1), (_, pi2) = _optimal(mdp, r1), _optimal(mdp, r2)
    return Bound(_q(mdp, pi1, difference) - _q(mdp, pi2, difference), Q_star - _q(mdp, pi2, r1))


def approximation(fb: FB, r: Array) -> Bound[float]:
    """|V^{pi_z_R} - V*|_inf <= 3 eps |r|_inf / (1 - gamma), eps = sup_{s,a} E_rho |E(z_R)| (thm:approx, claim 1)."""
    return Bound(3 * _model_error(fb, r) / (1 - fb.mdp.gamma), value_gap(fb, fb.z_of(r), r))


def dual_approximation(fb: FB, r: Array, p: float = 2.0) -> tuple[Bound[float], Bound[float]]:
    """The gaps of V and of Q in dual norms, 1/p + 1/q = 1: eps = sup_{s,a} |E(z_R)|_Lp(rho) (thm:approx, claim 3).

    At most 3 eps |r|_Lq(rho) / (1 - gamma) and 2 eps |r|_Lq(rho) / (1 - gamma). p = 1 is `approximation`; training
    minimises the error for p = 2.
    """
    if not 1 <= p < np.inf:
        raise UserError(f"p is {p}; expected 1 <= p < infinity.")
    eps = float(((np.abs(fb.error(fb.z_of(r))) ** p @ fb.rho) ** (1 / p)).max())
    size = _sup(r) if p == 1 else float((np.abs(r) ** (p / (p - 1)) @ fb.rho) ** (1 - 1 / p))
    unit = eps * size / (1 - fb.mdp.gamma)
    return Bound(3 * unit, value_gap(fb, fb.z_of(r), r)), Bound(2 * unit, _q_gap(fb, r))


def q_approximation(fb: FB, r: Array) -> Bound[float]:
    """|F . z_R + V-bar - Q*|_inf <= 2 eps |r|_inf / (1 - gamma), eps as in `approximation` (thm:approx, last claim)."""
    return Bound(2 * _model_error(fb, r) / (1 - fb.mdp.gamma), _q_gap(fb, r))


def lipschitz(fb: FB, r: Array, distance: Array) -> Bound[float]:
    """|V^{pi_z_R} - V*|_inf <= 3 eps max(|r|_inf, Lip r) / (1 - gamma) (thm:approx, claim 2).

    eps is the largest Kantorovich-Rubinstein norm of M^{pi_z_R}(s, a, .) minus its model; distance (G, G) is a metric
    on goals.
    """
    return Bound(3 * _weak_error(fb, r, distance) / (1 - fb.mdp.gamma), value_gap(fb, fb.z_of(r), r))


def q_lipschitz(fb: FB, r: Array, distance: Array) -> Bound[float]:
    """|F . z_R + V-bar - Q*|_inf <= 2 eps max(|r|_inf, Lip r) / (1 - gamma), eps as in `lipschitz` (thm:approx)."""
    return Bound(2 * _weak_error(fb, r, distance) / (1 - fb.mdp.gamma), _q_gap(fb, r))


def pointwise(fb: FB, r: Array) -> Bound[Array]:
    """(S, A) Q* - Q^{pi_z_R} <= sum_t gamma^(t+1) P_*^t (P_* - P_{pi_z_R}) E(z_R) diag(rho) r (thm:pointwiseapprox)."""
    mdp, z, R = fb.mdp, fb.z_of(r), fb.on_pairs(r)
    pi, (Q_star, pi_star) = fb.policy(z), _optimal(mdp, R)
    missed = fb.error(z) @ (fb.rho * r)  # (S, A) Q^{pi_z_R} - the model's Q
    step = mdp.q_value(((pi_star - pi) * missed).sum(-1), np.zeros_like(R))  # gamma (P_* - P_pi) E diag(rho) r
    return Bound(_q(mdp, pi_star, step), Q_star - _q(mdp, pi, R))


def approximate_reward(fb: FB, r: Array, r_hat: Array, eps_fb: float | None = None) -> Bound[float]:
    """|V^{pi_z_hat} - V*|_inf <= 2 |r - r_hat|_inf / (1 - gamma) + eps_FB where z comes from r_hat (prop:approxr).

    eps_FB bounds the gap of that policy for r_hat: by default the gap itself, or for example
    ``approximation(fb, r_hat).bound``.
    """
    difference, z = _difference(r, r_hat), fb.z_of(r_hat)
    eps_fb = value_gap(fb, z, r_hat) if eps_fb is None else eps_fb
    return Bound(2 * _sup(difference) / (1 - fb.mdp.gamma) + eps_fb, value_gap(fb, z, r))


def skewness(B: Array, rho: Array) -> float:
    """zeta(B), the largest |f|_inf / |f|_L2(rho) in the span of B (def:skew).

    For orthonormal B and f = w . B that is |f(g)| <= |w| |B(g)|, with equality for w = B(g).
    """
    orthonormal = B @ orthonormaliser(B, rho).T
    if not orthonormal.size:
        raise UserError("B is zero, so its span has no function but zero; expected a nonzero component.")
    return float(np.linalg.norm(orthonormal, axis=1).max())


def sampled_reward(
    fb: FB, r: Array, n: int, delta: float, variance: float = 0.0, draws: int = 200, seed: int = 0
) -> Bound[float]:
    """|V^{pi_z_hat} - V*|_inf <= eps_FB + `sampling_term` with probability 1 - delta (thm:approxzR).

    z_hat is estimated from n samples. Over the draws, the gap is its 1 - delta quantile and eps_FB its maximum.
    """
    found = sampled_gaps(fb, r, n, draws, seed, variance)
    within = float(np.quantile(found.gap, 1 - delta, method="inverted_cdf"))
    return Bound(float(found.eps_fb.max()) + sampling_term(fb, r, n, delta, variance), within)


def sampling_term(fb: FB, r: Array, n: int, delta: float, variance: float = 0.0) -> float:
    """The bound's term for estimating z_R from n samples of the reward, with probability 1 - delta (thm:approxzR).

    ``variance`` (v) is that of a reward observed at one goal. This corrects the paper (docs/theory.md): for orthonormal
    B, E|z_hat - z_R|^2 = (E_rho[(v + r^2) |B|^2] - |z_R|^2) / n, and |r_hat - r|_inf <= zeta |z_hat - z_R|, so that
    zeta is squared under the square root.
    """
    _check_sample(n, delta, variance)
    C = orthonormaliser(fb.B, fb.rho)
    B, z = fb.B @ C.T, C @ fb.z_of(r)
    spread = (fb.rho * (variance + r**2)) @ (B**2).sum(1) - z @ z
    return float(2 / (1 - fb.mdp.gamma) * np.sqrt(skewness(B, fb.rho) ** 2 * max(spread, 0.0) / (n * delta)))


def sampled_gaps(fb: FB, r: Array, n: int, draws: int, seed: int, variance: float = 0.0) -> Draws:
    """Draw n rewards at goals from rho, estimate z_R and measure the gap of pi_{z_hat}, ``draws`` times.

    gap <= eps_fb + `sampling_term` holds with probability at least 1 - delta in each draw.
    """
    _check_sample(n, 1.0, variance)
    check_weights(fb.rho)
    if draws < 1:
        raise UserError(f"draws is {draws}; it must be positive.")
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, fb.rho / fb.rho.sum(), size=draws)  # (draws, G)
    sums = counts * r + np.sqrt(variance * counts) * rng.standard_normal(counts.shape)
    z = sums / n @ fb.B  # (draws, d)
    r_hat = r + (z - fb.z_of(r)) @ inverse_covariance(fb.B, fb.rho) @ fb.B.T  # (draws, G) its z is z_hat
    pi = np.stack([fb.policy(row) for row in z])
    return Draws(z, *(_value_gaps(fb.mdp, pi, fb.on_pairs(reward)) for reward in (r, r_hat)))


def project(r: Array, B: Array, rho: Array) -> Array:
    """(G,) r_B, the L2(rho)-orthogonal projection of r on the span of B (thm:fixedbackward)."""
    orthonormal = B @ orthonormaliser(B, rho).T
    return np.asarray(orthonormal @ ((rho * r) @ orthonormal))


def fixed_backward(fb: FB, r: Array) -> tuple[Bound[float], Bound[float]]:
    """|V^{pi_z_R} - V*|_inf for the best F of a fixed B, as returned by `exact` (thm:fixedbackward).

    At most 2 |r - r_B|_inf / (1 - gamma), eq. (simplifiedlaplacianbound), and at most
    |(Id - gamma P_*)^-1 (r - r_B)|_inf + |(Id - gamma P_{pi_z_R})^-1 (r - r_B)|_inf, eq. (laplacianbound).
    """
    mdp, z = fb.mdp, fb.z_of(r)
    best = fb.true_measure(z) @ fb.B @ inverse_covariance(fb.B, fb.rho)  # (Cov B)^-1 Succ(B)
    if fb.bias is not None or not np.allclose(fb.forward(z), best, rtol=1e-6, atol=1e-8 * _sup(best)):
        raise UserError(
            "This F is not the best one for its B, which these bounds require; use exact(mdp, rho, phi, B)."
        )
    outside = r - project(r, fb.B, fb.rho)
    pi, (_, pi_star) = fb.policy(z), _optimal(mdp, fb.on_pairs(r))
    precise = sum(_sup(_q(mdp, each, fb.on_pairs(outside))) for each in (pi_star, pi))
    gap = value_gap(fb, z, r)
    return Bound(2 * _sup(outside) / (1 - mdp.gamma), gap), Bound(precise, gap)


def value_gap(fb: FB, z: Array, r: Array) -> float:
    """|V^{pi_z} - V*|_inf for the reward r."""
    return float(_value_gaps(fb.mdp, fb.policy(z), fb.on_pairs(r)))


def kr_norm(mu: Array, distance: Array) -> Array:
    """(...) the Kantorovich-Rubinstein norm of signed measures mu (..., G): sup |sum f mu|, |f| <= 1, f 1-Lipschitz.

    Solved as a linear program for each measure. distance (G, G) is a metric; it may be infinite between two goals.
    """
    mu, distance = np.asarray(mu, dtype=np.float64), np.asarray(distance, dtype=np.float64)
    _check_metric(distance, mu.shape[-1])
    i, j = binding_pairs(distance)
    f = eye_array(mu.shape[-1], format="csr")
    f_i_minus_f_j = f[i] - f[j]

    def norm(one: Array) -> float:  # always solved: f = 0 is allowed and f is bounded
        return -float(linprog(-one, A_ub=f_i_minus_f_j, b_ub=distance[i, j], bounds=(-1, 1), method="highs").fun)

    return np.apply_along_axis(norm, -1, mu)


def binding_pairs(distance: Array) -> tuple[Array, Array]:
    """The ordered pairs of goals whose |f_i - f_j| <= d_ij is not implied by |f| <= 1 or by a goal in between."""
    needed = distance < 2
    np.fill_diagonal(needed, False)
    for k in range(len(distance)):
        through = (distance[:, k, None] + distance[k] <= distance * (1 + 1e-12)) & (
            np.maximum(distance[:, k, None], distance[k]) < distance  # else two pairs could each imply the other
        )
        through[k], through[:, k] = False, False
        needed &= ~through
    i, j = np.nonzero(needed)
    return i, j


def _check_metric(distance: Array, goals: int) -> None:
    if distance.shape != (goals, goals):
        raise UserError(f"distance has shape {distance.shape}; expected ({goals}, {goals}), one per pair of goals.")
    apart = distance[~np.eye(goals, dtype=bool)]
    # the triangle inequality, through k
    shortcut = any((distance[:, k, None] + distance[k] < distance * (1 - 1e-9)).any() for k in range(goals))
    if np.diag(distance).any() or not (apart > 0).all() or (distance != distance.T).any() or shortcut:
        raise UserError(
            "distance is not a metric; expected zero from a goal to itself, positive otherwise, symmetric, and "
            "with the triangle inequality."
        )


def _check_sample(n: int, delta: float, variance: float) -> None:
    if n < 1 or not 0 < delta <= 1 or variance < 0:
        raise UserError(f"n={n}, delta={delta}, variance={variance}; expected n >= 1, 0 < delta <= 1, variance >= 0.")


def _model_error(fb: FB, r: Array) -> float:
    """|r|_inf sup_{s,a} |M - its model|, in the norm L1(rho) of densities."""
    return _sup(r) * float((np.abs(fb.error(fb.z_of(r))) @ fb.rho).max())


def _weak_error(fb: FB, r: Array, distance: Array) -> float:
    """max(|r|_inf, Lip r) sup_{s,a} |M - its model|_KR."""
    norms = kr_norm(fb.error(fb.z_of(r)) * fb.rho, distance)
    slopes = np.abs(r[:, None] - r) / np.where(distance > 0, distance, np.inf)
    return max(_sup(r), float(slopes.max())) * float(norms.max())


def _q_gap(fb: FB, r: Array) -> float:
    return _sup(fb.q(fb.z_of(r), r) - _optimal(fb.mdp, fb.on_pairs(r))[0])


def _value_gaps(mdp: FiniteMDP, pi: Array, R: Array) -> Array:
    """(...) |V^pi - V*|_inf of policies pi (..., S, A) for rewards R (..., S, A)."""
    return np.asarray(np.abs(mdp.policy_value(pi, R) - mdp.optimal_value(R)).max(-1))


def _optimal(mdp: FiniteMDP, r: Array) -> tuple[Array, Array]:
    """(S, A) Q* and (S, A) an optimal policy, one-hot."""
    Q = mdp.q_value(mdp.optimal_value(r), r)
    return Q, greedy(Q)


def _q(mdp: FiniteMDP, pi: Array, r: Array) -> Array:
    """(S, A) Q^pi = (Id - gamma P_pi)^-1 r."""
    return mdp.q_value(mdp.policy_value(pi, r), r)


def _difference(r1: Array, r2: Array) -> Array:
    r1, r2 = np.asarray(r1, dtype=np.float64), np.asarray(r2, dtype=np.float64)
    if r1.shape != r2.shape:
        raise UserError(f"The rewards have shapes {r1.shape} and {r2.shape}; expected two of the same shape.")
    return np.asarray(r1 - r2)


def _sup(x: Array) -> float:
    return float(np.abs(x).max())
