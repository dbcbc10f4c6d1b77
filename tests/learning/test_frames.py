"""The replay of images: each frame once, and every observation as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anyreward as ar
import anyreward.learning.frames as frames_module
from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.frames import Frames, check_memory
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import RunSettings, split_changes
from anyreward.training.train import untrained
from anyreward.worlds.stepping import opened

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
    replay, added = Replay(capacity, frames=Frames(IMAGE, 8)), []
    for _ in range(6):
        rows = episode(int(rng.integers(1, 20)), new, rng)
        replay.add(rows)
        added.append(rows)
    everything = Transitions(
        *(torch.cat(column) for column in zip(*(rows.columns.values() for rows in added), strict=True))
    )
    held = replay.at(torch.arange(len(replay)))
    assert len(replay) == min(capacity, len(everything.actions))
    last = everything.at(torch.arange(len(everything.actions) - len(replay), len(everything.actions)))
    order = (replay.added - len(replay) + torch.arange(len(replay))) % capacity  # oldest first
    for ours, theirs in zip(held.columns.values(), last.columns.values(), strict=True):
        assert torch.equal(ours[order], theirs)
    assert replay.frames is not None
    used = torch.cat([replay.transitions.observations, replay.transitions.next_observations])
    assert replay.frames.kept == len(used.unique())  # nothing lost, nothing left over


def test_each_frame_is_kept_once() -> None:
    rng, replay = np.random.default_rng(0), Replay(1_000, frames=Frames(IMAGE, 8))
    replay.add(episode(100, 3, rng))
    assert replay.frames is not None
    assert replay.frames.kept == 4 + 3 * 100
    replay.add(episode(1, 3, rng).map(lambda column: column.repeat(*([3] + [1] * (column.ndim - 1)))))
    assert replay.frames.kept == 4 + 3 * 100 + 7


def test_parallel_episodes_share_only_their_own() -> None:
    """Rows of several environments, step by step, as they are collected."""
    rng, replay = np.random.default_rng(1), Replay(1_000, frames=Frames(IMAGE, 8))
    played = [episode(20, 3, rng) for _ in range(5)]
    for t in range(20):
        now = (e.at(torch.tensor([t])).columns.values() for e in played)
        replay.add(Transitions(*(torch.cat(c) for c in zip(*now, strict=True))))
    assert replay.frames is not None
    assert replay.frames.kept == 5 * (4 + 3 * 20)
    for e in range(5):
        assert torch.equal(replay.at(torch.arange(e, 100, 5)).observations, played[e].observations)


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("expected", [10, 10_000])
def test_in_memory_or_in_a_file(in_file: bool, expected: int, tmp_path: Path) -> None:
    """More frames than were expected too."""
    file = tmp_path / "frames" if in_file else None
    store = Frames(IMAGE, expected, file)
    replay, rows = Replay(300, frames=store), episode(300, 3, np.random.default_rng(2))
    replay.add(rows)
    index = torch.randint(300, (500,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(replay.at(index).next_observations, rows.next_observations[index])
    if file:
        assert file.stat().st_size >= store.kept * 15
        with pytest.raises(UserError, match="exists already"):
            Frames(IMAGE, 10, file)
        store.close()
        assert not file.exists()


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Frames cannot be kept in"):
        Frames(IMAGE, 10, tmp_path / "nowhere" / "frames")


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


def test_half_a_million_steps_of_ms_pacman_fit_in_eleven_gigabytes() -> None:
    """By what some real ones take: frames, their numbers, and all else that is kept of a transition."""
    world = ar.open_world("ms-pacman")
    of_settings, of_run = split_changes(world.settings)
    agent = untrained(world, ar.preset("fast", **of_settings), RunSettings(**of_run))
    image = agent.model.observation_encoder.image
    assert image is not None
    replay = Replay(1_000, frames=Frames(image, 4_000))
    with opened(world, 2) as stepper:
        replay.add(Collector(stepper, agent.model.phi, 0).collect(300))
    assert replay.frames is not None
    columns = sum(column.element_size() * column[0].numel() for column in replay.transitions.columns.values())
    each = columns + replay.frames.kept / len(replay) * (84 * 84 + 4)  # and a count for each frame
    assert 500_000 * each < 11e9
