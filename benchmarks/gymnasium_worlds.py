"""Worlds that are not ours: train reward-free, then ask for the environment's own reward and play.

    python benchmarks/gymnasium_worlds.py

FrozenLake pays 1 on entering the goal: as a function of state and action, the probability that the action leads there.
CartPole pays 1 for every step: the constant 1, with termination ending the sum.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import anyreward as ar
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "gymnasium_worlds.json"
SEEDS = (0, 1, 2)


def frozen_lake_table() -> np.ndarray[Any, Any]:
    """(16, 4) the expected reward of each state and action, from the environment's own table."""
    table = gym.make("FrozenLake-v1").unwrapped.P  # type: ignore[attr-defined]  # toy-text only
    return np.array([[sum(p * pay for p, _, pay, _ in table[s][a]) for a in range(4)] for s in range(16)])


def frozen_lake_reward() -> ar.Reward:
    """FrozenLake's reward as a function of state and action."""
    r = frozen_lake_table()
    return ar.reward(lambda g: r[g[:, 0].astype(int), g[:, 1].astype(int)], "FrozenLake's own reward")


def cart_pole_reward() -> ar.Reward:
    """One for every step."""
    return ar.reward(lambda g: np.ones(len(g)), "CartPole's own reward")


WORLDS: dict[str, dict[str, Any]] = {
    "FrozenLake-v1": {
        "reward": frozen_lake_reward,
        "settings": {
            "landmarks": 0,
            "dim": 64,
            "updates": 10_000,
            "features_include_action": True,
            "exploration": 0.2,
            "environments": 8,
            "steps_per_cycle": 400,
            "temperature": 50.0,
        },
        "episodes": 1_000,
        "best known": "the optimal policy of the exact MDP, cut at the time limit of 100 steps",
    },
    "CartPole-v1": {
        "reward": cart_pole_reward,
        "settings": {"dim": 50, "updates": 10_000, "gamma": 0.98, "exploration": 0.3, "learning_rate": 5e-4},
        "episodes": 100,
        "best known": "500, the time limit",
    },
}


def returns(policy: Any, name: str, episodes: int) -> dict[str, float]:
    """Mean return over whole episodes, with its standard error."""
    played = ar.evaluate(policy, name, episodes, seed=1_000)
    return {"mean": played.mean, "standard error": played.standard_error}


def best_of_frozen_lake(episodes: int) -> dict[str, float]:
    """The return of the undiscounted optimum's policy, played for as many episodes."""
    mdp = ar.finite_mdp(gym.make("FrozenLake-v1"), 0.9999)
    assert mdp is not None
    r = frozen_lake_table()
    actions = mdp.q_value(mdp.optimal_value(r), r).argmax(-1)

    class Optimal:
        def act(self, observation: Any) -> int:
            return int(actions[observation])

    return returns(Optimal(), "FrozenLake-v1", episodes)


def play(name: str, seed: int) -> dict[str, float | None]:
    """Train without reward, ask for the environment's own, play."""
    torch.set_num_threads(1)
    spec = WORLDS[name]
    agent = ar.train(name, seed=seed, compile=True, progress=False, **spec["settings"])
    policy = agent.ask(spec["reward"]())
    return returns(policy, name, spec["episodes"]) | {"trust": policy.trust.predicted}


def main(worlds: list[str]) -> None:
    """Train, ask, play, write."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in worlds:
        spec = WORLDS[name]
        row: dict[str, Any] = {"settings": spec["settings"], "best known": spec["best known"], "seeds": {}}
        actions = int(gym.make(name).action_space.n)  # type: ignore[attr-defined]  # Discrete
        row["random policy"] = returns(ar.RandomPolicy(actions, seed=5), name, spec["episodes"])
        if name == "FrozenLake-v1":
            row["optimal policy, played"] = best_of_frozen_lake(spec["episodes"])
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            for seed, figures in zip(SEEDS, pool.map(play, [name] * len(SEEDS), SEEDS), strict=True):
                row["seeds"][str(seed)] = figures
                print(name, seed, figures, flush=True)
        results[name] = row
        write_json(RESULTS, results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worlds", nargs="*", default=list(WORLDS))
    main(parser.parse_args().worlds)
