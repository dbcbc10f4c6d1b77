"""Grid mazes from text drawings as Gymnasium environments, including the paper's four rooms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.ndimage import label

from anyreward.errors import UserError
from anyreward.worlds.crowd import CrowdEnv
from anyreward.worlds.spaces import Array

FOUR_ROOMS = """
###########
#    #    #
#         #
#    #    #
#    #    #
## #### ###
#    #    #
#    #    #
#         #
#    #    #
###########
"""

LABYRINTH = """
#############
#     #     #
# ### # ### #
# #   #   # #
# # ##### # #
# #       # #
# ####### # #
#       # # #
####### # # #
#     # # # #
# ### # # # #
#   #   #   #
#############
"""

PILLARS = """
###########
#         #
# # # # # #
#         #
# # # # # #
#         #
# # # # # #
#         #
# # # # # #
#         #
###########
"""

ACTION_NAMES = ("left", "right", "up", "down", "stay")
_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)])  # (dx, dy), y counted downwards
_FREE = " ."


@dataclass(frozen=True)
class Maze:
    """A parsed drawing: which cells are free and where each action leads.

    Cells are numbered row by row, walls included: cell ``y * width + x`` is in column ``x`` from the left and row
    ``y`` from the top.
    """

    drawing: str
    width: int
    height: int
    free: Array
    """(n_free,) the free cells, in increasing order."""
    successors: Array
    """(cells, 5) the cell that each action leads to; a wall leaves the agent in place."""

    @property
    def cells(self) -> int:
        """The number of cells, walls included."""
        return self.width * self.height

    @property
    def coordinates(self) -> Array:
        """(cells, 2) the (x, y) of each cell."""
        y, x = np.divmod(np.arange(self.cells), self.width)
        return np.stack([x, y], axis=1)

    @property
    def free_successors(self) -> Array:
        """(n_free, 5) the free cell that each action leads to, as an index into `free`."""
        return np.searchsorted(self.free, self.successors[self.free])


def parse_maze(drawing: str) -> Maze:
    """Read a drawing: ``#`` is a wall, a space or ``.`` is free, all lines equally long.

    Blank lines before and after the drawing are ignored. The border need not be walled: the edge of the drawing stops
    the agent too.
    """
    drawing = drawing.replace("\r\n", "\n").strip("\n")
    if not drawing:
        raise UserError("The maze drawing is empty. Draw walls as '#' and free cells as ' ' or '.', one line per row.")
    lines = drawing.split("\n")
    height, width = len(lines), len(lines[0])
    for number, line in enumerate(lines, start=1):
        if len(line) != width:
            raise UserError(
                f"Line {number} of the maze drawing has {len(line)} characters, line 1 has {width}. "
                "All lines must be equally long; use '.' for free cells if trailing spaces get lost."
            )
        for column, character in enumerate(line, start=1):
            if character != "#" and character not in _FREE:
                raise UserError(
                    f"Unknown character {character!r} in line {number}, column {column} of the maze drawing. "
                    "Accepted: '#' for a wall, ' ' or '.' for a free cell."
                )
    is_free = np.array([[character != "#" for character in line] for line in lines])  # (height, width)
    if not is_free.any():
        raise UserError("The maze drawing has no free cell. Draw at least one ' ' or '.'.")
    cells = np.arange(width * height)[:, None]
    y, x = np.divmod(cells, width)
    passable = np.pad(is_free, 1)[y + 1 + _MOVES[:, 1], x + 1 + _MOVES[:, 0]]  # (cells, 5)
    successors = np.where(passable, cells + _MOVES @ np.array([1, width]), cells)
    return Maze(drawing, width, height, np.flatnonzero(is_free), successors)


def random_maze(seed: int, size: int = 11, walls: float = 0.3) -> str:
    """A random drawing: a border, a share ``walls`` of walls inside, and only the largest connected region free."""
    inside = np.random.default_rng(seed).random((size - 2, size - 2)) >= walls
    regions, _ = label(np.pad(inside, 1))  # walls are 0, and the cells of each region have its number
    largest = 1 + np.bincount(regions.ravel(), minlength=2)[1:].argmax()
    return "\n".join("".join(row) for row in np.where(regions == largest, " ", "#"))


class MazeEnv(gym.Env[np.int64, np.int64]):
    """One agent in a maze. Reward-free: every reward is zero, and no episode terminates.

    The observation is the cell's number, the start is uniform over the free cells, and the actions are left, right,
    up, down and stay.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012 (Gymnasium's own convention)
    never_terminates = True
    settings = {"explore": "z"}  # noqa: RUF012 (constant)
    """Settings that this world overrides in both presets: episodes start everywhere, so uniform actions suffice."""
    feature_names = ("x", "y")
    """The names of the columns of `feature_table`."""

    def __init__(self, drawing: str = FOUR_ROOMS, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; accepted: None or 'rgb_array'.")
        self.maze = parse_maze(drawing)
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Discrete(self.maze.cells)
        self.action_space = gym.spaces.Discrete(len(ACTION_NAMES))
        self.cell = int(self.maze.free[0])

    @property
    def feature_table(self) -> Array:
        """(cells, 2) the (x, y) of each observation, so that goals and rewards can refer to it."""
        return self.maze.coordinates

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Start in a random free cell, or in ``options={"cell": n}``."""
        super().reset(seed=seed)
        cell = (options or {}).get("cell")
        if cell is None:
            cell = self.np_random.choice(self.maze.free)
        elif cell not in self.maze.free:
            raise UserError(
                f"Cell {cell} is not a free cell of this maze; its free cells are {self.maze.free.tolist()}."
            )
        self.cell = int(cell)
        return np.int64(self.cell), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Move; a wall leaves the agent in place."""
        self.cell = int(self.maze.successors[self.cell, action])
        return np.int64(self.cell), 0.0, False, False, {}

    def render(self) -> Array | None:
        """The maze as an RGB image of 16 pixels per cell: walls dark, the agent orange."""
        if self.render_mode is None:
            return None
        image = np.full((self.maze.cells, 3), 60, dtype=np.uint8)
        image[self.maze.free] = 245
        image[self.cell] = (230, 120, 20)
        return image.reshape(self.maze.height, self.maze.width, 3).repeat(16, axis=0).repeat(16, axis=1)


class MazeVectorEnv(CrowdEnv):
    """Many agents in one maze, moved by one table look-up."""

    def __init__(
        self, num_envs: int = 1, drawing: str = FOUR_ROOMS, max_episode_steps: int = 50, render_mode: str | None = None
    ) -> None:
        self.maze = parse_maze(drawing)
        cells = gym.spaces.Discrete(self.maze.cells)
        super().__init__(num_envs, cells, len(ACTION_NAMES), max_episode_steps, render_mode)

    def start(self, n: int) -> Array:
        """(n,) random free cells."""
        return self.np_random.choice(self.maze.free, size=n)

    def move(self, actions: Array) -> Array:
        """(num_envs,) the next cells."""
        return np.asarray(self.maze.successors[self.state, actions])


def register() -> None:
    """Register the mazes with Gymnasium: ``anyreward/FourRooms-v0``, ... and ``anyreward/Maze-v0`` for any drawing."""
    drawings = {
        "FourRooms": FOUR_ROOMS,
        "Labyrinth": LABYRINTH,
        "Pillars": PILLARS,
        "RandomMaze": random_maze(seed=0),
        "Maze": FOUR_ROOMS,
    }
    for name, drawing in drawings.items():
        gym.register(
            id=f"anyreward/{name}-v0",
            entry_point="anyreward.worlds.maze:MazeEnv",
            vector_entry_point="anyreward.worlds.maze:MazeVectorEnv",
            max_episode_steps=50,
            kwargs={"drawing": drawing},
        )
