"""`anyreward theory`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.experiments.theory import WEAK, tightness
from anyreward.storage.files import write_json
from anyreward.tools.tables import titled


@dataclass(frozen=True)
class Theory:
    """Print the paper's bounds for an agent of a finite environment, beside the gaps that they bound."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    rewards: int = 10
    """Number of rewards of each kind."""
    seed: int = 0
    """Seed of the rewards."""
    json: Path | None = None
    """Also write the results to this JSON file."""

    def run(self) -> None:
        """Compute the bounds, and print and write them."""
        if self.rewards < 1 or self.seed < 0:
            raise UserError(
                f"--rewards is {self.rewards} and --seed {self.seed}; --rewards must be positive, and --seed 0 or more."
            )
        agent = Agent.load(self.run_folder)
        title = f"{agent.world_name}: bounds and gaps, means over rewards"
        table = titled(title, ("statement", "rewards"), ("gap", "bound", "trivial", "useful"))
        rows = []
        console = Console()
        with console.status("Solving for every policy ..."):
            for found in tightness(agent, self.rewards, self.seed):
                row = found.summary()
                rows.append(row)
                sizes = (_number(row[key]) for key in ("gap", "bound", "trivial"))
                table.add_row(row["statement"], row["rewards"], *sizes, f"{row['informative']:.0%}")
        console.print(table)
        broken = [f"{row['statement']} ({row['rewards']})" for row in rows if not row["holds"]]
        print("trivial: the trivial bound; useful: share of rewards whose bound is smaller than it (docs/theory.md).")
        if not any(row["statement"] == WEAK for row in rows):
            print(f"{WEAK}: left out, because it needs a goal for each state.")
        print(f"A bound was exceeded: {', '.join(broken)}." if broken else "Every bound holds.")
        if self.json:
            write_json(self.json, {"agent": agent.fingerprint, "seed": self.seed, "rows": rows})


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}" if x > 1e-6 else "0"
