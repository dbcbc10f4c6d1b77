"""Composed tasks where F is a network: one goal, either of two, a goal with a place to avoid; 100 instances each.

python benchmarks/composed.py fetch-reach     # trains 5,000 updates (3 minutes), then plays
python benchmarks/composed.py ms-pacman       # plays the agent in benchmarks/results/worlds: 20 minutes
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.play import goal_test_of, play_goals
from anyreward.storage.files import write_json
from anyreward.worlds.stepping import opened, together

RESULTS = Path(__file__).parent / "results"
Array = np.ndarray[Any, Any]


def play(agent: ar.Agent, asked: list[ar.Reward], places: Array, epsilon: float | None = None, seed: int = 0) -> Array:
    """(n, m) whether each of m places (n, m, k) was reached in an episode of the answer to each of n rewards.

    The same episodes are played once for each of the m places; ``epsilon`` is the share of random actions.
    """
    world, phi = agent.world(), agent.model.phi
    test, greedy = goal_test_of(world), agent.model.choose_for(torch.stack([agent.ask(target).z for target in asked]))
    with opened(world, together(world, len(places)), max_episode_steps=test.steps + 1) as stepper:
        played = [play_goals(stepper, test, g, phi, greedy, epsilon, seed) for g in places.swapaxes(0, 1)]
    return np.stack([scores.reached for scores in played], 1)


def measure(name: str, agent: ar.Agent, n: int = 100) -> None:
    """Both kinds of composed tasks, beside the plain goal and random actions."""
    test = goal_test_of(agent.world())
    first, second = (test.draw(np.random.default_rng(seed), n) for seed in (1, 2))
    places = np.stack([first, second], 1)
    one, two = ([ar.goal(p.tolist()) for p in points] for points in (first, second))
    answers = {
        "random actions": one,
        "the first place": one,
        "either of both": [a + b for a, b in zip(one, two, strict=True)],
        "the first, not the second": [a - b for a, b in zip(one, two, strict=True)],
        "the first, and no matter what - 1": [a - ar.reward(ones, "1") for a in one],
    }
    rows = {}
    for task, asked in answers.items():
        reached = play(agent, asked, places, 1.0 if task == "random actions" else None)
        rows[task] = {
            "first reached": float(reached[:, 0].mean()),
            "second reached": float(reached[:, 1].mean()),
            "either reached": float(reached.any(1).mean()),
        }
        print(name, task, rows[task], flush=True)
    write_json(RESULTS / f"composed {name}.json", {"world": name, "updates": agent.updates, "n": n, "tasks": rows})


def ones(g: Array) -> Array:
    """One everywhere."""
    return np.ones(len(g))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=["fetch-reach", "ms-pacman"])
    chosen = parser.parse_args().world
    if chosen == "ms-pacman":
        measure(chosen, ar.load(RESULTS / "worlds" / "ms-pacman-fast-seed0"))
    else:
        folder = Path("runs") / "composed-fetch-reach"
        if not (folder / "agent.json").exists():
            ar.train("fetch-reach", dim=50, updates=5_000, compile=True, out=folder)
        measure(chosen, ar.load(folder))
