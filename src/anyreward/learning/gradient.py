"""Learning by gradient steps, for all methods with networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from anyreward.learning.batch import split
from anyreward.learning.method import Method, Report
from anyreward.learning.replay import Replay
from anyreward.learning.settings import RunSettings, Settings
from anyreward.learning.update import Learner
from anyreward.model.model import Model

IMAGES_AT_ONCE = 2
"""Minibatches of images drawn together: more would not fit in the cache."""


class GradientMethod(Method):
    """A method that learns by gradient steps on minibatches, with target networks."""

    def __init__(self, model: Model, replay: Replay, s: Settings, run: RunSettings) -> None:
        super().__init__(model, replay, s, run)
        self.learner = Learner(model.F, model.B, model.bias, s.first_step, model.actor, relative_rates(s))
        self.networks = self.learner.networks

    def finished(self) -> Model:
        """A copy of the model, which computes exactly what it computes after it was saved and loaded."""
        return self.model.copied()

    @abstractmethod
    def draw(self, n: int) -> Any:
        """The minibatches of n updates, stacked."""

    @abstractmethod
    def update(self, group: Any, learning_rates: Sequence[float]) -> Report:
        """The gradient steps on stacked minibatches between two target updates; reports the last one."""

    def cycle(self, done: int, end: int) -> Report:
        """Draw stacked minibatches, do gradient steps, update target networks."""
        s = self.s
        at_once = s.updates_per_cycle if self.replay.frames is None else IMAGES_AT_ONCE
        while done < end:
            drawn = self.draw(min(end - done, at_once))
            while left := len(drawn.actions):
                n = min(left, s.target_every - done % s.target_every)  # the targets of these are computed together
                group, drawn = split(drawn, n)
                progress = [(done + i) / s.updates for i in range(n)]
                rates = [s.learning_rate * learning_rate_factor(p, s.learning_rate_decay) for p in progress]
                last = self.update(group, rates)
                done += n
                if done % s.target_every == 0:
                    self.learner.networks.move_targets(s.target_retention)
        return last


def relative_rates(s: Settings) -> tuple[float, float]:
    """The learning rates of B and of the actor, relative to that of F."""
    return (s.backward_learning_rate or s.learning_rate) / s.learning_rate, (
        s.actor_learning_rate or s.learning_rate
    ) / s.learning_rate


def learning_rate_factor(progress: float, decay: float) -> float:
    """1, then falling linearly to 0.01 over the last ``decay`` of the run."""
    return 1.0 if progress <= 1.0 - decay else max((1.0 - progress) / decay, 0.01)
