"""The demo: train on the four rooms without reward, then answer three rewards never seen."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from anyreward.agent import Agent
from anyreward.rewards.terms import goal
from anyreward.tools.answers import Answer, maze_of, show_in_maze
from anyreward.training import train

UPDATES = 8_000


def demo_answers(agent: Agent) -> list[Answer]:
    """One goal; one goal with costs at a door and the cell before it; the nearest of two goals.

    Passing the door costs less than the detour, so the optimal policy of the second reward goes through it.
    """
    costly = goal(4, 2) + goal(5, 2)
    return [
        Answer("reach the goal", agent.ask(goal(9, 9)), (2, 2)),
        Answer("reach it, two cells cost half", agent.ask(goal(8, 2) - 0.5 * costly), (2, 2)),
        Answer("reach the nearest of two", agent.ask(goal(1, 9) + goal(9, 1)), (8, 4)),
    ]


def run_demo(out: Path, updates: int, seed: int) -> None:
    """Train, ask, print and draw."""
    console = Console()
    console.print("Training in the four rooms without reward ...")
    started = time.perf_counter()
    agent = train("four-rooms", updates=updates, seed=seed, out=out, overwrite=True)
    console.print(f"Trained in {time.perf_counter() - started:.0f} s.")
    maze = maze_of(agent)
    assert maze is not None
    show_in_maze(agent, maze, demo_answers(agent), out / "answers.png", console)
    console.print(f"Agent:   {out}  (ask for another policy: anyreward ask {out} --goal 9,9)")
