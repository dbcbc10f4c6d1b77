"""Quality on the four rooms: goals, sums of goals, forbidden cells and dense rewards, against the exact optimum.

python benchmarks/four_rooms.py            # trains both presets, 3 seeds each, then draws
python benchmarks/four_rooms.py --draw     # only draws, from the committed results
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.exact import Scores
from anyreward.figures.maze import pyplot
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "four_rooms"
UPDATES, DIM, SEEDS, REWARDS = 20_000, 100, (0, 1, 2), 200


def families(mdp: ar.FiniteMDP, table: np.ndarray[Any, Any]) -> dict[str, list[ar.Reward]]:
    """The families of rewards, the same for every agent; ``table`` holds the (x, y) of each cell."""
    rng = np.random.default_rng(2021)
    place = table[mdp.observations]  # (S, 2)

    def goals(n: int) -> list[ar.Reward]:
        return [ar.goal(place[i]) for i in rng.choice(mdp.states, n, replace=False)]

    def dense() -> ar.Reward:
        by_place = dict(zip(map(tuple, place), rng.standard_normal(mdp.states), strict=True))
        return ar.reward(lambda g: np.array([by_place[x, y] for x, y in g]), "dense")

    def forbidden() -> ar.Reward:
        target, *avoid = goals(6)
        return target - 0.5 * sum(avoid, start=ar.Reward(()))

    return {
        "one goal": [ar.goal(p) for p in place],
        "two goals": [sum(goals(2), start=ar.Reward(())) for _ in range(REWARDS)],
        "three goals": [sum(goals(3), start=ar.Reward(())) for _ in range(REWARDS)],
        "goal, five forbidden cells": [forbidden() for _ in range(REWARDS)],
        "dense normal": [dense() for _ in range(REWARDS)],
    }


def summary(values: np.ndarray[Any, Any]) -> dict[str, float]:
    """Mean, minimum and 5th percentile."""
    return {"mean": float(values.mean()), "min": float(values.min()), "p5": float(np.percentile(values, 5))}


def both(scores: Scores) -> dict[str, dict[str, float]]:
    """Value / optimal value, and the same on the scale 0 = random policy, 1 = optimal."""
    return {"ratio": summary(scores.ratio), "normalised": summary(scores.normalised)}


def run(job: tuple[str, int]) -> None:
    """Train one preset with one seed, score it, write its result."""
    preset, seed = job
    torch.set_num_threads(1)
    folder = Path("runs") / f"four-rooms-{preset}-{seed}"
    settings: dict[str, Any] = {"updates": UPDATES, "dim": DIM, "seed": seed, "compile": True, "landmarks": 0}
    agent = ar.train("four-rooms", preset=preset, out=folder, overwrite=True, **settings)
    mdp, table = agent.exact_mdp(), agent.model.phi.table
    assert table is not None
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    result = {
        "preset": preset,
        "seed": seed,
        "updates": UPDATES,
        "dim": DIM,
        "fingerprint": agent.fingerprint,
        "policy quality (z = B(g), all goals)": {
            "boltzmann, temperature 1": summary(agent.score(mdp=mdp, temperature=1.0).ratio),
            "greedy": summary(agent.score(mdp=mdp).ratio),
        },
        "ask (greedy)": {name: both(agent.score(r, mdp)) for name, r in families(mdp, table).items()},
        "curve": [json.loads(line) for line in lines],
    }
    write_json(RESULTS / f"{preset}-seed{seed}.json", result)


def draw() -> None:
    """The curves of both presets, all seeds, from the results on disk; prints the table."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.0), layout="constrained", sharey=True)
    results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    keys = {"quality": "Boltzmann, mean", "quality_worst": "Boltzmann, worst goal", "quality_greedy": "greedy, mean"}
    for preset, colour, style in (("fast", "#0072b2", "-"), ("paper", "#d55e00", "--")):
        curves = [r["curve"] for r in results if r["preset"] == preset]
        for axis, (key, title) in zip(axes, keys.items(), strict=True):
            x = [line["updates"] for line in curves[0]]
            y = np.array([[line[key] for line in curve] for curve in curves])
            axis.plot(x, y.mean(0), style, color=colour, label=f"preset {preset}, mean of {len(curves)} seeds")
            axis.fill_between(x, y.min(0), y.max(0), color=colour, alpha=0.2)
            axis.set(title=title, xlabel="updates", ylim=(0, 1.02))
            axis.set_xticks(
                range(0, UPDATES + 1, UPDATES // 4), [f"{x:,}" for x in range(0, UPDATES + 1, UPDATES // 4)]
            )
            axis.grid(alpha=0.3)
    axes[0].set_ylabel("policy quality over the 68 goals")
    axes[0].legend(loc="lower right")
    figure.suptitle("Four rooms, d = 100: value / optimal value (band: lowest to highest seed)")
    figure.savefig(RESULTS / "quality.png", dpi=120)
    print_tables(results)


def print_tables(results: list[dict[str, Any]]) -> None:
    """The two tables of docs/notebook/network_rewards.md."""
    print("| preset, seed | Boltzmann mean | 5th percentile | worst goal | greedy mean | worst goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for r in results:
        quality = r["policy quality (z = B(g), all goals)"]
        soft, greedy = quality["boltzmann, temperature 1"], quality["greedy"]
        cells = (soft["mean"], soft["p5"], soft["min"], greedy["mean"], greedy["min"])
        print(f"| `{r['preset']}`, {r['seed']} |", " | ".join(f"{x:.3f}" for x in cells), "|")
    columns = [(preset, scale) for preset in ("fast", "paper") for scale in ("ratio", "normalised")]
    print("\n| reward |", " | ".join(f"`{preset}`, {scale}: mean, 5th, min" for preset, scale in columns), "|")
    print("| --- | --- | --- | --- | --- |")
    for family in results[0]["ask (greedy)"]:
        row = []
        for preset, scale in columns:
            seeds = [r["ask (greedy)"][family][scale] for r in results if r["preset"] == preset]
            row.append(", ".join(f"{np.mean([seed[key] for seed in seeds]):.2f}" for key in ("mean", "p5", "min")))
        print(f"| {family} |", " | ".join(row), "|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--presets", nargs="+", default=["fast", "paper"])
    arguments = parser.parse_args()
    if not arguments.draw:
        jobs = [(preset, seed) for preset in arguments.presets for seed in SEEDS]
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            list(pool.map(run, jobs))
    draw()
