"""CartPole from a dataset alone: 60,000 random steps in Minari's format, asked for the reward of the environment.

    python benchmarks/offline.py            # seeds 0 to 2

The reward is given as a formula, and as the rewards of the dataset's own steps.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import anyreward as ar
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "offline"
STEPS = 60_000


def record(seed: int) -> tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Record random episodes as a Minari dataset; its name, and features and rewards of its steps."""
    import minari

    env = minari.DataCollector(gym.make("CartPole-v1"))
    env.action_space.seed(seed)
    features, rewards = [], []
    observation, _ = env.reset(seed=seed)
    for _ in range(STEPS):
        after, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        features.append([*observation, 0.0])
        rewards.append(float(reward) - terminated)  # the step that terminates pays on arrival
        if terminated:
            features.append([*after, 1.0])
            rewards.append(1.0)
        observation = env.reset()[0] if terminated or truncated else after
    name = f"cartpole/random-{seed}-v0"
    env.create_dataset(name)
    env.close()
    return f"minari:{name}", np.array(features), np.array(rewards)


def measure(seed: int) -> dict[str, Any]:
    """Train from the dataset, ask in both ways, and play."""
    name, features, rewards = record(seed)
    agent = ar.train(name, seed=seed, progress=False, compile=True)
    row: dict[str, Any] = {"seed": seed, "steps": STEPS}
    for way, reward in {"formula": ar.reward("1"), "samples": ar.samples(features, rewards)}.items():
        policy = agent.ask(reward)
        played, trust = ar.evaluate(policy, "CartPole-v1", episodes=100, seed=1_000), policy.trust
        row[way] = {"return": float(played.mean), "refined": policy.refined}
        row[way] |= {"predicted": trust.predicted, "trust": trust.verdict}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = folder
        RESULTS.mkdir(parents=True, exist_ok=True)
        for one in map(int, sys.argv[1:] or ("0", "1", "2")):
            write_json(RESULTS / f"cartpole-random-seed{one}.json", measure(one))
