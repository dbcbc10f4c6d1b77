"""Agents of other methods: asked, saved, resumed, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward import UserError
from anyreward.acting.exact import packed_states
from anyreward.cli import main
from anyreward.cli.comparing import by_name
from anyreward.experiments.all_rewards import suite
from anyreward.experiments.compare import KINDS, NOT_POSSIBLE, compare, questions
from anyreward.experiments.theory import fb_tables
from anyreward.figures.curves import band, draw_curves
from anyreward.learning.settings import split_changes
from anyreward.model.basis import Basis
from anyreward.storage.metrics import read_metrics
from anyreward.theory.grid import grid_actions, grid_mdp, lattice_noise, played_value
from anyreward.worlds.continuous_maze import plane
from tests.conftest import TINY

SMALL: dict[str, Any] = {**TINY, "warmup_steps": 6_000, "evaluate_every": 80}
METHODS = ("fb", "goal-dqn", "goal-dqn-her", "successor-features")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Barely trained agents of the four rooms, one a method."""
    root = tmp_path_factory.mktemp("runs")
    folders = {method: root / f"{method}-seed0" for method in METHODS}
    for method, folder in folders.items():
        ar.train("four-rooms", method=method, out=folder, **SMALL)
    return folders


@pytest.fixture(scope="module")
def agents(runs: dict[str, Path]) -> dict[str, ar.Agent]:
    return {method: ar.load(folder) for method, folder in runs.items()}


@pytest.mark.parametrize("method", ["goal-dqn", "goal-dqn-her"])
def test_goal_dqn_reaches_goals_and_says_what_is_not_possible(agents: dict[str, ar.Agent], method: str) -> None:
    agent = agents[method]
    policy = agent.ask(ar.goal(2, 8))
    cells = agent.exact_mdp().observations
    assert policy.q(cells).shape == (68, 5)
    packed = packed_states(agent.exact_mdp(), agent.model.phi)
    assert policy.q(cells) == pytest.approx(agent.model.q(packed, policy.z.expand(68, -1)).numpy(), abs=1e-5)
    assert policy.act(cells[0]) in range(5)
    assert not np.allclose(policy.q(cells), agent.ask(ar.goal(9, 9)).q(cells))  # it knows which goal
    assert 0 < agent.score(ar.goal(2, 8)).ratio[0] <= 1
    assert agent.can_answer(ar.goal(2, 8))
    for target in (ar.goal(2, 8) + ar.goal(1, 1), -ar.goal(2, 8), ar.reward("x")):
        assert not agent.can_answer(target)
        with pytest.raises(UserError, match="Not possible: this agent's method, goal-dqn"):
            agent.ask(target)
    with pytest.raises(UserError, match="never visited"):
        agent.ask(ar.goal(5, 1))  # a wall
    with pytest.raises(UserError, match="cannot use observed rewards"):
        policy.observe([[2, 8]], [1.0])
    for wrong, message in (
        (lambda: policy.trust, "no trust"),
        (lambda: agent.ask(ar.goal(2, 8), refine=3), "refine and improve"),
        (lambda: agent.ask(ar.from_z([1.0, 2.0])), "2 numbers; a z of this agent has 121"),
        (lambda: suite(agent, 3, refine=2), "refine corrects"),
        (lambda: agent.sample_rewards("four-rooms"), "single goals"),
        (lambda: fb_tables(agent), "has neither"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()
    assert list(suite(agent, 3)) == ["single goal"]
    scores = suite(agent, 3)["single goal"].scores
    assert scores.ratio == pytest.approx(agent.score(temperature=0.0).ratio, abs=1e-6)


def test_a_goal_policy_is_saved_and_tuned(agents: dict[str, ar.Agent], tmp_path: Path) -> None:
    agent = agents["goal-dqn"]
    policy = agent.ask(ar.goal(2, 8))
    again = agent.load_policy(policy.save(tmp_path / "goal.json"))
    cells = agent.exact_mdp().observations
    assert np.array_equal(again.q(cells), policy.q(cells))
    tuned = agent.finetune(policy, steps=200, updates=20, progress=False)
    assert tuned.q(cells).shape == (68, 5)


def test_successor_features_answer_any_reward(agents: dict[str, ar.Agent]) -> None:
    agent = agents["successor-features"]
    assert isinstance(agent.model.B, Basis)
    covariance = agent.sample.covariance.numpy()
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 0.1  # nearly orthonormal: it was fitted earlier
    assert np.diag(covariance) == pytest.approx(np.ones(12), abs=0.15)
    policy = agent.ask(ar.reward("x - 0.5 * y"))
    assert policy.trust.verdict
    assert agent.can_answer(ar.goal(1, 1) - ar.goal(2, 2))
    assert len(suite(agent, 3)) == 8


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_run_in_two_parts_is_as_one(method: str, tmp_path: Path) -> None:
    """Where nothing new is collected, to the last bit: targets, optimiser, goals and what follows in an episode."""
    still = {**SMALL, "warmup_steps": 600, "steps_per_cycle": 0, "learning_rate_decay": 0.0, "updates": 80}
    whole = ar.train("four-rooms", method=method, **still)
    ar.train("four-rooms", method=method, out=tmp_path, **still | {"updates": 40})
    assert ar.load(tmp_path).settings.method == method
    longer = ar.resume(tmp_path, updates=80, progress=False)
    for name, module in whole.model.modules.items():
        again = longer.model.modules[name].state_dict()
        assert all(torch.equal(value, again[key]) for key, value in module.state_dict().items()), name


def test_whole_episodes_are_no_more_steps(tmp_path: Path) -> None:
    """Episodes of 50 steps of 16 environments come 800 at a time, where 200 a cycle are asked for."""
    tiny = {**TINY, "updates": 400, "environments": 16, "evaluate_every": 400}
    seen = {}
    for method in ("fb", "goal-dqn"):
        folder = tmp_path / method
        ar.train("four-rooms", method=method, out=folder, **tiny)
        seen[method] = read_metrics(folder)[-1]["transitions"]
    assert seen["fb"] <= seen["goal-dqn"] < seen["fb"] + 800


@pytest.mark.parametrize("method", METHODS[1:])
def test_one_seed_gives_one_agent(method: str, runs: dict[str, Path]) -> None:
    again = ar.train("four-rooms", method=method, **SMALL)
    assert again.fingerprint == ar.load(runs[method]).fingerprint


@pytest.mark.parametrize("method", METHODS[1:])
def test_among_numbers(method: str) -> None:
    tiny = {**TINY, "updates": 80, "warmup_steps": 600}
    agent = ar.train("continuous-maze", method=method, **tiny)
    scores = agent.reach_goals(20)
    assert scores.reached.shape == (20,)
    assert agent.ask(ar.goal(0.3, 0.6)).act(np.array([0.1, 0.2], dtype=np.float32)) in range(5)


def test_the_state_as_basis_decides_d() -> None:
    tiny = {**TINY, "updates": 40, "warmup_steps": 300, "method": "successor-features", "basis": "state"}
    agent = ar.train("continuous-maze", **tiny)
    assert agent.settings.dim == 3  # x, y and a constant
    agent = ar.train("CartPole-v1", **tiny)
    assert agent.settings.dim == 7  # four numbers, two for whether the episode has ended, and a constant


def test_successor_features_learn_from_a_dataset(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    s, a = rng.integers(9, size=3_000), rng.integers(2, size=3_000)
    np.savez(tmp_path / "ring.npz", observations=s, actions=a, next_observations=(s + 2 * a - 1) % 9)
    agent = ar.train(tmp_path / "ring.npz", method="successor-features", **{**TINY, "dim": 5})
    assert agent.ask(ar.goal(3)).act(2) in (0, 1)
    with pytest.raises(UserError, match="learns online"):
        ar.train(tmp_path / "ring.npz", method="goal-dqn", **TINY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "dqn"}, "method is 'dqn'; accepted: fb, goal-dqn"),
        ({"method": "goal-dqn", "bias": True}, "method is goal-dqn, which supports neither first_step, bias"),
        (
            {"method": "goal-dqn", "z_norm": "sphere"},
            "method is goal-dqn, which supports neither .* nor z_norm='sphere'",
        ),
        ({"method": "successor-features", "warmup_steps": 0}, "fitted to the warm-up"),
        ({"method": "successor-features", "basis": "pca"}, "accepted: state, rbf, fourier, laplacian"),
        ({"hindsight": 1.5}, "accepted: 0 to 1"),
    ],
)
def test_settings_that_do_not_go_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ar.preset("fast", **changes)


@pytest.mark.parametrize("method", METHODS[1:])
def test_only_fb_is_compiled(method: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"compile is on, but .* methods other than fb"):
        ar.train("four-rooms", method=method, compile=True, out=tmp_path / "run", **TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("world", "rate", "gamma"),
    [
        ("four-rooms", 0.001, 0.99),
        ("continuous-maze", 0.0005, 0.99),
        ("fetch-reach", 0.0005, 0.9),
        ("ms-pacman", 0.0005, 0.9),
    ],
)
def test_the_papers_table_of_goal_dqn(world: str, rate: float, gamma: float) -> None:
    own = ar.open_world(world).settings_for("goal-dqn")
    s = ar.preset("paper", method="goal-dqn", **split_changes(own)[0])
    assert (s.learning_rate, s.gamma, s.exploration) == (rate, gamma, 0.2)
    assert (s.updates_per_cycle, s.batch_size, s.target_retention, s.target_every) == (40, 128, 0.95, 40)


def test_presets_of_methods() -> None:
    table = ar.preset("paper", method="goal-dqn-her")  # the paper's table
    assert (table.exploration, table.hindsight, table.learning_rate, table.target_retention) == (0.2, 0.8, 0.001, 0.95)
    assert (table.batch_size, table.gamma, table.target_every, table.layers, table.hidden) == (128, 0.99, 40, 3, 256)
    assert ar.preset("fast", method="goal-dqn").exploration == ar.preset("fast").exploration
    assert ar.preset("paper", method="goal-dqn", exploration=0.5).exploration == 0.5


def test_goals_need_a_world_that_knows_when_one_is_reached() -> None:
    with pytest.raises(UserError, match="definition of when a goal is reached"):
        ar.train("CartPole-v1", method="goal-dqn", **TINY)


def test_one_table_for_all(agents: dict[str, ar.Agent]) -> None:
    rows = {row.label: row.summary() for row in compare({name: [agent] for name, agent in agents.items()}, n=4)}
    assert list(rows) == [*METHODS, "random policy", "optimal policy"]
    for name in KINDS:
        assert rows["random policy"][name]["mean"] == 0
        assert rows["optimal policy"][name]["mean"] == 1
        for method in ("fb", "successor-features"):
            assert -1 < rows[method][name]["mean"] <= 1
        expected = dict if name == "goals" else str
        assert all(isinstance(rows[method][name], expected) for method in METHODS[1:3])
    assert rows["goal-dqn"]["sums of goals"] == NOT_POSSIBLE
    assert rows["fb"]["seeds"] == [0]


def test_questions_are_scored_as_answers_are(agents: dict[str, ar.Agent]) -> None:
    agent = agents["fb"]
    asked = questions(agent, n=3)
    assert list(asked) == list(KINDS)
    mdp = asked["goals"].mdp
    for some in asked.values():
        targets = [
            sum((float(r[s]) * ar.goal(state=mdp.observations[s]) for s in np.flatnonzero(r)), start=ar.Reward(()))
            for r in some.paid[:, :, 0]
        ]
        expected = agent.score(targets, mdp)
        assert some.random == pytest.approx(expected.random)
        assert some.optimal == pytest.approx(expected.optimal)
        assert some.score(agent) == pytest.approx(expected.normalised)
    dqn = agents["goal-dqn"]
    goals = asked["goals"]
    cells = [ar.goal(state=mdp.observations[r[:, 0].argmax()]) for r in goals.paid]
    assert goals.score(dqn) == pytest.approx(dqn.score(cells, mdp).normalised)


def test_worlds_whose_episodes_end_are_compared_too() -> None:
    tiny = {**TINY, "updates": 40, "warmup_steps": 500}
    groups = {method: [ar.train("FrozenLake-v1", method=method, **tiny)] for method in ("fb", "goal-dqn")}
    rows = [row.summary() for row in compare(groups, n=3)]
    assert all(isinstance(row["goals"], dict) for row in rows)
    assert isinstance(rows[0]["dense rewards"], dict)
    assert rows[1]["dense rewards"] == NOT_POSSIBLE


def test_the_continuous_maze_is_played() -> None:
    agent = ar.train("continuous-maze", **{**TINY, "updates": 40})
    (row, chance, best) = compare({"fb": [agent]}, n=1, goals=10)
    assert row.reached is not None
    assert chance.reached is not None
    assert best.reached is None
    assert set(row.scores) == set(KINDS)
    other = ar.train("continuous-maze", gamma=0.9, **{**TINY, "updates": 40})
    with pytest.raises(UserError, match="one world and one gamma"):
        list(compare({"a": [agent], "b": [other]}))


def test_the_grid_moves_as_the_square_does() -> None:
    mdp = grid_mdp(plane(), 0.99, step=0.025)
    places = mdp.observations.astype(np.float64)
    assert places.shape == (42**2, 2)
    assert np.asarray(mdp.P.sum(1)).ravel() == pytest.approx(np.ones(5 * 42**2))
    middle = int(np.abs(places - 0.5125).sum(1).argmin())
    for a, move in enumerate(0.1 * np.array([(-1, 0), (1, 0), (0, 1), (0, -1), (0, 0)])):
        likely = mdp.P[[5 * middle + a]].toarray()[0]
        moved = places - places[middle]
        assert likely @ moved == pytest.approx(move, abs=1e-6)
        assert likely @ (moved - move) ** 2 == pytest.approx(np.full(2, 0.01**2), rel=1e-3)  # the variance of the noise
    beside = int(np.abs(places - [0.2375, 0.1125]).sum(1).argmin())  # a wall on the right, a tenth of a step away
    assert mdp.P[[5 * beside + 1]].toarray()[0] @ places == pytest.approx(places[beside], abs=1e-6)
    border = int(np.abs(places - [0.9875, 0.5125]).sum(1).argmin())  # a move to the right ends at the border itself
    assert mdp.P[[5 * border + 1]].toarray()[0] @ places[:, 0] == pytest.approx(1.0)
    leaves = int(np.abs(places - [1.0, 0.5125]).sum(1).argmin())
    assert mdp.P[[5 * leaves]].toarray()[0] @ places[:, 0] == pytest.approx(0.9, abs=1e-6)
    with pytest.raises(UserError, match="divides"):
        grid_mdp(plane(), 0.99, step=0.03)


def test_noise_on_a_lattice_has_the_variance_of_the_noise() -> None:
    for deviation in (0.1, 0.4, 0.6, 1.0, 2.5):
        k, likely = lattice_noise(deviation)
        assert likely.sum() == pytest.approx(1)
        assert likely @ k**2 == pytest.approx(deviation**2, rel=0.03)


def test_no_one_walks_through_the_walls_of_the_grid() -> None:
    mdp = grid_mdp(plane(((0.25, 0, 0.25, 1), (0.75, 0, 0.75, 1))), 0.99, step=0.025)
    room = np.digitize(mdp.observations[:, 0], [0.25, 0.75])
    start, end = mdp.P.nonzero()
    assert (room[start // 5] == room[end]).all()
    assert len(np.unique(room)) == 3


def test_policies_are_played_in_the_maze_itself() -> None:
    maze = plane()
    staying = played_value(
        maze,
        lambda x, which: np.full(len(x), 4),
        [lambda x: np.ones(len(x)), lambda x: (x[:, 0] > 0.5) * 1.0],
        0.9,
        starts=400,
        steps=200,
    )
    assert staying[0] == pytest.approx(10)
    assert staying[1] == pytest.approx(5, abs=0.6)
    # the nearest point of the grid decides, each position by its own policy
    actions = np.stack([np.zeros(42**2, dtype=int), np.arange(42**2) // 42])
    found = grid_actions(actions, 0.025, np.array([[0.99, 0.2], [0.999, 0.2], [0.0, 1.0]]), np.array([1, 1, 0]))
    assert found.tolist() == [40, 41, 0]


def test_compare_at_the_command_line(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folders = [str(folder) for folder in runs.values()]
    told = ["--json", str(tmp_path / "c.json"), "--figure", str(tmp_path / "c.png")]
    assert main(["compare", *folders, "--rewards", "3", *told]) == 0
    out = capsys.readouterr().out
    assert "not possible" in out
    assert "optimal policy" in out
    assert len(json.loads((tmp_path / "c.json").read_text())["rows"]) == 6
    assert (tmp_path / "c.png").stat().st_size > 10_000
    for wrong, message in (
        (["compare"], "nothing to compare"),
        (["compare", str(tmp_path / "none")], "no agent folder"),
        (["compare", folders[0], "--rewards", "0"], "must be positive"),
        (["compare", folders[0], "--seed", "-1"], "seed 0 or more"),
        (["ask", folders[1], "--goal", "2,8", "--avoid", "1,1"], "Not possible"),
    ):
        assert main(wrong) == 2
        assert message in capsys.readouterr().err
    assert main(["ask", folders[1], "--goal", "2,8"]) == 0
    assert main(["evaluate", folders[1], "--suite", "all-rewards", "--rewards", "3"]) == 0
    assert "All other rewards: not possible" in capsys.readouterr().out


def test_methods_at_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = ["--dim", "8", "--hidden", "16", "--batch-size", "16", "--updates", "40"]
    assert main(["train", "four-rooms", "--method", "goal-dqn-her", "--preset", "paper", *tiny]) == 0
    s = ar.load("runs/four-rooms-goal-dqn-her-paper-seed0").settings
    assert s == ar.preset("paper", method="goal-dqn-her", dim=8, hidden=16, batch_size=16, updates=40)
    assert main(["train", "four-rooms", "--method", "goal-dqn", "--bias", *tiny]) == 2
    assert "goal-dqn, which supports neither first_step, bias" in capsys.readouterr().err


def test_runs_are_grouped_by_what_they_are_called() -> None:
    folders = list(map(Path, ("runs/a-seed0", "runs/a-seed12", "runs/b_seed1", "runs/c/seed0", "runs/d", "runs/d")))
    assert {name: len(members) for name, members in by_name(folders).items()} == {"a": 2, "b": 1, "c": 1, "d": 1}
    folders = [Path("old/a-seed0"), Path("new/a-seed0"), Path("new/a-seed1")]
    assert {name: len(members) for name, members in by_name(folders).items()} == {"old/a": 1, "new/a": 2}


def test_bands_are_students() -> None:
    mean, half = band(np.array([[0.1, 0.5], [0.3, 0.5], [0.2, 0.5]]))
    assert mean == pytest.approx([0.2, 0.5])
    assert half == pytest.approx([4.30 * 0.1 / 3**0.5, 0.0])
    assert band(np.array([[0.4]]))[1].tolist() == [0.0]


def test_curves_need_something_in_common(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to draw"):
        draw_curves({"a": [[{"updates": 1, "bellman_loss": 2.0}]]}, tmp_path / "a.png", "")
