"""What a user may pass by mistake, or a hostile file may hold: a message in one line, never a traceback."""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward as ar
import anyreward.selfcheck.arguments as arguments
import anyreward.selfcheck.expressions as expressions
from anyreward.rewards.terms import LARGEST_TASK

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
ANYTHING = JSON | st.sampled_from(
    [10**400, 1e308, 1j, b"1", "1", ["1", "2"], [[1], [2, 3]], object(), torch.ones(2, 2)]
)


def refused(make: Callable[[], Any], message: str = ".") -> None:
    with pytest.raises(ar.UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("weight", [1e308, -1e31, 10**400, math.nan, math.inf, np.float64(1e300)])
def test_weights_have_a_limit(weight: float) -> None:
    refused(lambda: weight * ar.goal(1, 1), "multiplied by")
    refused(lambda: ar.goal(1, 1) / weight, "divided by")
    refused(lambda: ar.goals([[1, 1]], [weight]))
    refused(lambda: 1e20 * (1e20 * ar.goal(1, 1)), "multiplied by")
    with pytest.raises(TypeError):
        ar.goal(1, 1) * np.complex128(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ar.goal(10**400, 1),
        lambda: ar.goal("1", "2"),
        lambda: ar.goal(["1", "2"]),
        lambda: ar.goal([[1], [2, 3]]),
        lambda: ar.goal(None),
        lambda: ar.goal(1j, 2),
        lambda: ar.goal(range(1), object()),
        lambda: ar.goals([[1, 2], [3]]),
        lambda: ar.samples([[1, 2]], ["1"]),
        lambda: ar.samples([[1, 2]], [1e308]),
        lambda: ar.samples(np.array([[1, 2]], dtype="datetime64[s]"), [1]),
        lambda: ar.from_z([10**400]),
        lambda: ar.from_z("a\0b"),
        lambda: ar.from_z("x" * 5_000 + ".json"),
        lambda: ar.demonstration([24, 25], ["a", "b"]),
        lambda: ar.demonstration("abc"),
        lambda: ar.demonstration(None),
        lambda: ar.fit_mlp(np.ones((9, 2)), np.ones(9), seed=-1),
    ],
)
def test_what_is_no_numbers(make: Callable[[], Any]) -> None:
    with pytest.raises(ar.UserError) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "reward",
    [
        lambda: ar.goal(state="abc"),
        lambda: ar.goal(state=[[1], [2, 3]]),
        lambda: ar.goal(state=10**400),
        lambda: ar.goal(state=[1, 2]),
        lambda: ar.goal(1, 2, 3),
        lambda: ar.goal(1e29, 1),
        lambda: ar.demonstration([[24], [25, 26]]),
        lambda: ar.demonstration(["a", "b"]),
        lambda: ar.demonstration([10**400]),
        lambda: ar.demonstration({"x": 3}),
        lambda: ar.demonstration((1, [2, 3])),
        lambda: ar.reward(lambda g: np.full(len(g), "1")),
        lambda: ar.reward(lambda g: g[:, 0] * 1j),
        lambda: ar.reward(lambda g: [10**400] * len(g)),
        lambda: ar.reward(lambda g: None),
        lambda: ar.reward("1e308 * (x > 3)"),
        lambda: ar.reward("1e-300 * x"),
        lambda: 1e-320 * ar.goal(9, 9),
        lambda: ar.from_z([1.0] * 3),
        lambda: ar.from_z([1e-200] * 12),
    ],
)
def test_rewards_that_cannot_be_answered(agent: ar.Agent, reward: Callable[[], ar.Reward]) -> None:
    refused(lambda: agent.ask(reward()))


@settings(max_examples=300, deadline=None)
@given(ANYTHING)
def test_anything_is_a_reward_or_refused(value: Any) -> None:
    for make in (ar.goal, ar.goals, ar.from_z, ar.demonstration, ar.samples, lambda v: ar.samples([[1.0, 2.0]], v)):
        try:
            made = make(value)
        except ar.UserError:
            continue
        assert isinstance(made, ar.Reward)
        assert not isinstance(value, str | bytes)


@pytest.mark.parametrize("scale", [1e-29, 1e-9, 1e9, 1e29])
def test_the_scale_of_a_reward_changes_no_policy(agent: ar.Agent, scale: float) -> None:
    cells = agent.exact_mdp().observations
    plain, scaled = (agent.ask(weight * ar.reward("x * (y > 3)")) for weight in (1.0, scale))
    assert (plain.act(cells, warn=False) == scaled.act(cells, warn=False)).all()
    assert np.allclose(scaled.q(cells), scale * plain.q(cells), rtol=1e-4, atol=1e-4 * scale)
    assert scaled.trust.verdict == plain.trust.verdict


def test_arguments_of_ask(agent: ar.Agent) -> None:
    for improve in (10**8, 10**400, 0, True, "much", [[1], [2, 3]], ["a"], math.nan, 1e300 * np.ones((1, 2))):
        refused(lambda given=improve: agent.ask(ar.goal(9, 9), improve=given), "improve")
    for refine in (10**9, -1, True, 1.5, "3", [], math.nan):
        refused(lambda given=refine: agent.ask(ar.goal(9, 9), refine=given), "refine is")
    policy = agent.ask(ar.goal(9, 9))
    for observation in ("abc", None, [[1], [2, 3]], 10**400, {"a": 1}, 24.5, -1, object()):
        refused(lambda given=observation: policy.act(given))
    for bad in ("a", None, math.nan, -1):
        refused(lambda given=bad: policy.epsilon_greedy(given), "epsilon is")
        refused(lambda given=bad: policy.boltzmann(given), "temperature is")
        refused(lambda given=bad: policy.seeded(given), "seed is")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, r"has the format 2 of a z, and this anyreward reads format 1: .* newer"),
        ({"format": True}, "is not a saved z"),
        ({"format": 1.0}, "is not a saved z"),
        ({"format": "1"}, "is not a saved z"),
        ({"agent": None}, "agent is None; expected text"),
        ({"agent": 5}, "agent is 5"),
        ({"reward": ["r"]}, r"reward is \['r'\]; expected text"),
        ({"z_R": [True] * 12}, "not a list of numbers"),
        ({"z_R": ["1"] * 12}, "not a list of numbers"),
        ({"z_R": [[1.0]] * 12}, "not a list of numbers"),
        ({"z_R": []}, "not a list of numbers"),
        ({"z_R": [math.nan] * 12}, "nan at index 0"),
        ({"z_R": [1e308] * 12}, r"1e\+308 at index 0"),
        ({"z_R": [1.0] * 11}, "11 numbers"),
        ({"tensors_sha256": 5}, "tensors_sha256 is 5"),
        ({"tensors_sha256": "abc"}, "scale is None"),
        ({"tensors_sha256": "abc", "scale": -1}, "scale is -1"),
        ({"tensors_sha256": "abc", "scale": math.nan}, "scale is nan"),
        ({"tensors_sha256": "abc", "scale": 1.0}, "does not match"),
    ],
)
def test_z_files_are_checked(agent: ar.Agent, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = agent.ask(ar.goal(9, 9)).save(tmp_path / "z.json")
    path.write_text(json.dumps(unsigned(path) | change))
    refused(lambda: agent.load_policy(path), message)


def unsigned(path: Path) -> dict[str, Any]:
    """The content of a z file, as an earlier version wrote it: without a checksum, so that changes are read."""
    data: dict[str, Any] = json.loads(path.read_text())
    del data["sha256"]
    return data


def test_a_changed_digit_of_a_z_file_is_noticed(agent: ar.Agent, tmp_path: Path) -> None:
    path = agent.ask(ar.goal(9, 9)).save(tmp_path / "z.json")
    data = json.loads(path.read_text())
    data["z_R"][0] += 1e-3
    path.write_text(json.dumps(data))
    refused(lambda: agent.load_policy(path), "is damaged")


@pytest.mark.parametrize("content", ["[" * 99_999, '{"z_R": ' + "9" * 5_000 + "}", "", "\0", "5", "null", '{"z_R": 1}'])
def test_files_that_hold_no_z(agent: ar.Agent, tmp_path: Path, content: str) -> None:
    path = tmp_path / "z.json"
    path.write_text(content)
    refused(lambda: agent.load_policy(path), r"z\.json")
    with path.open("wb") as file:
        file.truncate(LARGEST_TASK + 1)
    refused(lambda: ar.from_z(path), "is not a saved z")
    refused(lambda: ar.from_z(tmp_path), "is not a file")
    refused(lambda: ar.from_z("/dev/zero"), "is not a file")


def test_tensors_beside_a_policy_are_checked(agent: ar.Agent, tmp_path: Path) -> None:
    from safetensors.torch import save

    from anyreward.storage.files import sha256

    path = agent.ask(ar.goal(9, 9)).save(tmp_path / "z.json")
    data = unsigned(path)
    for content in (b"nonsense", save({"weight": torch.ones(3)}), save({"plan": torch.full((1, 2, 3), torch.nan)})):
        path.with_suffix(".safetensors").write_bytes(content)
        path.write_text(json.dumps(data | {"tensors_sha256": sha256(content), "scale": 1.0}))
        with pytest.raises(ar.UserError, match=r"z\.safetensors does not fit this agent"):
            agent.load_policy(path)


def test_random_z_files_are_read_as_they_are_or_refused(agent: ar.Agent, tmp_path: Path) -> None:
    good = unsigned(agent.ask(ar.goal(9, 9)).save(tmp_path / "good.json"))
    rng, found = random.Random(0), {"accepted": 0, "refused": 0}
    for _ in range(300):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                found[arguments.try_file(rng, agent, good, tmp_path / "z.json")] += 1
        except (ar.UserError, UserWarning):
            found["refused"] += 1
    assert min(found.values()) > 5


def test_random_expressions_have_the_value_of_python_or_are_refused() -> None:
    counts = expressions.attack(3_000, seed=0)
    assert counts["tracebacks"] == counts["silent"] == 0
    assert min(counts["accepted"], counts["refused"]) > 500
