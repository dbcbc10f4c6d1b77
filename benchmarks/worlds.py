"""The paper's worlds that are played: training curves, success over many goals, pictures.

python benchmarks/worlds.py continuous-maze     # d = 100, 60,000 updates
python benchmarks/worlds.py fetch-reach         # d = 50, 60,000 updates
python benchmarks/worlds.py ms-pacman           # d = 100, what fits in 90 minutes; goes on where it stopped
python benchmarks/worlds.py draw                # only draws and prints, from the committed results

Runs are kept in runs/worlds, results in benchmarks/results/worlds.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import anyreward as ar
from anyreward.figures.maze import pyplot
from anyreward.storage.files import read_json, write_json

RESULTS = Path(__file__).parent / "results" / "worlds"
RUNS = Path("runs") / "worlds"
WORLDS: dict[str, dict[str, Any]] = {
    "continuous-maze": {"landmarks": 0, "dim": 100, "updates": 60_000},
    "fetch-reach": {"dim": 50, "updates": 60_000},
    "ms-pacman": {"dim": 100, "updates": 200_000, "learning_rate": 0.0003},
}
COLOURS = {"fast": "#0072b2", "paper": "#d55e00"}


def run(world: str, preset: str, seed: int, minutes: float, changes: dict[str, Any]) -> None:
    """Train, or go on, for so many minutes at most; then play for many goals and write what came of it."""
    name = f"{world}-{preset}-seed{seed}"
    folder, chosen = RUNS / name, WORLDS[world] | changes
    if (folder / "agent.json").exists():
        agent = ar.load(folder)
        if agent.updates < chosen["updates"]:
            agent = ar.resume(folder, updates=chosen["updates"], minutes=minutes)
    else:
        compiled = world != "ms-pacman"
        agent = ar.train(world, preset=preset, seed=seed, out=folder, compile=compiled, minutes=minutes, **chosen)
    figures = {"agent": agent.reach_goals(seed=1).summary(), "random": agent.reach_goals(seed=1, epsilon=1.0).summary()}
    result = {"world": world, "preset": preset, "seed": seed, **chosen, "updates": agent.updates, "played": figures}
    RESULTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "metrics.jsonl", RESULTS / f"{name}.jsonl")
    write_json(RESULTS / f"{name}.json", result)


def draw() -> None:
    """Success and distance against updates, a panel a world, both presets where both were trained."""
    plt = pyplot()
    if not list(RESULTS.glob("*.jsonl")):
        raise SystemExit(f"There are no results in {RESULTS} yet.")
    names = [world for world in WORLDS if list(RESULTS.glob(f"{world}-*.jsonl"))]
    figure, axes = plt.subplots(
        2, len(names), figsize=(4.2 * len(names), 6), layout="constrained", squeeze=False, sharex="col"
    )
    for column, world in zip(axes.T, names, strict=True):
        for path in sorted(RESULTS.glob(f"{world}-*.jsonl")):
            about = read_json(path.with_suffix(".json"))
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for axis, key in zip(column, ("success", "distance"), strict=True):
                label = f"{about['preset']}, seed {about['seed']}"
                xs = [line["updates"] / 1_000 for line in lines]
                axis.plot(xs, [line[key] for line in lines], color=COLOURS[about["preset"]], alpha=0.8, label=label)
            for who, played in about["played"].items():
                low, high = played["success_interval"]
                print(f"{path.stem}, {about['updates']:,} updates, {who}:", end=" ")
                print(f"{played['success']:.3f} ({low:.3f} to {high:.3f})")
            low, high = about["played"]["agent"]["success_interval"]
            end = about["updates"] / 1_000
            column[0].errorbar(
                [end],
                [about["played"]["agent"]["success"]],
                [[about["played"]["agent"]["success"] - low], [high - about["played"]["agent"]["success"]]],
                fmt="o",
                color=COLOURS[about["preset"]],
                capsize=4,
            )
            column[0].axhline(about["played"]["random"]["success"], color="grey", linestyle=":", label="random policy")
        column[0].set(title=world, ylim=(-0.02, 1.02), ylabel="goals reached, of 50")
        column[1].set(xlabel="thousand updates", ylabel="distance to the goal at the end")
        column[1].set_ylim(bottom=0)
        for axis in column:
            axis.grid(alpha=0.3)
        entries = dict(zip(*reversed(column[0].get_legend_handles_labels()), strict=True))
        column[0].legend(entries.values(), entries.keys(), fontsize=8)
    figure.suptitle("Playing for goals: success during training, and over many goals at the end (dot, 95% interval)")
    figure.savefig(RESULTS / "curves.png", dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*WORLDS, "draw"])
    parser.add_argument("--preset", default="fast", choices=["fast", "paper"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--updates", type=int)
    given = parser.parse_args()
    if given.what != "draw":
        changes = {} if given.updates is None else {"updates": given.updates}
        run(given.what, given.preset, given.seed, given.minutes, changes)
    draw()
