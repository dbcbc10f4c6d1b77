from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from anyreward import UserError, open_world
from anyreward.worlds import FOUR_ROOMS, parse_maze
from anyreward.worlds.maze import ACTION_NAMES, MazeEnv, MazeVectorEnv, random_maze

LEFT, RIGHT, UP, DOWN, STAY = range(5)
SMALL = "#####\n#..##\n#...#\n#####"  # free: (1, 1) (2, 1) (1, 2) (2, 2) (3, 2)


def test_four_rooms_has_the_papers_cells() -> None:
    maze = parse_maze(FOUR_ROOMS)
    assert (maze.width, maze.height, maze.cells, len(maze.free)) == (11, 11, 121, 68)
    doors = {(5, 2), (2, 5), (7, 5), (5, 8)}
    free = {tuple(xy) for xy in maze.coordinates[maze.free].tolist()}
    assert {xy for xy in free if 5 in xy} == doors
    assert free - doors == {(x, y) for x in range(1, 10) for y in range(1, 10) if 5 not in (x, y)}


def test_coordinates_count_from_the_top_left() -> None:
    maze = parse_maze(SMALL)
    assert maze.coordinates[0].tolist() == [0, 0]
    assert maze.coordinates[1].tolist() == [1, 0]
    assert maze.coordinates[5].tolist() == [0, 1]
    assert maze.free.tolist() == [6, 7, 11, 12, 13]


def test_each_action_moves_as_named_and_a_bump_stays() -> None:
    assert ACTION_NAMES == ("left", "right", "up", "down", "stay")
    maze = parse_maze(SMALL)
    assert maze.successors[12].tolist() == [11, 13, 7, 12, 12]  # (2, 2): only the wall below bumps
    assert maze.successors[6].tolist() == [6, 7, 6, 11, 6]  # the top left corner
    assert maze.successors[13].tolist() == [12, 13, 13, 13, 13]  # the dead end on the right


def test_the_edge_of_an_unwalled_drawing_stops_the_agent() -> None:
    maze = parse_maze("..\n..")
    assert maze.successors.tolist() == [[0, 1, 0, 2, 0], [0, 1, 1, 3, 1], [2, 3, 0, 2, 2], [2, 3, 1, 3, 3]]


@pytest.mark.parametrize("drawing", [FOUR_ROOMS, SMALL, "..\n..", "."])
def test_free_successors_match_successors(drawing: str) -> None:
    maze = parse_maze(drawing)
    assert maze.free_successors.shape == (len(maze.free), 5)
    assert (maze.free[maze.free_successors] == maze.successors[maze.free]).all()


def test_spaces_dots_and_line_endings_are_the_same_maze() -> None:
    maze = parse_maze(SMALL)
    for drawing in (SMALL.replace(".", " "), SMALL.replace("\n", "\r\n"), f"\n\n{SMALL}\n\n"):
        other = parse_maze(drawing)
        assert other.free.tolist() == maze.free.tolist()
        assert (other.successors == maze.successors).all()


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        ("", "empty.*'#'"),
        ("\n\n", "empty"),
        ("##\n##", "no free cell"),
        ("###\n#.#\n##", "Line 3 .* has 2 characters, line 1 has 3"),
        ("###\n#.#\n#.x", r"Unknown character 'x' in line 3, column 3.*'#'"),
        ("\n.\t.", r"Unknown character '\\t' in line 1, column 2"),
    ],
)
def test_a_drawing_error_says_where(drawing: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_maze(drawing)


def test_gymnasiums_checker_is_content() -> None:
    env = gym.make("anyreward/FourRooms-v0", render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


def test_render_shows_the_agent() -> None:
    env = gym.make("anyreward/FourRooms-v0", render_mode="rgb_array")
    env.reset(options={"cell": 2 * 11 + 5})  # x = 5, y = 2
    image = env.render()
    assert isinstance(image, np.ndarray)
    assert image.shape == (11 * 16, 11 * 16, 3)
    cells = image.reshape(11, 16, 11, 16, 3)
    assert (cells == cells[:, :1, :, :1]).all()  # one colour a cell
    colours = cells[:, 0, :, 0]
    orange = (colours == (230, 120, 20)).all(-1)
    assert np.argwhere(orange).tolist() == [[2, 5]]  # row y, column x
    assert colours[0, 0].max() < colours[1, 1].min()  # walls are darker than floor


def test_no_render_mode_no_image_and_an_unknown_one_raises() -> None:
    assert MazeEnv().render() is None
    with pytest.raises(UserError, match=r"'human'.*'rgb_array'"):
        MazeEnv(render_mode="human")


def test_an_episode_is_truncated_at_50_steps_and_never_terminates() -> None:
    env = gym.make("anyreward/FourRooms-v0")
    for _ in range(2):
        env.reset(seed=0)
        steps = [env.step(env.action_space.sample()) for _ in range(50)]
        assert [truncated for _, _, _, truncated, _ in steps] == [False] * 49 + [True]
        assert not any(terminated for _, _, terminated, _, _ in steps)
        assert all(r == 0.0 for _, r, _, _, _ in steps)


def test_reset_starts_where_asked_or_says_which_cells_are_free() -> None:
    env = MazeEnv(SMALL)
    assert env.reset(options={"cell": 13})[0] == 13
    assert env.step(np.int64(LEFT))[0] == 12
    with pytest.raises(UserError, match=r"Cell 0 .*\[6, 7, 11, 12, 13\]"):
        env.reset(options={"cell": 0})


def test_single_env_starts_uniformly_over_the_free_cells() -> None:
    env = MazeEnv(SMALL)
    env.reset(seed=0)
    starts = [int(env.reset()[0]) for _ in range(2000)]
    cells, counts = np.unique(starts, return_counts=True)
    assert cells.tolist() == [6, 7, 11, 12, 13]
    assert np.abs(counts - 400).max() < 90  # 5 standard deviations


def test_vector_env_moves_as_the_single_env() -> None:
    vector = gym.make_vec("anyreward/FourRooms-v0", num_envs=6)
    assert isinstance(vector, MazeVectorEnv)
    single = MazeEnv()
    rng = np.random.default_rng(0)
    before, _ = vector.reset(seed=3)
    for t in range(1, 151):
        actions = rng.integers(5, size=6)
        after, rewards, terminated, truncated, infos = vector.step(actions)
        assert (truncated == (t % 50 == 0)).all()
        assert not terminated.any()
        assert not rewards.any()
        reached = infos["final_obs"] if t % 50 == 0 else after
        assert ("final_obs" in infos) == (t % 50 == 0)
        for cell, action, successor in zip(before, actions, reached, strict=True):
            single.reset(options={"cell": int(cell)})
            assert single.step(action)[0] == successor
        assert vector.observation_space.contains(after)
        before = after


def test_vector_env_truncates_each_agent_at_its_own_limit() -> None:
    vector = MazeVectorEnv(2, SMALL, max_episode_steps=3)
    vector.reset(seed=0)
    vector.elapsed[1] = 1
    ends = [vector.step(np.full(2, STAY))[3].tolist() for _ in range(6)]
    assert ends == [[False, False], [False, True], [True, False], [False, False], [False, True], [True, False]]


def test_vector_env_starts_and_restarts_uniformly() -> None:
    vector = MazeVectorEnv(2000, SMALL, max_episode_steps=1)
    first, _ = vector.reset(seed=0)
    again, _, _, _, infos = vector.step(np.full(2000, STAY))
    assert (infos["final_obs"] == first).all()
    assert infos["_final_obs"].all()
    for starts in (first, again):
        cells, counts = np.unique(starts, return_counts=True)
        assert cells.tolist() == [6, 7, 11, 12, 13]
        assert np.abs(counts - 400).max() < 90
    assert 200 < (first == again).sum() < 600  # independent: one fifth agree


def test_a_seed_fixes_every_start() -> None:
    def starts(seed: int) -> list[int]:
        env = gym.make("anyreward/FourRooms-v0")
        return [int(env.reset(seed=seed)[0]), *(int(env.reset()[0]) for _ in range(10))]

    def vector_run(seed: int) -> list[list[int]]:
        env = MazeVectorEnv(3, max_episode_steps=2)
        cells = [env.reset(seed=seed)[0]]
        return [c.tolist() for c in cells + [env.step(np.full(3, RIGHT))[0] for _ in range(10)]]

    assert starts(1) == starts(1) != starts(2)
    assert vector_run(1) == vector_run(1) != vector_run(2)


def test_a_custom_maze_by_gymnasium_id() -> None:
    env = gym.make("anyreward/Maze-v0", drawing=SMALL)
    assert env.observation_space == gym.spaces.Discrete(20)
    env.reset(options={"cell": 12})
    assert [int(env.step(a)[0]) for a in (UP, RIGHT, DOWN, RIGHT, STAY)] == [7, 7, 12, 13, 13]
    vector = gym.make_vec("anyreward/Maze-v0", num_envs=5, drawing=SMALL)
    assert set(vector.reset(seed=0)[0].tolist()) <= {6, 7, 11, 12, 13}


def test_a_custom_maze_from_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "corner.txt"
    path.write_text(SMALL + "\n")
    world = open_world(path)
    assert (world.name, world.actions, world.feature_names) == ("corner", 5, ("x", "y"))
    assert world.feature_table is not None
    assert world.feature_table[13].tolist() == [3, 2]
    assert world.make().reset(options={"cell": 13})[0] == 13
    vector = world.make_vector(4)
    assert vector.num_envs == 4
    assert set(vector.reset(seed=0)[0].tolist()) <= {6, 7, 11, 12, 13}
    assert (
        open_world(str(path)).recipe == world.recipe == {"id": "anyreward/Maze-v0", "kwargs": {"drawing": SMALL + "\n"}}
    )


def test_worlds_by_name_and_what_is_no_world(tmp_path: Path) -> None:
    assert open_world("four-rooms").observation_space == gym.spaces.Discrete(121)
    with pytest.raises(UserError, match=r"no maze drawing at .*none\.txt"):
        open_world(tmp_path / "none.txt")
    with pytest.raises(UserError, match=r"'five-rooms' is neither.*four-rooms.*\.txt"):
        open_world("five-rooms")


def test_a_world_from_an_environment_object() -> None:
    env = gym.make("anyreward/Maze-v0", drawing=SMALL)
    world = open_world(env)
    assert world.make() is env
    assert world.make_vector(8).num_envs == 1
    assert open_world(world) is world
    vector = open_world(MazeVectorEnv(3, SMALL))
    assert vector.make_vector(1).num_envs == 3
    assert vector.make is None


def reachable(drawing: str) -> int:
    """How many free cells can be reached from the first, found step by step."""
    maze = parse_maze(drawing)
    seen, edge = {int(maze.free[0])}, [int(maze.free[0])]
    while edge:
        edge = [int(n) for cell in edge for n in set(maze.successors[cell]) - seen]
        seen |= set(edge)
    return len(seen)


@pytest.mark.parametrize(
    ("name", "cells"), [("four-rooms", 68), ("labyrinth", 72), ("pillars", 65), ("random-maze", 57)]
)
def test_named_mazes_are_in_one_piece(name: str, cells: int) -> None:
    world = open_world(name)
    assert world.make is not None
    env = world.make()
    assert isinstance(env.unwrapped, MazeEnv)
    assert len(env.unwrapped.maze.free) == reachable(env.unwrapped.maze.drawing) == cells
    many = world.make_vector(3)
    assert isinstance(many, MazeVectorEnv)
    assert many.maze.drawing == env.unwrapped.maze.drawing


@pytest.mark.parametrize("seed", range(20))
def test_random_mazes_are_walled_and_in_one_piece(seed: int) -> None:
    drawing = random_maze(seed, size=9, walls=0.4)
    lines = drawing.split("\n")
    assert [len(line) for line in lines] == [9] * 9
    assert set(lines[0] + lines[-1] + "".join(line[0] + line[-1] for line in lines)) == {"#"}
    assert reachable(drawing) == len(parse_maze(drawing).free)
    assert drawing == random_maze(seed, size=9, walls=0.4)
