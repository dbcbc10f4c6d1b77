"""The environments, as Gymnasium would have them."""

from anyreward.worlds.maze import FOUR_ROOMS, Maze, parse_maze, register
from anyreward.worlds.world import World, open_world

__all__ = ["FOUR_ROOMS", "Maze", "World", "open_world", "parse_maze"]

register()
