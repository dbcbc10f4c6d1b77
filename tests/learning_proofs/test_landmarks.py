"""Landmarks: the tables of F against exact successor measures, and their answers against exact optima."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward as ar
from anyreward.acting.exact import reward_table
from anyreward.experiments.all_rewards import suite
from anyreward.learning import tables
from anyreward.learning.replay import Transitions
from anyreward.learning.tables import learn_tables
from anyreward.learning.transition_model import TransitionModel, behaviours, neighbour_model
from anyreward.model import landmarks
from anyreward.model.encoding import Encoder
from anyreward.model.features import FeatureMap
from anyreward.model.landmarks import KnownRows, LandmarkForward, TableBackward
from anyreward.theory.finite_mdp import FiniteMDP
from anyreward.worlds.actions import ActionSet

GAMMA = 0.9


def every_transition(mdp: FiniteMDP, times: int = 12) -> Transitions:
    """Data in which each outcome of each pair comes as often as it is likely (in twelfths); what is missing ends."""
    rows: list[tuple[int, int, int, bool]] = []
    for s in range(mdp.states):
        for a in range(mdp.actions):
            counts = np.round(times * mdp.P[s, a]).astype(int)
            rows += [(s, a, int(t), False) for t in np.repeat(np.arange(mdp.states), counts)]
            rows += [(s, a, s, True)] * (times - int(counts.sum()))
    s, a, t, over = (np.array(column) for column in zip(*rows, strict=True))
    states = torch.from_numpy(s).float()[:, None]
    return Transitions(
        states, torch.from_numpy(a), torch.from_numpy(t).float()[:, None], torch.from_numpy(over), states.clone()
    )


def random_mdp(seed: int, states: int = 7, actions: int = 3, ends: bool = False) -> FiniteMDP:
    """Two outcomes a pair, in twelfths; some pairs may end."""
    rng = np.random.default_rng(seed)
    P = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            share = rng.integers(1, 12) / 12
            one, two = rng.choice(states, 2, replace=False)
            P[s, a, one], P[s, a, two] = share, 1 - share
            if ends and rng.random() < 0.2:
                P[s, a, two] = 0.0
    return FiniteMDP(P, GAMMA)


def learned(data: Transitions, states: int, actions: int, **changes: Any) -> tuple[LandmarkForward, TableBackward]:
    encoder = Encoder(gym.spaces.Discrete(states))
    F, B = LandmarkForward(encoder, actions), TableBackward(encoder)
    how = {"gamma": GAMMA, "dim": 0, "landmarks": 100} | changes
    n = len(data.actions)
    sample = torch.arange(n), torch.full((n,), 1 / n, dtype=torch.float64)
    learn_tables(
        F, B, data, sample, phi=FeatureMap("observation", gym.spaces.Discrete(states), ActionSet(actions)), **how
    )
    return F, B


def solved(F: LandmarkForward, pi: torch.Tensor, paid: torch.Tensor) -> torch.Tensor:
    """The successor features of a policy, in float64."""
    following, share = TransitionModel(F.P.following, F.P.share.double(), F.P.seen).under(pi)
    return landmarks.successor_features(following, share, paid)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("visits", [False, True])
def test_heads_are_exact_successor_measures(ends: bool, visits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if visits:  # as in worlds with many states; every entry is kept here
        monkeypatch.setattr(tables, "FEW_NUMBERS", 0)
        monkeypatch.setattr(tables, "DROPPED", 0.0)
    for seed in range(3):
        mdp = random_mdp(seed, ends=ends)
        F, B = learned(every_transition(mdp), mdp.states, mdp.actions)
        assert len(F.landmarks) == mdp.states
        assert bool(len(F.V)) != visits
        rho = np.full(mdp.states, 1 / mdp.states)
        for k, goal in enumerate(F.landmarks.tolist()):
            r = np.eye(mdp.states)[goal]
            Q = mdp.q_value(mdp.optimal_value(r), mdp.on_states(r))
            ahead = Q - mdp.on_states(r)  # actions that are nearly as good count as equally good
            best = ahead >= (1 - tables.TIE * (1 - GAMMA)) * ahead.max(1, keepdims=True)
            M = mdp.successor_measure(best / best.sum(1, keepdims=True)).sum(3)  # (S, A, S)
            V = np.einsum("sa,sat->st", best / best.sum(1, keepdims=True), M)
            density = torch.stack([F.values(b[None])[0, k] for b in B.table], 1).numpy()  # (M, S) V_k(s) . B(s')
            np.testing.assert_allclose(density * rho, V, rtol=2e-3 if visits else 1e-4, atol=2e-3 if visits else 1e-5)


def test_heads_are_exact_in_float64() -> None:
    mdp = random_mdp(5)
    data = every_transition(mdp)
    F, _ = learned(data, mdp.states, mdp.actions)
    pi = torch.full((mdp.states, mdp.actions), 1 / mdp.actions, dtype=torch.float64)
    V = solved(F, pi, torch.eye(mdp.states, dtype=torch.float64))
    P = np.einsum("sa,sat->st", pi.numpy(), mdp.P)
    np.testing.assert_allclose(V, np.linalg.inv(np.eye(mdp.states) - GAMMA * P), atol=1e-6)


def test_states_in_their_turn_give_the_same_as_a_linear_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        mdp = random_mdp(seed, states=9, ends=True)
        F, _ = learned(every_transition(mdp), mdp.states, mdp.actions)
        pi = torch.softmax(torch.randn(9, 3, generator=torch.Generator().manual_seed(seed)), 1).double()
        paid = torch.eye(9, dtype=torch.float64)
        dense = solved(F, pi, paid)
        monkeypatch.setattr(landmarks, "DENSE", 0)
        np.testing.assert_allclose(solved(F, pi, paid), dense, atol=1e-3)
        monkeypatch.undo()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_improvement_is_never_worse_than_the_best_landmark(seed: int) -> None:
    mdp = random_mdp(seed)
    F, _ = learned(every_transition(mdp), mdp.states, mdp.actions)
    r = np.random.default_rng(seed).standard_normal(mdp.states)
    z = torch.from_numpy(r / np.sqrt(mdp.states)).float()  # E_rho[r B]
    best = F.values(z[None])[0].amax(0).double().numpy()
    Q = F.table(z).double()
    value = mdp.policy_value(np.eye(mdp.actions)[Q.argmax(1).numpy()], mdp.on_states(r))
    assert (value >= best - 1e-3 * np.abs(best).max()).all()
    # F(s, a, z) . z is that Q
    rows = torch.arange(mdp.states).float()[:, None]
    np.testing.assert_allclose(F(rows, z.expand(mdp.states, -1)) @ z, F.q(rows, z), rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_answers_of_few_landmarks_are_optimal(seed: int, visits: bool) -> None:
    mdp = random_mdp(seed, states=9)
    with pytest.MonkeyPatch.context() as patched:
        if visits:
            patched.setattr(tables, "FEW_NUMBERS", 0)
            patched.setattr(tables, "DROPPED", 0.0)
        F, _ = learned(every_transition(mdp), mdp.states, mdp.actions, landmarks=2)
    assert len(F.landmarks) == 2
    assert len(F.values(torch.zeros(1, mdp.states))[0]) == 3  # staying, too
    r = np.random.default_rng(seed).standard_normal(mdp.states)
    z = torch.from_numpy(r / np.sqrt(mdp.states)).float()
    promised, heading = (x[0].double().numpy() for x in F.best(z[None]))
    slack = (3e-3 if visits else 1e-3) * np.abs(promised).max()
    optimal = mdp.optimal_value(r)
    value = mdp.policy_value(np.eye(mdp.actions)[F.table(z).argmax(1).numpy()], mdp.on_states(r))
    assert (heading.max(0) <= promised + slack).all()
    np.testing.assert_allclose(promised, optimal, atol=slack)
    np.testing.assert_allclose(value, optimal, atol=slack)
    rows = torch.arange(mdp.states).float()[:, None]
    np.testing.assert_allclose(F(rows, z.expand(mdp.states, -1)) @ z, F.q(rows, z), rtol=1e-3, atol=slack)


def test_the_way_to_a_landmark_is_discounted_exactly() -> None:
    mdp = random_mdp(4, states=9)
    data = every_transition(mdp)
    F, _ = learned(data, mdp.states, mdp.actions, landmarks=2)
    model = TransitionModel(F.P.following, F.P.share.double() / GAMMA, F.P.seen)
    for k, goal in enumerate(F.landmarks.tolist()):
        pi = tables.goal_policies(model, torch.eye(9)[:, None, [goal]], GAMMA)[0]
        P = np.einsum("sa,sat->st", pi.numpy(), mdp.P)
        reach = np.eye(9)[goal]
        for _ in range(500):  # E[gamma^T] = 1 at the landmark, gamma E[gamma^T of the next state] elsewhere
            reach = np.where(np.arange(9) == goal, 1.0, GAMMA * P @ reach)
        np.testing.assert_allclose(F.reach[k], reach, atol=1e-5)
    assert not F.reach[2].any()  # staying leads to no landmark


def test_few_landmarks_do_in_a_corridor() -> None:
    corridor = np.zeros((60, 3, 60))
    for s in range(60):
        corridor[s, 0, max(s - 1, 0)] = corridor[s, 1, min(s + 1, 59)] = corridor[s, 2, s] = 1.0
    mdp = FiniteMDP(corridor, 0.99)
    F, _ = learned(every_transition(mdp), 60, 3, landmarks=4, gamma=0.99)
    r = np.zeros((3, 60))
    r[0, 31], r[1, 17], r[1, 44], r[2, 25], r[2, 26] = 1.0, 0.5, 1.0, 1.0, -1.0
    Q = F.tables(torch.from_numpy(r / np.sqrt(60)).float())
    value = mdp.policy_value(np.eye(3)[Q.argmax(2).numpy()], mdp.on_states(r))
    np.testing.assert_allclose(value, mdp.optimal_value(r), rtol=1e-4, atol=1e-6)


def test_what_is_on_the_two_sides_of_a_wall_is_told_apart() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((20_000, 1))
    action = rng.integers(2, size=20_000)
    moved = x + np.array([-0.1, 0.1])[action][:, None]
    blocked = (x < 0.5) != (moved < 0.5)
    moved = np.clip(np.where(blocked, x, moved), 0, 1)
    columns = [torch.from_numpy(c).float() for c in (x, moved)]
    nothing = torch.zeros(20_000, dtype=torch.bool)
    data = Transitions(columns[0], torch.from_numpy(action), columns[1], nothing, columns[0].clone())
    known = KnownRows(Encoder(gym.spaces.Box(0.0, 1.0, (1,), np.float32)))
    model, _ = neighbour_model(known, data, 2)
    beside = torch.tensor([[0.497], [0.503]])
    index, share = known.locate(beside)
    side = known.rows[index][..., 0] > 0.5
    assert not side[0][share[0] > 0].any()
    assert side[1][share[1] > 0].all()
    # and no action leads through the wall, but from a point that lies on it, or as far away as a move is long
    inside = (known.rows - torch.tensor([0.4, 0.5, 0.6])).abs().amin(1) > 0.005
    start = known.rows[:, 0] > 0.5
    end = known.rows[model.following][..., 0] > 0.5  # (M, A, n)
    leak = (model.share * (end != start[:, None, None])).sum(2).amax(1)
    assert leak[inside].max() < 1e-6


def test_random_outcomes_tell_nothing_of_walls() -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((2_000, 2)))
    change, taken = torch.from_numpy(rng.normal(size=(2_000, 2))), torch.from_numpy(rng.integers(2, size=2_000))
    assert not behaviours(x, change, taken, 2).any()
    steady = torch.tensor([[0.0, 0.1], [0.2, 0.0]], dtype=torch.float64)[taken]
    found = behaviours(x, steady, taken, 2)
    size = steady.square().sum(1).mean().sqrt()
    np.testing.assert_allclose(found[:, 1] * size, torch.tensor([0.2, 0.0]).expand(2_000, 2), atol=1e-6)


def test_an_action_never_seen_is_never_taken() -> None:
    mdp = random_mdp(1)
    data = every_transition(mdp)
    data = data.at(torch.nonzero((data.actions != 2) | (data.observations[:, 0] != 3)).squeeze(1))
    F, _ = learned(data, mdp.states, mdp.actions)
    assert F.P.seen.sum() == mdp.states * mdp.actions - 1
    for seed in range(20):
        z = torch.randn(mdp.states, generator=torch.Generator().manual_seed(seed))
        assert F.table(z)[3].argmax() != 2


def test_what_was_never_seen_has_no_b_and_no_preferences() -> None:
    mdp = random_mdp(2)
    data = every_transition(mdp)
    F, B = learned(data, mdp.states + 3, mdp.actions)
    beyond = torch.tensor([[8.0]])
    assert not B(beyond).any()
    assert not F.q(beyond, torch.ones(B.table.shape[1])).any()


def test_landmarks_are_far_from_each_other() -> None:
    corridor = np.zeros((30, 2, 30))
    for s in range(30):
        corridor[s, 0, max(s - 1, 0)] = corridor[s, 1, min(s + 1, 29)] = 1.0
    F, _ = learned(every_transition(FiniteMDP(corridor, GAMMA)), 30, 2, landmarks=4)
    gaps = np.diff(F.landmarks.numpy())
    assert F.landmarks[0] == 0
    assert F.landmarks[-1] == 29
    assert gaps.min() >= 7
    steps = tables.steps_from(TransitionModel(F.P.following, F.P.share, F.P.seen), torch.tensor([5]))
    assert steps[[0, 5, 29]].tolist() == [5, 0, 24]


def test_equally_good_ways_are_equally_likely() -> None:
    square = ar.finite_mdp("#####\n#   #\n#   #\n#   #\n#####", GAMMA)
    F, _ = learned(every_transition(square), square.states, square.actions)
    model = TransitionModel(F.P.following, F.P.share.double() / GAMMA, F.P.seen)
    pi = tables.goal_policies(model, torch.eye(9)[:, None, [8]], GAMMA)[0]  # to the last corner
    assert pi[0].tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]  # right or down
    assert pi[8, 4] == pytest.approx(1 / 3)  # staying, or bumping into one of two walls


def test_few_dimensions_are_the_smoothest_functions() -> None:
    mdp = ar.finite_mdp("#######\n#     #\n#######", GAMMA)
    data = every_transition(mdp)
    F, B = learned(data, mdp.states, mdp.actions, dim=3)
    rho = torch.bincount(data.features[:, 0].long()).double() / len(data.actions)
    gram = B.table.double().T @ (rho[:, None] * B.table.double())
    np.testing.assert_allclose(gram, np.eye(3), atol=1e-5)
    change = B.table.diff(dim=0).square().sum(0)
    assert (change.diff() > 0).all()
    assert F.V.shape == (5, 5, 3)


def test_interpolation_gives_points_back() -> None:
    known = KnownRows(Encoder(gym.spaces.Box(0.0, 1.0, (2,), np.float32)))
    known.know(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]))
    index, share = known.locate(torch.tensor([[0.25, 0.5], [0.0, 0.0]]))
    mixed = torch.einsum("nk,nkp->np", share, known.rows[index])
    np.testing.assert_allclose(mixed, [[0.25, 0.5], [0.0, 0.0]], atol=2e-3)
    assert (share >= 0).all()
    np.testing.assert_allclose(share.sum(1), 1, atol=1e-6)


@pytest.fixture(scope="module")
def rooms() -> ar.Agent:
    return ar.train("four-rooms", updates=2_000, seed=3, progress=False)


def test_every_family_is_near_optimal_in_the_four_rooms(rooms: ar.Agent) -> None:
    for name, scores in suite(rooms, n=40).items():
        summary = scores.summary()
        assert summary["mean"] > 0.99, name
        assert summary["p5"] > 0.97, name


@pytest.mark.parametrize("c", [-10.0, -1.0, 0.5, 10.0])
def test_a_constant_changes_no_answer(rooms: ar.Agent, c: float) -> None:
    one = ar.reward(lambda g: np.ones(len(g)), "1")
    mdp = rooms.exact_mdp()
    goals = [ar.goal(9, 9), ar.goal(2, 8), ar.goal(1, 1) + ar.goal(9, 1)]
    plain, shifted = rooms.score(goals, mdp), rooms.score([goal + c * one for goal in goals], mdp)
    np.testing.assert_allclose(shifted.normalised, plain.normalised, atol=0.01)
    value = rooms.ask(goals[0] + c * one).value(mdp.observations)
    np.testing.assert_allclose(value, rooms.ask(goals[0]).value(mdp.observations) + 100 * c, rtol=1e-4, atol=1e-3)


def test_values_are_those_of_the_policy(rooms: ar.Agent) -> None:
    mdp = rooms.exact_mdp()
    for target in (ar.goal(9, 9), ar.reward("-hypot(x - 3, y - 3)"), ar.goal(9, 9) - 10 * ar.goal(5, 2)):
        policy = rooms.ask(target)
        true = mdp.policy_value(policy.probabilities(mdp.observations), reward_table(target, rooms.knowledge, mdp))
        shown = policy.value(mdp.observations)
        assert (shown <= true + 1e-2 * np.abs(true).max()).all()
        assert np.abs(shown - true).mean() <= 0.02 * np.abs(true).max()


def test_the_landmark_that_leads_is_told(rooms: ar.Agent) -> None:
    place, ahead = rooms.ask(ar.goal(9, 9)).landmark(24)
    assert place.tolist() == [9, 9]
    assert ahead > 1
    places, gaps = rooms.ask(ar.goal(9, 9) + ar.goal(1, 1)).landmark(rooms.exact_mdp().observations)
    assert {tuple(p) for p in places.tolist()} == {(9.0, 9.0), (1.0, 1.0)}
    assert (gaps >= 0).all()
    with pytest.raises(ar.UserError, match="a policy without refine"):
        rooms.ask(ar.goal(9, 9), improve=2).landmark(24)


def test_what_tables_will_cost_is_said_before() -> None:
    small = tables.plan(FeatureMap("observation", gym.spaces.Discrete(121), ActionSet(5)), 0, 128)
    assert small == "Tables of at most 121 states, 121 landmarks and d = 121: up to 7 MB."
    square = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
    plane = FeatureMap("observation", square, ActionSet(5))
    assert "2,500 states, 16 landmarks and d = 1,000: up to 174 MB." in tables.plan(plane, 0, 128)
    large = tables.plan(FeatureMap("observation", gym.spaces.Discrete(20_000), ActionSet(5)), 0, 128)
    assert "d = 4,096: up to 1,192 MB." in large
    assert "use coarser features" in large


def test_a_run_says_its_cost_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    ar.train("pillars", updates=40)
    assert "Tables of at most" in capsys.readouterr().err
    ar.train("pillars", updates=40, landmarks=0, dim=10, hidden=8)
    assert "weights, d = 10: 40 updates of" in capsys.readouterr().err


def test_it_is_saved_and_loaded(rooms: ar.Agent, tmp_path: Path) -> None:
    loaded = ar.load(rooms.save(tmp_path / "agent"))
    assert loaded.fingerprint == rooms.fingerprint
    target = ar.goal(2, 8) - 0.5 * ar.goal(5, 2)
    np.testing.assert_array_equal(loaded.ask(target).q([24, 25]), rooms.ask(target).q([24, 25]))


def test_the_same_seed_is_the_same_agent(tmp_path: Path) -> None:
    one, two, other = (ar.train("pillars", updates=400, seed=s, progress=False) for s in (1, 1, 2))
    assert one.fingerprint == two.fingerprint != other.fingerprint


def test_a_run_goes_on_to_the_same_agent_in_a_dataset(tmp_path: Path) -> None:
    ar.train("four-rooms", updates=400, out=tmp_path / "run", progress=False)
    longer = ar.resume(tmp_path / "run", updates=1_200, progress=False)
    assert longer.updates == 1_200
    assert longer.score(ar.goal(9, 9)).normalised[0] > 0.99


def test_a_slippery_lake_is_answered_nearly_optimally() -> None:
    agent = ar.train("FrozenLake-v1", updates=4_000, progress=False)
    mdp = agent.exact_mdp()
    seen = np.isin(mdp.observations, agent.sample.rows[:, 0].numpy())
    for goal in mdp.live[seen[mdp.live]][[1, 4, 6]]:
        score = agent.score(ar.goal(int(goal)), mdp).normalised[0]
        assert score > 0.9


def test_b_may_see_actions() -> None:
    agent = ar.train("four-rooms", updates=2_000, features_include_action=True, progress=False)
    mdp = agent.exact_mdp()
    assert agent.sample.B.shape[1] == 68 * 5
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((mdp.states, mdp.actions))
    table = {tuple(place): i for i, place in enumerate(agent.model.phi.table[mdp.observations].tolist())}
    target = ar.reward(lambda g: np.array([weights[table[x, y], int(a)] for x, y, a in g]), "noise")
    assert agent.score(target, mdp).normalised[0] > 0.9


def test_points_stand_for_numbers() -> None:
    agent = ar.train("continuous-maze", updates=400, landmarks=40, progress=False)
    F = agent.model.landmarks
    assert F is not None
    assert len(F.P.states) > 200
    assert agent.reach_goals(200).success > 0.7
    assert agent.model.phi.tolerance is not None
    near = agent.ask(ar.goal(0.2, 0.2))
    assert near.q(np.array([[0.2, 0.2], [0.9, 0.9]])).max(1).argmax() == 0
    place, _ = near.landmark(np.array([0.5, 0.5], dtype=np.float32))
    assert np.abs(place - 0.2).max() < 0.25
