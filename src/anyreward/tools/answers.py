"""Display of answers for `anyreward ask` and the demo: a table of scores, pictures and films."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.markup import escape

from anyreward.acting.play import Episode, rollout
from anyreward.acting.policy import Policy
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.figures.films import Film, draw_film, draw_square, save_gif
from anyreward.figures.maze import MazePanel, draw_maze_panels, film_path
from anyreward.model.features import FeatureMap
from anyreward.tools.tables import titled
from anyreward.worlds.continuous_maze import ContinuousMazeEnv
from anyreward.worlds.maze import Maze, MazeEnv
from anyreward.worlds.spaces import Array, stack

GRID = 81
"""Number of points along each side at which values are drawn."""
PATHS = 4
"""Number of paths drawn into a continuous maze."""
LONGEST = 1_000
"""Largest number of steps of a rollout."""


@dataclass(frozen=True)
class Answer:
    """The policy of a reward with a name, and the cell (x, y) where its drawn trajectory starts."""

    name: str
    policy: Policy
    start: tuple[int, int]


def maze_of(agent: Agent) -> Maze | None:
    """The maze of an agent, if its world is one and can be reopened."""
    make = agent.world().make if agent.world_recipe else None
    maze = getattr(make().unwrapped, "maze", None) if make else None
    return maze if isinstance(maze, Maze) else None


def show_in_maze(agent: Agent, maze: Maze, answers: list[Answer], figure: Path | None, console: Console) -> None:
    """Print a table of scores, and draw a picture if there is a path for it."""
    mdp, env = agent.exact_mdp(), MazeEnv(maze.drawing)
    table = titled("Rewards never seen in training", ("task",), ("value", "optimal", "ratio", "trust"))
    panels = []
    for answer in answers:
        scores = agent.score(answer.policy, mdp)
        ratio = scores.ratio[0]
        shown = "-" if np.isnan(ratio) else f"{ratio:.3f}"
        verdict = "-" if agent.knowledge.method.goals_only else answer.policy.trust.verdict
        table.add_row(escape(answer.name), f"{scores.value[0]:.2f}", f"{scores.optimal[0]:.2f}", shown, verdict)
        title = f"{answer.name}\n{scores.value[0]:.1f} of at most {scores.optimal[0]:.1f}"
        panels.append(_panel(maze, env, answer, title))
    console.print(table)
    if figure is not None:
        console.print(f"Picture: {draw_maze_panels(maze, panels, figure)}", markup=False)


def _panel(maze: Maze, env: MazeEnv, answer: Answer, title: str) -> MazePanel:
    """The drawing of one answer."""
    policy, start = answer.policy, answer.start[1] * maze.width + answer.start[0]
    episode = rollout(policy, env, max_steps=50, options={"cell": start})[0]
    landmarks = []
    if policy.model.landmarks is not None and not (policy.corrections or policy.clueless) and policy.tuned is None:
        (x, y), gap = policy.landmark(start)
        title += f"\nheads for ({x:g}, {y:g}), ahead by {gap:.2g}"
        landmarks = [(int(x), int(y))]
    goals, forbidden = (_cells(policy, maze, sign) for sign in (1, -1))
    return MazePanel(
        title=title,
        value=policy.value(maze.free),
        actions=policy.probabilities(maze.free).argmax(1),  # act would warn of cells that were never visited
        path=maze.coordinates[np.asarray(episode.observations)],
        goals=goals,
        forbidden=forbidden,
        landmarks=landmarks,
    )


def _cells(policy: Policy, maze: Maze, sign: int) -> list[tuple[int, int]]:
    """The (x, y) of the goals of a policy's reward whose weight has this sign."""
    cells = _goals(policy, sign)[:, 0].astype(int)
    return [(int(x), int(y)) for x, y in maze.coordinates[cells]]


def _goals(policy: Policy, sign: int) -> Array:
    """(n, k) the packed features of the goals of a policy's reward whose weight has this sign."""
    rows = [term.goal_rows(policy.knowledge) for weight, term in policy.reward.terms if weight * sign > 0]
    phi = policy.model.phi
    goals = [goal[0, : phi.state_packed].numpy() for goal in rows if goal is not None]
    return np.array(goals).reshape(-1, phi.state_packed)


def show_played(agent: Agent, policy: Policy, figure: Path | None, video: Path | None, seed: int = 0) -> None:
    """Write a picture or film of a rollout, or of values and paths in the continuous maze; prints the file names."""
    if figure is None and video is None:
        return
    if video is not None:
        film_path(video)
    recipe, reward = agent.world_recipe, policy.reward
    if recipe is None:
        raise UserError("This agent's world cannot be reopened, so its policies cannot be drawn.")
    if recipe["id"] == "anyreward/ContinuousMaze-v0" and figure is not None:
        env = gym.make(recipe["id"], **recipe["kwargs"])
        assert isinstance(env.unwrapped, ContinuousMazeEnv)
        paths = [
            features_along(agent.model.phi, rollout(policy, env, seed=seed + i, max_steps=LONGEST)[0])
            for i in range(PATHS)
        ]
        x, y = np.meshgrid(*[np.linspace(0, 1, GRID, dtype=np.float32)] * 2)
        values, walls = policy.value(np.stack([x.ravel(), y.ravel()], 1)).reshape(GRID, GRID), env.unwrapped.plane.walls
        print("Picture:", draw_square(str(reward), values, walls, paths, _goals(policy, 1), _goals(policy, -1), figure))
        env.close()
        figure = None
    if figure is None and video is None:
        return
    try:
        film = _record(policy, seed, recipe)
    except (TypeError, ImportError, gym.error.Error) as error:
        raise UserError(f"{agent.world_name} cannot be rendered: {error}") from error
    if figure is not None:
        print("Picture:", draw_film(film, figure, str(reward)))
    if video is not None:
        print("Film:", save_gif(film, video))


def features_along(phi: FeatureMap, episode: Episode) -> Array:
    """(steps + 1, k) the features along an episode, without actions."""
    batch = stack(phi.observation_space, episode.observations)
    rows = phi.of(batch, phi.seen(batch), np.zeros(len(episode.observations), dtype=np.int64))
    return rows[:, : phi.state_packed]


def _record(policy: Policy, seed: int, recipe: dict[str, Any]) -> Film:
    """Render one episode; a world that shows a desired goal shows the first goal of the policy's reward."""
    env = gym.make(recipe["id"], render_mode="rgb_array", **recipe["kwargs"])
    parts = env.observation_space.spaces if isinstance(env.observation_space, gym.spaces.Dict) else {}
    options, phi, goals = None, policy.model.phi, _goals(policy, 1)
    if "desired_goal" in parts and len(goals):
        options = {"goal": goals[0][: gym.spaces.flatdim(parts["desired_goal"])]}
    elif hasattr(env.unwrapped, "hide_goal"):
        env.unwrapped.hide_goal()
    images: list[Array] = []

    def record() -> None:
        images.append(np.asarray(env.render()))

    episode = rollout(policy, env, seed=seed, max_steps=LONGEST, options=options, on_step=record)[0]
    pixels = getattr(env.unwrapped, "pixels", None) if phi.kind != "function" else None
    way, good, bad = (
        np.asarray(pixels(rows)) if pixels and len(rows) else np.zeros((0, 2))
        for rows in (features_along(phi, episode), goals, _goals(policy, -1))
    )
    env.close()
    return Film(images, way, good, bad, float(env.metadata.get("render_fps") or 10))
