"""Actions of a box: scaled to -1..1, listed, drawn, checked."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import anyreward as ar
from anyreward.errors import UserError
from anyreward.worlds.actions import ActionSet, action_set
from anyreward.worlds.recorded import Recorded
from anyreward.worlds.stepping import Stepper

BOX = spaces.Box(np.array([-2.0, 0.0], dtype=np.float32), np.array([2.0, 10.0], dtype=np.float32))


def test_scaling_by_hand() -> None:
    acts = action_set(BOX)
    assert (acts.count, acts.width, acts.continuous, acts.space) == (0, 2, True, BOX)
    given = np.array([[-1.0, -1.0], [0.0, 0.5], [1.0, 1.0], [3.0, -9.0]])
    assert acts.outward(given).tolist() == [[-2.0, 0.0], [0.0, 7.5], [2.0, 10.0], [2.0, 0.0]]
    assert acts.outward(given).dtype == np.float32
    assert acts.inward(np.array([[1.0, 2.5]])).tolist() == [[0.5, -0.5]]
    assert acts.none(3).tolist() == [[0.0, 0.0]] * 3


def test_any_shape_and_whole_numbers() -> None:
    acts = action_set(spaces.Box(-3, 3, (2, 2), np.int64))
    taken = acts.outward(np.array([[-1.0, 0.1, 0.2, 1.0]]))
    assert taken.shape == (1, 2, 2)
    assert taken.dtype == np.int64
    assert taken.ravel().tolist() == [-3, 0, 1, 3]
    assert acts.inward(taken).shape == (1, 4)
    same = action_set(spaces.Box(np.array([1.0, -1.0]), np.array([1.0, 1.0]), dtype=np.float64))
    assert same.outward(same.inward(np.array([[1.0, 0.5]]))).tolist() == [[1.0, 0.5]]  # a number that is always 1


@given(st.integers(1, 3), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_listed_actions_are_their_own_nearest(width: int, levels: int, seed: int) -> None:
    acts = action_set(spaces.Box(-5, 7, (width,))).listed(levels)
    assert (acts.count, acts.continuous) == (levels**width, False)
    every = np.arange(acts.count)
    assert acts.nearest(acts.table).tolist() == every.tolist()
    assert acts.inward(acts.outward(every)).tolist() == every.tolist()
    near = np.random.default_rng(seed).uniform(-1, 1, (20, width))
    apart = np.square(near[:, None] - acts.table).sum(2)
    assert np.allclose(apart[np.arange(20), acts.nearest(near)], apart.min(1))


def test_a_spread_covers_the_box_and_its_ends() -> None:
    one, three = action_set(spaces.Box(-1, 1, (1,))).spread(5), action_set(spaces.Box(-1, 1, (3,))).spread(64)
    assert one.ravel().tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert np.abs(three).max() == 1.0
    assert np.abs(three.mean(0)).max() < 0.1
    assert (three == action_set(spaces.Box(-1, 1, (3,))).spread(64)).all()


def changed_box(low: list[float]) -> spaces.Box:
    """A box whose bounds were changed after it was made."""
    box = spaces.Box(-1, 1, (2,))
    box.low = np.array(low, dtype=np.float32)
    return box


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "no finite bounds.*TransformAction"),
        (spaces.Box(np.array([0, -np.inf], dtype=np.float32), np.ones(2, dtype=np.float32)), "no finite bounds"),
        (spaces.Box(-1, 1, (0,)), "at least one number"),
        (spaces.MultiDiscrete([3, 3]), "supported: Discrete, and Box"),
        (spaces.Box(0, 1, (2,), np.bool_), "of floats or whole numbers"),
        (spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64), "no finite bounds.*TransformAction"),
        (changed_box(low=[np.nan, 0]), "no finite bounds"),
        (changed_box(low=[-1, 3]), "low 3 is larger than high 1; expected low <= high"),
    ],
)
def test_other_spaces_say_what_to_do(space: gym.Space[Any], text: str) -> None:
    with pytest.raises(UserError, match=f"^The action space of Robot is .*{text}") as error:
        action_set(space, "Robot")
    assert "\n" not in str(error.value)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(-1, 1))
def test_actions_are_within_their_bounds(low: float, span: float, where: float) -> None:
    space = spaces.Box(low, low + span, (1,), np.float64)
    for at in (where, -1.0, 1.0):
        assert space.contains(action_set(space).outward(np.array([[at]]))[0])


def test_given_actions_are_checked() -> None:
    acts = action_set(BOX)
    assert acts.checked([[2.0, 10.0]], "Actions").tolist() == [[1.0, 1.0]]
    for wrong, text in (
        ([[2.5, 0.0]], "between -2 and 2; row 0 has 2.5"),
        ([[0.0, np.nan]], "row 0 has nan"),
        ([0.0, 1.0], r"shape \(2,\)"),
        ([["a", "b"]], "type"),
    ):
        with pytest.raises(UserError, match=text):
            acts.checked(wrong, "Actions")
    with pytest.raises(UserError, match="whole numbers that lie between 1 and 3; row 1 has 4"):
        ActionSet(3, 1).checked([1, 4], "Actions")


def test_actions_reach_the_environment_in_its_own_units() -> None:
    class Seen(gym.Env[Any, Any]):
        observation_space, action_space = spaces.Box(-1, 1, (1,)), BOX
        taken: list[Any] = []  # noqa: RUF012 (shared on purpose)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            return np.zeros(1, dtype=np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            assert self.action_space.contains(action)
            self.taken.append(action.tolist())
            return np.zeros(1, dtype=np.float32), 0.0, False, False, {}

    world = ar.open_world(Seen())
    stepper = Stepper(world.make_vector(1))
    stepper.reset(0)
    stepper.step(stepper.action_set.outward(np.array([[0.0, 1.0]])))
    assert Seen.taken == [[0.0, 10.0]]


def test_an_episode_with_a_box_of_actions_is_repeated() -> None:
    one, other = (Recorded(gym.make("Pendulum-v1").unwrapped) for _ in range(2))
    one.reset(seed=3)
    for torque in np.random.default_rng(0).uniform(-2, 2, 30).astype(np.float32):
        one.step(np.array([torque]))
    other.episode = one.episode
    assert np.array_equal(one.observation, other.observation)
