"""A B that is given: orthonormal on the data, and what its name says."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from anyreward import UserError
from anyreward.model.basis import Basis, far_points, state_width
from anyreward.model.encoding import Encoder

KINDS = ("state", "rbf", "fourier", "laplacian")


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ring(n: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A random walk on a ring of n states, as columns: where it is, and where it goes."""
    rng = np.random.default_rng(0)
    now = rng.integers(n, size=steps)
    return tuple(torch.from_numpy(x[:, None]) for x in (now, (now + rng.choice([-1, 1], size=steps)) % n))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_orthonormal_on_the_data(kind: str) -> None:
    encoder = Encoder(gym.spaces.Box(-1, 1, (2,), np.float32), normalise=False)
    x = torch.rand(5_000, 2, generator=random(1)) * 2 - 1
    following = x + 0.05 * torch.randn(5_000, 2, generator=random(2))
    basis = Basis(kind, encoder, state_width(encoder) if kind == "state" else 20)
    assert not basis.fitted
    basis.fit(x, following, random())
    assert basis.fitted
    B = basis(x).double()
    covariance = B.T @ B / len(B)
    used = covariance.diagonal() > 0.5
    assert used.sum() >= (3 if kind == "state" else 15)
    if kind in ("state", "laplacian"):
        assert torch.allclose(covariance, torch.diag(used.double()), atol=1e-3)
    else:  # the symmetric whitening drops directions without variance, not components
        assert torch.allclose(covariance @ covariance, covariance, atol=1e-3)
    reward = (1.0 + 0.3 * x[:, 0] - x[:, 1]).double()  # spanned by "state": regression finds it
    if kind == "state":
        assert torch.allclose(B @ (reward @ B / len(B)), reward, atol=1e-3)


def test_of_categories_the_state_is_one_hot_over_the_root_of_its_frequency() -> None:
    encoder = Encoder(gym.spaces.Discrete(5))
    g = torch.tensor([0] * 10 + [1] * 30 + [3] * 60)[:, None]
    basis = Basis("state", encoder, 5)
    basis.fit(g, g, random())
    expected = torch.diag(torch.tensor([10**0.5, (10 / 3) ** 0.5, 0.0, (5 / 3) ** 0.5, 0.0]))
    assert torch.allclose(basis(torch.arange(5)[:, None]), expected, atol=1e-5)


def test_the_laplacian_of_a_ring_has_waves() -> None:
    n = 12
    now, following = ring(n, 20_000)
    basis = Basis("laplacian", Encoder(gym.spaces.Discrete(n)), 5)
    basis.fit(now, following, random())
    B = basis(torch.arange(n)[:, None]).double().numpy()
    angle = 2 * np.pi * np.arange(n) / n
    waves = [np.ones(n)] + [f(k * angle) for k in (1, 2) for f in (np.cos, np.sin)]
    for i, group in enumerate([[0], [1, 2], [3, 4]]):  # eigenspaces, from the smoothest on
        span = np.stack([waves[j] for j in group], 1)
        inside = span @ np.linalg.lstsq(span, B[:, group], rcond=None)[0]
        assert np.abs(inside - B[:, group]).max() < 0.15 * np.abs(B).max(), i


def test_the_laplacian_sees_walls_where_distance_does_not() -> None:
    """Two halves of a square with a wall between: the smoothest function but the constant tells them apart."""
    x = torch.rand(20_000, 2, generator=random(1))
    step = 0.05 * torch.randn(20_000, 2, generator=random(2))
    following = (x + step).clamp(0, 1)
    crossed = (following[:, 0] > 0.5) != (x[:, 0] > 0.5)
    following[crossed] = x[crossed]
    basis = Basis("laplacian", Encoder(gym.spaces.Box(0, 1, (2,), np.float32), normalise=False), 4)
    basis.fit(x, following, random())
    second = basis(x)[:, 1]
    far = (x[:, 0] - 0.5).abs() > 0.1
    left, right = second[far & (x[:, 0] < 0.5)], second[far & (x[:, 0] > 0.5)]
    assert float((left.mean() - right.mean()).abs()) > 5 * float(left.std() + right.std())


def test_places_on_a_map_stand_for_categories() -> None:
    places = np.array([[x, y] for y in range(6) for x in range(6)], dtype=float)
    g = torch.arange(36)[:, None].repeat(50, 1)
    basis = Basis("rbf", Encoder(gym.spaces.Discrete(36)), 36, places)
    basis.fit(g, g, random())
    raw = basis.raw(torch.arange(36)[:, None])
    assert torch.allclose(raw.sum(1), torch.ones(36))
    nearest = torch.cdist(basis.coordinates, basis.centres).argmin(1)
    assert torch.equal(raw.argmax(1), nearest)
    with pytest.raises(UserError, match="categories without coordinates"):
        Basis("fourier", Encoder(gym.spaces.Discrete(36)), 4)
    both = Encoder(gym.spaces.Tuple([gym.spaces.Discrete(36), gym.spaces.Discrete(5)]))
    for kind in ("rbf", "laplacian"):  # they would not see the action
        with pytest.raises(UserError, match=r"the features have 2 .* Use basis='state'"):
            Basis(kind, both, 4, places)
    binary = Encoder(gym.spaces.MultiBinary(6), normalise=False)  # categories that are numbers too
    g = torch.randint(2, (500, 6), generator=random()).float()
    basis = Basis("laplacian", binary, 4)
    basis.fit(g, g.flip(0), random())
    assert torch.isfinite(basis(g)).all()


def test_far_points_cover_what_there_is() -> None:
    x = torch.tensor([[0.0], [1.0], [10.0], [4.0], [0.0]])
    chosen, radius = far_points(x, 3)
    assert chosen.flatten().tolist() == [0.0, 10.0, 4.0]
    assert radius == 4.0
    chosen, radius = far_points(x, 7)
    assert set(chosen.flatten().tolist()) == {0.0, 1.0, 4.0, 10.0}
    assert radius == 1.0


def test_it_is_saved_with_its_shapes() -> None:
    encoder = Encoder(gym.spaces.Box(-1, 1, (2,), np.float32), normalise=False)
    x = torch.rand(300, 2, generator=random(1))
    for kind in KINDS:
        dim = state_width(encoder) if kind == "state" else 7
        basis, again = Basis(kind, encoder, dim), Basis(kind, encoder, dim)
        basis.fit(x, x.flip(0), random())
        again.load_state_dict(basis.state_dict())
        assert again.fitted
        assert torch.equal(again(x), basis(x))
