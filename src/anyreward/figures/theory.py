"""Figures of the effect of the dimension d: errors and scores against d, and singular values of successor measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.figures.maze import finish, pyplot

Array = np.ndarray[Any, Any]

COLOURS = {"single goal": "#0072b2", "smooth": "#e69f00", "dense": "#009e73"}
"""Three colours that colour-blind people can distinguish."""
MARKERS = {"single goal": "o", "smooth": "s", "dense": "^"}


def draw_dimension(figures: Sequence[Mapping[str, Any]], path: Path, heading: str = "") -> Path:
    """Draw the FB error and the scores against d, from `experiments.theory.dimension_figures` for several d."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    d = [row["d"] for row in figures]
    for kind, colour in COLOURS.items():
        style = {"color": colour, "marker": MARKERS[kind]}
        left.plot(d, [row[kind]["error, policy of training"] for row in figures], **style, label=kind)
        least = [row[kind]["least error of rank d, policy of training"] for row in figures]
        left.plot(d, least, color=colour, linestyle=":")
        right.plot(d, [row[kind]["score"] for row in figures], **style)
        right.plot(d, [row[kind]["score with exact F, best B"] for row in figures], **style, linestyle="--", alpha=0.5)
    left.plot([], [], color="#555555", linestyle=":", label="left: least error of rank d")
    right.plot([], [], color="#555555", linestyle="--", label="right: exact F, best B of rank d")
    left.set(title="Error of F . B, relative to the successor density", xlabel="d", ylabel="relative error, L2(rho)")
    right.set(title="Answers: 0 = random, 1 = optimal", xlabel="d", ylabel="mean score", ylim=(None, 1.03))
    left.set_ylim(0, None)
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(d, [str(x) for x in d])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    return finish(figure, path, heading)


def draw_singular_values(values: Mapping[str, Array], path: Path, heading: str = "") -> Path:
    """Draw the singular values of m^pi and the error of the best F . B of rank d."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    for (name, sizes), colour, line in zip(values.items(), ("#0072b2", "#d55e00"), ("-", "--"), strict=True):
        rank = np.arange(1, len(sizes) + 1)
        left.plot(rank, sizes, color=colour, linestyle=line, linewidth=2.2, label=name)
        tail = np.sqrt(np.append(np.cumsum(sizes[::-1] ** 2)[::-1][1:], 0.0) / (sizes**2).sum())
        right.plot(rank, tail, color=colour, linestyle=line, linewidth=2.2)
    left.set(title="Singular values in L2(rho)", xlabel="index", ylabel="singular value", yscale="log")
    right.set(title="Error of the best F . B of rank d", xlabel="d", ylabel="relative error, L2(rho)")
    right.set_ylim(0, None)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return finish(figure, path, heading)
