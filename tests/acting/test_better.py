"""Generalised policy improvement, against exact values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.acting.better import improved
from tests.exact import exact_agent, garnet


@pytest.mark.parametrize("seed", range(5))
def test_never_worse_than_the_base_on_an_exact_representation(seed: int) -> None:
    mdp = garnet(seed=seed)
    agent, rng, states = exact_agent(mdp), np.random.default_rng(seed), np.arange(6)
    r = rng.standard_normal(6)
    target = ar.reward(lambda g: r[g[:, 0].astype(int)])
    base = agent.ask(target)
    for improve in (7, "goals", rng.standard_normal((4, 6))):
        better = agent.ask(target, improve=improve)
        V = mdp.policy_value(better.probabilities(states), r)
        assert (mdp.policy_value(base.probabilities(states), r) - 1e-9 <= V).all()
        assert (better.q(states) >= base.q(states) - 1e-9).all()


@pytest.mark.parametrize("seed", range(5))
def test_at_least_as_good_as_every_policy_it_is_made_of(seed: int) -> None:
    """The theorem of generalised policy improvement, with policies that were all meant for other rewards."""
    mdp = garnet(seed=seed)
    agent, rng = exact_agent(mdp), np.random.default_rng(seed)
    r, Z = rng.standard_normal(6), torch.from_numpy(rng.standard_normal((3, 6)))
    policy = agent.ask(ar.reward(lambda g: r[g[:, 0].astype(int)]))
    nothing = torch.full((6, 3), -torch.inf, dtype=torch.float64)
    (best,) = improved(policy, Z).corrections
    Q = best(policy, torch.arange(6)[:, None].float(), nothing)
    V = mdp.policy_value(np.eye(3)[Q.argmax(1)], r)
    for z in Z:
        other = agent.model.q(torch.arange(6)[:, None].float(), z).argmax(1)
        assert (mdp.policy_value(np.eye(3)[other], r) - 1e-9 <= V).all()


def test_it_is_the_best_promise(agent: ar.Agent) -> None:
    target, cells = ar.goal(2, 8) - 0.5 * ar.goal(5, 2), np.array([12, 13, 24])
    Z = np.random.default_rng(0).standard_normal((5, 12))
    rows = torch.from_numpy(cells[:, None]).float()
    base, better = agent.ask(target), agent.ask(target, improve=Z)
    on_sphere = torch.from_numpy(Z / np.linalg.norm(Z, axis=1, keepdims=True) * 12**0.5).float()
    promises = [base.q(cells)]
    promises += [
        base.reward_scale * (agent.model.forward_map(rows, z.expand(3, -1)) @ base.z).numpy() for z in on_sphere
    ]
    assert better.q(cells) == pytest.approx(np.max(promises, axis=0), rel=1e-4)
    both = agent.ask(target, refine=1, improve=Z)
    assert not np.allclose(both.q(cells), better.q(cells))


@pytest.mark.parametrize("improve", [0, -3, True, "places", np.ones((2, 5)), np.full((1, 12), np.nan)])
def test_what_is_no_set_of_z_is_refused(agent: ar.Agent, improve: object) -> None:
    with pytest.raises(ar.UserError, match="improve is"):
        agent.ask(ar.goal(2, 8), improve=improve)
