from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward import UserError, finite_mdp
from anyreward.theory.bounds import (
    Bound,
    approximate_reward,
    approximation,
    binding_pairs,
    dual_approximation,
    fixed_backward,
    greedy_gap,
    kr_norm,
    lipschitz,
    pointwise,
    pointwise_gap,
    project,
    q_approximation,
    q_from_successors,
    q_lipschitz,
    reward_lipschitz,
    sampled_gaps,
    sampled_reward,
    sampling_term,
    skewness,
    value_gap,
)
from anyreward.theory.fb import FB, exact, goals_are_states, greedy, orthonormaliser, with_bias
from anyreward.theory.finite_mdp import FiniteMDP, garnet
from tests.theory.test_fb import QUARTERS, TWO, World, close, evaluation, slow_measure, value_iteration, worlds

Array = np.ndarray[Any, Any]

FEW = settings(max_examples=15, derandomize=True, deadline=None)
BANDIT = FiniteMDP(np.ones((1, 2, 1)), 0.5, np.arange(1))
"""One state, two actions; gamma 1/2."""


@dataclass(frozen=True)
class Learned:
    """A representation with errors, and a reward on its goals."""

    world: World
    fb: FB
    r: Array

    @property
    def R(self) -> Array:
        return self.r[self.world.phi]

    @property
    def pi(self) -> Array:
        return self.fb.policy(self.fb.z_of(self.r))

    def slow_value_gap(self) -> float:
        values = (self.pi * evaluation(self.world.mdp, self.pi, self.R)).sum(1)
        return float((value_iteration(self.world.mdp, self.R).max(1) - values).max())

    def slow_errors(self) -> Array:
        """(S, A, G) M^{pi_z} minus its model, as measures, number by number."""
        fb, z = self.fb, self.fb.z_of(self.r)
        M, F = slow_measure(fb.mdp, self.pi, fb.phi, fb.goals, fb.first), fb.forward(z)
        for s, a, g in np.ndindex(M.shape):
            bias = 0.0 if fb.bias is None else fb.bias(z)[s, g]
            M[s, a, g] -= (sum(F[s, a] * fb.B[g]) + bias) * fb.rho[g]
        return M


@st.composite
def learned(draw: st.DrawFn) -> Learned:
    """Exact F, B and bias, with errors from small to as large as they are themselves."""
    first = draw(st.integers(0, 1))
    world = draw(worlds(goals=("states",) if first else ("pairs", "states", "merged")))
    d = draw(st.sampled_from([2, len(world.rho)]))
    B = np.eye(len(world.rho)) if d == len(world.rho) else world.normal(len(world.rho), d)
    fb = exact(world.mdp, world.rho, world.phi, B, first)
    fb = with_bias(fb) if draw(st.booleans()) else fb
    size = 10.0 ** draw(st.integers(-3, 0))
    noise = size * world.normal(world.mdp.states, world.mdp.actions, d)
    forward, bias = fb.forward, fb.bias
    shift = size * world.normal(world.mdp.states, fb.goals)
    fb = replace(
        fb,
        forward=lambda z: forward(z) * (1 + noise) + noise,
        B=B + size * world.normal(*B.shape),
        bias=None if bias is None else lambda z: bias(z) + shift,
    )
    return Learned(world, fb, world.normal(fb.goals))


def noisy(fb: FB, noise: Array) -> FB:
    """The same with noise (S, A, d) in F."""
    return replace(fb, forward=lambda z: fb.forward(z) + noise)


def wrong_bandit() -> tuple[FB, Array]:
    """F and B that take the wrong action by a tie, for rewards -2 and 2; every number can be done by hand.

    m^pi = (8, 0), (4, 4/3) for the policy that takes the first action, of which F says (4, 0), (8, 4/3).
    """
    F = np.array([[[4.0, 0.0], [8.0, 4 / 3]]])
    fb = FB(BANDIT, lambda z: F, np.eye(2), QUARTERS, np.array([[0, 1]]))
    return fb, np.array([-2.0, 2.0])


def holds(claim: Bound[float]) -> bool:
    return claim.gap <= claim.bound * (1 + 1e-9) + 1e-9


# One MDP, two rewards


@FEW
@given(worlds())
def test_Q_is_the_reward_summed_over_successors(world: World) -> None:
    """prop:Qsucc."""
    pi, r = world.rng.dirichlet(np.ones(world.mdp.actions), world.mdp.states), world.normal(len(world.rho))
    Q = evaluation(world.mdp, pi, r[world.phi])
    assert close(q_from_successors(world.mdp, pi, r, world.phi), Q)
    assert close(q_from_successors(world.mdp, pi, r[world.phi].ravel()), Q)


@FEW
@given(worlds(), st.booleans())
def test_Q_moves_no_more_than_the_reward_over_one_minus_gamma(world: World, optimal: bool) -> None:
    """prop:rtoQ."""
    mdp = world.mdp
    r1, r2 = world.normal(2, mdp.states, mdp.actions)
    pi = world.rng.dirichlet(np.ones(mdp.actions), mdp.states)
    claim = reward_lipschitz(mdp, r1, r2, None if optimal else pi)
    Q1, Q2 = (value_iteration(mdp, r) if optimal else evaluation(mdp, pi, r) for r in (r1, r2))
    assert claim.gap == pytest.approx(np.abs(Q1 - Q2).max(), abs=1e-9)
    assert claim.bound == pytest.approx(max(np.abs(r1 - r2).ravel()) / (1 - mdp.gamma))
    assert holds(claim)
    V1, V2 = (Q.max(1) if optimal else (pi * Q).sum(1) for Q in (Q1, Q2))
    assert np.abs(V1 - V2).max() <= claim.gap + 1e-9


def test_a_constant_more_reward_attains_the_lipschitz_bound() -> None:
    assert reward_lipschitz(TWO, np.array([0.0, 1.0]), np.array([3.0, 4.0])) == pytest.approx((6.0, 6.0))


@FEW
@given(worlds(), st.floats(0.01, 3.0))
def test_a_greedy_policy_is_as_good_as_what_it_is_greedy_in(world: World, size: float) -> None:
    """prop:pifgap, both claims."""
    mdp = world.mdp
    r = world.normal(mdp.states, mdp.actions)
    best = value_iteration(mdp, r)
    f = best + size * world.normal(mdp.states, mdp.actions)
    of_f, of_policy = greedy_gap(mdp, f, r)
    Q = evaluation(mdp, np.eye(mdp.actions)[f.argmax(1)], r)
    unit = np.abs(f - Q).max() / (1 - mdp.gamma)
    assert of_f == pytest.approx((2 * unit, np.abs(f - best).max()), rel=1e-6)
    assert of_policy == pytest.approx((3 * unit, np.abs(Q - best).max()), rel=1e-6, abs=1e-9)
    assert holds(of_f)
    assert holds(of_policy)


def test_the_greedy_gap_by_hand() -> None:
    of_f, of_policy = greedy_gap(BANDIT, np.array([[-1.0, -1.0]]), np.array([[-1.0, 1.0]]))
    assert of_f == pytest.approx((4.0, 3.0))  # Q^pi_f = -2, 0 and Q* = 0, 2
    assert of_policy == pytest.approx((6.0, 2.0))


@FEW
@given(worlds(), st.floats(0.01, 3.0))
def test_the_gap_at_each_state_and_action_is_bounded_there(world: World, size: float) -> None:
    """prop:pointwisegap."""
    mdp = world.mdp
    r1 = world.normal(mdp.states, mdp.actions)
    r2 = r1 + size * world.normal(mdp.states, mdp.actions)
    claim = pointwise_gap(mdp, r1, r2)
    pi1, pi2 = (greedy(value_iteration(mdp, r)) for r in (r1, r2))
    assert close(claim.gap, value_iteration(mdp, r1) - evaluation(mdp, pi2, r1))
    assert close(claim.bound, ((slow_matrix(mdp, pi1) - slow_matrix(mdp, pi2)) @ (r1 - r2).ravel()).reshape(r1.shape))
    assert (claim.gap >= -1e-9).all()
    assert (claim.gap <= claim.bound + 1e-9).all()


def slow_steps(mdp: FiniteMDP, pi: Array) -> Array:
    """(S A, S A) P_pi."""
    n = mdp.states * mdp.actions
    P = np.zeros((n, n))
    for s, a, t, b in np.ndindex(mdp.states, mdp.actions, mdp.states, mdp.actions):
        P[s * mdp.actions + a, t * mdp.actions + b] = mdp.P[s, a, t] * pi[t, b]
    return P


def slow_matrix(mdp: FiniteMDP, pi: Array) -> Array:
    """(S A, S A) (Id - gamma P_pi)^-1."""
    return np.linalg.inv(np.eye(pi.size) - mdp.gamma * slow_steps(mdp, pi))


# F and B with errors


@FEW
@given(learned())
def test_small_errors_of_F_and_B_make_small_gaps(case: Learned) -> None:
    """thm:approx, first and last claim."""
    of_value, of_q = approximation(case.fb, case.r), q_approximation(case.fb, case.r)
    eps = max(sum(abs(error)) for error in case.slow_errors().reshape(-1, case.fb.goals))
    unit = eps * max(abs(case.r)) / (1 - case.fb.mdp.gamma)
    model = case.fb.q(case.fb.z_of(case.r), case.r)
    assert of_value == pytest.approx((3 * unit, case.slow_value_gap()), rel=1e-6, abs=1e-8)
    assert of_q == pytest.approx((2 * unit, np.abs(model - value_iteration(case.fb.mdp, case.R)).max()), rel=1e-6)
    assert holds(of_value)
    assert holds(of_q)
    assert value_gap(case.fb, case.fb.z_of(case.r), case.r) == of_value.gap


@FEW
@given(learned(), st.sampled_from([1.0, 1.5, 2.0, 4.0]))
def test_small_errors_in_any_dual_norm_make_small_gaps(case: Learned, p: float) -> None:
    """thm:approx, third claim, for Lp(rho) and Lq(rho)."""
    of_value, of_q = dual_approximation(case.fb, case.r, p)
    rho, errors = case.fb.rho, case.slow_errors().reshape(-1, case.fb.goals) / case.fb.rho
    eps = max(sum(rho * abs(error) ** p) ** (1 / p) for error in errors)
    q = np.inf if p == 1 else p / (p - 1)
    size = max(abs(case.r)) if p == 1 else sum(rho * abs(case.r) ** q) ** (1 / q)
    unit = eps * size / (1 - case.fb.mdp.gamma)
    assert (of_value.bound, of_q.bound) == pytest.approx((3 * unit, 2 * unit), rel=1e-6, abs=1e-8)
    assert of_value.gap == approximation(case.fb, case.r).gap
    assert of_q.gap == q_approximation(case.fb, case.r).gap
    assert holds(of_value)
    assert holds(of_q)
    if p == 1:
        assert of_value == pytest.approx(approximation(case.fb, case.r))


@FEW
@given(learned())
def test_weakly_small_errors_make_small_gaps_for_smooth_rewards(case: Learned) -> None:
    """thm:approx, second claim."""
    places = 0.7 * case.world.normal(case.fb.goals, 2)
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    of_value, of_q = lipschitz(case.fb, case.r, distance), q_lipschitz(case.fb, case.r, distance)
    steepest = max(abs(case.r[i] - case.r[j]) / distance[i, j] for i, j in combinations(range(case.fb.goals), 2))
    eps = max(kr_norm(case.slow_errors().reshape(-1, case.fb.goals), distance))
    unit = eps * max(*abs(case.r), steepest) / (1 - case.fb.mdp.gamma)
    assert of_value == pytest.approx((3 * unit, approximation(case.fb, case.r).gap), rel=1e-6, abs=1e-8)
    assert of_q == pytest.approx((2 * unit, q_approximation(case.fb, case.r).gap), rel=1e-6, abs=1e-8)
    assert holds(of_value)
    assert holds(of_q)


@FEW
@given(learned())
def test_the_gap_at_each_state_and_action_comes_from_errors_one_step_off_the_optimal_path(case: Learned) -> None:
    """thm:pointwiseapprox."""
    mdp, claim = case.fb.mdp, pointwise(case.fb, case.r)
    pi_star = greedy(value_iteration(mdp, case.R))
    missed = case.slow_errors().reshape(-1, case.fb.goals) @ case.r
    steps = slow_steps(mdp, pi_star) - slow_steps(mdp, case.pi)
    bound = mdp.gamma * slow_matrix(mdp, pi_star) @ steps @ missed
    assert close(claim.bound, bound.reshape(case.R.shape), 1e-7)
    assert close(claim.gap, value_iteration(mdp, case.R) - evaluation(mdp, case.pi, case.R), 1e-8)
    assert (claim.gap >= -1e-8).all()
    assert (claim.gap <= claim.bound + 1e-8).all()


@FEW
@given(learned(), st.floats(0.01, 2.0))
def test_a_reward_that_is_nearly_right_is_good_enough(case: Learned, size: float) -> None:
    """prop:approxr."""
    r_hat = case.r + size * case.world.normal(case.fb.goals)
    claim = approximate_reward(case.fb, case.r, r_hat)
    asked = Learned(case.world, case.fb, r_hat)
    Q, best = evaluation(case.fb.mdp, asked.pi, case.R), value_iteration(case.fb.mdp, case.R)
    assert claim.gap == pytest.approx((best.max(1) - (asked.pi * Q).sum(1)).max(), abs=1e-8)
    apart = 2 * max(abs(case.r - r_hat)) / (1 - case.fb.mdp.gamma)
    assert claim.bound == pytest.approx(apart + asked.slow_value_gap())
    assert holds(claim)
    assert approximate_reward(case.fb, case.r, r_hat, eps_fb=3.0).bound == pytest.approx(apart + 3.0)
    assert holds(approximate_reward(case.fb, case.r, r_hat, approximation(case.fb, r_hat).bound))


def test_the_bounds_by_hand() -> None:
    """Errors (4, 0) and (-4, 0) of densities, of weight 1/4: eps = 1. V^pi = -4, V* = 4, Q* = 0, 4."""
    fb, r = wrong_bandit()
    z = fb.z_of(r)
    assert fb.policy(z).tolist() == [[1, 0]]
    assert fb.error(z) == pytest.approx(np.array([[[4.0, 0.0], [-4.0, 0.0]]]))
    assert approximation(fb, r) == pytest.approx((12.0, 8.0))
    assert q_approximation(fb, r) == pytest.approx((8.0, 6.0))  # F . z_R = -2, -2
    near, far = (apart * (1 - np.eye(2)) for apart in (0.5, 4.0))
    assert lipschitz(fb, r, near) == pytest.approx((48.0, 8.0))  # Lip r = 4 / 0.5
    assert q_lipschitz(fb, r, near) == pytest.approx((32.0, 6.0))
    assert lipschitz(fb, r, far) == pytest.approx((12.0, 8.0))  # Lip r = 1, |r| = 2
    assert pointwise(fb, r).bound == pytest.approx(np.array([[4.0, 4.0]]))
    assert pointwise(fb, r).gap == pytest.approx(np.array([[4.0, 4.0]]))  # attained
    right = exact(BANDIT, QUARTERS)
    assert approximate_reward(right, np.array([0.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx((4.0, 2.0))


def test_two_thirds_of_the_bound_on_V_are_attained() -> None:
    """The proof of thm:pointwiseapprox gives 2 eps |r| / (1 - gamma) for V, which no smaller constant can be."""
    fb, r = wrong_bandit()
    bound, gap = approximation(fb, r)
    assert gap == pytest.approx(bound * 2 / 3)


def test_the_gap_of_V_can_exceed_that_of_Q() -> None:
    """So the step from Q to V at the end of the proof of thm:approx needs a reason of its own."""
    fb, r = wrong_bandit()
    assert np.abs(pointwise(fb, r).gap).max() == pytest.approx(4.0)
    assert approximation(fb, r).gap == pytest.approx(8.0)


@FEW
@given(learned())
def test_V_is_within_twice_the_error(case: Learned) -> None:
    """That reason: V* - V^pi = sum of gamma^t (Q^pi(s_t, a*_t) - Q^pi(s_t, pi(s_t))) along the optimal path."""
    bound, gap = approximation(case.fb, case.r)
    assert gap <= bound * 2 / 3 + 1e-8


def test_the_bounds_are_put_to_the_test() -> None:
    """A check of the checks: errors that matter, and bounds that are not beyond all values."""
    gaps, ratios = [], []
    for seed in range(30):
        mdp = garnet(4, 3, 2, seed)
        rng = np.random.default_rng(seed)
        fb = exact(mdp, np.full(12, 1 / 12))
        bound, gap = pointwise(noisy(fb, 1.5 * rng.standard_normal((4, 3, 12))), rng.standard_normal(12))
        gaps.append(gap.max())
        ratios.append(bound.max() / max(gap.max(), 1e-12))
    wrong = np.array(gaps) > 1e-6
    assert wrong.sum() >= 10
    assert np.median(np.array(ratios)[wrong]) < 5


# Kantorovich-Rubinstein


@pytest.mark.parametrize(
    ("mu", "apart", "norm"),
    [
        ([1.0, -1.0], 0.5, 0.5),  # f = 1, 1/2
        ([1.0, -1.0], 3.0, 2.0),  # f = 1, -1
        ([1.0, -1.0], np.inf, 2.0),
        ([1.0, 2.0], 0.5, 3.0),  # f = 1, 1
        ([-1.0, -2.0], 0.5, 3.0),
        ([3.0, -1.0], 0.5, 2.5),  # f = 1, 1/2
        ([0.5, -2.0], 1.2, 2.1),  # f = 0.2, -1: 1.5 + 1.2 * 0.5
        ([0.0, 0.0], 1.0, 0.0),
    ],
)
def test_the_norm_of_two_points(mu: list[float], apart: float, norm: float) -> None:
    distance = np.array([[0.0, apart], [apart, 0.0]])
    assert kr_norm(np.array(mu), distance) == pytest.approx(norm)


@FEW
@given(st.integers(0, 2**32), st.integers(3, 4), st.booleans())
def test_the_norm_is_attained_at_a_corner(seed: int, points: int, on_a_line: bool) -> None:
    """Every corner of {|f| <= 1, f 1-Lipschitz} by brute force; on a line, neighbours imply the rest."""
    rng = np.random.default_rng(seed)
    mu, places = rng.standard_normal(points), rng.standard_normal((points, 1 if on_a_line else 2))
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    rows = [sign * np.eye(points)[i] for i in range(points) for sign in (1, -1)]
    rows += [np.eye(points)[i] - np.eye(points)[j] for i in range(points) for j in range(points) if i != j]
    limits = [1.0] * (2 * points) + [distance[i, j] for i in range(points) for j in range(points) if i != j]
    A, b = np.array(rows), np.array(limits)
    choices = np.array(list(combinations(range(len(A)), points)))
    regular = choices[np.abs(np.linalg.det(A[choices])) > 1e-9]
    corners = np.linalg.solve(A[regular], b[regular][..., None])[..., 0]
    corners = corners[(corners @ A.T <= b + 1e-9).all(1)]
    assert kr_norm(mu, distance) == pytest.approx((corners @ mu).max())


def test_points_that_nearly_coincide_keep_their_distance_to_others() -> None:
    places = np.array([0.0, 1e-13, 1.0])
    distance = np.abs(places[:, None] - places)
    assert kr_norm(np.array([0.5, 0.5, -1.0]), distance) == pytest.approx(1.0)


def test_the_bounds_of_a_fixed_B_are_about_the_best_F() -> None:
    fb, r = wrong_bandit()
    with pytest.raises(UserError, match="not the best one for its B"):
        fixed_backward(fb, r)
    with pytest.raises(UserError, match="not the best one for its B"):
        fixed_backward(with_bias(exact(BANDIT, QUARTERS)), r)
    with pytest.raises(UserError, match="expected 1 <= p"):
        dual_approximation(fb, r, 0.5)
    with pytest.raises(UserError, match="draws is 0"):
        sampled_gaps(exact(BANDIT, QUARTERS), r, 5, 0, 0)


def test_far_apart_goals_give_the_sum_of_absolute_values() -> None:
    mu = np.random.default_rng(0).standard_normal((2, 3, 5))
    assert kr_norm(mu, 2.0 * (1 - np.eye(5))) == pytest.approx(np.abs(mu).sum(-1))


def test_four_rooms_need_neighbours_alone() -> None:
    mdp = finite_mdp(gym.make("anyreward/FourRooms-v0"), 0.99)
    assert mdp is not None
    distance = np.where(mdp.P.sum(1) > 0, 1.0, np.inf)
    np.fill_diagonal(distance, 0.0)
    for k in range(mdp.states):
        distance = np.minimum(distance, distance[:, k, None] + distance[k])
    i, j = binding_pairs(distance / 10)
    assert (distance[i, j] == 1).all()
    assert len(i) == (distance == 1).sum()
    rng = np.random.default_rng(1)
    mu = rng.standard_normal((6, mdp.states))
    norms = kr_norm(mu, distance / 10)
    for f in np.minimum(distance / 10, rng.uniform(0, 1, (68, 1))):  # 1-Lipschitz and at most 1
        assert (np.abs(mu @ f) <= norms + 1e-9).all()
    fb = exact(mdp, np.full(68, 1 / 68), goals_are_states(mdp))
    worse, r = noisy(fb, rng.standard_normal((68, 5, 68))), np.exp(-distance[3] / 10)
    claim = lipschitz(worse, r, distance / 10)  # 340 linear programs
    assert holds(claim)
    assert claim.gap > 1
    assert claim.bound < 0.5 * approximation(worse, r).bound


@pytest.mark.parametrize(
    ("distance", "message"),
    [
        (np.zeros((2, 2)), r"shape \(2, 2\); expected \(3, 3\)"),
        (np.ones((3, 3)), "zero from a goal to itself"),
        (np.zeros((3, 3)), "positive otherwise"),
        (np.array([[0.0, 1, 1], [2, 0, 1], [1, 1, 0]]), "symmetric"),
        (np.array([[0.0, 1, 3], [1, 0, 1], [3, 1, 0]]), "triangle inequality"),
        (np.full((3, 3), np.nan), "not a metric"),
    ],
)
def test_what_is_no_metric(distance: Array, message: str) -> None:
    with pytest.raises(UserError, match=message):
        kr_norm(np.zeros(3), distance)


@FEW
@given(worlds(), st.integers(1, 3))
def test_the_skewness_is_the_largest_ratio_in_the_span(world: World, d: int) -> None:
    """def:skew."""
    B, rho = world.normal(len(world.rho), d), world.rho
    zeta = skewness(B, rho)

    def ratio(w: Array) -> float:
        f = B @ w
        return float(np.abs(f).max() / np.sqrt(sum(rho * f * f)))

    assert all(ratio(w) <= zeta * (1 + 1e-9) for w in world.normal(50, d))
    covariance = (rho[:, None] * B).T @ B
    duals = [np.linalg.lstsq(covariance, b, rcond=None)[0] for b in B]
    assert max(ratio(w) for w in duals) == pytest.approx(zeta)
    assert skewness(np.eye(len(rho)), rho) == pytest.approx(1 / np.sqrt(rho.min()))
    assert zeta >= 1 - 1e-9


def sampling_term_as_printed(fb: FB, r: Array, n: int, delta: float, variance: float = 0.0) -> float:
    """The term as printed in thm:approxzR: zeta instead of its square, d Var(r) instead of the variance of r B."""
    d, spread = len(orthonormaliser(fb.B, fb.rho)), variance + fb.rho @ (r - fb.rho @ r) ** 2
    return float(2 / (1 - fb.mdp.gamma) * np.sqrt(skewness(fb.B, fb.rho) * d * spread / (n * delta)))


def test_nothing_spans_no_skewness() -> None:
    with pytest.raises(UserError, match="B is zero"):
        skewness(np.zeros((2, 3)), QUARTERS)


def test_the_sampling_bounds_by_hand() -> None:
    fb, r = exact(BANDIT, QUARTERS), np.array([-1.0, 1.0])
    # zeta = 2; E[(v + r^2)|B|^2] = 2 (v + 1), |z_R|^2 = 1
    assert sampling_term(fb, r, 16, 0.25) == pytest.approx(4.0)
    assert sampling_term(fb, r, 16, 0.25, variance=4.0) == pytest.approx(12.0)
    assert sampling_term(fb, r, 4, 0.25) == pytest.approx(8.0)
    # zeta d = 4, Var r = 3/4
    assert sampling_term_as_printed(fb, r, 16, 0.25) == pytest.approx(4 * np.sqrt(0.75))
    assert sampling_term_as_printed(fb, r, 16, 0.25, variance=0.25) == pytest.approx(4.0)
    assert sampling_term_as_printed(fb, r, 4, 0.25, variance=0.25) == pytest.approx(8.0)


def test_the_sampled_gap_is_the_one_that_most_draws_stay_within() -> None:
    rng = np.random.default_rng(3)
    mdp, rho, r = garnet(4, 2, 2, 5), np.array([0.1, 0.2, 0.3, 0.4]), rng.standard_normal(4)
    fb = exact(mdp, rho, goals_are_states(mdp), rng.standard_normal((4, 2)))
    draws = sampled_gaps(fb, r, 5, 40, seed=7, variance=0.3)
    within = sorted(draws.gap)[29]  # three in four of forty
    assert 0 < within < max(draws.gap)
    asked = (fb, r, 5, 0.25, 0.3)
    expected = max(draws.eps_fb) + sampling_term(*asked), within
    assert sampled_reward(*asked, draws=40, seed=7) == pytest.approx(expected)


@FEW
@given(worlds(), st.integers(1, 3))
def test_the_sampling_bounds_do_not_depend_on_coordinates(world: World, d: int) -> None:
    d, r = min(d, len(world.rho)), world.normal(len(world.rho))
    B = world.normal(len(world.rho), d)
    mixed = B @ (world.normal(d, 4) + 2 * np.eye(d, 4))  # also of more components than rank
    plain, other = (exact(world.mdp, world.rho, world.phi, each) for each in (B, mixed))
    for bound in (sampling_term, sampling_term_as_printed):
        assert bound(other, r, 50, 0.1, 0.3) == pytest.approx(bound(plain, r, 50, 0.1, 0.3), rel=1e-6)


def test_the_estimate_of_z_varies_as_the_corrected_bound_says() -> None:
    world_rho = np.array([0.1, 0.2, 0.3, 0.4])
    mdp = garnet(4, 2, 2, 3)
    rng = np.random.default_rng(0)
    B, r = rng.standard_normal((4, 2)), rng.standard_normal(4)
    fb = exact(mdp, world_rho, goals_are_states(mdp), B @ orthonormaliser(B, world_rho).T)
    n, v = 7, 0.5
    draws = sampled_gaps(fb, r, n, 800, seed=1, variance=v)
    z = fb.z_of(r)
    expected = sum(p * (v + r[g] ** 2) * sum(fb.B[g] ** 2) for g, p in enumerate(world_rho)) - sum(z**2)
    assert ((draws.z - z) ** 2).sum(1).mean() == pytest.approx(expected / n, rel=0.1)
    assert draws.z.mean(0) == pytest.approx(z, abs=4 * np.sqrt(expected / n / 800))
    bound = sampling_term(fb, r, n, 0.2, v)
    off = np.abs((draws.z - z) @ fb.B.T).max(1)  # |r_hat - r|_inf
    assert (2 / (1 - mdp.gamma) * off > bound).mean() < 0.2
    assert (draws.gap <= draws.eps_fb + 2 / (1 - mdp.gamma) * off + 1e-9).all()  # prop:approxr
    assert draws.eps_fb.max() > 0.01  # B spans two of four dimensions


def test_one_sample_leaves_as_many_outcomes_as_goals() -> None:
    rng = np.random.default_rng(5)
    mdp, rho = garnet(4, 2, 2, 1), np.array([0.1, 0.2, 0.3, 0.4])
    B, r = rng.standard_normal((4, 2)), rng.standard_normal(4)
    fb = exact(mdp, rho, goals_are_states(mdp), B)
    draws = sampled_gaps(fb, r, 1, 800, seed=2)
    covariance = (rho[:, None] * B).T @ B
    for g in range(4):
        z = r[g] * B[g]
        r_hat = r + B @ np.linalg.solve(covariance, z - fb.z_of(r))
        mine = np.abs(draws.z - z).max(1) < 1e-12
        assert mine.mean() == pytest.approx(rho[g], abs=0.05)
        for reward, gaps in ((r, draws.gap), (r_hat, draws.eps_fb)):
            R = mdp.on_states(reward)
            lost = value_iteration(mdp, R).max(1) - (fb.policy(z) * evaluation(mdp, fb.policy(z), R)).sum(1)
            assert gaps[mine] == pytest.approx(lost.max(), abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_corrected_sampling_bound_holds_as_often_as_it_says(seed: int, delta: float) -> None:
    """thm:approxzR, corrected."""
    rng = np.random.default_rng(seed)
    mdp, rho = garnet(4, 2, 2, seed), rng.dirichlet(np.ones(4))
    fb = exact(mdp, rho, goals_are_states(mdp), rng.standard_normal((4, 3)) if seed else None)
    r = rng.standard_normal(4) + 2
    draws = sampled_gaps(fb, r, 10, 100, seed, variance=0.2)
    assert draws.gap.max() > 0
    assert (draws.gap > draws.eps_fb + sampling_term(fb, r, 10, delta, 0.2)).mean() <= delta


def test_the_printed_sampling_bound_fails_for_a_large_constant_reward() -> None:
    """Counterexample to thm:approxzR as printed: Var(r) does not see the constant, whose noise decides the policy."""
    two = FiniteMDP(TWO.P, 0.9, np.arange(2))
    fb = exact(two, np.full(2, 0.5), goals_are_states(two))
    r, n, delta = np.array([1000.0, 1001.0]), 1000, 0.1
    draws = sampled_gaps(fb, r, n, 300, seed=0)
    assert draws.eps_fb.max() < 1e-9  # F and B are exact
    printed, corrected = (bound(fb, r, n, delta) for bound in (sampling_term_as_printed, sampling_term))
    assert np.quantile(draws.gap, 1 - delta) == pytest.approx(9.0)  # a tenth is allowed to lose more than the bound
    assert printed == pytest.approx(20 * np.sqrt(np.sqrt(2) * 2 * 0.25 / 100))  # 1.68
    assert (draws.gap > printed).mean() > 0.4
    assert (draws.gap > corrected).mean() <= delta
    found = sampled_reward(fb, r, n, delta)
    assert holds(found)
    assert not holds(Bound(found.bound - corrected + printed, found.gap))


def test_a_rare_goal_needs_the_square_of_the_skewness() -> None:
    """Counterexample to zeta in place of zeta squared in thm:approxzR, even with the variance of r B put right."""
    P = np.zeros((3, 2, 3))  # from state 0 to state 1 or 2, which are never left
    P[0, 0, 1] = P[0, 1, 2] = 1.0
    P[1, :, 1] = P[2, :, 2] = 1.0
    mdp, rare, n, delta = FiniteMDP(P, 0.9, np.arange(3)), 1e-5, 10**7, 0.1
    rho = np.array([(1 - rare) / 2, rare, (1 - rare) / 2])
    fb = exact(mdp, rho, goals_are_states(mdp))
    r = np.array([0.0, 1.0, 0.95])  # state 1 is seen a hundred times, so its r is known to a tenth
    draws = sampled_gaps(fb, r, n, 300, seed=1)
    corrected = sampling_term(fb, r, n, delta)
    without_square = corrected / np.sqrt(skewness(fb.B, rho))
    assert draws.eps_fb.max() < 1e-9
    assert (draws.gap > without_square).mean() > 2 * delta
    assert (draws.gap > corrected).mean() <= delta


# B fixed


@FEW
@given(worlds(), st.integers(1, 3), st.integers(0, 1))
def test_what_B_does_not_span_bounds_the_gap(world: World, d: int, first: int) -> None:
    """thm:fixedbackward."""
    mdp = world.mdp
    phi = goals_are_states(mdp) if first else world.phi
    B, r = world.normal(len(world.rho), d), world.normal(len(world.rho))
    fb = exact(mdp, world.rho, phi, B, first)
    simple, precise = fixed_backward(fb, r)
    r_B = project(r, B, world.rho)
    pi, best = fb.policy(fb.z_of(r)), value_iteration(mdp, r[phi])
    gap = (best.max(1) - (pi * evaluation(mdp, pi, r[phi])).sum(1)).max()
    assert simple == pytest.approx((2 * max(abs(r - r_B)) / (1 - mdp.gamma), gap), abs=1e-7)
    outside = (r - r_B)[phi].ravel()
    expected = sum(max(abs(slow_matrix(mdp, each) @ outside)) for each in (greedy(best), pi))
    assert precise == pytest.approx((expected, gap), abs=1e-7)
    assert holds(simple)
    assert holds(precise)
    assert precise.bound <= simple.bound + 1e-9
    # pi_{z_R} is optimal for the projection
    assert value_gap(fb, fb.z_of(r), r_B) < 1e-8


def test_the_precise_bound_can_be_attained() -> None:
    """B is constant, so r_B = 1/2 everywhere and the policy takes the first action."""
    fb, r = exact(BANDIT, QUARTERS, B=np.ones((2, 1))), np.array([-1.0, 1.0])
    simple, precise = fixed_backward(fb, r)
    assert simple == pytest.approx((6.0, 4.0))  # r - r_B = -3/2, 1/2
    assert precise == pytest.approx((4.0, 4.0))  # |1| + |-3|


@FEW
@given(worlds(), st.integers(1, 3))
def test_the_projection_is_the_nearest_in_the_span(world: World, d: int) -> None:
    B, r, rho = world.normal(len(world.rho), d), world.normal(len(world.rho)), world.rho
    r_B = project(r, B, rho)
    assert close((rho * (r - r_B)) @ B, np.zeros(d), 1e-8)  # what is left is orthogonal to the span
    w = np.linalg.lstsq(B, r_B, rcond=None)[0]
    assert close(B @ w, r_B, 1e-8)
    assert close(project(r_B, B, rho), r_B, 1e-8)


# Mistakes


def test_samples_that_cannot_be() -> None:
    fb, r = exact(BANDIT, QUARTERS), np.ones(2)
    for n, delta, variance in ((0, 0.1, 0.0), (5, 0.0, 0.0), (5, 1.5, 0.0), (5, 0.1, -1.0)):
        with pytest.raises(UserError, match=rf"n={n}, delta={delta}, variance={variance}; expected n >= 1"):
            sampling_term(fb, r, n, delta, variance)
    with pytest.raises(UserError, match=r"reward of shape \(3,\)"):
        sampling_term(fb, np.ones(3), 5, 0.1)


def test_rewards_that_do_not_fit_each_other() -> None:
    fb = exact(BANDIT, QUARTERS)
    with pytest.raises(UserError, match=r"shapes \(2,\) and \(2, 2\)"):
        reward_lipschitz(TWO, np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(UserError, match=r"shapes \(2,\) and \(2, 2\)"):
        pointwise_gap(TWO, np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(UserError, match=r"shapes \(2,\) and \(3,\)"):
        approximate_reward(fb, np.zeros(2), np.zeros(3))
