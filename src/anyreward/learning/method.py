"""What a method of learning is: the one object that the loop, `Agent.ask` and `Agent.can_answer` consult."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.collect import GreedyActions
from anyreward.learning.fast.flat import FlatNetworks
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.features import FeatureMap
from anyreward.model.model import Model
from anyreward.worlds.goals import GoalTest

Metrics = dict[str, Tensor]
"""Scalars by name (docs/metrics.md)."""


class Behaviour(NamedTuple):
    """How episodes are played while exploring, and for which tasks."""

    greedy: GreedyActions
    new_tasks: Callable[[int], Tensor]
    """the tasks of n new episodes: z, or goals"""


class Report(NamedTuple):
    """What the last update of a cycle can tell; computed when it is called."""

    losses: Callable[[], Metrics]
    diagnostics: Callable[[], Metrics]


class Method(ABC):
    """A way to learn a model. The class says what it can do; an instance learns in one run."""

    goals_only: ClassVar[bool] = False
    """Whether its agents answer single goals alone."""
    whole_episodes: ClassVar[bool] = False
    """Whether transitions come by whole episodes, with the goals that these had; such a method learns online."""

    def __init__(self, model: Model, replay: Replay, s: Settings, run: RunSettings) -> None:
        self.model, self.replay, self.s, self.run = model, replay, s, run
        self.random = torch.Generator(model.device).manual_seed(s.seed)
        """draws for the updates"""
        self.explore = torch.Generator(model.device).manual_seed(stream_seed(s.seed, "explore"))
        """draws for collecting, so that it does not disturb the updates"""
        self.networks: FlatNetworks | None = None
        """what gradient steps change; None where there are none"""

    @classmethod
    @abstractmethod
    def fresh(cls, phi: FeatureMap, s: Settings) -> Model:
        """A model that has learned nothing; torch's own generator draws its weights."""

    @classmethod
    def needs_next_features(cls, s: Settings) -> bool:
        """Whether transitions need phi of the next state."""
        return s.first_step == 1

    @abstractmethod
    def behaviour(self, random: torch.Generator) -> Behaviour:
        """The behaviour policy, and the tasks that it draws for new episodes."""

    def enter(self, test: GoalTest | None, start: Tensor, seed: int) -> None:
        """Called before the first step in a world, with its protocol of goals and the first features (n, packed)."""
        return None

    def prepare(self) -> None:
        """Called once, after the warm-up."""
        return None

    def steps(self) -> int:
        """How many transitions to collect before the next cycle."""
        return self.s.steps_per_cycle

    def exploration(self) -> float:
        """The epsilon of the behaviour policy in the next cycle."""
        return self.s.exploration

    @abstractmethod
    def cycle(self, done: int, end: int) -> Report:
        """Learn from update ``done`` to update ``end``."""

    def refresh(self) -> None:
        """Bring the model nearly up to date with the data, before it is evaluated."""
        return None

    def finish(self) -> None:
        """Bring the model up to date with all data, before it is saved."""
        return None

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs beside the model: random generators, target networks and Adam."""
        tensors = {"random": self.random.get_state(), "explore": self.explore.get_state()}
        return tensors | (self.networks.state() if self.networks else {})

    def load_state(self, tensors: dict[str, Tensor], done: int) -> None:
        """The inverse of `state`, after ``done`` updates."""
        self.random.set_state(tensors["random"])
        self.explore.set_state(tensors["explore"])
        if self.networks:
            self.networks.load_state(tensors, done)


def stream_seed(seed: int, name: str) -> int:
    """A seed for one use of randomness, unrelated to the other uses and to those of neighbouring seeds."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)[0] >> 1)
