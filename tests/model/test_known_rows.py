"""Interpolation between known rows: in a triangulation, which is exact for linear functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from anyreward.model.encoding import Encoder
from anyreward.model.landmarks import KnownRows


def known(points: np.ndarray, ends: bool) -> KnownRows:
    """Triangulated rows at points (m, p); with ``ends``, each is a terminal state too, in a second row."""
    rows = torch.from_numpy(points.astype(np.float32))
    scale = torch.ones(points.shape[1])
    if ends:
        flags = [torch.full((len(rows), 1), flag) for flag in (0.0, 1.0)]
        rows = torch.cat([torch.cat([rows, flag], 1) for flag in flags])
        scale = torch.cat([scale, torch.tensor([0.01])])
    states = KnownRows(Encoder(spaces.Box(-np.inf, np.inf, (rows.shape[1],))))
    states.know(rows, scale)
    states.triangulate(ends)
    return states


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("dimensions", [2, 3])
@given(seed=st.integers(0, 10_000))
def test_linear_functions_are_interpolated_exactly(dimensions: int, ends: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * dimensions), -1).reshape(-1, dimensions)
    states = known(np.concatenate([corners, rng.random((60, dimensions))]), ends)
    x = rng.uniform(0.01, 0.99, (50, dimensions)).astype(np.float32)
    flag = (rng.random((50, 1)) < 0.3).astype(np.float32)
    index, share = states.locate(torch.from_numpy(np.concatenate([x, flag], 1) if ends else x))
    assert index.shape == share.shape == (50, states.corners)
    assert float(share.min()) >= 0
    np.testing.assert_allclose(share.sum(1), 1.0, rtol=1e-5)
    mixed = (states.rows[index] * share[..., None]).sum(1).numpy()
    alive = flag[:, 0] < 0.5 if ends else np.ones(50, dtype=bool)
    np.testing.assert_allclose(mixed[alive, :dimensions], x[alive], atol=1e-4)
    if ends:  # nothing is interpolated between terminal states and others
        np.testing.assert_allclose(mixed[:, -1], flag[:, 0], atol=1e-6)


def test_outside_of_all_triangles_the_nearest_row_counts() -> None:
    states = known(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), ends=False)
    index, share = states.locate(torch.tensor([[1.4, 1.2]]))
    assert states.rows[index[0, 0]].tolist() == [1.0, 1.0]
    assert share[0].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("points", [[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], [[0.0, 0.0]]])
def test_rows_on_one_line_are_not_triangulated(points: list[list[float]]) -> None:
    states = known(np.array(points), ends=False)
    index, share = states.locate(torch.tensor([[0.9, 1.1]]))
    assert share.sum().item() == pytest.approx(1.0)
    assert index.max() < len(points)


def test_rows_saved_by_an_earlier_version_load() -> None:
    states = known(np.random.default_rng(0).random((20, 2)), ends=False)
    saved = {name: value for name, value in states.state_dict().items() if name != "numbers"}
    again = KnownRows(Encoder(spaces.Box(-np.inf, np.inf, (2,))))
    again.load_state_dict(saved)
    assert torch.equal(again.rows, states.rows)
    assert len(again.numbers) == 0  # interpolated between the nearest rows, as then
    del saved["rows"]
    with pytest.raises(RuntimeError, match="rows"):
        again.load_state_dict(saved)


def cylinder(angle: np.ndarray, height: np.ndarray) -> np.ndarray:
    """(n, 3) places on a cylinder."""
    return np.stack([np.cos(angle), np.sin(angle), height], 1)


@pytest.mark.parametrize("ends", [False, True])
@given(seed=st.integers(0, 10_000))
def test_on_a_cylinder_only_near_rows_are_mixed(ends: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.stack(np.meshgrid(np.linspace(-np.pi, np.pi, 30, endpoint=False), np.linspace(-1, 1, 10)), -1)
    points = points.reshape(-1, 2) + rng.uniform(-0.02, 0.02, (300, 2))
    states = known(cylinder(*points.T), ends)
    angle, height = rng.uniform(-np.pi, np.pi, 100), rng.uniform(-0.95, 0.95, 100)
    x = cylinder(angle, height).astype(np.float32)
    index, share = states.locate(torch.from_numpy(np.pad(x, ((0, 0), (0, int(ends))))))
    assert index.shape == share.shape == (100, states.corners)
    assert float(share.min()) >= 0
    np.testing.assert_allclose(share.sum(1), 1.0, rtol=1e-5)
    used = torch.where(share > 0, (states.rows[index][..., :3] - torch.from_numpy(x)[:, None]).norm(dim=2), 0.0)
    assert float(used.max()) < 0.4  # points are 0.21 and 0.22 apart
    turned, above = np.moveaxis(points[index.numpy() % 300], 2, 0)
    turned = (turned - angle[:, None] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose((share.numpy() * turned).sum(1), 0.0, atol=0.01)  # linear on the cylinder
    np.testing.assert_allclose((share.numpy() * above).sum(1), height, atol=0.01)


def test_beyond_the_edge_of_a_surface_the_nearest_place_on_it_counts() -> None:
    angle, height = np.meshgrid(np.linspace(-np.pi, np.pi, 30, endpoint=False), np.linspace(-1, 1, 10))
    states = known(cylinder(angle.ravel(), height.ravel()), ends=False)
    index, share = states.locate(torch.from_numpy(cylinder(np.array([0.05]), np.array([1.3])).astype(np.float32)))
    mixed = (states.rows[index] * share[..., None]).sum(1)[0]
    np.testing.assert_allclose(mixed, [np.cos(0.05), np.sin(0.05), 1.0], atol=0.01)
