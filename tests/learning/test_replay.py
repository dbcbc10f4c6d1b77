from __future__ import annotations

import pytest
import torch

from anyreward import UserError
from anyreward.learning.replay import Replay, Transitions


def rows(first: int, n: int) -> Transitions:
    """Transitions numbered from ``first``; every column tells the number."""
    number = torch.arange(first, first + n)
    return Transitions(
        observations=torch.stack([number, -number], 1).float(),
        actions=number % 5,
        next_observations=torch.stack([number + 1, -number - 1], 1).float(),
        terminated=number % 3 == 0,
        features=number[:, None].float() / 2,
    )


def same(a: Transitions, b: Transitions) -> bool:
    return all(
        x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a.columns.values(), b.columns.values(), strict=True)
    )


def numbers(replay: Replay) -> list[int]:
    return [int(x) for x in replay.transitions.observations[:, 0]]


def test_holds_what_was_added_in_order() -> None:
    replay = Replay(100)
    assert len(replay) == 0
    replay.add(rows(0, 3))
    replay.add(rows(3, 4))
    assert len(replay) == 7
    assert same(replay.transitions, rows(0, 7))


def test_dtypes() -> None:
    replay = Replay(4)
    replay.add(rows(0, 6))
    kinds = [column.dtype for column in replay.transitions.columns.values()]
    assert kinds == [torch.float32, torch.int64, torch.float32, torch.bool, torch.float32]


def test_the_oldest_make_room() -> None:
    replay = Replay(10)
    for first in range(0, 28, 4):
        replay.add(rows(first, 4))
        held = numbers(replay)
        assert len(replay) == len(held) == min(10, first + 4)
        assert sorted(held) == list(range(max(0, first + 4 - 10), first + 4))
    order = replay.transitions.observations[:, 0].argsort()
    assert same(replay.transitions.at(order), rows(18, 10))  # the columns stay together


@pytest.mark.parametrize("before", [0, 1, 7, 10, 13])
def test_one_add_larger_than_the_capacity_leaves_its_last_rows(before: int) -> None:
    replay = Replay(10)
    replay.add(rows(0, before))
    replay.add(rows(100, 25))
    assert sorted(numbers(replay)) == list(range(115, 125))
    replay.add(rows(200, 3))
    assert sorted(numbers(replay)) == [*range(118, 125), 200, 201, 202]


def test_grows_without_losing_rows() -> None:
    replay = Replay(20_000)
    for first in range(0, 15_000, 3000):
        replay.add(rows(first, 3000))
    assert same(replay.transitions, rows(0, 15_000))
    replay.add(rows(15_000, 9000))  # grows to its capacity and wraps in one add
    assert len(replay) == 20_000
    assert sorted(numbers(replay)) == list(range(4000, 24_000))


def test_at_takes_the_same_rows_of_every_column() -> None:
    index = torch.tensor([4, 0, 0])
    taken = rows(10, 5).at(index)
    assert taken.observations[:, 0].tolist() == [14, 10, 10]
    assert taken.actions.tolist() == [4, 0, 0]
    assert taken.next_observations[:, 1].tolist() == [-15, -11, -11]
    assert taken.terminated.tolist() == [False, False, False]
    assert taken.features[:, 0].tolist() == [7, 5, 5]


def test_the_replay_keeps_its_own_copy() -> None:
    replay, new = Replay(10), rows(0, 3)
    replay.add(new)
    new.observations.zero_()
    assert same(replay.transitions, rows(0, 3))


def test_empty() -> None:
    replay = Replay(10)
    replay.add(rows(0, 0))
    assert len(replay) == 0
    with pytest.raises(UserError, match="empty"):
        _ = replay.transitions
