"""Training with several seeds in parallel processes, which is faster than one run after the other."""

from __future__ import annotations

import os
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import torch

from anyreward.errors import UserError
from anyreward.folder import holds_agent
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.settings import RunSettings, Settings
from anyreward.storage.metrics import check_metrics, read_metrics
from anyreward.training import train
from anyreward.training.signals import delayed_stop
from anyreward.worlds.processes import end_with

PATIENCE = 30.0
"""Seconds that a process has to save its run."""


def train_seeds(
    source: str,
    settings: Settings,
    run: RunSettings,
    folders: dict[int, Path],
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> None:
    """Train with each seed into its folder, in parallel processes that share the machine's threads.

    ``options`` are further arguments of `train`. ``settings`` says how many updates there are.
    """
    held = [str(folder) for folder in folders.values() if holds_agent(folder)]
    if held and not overwrite:
        raise UserError(f"These folders hold an agent already: {', '.join(held)}. Choose others, or use --overwrite.")
    for folder in folders.values():
        check_metrics(folder)
        (folder / "metrics.jsonl").unlink(missing_ok=True)  # later lines are of these runs
    available = torch.get_num_threads()
    workers = min(len(folders), available)
    run = run.with_(threads=max(1, available // workers))
    pool = ProcessPoolExecutor(workers, get_context("spawn"), end_with, (os.getpid(),))
    with delayed_stop() as stop, TrainingProgress(settings.updates * len(folders), progress) as bar:
        waiting: set[Future[None]] = {
            pool.submit(_train, source, seed, run, folder, overwrite, options) for seed, folder in folders.items()
        }
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
                for job in done:
                    job.result()
                bar.show(sum(_updates(folder) for folder in folders.values()))
                stop()
        except BaseException:
            _stop(pool)
            raise
        pool.shutdown()


def _stop(pool: ProcessPoolExecutor) -> None:
    """Let runs that have begun save and stop, begin no other, and wait for their processes."""
    pool.shutdown(wait=False, cancel_futures=True)
    processes = active_children()
    for process in processes:
        process.terminate()  # a run in it saves first
    for process in processes:
        process.join(PATIENCE)
        process.kill()


def _train(source: str, seed: int, run: RunSettings, out: Path, overwrite: bool, options: dict[str, Any]) -> None:
    torch.set_num_threads(run.threads)
    if run.replay_file:
        run = run.with_(replay_file=f"{run.replay_file}-seed{seed}")
    try:
        train(source, run=run, out=out, overwrite=overwrite, progress=False, **options | {"seed": seed})
    except (SystemExit, KeyboardInterrupt):
        os._exit(1)  # it is saved; the process must not begin another run


def _updates(folder: Path) -> int:
    """The number of updates in the last line of a run's metrics."""
    lines = read_metrics(folder) if (folder / "metrics.jsonl").exists() else []
    return int(lines[-1]["updates"]) if lines else 0
