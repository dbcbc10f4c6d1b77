"""Rewards painted as an array over two features, or over expressions of features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

import anyreward as ar
from anyreward.rewards.painted import Painted, from_runs, read_painted
from tests.test_cli import run


def term(reward: ar.Reward) -> Painted:
    ((_, found),) = reward.terms
    assert isinstance(found, Painted)
    return found


def test_it_interpolates_and_is_zero_outside() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(5, 8))
    painted = term(ar.painted(values, low=(-1, 2), high=(1, 3)))
    points = np.stack([rng.uniform(-1.2, 1.2, 500), rng.uniform(1.9, 3.1, 500)], 1)
    reference = RegularGridInterpolator(
        (np.linspace(2, 3, 5), np.linspace(-1, 1, 8)), values, bounds_error=False, fill_value=0.0
    )
    np.testing.assert_allclose(painted.at(points), reference(points[:, ::-1]), atol=1e-12)
    corners = np.array([[-1, 2], [1, 2], [-1, 3], [1, 3], [1.001, 2.5]])
    np.testing.assert_allclose(painted.at(corners), [*values[0, [0, -1]], *values[-1, [0, -1]], 0.0])


def test_a_painted_cell_of_a_maze_is_a_goal(agent: ar.Agent) -> None:
    values = np.zeros((11, 11))
    values[8, 2], values[2, 5] = 1.0, -0.5
    painted = ar.painted(values, low=(0, 0), high=(10, 10))
    same = ar.goal(2, 8) - 0.5 * ar.goal(5, 2)
    found, expected = (agent.ask(reward).belief.found.z for reward in (painted, same))
    torch.testing.assert_close(found, expected)
    assert agent.score(painted).value == pytest.approx(agent.score(same).value)


def test_the_command_line_takes_it_as_json_and_as_a_file(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"features": ["x", "y"], "low": [0, 0], "high": [10, 10], "shape": [11, 11], "runs": [[90, 1, 0.5], [27, 2]]}
    text = json.dumps(data)
    (tmp_path / "painted.json").write_text(text)
    for given in (f"{text}:-2", f"{tmp_path / 'painted.json'}:-2"):
        code, out, _ = run(capsys, "ask", str(run_folder), "--painted", given, "--save", str(tmp_path / "z.json"))
        assert code == 0
        assert "painted(11 x 11" in out
        expected = ar.load(run_folder).ask(-2 * ar.goals([[2, 8], [3, 8], [5, 2]], [1, 0.5, 2])).belief.found.z
        torch.testing.assert_close(
            torch.tensor(json.loads((tmp_path / "z.json").read_text())["z_R"]).double(), expected
        )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"values": [1, 2]}, "shape"),
        ({"values": [[1, 2]]}, "at least 2 x 2"),
        ({"values": [[1, np.nan], [0, 0]]}, "not finite"),
        ({"values": "text"}, "not a list of numbers"),
        ({"low": (0, 10)}, "low < high"),
        ({"low": (0, 0, 0)}, "two numbers"),
        ({"features": "xy"}, "two features"),
        ({"features": ("x", "x")}, "two features"),
    ],
)
def test_bad_arrays_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ar.UserError, match=says):
        ar.painted(**{"values": np.zeros((3, 3)), "low": (0, 0), "high": (10, 10)} | given)


def test_it_may_be_painted_over_expressions_of_features(agent: ar.Agent) -> None:
    values = np.random.default_rng(0).normal(size=(4, 6))
    painted = term(ar.painted(values, (0, 0), (np.pi / 2, 20), ("arctan2(y, x)", "x + y")))
    rows = agent.sample.rows
    x, y = agent.model.phi.readable(rows.numpy())[:, :2].T
    expected = painted.at(np.stack([np.arctan2(y, x), x + y], 1))
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(painted.values(agent.knowledge, rows), expected)
    for wrong, says in (("arctan2(y, q)", "q"), ("arctan2(y", "arctan2")):
        with pytest.raises(ar.UserError, match=says):
            agent.ask(ar.painted(values, (0, 0), (1, 1), (wrong, "y")))


def test_unknown_features_are_named(agent: ar.Agent) -> None:
    with pytest.raises(ar.UserError, match=r"'speed'.*x, y"):
        agent.ask(ar.painted(np.ones((2, 2)), (0, 0), (1, 1), features=("x", "speed")))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"features": ["x", "y"], "low": [0, 0], "high": [1, 1], "shape": [2, 2], "runs": [[3, 1, 1]]}',
        '{"features": ["x", "y"], "low": [0, 0], "high": [1, 1], "shape": [2, 2], "runs": [[-1, 1]]}',
        '{"features": ["x", "y"], "low": [0, 0], "high": [1, 1], "shape": [2, 2], "runs": [[0, null]]}',
        '{"features": ["x", "y"], "low": [0, 0], "high": [1, 1], "shape": [2, 2], "runs": {"0": 1}}',
        '{"features": ["x", "y"], "low": [0, 0], "high": [1, 1], "shape": [1e9, 2], "runs": []}',
        '{"features": ["x", "y"], "low": [0, 0], "high": [1, 1], "shape": [1000000000, 1000000000], "runs": []}',
        '{"features": 3, "low": [0, 0], "high": [1, 1], "shape": [2, 2], "runs": []}',
        "missing.json",
        "[" * 100_000,
    ],
)
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(ar.UserError):
        read_painted(text)


def test_runs_fill_an_array() -> None:
    np.testing.assert_array_equal(from_runs([2, 3], [[1, 5, 6], [5, 7]]), [[0, 5, 6], [0, 0, 7]])
