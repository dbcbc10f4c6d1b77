"""F and B of an agent as tables, and the theorems held against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward import UserError
from anyreward.cli import main
from anyreward.experiments.theory import (
    KINDS,
    dimension_figures,
    fb_tables,
    rank_kept,
    rewards_on_goals,
    statements,
    steps_between,
    tightness,
    training_policy,
)
from anyreward.figures.theory import draw_dimension, draw_singular_values
from anyreward.rewards.inference import with_backward
from tests.conftest import TINY
from tests.exact import exact_agent, garnet

R = np.array([0.3, -1.0, 0.0, 2.0, 0.5])


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A barely trained agent that has been everywhere."""
    folder = tmp_path_factory.mktemp("runs") / "four-rooms"
    ar.train("four-rooms", out=folder, warmup_steps=6_000, **TINY)
    return folder


@pytest.fixture(scope="module")
def agent(run_folder: Path) -> ar.Agent:
    return ar.load(run_folder)


def test_an_exact_agent_has_no_error_and_meets_every_bound() -> None:
    mdp = garnet(5, 3, seed=4)
    fb = fb_tables(exact_agent(mdp), mdp)
    z = fb.z_of(R)
    assert np.abs(fb.error(z)).max() < 1e-9
    assert fb.q(z, R) == pytest.approx(mdp.q_value(mdp.optimal_value(R), R), abs=1e-9)
    found = {name: bound(R) for name, bound in statements(fb).items()}
    assert len(found) == 8
    for name in ("F, B in L1", "F, B weakly", "fixed B"):
        assert found[name] == pytest.approx((0, 0), abs=1e-7)
    assert all((np.asarray(b.bound) >= np.asarray(b.gap) - 1e-8).all() for b in found.values())


@pytest.mark.parametrize(
    "changes",
    [{}, {"bias": True, "first_step": 1}, {"features_include_action": True}, {"preset": "paper"}],
    ids=["fast", "bias from t = 1", "actions", "paper"],
)
def test_tables_say_what_the_agent_says(changes: dict[str, Any]) -> None:
    agent = ar.train("four-rooms", warmup_steps=6_000, **TINY, **changes)
    mdp = agent.exact_mdp()
    fb = fb_tables(agent, mdp)
    target = ar.reward("x - 0.3 * y + 2 * (action == 1)" if fb.goals > 68 else "x - 0.3 * y")
    policy, table = agent.ask(target), agent.reward_table(target, mdp)
    r = np.zeros(fb.goals)
    r[fb.phi] = table
    assert (fb.on_pairs(r) == table).all()
    assert fb.z_of(r) == pytest.approx(policy.reward_scale * policy.z.double().numpy(), rel=1e-4, abs=1e-6)
    assert fb.q(fb.z_of(r), r) == pytest.approx(policy.q(mdp.observations), rel=1e-3, abs=1e-3)
    assert (fb.policy(fb.z_of(r)).argmax(1) == policy.act(mdp.observations)).mean() > 0.95
    soft = torch.softmax(policy.preferences(agent.packed_states(mdp)) / agent.settings.temperature, 1)
    assert training_policy(agent, fb, fb.z_of(r)) == pytest.approx(soft.numpy(), abs=1e-4)


def test_where_training_never_was_there_is_no_density() -> None:
    mdp = garnet(5, 3, seed=4)
    agent = exact_agent(mdp)
    sample = with_backward(agent.representation, agent.sample.rows[:4], agent.sample.weights[:4])
    blind = ar.Agent(agent.representation, agent.features, sample, agent.settings)
    with pytest.raises(UserError, match="1 of the 5 goals were never visited"):
        fb_tables(blind, mdp)


def test_rewards_have_their_kinds(agent: ar.Agent) -> None:
    fb = fb_tables(agent)
    rewards = {kind: rewards_on_goals(fb, kind, 6, 0) for kind in KINDS}
    for r in rewards.values():
        assert r.shape == (6, 68)
        assert np.abs(r).max(1) == pytest.approx(np.ones(6))
    assert (rewards["single goal"].sum(1) == 1).all()
    near = steps_between(fb) == 1
    roughness = {kind: np.abs(r[:, :, None] - r[:, None])[:, near].mean() / r.std() for kind, r in rewards.items()}
    assert roughness["smooth"] < 0.3 * roughness["dense"]


def test_steps_between_are_counted_the_long_way() -> None:
    P = np.zeros((3, 1, 3))
    P[[0, 1, 2], 0, [1, 2, 0]] = 1.0  # a circle in one direction
    mdp = ar.FiniteMDP(P, 0.9, np.arange(3))
    fb = fb_tables(exact_agent(mdp), mdp)
    assert steps_between(fb).tolist() == [[0, 2, 2], [2, 0, 2], [2, 2, 0]]


def test_every_bound_holds_for_an_agent(agent: ar.Agent) -> None:
    rows = [row.summary() for row in tightness(agent, n=2, weak=1)]
    assert len(rows) == 8 * len(KINDS)
    assert all(row["holds"] for row in rows)
    assert any(row["gap"] > 1 for row in rows)  # barely trained: there is something to bound
    assert all(row["trivial"] == pytest.approx(100) for row in rows if row["rewards"] == "single goal")


def test_dimension_and_rank(agent: ar.Agent, tmp_path: Path) -> None:
    figures = dimension_figures(agent, n=2)
    assert figures["d"] == 12
    for kind in KINDS:
        row = figures[kind]
        assert row["error"] > row["least error of rank d"] > 0.01
        assert row["error, policy of training"] > row["least error of rank d, policy of training"] > 0.01
        assert row["score"] < row["score with exact F, best B"] + 0.2 <= 1.2
    values = rank_kept(agent)
    assert all((np.diff(v) <= 1e-9).all() and len(v) == 68 for v in values.values())
    for path in (
        draw_dimension([figures, {**figures, "d": 25}], tmp_path / "a.png"),
        draw_singular_values(values, tmp_path / "b.png"),
    ):
        assert path.stat().st_size > 10_000


def test_at_the_command_line(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", str(run_folder), "--rewards", "1", "--json", str(tmp_path / "t.json")]) == 0
    said = capsys.readouterr().out
    assert "F, B weakly" in said
    assert "Every bound holds." in said
    assert len(json.loads((tmp_path / "t.json").read_text())["rows"]) == 24
    assert main(["theory", str(run_folder), "--rewards", "0"]) == 2
    assert "must be positive" in capsys.readouterr().err
