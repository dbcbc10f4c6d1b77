"""All checks with one scale and one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from anyreward.selfcheck import arguments, datasets, environments, expressions, indices
from anyreward.selfcheck.disk import full_disk
from anyreward.selfcheck.flips import flipped
from anyreward.selfcheck.kills import at_random, at_writes, by_signals, two_at_once
from anyreward.selfcheck.soak import soak
from anyreward.selfcheck.table import Result

Name = Literal[
    "kill", "write", "signal", "twice", "disk", "flip", "expression", "argument", "index", "dataset", "environment"
]
Check = Callable[[int, int], Result | list[Result]]
"""A check of so many trials, with a seed."""


def attacked(name: str, attack: Callable[[int, int], dict[str, int]]) -> Check:
    """A check of generated input: it fails by a traceback, or by accepting in silence what is wrong."""

    def check(count: int, seed: int) -> Result:
        found = attack(count, seed)
        wrong = {kind: n for kind, n in found.items() if n and kind not in FINE}
        return Result(name, found["tried"], sum(wrong.values()), [f"{kind}: {n}" for kind, n in wrong.items()])

    return check


FINE = {"tried", "refused", "accepted", "loaded", "worked"}
"""What may come of generated input."""
CHECKS: dict[Name, tuple[Check, int]] = {
    "kill": (at_random, 100),
    "write": (at_writes, 100),
    "signal": (by_signals, 45),
    "twice": (two_at_once, 15),
    "disk": (full_disk, 20),
    "flip": (flipped, 1_000),
    "expression": (attacked("expressions", expressions.attack), 1_000_000),
    "argument": (attacked("configurations and z files", arguments.attack), 60_000),
    "index": (attacked("wrong values in agent.json", indices.attack), 10_000),
    "dataset": (attacked("datasets", datasets.attack), 40_000),
    "environment": (attacked("environments", environments.attack), 1_000),
}
"""Each check, and its number of trials at scale 1."""


def run_checks(scale: float, seed: int, only: tuple[Name, ...] = (), minutes: float = 0.0) -> Iterator[Result]:
    """Run the checks, one after the other; with ``minutes`` a soak test of that time at the end."""
    for name, (check, count) in CHECKS.items():
        if not only or name in only:
            found = check(max(1, round(scale * count)), seed)
            yield from found if isinstance(found, list) else [found]
    if minutes > 0:
        yield soak(minutes, seed)
