"""Phase 1: the one loop. Collect, update, move the targets, report; no reward anywhere in here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from anyreward.learning.collect import Collector
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Replay
from anyreward.learning.update import Batch, make_learner, update
from anyreward.representation.fb import Representation
from anyreward.representation.latent import sample_z


def train(
    representation: Representation, replay: Replay, settings: Settings, collector: Collector | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Algorithm 1, on a replay that a collector fills (online) or that is full already (offline).

    Learns in place, and yields after each cycle: the number of updates done so far and the last update's metrics.
    """
    s = settings
    # Collecting draws from a generator of its own, so that it cannot disturb what the updates draw.
    random, explore = torch.Generator().manual_seed(s.seed), torch.Generator().manual_seed(s.seed + 1)
    learner = make_learner(representation.F, representation.B, s.learning_rate)

    def collect(steps: int, epsilon: float) -> None:
        if collector is not None and steps > 0:
            draw_z = partial(_behaviour_z, representation, replay, s, explore)
            rows = collector.collect(steps, epsilon, representation.greedy, draw_z)
            representation.normalise(rows.observations, rows.features)
            replay.add(rows)

    if collector is None:
        representation.normalise(replay.transitions.observations, replay.transitions.features)
    collect(s.warmup_steps, epsilon=1.0)
    done = 0
    while done < s.updates:
        collect(s.steps_per_cycle, s.exploration)
        for batch in _cycle(representation, replay, s, min(s.updates_per_cycle, s.updates - done), random):
            learner.set_learning_rate(s.learning_rate * learning_rate_factor(done / s.updates, s.learning_rate_decay))
            metrics = update(
                learner,
                batch,
                lambda B: sample_z(s.z_sampling, len(B), B, (s.z_goals, s.z_sums), random),
                s.temperature,
                s.orthonormality,
            )
            done += 1
            if done % s.target_every == 0:
                learner.move_targets(s.target_retention)
        yield done, metrics


def learning_rate_factor(progress: float, decay: float) -> float:
    """1, then falling linearly to 0.01 over the last ``decay`` of the run."""
    return 1.0 if progress <= 1.0 - decay else max((1.0 - progress) / decay, 0.01)


def _cycle(
    representation: Representation, replay: Replay, s: Settings, updates: int, random: torch.Generator
) -> Iterator[Batch]:
    """The minibatches of a cycle, drawn and encoded together: the replay does not change within it."""
    held, b = replay.transitions, s.batch_size
    rows = held.at(torch.randint(len(replay), (updates * b,), generator=random))
    other = held.features[torch.randint(len(replay), (updates * b,), generator=random)]
    whole = Batch(
        x=representation.observe(rows.observations),
        actions=rows.actions,
        next_x=representation.observe(rows.next_observations),
        discount=s.gamma * (~rows.terminated).to(torch.float32),
        g=representation.features(rows.features),
        other_g=representation.features(other),
    )
    for i in range(updates):
        yield Batch(*(column[i * b : (i + 1) * b] for column in whole))


def _behaviour_z(
    representation: Representation, replay: Replay, s: Settings, random: torch.Generator, n: int
) -> Tensor:
    """(n, d) one z for each new episode, from the distribution that training uses."""
    if s.z_sampling != "mixture" or len(replay) == 0:
        kind = "cauchy" if s.z_sampling == "mixture" else s.z_sampling
        return sample_z(kind, n, torch.empty(0, s.dim), generator=random)
    pool = max(n, 64)  # the shares of the mixture need more than a few z to come out right
    rows = replay.transitions.features[torch.randint(len(replay), (pool,), generator=random)]
    z = sample_z("mixture", pool, representation.backward_map(rows), (s.z_goals, s.z_sums), random)
    return z[torch.randperm(pool, generator=random)[:n]]
