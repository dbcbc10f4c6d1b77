"""A training run: `learning.loop.learn` with a folder, metrics, evaluation, progress, signals and a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from anyreward.acting.play import measures
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.folder import RunState, save_folder
from anyreward.learning.checkpoint import Checkpoint, checkpoint, restore_data, restore_state
from anyreward.learning.collect import Collector, Noise
from anyreward.learning.datasets import Dataset
from anyreward.learning.landmarks import Landmarks
from anyreward.learning.loop import begin, learn
from anyreward.learning.machine import threads, threads_of_one
from anyreward.learning.method import Report, stream_seed
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.shards import Shard, needed, new_shards
from anyreward.rewards.kept import kept_points, kept_transitions
from anyreward.rewards.knowledge import Episodes, Knowledge, feature_sample
from anyreward.storage.generations import check_space
from anyreward.storage.metrics import MetricsLog
from anyreward.training.prepare import available_run, cost, empty_replay, exactness, left_out, most_held_out, split_off
from anyreward.training.signals import delayed_stop
from anyreward.training.watch import Watch, watch
from anyreward.worlds.stepping import opened
from anyreward.worlds.world import World

SAVED_COPIES = 8
"""Copies of the model in a folder: weights, targets and two averages of Adam, in two saves."""
WATCHED_ROWS = 2_000
"""Size of the sample of rho in evaluations during training, if features are numbers."""


class Diverged(UserError):
    """Training has diverged: its state must not be saved."""


class Resumed(NamedTuple):
    """A saved run, to be continued."""

    state: Checkpoint
    files: dict[str, str]
    """the SHA-256 of its files"""


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
        resumed: Resumed | None = None,
    ) -> None:
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
            raise UserError(f"minutes is {minutes!r}; it must be a positive number.")
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
        self.lines: list[dict[str, float]] = []
        """metrics that are not written yet"""
        self.note = ""
        self.saved = agent.updates
        """updates of the last save"""
        self.files = resumed.files if resumed else {}
        """files of the last save, with their SHA-256"""

    def execute(self) -> Agent:
        """Train, and return the agent; a run that is stopped, or that fails, saves its agent first."""
        begun = time.perf_counter()
        with ExitStack() as stack:
            self.stack = stack
            self.run = available_run(self.model, self.s, self.run)
            stack.enter_context(threads(threads_of_one(self.run)))
            self.replay = empty_replay(self.source, self.model, self.s, self.run)
            stack.callback(self.replay.close)
            self.learning = begin(self.model, self.replay, self.s, self.run)
            self.learning.held_out = self.agent.held_out
            if self.out is not None:
                check_space(self.out, SAVED_COPIES * self.model.size)
            if self.resumed:
                restore_data(self.resumed.state, self.learning)
                if not self.resumed.state.same_positions(self.replay):
                    self.files = {}  # transitions are counted anew, and saved again
            self._open_data()
            exact = not self.resumed or restore_state(self.resumed.state, self.learning, self.collector)
            self.bar = stack.enter_context(TrainingProgress(self.s.updates, self.progress, self.learning.done))
            self.keep_replay, note = exactness(self.replay, self.collector, self.s, self.out, exact)
            for text in (left_out(self.model), cost(self.model, self.s, self.run), note):
                self.bar.say(text)
            if isinstance(self.learning.method, Landmarks):
                self.learning.method.on_progress = self.bar.remark
            stop = stack.enter_context(delayed_stop())
            try:
                self._loop(begun, stop)
            except BaseException as error:
                if self.learning.done > self.saved and not isinstance(error, Diverged):
                    with suppress(UserError, OSError):  # the error that stopped the run says more
                        self._finish()
                raise
            agent = self._finish()
            self.bar.say(agent.coverage().note)
            return agent

    def _open_data(self) -> None:
        """Open a collector in a world, or load a dataset into the replay buffer."""
        source, method, s, done = self.source, self.learning.method, self.s, self.learning.done
        needs_next = method.needs_next_features(s)
        if isinstance(source, World):
            stepper = self.stack.enter_context(opened(source, self.run.environments))
            stepper.timeout = self.run.step_timeout
            seed = stream_seed(s.seed, f"from {done}") if done else s.seed
            self.learning.hold_out = 0 if method.whole_episodes else most_held_out(self.model, s.transitions)
            listed = self.model.phi.ends and self.model.observation_encoder.categorical
            noise = Noise(0 if method.whole_episodes else s.z_steps, s.random_steps, s.exploration_noise)
            columns = (needs_next, method.whole_episodes, listed)
            self.collector = Collector(stepper, self.model.phi, seed, *columns, noise, s.action_repeat)
            self.watch = watch(source, self.model.phi, self._knowledge_now, s, self.stack)
            test = source.goal_test if source.goal_test and measures(source.goal_test, self.model.phi) else None
            start = torch.from_numpy(self.collector.features_now)
            method.enter(test, start, stream_seed(s.seed, f"goals from {done}"))
        elif len(self.replay) == 0:
            given = source.transitions(self.model.phi, needs_next)
            rows, self.learning.held_out = split_off(given, most_held_out(self.model, len(given.actions)), s.seed)
            self.replay.add(rows)

    def _loop(self, begun: float, stop: Callable[[], None]) -> None:
        learning, s, run = self.learning, self.s, self.run
        evaluated, saved, clock = learning.done // run.evaluate_every, -math.inf, time.perf_counter()
        for done, report in learn(learning, self.collector):
            learning.seconds += time.perf_counter() - clock  # of training: evaluation is not counted
            losses = finite(report, done)
            if done // run.evaluate_every > evaluated or done == s.updates:
                evaluated = done // run.evaluate_every
                self._evaluate(losses, report)
            if self.out is not None and run.device == "cpu" and time.perf_counter() - saved > run.save_every:
                self._save()  # also after the first cycle, so that there is something to continue
                saved = time.perf_counter()
            self._write_metrics()
            self.bar.show(done, self.note)
            stop()
            if self.minutes is not None and time.perf_counter() - begun > 60 * self.minutes:
                break
            clock = time.perf_counter()

    def _write_metrics(self) -> None:
        """Write new lines of metrics. The log is opened after the first save: until then, that of an old run stays."""
        if self.out is None:
            return
        if self.log is None:
            after = self.agent.updates if self.resumed else None
            self.log = self.stack.enter_context(MetricsLog(self.out, self.tensorboard, after))
        for line in self.lines:
            self.log.write(line)
        self.lines.clear()

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
        self.lines.append(metrics)
        if self.log is not None:
            self._write_metrics()  # before a save: a line without a save is written again, a save without a line is not

    def _knowledge_now(self) -> Knowledge:
        """The agent's knowledge at this point of training."""
        return Knowledge(self.model, self.s, feature_sample(self.model, self.replay, WATCHED_ROWS, self.s.seed))

    def _save(self) -> Agent:
        """Return the current agent, and save it if there is a folder. Training goes on as if nothing had happened."""
        learning, s = self.learning, self.s
        model, goals_only = learning.method.finished(), learning.method.goals_only
        knowledge = Knowledge(
            model,
            s,
            feature_sample(model, self.replay, s.feature_sample, s.seed),
            None if goals_only else kept_transitions(model, self.replay, s.seed),
            None if goals_only else kept_points(model, self.replay, s.gamma),
            learning.held_out,
            learning.done,
            self._episodes(),
        )
        agent = replace(self.agent, knowledge=knowledge)
        if self.out is not None:
            tensors, state = checkpoint(learning, self.collector)
            shards = needed([Shard.of(name) for name in self.files if name.startswith("replay")], self.replay)
            held = max((shard.end for shard in shards), default=0)
            kept = {shard.file: self.files[shard.file] for shard in shards if self.keep_replay}
            transitions = new_shards(self.replay, held) if self.keep_replay else ()
            run = RunState(tensors, state, transitions, kept)
            self.files = save_folder(self.out, agent.as_saved, overwrite=True, run=run)
        self.saved = learning.done
        return agent

    def _episodes(self) -> Episodes | None:
        """The starts of episodes."""
        if self.collector is None or len(self.collector.starts) == 0 or not isinstance(self.source, World):
            return self.agent.knowledge.episodes
        limit = math.ceil((self.source.time_limit or 0) / self.s.action_repeat)
        return Episodes(self.collector.starts, limit, self.collector.new_starts)

    def _finish(self) -> Agent:
        self.model.to("cpu")  # agents answer on the CPU
        self.replay.to("cpu")
        return self._save()


def finite(report: Report, done: int) -> dict[str, float]:
    """The losses of a report; raises if training has diverged."""
    losses = {name: float(value) for name, value in report.losses().items()}
    wrong = [name for name, value in losses.items() if not np.isfinite(value)]
    if wrong:
        raise Diverged(
            f"Training diverged: {', '.join(wrong)} became NaN or infinite in the cycle before update {done:,}. "
            "The last save is from before. Lower learning_rate, raise temperature, or turn layer_norm on."
        )
    return losses
