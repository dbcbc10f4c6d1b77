"""The suite of all rewards: its families, and the sources of error against exact answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

import anyreward as ar
import error_sources as sources
from anyreward.acting.exact import reward_table, score_policies
from anyreward.experiments.all_rewards import (
    FAMILIES,
    family_rewards,
    score_family,
    suite,
    tables_to_z,
)
from error_sources import error_sources, reward_of_z, soft_fixed_point


@pytest.fixture(scope="module")
def mdp(agent: ar.Agent) -> ar.FiniteMDP:
    return agent.exact_mdp()


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_seeded_and_fit_the_world(agent: ar.Agent, mdp: ar.FiniteMDP, name: str) -> None:
    r = family_rewards(agent, mdp, name, 20, seed=3)
    assert r.shape[1:] == (mdp.states, mdp.actions)
    assert len(r) == (mdp.states if name == "single goal" else 20)
    assert np.isfinite(r).all()
    assert (r == family_rewards(agent, mdp, name, 20, seed=3)).all()
    if name != "single goal":
        assert (r != family_rewards(agent, mdp, name, 20, seed=4)).any()
        assert len(np.unique(r.reshape(20, -1), axis=0)) == 20


def test_families_are_what_they_say(agent: ar.Agent, mdp: ar.FiniteMDP) -> None:
    def of(name: str) -> np.ndarray:
        return family_rewards(agent, mdp, name, 50, seed=0)[:, :, 0]

    for row in of("2 to 5 goals"):
        assert set(row) == {0.0, 1.0}
        assert 2 <= row.sum() <= 5
    for row in of("goal, 5 forbidden cells"):
        assert Counter(row[row != 0].tolist()) == {1.0: 1, -0.5: 5}
    place = agent.model.phi.table[mdp.observations]
    remote = np.abs(place[:, None] - place).sum(-1).mean(1)
    for row in of("small near, large far"):
        small, large = np.argsort(row)[-2:]
        assert row[large] == 1.0
        assert 0.2 <= row[small] <= 0.8
        assert (row != 0).sum() == 2
        assert remote[large] >= remote[small]
    for row in of("smooth bump"):
        assert row.max() == 1.0
        top = place[row.argmax()]
        assert (np.diff(row[np.argsort(((place - top) ** 2).sum(1), kind="stable")]) <= 1e-12).all()
    for row in of("linear in position"):
        fit, *_ = np.linalg.lstsq(np.c_[place, np.ones(len(place))], row, rcond=None)
        assert np.c_[place, np.ones(len(place))] @ fit == pytest.approx(row)
    for row in of("sparse signed"):
        assert 3 <= (row != 0).sum() <= 8
        assert row.max() > 0


def test_z_of_a_table_is_that_of_asking(agent: ar.Agent, mdp: ar.FiniteMDP) -> None:
    target = ar.reward(lambda g: g[:, 0] - 0.3 * g[:, 1]) - 0.5 * ar.goal(2, 8)
    z, scale = tables_to_z(agent, mdp, reward_table(target, agent.knowledge, mdp)[None])
    assert torch.allclose(z[0], agent.ask(target).z, atol=1e-5)
    assert float(scale[0]) == pytest.approx(agent.ask(target).reward_scale)


def test_soft_fixed_point(mdp: ar.FiniteMDP) -> None:
    r = np.random.default_rng(0).standard_normal((3, mdp.states, mdp.actions))
    for temperature in (5.0, 50.0):
        pi = soft_fixed_point(mdp, r, temperature)
        Q = mdp.q_value(mdp.policy_value(pi, r), r) / temperature
        assert pi == pytest.approx(np.exp(Q) / np.exp(Q).sum(-1, keepdims=True), abs=1e-5)
    assert soft_fixed_point(mdp, r, 1e9) == pytest.approx(np.full(r.shape, 1 / mdp.actions))
    sharp = score_policies(mdp, soft_fixed_point(mdp, r, 0.05), r)
    assert sharp.normalised == pytest.approx(1.0, abs=1e-2)


def test_the_reward_of_a_z_has_that_z(agent: ar.Agent, mdp: ar.FiniteMDP) -> None:
    z, _ = tables_to_z(agent, mdp, family_rewards(agent, mdp, "dense normal", 5, seed=0))
    seen = reward_of_z(agent, mdp, z)
    assert np.ptp(seen, axis=2) == pytest.approx(0.0, abs=1e-5)  # B sees no action
    again, _ = tables_to_z(agent, mdp, seen)
    assert torch.allclose(again, z, atol=1e-2)


def test_error_sources_come_in_one_after_the_other(
    agent: ar.Agent, mdp: ar.FiniteMDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a B that spans everything and a low temperature only F is left to err."""
    steps = error_sources(agent, mdp, "2 to 5 goals", n=10)
    assert list(steps) == ["span", "temperature", "policy", "F"]
    assert steps["F"] == pytest.approx(score_family(agent, mdp, "2 to 5 goals", n=10).scores.normalised.mean())
    exact = family_rewards(agent, mdp, "2 to 5 goals", 10, 0)
    monkeypatch.setattr(sources, "reward_of_z", lambda *_: exact)
    perfect = error_sources(agent, mdp, "2 to 5 goals", n=10)
    assert perfect["span"] == pytest.approx(1.0)


def test_rewards_that_say_little_are_counted(
    agent: ar.Agent, mdp: ar.FiniteMDP, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly_flat = np.ones((4, mdp.states))
    nearly_flat[:, 0] = 0.0  # to be avoided in one state of 68: random is nearly as good as it gets
    monkeypatch.setitem(FAMILIES, "dense normal", lambda *_: nearly_flat)
    assert score_family(agent, mdp, "dense normal", n=4).summary()["barely"] == 4
    assert score_family(agent, mdp, "single goal").summary()["barely"] == 0


def test_rewards_on_actions_need_a_b_that_sees_them(agent: ar.Agent) -> None:
    assert "states and actions" not in suite(agent, n=5)
    tiny = {"dim": 8, "hidden": 16, "batch_size": 16, "updates": 40, "progress": False}
    sees = ar.train("four-rooms", features_include_action=True, **tiny)
    scores = suite(sees, n=5)["states and actions"]
    assert scores.scores.value.shape == (5,)


def test_worlds_without_a_map_are_refused() -> None:
    lake = ar.train("FrozenLake-v1", dim=4, hidden=8, batch_size=8, updates=40, progress=False)
    with pytest.raises(ar.UserError, match="needs states with positions"):
        suite(lake)


def test_the_suite_refines_as_asking_does(mdp: ar.FiniteMDP) -> None:
    agent = ar.train("four-rooms", dim=20, hidden=32, updates=40, steps_per_cycle=20_000, progress=False)
    scores = score_family(agent, mdp, "single goal", temperature=1.0, refine=3).scores  # greedy ties break either way
    cells = mdp.observations[mdp.live]
    asked = agent.score([ar.goal(*agent.model.phi.table[cell]) for cell in cells], mdp, temperature=1.0, refine=3)
    assert scores.value == pytest.approx(asked.value)
    refined = suite(agent, 20, refine=1_000)
    for name, family in refined.items():  # enough steps of value iteration are the optimum, whatever F says
        assert family.summary()["worst"] == pytest.approx(1.0, abs=1e-6), name
