"""Phase 1: the training loop. Collect transitions, learn, repeat; no rewards are used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anyreward.learning.collect import Collector
from anyreward.learning.explorer import EPSILON
from anyreward.learning.machine import open_device
from anyreward.learning.method import Behaviour, Method, Report
from anyreward.learning.methods import check_compile, method_of
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import RunSettings, Settings
from anyreward.model.model import Model

REFILL = 50
"""Number of cycles whose transitions are collected again if a resumed run has no saved replay buffer."""
MOST_AT_ONCE = 1_000
"""Largest number of transitions collected before they are added to the replay buffer; images need much memory."""


@dataclass
class Learning:
    """The state of a training run: its method, data and progress."""

    method: Method
    replay: Replay
    settings: Settings
    done: int = 0
    """updates"""
    seconds: float = 0.0
    """of training, without evaluation"""
    earlier: int = 0
    """transitions collected for a replay buffer that was not kept when the run stopped"""
    held_out: Transitions | None = None
    """transitions that are not learned from"""
    hold_out: int = 0
    """how many of these a whole run collects, evenly over its cycles"""
    wanted: int = 0
    """transitions to have collected so far; whole steps of all environments may give more"""

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.method.model

    @property
    def exploration(self) -> float:
        """The share of uniform actions."""
        return EPSILON if self.method.explorer is not None else self.method.exploration()

    @property
    def behaviour(self) -> Behaviour:
        """The behaviour policy."""
        method = self.method
        if method.explorer is not None:
            return Behaviour(method.explorer.greedy, method.explorer.new_tasks)
        return method.behaviour(method.explore)


def begin(model: Model, replay: Replay, s: Settings, run: RunSettings | None = None) -> Learning:
    """The state of a new run, on the device of its settings."""
    run = run or RunSettings()
    check_compile(model.phi, s, run)
    model.to(open_device(run.device))
    return Learning(method_of(model.phi, s)(model, replay, s, run), replay, s)


def learn(learning: Learning, collector: Collector | None = None) -> Iterator[tuple[int, Report]]:
    """Run Algorithm 1 on a replay buffer that a collector fills (online) or that holds a dataset (offline).

    The model is changed in place. Yields the number of updates so far and a report of the last one, after each cycle.
    """
    method, replay, model, s = learning.method, learning.replay, learning.model, learning.settings

    def collect(steps: int, epsilon: float) -> None:
        learning.wanted += steps  # the excess counts towards the next call
        while collector is not None and replay.added < learning.wanted:
            most = min(learning.wanted - replay.added, MOST_AT_ONCE)
            rows = collector.collect(most, epsilon, *behaviour)
            model.normalise(rows.observations, rows.features)
            replay.add(rows)

    explorer, behaviour = method.explorer, learning.behaviour
    if learning.done == 0:
        if collector is None:
            model.normalise(replay.transitions.observations, replay.transitions.features)
        collect(s.warmup_steps, epsilon=1.0)
        method.prepare()
    elif len(replay) == 0:
        collect(max(s.warmup_steps, REFILL * s.steps_per_cycle), s.exploration)
    while learning.done < s.updates:
        if explorer and collector and len(replay):
            explorer.see(replay.transitions, replay.added)
        collect(method.steps(), learning.exploration)
        end = min(learning.done + s.updates_per_cycle, s.updates)
        report = method.cycle(learning.done, end)
        learning.done = end
        hold_out(learning, collector, end / s.updates)
        yield end, report


def hold_out(learning: Learning, collector: Collector | None, share: float = 1.0) -> None:
    """Collect held-out transitions, until there is this share of those that a whole run collects."""
    held = 0 if learning.held_out is None else len(learning.held_out.actions)
    missing = math.ceil(learning.hold_out * share) - held
    if collector is not None and missing > 0:
        rows = collector.collect(missing, learning.exploration, *learning.behaviour)
        learning.held_out = rows if learning.held_out is None else learning.held_out.joined(rows)
