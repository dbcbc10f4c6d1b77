"""Stepping vector environments, with the true final observation of every episode."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from anyreward.errors import UserError, shown
from anyreward.worlds.actions import ActionSet, action_set
from anyreward.worlds.checked import RETURNS, Checked, failed, fault, misfit, name_of, quick_fit
from anyreward.worlds.recorded import Recorded, State, can_continue, load_episodes, save_episodes
from anyreward.worlds.spaces import Array, leaves, one_line, pack, pack_seen, seen_space, with_final
from anyreward.worlds.world import World

MOST_AT_ONCE = 1_000
"""Maximum number of environments that are stepped together."""
BOOL = np.dtype(bool)


class Step(NamedTuple):
    """The result of one step of n environments."""

    observations: Any
    """a batch of n: the next observations; where an episode ended, its final observation"""
    packed: Array
    """(n, packed) the part of them that F sees, packed"""
    rewards: Array
    """(n,) the environments' own rewards"""
    terminated: Array
    """(n,)"""
    truncated: Array
    """(n,)"""
    valid: Array
    """(n,) false where the step only reset the environment and ignored the action"""

    @property
    def over(self) -> Array:
        """(n,) whether the episode ended."""
        return np.logical_or(self.terminated, self.truncated)


class Stepper:
    """Steps a vector environment in any autoreset mode, and checks what it returns."""

    timeout: float = 0.0
    """Seconds that one step or reset of all environments may take; 0: no limit. See `time_limit`."""

    def __init__(self, env: VectorEnv[Any, Any, Any], name: str = "") -> None:
        self.env, self.num_envs, self.space = env, env.num_envs, env.single_observation_space
        self.name, self.steps, self.hung = name or name_of(env), 0, False
        if not any(leaf.packed for leaf in leaves(seen_space(self.space))):
            raise fault(self.name, "__init__", f"observation_space is {self.space}; expected at least one number")
        self._fits = quick_fit(self.space, (env.num_envs,))
        self._goals = None  # the space of achieved goals, which may be features too
        if isinstance(self.space, gym.spaces.Dict) and seen_space(self.space) is not self.space:
            self._goals = self.space["achieved_goal"]
        self._processes = isinstance(env.unwrapped, AsyncVectorEnv)
        self.action_set: ActionSet = action_set(env.single_action_space, self.name)
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._ended = np.zeros(env.num_envs, dtype=bool)  # the episodes that ended in the last step
        self._observations: Any = None
        self._packed: Array = np.zeros((0, 0))

    @property
    def observations(self) -> Any:
        """A batch of n: the current observations, in which the next actions are taken."""
        self._begin_anew()
        return self._observations

    @property
    def packed(self) -> Array:
        """(n, packed) the part of the current observations that F sees, packed."""
        self._begin_anew()
        return self._packed

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new episode in every environment."""
        self._look(self._call("reset", seed=seed, options=options)[0], "reset")
        self._ended = np.zeros_like(self._ended)

    def step(self, actions: Array) -> Step:
        """Take actions as the environment counts them, (n, ...); environments whose episode has ended are reset."""
        self._begin_anew()
        self.steps += 1
        observations, rewards, terminated, truncated, infos = self._call("step", actions)
        self._look(observations)
        rewards = self._numbers(rewards)
        terminated, truncated = self._flags("terminated", terminated), self._flags("truncated", truncated)
        after, packed, done = observations, self._packed, np.logical_or(terminated, truncated)
        if self._mode is AutoresetMode.SAME_STEP and done.any():
            after = self._final(observations, infos, done)
            packed = self._pack(after)
        valid = ~self._ended if self._mode is AutoresetMode.NEXT_STEP else np.ones_like(done)
        self._ended = done
        return Step(after, packed, rewards, terminated, truncated, valid)

    def step_repeated(self, actions: Array, times: int) -> Step:
        """The result of taking the same actions several times: where an episode ends, that of its last step.

        Rewards are means over the steps. The rest of the steps begins the next episode.
        """
        first = self.step(actions)
        if times == 1:
            return first
        found, done, count = first, first.over | ~first.valid, np.ones(self.num_envs)
        for _ in range(times - 1):
            last = self.step(actions)
            live = ~done
            count += live
            found = Step(
                with_final(self.space, last.observations, found.observations, done),
                np.where(done[:, None], found.packed, last.packed),
                found.rewards + np.where(live, last.rewards, 0.0),
                np.where(done, found.terminated, last.terminated),
                np.where(done, found.truncated, last.truncated),
                first.valid,
            )
            done = done | last.over | ~last.valid
        return found._replace(rewards=found.rewards / count)

    def state(self) -> State | None:
        """The current episodes, as JSON; None if they cannot be continued in another process."""
        if not can_continue(self.env):
            return None
        self._begin_anew()
        return {
            "environments": save_episodes(self.env, self._observations),
            "packed": self._packed.tolist(),
            "ended": self._ended.tolist(),
        }

    def load_state(self, state: State | None) -> bool:
        """Continue the episodes of another stepper; returns whether they are where they were.

        If not, because the environment does not follow from its seed and actions, all episodes have to begin anew.
        """
        if state is None or len(state["ended"]) != self.num_envs or not can_continue(self.env):
            return False
        try:
            self._look(load_episodes(self.env, state["environments"]))
        except (AttributeError, KeyError, TypeError, ValueError, UserError):  # another version of the environment
            return False
        self._ended = np.array(state["ended"], dtype=bool)
        return np.array_equal(self._packed, np.array(state["packed"], dtype=self._packed.dtype))

    def _begin_anew(self) -> None:
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            self._look(self._call("reset", options={"reset_mask": self._ended})[0], "reset")
            self._ended = np.zeros_like(self._ended)

    def _look(self, observations: Any, call: str = "step") -> None:
        self._observations, self._packed = observations, self._pack(observations, call)

    def _where(self, call: str) -> str:
        return f"step {self.steps}" if call == "step" else f"{call} after {self.steps} steps"

    def _call(self, call: str, *args: Any, **kwargs: Any) -> Any:
        """What ``reset`` or ``step`` of the environment returns, with the right number of values."""
        count = 5 if call == "step" else 2
        try:
            if self.timeout or self._processes:
                result = self._call_in_time(call, *args, **kwargs)
            else:
                result = getattr(self.env, call)(*args, **kwargs)
        except UserError:
            raise
        except Exception as error:
            raise failed(self.name, self._where(call), error) from error
        if type(result) is not tuple or len(result) != count:
            wrong = f"{call} returned {shown(result)}; expected {count} values"
            raise fault(self.name, self._where(call), wrong, f"Return {RETURNS[call]}.")
        return result

    def _call_in_time(self, call: str, *args: Any, **kwargs: Any) -> Any:
        level, gym.logger.min_level = gym.logger.min_level, gym.logger.ERROR + 1  # processes would log their errors too
        try:
            if self.timeout and isinstance(self.env, AsyncVectorEnv):
                getattr(self.env, f"{call}_async")(*args, **kwargs)
                return getattr(self.env, f"{call}_wait")(self.timeout)
            with time_limit(self.timeout):
                return getattr(self.env, call)(*args, **kwargs)
        except (TimeUp, multiprocessing.TimeoutError):
            self.hung = True
            wrong = f"{call} took longer than {self.timeout:g} s"
            raise fault(self.name, self._where(call), wrong, "Allow more time, or correct the environment.") from None
        finally:
            gym.logger.min_level = level

    def _pack(self, observations: Any, call: str = "step") -> Array:
        if not self._fits(observations) and (wrong := misfit(self.space, observations, (self.num_envs,))):
            raise fault(self.name, self._where(call), f"the batch of observations {wrong}")
        try:
            packed = pack_seen(self.space, observations)
            goals = None if self._goals is None else pack(self._goals, observations["achieved_goal"])
        except UserError as error:
            wrong, _, mend = str(error).partition(". ")
            wrong = f"the observation cannot be used: {wrong.rstrip('.')}"
            raise fault(self.name, self._where(call), wrong, mend or "Correct the environment or its space.") from error
        for rows in (packed, goals):
            if rows is not None and not finite(rows):
                row = rows[~np.isfinite(rows).all(1)][0]
                wrong = f"the observation holds NaN or infinity: {shown(row.tolist())}; expected finite numbers"
                raise fault(self.name, self._where(call), wrong, "Return numbers that float32 can hold.")
        return packed

    def _numbers(self, rewards: Any) -> Array:
        try:
            numbers = np.asarray(rewards, dtype=np.float64)
        except (TypeError, ValueError):  # no numbers, or lists of different lengths
            numbers = np.zeros(0)
        if numbers.shape != (self.num_envs,):
            wrong = f"the rewards are {shown(rewards)}; expected {self.num_envs} numbers"
            raise fault(self.name, self._where("step"), wrong, "Return one float for each environment.")
        if not finite(numbers):
            wrong = f"the reward is {numbers[~np.isfinite(numbers)][0]}; expected a finite number"
            raise fault(self.name, self._where("step"), wrong, "Return a finite float as reward.")
        return numbers

    def _flags(self, which: str, flags: Any) -> Array:
        if type(flags) is np.ndarray and flags.dtype == BOOL and flags.shape == (self.num_envs,):
            return flags
        try:
            values = np.asarray(flags)
        except ValueError:  # lists of different lengths
            values = np.array(None)
        if values.shape != (self.num_envs,) or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
            wrong = f"{which} is {shown(flags)}; expected {self.num_envs} booleans"
            raise fault(self.name, self._where("step"), wrong, "Return True or False for each environment.")
        return values.astype(bool)

    def _final(self, observations: Any, infos: Any, done: Array) -> Any:
        """The observations, with the last ones of episodes that are ``done``."""
        wrong, cause = "", None
        try:
            final = infos["final_obs"]
            if isinstance(final, np.ndarray) and final.dtype == object:
                wrong = next(filter(None, (misfit(self.space, final[i]) for i in np.flatnonzero(done))), "")
            if not wrong:
                with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which is refused
                    return with_final(self.space, observations, final, done)
        except Exception as error:  # whatever is in infos
            wrong, cause = "is missing, or does not fit the observation space", error
        raise fault(self.name, self._where("step"), f"the last observation of an episode {wrong}") from cause


class TimeUp(BaseException):
    """Raised by `time_limit`; no Exception, so that an environment does not catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` in the body after a number of seconds; 0: no limit.

    There is no limit in threads other than the main one, and on Windows, because only the main thread receives signals,
    and Windows has no timer that sends one. Code in C, which Python cannot interrupt, is interrupted when it returns.
    """
    if not seconds or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    running, begun = True, time.monotonic()

    def over(*_: Any) -> None:
        if running:
            raise TimeUp

    before = signal.signal(signal.SIGALRM, over)
    # it is sent again and again, in case the environment catches everything
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, 1.0))
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
        if left:  # a timer of the calling program goes on
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 1e-3), interval)


def finite(values: Array) -> bool:
    """Whether all numbers are finite."""
    if values.dtype.kind != "f":
        return True
    flat = values.ravel()
    # the sum of squares is faster, and overflows only for large numbers
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())


@contextmanager
def opened(world: World, n: int, **options: Any) -> Iterator[Stepper]:
    """Open n environments of a world and close them at the end; an environment given as an object stays open."""
    try:
        env = world.make_vector(n, **options)
        given = _check_each(env)
        stepper = Stepper(env, world.name)
    except UserError:
        raise
    except Exception as error:
        raise failed(world.name, "__init__", error) from error
    try:
        yield stepper
    finally:
        if given is not None:
            env.unwrapped.envs = given  # type: ignore[attr-defined]  # a SyncVectorEnv
        if world.recipe is not None:
            _close(stepper)


def _check_each(env: VectorEnv[Any, Any, Any]) -> list[gym.Env[Any, Any]] | None:
    """Check each environment of a SyncVectorEnv that was given; returns its environments as they were."""
    inner = env.unwrapped
    if not isinstance(inner, SyncVectorEnv) or all(isinstance(one, Recorded | Checked) for one in inner.envs):
        return None
    given = inner.envs
    inner.envs = [Checked(one) for one in given]
    return given


def _close(stepper: Stepper) -> None:
    try:
        if stepper.hung and isinstance(stepper.env, AsyncVectorEnv):
            for process in stepper.env.processes:
                process.kill()  # it would not answer
            stepper.env.close(terminate=True)
        else:
            stepper.env.close()
    except Exception as error:  # what was computed is worth more than a clean end
        text = f"{stepper.name}, close after {stepper.steps} steps: {type(error).__name__}: {one_line(error, 300)}"
        warnings.warn(text, stacklevel=2)


def around(env: gym.Env[Any, Any]) -> Stepper:
    """A `Stepper` of a single environment, which the caller closes."""
    one = Checked(env)
    try:
        return Stepper(SyncVectorEnv([lambda: one], autoreset_mode=AutoresetMode.DISABLED), name_of(env))
    except UserError:
        raise
    except Exception as error:
        raise failed(name_of(env), "__init__", error) from error


def together(world: World, episodes: int) -> int:
    """The number of episodes to run at once: at most `MOST_AT_ONCE`, or two per CPU if each needs a process."""
    return min(episodes, 2 * (os.cpu_count() or 1) if world.own_process else MOST_AT_ONCE)
