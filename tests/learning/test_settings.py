from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest

from anyreward import Settings, UserError, preset
from anyreward.learning.settings import FAST, settings_from_json


def test_paper_is_the_papers_table_for_the_discrete_maze() -> None:
    table = {
        "updates": 800 * 25 * 40,
        "updates_per_cycle": 40,
        "steps_per_cycle": 4 * 50,
        "exploration": 1.0,
        "temperature": 200.0,
        "learning_rate": 0.001,
        "batch_size": 128,
        "orthonormality": 1.0,
        "target_retention": 0.95,
        "target_every": 40,
        "gamma": 0.99,
        "replay_size": 10**6,
        "z_sampling": "cauchy",
        "layer_norm": False,
        "hidden": 256,
        "layers": 3,
        "learning_rate_decay": 0.0,
        "warmup_steps": 0,
    }
    paper = preset("paper").to_json()
    assert {name: paper[name] for name in table} == table
    assert preset("paper") == Settings()


def test_fast_differs_from_paper_exactly_as_listed() -> None:
    paper, fast = preset("paper").to_json(), preset("fast").to_json()
    assert {name: fast[name] for name in fast if fast[name] != paper[name]} == FAST
    assert preset() == preset("fast")


def test_changes_win_over_the_preset() -> None:
    assert preset("fast", updates=7, dim=3) == preset("fast").with_(updates=7).with_(dim=3)
    assert (preset("fast", updates=7).updates, preset("paper", dim=3).dim) == (7, 3)


def test_unknown_names() -> None:
    with pytest.raises(UserError, match=r"no preset 'slow'; accepted: fast, paper"):
        preset("slow")
    with pytest.raises(UserError, match=r"no setting 'dimension'\. Settings: .*dim, .*gamma"):
        preset("fast", dimension=3)
    with pytest.raises(UserError, match="no setting 'lr'"):
        Settings().with_(lr=0.1)
    with pytest.raises(UserError, match="no setting 'colour'"):
        settings_from_json({**Settings().to_json(), "colour": "red"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("z_sampling", "gauss", r"'gauss'; accepted: cauchy, sphere, mixture"),
        ("features", "pixels", r"'pixels'; accepted: auto, observation, achieved_goal"),
        ("dim", 2.5, r"2\.5; expected a whole number"),
        ("dim", "100", r"'100'; expected a whole number"),
        ("dim", True, "True; expected a whole number"),
        ("dim", -1, "-1; it must be at least 0"),
        ("batch_size", -1, "-1; it must be positive"),
        ("seed", -1, "-1; it must be at least 0"),
        ("updates", 0, "0; it must be positive"),
        ("gamma", "high", "'high'; expected a number"),
        ("gamma", 1.5, r"1\.5; accepted: 0 < gamma < 1"),
        ("gamma", -0.1, r"-0\.1; accepted: 0 < gamma < 1"),
        ("gamma", 1.0, r"1\.0; .*gamma < 1"),
        ("gamma", math.nan, "nan; accepted: 0 < gamma < 1"),
        ("exploration", 2.0, r"2\.0; accepted: 0 to 1"),
        ("target_retention", 1.1, r"1\.1; accepted: 0 to 1"),
        ("learning_rate_decay", -1.0, r"-1\.0; accepted: 0 to 1"),
        ("z_goals", 1.2, r"1\.2; accepted: 0 to 1"),
        ("z_sums", 0.7, r"0\.7; accepted: 0 to 0\.6"),
        ("learning_rate", 0.0, r"0\.0; it must be positive"),
        ("learning_rate", math.nan, "nan"),
        ("temperature", -200, "-200; it must be positive"),
        ("temperature", math.inf, "inf"),
        ("orthonormality", -1.0, r"-1\.0; it must be at least 0"),
        ("layer_norm", "no", "'no'"),
        ("features_include_action", 2, "2"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} is {message}"):
        preset("paper", **{name: value})


@pytest.mark.parametrize(
    "edge",
    [
        {"exploration": 0.0},
        {"target_retention": 0},
        {"z_goals": 0.3, "z_sums": 0.7},
        {"updates": 1, "steps_per_cycle": 0, "warmup_steps": 0},
        {"orthonormality": 0.0},
        {"temperature": 1},
        {"dim": 1},
    ],
)
def test_the_edges_are_accepted(edge: dict[str, Any]) -> None:
    settings = preset("paper", **edge)
    assert {name: getattr(settings, name) for name in edge} == edge


@pytest.mark.parametrize(
    "settings", [preset("paper"), preset("fast", dim=7, gamma=0.5, features="observation", seed=3)]
)
def test_json_round_trip(settings: Settings) -> None:
    text = json.dumps(settings.to_json())
    assert settings_from_json(json.loads(text)) == settings
    assert set(json.loads(text)) == {field.name for field in fields(Settings)}


def test_a_wrong_value_in_json_raises() -> None:
    with pytest.raises(UserError, match="gamma is 7"):
        settings_from_json({"gamma": 7})
