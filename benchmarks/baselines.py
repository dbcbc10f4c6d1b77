"""FB beside what a user would pick instead: the same worlds, as many steps and updates, three seeds each.

python benchmarks/baselines.py train    # in two processes of one thread; goes on where it stopped
python benchmarks/baselines.py measure  # the tables and figures of docs/baselines.md, from these agents
python benchmarks/baselines.py draw     # only prints and draws, from the committed results
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.exact import score_policies
from anyreward.acting.policy import action_probabilities
from anyreward.experiments.compare import KINDS as REWARD_KINDS
from anyreward.experiments.compare import NOT_POSSIBLE, compare
from anyreward.figures.curves import METRICS, draw_curves
from anyreward.storage.files import read_json, write_json
from anyreward.storage.metrics import read_metrics

RESULTS = Path(__file__).parent / "results" / "baselines"
DOCS = Path(__file__).parent.parent / "docs"
RUNS = Path("runs") / "baselines"
SEEDS = (0, 1, 2)
UPDATES = 20_000
ALIKE: dict[str, Any] = {"landmarks": 0, "updates": UPDATES, "warmup_steps": 10_000, "dim": 100, "threads": 1}
"""What all methods have in common, beside the preset: `fast` unless it says otherwise."""
KINDS: dict[str, dict[str, Any]] = {
    "FB": {"compile": True},
    "goal-DQN": {"method": "goal-dqn"},
    "goal-DQN, hindsight": {"method": "goal-dqn-her"},
    "successor features, Laplacian": {"method": "successor-features"},
    "successor features, RBF": {"method": "successor-features", "basis": "rbf"},
    "goal-DQN, as in the paper": {"method": "goal-dqn", "preset": "paper"},
}
WORLDS = ("four-rooms", "continuous-maze")
GOALS = 1_000
"""Goals played for in the continuous maze."""
REWARDS = {"four-rooms": 100, "continuous-maze": 50}
"""Of each kind."""


def folder(world: str, kind: str, seed: int) -> Path:
    """Where an agent is kept."""
    return RUNS / world / f"{kind.replace(', ', '-').replace(' ', '-')}-seed{seed}"


def train(world: str, job: tuple[int, str]) -> str:
    """One agent, unless it is there."""
    seed, kind = job
    torch.set_num_threads(1)
    out = folder(world, kind, seed)
    if not (out / "agent.json").exists():
        ar.train(world, out=out, seed=seed, progress=False, **{**ALIKE, **KINDS[kind]})
    elif ar.load(out).updates < UPDATES:
        ar.resume(out, progress=False)
    return str(out)


def measure(worlds: list[str], kinds: list[str], seeds: list[int]) -> None:
    """All figures, from the agents that are there."""
    for world in worlds:
        found = {kind: [s for s in seeds if (folder(world, kind, s) / "agent.json").exists()] for kind in kinds}
        groups = {kind: [ar.load(folder(world, kind, s)) for s in some] for kind, some in found.items() if some}
        rows = [row.summary() for row in compare(groups, REWARDS[world], GOALS)]
        curves = {
            kind: [
                [{key: line[key] for key in ("updates", "transitions", *METRICS) if key in line} for line in run]
                for run in (read_metrics(folder(world, kind, s)) for s in found[kind])
            ]
            for kind in groups
        }
        RESULTS.mkdir(parents=True, exist_ok=True)
        settings = {kind: {**ALIKE, **KINDS[kind]} for kind in groups}
        write_json(RESULTS / f"{world}.json", {"settings": settings, "rows": rows, "curves": curves})
        print(f"measured: {world}", flush=True)


def draw() -> None:
    """Figures into docs, and the tables."""
    print(f"Boltzmann quality of the exact optimum, four rooms: {boltzmann_quality_of_the_optimum():.3f}")
    for world in WORLDS:
        path = RESULTS / f"{world}.json"
        if not path.exists():
            continue
        data = read_json(path)
        heading = f"{world}: {UPDATES:,} updates, mean and 95% interval over seeds"
        draw_curves(data["curves"], DOCS / f"baselines_{world.replace('-', '_')}.png", heading)
        names = [name for name in ("goals reached", *REWARD_KINDS) if name in data["rows"][0]]
        print(f"\n{world}\n\n| method | seeds | {' | '.join(names)} |\n| --- | --- |{' --- |' * len(names)}")
        for row in data["rows"]:
            print(f"| {row['label']} | {len(row['seeds']) or ''} | {' | '.join(cell(row.get(n)) for n in names)} |")
        print({kind: runs[0][-1]["transitions"] for kind, runs in data["curves"].items()}, "transitions each")


def boltzmann_quality_of_the_optimum() -> float:
    """The paper's policy quality, at temperature 1, of the exact Q* for reward one at a goal: mean over all goals."""
    world = ar.open_world("four-rooms")
    assert world.make is not None
    rooms = ar.finite_mdp(world.make(), 0.99)
    assert rooms is not None
    r = rooms.on_states(np.eye(rooms.states))
    Q = torch.from_numpy(rooms.q_value(rooms.optimal_value(r), r))
    return float(score_policies(rooms, action_probabilities(Q, temperature=1.0).numpy(), r).ratio.mean())


def cell(value: Any) -> str:
    """One figure of a table."""
    if value is None or value == NOT_POSSIBLE:
        return value or ""
    return f"{value['mean']:.2f} ({value['p5']:.2f})" if "p5" in value else f"{value['mean']:.3f}"


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["train", "measure", "draw"])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    given = parser.parse_args()
    if given.part == "train":
        for world in given.worlds:
            jobs = [(seed, kind) for seed in given.seeds for kind in given.kinds]
            with ProcessPoolExecutor(2, get_context("spawn")) as pool:
                for done in pool.map(partial(train, world), jobs):
                    print(done, flush=True)
        return
    if given.part == "measure":
        measure(given.worlds, given.kinds, given.seeds)
    draw()


if __name__ == "__main__":
    main()
