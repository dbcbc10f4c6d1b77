from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text import CliffWalkingEnv, FrozenLakeEnv, TaxiEnv

from anyreward import FiniteMDP, UserError, finite_mdp, open_world
from anyreward.theory import garnet
from anyreward.theory.finite_mdp import MOST_PAIRS, SPARSE_ABOVE
from anyreward.worlds.maze import FOUR_ROOMS, parse_maze

Array = np.ndarray[Any, Any]


def random_policy(mdp: FiniteMDP, seed: int) -> Array:
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.actions), mdp.states)


def plain_value_iteration(mdp: FiniteMDP, r: Array) -> Array:
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
    mdp, r = garnet(7, 3, 3, seed=0, ending=ending), np.random.default_rng(1).normal(size=(7, 3))
    pi = random_policy(mdp, 2)
    expected, reach = np.zeros(7), np.eye(7)  # reach: gamma^t P_pi^t
    for _ in range(400):
        expected += reach @ (pi * r).sum(1)
        reach = mdp.gamma * reach @ np.einsum("sa,sat->st", pi, mdp.P)
    assert mdp.policy_value(pi, r) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_optimal_value_is_that_of_value_iteration(seed: int) -> None:
    mdp = garnet(5, 3, 3, seed, ending=0.2 * (seed % 2))
    r = np.random.default_rng(seed + 100).normal(size=(5, 3))
    V = mdp.optimal_value(r)
    assert pytest.approx(plain_value_iteration(mdp, r), abs=1e-11) == V
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
    mdp = garnet(4, 3, 3, seed=5, ending=ending)
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
    mdp, rng = garnet(7, 3, 3, seed=8), np.random.default_rng(9)
    r_s, r_sa = rng.normal(size=(4, 7)), rng.normal(size=(4, 7, 3))
    pi = np.stack([random_policy(mdp, seed) for seed in range(4)])
    for r in (r_s, r_sa):
        for i in range(4):
            assert mdp.optimal_value(r)[i] == pytest.approx(mdp.optimal_value(r[i]), abs=1e-12)
            assert mdp.policy_value(pi, r)[i] == pytest.approx(mdp.policy_value(pi[i], r[i]), abs=1e-12)
            assert (mdp.optimal_policy(r)[i] == mdp.optimal_policy(r[i])).all()
            assert mdp.policy_value(pi[0], r)[i] == pytest.approx(mdp.policy_value(pi[0], r[i]), abs=1e-12)
    assert mdp.optimal_value(r_s) == pytest.approx(mdp.optimal_value(np.repeat(r_s[..., None], 3, -1)))


def test_termination_stops_the_sum() -> None:
    mdp = FiniteMDP(np.array([[[0.75]]]), 0.8, np.arange(1))  # goes on with probability 3/4
    assert mdp.policy_value(np.ones((1, 1)), np.ones(1)) == pytest.approx([2.5])  # 1 / (1 - 0.6)
    assert mdp.optimal_value(np.ones(1)) == pytest.approx([2.5])
    assert mdp.successor_measure(np.ones((1, 1))).item() == pytest.approx(2.5)


def test_the_optimal_policy_of_two_states_changes_over_and_stays() -> None:
    assert TWO.optimal_policy(np.array([0.0, 1.0])).tolist() == [[0, 1], [1, 0]]
    assert TWO.optimal_policy(np.array([[1.0, 0.0], [0.0, 1.0]])).shape == (2, 2)


@pytest.mark.parametrize("seed", range(4))
def test_the_optimal_policy_is_one_hot_and_has_the_optimal_value(seed: int) -> None:
    mdp = garnet(8, 4, 3, seed, gamma=0.99, ending=0.1 * seed)
    r = np.random.default_rng(seed).normal(size=(3, 8, 4))
    pi = mdp.optimal_policy(r)
    assert pi.shape == (3, 8, 4)
    assert set(pi.reshape(-1)) == {0.0, 1.0}
    assert (pi.sum(-1) == 1).all()
    assert mdp.policy_value(pi, r) == pytest.approx(mdp.optimal_value(r), abs=1e-11)


def test_the_successor_density_times_rho_is_the_successor_measure() -> None:
    mdp = garnet(4, 3, 2, seed=1)
    pi, rho = random_policy(mdp, 2), np.random.default_rng(3).dirichlet(np.ones(12)).reshape(4, 3)
    m = mdp.successor_density(pi, rho)
    assert np.einsum("satb,tb->satb", m, rho) == pytest.approx(mdp.successor_measure(pi), abs=1e-12)


@pytest.mark.parametrize(
    ("rho", "message"),
    [
        (np.full(2, 0.5), r"shape \(2,\); expected \(2, 2\)"),
        (np.array([[0.5, 0.5], [0.0, 0.0]]), r"entry 0\.0; a density needs rho > 0"),
        (np.array([[0.5, 0.6], [0.1, -0.2]]), r"entry -0\.2"),
    ],
)
def test_a_rho_without_a_density(rho: Array, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TWO.successor_density(np.full((2, 2), 0.5), rho)


def test_no_successor_measure_of_a_large_mdp() -> None:
    mdp = garnet(100, MOST_PAIRS // 100 + 1, 1, seed=0)
    with pytest.raises(UserError, match=r"5,100 x 5,100 entries. Above 5,000 pairs .* memory .* time .*policy_value"):
        mdp.successor_measure(random_policy(mdp, 0))


def test_a_policy_that_does_not_fit() -> None:
    actions = np.array([0, 1])  # not probabilities
    with pytest.raises(UserError, match=r"policy of shape \(2,\).*\(\.\.\., 2, 2\)"):
        TWO.successor_measure(actions)
    with pytest.raises(UserError, match=r"policy of shape \(2,\)"):
        TWO.policy_value(actions, np.zeros(2))


def test_the_live_states_go_on_under_some_action() -> None:
    P = np.zeros((3, 2, 3))
    P[0, 1, 2] = P[1, 0, 1] = 0.5
    assert FiniteMDP(P, 0.9).live.tolist() == [0, 1]


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


@pytest.mark.parametrize("source", [FOUR_ROOMS, parse_maze(FOUR_ROOMS), gym.make("anyreward/FourRooms-v0")])
def test_a_maze_comes_from_its_drawing_as_from_its_environment(source: Any) -> None:
    mdp, maze = finite_mdp(source, 0.9), parse_maze(FOUR_ROOMS)
    assert mdp is not None
    assert (np.eye(len(maze.free))[maze.free_successors] == mdp.P).all()
    assert (mdp.observations == maze.free).all()
    assert finite_mdp(source, 0.9, most_states=67) is None
    assert finite_mdp(source, 0.9, most_states=68) is not None


@pytest.mark.parametrize(
    ("env", "states", "actions"),
    [
        (FrozenLakeEnv(map_name="8x8"), 64, 4),
        (CliffWalkingEnv(), 48, 4),
        (CliffWalkingEnv(is_slippery=True), 48, 4),
        (TaxiEnv(), 500, 6),
    ],
)
def test_the_optimum_of_a_toy_text_world_solves_the_equation_of_its_table(
    env: FrozenLakeEnv | CliffWalkingEnv | TaxiEnv, states: int, actions: int
) -> None:
    mdp = finite_mdp(env, 0.95)
    assert mdp is not None
    assert (mdp.states, mdp.actions) == (states, actions)
    assert mdp.is_sparse == (states > SPARSE_ABOVE)
    assert mdp.observations.tolist() == list(range(states))
    assert finite_mdp(env, 0.95, most_states=states - 1) is None
    table = env.P
    pairs = [[table[s][a] for a in range(actions)] for s in range(states)]
    r = np.array([[sum(p * paid for p, _, paid, _ in outcomes) for outcomes in row] for row in pairs])
    V = mdp.optimal_value(r)
    best = [
        max(sum(p * (paid + 0.95 * (0 if over else V[to])) for p, to, paid, over in outcomes) for outcomes in row)
        for row in pairs
    ]
    assert pytest.approx(best, abs=1e-10) == V


def test_the_cliff_is_walked_around_in_thirteen_steps() -> None:
    mdp = finite_mdp(CliffWalkingEnv(), 0.9)
    assert mdp is not None
    r = np.full((48, 4), -1.0)
    r[36, 1] = r[25:35, 2] = -100.0  # into the cliff, from the start and from above
    assert mdp.optimal_value(r)[36] == pytest.approx(-(1 - 0.9**13) / 0.1)


def test_what_holds_no_mdp_is_refused() -> None:
    world: Any = open_world("four-rooms")
    with pytest.raises(UserError, match=r"got a World; .*world\.make\(\)"):
        finite_mdp(world, 0.9)
    with pytest.raises(UserError, match="Unknown character 'f'"):
        finite_mdp("four-rooms", 0.9)


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
        (np.zeros((0, 1, 0)), 0.9, r"shape \(0, 1, 0\)"),
    ],
)
def test_what_is_no_mdp(P: Array, gamma: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FiniteMDP(P, gamma, np.arange(len(P)))


def test_observations_are_numbered_unless_given() -> None:
    P = np.full((2, 1, 2), 0.5)
    assert FiniteMDP(P, 0.9).observations.tolist() == [0, 1]
    assert FiniteMDP(P, 0.9, np.array([4, 7])).observations.tolist() == [4, 7]
    with pytest.raises(UserError, match="3 observations for 2 states"):
        FiniteMDP(P, 0.9, np.arange(3))


def test_a_reward_that_does_not_fit() -> None:
    with pytest.raises(UserError, match=r"shape \(5,\).*\(\.\.\., 7\).*\(\.\.\., 7, 3\)"):
        garnet(7, 3, 3, seed=0).optimal_value(np.zeros(5))


def test_a_garnet_leads_to_as_many_states_as_it_has_branches() -> None:
    mdp = garnet(30, 4, 5, seed=0)
    assert mdp.P.shape == (30, 4, 30)
    assert mdp.gamma == 0.9
    assert ((mdp.P > 0).sum(-1) == 5).all()
    assert mdp.P.sum(-1) == pytest.approx(np.ones((30, 4)))
    assert (garnet(30, 4, 5, seed=0).P == mdp.P).all()
    assert (garnet(30, 4, 5, seed=1).P != mdp.P).any()
    visits = (mdp.P > 0).sum((0, 1))  # 600 branches over 30 states
    assert visits.min() >= 5
    assert mdp.P[mdp.P > 0].var() == pytest.approx(4 / 150, rel=0.2)  # Dirichlet(1, ..., 1): (1/5) (4/5) / 6


def test_a_garnet_ends_with_probabilities_up_to_ending() -> None:
    over = 1 - garnet(40, 5, 3, seed=2, ending=0.3).P.sum(-1)
    assert over.max() <= 0.3 + 1e-12
    assert over.max() > 0.29  # of 200 uniform ones
    assert over.mean() == pytest.approx(0.15, abs=0.02)
    assert garnet(40, 5, 3, seed=2, gamma=0.5).gamma == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2, 1), "0 states"),
        ((3, 0, 1), "0 actions"),
        ((3, 2, 0), "0 branches"),
        ((3, 2, 4), "no more branches than states"),
    ],
)
def test_what_is_no_garnet(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        garnet(*arguments, seed=0)


@pytest.mark.parametrize("ending", [-0.1, 1.1])
def test_an_ending_must_be_a_probability(ending: float) -> None:
    with pytest.raises(UserError, match=r"ending is .*0 <= ending <= 1"):
        garnet(3, 2, 1, seed=0, ending=ending)


def test_rewards_and_policies_that_are_none_are_refused() -> None:
    mdp = FiniteMDP(np.ones((1, 2, 1)), 0.9)
    for r in (np.array([np.nan]), np.array([np.inf])):
        with pytest.raises(UserError, match="NaN or infinity"):
            mdp.optimal_value(r)
    for pi in (np.ones((1, 2)), np.array([[1.5, -0.5]])):
        with pytest.raises(UserError, match="sum of one in each state"):
            mdp.policy_value(pi, np.ones(1))


def test_small_differences_of_large_rewards_count() -> None:
    P = np.zeros((2, 2, 2))
    P[:, 0, 0] = P[:, 1, 1] = 1.0
    mdp, r = FiniteMDP(P, 0.99), np.array([1e6, 1e6 + 1e-3])
    assert mdp.optimal_policy(r).argmax(1).tolist() == [1, 1]
    assert mdp.optimal_value(r)[1] == pytest.approx((1e6 + 1e-3) / 0.01, rel=1e-13)


def test_some_states_alone_are_an_mdp_if_none_can_be_left() -> None:
    P = np.zeros((3, 1, 3))
    P[0, 0, 1] = P[1, 0, 0] = P[2, 0, 1] = 1.0
    mdp = FiniteMDP(P, 0.9, np.array([5, 7, 9]))
    part = mdp.restricted(np.array([0, 1]))
    assert part.observations.tolist() == [5, 7]
    assert part.P[:, 0].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(UserError, match="1 states that are left out, such as 5"):
        mdp.restricted(np.array([1, 2]))
