"""Learning curves of several runs, with bands over their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.errors import UserError
from anyreward.figures.maze import finish, plain, pyplot
from anyreward.worlds.spaces import Array

COLOURS = ("#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000")
"""Seven colours that colour-blind people can distinguish."""
LINES = ("-", "--", "-.", ":")
METRICS = {
    "quality_greedy": "value / optimal value, greedy policy, mean over goals",
    "success": "share of goals reached",
}
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""97.5% quantiles of Student's t with 1, 2, ... degrees of freedom; for more, the last is used (slightly too wide)."""


def band(values: Array) -> tuple[Array, Array]:
    """(k,) the mean of values (seeds, k) and half the width of its 95% interval, by Student's t; zero for one seed."""
    n = len(values)
    if n == 1:
        return values[0], np.zeros(values.shape[1])
    t = STUDENT[min(n - 2, len(STUDENT) - 1)]
    return values.mean(0), t * values.std(0, ddof=1) / np.sqrt(n)


def draw_curves(runs: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path, heading: str) -> Path:
    """Draw one curve per name: the mean over its runs, each a list of metrics, with a 95% band."""
    lines = [line for metrics in runs.values() for run in metrics for line in run]
    metric = next((name for name in METRICS if lines and all(name in line for line in lines)), None)
    if metric is None:
        raise UserError(f"These runs have none of {', '.join(METRICS)} in common; there is nothing to draw.")
    figure, axis = pyplot().subplots(figsize=(7.4, 5.0), layout="constrained")
    for i, (name, metrics) in enumerate(runs.items()):
        x = sorted(set.intersection(*({line["updates"] for line in run} for run in metrics)))
        known = [{line["updates"]: line[metric] for line in run} for run in metrics]
        mean, half = band(np.array([[run[updates] for updates in x] for run in known], dtype=np.float64))
        colour, line = COLOURS[i % len(COLOURS)], LINES[i % len(LINES)]
        axis.plot(x, mean, color=colour, linestyle=line, linewidth=2.2, label=plain(name))  # curves may coincide
        axis.fill_between(x, np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1), color=colour, alpha=0.2, lw=0)
    axis.set(xlabel="updates", ylabel=METRICS[metric], ylim=(0, 1.02), xlim=(0, None))
    axis.grid(alpha=0.3)
    return finish(figure, path, heading, columns=2)
