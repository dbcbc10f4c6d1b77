from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from anyreward.errors import UserError
from anyreward.model.encoding import Encoder
from anyreward.worlds.spaces import pack

BOX = spaces.Box(-np.inf, np.inf, (3,))


def test_running_moments_are_those_of_all_rows() -> None:
    encoder = Encoder(BOX)
    rng = np.random.default_rng(0)
    batches = [rng.normal(1000.0, [1, 5, 0.1], size=(n, 3)).astype(np.float32) for n in (1, 7, 100, 3, 2000)]
    for batch in batches:
        encoder.observe(torch.from_numpy(batch))
    rows = np.concatenate(batches).astype(np.float64)
    assert encoder.count.item() == len(rows)
    assert encoder.mean.numpy() == pytest.approx(rows.mean(0), rel=1e-13)
    assert encoder.variance.numpy() == pytest.approx(rows.var(0), rel=1e-9)
    encoded = encoder(torch.from_numpy(batches[2])).numpy()
    assert encoded.dtype == np.float32
    assert encoded == pytest.approx((batches[2] - rows.mean(0)) / rows.std(0), abs=1e-4)


def test_unobserved_rows_pass_as_they_are() -> None:
    rows = torch.tensor([[1.0, -2.0, 0.5]])
    assert torch.equal(Encoder(BOX)(rows), rows)


def test_small_deviations_are_floored() -> None:
    encoder = Encoder(BOX)
    encoder.observe(torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.002, 2.0]]))  # standard deviations 0, 0.001, 1
    encoded = encoder(torch.tensor([[1.02, 0.011, 2.0]]))
    assert encoded.numpy() == pytest.approx(np.array([[2.0, 1.0, 1.0]]), rel=1e-4)


def test_clipped_at_five() -> None:
    encoder = Encoder(BOX)
    encoder.observe(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))
    assert encoder(torch.tensor([[7.0, -100.0, 4.5]])).tolist() == [[5.0, -5.0, 4.5]]


def test_an_empty_batch_changes_nothing() -> None:
    encoder = Encoder(BOX)
    encoder.observe(torch.tensor([[2.0, 2.0, 2.0], [4.0, 4.0, 4.0]]))
    encoder.observe(torch.zeros(0, 3))
    assert encoder.mean.tolist() == [3.0, 3.0, 3.0]
    assert encoder.variance.tolist() == [1.0, 1.0, 1.0]


def test_only_numbers_are_normalised() -> None:
    space = spaces.Tuple(
        [spaces.Discrete(3), spaces.Box(-9, 9, (1,)), spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2])]
    )
    encoder = Encoder(space)
    rows = torch.tensor([[0.0, 2.0, 1, 0, 0, 1], [2.0, 6.0, 1, 1, 1, 1]])
    encoder.observe(rows)
    expected = [[1, 0, 0, -1, 1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 1, 1, 0, 1, 0, 1]]
    assert encoder(rows).tolist() == expected
    assert encoder.width == 10


def test_normalisation_can_be_off() -> None:
    encoder = Encoder(BOX, normalise=False)
    rows = torch.tensor([[10.0, 20.0, 30.0], [0.0, 0.0, 0.0]])
    encoder.observe(rows)
    assert torch.equal(encoder(rows), rows)


@pytest.mark.parametrize(
    ("space", "categorical"),
    [
        (spaces.Discrete(4), True),
        (spaces.MultiDiscrete([2, 3]), True),
        (spaces.MultiBinary(3), True),
        (spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(1)]), True),
        (BOX, False),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(0, 1, ())}), False),
    ],
)
def test_categorical_means_no_numbers(space: spaces.Space, categorical: bool) -> None:
    assert Encoder(space).categorical is categorical


def test_the_moments_are_saved_with_the_module() -> None:
    encoder, other = Encoder(BOX), Encoder(BOX)
    rows = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 9.0]])
    encoder.observe(rows)
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(rows), encoder(rows))
    assert not torch.equal(Encoder(BOX)(rows), encoder(rows))


@pytest.mark.parametrize("space", [spaces.Discrete(7), spaces.MultiDiscrete([3, 4, 2]), spaces.MultiBinary(70)])
def test_distinct_rows_are_those_of_unique(space: spaces.Space) -> None:
    space.seed(0)
    rows = torch.from_numpy(pack(space, np.stack([space.sample() for _ in range(60)] * 2)))
    distinct, index = Encoder(space).distinct(rows)
    expected, expected_index = torch.unique(rows, dim=0, return_inverse=True)
    assert torch.equal(distinct, expected)
    assert torch.equal(index, expected_index)


def test_radial_basis_functions_are_the_papers_normalised() -> None:
    """By the formula of the appendix, with the Gaussian's own 2 sigma^2, divided by their sum."""
    encoder = Encoder(spaces.Box(0.0, 1.0, (2,)), encoding="rbf")
    points = np.random.default_rng(0).random((50, 2)).astype(np.float32)
    line = np.linspace(0, 1, 21)
    centres = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)  # (441, 2)
    activation = np.exp(-((points[:, None] - centres) ** 2).sum(-1) / (2 * 0.05**2))
    encoder.observe(torch.from_numpy(points))  # nothing to normalise
    assert encoder.width == 441
    expected = activation / activation.sum(1, keepdims=True)
    assert encoder(torch.from_numpy(points)).numpy() == pytest.approx(expected, abs=1e-6)


def test_radial_basis_functions_follow_the_bounds() -> None:
    encoder = Encoder(spaces.Box(np.array([-2.0], dtype=np.float32), np.array([6.0], dtype=np.float32)), encoding="rbf")
    assert encoder.width == 21
    assert encoder(torch.tensor([[-2.0], [2.0], [6.0]])).argmax(1).tolist() == [0, 10, 20]


@pytest.mark.parametrize("space", [BOX, spaces.Box(0.0, 1.0, (3,)), spaces.Discrete(4), spaces.Box(0.0, 1.0, (2, 2))])
def test_radial_basis_functions_need_one_or_two_bounded_numbers(space: spaces.Space[object]) -> None:
    with pytest.raises(UserError, match="bounded Box of one or two numbers"):
        Encoder(space, encoding="rbf")
