"""The method of landmarks: F and B as tables, computed from all data at once instead of by gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from anyreward.learning.batch import draw_features, rho_rows
from anyreward.learning.method import Behaviour, Method, Metrics, Report
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunSettings, Settings
from anyreward.learning.tables import can_list, learn_tables
from anyreward.learning.transition_model import POINTS
from anyreward.model.features import FeatureMap
from anyreward.model.landmarks import LandmarkForward, TableBackward
from anyreward.model.model import Model, make_encoders
from anyreward.worlds.recorded import State

PER_PAIR = 20
"""Smallest number of transitions for each known state and action that a whole run collects."""
WHOLE_RUN = 20_000
"""Updates of a whole run; a shorter one collects proportionally less."""


class Landmarks(Method):
    """F and B as tables over the states that were seen; F has one policy for each landmark."""

    def __init__(self, model: Model, replay: Replay, s: Settings, run: RunSettings) -> None:
        super().__init__(model, replay, s, run)
        self.on_progress: Callable[[str], None] = lambda note: None
        """called with notes on the progress of computing the tables"""
        self._filled = 0  # transitions that had been added when the tables were last filled
        self._figures: Metrics = {}

    @staticmethod
    def possible(phi: FeatureMap, s: Settings) -> bool:
        """Whether F and B can be tables: landmarks are on, and the states and features can be listed."""
        plain = s.method == "fb" and s.first_step == 0 and not s.bias and not phi.action_set.continuous
        return s.landmarks > 0 and plain and can_list(phi.seen_space, phi.ends) and can_list(phi.space, phi.ends)

    @classmethod
    def fresh(cls, phi: FeatureMap, s: Settings) -> Model:
        """Empty tables."""
        observe, features = make_encoders(phi, s.normalise, s.encoding, s.encoding)
        return Model(phi, observe, features, LandmarkForward(observe, phi.actions), TableBackward(features))

    def behaviour(self, random: torch.Generator) -> Behaviour:
        """Greedy actions for one goal per episode; tasks are goals because the length of z changes with more states."""
        model = self.model
        return Behaviour(
            lambda packed, goal: model.greedy(packed, model.backward_map(goal)),
            partial(draw_features, self.replay, random),
        )

    def steps(self) -> int:
        """The setting, or more if there are many states."""
        s = self.s
        if s.steps_per_cycle == 0:
            return 0
        needed = PER_PAIR * self._states() * self.model.actions
        return max(s.steps_per_cycle, math.ceil(needed * s.updates_per_cycle / WHOLE_RUN))

    def _states(self) -> int:
        """The number of states seen so far; for numbers, the largest number of points."""
        encoder = self.model.observation_encoder
        if not encoder.categorical:
            return POINTS
        if len(self.replay) == 0:
            return 1
        return int((torch.bincount(encoder.codes(self.replay.transitions.observations)) > 0).sum())

    def exploration(self) -> float:
        """The setting; uniform before the tables are first computed."""
        return self.s.exploration if self._filled else 1.0

    def cycle(self, done: int, end: int) -> Report:
        """Compute the tables if they are needed: for greedy exploration, and at the end."""
        if end == self.s.updates:
            self._fill(self.model)
        elif self.s.exploration < 1 and self.explorer is None:
            self.refresh()
        return Report(lambda: self._figures, lambda: {})

    def refresh(self) -> None:
        """Compute the tables again if there is twice as much data."""
        if self.replay.added >= 2 * self._filled:
            self._fill(self.model)

    def finished(self) -> Model:
        """A model whose tables are computed from all data; that of the run, if there is no new data."""
        model = self.model
        if self.replay.added == self._filled:
            return model
        F, B = LandmarkForward(model.observation_encoder, model.actions), TableBackward(model.feature_encoder)
        model, figures = replace(model, F=F, B=B), (self._filled, self._figures)
        self._fill(model)
        self._filled, self._figures = figures
        return model

    def state(self) -> tuple[dict[str, Tensor], State]:
        """With the tables, which may be those of less data than were saved with the agent."""
        tensors, about = super().state()
        for name, module in (("F", self.model.F), ("B", self.model.B)):
            tensors |= {f"tables.{name}.{key}": value for key, value in module.state_dict().items()}
        return tensors, about | {"filled": self._filled}

    def load_state(self, tensors: Mapping[str, Tensor], about: State, done: int) -> None:
        """The inverse of `state`."""
        super().load_state(tensors, about, done)
        for name, module in (("F", self.model.F), ("B", self.model.B)):
            prefix = f"tables.{name}."
            tables = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if tables:
                module.load_state_dict(tables)
        self._filled = about.get("filled", 0)

    def _fill(self, model: Model) -> None:
        """Compute the tables of a model from all data, unless there is no new data."""
        F, B, replay, s = model.F, model.B, self.replay, self.s
        if replay.added == self._filled:
            return
        assert isinstance(F, LandmarkForward)
        assert isinstance(B, TableBackward)
        sample = rho_rows(model, replay, s.feature_sample, s.seed)
        figures = learn_tables(
            F,
            B,
            replay.transitions,
            sample,
            s.gamma,
            s.dim,
            s.landmarks,
            model.phi,
            self.on_progress,
        )
        self._figures = {name: torch.tensor(value) for name, value in figures.items()}
        self._filled = replay.added
