"""What each difference of preset `fast` buys: put back to the paper's value one at a time, four rooms, 10,000 updates.

python benchmarks/presets.py                          # half an hour, two processes
python benchmarks/presets.py fast wide action_input   # only these; the others stay as they are in the results
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import anyreward as ar
from anyreward.experiments.all_rewards import suite
from anyreward.learning.settings import FAST
from anyreward.storage.files import read_json, write_json

RESULTS = Path(__file__).parent / "results" / "presets.json"
UPDATES = 10_000


def scores(changes: dict[str, Any]) -> dict[str, float]:
    """Mean normalised scores of the suite, and the worst single goal, after training with some settings changed."""
    torch.set_num_threads(1)
    agent = ar.train(
        "four-rooms", **{"updates": UPDATES, "seed": 0, "progress": False, "compile": True, "landmarks": 0} | changes
    )
    families = {name: family.summary() for name, family in suite(agent).items()}
    return {"worst goal": families["single goal"]["worst"], **{name: f["mean"] for name, f in families.items()}}


def main(only: list[str]) -> None:
    """Train each variation, or only those of some settings, print and write."""
    paper = asdict(ar.preset("paper"))
    variations: dict[str, dict[str, Any]] = {"fast": {}}
    single = [name for name in FAST if name not in ("updates", "landmarks", "dim", "z_mixture")]
    variations |= {f"{name} = {paper[name]}": {name: paper[name]} for name in single}
    variations["z_mixture = cauchy"] = {"z_mixture": ar.ZMixture()}
    variations["z_mixture = no rewards"] = {"z_mixture": ar.ZMixture(goals=0.45, sums=0.45)}
    variations["paper"] = {"preset": "paper"}
    results = read_json(RESULTS)["normalised scores"] if only else {}
    if only:
        variations = {name: changes for name, changes in variations.items() if name.split(" = ")[0] in only}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name, figures in zip(variations, pool.map(scores, variations.values()), strict=True):
            if name == next(iter(variations)):
                print("| settings |", " | ".join(figures), "|\n| --- |", " | ".join("---" for _ in figures), "|")
            results[name] = figures
            print(f"| {name} |", " | ".join(f"{value:.2f}" for value in figures.values()), "|", flush=True)
            write_json(RESULTS, {"updates": UPDATES, "seed": 0, "normalised scores": results})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*")
    main(parser.parse_args().only)
