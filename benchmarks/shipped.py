"""Train the small agents that come with the package (src/anyreward/shipped), for the playground and for trying out.

    python benchmarks/shipped.py              # all, about ten minutes on two cores
    python benchmarks/shipped.py four-rooms   # one

They are ordinary agents with few numbers: landmarks that only explain answers, and the state of training, are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyreward as ar
from anyreward.model.landmarks import LandmarkForward
from anyreward.storage.shipped import ship

RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "four-rooms": ("four-rooms", {}),
    "four-rooms-d4": ("four-rooms", {"dim": 4}),
    "four-rooms-d10": ("four-rooms", {"dim": 10}),
    "four-rooms-d25": ("four-rooms", {"dim": 25}),
    "labyrinth": ("labyrinth", {}),
    "continuous-maze": ("continuous-maze", {"dim": 400, "landmarks": 1}),
    "continuous-maze-d25": ("continuous-maze", {"dim": 25, "landmarks": 1}),
    "mountain-car": ("MountainCar-v0", {"dim": 400, "landmarks": 1}),
    "fetch-reach": ("fetch-reach", {"updates": 30_000, "hidden": 128}),
}
"""By name: the world and the settings that differ from the defaults."""
LARGE = 500
"""Number of states from which on the landmarks are left out."""


def lighter(agent: ar.Agent) -> ar.Agent:
    """The agent without the tables of its landmarks' policies, where these are large; its answers are the same."""
    F = agent.model.F
    if isinstance(F, LandmarkForward) and len(F.P.states) > LARGE:
        F.fill(**{name: getattr(F, name)[:0] for name in ("V", "visits", "where", "mass", "landmarks", "reach")})
    return agent


def main() -> None:
    """Train the agents that are named, or all."""
    for name in sys.argv[1:] or RECIPES:
        world, changes = RECIPES[name]
        agent = lighter(ar.train(world, seed=0, **changes))
        with TemporaryDirectory() as folder:
            file = ship(agent.save(Path(folder) / name), name)
        print(f"{name}: {agent}, {file.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
