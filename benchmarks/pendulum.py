"""Pendulum with a list of torques: what tables without an actor reach, beside the optimum on a grid.

    python benchmarks/pendulum.py            # seeds 0, 1, 2; a quarter of an hour
    python benchmarks/pendulum.py 1          # seed 1 alone
    python benchmarks/pendulum.py --table

The environment is Gymnasium's Pendulum-v1 with five torques, -2, -1, 0, 1 and 2. Training is reward-free, with default
settings and 4,000 updates. Afterwards the agent is asked for the environment's own reward (100 episodes in the
environment itself, with its own torque cost) and for 60 random rewards of each family; these are scored exactly on a
grid of 121 x 121 states and five torques: 0 is the random policy, 1 the optimal one. Results:
benchmarks/results/pendulum.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import spearmanr

import anyreward as ar
from anyreward.acting.exact import score_policies
from anyreward.acting.policy import action_probabilities
from anyreward.storage.files import write_json
from anyreward.theory.pendulum import pendulum_grid, swing_up_reward
from anyreward.worlds.spaces import Array

RESULTS = Path(__file__).parent / "results" / "pendulum.json"
TORQUES = 5
UPDATES = 4_000
REWARDS, TRUSTED = 60, 6
"""Rewards of each family, and how many of them are compared with the trust report."""
OWN = "-(arctan2(f1, f0)**2 + 0.1 * f2**2)"
Reward = Callable[[Array], Array]
"""(n,) rewards of features (n, 3): cosine, sine and speed"""


class ListedTorques(gym.ActionWrapper[Any, Any, Any]):
    """Pendulum with numbered torques."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.torques = np.linspace(-2, 2, TORQUES)
        self.action_space = gym.spaces.Discrete(TORQUES)

    def action(self, action: Any) -> Any:
        """The torque with this number."""
        return np.array([self.torques[action]], dtype=np.float32)


def near(at: Array, width: float) -> Reward:
    """A Gaussian around an angle and a speed (in quarter turns a second), given as (2,)."""

    def reward(features: Array) -> Array:
        angle = np.arctan2(features[:, 1], features[:, 0]) - at[0]
        apart = (angle + np.pi) % (2 * np.pi) - np.pi
        return np.asarray(np.exp(-(apart**2 + (features[:, 2] / 3 - at[1]) ** 2) / (2 * width**2)))

    return reward


def place(rng: np.random.Generator) -> Array:
    """A random angle, and a speed up to 5."""
    return np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-5 / 3, 5 / 3)])


def weighted(parts: list[tuple[float, Reward]]) -> Reward:
    """A sum of rewards."""
    return lambda features: np.asarray(sum(weight * part(features) for weight, part in parts))


def linear(direction: Array) -> Reward:
    """A linear function of cosine, sine and speed."""
    return lambda features: np.asarray(features[:, :3] @ (direction / np.array([1.0, 1.0, 8.0])))


FAMILIES: dict[str, Callable[[np.random.Generator], Reward]] = {
    "one goal": lambda rng: near(place(rng), 0.2),
    "two to five goals": lambda rng: weighted([(1.0, near(place(rng), 0.2)) for _ in range(rng.integers(2, 6))]),
    "goal, five forbidden": lambda rng: weighted(
        [(1.0, near(place(rng), 0.2)), *((-0.5, near(place(rng), 0.2)) for _ in range(5))]
    ),
    "near and far": lambda rng: weighted(
        [(1.0, near(place(rng), 0.2)), (rng.uniform(0.2, 0.8), near(np.array([np.pi, 0.0]), 0.3))]
    ),
    "bump": lambda rng: near(place(rng), rng.uniform(0.4, 0.9)),
    "linear": lambda rng: linear(rng.standard_normal(3)),
    "dense": lambda rng: weighted([(rng.standard_normal(), near(place(rng), 0.3)) for _ in range(60)]),
}


def measure(seed: int) -> dict[str, Any]:
    """Train one agent, and ask it for everything."""
    began = time.monotonic()
    agent = ar.train("ListedPendulum-v0", seed=seed, updates=UPDATES, progress=False)
    found: dict[str, Any] = {"seed": seed, "training_seconds": round(time.monotonic() - began), "families": {}}
    returns = ar.evaluate(agent.ask(ar.reward(OWN), refine=0), "ListedPendulum-v0", episodes=100, seed=1)
    found["own_reward"] = [round(returns.mean, 1), round(returns.standard_error, 1)]
    mdp, rng = pendulum_grid(agent.settings.gamma, torques=TORQUES).mdp, np.random.default_rng(100 + seed)
    found["gamma"] = agent.settings.gamma
    seen = mdp.observations.astype(np.float64)
    predicted, true = [], []
    for name, draw in FAMILIES.items():
        scores = []
        for number in range(REWARDS):
            reward = draw(rng)
            policy = agent.ask(ar.reward(reward, name), refine=0)
            rows = agent.model.phi.seen(mdp.observations)
            pi = action_probabilities(policy.preferences(_tensor(rows))).numpy()
            r = mdp.on_states(reward(seen)[None])
            scores.append(float(score_policies(mdp, pi[None], r).normalised[0]))
            if number < TRUSTED and policy.trust.predicted is not None:
                predicted.append(policy.trust.predicted)
                true.append(scores[-1])
        found["families"][name] = [round(float(x), 3) for x in (np.mean(scores), np.percentile(scores, 5))]
        print(seed, name, found["families"][name], flush=True)
    found["trust_rank_correlation"] = round(float(spearmanr(predicted, true).statistic), 2)
    found["predicted_minus_true"] = round(float(np.mean(np.array(predicted) - np.array(true))), 2)
    return found


def _tensor(rows: Array) -> Any:
    import torch

    return torch.from_numpy(rows)


def main() -> None:
    """Measure, or print the results."""
    if "--table" in sys.argv:
        print(json.dumps(json.loads(RESULTS.read_text()), indent=1))
        return
    gym.register(
        "ListedPendulum-v0",
        entry_point=lambda **kwargs: ListedTorques(gym.make("Pendulum-v1", **kwargs).unwrapped),
        max_episode_steps=200,
    )
    grid = pendulum_grid(0.99, torques=TORQUES)
    own = np.stack([swing_up_reward(grid.states, np.full(len(grid.states), u)) for u in grid.torques], 1)
    Q = grid.mdp.q_value(grid.mdp.optimal_value(own), own)
    env, totals = ListedTorques(gym.make("Pendulum-v1")), []
    for seed in range(100):
        observation, _ = env.reset(seed=seed)
        total = 0.0
        for _ in range(200):
            state = np.array([[np.arctan2(observation[1], observation[0]), observation[2]]])
            observation, reward, *_ = env.step(int(grid.at(Q, state)[0].argmax()))
            total += float(reward)
        totals.append(total)
    results: dict[str, Any] = {"optimum_of_the_grid": round(float(np.mean(totals)), 1)}
    known = json.loads(RESULTS.read_text())["agents"] if RESULTS.is_file() else []
    for seed in [int(word) for word in sys.argv[1:]] or [0, 1, 2]:
        known = [agent for agent in known if agent["seed"] != seed] + [measure(seed)]
        write_json(RESULTS, results | {"agents": known})
        print(json.dumps(known[-1]), flush=True)


if __name__ == "__main__":
    main()
