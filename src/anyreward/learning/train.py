"""Phase 1: the one loop. Collect, update, move the targets, report; no reward anywhere in here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.collect import Collector
from anyreward.learning.compiled import compiled_updates
from anyreward.learning.draw import draw, draw_z, known_features, with_z
from anyreward.learning.machine import compiler, open_device
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Replay
from anyreward.learning.update import Batch, Losses, MovingMoments, make_learner, updates
from anyreward.representation.fb import Representation


def learn(
    representation: Representation, replay: Replay, settings: Settings, collector: Collector | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Algorithm 1, on a replay that a collector fills (online) or that is full already (offline).

    Learns in place, and yields after each cycle: the number of updates done so far and the last update's losses.
    """
    s = settings
    device = open_device(s.device)
    representation.to(device)
    # Collecting draws from a generator of its own, so that it cannot disturb what the updates draw.
    random = torch.Generator(device).manual_seed(s.seed)
    explore = torch.Generator(device).manual_seed(stream_seed(s.seed, "explore"))
    averages = MovingMoments(s.average_share) if s.pairs == "average" else None
    F, B = representation.F, representation.B
    prepare = compiler() if s.compile and device.type == "cuda" else None
    learner = make_learner(F, B, s.learning_rate, averages, prepare, s.bfloat16)
    run: Callable[[Batch, Sequence[float], float, float], Losses] = partial(updates, learner)
    if s.compile and device.type == "cpu":
        run = compiled_updates(learner, F, B, two_threads=s.threads != 1)

    def collect(steps: int, epsilon: float) -> None:
        if collector is not None and steps > 0:
            new_z = partial(draw_z, representation, replay, s, random=explore)
            rows = collector.collect(steps, epsilon, representation.greedy, new_z)
            representation.normalise(rows.observations, rows.features)
            replay.add(rows)

    if collector is None:
        representation.normalise(replay.transitions.observations, replay.transitions.features)
    collect(s.warmup_steps, epsilon=1.0)
    done, known, counted = 0, None, 0
    while done < s.updates:
        collect(s.steps_per_cycle, s.exploration)
        if s.pairs == "all" and replay.added > counted:  # no more work for B than two minibatches would be
            known = known_features(representation.feature_encoder, replay.transitions.features, 2 * s.batch_size)
            counted = replay.added
        end = min(done + s.updates_per_cycle, s.updates)
        cycle = draw(representation, replay, s, end - done, random, known)
        for n in group_sizes(done, end, s.target_every):
            group, cycle = cycle.split(n)
            group = with_z(group, representation, replay, s, random)  # of B as it is now
            progress = [(done + i) / s.updates for i in range(n)]
            rates = [s.learning_rate * learning_rate_factor(share, s.learning_rate_decay) for share in progress]
            losses = run(group, rates, s.temperature, s.orthonormality)
            done += n
            if done % s.target_every == 0:
                learner.move_targets(s.target_retention)
        yield done, losses()


def group_sizes(done: int, end: int, every: int) -> list[int]:
    """Updates from one move of the targets to the next: as they stand still, their part is computed together."""
    moves = [done, *range(done - done % every + every, end, every), end]
    return [after - before for before, after in itertools.pairwise(moves)]


def stream_seed(seed: int, name: str) -> int:
    """A seed for one use of randomness, unrelated to the other uses and to those of neighbouring seeds."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)[0] >> 1)


def learning_rate_factor(progress: float, decay: float) -> float:
    """1, then falling linearly to 0.01 over the last ``decay`` of the run."""
    return 1.0 if progress <= 1.0 - decay else max((1.0 - progress) / decay, 0.01)
