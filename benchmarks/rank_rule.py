"""Successor features by the threshold of rank: one measure, one code, 1e-4 (as it was) against 1e-6.

python benchmarks/rank_rule.py     # two minutes; writes results/rank_rule.json
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyreward as ar
from anyreward.model import rank
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "rank_rule.json"
MAZE = "#######\n#     #\n#     #\n#     #\n#     #\n#     #\n#######"
BASES = ("laplacian", "state", "rbf", "fourier")


def main() -> None:
    """Train each basis with both thresholds, print and write the mean greedy quality over all goals."""
    found: list[dict[str, Any]] = []
    for basis in BASES:
        for share in (1e-4, 1e-6):
            rank.RANK_SHARE = share
            scores = []
            for seed in range(3):
                changes: dict[str, Any] = {"method": "successor-features", "basis": basis, "warmup_steps": 1_000}
                changes |= {"dim": 25, "hidden": 64, "updates": 1_500, "gamma": 0.95, "threads": 1}
                agent = ar.train(MAZE, seed=seed, progress=False, **changes)
                scores.append(float(agent.score().ratio.mean()))
            found.append({"basis": basis, "threshold": share, "quality": scores})
            print(f"| {basis} | {share:g} |", ", ".join(f"{score:.3f}" for score in scores), "|", flush=True)
    write_json(RESULTS, found)


if __name__ == "__main__":
    main()
