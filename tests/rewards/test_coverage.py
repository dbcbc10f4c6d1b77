"""Which part of the state space was visited: the report, its notes, its picture, and the warnings that name it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import anyreward as ar
from anyreward.cli import main
from anyreward.rewards.coverage import FeatureCoverage, coverage
from anyreward.rewards.knowledge import with_backward
from anyreward.worlds.spaces import bounds_of

SMALL: dict[str, Any] = {"landmarks": 0, "dim": 4, "hidden": 8, "batch_size": 16, "updates": 20}


class Track(gym.Env[Any, Any]):
    """A car on a line from 0 to 10, seen with its gear; it starts near 0 and moves by 0.1, so 6 to 10 are not seen."""

    observation_space = spaces.Tuple(
        [spaces.Box(np.array([0.0, -np.inf]), np.array([10.0, np.inf]), dtype=np.float64), spaces.Discrete(4)]
    )
    action_space = spaces.Discrete(2)

    def __init__(self, end: float = np.inf) -> None:
        self.end = end

    def _seen(self) -> Any:
        return np.array([self.x, 3.0]), np.int64(self.x > 1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x, self.steps = 0.0, 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.x += 0.1 * (1 + int(action)) * self.np_random.random()
        self.steps += 1
        return self._seen(), 0.0, self.x > self.end, self.steps >= 40, {}


@pytest.fixture(scope="module")
def short() -> ar.Agent:
    """An agent that has seen the first part of the track."""
    return ar.train(Track(), progress=False, seed=0, **SMALL)


def test_ranges_by_hand(agent: ar.Agent, short: ar.Agent) -> None:
    rows = torch.zeros(11, short.sample.rows.shape[1])
    rows[:, 0] = torch.linspace(0, 5, 11)  # parts of width 0.5: the first ten, and the eleventh that begins at 5
    rows[:, 2] = (rows[:, 0] > 3).float() * 2
    sample = with_backward(short.model, rows, torch.full((11,), 1 / 11, dtype=torch.float64))
    x, other, gear, ended = coverage(replace(short.knowledge, sample=sample)).features
    assert (x.low, x.high, x.bounds, x.share) == (0, 5, (0, 10), pytest.approx(11 / 20))
    assert (other.bounds, other.share, other.missing) == ((-np.inf, np.inf), None, "")
    assert (gear.values, gear.share) == ((2, 4), 0.5)
    assert ended.values == (1, 2)
    maze = agent.coverage()
    assert maze.states is not None
    assert maze.states[1] == 121
    assert maze.states[0] == len(agent.sample.rows)
    assert [f.name for f in maze.features] == ["x", "y"]
    assert maze.note == ""  # walls are not missing


def test_the_table_and_its_note(short: ar.Agent) -> None:
    table, x = str(short.coverage()), short.coverage().features[0]
    assert 3 < x.high < 7
    lines = table.splitlines()
    assert lines[0].split() == ["feature", "lowest", "seen", "highest", "seen", "bounds", "visited"]
    assert lines[1].split() == ["f0", "0", f"{x.high:.4g}", "0", "to", "10", f"{x.share:.0%}"]
    assert lines[2].split()[-2:] == ["none", "-"]
    assert lines[3].endswith("2 of 4 values")
    assert f"Never seen in training: f0 above {x.high:.3g} (of 0 to 10). If this can be reached, train" in table


def test_training_says_what_was_never_seen(capsys: pytest.CaptureFixture[str]) -> None:
    ar.train(Track(), seed=0, **SMALL)
    said = " ".join(capsys.readouterr().err.split())
    assert "Never seen in training: f0 above" in said
    assert "--updates" in said
    ar.train("four-rooms", updates=40)
    assert "Never seen" not in capsys.readouterr().err


def test_nothing_is_missing_behind_terminal_states() -> None:
    agent = ar.train(Track(end=2.0), progress=False, seed=0, **SMALL)
    x = agent.coverage().features[0]
    assert 2 < x.high < 2.3
    assert x.ends == (False, True)
    assert agent.coverage().note == ""


def test_both_ends_at_once() -> None:
    feature = FeatureCoverage("speed", -1.0, 1.0, (-4.0, 4.0), 0.3)
    assert feature.missing == "speed outside -1 to 1 (of -4 to 4)"
    assert replace(feature, ends=(True, False)).missing == "speed above 1 (of -4 to 4)"
    assert replace(feature, low=-3.9, high=3.0).missing == ""
    assert replace(feature, bounds=(-np.inf, np.inf)).missing == ""


def test_many_features_are_cut(short: ar.Agent) -> None:
    report = short.coverage()
    many = replace(report, features=report.features[:1] * 50)
    assert "... and 20 more features" in str(many)
    assert "and 47 more. If" in many.note


def test_bounds_of_spaces() -> None:
    parts = [spaces.Discrete(3, start=5), spaces.Text(4), spaces.MultiBinary(2), spaces.Box(-1, 2, (2,))]
    assert bounds_of(spaces.Tuple(parts)).tolist() == [[0, 2], [0, 1], [0, 1], [-1, 2], [-1, 2]]
    assert bounds_of(spaces.Discrete(1)).tolist() == [[0, 0]]
    whole, part = (bounds_of(spaces.Box(0, high, (1,), np.uint8)).tolist() for high in (255, 9))
    assert (whole, part) == ([[-np.inf, np.inf]], [[0, 9]])  # all bytes: a way to store numbers, not a bound


def test_a_goal_outside_names_the_feature_and_the_range(short: ar.Agent) -> None:
    seen = short.coverage().features[0].seen
    with pytest.warns(UserWarning, match=rf"goal\(9, 3, 0\) lies outside .*: f0 = 9 \(seen: {seen}\)\. Do not rely"):
        short.ask(ar.goal(9, 3, 0))
    short.ask(ar.goal(1, 3, 0))
    with pytest.warns(UserWarning, match=r"1 of 2 rows lie outside the training data.*: f0 = 9 \(seen: "):
        short.ask(ar.demonstration((np.array([[9.0, 3], [1.0, 3]]), np.array([0, 0]))))


def test_a_reward_that_pays_where_nothing_was_seen(short: ar.Agent) -> None:
    seen = short.coverage().features[0].seen
    with pytest.warns(UserWarning, match=rf"zero everywhere.*pays where f0 is 8(\.\d+)? to 10 \(seen: {seen}\)"):
        short.ask(ar.reward("f0 > 8"))
    for nowhere in ("0 * f0", "f0 > 11"):
        with pytest.warns(UserWarning, match="zero everywhere in the training data: every policy is equally good.$"):
            short.ask(ar.reward(nowhere))


@pytest.mark.parametrize("world", ["track", "four-rooms", "continuous-maze"])
def test_show(world: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ar.train(Track() if world == "track" else world, progress=False, out=tmp_path, **SMALL)
    assert main(["show", str(tmp_path), "--figure", str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "lowest seen" in out
    assert ("68 of 121" in out or "of 121 states" in out) == (world == "four-rooms")
    assert (tmp_path / "a.png").stat().st_size > 8_000
    assert main(["show", str(tmp_path), "--figure", str(tmp_path / "a.bmp")]) == 2
    assert main(["show", str(tmp_path / "nowhere")]) == 2
