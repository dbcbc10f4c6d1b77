from __future__ import annotations

import hashlib
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward import FiniteMDP, UserError, finite_mdp
from anyreward.theory import garnet, sparse
from anyreward.theory.finite_mdp import SPARSE_ABOVE
from anyreward.worlds.maze import FOUR_ROOMS, parse_maze, random_maze

Array = np.ndarray[Any, Any]
few = settings(max_examples=25, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10**6)
GAMMAS = st.sampled_from([0.1, 0.9, 0.99])
ENDINGS = st.sampled_from([0.0, 0.4, 1.0])


def as_sparse(mdp: FiniteMDP) -> FiniteMDP:
    return FiniteMDP(scipy.sparse.csr_array(mdp.P.reshape(-1, mdp.states)), mdp.gamma, mdp.observations)


def empty_maze(size: int) -> str:
    """A walled drawing with size x size free cells."""
    wall = "#" * (size + 2)
    return "\n".join([wall, *["#" + " " * size + "#"] * size, wall])


def rewards(mdp: FiniteMDP, kind: str, rng: np.random.Generator) -> Array:
    """(S, A) one reward of a kind."""
    r = rng.normal(size=(mdp.states, mdp.actions))
    if kind == "many scales":
        return r * 10.0 ** rng.uniform(-9, 3, size=r.shape)
    if kind == "negative":
        return -np.abs(r)
    if kind == "few, with ties":
        return np.where(rng.random(r.shape) < 0.2, r.round(), 0.0)
    return r


KINDS = ["any", "many scales", "negative", "few, with ties"]


@few
@given(seed=SEEDS, gamma=GAMMAS, ending=ENDINGS, kind=st.sampled_from(KINDS))
def test_everything_sparse_is_as_the_dense(seed: int, gamma: float, ending: float, kind: str) -> None:
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 12)), int(rng.integers(2, 5))
    dense = garnet(S, A, int(rng.integers(1, S + 1)), seed, gamma, ending)
    mdp, r = as_sparse(dense), rewards(dense, kind, rng)
    pi, start = rng.dirichlet(np.ones(A), S), rng.dirichlet(np.ones(S))
    near = 1e-9 * (np.abs(r).max() or 1.0) / (1 - gamma)
    assert (mdp.states, mdp.actions, mdp.is_sparse, dense.is_sparse) == (S, A, True, False)
    assert mdp.live.tolist() == dense.live.tolist()
    for policy in (pi, np.eye(A)[pi.argmax(-1)]):
        P_pi = sparse.transition_matrix(mdp.P, policy)
        assert P_pi.toarray() == pytest.approx(np.einsum("sa,sat->st", policy, dense.P), abs=1e-14)
        assert P_pi.nnz == np.count_nonzero(P_pi.toarray())  # each entry once, and no zeros
    assert mdp.policy_value(pi, r) == pytest.approx(dense.policy_value(pi, r), abs=1e-3 * near)
    assert mdp.q_value(start, r) == pytest.approx(dense.q_value(start, r), abs=1e-3 * near)
    assert mdp.optimal_value(r) == pytest.approx(dense.optimal_value(r), abs=near)
    assert mdp.successor_measure(pi) == pytest.approx(dense.successor_measure(pi), abs=1e-10)


@few
@given(seed=SEEDS, gamma=GAMMAS, ending=ENDINGS, kind=st.sampled_from(KINDS))
def test_the_optimal_policy_is_one_hot_and_its_value_solves_the_bellman_equation(
    seed: int, gamma: float, ending: float, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    dense = garnet(15, 3, int(rng.integers(1, 5)), seed, gamma, ending)
    mdp, r = as_sparse(dense), rewards(dense, kind, rng)
    V, pi = mdp.optimal_value(r), mdp.optimal_policy(r)
    assert set(pi.reshape(-1)) == {0.0, 1.0}
    assert (pi.sum(-1) == 1).all()
    rounding = 1e-13 * np.abs(r).max() / (1 - gamma)
    assert dense.policy_value(pi, r) == pytest.approx(V, abs=rounding)
    assert dense.q_value(V, r).max(-1) == pytest.approx(V, abs=10 * rounding)


def test_batches_of_sparse_policies_and_rewards() -> None:
    mdp, rng = as_sparse(garnet(7, 3, 3, seed=8)), np.random.default_rng(9)
    pi = rng.dirichlet(np.ones(3), (2, 4, 7))
    for r in (rng.normal(size=(2, 4, 7)), rng.normal(size=(2, 4, 7, 3))):
        V, best = mdp.optimal_value(r), mdp.optimal_policy(r)
        Q = mdp.q_value(V, r)
        each, one_policy, one_reward = (mdp.policy_value(*x) for x in ((pi, r), (pi[0, 0], r), (pi, r[0, 0])))
        for i in np.ndindex(2, 4):
            assert V[i] == pytest.approx(mdp.optimal_value(r[i]), abs=1e-12)
            assert (best[i] == mdp.optimal_policy(r[i])).all()
            assert Q[i] == pytest.approx(mdp.q_value(V[i], r[i]), abs=1e-12)
            assert each[i] == pytest.approx(mdp.policy_value(pi[i], r[i]), abs=1e-12)
            assert one_policy[i] == pytest.approx(mdp.policy_value(pi[0, 0], r[i]), abs=1e-12)
            assert one_reward[i] == pytest.approx(mdp.policy_value(pi[i], r[0, 0]), abs=1e-12)
    assert mdp.optimal_value(np.empty((0, 7))).shape == (0, 7)
    assert mdp.optimal_policy(np.empty((0, 7))).shape == (0, 7, 3)
    assert mdp.policy_value(pi[0], np.empty((0, 1, 7))).shape == (0, 4, 7)


def test_one_policy_is_factorised_once_for_all_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, seen = as_sparse(garnet(6, 2, 2, seed=0)), count_factorisations(monkeypatch)
    mdp.policy_value(np.full((1, 6, 2), 0.5), np.eye(6))
    assert len(seen) == 1


def test_a_tiny_gain_is_taken_where_nothing_large_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "MOST_SWEEPS", 16)  # so that the last policies hang on what counts as a gain
    mdp = sparse_mdp("." * 200 + "#.", 0.9)  # a corridor, and a cell behind a wall
    V = mdp.optimal_value(np.eye(201)[199] * 1e-9 + np.eye(201)[200] * 1e9)
    assert pytest.approx([*1e-8 * 0.9 ** np.arange(199.0, -1, -1), 1e10], rel=1e-12, abs=0) == V


@pytest.mark.parametrize("kind", KINDS)
def test_where_there_is_nothing_to_choose_rounding_brings_no_second_evaluation(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(5):
        dense = garnet(100, 1, 4, seed, gamma=0.99)
        made = count_factorisations(monkeypatch)
        as_sparse(dense).optimal_value(rewards(dense, kind, np.random.default_rng(seed)))
        assert len(made) == 1


def test_sweeps_end_soon_after_the_policy_no_longer_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp, made = sparse_mdp(empty_maze(25), 0.99), []
    product = scipy.sparse.csr_array.__matmul__

    def counted(P: Any, V: Array) -> Any:
        made.append(P.shape)
        return product(P, V)

    monkeypatch.setattr(scipy.sparse.csr_array, "__matmul__", counted)
    V = mdp.optimal_value(np.eye(625)[0])
    assert V.min() == pytest.approx(100 * 0.99**48)
    assert 48 <= len(made) <= 48 + 3 * sparse.SWEEPS_BETWEEN_LOOKS


def test_a_gain_above_rounding_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "MOST_SWEEPS", 0)  # policy iteration alone
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 2] = P[1, :, 1] = P[2, :, 2] = 1.0
    r = np.array([0.0, 1.0, 1.0 + 1e-10])
    assert as_sparse(FiniteMDP(P, 0.9)).optimal_policy(r)[0].tolist() == [0, 1]
    assert as_sparse(FiniteMDP(P, 0.9)).optimal_value(r)[0] == pytest.approx(9 + 9e-10, abs=1e-12)


def test_rewards_that_cancel_settle() -> None:
    rng = np.random.default_rng(0)
    P = np.repeat(rng.dirichlet(np.ones(30), (30, 1)), 4, axis=1)  # all actions alike, up to the rewards' rounding
    r = 1e6 * rng.normal(size=(30, 1)) + np.zeros(4)
    mdp = as_sparse(FiniteMDP(P, 0.9999))
    assert mdp.optimal_value(r) == pytest.approx(mdp.policy_value(np.full((30, 4), 0.25), r), rel=1e-9)


def test_equal_actions_do_not_take_turns_even_with_no_allowance_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "ROUNDING", 0.0)
    for seed in range(20):
        dense = garnet(8, 3, 3, seed, gamma=0.99)
        r = np.random.default_rng(seed).normal(size=8)
        assert as_sparse(dense).optimal_value(r) == pytest.approx(dense.optimal_value(r), abs=1e-9)


def test_a_policy_still_changing_after_many_sweeps_is_evaluated_and_improved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "MOST_SWEEPS", 16)  # the goal is 99 steps away: news of it needs several rounds
    seen = count_factorisations(monkeypatch)
    V = sparse_mdp("." * 200, 0.9).optimal_value(np.eye(200)[100])
    assert pytest.approx(10 * 0.9 ** np.abs(np.arange(200.0) - 100), rel=1e-12, abs=0) == V
    assert len(seen) > 3


@pytest.mark.parametrize(
    ("P", "message"),
    [
        (np.full((4, 3), 0.1), r"shape \(4, 3\); expected \(states \* actions, states\)"),
        (np.empty((4, 0)), r"shape \(4, 0\)"),
        (np.array([[0.5, 0.6], [0.0, 1.0]]), "sum above one"),
        (np.array([[-0.5, 0.6], [0.0, 1.0]]), "negative"),
        (np.array([[np.nan, 0.6], [0.0, 1.0]]), "probabilities"),
    ],
)
def test_what_is_no_sparse_mdp(P: Array, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FiniteMDP(scipy.sparse.csr_array(P), 0.9)


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_every_kind_of_sparse_matrix_is_accepted(form: Callable[[Array], Any]) -> None:
    P = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # action 0 stays, action 1 changes over
    mdp = FiniteMDP(form(P), 0.5)
    assert mdp.observations.tolist() == [0, 1]
    assert mdp.optimal_value(np.array([0.0, 1.0])) == pytest.approx([1, 2])
    assert mdp.optimal_policy(np.array([0.0, 1.0])).tolist() == [[0, 1], [1, 0]]


def test_entries_given_twice_add_up_and_what_was_given_stays() -> None:
    twice = scipy.sparse.csr_array((np.full(4, 0.25), [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2))
    mdp = FiniteMDP(twice, 0.5)
    r = np.array([0.0, 1.0])
    assert mdp.policy_value(np.ones((2, 1)), r) == pytest.approx([4 / 15, 16 / 15])  # 1/4 + 1/64 + ..., four times it
    assert mdp.optimal_value(r) == pytest.approx([4 / 15, 16 / 15])
    assert (twice.nnz, twice.indices.tolist()) == (4, [1, 1, 0, 0])


def sparse_mdp(source: str, gamma: float) -> FiniteMDP:
    mdp = finite_mdp(source, gamma)
    assert mdp.is_sparse
    return mdp


def test_small_worlds_stay_dense_and_large_ones_are_sparse() -> None:
    assert not finite_mdp(FOUR_ROOMS, 0.9).is_sparse
    assert not finite_mdp("." * SPARSE_ABOVE, 0.9).is_sparse
    assert finite_mdp("." * (SPARSE_ABOVE + 1), 0.9).is_sparse
    assert not garnet(SPARSE_ABOVE, 2, 2, seed=0).is_sparse
    assert garnet(SPARSE_ABOVE + 1, 2, 2, seed=0).is_sparse


def test_a_sparse_maze_has_the_transitions_of_its_drawing() -> None:
    maze = parse_maze(random_maze(3, size=20))
    mdp = finite_mdp(maze, 0.9)
    assert mdp.is_sparse
    assert (mdp.P.toarray().reshape(mdp.states, 5, mdp.states) == np.eye(mdp.states)[maze.free_successors]).all()
    assert (mdp.observations == maze.free).all()


def distances(drawing: str, goal: int) -> Array:
    """(S,) the number of steps from each free cell to a goal, by walking outwards."""
    to = parse_maze(drawing).free_successors
    far = np.full(len(to), np.inf)
    far[goal] = steps = 0
    while np.isinf(far).any():
        steps += 1
        reached = np.isinf(far) & (far[to] < np.inf).any(1)
        far[reached] = steps
    return far


@pytest.mark.parametrize("drawing", [empty_maze(100), random_maze(0, size=100)])
@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_ten_thousand_cells_are_solved_exactly_and_soon(drawing: str, gamma: float) -> None:
    began = time.process_time()
    mdp = sparse_mdp(drawing, gamma)
    r = np.eye(1, mdp.states, mdp.states // 3)[0]
    V = mdp.optimal_value(r)
    assert time.process_time() - began < 5  # well below a second
    assert np.abs(mdp.q_value(V, r).max(-1) - V).max() < 1e-9
    assert pytest.approx(gamma ** distances(drawing, mdp.states // 3) / (1 - gamma), rel=1e-10, abs=0) == V


def test_many_kinds_of_rewards_on_ten_thousand_cells_solve_the_bellman_equation() -> None:
    mdp, rng = sparse_mdp(empty_maze(100), 0.99), np.random.default_rng(0)
    for kind in KINDS:
        r = rewards(mdp, kind, rng)
        V = mdp.optimal_value(r)
        assert np.abs(mdp.q_value(V, r).max(-1) - V).max() < 1e-11 * np.abs(V).max()


def count_factorisations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The list to which every sparse LU is added from now on."""
    made: list[Any] = []
    factorise = sparse._factorised

    def counted(P: Any, gamma: float, pi: Array) -> Any:
        made.append(factorise(P, gamma, pi))
        return made[-1]

    monkeypatch.setattr(sparse, "_factorised", counted)
    return made


@pytest.mark.parametrize("size", [25, 50, 100])
def test_larger_mazes_need_no_more_evaluations_and_no_fuller_factors(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdp, made = sparse_mdp(empty_maze(size), 0.99), count_factorisations(monkeypatch)
    mdp.optimal_value(np.eye(1, mdp.states)[0])
    assert 1 <= len(made) <= 3
    assert max(lu.L.nnz + lu.U.nnz for lu in made) < 10 * mdp.states
    mdp.policy_value(np.full((mdp.states, 5), 0.2), np.ones(mdp.states))
    assert made[-1].L.nnz + made[-1].U.nnz < 100 * mdp.states


def test_nothing_of_the_size_of_a_dense_matrix_is_built_for_ten_thousand_cells() -> None:
    sparse_mdp("." * 200, 0.9).optimal_value(np.ones(200))  # what is imported at first does not count
    drawing = empty_maze(100)
    tracemalloc.start()
    mdp = sparse_mdp(drawing, 0.99)
    pi, r = np.full((mdp.states, 5), 0.2), np.eye(1, mdp.states)[0]
    mdp.optimal_policy(r)
    mdp.policy_value(pi, r)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6  # dense: 800 MB for S x S
    with pytest.raises(UserError, match=r"10,000 states and 5 actions"):
        mdp.successor_measure(pi)


def test_random_mazes_of_known_seeds_stay_what_they_were() -> None:
    drawings = [random_maze(seed, size, w) for seed in range(20) for size in (5, 11) for w in (0.3, 0.5, 0.7)]
    digest = hashlib.sha256("\n".join(drawings).encode()).hexdigest()
    assert digest == "34eb188767cf4fabd52e23acd94a01ab7641f3b8dc0ad236c2bcef954e72cba9"


def test_a_large_random_maze_is_one_piece_of_most_of_its_cells() -> None:
    began = time.process_time()
    drawing = random_maze(0, size=100)
    assert time.process_time() - began < 5  # some hundredths of a second
    assert drawing.count(" ") > 0.6 * 98**2
    assert np.isfinite(distances(drawing, 0)).all()
