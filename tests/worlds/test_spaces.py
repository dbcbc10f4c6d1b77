from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward import UserError
from anyreward.model.encoding import Encoder
from anyreward.model.features import feature_map
from anyreward.model.model import make_encoders
from anyreward.worlds.actions import action_set
from anyreward.worlds.spaces import (
    Leaf,
    is_single,
    leaves,
    pack,
    same_kind,
    space_from_json,
    space_to_json,
    stack,
    take,
    texts,
    with_final,
)
from anyreward.worlds.world import open_world

shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
basic = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 6), start=st.integers(-3, 3)),
    st.builds(lambda shape: spaces.Box(-2.0, 7.0, shape, np.float32), shapes),
    st.builds(lambda shape: spaces.Box(-np.inf, np.inf, shape, np.float64), shapes),
    st.builds(lambda shape: spaces.Box(0, 255, shape, np.uint8), shapes),
    sizes.map(lambda n: spaces.MultiDiscrete(n, start=[3 * i - 2 for i in range(len(n))])),
    sizes.map(lambda n: spaces.MultiDiscrete([n, n])),
    st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 3), st.lists(st.integers(1, 3), min_size=1, max_size=2))),
)
nested = st.recursive(
    basic,
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abcd"), part, min_size=1, max_size=3).map(spaces.Dict),
        st.permutations(["z", "a", "m"]).flatmap(
            lambda keys: st.tuples(part, part, part).map(
                lambda parts: spaces.Dict(OrderedDict(zip(keys, parts, strict=True)))
            )
        ),
    ),
    max_leaves=6,
)


def batch_of(space: gym.Space[Any], n: int, seed: int) -> tuple[list[Any], Any]:
    """Elements of a space, and the same batched by Gymnasium."""
    space.seed(seed)
    elements = [space.sample() for _ in range(n)]
    empty = gym.vector.utils.create_empty_array(space, n)
    return elements, gym.vector.utils.concatenate(space, elements, empty)


def flat(space: gym.Space[Any], elements: list[Any]) -> np.ndarray:
    return np.stack([np.asarray(spaces.flatten(space, e), dtype=np.float32) for e in elements])


@settings(max_examples=80, deadline=None)
@given(space=nested, n=st.integers(1, 4), seed=st.integers(0, 99))
def test_encoding_is_gymnasiums_flatten(space: gym.Space[Any], n: int, seed: int) -> None:
    elements, batch = batch_of(space, n, seed)
    rows = pack(space, batch)
    assert rows.dtype == np.float32
    assert rows.shape == (n, sum(leaf.packed for leaf in leaves(space)))
    encoder = Encoder(space, normalise=False)
    encoded = encoder(torch.from_numpy(rows)).numpy()
    assert encoded.shape == (n, encoder.width) == (n, spaces.flatdim(space))
    assert np.array_equal(encoded, flat(space, elements))


@settings(max_examples=40, deadline=None)
@given(space=nested, seed=st.integers(0, 99))
def test_single_elements_batches_and_taking(space: gym.Space[Any], seed: int) -> None:
    elements, batch = batch_of(space, 3, seed)
    rows = pack(space, batch)
    assert is_single(space, elements[0])
    assert not is_single(space, batch)
    assert not is_single(space, take(space, elements[0], None))
    for i, element in enumerate(elements):
        assert np.array_equal(pack(space, take(space, element, None)), rows[i : i + 1])
        assert is_single(space, take(space, batch, i))
        assert np.array_equal(pack(space, take(space, take(space, batch, i), None)), rows[i : i + 1])
    assert np.array_equal(pack(space, take(space, batch, np.array([2, 0]))), rows[[2, 0]])
    assert np.array_equal(pack(space, take(space, batch, slice(1, 3))), rows[1:3])


@settings(max_examples=40, deadline=None)
@given(space=nested, seed=st.integers(0, 99))
def test_json_round_trip_packs_the_same(space: gym.Space[Any], seed: int) -> None:
    _, batch = batch_of(space, 3, seed)
    again = space_from_json(json.loads(json.dumps(space_to_json(space))))
    assert np.array_equal(pack(again, batch), pack(space, batch))
    assert list(leaves(again)) == list(leaves(space))
    assert space_to_json(again) == space_to_json(space)


def test_a_box_of_truth_values_survives_json() -> None:
    space = spaces.Box(0, 1, (2,), np.bool_)
    again = space_from_json(space_to_json(space))
    assert (again.shape, again.dtype) == (space.shape, space.dtype)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (84, 84), np.uint8),
        spaces.Box(np.array([-1, 0], np.float32), np.array([1, 3], np.float32)),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Dict({"goal": spaces.Box(-1, 1, (3,), np.float64)}),
    ],
)
def test_bounds_survive_json(space: gym.Space[Any]) -> None:
    assert space_from_json(json.loads(json.dumps(space_to_json(space)))) == space


def test_packing_by_hand() -> None:
    space = spaces.Dict(
        {"a": spaces.Discrete(3, start=5), "b": spaces.Tuple([spaces.Box(0, 9, (2,)), spaces.MultiBinary(1)])}
    )
    batch = {"a": np.array([5, 7]), "b": (np.array([[1.5, 2], [3, 4]]), np.array([[0], [1]]))}
    assert pack(space, batch).tolist() == [[0, 1.5, 2, 0], [2, 3, 4, 1]]
    encoded = Encoder(space, normalise=False)(torch.from_numpy(pack(space, batch)))
    assert encoded.tolist() == [[1, 0, 0, 1.5, 2, 0], [0, 0, 1, 3, 4, 1]]


@pytest.mark.parametrize(
    ("space", "element", "message"),
    [
        (spaces.Box(0, 1, (2,)), np.zeros(3), r"shape \(2,\).*got shape \(3,\)"),
        (spaces.Box(0, 1, (2,)), np.zeros((4, 2, 2)), r"got shape \(4, 2, 2\)"),
        (spaces.Discrete(3), np.zeros((2, 2)), r"got shape \(2, 2\)"),
        (spaces.Dict({"a": spaces.Discrete(2)}), 1, r"keys \['a'\], got int"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, r"keys \['a'\], got dict"),
        (spaces.Tuple([spaces.Discrete(2)]), 1, "got int"),
    ],
)
def test_neither_element_nor_batch(space: gym.Space[Any], element: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        is_single(space, element)


@pytest.mark.parametrize("name", ["Graph", "Sequence"])
def test_unsupported_spaces_are_named_with_their_place(name: str) -> None:
    bad: gym.Space[Any] = {
        "Graph": spaces.Graph(spaces.Discrete(2), None),
        "Sequence": spaces.Sequence(spaces.Discrete(2)),
    }[name]
    supported = "Supported: Discrete, Box, MultiDiscrete, MultiBinary, and Tuple or Dict"
    with pytest.raises(UserError, match=rf"^{name} .*{supported}"):
        Encoder(bad)
    inside = spaces.Dict({"ok": spaces.Discrete(2), "words": spaces.Tuple([spaces.Discrete(2), bad])})
    with pytest.raises(UserError, match=rf"^{name} \(part 1 of 'words' of the space\).*{supported}"):
        list(leaves(inside))
    with pytest.raises(UserError, match=rf"^{name} .*{supported}"):
        space_to_json(inside)


def test_text_beside_other_parts_has_no_columns() -> None:
    space = spaces.Dict({"a mission": spaces.Text(9), "at": spaces.Tuple([spaces.Text(9), spaces.Discrete(3)])})
    assert texts(space) == ["'a mission'", "part 0 of 'at'"]
    assert list(leaves(space)) == [Leaf("one-hot", 1, 3)]
    one = {"a mission": "go", "at": ("left", 2)}
    assert is_single(space, one)
    assert pack(space, take(space, one, None)).tolist() == [[2]]
    batch = stack(space, [one, {"a mission": "stay there", "at": ("right", 0)}])
    assert not is_single(space, batch)
    assert pack(space, batch).tolist() == [[2], [0]]
    after = with_final(space, batch, np.array([None, {"a mission": "a long one", "at": ("x", 1)}]), np.array([0, 1]))
    assert pack(space, after).tolist() == [[2], [1]]
    assert after["a mission"].tolist() == ["go", "a long one"]
    again = space_from_json(json.loads(json.dumps(space_to_json(space))))
    assert list(again.spaces) == list(space.spaces)
    assert same_kind(again, space)
    assert not same_kind(again, spaces.Dict({"a mission": spaces.Discrete(2), "at": space["at"]}))


@pytest.mark.parametrize("space", [spaces.Text(4), spaces.Dict({"mission": spaces.Text(4)})])
def test_text_alone_is_refused(space: gym.Space[Any]) -> None:
    with pytest.raises(UserError, match=r"Text.*TransformObservation"):
        make_encoders(feature_map("auto", space, 2), True, "plain", "plain")


def test_an_unknown_space_in_json() -> None:
    with pytest.raises(UserError, match="'Torus'"):
        space_from_json({"type": "Torus"})


def test_discrete_actions_and_those_of_a_box() -> None:
    assert action_set(spaces.Discrete(7, start=2)).count == 7
    assert open_world("Pendulum-v1").actions == 0
    for space in (spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(3), spaces.Dict({"a": spaces.Discrete(2)})):
        with pytest.raises(UserError, match="supported: Discrete, and Box with finite bounds"):
            action_set(space)
