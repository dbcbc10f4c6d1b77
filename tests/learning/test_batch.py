"""What a minibatch holds: on hand-made worlds where every column follows from the state and the action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from anyreward.learning.batch import Batch, KnownFeatures, draw, known_features, with_z
from anyreward.learning.forward_backward import ForwardBackward
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import Settings
from anyreward.model import Backward, Encoder, Forward, Model, ZMixture, feature_map
from anyreward.model.latent import preprocess_z

S, A, GAMMA = 7, 3, 0.9
SETTINGS = Settings(dim=5, batch_size=12, gamma=GAMMA, hidden=8, layers=1)
FEATURES: dict[str, spaces.Space[Any]] = {
    "one-hot": spaces.Tuple([spaces.Discrete(S), spaces.Discrete(A)]),  # (s, a)
    "binary": spaces.MultiBinary(3),  # s in base two
    "numbers": spaces.Box(-np.inf, np.inf, (2,)),  # (s / 10, a)
}
KINDS = pytest.mark.parametrize("kind", list(FEATURES))


def transitions(s: Tensor, a: Tensor, kind: str) -> Transitions:
    following = (3 * s + a) % S
    features = {
        "one-hot": torch.stack([s, a], 1),
        "binary": torch.stack([s // 4, s // 2 % 2, s % 2], 1),
        "numbers": torch.stack([s / 10, a], 1),
    }[kind]
    return Transitions(s[:, None].float(), a, following[:, None].float(), following == 0, features.float())


def world(kind: str, n: int = 200) -> tuple[Model, Replay]:
    """A replay where states and actions are far from equally frequent."""
    torch.manual_seed(0)
    replay = Replay(1_000)
    s, a = (torch.rand(n).square() * S).long(), (torch.rand(n).square() * A).long()
    replay.add(transitions(s, a, kind))
    return model_of(kind), replay


def model_of(kind: str) -> Model:
    """Fresh networks; features of any space, whatever a feature map would give."""
    phi, s = feature_map("observation", spaces.Discrete(S), A), SETTINGS
    observe, features = Encoder(spaces.Discrete(S), normalise=False), Encoder(FEATURES[kind], normalise=False)
    F = Forward(observe.width, A, s.dim, s.hidden, s.layers, s.layer_norm)
    return Model(phi, observe, features, F, Backward(features.width, s.dim, s.hidden, s.layers, s.layer_norm))


def known_of(model: Model, replay: Replay, most: int = 100) -> KnownFeatures | None:
    return known_features(model.feature_encoder, replay.transitions.features, most)


def whole(
    model: Model,
    replay: Replay,
    s: Settings,
    n: int,
    random: torch.Generator,
    known: KnownFeatures | None = None,
) -> Batch:
    """Minibatches with their z."""
    return with_z(draw(model, replay, s, n, random, known), model, replay, s, random)


def drawn(kind: str, all_known: bool, n: int) -> tuple[Model, Replay, KnownFeatures | None, Batch]:
    model, replay = world(kind)
    known = known_of(model, replay) if all_known else None
    return model, replay, known, whole(model, replay, SETTINGS, n, generator(), known)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@KINDS
@pytest.mark.parametrize("all_known", [False, True])
def test_the_columns_of_a_row_belong_together(kind: str, all_known: bool) -> None:
    model, _, _, group = drawn(kind, all_known, 6)
    assert group.actions.shape == (6, SETTINGS.batch_size)
    assert [len(field) for field in group] == [6] * len(group)
    seen = set()
    for batch in group.each():
        assert batch.actions.tolist() == sorted(batch.actions.tolist())
        assert batch.counts.tolist() == np.bincount(batch.actions, minlength=A).tolist()
        expected = transitions(batch.x[:, 0], batch.actions, kind)  # a one-hot column is the state itself
        assert torch.equal(batch.next_x.float(), expected.next_observations)
        assert torch.equal(batch.discount, torch.where(expected.terminated, 0.0, GAMMA))
        assert torch.equal(batch.g[batch.here], model.feature_encoder.compact(expected.features))
        assert torch.equal(batch.shown_z, preprocess_z(batch.z))
        seen |= set(zip(batch.x[:, 0].tolist(), batch.actions.tolist(), strict=True))
    assert len(seen) > 10


@KINDS
@pytest.mark.parametrize("all_known", [False, True])
def test_the_weights_are_the_shares_of_two_minibatches(kind: str, all_known: bool) -> None:
    model, replay, known, group = drawn(kind, all_known, 400)
    encoder, b = model.feature_encoder, SETTINGS.batch_size
    for batch in group.each():
        assert batch.first.sum().item() == pytest.approx(1.0)
        assert batch.second.sum().item() == pytest.approx(1.0)
        if kind == "numbers":  # one minibatch after the other
            assert batch.here.tolist() == list(range(b))
            assert batch.first.tolist() == batch.second.tolist() == pytest.approx([1 / b] * b)
            assert len(batch.g) == 2 * b
        else:  # shared rows, each feature once
            assert torch.allclose(batch.first * b, torch.bincount(batch.here, minlength=len(batch.g)).float())
            assert len(batch.g) == len(batch.second) == len(torch.unique(batch.g, dim=0))
    # the second minibatches have the replay's distribution, and nothing to do with the first
    distinct, index = torch.unique(encoder.compact(replay.transitions.features), dim=0, return_inverse=True)
    share = torch.bincount(index) / len(index)
    k = group.second.shape[1]
    place = (group.g[:, -k:, None] == distinct).all(-1).float()  # (n, k, features)
    second = torch.einsum("nk,nkf->nf", group.second, place)
    assert torch.allclose(second.mean(0), share, atol=0.02)
    place = (group.g[:, : group.first.shape[1], None] == distinct).all(-1).float()
    first = torch.einsum("nk,nkf->nf", group.first, place)
    assert torch.allclose(first.mean(0), share, atol=0.02)
    if known is None:
        assert ((first - share) * (second - share)).mean(0).abs().max() < 0.2 * first.var(0).max()
    else:
        assert torch.allclose(second, share.expand(400, -1))


@KINDS
def test_the_same_generator_gives_the_same_batch(kind: str) -> None:
    model, replay = world(kind)
    s = SETTINGS.with_(z_mixture=ZMixture(goals=0.4, sums=0.4))
    for known in (None, known_of(model, replay)):
        one, again, other = (whole(model, replay, s, 3, generator(seed), known) for seed in (1, 1, 2))
        assert same(one, again)
        assert not torch.equal(one.x, other.x)
        assert not torch.equal(one.z, other.z)


def test_z_does_not_know_the_action() -> None:
    """Rows come in the order of their actions; z, which the mixture draws part by part, must not."""
    model, replay = world("one-hot")
    s = SETTINGS.with_(z_mixture=ZMixture(goals=0.5), batch_size=32)
    every = model.backward_map(replay.transitions.features.unique(dim=0))  # (m, d)
    random = generator()
    groups = [whole(model, replay, s, 1, random) for _ in range(400)]
    actions, z = torch.cat([group.actions[0] for group in groups]), torch.cat([group.z[0] for group in groups])
    distance = (z[:, None] - every).abs().amax(2)  # (n, m)
    is_goal, which = distance.amin(1) < 1e-5, distance.argmin(1)
    assert is_goal.float().mean().item() == pytest.approx(0.5, abs=0.02)
    for a in range(A):
        mine = actions == a
        assert mine.sum() > 1_000
        assert is_goal[mine].float().mean().item() == pytest.approx(0.5, abs=0.04)
        goals, all_goals = which[mine & is_goal], which[is_goal]
        frequency, expected = (torch.bincount(w, minlength=len(every)) / len(w) for w in (goals, all_goals))
        assert torch.allclose(frequency, expected, atol=0.035)


@pytest.mark.parametrize("kind", ["one-hot", "binary"])
def test_known_features_are_counted(kind: str) -> None:
    model, replay = world(kind)
    features = replay.transitions.features
    rows, counts = np.unique(features.numpy(), axis=0, return_counts=True)
    known = known_of(model, replay, most=len(rows))
    assert known is not None
    assert known.rows.tolist() == rows.tolist()
    assert known.frequency.numpy() == pytest.approx(counts / len(features))
    assert torch.equal(known.rows[known.row_of[model.feature_encoder.codes(features)]], features)
    assert known_of(model, replay, most=len(rows) - 1) is None


def test_known_features_are_few_categories() -> None:
    model, replay = world("numbers")
    assert known_of(model, replay) is None
    rows = torch.tensor([[0.0], [5.0], [5.0]])
    assert known_features(Encoder(spaces.Discrete(2**16)), rows, 2) is not None
    assert known_features(Encoder(spaces.Discrete(2**16 + 1)), rows, 2) is None


def test_many_categories_are_not_spread_over_the_group() -> None:
    """B sees at most two minibatches of rows an update, however many distinct features a group has."""
    s = Settings(dim=4, hidden=8, layers=2, layer_norm=True, batch_size=8)
    space = spaces.Discrete(1000)
    model = ForwardBackward.fresh(feature_map("observation", space, 3), s)
    states = torch.arange(1000.0)[:, None]
    replay = Replay(1000)
    replay.add(Transitions(states, torch.arange(1000) % 3, states, torch.zeros(1000, dtype=torch.bool), states))
    group = draw(model, replay, s, 40, torch.Generator().manual_seed(0))
    assert group.g.shape == (40, 16, 1)
    for batch in group.each():
        assert torch.equal(batch.g[batch.here], batch.x)
        assert batch.first.sum() == batch.second.sum() == 1


@pytest.mark.parametrize("mixture", [ZMixture(), ZMixture(0.3, 0.3, 0.3)], ids=["cauchy", "mixture"])
def test_on_the_sphere_every_z_has_one_length(mixture: ZMixture) -> None:
    model, replay = world("one-hot")
    s = SETTINGS.with_(z_mixture=mixture, z_norm="sphere")
    z = whole(model, replay, s, 3, generator()).z
    assert torch.allclose(z.norm(dim=-1), torch.tensor(s.dim**0.5), atol=1e-4)
