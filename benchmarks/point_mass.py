"""The point-mass maze: one agent, trained without reward, asked for the eight published tasks.

    python benchmarks/point_mass.py 0 1 2              # these seeds, one after the other
    python benchmarks/point_mass.py 0 --minutes 40     # stop training earlier
    python benchmarks/point_mass.py --table

Returns are sums of the rewards of 1,000 steps from the corner at the top left, means over 20 episodes; those in
brackets are of F . z alone (refine=0). Published returns stand beside them. They were trained on exploration data of
another method, which is not to be had here, so they are indicative only. Results:
benchmarks/results/point_mass/seedN.json, and the agent in runs/point-mass-seedN.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import anyreward as ar
from anyreward.storage.files import write_json
from anyreward.worlds.point_mass import TASKS

RESULTS = Path(__file__).parent / "results" / "point_mass"
PUBLISHED = {
    "reach_top_left": 896,
    "reach_top_right": 715,
    "reach_bottom_left": 831,
    "reach_bottom_right": 366,
    "reach_bottom_left_long": 49,
    "loop": 318,
    "square": 337,
    "fast_slow": 224,
}
"""FB in one paper."""


def returns(policy: ar.Policy, task: str, episodes: int, seed: int = 1) -> tuple[float, float]:
    """The mean return of a task, and its standard error."""
    env = gym.make_vec("anyreward/PointMassMaze-v0", num_envs=episodes, task=task)
    observations, _ = env.reset(seed=seed)
    total = np.zeros(episodes)
    for _ in range(1_000):
        observations, rewards, *_ = env.step(policy.act(observations))
        total += rewards
    env.close()
    return float(total.mean()), float(total.std(ddof=1) / np.sqrt(episodes))


def measure(seed: int, minutes: float | None, episodes: int, **settings: Any) -> dict[str, Any]:
    """Train one agent, and ask it for every task."""
    began = time.monotonic()
    folder = f"runs/point-mass-seed{seed}"
    agent = ar.train("point-mass-maze", seed=seed, out=folder, overwrite=True, minutes=minutes, **settings)
    found: dict[str, Any] = {"seed": seed, "training_seconds": round(time.monotonic() - began)}
    found |= {"updates": agent.updates, "transitions": agent.knowledge.settings.transitions, "tasks": {}}
    for name, task in TASKS.items():
        began = time.monotonic()
        answers = {"alone": agent.ask(ar.reward(task, name), refine=0), "asked": agent.ask(ar.reward(task, name))}
        row: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1), "refined": answers["asked"].refined}
        for kind, policy in answers.items():
            row[kind] = [round(x, 1) for x in returns(policy, name, episodes)]
        row["trust"] = answers["asked"].trust.predicted
        found["tasks"][name] = row
        print(seed, name, row, "published", PUBLISHED[name], flush=True)
    return found


def main() -> None:
    """Measure, or print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--settings", default="{}", help="settings to change, as JSON")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        runs = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("seed*.json"))]
        for name, published in PUBLISHED.items():
            figures = ", ".join(f"{run['tasks'][name]['asked'][0]:.0f}" for run in runs)
            plain = ", ".join(f"{run['tasks'][name]['alone'][0]:.0f}" for run in runs)
            print(f"{name:24s} {figures} ({plain}); published {published}")
        return
    for seed in options.seeds:
        found = measure(seed, options.minutes, options.episodes, **json.loads(options.settings))
        write_json(RESULTS / f"seed{seed}.json", found)


if __name__ == "__main__":
    main()
