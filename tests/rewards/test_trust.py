from __future__ import annotations

import numpy as np
import pytest
import torch

import anyreward as ar
from anyreward.learning.replay import Transitions
from anyreward.rewards.inference import FeatureSample
from anyreward.rewards.lookahead import LookaheadSample
from anyreward.rewards.trust import consistent, represented


def test_represented_is_the_r_squared_of_the_projection() -> None:
    rng = np.random.default_rng(0)
    B = torch.from_numpy(rng.standard_normal((50, 4)))
    weights = torch.from_numpy(rng.dirichlet(np.ones(50)))
    sample = FeatureSample(torch.zeros(50, 1), weights, B, (B * weights[:, None]).T @ B)
    inside = (B @ torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)).numpy()
    assert represented(inside, sample) == pytest.approx(1.0, abs=1e-5)
    r = rng.standard_normal(50)
    root = weights.sqrt().numpy()
    fit, *_ = np.linalg.lstsq(B.numpy() * root[:, None], r * root, rcond=None)
    expected = 1 - ((r - B.numpy() @ fit) ** 2 * root**2).sum() / (r**2 * root**2).sum()
    assert represented(r, sample) == pytest.approx(expected, abs=1e-5)
    assert represented(np.zeros(50), sample) == 1.0


def lookahead(Q: np.ndarray, mdp: ar.FiniteMDP, r: np.ndarray) -> float | None:
    """`consistent` on every transition of an MDP, each as often as it is likely."""
    return consistent(every_transition(mdp), torch.from_numpy(Q), torch.from_numpy(r[np.nonzero(mdp.P)[0]]), mdp.gamma)


def every_transition(mdp: ar.FiniteMDP) -> LookaheadSample:
    s, a, following = np.nonzero(mdp.P)
    rows = Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.from_numpy(following[:, None]).float(),
        torch.zeros(len(s), dtype=torch.bool),
        torch.from_numpy(s[:, None]).float(),
    )
    return LookaheadSample(rows, torch.from_numpy(100 * mdp.P[s, a, following]))


def slippery(seed: int) -> ar.FiniteMDP:
    rng = np.random.default_rng(seed)
    return ar.FiniteMDP(rng.dirichlet(np.full(6, 0.3), size=(6, 3)), 0.9, np.arange(6))


@pytest.mark.parametrize("stochastic", [False, True])
def test_consistent_is_one_for_the_optimal_q_and_falls_with_wrong_actions(stochastic: bool) -> None:
    mdp = slippery(0) if stochastic else ar.finite_mdp(ar.open_world("four-rooms").make(), 0.9)
    assert mdp is not None
    r = np.random.default_rng(0).standard_normal(mdp.states)
    Q = mdp.q_value(mdp.optimal_value(r), r)
    assert lookahead(Q, mdp, r) == pytest.approx(1.0)
    wrong, some = Q.copy(), slice(0, mdp.states // 3)
    wrong[some] = 2 * wrong[some].mean(1, keepdims=True) - wrong[some]  # the worst action looks best in a third
    assert lookahead(wrong, mdp, r) < 0.9


def test_consistent_weighs_outcomes_by_how_often_they_were_seen() -> None:
    # one state, two actions: the first pays through a rare good outcome, the second a sure smaller one
    P = np.zeros((3, 2, 3))
    P[0, 0], P[0, 1] = [0.0, 0.1, 0.9], [0.0, 0.0, 1.0]
    P[1:, :, 2] = 1.0
    mdp = ar.FiniteMDP(P, 0.9, np.arange(3))
    Q = np.array([[1.0, 0.0], [10.0, 10.0], [1.5, 1.5]])
    # backups: 0.9 * (0.1 * 10 + 0.9 * 1.5) = 2.115 against 0.9 * 1.5: the first is better, and Q takes it
    assert lookahead(Q, mdp, np.zeros(3)) == pytest.approx(1.0)
    Q[1] = 0.0  # now 0.9 * 0.9 * 1.5 against 0.9 * 1.5: the second is better, and Q takes the first
    assert lookahead(Q, mdp, np.zeros(3)) == pytest.approx(-1.0)


def test_unknown_where_it_cannot_be_known() -> None:
    agent = ar.train("CartPole-v1", dim=4, hidden=8, batch_size=8, updates=40, progress=False)
    trust = agent.ask(ar.goal(0.0, 0.0, 0.0, 0.0)).trust
    assert str(trust) == "unknown"
    assert trust.score is None
    dense = agent.ask(ar.reward(lambda g: g[:, 0])).trust
    assert dense.consistent is None
    assert dense.represented is not None
    assert 0 <= dense.score <= 1


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
    sample = LookaheadSample(whole.rows.at(kept.nonzero()[:, 0]), whole.counts[kept])
    Q = torch.randn(mdp.states, mdp.actions, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    after = sample.backup(Q, torch.zeros(int(kept.sum()), dtype=torch.float64), mdp.gamma)
    assert after[2, 1] == Q[2, 1]
    assert (after != Q).sum() == Q.numel() - 1
    elsewhere = torch.tensor([[3.0], [99.0]])
    given = torch.zeros(2, mdp.actions)
    assert torch.equal(sample.at(elsewhere, after, given), torch.stack([after[3], given[1].double()]))


def test_a_refined_answer_is_optimal_and_says_so_of_itself() -> None:
    agent = ar.train("four-rooms", dim=20, hidden=32, updates=200, steps_per_cycle=2_000, progress=False)
    target = ar.goal(9, 9) - ar.goal(4, 2)
    plain, refined = agent.ask(target), agent.ask(target, refine=1_500)
    assert agent.score(target, refine=1_500).normalised[0] == pytest.approx(1.0, abs=1e-6)
    assert agent.score(target).normalised[0] < 0.9
    assert refined.trust.consistent == pytest.approx(1.0)
    assert plain.trust.consistent is not None
    assert plain.trust.consistent < 0.9
    optimal = agent.exact_mdp().optimal_value(agent.reward_table(target, agent.exact_mdp()))
    assert refined.value(agent.exact_mdp().observations) == pytest.approx(optimal, abs=1e-2)


def test_refining_needs_transitions_and_a_number_of_steps() -> None:
    numbers = ar.train("CartPole-v1", dim=4, hidden=8, updates=40, progress=False)
    with pytest.raises(ar.UserError, match="Ask without refine"):
        numbers.ask(ar.reward(lambda g: g[:, 0]), refine=5)
    cells = ar.train("four-rooms", dim=4, hidden=8, updates=40, progress=False)
    with pytest.raises(ar.UserError, match="refine is -1"):
        cells.ask(ar.goal(9, 9), refine=-1)
