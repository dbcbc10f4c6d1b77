"""`anyreward compare`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from anyreward.agent import Agent
from anyreward.cli.tables import titled
from anyreward.errors import UserError
from anyreward.experiments.compare import compare
from anyreward.figures.curves import draw_curves
from anyreward.storage.files import write_json
from anyreward.storage.metrics import read_metrics


@dataclass(frozen=True)
class Compare:
    """Put agents of one world side by side, whatever method learned them: the same questions for all, in one table.

    Runs whose folders differ in their seed alone (NAME-seed0, NAME-seed1, or NAME/seed0) count together.
    """

    run_folders: tyro.conf.Positional[tuple[Path, ...]]
    """The agents' folders."""
    rewards: int = 100
    """How many of each kind: goals, sums of goals, goals with forbidden states, dense rewards."""
    goals: int | None = None
    """Where goals are played: how many random ones (default: all of the world's list, or 1,000)."""
    seed: int = 0
    """Which rewards, goals, starts and random actions."""
    json: Path | None = None
    """Write the figures to this file too."""
    figure: Path | None = None
    """Draw the learning curves of the runs to this PNG."""

    def run(self) -> None:
        """Measure, print, write, draw."""
        if not self.run_folders:
            raise UserError("There is nothing to compare: name one run folder or more.")
        runs = by_name(self.run_folders)
        groups = {name: [Agent.load(folder) for folder in folders] for name, folders in runs.items()}
        rows: list[dict[str, Any]] = []
        console = Console()
        with console.status("Asking every agent the same questions ..."):
            for row in compare(groups, self.rewards, self.goals, self.seed):
                rows.append(row.summary())
        world = next(iter(groups.values()))[0].world_name
        console.print(table(world, groups, rows))
        print("Mean (5th percentile) over seeds and rewards: 0 = random policy, 1 = optimal policy, greedy answers.")
        if "goals reached" in rows[0]:
            print("Goals reached: share of those played for, as the paper does it (95% interval over goals).")
        if self.json:
            write_json(self.json, {"world": world, "rewards": self.rewards, "seed": self.seed, "rows": rows})
        if self.figure:
            curves = {name: [read_metrics(folder) for folder in folders] for name, folders in runs.items()}
            print("Curves:", draw_curves(curves, self.figure, world))


def by_name(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Run folders by their path without the seed, as short as tells them apart; a folder named twice counts once."""
    groups: dict[Path, list[Path]] = {}
    for folder in dict.fromkeys(folder.resolve() for folder in folders):
        name = re.sub(r"[-_]?seed[-_]?\d+$", "", folder.name)
        groups.setdefault(folder.with_name(name) if name else folder.parent, []).append(folder)
    parts = 1
    while len({group.parts[-parts:] for group in groups}) < len(groups):
        parts += 1
    return {"/".join(group.parts[-parts:]): members for group, members in groups.items()}


def table(world: str, groups: dict[str, list[Agent]], rows: list[dict[str, Any]]) -> Table:
    """The rows, as they are printed."""
    questions = [key for key in rows[0] if key not in ("label", "seeds")]
    shown = titled(f"{world}: the same questions for all", ("run",), ("seeds", "updates", *questions))
    for row in rows:
        agents = groups.get(row["label"], [])
        updates = " to ".join(f"{n:,}" for n in sorted({agent.updates for agent in agents})[:: max(1, len(agents) - 1)])
        cells = [_cell(row.get(name)) for name in questions]
        shown.add_row(row["label"], str(len(agents) or ""), updates, *cells)
    return shown


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if "p5" in value:
        return f"{value['mean']:.2f} ({value['p5']:.2f})"
    return f"{value['mean']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
