"""How far `policy.trust` can be trusted: predicted against true scores, over many rewards, mazes and training lengths.

python benchmarks/trust.py train       # 24 agents: 4 mazes, 500 to 20,000 updates, d = 20 and 100: 15 minutes
python benchmarks/trust.py measure     # asks each for 14 kinds of rewards, compares with the exact optimum: 10 minutes
python benchmarks/trust.py continuous  # the continuous maze: three agents, against a fine grid of its dynamics
python benchmarks/trust.py draw        # only prints the tables and draws, from the committed results
"""

from __future__ import annotations

import argparse
import itertools
import json
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.exact import score_policies
from anyreward.experiments.all_rewards import BARELY, FAMILIES, family_rewards
from anyreward.figures.maze import pyplot
from anyreward.rewards.expression import parse
from anyreward.storage.files import read_json, write_atomically
from anyreward.theory.grid import grid_mdp
from anyreward.worlds.continuous_maze import plane

RESULTS = Path(__file__).parent / "results" / "trust"
RUNS = Path("runs") / "trust"
MAZES = ("four-rooms", "labyrinth", "pillars", "random-maze")
KINDS = (
    ("fast", 500, 100),
    ("fast", 2_000, 100),
    ("fast", 5_000, 20),
    ("fast", 5_000, 100),
    ("paper", 5_000, 100),
    ("fast", 20_000, 100),
)
"""preset, updates, d"""
CONTINUOUS = (500, 2_000, 10_000)
"""updates of the agents of the continuous maze"""
INGREDIENTS = ("predicted", "represented", "residual", "typical", "thin", "error")
EACH = 10
"""rewards of a kind"""
Array = np.ndarray[Any, Any]


def folder(maze: str, kind: tuple[str, int, int], seed: int) -> Path:
    """Where an agent is kept."""
    preset, updates, dim = kind
    return RUNS / f"{maze}-{preset}-{updates}-d{dim}-seed{seed}"


def train(job: tuple[int, tuple[str, int, int], str]) -> str:
    """One agent, unless it is there."""
    torch.set_num_threads(1)
    seed, (preset, updates, dim), maze = job
    out = folder(maze, job[1], seed)
    if not (out / "agent.json").exists():
        ar.train(
            maze,
            preset=preset,
            updates=updates,
            dim=dim,
            landmarks=0,
            seed=seed,
            compile=True,
            threads=1,
            progress=False,
        ).save(out)
    return str(out)


def more_kinds(rng: np.random.Generator, mdp: ar.FiniteMDP, known: dict[str, Array]) -> dict[str, Array]:
    """(n, S) rewards of kinds that the suite does not have."""
    S, goals = mdp.states, np.eye(mdp.states)[rng.choice(mdp.live, EACH)]
    noise = rng.standard_normal((EACH, S))
    costly = goals.copy()
    passed = mdp.P.sum((0, 1))  # ways in: narrow places have few
    narrow = np.argsort(passed)[: max(8, S // 4)]
    for i in range(EACH):
        places = rng.choice(narrow[narrow != goals[i].argmax()], 2, replace=False)
        costly[i, places] = -rng.choice([2.0, 5.0, 10.0])
    costs = np.zeros((EACH, S))
    for row in costs:
        row[rng.choice(mdp.live, rng.integers(S // 6, S // 2), replace=False)] = -1.0
    names, mixed = list(known), []
    for _ in range(EACH):
        a, b = (known[names[j]][rng.integers(EACH)] for j in rng.choice(len(names), 2, replace=False))
        mixed.append(a / a.std() + b / b.std())
    return {
        "constant and noise": rng.uniform(-3, 3, (EACH, 1)) + rng.uniform(0.1, 1, (EACH, 1)) * noise,
        "goal, two large costs": costly,
        "only costs": costs,
        "two kinds added": np.stack(mixed),
    }


def on_cells(agent: ar.Agent, mdp: ar.FiniteMDP) -> Callable[[Array, Array], Array]:
    """What a reward (S,) on the cells of a maze pays for readable features (n, 2)."""
    assert agent.model.phi.table is not None
    number = {tuple(place): i for i, place in enumerate(agent.model.phi.table[mdp.observations].tolist())}
    return lambda r, places: np.asarray(r[[number[tuple(place)] for place in places.tolist()]])


def measure(job: tuple[int, tuple[str, int, int], str]) -> list[dict[str, Any]]:
    """Predicted and true scores of one agent's answers."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    seed, kind, maze = job
    agent = ar.load(folder(maze, kind, seed))
    mdp, rng = agent.exact_mdp(), np.random.default_rng([seed, MAZES.index(maze), kind[1], kind[2]])
    families = {
        name: rng.permutation(family_rewards(agent, mdp, name, EACH, seed)[:, :, 0])[:EACH]
        for name in FAMILIES
        if name != "states and actions"
    }
    families |= more_kinds(rng, mdp, families)
    pays = on_cells(agent, mdp)

    def sampled(r: Array, n: int) -> ar.Reward:
        """Noisy samples of it from the training distribution."""
        rows = torch.multinomial(agent.sample.weights, n, True, generator=torch.Generator().manual_seed(n)).numpy()
        places = agent.model.phi.readable(agent.sample.rows.numpy())[rows]
        return ar.samples(places, pays(r, places) + 0.5 * r.std() * rng.standard_normal(n))

    questions = [(name, r, ar.reward(partial(pays, r), "table")) for name, rows in families.items() for r in rows]
    for n in (50, 500):
        some = [rng.integers(EACH) for _ in families]
        questions += [
            (f"{n} noisy samples", families[f][i], sampled(families[f][i], n))
            for f, i in zip(families, some, strict=True)
        ]
    found = []
    for name, r, target in questions:
        policy = agent.ask(target)
        scores = agent.score(policy, mdp) if not name.endswith("samples") else _true(agent, policy, mdp, r)
        trust = policy.trust
        found.append(
            {
                "maze": maze,
                "preset": kind[0],
                "updates": kind[1],
                "dim": kind[2],
                "seed": seed,
                "rewards": name,
                "true": float(scores.normalised[0]),
                "barely": bool(scores.optimal[0] - scores.random[0] < BARELY * np.ptp(r) / (1 - mdp.gamma)),
                "value": float(scores.value[0] / np.abs(r).max()),
                "verdict": trust.verdict,
                **{key: getattr(trust, key) for key in INGREDIENTS},
                "predicted value": None if trust.value is None else trust.value / np.abs(r).max(),
            }
        )
    return found


def _true(agent: ar.Agent, policy: ar.Policy, mdp: ar.FiniteMDP, r: Array) -> ar.Scores:
    return score_policies(mdp, policy.probabilities(mdp.observations)[None], mdp.on_states(r)[None])


def keep(name: str, rows: list[dict[str, Any]]) -> None:
    """Write answers to the results, a column a line."""

    def short(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    columns = {key: json.dumps([short(row[key]) for row in rows]) for key in rows[0]}
    lines = ",\n".join(f'  "{key}": {values}' for key, values in columns.items())
    write_atomically(RESULTS / f"{name}.json", f"{{\n{lines}\n}}\n".encode())


def kept(name: str) -> list[dict[str, Any]]:
    """Those answers again."""
    columns = read_json(RESULTS / f"{name}.json")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def rank_correlation(x: Array, y: Array) -> float:
    """Spearman's, with ties at their mean rank."""

    def ranks(v: Array) -> Array:
        _, index, counts = np.unique(v, return_inverse=True, return_counts=True)
        return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[index])

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def column(rows: list[dict[str, Any]], name: str) -> Array:
    """One figure of every row."""
    return np.array([row[name] for row in rows], dtype=float)


def table(title: str, groups: dict[str, list[dict[str, Any]]]) -> None:
    """Rank correlation and error of the prediction, group by group."""
    print(f"\n| {title} | rewards | mean true score | rank correlation | mean absolute error |")
    print("| --- | --- | --- | --- | --- |")
    for name, rows in groups.items():
        p, y = column(rows, "predicted"), column(rows, "true")
        print(
            f"| {name} | {len(rows):,} | {y.mean():.2f} | {rank_correlation(p, y):.3f} | {np.abs(p - y).mean():.3f} |"
        )


def grouped(rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> dict[str, list[dict[str, Any]]]:
    """Rows by a key, in the order in which it first appears."""
    return {name: [r for r in rows if key(r) == name] for name in dict.fromkeys(map(key, rows))}


def verdicts(rows: list[dict[str, Any]]) -> None:
    """The verdict against the true score."""
    print("\n| verdict | answers | mean true score | 5th percentile | worst | below 0.5 | below 0.7 | 0.9 or more |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for verdict in ("good", "doubtful", "do not rely on it"):
        y = column([r for r in rows if r["verdict"] == verdict], "true")
        if len(y):
            shares = " | ".join(
                f"{100 * share:.1f}%" for share in ((y < 0.5).mean(), (y < 0.7).mean(), (y >= 0.9).mean())
            )
            print(f"| {verdict} | {len(y):,} | {y.mean():.2f} | {np.percentile(y, 5):.2f} | {y.min():.2f} | {shares} |")


def predictors(rows: list[dict[str, Any]]) -> None:
    """What each ingredient says by itself."""
    print("\n| predictor | rank correlation |\n| --- | --- |")
    y = column(rows, "true")
    for name, sign in (("predicted", 1), ("residual", -1), ("represented", 1), ("typical", 1), ("thin", -1)):
        x = sign * column(rows, name)
        print(f"| {name} | {'the same for all' if np.ptp(x) == 0 else f'{rank_correlation(x, y):.2f}'} |")


# The continuous maze, whose truth is that of a fine grid.


def square_rewards(rng: np.random.Generator, n: int) -> dict[str, list[str]]:
    """Expressions over x and y, n of each kind."""

    def bump(width: float, weight: float = 1.0) -> str:
        x, y = rng.random(2)
        return f"{weight:.3f} * exp(-((x - {x:.3f})**2 + (y - {y:.3f})**2) / {2 * width**2:.5f})"

    def disc(width: float, weight: float = 1.0) -> str:
        x, y = rng.random(2)
        return f"{weight:.3f} * (hypot(x - {x:.3f}, y - {y:.3f}) < {width:.3f})"

    def wave() -> str:
        (a, b), c = rng.normal(0, 15, 2), rng.uniform(0, 6.3)
        return f"cos({a:.2f} * x + {b:.2f} * y + {c:.2f})"

    return {
        "disc": [disc(rng.uniform(0.04, 0.12)) for _ in range(n)],
        "bump": [bump(rng.uniform(0.05, 0.25)) for _ in range(n)],
        "linear": ["{:.3f} * x + {:.3f} * y".format(*rng.standard_normal(2)) for _ in range(n)],
        "four discs": [" + ".join(disc(0.07, rng.uniform(0.2, 1)) for _ in range(4)) for _ in range(n)],
        "disc, five to avoid": [" + ".join(disc(0.1, w) for w in (1, -0.5, -0.5, -0.5, -0.5, -0.5)) for _ in range(n)],
        "nine bumps": [" + ".join(bump(0.1, rng.standard_normal()) for _ in range(9)) for _ in range(n)],
        "waves": [" + ".join(wave() for _ in range(12)) for _ in range(n)],
    }


def continuous(seed: int = 0, each: int = 8) -> None:
    """Predicted against true scores in the continuous maze."""
    answers = []
    for updates in CONTINUOUS:
        out = RUNS / f"continuous-maze-fast-{updates}-seed{seed}"
        if not (out / "agent.json").exists():
            ar.train("continuous-maze", updates=updates, seed=seed, landmarks=0, compile=True).save(out)
        agent = ar.load(out)
        truth = grid_mdp(plane(), agent.settings.gamma, step=0.025)
        x, y = truth.observations.T.astype(np.float64)
        for name, texts in square_rewards(np.random.default_rng(seed), each).items():
            for text in texts:
                policy = agent.ask(ar.reward(text))
                scores = _true(agent, policy, truth, parse(text)({"x": x, "y": y}))
                trust = policy.trust
                answers.append(
                    {
                        "maze": "continuous-maze",
                        "preset": "fast",
                        "updates": updates,
                        "dim": agent.settings.dim,
                        "seed": seed,
                        "rewards": name,
                        "true": float(scores.normalised[0]),
                        "barely": False,
                        "value": float(scores.value[0]),
                        "verdict": trust.verdict,
                        **{key: getattr(trust, key) for key in INGREDIENTS},
                        "predicted value": trust.value,
                    }
                )
        print(f"{updates:,} updates: {len(answers)} answers", flush=True)
    keep("continuous", answers)
    report("continuous")


def report(name: str = "mazes") -> None:
    """All tables of docs/notebook/trust.md."""
    every = kept(name)
    rows = [r for r in every if not r["barely"]]
    print(f"\n{name}: {len(rows):,} answers; {len(every) - len(rows)} left out: their optimum is close to random")
    exact, noisy = ([r for r in rows if r["rewards"].endswith("samples") is s] for s in (False, True))
    table("all", {"rewards in full": exact} | ({"from noisy samples": noisy} if noisy else {}))
    table("maze", grouped(exact, lambda r: str(r["maze"])))
    table("training", grouped(exact, lambda r: f"{r['preset']}, {r['updates']:,} updates, d = {r['dim']}"))
    table("kind of reward", grouped(exact, lambda r: str(r["rewards"])))
    predictors(exact)
    verdicts(exact)
    verdicts(noisy)


def draw(rows: list[dict[str, Any]]) -> None:
    """Predicted against true scores, a panel a maze."""
    plt = pyplot()
    mazes = grouped(rows, lambda r: str(r["maze"]))
    figure, axes = plt.subplots(1, len(mazes), figsize=(2.9 * len(mazes), 3.7), layout="constrained", sharey=True)
    colours = {"good": "#009e73", "doubtful": "#e69f00", "do not rely on it": "#0072b2"}
    markers = {"good": "o", "doubtful": "s", "do not rely on it": "^"}
    for axis, (maze, mine) in zip(axes, mazes.items(), strict=True):
        for verdict, colour in colours.items():
            some = [r for r in mine if r["verdict"] == verdict]
            axis.plot(
                column(some, "predicted"),
                column(some, "true"),
                markers[verdict],
                color=colour,
                ms=2.5,
                alpha=0.5,
                label=verdict,
            )
        axis.plot([-0.3, 1], [-0.3, 1], color="0.5", lw=0.8)
        correlation = rank_correlation(column(mine, "predicted"), column(mine, "true"))
        axis.set(
            title=f"{maze}\nrank correlation {correlation:.3f}",
            xlabel="predicted score",
            xlim=(-0.35, 1.05),
            ylim=(-0.35, 1.05),
        )
    axes[0].set_ylabel("true score (0 = random, 1 = optimal)")
    axes[0].legend(loc="upper left", markerscale=2.5, frameon=False)
    figure.savefig(Path(__file__).parent.parent / "docs" / "trust.png", dpi=130)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "measure", "continuous", "draw"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    jobs = list(itertools.product(arguments.seeds, KINDS, MAZES))
    if arguments.what == "continuous":
        return continuous(arguments.seeds[0])
    if arguments.what == "draw":
        names = [name for name in ("mazes", "continuous") if (RESULTS / f"{name}.json").exists()]
        for name in names:
            report(name)
        rows = [row for name in names for row in kept(name)]
        return draw([row for row in rows if not row["barely"] and not row["rewards"].endswith("samples")])
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        if arguments.what == "train":
            for done, name in enumerate(pool.map(train, jobs), 1):
                print(f"{done}/{len(jobs)} {name}", flush=True)
            return None
        answers = []
        for done, found in enumerate(pool.map(measure, jobs), 1):
            answers += found
            print(f"{done}/{len(jobs)}", flush=True)
    keep("mazes", answers)
    return report()


if __name__ == "__main__":
    main()
