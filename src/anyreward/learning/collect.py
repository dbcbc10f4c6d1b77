"""Collection of transitions from several environments at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.model.features import FeatureMap
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.recorded import State, can_continue, generator, random_state
from anyreward.worlds.stepping import Stepper

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
"""Columns of transitions, by their names in `Transitions`, and "rewards"."""

GreedyActions = Callable[[Tensor, Tensor], Tensor]
"""argmax_a F(s, a, z) . z for packed observations (n, packed) and z (n, d): (n,)."""

MOST_STARTS = 1_000
"""Largest number of first observations of episodes that are recorded."""
LONGEST_EPISODE = 1_000
"""Largest number of transitions held until their episode ends; a longer episode is split, with a goal for each part."""


class Noise(NamedTuple):
    """How the behaviour policy differs from pi_z and from independent uniform actions."""

    task_steps: int = 0
    """steps for which a task is kept; 0: whole episodes"""
    random_steps: int = 1
    """largest number of steps for which a random action of a box is kept"""
    of_actions: float = 0.0
    """standard deviation of the noise of other actions of a box"""


NO_NOISE = Noise()


class Collector:
    """Steps environments with the behaviour policy; episodes continue from one call to the next.

    The behaviour policy acts uniformly with probability epsilon, else by the greedy pi_z, with one z for each episode.
    With ``next_features`` transitions include the features of next states. With ``whole_episodes`` tasks are goals,
    which transitions include, and the transitions of an episode are returned together, in order, once it is over.
    With ``categorical`` the starts of episodes in states that were never visited are marked as new. Each action is
    taken ``repeat`` times; that is one transition.
    """

    def __init__(
        self,
        stepper: Stepper,
        features: FeatureMap,
        seed: int,
        next_features: bool = False,
        whole_episodes: bool = False,
        categorical: bool = False,
        noise: Noise = NO_NOISE,
        repeat: int = 1,
    ) -> None:
        self._stepper, self._features, self._next_features, self._noise = stepper, features, next_features, noise
        self._repeat = repeat
        self._held = features.action_set.none(stepper.num_envs)  # random actions of a box, which are kept for a while
        self._left = np.zeros(stepper.num_envs, dtype=np.int64)  # for so many steps
        self._at_random = np.zeros(stepper.num_envs, dtype=bool)  # whether these are taken, or those of the policy
        self._age = np.zeros(stepper.num_envs, dtype=np.int64)  # of each z, in steps
        self._rng = np.random.default_rng(seed)
        stepper.reset(seed)
        self._tasks: Tensor | None = None
        self._fresh = np.ones(stepper.num_envs, dtype=bool)  # environments at the start of an episode
        self._starts: list[Array] = []
        self._new: list[bool] = []
        self._visited: set[bytes] | None = set() if categorical else None
        self._running: list[list[Columns]] | None = [[] for _ in range(stepper.num_envs)] if whole_episodes else None

    @property
    def starts(self) -> Tensor:
        """(n, packed) the first observations of at most `MOST_STARTS` episodes, where episodes may terminate."""
        return torch.from_numpy(np.array(self._starts[:MOST_STARTS], dtype=np.float32))

    @property
    def new_starts(self) -> Tensor:
        """(n,) bool: which of the `starts` were in states that had not been visited; False if that is not recorded."""
        return torch.tensor(self._new[:MOST_STARTS], dtype=torch.bool)

    @property
    def can_continue(self) -> bool:
        """Whether another collector can continue the current episodes."""
        return can_continue(self._stepper.env)

    @property
    def features_now(self) -> Array:
        """(n, packed) phi of the current observations, with the first action."""
        stepper = self._stepper
        first = self._features.action_set.none(stepper.num_envs)
        return self._features.of(stepper.observations, stepper.packed, first)

    def state(self) -> tuple[dict[str, Tensor], State]:
        """Tensors and JSON from which another collector continues exactly here, if its environments can."""
        tensors = {"starts": self.starts, "new": self.new_starts}
        if self._tasks is not None:
            tensors["tasks"] = self._tasks
        if self._features.action_set.continuous:
            kept = {"held": self._held, "left": self._left, "at_random": self._at_random}
            tensors |= {name: torch.from_numpy(column.copy()) for name, column in kept.items()}
        if self._noise.task_steps:
            tensors |= {"age": torch.from_numpy(self._age.copy())}
        if self._visited:
            rows = np.stack([np.frombuffer(row, dtype=np.float32) for row in sorted(self._visited)])
            tensors["visited"] = torch.from_numpy(rows)
        running = [(i, row) for i, episode in enumerate(self._running or []) for row in episode]
        if running:
            tensors["running"] = torch.tensor([i for i, _ in running])
            tensors |= {
                f"running.{name}": torch.from_numpy(np.stack([row[name] for _, row in running]))
                for name in running[0][1]
            }
        about = {"random": random_state(self._rng), "fresh": self._fresh.tolist(), "steps": self._stepper.state()}
        return tensors, about

    def load_state(self, tensors: Mapping[str, Tensor], about: State) -> bool:
        """Continue where another collector was; returns whether its episodes continue, or new ones begin."""
        self._starts, self._new = list(tensors["starts"].numpy()), tensors["new"].tolist()
        if self._visited is not None and "visited" in tensors:
            self._visited = {row.tobytes() for row in tensors["visited"].numpy()}
        if not self._stepper.load_state(about["steps"]):
            self._stepper.reset(int(self._rng.integers(2**31)))
            return False
        self._rng, self._fresh = generator(about["random"]), np.array(about["fresh"], dtype=bool)
        self._tasks = tensors["tasks"].clone() if "tasks" in tensors else None
        if "held" in tensors:
            kept = (tensors[name].numpy().copy() for name in ("held", "left", "at_random"))
            self._held, self._left, self._at_random = kept
        self._age = tensors["age"].numpy().copy() if "age" in tensors else self._age
        if self._running is not None and "running" in tensors:
            columns = {name[8:]: column.numpy() for name, column in tensors.items() if name.startswith("running.")}
            for row, i in enumerate(tensors["running"].tolist()):
                self._running[i].append({name: np.array(column[row]) for name, column in columns.items()})
        return True

    def collect(
        self,
        steps: int,
        epsilon: float = 1.0,
        greedy: GreedyActions | None = None,
        new_tasks: Callable[[int], Tensor] | None = None,
    ) -> Transitions:
        """At least ``steps`` transitions (a whole number of steps of all environments), without their rewards."""
        return self.collect_rewarded(steps, epsilon, greedy, new_tasks)[0]

    def collect_rewarded(
        self,
        steps: int,
        epsilon: float = 1.0,
        greedy: GreedyActions | None = None,
        new_tasks: Callable[[int], Tensor] | None = None,
    ) -> tuple[Transitions, Array]:
        """The transitions of `collect`, and the environments' rewards (n,), which learning F and B never uses."""
        parts: list[Columns] = []
        gathered = 0
        while gathered < steps:
            rows = self._step(epsilon, greedy, new_tasks)
            gathered += len(rows["actions"])
            parts.append(rows)
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rewards = whole.pop("rewards")
        return Transitions(**{name: torch.from_numpy(column) for name, column in whole.items()}), rewards

    def _step(self, epsilon: float, greedy: GreedyActions | None, new_tasks: Callable[[int], Tensor] | None) -> Columns:
        stepper, features = self._stepper, self._features
        n, seen = stepper.num_envs, features.marked(stepper.packed)
        acts = features.action_set
        box = acts.continuous
        actions = self._kept(n, epsilon) if box else acts.sample(self._rng, n)
        if self._tasks is None and new_tasks is not None and (epsilon < 1.0 or self._running is not None):
            self._tasks = new_tasks(n)
        if epsilon < 1.0 and greedy is not None and self._tasks is not None:
            chosen = greedy(torch.from_numpy(seen), self._tasks).numpy()
            uniform = self._at_random[:, None] if box else self._rng.random(n) < epsilon
            if box:
                noise = self._noise.of_actions * self._rng.standard_normal(chosen.shape)
                chosen = np.clip(chosen + noise, -1.0, 1.0).astype(np.float32)
            actions = np.where(uniform, actions, chosen)
        phi = features.of(stepper.observations, seen, actions)  # before the step, which may reuse their memory
        step = stepper.step_repeated(acts.outward(actions), self._repeat)
        after = features.marked(step.packed, step.terminated)
        rows: Columns = {
            "rewards": step.rewards,
            "observations": seen,
            "actions": actions,
            "next_observations": after,
            "terminated": step.terminated,
            "features": phi,
        }
        if self._next_features or features.ends:
            rows["next_features"] = features.of(step.observations, after, actions)
        over = step.over
        if features.ends and len(self._starts) < MOST_STARTS:
            self._record_starts(seen[step.valid], seen[self._fresh & step.valid])
        self._fresh = over | (self._fresh & ~step.valid)
        if self._running is not None and self._tasks is not None:
            over = over | np.array([len(episode) + 1 >= LONGEST_EPISODE for episode in self._running])
            rows = self._finished(rows | {"goals": self._tasks.numpy()}, step.valid, over)
        else:
            rows = {name: np.array(column[step.valid]) for name, column in rows.items()}
            if features.ends:
                rows = with_ends(rows, self._rng, acts)
        if self._noise.task_steps:
            self._age = np.where(over, 0, self._age + 1)
            over = over | (self._age >= self._noise.task_steps)
            self._age[over] = 0
        if self._tasks is not None and new_tasks is not None and over.any():
            self._tasks[torch.from_numpy(over)] = new_tasks(int(over.sum()))
        return rows

    def _kept(self, n: int, epsilon: float) -> Array:
        """(n, width) random actions of a box, each kept for a while; which of them are taken changes as often.

        The number of steps L is k or more with probability 1 / k, up to a largest one, so that slow and fast movements
        have the same share of the time.
        """
        anew = (self._left <= 0) | self._fresh
        length = np.minimum(1 / (1 - self._rng.random(n)), self._noise.random_steps).astype(np.int64)
        self._left = np.where(anew, length, self._left) - 1
        self._held = np.where(anew[:, None], self._features.action_set.sample(self._rng, n), self._held)
        self._at_random = np.where(anew, self._rng.random(n) < epsilon, self._at_random)
        return self._held.copy()

    def _record_starts(self, seen: Array, starts: Array) -> None:
        """Record the first observations of new episodes, among all current ones (n, packed)."""
        visited = self._visited
        for start in starts:
            self._starts.append(start)
            self._new.append(visited is not None and start.tobytes() not in visited)
            if visited is not None:
                visited.add(start.tobytes())
        if visited is not None:
            visited.update(row.tobytes() for row in seen)

    def _finished(self, rows: Columns, valid: Array, ended: Array) -> Columns:
        """The transitions of the episodes that end with this step, and the number of later ones for each."""
        assert self._running is not None
        over: list[Columns] = []
        for i, episode in enumerate(self._running):
            if valid[i]:
                episode.append({name: np.array(column[i]) for name, column in rows.items()})
            if episode and ended[i]:
                over += [row | {"left": np.array(len(episode) - 1 - t)} for t, row in enumerate(episode)]
                episode.clear()
        if not over:
            return {name: column[:0] for name, column in rows.items()} | {"left": np.zeros(0, dtype=np.int64)}
        return {name: np.stack([row[name] for row in over]) for name in over[0]}


def with_ends(rows: Columns, rng: np.random.Generator, actions: ActionSet) -> Columns:
    """Append the terminal states of transitions as states of their own, in which a last, arbitrary action is taken.

    The transitions into them do not terminate any more; the last actions do, and pay no reward.
    """
    ended = np.flatnonzero(rows["terminated"])
    rows["terminated"] = np.zeros_like(rows["terminated"])
    if len(ended) == 0:
        return rows
    after, phi = rows["next_observations"][ended], rows["next_features"][ended]
    last = {
        "observations": after,
        "actions": actions.sample(rng, len(ended)),
        "next_observations": after,
        "terminated": np.ones(len(ended), dtype=bool),
        "features": phi,
        "next_features": phi,
        "rewards": np.zeros(len(ended)),
    }
    return {name: np.concatenate([column, last[name]]) for name, column in rows.items()}
