"""Grid mazes from a text drawing, the four rooms of the paper among them, as Gymnasium environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from anyreward.errors import UserError

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

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Maze:
    """A parsed drawing: which cells are free and where each action leads.

    Cells are numbered row by row, walls included: cell ``y * width + x`` lies in column ``x`` from the left and row
    ``y`` from the top.
    """

    drawing: str
    width: int
    height: int
    free: Array
    """(n_free,) the free cells, in increasing order."""
    successors: Array
    """(cells, 5) the cell that each action leads to; a bump leaves the agent in place."""

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
        """(n_free, 5) where each action leads from each free cell, both counted among the free cells."""
        return np.searchsorted(self.free, self.successors[self.free])

    @property
    def transitions(self) -> Array:
        """(n_free, 5, n_free) the exact transition probabilities between the free cells; large for a large maze."""
        return np.eye(len(self.free))[self.free_successors]


def parse_maze(drawing: str) -> Maze:
    """Read a drawing: ``#`` is a wall, a space or ``.`` is free, all lines equally long.

    Blank lines before and after the drawing are ignored. The border need not be walled: the edge of the drawing stops
    the agent too.
    """
    lines = drawing.replace("\r\n", "\n").split("\n")
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError("The maze drawing is empty. Draw walls as '#' and free cells as ' ' or '.', one row a line.")
    width = len(lines[0])
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
    height = len(lines)
    y, x = np.divmod(np.arange(width * height), width)
    to_x = x[:, None] + _MOVES[:, 0]  # (cells, 5)
    to_y = y[:, None] + _MOVES[:, 1]
    inside = (to_x >= 0) & (to_x < width) & (to_y >= 0) & (to_y < height)
    cx, cy = np.clip(to_x, 0, width - 1), np.clip(to_y, 0, height - 1)
    passable = inside & is_free[cy, cx]
    successors = np.where(passable, cy * width + cx, np.arange(width * height)[:, None])
    return Maze("\n".join(lines), width, height, np.flatnonzero(is_free.ravel()), successors)


def random_maze(seed: int, size: int = 11, walls: float = 0.3) -> str:
    """A walled drawing with this share of walls at random inside, and walls where the rest cannot reach."""
    inside = np.random.default_rng(seed).random((size - 2, size - 2)) >= walls
    unseen = set(np.flatnonzero(np.pad(inside, 1)).tolist())  # the border is walled, so no step leaves the drawing
    largest: list[int] = []
    for start in sorted(unseen):
        if start not in unseen:
            continue
        unseen.remove(start)
        region = [start]
        for cell in region:  # grows while it is walked through
            near = {cell - 1, cell + 1, cell - size, cell + size} & unseen
            unseen -= near
            region += near
        if len(region) > len(largest):
            largest = region
    free = set(largest)
    return "\n".join("".join(" " if y * size + x in free else "#" for x in range(size)) for y in range(size))


class MazeEnv(gym.Env[np.int64, np.int64]):
    """One agent in a maze. Reward-free: every reward is zero, and no episode terminates.

    The observation is the cell's number, the start is uniform over the free cells, and the actions are left, right,
    up, down and stay.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012 (Gymnasium's own convention)

    def __init__(self, drawing: str = FOUR_ROOMS, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render_mode is {render_mode!r}; accepted: None or 'rgb_array'.")
        self.maze = parse_maze(drawing)
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Discrete(self.maze.cells)
        self.action_space = gym.spaces.Discrete(len(ACTION_NAMES))
        self.cell = int(self.maze.free[0])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the columns of `feature_table` are called."""
        return ("x", "y")

    @property
    def feature_table(self) -> Array:
        """(cells, 2) the (x, y) of each observation, so that goals and rewards can speak of places."""
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
        """Move; a bump leaves the agent in place."""
        self.cell = int(self.maze.successors[self.cell, action])
        return np.int64(self.cell), 0.0, False, False, {}

    def render(self) -> Array | None:
        """The maze as an RGB image of 16 pixels a cell: walls dark, the agent orange."""
        if self.render_mode is None:
            return None
        image = np.full((self.maze.cells, 3), 60, dtype=np.uint8)
        image[self.maze.free] = 245
        image[self.cell] = (230, 120, 20)
        return image.reshape(self.maze.height, self.maze.width, 3).repeat(16, axis=0).repeat(16, axis=1)


class MazeVectorEnv(VectorEnv[Array, Array, Array]):
    """Many agents in one maze, moved by one table look-up. Resets in the step that ends an episode."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        drawing: str = FOUR_ROOMS,
        max_episode_steps: int = 50,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise UserError("Many agents at once are not drawn; render a single one: gymnasium.make(...).")
        self.maze = parse_maze(drawing)
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.single_observation_space = gym.spaces.Discrete(self.maze.cells)
        self.single_action_space = gym.spaces.Discrete(len(ACTION_NAMES))
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self.cell = np.full(num_envs, self.maze.free[0])
        self.elapsed = np.zeros(num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start every agent in a random free cell."""
        if isinstance(seed, list):
            seed = seed[0]
        super().reset(seed=seed)
        self.cell = self.np_random.choice(self.maze.free, size=self.num_envs)
        self.elapsed[:] = 0
        return self.cell.copy(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Move every agent; an agent at its time limit is truncated and starts anew."""
        self.cell = self.maze.successors[self.cell, actions]
        self.elapsed += 1
        truncated = self.elapsed >= self.max_episode_steps
        infos: dict[str, Any] = {}
        if truncated.any():
            infos = {"final_obs": self.cell.copy(), "_final_obs": truncated.copy()}
            self.cell[truncated] = self.np_random.choice(self.maze.free, size=int(truncated.sum()))
            self.elapsed[truncated] = 0
        nothing = np.zeros(self.num_envs)
        return self.cell.copy(), nothing, nothing.astype(bool), truncated, infos


def register() -> None:
    """Make our mazes known to Gymnasium: ``anyreward/FourRooms-v0``, ... and ``anyreward/Maze-v0`` for any drawing."""
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
