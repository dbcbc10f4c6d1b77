from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import anyreward as ar
from anyreward.learning.batch import Batch
from anyreward.learning.collect import Collector
from anyreward.learning.gradient import learning_rate_factor
from anyreward.learning.update import Learner, bellman_targets, update
from anyreward.model import Backward, Forward, ZMixture, expected_forward, fb_loss, feature_map, orthonormality_loss
from anyreward.model.latent import preprocess_z
from anyreward.model.losses import BiasTerms
from anyreward.model.networks import Bias
from anyreward.worlds.stepping import opened

SMALL = {"dim": 8, "hidden": 16, "batch_size": 16, "updates": 80, "environments": 2, "progress": False}


def weights(agent: ar.Agent) -> list[torch.Tensor]:
    return [*agent.model.F.state_dict().values(), *agent.model.B.state_dict().values()]


@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_same_seed_same_hash(preset: str) -> None:
    first = ar.train("four-rooms", preset=preset, seed=3, **SMALL)
    torch.randn(7)  # the state of torch's own generator must not matter
    second = ar.train("four-rooms", preset=preset, seed=3, **SMALL)
    other = ar.train("four-rooms", preset=preset, seed=4, **SMALL)
    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_training_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    ar.train("four-rooms", **SMALL)
    assert torch.equal(torch.randn(3), expected)


@pytest.mark.parametrize("landmarks", [0, 128], ids=["networks", "landmarks"])
def test_offline_is_online_on_the_same_transitions(landmarks: int, tmp_path: Path) -> None:
    how = SMALL | {"seed": 5, "landmarks": landmarks}
    online = ar.train("four-rooms", warmup_steps=600, steps_per_cycle=0, **how)
    world = ar.open_world("four-rooms")
    with opened(world, 2) as stepper:
        rows = Collector(stepper, feature_map("auto", world.observation_space, 5), seed=5).collect(600)
    np.savez(
        tmp_path / "data.npz",
        observations=rows.observations[:, 0].long().numpy(),
        actions=rows.actions.numpy(),
        next_observations=rows.next_observations[:, 0].long().numpy(),
        rewards=np.full(600, np.nan),  # never read
        n_states=121,
        n_actions=5,
    )
    offline = ar.train(tmp_path / "data.npz", **how)
    assert all(torch.equal(a, b) for a, b in zip(weights(online), weights(offline), strict=True))
    assert torch.equal(online.sample.weights, offline.sample.weights)


def random_group(n: int, b: int, shared: bool) -> Batch:
    """n minibatches of random rows, in float64; the features are shared categories or two minibatches of numbers."""
    x, next_x, z = torch.randn(n, b, 6).double(), torch.randn(n, b, 6).double(), torch.randn(n, b, 4).double()
    share = torch.full((n, b), 1 / b, dtype=torch.float64)
    one, other = (torch.rand(n, 7).double() for _ in range(2))
    return Batch(
        x=x,
        actions=torch.randint(3, (n, b)),
        counts=torch.empty(n, 0, dtype=torch.long),  # actions in any order
        next_x=next_x,
        discount=torch.rand(n, b).double().round(decimals=1),
        z=z,
        shown_z=preprocess_z(z),
        g=torch.randn(7, 6).double().expand(n, -1, -1) if shared else torch.randn(n, 2 * b, 6).double(),
        here=torch.randint(7, (n, b)) if shared else torch.arange(b).expand(n, -1),
        first=one / one.sum(1, keepdim=True) if shared else share,
        second=other / other.sum(1, keepdim=True) if shared else share,
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("rows_at_once", [4, 10, 512])
@pytest.mark.parametrize("bias", [False, True])
def test_targets_in_groups_are_targets_one_by_one(
    bias: bool, shared: bool, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computing the targets of several updates in one pass gives what the target networks give row by row."""
    monkeypatch.setattr("anyreward.learning.update.TARGET_ROWS", rows_at_once)
    torch.manual_seed(0)
    F, B = Forward(6, 3, 4, 8, 2, True).double(), Backward(6, 4, 8, 2, True).double()
    m_bar = Bias(6, 6, 4, 8, 2, True).double() if bias else None
    learner = Learner(F, B, m_bar)
    group = random_group(3, 5, shared)
    whole = bellman_targets(learner, group, 2.0).each()
    for i, (batch, targets) in enumerate(zip(group.each(), whole, strict=True)):
        (alone,) = bellman_targets(learner, Batch(*(field[i : i + 1] for field in group)), 2.0).each()
        for a, b in zip(alone, targets, strict=True):
            assert a is b is None or torch.allclose(a, b, rtol=1e-12)
        F_next = expected_forward(learner.F_target(batch.next_x, batch.shown_z), batch.z, 2.0)
        assert torch.allclose(targets.F_next, batch.discount[:, None] * F_next, rtol=1e-12)
        g = batch.g if shared else batch.g[5:]
        assert torch.allclose(targets.B, learner.B_target(g), rtol=1e-12)
        if m_bar is not None:
            rows = [
                [float(m_bar(x[None], z[None], to[None]).detach()) for to in g]
                for x, z in zip(batch.next_x, batch.shown_z, strict=True)
            ]
            expected = batch.discount[:, None] * torch.tensor(rows, dtype=torch.float64)
            assert torch.allclose(targets.bias, expected, rtol=1e-12)


@pytest.mark.parametrize("first_step", [0, 1])
@pytest.mark.parametrize("shared", [False, True])
def test_an_update_with_a_bias_follows_autograd(shared: bool, first_step: int) -> None:
    """The gradient of the whole loss with respect to all three networks, in one vector."""
    torch.manual_seed(1)
    F, B, m_bar = Forward(6, 3, 4, 8, 2, True), Backward(6, 4, 8, 2, True), Bias(6, 6, 4, 8, 2, True)
    networks = nn.ModuleList([F, B, m_bar]).double()
    learner = Learner(F, B, m_bar, first_step)
    group = random_group(1, 5, shared)
    if shared:
        group = group._replace(first=torch.bincount(group.here[0], minlength=7)[None].double() / 5)
    ((batch,), (targets,)) = group.each(), bellman_targets(learner, group, 2.0).each()
    b, there = torch.arange(5), slice(len(batch.g) - len(batch.second), None)
    with torch.enable_grad():
        f, g, m = F(batch.x, batch.shown_z)[b, batch.actions], B(batch.g), m_bar(batch.x, batch.shown_z, batch.g)
        terms = BiasTerms(m[b, batch.here], m[:, there], targets.bias)
        one, own = torch.ones_like(batch.discount), batch.discount if first_step else None
        loss = fb_loss(f, g[batch.here], g[there], targets.F_next, targets.B, one, batch.second, own, terms)
        loss = loss + 0.7 * orthonormality_loss(g[batch.here], g[there], batch.second)
    expected = torch.autograd.grad(loss, [*networks.parameters()])
    reported = update(learner, batch, targets, 0.7, learning_rate=1e-3).losses()
    total = reported["bellman_loss"] + 0.7 * reported["orthonormality_loss"]
    assert float(total) == pytest.approx(float(loss.detach()))
    for parameter, gradient in zip(networks.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-8, atol=1e-10)


def test_b_once_for_each_distinct_feature_is_b_for_every_row() -> None:
    """The same losses and the same gradient, whichever way the features of two minibatches are listed."""
    torch.manual_seed(0)
    F, B = Forward(6, 3, 4, 8, 2, True).double(), Backward(6, 4, 8, 2, True).double()
    here, other = torch.randint(5, (40,)), torch.randint(5, (40,))
    share = torch.full((1, 40), 1 / 40, dtype=torch.float64)
    batch = random_group(1, 40, shared=True)
    g = batch.g[0, :5]
    once = batch._replace(
        g=g[None],
        here=here[None],
        first=torch.bincount(here, minlength=5)[None].double() / 40,
        second=torch.bincount(other, minlength=5)[None].double() / 40,
    )
    every = batch._replace(
        g=torch.cat([g[here], g[other]])[None], here=torch.arange(40)[None], first=share, second=share
    )
    results = []
    for listed in (once, every):
        learner = Learner(copy.deepcopy(F), copy.deepcopy(B))
        (targets,) = bellman_targets(learner, listed, 2.0).each()
        losses = update(learner, listed.each()[0], targets, 0.7, learning_rate=1e-3).losses()
        results.append([learner.networks.gradient, *losses.values()])
    assert results[0][0].abs().max() > 0.01
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("in_order", [False, True])
def test_flat_parameters_learn_as_plain_ones(in_order: bool) -> None:
    """One Adam over a flat vector and one lerp are what per-layer Adam and per-layer averages are."""
    torch.manual_seed(0)
    F, B = Forward(6, 3, 4, 8, 2, True), Backward(6, 4, 8, 2, True)
    plain = [copy.deepcopy(network) for network in (F, B, F, B)]  # F, B, F target, B target
    adam = torch.optim.Adam([*plain[0].parameters(), *plain[1].parameters()], lr=1e-2)
    learner = Learner(F, B)
    for _ in range(20):
        group = Batch(*(f.float() if f.is_floating_point() else f for f in random_group(1, 5, shared=False)))
        if in_order:
            actions = group.actions.sort(1).values
            group = group._replace(actions=actions, counts=torch.bincount(actions[0], minlength=3)[None])
        (batch,), (targets,) = group.each(), bellman_targets(learner, group, 2.0).each()
        update(learner, batch, targets, 0.7, learning_rate=1e-2)
        learner.networks.move_targets(0.9)

        g, g2 = batch.g.split(5)
        with torch.no_grad():
            F_next, B_target = expected_forward(plain[2](batch.next_x, batch.shown_z), batch.z, 2.0), plain[3](g2)
        F_taken, B1, B2 = plain[0](batch.x, batch.shown_z)[torch.arange(5), batch.actions], plain[1](g), plain[1](g2)
        loss = fb_loss(F_taken, B1, B2, F_next, B_target, batch.discount) + 0.7 * orthonormality_loss(B1, B2)
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            for target, network in zip(plain[2:], plain[:2], strict=True):
                for old, new in zip(target.parameters(), network.parameters(), strict=True):
                    old.copy_(0.9 * old + 0.1 * new)
    for ours, theirs in zip((F, B, learner.F_target, learner.B_target), plain, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, rtol=1e-3, atol=1e-5)


def test_learning_rate_falls_at_the_end() -> None:
    assert learning_rate_factor(0.9, 0.0) == 1.0
    assert learning_rate_factor(0.5, 0.5) == 1.0
    assert learning_rate_factor(0.75, 0.5) == pytest.approx(0.5)
    assert learning_rate_factor(0.9999, 0.5) == 0.01


def test_exploration_with_the_policies_being_learned() -> None:
    mixed = {"z_mixture": ZMixture(goals=0.3, sums=0.3, rewards=0.3)}
    tables = {"landmarks": 128, "environments": 20}
    for how in ({"landmarks": 0, "z_mixture": ZMixture()}, {"landmarks": 0, **mixed}, tables):
        agent = ar.train("four-rooms", exploration=0.2, **(SMALL | how))
        assert len(agent.sample.rows) > 20


def test_tables_look_as_far_ahead_as_the_time_limit(tmp_path: Path) -> None:
    agent = ar.train("FrozenLake-v1", updates=40, progress=False)
    assert agent.settings.gamma == pytest.approx(1 - 1 / 500)
    assert agent.knowledge.episodes is not None
    assert agent.knowledge.episodes.limit == 100
    assert (agent.knowledge.episodes.starts == 0).all()
    again = ar.load(agent.save(tmp_path / "run"))
    assert again.knowledge.episodes is not None
    assert again.knowledge.episodes.limit == 100
    assert torch.equal(again.knowledge.episodes.starts, agent.knowledge.episodes.starts)
    for changes in ({"gamma": 0.95}, {"landmarks": 0, "dim": 4, "hidden": 8}, {"preset": "paper", "dim": 4}):
        other = ar.train("FrozenLake-v1", updates=40, progress=False, **changes)  # type: ignore[arg-type]  # a mixture
        assert other.settings.gamma == changes.get("gamma", 0.99)
    assert ar.train("four-rooms", updates=40, progress=False).settings.gamma == 0.99  # episodes never terminate


def test_a_resumed_run_keeps_the_starts(tmp_path: Path) -> None:
    agent = ar.train("FrozenLake-v1", updates=40, out=tmp_path / "run", progress=False)
    more = ar.resume(tmp_path / "run", updates=80, progress=False)
    assert agent.knowledge.episodes is not None
    assert more.knowledge.episodes is not None
    assert len(more.knowledge.episodes.starts) > len(agent.knowledge.episodes.starts)
    assert agent.knowledge.episodes.new[0]
    assert more.knowledge.episodes.new.sum() == 1  # there is one start, and a resumed run knows it
    assert more.settings.gamma == agent.settings.gamma
