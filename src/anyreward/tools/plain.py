"""A plain implementation of Algorithm 1: the baseline for speed, and the reference for the tests.

It follows the paper (preset `paper`, four rooms): one environment, a NumPy replay buffer of one-hot rows, one minibatch
per update, every network on every row, autograd, PyTorch's Adam over all parameters, targets in every update.
"""

from __future__ import annotations

import copy
import itertools
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from anyreward.worlds.spaces import Array

B_SIZE, D, GAMMA, TAU, HIDDEN, LEARNING_RATE, RETENTION = 128, 100, 0.99, 200.0, 256, 1e-3, 0.95
CYCLES, EPISODES, STEPS, UPDATES = 25, 4, 50, 40


class Minibatch(NamedTuple):
    """Two independent minibatches: (s, a, s_1) with z, and (s', a')."""

    s: Tensor
    a: Tensor
    s1: Tensor
    discount: Tensor
    z: Tensor
    g: Tensor
    g_other: Tensor


class Networks(NamedTuple):
    """F, B and their targets."""

    F: nn.Module
    B: nn.Module
    F_target: nn.Module
    B_target: nn.Module


class PlainF(nn.Module):
    """F(s, ., z): (b, A, d)."""

    def __init__(self, states: int, actions: int) -> None:
        super().__init__()
        self.actions = actions
        self.net = _mlp(states + D, actions * D)

    def forward(self, s: Tensor, z: Tensor) -> Tensor:
        """One vector for each action."""
        shown = z / torch.sqrt(1 + z.square().sum(1, keepdim=True) / z.shape[1])
        out: Tensor = self.net(torch.cat([s, shown], dim=1))
        return out.view(len(s), self.actions, -1)


def _mlp(inputs: int, outputs: int) -> nn.Sequential:
    sizes = [inputs, HIDDEN, HIDDEN, HIDDEN]
    layers: list[nn.Module] = []
    for i, o in itertools.pairwise(sizes):
        layers += [nn.Linear(i, o), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, outputs))


def plain_update(
    networks: Networks, adam: torch.optim.Optimizer, m: Minibatch, temperature: float, orthonormality: float
) -> Tensor:
    """Lines 18 to 22 of Algorithm 1."""
    b, b_other = len(m.s), len(m.g_other)
    with torch.no_grad():
        F1 = networks.F_target(m.s1, m.z)  # (b, A, d)
        pi = torch.softmax(torch.einsum("bad,bd->ba", F1, m.z) / temperature, dim=1)
        F_next = torch.einsum("ba,bad->bd", pi, F1)
        target = m.discount[:, None] * torch.einsum("id,jd->ij", F_next, networks.B_target(m.g_other))
    F = networks.F(m.s, m.z)[torch.arange(b), m.a]  # (b, d)
    B, B_other = networks.B(m.g), networks.B(m.g_other)
    bellman = (torch.einsum("id,jd->ij", F, B_other) - target).square().sum() / (2 * b * b_other)
    bellman = bellman - torch.einsum("id,id->", F, B) / b
    inner = (B @ B_other.T).detach()
    reg = torch.einsum("id,jd,ij->", B, B_other.detach(), inner) / (b * b_other)
    reg = reg - torch.einsum("id,id->", B, B.detach()) / b
    loss = bellman + orthonormality * reg
    adam.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
    adam.step()
    return loss.detach()


def plain_move_targets(networks: Networks, retention: float) -> None:
    """Line 23: update the target networks."""
    with torch.no_grad():
        for network, target in ((networks.F, networks.F_target), (networks.B, networks.B_target)):
            for new, old in zip(network.parameters(), target.parameters(), strict=True):
                old.copy_(retention * old + (1 - retention) * new)


class PlainImageF(nn.Module):
    """F(s, ., z): (b, A, d), for images (b, 4, 84, 84) in bytes."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.rest = PlainF(64 * 7 * 7, actions)

    def forward(self, s: Tensor, z: Tensor) -> Tensor:
        """One vector for each action."""
        out: Tensor = self.rest(self.conv(s.float() / 255), z)
        return out


class PlainImages:
    """Updates from images (n, 4, 84, 84), each observation stored whole."""

    def __init__(self, s: Array, a: Array, s1: Array, terminated: Array, g: Array, actions: int, gamma: float) -> None:
        torch.manual_seed(0)
        self.rng = np.random.default_rng(0)
        self.s, self.a, self.s1, self.terminated, self.g, self.gamma = s, a, s1, terminated, g, gamma
        F, B = PlainImageF(actions), _mlp(g.shape[1], D)
        self.networks = Networks(F, B, copy.deepcopy(F), copy.deepcopy(B))
        self.adam = torch.optim.Adam([*F.parameters(), *B.parameters()], lr=1e-4)

    def update(self) -> None:
        """One update on a new minibatch."""
        i, j = (self.rng.integers(len(self.a), size=B_SIZE) for _ in range(2))
        s, a, s1, g, other = (torch.from_numpy(x) for x in (self.s[i], self.a[i], self.s1[i], self.g[i], self.g[j]))
        discount = self.gamma * torch.from_numpy(1.0 - self.terminated[i]).float()
        plain_update(self.networks, self.adam, Minibatch(s, a, s1, discount, cauchy_z(), g, other), TAU, 1.0)


def cauchy_z() -> Tensor:
    """Task vectors for a minibatch, as the paper draws them."""
    x = torch.randn(B_SIZE, D)
    u = torch.distributions.Cauchy(0.0, 0.5).sample((B_SIZE, 1))
    z: Tensor = D**0.5 * u * x / x.norm(dim=1, keepdim=True)
    return z


class Plain:
    """A training run of one cycle at a time."""

    def __init__(self, seed: int, epochs: int) -> None:
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.env = gym.make("anyreward/FourRooms-v0")
        states, actions = self.env.observation_space, self.env.action_space
        assert isinstance(states, gym.spaces.Discrete)
        assert isinstance(actions, gym.spaces.Discrete)
        self.states, self.actions = int(states.n), int(actions.n)
        F, B = PlainF(self.states, self.actions), _mlp(self.states, D)
        self.networks = Networks(F, B, copy.deepcopy(F), copy.deepcopy(B))
        self.adam = torch.optim.Adam([*F.parameters(), *B.parameters()], lr=LEARNING_RATE)
        capacity = epochs * CYCLES * EPISODES * STEPS
        self.s, self.s1 = (np.zeros((capacity, self.states), dtype=np.float32) for _ in range(2))
        self.a, self.size = np.zeros(capacity, dtype=np.int64), 0
        self.one_hot = np.eye(self.states, dtype=np.float32)
        self.env.reset(seed=seed)

    def cycle(self) -> None:
        """4 episodes and 40 updates; 25 cycles are an epoch."""
        for _ in range(EPISODES):
            s, _ = self.env.reset()
            for _ in range(STEPS):
                a = int(self.rng.integers(self.actions))
                s1, *_ = self.env.step(a)
                self.s[self.size], self.a[self.size], self.s1[self.size] = self.one_hot[s], a, self.one_hot[s1]
                self.size += 1
                s = s1
        for _ in range(UPDATES):
            plain_update(self.networks, self.adam, self.minibatch(), TAU, orthonormality=1.0)
        plain_move_targets(self.networks, RETENTION)

    def minibatch(self) -> Minibatch:
        """Lines 15 to 17: draw a minibatch and z."""
        i, j = (self.rng.integers(self.size, size=B_SIZE) for _ in range(2))
        s, a, s1, other = (torch.from_numpy(x) for x in (self.s[i], self.a[i], self.s1[i], self.s[j]))
        return Minibatch(s, a, s1, torch.full((B_SIZE,), GAMMA), cauchy_z(), s, other)
