"""Figures of the states that training has visited: a map of two features, or a histogram of each feature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anyreward.figures.maze import VERMILION, finish, plain, pyplot
from anyreward.rewards.coverage import Coverage, FeatureCoverage
from anyreward.worlds.spaces import Array

BLUE, GREY = "#0072b2", "#d9d9d9"
PARTS = 40
"""Number of parts of the range of a number."""
MOST = 12
"""Largest number of histograms."""


def draw_coverage(coverage: Coverage, features: Array, weights: Array, path: Path, heading: str = "") -> Path:
    """Draw features (n, k) of visited states, with their weights (n,): a map if k = 2, else a histogram of each.

    Features after the first k, such as the action, are not drawn.
    """
    plt, named = pyplot(), coverage.features[: features.shape[1]]
    if len(named) == 2:
        figure, axis = plt.subplots(figsize=(5.6, 5.4), layout="constrained")
        _map(plt, figure, axis, named, features, weights)
        return finish(figure, path, heading)
    varying = [i for i, feature in enumerate(named) if feature.high > feature.low]
    chosen = (varying or list(range(len(named)))) if len(named) > MOST else list(range(len(named)))
    shown = [named[i] for i in chosen[:MOST]]
    wide = min(4, len(shown))
    high = -(-len(shown) // wide)
    size = (max(3.4 * wide, 5.0), 2.6 * high + 1.0)
    figure, axes = plt.subplots(high, wide, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, feature, column in zip(axes.flat, shown, features[:, chosen].T, strict=False):
        _histogram(axis, feature, column, weights)
    for row in axes:
        row[0].set_ylabel("share of states")
    more = f" ({len(shown)} of {len(named)} features, the first that vary)" if len(named) > MOST else ""
    return finish(figure, path, heading + more, columns=3)


def _edges(feature: FeatureCoverage, seen: Array) -> Array:
    """The edges of the bins of a feature: one for each value of a category, else equal parts of its range."""
    low, high = (b if np.isfinite(b) else s for b, s in zip(feature.bounds, (feature.low, feature.high), strict=True))
    low, high = min(low, feature.low), max(high, feature.high)
    if feature.values and np.array_equal(seen, np.round(seen)) and high - low < 200:
        return np.arange(low - 0.5, high + 1)
    return np.linspace(low, high if high > low else low + 1, PARTS + 1)


def _histogram(axis: Any, feature: FeatureCoverage, seen: Array, weights: Array) -> None:
    edges = _edges(feature, seen)
    counts, _ = np.histogram(seen, edges, weights=weights)
    axis.bar(edges[:-1], counts, np.diff(edges), align="edge", color=BLUE, label="visited")
    if not feature.values:
        low, high = feature.bounds
        for start, stop, bound in ((low, feature.low, low), (feature.high, high, high)):
            if np.isfinite(bound):
                axis.axvline(bound, color="black", linestyle="--", linewidth=1.2, label="bound")
                if stop > start:
                    axis.axvspan(start, stop, color=VERMILION, alpha=0.25, lw=0, hatch="//", label="never seen")
    axis.set(xlabel=plain(feature.name))
    axis.margins(x=0.03)


def _map(plt: Any, figure: Any, axis: Any, named: tuple[FeatureCoverage, ...], features: Array, weights: Array) -> None:
    """The share of states in each cell of two features, with unvisited cells in grey."""
    from matplotlib.colors import LogNorm

    x, y = (_edges(feature, column) for feature, column in zip(named, features.T, strict=True))
    counts, _, _ = np.histogram2d(features[:, 0], features[:, 1], bins=(x, y), weights=weights)
    colours = plt.get_cmap("viridis").with_extremes(bad=GREY)
    low, high = counts[counts > 0].min(), counts.max()
    norm = LogNorm(low / 1.5, high * 1.5) if high < 2 * low else LogNorm(low, high)  # else rounding would fill the map
    image = axis.pcolormesh(x, y, np.ma.masked_equal(counts.T, 0), cmap=colours, norm=norm)
    axis.set_facecolor(GREY)
    figure.colorbar(image, ax=axis, shrink=0.8, label="share of states (logarithmic)")
    axis.scatter([], [], s=90, marker="s", facecolor=GREY, edgecolor="black", linewidth=0.5, label="never visited")
    axis.set(xlabel=plain(named[0].name), ylabel=plain(named[1].name))
    if all(feature.values for feature in named):  # a maze: y is counted downwards
        axis.invert_yaxis()
        axis.set_aspect("equal")
