"""A cycle of gradient steps, for all methods with networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from anyreward.learning.fast.flat import FlatNetworks
from anyreward.learning.method import Report
from anyreward.learning.settings import Settings

IMAGES_AT_ONCE = 2
"""Minibatches of images drawn together: more would not fit in the cache."""


def gradient_cycle(
    networks: FlatNetworks,
    s: Settings,
    done: int,
    end: int,
    images: bool,
    draw: Callable[[int], Any],
    update: Callable[[Any, Sequence[float]], Report],
) -> Report:
    """Do the updates from ``done`` to ``end``: draw stacked minibatches, do gradient steps, update target networks."""
    at_once = IMAGES_AT_ONCE if images else s.updates_per_cycle
    while done < end:
        drawn = draw(min(end - done, at_once))
        for n in group_sizes(done, done + len(drawn.actions), s.target_every):
            group, drawn = drawn.split(n)
            last = update(group, [learning_rate(s, done + i) for i in range(n)])
            done += n
            if done % s.target_every == 0:
                networks.move_targets(s.target_retention)
    return last


def group_sizes(done: int, end: int, every: int) -> list[int]:
    """The numbers of gradient updates between target updates; the targets of each group are computed together."""
    moves = [done, *range(done - done % every + every, end, every), end]
    return [after - before for before, after in itertools.pairwise(moves)]


def learning_rate(s: Settings, done: int) -> float:
    """Adam's learning rate after ``done`` updates."""
    return s.learning_rate * learning_rate_factor(done / s.updates, s.learning_rate_decay)


def learning_rate_factor(progress: float, decay: float) -> float:
    """1, then falling linearly to 0.01 over the last ``decay`` of the run."""
    return 1.0 if progress <= 1.0 - decay else max((1.0 - progress) / decay, 0.01)
