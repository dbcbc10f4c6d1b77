"""Display of answers for `anyreward ask` and the demo: a table of scores, pictures and films."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

from anyreward.acting.play import Episode, rollout
from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.figures.films import Film, draw_film, draw_square, save_gif
from anyreward.figures.maze import MazePanel, draw_maze_panels
from anyreward.model.features import FeatureMap
from anyreward.rewards.reward import Reward
from anyreward.worlds.continuous_maze import ContinuousMazeEnv
from anyreward.worlds.maze import Maze, MazeEnv
from anyreward.worlds.spaces import pack_seen, stack

Array = np.ndarray[Any, Any]
GRID = 81
"""Number of points along each side at which values are drawn."""
PATHS = 4
"""Number of paths drawn into a continuous maze."""
LONGEST = 1_000
"""Largest number of steps of a rollout."""


@dataclass(frozen=True)
class Question:
    """A reward with a name, its answer, and the cell (x, y) where the drawn trajectory starts."""

    name: str
    reward: Reward
    start: tuple[int, int]
    policy: Policy | None = None
    """The answer, if it was computed already."""


def maze_of(agent: Agent) -> Maze | None:
    """The maze of an agent, if its world is one and can be reopened."""
    make = agent.world().make if agent.world_recipe else None
    maze = getattr(make().unwrapped, "maze", None) if make else None
    return maze if isinstance(maze, Maze) else None


def show_in_maze(agent: Agent, maze: Maze, questions: list[Question], figure: Path | None, console: Console) -> None:
    """Ask every question, print a table of scores, and draw a picture if there is a path for it."""
    mdp, env = agent.exact_mdp(), MazeEnv(maze.drawing)
    table = Table(title="Rewards never seen in training", title_justify="left")
    table.add_column("task")
    for column in ("value", "optimal", "ratio", "trust"):
        table.add_column(column, justify="right")
    panels = []
    for question in questions:
        policy = question.policy or agent.ask(question.reward)
        scores = agent.score(policy, mdp)
        ratio = scores.ratio[0]
        shown = "-" if np.isnan(ratio) else f"{ratio:.3f}"
        verdict = "-" if agent.knowledge.method.goals_only else policy.trust.verdict
        table.add_row(question.name, f"{scores.value[0]:.2f}", f"{scores.optimal[0]:.2f}", shown, verdict)
        title = f"{question.name}\n{scores.value[0]:.1f} of at most {scores.optimal[0]:.1f}"
        panels.append(_panel(maze, env, question, policy, title))
    console.print(table)
    if figure is not None:
        draw_maze_panels(maze, panels, figure)
        console.print(f"Picture: {figure}")


def _panel(maze: Maze, env: MazeEnv, question: Question, policy: Policy, title: str) -> MazePanel:
    """The drawing of one answer."""
    start = question.start[1] * maze.width + question.start[0]
    episode = rollout(policy, env, max_steps=50, options={"cell": start})[0]
    heads = _landmark(policy, start)
    if heads:
        (x, y), gap = heads
        title += f"\nheads for ({x:g}, {y:g}), ahead by {gap:.2g}"
    goals, forbidden = (_cells(policy, maze, question.reward, sign) for sign in (1, -1))
    return MazePanel(
        title=title,
        value=policy.value(maze.free),
        actions=policy.act(maze.free),
        path=maze.coordinates[np.asarray(episode.observations)],
        goals=goals,
        forbidden=forbidden,
        landmarks=[(int(heads[0][0]), int(heads[0][1]))] if heads else [],
    )


def _landmark(policy: Policy, start: int) -> tuple[Array, float] | None:
    """The (x, y) of the best landmark from a cell, and its lead; None if the answer does not come from landmarks."""
    if policy.model.landmarks is None or policy.corrections or policy.tuned is not None or policy.clueless:
        return None
    place, gap = policy.landmark(start)
    return place, float(gap)


def _cells(policy: Policy, maze: Maze, reward: Reward, sign: int) -> list[tuple[int, int]]:
    """The (x, y) of the goals of a reward whose weight has this sign."""
    rows = []
    for weight, term in reward.terms:
        goal = term.goal_rows(policy.knowledge)
        if goal is not None and weight * sign > 0:
            rows.append(goal[0])
    return [(int(x), int(y)) for x, y in (maze.coordinates[int(row[0])] for row in rows)]


def show_played(
    agent: Agent, policy: Policy, reward: Reward, figure: Path | None, video: Path | None, seed: int = 0
) -> None:
    """Write a picture or film of a rollout, or of values and paths in the continuous maze; prints the file names."""
    if figure is None and video is None:
        return
    if video is not None and video.suffix.lower() != ".gif":
        raise UserError(f"Films are written as GIFs; {video.name} does not end in .gif.")
    if agent.world_recipe is None:
        raise UserError("This agent's world cannot be reopened, so its answers cannot be drawn.")
    recipe = agent.world_recipe
    goals, forbidden = (drawn_goals(reward, sign) for sign in (1, -1))
    if recipe["id"] == "anyreward/ContinuousMaze-v0" and figure is not None:
        env = gym.make(recipe["id"], **recipe["kwargs"])
        assert isinstance(env.unwrapped, ContinuousMazeEnv)
        paths = [
            features_along(agent.model.phi, rollout(policy, env, seed=seed + i, max_steps=LONGEST)[0])
            for i in range(PATHS)
        ]
        panel = (str(reward), values_on_grid(policy), paths, goals, forbidden)
        print("Picture:", draw_square([panel], env.unwrapped.plane.walls, figure))
        env.close()
        figure = None
    if figure is None and video is None:
        return
    film = record(agent, policy, reward, seed)
    if figure is not None:
        print("Picture:", draw_film(film, goals, forbidden, figure, str(reward)))
    if video is not None:
        print("Film:", save_gif(film, goals, forbidden, video))


def drawn_goals(reward: Reward, sign: int) -> Array:
    """(n, k) the goals of a reward whose weight has this sign."""
    found = reward.goals(sign)
    return np.array(found) if found else np.zeros((0, 2))


def values_on_grid(policy: Policy) -> Array:
    """(k, k) the value of every point of a grid over the unit square, by y and x."""
    ticks = np.linspace(0, 1, GRID, dtype=np.float32)
    x, y = np.meshgrid(ticks, ticks)
    return policy.value(np.stack([x.ravel(), y.ravel()], 1)).reshape(GRID, GRID)


def features_along(phi: FeatureMap, episode: Episode) -> Array:
    """(steps + 1, k) the features along an episode, without actions."""
    batch = stack(phi.observation_space, episode.observations)
    rows = phi.of(batch, pack_seen(phi.observation_space, batch), np.zeros(len(episode.observations), dtype=np.int64))
    return rows[:, :-1] if phi.include_action else rows


def record(agent: Agent, policy: Policy, reward: Reward, seed: int = 0) -> Film:
    """Render one episode; in a world with goals, the first goal of the reward is set."""
    assert agent.world_recipe is not None
    try:
        return _record(agent, policy, reward, seed, agent.world_recipe)
    except (TypeError, ImportError, gym.error.Error) as error:
        raise UserError(f"{agent.world_name} cannot be rendered: {error}") from error


def _record(agent: Agent, policy: Policy, reward: Reward, seed: int, recipe: dict[str, Any]) -> Film:
    env = gym.make(recipe["id"], render_mode="rgb_array", **recipe["kwargs"])
    goals = drawn_goals(reward, 1)
    parts = env.observation_space.spaces if isinstance(env.observation_space, gym.spaces.Dict) else {}
    options = None
    if "desired_goal" in parts and len(goals):
        options = {"goal": goals[0][: gym.spaces.flatdim(parts["desired_goal"])]}  # without the action
    images: list[Array] = []
    episode = rollout(
        policy,
        env,
        seed=seed,
        max_steps=LONGEST,
        options=options,
        on_step=lambda: images.append(np.asarray(env.render())),
    )[0]
    on_screen, fps = bool(getattr(env.unwrapped, "on_screen", False)), float(env.metadata.get("render_fps") or 10)
    env.close()
    return Film(images, features_along(agent.model.phi, episode), on_screen, fps)
