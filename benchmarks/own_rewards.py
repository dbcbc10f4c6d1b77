"""Environments of Gymnasium, each asked for its own reward with default settings.

    python benchmarks/own_rewards.py WORLD ...            # all worlds by default, seeds 0 to 2
    python benchmarks/own_rewards.py --table              # the results as a table

Training sees no reward. Afterwards the reward is given in one of two ways: samples of 10,000 steps
(`agent.sample_rewards`), or a formula. Where networks are used, the answers of F . z alone and of planning among points
are measured too; by default the better one in simulated episodes is taken.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import anyreward as ar
from anyreward.acting.play import RandomPolicy
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "own_rewards"
BUDGET = 10_000
SEEDS = range(3)


class Own:
    """An environment with its own reward as a formula, if there is one, and what is known of its best return."""

    def __init__(self, formula: ar.Reward | None, best: float | None, episodes: int = 100, **changes: Any) -> None:
        self.formula, self.best, self.episodes, self.changes = formula, best, episodes, changes


WORLDS = {
    "FrozenLake-v1": Own(ar.goal(15), None, 2_000),
    "FrozenLake8x8-v1": Own(ar.goal(63), None, 2_000),
    "CliffWalking-v1": Own(ar.reward("ended - 1"), -13.0),
    "Taxi-v4": Own(21 / 0.99 * ar.end() - ar.reward("1 - ended") - 9 * ar.reward("action > 3.5"), 7.96, 500),
    "Blackjack-v1": Own(None, -0.04, 20_000),
    "MountainCar-v0": Own(ar.reward("-1"), -95.0),
    "CartPole-v1": Own(ar.reward("1"), 500.0, compile=True),
    "Acrobot-v1": Own(ar.reward("-1"), -75.0, compile=True),
    "LunarLander-v3": Own(None, 250.0, compile=True),
}


def optimum(env: gym.Env[Any, Any]) -> float | None:
    """The largest expected return within the time limit, by backward induction, if the environment has a table P."""
    P, start = (getattr(env.unwrapped, name, None) for name in ("P", "initial_state_distrib"))
    if not isinstance(P, dict) or start is None or env.spec is None or env.spec.max_episode_steps is None:
        return None
    V = np.zeros(len(P))
    for _ in range(env.spec.max_episode_steps):
        V = np.array(
            [
                max(sum(p * (r + (0.0 if over else V[t])) for p, t, r, over in outcomes) for outcomes in P[s].values())
                for s in range(len(P))
            ]
        )
    return float(np.asarray(start) @ V)


def measure(name: str, seed: int, own: Own) -> dict[str, Any]:
    """Train one agent, ask for the environment's own reward in every way, and play."""
    env = gym.make(name)
    row: dict[str, Any] = {"world": name, "seed": seed, "best": own.best if own.best is not None else optimum(env)}
    random = RandomPolicy(env.action_space, seed=seed)
    row["random"] = float(ar.evaluate(random, name, episodes=min(own.episodes, 100), seed=5).mean)
    begun = time.perf_counter()
    agent = ar.train(name, seed=seed, progress=False, **own.changes)
    row["training seconds"] = time.perf_counter() - begun
    row["tables"] = agent.model.landmarks is not None
    rewards = {"samples": agent.sample_rewards(name, budget=BUDGET, seed=seed, progress=False)}
    if own.formula is not None:
        rewards["formula"] = own.formula
    for way, reward in rewards.items():
        others = {f"{way}, F . z alone": 0, f"{way}, refined": 1} if agent.knowledge.points is not None else {}
        ways = {way: None} | others
        for how, refine in ways.items():
            policy = agent.ask(reward, refine=refine)
            played = ar.evaluate(policy, name, episodes=own.episodes, seed=1_000)
            trust = policy.trust
            row[how] = {"return": float(played.mean), "predicted": trust.predicted, "trust": trust.verdict}
            row[how]["refined"] = policy.refined
    print(row, flush=True)
    return row


def table(worlds: dict[str, Own], results: Path) -> None:
    """Print the results."""
    ways = ("samples", "formula", "samples, F . z alone", "samples, refined")
    print("| world | random | best | seconds | " + " | ".join(ways) + " | trust (samples) |")
    print("| --- " * (5 + len(ways)) + "|")
    for name in worlds:
        files = [path for seed in SEEDS if (path := file_of(results, name, seed)).exists()]
        rows = [json.loads(path.read_text()) for path in files]
        if not rows:
            continue
        cells = [", ".join(f"{row[way]['return']:.4g}" for row in rows) if way in rows[0] else "" for way in ways]
        trust = "; ".join(row["samples"]["trust"] for row in rows)
        first = rows[0]
        best = "" if first["best"] is None else f"{first['best']:.4g}"
        seconds = np.mean([row["training seconds"] for row in rows])
        print(f"| {name} | {first['random']:.4g} | {best} | {seconds:.0f} | " + " | ".join(cells) + f" | {trust} |")


def file_of(results: Path, name: str, seed: int) -> Path:
    """The file with the results of one world and seed."""
    return results / f"{name.replace('/', '-')}-seed{seed}.json"


def main(worlds: dict[str, Own], results: Path) -> None:
    """Measure the worlds that are named on the command line, all by default, or print the table."""
    if sys.argv[1:] == ["--table"]:
        return table(worlds, results)
    warnings.simplefilter("ignore")
    results.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for name in sys.argv[1:] or worlds:
            write_json(file_of(results, name, seed), measure(name, seed, worlds[name]))


if __name__ == "__main__":
    main(WORLDS, RESULTS)
