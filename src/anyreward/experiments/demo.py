"""The demo: train on the four rooms without reward, then answer three rewards never seen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from anyreward.acting.policy import Policy
from anyreward.acting.rollout import rollout
from anyreward.agent import Agent
from anyreward.figures.maze import MazePanel, draw_maze_panels
from anyreward.rewards.places import goal_rows
from anyreward.rewards.reward import Goal, Reward, goal
from anyreward.training import train
from anyreward.worlds.maze import Maze, MazeEnv

UPDATES = 8_000


@dataclass(frozen=True)
class Task:
    """A reward with a name, and where its picture's trajectory starts, as (x, y)."""

    name: str
    reward: Reward
    start: tuple[int, int]
    policy: Policy | None = None
    """The answer, if it was asked for already."""


def demo_tasks() -> list[Task]:
    """One goal; one goal with costs in the way, a door and the cell before it; the nearest of two goals.

    Passing the door costs less than the way around it, so the best policy of the second pays.
    """
    costly = goal(4, 2) + goal(5, 2)
    return [
        Task("reach the goal", goal(9, 9), (2, 2)),
        Task("reach it, two cells cost half", goal(8, 2) - 0.5 * costly, (2, 2)),
        Task("reach the nearest of two", goal(1, 9) + goal(9, 1), (8, 4)),
    ]


def maze_of(agent: Agent) -> Maze | None:
    """The maze that an agent lives in, if it is one and can be reopened."""
    make = agent.world().make if agent.world_recipe else None
    maze = getattr(make().unwrapped, "maze", None) if make else None
    return maze if isinstance(maze, Maze) else None


def answer(agent: Agent, maze: Maze, tasks: list[Task], figure: Path | None, console: Console) -> None:
    """Ask every task, print the table, draw the picture if there is a place for it."""
    mdp, env = agent.exact_mdp(), MazeEnv(maze.drawing)
    table = Table(title="Rewards never seen in training", title_justify="left")
    table.add_column("task")
    for column in ("value", "optimal", "ratio", "trust"):
        table.add_column(column, justify="right")
    panels = []
    for task in tasks:
        policy = task.policy or agent.ask(task.reward)
        scores = agent.score(policy, mdp)
        ratio = scores.ratio[0]
        shown = "-" if np.isnan(ratio) else f"{ratio:.3f}"
        verdict = "-" if agent.representation.of_goals else policy.trust.verdict
        table.add_row(task.name, f"{scores.value[0]:.2f}", f"{scores.optimal[0]:.2f}", shown, verdict)
        start = task.start[1] * maze.width + task.start[0]
        episode = rollout(policy, env, max_steps=50, options={"cell": start})[0]
        heads, title = _heads(policy, start), f"{task.name}\n{scores.value[0]:.1f} of at most {scores.optimal[0]:.1f}"
        if heads:
            (x, y), gap = heads
            title += f"\nheads for ({x:g}, {y:g}), ahead by {gap:.2g}"
        panels.append(
            MazePanel(
                title=title,
                value=policy.value(maze.free),
                actions=policy.act(maze.free),
                path=maze.coordinates[np.asarray(episode.observations)],
                goals=_cells(agent, maze, task.reward, sign=1),
                forbidden=_cells(agent, maze, task.reward, sign=-1),
                landmarks=[(int(heads[0][0]), int(heads[0][1]))] if heads else [],
            )
        )
    console.print(table)
    if figure is not None:
        draw_maze_panels(maze, panels, figure)
        console.print(f"Picture: {figure}")


def _heads(policy: Policy, start: int) -> tuple[np.ndarray[Any, Any], float] | None:
    """The (x, y) of the landmark that leads from a cell, and its lead; None where none explains the answer."""
    if policy.representation.landmarks is None or policy.corrections or policy.tuned is not None or policy.clueless:
        return None
    place, gap = policy.landmark(start)
    return place, float(gap)


def _cells(agent: Agent, maze: Maze, target: Reward, sign: int) -> list[tuple[int, int]]:
    """The (x, y) of the goals of a reward whose weight has a sign."""
    goals = [term for weight, term in target.terms if isinstance(term, Goal) and weight * sign > 0]
    rows = [goal_rows(term, agent.features, agent.representation)[0] for term in goals]
    return [(int(x), int(y)) for x, y in (maze.coordinates[int(row[0])] for row in rows)]


def run_demo(out: Path, updates: int = UPDATES, seed: int = 0) -> None:
    """Train, ask, print and draw."""
    console = Console()
    console.print("Learning the four rooms without any reward ...")
    started = time.perf_counter()
    agent = train("four-rooms", updates=updates, seed=seed, out=out, overwrite=True)
    console.print(f"Trained in {time.perf_counter() - started:.0f} s.")
    maze = maze_of(agent)
    assert maze is not None
    answer(agent, maze, demo_tasks(), out / "answers.png", console)
    console.print(f"Agent:   {out}  (ask it more: anyreward ask {out} --goal 9,9)")
