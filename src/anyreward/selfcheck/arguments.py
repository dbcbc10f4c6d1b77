"""Random settings and random and damaged z files: each is used as it was given, or refused with one line."""

from __future__ import annotations

import json
import math
import random
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.learning.settings import RunSettings, Settings, preset, split_changes
from anyreward.rewards.terms import from_z, goal
from anyreward.training import train

EDGES: list[Any] = [None, True, False, "", "x", "fb", "cpu", "cuda:1", "rbf", "sphere", "auto", "\0", "~", "é" * 50]
EDGES += [0, 1, -1, 2, 3, 7, 100, 128, 1_000, 4_096, 10**4, 10**6, 10**9, 10**12, 10**15, 2**31, 2**63, 2**70, 10**400]
EDGES += [0.0, -0.0, 0.5, 1.0, 0.99, 1 - 1e-16, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf, 10**5_000]
EDGES += [[], {}, [1], [[]], {"goals": 0.5}, {"goals": math.nan}, {"sums": 10**400}, {"goals": 0.7, "rewards": 0.7}]
NAMES = [field.name for kind in (Settings, RunSettings) for field in fields(kind)]
MOST_WEIGHTS = 10**9
SLOW = 2.0
"""Seconds of computing that one try may take."""


def value(rng: random.Random) -> Any:
    """A random value of JSON."""
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(EDGES)
    if kind < 0.75:
        return rng.randrange(-10, 2 ** rng.randrange(1, 80))
    if kind < 0.9:
        return rng.uniform(-2, 2) * 10.0 ** rng.randrange(-12, 12)
    if kind < 0.95:
        return [value(rng) for _ in range(rng.randrange(4))]
    nested: Any = 1
    for _ in range(rng.choice((3, 100, 900))):
        nested = [nested]
    return nested


def equal(a: Any, b: Any) -> bool:
    """Whether two values of JSON are equal and of one type, up to whole numbers given for others."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(equal(a[key], b.get(key)) for key in a)
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def try_settings(rng: random.Random) -> str:
    """Change random settings to random values."""
    changes = {rng.choice(NAMES): value(rng) for _ in range(rng.randint(1, 3))}
    if rng.random() < 0.05:
        changes[rng.choice(("lr", "", "\0", "é" * 50, "__class__", "Dim"))] = 1
    of_settings, of_run = split_changes(changes)
    base = preset(rng.choice(("fast", "paper"))) if rng.random() < 0.5 else Settings()
    s = base.with_(**of_settings) if rng.random() < 0.5 else preset("fast", **of_settings)
    run = RunSettings().with_(**of_run)
    kept = asdict(s) | asdict(run)
    exact = all(equal(given, kept[name]) for name, given in changes.items() if name != "replay_file")
    again = Settings().with_(**json.loads(json.dumps(asdict(s), allow_nan=False))) == s
    weights = 2 * s.layers * s.hidden**2 + s.hidden * s.dim
    small = max(weights, s.batch_size**2, s.dim**2, run.threads * 10**6, run.environments * 10**6) <= MOST_WEIGHTS
    return "accepted" if exact and again and small and s.transitions >= 0 else "silent"


def damaged(rng: random.Random, good: dict[str, Any]) -> bytes:
    """A z file with one or two wrong entries, or wrong bytes, or another file."""
    data = dict(good)
    kind = rng.random()
    if kind < 0.45:
        for _ in range(rng.randint(1, 2)):
            name = rng.choice((*good, "tensors_sha256", "scale", "other"))
            if name == "z_R" and rng.random() < 0.7:
                data["z_R"] = list(good["z_R"])
                data["z_R"][rng.randrange(len(good["z_R"]))] = value(rng)
            elif rng.random() < 0.3:
                data.pop(name, None)
            else:
                data[name] = value(rng)
    try:
        content = json.dumps(value(rng) if kind > 0.95 else data).encode()
    except (ValueError, RecursionError):  # a number of 5,000 digits is not written
        content = b'{"format": 1, "agent": "a", "reward": "r", "z_R": [' + b"9" * 5_000 + b"]}"
    for _ in range(rng.randint(1, 3) if 0.45 <= kind < 0.95 else 0):
        i, j = sorted(rng.choices(range(len(content) + 1), k=2))
        content = rng.choice(
            (
                content[:i] + bytes([rng.randrange(256)]) + content[i + 1 :],
                content[:i],
                content[:i] + content[j:],
                content[:j] + content[i:j] + content[j:],
                content[:i] + b"[" * rng.choice((1, 50, 100_000)) + content[i:],
                content[:i] + b"9" * rng.choice((1, 20, 400)) + content[i:],
            )
        )
    return content


def try_file(rng: random.Random, agent: Agent, good: dict[str, Any], path: Path) -> str:
    """Read a z file that may be damaged, as a reward or as a policy."""
    content = damaged(rng, good)
    path.write_bytes(content)
    policy = agent.ask(from_z(path), refine=0) if rng.random() < 0.5 else agent.load_policy(path)
    given = json.loads(content)
    same = policy.belief.found.z.tolist() == [float(number) for number in given["z_R"]]
    whose = given["agent"] == agent.fingerprint and given["format"] == 1 and isinstance(given["reward"], str)
    finite = np.isfinite(policy.q([24, 25])).all() and not policy.clueless
    return "accepted" if same and whose and finite else "silent"


def attack(count: int, seed: int) -> dict[str, int]:
    """Try ``count`` random settings and z files; how many were accepted, refused or went wrong."""
    rng = random.Random(seed)
    counts = dict.fromkeys(("tried", "accepted", "refused", "tracebacks", "silent"), 0)
    agent = train("four-rooms", updates=40, progress=False)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        good = json.loads(agent.ask(goal(9, 9)).save(Path(folder) / "good.json").read_text())
        del good["sha256"]  # which would notice everything
        path = Path(folder) / "z.json"
        for _ in range(count):
            began = time.process_time()
            try:
                result = try_settings(rng) if rng.random() < 0.5 else try_file(rng, agent, good, path)
            except UserError as error:
                result = "refused" if len(str(error)) < 3_000 and "\n" not in str(error) else "silent"
            except UserWarning:  # a z of zeros is told
                result = "refused"
            except Exception:
                traceback.print_exc()
                result = "tracebacks"
            if time.process_time() - began > SLOW:
                result = "silent"
            counts["tried"] += 1
            counts[result] += 1
            if result in ("tracebacks", "silent"):
                print(result, counts["tried"], path.read_bytes()[:200] if path.exists() else "", file=sys.stderr)
    return counts
