"""What each difference of preset `fast` buys: put back to the paper's value one at a time, four rooms, 10,000 updates.

python benchmarks/presets.py
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import anyreward as ar
from anyreward.learning.presets import FAST
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results" / "presets.json"
UPDATES = 10_000


def quality(changes: dict[str, Any]) -> dict[str, float]:
    """Policy quality over all goals after training with some settings changed."""
    torch.set_num_threads(1)
    agent = ar.train("four-rooms", updates=UPDATES, seed=0, progress=False, compile=True, **changes)
    soft, greedy = (agent.goal_quality(temperature=t).ratio for t in (1.0, 0.0))
    return {"mean": float(soft.mean()), "worst": float(soft.min()), "greedy mean": float(greedy.mean())}


def main() -> None:
    """Train each variation, print and write."""
    paper = ar.preset("paper").to_json()
    variations: dict[str, dict[str, Any]] = {"fast": {}}
    variations |= {f"{name} = {paper[name]}": {name: paper[name]} for name in FAST if name != "updates"}
    variations["paper"] = {"preset": "paper"}
    results = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name, figures in zip(variations, pool.map(quality, variations.values()), strict=True):
            results[name] = figures
            print(f"| {name} |", " | ".join(f"{value:.3f}" for value in figures.values()), "|", flush=True)
            write_json(RESULTS, {"updates": UPDATES, "seed": 0, "policy quality": results})


if __name__ == "__main__":
    main()
