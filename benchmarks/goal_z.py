"""What the length of a goal's z changes: policy quality with z scaled as `ask` does it, and with B(g) as it is.

python benchmarks/goal_z.py     # 3 minutes; writes results/goal_z.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import anyreward as ar
from anyreward.acting.exact import packed_states, policy_tables, score_policies, state_features
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "goal_z.json"
RUNS: dict[str, dict[str, Any]] = {
    "fast, tables": {"updates": 8_000},
    "fast, networks": {"landmarks": 0, "updates": 6_000, "compile": True},
    "paper": {"preset": "paper", "updates": 10_000, "compile": True},
}


def quality_of_raw_b(agent: ar.Agent, mdp: ar.FiniteMDP, temperature: float) -> float:
    """The mean over goals of value / optimal value, with z = B(g)."""
    rows = state_features(mdp, agent.model.phi)[mdp.live, 0]
    pi = policy_tables(
        agent.model, packed_states(mdp, agent.model.phi), agent.model.backward_map(rows), temperature=temperature
    )
    return float(score_policies(mdp, pi, mdp.on_states(np.eye(mdp.states)[mdp.live])).ratio.mean())


def main() -> None:
    """Train three seeds each, measure both, print and write."""
    found = []
    print(
        "| run, seed | Boltzmann, B(g) | Boltzmann, as asked | greedy, B(g) | greedy, as asked |\n" + "| --- " * 5 + "|"
    )
    for name, changes in RUNS.items():
        for seed in range(3):
            agent = ar.train("four-rooms", seed=seed, progress=False, **changes)
            mdp = agent.exact_mdp()
            figures = {}
            for policy, temperature in (("Boltzmann", 1.0), ("greedy", 0.0)):
                figures[f"{policy}, B(g)"] = quality_of_raw_b(agent, mdp, temperature)
                figures[f"{policy}, as asked"] = float(agent.score(mdp=mdp, temperature=temperature).ratio.mean())
            found.append({"run": name, "seed": seed, **changes, **figures})
            print(f"| {name}, {seed} |", " | ".join(f"{value:.3f}" for value in figures.values()), "|", flush=True)
    write_json(RESULTS, found)


if __name__ == "__main__":
    main()
