"""All rewards: the suite on four mazes, and which source of error costs how much on the four rooms.

python benchmarks/all_rewards.py                        # 2 presets x 4 mazes x 3 seeds, two processes: 40 minutes
python benchmarks/all_rewards.py --mazes four-rooms     # 10 minutes
python benchmarks/all_rewards.py --draw                 # only draws and prints, from the committed results
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.experiments.all_rewards import error_sources, suite
from anyreward.figures.maze import pyplot
from anyreward.storage.files import read_json, write_json

RESULTS = Path(__file__).parent / "results" / "all_rewards"
MAZES = ("four-rooms", "labyrinth", "pillars", "random-maze")
UPDATES, SEEDS = 20_000, (0, 1, 2)


def run(job: tuple[str, str, int]) -> str:
    """Train a preset on a maze with a seed, score it, write its result."""
    torch.set_num_threads(1)
    preset, maze, seed = job
    agent = ar.train(maze, preset=preset, seed=seed, updates=UPDATES, compile=True, progress=False)
    families = {name: scores.summary() for name, scores in suite(agent).items()}
    result: dict[str, Any] = {"preset": preset, "maze": maze, "seed": seed, "updates": UPDATES, "families": families}
    if maze == "four-rooms":
        mdp = agent.exact_mdp()
        result["sources of error"] = {name: error_sources(agent, mdp, name) for name in families}
    write_json(RESULTS / f"{preset}-{maze}-seed{seed}.json", result)
    return f"{preset}, {maze}, seed {seed}"


def mean(results: list[dict[str, Any]], *keys: str) -> float:
    """The mean over seeds of one figure."""

    def figure(result: Any) -> float:
        for key in keys:
            result = result[key]
        return float(result)

    return float(np.mean([figure(result) for result in results]))


def tables(results: list[dict[str, Any]]) -> None:
    """Those of docs/all_rewards.md."""
    for preset in sorted({r["preset"] for r in results}):
        mine = [r for r in results if r["preset"] == preset]
        mazes = [maze for maze in MAZES if any(r["maze"] == maze for r in mine)]
        print(f"\n`{preset}`: mean, 5th percentile, worst (means of {len(SEEDS)} seeds)\n")
        print("| rewards |", " | ".join(mazes), "|")
        print("| --- |", " | ".join("---" for _ in mazes), "|")
        for family in mine[0]["families"]:
            cells = []
            for maze in mazes:
                seeds = [r for r in mine if r["maze"] == maze]
                figures = [mean(seeds, "families", family, key) for key in ("mean", "p5", "worst")]
                cells.append(", ".join(f"{x:.2f}" for x in figures))
            print(f"| {family} |", " | ".join(cells), "|")
        rooms = [r for r in mine if "sources of error" in r]
        steps = list(rooms[0]["sources of error"]["single goal"]) if rooms else []
        print("\n| rewards |", " | ".join(steps), "|\n| --- |", " | ".join("---" for _ in steps), "|")
        for family in rooms[0]["sources of error"] if rooms else []:
            cells = [f"{mean(rooms, 'sources of error', family, step):.2f}" for step in steps]
            print(f"| {family} |", " | ".join(cells), "|")


def draw(results: list[dict[str, Any]]) -> None:
    """Mean and 5th percentile of every family, a panel a maze, all presets beside each other."""
    plt = pyplot()
    mazes = [maze for maze in MAZES if any(r["maze"] == maze for r in results)]
    size = (3.5 + 2.6 * len(mazes), 4.2)
    figure, axes = plt.subplots(
        1, len(mazes), figsize=size, layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    families = list(results[0]["families"])
    styles = {"fast": ("#0072b2", "o"), "paper": ("#d55e00", "s")}
    for axis, maze in zip(axes[0], mazes, strict=True):
        for shift, (preset, (colour, marker)) in enumerate(styles.items()):
            seeds = [r for r in results if r["preset"] == preset and r["maze"] == maze]
            if not seeds:
                continue
            y = np.arange(len(families))[::-1] + 0.15 - 0.3 * shift
            centre = [mean(seeds, "families", family, "mean") for family in families]
            low = [mean(seeds, "families", family, "p5") for family in families]
            axis.hlines(y, low, centre, color=colour, alpha=0.5)
            axis.plot(centre, y, marker, color=colour, label=f"preset {preset}")
            axis.plot(low, y, "|", color=colour)
        axis.set(title=maze, xlabel="0 = random, 1 = optimal", yticks=np.arange(len(families))[::-1])
        axis.set_yticklabels(families)
        axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(f"Any reward after {UPDATES:,} updates:\nmean (marker) and 5th percentile (tick)")
    figure.savefig(RESULTS / "families.png", dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--presets", nargs="+", default=["fast", "paper"])
    parser.add_argument("--mazes", nargs="+", default=list(MAZES))
    arguments = parser.parse_args()
    if not arguments.draw:
        jobs = [(preset, maze, seed) for preset in arguments.presets for maze in arguments.mazes for seed in SEEDS]
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            for done in pool.map(run, jobs):
                print(done, flush=True)
    found = [read_json(path) for path in sorted(RESULTS.glob("*.json"))]
    draw(found)
    tables(found)
