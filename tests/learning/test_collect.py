from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice, pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from anyreward import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.replay import Transitions
from anyreward.model.features import feature_map
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.stepping import Stepper

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
ACTIONS = ActionSet(3, start=5)
COUNT, LAST, WHO = range(3)


class Counting(gym.Env[Any, Any]):
    """Counts its steps from 0 and ends at ``limit``; observes (count, last action, who)."""

    action_space = ACTIONS.space

    def __init__(self, who: int, limit: int, truncates: bool, goal: bool = False) -> None:
        self.who, self.limit, self.truncates, self.goal = who, limit, truncates, goal
        box = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space: gym.Space[Any] = box
        if goal:
            half = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
            self.observation_space = gym.spaces.Dict({"observation": box, "achieved_goal": half})
        self.count, self.last = limit, 0

    def observe(self) -> Any:
        observation = np.array([self.count, self.last, self.who], dtype=np.float32)
        if self.goal:
            return {"observation": observation, "achieved_goal": observation[:1] / 2}
        return observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.last = 0, 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.count < self.limit, "stepped after the end"
        assert self.action_space.contains(action)
        self.count, self.last = self.count + 1, int(action)
        end = self.count == self.limit
        return self.observe(), 0.0, end and not self.truncates, end and self.truncates, {}


LIMITS = [1, 3, 4, 7]
TRUNCATES = [False, True, False, True]


def collector(
    mode: AutoresetMode,
    features: Any = "auto",
    include_action: bool = False,
    goal: bool = False,
    next_features: bool = False,
) -> Collector:
    def make(i: int) -> Counting:
        return Counting(i, LIMITS[i], TRUNCATES[i], goal)

    env = SyncVectorEnv([lambda i=i: make(i) for i in range(4)], autoreset_mode=mode)
    fm = feature_map(features, env.single_observation_space, ACTIONS, include_action)
    return Collector(Stepper(env), fm, seed=0, next_features=next_features)


def check(t: Transitions) -> None:
    """Every transition is a true one, and the episodes of each environment are complete and in order."""
    assert torch.equal(t.next_observations[:, COUNT], t.observations[:, COUNT] + 1)
    assert torch.equal(t.next_observations[:, WHO], t.observations[:, WHO])
    assert torch.equal(t.next_observations[:, LAST], t.actions + 5.0)  # actions are kept from 0, sent from start
    who = t.observations[:, WHO].long()
    ends = t.next_observations[:, COUNT] == torch.tensor(LIMITS)[who]
    assert torch.equal(t.terminated, ends & ~torch.tensor(TRUNCATES)[who])
    for i, limit in enumerate(LIMITS):
        counts = t.observations[who == i, COUNT].tolist()
        assert len(counts) >= 10
        assert counts == list(islice(cycle(range(limit)), len(counts)))


@pytest.mark.parametrize("mode", MODES)
def test_transitions_never_bridge_a_reset(mode: AutoresetMode) -> None:
    t = collector(mode).collect(120)
    assert 120 <= len(t.actions) < 124
    check(t)
    assert [c.dtype for c in t.columns.values()] == [
        torch.float32,
        torch.int64,
        torch.float32,
        torch.bool,
        torch.float32,
    ]
    assert torch.equal(t.features, t.observations)
    assert t.actions.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", MODES)
def test_the_starts_of_episodes_are_recorded(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda i=i: Counting(i, LIMITS[i], TRUNCATES[i]) for i in range(4)], autoreset_mode=mode)
    phi = replace(feature_map("auto", env.single_observation_space, ACTIONS, False), ends=True)
    c = Collector(Stepper(env), phi, seed=0)
    rows = c.collect(120)
    begun = (rows.observations[:, COUNT] == 0) & (rows.observations[:, -1] < 0.5)
    assert c.starts.shape == (int(begun.sum()), 4)
    assert (c.starts[:, COUNT] == 0).all()
    assert (c.starts[:, LAST] == 0).all()
    assert c.starts[:, WHO].long().bincount().tolist() == rows.observations[begun, WHO].long().bincount().tolist()
    assert c.new_starts.tolist() == [False] * len(c.starts)  # not recorded


@pytest.mark.parametrize("mode", MODES)
def test_starts_in_states_that_were_never_visited_are_new(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda i=i: Counting(i, LIMITS[i], TRUNCATES[i]) for i in range(4)], autoreset_mode=mode)
    phi = replace(feature_map("auto", env.single_observation_space, ACTIONS, False), ends=True)
    first = Collector(Stepper(env), phi, seed=0, categorical=True)
    first.collect(120)
    seen: set[bytes] = set()
    for row, new in zip(first.starts.numpy(), first.new_starts.tolist(), strict=True):
        assert new == (row.tobytes() not in seen)
        seen.add(row.tobytes())
    again = Collector(Stepper(env), phi, seed=0, categorical=True)
    assert not again.load_state(*first.state())  # these environments were not recorded, but their states are known
    before = len(again.starts)
    again.collect(120)
    assert len(again.starts) > before
    assert not again.new_starts[before:].any()


@pytest.mark.parametrize("mode", MODES)
def test_collection_goes_on_where_it_stopped(mode: AutoresetMode) -> None:
    c = collector(mode)
    parts = [c.collect(10) for _ in range(12)]
    check(Transitions(*(torch.cat(column) for column in zip(*(p.columns.values() for p in parts), strict=True))))


@pytest.mark.parametrize("mode", MODES)
def test_a_goal_environment_shows_its_achieved_goal(mode: AutoresetMode) -> None:
    t = collector(mode, goal=True).collect(120)
    goal, observation = t.observations[:, :1], t.observations[:, 1:]  # a Dict packs its keys in order
    check(t._replace(observations=observation, next_observations=t.next_observations[:, 1:]))
    assert torch.equal(t.features, goal)
    assert torch.equal(goal[:, 0], observation[:, COUNT] / 2)
    assert torch.equal(t.next_observations[:, 0], t.next_observations[:, 1] / 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("features", ["auto", "achieved_goal", lambda s: s["observation"] * 10])
def test_next_features_are_those_of_the_next_state(mode: AutoresetMode, features: Any) -> None:
    """Of the one that ends an episode too, and not of the one that begins the next."""
    t = collector(mode, features, goal=True, next_features=True).collect(120)
    scale = 0.5 if t.features.shape[1] == 1 else 10.0
    seen = t.observations[:, 1:] if scale == 10 else t.observations[:, 1:2]
    following = t.next_observations[:, 1:] if scale == 10 else t.next_observations[:, 1:2]
    assert t.next_features is not None
    assert torch.equal(t.features, scale * seen)
    assert torch.equal(t.next_features, scale * following)


@pytest.mark.parametrize("mode", MODES)
def test_features_by_a_function_and_with_the_action(mode: AutoresetMode) -> None:
    t = collector(mode, lambda s: s[:, [COUNT, WHO]] * 10, include_action=True).collect(60)
    expected = torch.cat([t.observations[:, [COUNT, WHO]] * 10, t.actions[:, None].float()], 1)
    assert torch.equal(t.features, expected)
    assert len(t.features) == len(t.actions)


def test_a_feature_function_must_be_vectorised_and_finite() -> None:
    with pytest.raises(UserError, match=r"shape \(3,\) .*expected \(2, k\)"):
        collector(AutoresetMode.SAME_STEP, lambda s: s[0])
    with pytest.raises(UserError, match="NaN"):
        collector(AutoresetMode.SAME_STEP, lambda s: s * np.nan).collect(4)


def test_an_observation_that_is_not_finite_raises() -> None:
    class Broken(Counting):
        def observe(self) -> Any:
            return super().observe() * (np.nan if self.count == 2 else 1.0)

    env = SyncVectorEnv([lambda: Broken(0, 5, False)])
    c = Collector(Stepper(env), feature_map("auto", env.single_observation_space, ACTIONS), seed=0)
    with pytest.raises(UserError, match="NaN or infinity"):
        c.collect(5)


class Recorder:
    """Hands out z = 1, 2, 3, ... and records every call of the greedy policy."""

    def __init__(self) -> None:
        self.drawn = 0
        self.calls: list[tuple[Tensor, Tensor]] = []

    def draw_z(self, n: int) -> Tensor:
        self.drawn += n
        return torch.arange(self.drawn - n + 1, self.drawn + 1)[:, None].float()

    def greedy(self, observations: Tensor, z: Tensor) -> Tensor:
        self.calls.append((observations.clone(), z.clone()))
        return observations[:, COUNT].long() % 3


@pytest.mark.parametrize("mode", MODES)
def test_one_z_for_each_episode(mode: AutoresetMode) -> None:
    recorder, c = Recorder(), collector(mode)
    parts = [c.collect(30, 0.0, recorder.greedy, recorder.draw_z) for _ in range(4)]
    t = Transitions(*(torch.cat(column) for column in zip(*(p.columns.values() for p in parts), strict=True)))
    check(t)
    assert torch.equal(t.actions, t.observations[:, COUNT].long() % 3)  # greedy throughout

    seen: set[float] = set()
    for i, limit in enumerate(LIMITS):
        steps = [(int(s[i, COUNT]), z[i].item()) for s, z in recorder.calls if s[i, COUNT] < limit]
        for (_, z), (count, following) in pairwise(steps):
            assert (following != z) == (count == 0)
        used = {z for _, z in steps}
        assert not used & seen
        seen |= used


@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 1 / 3), (0.5, 2 / 3), (0.0, 1.0)])
def test_epsilon_is_the_share_of_uniform_actions(epsilon: float, share: float) -> None:
    recorder = Recorder()
    t = collector(AutoresetMode.SAME_STEP).collect(3000, epsilon, recorder.greedy, recorder.draw_z)
    greedy = t.actions == t.observations[:, COUNT].long() % 3
    assert greedy.float().mean().item() == pytest.approx(share, abs=0.045 if epsilon else 0)
    assert bool(recorder.calls) == (epsilon < 1)


def test_the_seed_fixes_the_actions() -> None:
    a, b = (collector(AutoresetMode.NEXT_STEP).collect(60) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.columns.values(), b.columns.values(), strict=True))


def test_our_vector_maze_and_gymnasiums_cart_pole() -> None:
    maze = gym.make_vec("anyreward/FourRooms-v0", num_envs=3)
    t = Collector(Stepper(maze), feature_map("auto", maze.single_observation_space, 5), seed=0).collect(600)
    to = maze.unwrapped.maze.successors  # type: ignore[attr-defined]
    assert (to[t.observations[:, 0].int(), t.actions] == t.next_observations[:, 0].int().numpy()).all()
    assert not t.terminated.any()

    poles = gym.make_vec("CartPole-v1", num_envs=3)
    t = Collector(Stepper(poles), feature_map("auto", poles.single_observation_space, 2), seed=0).collect(600)
    moved = t.observations[:, 0] + 0.02 * t.observations[:, 1]  # x' = x + dt v
    assert torch.allclose(moved, t.next_observations[:, 0], atol=1e-6)
    fallen = t.next_observations[:, 2].abs() > 12 * np.pi / 180
    assert torch.equal(fallen, t.terminated)
    assert fallen.any()
