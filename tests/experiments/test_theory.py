"""F and B of an agent as tables, and the theorems held against it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyreward as ar
from anyreward import UserError
from anyreward.acting.exact import packed_states, reward_table
from anyreward.cli import main
from anyreward.experiments.theory import (
    KINDS,
    Tightness,
    apart,
    fb_tables,
    rewards_on_goals,
    statements,
    steps_between,
    tightness,
)
from anyreward.rewards.knowledge import Knowledge, with_backward
from anyreward.theory import FB, Bound, bounds, exact, goals_are_states
from dimension import dimension_figures, draw_dimension, draw_singular_values, rank_kept, training_policy
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
    assert len(found) == 9
    for name in ("F, B in L1", "F, B in L2", "F, B weakly", "fixed B"):
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
    middle = "x - 5 - 0.3 * (y - 5)"  # of mean about zero, which is not taken out
    target = ar.reward(f"{middle} + 2 * (action == 1)" if fb.goals > 68 else middle)
    policy, table = agent.ask(target), reward_table(target, agent.knowledge, mdp)
    r = np.zeros(fb.goals)
    r[fb.phi] = table
    assert (fb.on_pairs(r) == table).all()
    assert fb.z_of(r) == pytest.approx(policy.reward_scale * policy.z.double().numpy(), rel=1e-4, abs=1e-6)
    assert fb.q(fb.z_of(r), r) == pytest.approx(policy.q(mdp.observations), rel=1e-3, abs=1e-3)
    assert (fb.policy(fb.z_of(r)).argmax(1) == policy.act(mdp.observations)).mean() > 0.95
    soft = torch.softmax(policy.preferences(packed_states(mdp, agent.model.phi)) / agent.settings.temperature, 1)
    assert training_policy(agent, fb, fb.z_of(r)) == pytest.approx(soft.numpy(), abs=1e-4)


def test_where_training_never_was_there_is_no_density() -> None:
    mdp = garnet(5, 3, seed=4)
    agent = exact_agent(mdp)
    sample = with_backward(agent.model, agent.sample.rows[:4], agent.sample.weights[:4])
    blind = ar.Agent(Knowledge(agent.model, agent.settings, sample))
    with pytest.raises(UserError, match=r"In 1 of the 5 states .* such as 4; .* Train on more transitions"):
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
    assert len(rows) == 9 * len(KINDS)
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
    assert len(json.loads((tmp_path / "t.json").read_text())["rows"]) == 27
    for wrong in (["--rewards", "0"], ["--seed", "-1"]):
        assert main(["theory", str(run_folder), *wrong]) == 2
        assert "must be positive" in capsys.readouterr().err


def test_worlds_whose_episodes_end_have_tables_of_what_was_visited(capsys: pytest.CaptureFixture[str]) -> None:
    agent = ar.train("FrozenLake-v1", warmup_steps=6_000, **TINY)
    fb = fb_tables(agent)
    assert fb.mdp.states == fb.goals == 11  # of 16 states, four holes and the goal end the episode
    assert set(fb.mdp.observations.tolist()) == set(range(16)) - {5, 7, 11, 12, 15}
    rows = list(tightness(agent, n=2, weak=1))
    assert all(row.held.all() for row in rows)


# The report, number by number, for an agent whose F is wrong and whose B has rank 3 of 5


class Wrong(nn.Module):
    """The best F for a given B, and some noise."""

    def __init__(self, fb: FB, seed: int) -> None:
        super().__init__()
        self.fb, shape = fb, (fb.mdp.states, fb.mdp.actions, fb.dimension)
        self.noise = nn.Parameter(torch.from_numpy(np.random.default_rng(seed).normal(0, 0.7, shape)))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        different, which = torch.unique(z, dim=0, return_inverse=True)
        tables = torch.stack([torch.from_numpy(self.fb.forward(row.numpy())) for row in different]) + self.noise
        return tables[which, x[:, 0]]


class Given(nn.Module):
    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.from_numpy(table))

    def forward(self, g: Tensor) -> Tensor:
        return self.table[g[:, 0]]


def wrong_agent(first: int = 0) -> tuple[ar.Agent, FB]:
    right = exact_agent(garnet(5, 3, seed=4))
    mdp, rho = garnet(5, 3, seed=4), right.sample.weights.numpy()
    B = np.random.default_rng(2).standard_normal((5, 3))
    best = exact(mdp, rho, goals_are_states(mdp), B, first)
    model = replace(right.model, F=Wrong(best, 3), B=Given(B))
    s = right.settings.with_(dim=3, first_step=first, temperature=2.0)
    agent = ar.Agent(Knowledge(model, s, with_backward(model, right.sample.rows, right.sample.weights)))
    return agent, fb_tables(agent, mdp)


@pytest.fixture
def known_mdp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ar.Agent, "exact_mdp", lambda self: garnet(5, 3, seed=4))


def test_smooth_rewards_by_hand() -> None:
    _, fb = wrong_agent()
    mdp, rng = fb.mdp, np.random.default_rng([7, *b"smooth"])
    dense = rng.standard_normal((2, 5))
    P = mdp.P.mean(1)  # of the random policy
    for r, found in zip(dense, rewards_on_goals(fb, "smooth", 2, 7), strict=True):
        V = np.linalg.inv(np.eye(5) - 0.8 * P) @ r  # half the horizon: 1 - 2 (1 - 0.9)
        ahead = 0.8 * (mdp.P @ V).mean(1)
        ahead -= ahead.mean()
        assert found == pytest.approx(ahead / np.abs(ahead).max())
    merged = np.array([[0] * 3, [0] * 3, [1] * 3, [2] * 3, [3] * 3])  # two states are one goal: their mean counts
    fb = exact(mdp, np.full(4, 0.25), merged)
    (r,) = np.random.default_rng([7, *b"smooth"]).standard_normal((1, 4))
    ahead = 0.8 * (mdp.P @ (np.linalg.inv(np.eye(5) - 0.8 * P) @ r[merged[:, 0]])).mean(1)
    ahead = np.array([ahead[:2].mean(), *ahead[2:]])
    ahead -= ahead.mean()
    assert rewards_on_goals(fb, "smooth", 1, 7)[0] == pytest.approx(ahead / np.abs(ahead).max())


@pytest.mark.usefixtures("known_mdp")
def test_tightness_by_hand() -> None:
    agent, fb = wrong_agent()
    rows = {(row.statement, row.kind): row for row in tightness(agent, n=3, seed=5, weak=2)}
    best = exact(fb.mdp, fb.rho, fb.phi, fb.B)
    for kind in KINDS:
        rewards = rewards_on_goals(fb, kind, 3, 5)
        noise = np.random.default_rng(5)
        for i, r in enumerate(rewards):
            expected = {
                "F, B in L1": bounds.approximation(fb, r),
                "F, B in L1: Q": bounds.q_approximation(fb, r),
                "F, B in L2": bounds.dual_approximation(fb, r, 2.0)[0],
                "F, B pointwise": Bound(*(np.max(side) for side in bounds.pointwise(fb, r))),
                "approximate r": bounds.approximate_reward(fb, r, r + 0.1 * noise.uniform(-1, 1, 5)),
                "sampled z_R": bounds.sampled_reward(fb, r, 1_000, 0.1, seed=5),
                "fixed B": bounds.fixed_backward(best, r)[0],
                "fixed B, precise": bounds.fixed_backward(best, r)[1],
            }
            for statement, (bound, gap) in expected.items():
                row = rows[statement, kind]
                assert (row.bound[i], row.gap[i]) == pytest.approx((bound, gap), rel=1e-9, abs=1e-9), statement
                top = np.abs(r).max() if statement.endswith("Q") else r.max() - r.min()
                assert row.trivial[i] == pytest.approx(10 * top)
        weak = rows["F, B weakly", kind]
        assert len(weak.gap) == 2
        assert weak.bound[0] == pytest.approx(bounds.lipschitz(fb, rewards[0], steps_between(fb)).bound)
        some = rows["F, B pointwise", kind]
        assert some.summary()["informative"] == (some.bound < some.trivial).mean()
        assert some.summary()["bound"] == pytest.approx(some.bound.mean())
    assert max(row.gap.max() for row in rows.values()) > 0.1


def test_a_bound_that_is_broken_anywhere_is_told() -> None:
    row = Tightness("x", "y", np.ones(2), np.zeros(2), np.ones(2), np.array([True, False]))
    assert row.summary()["holds"] is False


@pytest.mark.usefixtures("known_mdp")
def test_a_pointwise_bound_is_checked_at_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _ = wrong_agent()
    crossed = Bound(np.array([[5.0, 1.0]]), np.array([[1.0, 2.0]]))  # its largest are in order, its second are not
    monkeypatch.setattr(bounds, "pointwise", lambda fb, r: crossed)
    rows = {row.statement: row for row in tightness(agent, n=1, weak=1)}
    assert not rows["F, B pointwise"].held.any()
    assert rows["F, B in L1"].held.all()


def test_policies_can_differ_by_more_where_episodes_end() -> None:
    P = np.ones((1, 2, 1))
    r = np.array([[1.0], [-2.0]])
    assert apart(ar.FiniteMDP(P, 0.9), r) == pytest.approx([0, 0])
    P[0, 1] = 0.0
    assert apart(ar.FiniteMDP(P, 0.9), r) == pytest.approx([10, 20])


@pytest.mark.usefixtures("known_mdp")
@pytest.mark.parametrize("first", [0, 1])
def test_dimension_figures_by_hand(first: int) -> None:
    agent, fb = wrong_agent(first)
    mdp, rho = fb.mdp, fb.rho
    figures = dimension_figures(agent, n=2, seed=5)
    starts = np.repeat(rho, 3) / 3

    def density(pi: np.ndarray) -> np.ndarray:
        M = mdp.successor_measure(pi).reshape(15, 5, 3).sum(2)
        return (M - first * np.repeat(np.eye(5), 3, axis=0)) / rho

    def size(m: np.ndarray) -> float:
        return float(np.sqrt(starts @ m**2 @ rho))

    uniform = np.full((5, 3), 1 / 3)
    weighed = np.sqrt(np.repeat(rho, 3) / 3)[:, None] * (density(uniform) + first * np.repeat(np.eye(5), 3, 0) / rho)
    right = np.linalg.svd(weighed * np.sqrt(rho))[2][:3].T / np.sqrt(rho)[:, None]
    ideal = exact(mdp, rho, fb.phi, right)
    for kind in KINDS:
        rewards, rows, scores = rewards_on_goals(fb, kind, 2, 5), [], []
        for r in rewards:
            z = (rho * r) @ fb.B
            model = (fb.forward(z) @ fb.B.T).reshape(15, 5)
            scale = np.linalg.norm(z) / np.sqrt(3)  # asked at length sqrt(d)
            Q = fb.forward(z) @ z / scale / 2.0
            soft = np.exp(Q) / np.exp(Q).sum(1, keepdims=True)
            greedy = np.eye(3)[(fb.forward(z) @ z).argmax(1)]
            row = []
            for pi in (greedy, soft):
                m = density(pi)
                singular = np.linalg.svd(np.sqrt(starts)[:, None] * m * np.sqrt(rho), compute_uv=False)
                row += [size(m - model) / size(m), np.sqrt((singular[3:] ** 2).sum()) / size(m)]
            rows.append(row)
            both = [greedy, np.eye(3)[(ideal.forward(ideal.z_of(r)) @ ideal.z_of(r)).argmax(1)]]
            R = np.repeat(r[:, None], 3, 1)
            low, top = mdp.policy_value(uniform, R).mean(), mdp.optimal_value(R).mean()
            scores.append([(mdp.policy_value(pi, R).mean() - low) / (top - low) for pi in both])
        expected = [*np.mean(rows, axis=0), *np.mean(scores, axis=0)]
        assert list(figures[kind].values()) == pytest.approx(expected, rel=1e-6, abs=1e-9), kind


@pytest.mark.usefixtures("known_mdp")
def test_rank_kept_by_hand() -> None:
    agent, fb = wrong_agent()
    mdp, rho, found = fb.mdp, fb.rho, rank_kept(agent)
    weights = np.sqrt(np.repeat(rho, 3) / 3)[:, None], np.sqrt(rho)

    def singular(pi: np.ndarray) -> np.ndarray:
        m = mdp.successor_measure(pi).reshape(15, 5, 3).sum(2) / rho
        return np.linalg.svd(weights[0] * m * weights[1], compute_uv=False)

    assert found["random policy"] == pytest.approx(singular(np.full((5, 3), 1 / 3)))
    squares = [singular(mdp.optimal_policy(np.eye(5)[g])) ** 2 for g in range(5)]
    assert found["optimal policies for single goals"] == pytest.approx(np.sqrt(np.mean(squares, axis=0)))
