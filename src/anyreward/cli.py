"""Learn one representation of a world without reward, then answer any reward at once."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anyreward.acting.goals import goal_test_of
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.experiments.all_rewards import suite
from anyreward.experiments.bench import PARTS, Part, run_bench
from anyreward.experiments.demo import UPDATES, Task, answer, maze_of, run_demo
from anyreward.experiments.doctor import check_parts
from anyreward.experiments.pictures import picture
from anyreward.experiments.sweep import train_seeds
from anyreward.learning.presets import Settings, preset
from anyreward.loading import load
from anyreward.rewards.reward import Reward, goal
from anyreward.storage.files import write_json
from anyreward.training import resume, train
from anyreward.worlds.maze import Maze
from anyreward.worlds.world import NAMED, open_world


@dataclass(frozen=True)
class Train:
    """Learn a representation without reward, online in a world or offline from a dataset."""

    source: tyro.conf.Positional[str]
    """four-rooms, a Gymnasium id, a maze drawing (.txt), or a dataset (.npz, a Minari folder, minari:ID)."""
    settings: tyro.conf.OmitArgPrefixes[Settings]
    preset: Literal["fast", "paper"] = "fast"
    """Where the settings below start from."""
    out: Path | None = None
    """The run folder (default: runs/SOURCE-PRESET-seedSEED)."""
    overwrite: bool = False
    """Replace an agent that is in the run folder already."""
    tensorboard: bool = False
    """Write TensorBoard events too; metrics.jsonl is always written."""
    minutes: float | None = None
    """Stop after so long, if not done before; `anyreward continue` goes on."""
    seeds: tuple[int, ...] = ()
    """Train with each of these seeds, in parallel processes, into folders of their own (instead of --seed)."""

    def run(self) -> None:
        """Train and say where the agent is."""
        name = Path(self.source).stem if Path(self.source).suffix in (".txt", ".npz") else self.source
        slug = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        name = f"{slug}-{self.preset}-seed"
        if self.seeds:
            root = self.out / "seed" if self.out else Path("runs") / name
            folders = {seed: Path(f"{root}{seed}") for seed in self.seeds}
        else:
            folders = {self.settings.seed: self.out or Path("runs") / f"{name}{self.settings.seed}"}
        try:
            if self.seeds:
                options: dict[str, Any] = {"tensorboard": self.tensorboard, "minutes": self.minutes}
                train_seeds(self.source, self.settings, folders, self.overwrite, **options)
            else:
                out = folders[self.settings.seed]
                train(
                    self.source,
                    settings=self.settings,
                    out=out,
                    overwrite=self.overwrite,
                    tensorboard=self.tensorboard,
                    minutes=self.minutes,
                )
        except KeyboardInterrupt:
            raise _stopped(list(folders.values())) from None
        print("Agents:" if self.seeds else "Agent:", ", ".join(map(str, folders.values())))


@dataclass(frozen=True)
class Continue:
    """Go on with a training that was stopped, or that shall learn for longer."""

    run_folder: tyro.conf.Positional[Path]
    """The run's folder."""
    updates: int | None = None
    """How many updates in all (default: as many as the run was to have)."""
    source: str | None = None
    """Its dataset, where it learned from one."""
    tensorboard: bool = False
    """Write TensorBoard events too."""
    minutes: float | None = None
    """Stop after so long, if not done before."""
    replay_size: int | None = None
    """Transitions that the replay keeps, if not as many as before."""
    replay_file: str | None = None
    """Images only: where to keep frames, if not as before."""
    threads: int | None = None
    """CPU threads, if not as before."""

    def run(self) -> None:
        """Train on and say where the agent is."""
        try:
            given = {"replay_size": self.replay_size, "replay_file": self.replay_file, "threads": self.threads}
            changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            resume(
                self.run_folder,
                updates=self.updates,
                source=self.source,
                tensorboard=self.tensorboard,
                minutes=self.minutes,
                **changes,
            )
        except KeyboardInterrupt:
            raise _stopped([self.run_folder]) from None
        print("Agent:", self.run_folder)


def _stopped(folders: Sequence[Path]) -> UserError:
    kept = [str(folder) for folder in folders if (folder / "agent.json").exists()]
    saved = f"what it had learned is in {', '.join(kept)}" if kept else "nothing was saved"
    again = f" To go on: anyreward continue {kept[0]}" if kept else ""
    return UserError(f"Stopped; {saved}.{again}")


@dataclass(frozen=True)
class Ask:
    """Ask a trained agent for goals to reach and places to avoid."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    goal: tuple[str, ...]
    """Goals to reach: their features, such as 9,9 (x,y of a maze cell); append :2 to weigh one double."""
    avoid: tuple[str, ...] = ()
    """Places to avoid, written like goals; each weighs -0.5 unless it says otherwise."""
    start: str | None = None
    """Mazes: the cell x,y where the drawn trajectory starts (default: the first free cell)."""
    figure: Path | None = None
    """Write a picture of the answer to this PNG: values and a path in a maze, a rollout elsewhere."""
    video: Path | None = None
    """Write a film of a rollout to this GIF, where the world can be rendered."""
    refine: int = 0
    """Plan on top of the answer: so many steps of value iteration on kept transitions (categorical worlds)."""
    seed: int = 0
    """Seed of the rollout."""

    def run(self) -> None:
        """Answer, in a table and on request in a picture."""
        agent = load(self.run_folder)
        target = sum((_weighted(text, 1.0) for text in self.goal), start=Reward(()))
        target += sum((-_weighted(text, 0.5) for text in self.avoid), start=Reward(()))
        policy = agent.ask(target, self.refine)
        maze = maze_of(agent)
        if maze is None:
            print(
                f"reward  {target}\ntrust   {policy.trust}\n|z_R|   {policy.reward_scale * float(policy.z.norm()):.4g}"
            )
            picture(agent, policy, target, self.figure, self.video, self.seed)
            return
        if self.video:
            raise UserError("--video films worlds that are played; a maze is drawn whole: use --figure.")
        task = Task(str(target), target, _start_cell(self.start, maze))
        answer(agent, maze, [task], self.figure, Console(), self.refine)


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained agent: exactly where its world can be solved, else by playing for goals as the paper does."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    suite: Literal["goals", "all-rewards"] = "goals"
    """goals: the paper's policy quality, or its success rate where goals are played. all-rewards, in finite worlds:
    families of rewards, 0 = random, 1 = optimal."""
    goals: int | None = None
    """Where goals are played: how many random ones (default: all of the world's list, or 1,000)."""
    rewards: int = 300
    """Suite all-rewards: how many rewards a family (single goals: every state)."""
    seed: int = 0
    """Which rewards, or goals, starts and random actions."""
    temperature: float = 0.0
    """Suite all-rewards: act by softmax(F . z / temperature); 0 is greedy."""
    refine: int = 0
    """Suite all-rewards: steps of value iteration on kept transitions, on top of each answer."""
    json: Path | None = None
    """Write the figures to this file too."""

    def run(self) -> None:
        """Measure, print, write."""
        agent = load(self.run_folder)
        if self.suite == "all-rewards":
            figures = self._all_rewards(agent)
        elif agent.world_recipe is not None and agent.world().goal_test is not None:
            figures = self._played_goals(agent)
        else:
            figures = self._goals(agent)
        if self.json:
            write_json(self.json, {"agent": agent.fingerprint, "updates": agent.updates, **figures})

    def _all_rewards(self, agent: Agent) -> dict[str, Any]:
        if self.rewards < 1:
            raise UserError(f"--rewards is {self.rewards}; it must be positive.")
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"--temperature is {self.temperature}; it must be 0 (greedy) or positive.")
        table = Table(
            title=f"{agent.world_name}, any reward: 0 = random policy, 1 = optimal policy", title_justify="left"
        )
        for column in ("rewards", "mean", "median", "5th percentile", "worst", "number"):
            table.add_column(column, justify="left" if column == "rewards" else "right")
        figures: dict[str, Any] = {}
        said = []
        for name, scores in suite(agent, self.rewards, self.seed, self.temperature, self.refine).items():
            row = scores.summary()
            figures[name] = row
            cells = [f"{row[key]:.3f}" for key in ("mean", "median", "p5", "worst")]
            table.add_row(name, *cells, f"{row['rewards']:,}")
            if row["barely"]:
                said.append(f"{name}: for {row['barely']} of them the optimum is barely better than random.")
        Console().print(table)
        if not agent.features.include_action:
            said.append("Rewards on states and actions: this agent's B sees no actions, so it cannot tell them apart.")
        for line in said:
            print(line)
        how = {"seed": self.seed, "temperature": self.temperature, "refine": self.refine}
        return {"suite": "all-rewards", **how, "families": figures}

    def _played_goals(self, agent: Agent) -> dict[str, Any]:
        test = goal_test_of(agent.world())
        table = Table(title=f"{agent.world_name}: goals, {test.steps} steps each", title_justify="left")
        for column in ("policy", "goals", "reached", "95% interval", "distance at the end"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        figures = {}
        for name, epsilon in ((f"agent, epsilon {test.epsilon:g}", None), ("random", 1.0)):
            row = agent.reach_goals(self.goals, self.seed, epsilon).summary()
            figures[name] = row
            low, high = row["success_interval"]
            cells = (f"{row['goals']:,}", f"{row['success']:.3f}", f"{low:.3f} to {high:.3f}", f"{row['distance']:.3g}")
            table.add_row(name, *cells)
        Console().print(table)
        return {"seed": self.seed, "goals": figures}

    def _goals(self, agent: Agent) -> dict[str, Any]:
        mdp = agent.exact_mdp()
        table = Table(
            title=f"{agent.world_name}: value / optimal value over {len(mdp.live)} goals", title_justify="left"
        )
        for column in ("policy", "mean", "5th percentile", "worst"):
            table.add_column(column, justify="left" if column == "policy" else "right")
        figures = {}
        for name, temperature in (("Boltzmann, temperature 1", 1.0), ("greedy", 0.0)):
            ratio = agent.goal_quality(mdp, temperature).ratio
            row = {"mean": ratio.mean(), "p5": np.percentile(ratio, 5), "worst": ratio.min()}
            figures[name] = {key: float(value) for key, value in row.items()}
            table.add_row(name, *(f"{value:.3f}" for value in row.values()))
        Console().print(table)
        return {"goals": figures}


@dataclass(frozen=True)
class Bench:
    """Measure speed on this machine, on the four rooms and on images; close other programs first."""

    parts: tuple[Part, ...] = PARTS
    """What to measure."""
    dim: int = 100
    """d of the timed updates."""
    cycles: int = 50
    """Cycles of 40 updates to time."""
    plain: Path = Path("benchmarks/plain.py")
    """The plain implementation that an epoch is compared with."""
    compile: bool = True
    """Time compiled updates too."""
    json: Path | None = None
    """Write the figures to this file too."""

    def run(self) -> None:
        """Measure and print."""
        show = partial(print, file=sys.stderr)
        figures = run_bench(self.parts, self.dim, self.plain, show, self.cycles, self.compile)
        table = Table(show_header=False, box=None)
        for name, value in _rows(figures):
            table.add_row(name, value)
        Console().print(table)
        if self.json:
            write_json(self.json, figures)


def _rows(figures: dict[str, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    """Nested figures as lines of a table."""
    for name, value in figures.items():
        if isinstance(value, dict) and set(value) == {"median", "quartiles"}:
            low, high = value["quartiles"]
            yield f"{indent}{name}", f"{value['median']:.4g}  (quartiles {low:.4g} to {high:.4g})"
        elif isinstance(value, dict):
            yield f"{indent}{name}", ""
            yield from _rows(value, indent + "  ")
        else:
            yield f"{indent}{name}", f"{value:,.4g}" if isinstance(value, float) else f"{value}"


@dataclass(frozen=True)
class Doctor:
    """Check which optional parts work here, by using them."""

    def run(self) -> None:
        """Try each part and say what is missing and how to get it."""
        table = Table(title="anyreward doctor", title_justify="left")
        for column in ("part", "works", "what was seen"):
            table.add_column(column)
        for name, works, seen in check_parts():
            table.add_row(name, "yes" if works else "no", escape(seen))
        Console().print(table)


@dataclass(frozen=True)
class Demo:
    """Train on the four rooms in about two minutes, then answer three rewards never seen."""

    out: Path = Path("demo")
    """Where the agent and the picture go."""
    updates: int = UPDATES
    """Gradient updates."""
    seed: int = 0
    """Seed of everything random."""

    def run(self) -> None:
        """Run the demo."""
        run_demo(self.out, self.updates, self.seed)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"{text!r} is not a list of numbers; write the features separated by commas, such as 9,9."
        ) from None


def _weighted(text: str, weight: float) -> Reward:
    place, _, given = text.partition(":")
    return (_numbers(given)[0] if given else weight) * goal(_numbers(place))


def _start_cell(text: str | None, maze: Maze) -> tuple[int, int]:
    """The (x, y) of --start, or of the first free cell."""
    places = [(int(x), int(y)) for x, y in maze.coordinates[maze.free]]
    given = places[0] if text is None else tuple(_numbers(text))
    if given not in places:
        raise UserError(
            f"--start {text} is not a free cell of this maze; write x,y such as {places[0][0]},{places[0][1]}."
        )
    return int(given[0]), int(given[1])


def _parse(arguments: Sequence[str]) -> Any:
    # The preset and the world decide the defaults that --help shows, so they are looked up before parsing.
    joined = " ".join(arguments).replace("=", " ").split()
    named = joined[joined.index("--preset") + 1] if "--preset" in joined[:-1] else "fast"
    words = [word for before, word in itertools.pairwise(joined) if before not in ("--out", "--replay-file")]
    world = next((word for word in words if word in NAMED or word in NAMED.values()), None)
    own = open_world(world).settings if world and joined[0] == "train" else {}
    start = Train(tyro.MISSING, preset("paper" if named == "paper" else "fast", **own))
    commands = Union[  # noqa: UP007 (tyro takes a Union value)
        Annotated[Train, tyro.conf.subcommand("train", default=start)],
        Annotated[Continue, tyro.conf.subcommand("continue")],
        Annotated[Ask, tyro.conf.subcommand("ask")],
        Annotated[Evaluate, tyro.conf.subcommand("evaluate")],
        Annotated[Bench, tyro.conf.subcommand("bench")],
        Annotated[Doctor, tyro.conf.subcommand("doctor")],
        Annotated[Demo, tyro.conf.subcommand("demo")],
    ]
    return tyro.cli(commands, args=arguments, prog="anyreward", description=__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on stderr and exit code 2."""
    try:
        _parse(sys.argv[1:] if arguments is None else arguments).run()
    except UserError as error:
        print(f"anyreward: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("anyreward: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has gone: nothing to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a file that cannot be written or read, a full disk: the message names it
        print(f"anyreward: {error}", file=sys.stderr)
        return 2
    return 0
