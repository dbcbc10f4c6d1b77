"""What a run needs before it begins: threads, an empty replay buffer, held-out data, and what it will cost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from anyreward.learning.collect import Collector
from anyreward.learning.datasets import Dataset
from anyreward.learning.explorer import can_explore
from anyreward.learning.fast.compiled import load_updates
from anyreward.learning.frames import Frames, check_memory
from anyreward.learning.machine import open_device, peak_gflops, threads_for, update_flop
from anyreward.learning.method import stream_seed
from anyreward.learning.methods import check_compile
from anyreward.learning.replay import Replay, Transitions
from anyreward.learning.settings import RunSettings, Settings
from anyreward.learning.tables import plan
from anyreward.model.model import Model
from anyreward.worlds.spaces import seen_space, texts
from anyreward.worlds.world import World

HELD_OUT = {"categories": 4_000, "numbers": 2_000, "images": 100}
"""Number of held-out transitions kept with the agent; of a dataset, at most a tenth."""
REPLAY_ROW = 200
"""Bytes of a transition on disk, as an estimate, if observations are not images."""
DISK = 0.5
"""Largest share of the free disk space that a replay buffer may take."""
LONG = 10**15
"""Floating-point operations of a run for which the time is estimated before it begins: hours on a CPU."""
SIMULATED = 10_000
"""For few numbers, where policies are simulated: a tenth of the transitions of a run, up to this number."""


def available_run(model: Model, s: Settings, run: RunSettings) -> RunSettings:
    """The run settings with the threads and compiled updates that this machine has."""
    check_compile(model.phi, s, run)  # before anything is compiled
    device, most = open_device(run.device), torch.get_num_threads()
    if run.compile and device.type == "cpu" and not load_updates():
        run = run.with_(compile=False)
    wanted = most if model.landmarks is not None else threads_for(update_flop(model.F, model.B, s), most)
    return run.with_(threads=run.threads or wanted)


def empty_replay(source: World | Dataset, model: Model, s: Settings, run: RunSettings) -> Replay:
    """An empty replay buffer; raises if images do not fit into memory."""
    image, size, each = model.observation_encoder.image, s.replay_size, 0
    if isinstance(source, World):
        most, each = size, source.frames_per_step
    else:
        most = len(source.actions)
        size = max(size, most)  # a dataset is used whole
    frames = None
    if image:
        each = each or image[0]
        check_memory(most, each, image[1] * image[2], run.replay_file)
        expected = int(1.1 * most * each) + image[0]  # the first frames of episodes too
        frames = Frames(image, expected, run.replay_file or None)
    return Replay(size, open_device(run.device), frames)


def most_held_out(model: Model, transitions: int) -> int:
    """The largest number of held-out transitions of a run, or of a dataset, of this number of ``transitions``."""
    encoder = model.observation_encoder
    most = HELD_OUT["images" if encoder.image else "categories" if encoder.categorical else "numbers"]
    if not encoder.image and not encoder.categorical and can_explore(model.phi):
        return max(most, min(transitions // 10, SIMULATED))
    return most


def split_off(rows: Transitions, most: int, seed: int) -> tuple[Transitions, Transitions | None]:
    """Split transitions into training data and random held-out ones; None if there are few."""
    n = len(rows.actions)
    held_out = min(n // 10, most)
    if held_out < 100:
        return rows, None
    order = torch.randperm(n, generator=torch.Generator().manual_seed(stream_seed(seed, "held out")))
    return rows.at(order[held_out:].sort().values), rows.at(order[:held_out])


def exactness(
    replay: Replay, collector: Collector | None, s: Settings, out: Path | None, exact: bool
) -> tuple[bool, str]:
    """Whether the replay buffer of a run is saved, and a text that says if a resumed run is not exactly the same.

    ``exact`` is whether this run itself continues exactly where it was.
    """
    if out is None:
        return False, ""
    texts = [] if exact else ["This run continues with new episodes, so it differs from one that was never stopped."]
    size = max(len(replay), min(s.replay_size, s.transitions))
    row = REPLAY_ROW if replay.frames is None else replay.frames.size * 4
    free = shutil.disk_usage(out if out.is_dir() else out.parent if out.parent.is_dir() else Path()).free
    keep = size * row < DISK * free
    if not keep:
        texts.append(
            f"The replay buffer is not saved: {size * row / 1e9:.0f} GB are more than half of the free disk space. A "
            "resumed run collects transitions again, so it will not be exactly the same."
        )
    if keep and collector is not None and not collector.can_continue:
        texts.append(
            "The state of this environment cannot be saved. A resumed run begins new episodes, so it will not be "
            "exactly the same."
        )
    return keep, " ".join(texts)


def left_out(model: Model) -> str:
    """A text that names the parts of the observation that F and B do not see; empty if there are none."""
    names = texts(seen_space(model.phi.observation_space))
    if not names:
        return ""
    return (
        f"Left out of the observation, because it is text: {', '.join(names)}. Text that never changes says nothing "
        "about the state. If it changes and matters, turn it into numbers (gymnasium.wrappers.TransformObservation)."
    )


def cost(model: Model, s: Settings, run: RunSettings) -> str:
    """A text with the size of the networks or tables of a run."""
    phi = model.phi
    if model.landmarks is not None:
        return plan(phi, s.dim, s.landmarks)
    flop = update_flop(model.F, model.B, s)
    networks = [module for module in (model.F, model.B, model.actor) if module is not None]
    weights = sum(p.numel() for module in networks for p in module.parameters())
    text = f"Networks of {weights:,} weights, d = {s.dim}: {s.updates:,} updates of {flop / 1e9:.2f} GFLOP each."
    if run.device == "cpu" and s.updates * flop > LONG:
        hours = s.updates * flop / 1e9 / peak_gflops(repeats=2) / 3600
        text += f" On this CPU that takes more than {hours:,.0f} hours."
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if run.device == "cpu" and not run.compile and run.threads > 1 and load + run.threads > cores + 0.8:
        text += (
            f" Other programs use about {load:.1f} of {cores} cores, so threads would wait for each other: compile "
            "(--compile), or use fewer threads (--threads 1)."
        )
    return text
