"""Every reward: landmarks with default settings, in mazes of many shapes and sizes and in the continuous maze.

python benchmarks/landmarks.py mazes        # 8 mazes x 3 seeds, the suite all-rewards: 3 minutes
python benchmarks/landmarks.py sizes        # quality, time and memory against the number of cells: 6 minutes
python benchmarks/landmarks.py few          # nine rooms with 8 to 453 landmarks, put together and alone: 2 minutes
python benchmarks/landmarks.py continuous   # the continuous maze, 3 seeds, played: 5 minutes
python benchmarks/landmarks.py constants    # goal + c in three mazes: a minute
python benchmarks/landmarks.py trust        # predicted against true scores of short and whole runs: 6 minutes
python benchmarks/landmarks.py speed        # time to quality, and how long an answer takes: 3 minutes
python benchmarks/landmarks.py draw         # only prints and draws, from the committed results
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch
from scipy.stats import spearmanr

import anyreward as ar
from anyreward.acting.exact import packed_states, policy_tables, score_policies
from anyreward.experiments.all_rewards import FAMILIES, family_rewards, score_family, suite, tables_to_z
from anyreward.experiments.compare import questions
from anyreward.figures.maze import pyplot
from anyreward.model import landmarks
from anyreward.rewards.expression import parse
from anyreward.storage.files import read_json, write_json
from anyreward.theory.grid import grid_actions, grid_mdp, played_value
from anyreward.worlds.continuous_maze import plane
from trust import on_cells, square_rewards

RESULTS = Path(__file__).parent / "results" / "landmarks"
SEEDS = (0, 1, 2)
Array = np.ndarray[Any, Any]


def drawn(free: Array) -> str:
    """The drawing of a maze from its free cells (height, width)."""
    return "\n".join("".join(" " if cell else "#" for cell in row) for row in free)


def rooms(n: int, size: int) -> str:
    """A square of n x n rooms with doors in the middle of their walls."""
    side = n * (size + 1) + 1
    free = np.zeros((side, side), dtype=bool)
    for i in range(n):
        for j in range(n):
            y, x = i * (size + 1) + 1, j * (size + 1) + 1
            free[y : y + size, x : x + size] = True
            free[y + size // 2, x + size] = j + 1 < n
            free[y + size, x + size // 2] = i + 1 < n
    return drawn(free)


def halls() -> str:
    """Two halls and a long corridor between them."""
    free = np.zeros((10, 34), dtype=bool)
    free[1:9, 1:9] = free[1:9, 25:33] = free[4, 9:25] = True
    return drawn(free)


def spiral(side: int) -> str:
    """One corridor, wound up."""
    free = np.zeros((side, side), dtype=bool)
    y, x, dy, dx, moved = 1, 1, 0, 1, True
    free[y, x] = True
    while moved:
        moved = False
        for _ in range(2):
            while (
                0 < y + dy < side - 1
                and 0 < x + dx < side - 1
                and not free[y + dy, x + dx]
                and not (0 <= y + 2 * dy < side and 0 <= x + 2 * dx < side and free[y + 2 * dy, x + 2 * dx])
            ):
                y, x, moved = y + dy, x + dx, True
                free[y, x] = True
            dy, dx = dx, -dy
    return drawn(free)


def winding(cells: int, seed: int, holes: float = 0.08) -> str:
    """A random maze of cells x cells junctions, with some of its walls taken out."""
    rng, side = np.random.default_rng(seed), 2 * cells + 1
    free, stack = np.zeros((side, side), dtype=bool), [(1, 1)]
    free[1, 1] = True
    while stack:
        y, x = stack[-1]
        steps = [(0, 2), (2, 0), (0, -2), (-2, 0)]
        ways = [s for s in steps if 0 < y + s[0] < side and 0 < x + s[1] < side and not free[y + s[0], x + s[1]]]
        if not ways:
            stack.pop()
            continue
        dy, dx = ways[rng.integers(len(ways))]
        free[y + dy // 2, x + dx // 2] = free[y + dy, x + dx] = True
        stack.append((y + dy, x + dx))
    for y in range(1, side - 1):
        for x in range(1, side - 1):
            free[y, x] |= y % 2 != x % 2 and rng.random() < holes
    return drawn(free)


MAZES = {
    "four-rooms": "four-rooms",
    "labyrinth": "labyrinth",
    "pillars": "pillars",
    "random-maze": "random-maze",
    "two halls, a corridor": halls(),
    "spiral": spiral(17),
    "winding": winding(8, 0),
    "nine rooms": rooms(3, 7),
}
SIZES = {
    "four rooms of 5 x 5": rooms(2, 5),
    "nine rooms of 7 x 7": rooms(3, 7),
    "16 rooms of 7 x 7": rooms(4, 7),
    "winding, 20 x 20": winding(20, 1),
    "36 rooms of 7 x 7": rooms(6, 7),
    "winding, 40 x 40": winding(40, 1),
    "winding, 70 x 70": winding(70, 1),
}


def trained(source: str, seed: int, **changes: Any) -> tuple[ar.Agent, float]:
    """An agent with default settings, and the seconds it took; nothing is measured while it learns."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = ar.train(source, seed=seed, progress=False, evaluate_every=10**9, **changes)
    return agent, time.perf_counter() - started


def numbers(agent: ar.Agent) -> dict[str, Any]:
    """The sizes of an agent's tables."""
    F = agent.model.landmarks
    assert F is not None
    size = sum(table.numel() * table.element_size() for table in F.state_dict().values())
    return {"states": len(F.P.states), "landmarks": len(F.landmarks), "dim": F.B.shape[2], "megabytes": size / 1e6}


def mazes() -> None:
    """The suite in every maze with every seed."""
    for name, source in MAZES.items():
        runs = []
        for seed in SEEDS:
            agent, seconds = trained(source, seed)
            families = {family: scores.summary() for family, scores in suite(agent).items()}
            runs.append({"seed": seed, "seconds": seconds, **numbers(agent), "families": families})
        write_json(RESULTS / f"maze {name}.json", {"maze": name, "runs": runs})
        print(name, {k: round(min(r["families"][k]["mean"] for r in runs), 3) for k in families}, flush=True)


def sizes() -> None:
    """The suite against the number of cells: one seed, fewer rewards of each family in larger mazes."""
    for name, source in SIZES.items():
        agent, seconds = trained(source, 0)
        cells = source.count(" ")
        families = {k: v.summary() for k, v in suite(agent, n=100).items()} if cells < 500 else some_families(agent)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        result = {"maze": name, "cells": cells, "seconds": seconds, **numbers(agent), "peak megabytes so far": peak}
        write_json(RESULTS / f"size {cells}.json", {**result, "families": families})
        print(name, cells, round(seconds), {k: round(v["mean"], 3) for k, v in families.items()}, flush=True)


def some_families(agent: ar.Agent) -> dict[str, dict[str, float]]:
    """20 rewards of each family: in thousands of cells every optimum takes a while."""
    mdp, found = agent.exact_mdp(), {}
    for name in FAMILIES:
        if name == "states and actions":
            continue
        r = family_rewards(agent, mdp, name, 20, 0)
        r = r[np.random.default_rng(0).permutation(len(r))[:20]]
        z, _ = tables_to_z(agent, mdp, r)
        pi = policy_tables(agent.model, packed_states(mdp, agent.model.phi), z)
        x = score_policies(mdp, pi, r).normalised
        found[name] = {"mean": float(x.mean()), "p5": float(np.percentile(x, 5)), "worst": float(x.min())}
    return found


def few() -> None:
    """Nine rooms with fewer and fewer landmarks; beside it the maximum over them alone, as published."""
    rows = []
    for most in (8, 16, 32, 64, 128, 453):
        agent, seconds = trained(MAZES["nine rooms"], 0, landmarks=most)
        F = agent.model.landmarks
        assert F is not None
        row = {"landmarks": len(F.landmarks), "seconds": seconds, **numbers(agent)}
        row["families"] = {k: v.summary()["mean"] for k, v in suite(agent, n=100).items()}
        with patch.object(landmarks, "MOST_SWEEPS", 0):
            row["alone"] = {k: v.summary()["mean"] for k, v in suite(agent, n=100).items()}
        rows.append(row)
        print(row, flush=True)
    write_json(RESULTS / "few.json", {"maze": "nine rooms", "rows": rows})


def continuous() -> None:
    """Goals, sums, forbidden places and dense rewards, played in the maze, and 1,000 goals to reach."""
    asked: Any = None
    for seed in SEEDS:
        agent, seconds = trained("continuous-maze", seed)
        asked = asked or questions(agent, 50)
        kinds = {}
        for name, some in asked.items():
            x = some.score(agent)
            assert x is not None
            kinds[name] = {"mean": float(x.mean()), "p5": float(np.percentile(x, 5))}
        reached = agent.reach_goals(1_000).success
        result = {"seed": seed, "seconds": seconds, **numbers(agent), "kinds": kinds, "goals reached": reached}
        write_json(RESULTS / f"continuous {seed}.json", result)
        print(seed, round(seconds), reached, {k: round(v["mean"], 3) for k, v in kinds.items()}, flush=True)


def speed() -> None:
    """Seconds until goals have 0.9 and dense rewards 0.95 in the four rooms; milliseconds an answer takes."""
    learned = []
    for updates in (40, 80, 160, 320, 640, 1_280, 20_000):
        agent, seconds = trained("four-rooms", 0, updates=updates)
        mdp = agent.exact_mdp()
        score = {k: float(score_family(agent, mdp, k, 100).summary()["mean"]) for k in ("single goal", "dense normal")}
        learned.append({"updates": updates, "seconds": seconds, **score})
        print(learned[-1], flush=True)
    answers = []
    worlds = {"four-rooms": {}, "nine rooms": {}, "continuous-maze": {}, "four-rooms, a network": {"landmarks": 0}}
    for name, changes in worlds.items():
        source = MAZES.get(name.split(",")[0], name)
        agent, _ = trained(source, 0, updates=20_000 if not changes else 400, **changes)
        space, rng = agent.model.phi.observation_space, np.random.default_rng(0)
        states = agent.sample.rows[torch.from_numpy(rng.integers(len(agent.sample.rows), size=10_000))].numpy()
        states = states[:, 0].astype(int) if isinstance(space, gym.spaces.Discrete) else states
        asking, acting = [], []
        for i in range(12):
            target = ar.reward(f"-abs(x - {0.05 * i}) - abs(y - 0.3)")
            started = time.perf_counter()
            policy = agent.ask(target)
            policy.act(states[:1])
            asking.append(time.perf_counter() - started)
            started = time.perf_counter()
            policy.act(states)
            acting.append(time.perf_counter() - started)
        row = {"world": name, "ask and first action, ms": 1e3 * float(np.median(asking[1:]))}
        answers.append(row | {"10,000 states, ms": 1e3 * float(np.median(acting[1:]))})
        print(answers[-1], flush=True)
    write_json(RESULTS / "speed.json", {"time to quality": learned, "answers": answers})


def constants() -> None:
    """Scores of goal + c against those of goal."""
    everywhere, found = ar.reward(lambda g: np.ones(len(g)), "1"), {}
    for name in ("four-rooms", "spiral", "two halls, a corridor"):
        agent, _ = trained(MAZES[name], 0)
        table = agent.model.phi.table
        assert table is not None
        mdp = agent.exact_mdp()
        goals = [ar.goal(*table[mdp.observations[i]].tolist()) for i in range(0, mdp.states, 7)]
        for c in (-10, -1, -0.1, 0, 0.1, 1, 10):
            scores = agent.score([goal + c * everywhere for goal in goals], mdp).normalised
            found[f"{name}, c = {c}"] = {"mean": float(scores.mean()), "worst": float(scores.min())}
            print(name, c, scores.mean(), scores.min(), flush=True)
    write_json(RESULTS / "constants.json", found)


def places_pay(text: str) -> Callable[[Array], Array]:
    """What an expression pays at places (n, 2)."""
    expression = parse(text)
    return lambda g: np.broadcast_to(expression({"x": g[:, 0], "y": g[:, 1]}), len(g)).astype(np.float64)


def continuous_trust() -> list[dict[str, Any]]:
    """Predicted and played scores in the continuous maze, of short runs and a whole one."""
    found: list[dict[str, Any]] = []
    square, gamma, step = plane(), 0.99, 1 / 60
    mdp = grid_mdp(square, gamma, step)
    x, y = np.asarray(mdp.observations, dtype=np.float64).T
    asked = [(kind, text) for kind, texts in square_rewards(np.random.default_rng(0), 8).items() for text in texts]
    paid = [places_pay(text) for _, text in asked]
    best = mdp.optimal_policy(mdp.on_states(np.stack([r(np.stack([x, y], 1)) for r in paid]))).argmax(-1)
    rng = np.random.default_rng(0)
    optimal = played_value(square, lambda g, which: grid_actions(best, step, g, which), paid, gamma)
    random = played_value(square, lambda g, which: rng.integers(5, size=len(g)), paid, gamma)
    for updates in (40, 200, 1_000, 20_000):
        agent, _ = trained("continuous-maze", 0, updates=updates)
        policies = [agent.ask(ar.reward(text)) for _, text in asked]
        prefer = agent.model.q_for(torch.stack([policy.z for policy in policies]))

        def act(g: Array, which: Array, prefer: Any = prefer) -> Array:
            return np.asarray(prefer(torch.from_numpy(g.astype(np.float32)), which).argmax(1))

        true = (played_value(square, act, paid, gamma) - random) / (optimal - random)
        for (kind, _), policy, score in zip(asked, policies, true.tolist(), strict=True):
            found.append({"maze": "continuous-maze", "updates": updates, "family": kind, "true": score})
            found[-1] |= {"predicted": policy.trust.predicted, "verdict": policy.trust.verdict}
        print(updates, float(true.mean()), flush=True)
    return found


def trust() -> None:
    """Predicted and true scores, in four mazes: runs of little data, with few dimensions, and whole ones."""
    found: list[dict[str, Any]] = []
    for maze in ("four-rooms", "labyrinth", "pillars", "random-maze"):
        for updates, dim in ((40, 0), (120, 0), (4_000, 10), (4_000, 25), (20_000, 0)):
            agent, _ = trained(maze, 0, updates=updates, dim=dim)
            mdp = agent.exact_mdp()
            pays, visited = on_cells(agent, mdp), np.isin(mdp.observations, agent.sample.rows[:, 0].numpy())
            for family in FAMILIES:
                if family == "states and actions":
                    continue
                for r in family_rewards(agent, mdp, family, 10, 1)[:10, :, 0]:
                    if (r[~visited] > 0).any() and family == "single goal":
                        continue  # it cannot be asked for
                    target = ar.reward(partial(pays, r), family)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        policy = agent.ask(target)
                        report = policy.trust
                    true = float(agent.score(policy, mdp).normalised[0])
                    found.append({"maze": maze, "updates": updates, "dim": dim, "family": family, "true": true})
                    found[-1] |= {"predicted": report.predicted, "verdict": report.verdict}
    print_trust(found)
    write_json(RESULTS / "trust.json", {"answers": found})
    found = continuous_trust()
    print_trust(found)
    write_json(RESULTS / "trust continuous.json", {"answers": found})


def print_trust(found: list[dict[str, Any]]) -> None:
    """Rank correlation and error of what is predicted, and what verdicts are worth."""
    known = [x for x in found if x["predicted"] is not None]
    true, predicted = (np.array([x[key] for x in known]) for key in ("true", "predicted"))
    print(f"{len(known)} of {len(found)} answers have a prediction")
    correlation, error = spearmanr(true, predicted).statistic, np.abs(true - predicted).mean()
    print(f"rank correlation {correlation:.3f}, mean error {error:.3f}")
    for verdict in sorted({x["verdict"] for x in found}):
        scores = np.array([x["true"] for x in found if x["verdict"] == verdict])
        print(f"{verdict}: {len(scores)} answers, mean {scores.mean():.2f}, worst {scores.min():.2f}")


def draw() -> None:
    """The tables of docs/landmarks.md and docs/notebook/landmarks.md, and quality, time and memory against size."""
    found = [read_json(path) for path in sorted(RESULTS.glob("maze *.json"))]
    families = list(found[0]["runs"][0]["families"])
    print("\n| maze | cells | s | MB |", " | ".join(families), "|")
    for result in found:
        runs = result["runs"]
        cells = []
        for family in families:
            figures = [np.mean([run["families"][family][key] for run in runs]) for key in ("mean", "p5", "worst")]
            cells.append("{:.3f} ({:.2f}, {:.2f})".format(*figures))
        seconds, size = (np.mean([run[key] for run in runs]) for key in ("seconds", "megabytes"))
        print(f"| {result['maze']} | {runs[0]['states']} | {seconds:.0f} | {size:.1f} |", " | ".join(cells), "|")
    for path in sorted(RESULTS.glob("trust*.json")):
        print(path.stem)
        print_trust(read_json(path)["answers"])
    runs = sorted((read_json(path) for path in RESULTS.glob("size *.json")), key=lambda run: run["cells"])
    if not runs:
        return
    for run in runs:
        means = ", ".join(f"{name} {x['mean']:.2f}" for name, x in run["families"].items())
        sizes = f"{run['landmarks']} landmarks {run['seconds']:.0f} s {run['megabytes']:.0f} MB"
        print(f"{run['cells']:6d} cells {sizes}: {means}")
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    counts: list[int] = [run["cells"] for run in runs]
    styles = ["o-", "s-", "^-", "v-", "D-", "P-", "X-", "*-"]
    colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"]
    for family, style, colour in zip(families, styles, colours, strict=True):
        axes[0].plot(counts, [run["families"][family]["mean"] for run in runs], style, color=colour, label=family)
    axes[1].plot(counts, [run["seconds"] for run in runs], "o-", color="#0072b2")
    axes[2].plot(counts, [run["megabytes"] for run in runs], "o-", color="#0072b2")
    labels = ("mean score, 0 = random, 1 = optimal", "seconds of training, 2 cores", "megabytes of the tables")
    for axis, label in zip(axes, labels, strict=True):
        axis.set(xscale="log", xlabel="cells", ylabel=label)
        shown = [n for i, n in enumerate(counts) if i == 0 or n > 1.2 * counts[i - 1]]  # labels must not overlap
        axis.set_xticks(shown, [f"{n:,}" for n in shown], rotation=45)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(-0.05, 1.05)
    for axis, ticks in ((axes[1], (1, 3, 10, 30, 100)), (axes[2], (3, 10, 30, 100, 300, 1_000))):
        axis.set_yscale("log")
        axis.set_yticks(ticks, [f"{n:,}" for n in ticks])
    for axis in axes:
        axis.minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(RESULTS / "sizes.png", dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = (mazes, sizes, few, continuous, constants, trust, speed, draw)
    parser.add_argument("what", nargs="+", choices=[part.__name__ for part in parts])
    RESULTS.mkdir(parents=True, exist_ok=True)
    for wanted in parser.parse_args().what:
        next(part for part in parts if part.__name__ == wanted)()
