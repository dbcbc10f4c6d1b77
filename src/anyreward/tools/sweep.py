"""Training with several seeds in parallel processes, which is faster than one run after the other."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from anyreward.errors import UserError
from anyreward.folder import holds_agent
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.settings import RunSettings, Settings
from anyreward.storage.metrics import read_metrics
from anyreward.training import train


def train_seeds(
    source: str,
    settings: Settings,
    run: RunSettings,
    folders: dict[int, Path],
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> None:
    """Train with each seed into its folder, in parallel processes that share the machine's threads."""
    held = [str(folder) for folder in folders.values() if holds_agent(folder)]
    if held and not overwrite:
        raise UserError(f"These folders hold an agent already: {', '.join(held)}. Choose others, or use --overwrite.")
    for folder in folders.values():
        (folder / "metrics.jsonl").unlink(missing_ok=True)  # later lines are of these runs
    available = torch.get_num_threads()
    workers = min(len(folders), available)
    run = run.with_(threads=max(1, available // workers))
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        TrainingProgress(settings.updates * len(folders), progress) as bar,
    ):
        waiting: set[Future[None]] = {
            pool.submit(_train, source, settings.with_(seed=seed), run, folder, overwrite, options)
            for seed, folder in folders.items()
        }
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            for job in done:
                if job.exception() is not None:
                    pool.shutdown(wait=False, cancel_futures=True)
                job.result()
            bar.show(sum(_updates(folder) for folder in folders.values()))


def _train(
    source: str, settings: Settings, run: RunSettings, out: Path, overwrite: bool, options: dict[str, Any]
) -> None:
    torch.set_num_threads(run.threads)
    if run.replay_file:
        run = run.with_(replay_file=f"{run.replay_file}-seed{settings.seed}")
    train(source, settings=settings, run=run, out=out, overwrite=overwrite, progress=False, **options)


def _updates(folder: Path) -> int:
    """The number of updates in the last line of a run's metrics."""
    lines = read_metrics(folder) if (folder / "metrics.jsonl").exists() else []
    return int(lines[-1]["updates"]) if lines else 0
