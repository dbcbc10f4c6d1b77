from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", 2**70, r"\d+; accepted: 0 or more \(at most 9,223,372,036,854,775,807\)"),
        ("batch_size", 10**6, r"1000000; accepted: 1 or more \(at most 10,000\)"),
        ("layers", 10**6, "1000000; accepted"),
        ("hidden", 10**9, "1000000000; accepted"),
        ("dim", 10**9, "1000000000; accepted"),
        ("dim", [10**5_000], "a value of type list, too long to show; expected a whole number"),
        ("wide", 10**4, "10000; accepted"),
        ("replay_size", 10**15, "1000000000000000; accepted"),
        ("feature_sample", 10**9, "1000000000; accepted"),
        ("gamma", 1 - 1e-16, r"0\.999.*; accepted"),
        ("gamma", True, "True; expected a number"),
        ("learning_rate", 10**400, "1000.* ...; accepted: above 0"),
        ("learning_rate", 1j, "1j; expected a number"),
        ("temperature", None, "None; expected a number"),
        ("updates", math.nan, "nan; expected a whole number"),
        ("method", ["fb"], r"\['fb'\]; accepted: fb, goal-dqn"),
        ("method", {}, r"\{\}; accepted: fb"),
        ("z_mixture", {"goals": math.nan}, r".*accepted: shares from 0 to 1"),
        ("z_mixture", {"goals": 10**400}, r".*accepted: shares from 0 to 1"),
        ("z_mixture", None, "None; expected ZMixture"),
        ("layer_norm", 1, "1; accepted: True, False"),
        ("features", ["auto"] * 1_000, r".{60,80} \.\.\.; accepted: auto"),
    ],
)
def test_no_value_can_ask_for_more_than_fits(name: str, value: Any, message: str) -> None:
    for make in (lambda: preset("paper", **{name: value}), lambda: Settings().with_(**{name: value})):
        with pytest.raises(UserError, match=rf"^{name} is {message}"):
            make()


@pytest.mark.parametrize(
    ("changes", "lower"),
    [
        ({"hidden": 10_000}, "hidden"),
        ({"layers": 100, "hidden": 2_000}, "layers"),
        ({"batch_size": 10_000, "target_every": 10_000, "updates_per_cycle": 10_000}, "updates_per_cycle"),
        ({"updates_per_cycle": 10**6}, "updates_per_cycle"),
        ({"dim": 10_000, "feature_sample": 10**6}, "feature_sample"),
    ],
)
def test_sizes_that_do_not_fit_together_name_what_to_lower(changes: dict[str, Any], lower: str) -> None:
    with pytest.raises(UserError, match=rf"needs about [\d,.]+ GB; accepted: at most 4\.3 GB\. Lower .*{lower}"):
        Settings().with_(**changes)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("threads", 100_000, r"100000; accepted: 0 or more \(at most 1,000\)"),
        ("environments", 10**9, "1000000000; accepted"),
        ("device", 5, "5; expected text"),
        ("device", "cuda:x", "'cuda:x'; accepted: cpu, cuda"),
        ("replay_file", None, "None; expected text"),
        ("compile", None, "None; accepted: True, False"),
    ],
)
def test_how_it_is_run_is_bounded(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=rf"^{name} is {message}"):
        RunSettings().with_(**{name: value})


def test_paths_of_the_run_have_a_home() -> None:
    assert RunSettings(replay_file="~/frames").replay_file == str(Path.home() / "frames")
    with pytest.raises(UserError, match="is not a path"):
        RunSettings(replay_file="a\0b")


def test_numbers_of_numpy_become_pythons() -> None:
    s = Settings().with_(dim=np.int64(5), gamma=np.float32(0.5), layer_norm=np.bool_(True))
    assert json.loads(json.dumps(asdict(s)))["dim"] == 5
    assert (type(s.dim), type(s.gamma), s.layer_norm) == (int, float, True)


def test_random_settings_are_kept_or_refused() -> None:
    from anyreward.selfcheck import arguments

    rng = random.Random(0)
    found = {"accepted": 0, "refused": 0}
    for _ in range(2_000):
        try:
            found[arguments.try_settings(rng)] += 1
        except UserError:
            found["refused"] += 1
    assert min(found.values()) > 50
