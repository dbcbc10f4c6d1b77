"""Points for continuous actions: their units, how long an action is kept, and the values of plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import anyreward as ar
from anyreward.acting.better import refined_on_points
from anyreward.learning.box_model import by_pace, kept_for
from anyreward.learning.replay import Transitions
from anyreward.rewards.kept import points_of

STEP, GAMMA = 0.01, 0.97


class Road(gym.Env[Any, Any]):
    """A place on a road from 0 to 1, which an action moves by at most 0.01."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Box(-1, 1, (1,))
    never_terminates = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(0, 1, 1)
        return self.x.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x = np.clip(self.x + STEP * np.asarray(action), 0, 1)
        return self.x.astype(np.float32), 0.0, False, False, {}


def transitions(n: int) -> Transitions:
    random = torch.Generator().manual_seed(0)
    x, a = torch.rand(n, 1, generator=random), 2 * torch.rand(n, 1, generator=random) - 1
    after = (x + STEP * a).clamp(0, 1)
    return Transitions(x, a, after, torch.zeros(n, dtype=torch.bool), x)


def test_an_action_is_kept_until_the_slowest_number_has_changed_by_the_distance_of_points() -> None:
    grid = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0)).double()  # the next point is 1 away
    assert kept_for(grid, torch.tensor([[0.25, 1.0], [-0.25, -1.0]]).double()) == 3  # 1 / sqrt(2) / 0.25 = 2.8
    assert kept_for(grid, torch.tensor([[0.8, 1.0]]).double()) == 1
    assert kept_for(grid, torch.tensor([[0.0, 0.4]]).double()) == 3  # the first number never changes: 1 / 0.4
    assert kept_for(grid, torch.zeros(3, 2).double()) == 1
    assert kept_for(grid, torch.tensor([[1e-6, 1.0]]).double()) == 8  # at most


def test_points_are_finer_in_slow_numbers() -> None:
    x, after = torch.zeros(4, 3), torch.tensor([[0.1, 4.0, 0.0]]).expand(4, 3)
    rows = Transitions(x, torch.zeros(4, 1), after, torch.zeros(4, dtype=torch.bool), x)
    unit = by_pace(torch.tensor([1.0, 10.0, 2.0]).double(), rows, ends=False)
    # changes of 0.1, 0.4 and 0 spreads: a quarter of the fastest, the fastest, and a number that never changes
    assert torch.allclose(unit, torch.tensor([0.5, 10.0, 2.0]).double())
    ends = by_pace(torch.tensor([1.0, 10.0, 0.01]).double(), rows, ends=True)
    assert torch.allclose(ends, torch.tensor([0.5, 10.0, 0.01]).double())  # the flag of terminal states keeps its unit


@pytest.mark.parametrize("points", [50, 400])
def test_a_plan_has_the_true_values(points: int, tmp_path: Path) -> None:
    agent = ar.train(Road(), landmarks=0, updates=40, hidden=16, dim=4, gamma=GAMMA, action_repeat=1, progress=False)
    rows = transitions(40_000)
    table = points_of(rows, agent.model, GAMMA, per_point=len(rows.actions) // points)
    assert len(table.features) == points
    assert (table.kept > 1) == (points == 50)  # 0.02 apart, when an action changes the place by 0.006
    agent = replace(agent, knowledge=replace(agent.knowledge, points=table))
    policy = refined_on_points(agent.ask(ar.reward("f0 > 0.5"), refine=0), table)
    x = np.array([[0.1], [0.3], [0.4], [0.45], [0.6], [0.9]], dtype=np.float32)
    steps = np.maximum(np.ceil((0.5 - x[:, 0]) / STEP), 0)
    exact = GAMMA**steps / (1 - GAMMA)
    assert np.allclose(policy.value(x), exact, rtol=0.1), (policy.value(x), exact)
    assert (policy.act(x[:4]) > 0.9).all()
    agent.save(tmp_path / "agent")
    again = ar.load(tmp_path / "agent").ask(ar.reward("f0 > 0.5"), refine=1)
    assert np.array_equal(again.value(x), agent.ask(ar.reward("f0 > 0.5"), refine=1).value(x))
