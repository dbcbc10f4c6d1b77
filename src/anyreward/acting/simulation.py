"""Simulated episodes, by which policies are compared: in a `LocalModel` of transitions that training did not use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.policy import Policy
from anyreward.learning.explorer import can_explore
from anyreward.learning.replay import Transitions
from anyreward.learning.transition_model import local_model, terminates
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward
from anyreward.worlds.actions import ActionSet

Array = np.ndarray[Any, Any]
Actions = Callable[[Tensor], Tensor]
"""(n, ...) actions at packed observations (n, packed)."""

EPISODES = 32
"""Number of simulated episodes."""
LEAST_TRANSITIONS = 1_000
"""Held-out transitions that a simulation needs."""
HORIZONS, MOST_STEPS = 2.0, 256
"""Where episodes do not end, this many times 1 / (1 - gamma) steps are simulated, at most 256. After these, rewards go
on as in the second half."""
AROUND_GOAL = 20
"""Number of nearest features that represent a goal among continuous features."""


class Simulated(NamedTuple):
    """The result of simulated episodes of m policies from n starts."""

    returns: Array
    """(m, n) by which policies are compared: without discount, if episodes end and have a time limit"""
    discounted: Array
    """(m, n) discounted returns; without end, if episodes do not end"""
    starts: Array
    """(n, p) the first states"""


class Simulator:
    """Episodes of policies in a `LocalModel` of transitions."""

    def __init__(self, knowledge: Knowledge, rows: Transitions) -> None:
        phi = knowledge.model.phi
        self._phi, self._episodes = phi, knowledge.episodes if terminates(rows, phi.ends) else None
        self._horizon, self._gamma = horizon(knowledge), knowledge.settings.gamma
        known = knowledge.points.values if knowledge.points is not None else None
        self._model = local_model(rows, phi.actions, phi.ends, known)

    @property
    def smooth(self) -> bool:
        """Whether the environment is smooth and nearly deterministic."""
        return self._model.smooth

    def packed(self, x: Array, over: Array | bool = False) -> Tensor:
        """(n, packed) observations of states x (n, p)."""
        return torch.from_numpy(self._phi.marked((x * self._model.scale).astype(np.float32), over))

    def starts(self, n: int, random: np.random.Generator) -> Array:
        """(n, p) first states of episodes; any held-out states if no episode terminates."""
        episodes, p = self._episodes, self._model.x.shape[1]
        if episodes is None:
            return self._model.x[random.integers(len(self._model.x), size=n)]
        first = episodes.starts[:, :p].double().numpy() / self._model.scale
        return np.asarray(first[random.integers(len(first), size=n)])

    def play(
        self, policies: Sequence[Actions | None], reward: Callable[[Tensor], Array], episodes: int = EPISODES
    ) -> Simulated:
        """Episodes of m policies from the same starts, for the ``reward`` of packed features.

        None is the random policy. The result depends on nothing but the arguments.
        """
        (steps, whole), gamma, random = self._horizon, self._gamma, np.random.default_rng(0)
        first = self.starts(episodes, random)
        x, whose = np.tile(first, (len(policies), 1)), np.repeat(np.arange(len(policies)), episodes)
        live, total, discounted, weight = np.arange(len(x)), np.zeros(len(x)), np.zeros(len(x)), 1.0
        recent = np.zeros(len(x))  # the sum of rewards in the second half
        for t in range(steps):
            if len(live) == 0:
                break
            actions = self._phi.action_set.sample(random, len(live))
            for i, policy in enumerate(policies):
                mine = whose[live] == i
                if mine.any() and policy is not None:
                    actions[mine] = policy(self.packed(x[live[mine]])).numpy()
            after, over, nearest = self._model.step(x[live], actions)
            paid = reward(self._features(x[live], actions, nearest))
            if over.any() and self._phi.ends:
                last = reward(self._features(after[over], actions[over], nearest[over], True))
                discounted[live[over]] += weight * gamma * last
                total[live[over]] += last
            total[live] += paid
            discounted[live] += weight * paid
            recent[live] += (t >= steps // 2) * paid
            weight *= gamma
            x[live] = after
            live = live[~over]
        if not whole:
            discounted[live] += recent[live] / (steps - steps // 2) * weight / (1 - gamma)
        returns, by_policy = total if whole else discounted, (len(policies), episodes)
        return Simulated(returns.reshape(by_policy), discounted.reshape(by_policy), first)

    def looking_ahead(self, value: Callable[[Tensor], Tensor], acts: ActionSet) -> Actions:
        """Act by one step of lookahead: the listed action whose next state has the largest ``value``."""
        every = acts.table if self._phi.action_set.continuous else np.arange(acts.count)

        def choose(packed: Tensor) -> Tensor:
            x = packed[:, : len(self._model.scale)].double().numpy() / self._model.scale
            taken = np.concatenate([every] * len(x))
            after, over, _ = self._model.step(np.repeat(x, acts.count, 0), taken)
            best = value(self.packed(after, over)).view(len(x), -1).argmax(1)
            return torch.from_numpy(every)[best]

        return choose

    def _features(self, x: Array, actions: Array, nearest: Array, over: bool = False) -> Tensor:
        """(n, packed features) phi(s, a); of the nearest transition, if phi is not the observation itself."""
        if self._phi.kind == "observation":
            return torch.from_numpy(self._phi.of(None, self.packed(x, over).numpy(), actions))
        after = self._model.rows.next_features
        features = after if over and after is not None else self._model.rows.features
        return features[torch.from_numpy(nearest)]


_simulators: WeakKeyDictionary[Knowledge, Simulator] = WeakKeyDictionary()


def simulator(knowledge: Knowledge) -> Simulator | None:
    """The simulator of an agent's held-out transitions; None for categories, many numbers or too few transitions."""
    rows, model = knowledge.held_out, knowledge.model
    if rows is None or len(rows.actions) < LEAST_TRANSITIONS:
        return None
    if model.observation_encoder.categorical or not can_explore(model.phi):
        return None
    if knowledge not in _simulators:
        _simulators[knowledge] = Simulator(knowledge, rows)
    return _simulators[knowledge]


def greedy_actions(policy: Policy) -> Actions:
    """The greedy actions of a policy."""
    return lambda packed: policy.choose(packed)[0]


def horizon(knowledge: Knowledge) -> tuple[int, bool]:
    """The number of steps of a simulated episode, and whether that is a whole episode, up to its time limit.

    Where no episode terminates, as far as held-out transitions show, the time limit only cuts them off.
    """
    episodes, rows = knowledge.episodes, knowledge.held_out
    ends = rows is not None and terminates(rows, knowledge.model.phi.ends)
    if ends and episodes is not None and episodes.limit:
        return episodes.limit, True
    return min(math.ceil(HORIZONS / (1 - knowledge.settings.gamma)), MOST_STEPS), False


def reward_function(reward: Reward, knowledge: Knowledge) -> Callable[[Tensor], Array]:
    """The reward (n,) of packed features (n, packed).

    A unit of mass at a point is spread over a ball that holds `AROUND_GOAL` rows of the sample of rho.
    """
    rows = knowledge.sample.rows
    function, masses = reward.settled(knowledge).split_atoms(knowledge)
    size = rows.std(0).clamp(min=1e-6)
    balls = []
    for weight, atoms in masses:
        apart = torch.cdist(atoms / size, rows / size).amin(0)
        radius = float(apart.kthvalue(min(AROUND_GOAL, len(rows))).values)
        balls.append((weight * len(rows) / AROUND_GOAL, atoms, radius))

    def values(features: Tensor) -> Array:
        found = function.values(knowledge, features)
        for weight, atoms, radius in balls:
            near = torch.cdist(atoms / size, features.to(size) / size).amin(0) <= radius
            found = found + weight * near.double().numpy()
        return np.asarray(found)

    return values
