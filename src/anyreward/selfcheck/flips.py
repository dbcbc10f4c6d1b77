"""Flipped bits in the files of a run: a damaged file is noticed, and never used."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.folder import load_run
from anyreward.rewards.terms import reward
from anyreward.selfcheck.runs import RUNS
from anyreward.selfcheck.table import Result
from anyreward.storage.metrics import read_metrics
from anyreward.training import train


def flipped(count: int, seed: int) -> list[Result]:
    """Flip ``count`` random bits in each kind of file, one at a time."""
    rng = np.random.default_rng(seed)
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary:
        folder = Path(temporary) / "run"
        run = RUNS["networks"]
        agent = train(run.world, out=folder, progress=False, save_every=1e-3, seed=0, **(run.changes | {"updates": 80}))
        task = agent.ask(reward("x + y")).save(Path(temporary) / "task.json")
        names = json.loads((folder / "agent.json").read_text())["files"]
        kinds = {
            kind: folder / next(n for n in names if n.startswith(kind)) for kind in ("weights", "training", "replay")
        }
        kinds |= {"agent.json": folder / "agent.json", "metrics.jsonl": folder / "metrics.jsonl", "task.json": task}
        results = []
        for kind, path in kinds.items():
            results.append(Result(f"flipped bits, {kind}"))
            read = _reader(kind, folder, task, agent)
            good = _intact(folder, read)
            for _ in range(count):
                _try(path, rng, read, good, results[-1])
    return results


def _reader(kind: str, folder: Path, task: Path, agent: Agent) -> Callable[[], Any]:
    """What to read after a file of this kind was damaged, as something to compare."""
    if kind == "metrics.jsonl":
        return lambda: _nothing(read_metrics(folder))  # a log has no checksum: it must only not fail
    if kind == "task.json":
        return lambda: agent.load_policy(task).z.tolist()
    return lambda: _whole(folder)


def _nothing(_: Any) -> None:
    return None


def _whole(folder: Path) -> Any:
    saved, state, _ = load_run(folder)
    rows = [(name, tensor.sum().item(), tuple(tensor.shape)) for name, tensor in sorted(state.tensors.items())]
    return Agent(*saved).fingerprint, json.dumps(state.state, sort_keys=True), rows, state.shards


def _intact(folder: Path, read: Callable[[], Any]) -> list[Any]:
    """What may be read: the newest generation, and the one before it."""
    found = [read()]
    with TemporaryDirectory(prefix="anyreward-selfcheck-") as temporary:
        earlier = Path(temporary) / "run"
        shutil.copytree(folder, earlier)
        (earlier / "agent.json").unlink()
        found.append(_whole(earlier))
    return found


def _try(path: Path, rng: np.random.Generator, read: Callable[[], Any], good: list[Any], result: Result) -> None:
    """Flip a bit, read, and repair the file."""
    content = path.read_bytes()
    bit = int(rng.integers(8 * len(content)))
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read()
        result.tell(found in good, f"bit {bit} of {path.name} was not noticed")
    except UserError as error:
        result.tell("\n" not in str(error), f"bit {bit} of {path.name}: an error of several lines")
    except Exception as error:
        result.tell(False, f"bit {bit} of {path.name}: {type(error).__name__}: {error}"[:200])
    finally:
        path.write_bytes(content)
