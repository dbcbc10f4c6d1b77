"""Baselines: with tables for networks they converge to exact answers; with networks they learn a small maze."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anyreward as ar
from anyreward.acting.exact import packed_states, policy_tables, score_policies, state_features
from anyreward.learning.batch import Batch
from anyreward.learning.goal_dqn import GoalBatch, goal_updates
from anyreward.learning.update import Learner, bellman_targets, update
from anyreward.model import boltzmann
from anyreward.model.networks import GoalInput
from anyreward.theory import exact, goals_are_states
from tests.learning_proofs.test_variants_converge import GAMMA, TEMPERATURE, A, S, Table, mdp_of, population

MAZE = """
#######
#     #
# # # #
#     #
# # # #
#     #
#######
"""


class Given(nn.Module):
    """A B without parameters."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, g: Tensor) -> Tensor:
        return self.table[g[:, 0]]


@pytest.mark.parametrize("temperature", [TEMPERATURE, 1e-3], ids=["soft", "greedy"])
@pytest.mark.parametrize("orthonormal", [False, True])
def test_with_b_given_f_converges_to_successor_features(orthonormal: bool, temperature: float) -> None:
    """F = (Cov B)^-1 Succ(B) (thm:fixedbackward); for an orthonormal B these are successor features themselves."""
    torch.manual_seed(0)
    mdp, d = mdp_of(3), 3
    table = torch.linalg.qr(torch.randn(S, d, dtype=torch.float64))[0] * S**0.5
    if not orthonormal:
        table = table @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.5]], dtype=torch.float64)
    F, B, z = Table(S, A, d), Given(table), torch.randn(d, dtype=torch.float64)
    learner = Learner(F, B)
    learner.BB = table.T @ table / S
    assert learner.B_target is B
    batch = population(mdp, first_step=0, pairs=False)
    batch = batch._replace(z=z.expand(len(batch.actions), -1), shown_z=z.expand(len(batch.actions), -1))
    for step in range(2_500):
        rate = 0.03 * min(1.0, 10.0 ** (2 - 6 * step / 2_500))
        (targets,) = bellman_targets(learner, Batch(*(field[None] for field in batch)), temperature).each()
        update(learner, batch, targets, orthonormality=0.0, learning_rate=rate)
        learner.networks.move_targets(0.5)
    assert torch.equal(B.table, table)
    pi = boltzmann(F.table.detach() @ z, temperature).numpy()
    features = mdp.successor_measure(pi).sum(3) @ table.numpy()  # (S, A, d) Succ(B)
    if not orthonormal:
        features = features @ np.linalg.inv(learner.BB.numpy())
    assert np.abs(F.table.detach().numpy() - features).max() < 1e-5 * np.abs(features).max()
    if temperature < 1:  # the paper's best F for this B, which is greedy
        best = exact(mdp, np.full(S, 1 / S), goals_are_states(mdp), table.numpy())
        assert np.abs(best.forward(z.numpy()) - features).max() < 1e-5 * np.abs(features).max()


class QTable(nn.Module):
    """Q(s, a, g) as a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(S, A, S, dtype=torch.float64))

    def forward(self, x: Tensor, goals: Tensor) -> Tensor:
        return self.table[x[:, 0], :, goals.argmax(1)].unsqueeze(2)


@pytest.mark.parametrize("terminating", [False, True])
def test_goal_dqn_converges_to_the_optimum(terminating: bool) -> None:
    torch.manual_seed(0)
    mdp = mdp_of(3, terminating)
    Q = QTable()
    learner = Learner(Q, GoalInput(S))
    rows = population(mdp, first_step=0, pairs=False)
    n = len(rows.actions)
    goals = torch.arange(S).repeat_interleave(n)  # every transition with every goal
    there = (rows.next_x[:, 0].repeat(S) == goals) & (rows.discount.repeat(S) > 0)
    batch = GoalBatch(
        x=rows.x.repeat(S, 1)[None],
        actions=rows.actions.repeat(S)[None],
        counts=torch.empty(1, 0),
        next_x=rows.next_x.repeat(S, 1)[None],
        discount=rows.discount.repeat(S)[None],
        goals=torch.eye(S, dtype=torch.float64)[goals][None],
        rewards=there.double()[None],
    )
    for step in range(2_500):
        goal_updates(learner, batch, [0.05 * min(1.0, 10.0 ** (2 - 6 * step / 2_500))], GAMMA)
        learner.networks.move_targets(0.5)
    for g in range(S):
        r = mdp.P[:, :, g]  # E 1[s' = g]
        best = mdp.q_value(mdp.optimal_value(r), r)
        assert np.abs(Q.table.detach().numpy()[:, :, g] - best).max() < 1e-5 / (1 - GAMMA)


def quality_at_raw_b(agent: ar.Agent) -> np.ndarray:
    """(n,) the paper's policy quality for every state as the goal, greedy: z is B(g) itself, as the paper has it.

    `Agent.score` scales z as `ask` does, which is another length: with basis "state" it measures about 0.01 less.
    """
    mdp, model = agent.exact_mdp(), agent.model
    goals = state_features(mdp, model.phi)[mdp.live, 0]  # (n, packed)
    pi = policy_tables(model, packed_states(mdp, model.phi), model.backward_map(goals))
    return score_policies(mdp, pi, mdp.on_states(np.eye(mdp.states)[mdp.live])).ratio


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"method": "goal-dqn"}, 0.85),
        ({"method": "goal-dqn-her"}, 0.95),
        ({"method": "successor-features", "basis": "laplacian"}, 0.98),
        ({"method": "successor-features", "basis": "state"}, 0.98),
        ({"method": "successor-features", "basis": "rbf"}, 0.98),
        ({"method": "successor-features", "basis": "fourier"}, 0.85),
    ],
    ids=lambda x: "-".join(x.values()) if isinstance(x, dict) else "",
)
def test_each_method_learns_a_small_maze(changes: dict[str, Any], least: float) -> None:
    updates = 3_000 if "dqn" in changes["method"] else 1_500
    agent = ar.train(
        MAZE, dim=25, hidden=64, updates=updates, gamma=0.95, warmup_steps=1_000, seed=0, progress=False, **changes
    )
    quality = quality_at_raw_b(agent)
    assert quality.mean() > least, quality
    if not agent.knowledge.method.goals_only:  # and more than goals
        assert agent.score([ar.goal(1, 1) + ar.goal(5, 5), ar.reward("x - y")]).normalised.min() > 0.95
