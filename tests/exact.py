"""An agent whose representation is exact: F is computed by policy iteration, so every answer must be optimal."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

import anyreward as ar
from anyreward.learning.replay import Transitions
from anyreward.model.encoding import Encoder
from anyreward.model.features import feature_map
from anyreward.model.model import Model
from anyreward.rewards.knowledge import Knowledge, with_backward

GAMMA = 0.9


class ExactForward(nn.Module):
    """F(s, a, z) = M^pi(s, a, .) / rho with pi optimal for the reward z / rho; with it F . z_R = Q*."""

    def __init__(self, mdp: ar.FiniteMDP, rho: np.ndarray) -> None:
        super().__init__()
        self.mdp, self.rho = mdp, rho
        self.kind = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def of(self, z: np.ndarray) -> np.ndarray:
        mdp, r = self.mdp, z / self.rho
        Q = mdp.q_value(mdp.optimal_value(r), r)
        M = mdp.successor_measure(np.eye(mdp.actions)[Q.argmax(-1)])
        return M.sum(-1) / self.rho  # (S, A, S)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        different, which = torch.unique(z, dim=0, return_inverse=True)
        tables = torch.from_numpy(np.stack([self.of(row.numpy()) for row in different]))
        return tables[which, x[:, 0]]


class ExactBackward(nn.Module):
    """B(s) = e_s."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.eye(states, dtype=torch.float64))

    def forward(self, g: Tensor) -> Tensor:
        return self.table[g[:, 0]]


def garnet(states: int = 6, actions: int = 3, seed: int = 0) -> ar.FiniteMDP:
    """A random MDP."""
    rng = np.random.default_rng(seed)
    return ar.FiniteMDP(rng.dirichlet(np.full(states, 0.3), size=(states, actions)), GAMMA, np.arange(states))


def counts(mdp: ar.FiniteMDP, seed: int = 0) -> np.ndarray:
    """(S,) how often each state is in the training data."""
    return np.random.default_rng(seed).integers(10, 40, size=mdp.states)


def exact_agent(mdp: ar.FiniteMDP, seed: int = 0) -> ar.Agent:
    """An agent that knows the world exactly, with training data as in `counts`."""
    S, A = mdp.states, mdp.actions
    space = gym.spaces.Discrete(S)
    seen = torch.from_numpy(counts(mdp, seed)).double()
    rho = seen / seen.sum()
    phi = feature_map("observation", space, A)
    model = Model(phi, Encoder(space), Encoder(space), ExactForward(mdp, rho.numpy()), ExactBackward(S))
    knowledge = Knowledge(
        model,
        ar.preset("fast", dim=S, gamma=mdp.gamma, exploration=1.0, landmarks=0),
        with_backward(model, torch.arange(S)[:, None].float(), rho),
        held_out=transitions(mdp, 3_000, seed),
    )
    return ar.Agent(knowledge, world_name="exact")


def transitions(mdp: ar.FiniteMDP, n: int, seed: int = 0) -> Transitions:
    """Some transitions from everywhere, with uniform actions."""
    rng = np.random.default_rng(seed)
    s, a = rng.integers(mdp.states, size=n), rng.integers(mdp.actions, size=n)
    following = (mdp.P[s, a].cumsum(1) < rng.random((n, 1))).sum(1)
    return Transitions(
        torch.from_numpy(s[:, None]).float(),
        torch.from_numpy(a),
        torch.from_numpy(following[:, None]).float(),
        torch.zeros(n, dtype=torch.bool),
        torch.from_numpy(s[:, None]).float(),
    )


class TableEnv(gym.Env[Any, Any]):
    """The MDP as an environment that pays r(s) for being in s."""

    def __init__(self, mdp: ar.FiniteMDP, r: np.ndarray, noise: float = 0.0) -> None:
        self.observation_space, self.action_space = gym.spaces.Discrete(mdp.states), gym.spaces.Discrete(mdp.actions)
        self.mdp, self.r, self.noise = mdp, r, noise

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.s, self.t = int(self.np_random.integers(self.mdp.states)), 0
        return self.s, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        paid = float(self.r[self.s] + self.noise * self.np_random.standard_normal())
        self.s = int(self.np_random.choice(self.mdp.states, p=self.mdp.P[self.s, int(action)]))
        self.t += 1
        return self.s, paid, False, self.t >= 20, {}
