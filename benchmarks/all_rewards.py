"""All rewards: the suite on four mazes, against d and against updates, and which source of error costs how much.

python benchmarks/all_rewards.py mazes                        # 2 presets x 4 mazes x 3 seeds, two processes: an hour
python benchmarks/all_rewards.py mazes --mazes four-rooms     # 15 minutes
python benchmarks/all_rewards.py dims                         # four rooms, d = 25 to 200: 30 minutes
python benchmarks/all_rewards.py updates                      # four rooms, 2,500 to 50,000 updates: 30 minutes
python benchmarks/all_rewards.py actions                      # four rooms, B sees actions too: 20 minutes
python benchmarks/all_rewards.py draw                         # only draws and prints, from the committed results
"""

from __future__ import annotations

import argparse
import itertools
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.experiments.all_rewards import suite
from anyreward.figures.maze import pyplot
from anyreward.storage.files import read_json, write_json
from error_sources import error_sources

RESULTS = Path(__file__).parent / "results" / "all_rewards"
MAZES = ("four-rooms", "labyrinth", "pillars", "random-maze")
UPDATES, SEEDS = 20_000, (0, 1, 2)
DIMS, LENGTHS = (25, 50, 68, 100, 200), (2_500, 5_000, 10_000, 20_000, 50_000)
STYLES = {"fast": ("#0072b2", "o"), "paper": ("#d55e00", "s")}


def run(job: dict[str, Any]) -> str:
    """Train a preset on a maze with a seed and some settings changed, score it, write its result."""
    torch.set_num_threads(1)
    changes = {"updates": UPDATES, "dim": 100, "landmarks": 0} | job["changes"]
    agent = ar.train(job["maze"], preset=job["preset"], seed=job["seed"], compile=True, progress=False, **changes)
    families = {name: scores.summary() for name, scores in suite(agent).items()}
    result: dict[str, Any] = {**{k: job[k] for k in ("preset", "maze", "seed")}, **changes, "families": families}
    if job["maze"] == "four-rooms" and not job["changes"]:
        mdp = agent.exact_mdp()
        result["sources of error"] = {name: error_sources(agent, mdp, name, 60) for name in families}
    name = "-".join([job["preset"], job["maze"], f"seed{job['seed']}", *(f"{k}{v}" for k, v in job["changes"].items())])
    write_json(RESULTS / f"{name}.json", result)
    return name


def jobs(what: str, presets: list[str], mazes: list[str], seeds: list[int]) -> list[dict[str, Any]]:
    """What is trained: seed by seed, so that a run that is stopped leaves whole tables of fewer seeds."""
    changes: list[dict[str, Any]] = [{}]
    if what == "dims":
        changes, mazes = [{"dim": dim} for dim in DIMS if dim != 100], ["four-rooms"]
    if what == "updates":
        changes, mazes = [{"updates": n} for n in LENGTHS if n != UPDATES], ["four-rooms"]
    if what == "actions":
        changes, mazes = [{"features_include_action": True}], ["four-rooms"]
    order = itertools.product(seeds, presets, mazes, changes)
    return [{"seed": s, "preset": p, "maze": m, "changes": c} for s, p, m, c in order]


def mean(results: list[dict[str, Any]], *keys: str) -> float:
    """The mean over seeds of one figure."""

    def figure(result: Any) -> float:
        for key in keys:
            result = result[key]
        return float(result)

    return float(np.mean([figure(result) for result in results]))


def tables(results: list[dict[str, Any]]) -> None:
    """Those of docs/notebook/network_rewards.md."""
    for preset in sorted({r["preset"] for r in results}):
        mine = [r for r in results if r["preset"] == preset]
        mazes = [maze for maze in MAZES if any(r["maze"] == maze for r in mine)]
        print(f"\n`{preset}`: mean, 5th percentile, worst (means over seeds)\n")
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
        if not rooms:
            continue
        steps = list(rooms[0]["sources of error"]["single goal"])
        print("\n| rewards |", " | ".join(steps), "|\n| --- |", " | ".join("---" for _ in steps), "|")
        for family in rooms[0]["sources of error"]:
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
    for axis, maze in zip(axes[0], mazes, strict=True):
        for shift, (preset, (colour, marker)) in enumerate(STYLES.items()):
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


def draw_curves(results: list[dict[str, Any]], key: str, label: str) -> None:
    """Mean and 5th percentile of every family against d or updates, both presets: a panel a family."""
    plt = pyplot()
    families = list(results[0]["families"])
    figure, axes = plt.subplots(
        2, (len(families) + 1) // 2, figsize=(12, 5.5), layout="constrained", sharex=True, sharey=True
    )
    for axis, family in zip(axes.flat, families, strict=False):
        for preset, (colour, marker) in STYLES.items():
            mine = [r for r in results if r["preset"] == preset]
            xs = sorted({r[key] for r in mine})
            for figure_of, style in (("mean", "-"), ("p5", ":")):
                ys = [mean([r for r in mine if r[key] == x], "families", family, figure_of) for x in xs]
                name = f"{preset}, {'mean' if figure_of == 'mean' else '5th percentile'}"
                axis.plot(xs, ys, style, color=colour, marker=marker, markersize=4, label=name)
        axis.set(title=family, xlabel=label, xscale="log", ylim=(-0.1, 1.05))
        axis.set_xticks(xs, [f"{x:,}" for x in xs], rotation=45)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("0 = random, 1 = optimal")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(RESULTS / f"{key}.png", dpi=120)


def print_curve(results: list[dict[str, Any]], key: str) -> None:
    """Mean (5th percentile) of preset `fast` against d or updates."""
    mine = [r for r in results if r["preset"] == "fast"]
    xs = sorted({r[key] for r in mine})
    print(f"\n| {key} |", " | ".join(f"{x:,}" for x in xs), "|\n| --- |", " | ".join("---" for _ in xs), "|")
    for family in mine[0]["families"]:
        seeds = [[r for r in mine if r[key] == x] for x in xs]
        cells = [f"{mean(s, 'families', family, 'mean'):.2f} ({mean(s, 'families', family, 'p5'):.2f})" for s in seeds]
        print(f"| {family} |", " | ".join(cells), "|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["mazes", "dims", "updates", "actions", "draw"])
    parser.add_argument("--presets", nargs="+", default=["fast", "paper"])
    parser.add_argument("--mazes", nargs="+", default=list(MAZES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments = parser.parse_args()
    if arguments.what != "draw":
        todo = jobs(arguments.what, arguments.presets, arguments.mazes, arguments.seeds)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            for done in pool.map(run, todo):
                print(done, flush=True)
    every = [read_json(path) for path in sorted(RESULTS.glob("*.json"))]
    found = [r for r in every if not r.get("features_include_action")]
    plain = [r for r in found if r["updates"] == UPDATES and r["dim"] == 100]
    rooms = [r for r in found if r["maze"] == "four-rooms"]
    draw(plain)
    tables(plain)
    if len(found) < len(every):
        print("\nB sees actions too:")
        tables([r for r in every if r.get("features_include_action")])
    for key, label, still, value in (("dim", "d", "updates", UPDATES), ("updates", "updates", "dim", 100)):
        curve = [r for r in rooms if r[still] == value]
        if len({r[key] for r in curve}) > 1:
            draw_curves(curve, key, label)
            print_curve(curve, key)
