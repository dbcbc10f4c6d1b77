"""What improving, refining and fine-tuning an answer buy: mean true scores (0 = random, 1 = optimal) in the four rooms.

python benchmarks/trust.py train       # the agents, if they are not there yet
python benchmarks/better_answers.py    # 10 minutes
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar
from anyreward.experiments.all_rewards import FAMILIES, family_rewards
from anyreward.storage.files import write_json
from trust import folder, on_cells

RESULTS = Path(__file__).parent / "results" / "better_answers.json"
AGENTS = (("fast", 500, 100), ("fast", 5_000, 20), ("paper", 5_000, 100), ("fast", 20_000, 100))
"""preset, updates, d"""
EACH, TUNED = 20, 2
"""rewards of a family, and how many of them are fine-tuned"""
TUNED_AGENT = ("fast", 5_000, 20)
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "improve = 32": {"improve": 32},
    "improve = 'goals'": {"improve": "goals"},
    "refine = 5": {"refine": 5},
}


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    for kind in AGENTS:
        agent = ar.load(folder("four-rooms", kind, 0))
        mdp = agent.exact_mdp()
        pays, found = on_cells(agent, mdp), {}
        for name in FAMILIES:
            if name == "states and actions":
                continue
            tables = family_rewards(agent, mdp, name, EACH, 0)[:, :, 0]
            rewards = np.random.default_rng(0).permutation(tables)[:EACH]
            targets = [ar.reward(partial(pays, r), "table") for r in rewards]
            scores = {way: float(agent.score(targets, mdp, **how).normalised.mean()) for way, how in WAYS.items()}
            if kind == TUNED_AGENT:
                plain = [agent.ask(target) for target in targets[:TUNED]]
                tuned = [agent.finetune(policy, progress=False) for policy in plain]
                scores |= {"plain, tuned ones": float(agent.score(plain, mdp).normalised.mean())}
                scores |= {"fine-tuned": float(agent.score(tuned, mdp).normalised.mean())}
            found[name] = scores
            print(kind, name, {way: round(score, 3) for way, score in scores.items()}, flush=True)
        results.append({"preset": kind[0], "updates": kind[1], "dim": kind[2], "families": found})
    write_json(RESULTS, {"seed": 0, "rewards": EACH, "tuned": TUNED, "agents": results})
    for result in results:
        ways = list(result["families"]["single goal"])
        print(f"\n{result['preset']}, {result['updates']:,} updates, d = {result['dim']}\n")
        print("| rewards |", " | ".join(ways), "|\n| --- |", " | ".join("---" for _ in ways), "|")
        for name, scores in result["families"].items():
            print(f"| {name} |", " | ".join(f"{scores[way]:.2f}" for way in ways), "|")


if __name__ == "__main__":
    main()
