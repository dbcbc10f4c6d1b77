"""Environments that misbehave: each fault must be refused in one line that names the environment, and never pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from anyreward.acting.play import RandomPolicy, evaluate, rollout
from anyreward.errors import UserError
from anyreward.training import train

Array = np.ndarray[Any, Any]
Space = gym.Space[Any]
ID = "selfcheck/Broken-v0"
LATE = 25
"""The number of a late step."""
MOMENTS = ("reset", "first step", "late step", "late reset")
TINY: dict[str, Any] = {"updates": 40, "dim": 4, "hidden": 8, "landmarks": 0, "progress": False, "seed": 0}
TINY |= {"steps_per_cycle": 200}
LISTED = spaces.Discrete(3, start=1)


class Unusual(Exception):
    """An exception that cannot be made from its text."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)


def raises(error: BaseException) -> Callable[[Any], Any]:
    """A function that raises."""

    def fail(_: Any) -> Any:
        raise error

    return fail


def constant(value: Any) -> Callable[..., Any]:
    """A function that returns a value, whatever it is given."""
    return lambda *_: value


RESULTS: dict[str, Callable[[Any], Any]] = {
    "result none": lambda r: None,
    "result observation alone": lambda r: r[0],
    "result without info": lambda r: r[:-1],
    "result with one more": lambda r: (*r, {}),
    "result empty": lambda r: (),
    "result dict": lambda r: dict(enumerate(r)),
    "result generator": lambda r: (part for part in r),
    "result string": lambda r: "abcde"[: len(r)],
    "raise ValueError": raises(ValueError("boom")),
    "raise multi-line": raises(RuntimeError("one\ntwo\n\tthree")),
    "raise long": raises(RuntimeError("word " * 5_000)),
    "raise empty": raises(AssertionError()),
    "raise KeyError": raises(KeyError("missing")),
    "raise StopIteration": raises(StopIteration()),
    "raise NotImplementedError": raises(NotImplementedError()),
    "raise TypeError": raises(TypeError("no")),
    "raise TimeoutError": raises(TimeoutError("slow")),
    "raise EOFError": raises(EOFError()),
    "raise MemoryError": raises(MemoryError("full")),
    "raise unusual": raises(Unusual(3, "reason")),
    "raise warning": raises(DeprecationWarning("old")),
    "raise gymnasium": raises(gym.error.ResetNeeded("reset first")),
    "info none": lambda r: (*r[:-1], None),
    "info list": lambda r: (*r[:-1], [1]),
    "info string": lambda r: (*r[:-1], "info"),
}
"""Faults of what reset or step returns as a whole."""
REWARDS: list[Any] = [
    *(None, np.nan, np.inf, -np.inf, "1", [1.0], (), {}, 1j, np.zeros(2), np.zeros(1), np.array(None), 10**400)
]
FLAGS: list[Any] = [*(None, "False", np.nan, 0.5, 2, -1, [], [True], np.array([True]), np.array([True, False]), {}, 1j)]
VALUES: dict[str, tuple[int, Any]] = {
    **{f"reward {value!r:.40}": (1, value) for value in REWARDS},
    **{f"terminated {value!r}": (2, value) for value in FLAGS},
    **{f"truncated {value!r}": (3, value) for value in FLAGS},
}
"""Faults of what step returns beside the observation: the place in the result, and the value there."""
OBSERVATIONS: dict[str, Callable[[Any], Any]] = {
    "observation none": lambda o: None,
    "observation string": lambda o: "here",
    "observation object": lambda o: object(),
    "observation function": lambda o: len,
    "observation ragged": lambda o: [[1, 2], [3]],
    "observation set": lambda o: {1, 2},
    "observation objects": lambda o: np.array([None, "a"], dtype=object),
    "observation batched": lambda o: [o, o],
}
"""Faults of an observation of any space."""
FINE: dict[str, Callable[[Any], Any]] = {
    "numpy flags": lambda r: (*r[:2], np.bool_(r[2]), np.bool_(r[3]), r[4]),
    "flags 0 and 1": lambda r: (*r[:2], int(r[2]), np.int8(r[3]), r[4]),
    "flags as arrays without dimension": lambda r: (*r[:2], np.array(r[2]), float(r[3]), r[4]),
    "reward int": lambda r: (r[0], 3, *r[2:]),
    "reward bool": lambda r: (r[0], True, *r[2:]),
    "reward float32": lambda r: (r[0], np.float32(0.5), *r[2:]),
    "reward float16": lambda r: (r[0], np.float16(0.5), *r[2:]),
    "reward array without dimension": lambda r: (r[0], np.array(0.5), *r[2:]),
    "result list": list,
    "info of other types": lambda r: (*r[:-1], {"a": np.random.default_rng().choice(3), 5: None, "final_obs": 1}),
}
"""What is unusual, and right."""


class Change(NamedTuple):
    """A change of one observation."""

    name: str
    change: Callable[[Any], Any]
    fine: bool = False


def exchanged(place: Any, change: Callable[[Any], Any], whole: Any) -> Any:
    """A tuple or dictionary with one part changed."""
    if isinstance(whole, dict):
        return {**whole, place: change(whole[place])}
    return (*whole[:place], change(whole[place]), *whole[place + 1 :])


def filled(array: Any, value: Any) -> Array:
    """A copy of an array with another first value."""
    copy = np.array(array)
    copy.reshape(-1)[:1] = value
    return copy


def changes(space: Space) -> Iterator[Change]:
    """Changes of an observation that depend on its space."""
    match space:
        case spaces.Dict():
            first = next(iter(space.spaces))
            yield Change("dict misses a key", lambda o: {k: v for k, v in o.items() if k != first})
            yield Change("dict has one more", lambda o: {**o, "more": 1})
            yield Change("dict has another key", lambda o: {f"{k}'": v for k, v in o.items()})
            yield Change("dict as values", lambda o: tuple(o.values()))
            for key, part in space.spaces.items():
                for name, change, fine in changes(part):
                    yield Change(f"{name} at {key}", partial(exchanged, key, change), fine)
        case spaces.Tuple():
            yield Change("tuple too short", lambda o: o[:-1])
            yield Change("tuple too long", lambda o: (*o, o[0]))
            yield Change("tuple as dict", lambda o: dict(enumerate(o)))
            for i, part in enumerate(space.spaces):
                for name, change, fine in changes(part):
                    yield Change(f"{name} at {i}", partial(exchanged, i, change), fine)
        case spaces.Discrete():
            start, n = int(space.start), int(space.n)
            yield Change("category too large", lambda o: start + n)
            yield Change("category too small", lambda o: start - 1)
            yield Change("category far away", lambda o: 2**62)
            yield Change("category beyond 64 bits", lambda o: 10**30)
            yield Change("category with fraction", lambda o: start + 0.5)
            yield Change("category as float", lambda o: float(start))
            yield Change("category nan", lambda o: np.nan)
            yield Change("category in an array", lambda o: np.array([start]))
            yield Change("category int32", lambda o: np.int32(start), fine=True)
            yield Change("category without dimension", lambda o: np.array(start), fine=True)
        case _:
            yield from array_changes(space)


def array_changes(space: Space) -> Iterator[Change]:
    """Changes of an observation that is an array."""
    assert space.dtype is not None
    kind = space.dtype.kind
    yield Change("one dimension more", lambda o: np.asarray(o)[None])
    yield Change("one value more", lambda o: np.append(np.ravel(o), np.ravel(o)[:1]))
    yield Change("complex", lambda o: np.asarray(o) + 1j)
    yield Change("strings", lambda o: np.asarray(o).astype(str))
    if kind == "f":
        for value in (np.nan, np.inf, -np.inf):
            yield Change(f"holds {value}", partial(filled, value=value))
        yield Change("beyond float32", lambda o: filled(np.asarray(o, np.float64), 1e300))
        yield Change("whole number beyond float32", lambda o: filled(np.asarray(o, np.int64), 2**60 + 1))
        yield Change("out of bounds", lambda o: filled(o, 777.0), fine=True)
        yield Change("float64", lambda o: np.asarray(o, np.float64), fine=True)
        yield Change("float32", lambda o: np.asarray(o, np.float32), fine=True)
        yield Change("float16", lambda o: np.asarray(o, np.float16), fine=True)
        yield Change("whole numbers", lambda o: np.asarray(o, np.int32), fine=True)
        yield Change("list", lambda o: np.asarray(o).tolist(), fine=True)
    else:
        yield Change("fractions", lambda o: np.asarray(o, np.float64) + 0.5)
        yield Change("nan instead of whole numbers", lambda o: filled(np.asarray(o, np.float64), np.nan))
    if kind in "iu" and isinstance(space, spaces.Box):
        yield Change("whole number beyond the type", lambda o: filled(np.asarray(o, np.int64), 2**60 + 1))
    if space.dtype == np.int64 and isinstance(space, spaces.Box):
        yield Change("whole number beyond 2**24", lambda o: filled(o, 2**24 + 1))
        yield Change("whole number 2**24", lambda o: filled(o, 2**24), fine=True)
    if isinstance(space, spaces.MultiDiscrete):
        yield Change("category too large", lambda o: filled(o, int(space.start.flat[0] + space.nvec.flat[0])))
        yield Change("category too small", lambda o: filled(o, int(space.start.flat[0]) - 1))
    if isinstance(space, spaces.MultiBinary):
        yield Change("neither 0 nor 1", lambda o: filled(o, 2))


class Fault(NamedTuple):
    """A change of what reset and step return."""

    name: str
    change: Callable[[Any], Any]
    resets: bool = True
    """Whether it can happen at a reset too."""
    fine: bool = False
    """Whether it is no fault."""


def faults(space: Space) -> list[Fault]:
    """All faults of environments with an observation space, and what only looks like one."""
    found = [Fault(name, change) for name, change in RESULTS.items()]
    found += [
        Fault(name, partial(exchanged, place, constant(value)), resets=False) for name, (place, value) in VALUES.items()
    ]
    found += [Fault(name, change, resets=False, fine=True) for name, change in FINE.items()]
    of_observations = [Change(name, change) for name, change in OBSERVATIONS.items()] + list(changes(space))
    found += [Fault(name, partial(exchanged, 0, change), fine=fine) for name, change, fine in of_observations]
    return found


class Broken(gym.Env[Any, Any]):
    """Random observations in episodes of 2 to 8 steps; from a moment on, what it returns has a fault."""

    def __init__(
        self, space: Space, fault: Fault | None = None, moment: str = "first step", actions: Space = LISTED
    ) -> None:
        self.observation_space, self.action_space = space, actions
        self.fault, self.moment, self.steps, self.left, self.delivered = fault, moment, 0, 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.left = int(self.np_random.integers(2, 9))
        first = {"reset": 0, "late reset": LATE}.get(self.moment)
        return self._changed((self._observation(), {}), first is not None and self.steps >= first)

    def step(self, action: Any) -> Any:
        """Take an action."""
        assert self.action_space.contains(action)
        self.steps, self.left = self.steps + 1, self.left - 1
        first = {"first step": 1, "late step": LATE}.get(self.moment)
        ends = self.left == 0
        result: Any = (self._observation(), 1.0, ends and self.steps % 2 == 0, ends and self.steps % 2 == 1, {})
        return self._changed(result, first is not None and self.steps >= first)

    def _observation(self) -> Any:
        return bounded(self.observation_space, self.observation_space.sample())

    def _changed(self, result: Any, now: bool) -> Any:
        if self.fault is None or not now:
            return result
        self.delivered = True
        return self.fault.change(result)


def bounded(space: Space, element: Any) -> Any:
    """A sample, with whole numbers that float32 holds."""
    if isinstance(space, spaces.Dict):
        return {key: bounded(part, element[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(bounded(part, one) for part, one in zip(space.spaces, element, strict=True))
    if isinstance(space, spaces.Box) and space.dtype == np.int64:
        return element % 1_000
    return element


def random_space(rng: np.random.Generator, depth: int = 0) -> Space:
    """A random supported observation space."""
    leaves: list[Callable[[], Space]] = [
        lambda: spaces.Discrete(int(rng.integers(1, 9)), start=int(rng.integers(-3, 6))),
        lambda: spaces.Box(-np.inf, np.inf, (int(rng.integers(1, 5)),), np.float32),
        lambda: spaces.Box(-1, 1, (2, 3), np.float64),
        lambda: spaces.Box(0, 1, (), np.float32),
        lambda: spaces.Box(-5, 5, (2,), np.int8),
        lambda: spaces.Box(0, 255, (4, 4), np.uint8),
        lambda: spaces.Box(-(2**62), 2**62, (2,), np.int64),
        lambda: spaces.Box(0, 1, (3,), np.bool_),
        lambda: spaces.MultiDiscrete([2, 3, 4], start=[0, 5, -1]),
        lambda: spaces.MultiBinary(4),
    ]
    kind = int(rng.integers(len(leaves) + (4 if depth < 2 else 0)))
    if kind < len(leaves):
        return leaves[kind]()
    parts = [random_space(rng, depth + 1) for _ in range(int(rng.integers(1, 4)))]
    return spaces.Tuple(parts) if kind % 2 else spaces.Dict({f"part {i}": part for i, part in enumerate(parts)})


def random_actions(rng: np.random.Generator) -> Space:
    """A random supported action space: three actions or, in a quarter of the trials, those of a box."""
    if rng.random() < 0.75:
        return LISTED
    low = rng.uniform(-3, 1, (2, 2)).astype(np.float32)
    every: list[Space] = [
        spaces.Box(-1, 1, (2,)),
        spaces.Box(low, low + rng.uniform(0, 3, (2, 2)).astype(np.float32)),
        spaces.Box(0.1, 0.3, (1,), np.float64),
        spaces.Box(-3, 3, (2,), np.int64),
        spaces.Box(0, 255, (1,), np.uint8),
    ]
    return every[int(rng.integers(len(every)))]


def bad_actions() -> dict[str, Space]:
    """Action spaces that are refused."""
    reversed_box, of_nan = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,))
    reversed_box.low, reversed_box.high = reversed_box.high, reversed_box.low
    of_nan.high = np.array([1, np.nan], dtype=np.float32)
    return {
        "no bounds": spaces.Box(-np.inf, np.inf, (2,)),
        "no bound above": spaces.Box(np.zeros(2, np.float32), np.array([1, np.inf], np.float32)),
        "whole numbers without bounds": spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
        "a bound of NaN": of_nan,
        "low above high": reversed_box,
        "no numbers": spaces.Box(-1, 1, (2, 0)),
        "booleans": spaces.Box(0, 1, (2,), np.bool_),
        "categories": spaces.MultiDiscrete([2, 3]),
        "bits": spaces.MultiBinary(2),
        "tuple": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(2)]),
        "dict": spaces.Dict({"torque": spaces.Box(-1, 1, (1,))}),
        "text": spaces.Text(3),
    }


def healthy_agent(space: Space, actions: Space = LISTED) -> Any:
    """An agent of an environment with these spaces, for which nothing was learned."""
    return train(Broken(space, actions=actions), **_tiny(actions))


def _tiny(actions: Space) -> dict[str, Any]:
    """Settings of a short run; without the networks of novelty, which take most of its time."""
    return TINY if actions is LISTED else TINY | {"explore": "z"}


def enter(way: str, world: Any, agent: Any = None, actions: Space = LISTED) -> None:
    """Use an environment in one of the ways of the library."""
    if way == "train":
        train(world, **_tiny(actions))
    elif way == "evaluate":
        evaluate(RandomPolicy(actions), world, episodes=30)
    elif way == "rollout":
        rollout(RandomPolicy(actions), world, episodes=30)
    else:
        agent.sample_rewards(world, budget=100, progress=False)


@contextmanager
def registered(
    space: Space, fault: Fault | None, moment: str, each: Callable[[int], Space] = lambda _: LISTED
) -> Iterator[list[Broken]]:
    """Register the environment as `ID`; the list holds those that were made.

    ``each`` gives the action space of the environment that is made first, second, ...
    """
    made: list[Broken] = []

    def make(**_: Any) -> Broken:
        made.append(Broken(space, fault, moment, each(len(made))))
        return made[-1]

    strict = fault is not None and not fault.fine
    gym.register(ID, entry_point=make, disable_env_checker=not strict)  # the checker refuses more
    try:
        yield made
    finally:
        gym.registry.pop(ID)


def refusal(name: str, use: Callable[[], None]) -> str:
    """What came of using an environment: "refused" in one line that names it, "tracebacks", or "" if it worked."""
    try:
        use()
    except UserError as error:
        line = str(error)
        return "refused" if "\n" not in line and name in line and len(line) < 1_000 else "tracebacks"
    except Exception:
        return "tracebacks"
    return ""


def outcome(fault: Fault, made: list[Broken], name: str, use: Callable[[], None]) -> str:
    """What came of a fault: "refused", "worked", "tracebacks", "silent", or "" if it did not happen."""
    came = refusal(name, use)
    if came:
        return "tracebacks" if fault.fine else came
    if not any(env.delivered for env in made):
        return ""
    return "worked" if fault.fine else "silent"


def try_fault(rng: np.random.Generator) -> tuple[str, str]:
    """What came of a random combination of spaces, fault, moment and way to use the environment; and a description."""
    space, actions = random_space(rng), random_actions(rng)
    all_of_them = faults(space)
    fault = all_of_them[int(rng.integers(len(all_of_them)))]
    moment = str(rng.choice(MOMENTS if fault.resets else MOMENTS[1:3]))
    way = str(rng.choice(["train", "evaluate", "sample", "rollout"]))
    given = str(rng.choice(["object"] if way == "rollout" else ["object", "id", "vector"]))
    agent = healthy_agent(space, actions) if way == "sample" else None
    if given == "id":
        with registered(space, fault, moment, constant(actions)) as made:
            came = outcome(fault, made, ID, partial(enter, way, ID, agent, actions))
    else:
        made = [Broken(space, fault, moment, actions) for _ in range(1 if given == "object" else 3)]
        world = made[0] if given == "object" else SyncVectorEnv([constant(env) for env in made])
        came = outcome(fault, made, "Broken", partial(enter, way, world, agent, actions))
    return came, f"{fault.name!r} at the {moment}, {way}, {given}, {space}, {actions}"


def try_actions(rng: np.random.Generator) -> tuple[str, str]:
    """What came of a random action space that is not supported, or differs between environments; and a description."""
    space, every = random_space(rng), bad_actions()
    name = str(rng.choice([*every, "another shape for each", "other bounds for each"]))
    way = str(rng.choice(["train", "evaluate", "rollout"]))
    if name in every:
        if rng.random() < 0.5:
            came = refusal("Broken", partial(enter, way, Broken(space, actions=every[name])))
        else:
            with registered(space, None, "", constant(every[name])):
                came = refusal(ID, partial(enter, "train" if way == "rollout" else way, ID))
    else:
        shape = name.startswith("another")
        with registered(space, None, "", lambda i: spaces.Box(-1, 1, (i + 1,)) if shape else spaces.Box(-1, i, (2,))):
            came = refusal(ID, partial(enter, "train", ID))
    return came or "silent", f"action space: {name}, {way}, {space}"


def attack(count: int, seed: int) -> dict[str, int]:
    """Try random faults; every tenth trial has a bad action space.

    Returns how many were tried, refused in one line that names the environment, and worked (because nothing is wrong),
    and how many ended in a traceback (or were refused though nothing is wrong) or passed without a word.
    """
    rng = np.random.default_rng(seed)
    found = {"tried": 0, "refused": 0, "worked": 0, "tracebacks": 0, "silent": 0}
    while found["tried"] < count:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            came, text = try_actions(rng) if found["tried"] % 10 == 0 else try_fault(rng)
        if not came:
            continue
        found["tried"] += 1
        found[came] += 1
        if came in ("tracebacks", "silent"):
            print(f"{came}: {text}")
    return found
