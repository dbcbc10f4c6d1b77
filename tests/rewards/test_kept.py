"""Refining answers on kept transitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.acting.exact import reward_table
from anyreward.learning.replay import Transitions
from anyreward.rewards.kept import KeptTransitions


def every_transition(mdp: ar.FiniteMDP) -> KeptTransitions:
    s, a, following = np.nonzero(mdp.P)
    rows = Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.from_numpy(following[:, None]).float(),
        torch.zeros(len(s), dtype=torch.bool),
        torch.from_numpy(s[:, None]).float(),
    )
    return KeptTransitions(rows, torch.from_numpy(100 * mdp.P[s, a, following]))


def slippery(seed: int) -> ar.FiniteMDP:
    rng = np.random.default_rng(seed)
    return ar.FiniteMDP(rng.dirichlet(np.full(6, 0.3), size=(6, 3)), 0.9, np.arange(6))


def test_backups_are_value_iteration() -> None:
    mdp = slippery(1)
    r = np.random.default_rng(1).standard_normal((4, mdp.states))
    sample = every_transition(mdp)
    rewards = torch.from_numpy(r[:, np.nonzero(mdp.P)[0]])
    Q = torch.from_numpy(np.random.default_rng(2).standard_normal((4, mdp.states, mdp.actions)))
    once = r[..., None] + mdp.gamma * np.einsum("sat,nt->nsa", mdp.P, Q.numpy().max(-1))
    assert sample.backup(Q, rewards, mdp.gamma).numpy() == pytest.approx(once)
    best = np.stack([mdp.q_value(mdp.optimal_value(row), row) for row in r])
    assert sample.refine(Q, rewards, mdp.gamma, 300).numpy() == pytest.approx(best)


def test_what_was_never_seen_keeps_its_q() -> None:
    mdp = slippery(1)
    whole = every_transition(mdp)
    kept = ~((whole.rows.observations[:, 0] == 2) & (whole.rows.actions == 1))
    sample = KeptTransitions(whole.rows.at(kept.nonzero()[:, 0]), whole.counts[kept])
    Q = torch.randn(mdp.states, mdp.actions, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    after = sample.backup(Q, torch.zeros(int(kept.sum()), dtype=torch.float64), mdp.gamma)
    assert after[2, 1] == Q[2, 1]
    assert (after != Q).sum() == Q.numel() - 1
    elsewhere = torch.tensor([[3.0], [99.0]])
    given = torch.zeros(2, mdp.actions)
    assert torch.equal(sample.at(elsewhere, after, given), torch.stack([after[3], given[1].double()]))


def test_a_refined_answer_is_optimal_and_says_so_of_itself() -> None:
    agent = ar.train("four-rooms", landmarks=0, dim=20, hidden=32, updates=200, steps_per_cycle=2_000, progress=False)
    target = ar.goal(9, 9) - ar.goal(4, 2)
    plain, refined = agent.ask(target), agent.ask(target, refine=1_500)
    assert agent.score(target, refine=1_500).normalised[0] == pytest.approx(1.0, abs=1e-6)
    assert agent.score(target).normalised[0] < 0.9
    assert refined.trust.predicted == pytest.approx(1.0, abs=0.02)
    assert plain.trust.predicted is not None
    assert plain.trust.predicted < 0.9
    mdp = agent.exact_mdp()
    optimal = mdp.optimal_value(reward_table(target, agent.knowledge, mdp))
    assert refined.value(mdp.observations) == pytest.approx(optimal, abs=1e-2)


def test_refining_needs_transitions_and_a_number_of_steps() -> None:
    numbers = ar.train("CartPole-v1", dim=4, hidden=8, updates=40, progress=False)
    assert numbers.ask(ar.reward("f0"), refine=1).act(np.zeros(4, dtype=np.float32)) in (0, 1)  # among points
    without = replace(numbers, knowledge=replace(numbers.knowledge, points=None))
    with pytest.raises(ar.UserError, match="Ask without refine"):
        without.ask(ar.reward("f0"), refine=5)
    cells = ar.train("four-rooms", dim=4, hidden=8, updates=40, progress=False)
    with pytest.raises(ar.UserError, match="refine is -1"):
        cells.ask(ar.goal(9, 9), refine=-1)
