"""Stepping: what every way of beginning new episodes must agree on, and whole episodes played at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import anyreward as ar
from anyreward.acting.play import play
from anyreward.worlds import stepping
from anyreward.worlds.spaces import pack_seen
from anyreward.worlds.stepping import Stepper, around, opened, together
from anyreward.worlds.world import open_world

NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
MODES = [NEXT_STEP, SAME_STEP, DISABLED]
START = 5
"""The number of the first action."""
LIMITS = [1, 3, 4, 7]
TRUNCATES = [False, True, False, True]
Array = np.ndarray[Any, Any]


class Counting(gym.Env[Any, Any]):
    """Counts its steps from 0, pays each step's number, and ends at ``limit``; keeps a log of every action taken.

    It observes which environment it is, its episode, the count and the last action, as numbers or as a dictionary.
    """

    action_space = gym.spaces.Discrete(3, start=START)
    all: ClassVar[list[Counting]] = []

    def __init__(self, who: int = 0, limit: int = 3, truncates: bool = False, nested: bool = False) -> None:
        self.who, self.limit, self.truncates, self.nested = who, limit, truncates, nested
        self.observation_space: gym.Space[Any] = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        if nested:
            parts = {"who": gym.spaces.Discrete(8), "place": gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)}
            self.observation_space = gym.spaces.Dict(parts)
        self.episode, self.count, self.last = -1, limit, 0
        self.log: list[tuple[list[float], int]] = []
        self.resets: list[dict[str, Any] | None] = []
        self.closed = False
        Counting.all.append(self)

    @property
    def numbers(self) -> list[float]:
        """What it observes, in the order in which a dictionary of its parts is packed."""
        place = [self.episode, self.count, self.last]
        return [*place, self.who] if self.nested else [self.who, *place]

    def observe(self) -> Any:
        if self.nested:
            return {"who": np.int64(self.who), "place": np.array(self.numbers[:3], np.float32)}
        return np.array(self.numbers, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.count, self.last = self.episode + 1, 0, 0
        self.resets.append(options)
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert not self.closed
        assert self.count < self.limit, "stepped after the end"
        assert self.action_space.contains(action)
        self.log.append((self.numbers, int(action)))
        self.count, self.last = self.count + 1, int(action)
        end = self.count == self.limit
        return self.observe(), float(self.count), end and not self.truncates, end and self.truncates, {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def none_before() -> None:
    Counting.all.clear()


def vector(mode: AutoresetMode, nested: bool = False, copy: bool = True, limits: list[int] = LIMITS) -> SyncVectorEnv:
    """Environments that end after 1, 3, 4 and 7 steps: every other one terminates, the others are truncated."""
    envs = [Counting(i, limit, TRUNCATES[i], nested) for i, limit in enumerate(limits)]
    return SyncVectorEnv([lambda env=env: env for env in envs], copy=copy, autoreset_mode=mode)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_what_happened(mode: AutoresetMode, nested: bool, copy: bool) -> None:
    stepper, rng = Stepper(vector(mode, nested, copy)), np.random.default_rng(0)
    envs, n, space = Counting.all, len(LIMITS), stepper.space
    stepper.reset(seed=0)
    over, seen_over, invalid = np.zeros(n, dtype=bool), np.zeros(n, dtype=int), 0
    for _ in range(40):
        here, before = stepper.packed.copy(), [len(env.log) for env in envs]
        assert np.array_equal(pack_seen(space, stepper.observations), here)
        actions = rng.integers(3, size=n) + START
        step = stepper.step(actions)
        # only NEXT_STEP has steps that merely begin an episode, and those follow an end at once
        assert step.valid.tolist() == (~over if mode is NEXT_STEP else np.ones(n, dtype=bool)).tolist()
        assert np.array_equal(step.over, step.terminated | step.truncated)
        assert np.array_equal(pack_seen(space, step.observations), step.packed)
        assert step.packed.shape == here.shape == (n, 4)
        for i, env in enumerate(envs):
            who, episode, count, last = place(step.packed[i], nested)
            assert who == i
            if not step.valid[i]:
                assert len(env.log) == before[i]  # its action was ignored
                assert (episode, count, last) == (place(here[i], nested)[1] + 1, 0, 0)
                assert (step.rewards[i], step.over[i]) == (0.0, False)
                continue
            assert len(env.log) == before[i] + 1
            seen, action = env.log[-1]
            assert here[i].tolist() == seen  # packed was where the action was taken
            assert action == actions[i]
            _, was_in, was_at, _ = place(here[i], nested)
            assert (episode, count, last) == (was_in, was_at + 1, action)  # and the step led on in the same episode
            assert step.rewards[i] == count
            assert step.terminated[i] == (count == LIMITS[i] and not TRUNCATES[i])
            assert step.truncated[i] == (count == LIMITS[i] and TRUNCATES[i])
        over, invalid = step.over, invalid + int((~step.valid).sum())
        seen_over += over
        for i in np.flatnonzero(over):
            _, episode, count, _ = place(stepper.packed[i], nested)
            ended = (place(step.packed[i], nested)[1], LIMITS[i])
            # where the next action goes: nowhere yet, or to the start of the next episode
            assert (episode, count) == (ended if mode is NEXT_STEP else (ended[0] + 1, 0))
    assert seen_over.min() >= 5
    assert invalid == (seen_over - over).sum() * (mode is NEXT_STEP)
    begun = 1 + seen_over - over * (mode is NEXT_STEP)
    assert [len(env.resets) for env in envs] == begun.tolist()  # an episode is begun once


def place(row: Array, nested: bool) -> tuple[float, ...]:
    """(who, episode, count, last action) of a packed observation."""
    numbers = row.tolist()
    return (numbers[3], *numbers[:3]) if nested else tuple(numbers)


@pytest.mark.parametrize("mode", MODES)
def test_what_a_step_returned_is_not_changed_by_the_next(mode: AutoresetMode) -> None:
    """Also where the environments use the memory of their observations again."""
    stepper = Stepper(vector(mode, copy=False))
    stepper.reset(seed=0)
    kept = []
    for _ in range(12):
        here = stepper.packed
        step = stepper.step(np.full(len(LIMITS), START))
        parts = (here, step.packed, step.rewards, step.terminated, step.truncated, step.valid)
        kept.append((parts, [part.copy() for part in parts]))
    for parts, copies in kept:
        assert all(np.array_equal(part, copied) for part, copied in zip(parts, copies, strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", range(1, 6))
def test_a_reset_begins_anew_everywhere(mode: AutoresetMode, steps: int) -> None:
    stepper, actions = Stepper(vector(mode)), np.full(len(LIMITS), START)
    stepper.reset(seed=0)
    for _ in range(steps):
        stepper.step(actions)
    begun = [env.episode for env in Counting.all]
    stepper.reset(options={"told": 1})
    assert [env.episode for env in Counting.all] == [episode + 1 for episode in begun]
    assert all(env.resets[-1] == {"told": 1} for env in Counting.all)
    assert stepper.packed[:, 2].tolist() == [0, 0, 0, 0]
    step = stepper.step(actions)
    assert step.valid.all()
    assert step.packed[:, 2].tolist() == [1, 1, 1, 1]
    assert step.terminated.tolist() == [True, False, False, False]


def test_an_environment_that_does_not_say_begins_in_the_next_step() -> None:
    """The default of Gymnasium."""
    env = vector(NEXT_STEP)
    env.metadata = {key: value for key, value in env.metadata.items() if key != "autoreset_mode"}
    stepper, actions = Stepper(env), np.full(len(LIMITS), START)
    stepper.reset()
    assert [stepper.step(actions).valid[0] for _ in range(4)] == [True, False, True, False]


@pytest.mark.parametrize("mode", MODES)
def test_numbers_that_are_none_are_refused(mode: AutoresetMode) -> None:
    class Broken(Counting):
        def observe(self) -> Any:
            return np.full(4, np.nan if self.count == 2 else 0, np.float32)

    stepper = Stepper(SyncVectorEnv([lambda: Broken(limit=2)], autoreset_mode=mode))
    stepper.reset()
    stepper.step(np.full(1, START))
    with pytest.raises(ar.UserError, match="NaN or infinity"):
        stepper.step(np.full(1, START))


@pytest.fixture
def counting_id() -> Iterator[str]:
    """The id of an environment that Gymnasium can make."""
    gym.register("anyreward-tests/Counting-v0", entry_point=Counting, disable_env_checker=True)
    yield "anyreward-tests/Counting-v0"
    gym.registry.pop("anyreward-tests/Counting-v0")


def test_what_is_opened_by_an_id_is_closed(counting_id: str) -> None:
    world = open_world(counting_id)
    assert [env.closed for env in Counting.all] == [True]  # it was looked at
    with opened(world, 3) as stepper:
        assert stepper.num_envs == 3
        assert [env.closed for env in Counting.all[1:]] == [False] * 3
    assert [env.closed for env in Counting.all[1:]] == [True] * 3
    with pytest.raises(RuntimeError, match="on the way"), opened(world, 2):
        raise RuntimeError("on the way")
    assert [env.closed for env in Counting.all[4:]] == [True] * 2


@pytest.mark.parametrize("many", [False, True])
def test_an_object_stays_its_owners_to_close(many: bool) -> None:
    given = vector(SAME_STEP) if many else Counting()
    with opened(open_world(given), 3) as stepper:
        assert stepper.num_envs == (4 if many else 1)  # what was given, not what was asked for
        stepper.reset()
        stepper.step(np.full(stepper.num_envs, START))
    ar.evaluate(ar.RandomPolicy(3, START), given, episodes=5)
    ar.rollout(ar.RandomPolicy(3, START), Counting.all[0], episodes=2)
    assert not any(env.closed for env in Counting.all)
    given.reset()
    given.step(np.full(4, START) if many else START)


def test_how_many_play_together(counting_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = open_world(counting_id)
    assert [together(world, episodes) for episodes in (1, 7, 5_000)] == [1, 7, 1_000]
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    processes = open_world("ms-pacman")
    assert processes.own_process
    assert [together(processes, episodes) for episodes in (1, 7, 5_000)] == [1, 6, 6]


class Walk(gym.Env[Any, Any]):
    """A walk of 1 to 12 steps, as its seed and its actions decide; deterministic once it has begun."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2, start=1)
    all: ClassVar[list[Walk]] = []

    def __init__(self, fixed: float | None = None) -> None:
        self.fixed, self.closed = fixed, False
        Walk.all.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(0, 8) if self.fixed is None else self.fixed
        self.t = 0
        return np.array([self.x, self.t]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x, self.t = self.x + float(action), self.t + 1
        return np.array([self.x, self.t]), np.sin(3 * self.x) + self.t, self.x > 9, self.t == 12, {}

    def close(self) -> None:
        self.closed = True


class Parity:
    """Acts by the observation alone."""

    def act(self, observation: Any) -> int:
        return 1 + int(observation[0] * 7 + observation[1]) % 2


@pytest.fixture
def walk_id() -> Iterator[str]:
    Walk.all.clear()
    gym.register("anyreward-tests/Walk-v0", entry_point=Walk, disable_env_checker=True)
    yield "anyreward-tests/Walk-v0"
    gym.registry.pop("anyreward-tests/Walk-v0")


def one_after_the_other(seed: int, episodes: int) -> list[float]:
    """Returns by the plainest loop, each episode from a seed of its own: those that a vector environment gives."""
    policy, env, totals = Parity(), Walk(), []
    for i in range(episodes):
        observation, _ = env.reset(seed=seed + i)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            total, over = total + reward, terminated or truncated
        totals.append(total)
    return totals


def test_together_is_as_one_after_the_other(walk_id: str) -> None:
    expected = one_after_the_other(seed=3, episodes=50)
    assert len(set(expected)) == 50
    assert ar.evaluate(Parity(), walk_id, episodes=50, seed=3).totals.tolist() == pytest.approx(expected, rel=1e-12)
    alone = [ar.rollout(Parity(), Walk(), seed=3 + i)[0].total for i in range(50)]
    assert alone == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("episodes", [1, 4, 11])
@pytest.mark.parametrize("at_once", [1, 4])
def test_many_waves_are_as_one_after_the_other(
    walk_id: str, at_once: int, episodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every start is the same, every return is."""
    monkeypatch.setattr(stepping, "MOST_AT_ONCE", at_once)
    world = open_world(walk_id)
    starts = [0.2, 3.7, 5.1, 8.6]
    for start in starts:
        gym.registry[walk_id].kwargs = {"fixed": start}
        (whole,) = ar.rollout(Parity(), Walk(start))
        assert ar.evaluate(Parity(), world, episodes).totals.tolist() == pytest.approx([whole.total] * episodes)


def test_every_wave_has_starts_of_its_own(walk_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed is that of the first wave alone; else all waves would be one."""
    monkeypatch.setattr(stepping, "MOST_AT_ONCE", 3)
    first, again, other = (ar.evaluate(Parity(), walk_id, episodes=11, seed=seed).totals for seed in (3, 3, 4))
    assert len(set(first.tolist())) == 11
    assert first[:3].tolist() == pytest.approx(one_after_the_other(seed=3, episodes=3), rel=1e-12)
    assert np.array_equal(again, first)
    assert not np.array_equal(other, first)


@pytest.mark.parametrize("mode", MODES)
def test_short_episodes_are_not_favoured(mode: AutoresetMode) -> None:
    """Every environment plays one episode a wave, however long the others take."""
    limits = [1, 3, 50, 7]
    totals = [limit * (limit + 1) / 2 for limit in limits]
    played = ar.evaluate(ar.RandomPolicy(3, START), vector(mode, limits=limits), episodes=10).totals
    assert played.tolist() == [*totals, *totals, *totals[:2]]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_recorded_whole(mode: AutoresetMode, copy: bool) -> None:
    """Also where the environments use the memory of their observations again."""
    stepper = Stepper(vector(mode, copy=copy))
    played = play(ar.RandomPolicy(3, START), stepper, episodes=10)
    assert len(played) == 10
    for i, episode in enumerate(played):
        limit = LIMITS[i % 4]
        assert [o[2] for o in episode.observations] == list(range(limit + 1))
        assert {o[0] for o in episode.observations} == {i % 4}
        assert len({o[1] for o in episode.observations}) == 1
        assert [o[3] for o in episode.observations] == [0, *episode.actions]
        assert episode.rewards.tolist() == list(range(1, limit + 1))
        assert episode.terminated == (not TRUNCATES[i % 4])


def test_one_environment_is_reset_once_an_episode() -> None:
    env, seen = Counting(limit=3), []
    played = play(
        ar.RandomPolicy(3, START), around(env), 4, options={"told": 1}, on_step=lambda: seen.append(env.count)
    )
    assert env.resets == [{"told": 1}] * 4
    assert seen == [0, 1, 2, 3] * 4
    assert [len(episode.actions) for episode in played] == [3] * 4
    cut = ar.rollout(ar.RandomPolicy(3, START), env, episodes=2, max_steps=2)
    assert [len(episode.actions) for episode in cut] == [2, 2]
    assert not any(episode.terminated for episode in cut)


def test_evaluate_closes_what_it_opens(walk_id: str) -> None:
    ar.evaluate(Parity(), walk_id, episodes=6)
    assert len(Walk.all) == 7  # one to look at, six to play
    assert all(env.closed for env in Walk.all)

    class Tired(Parity):
        def act(self, observation: Any) -> int:
            raise RuntimeError("tired")

    with pytest.raises(RuntimeError, match="tired"):
        ar.evaluate(Tired(), walk_id, episodes=3)
    assert len(Walk.all) == 7 + 4
    assert all(env.closed for env in Walk.all)


def test_evaluate_needs_an_episode(walk_id: str) -> None:
    with pytest.raises(ar.UserError, match="episodes is 0"):
        ar.evaluate(Parity(), walk_id, episodes=0)
    with pytest.raises(ar.UserError, match="episodes is 0"):
        ar.rollout(Parity(), Walk(), episodes=0)


@pytest.mark.parametrize("mode", MODES)
def test_repeated_actions_are_one_step_that_ends_with_the_episode(mode: AutoresetMode) -> None:
    """Episodes of 1, 2, 3 and 5 steps, three at a time."""
    stepper, once = Stepper(vector(mode)), np.full(len(LIMITS), START)
    stepper.reset(seed=0)
    for _ in range(12):
        before = stepper.packed.copy()
        step = stepper.step_repeated(once, 3)
        for i, limit in enumerate(LIMITS):
            if not step.valid[i]:
                continue
            _, was_in, was_at, _ = place(before[i], False)
            _, episode, count, _ = place(step.packed[i], False)
            assert (episode, count) == (was_in, min(was_at + 3, limit))
            assert step.over[i] == (count == limit)
            assert step.rewards[i] == np.mean(np.arange(was_at + 1, count + 1))  # the counts, as in `Counting`
            assert np.array_equal(pack_seen(stepper.space, step.observations)[i], step.packed[i])
