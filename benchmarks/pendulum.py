"""Pendulum: one agent, trained without reward, asked for the swing-up and for families of rewards.

    python benchmarks/pendulum.py tables 0 1 2       # default settings, these seeds; ten minutes each
    python benchmarks/pendulum.py tables 0 --updates 100         # a short run; also 1000
    python benchmarks/pendulum.py actor 0            # networks with an actor, instead of tables
    python benchmarks/pendulum.py samples 0          # networks without one: the best of sampled actions
    python benchmarks/pendulum.py twin-mean 0        # two F, their mean in targets; twin-min: the smaller one
    python benchmarks/pendulum.py --table
    python benchmarks/pendulum.py --optimum          # what the optimum on the grid earns

Training is reward-free. Afterwards the agent is asked for the environment's own reward (100 episodes in the environment
itself, with its cost of torque) and for 20 random rewards of each family, which are scored exactly on a grid of 121 x
121 states and 9 torques: 0 is the random policy, 1 the optimal one. "asked" is the default of `ask`, and "alone" is
F . z (refine=0). Six rewards of each family are compared with the trust report; the table also has the rank correlation
over three lengths of training. Results: benchmarks/results/pendulum/KIND-seedN.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.stats import spearmanr

import anyreward as ar
from anyreward.experiments.pendulum import FAMILIES, grid_of, own_returns, score_family
from anyreward.storage.files import write_json
from anyreward.theory.pendulum import pendulum_grid, swing_up_reward

RESULTS = Path(__file__).parent / "results" / "pendulum"
REWARDS, TRUSTED = 20, 6
"""Rewards of each family, and how many of them are compared with the trust report."""
KINDS: dict[str, dict[str, Any]] = {
    "tables": {},
    "actor": {"landmarks": 0},
    "samples": {"landmarks": 0, "actor": "samples"},
    "twin-mean": {"landmarks": 0, "twin": "mean", "actor_twin": "mean"},
    "twin-min": {"landmarks": 0, "twin": "min", "actor_twin": "min"},
}


def measure(kind: str, seed: int, name: str, **changes: Any) -> dict[str, Any]:
    """Train one agent, and ask it for everything; trust is compared for tables alone."""
    began, folder = time.monotonic(), f"runs/pendulum-{name}"
    agent = ar.train("Pendulum-v1", seed=seed, out=folder, overwrite=True, **KINDS[kind] | changes)
    compared = TRUSTED if kind.startswith("tables") else 0
    found: dict[str, Any] = {"kind": kind, "seed": seed, "training_seconds": round(time.monotonic() - began)}
    found |= {"updates": agent.updates, "transitions": agent.settings.transitions, "gamma": agent.settings.gamma}
    grid, predicted, true = grid_of(agent), [], []
    kinds = {"asked": None, "alone": 0}
    for answer, refine in kinds.items():
        returns = own_returns(agent, refine=refine)
        found[answer] = {"own_reward": [round(returns.mean, 1), round(returns.standard_error, 1)]}
        print(kind, seed, answer, found[answer], flush=True)
    for name in FAMILIES:
        both = score_family(agent, grid, name, REWARDS, seed, tuple(kinds.values()))
        for answer, answered in zip(kinds, both, strict=True):
            x = answered.scores.normalised
            found[answer][name] = [round(float(v), 3) for v in (x.mean(), np.percentile(x, 5), x.min())]
            for policy, score in zip(answered.policies[:compared], x, strict=False):
                if policy.trust.predicted is not None:
                    predicted.append(policy.trust.predicted)
                    true.append(float(score))
            print(kind, seed, name, answer, found[answer][name], flush=True)
    if compared:
        found["predicted"], found["true"] = ([round(x, 4) for x in values] for values in (predicted, true))
        found["trust"] = trusted(predicted, true)
        print(kind, seed, found["trust"], flush=True)
    return found


def trusted(predicted: list[float], true: list[float]) -> dict[str, Any]:
    """How predicted scores compare with true ones."""
    apart = np.array(predicted) - np.array(true)
    return {
        "rank_correlation": round(float(spearmanr(predicted, true).statistic), 2),
        "predicted_minus_true": round(float(apart.mean()), 3),
        "mean_absolute_error": round(float(np.abs(apart).mean()), 3),
        "answers": len(true),
    }


def optimum(episodes: int = 100) -> float:
    """The mean return of the policy that is optimal on the grid, in the environment itself."""
    grid = pendulum_grid(0.99)
    own = np.stack([swing_up_reward(grid.states, np.full(len(grid.states), u)) for u in grid.torques], 1)
    Q = grid.mdp.q_value(grid.mdp.optimal_value(own), own)
    env, totals = gym.make("Pendulum-v1"), []
    for seed in range(episodes):
        observation, _ = env.reset(seed=seed)
        total = 0.0
        for _ in range(200):
            state = np.array([[np.arctan2(observation[1], observation[0]), observation[2]]])
            torque = grid.torques[grid.at(Q, state)[0].argmax()]
            observation, reward, *_ = env.step(np.array([torque], dtype=np.float32))
            total += float(reward)
        totals.append(total)
    return float(np.mean(totals))


def main() -> None:
    """Measure, or print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS, nargs="?", default="tables")
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, help="instead of the default; also part of the name of the results")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--optimum", action="store_true")
    options = parser.parse_args()
    if options.optimum:
        print(f"{optimum():.1f}")
    elif options.table:
        table()
    else:
        changes = {"updates": options.updates} if options.updates else {}
        for seed in options.seeds:
            name = options.kind + (f"-{options.updates}" if options.updates else "") + f"-seed{seed}"
            write_json(RESULTS / f"{name}.json", measure(options.kind, seed, name, **changes))


def table() -> None:
    """Print the results: own reward, then the mean (5th percentile) of each family, and trust."""
    predicted: list[float] = []
    true: list[float] = []
    for path in sorted(RESULTS.glob("*-seed*.json")):
        found = json.loads(path.read_text())
        if found["kind"].startswith("tables"):
            predicted, true = predicted + found["predicted"], true + found["true"]
        for answer in ("asked", "alone"):
            row = found[answer]
            families = "  ".join(f"{row[name][0]:.2f} ({row[name][1]:.2f})" for name in FAMILIES)
            print(f"{path.stem:18s} {answer:6s} {row['own_reward'][0]:7.1f}  {families}")
        print(f"{path.stem:18s} trust  {found.get('trust')}")
    print(f"tables, all lengths of training: trust {trusted(predicted, true)}")


if __name__ == "__main__":
    main()
