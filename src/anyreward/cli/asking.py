"""`anyreward ask`: answer a reward that is given on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.rewards.files import read_demonstration, read_samples
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import check_task_path, from_z, goal
from anyreward.rewards.terms import reward as reward_of
from anyreward.tools.answers import Question, maze_of, show_in_maze, show_played
from anyreward.worlds.maze import Maze


@dataclass(frozen=True)
class Ask:
    """Ask a trained agent for the policy of a reward, which is the sum of all terms given here."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    goal: tuple[str, ...] = ()
    """Goals to reach: their features, such as 9,9 (x,y of a maze cell). Append :2 for a weight of 2, also to files and
    environments."""
    avoid: tuple[str, ...] = ()
    """Goals to avoid: their features; the weight is -0.5, or with :2 appended -2."""
    reward: tuple[str, ...] = ()
    """Expressions over the features' names, such as "(x > 6) * exp(-y)"."""
    samples: tuple[str, ...] = ()
    """Files of reward samples: .npz (features, rewards) or .csv (column names in the first line, reward last)."""
    distribution: Literal["training", "other"] = "training"
    """Distribution of the samples: that of the training data, or any other."""
    demonstration: tuple[str, ...] = ()
    """Files of demonstrations to follow: .npz (observations, and actions if B sees actions)."""
    environment: tuple[str, ...] = ()
    """Gymnasium ids of environments like the agent's own, whose reward is sampled by exploring again."""
    budget: int = 10_000
    """Number of steps in each of these environments."""
    z: tuple[str, ...] = ()
    """Files of z written by --save."""
    save: Path | None = None
    """Write z to this .json file."""
    start: str | None = None
    """Mazes: the cell x,y where the drawn trajectory starts (default: the first free cell)."""
    figure: Path | None = None
    """Write a picture of the answer to this PNG: values and a path in a maze, a rollout elsewhere."""
    video: Path | None = None
    """Write a film of a rollout to this GIF, where the world can be rendered."""
    refine: int = 0
    """Refine the answer by this number of steps of value iteration on kept transitions (categorical worlds only)."""
    improve: str | None = None
    """Generalised policy improvement over this number of z drawn as in training, or over "goals"."""
    seed: int = 0
    """Seed of rollouts and exploration."""

    def run(self) -> None:
        """Print the answer and how far to trust it; draw a picture on request."""
        agent = Agent.load(self.run_folder)
        maze = maze_of(agent)
        if maze is not None and self.video:
            raise UserError("--video is not available for mazes; use --figure.")
        start = (0, 0) if maze is None else _start_cell(self.start, maze)
        if self.save is not None:
            check_task_path(self.save)
        reward = self._reward(agent)
        improve = None if self.improve is None else _whole_number(self.improve)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            policy = agent.ask(reward, self.refine, improve)
        console = Console()
        for warning in caught:
            console.print(f"Note: {warning.message}", highlight=False, soft_wrap=True, markup=False)
        if maze is None:
            size = policy.reward_scale * float(policy.z.norm())
            console.print(
                f"reward       {reward}\n|z_R|        {size:.4g}", highlight=False, soft_wrap=True, markup=False
            )
            show_played(agent, policy, reward, self.figure, self.video, self.seed)
        else:
            show_in_maze(agent, maze, [Question(str(reward), reward, start, policy)], self.figure, console)
            if not reward.has_values:
                console.print("Values are those of the reward as represented by B.", soft_wrap=True)
        if not agent.knowledge.method.goals_only:
            console.print(str(policy.trust), highlight=False, soft_wrap=True, markup=False)
        if self.save is not None:
            console.print(f"z: {policy.save(self.save)}", highlight=False, soft_wrap=True)

    def _reward(self, agent: Agent) -> Reward:
        """The sum of all terms."""
        explore = partial(agent.sample_rewards, budget=self.budget, seed=self.seed)
        terms = [_weighted(text, _goal) for text in self.goal]
        terms += [-_weighted(text, _goal, 0.5) for text in self.avoid]
        terms += [reward_of(text) for text in self.reward]
        terms += [
            _weighted(text, lambda name: read_samples(Path(name), agent.model.phi.column_names, self.distribution))
            for text in self.samples
        ]
        terms += [_weighted(text, lambda name: read_demonstration(Path(name))) for text in self.demonstration]
        terms += [_weighted(text, explore) for text in self.environment]
        terms += [_weighted(text, lambda name: from_z(Path(name))) for text in self.z]
        if not terms:
            raise UserError(
                "There is no reward to answer. Give one: --goal, --reward, --samples, --demonstration, --environment "
                "or --z (anyreward ask --help)."
            )
        return sum(terms, start=Reward(()))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"{text!r} is not a list of numbers; write the features separated by commas, such as 9,9."
        ) from None


def _goal(text: str) -> Reward:
    return goal(_numbers(text))


def _weighted(text: str, make: Callable[[str], Reward], weight: float = 1.0) -> Reward:
    """The weighted reward of TEXT or TEXT:WEIGHT; a colon that is not followed by a number belongs to the text."""
    place, colon, given = text.rpartition(":")
    if not colon:
        return weight * make(text)
    try:
        size = float(given)
    except ValueError:
        return weight * make(text)
    return size * make(place)


def _whole_number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _start_cell(text: str | None, maze: Maze) -> tuple[int, int]:
    """The (x, y) of --start, or of the first free cell."""
    places = [(int(x), int(y)) for x, y in maze.coordinates[maze.free]]
    given = places[0] if text is None else tuple(_numbers(text))
    if given not in places:
        raise UserError(
            f"--start {text} is not a free cell of this maze; write x,y such as {places[0][0]},{places[0][1]}."
        )
    return int(given[0]), int(given[1])
