"""Composed tasks where F is a network: one goal, either of two, a goal with a place to avoid; 100 instances each.

python benchmarks/composed.py fetch-reach     # trains 5,000 updates (3 minutes), then plays
python benchmarks/composed.py ms-pacman       # plays the agent in benchmarks/results/worlds: 10 minutes
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.play import goal_test_of, together
from anyreward.storage.files import write_json
from anyreward.worlds.spaces import pack_seen, with_final

RESULTS = Path(__file__).parent / "results"
Array = np.ndarray[Any, Any]


def play(agent: ar.Agent, asked: list[ar.Reward] | None, places: Array, seed: int = 0) -> Array:
    """(n, m) whether each of m places (n, m, k) was reached in an episode of the answer; of random actions for None."""
    world, features = agent.world(), agent.model.phi
    test, rng = goal_test_of(world), np.random.default_rng(seed)
    n, space = len(places), features.observation_space
    Z = None if asked is None else torch.stack([agent.ask(target).z for target in asked])
    env = world.make_vector(together(world, n), max_episode_steps=test.steps + 1)
    reached = np.zeros(places.shape[:2], dtype=bool)
    with closing(env):
        for wave in range(0, n, env.num_envs):
            which = np.minimum(np.arange(wave, wave + env.num_envs), n - 1)
            running = np.arange(wave, wave + env.num_envs) < n
            observations, _ = env.reset(seed=int(rng.integers(2**31)))
            for _ in range(test.steps):
                actions = rng.integers(features.actions, size=env.num_envs)
                if Z is not None:
                    packed = torch.from_numpy(pack_seen(space, observations))
                    best = agent.model.q(packed, Z[which]).argmax(1).numpy()
                    actions = np.where(rng.random(env.num_envs) < test.epsilon, actions, best)
                observations, _, terminated, truncated, infos = env.step(actions + agent.action_start)
                done, seen = terminated | truncated, observations
                if "final_obs" in infos and done.any():
                    seen = with_final(space, observations, infos["final_obs"], done)
                achieved = features.of(seen, pack_seen(space, seen), actions)[:, : places.shape[2]]
                for j in range(places.shape[1]):
                    there = test.reached(achieved, places[which, j]) & running
                    reached[which[there], j] = True
                running &= ~done
                if not running.any():
                    break
    return reached


def measure(name: str, agent: ar.Agent, n: int = 100) -> None:
    """Both kinds of composed tasks, beside the plain goal and random actions."""
    test = goal_test_of(agent.world())
    first, second = (test.draw(np.random.default_rng(seed), n) for seed in (1, 2))
    places = np.stack([first, second], 1)
    one, two = ([ar.goal(p.tolist()) for p in points] for points in (first, second))
    answers: dict[str, list[ar.Reward] | None] = {
        "random actions": None,
        "the first place": one,
        "either of both": [a + b for a, b in zip(one, two, strict=True)],
        "the first, not the second": [a - b for a, b in zip(one, two, strict=True)],
        "the first, and no matter what - 1": [a - ar.reward(ones, "1") for a in one],
    }
    rows = {}
    for task, asked in answers.items():
        reached = play(agent, asked, places)
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
