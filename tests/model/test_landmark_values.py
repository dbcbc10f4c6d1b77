"""Values of landmarks: what they are, their unit, and what they keep apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import anyreward as ar
from anyreward.learning.box_model import box_model
from anyreward.learning.local_model import LocalModel
from anyreward.learning.replay import Transitions
from anyreward.model.encoding import Encoder
from anyreward.model.landmark_values import LandmarkValues, unit_of
from anyreward.model.landmarks import KnownRows
from anyreward.worlds.actions import action_set

TINY = {"landmarks": 0, "updates": 80, "hidden": 16, "batch_size": 16, "dim": 6, "steps_per_cycle": 1_000}
WIDE = 0.05
"""Half the width of the wall in `walled`; neighbouring transitions are farther apart than that."""


@pytest.fixture(scope="module")
def agent() -> ar.Agent:
    return ar.train("point-mass-maze", **TINY, progress=False)  # type: ignore[arg-type]


def side(packed: Tensor) -> Tensor:
    """On which side of the wall a state is, as F would know it: the value of a goal on the right."""
    return (packed[:, :1] > 0).double()


def walled(n: int = 20_000) -> Transitions:
    """A point that an action moves by up to 0.1 to the left or right; a wall at x = 0 stops it. Nothing else moves."""
    random = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(n, 4, generator=random) - 1
    x[:, 0] = torch.where(x[:, 0].abs() < WIDE, WIDE * torch.sign(x[:, 0]), x[:, 0])
    a = 2 * torch.rand(n, 1, generator=random) - 1
    after = x.clone()
    after[:, :1] += 0.1 * a
    right = x[:, 0] > 0
    after[:, 0] = torch.where(right, after[:, 0].clamp(min=WIDE), after[:, 0].clamp(max=-WIDE))
    return Transitions(x, a, after, torch.zeros(n, dtype=torch.bool), x)


def test_values_are_those_of_the_policies_of_goals(agent: ar.Agent) -> None:
    model, rows = agent.model, agent.sample.rows
    values = LandmarkValues.among(rows, model)
    assert values.Z.shape == (4, 6)
    assert torch.allclose(values.Z.norm(dim=1), torch.full((4,), 6**0.5))  # in training, z has this length
    some = agent.knowledge.held_out
    assert some is not None
    packed = some.observations[:7]
    expected = torch.stack([model.choose(packed, z)[1] for z in values.Z], 1)
    assert torch.allclose(values(packed), expected.double(), atol=1e-5)
    halved = LandmarkValues(model, values.Z, unit=2.0)
    assert torch.allclose(halved(packed), values(packed) / 2)


def test_the_unit_by_hand() -> None:
    x = torch.linspace(0, 1, 1_001)[:, None].double()
    assert unit_of(3 * x, x) == pytest.approx(3.0)
    jump = 3 * x + 100 * (x > 0.5)  # few neighbours lie on two sides
    assert unit_of(jump, x) == pytest.approx(3.0)
    assert unit_of(torch.zeros(5, 2).double(), torch.rand(5, 3).double()) > 0
    assert unit_of(torch.zeros(5, 2).double(), torch.zeros(5, 3).double()) == 1.0


def test_a_local_model_does_not_lead_through_walls() -> None:
    rows, scale, through = walled(), np.ones(4), []
    push = np.ones((200, 1), dtype=np.float32)  # against the wall
    for values in (None, side):
        x = np.random.default_rng(1).uniform(-1, 1, (200, 4))
        x[:, 0] = -WIDE
        model = LocalModel(rows, 0, False, scale, values)
        for _ in range(8):
            x = model.step(x, push)[0]
        through.append(float((x[:, 0] > WIDE).mean()))
    mixed, apart = through
    assert mixed > 0.5
    assert apart < 0.05
    free = np.array([[-0.6, 0.1, 0.2, 0.3]])
    after = LocalModel(rows, 0, False, scale, side).step(free, push[:1])[0]
    np.testing.assert_allclose(after, [[-0.5, 0.1, 0.2, 0.3]], atol=1e-3)


def test_known_rows_are_told_apart() -> None:
    states = KnownRows(Encoder(spaces.Box(-1, 1, (4,)), True, "plain"))
    rows = torch.zeros(40, 4)
    rows[:, 0], rows[:, 1] = WIDE * torch.tensor([-1.0, 1.0]).repeat(20), torch.linspace(-1, 1, 40)
    here = torch.tensor([[-WIDE, 0.1, 0.0, 0.0]])
    states.know(rows, torch.ones(4))
    index, share = states.locate(here)
    assert {bool(right) for right in rows[index[share > 0], 0] > 0} == {True, False}
    states.know(rows, torch.ones(4), side)
    index, share = states.locate(here)
    assert (rows[index[share > 0.01], 0] < 0).all()
    assert float(share.sum()) == pytest.approx(1.0)


def test_points_of_a_box_do_not_lead_through_walls() -> None:
    class Sides(LandmarkValues):
        def __call__(self, packed: Tensor) -> Tensor:
            return side(packed) / self.unit

    rows, leaks = walled(), {}
    for name, values in (("without", None), ("with", Sides(None, torch.zeros(1, 1)))):  # type: ignore[arg-type]
        states = KnownRows(Encoder(spaces.Box(-1, 1, (4,)), True, "plain"))
        listed = action_set(spaces.Box(-1, 1, (1,)), "a world").listed(3)
        found, _ = box_model(states, rows, listed, False, 400, 10, values)
        left, goes_right = states.rows[:, 0] < 0, states.rows[found.following, 0] > 0  # (M,), (M, A, n)
        leaks[name] = float((found.share * goes_right)[left].sum(2).mean())
    assert leaks["without"] > 0.02
    assert leaks["with"] < 0.2 * leaks["without"], leaks


def test_points_are_saved_with_their_landmarks(agent: ar.Agent, tmp_path: Path) -> None:
    points = agent.knowledge.points
    assert points is not None
    assert points.values is not None
    agent.save(tmp_path / "agent")
    again = ar.load(tmp_path / "agent").knowledge.points
    assert again is not None
    assert again.values is not None
    assert torch.equal(again.values.Z, points.values.Z)
    assert again.values.unit == points.values.unit
    held_out = agent.knowledge.held_out
    assert held_out is not None
    for one, two in zip(
        again.table.states.locate(held_out.observations), points.table.states.locate(held_out.observations), strict=True
    ):
        assert torch.equal(one, two)
    reward = ar.reward("f0 > 0")
    seen = held_out.observations[:5, :4].numpy()
    np.testing.assert_array_equal(ar.load(tmp_path / "agent").ask(reward, 1).act(seen), agent.ask(reward, 1).act(seen))


def test_few_numbers_are_triangulated_instead() -> None:
    agent = ar.train("Pendulum-v1", **TINY, progress=False)  # type: ignore[arg-type]
    assert agent.knowledge.points is not None
    assert agent.knowledge.points.values is None
