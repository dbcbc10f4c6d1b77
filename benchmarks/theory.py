"""The paper's theorems on learned agents: how tight the bounds are, what d buys, what a bias and t = 1 change.

python benchmarks/theory.py train    # 17 agents of the four rooms, in two processes of one thread: 40 minutes
python benchmarks/theory.py measure  # the tables and figures of docs/notebook/theory.md, from these agents: 3 minutes
python benchmarks/theory.py draw     # only prints and draws, from the committed results
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.exact import reward_table
from anyreward.experiments.all_rewards import suite
from anyreward.experiments.theory import KINDS as REWARDS
from anyreward.experiments.theory import tightness
from anyreward.figures.maze import MazePanel, draw_maze_panels
from anyreward.storage.files import read_json, write_json
from dimension import dimension_figures, draw_dimension, draw_singular_values, rank_kept

RESULTS = Path(__file__).parent / "results" / "theory"
DOCS = Path(__file__).parent.parent / "docs"
RUNS = Path("runs") / "theory"
DIMENSIONS = (5, 10, 25, 50, 75, 100)
UPDATES = 10_000
BLUR = (25, 75)
"""The paper's two dimensions."""


class Kind(NamedTuple):
    """An agent to train."""

    dim: int
    variant: str = "plain"
    seed: int = 0

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return RUNS / f"four-rooms-{self.variant}-d{self.dim}-seed{self.seed}"


VARIANTS: dict[str, dict[str, Any]] = {"plain": {"compile": True}, "bias": {"bias": True}, "t1": {"first_step": 1}}
SMALL, LARGE = 25, 100
KINDS = (
    *(Kind(d) for d in DIMENSIONS),
    *(Kind(SMALL, variant, seed) for seed in (0, 1, 2) for variant in VARIANTS if (variant, seed) != ("plain", 0)),
    *(Kind(LARGE, variant) for variant in ("bias", "t1")),
    Kind(10, "bias"),
)


def train(kind: Kind) -> str:
    """One agent, unless it is there."""
    torch.set_num_threads(1)
    if not (kind.folder / "agent.json").exists():
        changes = {
            "updates": UPDATES,
            "dim": kind.dim,
            "seed": kind.seed,
            "threads": 1,
            "landmarks": 0,
            **VARIANTS[kind.variant],
        }
        ar.train("four-rooms", progress=False, **changes).save(kind.folder)
    return str(kind.folder)


def measure() -> None:
    """All figures, from the agents."""
    agents = {kind: ar.load(kind.folder) for kind in KINDS}
    plain = [agents[Kind(d)] for d in DIMENSIONS]
    save("bounds", [row.summary() for row in tightness(agents[Kind(LARGE)], n=10)])
    save("dimension", [dimension_figures(agent, n=30) for agent in plain])
    save("singular values", {name: values.tolist() for name, values in rank_kept(plain[-1]).items()})
    save("variants", [variant(kind, agent) for kind, agent in agents.items() if kind.dim in (10, SMALL, LARGE)])
    goal = median_goal(agents[Kind(BLUR[0])])
    save("blur", [blur(agents[Kind(d)], goal) for d in BLUR])


def save(name: str, data: Any) -> None:
    """Write one result."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS / f"{name.replace(' ', '_')}.json", {name: data})
    print(f"measured: {name}", flush=True)


def result(name: str) -> Any:
    """Read one result."""
    return read_json(RESULTS / f"{name.replace(' ', '_')}.json")[name]


def variant(kind: Kind, agent: ar.Agent) -> dict[str, Any]:
    """The suite of all rewards, and the error of the model, for an agent."""
    families = {name: float(scores.scores.normalised.mean()) for name, scores in suite(agent, 100).items()}
    errors = dimension_figures(agent, n=10)
    return {"variant": kind.variant, "d": kind.dim, "seed": kind.seed, "families": families} | {
        "error": {name: errors[name]["error, policy of training"] for name in REWARDS}
    }


def median_goal(agent: ar.Agent) -> int:
    """The state that, as a goal, the agent does better for than for half of the others."""
    scores = agent.score().normalised
    return int(np.argsort(scores)[len(scores) // 2])


def blur(agent: ar.Agent, goal: int) -> dict[str, Any]:
    """max_a F(s, a, z) . z for one goal, as the paper draws it, and the policy's way there from the farthest state."""
    mdp = agent.exact_mdp()
    target = ar.goal(state=mdp.observations[goal])
    policy = agent.ask(target)
    value, actions = policy.value(mdp.observations), policy.act(mdp.observations)
    s, path = int(mdp.optimal_value(reward_table(target, agent.knowledge, mdp)).argmin()), []
    for _ in range(40):
        path.append(s)
        s = int(mdp.P[s, actions[s]].argmax())
    score = float(agent.score(target, mdp).normalised[0])
    found = {"d": agent.settings.dim, "goal": goal, "score": score, "path": path}
    return {**found, "value": value.tolist(), "actions": actions.tolist()}


def draw() -> None:
    """Figures into docs, and the tables."""
    world = ar.open_world("four-rooms")
    assert world.make is not None
    maze = world.make().unwrapped.maze  # type: ignore[attr-defined]  # ours
    how = f"four rooms, preset fast, {UPDATES:,} updates, seed 0"
    draw_dimension(result("dimension"), DOCS / "theory_dimension.png", f"What d buys: {how}")
    values = {name: np.array(sizes) for name, sizes in result("singular values").items()}
    draw_singular_values(
        values, DOCS / "theory_singular_values.png", "What rank d keeps of successor measures: four rooms"
    )
    panels = [
        MazePanel(
            f"d = {row['d']}: score {row['score']:.2f}",
            np.array(row["value"]),
            np.array(row["actions"]),
            maze.coordinates[maze.free[row["path"]]],
            goals=[tuple(maze.coordinates[maze.free[row["goal"]]].tolist())],
        )
        for row in result("blur")
    ]
    draw_maze_panels(maze, panels, DOCS / "theory_blur.png", f"max F . z for one goal: {how}")
    tables()


def tables() -> None:
    """The tables of docs/notebook/theory.md."""
    print("\n| statement | rewards | gap | bound | trivial bound | says more than that |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in result("bounds"):
        assert row["holds"], row
        sizes = " | ".join(number(row[key]) for key in ("gap", "bound", "trivial"))
        print(f"| {row['statement']} | {row['rewards']}, {row['n']} | {sizes} | {row['informative']:.0%} |")
    errors = "error, greedy policy | error, policy of training | least of rank d"
    print(f"\n| d | rewards | {errors} | score | exact F, best B |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for row in result("dimension"):
        for kind in REWARDS:
            keys = ("error", "error, policy of training", "least error of rank d, policy of training", "score")
            cells = [row[kind][key] for key in (*keys, "score with exact F, best B")]
            print(f"| {row['d']} | {kind} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    rows = result("variants")
    names = list(rows[0]["families"])
    print(f"\n| d | variant | seeds | {' | '.join(names)} | error |\n| --- | --- | --- |{' --- |' * (len(names) + 1)}")
    for d in (10, SMALL, LARGE):
        for kind in VARIANTS:
            some = [row for row in rows if (row["d"], row["variant"]) == (d, kind)]
            if some:
                means = [np.mean([row["families"][name] for row in some]) for name in names]
                means.append(np.mean([list(row["error"].values()) for row in some]))
                print(f"| {d} | {kind} | {len(some)} | {' | '.join(f'{mean:.2f}' for mean in means)} |")


def number(x: float) -> str:
    """Three figures; what is only rounding is zero."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}" if x > 1e-6 else "0"


def main() -> None:
    """Run a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["train", "measure", "draw"])
    part = parser.parse_args().part
    if part == "train":
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            for done in pool.map(train, KINDS):
                print(done, flush=True)
    elif part == "measure":
        measure()
        draw()
    else:
        draw()


if __name__ == "__main__":
    main()
