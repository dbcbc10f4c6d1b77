from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from anyreward import FiniteMDP, UserError, finite_mdp

Array = np.ndarray[Any, Any]


def garnet(seed: int, S: int = 7, A: int = 3, branches: int = 3, ending: float = 0.0, gamma: float = 0.9) -> FiniteMDP:
    """A random MDP: each (s, a) leads to a few states; with probability up to ``ending`` the episode ends."""
    rng = np.random.default_rng(seed)
    P = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            to = rng.choice(S, branches, replace=False)
            P[s, a, to] = rng.dirichlet(np.ones(branches)) * (1 - ending * rng.random())
    return FiniteMDP(P, gamma, np.arange(S))


def random_policy(mdp: FiniteMDP, seed: int) -> Array:
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.actions), mdp.states)


def value_iteration(mdp: FiniteMDP, r: Array) -> Array:
    """V* of one reward r (S, A), by plain value iteration."""
    V = np.zeros(mdp.states)
    for _ in range(400):  # 0.9^400 < 1e-18
        V = (r + mdp.gamma * mdp.P @ V).max(1)
    return V


TWO = FiniteMDP(np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]), 0.5, np.arange(2))
"""Action 0 stays, action 1 changes over; gamma 1/2."""


def test_two_states_by_hand() -> None:
    r = np.array([0.0, 1.0])
    stay, change = np.eye(2)[[0, 0]], np.eye(2)[[1, 1]]
    assert TWO.policy_value(stay, r) == pytest.approx([0, 2])  # 1 / (1 - 1/2)
    assert TWO.policy_value(change, r) == pytest.approx([2 / 3, 4 / 3])  # 1/2 + 1/8 + ..., 1 + 1/4 + ...
    assert TWO.policy_value(np.full((2, 2), 0.5), r) == pytest.approx([0.5, 1.5])
    assert TWO.optimal_value(r) == pytest.approx([1, 2])  # change over once, then stay
    assert TWO.q_value(np.array([1.0, 2.0]), r) == pytest.approx(np.array([[0.5, 1.0], [2.0, 1.5]]))


def test_two_states_by_hand_with_rewards_on_actions() -> None:
    r = np.array([[0.0, 1.0], [0.0, 0.0]])  # changing over from state 0 pays
    assert TWO.policy_value(np.eye(2)[[1, 1]], r) == pytest.approx([4 / 3, 2 / 3])
    assert TWO.optimal_value(r) == pytest.approx([4 / 3, 2 / 3])


@pytest.mark.parametrize("ending", [0.0, 0.3])
def test_policy_value_is_the_discounted_sum(ending: float) -> None:
    mdp, r = garnet(0, ending=ending), np.random.default_rng(1).normal(size=(7, 3))
    pi = random_policy(mdp, 2)
    expected, reach = np.zeros(7), np.eye(7)  # reach: gamma^t P_pi^t
    for _ in range(400):
        expected += reach @ (pi * r).sum(1)
        reach = mdp.gamma * reach @ np.einsum("sa,sat->st", pi, mdp.P)
    assert mdp.policy_value(pi, r) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_optimal_value_is_that_of_value_iteration(seed: int) -> None:
    mdp = garnet(seed, S=5, ending=0.2 * (seed % 2))
    r = np.random.default_rng(seed + 100).normal(size=(5, 3))
    V = mdp.optimal_value(r)
    assert pytest.approx(value_iteration(mdp, r), abs=1e-11) == V
    assert mdp.q_value(V, r).max(-1) == pytest.approx(V, abs=1e-12)  # Bellman
    assert (mdp.policy_value(random_policy(mdp, seed), r) <= V + 1e-12).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e9])
def test_optimal_value_scales_with_the_reward(scale: float) -> None:
    assert TWO.optimal_value(np.array([0.0, scale])) / scale == pytest.approx([1, 2])


def test_equal_actions_settle() -> None:
    mdp = FiniteMDP(np.full((4, 3, 4), 0.25), 0.99, np.arange(4))
    assert mdp.optimal_value(np.ones(4)) == pytest.approx(np.full(4, 100.0))
    assert mdp.optimal_value(np.zeros(4)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("ending", [0.0, 0.5])
def test_successor_measure(ending: float) -> None:
    mdp = garnet(5, S=4, ending=ending)
    pi, r = random_policy(mdp, 6), np.random.default_rng(7).normal(size=(4, 3))
    M = mdp.successor_measure(pi)
    assert M.shape == (4, 3, 4, 3)
    now = np.eye(12).reshape(4, 3, 4, 3)
    later = np.einsum("sat,tb,tbuc->sauc", mdp.P, pi, M)
    assert pytest.approx(now + mdp.gamma * later, abs=1e-12) == M
    assert np.einsum("saub,ub->sa", M, r) == pytest.approx(mdp.q_value(mdp.policy_value(pi, r), r), abs=1e-12)
    mass = M.sum((2, 3))
    assert (mass < 10 - 0.1).all() if ending else mass == pytest.approx(10)  # 1 / (1 - gamma)


def test_batches_of_rewards_and_policies() -> None:
    mdp, rng = garnet(8), np.random.default_rng(9)
    r_s, r_sa = rng.normal(size=(4, 7)), rng.normal(size=(4, 7, 3))
    pi = np.stack([random_policy(mdp, seed) for seed in range(4)])
    for r in (r_s, r_sa):
        for i in range(4):
            assert mdp.optimal_value(r)[i] == pytest.approx(mdp.optimal_value(r[i]), abs=1e-12)
            assert mdp.policy_value(pi, r)[i] == pytest.approx(mdp.policy_value(pi[i], r[i]), abs=1e-12)
            assert mdp.policy_value(pi[0], r)[i] == pytest.approx(mdp.policy_value(pi[0], r[i]), abs=1e-12)
    assert mdp.optimal_value(r_s) == pytest.approx(mdp.optimal_value(np.repeat(r_s[..., None], 3, -1)))


def test_termination_stops_the_sum() -> None:
    mdp = FiniteMDP(np.array([[[0.75]]]), 0.8, np.arange(1))  # goes on with probability 3/4
    assert mdp.policy_value(np.ones((1, 1)), np.ones(1)) == pytest.approx([2.5])  # 1 / (1 - 0.6)
    assert mdp.optimal_value(np.ones(1)) == pytest.approx([2.5])
    assert mdp.successor_measure(np.ones((1, 1))).item() == pytest.approx(2.5)


def test_four_rooms() -> None:
    env = gym.make("anyreward/FourRooms-v0")
    mdp = finite_mdp(env, 0.99)
    assert mdp is not None
    assert (mdp.states, mdp.actions, mdp.gamma) == (68, 5, 0.99)
    cell = {int(c): i for i, c in enumerate(mdp.observations)}
    r = np.zeros(68)
    r[cell[12]] = 1.0  # the top left corner, x = y = 1
    V = mdp.optimal_value(r)
    assert V[cell[12]] == pytest.approx(100)
    assert V[cell[9 * 11 + 9]] == pytest.approx(100 * 0.99**16)  # the opposite corner is 16 moves away


def test_frozen_lake_ends_in_holes_and_at_the_goal() -> None:
    env = gym.make("FrozenLake-v1", is_slippery=False)
    mdp = finite_mdp(env, 0.9)
    assert mdp is not None
    assert mdp.P.shape == (16, 4, 16)
    ends = [5, 7, 11, 12, 15]
    assert mdp.P[ends].sum() == 0
    assert mdp.P[:, :, ends].sum() == 0
    assert mdp.P[0, 2, 1] == 1.0  # right of the start
    r = np.zeros((16, 4))
    r[14, 2] = 1.0  # the step onto the goal
    assert mdp.optimal_value(r)[0] == pytest.approx(0.9**5)  # six steps

    slippery = finite_mdp(gym.make("FrozenLake-v1"), 0.9)
    assert slippery is not None
    assert slippery.P[0, 2] == pytest.approx(np.eye(16)[[0, 1, 4]].sum(0) / 3)
    assert slippery.P[14, 2].sum() == pytest.approx(2 / 3)  # one in three ends at the goal


class WithUnrelatedMaze(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    maze = "a name that other libraries use too"


def test_no_table_no_mdp() -> None:
    assert finite_mdp(gym.make("CartPole-v1"), 0.9) is None
    assert finite_mdp(WithUnrelatedMaze(), 0.9) is None


@pytest.mark.parametrize(
    ("P", "gamma", "message"),
    [
        (np.ones((2, 2)), 0.9, r"shape \(2, 2\); expected \(states, actions, states\)"),
        (np.ones((2, 1, 3)) / 3, 0.9, r"shape \(2, 1, 3\)"),
        (np.full((2, 1, 2), 0.6), 0.9, "sum above one"),
        (np.array([[[-0.1, 1.0]], [[0.5, 0.5]]]), 0.9, "negative"),
        (np.full((2, 1, 2), 0.5), 1.0, r"gamma is 1\.0; expected 0 < gamma < 1"),
        (np.full((2, 1, 2), np.nan), 0.9, "probabilities"),
    ],
)
def test_what_is_no_mdp(P: Array, gamma: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FiniteMDP(P, gamma, np.arange(len(P)))


def test_a_reward_that_does_not_fit() -> None:
    with pytest.raises(UserError, match=r"shape \(5,\).*\(\.\.\., 7\).*\(\.\.\., 7, 3\)"):
        garnet(0).optimal_value(np.zeros(5))
