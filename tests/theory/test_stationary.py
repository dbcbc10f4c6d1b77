from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward.errors import UserError
from anyreward.theory.fb import exact, goals_are_states, inverse_covariance
from anyreward.theory.stationary import (
    SuccessorDensity,
    density_of,
    fb_loss,
    linear_z,
    predecessor_features,
    regression,
    singular_values,
    successor_features,
    truncated,
)
from tests.theory.test_fb import QUARTERS, TWO, World, close, slow_measure, worlds

Array = np.ndarray[Any, Any]

FEW = settings(max_examples=10, derandomize=True, deadline=None)


def density(world: World) -> SuccessorDensity:
    """m^pi of the optimal policy of a random reward, on the world's goals; the starts have weights of their own."""
    fb = exact(world.mdp, world.rho, world.phi)
    rho = world.rng.dirichlet(np.ones(world.phi.size)) + 0.02
    return density_of(fb, world.normal(fb.dimension), rho / rho.sum())


def best_forward(at: SuccessorDensity, B: Array) -> Array:
    """(n, d) F = (Cov B)^-1 Succ(B), the least loss for this B; a pseudo-inverse where Cov B is singular."""
    return successor_features(at, B) @ inverse_covariance(B, at.rho_goals)


def best_backward(at: SuccessorDensity, F: Array) -> Array:
    """(G, d) B = (Cov F)^-1 Pred(F), the least loss for this F; a pseudo-inverse where Cov F is singular."""
    return predecessor_features(at, F) @ inverse_covariance(F, at.rho)


def slow_loss(at: SuccessorDensity, F: Array, B: Array) -> float:
    total = 0.0
    for i, g in np.ndindex(at.m.shape):
        total += at.rho[i] * at.rho_goals[g] * (sum(F[i] * B[g]) - at.m[i, g]) ** 2
    return total


def gradients(at: SuccessorDensity, F: Array, B: Array) -> tuple[Array, Array]:
    """The derivatives of the loss by F and by B, by automatic differentiation."""
    F_, B_ = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (F, B))
    rho, rho_goals, m = (torch.tensor(x) for x in (at.rho, at.rho_goals, at.m))
    loss = (rho[:, None] * rho_goals * (F_ @ B_.T - m) ** 2).sum()
    by_F, by_B = torch.autograd.grad(loss, (F_, B_))
    return by_F.numpy(), by_B.numpy()


def is_stationary(at: SuccessorDensity, F: Array, B: Array) -> bool:
    return all(np.abs(gradient).max() < 1e-8 for gradient in gradients(at, F, B))


def identities_hold(at: SuccessorDensity, F: Array, B: Array) -> bool:
    """(Cov B) F = Succ(B) and (Cov F) B = Pred(F), with covariances by hand."""
    cov_F = sum(p * np.outer(f, f) for p, f in zip(at.rho, F, strict=True))
    cov_B = sum(p * np.outer(b, b) for p, b in zip(at.rho_goals, B, strict=True))
    return close(F @ cov_B, successor_features(at, B), 1e-7) and close(B @ cov_F, predecessor_features(at, F), 1e-7)


def test_successors_and_predecessors_by_hand() -> None:
    """Two states; m of the policy that changes over to state 1 and stays."""
    fb = exact(TWO, QUARTERS, goals_are_states(TWO))
    at = density_of(fb, fb.z_of(np.array([0.0, 1.0])), np.array([0.1, 0.2, 0.3, 0.4]))
    M = np.array([[1.5, 0.5], [1.0, 1.0], [0.0, 2.0], [0.5, 1.5]])
    assert at.m == pytest.approx(M / QUARTERS)
    B = np.array([[1.0], [10.0]])
    assert successor_features(at, B) == pytest.approx(M @ B)
    F = np.array([[1.0], [2.0], [3.0], [4.0]])
    # 0.1 * 1.5 * 1 + 0.2 * 1 * 2 + 0 + 0.4 * 0.5 * 4 = 1.35, over 1/4; 0.05 + 0.4 + 1.8 + 2.4 = 4.65, over 3/4
    assert predecessor_features(at, F) == pytest.approx(np.array([[5.4], [6.2]]))
    assert fb_loss(at, F, B) == pytest.approx(slow_loss(at, F, B))


@FEW
@given(worlds(), st.integers(1, 3))
def test_features_are_those_of_visits(world: World, d: int) -> None:
    fb = exact(world.mdp, world.rho, world.phi)
    z = world.normal(fb.dimension)
    at = density_of(fb, z, np.full(world.phi.size, 1 / world.phi.size))
    M = slow_measure(world.mdp, fb.policy(z), world.phi, fb.goals).reshape(-1, fb.goals)
    F, B = world.normal(len(M), d), world.normal(fb.goals, d)
    assert close(successor_features(at, B), M @ B)
    assert close(predecessor_features(at, F), (M / world.rho).T @ F / len(M))
    assert fb_loss(at, F, B) == pytest.approx(slow_loss(at, F, B))


@FEW
@given(worlds(), st.integers(1, 3))
def test_the_cut_off_decomposition_has_the_least_loss(world: World, d: int) -> None:
    at = density(world)
    d = min(d, *at.m.shape)
    F, B = truncated(at, d)
    assert (F.shape, B.shape) == ((len(at.rho), d), (len(at.rho_goals), d))
    least = float((singular_values(at)[d:] ** 2).sum())
    assert fb_loss(at, F, B) == pytest.approx(least, abs=1e-9)
    assert close((at.rho_goals[:, None] * B).T @ B, np.eye(d))
    assert close((at.rho[:, None] * F).T @ F, np.diag(singular_values(at)[:d] ** 2), 1e-7)
    for _ in range(20):  # nothing else is better: neither anything, nor the best partner of anything, nor what is near
        other_F, other_B = world.normal(*F.shape), world.normal(*B.shape)
        assert fb_loss(at, other_F, other_B) >= least - 1e-9
        assert fb_loss(at, best_forward(at, other_B), other_B) >= least - 1e-9
        assert fb_loss(at, F + 0.01 * other_F, B + 0.01 * other_B) >= least - 1e-9


@FEW
@given(worlds(), st.integers(1, 3))
def test_at_the_least_loss_F_and_B_are_features_of_each_other(world: World, d: int) -> None:
    """thm:forwardbackwardinterpretation at the global optimum."""
    at = density(world)
    F, B = truncated(at, min(d, *at.m.shape))
    assert is_stationary(at, F, B)
    assert identities_hold(at, F, B)
    assert close(best_forward(at, B), F, 1e-7)
    off = F + 0.1 * world.normal(*F.shape)
    assert not is_stationary(at, off, B)
    assert not identities_hold(at, off, B)


@FEW
@given(worlds(), st.integers(1, 2))
def test_at_any_stationary_point_F_and_B_are_features_of_each_other(world: World, d: int) -> None:
    """thm:forwardbackwardinterpretation where alternating least squares ends, and at a saddle point."""
    at = density(world)
    d = min(d, *at.m.shape)
    B = world.normal(len(at.rho_goals), d)
    losses = []
    for _ in range(3000):
        F = best_forward(at, B)
        losses.append(fb_loss(at, F, B))
        B = best_backward(at, F)
        losses.append(fb_loss(at, F, B))
        if len(losses) > 4 and is_stationary(at, F, B):
            break
    assert (np.diff(losses) <= 1e-9).all()
    assert is_stationary(at, F, B)
    assert identities_hold(at, F, B)
    every_F, every_B = truncated(at, min(at.m.shape))
    F, B = every_F[:, -d:], every_B[:, -d:]  # the smallest singular values: stationary, and not least
    assert is_stationary(at, F, B)
    assert identities_hold(at, F, B)


@FEW
@given(worlds(), st.integers(1, 3))
def test_each_is_best_given_the_other(world: World, d: int) -> None:
    at = density(world)
    d = min(d, *at.m.shape)
    F, B = world.normal(len(at.rho), d), world.normal(len(at.rho_goals), d)
    assert np.abs(gradients(at, best_forward(at, B), B)[0]).max() < 1e-8
    assert np.abs(gradients(at, F, best_backward(at, F))[1]).max() < 1e-8
    assert fb_loss(at, best_forward(at, B), B) <= fb_loss(at, F, B)
    assert fb_loss(at, F, best_backward(at, F)) <= fb_loss(at, F, B)


def test_the_exact_F_for_a_fixed_B_is_the_best_one() -> None:
    """thm:fixedbackward: what `exact` makes has the least loss for its B, at each z."""
    rng = np.random.default_rng(0)
    B = rng.standard_normal((4, 2))
    fb = exact(TWO, np.array([0.1, 0.2, 0.3, 0.4]), B=B)
    for z in rng.standard_normal((5, 2)):
        assert best_forward(density_of(fb, z), B) == pytest.approx(fb.forward(z).reshape(4, 2))


# z_R from another distribution


@FEW
@given(worlds(), st.integers(1, 3))
def test_a_linear_model_needs_no_training_data(world: World, d: int) -> None:
    """prop:linearz."""
    G = len(world.rho)
    d = min(d, G)
    B, r, w = world.normal(G, d), world.normal(G), world.normal(d)
    rho_test = world.rng.dirichlet(np.ones(G))
    z_R = sum(world.rho[g] * r[g] * B[g] for g in range(G))
    assert close(linear_z(r, B, world.rho, world.rho), z_R, 1e-8)
    linear = B @ w
    assert close(regression(linear, B, rho_test), w, 1e-5)
    assert close(linear_z(linear, B, world.rho, rho_test), (world.rho * linear) @ B, 1e-5)
    # in general: the z of the reward that the regression models, which leaves nothing that B explains
    model = B @ regression(r, B, rho_test)
    assert close((rho_test * (r - model)) @ B, np.zeros(d), 1e-8)
    assert close(linear_z(r, B, world.rho, rho_test), (world.rho * model) @ B, 1e-8)


def test_a_linear_model_gives_the_policies_of_the_projection_under_the_test_distribution() -> None:
    rng = np.random.default_rng(1)
    B, r, rho, rho_test = (
        rng.standard_normal((4, 2)),
        rng.standard_normal(4),
        np.full(4, 0.25),
        rng.dirichlet(np.ones(4)),
    )
    fb = exact(TWO, rho, B=B)
    z = linear_z(r, B, rho, rho_test)
    model = (B @ regression(r, B, rho_test)).reshape(2, 2)
    assert TWO.policy_value(fb.policy(z), model) == pytest.approx(TWO.optimal_value(model))


def test_mistakes_are_named() -> None:
    fb = exact(TWO, QUARTERS, goals_are_states(TWO))
    with pytest.raises(UserError, match="not the pairs"):
        density_of(fb, np.ones(2))
    with pytest.raises(UserError, match=r"m has shape \(2, 3\); expected \(2, 2\)"):
        SuccessorDensity(np.zeros((2, 3)), QUARTERS, QUARTERS)
    with pytest.raises(UserError, match="sum 2"):
        SuccessorDensity(np.zeros((2, 2)), np.ones(2), QUARTERS)
    with pytest.raises(UserError, match="sum 2"):
        SuccessorDensity(np.zeros((2, 2)), QUARTERS, np.ones(2))
    for d in (0, 3):
        with pytest.raises(UserError, match=f"d is {d}; expected 1 to 2"):
            truncated(SuccessorDensity(np.eye(2), QUARTERS, QUARTERS), d)
    with pytest.raises(UserError, match="the 2 components of B are linearly dependent"):
        regression(np.ones(3), np.eye(3)[:, :2], np.array([1.0, 0.0, 0.0]))
