from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward.errors import UserError
from anyreward.theory.bounds import sampled_reward
from anyreward.theory.fb import (
    FB,
    change_variables,
    exact,
    goal_measure,
    goals_are_pairs,
    goals_are_states,
    greedy,
    improvement,
    inverse_covariance,
    orthonormaliser,
    universal_successor_features,
    with_bias,
)
from anyreward.theory.finite_mdp import FiniteMDP, garnet

Array = np.ndarray[Any, Any]

STEPS = 300
"""0.9^300 < 1e-13, for sums that are done step by step."""
FEW = settings(max_examples=15, derandomize=True, deadline=None)

TWO = FiniteMDP(np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]), 0.5, np.arange(2))
"""Action 0 stays, action 1 changes over; gamma 1/2."""
QUARTERS = np.array([0.25, 0.75])


@dataclass(frozen=True)
class World:
    """A random MDP with goals and weights on them."""

    mdp: FiniteMDP
    phi: Array
    rho: Array
    rng: np.random.Generator

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape)


@st.composite
def worlds(draw: st.DrawFn, goals: tuple[str, ...] = ("pairs", "states", "merged")) -> World:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    states, actions = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    gamma, ending = draw(st.sampled_from([0.5, 0.8, 0.9])), draw(st.sampled_from([0.0, 0.4]))
    mdp = garnet(states, actions, min(states, 3), int(rng.integers(2**32)), gamma, ending)
    kind = draw(st.sampled_from(goals))
    phi = {
        "pairs": goals_are_pairs(mdp),
        "states": goals_are_states(mdp),
        "merged": rng.integers(0, states, (states, actions)),
    }[kind]
    rho = rng.dirichlet(np.ones(states * actions if kind == "pairs" else states)) + 0.02
    return World(mdp, phi, rho / rho.sum(), rng)


def value_iteration(mdp: FiniteMDP, R: Array) -> Array:
    """(S, A) Q* of one reward R (S, A), by plain value iteration."""
    Q = np.zeros_like(R)
    for _ in range(STEPS):
        Q = R + mdp.gamma * mdp.P @ Q.max(1)
    return Q


def evaluation(mdp: FiniteMDP, pi: Array, R: Array) -> Array:
    """(S, A) Q^pi of one reward R (S, A), by iteration."""
    Q = np.zeros_like(R)
    for _ in range(STEPS):
        Q = R + mdp.gamma * mdp.P @ (pi * Q).sum(1)
    return Q


def slow_measure(mdp: FiniteMDP, pi: Array, phi: Array, goals: int, first: int = 0) -> Array:
    """(S, A, G) discounted visits of goals from each state and action, step by step."""
    law = np.eye(pi.size).reshape(-1, *pi.shape)  # (start, S, A) Pr(s_t, a_t | start)
    M = np.zeros((len(law), goals))
    for t in range(STEPS):
        if t >= first:
            for s, a in np.ndindex(phi.shape):
                M[:, phi[s, a]] += mdp.gamma**t * law[:, s, a]
        law = np.einsum("nsa,sat->nt", law, mdp.P)[..., None] * pi
    return M.reshape(*pi.shape, goals)


def is_optimal(mdp: FiniteMDP, pi: Array, R: Array) -> bool:
    return bool(np.allclose((pi * evaluation(mdp, pi, R)).sum(1), value_iteration(mdp, R).max(1), rtol=0, atol=1e-9))


def close(x: Array, y: Array, within: float = 1e-9) -> bool:
    return x.shape == y.shape and bool(np.allclose(x, y, rtol=1e-9, atol=within))


# Exact representations


def test_two_states_by_hand() -> None:
    r = np.array([0.0, 1.0])
    fb = exact(TWO, QUARTERS, goals_are_states(TWO))
    z = fb.z_of(r)
    assert z.tolist() == [0, 0.75]
    assert fb.policy(z).argmax(1).tolist() == [1, 0]  # change over to state 1, stay there
    M = np.array([[[1.5, 0.5], [1.0, 1.0]], [[0.0, 2.0], [0.5, 1.5]]])  # e.g. 1 + 1/2, then 1/4 + 1/8 + ...
    assert fb.true_measure(z) == pytest.approx(M)
    assert fb.true_density(z) == pytest.approx(M / QUARTERS)
    assert fb.forward(z) == pytest.approx(M / QUARTERS)
    assert fb.model_density(z) == pytest.approx(M / QUARTERS)
    assert fb.q(z, r) == pytest.approx(np.array([[0.5, 1.0], [2.0, 1.5]]))
    assert fb.state_value(z, r).tolist() == [0, 0]
    assert (fb.goals, fb.dimension) == (2, 2)


def test_two_states_by_hand_from_the_next_step_on() -> None:
    r = np.array([0.0, 1.0])
    fb = exact(TWO, QUARTERS, goals_are_states(TWO), first=1)
    z = fb.z_of(r)
    M = np.array([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.5, 0.5]]])
    assert fb.forward(z) == pytest.approx(M / QUARTERS)
    assert fb.true_measure(z) == pytest.approx(M)
    assert fb.state_value(z, r).tolist() == [0, 1]
    assert fb.q(z, r) == pytest.approx(np.array([[0.5, 1.0], [2.0, 1.5]]))


@FEW
@given(worlds(goals=("pairs",)))
def test_exact_F_and_B_solve_every_reward_on_states_and_actions(world: World) -> None:
    """Theorem thm:main, and the existence of what it needs, prop:existence."""
    mdp, r = world.mdp, world.normal(len(world.rho))
    fb = exact(mdp, world.rho)
    R = r.reshape(mdp.states, mdp.actions)
    z = fb.z_of(r)
    assert close(fb.forward(z) @ z, value_iteration(mdp, R))
    assert is_optimal(mdp, fb.policy(z), R)
    assert close(fb.forward(z), slow_measure(mdp, fb.policy(z), fb.phi, fb.goals) / world.rho, 1e-8)


@FEW
@given(worlds())
def test_exact_F_and_B_solve_every_reward_on_features(world: World) -> None:
    """Theorem thm:main2 without bias; features may merge states and actions."""
    mdp, r = world.mdp, world.normal(len(world.rho))
    fb = exact(mdp, world.rho, world.phi)
    z = fb.z_of(r)
    assert close(fb.on_pairs(r), np.array([[r[g] for g in row] for row in world.phi]))
    assert close(fb.q(z, r), value_iteration(mdp, fb.on_pairs(r)))
    assert is_optimal(mdp, fb.policy(z), fb.on_pairs(r))
    other = world.normal(fb.dimension)
    assert close(fb.q(other, r), evaluation(mdp, fb.policy(other), fb.on_pairs(r)))  # of pi_z for any z
    assert close(fb.true_measure(other), slow_measure(mdp, fb.policy(other), world.phi, fb.goals))
    assert np.abs(fb.error(other)).max() < 1e-8


@FEW
@given(worlds(), st.booleans())
def test_z_of_a_reward_is_the_mean_of_r_times_B(world: World, one_hot: bool) -> None:
    G = len(world.rho)
    fb = exact(world.mdp, world.rho, world.phi, None if one_hot else world.normal(G, G) + 5 * np.eye(G))
    r = world.normal(G)
    assert close(fb.z_of(r), sum(world.rho[g] * r[g] * fb.B[g] for g in range(G)))
    assert close(fb.z_of(np.stack([r, 2 * r])), np.stack([fb.z_of(r), 2 * fb.z_of(r)]))


@FEW
@given(worlds(goals=("states",)))
def test_successors_may_start_at_the_next_step(world: World) -> None:
    """The changes for t >= 1 at the end of sec:diracs."""
    mdp, r = world.mdp, world.normal(len(world.rho))
    now, later = (exact(mdp, world.rho, world.phi, first=first) for first in (0, 1))
    z = now.z_of(r)
    assert close(later.z_of(r), z)
    assert close(r[:, None] + later.forward(z) @ z, value_iteration(mdp, mdp.on_states(r)))
    assert close(later.q(z, r), now.q(z, r))
    assert (later.policy(z) == now.policy(z)).all()
    identity = np.eye(mdp.states)[:, None] / world.rho  # (S, 1, G) the term t = 0
    assert close(later.forward(z), now.forward(z) - identity, 1e-8)
    assert close(later.true_measure(z), slow_measure(mdp, now.policy(z), world.phi, now.goals, first=1))
    assert np.abs(later.error(z)).max() < 1e-8


# B fixed


@FEW
@given(worlds(), st.integers(1, 4))
def test_the_best_F_of_a_fixed_B_is_optimal_for_rewards_in_its_span(world: World, d: int) -> None:
    """Theorem thm:fixedbackward: F = (Cov B)^-1 Succ(B)."""
    mdp, B = world.mdp, world.normal(len(world.rho), min(d, len(world.rho)))
    fb = exact(mdp, world.rho, world.phi, B)
    w = world.normal(fb.dimension)
    r = B @ w
    z = fb.z_of(r)
    assert is_optimal(mdp, fb.policy(z), fb.on_pairs(r))
    assert close(fb.q(z, r), value_iteration(mdp, fb.on_pairs(r)), 1e-8)
    covariance = sum(p * np.outer(b, b) for p, b in zip(world.rho, B, strict=True))
    successors = slow_measure(mdp, fb.policy(z), world.phi, fb.goals) @ B
    assert close(fb.forward(z) @ covariance, successors, 1e-7)


@FEW
@given(worlds())
def test_dependent_components_of_B_change_nothing(world: World) -> None:
    B = world.normal(len(world.rho), 2)
    doubled = np.concatenate([B, B[:, :1] - B[:, 1:]], axis=1)
    r = world.normal(len(B))
    plain, fb = (exact(world.mdp, world.rho, world.phi, each) for each in (B, doubled))
    assert close(fb.model_density(fb.z_of(r)), plain.model_density(plain.z_of(r)), 1e-6)
    assert (fb.policy(fb.z_of(r)) == plain.policy(plain.z_of(r))).all()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_equal_actions_are_decided_alike_in_F_and_in_the_policy(seed: int, first: int) -> None:
    once = garnet(6, 2, 2, seed, gamma=0.95)
    mdp = FiniteMDP(once.P[:, [1, 0, 1, 0, 0]], 0.95, np.arange(6))  # each action several times over
    rng = np.random.default_rng(seed)
    rho = rng.dirichlet(np.ones(6))
    fb = exact(mdp, rho, goals_are_states(mdp), first=first)
    for r in (rng.standard_normal(6), np.ones(6), np.zeros(6), 1e6 + rng.standard_normal(6)):
        z = fb.z_of(r)
        assert np.abs(fb.error(z) * rho).max() < 1e-10
        assert fb.mdp.policy_value(fb.policy(z), r) == pytest.approx(mdp.optimal_value(r), rel=1e-9)


def test_greedy_takes_the_first_of_equals() -> None:
    f = np.array([[0.0, 1.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.4, 1.5]])
    assert greedy(f).argmax(1).tolist() == [1, 0, 2]
    assert greedy(f, slack=0.2).argmax(1).tolist() == [1, 0, 1]
    assert greedy(f, slack=0.6).argmax(1).tolist() == [1, 0, 0]
    assert greedy(f).sum(1).tolist() == [1, 1, 1]


def test_a_policy_tells_small_differences_from_rounding() -> None:
    fb = exact(TWO, QUARTERS, goals_are_states(TWO))
    assert fb.policy(fb.z_of(np.array([1.0, 1.0 + 1e-7]))).argmax(1).tolist() == [1, 0]
    assert fb.policy(fb.z_of(np.array([1.0, 1.0 + 1e-15]))).argmax(1).tolist() == [0, 0]


# Bias


@FEW
@given(worlds())
def test_a_bias_takes_what_does_not_depend_on_the_action(world: World) -> None:
    """Theorem thm:main2 with bias, def:fb2."""
    mdp, r = world.mdp, world.normal(len(world.rho))
    fb = exact(mdp, world.rho, world.phi)
    extended = with_bias(fb)
    for z in (fb.z_of(r), world.normal(fb.dimension)):
        assert extended.bias is not None
        assert np.abs(extended.error(z)).max() < 1e-8  # eq. (extendedFB)
        assert (extended.policy(z) == fb.policy(z)).all()
        assert close(extended.q(z, r), fb.q(z, r))
        assert close(extended.forward(z).sum(1), np.zeros((mdp.states, fb.dimension)), 1e-8)  # advantages alone
        value = np.array([sum(extended.bias(z)[s] * r * world.rho) for s in range(mdp.states)])
        assert close(extended.state_value(z, r), value)
        assert close(extended.q(z, r), extended.forward(z) @ fb.z_of(r) + value[:, None])
        ranks = [np.linalg.matrix_rank((one.forward(z) @ one.B.T).reshape(-1, fb.goals)) for one in (extended, fb)]
        assert ranks[0] <= ranks[1]
    assert close(extended.q(fb.z_of(r), r), value_iteration(mdp, fb.on_pairs(r)))


def test_a_bias_can_halve_the_rank() -> None:
    fb = exact(TWO, np.full(4, 0.25))
    z = fb.z_of(np.array([0.0, 1.0, 2.0, 3.0]))
    ranks = [np.linalg.matrix_rank(one.forward(z).reshape(4, 4)) for one in (fb, with_bias(fb))]
    assert ranks == [4, 2]


def test_a_second_bias_adds_to_the_first() -> None:
    fb = exact(TWO, np.full(4, 0.25))
    shifted = replace(fb, forward=lambda z: fb.forward(z) - 1.0, bias=lambda z: np.ones((2, 4)))  # B is one-hot
    z, r = np.array([0.3, -0.2, 0.5, 0.1]), np.array([1.0, -1.0, 0.5, 2.0])
    assert np.abs(shifted.error(z)).max() < 1e-12
    assert np.abs(with_bias(shifted).error(z)).max() < 1e-12
    assert with_bias(shifted).q(z, r) == pytest.approx(fb.q(z, r))


def test_the_state_value_holds_the_present_reward_and_the_bias() -> None:
    fb = with_bias(exact(TWO, QUARTERS, goals_are_states(TWO), first=1))
    r = np.array([0.0, 1.0])
    z = fb.z_of(r)
    assert np.abs(fb.error(z)).max() < 1e-12
    assert fb.q(z, r) == pytest.approx(np.array([[0.5, 1.0], [2.0, 1.5]]))
    assert fb.state_value(z, r) == pytest.approx([0.75, 1.75])  # the mean over actions


# Other coordinates


@FEW
@given(worlds(), st.booleans())
def test_other_coordinates_change_neither_policies_nor_Q(world: World, bias: bool) -> None:
    """Remark rem:normB."""
    G = len(world.rho)
    fb = exact(world.mdp, world.rho, world.phi, world.normal(G, min(G, 3)))
    fb = with_bias(fb) if bias else fb
    r, other = world.normal(G), world.normal(G)
    C = world.normal(fb.dimension, fb.dimension) + 3 * np.eye(fb.dimension)
    turned = change_variables(fb, C)
    assert close(turned.B, np.array([C @ b for b in fb.B]))
    assert close(turned.z_of(r), C @ fb.z_of(r))
    z, z_turned = fb.z_of(other), turned.z_of(other)
    assert close(turned.forward(z_turned), fb.forward(z) @ np.linalg.inv(C), 1e-6)
    assert close(turned.q(z_turned, r), fb.q(z, r), 1e-6)
    assert (turned.policy(z_turned) == fb.policy(z)).all()
    assert close(turned.forward(z_turned) @ z_turned, fb.forward(z) @ z, 1e-6)
    assert close(turned.model_density(z_turned), fb.model_density(z), 1e-6)


@FEW
@given(worlds())
def test_B_can_be_made_orthonormal(world: World) -> None:
    G = len(world.rho)
    B = world.normal(G, min(G, 3)) * np.array([1.0, 10.0, 0.1])[: min(G, 3)]
    C = orthonormaliser(B, world.rho)
    covariance = sum(p * np.outer(b, b) for p, b in zip(world.rho, B, strict=True))
    assert close(C, C.T)
    assert close(C @ covariance @ C, np.eye(len(C)), 1e-6)
    assert close(inverse_covariance(B, world.rho) @ covariance, np.eye(len(C)), 1e-5)
    turned = change_variables(exact(world.mdp, world.rho, world.phi, B), C)
    assert close((world.rho[:, None] * turned.B).T @ turned.B, np.eye(len(C)), 1e-6)


@FEW
@given(worlds(), st.booleans())
def test_unused_directions_of_B_can_be_dropped(world: World, bias: bool) -> None:
    G = len(world.rho)
    B = world.normal(G, 2) @ world.normal(2, 4)  # four components, of rank two
    fb = exact(world.mdp, world.rho, world.phi, B)
    fb = with_bias(fb) if bias else fb
    C = orthonormaliser(B, world.rho)
    assert C.shape == (2, 4)
    small = change_variables(fb, C)
    assert small.dimension == 2
    assert close((world.rho[:, None] * small.B).T @ small.B, np.eye(2), 1e-6)
    r = world.normal(G)
    z, z_small = fb.z_of(r), small.z_of(r)
    assert close(small.model_density(z_small), fb.model_density(z), 1e-5)
    assert close(small.q(z_small, r), fb.q(z, r), 1e-6)
    assert (small.policy(z_small) == fb.policy(z)).all()
    back = change_variables(small, np.linalg.pinv(C))  # (4, 2): more rows than columns
    assert back.dimension == 4
    assert close(back.q(back.z_of(r), r), fb.q(z, r), 1e-6)


def test_coordinates_that_lose_a_part_of_B_are_refused() -> None:
    fb = exact(TWO, QUARTERS, goals_are_states(TWO))
    with pytest.raises(UserError, match=r"singular in a direction that B uses.*orthonormaliser"):
        change_variables(fb, np.array([[1.0, 1.0], [2.0, 2.0]]))
    with pytest.raises(UserError, match=r"shape \(3, 3\); expected \(any, 2\)"):
        change_variables(fb, np.eye(3))


# The largest over z


@FEW
@given(worlds(), st.integers(0, 1))
def test_the_largest_Q_over_z_is_optimal(world: World, first: int) -> None:
    """Theorem thm:main2, third claim."""
    phi = goals_are_states(world.mdp) if first else world.phi
    rho = np.full(world.mdp.states, 1 / world.mdp.states) if first else world.rho
    fb = exact(world.mdp, rho, phi, first=first)
    r, Z = world.normal(fb.goals), world.normal(4, fb.dimension)
    z = fb.z_of(r)
    best = value_iteration(world.mdp, fb.on_pairs(r))
    assert close(improvement(fb, r, np.vstack([Z, z])), best)
    without = improvement(fb, r, Z)
    assert (without <= best + 1e-9).all()
    for row in Z:  # at least as good as each of the policies
        assert (without >= evaluation(world.mdp, fb.policy(row), fb.on_pairs(r)) - 1e-9).all()
    assert close(improvement(fb, r, Z[:1]), evaluation(world.mdp, fb.policy(Z[0]), fb.on_pairs(r)))


def test_with_a_bias_the_largest_F_z_over_z_is_not_the_Q_of_z_R() -> None:
    plain = exact(TWO, np.full(4, 0.25))
    fb = with_bias(plain)
    in_state_1, for_staying = np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 0.0, 1.0, 0.0])
    z_R, other = fb.z_of(in_state_1), fb.z_of(for_staying)
    assert fb.policy(other).argmax(1).tolist() == [0, 0]
    assert np.abs(fb.error(z_R)).max() < 1e-12
    assert np.abs(fb.error(other)).max() < 1e-12
    # in state 0, changing over is worth 1 and staying 1/2, for there is a next time; for who always stays, 1 and 0
    assert (fb.forward(z_R) @ z_R)[0] == pytest.approx([-0.25, 0.25])
    assert (fb.forward(other) @ z_R)[0] == pytest.approx([-0.5, 0.5])
    with pytest.raises(UserError, match=r"lacks V-bar\^z.*largest fb\.q\(z, r\)"):
        improvement(fb, in_state_1, np.stack([z_R, other]))
    Z = np.stack([z_R, other])
    assert np.max([fb.q(z, in_state_1) for z in Z], axis=0) == pytest.approx(improvement(plain, in_state_1, Z))


# Universal successor features


@FEW
@given(worlds(), st.integers(1, 3))
def test_universal_successor_features_are_a_special_case(world: World, d: int) -> None:
    """The end of sec:rhotest: the same policies and Q as the best F for B, at z = (Cov B) w."""
    mdp, d = world.mdp, min(d, len(world.rho))
    B, w = world.normal(len(world.rho), d), world.normal(d)
    features = B[world.phi]
    psi = universal_successor_features(mdp, features, w)
    pi = greedy(value_iteration(mdp, features @ w))
    assert close(psi, slow_measure(mdp, pi, goals_are_pairs(mdp), pi.size) @ features.reshape(-1, d))
    assert (greedy(psi @ w) == pi).all()
    fb = exact(mdp, world.rho, world.phi, B)
    covariance = (world.rho[:, None] * B).T @ B
    z = covariance @ w
    assert (fb.policy(z) == pi).all()
    assert close(fb.forward(z) @ z, psi @ w, 1e-8)
    assert close(fb.forward(z) @ covariance, psi, 1e-7)


@FEW
@given(worlds(), st.floats(0.1, 30))
def test_any_positive_measure_will_do(world: World, total: float) -> None:
    """prop:existence and thm:main2 ask for no more."""
    r = world.normal(len(world.rho))
    fb = exact(world.mdp, total * world.rho, world.phi)
    assert close(fb.q(fb.z_of(r), r), value_iteration(world.mdp, r[world.phi]))


# Mistakes


def test_mistakes_are_named() -> None:
    phi = goals_are_states(TWO)
    with pytest.raises(UserError, match=r"smallest entry 0 and sum 1"):
        exact(TWO, np.array([0.0, 1.0]), phi)
    with pytest.raises(UserError, match=r"sum 1\.2; expected one positive number for each goal, with sum one"):
        sampled_reward(exact(TWO, np.array([0.6, 0.6]), phi), np.array([0.0, 1.0]), 10, 0.1)
    with pytest.raises(UserError, match=r"z has shape \(3,\); expected \(2,\)"):
        exact(TWO, np.array([0.5, 0.5]), phi).policy(np.zeros(3))
    with pytest.raises(UserError, match=r"Z has shape \(2,\); expected \(n, 2\)"):
        improvement(exact(TWO, [0.5, 0.5], phi), np.array([0.0, 1.0]), np.zeros(2))
    with pytest.raises(UserError, match="finite"):
        orthonormaliser([[np.nan], [1.0]], [0.5, 0.5])
    with pytest.raises(UserError, match=r"shape \(2, 2\)"):
        exact(TWO, np.full((2, 2), 0.25))
    with pytest.raises(UserError, match=r"phi goes from 0 to 3; expected goals from 0 to 1"):
        exact(TWO, QUARTERS)
    with pytest.raises(UserError, match=r"phi is int64 \(2,\); expected whole numbers, \(2, 2\)"):
        exact(TWO, QUARTERS, np.arange(2))
    with pytest.raises(UserError, match=r"phi is float64 \(2, 2\)"):
        exact(TWO, QUARTERS, phi.astype(float))
    with pytest.raises(UserError, match=r"first is 2; expected 0"):
        exact(TWO, QUARTERS, phi, first=2)
    with pytest.raises(UserError, match=r"first is 1 and phi depends on the action"):
        exact(TWO, np.full(4, 0.25), first=1)
    with pytest.raises(UserError, match=r"B has shape \(3, 2\); expected \(goals, d\) with the 2 goals"):
        exact(TWO, QUARTERS, phi, np.ones((3, 2)))
    with pytest.raises(UserError, match=r"B has shape \(3, 1\)"):
        FB(TWO, lambda z: np.zeros((2, 2, 1)), np.ones((3, 1)), QUARTERS, phi)
    fb = exact(TWO, QUARTERS, phi)
    for complains in (fb.z_of, fb.on_pairs):
        with pytest.raises(UserError, match=r"reward of shape \(3,\).*each goal, 2"):
            complains(np.zeros(3))
    with pytest.raises(UserError, match=r"features have shape \(2, 2, 3\); expected \(2, 2, 1\)"):
        universal_successor_features(TWO, np.zeros((2, 2, 3)), np.ones(1))


def test_goal_maps() -> None:
    mdp = garnet(3, 2, 2, 0)
    assert goals_are_pairs(mdp).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert goals_are_states(mdp).tolist() == [[0, 0], [1, 1], [2, 2]]
    pi = np.full((3, 2), 0.5)
    pairs = goal_measure(mdp, pi, goals_are_pairs(mdp), 6)
    assert goal_measure(mdp, pi, goals_are_states(mdp), 3) == pytest.approx(pairs.reshape(3, 2, 3, 2).sum(-1))
