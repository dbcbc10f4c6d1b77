"""A training run: `learning.loop.learn` with a folder, metrics, evaluation, progress, Ctrl-C and a time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anyreward.acting.play import measures
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.folder import save_folder
from anyreward.learning.checkpoint import FILE, checkpoint, load_checkpoint
from anyreward.learning.collect import MOST_STARTS, Collector
from anyreward.learning.datasets import Dataset
from anyreward.learning.landmarks import Landmarks
from anyreward.learning.loop import begin, hold_out, learn
from anyreward.learning.machine import threads, threads_of_one
from anyreward.learning.method import Report, stream_seed
from anyreward.learning.progress import TrainingProgress
from anyreward.rewards.kept import kept_points, kept_transitions
from anyreward.rewards.knowledge import Episodes, Knowledge, feature_sample
from anyreward.storage.metrics import MetricsLog
from anyreward.training.prepare import available_run, cost, empty_replay, left_out, most_held_out, split_off
from anyreward.training.watch import Watch, watch
from anyreward.worlds.stepping import opened
from anyreward.worlds.world import World

WATCHED_ROWS = 2_000
"""Size of the sample of rho in evaluations during training, if features are numbers."""
SAVE_EVERY = 300.0
"""Seconds between two saves during a run."""


class Run:
    """One training run of an agent in a world or on a dataset."""

    def __init__(
        self,
        source: World | Dataset,
        agent: Agent,
        out: Path | None,
        progress: bool,
        tensorboard: bool = False,
        minutes: float | None = None,
        resumed: bool = False,
    ) -> None:
        if minutes is not None and not minutes > 0:
            raise UserError(f"minutes is {minutes}; it must be positive.")
        if agent.knowledge.method.whole_episodes and not isinstance(source, World):
            raise UserError(
                f"method is {agent.settings.method}, which learns online: a dataset has no goals and episodes. Use an "
                "environment, or method='fb' or 'successor-features'."
            )
        self.source, self.agent, self.out, self.resumed = source, agent, out, resumed
        self.model, self.s, self.run = agent.model, agent.settings, agent.run
        self.progress, self.tensorboard, self.minutes = progress, tensorboard, minutes
        self.collector: Collector | None = None
        self.watch: Watch = dict
        self.log: MetricsLog | None = None
        self.note = ""

    def execute(self) -> Agent:
        """Train, and return the agent; an interrupted run saves its agent."""
        begun = time.perf_counter()
        with ExitStack() as stack:
            self.stack = stack
            self.run = available_run(self.model, self.s, self.run)
            stack.enter_context(threads(threads_of_one(self.run)))
            self.replay = empty_replay(self.source, self.model, self.s, self.run)
            stack.callback(self.replay.close)
            self.learning = begin(self.model, self.replay, self.s, self.run)
            self.learning.held_out = self.agent.held_out
            if self.resumed:
                assert self.out is not None
                load_checkpoint(self.out, self.learning, self.agent.fingerprint)
            self._open_data()
            self.bar = stack.enter_context(TrainingProgress(self.s.updates, self.progress, self.learning.done))
            for text in (left_out(self.model), cost(self.model, self.s, self.run)):
                self.bar.say(text)
            if isinstance(self.learning.method, Landmarks):
                self.learning.method.on_progress = self.bar.remark
            stopped = stack.enter_context(stop_between_cycles())
            try:
                self._loop(begun, stopped)
            except BaseException as error:
                if self.learning.done > self.agent.updates and not isinstance(error, UserError):
                    self._finish()
                raise
            try:
                hold_out(self.learning, self.collector)  # what a run that was stopped early lacks
            finally:  # save the agent even if the environment fails
                agent = self._finish()
            self.bar.say(agent.coverage().note)
            return agent

    def _open_data(self) -> None:
        """Open a collector in a world, or load a dataset into the replay buffer."""
        source, method, s, done = self.source, self.learning.method, self.s, self.learning.done
        needs_next = method.needs_next_features(s)
        if isinstance(source, World):
            stepper = self.stack.enter_context(opened(source, self.run.environments))
            seed = stream_seed(s.seed, f"from {done}") if done else s.seed
            self.learning.hold_out = 0 if method.whole_episodes else most_held_out(self.model, s.transitions)
            self.collector = Collector(
                stepper, self.model.phi, seed, needs_next, method.whole_episodes, self._visited_so_far()
            )
            self.watch = watch(source, self.model.phi, self._knowledge_now, s, self.stack)
            test = source.goal_test if source.goal_test and measures(source.goal_test, self.model.phi) else None
            start = torch.from_numpy(self.collector.features_now)
            method.enter(test, start, stream_seed(s.seed, f"goals from {done}"))
        elif len(self.replay) == 0:
            given = source.transitions(self.model.phi, needs_next)
            rows, self.learning.held_out = split_off(given, most_held_out(self.model, len(given.actions)), s.seed)
            self.replay.add(rows)

    def _loop(self, begun: float, stopped: Callable[[], bool]) -> None:
        learning, s = self.learning, self.s
        evaluated, saved, clock = learning.done // self.run.evaluate_every, begun, time.perf_counter()
        for done, report in learn(learning, self.collector):
            learning.seconds += time.perf_counter() - clock  # of training: evaluation is not counted
            self._open_log()
            losses = finite(report, done)
            if done // self.run.evaluate_every > evaluated or done == s.updates:
                evaluated = done // self.run.evaluate_every
                self._evaluate(losses, report)
            self.bar.show(done, self.note)
            if self.out is not None and self.run.device == "cpu" and time.perf_counter() - saved > SAVE_EVERY:
                self._save()
                saved = time.perf_counter()
            if stopped():
                raise KeyboardInterrupt
            if self.minutes is not None and time.perf_counter() - begun > 60 * self.minutes:
                break
            clock = time.perf_counter()

    def _open_log(self) -> None:
        """Open the metrics log and remove old files; called after the first cycle, in case that fails."""
        if self.out is None or self.log is not None:
            return
        after = self.agent.updates if self.resumed else None
        self.log = self.stack.enter_context(MetricsLog(self.out, self.tensorboard, after))
        for name in () if self.resumed else ("agent.json", FILE):
            (self.out / name).unlink(missing_ok=True)

    def _evaluate(self, losses: dict[str, float], report: Report) -> None:
        """Evaluate the agent, and write one line of metrics."""
        learning = self.learning
        if self.watch is not dict:
            learning.method.refresh()
        metrics = {
            "updates": learning.done,
            "seconds": learning.seconds,
            "updates_per_second": learning.done / max(learning.seconds, 1e-9),
            "transitions": learning.earlier + self.replay.added,
            **(finite(report, learning.done) if self.model.landmarks is not None else losses),
            **{name: float(value) for name, value in report.diagnostics().items()},
            **self.watch(),
        }
        kind = next((kind for kind in ("quality", "success", "bellman_loss", "states") if kind in metrics), None)
        self.note = f"{kind.replace('_', ' ')} {metrics[kind]:.3f}" if kind else ""
        if self.log:
            self.log.write(metrics)

    def _knowledge_now(self) -> Knowledge:
        """The agent's knowledge at this point of training."""
        return Knowledge(self.model, self.s, feature_sample(self.model, self.replay, WATCHED_ROWS, self.s.seed))

    def _save(self) -> Agent:
        """Return the current agent, and save it if there is a folder."""
        learning, s = self.learning, self.s
        learning.method.finish()
        knowledge = Knowledge(
            self.model,
            s,
            feature_sample(self.model, self.replay, s.feature_sample, s.seed),
            None if learning.method.goals_only else kept_transitions(self.model, self.replay, s.seed),
            None if learning.method.goals_only else kept_points(self.model, self.replay, s.gamma),
            learning.held_out,
            learning.done,
            self._episodes(),
        )
        agent = replace(self.agent, knowledge=knowledge)
        if self.out is not None:
            beside = {FILE: checkpoint(learning, agent.fingerprint)}
            save_folder(self.out, agent.as_saved, overwrite=True, beside=beside)
        return agent

    def _episodes(self) -> Episodes | None:
        """The starts of episodes, with those of a run that this one continues."""
        before = self.agent.knowledge.episodes
        if self.collector is None or len(self.collector.starts) == 0 or not isinstance(self.source, World):
            return before
        starts, new = self.collector.starts, self.collector.new_starts
        if before is not None:
            starts, new = (torch.cat(parts)[:MOST_STARTS] for parts in ((before.starts, starts), (before.new, new)))
        return Episodes(starts, self.source.time_limit or 0, new)

    def _visited_so_far(self) -> set[bytes] | None:
        """The distinct observations of a run that is resumed; None if they are not categories, or never terminal."""
        if not self.model.phi.ends or not self.model.observation_encoder.categorical:
            return None
        parts = [self.learning.held_out] if self.learning.held_out is not None else []
        parts += [self.replay.transitions] if len(self.replay) else []
        return {row.tobytes() for part in parts for row in part.observations.cpu().numpy()}

    def _finish(self) -> Agent:
        self.model.to("cpu")  # agents answer on the CPU
        self.replay.to("cpu")
        return self._save()


@contextmanager
def stop_between_cycles() -> Iterator[Callable[[], bool]]:
    """Delay the first Ctrl-C to the end of a cycle, so that the saved state is consistent.

    The second Ctrl-C is not delayed. Yields a function that returns whether Ctrl-C was pressed.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield lambda: False  # Ctrl-C is handled elsewhere
        return

    def first(number: int, frame: Any) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def finite(report: Report, done: int) -> dict[str, float]:
    """The losses of a report; raises if training has diverged."""
    losses = {name: float(value) for name, value in report.losses().items()}
    if not np.isfinite(list(losses.values())).all():
        raise UserError(
            f"Training diverged: after {done:,} updates the losses are {losses}. Lower learning_rate, raise "
            "temperature, or turn layer_norm on."
        )
    return losses
