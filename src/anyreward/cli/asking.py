"""`anyreward ask`: the policy for a reward that is given on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from anyreward.agent import Agent
from anyreward.errors import UserError, shown
from anyreward.figures.maze import picture_path
from anyreward.learning.settings import Range, Seed, check_fields
from anyreward.rewards.files import read_demonstration, read_samples
from anyreward.rewards.painted import read_painted
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import check_task_path, from_z, goal
from anyreward.rewards.terms import reward as reward_of
from anyreward.tools.answers import Answer, maze_of, show_in_maze, show_played
from anyreward.worlds.maze import Maze


@dataclass(frozen=True)
class Ask:
    """Get the policy of a trained agent for a reward: the sum of all goals, expressions and other terms given here."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    goal: tuple[str, ...] = ()
    """Goals to reach, by their features, such as 9,9 (x,y of a maze cell).
    Append :2 for a weight of 2, here and to files and environments."""
    avoid: tuple[str, ...] = ()
    """Goals to avoid, by their features. The weight is -0.5, or -2 with :2 appended."""
    reward: tuple[str, ...] = ()
    """Expressions in the names of the features, such as "(x > 6) * exp(-y)"."""
    samples: tuple[str, ...] = ()
    """Files of reward samples: .npz (features, rewards) or .csv (column names in the first line, reward last)."""
    distribution: Literal["training", "other"] = "training"
    """Distribution that the samples were drawn from: that of the training data, or another one."""
    demonstration: tuple[str, ...] = ()
    """Files of demonstrations to follow: .npz (observations, and actions if B sees actions)."""
    painted: tuple[str, ...] = ()
    """Rewards painted over two features: JSON with features, low, high, shape and runs, or a .json file of it
    (docs/rewards.md)."""
    environment: tuple[str, ...] = ()
    """Gymnasium ids of environments with the agent's spaces. Their reward is sampled by the exploration policy."""
    budget: Annotated[int, Range(1, most=10_000_000)] = 10_000
    """Number of steps in each --environment."""
    z: tuple[str, ...] = ()
    """Files of task vectors z, written by --save."""
    save: Path | None = None
    """Write the task vector z to this .json file."""
    start: str | None = None
    """For mazes: the cell x,y where the drawn trajectory starts. Without it: the first free cell."""
    figure: Path | None = None
    """Write a picture of the policy to this PNG: values and a trajectory in a maze, a rollout elsewhere."""
    video: Path | None = None
    """Write a film of a rollout to this GIF, if the environment can be rendered."""
    refine: int | None = None
    """Plan for this reward, on transitions kept with the agent. 0: no planning, F . z alone.
    If observations are categories: the number of steps of value iteration.
    If they are at most eight numbers and F is a network: any positive number plans among kept points. Without this
    option, that is done if it is better in simulated episodes."""
    improve: int | str | None = None
    """Generalised policy improvement over this number of z, drawn as in training, or over the z of visited states
    ("goals")."""
    seed: Seed = 0
    """Seed of rollouts and exploration."""

    def __post_init__(self) -> None:
        check_fields(self, "--")

    def run(self) -> None:
        """Print the policy's values and its trust report; draw a picture on request."""
        if self.figure is not None:  # before anything is computed
            picture_path(self.figure)
        agent = Agent.load(self.run_folder)
        maze = maze_of(agent)
        if maze is not None and self.video:
            raise UserError("--video is not available for mazes; use --figure.")
        start = (0, 0) if maze is None else _start_cell(self.start, maze)
        if self.save is not None:
            check_task_path(self.save)
        reward = self._reward(agent)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            refine = 0 if self.save is not None and self.refine is None else self.refine  # planning is not saved
            policy = agent.ask(reward, refine, self.improve)
        console = Console()
        show = partial(console.print, highlight=False, soft_wrap=True, markup=False)
        for warning in caught:
            show(f"Note: {warning.message}")
        if maze is None:
            size = policy.reward_scale * float(policy.z.norm())
            how = "planned on kept transitions, from F . z" if policy.refined else "F . z"
            show(f"reward       {reward}\n|z_R|        {size:.4g}\nanswer       {how}")
            show_played(agent, policy, self.figure, self.video, self.seed)
        else:
            show_in_maze(agent, maze, [Answer(str(reward), policy, start)], self.figure, console)
            if not reward.has_values:
                show("The values are those of the reward as represented by B.")
        if not agent.knowledge.method.goals_only:
            show(str(policy.trust))
        if self.save is not None:
            show(f"z: {policy.save(self.save)}")

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
        terms += [_weighted(text, read_painted) for text in self.painted]
        terms += [_weighted(text, explore) for text in self.environment]
        terms += [_weighted(text, lambda name: from_z(Path(name))) for text in self.z]
        if not terms:
            raise UserError(
                "No reward is given. Use --goal, --avoid, --reward, --samples, --demonstration, --painted, --z or "
                "--environment (anyreward ask --help)."
            )
        return sum(terms, start=Reward(()))


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"{shown(text)} is not a list of numbers; give the features separated by commas, such as 9,9."
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


def _start_cell(text: str | None, maze: Maze) -> tuple[int, int]:
    """The (x, y) of --start, or of the first free cell."""
    places = [(int(x), int(y)) for x, y in maze.coordinates[maze.free]]
    given = places[0] if text is None else tuple(_numbers(text))
    if given not in places:
        raise UserError(
            f"--start {shown(text)} is not a free cell of this maze; give x,y such as {places[0][0]},{places[0][1]}."
        )
    return int(given[0]), int(given[1])
