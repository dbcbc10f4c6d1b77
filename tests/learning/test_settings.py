from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from typing import Any

import pytest

from anyreward import Settings, UserError, preset
from anyreward.learning.settings import FAST, RunChanges, RunSettings, SettingChanges, split_changes
from anyreward.model import ZMixture


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
        "z_mixture": {"goals": 0.0, "sums": 0.0, "rewards": 0.0},  # Cauchy alone
        "z_norm": "free",
        "layer_norm": False,
        "hidden": 256,
        "layers": 3,
        "learning_rate_decay": 0.0,
        "warmup_steps": 0,
    }
    paper = asdict(preset("paper"))
    assert {name: paper[name] for name in table} == table
    assert preset("paper") == Settings()


def test_fast_differs_from_paper_exactly_as_listed() -> None:
    paper, fast = vars(preset("paper")), vars(preset("fast"))
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
        Settings().with_(**{**asdict(Settings()), "colour": "red"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("z_mixture", "gauss", r"'gauss'; expected ZMixture\(goals=\.\.\., sums=\.\.\., rewards=\.\.\.\)"),
        ("z_mixture", {"gauss": 1.0}, r"\{'gauss': 1\.0\}; expected ZMixture\(goals="),
        ("z_mixture", {"goals": 1.2}, r"\{'goals': 1\.2, .*\}; accepted: shares from 0 to 1"),
        ("z_mixture", {"goals": 0.4, "sums": 0.7}, r"\{.*'sums': 0\.7, .*\}; accepted: .* with a sum of at most 1"),
        ("z_norm", "round", r"'round'; accepted: free, sphere"),
        ("features", "pixels", r"'pixels'; accepted: auto, observation, achieved_goal"),
        ("dim", 2.5, r"2\.5; expected a whole number"),
        ("dim", "100", r"'100'; expected a whole number"),
        ("dim", True, "True; expected a whole number"),
        ("dim", -1, "-1; accepted: 0 or more"),
        ("batch_size", -1, "-1; accepted: 1 or more"),
        ("seed", -1, "-1; accepted: 0 or more"),
        ("updates", 0, "0; accepted: 1 or more"),
        ("gamma", "high", "'high'; expected a number"),
        ("gamma", 1.5, r"1\.5; accepted: 0 < value < 1"),
        ("gamma", -0.1, r"-0\.1; accepted: 0 < value < 1"),
        ("gamma", 1.0, r"1\.0; .*value < 1"),
        ("gamma", math.nan, "nan; accepted: 0 < value < 1"),
        ("exploration", 2.0, r"2\.0; accepted: 0 to 1"),
        ("target_retention", 1.1, r"1\.1; accepted: 0 to 1"),
        ("learning_rate_decay", -1.0, r"-1\.0; accepted: 0 to 1"),
        ("learning_rate", 0.0, r"0\.0; accepted: above 0"),
        ("learning_rate", math.nan, "nan"),
        ("temperature", -200, "-200; accepted: above 0"),
        ("temperature", math.inf, "inf"),
        ("orthonormality", -1.0, r"-1\.0; accepted: 0 or more"),
        ("orthonormality", math.inf, "inf; accepted: 0 or more"),
        ("first_step", 2, "2; accepted: 0 to 1"),
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
        {"z_mixture": ZMixture(goals=0.3, sums=0.7)},
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
    text = json.dumps(asdict(settings))
    assert Settings().with_(**json.loads(text)) == settings
    assert set(json.loads(text)) == {field.name for field in fields(Settings)}


def test_a_wrong_value_in_json_raises() -> None:
    with pytest.raises(UserError, match="gamma is 7"):
        Settings().with_(gamma=7)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("environments", 0, "0; accepted: 1 or more"),
        ("evaluate_every", 0, "0; accepted: 1 or more"),
        ("threads", -1, "-1; accepted: 0 or more"),
        ("threads", 1.5, r"1\.5; expected a whole number"),
        ("device", "gpu", "'gpu'; accepted: cpu, cuda"),
        ("compile", "yes", "'yes'; accepted: True, False"),
    ],
)
def test_how_it_is_run_is_checked_too(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} is {message}"):
        RunSettings(**{name: value})


def test_updates_are_compiled_for_the_cpu_alone() -> None:
    with pytest.raises(UserError, match="compile is on and device is 'cuda:0'"):
        RunSettings(compile=True, device="cuda:0")


def test_changes_are_those_of_the_result_or_of_the_run() -> None:
    assert split_changes({"dim": 3, "threads": 2, "seed": 1}) == ({"dim": 3, "seed": 1}, {"threads": 2})
    with pytest.raises(UserError, match="no setting 'dimension'"):
        split_changes({"dimension": 3})
    result, run = ({field.name for field in fields(kind)} for kind in (Settings, RunSettings))
    assert not result & run
    assert set(SettingChanges.__annotations__) | {"features"} == result | run  # features has a parameter of its own
    assert set(RunChanges.__annotations__) == run | {"replay_size"}


def test_a_setting_of_the_run_is_told_from_an_unknown_one() -> None:
    with pytest.raises(UserError, match=r"threads is a run setting: pass it to train\(\)"):
        preset("fast", threads=2)
    with pytest.raises(UserError, match=r"There is no setting .colour.\. Settings: .*threads"):
        preset("fast", colour="red")
