"""Phase 1: the one loop. Collect, update, move the targets, report; no reward anywhere in here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.collect import Collector
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Replay
from anyreward.learning.update import Batch, Targets, bellman_targets, make_learner, update
from anyreward.representation.fb import Representation
from anyreward.representation.latent import sample_z


def learn(
    representation: Representation, replay: Replay, settings: Settings, collector: Collector | None = None
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Algorithm 1, on a replay that a collector fills (online) or that is full already (offline).

    Learns in place, and yields after each cycle: the number of updates done so far and the last update's metrics.
    """
    s = settings
    # Collecting draws from a generator of its own, so that it cannot disturb what the updates draw.
    random = torch.Generator().manual_seed(s.seed)
    explore = torch.Generator().manual_seed(stream_seed(s.seed, "explore"))
    learner = make_learner(representation.F, representation.B, s.learning_rate)

    def collect(steps: int, epsilon: float) -> None:
        if collector is not None and steps > 0:
            draw_z = partial(_draw_z, representation, replay, s, explore)
            rows = collector.collect(steps, epsilon, representation.greedy, draw_z)
            representation.normalise(rows.observations, rows.features)
            replay.add(rows)

    if collector is None:
        representation.normalise(replay.transitions.observations, replay.transitions.features)
    collect(s.warmup_steps, epsilon=1.0)
    done = 0
    while done < s.updates:
        collect(s.steps_per_cycle, s.exploration)
        end = min(done + s.updates_per_cycle, s.updates)
        while done < end:
            # The targets stand still until they move next, so everything up to there is drawn and computed together.
            n = min(end - done, s.target_every - done % s.target_every)
            group = _draw(representation, replay, s, n, random)
            targets = bellman_targets(learner, group, s.temperature)
            for i in range(n):
                batch, rows = group.minibatch(i, s.batch_size), slice(i * s.batch_size, (i + 1) * s.batch_size)
                learner.set_learning_rate(
                    s.learning_rate * learning_rate_factor(done / s.updates, s.learning_rate_decay)
                )
                metrics = update(learner, batch, Targets(targets.F_next[rows], targets.B[rows]), s.orthonormality)
                done += 1
            if done % s.target_every == 0:
                learner.move_targets(s.target_retention)
        yield done, metrics


def stream_seed(seed: int, name: str) -> int:
    """A seed for one use of randomness, unrelated to the other uses and to those of neighbouring seeds."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)[0] >> 1)


def learning_rate_factor(progress: float, decay: float) -> float:
    """1, then falling linearly to 0.01 over the last ``decay`` of the run."""
    return 1.0 if progress <= 1.0 - decay else max((1.0 - progress) / decay, 0.01)


def _draw(representation: Representation, replay: Replay, s: Settings, updates: int, random: torch.Generator) -> Batch:
    """The minibatches of several updates, stacked and encoded (Algorithm 1, lines 15 to 17)."""
    held, n = replay.transitions, updates * s.batch_size
    rows = held.at(torch.randint(len(replay), (n,), generator=random))
    other = held.features[torch.randint(len(replay), (n,), generator=random)]
    features, index = torch.cat([rows.features, other]), torch.arange(2 * n)
    if representation.feature_encoder.categorical:  # few distinct ones, often: B need not see each more than once
        features, index = representation.feature_encoder.distinct(features)
    return Batch(
        x=representation.observation_encoder(rows.observations),
        actions=rows.actions,
        next_x=representation.observation_encoder(rows.next_observations),
        discount=s.gamma * (~rows.terminated).to(torch.float32),
        z=_draw_z(representation, replay, s, random, n),
        here=index[:n],
        other=index[n:],
        g=representation.feature_encoder(features),
    )


def _draw_z(representation: Representation, replay: Replay, s: Settings, random: torch.Generator, n: int) -> Tensor:
    """(n, d) task vectors, for updates or for new episodes; the mixture draws on features of its own."""
    if s.z_sampling != "mixture" or len(replay) == 0:
        return sample_z("cauchy" if s.z_sampling == "mixture" else s.z_sampling, n, s.dim, generator=random)
    pool = replay.transitions.features[torch.randint(len(replay), (s.batch_size,), generator=random)]
    B = representation.backward_map(pool)
    return sample_z("mixture", n, s.dim, B, (s.z_goals, s.z_sums), random)
