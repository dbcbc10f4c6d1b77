"""`anyreward evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console

from anyreward.acting.better import MOST_STEPS
from anyreward.acting.play import goal_test_of
from anyreward.agent import Agent
from anyreward.errors import UserError, shown
from anyreward.experiments.all_rewards import suite
from anyreward.learning.settings import Range, Seed, check_fields
from anyreward.storage.files import write_json
from anyreward.tools.tables import titled

MOST_REWARDS = 1_000_000
"""Largest number of rewards of each kind."""


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a trained agent: exactly in a finite MDP, otherwise by playing for goals, as in the paper."""

    run_folder: tyro.conf.Positional[Path]
    """The agent's folder."""
    suite: Literal["goals", "all-rewards"] = "goals"
    """goals: the paper's policy quality or, if episodes are played, its success rate.
    all-rewards (finite environments only): scores on families of rewards, 0 = random policy, 1 = optimal policy."""
    goals: Annotated[int, Range(1, most=1_000_000)] | None = None
    """Number of random goals to play for. Without it: all goals of the environment's list, or 1,000."""
    rewards: int = 300
    """For all-rewards: number of rewards in each family. The family of single goals has every state."""
    seed: Seed = 0
    """Seed of rewards, goals, starts and random actions."""
    temperature: float = 0.0
    """For all-rewards: act by softmax(F . z / temperature); 0 is greedy."""
    refine: Annotated[int, Range(0, most=MOST_STEPS)] = 0
    """For all-rewards: refine each policy by this number of steps of value iteration on kept transitions."""
    json: Path | None = None
    """Also write the results to this JSON file."""

    def __post_init__(self) -> None:
        check_fields(self, "--")

    def run(self) -> None:
        """Evaluate, and print and write the results."""
        agent = Agent.load(self.run_folder)
        if self.suite == "all-rewards":
            figures = self._all_rewards(agent)
        elif agent.world_recipe is not None and agent.world().goal_test is not None:
            figures = self._played_goals(agent)
        else:
            figures = self._goals(agent)
        if self.json:
            write_json(self.json, {"agent": agent.fingerprint, "updates": agent.updates, **figures})

    def _all_rewards(self, agent: Agent) -> dict[str, Any]:
        if not 1 <= self.rewards <= MOST_REWARDS:
            raise UserError(f"--rewards is {shown(self.rewards)}; it must be positive (at most {MOST_REWARDS:,}).")
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"--temperature is {self.temperature}; it must be 0 (greedy) or positive.")
        title = f"{agent.world_name}, any reward: 0 = random policy, 1 = optimal policy"
        table = titled(title, ("rewards",), ("mean", "median", "5th percentile", "worst", "number"))
        figures: dict[str, Any] = {}
        notes = []
        for name, scores in suite(agent, self.rewards, self.seed, self.temperature, self.refine).items():
            row = scores.summary()
            figures[name] = row
            cells = [f"{row[key]:.3f}" for key in ("mean", "median", "p5", "worst")]
            table.add_row(name, *cells, f"{row['rewards']:,}")
            if row["barely"]:
                notes.append(f"{name}: for {row['barely']} rewards the optimum is barely better than a random policy.")
        Console().print(table)
        if agent.knowledge.method.goals_only:
            notes.append(f"All other rewards: not possible; {agent.settings.method} supports single goals only.")
        elif not agent.model.phi.include_action:
            notes.append("Rewards on states and actions: not possible; this agent's B sees no actions.")
        for line in notes:
            print(line)
        how = {"seed": self.seed, "temperature": self.temperature, "refine": self.refine}
        return {"suite": "all-rewards", **how, "families": figures}

    def _played_goals(self, agent: Agent) -> dict[str, Any]:
        test = goal_test_of(agent.world())
        title = f"{agent.world_name}: goals, {test.steps} steps each"
        table = titled(title, ("policy",), ("goals", "reached", "95% interval", "distance at the end"))
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
        title = f"{agent.world_name}: value / optimal value over {len(mdp.live)} goals"
        table = titled(title, ("policy",), ("mean", "5th percentile", "worst"))
        figures = {}
        for name, temperature in (("Boltzmann, temperature 1", 1.0), ("greedy", 0.0)):
            ratio = agent.score(mdp=mdp, temperature=temperature).ratio
            row = {"mean": ratio.mean(), "p5": np.percentile(ratio, 5), "worst": ratio.min()}
            figures[name] = {key: float(value) for key, value in row.items()}
            table.add_row(name, *(f"{value:.3f}" for value in row.values()))
        Console().print(table)
        return {"goals": figures}
