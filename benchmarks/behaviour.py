"""Hash what short training runs end in: equal hashes before and after a change mean equal behaviour.

    python benchmarks/behaviour.py run before.json       # at the commit before
    python benchmarks/behaviour.py run after.json        # at the commit after
    python benchmarks/behaviour.py compare before.json after.json

With ``run FILE NAME double`` the runs whose name contains NAME compute in float64, where rounding is too small to show.
With ``run FILE NAME same-data`` they collect data as versions before exploration of what was tried least did: with the
method's own behaviour, and held-out transitions after the run instead of during it.

A hash covers the networks or tables, the sample of rho, the z of four rewards and the greedy actions that answer them.
Beside each hash stand numbers, so that a difference can be told from rounding.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anyreward as ar

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "four rooms, fast": ("four-rooms", {"updates": 2_000}),
    "four rooms, fast, networks": ("four-rooms", {"updates": 400, "landmarks": 0}),
    "four rooms, paper": ("four-rooms", {"preset": "paper", "updates": 400}),
    "four rooms, fast, B sees actions": ("four-rooms", {"updates": 400, "features_include_action": True}),
    "four rooms, paper, bias, t = 1": (
        "four-rooms",
        {"preset": "paper", "updates": 80, "bias": True, "first_step": 1},
    ),
    "four rooms, goal-dqn-her": ("four-rooms", {"method": "goal-dqn-her", "updates": 400}),
    "four rooms, paper, goal-dqn": ("four-rooms", {"preset": "paper", "method": "goal-dqn", "updates": 400}),
    "four rooms, successor features": (
        "four-rooms",
        {"method": "successor-features", "updates": 400, "landmarks": 0, "dim": 100},
    ),
    "continuous maze, fast": ("continuous-maze", {"updates": 2_000}),
    "continuous maze, paper": ("continuous-maze", {"preset": "paper", "updates": 200}),
    "FetchReach, fast": ("fetch-reach", {"updates": 120}),
    "Ms. Pacman, fast": ("ms-pacman", {"updates": 40, "replay_size": 5_000}),
    "CartPole, fast, networks, greedy exploration": (
        "CartPole-v1",
        {"updates": 200, "landmarks": 0, "exploration": 0.5},
    ),
    "four rooms, fast, networks, compiled": ("four-rooms", {"updates": 400, "landmarks": 0, "compile": True}),
}


def rewards(agent: ar.Agent, rows: np.ndarray[Any, Any]) -> dict[str, ar.Reward]:
    """Four rewards that any agent can be asked for, made of its own features."""
    first, second = (rows[len(rows) // 3].tolist(), rows[2 * len(rows) // 3].tolist())
    return {
        "goal": ar.goal(first),
        "two goals, one avoided": ar.goal(first) - 0.5 * ar.goal(second),
        "function": ar.reward(lambda g: -np.abs(g[:, 0] - float(rows[:, 0].mean())), "distance"),
        "samples": ar.samples(rows[:500], np.sin(rows[:500].sum(1))),
    }


def measure(source: str, options: dict[str, Any]) -> dict[str, Any]:
    """Train, ask, hash."""
    started = time.perf_counter()
    agent = ar.train(source, progress=False, seed=0, threads=2, **options)
    seconds = time.perf_counter() - started
    model, sample = agent.model, agent.sample
    weights = hashlib.sha256()
    total = 0.0
    for name in ("F", "B"):
        for _, tensor in sorted(getattr(model, name).state_dict().items()):
            weights.update(tensor.contiguous().cpu().numpy().tobytes())
            total += float(tensor.double().abs().sum()) if tensor.is_floating_point() else 0.0
    rho = hashlib.sha256(sample.rows.contiguous().numpy().tobytes() + sample.weights.numpy().tobytes()).hexdigest()
    readable = model.phi.readable(sample.rows.numpy())
    answers = {}
    packed = agent.held_out.observations[:200] if agent.held_out is not None else None
    for name, reward in rewards(agent, readable).items():
        if not agent.can_answer(reward):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy = agent.ask(reward)
        actions = ""
        if packed is not None:
            actions = hashlib.sha256(policy.preferences(packed).argmax(1).numpy().tobytes()).hexdigest()
        z = policy.z.double()
        answers[name] = {
            "z": hashlib.sha256(policy.z.numpy().tobytes()).hexdigest()[:16],
            "length of z": float(z.norm()),
            "sum of z": float(z.sum()),
            "actions": actions[:16],
        }
    return {
        "weights": weights.hexdigest()[:16],
        "sum of weights": total,
        "rho": rho[:16],
        "answers": answers,
        "seconds": seconds,
    }


def collect_as_before() -> None:
    """Switch off exploration of what was tried least, and collect held-out transitions after the run."""
    from anyreward.learning import loop, method

    vars(loop)["hold_out"] = lambda *_: None  # `training.run` has its own, which it calls at the end of a run
    vars(method)["can_explore"] = lambda _: False


def run(path: Path, only: str = "", *how: str) -> None:
    """All runs, written as they come."""
    if "double" in how:
        torch.set_default_dtype(torch.float64)
    if "same-data" in how:
        collect_as_before()
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    torch.set_num_threads(2)
    for name, (source, options) in RUNS.items():
        if only in name and name not in found:
            found[name] = measure(source, options)
            print(f"{name:48} {found[name]['weights']}  {found[name]['seconds']:.1f} s", flush=True)
            path.write_text(json.dumps(found, indent=1) + "\n")


def compare(before: Path, after: Path) -> None:
    """One line a run: equal, or what differs and by how much."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    for name in old:
        a, b = old[name], new.get(name)
        if b is None:
            print(f"{name:48} missing")
            continue
        said = []
        if a["weights"] != b["weights"]:
            said.append(f"weights ({abs(a['sum of weights'] / b['sum of weights'] - 1):.1e} relative)")
        if a["rho"] != b["rho"]:
            said.append("rho")
        for kind, one in a["answers"].items():
            other = b["answers"].get(kind)
            if other is None:
                said.append(f"{kind}: no answer")
            elif one["z"] != other["z"] or one["actions"] != other["actions"]:
                apart = abs(one["sum of z"] - other["sum of z"]) / max(one["length of z"], 1e-12)
                acts = "same actions" if one["actions"] == other["actions"] else "other actions"
                said.append(f"{kind}: z by {apart:.1e}, {acts}")
        print(f"{name:48} {'equal' if not said else '; '.join(said)}")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]), *sys.argv[3:])
    else:
        compare(Path(sys.argv[2]), Path(sys.argv[3]))
