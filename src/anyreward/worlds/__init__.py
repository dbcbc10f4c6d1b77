"""Gymnasium environments, and the `World` class that describes an environment to the library."""

from anyreward.worlds import continuous_maze, fetch_reach, maze, ms_pacman, point_mass
from anyreward.worlds.maze import FOUR_ROOMS, Maze, parse_maze
from anyreward.worlds.world import World, open_world

__all__ = ["FOUR_ROOMS", "Maze", "World", "open_world", "parse_maze"]

maze.register()
continuous_maze.register()
fetch_reach.register()
ms_pacman.register()
point_mass.register()
