"""Figures of answers in a maze: values as a heatmap, greedy actions as arrows, and a trajectory."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.errors import UserError
from anyreward.storage import user_path
from anyreward.storage.files import write_atomically
from anyreward.worlds.maze import Maze
from anyreward.worlds.spaces import Array

ORANGE, VERMILION = "#e69f00", "#d55e00"
_ARROWS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


PICTURES = (".png", ".pdf", ".svg")
"""The endings of pictures."""


def wrapped(title: str, width: int = 44, lines: int = 4) -> str:
    """Wrap a title into lines that fit above a panel; a longer title is cut and ends in ' ...'."""
    broken = [textwrap.wrap(line, width, max_lines=lines, placeholder=" ...") for line in title.splitlines()]
    return plain("\n".join("\n".join(line) for line in broken))


def plain(text: str) -> str:
    """Text with its dollars escaped: matplotlib would read what is between two of them as a formula."""
    return text.replace("$", r"\$")


@dataclass(frozen=True)
class MazePanel:
    """One answer to draw; arrays are indexed by the free cells, in the maze's order."""

    title: str
    value: Array
    """(n_free,)"""
    actions: Array
    """(n_free,) the greedy action of each cell"""
    path: Array
    """(steps, 2) the (x, y) of a trajectory"""
    goals: Sequence[tuple[int, int]] = ()
    forbidden: Sequence[tuple[int, int]] = ()
    landmarks: Sequence[tuple[int, int]] = ()
    """the landmarks that the trajectory heads for"""


def pyplot() -> Any:
    """Matplotlib's pyplot with a backend that needs no display; raises if matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise UserError("Drawing needs matplotlib: pip install 'anyreward[figures]'.") from error
    return pyplot


def draw_maze_panels(maze: Maze, panels: Sequence[MazePanel], path: Path, heading: str = "") -> Path:
    """Draw one panel per answer, side by side, and save the figure."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 5.3), squeeze=False, layout="constrained")
    for axis, panel in zip(axes[0], panels, strict=True):
        _draw_panel(plt, figure, axis, maze, panel)
    return finish(figure, path, heading)


def finish(figure: Any, path: Path, heading: str = "", columns: int | None = None) -> Path:
    """Add a heading, and a legend with this number of columns for all panels, and save the figure."""
    path = picture_path(path)
    if heading:
        figure.suptitle(wrapped(heading, 90))
    entries = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries[label] = handle
    if entries:
        columns = columns or (6 if figure.get_figwidth() > 6 else 3)
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=130)
    pyplot().close(figure)
    return write_picture(path, content.getvalue())


def picture_path(given: str | Path) -> Path:
    """The path of a picture; raises unless its ending is that of one."""
    path = user_path(given)
    if path.suffix.lower() not in PICTURES:
        raise UserError(f"Figures are written as .png, .pdf or .svg; {path.name} ends in none of these.")
    return path


def film_path(given: str | Path) -> Path:
    """The path of a film; raises unless it ends in .gif."""
    path = user_path(given)
    if path.suffix.lower() != ".gif":
        raise UserError(f"Films are written as GIFs; {path.name} does not end in .gif.")
    return path


def write_picture(path: Path, content: bytes) -> Path:
    """Write a picture, whole or not at all; an error names the file."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def mark_goals(axis: Any, goals: Array | Sequence[Any], forbidden: Array | Sequence[Any]) -> None:
    """Draw goals and costs, (n, 2) or more columns each, as stars and crosses."""
    for positions, style in (
        (goals, {"s": 190, "marker": "*", "color": "white", "label": "goal"}),
        (forbidden, {"s": 110, "marker": "X", "color": VERMILION, "label": "cost"}),
    ):
        if len(positions):
            axis.scatter(*np.asarray(positions)[:, :2].T, edgecolor="black", zorder=6, **style)


def _draw_panel(plt: Any, figure: Any, axis: Any, maze: Maze, panel: MazePanel) -> None:
    grid = np.full(maze.cells, np.nan)
    grid[maze.free] = panel.value
    colours = plt.get_cmap("viridis").with_extremes(bad="#3b3b3b")
    image = axis.imshow(np.ma.masked_invalid(grid.reshape(maze.height, maze.width)), cmap=colours)
    figure.colorbar(image, ax=axis, shrink=0.75, label="value (agent's estimate)")
    x, y = maze.coordinates[maze.free].T
    moving = panel.actions < len(_ARROWS)
    dx, dy = _ARROWS[panel.actions[moving]].T
    # white with a dark rim: readable on both ends of the colour map
    axis.quiver(
        x[moving], y[moving], dx, dy, angles="xy", scale_units="xy", scale=2.4, pivot="mid", width=0.009,
        color="white", edgecolor="black", linewidth=0.5,
    )  # fmt: skip
    axis.scatter(x[~moving], y[~moving], s=28, marker="s", color="white", edgecolor="black", label="stay", zorder=3)
    axis.plot(*panel.path.T, color=ORANGE, linewidth=2.6, zorder=4, label="trajectory")
    axis.scatter(*panel.path[0], s=90, color=ORANGE, edgecolor="black", zorder=5, label="start")
    mark_goals(axis, panel.goals, panel.forbidden)
    if panel.landmarks:
        rings = {"s": 260, "marker": "o", "facecolor": "none", "edgecolor": "#cc79a7", "linewidth": 2.2}
        axis.scatter(*np.array(panel.landmarks).T, zorder=7, label="landmark headed for", **rings)
    axis.set(title=wrapped(panel.title), xlabel="x", ylabel="y")
    axis.set_xticks(range(0, maze.width, max(1, maze.width // 11)))
    axis.set_yticks(range(0, maze.height, max(1, maze.height // 11)))
