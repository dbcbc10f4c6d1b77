"""`anyreward show`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from anyreward.agent import Agent
from anyreward.figures.coverage import draw_coverage
from anyreward.figures.maze import picture_path


@dataclass(frozen=True)
class Show:
    """Show what a trained agent has seen: which part of the range of each feature was visited in training."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    figure: Path | None = None
    """Write a picture of the visited states to this PNG: a map of two features, or a histogram of each feature."""

    def run(self) -> None:
        """Print the coverage; draw a picture on request."""
        if self.figure is not None:  # before anything is computed
            picture_path(self.figure)
        agent = Agent.load(self.run_folder)
        coverage, phi, sample = agent.coverage(), agent.model.phi, agent.sample
        states = f"{coverage.rows:,} states, " + ("all distinct" if agent.knowledge.categorical else "a sample")
        print(f"{agent}\n\nVisited in training ({states}):\n{coverage}")
        if self.figure is not None:
            width = phi.state_packed if phi.table is None else phi.table.shape[1]
            rows = phi.readable(sample.rows.numpy())[:, :width]
            heading = f"{agent.world_name}: states visited in training"
            print("Picture:", draw_coverage(coverage, rows, sample.weights.numpy(), self.figure, heading))
