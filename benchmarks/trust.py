"""How far `policy.trust` can be trusted: predicted against true scores, over many rewards, mazes and training lengths.

python benchmarks/trust.py train       # 24 agents: 4 mazes, 500 to 20,000 updates, d = 20 and 100; two processes: 20 minutes
python benchmarks/trust.py measure     # asks each for 15 kinds of rewards, compares with the exact optimum: 10 minutes
python benchmarks/trust.py draw        # only prints the tables and draws, from the committed results
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.acting.evaluate import score_policies
from anyreward.experiments.all_rewards import BARELY, FAMILIES, family_rewards
from anyreward.figures.maze import pyplot
from anyreward.storage.files import read_json, write_json

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
            maze, preset=preset, updates=updates, dim=dim, seed=seed, compile=True, threads=1, progress=False
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
    assert agent.features.table is not None
    number = {tuple(place): i for i, place in enumerate(agent.features.table[mdp.observations].tolist())}

    def of_table(r: Array) -> ar.Reward:
        return ar.reward(lambda g: r[[number[tuple(place)] for place in g.tolist()]], "table")

    def sampled(r: Array, n: int) -> ar.Reward:
        """Noisy samples of it from the training distribution."""
        rows = torch.multinomial(agent.sample.weights, n, True, generator=torch.Generator().manual_seed(n)).numpy()
        places = agent.features.readable(agent.sample.rows.numpy())[rows]
        seen = r[[number[tuple(place)] for place in places.tolist()]]
        return ar.samples(places, seen + 0.5 * r.std() * rng.standard_normal(n))

    questions = [(name, r, of_table(r)) for name, rows in families.items() for r in rows]
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
                **{
                    key: getattr(trust, key)
                    for key in ("predicted", "represented", "residual", "typical", "thin", "error")
                },
                "predicted value": None if trust.value is None else trust.value / np.abs(r).max(),
            }
        )
    return found


def _true(agent: ar.Agent, policy: ar.Policy, mdp: ar.FiniteMDP, r: Array) -> ar.Scores:
    return score_policies(mdp, policy.probabilities(mdp.observations)[None], mdp.on_states(r)[None])


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
    print(
        f"\n| {title} | rewards | mean true score | rank correlation | mean absolute error |\n| --- | --- | --- | --- | --- |"
    )
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
        print(f"| {name} | {rank_correlation(sign * column(rows, name), y):.2f} |")


def report(name: str = "mazes") -> None:
    """All tables and the picture of docs/trust.md."""
    every = read_json(RESULTS / f"{name}.json")["answers"]
    rows = [r for r in every if not r["barely"]]
    print(f"{len(rows):,} answers ({len(every) - len(rows)} left out: their optimum is barely better than random)")
    exact, noisy = ([r for r in rows if r["rewards"].endswith("samples") is s] for s in (False, True))
    table("all", {"rewards in full": exact, "from noisy samples": noisy})
    table("maze", grouped(exact, lambda r: str(r["maze"])))
    table("training", grouped(exact, lambda r: f"{r['preset']}, {r['updates']:,} updates, d = {r['dim']}"))
    table("kind of reward", grouped(exact, lambda r: str(r["rewards"])))
    predictors(exact)
    verdicts(exact)
    verdicts(noisy)
    draw(exact)


def draw(rows: list[dict[str, Any]]) -> None:
    """Predicted against true scores, a panel a maze."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(MAZES), figsize=(3.2 * len(MAZES), 3.9), layout="constrained", sharey=True)
    colours = {"good": "#009e73", "doubtful": "#e69f00", "do not rely on it": "#0072b2"}
    markers = {"good": "o", "doubtful": "s", "do not rely on it": "^"}
    for axis, (maze, mine) in zip(axes, grouped(rows, lambda r: str(r["maze"])).items(), strict=True):
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
    parser.add_argument("what", choices=["train", "measure", "draw"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    jobs = list(itertools.product(arguments.seeds, KINDS, MAZES))
    if arguments.what == "draw":
        return report()
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        if arguments.what == "train":
            for done, name in enumerate(pool.map(train, jobs), 1):
                print(f"{done}/{len(jobs)} {name}", flush=True)
            return None
        answers = []
        for done, found in enumerate(pool.map(measure, jobs), 1):
            answers += found
            print(f"{done}/{len(jobs)}", flush=True)
    write_json(RESULTS / "mazes.json", {"seeds": arguments.seeds, "answers": answers})
    return report()


if __name__ == "__main__":
    main()
