"""With tabular F and B of full dimension the update converges to the exact successor density, in float64."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anyreward import Agent, FiniteMDP, Settings, reward
from anyreward.learning.batch import Batch
from anyreward.learning.update import Learner, bellman_targets, update
from anyreward.model import Encoder, FeatureMap, Model, boltzmann
from anyreward.rewards.knowledge import Knowledge, with_backward
from anyreward.worlds.actions import ActionSet

S, A, GAMMA, TEMPERATURE = 4, 2, 0.8, 3.0
D = S * A
QUARTERS = 4  # every transition probability is a multiple of 1/4, so that a batch can hold the exact distribution


class TabularF(nn.Module):
    """F for the one z that is trained: a table over states and actions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(S, A, D, dtype=torch.float64) / D**0.5)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return self.table[x[:, 0] if x.dtype == torch.int64 else x.argmax(1)]  # columns, or one-hot


class TabularB(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(S, A, D, dtype=torch.float64))

    def forward(self, g: Tensor) -> Tensor:
        if g.dtype == torch.int64:  # columns
            return self.table[g[:, 0], g[:, 1] - S]
        return self.table[g[:, :S].argmax(1), g[:, S:].argmax(1)]


def random_mdp(seed: int, terminating: bool = False) -> FiniteMDP:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(QUARTERS, np.full(S, 1 / S), size=(S, A))
    P = counts / QUARTERS
    if terminating:
        P[0, 0] = 0.0  # this action ends the episode
    return FiniteMDP(P, GAMMA, np.arange(S))


def whole_population(mdp: FiniteMDP) -> Batch:
    """Every (s, a, outcome) as often as it is likely, rho uniform over (s, a): minibatch means are expectations."""
    rows = []
    for s in range(S):
        for a in range(A):
            outcomes = np.repeat(np.arange(S), (mdp.P[s, a] * QUARTERS).round().astype(int))
            ends = len(outcomes) == 0
            rows += [(s, a, s1, 0.0 if ends else GAMMA) for s1 in (outcomes if not ends else [0] * QUARTERS)]
    s, a, s1, discount = (np.array(column) for column in zip(*rows, strict=True))
    one_hot, actions = np.eye(S)[s], np.eye(A)[a]
    everything, share = torch.arange(len(s)), torch.full((len(s),), 1 / len(s), dtype=torch.float64)
    return Batch(
        x=torch.from_numpy(one_hot),
        actions=torch.from_numpy(a),
        counts=torch.empty(0),
        next_x=torch.from_numpy(np.eye(S)[s1]),
        discount=torch.from_numpy(discount),
        z=torch.empty(0),
        shown_z=torch.empty(0),
        g=torch.from_numpy(np.concatenate([one_hot, actions], axis=1)),
        here=everything,
        first=share,
        second=share,
    )


def learn(mdp: FiniteMDP, z_of: Callable[[TabularB], Tensor], steps: int = 6_000) -> tuple[TabularF, TabularB]:
    torch.manual_seed(0)
    F, B = TabularF(), TabularB()
    learner = Learner(F, B)
    population = whole_population(mdp)
    for step in range(steps):
        z = z_of(B).detach().expand(len(population.actions), -1)
        batch = population._replace(z=z, shown_z=z)
        rate = 0.03 * min(1.0, 10.0 ** (2 - 6 * step / steps))
        (targets,) = bellman_targets(learner, Batch(*(field[None] for field in batch)), TEMPERATURE).each()
        update(learner, batch, targets, orthonormality=1.0, learning_rate=rate)
        learner.networks.move_targets(0.5)
    return F, B


def policy_of(F: TabularF, z: Tensor) -> np.ndarray:
    return boltzmann(F.table.detach() @ z, TEMPERATURE).numpy()


@pytest.mark.parametrize("terminating", [False, True])
def test_converges_to_the_successor_density_of_pi_z(terminating: bool) -> None:
    mdp = random_mdp(3, terminating)
    torch.manual_seed(7)
    z = torch.randn(D, dtype=torch.float64)
    F, B = learn(mdp, lambda _: z)
    M = mdp.successor_measure(policy_of(F, z))
    rho = 1 / (S * A)
    learned = torch.einsum("sad,tbd->satb", F.table, B.table).detach().numpy()
    assert np.abs(learned - M / rho).max() < 1e-5 * np.abs(M / rho).max()
    covariance = torch.einsum("sad,sae->de", B.table, B.table).detach() / (S * A)
    assert torch.allclose(covariance, torch.eye(D, dtype=torch.float64), atol=1e-4)


def test_q_from_ask_is_the_exact_q() -> None:
    mdp = random_mdp(5)
    r = np.random.default_rng(1).standard_normal((S, A))

    def z_R(B: TabularB) -> Tensor:
        return torch.einsum("sa,sad->d", torch.from_numpy(r) / (S * A), B.table)

    F, B = learn(mdp, z_R)
    spaces = gym.spaces.Discrete(S), gym.spaces.Discrete(A)
    phi = FeatureMap("observation", spaces[0], ActionSet(A), include_action=True)
    model = Model(phi, Encoder(spaces[0]), Encoder(gym.spaces.Tuple(spaces)), F, B)
    rows = torch.tensor([[s, a] for s in range(S) for a in range(A)], dtype=torch.float32)
    sample = with_backward(model, rows, torch.full((S * A,), 1 / (S * A), dtype=torch.float64))
    agent = Agent(Knowledge(model, Settings(dim=D, gamma=GAMMA), sample))

    policy = agent.ask(reward(lambda g: r[g[:, 0].astype(int), g[:, 1].astype(int)]))
    pi = policy_of(F, z_R(B).detach())
    exact = mdp.q_value(mdp.policy_value(pi, r), r)
    assert np.abs(policy.q(np.arange(S)) - exact).max() < 1e-5 * np.abs(exact).max()
    assert policy.trust.represented == pytest.approx(1.0, abs=1e-3)
