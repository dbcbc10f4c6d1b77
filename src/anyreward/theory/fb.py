"""Tabular forward-backward representations of finite MDPs, exact or not, with their policies and Q-functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.spaces import Array

TIE = 1e-12
"""Two actions are tied if F . z differs by less than this share of |F| |z|, which is within rounding errors."""
RANK = 1e-7
"""A direction of B counts as unused if its singular value is below this share of the largest."""


@dataclass(frozen=True)
class FB:
    """F, B, m-bar and pi_z of an extended forward-backward representation (def:fb2), exact or not.

    The model is m^{pi_z}(s, a, g) ~ F(s, a, z) . B(g) + m-bar(s, z, g), a density with respect to rho on the
    goals g = phi(s, a). Rewards are r (G,) on goals, hence R(s, a) = r(phi(s, a)).
    """

    mdp: FiniteMDP
    forward: Callable[[Array], Array]
    """z (d,) -> F(., ., z) (S, A, d)"""
    B: Array
    """(G, d)"""
    rho: Array
    """(G,) positive; bounds for samples need a sum of one"""
    phi: Array
    """(S, A) the index of the goal of each state and action"""
    bias: Callable[[Array], Array] | None = None
    """z (d,) -> m-bar(., z, .) (S, G); None means zero"""
    first: int = 0
    """0: successors from t = 0 on; 1: from t = 1 on, for rewards on states alone (sec:diracs)"""

    def __post_init__(self) -> None:
        for name in ("B", "rho", "phi"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        check_weights(self.rho, total=False)
        check_goals(self.mdp, self.phi, self.goals, self.first)
        if self.B.ndim != 2 or len(self.B) != self.goals:
            raise UserError(f"B has shape {self.B.shape}; expected (goals, d) with the {self.goals} goals of rho.")

    @property
    def goals(self) -> int:
        """The number of goals."""
        return len(self.rho)

    @property
    def dimension(self) -> int:
        """d, the number of components of z."""
        return int(self.B.shape[1])

    def on_pairs(self, r: Array) -> Array:
        """(..., S, A) R(s, a) = r(phi(s, a)) of rewards r (..., G)."""
        r = np.asarray(r, dtype=np.float64)
        if r.shape[-1:] != (self.goals,):
            raise UserError(f"A reward of shape {r.shape} does not fit; expected a number for each goal, {self.goals}.")
        return np.asarray(r[..., self.phi])

    def z_of(self, r: Array) -> Array:
        """(d,) z_R = E_rho[r B], eq. (zR2)."""
        self.on_pairs(r)  # raises if r does not fit
        return np.asarray((self.rho * r) @ self.B)

    def policy(self, z: Array) -> Array:
        """(S, A) pi_z, one-hot: the first action whose F(s, a, z) . z is the largest up to rounding (def:fb2)."""
        z = np.asarray(z)
        if z.shape != (self.dimension,):
            raise UserError(f"z has shape {z.shape}; expected ({self.dimension},).")
        return greedy_in(self.forward(z), z)

    def state_value(self, z: Array, r: Array) -> Array:
        """(S,) the part of the Q of pi_z besides F . z_R: V-bar^z (thm:main2), and r(s) if successors start at 1."""
        now = self.on_pairs(r)[:, 0] if self.first else np.zeros(self.mdp.states)
        return now if self.bias is None else np.asarray(now + self.bias(z) @ (self.rho * r))

    def q(self, z: Array, r: Array) -> Array:
        """(S, A) the model's Q of pi_z for r, F(s, a, z) . z_R + V-bar^z(s), eq. (Qfunc_general)."""
        return np.asarray(self.forward(z) @ self.z_of(r) + self.state_value(z, r)[:, None])

    def model_density(self, z: Array) -> Array:
        """(S, A, G) the model of m^{pi_z}: F(s, a, z) . B(g) + m-bar(s, z, g)."""
        product = np.asarray(self.forward(z) @ self.B.T)
        return product if self.bias is None else product + self.bias(z)[:, None]

    def true_measure(self, z: Array) -> Array:
        """(S, A, G) M^{pi_z} of the goals, eq. (Mgoal), from t = ``first`` on."""
        return goal_measure(self.mdp, self.policy(z), self.phi, self.goals, self.first)

    def true_density(self, z: Array) -> Array:
        """(S, A, G) m^{pi_z}, the density of M^{pi_z} with respect to rho."""
        return self.true_measure(z) / self.rho

    def error(self, z: Array) -> Array:
        """(S, A, G) E(z) = m^{pi_z} - F . B - m-bar (thm:pointwiseapprox); zero if eq. (extendedFB) holds."""
        return self.true_density(z) - self.model_density(z)


def check_weights(rho: Array, total: bool = True) -> None:
    """Raise unless rho is a positive probability distribution or, without ``total``, a positive measure."""
    if rho.ndim != 1 or not (rho > 0).all() or (total and not abs(rho.sum() - 1) < 1e-9):
        raise UserError(
            f"rho has shape {rho.shape}, smallest entry {rho.min(initial=np.inf):.3g} and sum {rho.sum():.6g}; "
            f"expected one positive number for each goal{', with sum one' if total else ''}: a density needs rho > 0."
        )


def check_goals(mdp: FiniteMDP, phi: Array, goals: int, first: int) -> None:
    """Raise unless phi gives each state and action a goal and ``first`` fits it."""
    if phi.shape != (mdp.states, mdp.actions) or not np.issubdtype(phi.dtype, np.integer):
        raise UserError(f"phi is {phi.dtype} {phi.shape}; expected whole numbers, ({mdp.states}, {mdp.actions}).")
    if phi.min() < 0 or phi.max() >= goals:
        raise UserError(f"phi goes from {phi.min()} to {phi.max()}; expected goals from 0 to {goals - 1}, as in rho.")
    if first not in (0, 1):
        raise UserError(f"first is {first}; expected 0 (successors from t = 0 on) or 1 (from t = 1 on).")
    if first == 1 and (phi != phi[:, :1]).any():
        raise UserError(
            "first is 1 and phi depends on the action: without t = 0, F . z lacks the immediate reward of an action. "
            "Use goals on states alone (goals_are_states), or first=0."
        )


def goals_are_pairs(mdp: FiniteMDP) -> Array:
    """(S, A) phi = Id: every pair (s, a) is its own goal, with index s A + a."""
    return np.arange(mdp.states * mdp.actions).reshape(mdp.states, mdp.actions)


def goals_are_states(mdp: FiniteMDP) -> Array:
    """(S, A) phi(s, a) = s."""
    return np.repeat(np.arange(mdp.states)[:, None], mdp.actions, axis=1)


def greedy(f: Array, slack: float = 0.0) -> Array:
    """(S, A) argmax_a f(s, a), one-hot: the first action within ``slack`` of the best."""
    return np.asarray(np.eye(f.shape[-1])[(f >= f.max(-1, keepdims=True) - slack).argmax(-1)])


def greedy_in(F: Array, z: Array) -> Array:
    """(S, A) argmax_a F(s, a) . z for F (S, A, d), where differences within rounding errors count as ties."""
    return greedy(F @ z, TIE * float(np.linalg.norm(F, axis=-1).max() * np.linalg.norm(z)))


def goal_measure(mdp: FiniteMDP, pi: Array, phi: Array, goals: int, first: int = 0) -> Array:
    """(S, A, G) M^pi(s, a, g) = sum over t >= first of gamma^t Pr(phi(s_t, a_t) = g | s, a, pi), eq. (Mgoal)."""
    n = mdp.states * mdp.actions
    M = mdp.successor_measure(pi).reshape(n, n)
    if first:
        M = M - np.eye(n)
    return np.asarray(M @ np.eye(goals)[phi.ravel()]).reshape(mdp.states, mdp.actions, goals)


def exact(mdp: FiniteMDP, rho: Array, phi: Array | None = None, B: Array | None = None, first: int = 0) -> FB:
    """The best F for a fixed B: F(s, a, z) = (Cov B)^-1 Succ^{pi_z}(B), with pi_z = argmax F . z (thm:fixedbackward).

    pi_z is then optimal for the reward B . (Cov B)^-1 z. Without B, it is one-hot on the goals, and F = M / rho is
    exact for every reward (prop:existence); without phi, each state and action is a goal. Where the components of B
    are linearly dependent, a pseudo-inverse takes the place of (Cov B)^-1: it ignores the unused directions.
    """
    phi, rho = goals_are_pairs(mdp) if phi is None else np.asarray(phi), np.asarray(rho)
    check_weights(rho, total=False)
    mdp.check_pairs()
    inverse = np.diag(1 / rho) if B is None else inverse_covariance(B, rho)  # (d, d)
    B = np.eye(len(rho)) if B is None else np.asarray(B)

    def forward(z: Array) -> Array:
        R = (B @ inverse @ z)[phi]
        return _settle(mdp, R, z, lambda pi: goal_measure(mdp, pi, phi, len(rho), first) @ B @ inverse)

    return FB(mdp, forward, B, rho, phi, first=first)


def universal_successor_features(mdp: FiniteMDP, features: Array, w: Array) -> Array:
    """(S, A, d) psi(s, a, w) = Succ^{pi_w}(features), pi_w = argmax_a psi(s, a, w) . w, for features (S, A, d).

    Universal successor features, the special case of F and B at the end of sec:rhotest: with features = B and
    z = (Cov B) w, F(s, a, z) = (Cov B)^-1 psi(s, a, w), and policies and Q are the same.
    """
    if features.shape != (mdp.states, mdp.actions, len(w)):
        raise UserError(f"features have shape {features.shape}; expected ({mdp.states}, {mdp.actions}, {len(w)}).")
    phi = goals_are_pairs(mdp)
    flat = features.reshape(-1, len(w))
    return _settle(mdp, features @ w, w, lambda pi: goal_measure(mdp, pi, phi, len(flat)) @ flat)


def _settle(mdp: FiniteMDP, R: Array, z: Array, successors: Callable[[Array], Array]) -> Array:
    """(S, A, d) F = successors(pi) of a policy that is optimal for R and greedy in F . z, with the same ties.

    F is discontinuous where pi changes, so ties within rounding errors must be broken in the same way for F and pi_z.
    """
    # the loop is policy iteration; started from the optimum, it only breaks ties
    pi = greedy(mdp.q_value(mdp.optimal_value(R), R))
    for _ in range(100):
        F = successors(pi)
        chosen = greedy_in(F, z)
        if (chosen == pi).all():
            return F
        pi = chosen
    raise RuntimeError("the policy alternates between actions that differ only by rounding errors")


def with_bias(fb: FB) -> FB:
    """The same model with only advantages in F: F' = F - mean_a F, and m-bar' = m-bar + (mean_a F) . B (def:fb2).

    Policies and Q stay the same; the rank of F' . B may be smaller.
    """

    def forward(z: Array) -> Array:
        F = fb.forward(z)
        return np.asarray(F - F.mean(1, keepdims=True))

    def bias(z: Array) -> Array:
        moved = np.asarray(fb.forward(z).mean(1) @ fb.B.T)  # (S, G)
        return moved if fb.bias is None else moved + fb.bias(z)

    return replace(fb, forward=forward, bias=bias)


def inverse_covariance(B: Array, rho: Array) -> Array:
    """(d, d) (E_rho B B^T)^-1; a pseudo-inverse where the components of B are linearly dependent."""
    C = orthonormaliser(B, rho)
    return np.asarray(C.T @ C)


def orthonormaliser(B: Array, rho: Array) -> Array:
    """(d, d) C = (E_rho B B^T)^-1/2, symmetric, such that C B is L2(rho)-orthonormal (rem:normB).

    Where only k < d directions of B are used, C is (k, d): it also reduces the dimension to the rank of B.
    """
    B, rho = np.asarray(B), np.asarray(rho)
    check_weights(rho, total=False)
    if B.ndim != 2 or len(B) != len(rho) or not np.isfinite(B).all():
        raise UserError(f"B has shape {B.shape}; expected (goals, d) with the {len(rho)} goals of rho, all finite.")
    _, size, directions = np.linalg.svd(np.sqrt(rho)[:, None] * B, full_matrices=False)
    used = size > RANK * size.max(initial=0.0)
    C = directions[used] / size[used, None]  # (k, d)
    return np.asarray(directions.T @ C) if used.sum() == B.shape[1] else C


def change_variables(fb: FB, C: Array) -> FB:
    """B' = C B, F'(s, a, z) = C^-T F(s, a, C^-1 z): other coordinates for z, the same policies and Q (rem:normB).

    C (k, d) need not be square if it keeps every direction that B uses: a pseudo-inverse takes the place of C^-1.
    """
    C = np.asarray(C)
    if C.ndim != 2 or C.shape[1] != fb.dimension:
        raise UserError(f"C has shape {C.shape}; expected (any, {fb.dimension}), to be multiplied with B.")
    back = np.linalg.pinv(C)  # (d, k)
    B = fb.B @ C.T
    if not np.allclose(B @ back.T, fb.B, rtol=0, atol=1e-7 * np.abs(fb.B).max()):
        raise UserError(
            "C is singular in a direction that B uses, so C B cannot replace B; expected an invertible C, or one "
            "that only drops directions that B does not use, such as orthonormaliser(B, rho)."
        )
    bias = fb.bias
    return replace(
        fb, forward=lambda z: fb.forward(back @ z) @ back, B=B, bias=None if bias is None else lambda z: bias(back @ z)
    )


def improvement(fb: FB, r: Array, Z: Array) -> Array:
    """(S, A) the largest Q of r over the policies pi_z, z in Z (n, d): sup_z F(s, a, z) . z_R (thm:main2, claim 3).

    At most Q* for an exact representation, and equal to it where z_R is in Z.
    """
    if fb.bias is not None:
        raise UserError(
            "With a bias, F . z_R alone is not a Q-function: it lacks V-bar^z, which depends on z, so values for "
            "different z cannot be compared. Use a representation without bias, or the largest fb.q(z, r)."
        )
    if np.ndim(Z) != 2 or len(Z) == 0:
        raise UserError(f"Z has shape {np.shape(Z)}; expected (n, {fb.dimension}), one z or more.")
    return np.asarray(np.max([fb.q(z, r) for z in Z], axis=0))
