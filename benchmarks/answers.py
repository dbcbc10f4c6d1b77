"""Time of an answer by tables, for rewards that were not asked before.

    python benchmarks/answers.py RUN

RUN is the folder of an agent with two features x and y between 0 and 1, such as that of `anyreward train
continuous-maze`. To compare two versions, run both on the same folder, in turn: PYTHONPATH=OTHER/src chooses the other.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import anyreward as ar

ANSWERS, PLACES = 20, 200


def main() -> None:
    """Ask for random rewards, each with its values at 200 places, and print the median time."""
    agent, rng = ar.Agent.load(sys.argv[1]), np.random.default_rng(0)
    places = rng.random((PLACES, 2)).astype(np.float32)
    seconds = []
    for _ in range(ANSWERS + 1):  # the first prepares what all need
        x, y = rng.random(2)
        reward = ar.reward(f"exp(-((x - {x:.3f})**2 + (y - {y:.3f})**2) / 0.02) - 0.5 * (x > {y:.3f})")
        began = time.perf_counter()
        agent.ask(reward, refine=0).value(places)
        seconds.append(time.perf_counter() - began)
    low, middle, high = 1000 * np.percentile(seconds[1:], [0, 50, 100])
    print(
        f"{middle:.0f} ms, from {low:.0f} to {high:.0f}, over {ANSWERS} answers; the first took {1000 * seconds[0]:.0f}"
    )


if __name__ == "__main__":
    main()
