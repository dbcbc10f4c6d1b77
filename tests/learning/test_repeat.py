"""How often training repeats an action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anyreward as ar
from anyreward.learning.repeat import repeat_of

TINY: dict[str, Any] = {"updates": 40, "hidden": 16, "batch_size": 16, "dim": 6, "steps_per_cycle": 200}


def swinging(period: float) -> tuple[np.ndarray, np.ndarray]:
    """(800, 1, 2) one number that rises and falls in so many steps, and one that never changes; episodes of 100."""
    t = np.arange(800)
    wave = np.abs((t / period) % 1 - 0.5)
    return np.stack([wave, np.ones(800)], 1)[:, None], (t % 100 == 0)[:, None]


@pytest.mark.parametrize(("period", "expected"), [(20.0, 1), (40.0, 2), (80.0, 4), (400.0, 16)])
def test_an_action_is_repeated_until_states_have_changed(period: float, expected: int) -> None:
    # a step changes the triangle by 1 / T; a quarter of its standard deviation is 0.25 * 0.5 / sqrt(12) = 0.036
    rows, begins = swinging(period)
    assert repeat_of(rows, begins, 16) == expected
    assert repeat_of(rows, begins, 1) == 1


def test_episodes_are_not_connected() -> None:
    _, begins = swinging(80.0)
    rows = begins.cumsum(0)[..., None].astype(float)  # jumps from one episode to the next alone
    assert repeat_of(rows, begins, 16) == 1  # nothing moves within an episode


def test_networks_repeat_actions_and_tables_do_not() -> None:
    """Where the way between two decisions is long, a reward in a small place can be passed unnoticed."""
    networks = ar.train("Pendulum-v1", landmarks=0, **TINY, progress=False)
    assert networks.settings.action_repeat == 2
    tables = ar.train("Pendulum-v1", **TINY, progress=False)
    assert tables.model.landmarks is not None
    assert tables.settings.action_repeat == 1
    given = ar.train("Pendulum-v1", **TINY, action_repeat=4, progress=False)
    assert given.settings.action_repeat == 4
