"""Figures of rollouts: the continuous maze with values and paths, and rendered images as strips and GIFs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anyreward.figures.maze import (
    ORANGE,
    VERMILION,
    film_path,
    finish,
    mark_goals,
    pyplot,
    wrapped,
    write_picture,
)
from anyreward.worlds.spaces import Array

MARK = 3
"""Half the size of a goal in a GIF, in pixels of the environment's images."""


@dataclass(frozen=True)
class Film:
    """The rendered images of a rollout, with what is drawn into them, in pixels."""

    images: Sequence[Array]
    """(height, width, 3) each"""
    path: Array
    """(steps + 1, 2) where the agent is; empty, (0, 2), if that is not known"""
    goals: Array
    """(n, 2) the goals"""
    forbidden: Array
    """(n, 2) the goals with a cost"""
    fps: float = 10.0
    """Images per second."""


def draw_square(
    title: str, values: Array, walls: Array, paths: Sequence[Array], goals: Array, forbidden: Array, path: Path
) -> Path:
    """Draw the continuous maze: values (k, k) by y and x, walls (n, 4), paths (steps, 2), goals and costs (n, 2)."""
    figure, axis = pyplot().subplots(figsize=(4.8, 5.4), layout="constrained")
    ticks = np.linspace(0, 1, len(values))
    filled = axis.contourf(ticks, ticks, values, levels=20, cmap="viridis")
    figure.colorbar(filled, ax=axis, shrink=0.75, label="value (agent's estimate)")
    for x0, y0, x1, y1 in walls:
        axis.plot([x0, x1], [y0, y1], color="black", linewidth=6, label="wall")
    for xy in paths:
        axis.plot(*xy.T, color="white", linewidth=3.2, zorder=3)
        axis.plot(*xy.T, ".-", color=ORANGE, linewidth=1.6, zorder=4, label="path")
        axis.scatter(*xy[0], s=70, color=ORANGE, edgecolor="black", zorder=5, label="start")
    mark_goals(axis, goals, forbidden)
    axis.set(title=wrapped(title), xlabel="x", ylabel="y", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return finish(figure, path)


def draw_film(film: Film, path: Path, heading: str = "", most: int = 8) -> Path:
    """Draw up to ``most`` images of a film, with the path so far, goals and costs."""
    plt = pyplot()
    from matplotlib import patheffects

    shown = np.unique(np.linspace(0, len(film.images) - 1, most).astype(int))
    rows = (len(shown) + 3) // 4
    high, wide = film.images[0].shape[:2]
    size = (3.0 * min(4, len(shown)), 3.0 * rows * high / wide + 0.9)
    figure, axes = plt.subplots(rows, min(4, len(shown)), figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, i in zip(axes.flat, shown, strict=False):
        axis.imshow(film.images[i])
        axis.set_title(f"step {i}", fontsize=10)
        rim = [patheffects.withStroke(linewidth=3.5, foreground="black")]
        for part in unbroken(film.path[: i + 1], wide):
            axis.plot(*part.T, ".-", color="white", linewidth=1.8, zorder=4, label="path", path_effects=rim)
        mark_goals(axis, film.goals, film.forbidden)
    return finish(figure, path, heading)


def unbroken(way: Array, wide: int) -> list[Array]:
    """The parts of a path (steps, 2) between jumps of over a quarter of the screen's width: a tunnel, or a new life."""
    if len(way) == 0:
        return []
    jumps = np.flatnonzero(np.abs(np.diff(way, axis=0)).max(1) > wide / 4)
    return np.split(way, jumps + 1)


def save_gif(film: Film, path: Path) -> Path:
    """Save a film as a GIF, with path, goals and costs."""
    path = film_path(path)
    pyplot()  # Pillow is installed with it; raises an error that says so if it is missing
    from PIL import Image, ImageDraw

    scale = max(1, 480 // film.images[0].shape[0])
    frames = []
    for i, image in enumerate(film.images):
        high, wide = image.shape[:2]
        frame = Image.fromarray(image).resize((wide * scale, high * scale), Image.Resampling.NEAREST)
        pen, half = ImageDraw.Draw(frame), MARK * scale
        for part in unbroken(film.path[: i + 1], wide):
            line = [(float(x) * scale, float(y) * scale) for x, y in part]
            pen.line(line, fill="black", width=scale + 2)  # a rim, for bright backgrounds
            pen.line(line, fill="white", width=scale)
        for x, y in film.goals * scale:
            pen.ellipse((x - half, y - half, x + half, y + half), fill="white", outline="black")
        for x, y in film.forbidden * scale:
            pen.line((x - half, y - half, x + half, y + half), fill=VERMILION, width=scale)
            pen.line((x - half, y + half, x + half, y - half), fill=VERMILION, width=scale)
        frames.append(frame)
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=int(1000 / film.fps), loop=0)
    return write_picture(path, content.getvalue())
