"""The interface of learning methods, which the training loop and `Agent` use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.collect import GreedyActions
from anyreward.learning.explorer import Explorer, can_explore
from anyreward.learning.fast.flat import FlatNetworks
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.features import FeatureMap
from anyreward.model.model import Model
from anyreward.worlds.goals import GoalTest
from anyreward.worlds.recorded import State

Metrics = dict[str, Tensor]
"""Scalars by name (docs/metrics.md)."""


class Behaviour(NamedTuple):
    """The behaviour policy of exploration, and the tasks of its episodes."""

    greedy: GreedyActions
    new_tasks: Callable[[int], Tensor]
    """the tasks of n new episodes: z, or goals"""


class Report(NamedTuple):
    """Losses and diagnostics of the last update of a cycle, computed on demand."""

    losses: Callable[[], Metrics]
    diagnostics: Callable[[], Metrics]


class Method(ABC):
    """A learning method. Its class attributes declare what it supports; an instance trains a model in one run."""

    goals_only: ClassVar[bool] = False
    """Whether its agents answer single goals only."""
    uses_next_features: ClassVar[bool] = False
    """Whether it needs phi of the next state for any settings."""
    whole_episodes: ClassVar[bool] = False
    """Whether it needs transitions of whole episodes with their goals; such a method learns online only."""

    def __init__(self, model: Model, replay: Replay, s: Settings, run: RunSettings) -> None:
        self.model, self.replay, self.s, self.run = model, replay, s, run
        self.random = torch.Generator(model.device).manual_seed(s.seed)
        """for the updates"""
        self.explore = torch.Generator(model.device).manual_seed(stream_seed(s.seed, "explore"))
        """for collecting transitions, independent of the updates"""
        self.explorer: Explorer | None = None
        """the behaviour policy, if it goes to what was tried least"""
        listed = not model.phi.action_set.continuous
        if s.explore == "rare" and listed and not self.whole_episodes and can_explore(model.phi):
            self.explorer = Explorer(model.observation_encoder, model.phi, stream_seed(s.seed, "explorer"))
        self.networks: FlatNetworks | None = None
        """the trained networks; None if there are no gradient steps"""

    @classmethod
    @abstractmethod
    def fresh(cls, phi: FeatureMap, s: Settings) -> Model:
        """An untrained model; its weights are drawn by PyTorch's global random generator."""

    @classmethod
    def needs_next_features(cls, s: Settings) -> bool:
        """Whether transitions need phi of the next state."""
        return cls.uses_next_features or s.first_step == 1

    @abstractmethod
    def behaviour(self, random: torch.Generator) -> Behaviour:
        """The behaviour policy, and the tasks that it draws for new episodes."""

    def enter(self, test: GoalTest | None, start: Tensor, seed: int) -> None:
        """Called before the first step in a world, with its protocol for goals and the first features (n, packed)."""
        return None

    def prepare(self) -> None:
        """Called once, after the warm-up."""
        return None

    def steps(self) -> int:
        """The number of transitions to collect before the next cycle."""
        return self.s.steps_per_cycle

    def exploration(self) -> float:
        """The epsilon of the behaviour policy in the next cycle."""
        return self.s.exploration

    @abstractmethod
    def cycle(self, done: int, end: int) -> Report:
        """Learn from update ``done`` to update ``end``."""

    def refresh(self) -> None:
        """Called before an evaluation: update the model if there is much new data."""
        return None

    def finished(self) -> Model:
        """The model to save: that of all data. Learning goes on as if nothing had been saved."""
        return self.model

    def state(self) -> tuple[dict[str, Tensor], State]:
        """What a resumed run needs besides the model: random generators, target networks, Adam's state, the explorer.

        Tensors, and JSON.
        """
        tensors = {"random": self.random.get_state(), "explore": self.explore.get_state()}
        tensors |= self.networks.state() if self.networks else {}
        if self.explorer is None:
            return tensors, {}
        explored, about = self.explorer.state()
        return tensors | {f"explorer.{name}": value for name, value in explored.items()}, {"explorer": about}

    def load_state(self, tensors: Mapping[str, Tensor], about: State, done: int) -> None:
        """The inverse of `state`, after ``done`` updates."""
        self.random.set_state(tensors["random"])
        self.explore.set_state(tensors["explore"])
        if self.networks:
            self.networks.load_state(tensors, done)
        if self.explorer is not None and "explorer" in about:
            explored = {name[9:]: value for name, value in tensors.items() if name.startswith("explorer.")}
            self.explorer.load_state(explored, about["explorer"])


def stream_seed(seed: int, name: str) -> int:
    """The seed of a named random stream, independent of other streams and of other seeds."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)[0] >> 1)
