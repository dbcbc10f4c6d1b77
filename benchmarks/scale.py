"""What an update costs as things grow: d, the minibatch, the number of actions, the replay; a table and a picture.

python benchmarks/scale.py            # about 10 minutes, on a quiet machine
python benchmarks/scale.py --draw     # only the table and the picture, from the committed results
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from anyreward.figures.maze import pyplot
from anyreward.learning.datasets import Dataset
from anyreward.learning.loop import begin, learn
from anyreward.learning.replay import Replay
from anyreward.learning.settings import preset
from anyreward.storage.files import read_json, write_json
from anyreward.training.train import untrained

RESULTS = Path(__file__).parent / "results" / "scale.json"
PICTURE = RESULTS.with_suffix(".png")
AXES: dict[str, list[int]] = {
    "d": [25, 50, 100, 200, 400, 700, 1000],
    "minibatch": [128, 256, 512, 1024, 2048, 4096],
    "actions": [2, 5, 10, 20, 50, 100],
    "replay": [10_000, 30_000, 100_000, 300_000, 1_000_000],
}
KINDS = {"categories": "68 categories", "numbers": "2 numbers"}


def transitions(kind: str, rows: int, actions: int) -> Dataset:
    """Random transitions: the cost of an update does not depend on what they say."""
    rng = np.random.default_rng(0)
    if kind == "categories":
        space: gym.Space[Any] = gym.spaces.Discrete(121)
        observations: np.ndarray[Any, Any] = rng.integers(68, size=rows)
    else:
        space = gym.spaces.Box(-1, 1, (2,))
        observations = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    chosen = rng.integers(actions, size=rows)
    return Dataset(
        "random",
        space,
        gym.spaces.Discrete(actions),
        observations,
        chosen,
        np.roll(observations, 1, 0),
        np.zeros(rows, bool),
    )


def cycles(kind: str, axis: str, size: int) -> tuple[int, Iterator[Any]]:
    """Updates in a cycle, and a run of preset `fast` (d 100, b 128, 5 actions, 20,000 rows) with one axis changed."""
    settings = {"d": {"dim": size}, "minibatch": {"batch_size": size}}.get(axis, {})
    s = preset("fast", **{"updates_per_cycle": 10, "landmarks": 0, "dim": 100} | settings)
    data = transitions(kind, size if axis == "replay" else 20_000, size if axis == "actions" else 5)
    agent, replay = untrained(data, s), Replay(1_000_000)
    replay.add(data.transitions(agent.model.phi))
    return s.updates_per_cycle, learn(begin(agent.model, replay, s))


def measure() -> dict[str, Any]:
    """Milliseconds an update, the median of cycles; the sizes of an axis take turns."""
    results: dict[str, Any] = {}
    for kind in KINDS:
        for axis, sizes in AXES.items():
            runs = {size: cycles(kind, axis, size) for size in sizes}
            times: dict[int, list[float]] = {size: [] for size in sizes}
            for _ in range(8):
                for size, (updates, run) in runs.items():
                    started = time.perf_counter()
                    next(run)
                    times[size].append((time.perf_counter() - started) / updates * 1e3)
            results.setdefault(axis, {})[kind] = [float(np.median(times[size][1:])) for size in sizes]
            print(kind, axis, [round(ms, 2) for ms in results[axis][kind]], flush=True)
    return {"sizes": AXES, "ms an update": results}


def growth(sizes: list[int], ms: list[float]) -> float:
    """The exponent of the growth between the two largest sizes."""
    return float(np.log(ms[-1] / ms[-2]) / np.log(sizes[-1] / sizes[-2]))


def draw(results: dict[str, Any]) -> None:
    """A log-log plot for each axis, and the tables."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.9), layout="constrained")
    for panel, (axis, by_kind) in zip(axes, results["ms an update"].items(), strict=True):
        sizes = results["sizes"][axis]
        for (kind, ms), colour, marker in zip(by_kind.items(), ("#0072b2", "#d55e00"), "os", strict=True):
            panel.loglog(sizes, ms, marker=marker, color=colour, label=f"features: {KINDS[kind]}")
        first = min(by_kind["categories"][0], by_kind["numbers"][0])
        linear = [first * size / sizes[0] for size in sizes]
        panel.loglog(sizes, linear, ":", color="grey", label="linear growth")
        panel.set(title=axis, xlabel=axis, ylim=(0.7 * first, 2.0 * max(map(max, by_kind.values()))))
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
        panel.minorticks_off()
        panel.set_yticks([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000])
        panel.set_yticklabels(["1", "2", "5", "10", "20", "50", "100", "200", "500", "1,000"])
        panel.set_ylim(0.7 * first, 2.0 * max(map(max, by_kind.values())))
        panel.grid(alpha=0.3)
        print(f"\n| {axis} |", " | ".join(f"{size:,}" for size in sizes), "| exponent at the end |")
        print("| --- " * (len(sizes) + 2) + "|")
        for kind, ms in by_kind.items():
            print(f"| {KINDS[kind]}, ms |", " | ".join(f"{x:.1f}" for x in ms), f"| {growth(sizes, ms):.2f} |")
    axes[0].set_ylabel("ms an update")
    axes[0].legend(loc="upper left", fontsize=8)
    figure.suptitle("Cost of an update, preset fast; where not varied d = 100, b = 128, 5 actions, 20,000 transitions")
    figure.savefig(PICTURE, dpi=120)


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        write_json(RESULTS, measure())
    draw(read_json(RESULTS))
