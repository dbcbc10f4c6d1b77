"""Wrong values in agent.json, with a right checksum: each must be refused with one line, before memory is allocated."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.selfcheck.runs import RUNS
from anyreward.storage.generations import index_hash
from anyreward.training import train

JUNK: list[Any] = [-1, -(2**40), 2**40, 10**30, 1.5, 1e300, "x", "", "10", [], [1], [[]], {}, {"a": 1}]
JUNK += [None, True, False]
"""Values of other types, or out of every range."""
FREE = {("updates",), ("time_limit",), ("world", "name"), ("generation",), ("format",), ("training",)}
"""What may have other values of its type."""


def attack(count: int, seed: int) -> dict[str, int]:
    """Put random junk at random places of agent.json; ``silent`` counts other types that were accepted."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(["tried", "refused", "accepted", "tracebacks", "silent"], 0)
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folders = []
        for name, run in RUNS.items():
            folders.append(Path(temporary) / name)
            train(run.world, progress=False, **(run.changes | {"updates": 40})).save(folders[-1])
        indices = [json.loads((folder / "agent.json").read_text()) for folder in folders]
        for _ in range(count):
            which = int(rng.integers(len(folders)))
            index = json.loads(json.dumps(indices[which]))
            del index["sha256"]
            places = [place for place in _places(index) if place[0] != "files"]
            place, junk = places[rng.integers(len(places))], JUNK[rng.integers(len(JUNK))]
            before = _put(index, place, junk)
            if before == junk and type(before) is type(junk):
                continue
            counts["tried"] += 1
            counts[_outcome(folders[which], index, before, junk, place)] += 1
    return counts


def _outcome(folder: Path, index: dict[str, Any], before: Any, junk: Any, place: tuple[Any, ...]) -> str:
    (folder / "agent.json").write_text(json.dumps({**index, "sha256": index_hash(index)}))
    try:
        Agent.load(folder)
    except UserError as error:
        return "tracebacks" if "\n" in str(error) else "refused"
    except Exception as error:
        print(place, junk, type(error).__name__, error)
        return "tracebacks"
    numbers = (int, float)
    alike = type(junk) is type(before) or (type(junk) in numbers and type(before) in numbers) or None in (junk, before)
    if alike or place in FREE or place[:2] == ("world", "recipe") or _in_space(place):
        return "accepted"  # another value that is as good as the saved one
    print(place, before, junk)
    return "silent"


def _in_space(place: tuple[Any, ...]) -> bool:
    """Whether a path leads into a space, where a bound may be a number or a list of them."""
    return place[0] == "observation_space" or place[:2] == ("actions", "box")


def _places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in nested JSON."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*at, key))


def _put(data: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Replace the value at a path, and return the old one."""
    for key in place[:-1]:
        data = data[key]
    before, data[place[-1]] = data[place[-1]], value
    return before
