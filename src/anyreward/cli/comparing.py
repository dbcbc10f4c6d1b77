"""`anyreward compare`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anyreward.agent import Agent
from anyreward.cli.evaluating import MOST_REWARDS
from anyreward.errors import UserError, shown
from anyreward.experiments.compare import compare
from anyreward.figures.curves import draw_curves
from anyreward.figures.maze import picture_path
from anyreward.learning.settings import Range, check_fields
from anyreward.storage.files import write_json
from anyreward.storage.metrics import read_metrics
from anyreward.tools.tables import titled


@dataclass(frozen=True)
class Compare:
    """Compare agents of one environment, trained by any method, on the same rewards.

    Runs whose folders differ only in their seed (NAME-seed0, NAME-seed1, or NAME/seed0) form one group.
    """

    run_folders: tyro.conf.Positional[tuple[Path, ...]]
    """The agents' folders."""
    rewards: int = 100
    """Number of rewards of each kind: goals, sums of goals, goals with forbidden states, dense rewards."""
    goals: Annotated[int, Range(1, most=1_000_000)] | None = None
    """Number of random goals to play for. Without it: all goals of the environment's list, or 1,000."""
    seed: int = 0
    """Seed of rewards, goals, starts and random actions."""
    json: Path | None = None
    """Also write the results to this JSON file."""
    figure: Path | None = None
    """Draw the learning curves of the runs to this PNG."""

    def __post_init__(self) -> None:
        check_fields(self, "--")

    def run(self) -> None:
        """Evaluate, and print, write and draw the results."""
        if not self.run_folders:
            raise UserError("There is nothing to compare; give at least one run folder.")
        if not 1 <= self.rewards <= MOST_REWARDS or not 0 <= self.seed < 2**63:
            raise UserError(
                f"--rewards is {shown(self.rewards)} and --seed {shown(self.seed)}; --rewards must be positive (at "
                f"most {MOST_REWARDS:,}), and --seed 0 or more (below 2**63)."
            )
        if self.figure is not None:  # before anything is computed
            picture_path(self.figure)
        runs = by_name(self.run_folders)
        groups = {name: [Agent.load(folder) for folder in folders] for name, folders in runs.items()}
        console = Console()
        with console.status("Evaluating all agents on the same rewards ..."):
            rows = [row.summary() for row in compare(groups, self.rewards, self.goals, self.seed)]
        world = next(iter(groups.values()))[0].world_name
        console.print(table(world, groups, rows))
        print("Mean (5th percentile) over seeds and rewards: 0 = random policy, 1 = optimal policy; greedy policies.")
        if "goals reached" in rows[0]:
            print("Goals reached: success rate by the paper's protocol (95% interval over goals).")
        if self.json:
            write_json(self.json, {"world": world, "rewards": self.rewards, "seed": self.seed, "rows": rows})
        if self.figure:
            curves = {name: [read_metrics(folder) for folder in folders] for name, folders in runs.items()}
            print("Curves:", draw_curves(curves, self.figure, world))


def by_name(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Run folders grouped by their path without the seed, shortened as long as it is unique, without duplicates."""
    groups: dict[Path, list[Path]] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        name = re.sub(r"[-_]?seed[-_]?\d+$", "", folder.name)
        groups.setdefault(folder.with_name(name) if name else folder.parent, []).append(folder)
    parts = 1
    while len({group.parts[-parts:] for group in groups}) < len(groups):
        parts += 1
    return {"/".join(group.parts[-parts:]): members for group, members in groups.items()}


def table(world: str, groups: dict[str, list[Agent]], rows: list[dict[str, Any]]) -> Table:
    """The rows as a table for printing."""
    questions = [key for key in rows[0] if key not in ("label", "seeds")]
    rows_shown = titled(f"{world}: scores on the same rewards", ("run",), ("seeds", "updates", *questions))
    for row in rows:
        agents = groups.get(row["label"], [])
        updates = " to ".join(f"{n:,}" for n in sorted({agent.updates for agent in agents})[:: max(1, len(agents) - 1)])
        cells = [_cell(row.get(name)) for name in questions]
        rows_shown.add_row(escape(row["label"]), str(len(agents) or ""), updates, *cells)
    return rows_shown


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if "p5" in value:
        return f"{value['mean']:.2f} ({value['p5']:.2f})"
    return f"{value['mean']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
