"""Small training runs in processes of their own, which can be killed at any moment or at a given write."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.folder import holds_agent
from anyreward.training import resume, train

REFUSED = 2
"""Exit code of a run that ends with a `UserError`."""


class Small(NamedTuple):
    """A small training run."""

    world: str
    changes: dict[str, Any]


NETWORKS = {"dim": 8, "hidden": 16, "batch_size": 16, "steps_per_cycle": 40, "warmup_steps": 60}
ACTOR = {"landmarks": 0, "twin": "min", "explore": "novel", "action_repeat": 1, "z_steps": 50, "random_steps": 10}
RUNS = {
    "networks": Small("four-rooms", {**NETWORKS, "landmarks": 0, "updates": 400}),
    "tables": Small("FrozenLake-v1", {"updates": 200, "steps_per_cycle": 100}),
    "numbers": Small("CartPole-v1", {**NETWORKS, "updates": 400, "replay_size": 300}),
    "actor": Small("Pendulum-v1", {**NETWORKS, **ACTOR, "updates": 200}),
    "torques": Small("Pendulum-v1", {"landmarks": 4, "dim": 24, "updates": 120, "steps_per_cycle": 200}),
}
"""The last two have continuous actions: those of an actor, and some that are listed."""


def start(folder: Path, run: Small, kill_at: int = 0, count: Path | None = None) -> BaseProcess:
    """Begin a run in a process of its own, or continue it if the folder holds an agent.

    With ``kill_at`` the process kills itself at that operation on files. ``count`` is a file for their number.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(["anyreward.selfcheck.runs"])
    process = context.Process(target=_run, args=(folder, run, kill_at, count))
    process.start()
    return process


def finish(folder: Path, run: Small) -> str:
    """Continue a run until it is done; returns the agent's fingerprint, or an empty text if it was lost."""
    process = start(folder, run)
    process.join()
    if process.exitcode != 0:
        return ""
    try:
        return Agent.load(folder).fingerprint
    except UserError:
        return ""


def _run(folder: Path, run: Small, kill_at: int, count: Path | None) -> None:
    os.setpgid(0, 0)  # signals of the terminal are for the parent
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    done = _counting(kill_at)
    try:
        if holds_agent(folder):
            if Agent.load(folder).updates < run.changes["updates"]:
                resume(folder, progress=False)
        else:
            changes = {"save_every": 0.02, "seed": 0, "threads": 1, **run.changes}
            train(run.world, out=folder, progress=False, **changes)
    except UserError:
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    if count is not None:
        count.write_text(str(done()))


def _counting(kill_at: int) -> Callable[[], int]:
    """Count operations on files, and kill this process at one of them; returns their number."""
    done = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal done
            done += 1
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return wrapped

    for name in ("replace", "fsync", "chmod", "unlink", "ftruncate", "fdopen"):
        setattr(os, name, counted(getattr(os, name)))
    return lambda: done
