"""Actions of a box, on a point that moves on a line: F . z is the true Q of its policy, and the actor is its argmax."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import anyreward as ar
from anyreward.agent import Agent

GAMMA, STEP = 0.8, 0.3
HORIZON = 60
TAU, SAMPLES, ROLLOUTS = 0.05, 16, 4
"""Without an actor: the temperature and the number of sampled actions, and of episodes that are averaged."""


def moved(x: Tensor, actions: Tensor) -> Tensor:
    """(n,) the linear system: half a step's friction towards zero, and the action; clipped at the ends."""
    return (0.95 * x + STEP * actions).clamp(-1.0, 1.0)


class Line(gym.Env[Any, Any]):
    """A number that an action from -2 to 2 moves."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-2, 2, (1,))
    never_terminates = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-1, 1, 1), 0
        return self.x.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x = moved(torch.from_numpy(self.x), torch.from_numpy(np.asarray(action, dtype=float)) / 2).numpy()
        self.t += 1
        return self.x.astype(np.float32), 0.0, False, self.t >= 20, {}


COMMON: dict[str, Any] = {
    "gamma": GAMMA,
    "updates": 4_000,
    "learning_rate_decay": 0.7,
    "hidden": 64,
    "batch_size": 128,
    "landmarks": 0,
    "explore": "z",
    "exploration": 1.0,
    "action_repeat": 1,
    "random_steps": 10,
    "smoothing": 0.0,
    "seed": 0,
    "threads": 1,
    "steps_per_cycle": 100,
    "z_mixture": ar.ZMixture(),
    "z_norm": "sphere",
    "progress": False,
}


def reward_of(agent: Agent, x: Tensor, z: Tensor) -> Tensor:
    """(n,) the reward whose z_R is z: B . E[B B^T]^-1 z. B is orthonormal in the warm-up, not quite in all data."""
    B = agent.sample.B.float()
    return agent.model.backward_map(x[:, None]) @ torch.linalg.solve(B.T @ B / len(B), z)


def trained_action(agent: Agent, x: Tensor, z: Tensor, random: torch.Generator) -> Tensor:
    """(n,) an action of the policy that F is trained on: the actor's, or a softmax over random actions."""
    if agent.model.actor is not None:
        return agent.model.greedy(x[:, None], z)[:, 0]
    actions = 2 * torch.rand(len(x), SAMPLES, generator=random) - 1
    Q = agent.model.q_at(x[:, None], z.expand(len(x), -1), actions[:, :, None])
    return actions.gather(1, torch.multinomial(torch.softmax(Q / TAU, 1), 1, generator=random))[:, 0]


def trained_q(agent: Agent, x: Tensor, actions: Tensor, z: Tensor) -> Tensor:
    """(n,) Q of that policy, by rolling out the system; the first action is given."""
    random, times = torch.Generator().manual_seed(2), 1 if agent.model.actor is not None else ROLLOUTS
    here, taken, total, weight = x.repeat(times), actions.repeat(times), torch.zeros(times * len(x)), 1.0
    for _ in range(HORIZON):
        total += weight * reward_of(agent, here, z)
        here, weight = moved(here, taken), weight * GAMMA
        taken = trained_action(agent, here, z, random)
    return total.view(times, len(x)).mean(0)


def true_q(agent: Agent, x: Tensor, actions: Tensor, z: Tensor) -> Tensor:
    """(n,) Q of the greedy pi_z for that reward, by rolling out the system; the first action is given."""
    total, weight = torch.zeros(len(x)), 1.0
    for _ in range(HORIZON):
        total += weight * reward_of(agent, x, z)
        x, weight = moved(x, actions), weight * GAMMA
        actions = agent.model.greedy(x[:, None], z)[:, 0]
    return total


@pytest.fixture(scope="module", params=["network", "samples", "two F"])
def agent(request: pytest.FixtureRequest) -> Agent:
    """Successor features: B is fixed, so F . z should be the Q of a reward that is known exactly."""
    kind = {"two F": {"twin": "mean", "actor_twin": "min"}}.get(request.param, {"actor": request.param})
    sharp = {"temperature": TAU} if request.param == "samples" else {}
    fixed = {
        "learning_rate": 0.002,
        "method": "successor-features",
        "basis": "fourier",
        "dim": 3,
        "warmup_steps": 2_000,
    }
    return ar.train(Line(), **COMMON | kind | sharp | fixed)


def tasks(agent: Agent, n: int) -> Tensor:
    return agent.knowledge.training_z(n, torch.Generator().manual_seed(5)).float()


def test_f_is_the_q_of_its_policy(agent: Agent) -> None:
    random = torch.Generator().manual_seed(1)
    errors, spread = [], []
    for z in tasks(agent, 12):
        x, a = (2 * torch.rand(2, 200, generator=random) - 1).unbind()
        Q = agent.model.q_at(x[:, None], z.expand(200, -1), a[:, None, None])[:, 0]
        true = trained_q(agent, x, a, z)
        errors.append((Q - true).square().mean())
        spread.append(true.var())
    relative = float((torch.stack(errors).mean() / torch.stack(spread).mean()).sqrt())
    assert relative < 0.12, relative


def test_the_policy_is_near_the_argmax_of_f_and_near_the_optimum(agent: Agent) -> None:
    grid, x = torch.linspace(-1, 1, 81), torch.linspace(-1, 1, 201)
    after = moved(x[:, None], grid[None])  # (S, A)
    lost, gained = [], []
    for z in tasks(agent, 12):
        Q = agent.model.q_at(x[:, None], z.expand(201, -1), grid[None, :, None].expand(201, -1, -1))  # (S, A)
        _, own = agent.model.choose(x[:, None], z)
        lost.append(((Q.amax(1) - own).mean() / (Q.amax(1) - Q.mean(1)).mean()).clamp(min=0.0))
        r = reward_of(agent, x, z).double().numpy()
        V = np.zeros(201)
        for _ in range(300):
            V = (r[:, None] + GAMMA * np.interp(after.numpy(), x.numpy(), V)).max(1)
        uniform = np.zeros(201)
        for _ in range(300):
            uniform = (r[:, None] + GAMMA * np.interp(after.numpy(), x.numpy(), uniform)).mean(1)
        earned = true_q(agent, x, agent.model.greedy(x[:, None], z)[:, 0], z).mean()
        gained.append((float(earned) - uniform.mean()) / (V.mean() - uniform.mean()))
    assert float(torch.stack(lost).mean()) < 0.1
    assert np.mean(gained) > 0.93, gained


def test_learned_b_answers_a_goal_and_a_quadratic_reward() -> None:
    agent = ar.train(Line(), **COMMON | {"dim": 12, "z_mixture": ar.ZMixture(0.3, 0.3, 0.3)})
    for reward, at in ((ar.goal(0.5), 0.5), (ar.reward("-(f0 + 0.4)**2"), -0.4)):
        policy = agent.ask(reward, refine=0)
        x = torch.linspace(-1, 1, 21)
        for _ in range(15):
            x = moved(x, torch.from_numpy(policy.act(x[:, None].numpy()))[:, 0] / 2)
        assert float((x - at).abs().mean()) < 0.15, (str(reward), x)
