from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward.errors import UserError
from anyreward.theory.fb import FB
from anyreward.theory.finite_mdp import garnet
from anyreward.theory.navigation import navigation_fb, toric_fb, toric_grid

Array = np.ndarray[Any, Any]


def reached_as_well_as_can_be(fb: FB, goals: Array) -> Array:
    """(n,) whether pi_{B(s)} is optimal for the reward at s, for each of the goals s."""
    mdp = fb.mdp
    r = mdp.on_states(np.eye(mdp.states)[goals])
    pi = np.stack([fb.policy(fb.B[s]) for s in goals])
    return np.asarray(np.abs(mdp.policy_value(pi, r) - mdp.optimal_value(r)).max(-1) < 1e-9)


def times(fb: FB, factors: Array) -> FB:
    """The same with each component of F multiplied; by zero drops it."""
    return replace(fb, forward=lambda z: fb.forward(z) * factors)


@pytest.mark.parametrize(("k", "n"), [*((k, 1) for k in range(2, 9)), *((k, 2) for k in range(2, 9)), (3, 3), (4, 3)])
def test_two_components_for_each_direction_reach_every_cell_of_a_torus(k: int, n: int) -> None:
    fb = toric_fb(k, n)
    assert fb.dimension == 2 * n
    assert fb.mdp.P.shape == (k**n, 2 * n + 1, k**n)
    assert reached_as_well_as_can_be(fb, np.arange(k**n)).all()


@pytest.mark.parametrize("k", [5, 6, 7, 8])
def test_a_larger_torus_of_three_directions(k: int) -> None:
    assert reached_as_well_as_can_be(toric_fb(k, 3), np.array([0, k**3 - 1])).all()


@pytest.mark.parametrize(("k", "n"), [(5, 1), (6, 1), (5, 2), (4, 3)])
def test_each_component_and_each_sign_is_needed_on_a_torus(k: int, n: int) -> None:
    fb = toric_fb(k, n)
    for one in np.eye(2 * n):
        assert not reached_as_well_as_can_be(times(fb, 1 - one), np.arange(k**n)).all()
        assert not reached_as_well_as_can_be(times(fb, 1 - 2 * one), np.arange(k**n)).all()


def test_the_torus_by_hand() -> None:
    mdp = toric_grid(3, 2, gamma=0.8)
    assert mdp.gamma == 0.8
    leads = mdp.P.argmax(-1)  # state 3 x + y; actions: stay, x + 1, x - 1, y + 1, y - 1
    assert (mdp.P.sum(-1) == 1).all()
    assert leads[0].tolist() == [0, 3, 6, 1, 2]
    assert leads[5].tolist() == [5, 8, 2, 3, 4]  # x = 1, y = 2
    fb = toric_fb(4, 1, gamma=0.7)
    assert fb.mdp.gamma == 0.7
    assert np.abs(fb.B - [[1, 0], [0, 1], [-1, 0], [0, -1]]).max() < 1e-12
    assert (fb.forward(fb.B[1]) @ fb.B[1])[0] == pytest.approx([0, 1, -1], abs=1e-12)  # cos(2 pi (s + a - s') / k)
    assert fb.z_of(np.eye(4)[1]) == pytest.approx(fb.B[1] / 4)


@settings(max_examples=15, derandomize=True, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 3), st.sampled_from([0.0, 0.4]))
def test_one_component_is_enough_to_reach_every_state(seed: int, states: int, actions: int, ending: float) -> None:
    """The remark that any injective B will do, in sec:dimension."""
    rng = np.random.default_rng(seed)
    mdp = garnet(states, actions, min(states, 2), seed, ending=ending)
    rho = rng.dirichlet(np.ones(states)) + 0.02
    fb = navigation_fb(mdp, rng.permutation(np.arange(1.0, states + 1))[:, None], rho / rho.sum())
    assert fb.dimension == 1
    assert reached_as_well_as_can_be(fb, np.arange(states)).all()
    for s in range(states):
        assert fb.z_of(np.eye(states)[s] / fb.rho[s]) == pytest.approx(fb.B[s])
        near = fb.policy(fb.B[s] + 0.1)
        assert (near == fb.policy(fb.B[s])).all()  # the nearest B(s) counts
        assert np.abs(fb.forward(fb.B[s])[..., 0]) == pytest.approx(np.full((states, actions), fb.B[s, 0]))


def test_goals_are_told_apart_by_sign_as_well() -> None:
    mdp = garnet(4, 2, 2, 0)
    assert reached_as_well_as_can_be(navigation_fb(mdp, np.array([[-2.0], [-1.0], [1.0], [2.0]])), np.arange(4)).all()
    assert navigation_fb(mdp, np.eye(4)).rho.tolist() == [0.25] * 4


def test_mistakes_are_named() -> None:
    mdp = garnet(3, 2, 2, 0)
    with pytest.raises(UserError, match=r"shape \(2, 1\); expected \(3, d\)"):
        navigation_fb(mdp, np.ones((2, 1)))
    with pytest.raises(UserError, match="two equal rows or a row of zeros"):
        navigation_fb(mdp, np.array([[1.0], [2.0], [1.0]]))
    with pytest.raises(UserError, match="two equal rows or a row of zeros"):
        navigation_fb(mdp, np.array([[1.0], [2.0], [0.0]]))
    for k, n in ((1, 2), (3, 0)):
        with pytest.raises(UserError, match=f"k={k}, n={n}; expected cycles of k >= 2"):
            toric_grid(k, n)
