"""Environments that misbehave are refused in one line that names them; those that are only unusual work."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import anyreward as ar
from anyreward.selfcheck.environments import ID, LATE, TINY, Broken, Fault, attack, enter, faults, registered
from anyreward.training import prepare
from anyreward.worlds.checked import Checked, WorldError, misfit, quick_fit
from anyreward.worlds.spaces import pack
from anyreward.worlds.stepping import Stepper, around, opened, time_limit
from anyreward.worlds.world import open_world

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)
SPACES: dict[str, gym.Space[Any]] = {
    "numbers": BOX,
    "category": spaces.Discrete(4, start=5),
    "whole numbers": spaces.Box(-(2**62), 2**62, (2,), np.int64),
    "bytes": spaces.Box(-100, 100, (2,), np.int8),
    "categories": spaces.MultiDiscrete([2, 3], start=[0, 5]),
    "bits": spaces.MultiBinary(3),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,), np.float64)]),
    "dict": spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float32), "on": spaces.Tuple([spaces.Discrete(2)])}),
}
MOMENTS = {"reset": 0, "first step": 1, "late step": LATE}


def cases(fine: bool) -> list[Any]:
    """(space, fault): all faults with numbers, and those of observations of other spaces."""
    common = {fault.name for fault in faults(BOX)}
    return [
        pytest.param(space, fault, id=f"{name}: {fault.name}")
        for name, space in SPACES.items()
        for fault in faults(space)
        if fault.fine is fine and (name == "numbers" or fault.name not in common)
    ]


FAULTS = cases(fine=False)


@pytest.fixture(scope="module", autouse=True)
def few_held_out() -> Iterator[None]:
    """Steps that only take time here."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in prepare.HELD_OUT:
            patch.setitem(prepare.HELD_OUT, kind, 100)
        yield


@pytest.fixture(scope="module")
def agents() -> Callable[[gym.Space[Any]], ar.Agent]:
    """An agent for each space."""
    trained: list[tuple[gym.Space[Any], ar.Agent]] = []

    def agent(space: gym.Space[Any]) -> ar.Agent:
        for known, its in trained:
            if known is space:
                return its
        trained.append((space, ar.train(Broken(space), **TINY)))
        return trained[-1][1]

    return agent


def refusal(use: Callable[[], Any], name: str = "Broken") -> str:
    with pytest.raises(ar.UserError) as caught:
        use()
    line = str(caught.value)
    assert "\n" not in line
    assert name in line
    assert len(line) < 1_000
    return line


def test_the_table_is_long() -> None:
    assert len(FAULTS) > 140


@pytest.mark.parametrize(("space", "fault"), FAULTS)
def test_faults_are_refused(space: gym.Space[Any], fault: Fault, agents: Any) -> None:
    ways = [*(("evaluate", moment) for moment in MOMENTS), ("rollout", "late step"), ("sample", "late step")]
    for way, moment in ways:
        if moment == "reset" and not fault.resets:
            continue
        env = Broken(space, fault, moment)
        line = refusal(lambda env=env, way=way: enter(way, env, agents(space)))
        assert env.delivered
        assert env.steps <= MOMENTS[moment] + 1  # at once
        assert f"step {env.steps}" in line or f"reset after {env.steps} steps" in line


@pytest.mark.parametrize(("space", "fault"), FAULTS[::6])
def test_faults_end_training(space: gym.Space[Any], fault: Fault) -> None:
    env = Broken(space, fault, "late step")
    assert f"step {LATE}:" in refusal(lambda: ar.train(env, **TINY))


@pytest.mark.parametrize(("space", "fault"), FAULTS[::5])
def test_faults_of_registered_environments(space: gym.Space[Any], fault: Fault, agents: Any) -> None:
    agent = agents(space)
    for way, moment in (("evaluate", "first step"), ("sample", "late step")):
        with registered(space, fault, moment) as made:
            refusal(partial(enter, way, ID, agent), ID)
            assert any(env.delivered for env in made)


@pytest.mark.parametrize(("space", "fault"), FAULTS[::5])
def test_faults_in_a_given_vector_environment(space: gym.Space[Any], fault: Fault, agents: Any) -> None:
    envs = [Broken(space), Broken(space, fault, "late step")]
    vector = SyncVectorEnv([lambda env=env: env for env in envs])
    refusal(lambda: enter("evaluate", vector, agents(space)))
    assert vector.envs == envs  # as they were given


@pytest.mark.parametrize(("space", "fault"), cases(fine=True))
def test_what_is_only_unusual_works(space: gym.Space[Any], fault: Fault, agents: Any) -> None:
    for way in ("evaluate", "rollout", "sample"):
        env = Broken(space, fault)
        enter(way, env, agents(space))
        assert env.delivered


ODD = {
    "no dimension": spaces.Box(-1, 1, (), np.float32),
    "bool": spaces.Box(0, 1, (2,), np.bool_),
    "bits": spaces.MultiBinary([2, 2]),
    "start": spaces.Discrete(3, start=5),
    "nested": spaces.Dict(
        {"a": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"b": BOX})]), "c": spaces.MultiDiscrete([2, 2])}
    ),
    "float64": spaces.Box(-1, 1, (2,), np.float64),
    "float16": spaces.Box(-1, 1, (2,), np.float16),
    "int8": spaces.Box(-128, 127, (2,), np.int8),
    "uint32": spaces.Box(0, 2**20, (2,), np.uint32),
    "small": spaces.Discrete(3, dtype=np.int8),
    "large": spaces.Discrete(2**24),
    "one": spaces.Discrete(1),
    "text": spaces.Dict({"words": spaces.Text(5), "x": BOX}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_spaces_work(name: str) -> None:
    space = ODD[name]
    agent = None
    if name != "large":  # its one-hot inputs would fill the memory
        agent = ar.train(Broken(space), **TINY)
        agent.sample_rewards(Broken(space), budget=50, progress=False)
    ar.evaluate(ar.RandomPolicy(3, 1) if agent is None else agent.ask(ar.reward("1")), Broken(space), episodes=20)


@pytest.mark.parametrize("which", ["observation_space", "action_space"])
@pytest.mark.parametrize("value", [None, "missing", 5, [3], gym.spaces.Discrete, (BOX,)])
def test_spaces_that_are_none(which: str, value: Any) -> None:
    env = Broken(BOX)
    if value == "missing":
        delattr(env, which)
    else:
        setattr(env, which, value)
    for way in ("train", "evaluate", "rollout"):
        line = refusal(partial(enter, way, env))
        assert f"{which} is" in line
        assert "expected a gymnasium.Space" in line


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (0,)), spaces.Tuple([]), spaces.Dict({})])
def test_spaces_without_numbers(space: gym.Space[Any]) -> None:
    assert "at least one number" in refusal(partial(enter, "evaluate", Broken(space)))


def test_an_environment_that_cannot_be_made() -> None:
    def make(**_: Any) -> Any:
        raise ZeroDivisionError("no\nlicence")

    gym.register(ID, entry_point=make)
    try:
        for way in ("train", "evaluate"):
            line = refusal(partial(enter, way, ID), ID)
            assert "__init__: the environment raised ZeroDivisionError: no licence." in line
    finally:
        gym.registry.pop(ID)


def test_environments_that_differ() -> None:
    made = iter(range(100))
    gym.register(ID, entry_point=lambda **_: Broken(spaces.Discrete(2 + next(made))))
    try:
        assert "observation spaces are not equivalent" in refusal(partial(enter, "evaluate", ID), ID)
    finally:
        gym.registry.pop(ID)


def test_the_cause_is_kept_and_interrupts_pass() -> None:
    boom = Fault("boom", lambda r: 1 / 0)
    with pytest.raises(WorldError, match=r"^Broken, step 25: the environment raised ZeroDivisionError: ") as caught:
        ar.train(Broken(BOX, boom, "late step"), **TINY)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def stop(error: BaseException) -> Any:
        raise error

    for error in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            ar.evaluate(ar.RandomPolicy(3, 1), Broken(BOX, Fault("stop", lambda r, e=error: stop(e))))


def test_messages_say_what_was_given_expected_and_to_do() -> None:
    def line(change: Callable[[Any], Any], space: gym.Space[Any] = BOX, moment: str = "late step") -> str:
        return refusal(partial(enter, "evaluate", Broken(space, Fault("", change), moment)))

    assert line(lambda r: r[:4]) == (
        "Broken, step 25: step returned 4 values; expected 5 values. Return (observation, reward, terminated, "
        "truncated, info); an environment of the old Gym needs a wrapper."
    )
    assert line(lambda r: (r[0][:2], *r[1:])) == (
        "Broken, step 25: the observation has the shape (2,); expected (3,). Correct the observation or "
        "observation_space (gymnasium.wrappers.TransformObservation)."
    )
    assert "reset after 0 steps: the info is None; expected a dict" in line(lambda r: (r[0], None), moment="reset")
    assert "the reward is nan; expected a finite number" in line(lambda r: (r[0], np.nan, *r[2:]))
    assert "terminated is 0.5; expected a boolean" in line(lambda r: (*r[:2], 0.5, *r[3:]))
    far = line(lambda r: (9, *r[1:]), SPACES["category"])
    assert "The value 9 is outside Discrete(4, start=5); accepted: whole numbers from 5 to 8" in far
    large = line(lambda r: (np.array([0, -(2**60)]), *r[1:]), SPACES["whole numbers"])
    assert f"as large as {2**60}; beyond 2**24 = 16777216 numbers would be rounded. Rescale it" in large
    missing = line(lambda r: ({"at": r[0]["at"]}, *r[1:]), SPACES["dict"])
    assert "the observation has the keys ['at']; expected ['at', 'on']" in missing
    nested = line(lambda r: ({**r[0], "on": (1.5,)}, *r[1:]), SPACES["dict"])
    assert "the observation at 'on' at part 0 has the type float64; expected int64" in nested


def test_whole_numbers_are_never_rounded() -> None:
    box = spaces.Box(-(2**62), 2**62, (1,), np.int64)
    assert pack(box, np.array([[2**24], [-(2**24)]])).tolist() == [[2**24], [-(2**24)]]
    for value in (2**24 + 1, -(2**24) - 1, 2**62, -(2**62)):
        with pytest.raises(ar.UserError, match="Rescale it"):
            pack(box, np.array([[0], [value]]))
    with pytest.raises(ar.UserError, match="Rescale it"):
        pack(spaces.Discrete(2**30), np.array([2**24 + 1]))
    with pytest.raises(ar.UserError, match="Rescale it"):
        pack(spaces.Box(0, 2**64 - 1, (1,), np.uint64), np.array([[2**64 - 1]], np.uint64))


@pytest.mark.parametrize("name", SPACES)
def test_the_quick_test_accepts_only_what_fits(name: str) -> None:
    space = SPACES[name]
    env = Broken(space)
    observation, _ = env.reset(seed=0)
    assert quick_fit(space)(observation)
    assert misfit(space, observation) == ""
    for fault in faults(space):
        try:
            changed = fault.change((observation, 1.0, False, False, {}))[0]
        except Exception:  # it raises, or returns nothing
            continue
        if quick_fit(space)(changed):
            assert misfit(space, changed) == "" or "beyond 64 bits" in fault.name


def test_a_last_observation_survives_the_reset_that_follows() -> None:
    """An environment may write into the memory of what it returned."""

    class Reuses(gym.Env[Any, Any]):
        observation_space, action_space = spaces.Tuple([BOX]), spaces.Discrete(3, start=1)

        def __init__(self) -> None:
            self.at = np.zeros(3, np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.at[:] = 0
            return (self.at,), {}

        def step(self, action: Any) -> Any:
            self.at += 1
            return (self.at,), 0.0, self.at[0] == 3, False, {}

    with opened(open_world(Reuses()), 1) as stepper:
        stepper.reset()
        seen = [stepper.step(np.zeros(1, dtype=int)).packed[0, 0] for _ in range(6)]
    assert seen == [1, 2, 3, 1, 2, 3]


class Batch(VectorEnv[Any, Any, Any]):
    """A vector environment that is not made of single ones, with a fault."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, change: Callable[[Any], Any], at_reset: bool = False) -> None:
        self.num_envs, self.change, self.at_reset = 2, change, at_reset
        self.single_observation_space, self.single_action_space = BOX, spaces.Discrete(3, start=1)
        self.observation_space = gym.vector.utils.batch_space(BOX, 2)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, 2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        result = np.zeros((2, 3), np.float32), {}
        return self.change(result) if self.at_reset else result

    def step(self, actions: Any) -> Any:
        infos = {"final_obs": np.array([np.ones(3, np.float32), None], dtype=object)}
        infos["final_obs"][1] = np.ones(3, np.float32)
        return self.change((np.zeros((2, 3), np.float32), np.zeros(2), np.ones(2, bool), np.zeros(2, bool), infos))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: None,
        lambda r: r[:-1],
        lambda r: (r[0][:1], *r[1:]),
        lambda r: (r[0].astype(str), *r[1:]),
        lambda r: (r[0] * np.nan, *r[1:]),
        lambda r: (None, *r[1:]),
        lambda r: (r[0], r[1][:1], *r[2:]),
        lambda r: (r[0], r[1] + np.inf, *r[2:]),
        lambda r: (r[0], ["a", "b"], *r[2:]),
        lambda r: (r[0], [[1], [2, 3]], *r[2:]),
        lambda r: (*r[:2], True, *r[3:]),
        lambda r: (*r[:2], [None, True], *r[3:]),
        lambda r: (*r[:2], np.array([0.5, 0]), *r[3:]),
        lambda r: (*r[:4], None),
        lambda r: (*r[:4], {}),
        lambda r: (*r[:4], {"final_obs": np.array([[1.0, 2.0], None], dtype=object)}),
        lambda r: (*r[:4], {"final_obs": np.full((2, 3), np.nan)}),
        lambda r: (*r[:4], {"final_obs": 5}),
        lambda r: 1 / 0,
    ],
)
def test_faults_of_whole_batches(change: Callable[[Any], Any]) -> None:
    assert "step 1" in refusal(partial(enter, "evaluate", Batch(change)), "Batch")


def test_batches_may_have_other_types() -> None:
    fine = Batch(
        lambda r: (r[0].astype(float), [1, 2], [1, 0], np.array([0.0, 1.0]), r[4])
    )  # one ends, the other is cut
    assert ar.evaluate(ar.RandomPolicy(3, 1), fine, episodes=2).totals.tolist() == [1, 2]
    assert "reset after 0" in refusal(partial(enter, "evaluate", Batch(lambda r: r[0], at_reset=True)), "Batch")


@pytest.mark.parametrize("catches", [(), (Exception,)])
@pytest.mark.parametrize("moment", ["late step", "late reset"])
def test_a_step_that_hangs_is_ended(moment: str, catches: Any) -> None:
    def hang(result: Any) -> Any:
        while True:
            with suppress(*catches):
                time.sleep(60)

    stepper = around(Broken(BOX, Fault("hangs", hang), moment))
    stepper.timeout = 0.05
    before, begun = signal.getsignal(signal.SIGALRM), time.perf_counter()
    with pytest.raises(ar.UserError, match=r"^Broken, (step|reset after) \d+.*: (step|reset) took longer than 0.05 s"):
        ar.acting.play.play(ar.RandomPolicy(3, 1), stepper, 30)
    assert time.perf_counter() - begun < 5
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_timer_of_the_program_goes_on() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with time_limit(5):
            time.sleep(0.01)
        with time_limit(5):
            pass
        assert not rang
        time.sleep(0.2)
        assert rang == [1]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_have_no_limit_and_work() -> None:
    stepper = around(Broken(BOX))
    stepper.timeout = 60.0
    played: list[Any] = []
    thread = threading.Thread(target=lambda: played.extend(ar.acting.play.play(ar.RandomPolicy(3, 1), stepper, 3)))
    thread.start()
    thread.join()
    assert len(played) == 3


@pytest.fixture
def asynchronous() -> Iterator[Callable[[Callable[[Any], Any]], Stepper]]:
    opened_ones: list[AsyncVectorEnv] = []

    def make(change: Callable[[Any], Any]) -> Stepper:
        fault = Fault("", change)
        each = [lambda: Checked(Broken(BOX)), lambda: Checked(Broken(BOX, fault, "late step"))]
        opened_ones.append(AsyncVectorEnv(each, context="fork"))
        return Stepper(opened_ones[-1], "Broken")

    yield make
    for env in opened_ones:
        for process in env.processes:
            process.kill()
        env.close(terminate=True)


def test_faults_in_processes(asynchronous: Any) -> None:
    random = ar.RandomPolicy(3, 1)
    for change in (lambda r: 1 / 0, lambda r: r[:3], lambda r: (*r[:2], None, *r[3:])):
        line = refusal(lambda change=change: ar.acting.play.play(random, asynchronous(change), 30))
        assert f"step {LATE}" in line
    stepper = asynchronous(lambda r: time.sleep(60))
    stepper.timeout = 0.2
    assert "took longer than 0.2 s" in refusal(lambda: ar.acting.play.play(random, stepper, 30))
    assert stepper.hung


def test_a_picture_that_fails() -> None:
    class Dark(Broken):
        def render(self) -> Any:
            raise KeyError("lamp")

    env, random = Dark(BOX), ar.RandomPolicy(3, 1)
    line = refusal(lambda: ar.rollout(random, env, on_step=env.render), "Dark")
    assert line.startswith("Dark, render after 0 steps: the environment raised KeyError: 'lamp'.")
    with pytest.raises(WorldError, match="render after 0 steps"):
        Checked(env).render()
    with pytest.raises(ZeroDivisionError):  # not the environment's fault
        ar.rollout(random, env, on_step=lambda: 1 / 0)


def test_an_environment_that_cannot_be_closed_loses_nothing() -> None:
    class Stuck(Broken):
        made = 0

        def close(self) -> None:
            if self.made > 1:
                raise OSError("stuck")

    def make(**_: Any) -> Stuck:
        Stuck.made += 1
        return Stuck(BOX)

    gym.register(ID, entry_point=make)
    try:
        with pytest.warns(UserWarning, match=r"Broken-v0, close after \d+ steps: OSError: stuck"):
            assert len(ar.evaluate(ar.RandomPolicy(3, 1), ID, episodes=3).totals) == 3
    finally:
        gym.registry.pop(ID)


def test_attributes_of_the_same_name_with_another_meaning() -> None:
    env = Broken(BOX)
    env.settings, env.goal_test, env.own_process = "high", lambda: True, 1  # type: ignore[attr-defined]
    world = open_world(env)
    assert (world.settings, world.goal_test, world.own_process) == ({}, None, False)


def test_a_random_attack() -> None:
    found = attack(20, seed=7)
    assert (found["tried"], found["tracebacks"], found["silent"]) == (20, 0, 0)
    assert found["refused"] + found["worked"] == 20
