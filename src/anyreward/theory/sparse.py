"""Finite MDPs whose P is a sparse matrix, for thousands of states: no dense S x S array is built.

P is a SciPy matrix (S*A, S) with row s*A + a for (s, a). Linear systems are solved by sparse LU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import eye_array
from scipy.sparse.linalg import splu

from anyreward.worlds.spaces import Array

SWEEPS_BETWEEN_LOOKS = 16
"""Sweeps of value iteration between checks whether the policy still changes."""
MOST_SWEEPS = 1_024
"""Largest number of sweeps of value iteration before a policy is evaluated exactly."""
ROUNDING = 1e-14
"""Relative rounding error of a step. Gains below it times the horizon 1 / (1 - gamma) do not change a policy."""


def transition_matrix(P: Any, pi: Array) -> Any:
    """(S, S) P_pi(s'|s) of one policy pi (S, A), sparse."""
    S, A = pi.shape
    # the rows of a state are consecutive; weighted by pi, they form one row of P_pi
    weights = np.repeat(pi.reshape(-1), np.diff(P.indptr))
    P_pi = type(P)((weights * P.data, P.indices.copy(), P.indptr[::A].copy()), shape=(S, S))
    P_pi.sum_duplicates()
    P_pi.eliminate_zeros()
    return P_pi


def solve(P: Any, gamma: float, pi: Array, b: Array) -> Array:
    """(..., S) x with (I - gamma P_pi) x = b for policies pi (..., S, A) and b (..., S)."""
    S, A = pi.shape[-2:]
    batch = np.broadcast_shapes(pi.shape[:-2], b.shape[:-1])
    columns = np.broadcast_to(b, (*batch, S)).reshape(-1, S)
    if pi.size == S * A:  # one policy for all: factorised once
        factors = _factorised(P, gamma, pi.reshape(S, A))
        x = [factors.solve(column) for column in columns]
    else:
        policies = np.broadcast_to(pi, (*batch, S, A)).reshape(-1, S, A)
        x = [_factorised(P, gamma, one).solve(column) for one, column in zip(policies, columns, strict=True)]
    return np.array(x).reshape(*batch, S)


def optimum(P: Any, gamma: float, r: Array) -> tuple[Array, Array]:
    """(S,) the actions of an optimal policy and its value, for one reward r (S, A).

    Policy iteration, with sweeps of value iteration before each exact evaluation: plain policy iteration would
    propagate a goal by only one state per iteration. Sweeps from V^pi never fall below V^pi, so each policy is better
    than the one before.
    """
    S, A = r.shape
    by_action = P[np.arange(S * A).reshape(S, A).T.reshape(-1)]  # row a*S + s, for a fast maximum over actions
    r = np.ascontiguousarray(r.T)  # (A, S)

    def q_value(V: Array, r: Array) -> Array:  # (A, S)
        return np.asarray(r + gamma * (by_action @ V).reshape(A, S))

    noise = ROUNDING / (1 - gamma)
    V, before = np.zeros(S), np.full(S, -np.inf)
    for _ in range(10_000):
        choice = q_value(V, r).argmax(0)
        for _ in range(MOST_SWEEPS // SWEEPS_BETWEEN_LOOKS):
            for _ in range(SWEEPS_BETWEEN_LOOKS):
                V = q_value(V, r).max(0)
            last, choice = choice, q_value(V, r).argmax(0)
            if (choice == last).all():
                break
        r_pi = r[choice, np.arange(S)]
        # rounding errors grow with the absolute values of the rewards, not with V: rewards of both signs may cancel
        V, size = solve(P, gamma, np.eye(A)[choice], np.stack([r_pi, np.abs(r_pi)]))
        gains = q_value(V, r) > V + noise * (q_value(size, np.abs(r)) + size)
        if not gains.any() or not (V - before > noise * size).any():
            return choice, V
        before = V
    raise RuntimeError("policy iteration did not converge")  # impossible: finitely many policies, each better


def _factorised(P: Any, gamma: float, pi: Array) -> Any:
    """The sparse LU of I - gamma P_pi for one policy pi (S, A): diagonally dominant, so pivots are not needed."""
    system = eye_array(len(pi), format="csc") - gamma * transition_matrix(P, pi).tocsc()
    return splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
