from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.learning.collect import Collector
from anyreward.learning.train import learning_rate_factor
from anyreward.representation import feature_map

SMALL = {"dim": 8, "hidden": 16, "batch_size": 16, "updates": 80, "environments": 2, "progress": False}


def weights(agent: ar.Agent) -> list[torch.Tensor]:
    return [*agent.representation.F.state_dict().values(), *agent.representation.B.state_dict().values()]


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


def test_offline_is_online_on_the_same_transitions(tmp_path: Path) -> None:
    online = ar.train("four-rooms", seed=5, warmup_steps=600, steps_per_cycle=0, **SMALL)
    world = ar.open_world("four-rooms")
    collector = Collector(world.make_vector(2), feature_map("auto", world.observation_space, 5), seed=5)
    rows = collector.collect(600)
    np.savez(
        tmp_path / "data.npz",
        observations=rows.observations[:, 0].long().numpy(),
        actions=rows.actions.numpy(),
        next_observations=rows.next_observations[:, 0].long().numpy(),
        rewards=np.full(600, np.nan),  # never read
        n_states=121,
        n_actions=5,
    )
    offline = ar.train(tmp_path / "data.npz", seed=5, **SMALL)
    assert all(torch.equal(a, b) for a, b in zip(weights(online), weights(offline), strict=True))
    assert torch.equal(online.sample.weights, offline.sample.weights)


def test_targets_in_groups_are_targets_one_by_one() -> None:
    """Computing the targets of several updates in one pass gives what one pass an update gives."""
    from anyreward.learning.update import Batch, bellman_targets, make_learner
    from anyreward.representation import Backward, Forward

    torch.manual_seed(0)
    F, B = Forward(6, 3, 4, 8, 2, True).double(), Backward(6, 4, 8, 2, True).double()
    learner = make_learner(F, B, 1e-3)
    x, z = torch.randn(10, 6, dtype=torch.float64), torch.randn(10, 4, dtype=torch.float64)
    index = torch.arange(10)
    group = Batch(x, torch.zeros(10, dtype=torch.long), x, torch.ones(10), z, index, index.flip(0), x)
    whole = bellman_targets(learner, group, 2.0)
    for i in range(2):
        part = bellman_targets(learner, group.minibatch(i, 5), 2.0)
        assert torch.allclose(part.F_next, whole.F_next[5 * i : 5 * i + 5], rtol=1e-12)
        assert torch.allclose(part.B, whole.B[5 * i : 5 * i + 5], rtol=1e-12)
    assert torch.allclose(whole.B, learner.B_target(x.flip(0)), rtol=1e-12)


def test_b_once_for_each_distinct_feature_is_b_for_every_row() -> None:
    """The same values and the same gradient, whichever way is fewer rows."""
    from anyreward.learning.update import backward_rows
    from anyreward.representation import Backward

    torch.manual_seed(0)
    B = Backward(6, 4, 8, 2, True).double()
    g, weight = torch.randn(5, 6, dtype=torch.float64), torch.randn(40, 4, dtype=torch.float64)
    index = torch.randint(5, (40,))
    for rows in (backward_rows(B, g, index), backward_rows(B, g.repeat(9, 1), index)):  # few distinct rows, then many
        assert torch.allclose(rows, B(g[index]), rtol=1e-12)
        gradients = torch.autograd.grad((weight * rows).sum(), list(B.parameters()))
        expected = torch.autograd.grad((weight * B(g[index])).sum(), list(B.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(gradients, expected, strict=True))


def test_flat_parameters_learn_as_plain_ones() -> None:
    """One Adam over a flat vector and one lerp are what per-layer Adam and per-layer averages are."""
    import copy

    from anyreward.learning.update import Batch, bellman_targets, make_learner, update
    from anyreward.representation import Backward, Forward, expected_forward, fb_loss, orthonormality_loss

    torch.manual_seed(0)
    F, B = Forward(6, 3, 4, 8, 2, True), Backward(6, 4, 8, 2, True)
    plain = [copy.deepcopy(network) for network in (F, B, F, B)]  # F, B, F target, B target
    adam = torch.optim.Adam([*plain[0].parameters(), *plain[1].parameters()], lr=1e-2)
    learner = make_learner(F, B, 1e-2)
    for _ in range(20):
        x, g2, z = torch.randn(5, 6), torch.randn(5, 6), torch.randn(5, 4)
        actions, discount = torch.randint(3, (5,)), torch.rand(5)
        index = torch.arange(10)
        batch = Batch(x, actions, x.flip(0), discount, z, index[:5], index[5:], torch.cat([x, g2]))
        update(learner, batch, bellman_targets(learner, batch, 2.0), 0.7)
        learner.move_targets(0.9)

        with torch.no_grad():
            F_next, B_target = expected_forward(plain[2](batch.next_x, z), z, 2.0), plain[3](g2)
        F_taken, B1, B2 = plain[0](x, z)[torch.arange(5), actions], plain[1](x), plain[1](g2)
        loss = fb_loss(F_taken, B1, B2, F_next, B_target, discount) + 0.7 * orthonormality_loss(B1, B2)
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            for target, network in zip(plain[2:], plain[:2], strict=True):
                for old, new in zip(target.parameters(), network.parameters(), strict=True):
                    old.copy_(0.9 * old + 0.1 * new)
    for ours, theirs in zip((learner.F, learner.B, learner.F_target, learner.B_target), plain, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, rtol=1e-3, atol=1e-5)


def test_learning_rate_falls_at_the_end() -> None:
    assert learning_rate_factor(0.9, 0.0) == 1.0
    assert learning_rate_factor(0.5, 0.5) == 1.0
    assert learning_rate_factor(0.75, 0.5) == pytest.approx(0.5)
    assert learning_rate_factor(0.9999, 0.5) == 0.01


def test_exploration_with_the_policies_being_learned() -> None:
    for z_sampling in ("cauchy", "sphere", "mixture"):
        agent = ar.train("four-rooms", exploration=0.2, z_sampling=z_sampling, **SMALL)
        assert len(agent.sample.rows) > 20
