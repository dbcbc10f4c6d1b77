"""The score of Ms. Pacman, as the reward that is asked of the agent in `results/worlds`.

    python benchmarks/pixels.py

Training saw no reward; 10,000 steps with the game's score give it. B sees the position alone.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import anyreward as ar
from anyreward.acting.policy import Acts
from anyreward.storage.files import write_json

RESULTS = Path(__file__).parent / "results"
EPISODES = 100

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    agent = ar.load(RESULTS / "worlds" / "ms-pacman-fast-seed0")
    world = agent.world()
    policy = agent.ask(agent.sample_rewards(world, budget=10_000, seed=0, progress=False))
    trust = policy.trust
    found: dict[str, Any] = {"represented": trust.represented, "trust": trust.verdict}
    players: dict[str, Acts] = {"random": ar.RandomPolicy(agent.model.actions, seed=0), "ours": policy}
    for name, player in players.items():
        played = ar.evaluate(player, world, episodes=EPISODES, seed=1_000)
        found[name] = {"return": float(played.mean), "standard error": float(played.standard_error)}
    print(found)
    write_json(RESULTS / "pixels.json", found)
