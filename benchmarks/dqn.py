"""A baseline: DQN of Stable-Baselines3, trained on the own reward of each environment of `own_rewards.py`.

    python benchmarks/dqn.py WORLD ...            # all worlds by default, seeds 0 to 2; existing results are kept
    python benchmarks/dqn.py --table              # the results as a table, beside the answers of own_rewards.py

DQN sees the reward during training and answers this one reward. It takes as many steps of the environment as
`anyreward.train` by default (preset ``fast``), and runs on one core.

Settings are the defaults of Stable-Baselines3, except for the four worlds in `ZOO`. These have the tuned settings of RL
Baselines3 Zoo (hyperparams/dqn.yml), apart from the number of steps. It has none for the other worlds.

Read the results as those of a baseline that nobody tuned for this number of steps. The default settings were chosen for
Atari: the target network is updated every 10,000 steps, so ten times here. With ``target_update_interval=250`` and
``learning_rate=6.3e-4``, by hand, seed 0, CliffWalking is solved (-13 instead of -1,000), Taxi is not (-200). The
policy after the last update is evaluated, not the best one of training; in CartPole, the two differ much.

The script needs an environment with the packages stable-baselines3 and gymnasium[toy-text,classic-control,box2d];
anyreward is not imported.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

RESULTS = Path(__file__).parent / "results" / "dqn"
OURS = Path(__file__).parent / "results" / "own_rewards"
STEPS = 100_000
"""Steps of training: 20,000 updates in cycles of 40, with 200 steps per cycle, as in preset ``fast``."""
LONGEST = 1_000
"""Largest number of steps of an episode, where the environment sets none."""
TOGETHER = 20
"""Environments in which a policy is evaluated at the same time."""

EPISODES = {
    "FrozenLake-v1": 2_000,
    "FrozenLake8x8-v1": 2_000,
    "CliffWalking-v1": 100,
    "Taxi-v4": 500,
    "Blackjack-v1": 5_000,
    "MountainCar-v0": 100,
    "CartPole-v1": 100,
    "Acrobot-v1": 100,
    "LunarLander-v3": 100,
}
"""The worlds, and the number of episodes in which a policy is evaluated."""

_LANDER: dict[str, Any] = {
    "learning_rate": 6.3e-4,
    "batch_size": 128,
    "buffer_size": 50_000,
    "learning_starts": 0,
    "gamma": 0.99,
    "target_update_interval": 250,
    "train_freq": 4,
    "gradient_steps": -1,
    "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "MountainCar-v0": {
        "learning_rate": 4e-3,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 1_000,
        "gamma": 0.98,
        "target_update_interval": 600,
        "train_freq": 16,
        "gradient_steps": 8,
        "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "Acrobot-v1": _LANDER,
    "LunarLander-v3": _LANDER,
}
"""Tuned settings; those of LunarLander-v3 are the zoo's for LunarLander-v2."""


def make(name: str) -> gym.Env[Any, Any]:
    """The environment, with a time limit, and with Tuples of categories in one-hot encoding."""
    env: gym.Env[Any, Any] = gym.make(name)
    if env.spec is None or env.spec.max_episode_steps is None:
        env = gym.wrappers.TimeLimit(env, LONGEST)
    return gym.wrappers.FlattenObservation(env) if isinstance(env.observation_space, gym.spaces.Tuple) else env


def measure(name: str, seed: int) -> dict[str, Any]:
    """Train DQN in one world, and evaluate its greedy policy."""
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    settings = ZOO.get(name, {})
    begun = time.perf_counter()
    model = sb3.DQN("MlpPolicy", make(name), seed=seed, device="cpu", **settings).learn(STEPS)
    seconds = time.perf_counter() - begun
    played = make_vec_env(lambda: make(name), n_envs=TOGETHER, seed=1_000)
    totals, lengths = evaluate_policy(
        model, played, n_eval_episodes=EPISODES[name], deterministic=True, return_episode_rewards=True
    )
    starts = model.learning_starts
    epsilon = [model.exploration_schedule(1 - step / STEPS) for step in range(starts, STEPS)]
    row = {
        "world": name,
        "seed": seed,
        "return": float(np.mean(totals)),
        "standard error": float(np.std(totals, ddof=1) / np.sqrt(len(totals))),
        "episodes": len(totals),
        "mean length": float(np.mean(lengths)),
        "steps": model.num_timesteps,
        "random steps": round(starts + sum(epsilon)),  # expected number of uniformly random actions in training
        "updates": model._n_updates,
        "training seconds": seconds,
        "settings": settings or "defaults",
        "versions": {
            "python": platform.python_version(),
            "gymnasium": gym.__version__,
            "stable-baselines3": sb3.__version__,
            "torch": torch.__version__,
        },
    }
    print(row, flush=True)
    return row


def write(path: Path, row: dict[str, Any]) -> None:
    """Write a file under a temporary name, then rename it."""
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(row, indent=2) + "\n")
    temporary.rename(path)


def table() -> None:
    """Print the results."""
    print("| world | settings | DQN | anyreward, reward from samples | DQN's training, s |")
    print("| --- | --- | --- | --- | --- |")
    for name in EPISODES:
        rows, ours = (
            [json.loads(path.read_text()) for path in sorted(folder.glob(f"{name}-seed*.json"))]
            for folder in (RESULTS, OURS)
        )
        if rows:
            returns = ", ".join(f"{row['return']:.4g}" for row in rows)
            answers = ", ".join(f"{row['samples']['return']:.4g}" for row in ours)
            seconds = np.mean([row["training seconds"] for row in rows])
            print(f"| {name} | {'zoo' if name in ZOO else 'defaults'} | {returns} | {answers} | {seconds:.0f} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        table()
    else:
        RESULTS.mkdir(parents=True, exist_ok=True)
        for seed in range(3):
            for name in sys.argv[1:] or EPISODES:
                path = RESULTS / f"{name}-seed{seed}.json"
                if not path.exists():
                    write(path, measure(name, seed))
