"""The replay of images: each frame once, and every observation as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward.learning.frames as frames_module
from anyreward.errors import UserError
from anyreward.learning.frames import Frames, check_memory
from anyreward.learning.replay import Replay, Transitions

IMAGE = (4, 3, 5)


def episode(steps: int, new: int, rng: np.random.Generator) -> Transitions:
    """Observations of four frames, of which each step brings ``new``."""
    film = rng.integers(0, 256, (4 + steps * new, 15), dtype=np.uint8)
    stacks = torch.from_numpy(np.stack([film[t * new : t * new + 4].ravel() for t in range(steps + 1)]))
    return Transitions(
        stacks[:-1],
        torch.arange(steps),
        stacks[1:],
        torch.zeros(steps, dtype=torch.bool),
        torch.rand(steps, 2),
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), capacity=st.integers(1, 60), new=st.integers(1, 4))
def test_every_observation_comes_back(seed: int, capacity: int, new: int) -> None:
    rng = np.random.default_rng(seed)
    replay, added = Replay(capacity, frames=Frames(IMAGE)), []
    for _ in range(6):
        rows = episode(int(rng.integers(1, 20)), new, rng)
        replay.add(rows)
        added.append(rows)
    everything = Transitions(*(torch.cat(column) for column in zip(*added, strict=True)))
    held = replay.at(torch.arange(len(replay)))
    assert len(replay) == min(capacity, len(everything.actions))
    last = everything.at(torch.arange(len(everything.actions) - len(replay), len(everything.actions)))
    order = (replay.added - len(replay) + torch.arange(len(replay))) % capacity  # oldest first
    for ours, theirs in zip(held, last, strict=True):
        assert torch.equal(ours[order], theirs)
    assert replay.frames is not None
    used = torch.cat([replay.transitions.observations, replay.transitions.next_observations])
    assert replay.frames.kept == len(used.unique())  # nothing lost, nothing left over


def test_each_frame_is_kept_once() -> None:
    rng, replay = np.random.default_rng(0), Replay(1_000, frames=Frames(IMAGE))
    replay.add(episode(100, 3, rng))
    assert replay.frames is not None
    assert replay.frames.kept == 4 + 3 * 100
    replay.add(Transitions(*(column.repeat(*([3] + [1] * (column.ndim - 1))) for column in episode(1, 3, rng))))
    assert replay.frames.kept == 4 + 3 * 100 + 7


def test_parallel_episodes_share_only_their_own() -> None:
    """Rows of several environments, step by step, as they are collected."""
    rng, replay = np.random.default_rng(1), Replay(1_000, frames=Frames(IMAGE))
    played = [episode(20, 3, rng) for _ in range(5)]
    for t in range(20):
        replay.add(Transitions(*(torch.cat(c) for c in zip(*(e.at(torch.tensor([t])) for e in played), strict=True))))
    assert replay.frames is not None
    assert replay.frames.kept == 5 * (4 + 3 * 20)
    for e in range(5):
        assert torch.equal(replay.at(torch.arange(e, 100, 5)).observations, played[e].observations)


@pytest.mark.parametrize("in_file", [False, True])
def test_many_blocks_in_memory_or_in_a_file(in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "BLOCK", 64)
    file = tmp_path / "frames" if in_file else None
    store = Frames(IMAGE, file)
    replay, rows = Replay(300, frames=store), episode(300, 3, np.random.default_rng(2))
    replay.add(rows)
    index = torch.randint(300, (500,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(replay.at(index).next_observations, rows.next_observations[index])
    if file:
        assert file.stat().st_size % (64 * 15) == 0
        with pytest.raises(UserError, match="exists already"):
            Frames(IMAGE, file)
        store.close()
        assert not file.exists()


def test_memory_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_memory(1_000, 3, 7056, "")
    monkeypatch.setattr(frames_module, "available_memory", lambda: 10 * 10**9)
    with pytest.raises(UserError, match=r"21\.2 GB, but 10\.0 GB are free in memory. Lower replay_size \(to 425,170\)"):
        check_memory(1_000_000, 3, 7056, "")
    check_memory(1_000, 3, 7056, str(tmp_path / "frames"))
    with pytest.raises(UserError, match="on the disk"):
        check_memory(10**12, 3, 7056, str(tmp_path / "frames"))
    with pytest.raises(UserError, match="there is no folder"):
        check_memory(1, 3, 7056, str(tmp_path / "nowhere" / "frames"))


def test_half_a_million_steps_fit_in_eleven_gigabytes() -> None:
    """84 x 84 pixels, three new frames a step; and what is known about each frame is small."""
    assert 500_000 * 3 * 84 * 84 + 500_000 * (2 * 4 * 8 + 8 + 1 + 8) + 1_500_000 * 12 < 11e9
