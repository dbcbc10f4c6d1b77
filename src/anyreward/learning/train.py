"""Phase 1: the one loop. Collect, update, move the targets, report; no reward of the world anywhere in here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.collect import Collector, GreedyActions
from anyreward.learning.compiled import compiled_updates
from anyreward.learning.draw import draw, draw_features, draw_z, known_features, with_z
from anyreward.learning.goal_dqn import GoalBatch, Goals, draw_goals, goal_updates
from anyreward.learning.machine import compiler, open_device
from anyreward.learning.presets import Settings
from anyreward.learning.replay import Replay
from anyreward.learning.tables import POINTS, learn_tables
from anyreward.learning.update import (
    Batch,
    KnownMoments,
    Learner,
    Losses,
    MovingMoments,
    make_learner,
    updates,
)
from anyreward.representation.basis import MOST_ROWS, Basis
from anyreward.representation.fb import Representation
from anyreward.representation.landmarks import LandmarkForward, TableBackward

REFILL = 50
"""Cycles' worth of transitions collected anew where a run goes on without its replay."""
MOST_AT_ONCE = 1_000
"""Transitions collected before they enter the replay: images take memory while they wait."""

PER_PAIR = 20
"""Transitions for each known state and action that a whole run collects for tables, at least."""
WHOLE_RUN = 20_000
"""Updates of a whole run, in which as many are collected; a shorter one collects less."""

IMAGES_AT_ONCE = 2
"""Minibatches of images drawn together: more would take longer, for memory that is new to the program is slow."""


@dataclass
class Learning:
    """Where a run stands: all that changes in it but the networks, their encoders and the replay."""

    learner: Learner | None
    """None where F and B are tables"""
    random: torch.Generator
    """draws for the updates"""
    explore: torch.Generator
    """draws for collecting, which so cannot disturb the updates"""
    done: int = 0
    """updates"""
    seconds: float = 0.0
    """of training so far"""
    earlier: int = 0
    """transitions collected for a replay that was not kept when the run stopped"""
    known: int = 0
    """transitions that had been added when tables were last filled"""
    figures: dict[str, Tensor] = field(default_factory=dict)
    """what was found out when tables were last filled"""
    report: Callable[[str], None] = lambda note: None
    """is told how far the filling of tables is"""


def begin(representation: Representation, s: Settings) -> Learning:
    """A run that has done nothing yet, on the device of its settings."""
    device = open_device(s.device)
    representation.to(device)
    averages: MovingMoments | KnownMoments | None = None
    if isinstance(representation.B, Basis):
        averages = KnownMoments()
    elif s.pairs == "average":
        averages = MovingMoments(s.average_share)
    prepare = compiler() if s.compile and device.type == "cuda" else None
    learner = None
    if representation.landmarks is None:
        learner = make_learner(
            representation.F,
            representation.B,
            s.learning_rate,
            averages,
            prepare,
            s.bfloat16,
            representation.bias,
            s.first_step,
        )
    return Learning(
        learner,
        torch.Generator(device).manual_seed(s.seed),
        torch.Generator(device).manual_seed(stream_seed(s.seed, "explore")),
    )


@dataclass(frozen=True)
class Course:
    """What a method does in the loop."""

    draw: Callable[[int], Batch | GoalBatch]
    """the minibatches of n updates"""
    update: Callable[[Any, Sequence[float]], Losses]
    """the updates of some of these, with their learning rates, between two moves of the targets"""


class Behaviour(NamedTuple):
    """What episodes are for while exploring, and how they are acted."""

    greedy: GreedyActions
    new_z: Callable[[int], Tensor]
    """the tasks of n new episodes"""


def behaviour(
    representation: Representation, replay: Replay, s: Settings, random: torch.Generator, goals: Goals | None = None
) -> Behaviour:
    """The behaviour policy; tasks are z or, for goal-oriented DQN and tables, goals as the replay keeps them."""

    def of_goals(packed: Tensor, goal: Tensor) -> Tensor:
        return representation.greedy(packed, representation.backward_map(goal))

    if goals is not None:
        return Behaviour(of_goals, goals.draw)
    if representation.landmarks is not None:  # their z have another length whenever more states are known
        return Behaviour(of_goals, partial(draw_features, replay, random))
    return Behaviour(representation.greedy, partial(draw_z, representation, replay, s, random=random))


def learn(
    representation: Representation,
    replay: Replay,
    settings: Settings,
    collector: Collector | None = None,
    learning: Learning | None = None,
    goals: Goals | None = None,
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Algorithm 1, on a replay that a collector fills (online) or that is full already (offline).

    Learns in place, and yields after each cycle: the number of updates done so far and the last update's losses.
    ``learning`` is where to go on from, if not from the beginning; ``goals`` are for goal-oriented DQN.
    """
    s = settings
    learning = learning or begin(representation, s)
    course: Course | None = None
    if goals is not None:
        course = goal_course(representation, replay, s, learning, goals)
    elif representation.landmarks is None:
        course = fb_course(representation, replay, s, learning)
    greedy, new_z = behaviour(representation, replay, s, learning.explore, goals)

    wanted = replay.added

    def collect(steps: int, epsilon: float) -> None:
        nonlocal wanted
        wanted += steps  # what came beyond it, as whole episodes may, is counted the next time
        while collector is not None and replay.added < wanted:
            most = min(wanted - replay.added, MOST_AT_ONCE)
            rows = collector.collect(most, epsilon, greedy, new_z)
            representation.normalise(rows.observations, rows.features)
            replay.add(rows)

    if learning.done == 0:
        if collector is None:
            representation.normalise(replay.transitions.observations, replay.transitions.features)
        collect(s.warmup_steps, epsilon=1.0)
        fit_basis(representation, replay, learning.random)
    elif len(replay) == 0:
        collect(max(s.warmup_steps, REFILL * s.steps_per_cycle), s.exploration)
    done = learning.done
    at_once = s.updates_per_cycle if replay.frames is None else IMAGES_AT_ONCE
    while done < s.updates:
        steps = s.steps_per_cycle
        if course is None and steps:  # more where there are more states to learn about
            needed = transitions_needed(representation, replay)
            steps = max(steps, math.ceil(needed * s.updates_per_cycle / WHOLE_RUN))
        collect(steps, s.exploration if course or learning.known else 1.0)
        end = min(done + s.updates_per_cycle, s.updates)
        if course is None:
            done = learning.done = end
            if done == s.updates or s.exploration < 1:  # uniform actions need no tables before the end
                fill_tables(representation, replay, s, learning, now=done == s.updates)
            yield done, learning.figures
            continue
        assert learning.learner is not None
        while done < end:
            drawn = course.draw(min(end - done, at_once))
            for n in group_sizes(done, done + len(drawn.actions), s.target_every):
                group, drawn = drawn.split(n)
                progress = [(done + i) / s.updates for i in range(n)]
                rates = [s.learning_rate * learning_rate_factor(share, s.learning_rate_decay) for share in progress]
                losses = course.update(group, rates)
                done += n
                if done % s.target_every == 0:
                    learning.learner.move_targets(s.target_retention)
        learning.done = done
        yield done, losses()


def fb_course(representation: Representation, replay: Replay, s: Settings, learning: Learning) -> Course:
    """Forward-backward representations; successor features too, where B is given."""
    learner, random = learning.learner, learning.random
    assert learner is not None
    F, B = representation.F, representation.B
    run: Callable[[Batch, Sequence[float], float, float], Losses] = partial(updates, learner)
    if s.compile and representation.device.type == "cpu":
        run = compiled_updates(learner, F, B, two_threads=s.threads != 1)
    known, counted, measured = None, 0, 0  # the last two: transitions that had been added by then

    def draw_batch(n: int) -> Batch:
        nonlocal known, counted, measured
        if replay.added > counted:
            held, counted = replay.transitions, replay.added
            following = held.next_features if s.first_step else None
            if s.pairs == "all":  # no more work for B than two minibatches would be
                known = known_features(representation.feature_encoder, held.features, 2 * s.batch_size, following)
            if isinstance(learner.averages, KnownMoments) and replay.added > 1.1 * measured:
                measured = replay.added
                rows = torch.linspace(0, len(replay) - 1, min(len(replay), MOST_ROWS), device=representation.device)
                given = representation.backward_map(held.features[rows.long()])
                learner.averages.BB = given.T @ given / len(given)
        return draw(representation, replay, s, n, random, known)

    def update(group: Batch, rates: Sequence[float]) -> Losses:
        group = with_z(group, representation, replay, s, random)  # of B as it is now
        return run(group, rates, s.temperature, s.orthonormality)

    return Course(draw_batch, update)


def goal_course(
    representation: Representation, replay: Replay, s: Settings, learning: Learning, goals: Goals
) -> Course:
    """Goal-oriented DQN: tasks are goals as the replay keeps them."""
    learner = learning.learner
    assert learner is not None
    return Course(
        lambda n: draw_goals(representation, replay, s, n, learning.random, goals.reached),
        lambda group, rates: goal_updates(learner, group, rates, s.gamma),
    )


def transitions_needed(representation: Representation, replay: Replay) -> int:
    """Transitions that tables should be filled from, as far as is known: some for each state and action."""
    encoder = representation.observation_encoder
    if not encoder.categorical:
        states = POINTS
    elif len(replay) == 0:
        states = 1
    else:
        states = int((torch.bincount(encoder.codes(replay.transitions.observations)) > 0).sum())
    return PER_PAIR * states * representation.actions


def fill_tables(
    representation: Representation, replay: Replay, s: Settings, learning: Learning, now: bool = True
) -> dict[str, Tensor]:
    """Learn landmarks from all data, where F and B are tables: now, or once the data has doubled."""
    F, B = representation.F, representation.B
    if not isinstance(F, LandmarkForward) or not isinstance(B, TableBackward) or replay.added == learning.known:
        return learning.figures
    if now or replay.added >= 2 * learning.known:
        sample = replay.sample(s.feature_sample, s.seed, every=representation.feature_encoder.categorical)
        figures = learn_tables(
            F,
            B,
            replay.transitions,
            sample,
            s.gamma,
            s.dim,
            s.landmarks,
            s.features_include_action,
            learning.report,
        )
        learning.figures = {name: torch.tensor(value) for name, value in figures.items()}
        learning.known = replay.added
    return learning.figures


def fit_basis(representation: Representation, replay: Replay, random: torch.Generator) -> None:
    """Choose the B that is given, where it is, for the data seen so far."""
    if not isinstance(representation.B, Basis):
        return
    rows, encoder = replay.transitions, representation.feature_encoder
    assert rows.next_features is not None
    following = torch.where(rows.terminated[:, None], rows.features, rows.next_features)  # what ends leads nowhere else
    representation.B.fit(encoder.compact(rows.features), encoder.compact(following), random)


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
