"""`train`: from a world or a dataset to an agent, with progress, metrics and a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from anyreward.acting.evaluate import goal_quality
from anyreward.agent import Agent, fresh_representation
from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.compiled import load_updates
from anyreward.learning.datasets import Dataset, is_dataset, open_dataset
from anyreward.learning.frames import Frames, check_memory
from anyreward.learning.machine import open_device, threads, threads_for, threads_of_one, update_flop
from anyreward.learning.presets import Settings
from anyreward.learning.presets import preset as settings_of
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.replay import Replay
from anyreward.learning.train import learn
from anyreward.representation.features import feature_map
from anyreward.rewards.inference import FeatureSample, feature_sample
from anyreward.rewards.trust import lookahead_sample
from anyreward.storage.metrics import MetricsLog
from anyreward.theory.finite_mdp import FiniteMDP, finite_mdp
from anyreward.worlds.world import World, discrete_actions, open_world

MOST_STATES = 1_000
"""Exact evaluation during training stops paying above this many states."""
MOST_GOALS = 100
"""Goals looked at by the quality shown during training, at most."""
EVALUATION_WORK = 10**9
"""Goals times states cubed that one such look may cost."""

Source = World | Dataset | str | Path | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


def train(
    source: Source,
    *,
    preset: str = "fast",
    settings: Settings | None = None,
    features: str | Callable[[Any], Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
    tensorboard: bool = False,
    **changes: Any,
) -> Agent:
    """Learn a representation without reward, online in a world or offline from a dataset.

    Args:
        source: a world (``"four-rooms"``, a Gymnasium id, a maze drawing in a .txt file, an environment object, single
            or vector) or a dataset (an .npz file, a Minari folder, ``"minari:ID"``).
        preset: ``fast`` or ``paper``.
        settings: all settings at once, instead of a preset.
        features: phi, if not as in the settings: a vectorised function of a batch of observations.
        out: the run folder, for metrics.jsonl and the saved agent; nothing is written without it.
        overwrite: whether ``out`` may hold an agent already.
        progress: whether to show progress.
        tensorboard: whether to write TensorBoard events to the run folder too.
        changes: settings to change, by name, such as ``dim=50`` or ``seed=1``.
    """
    # the type checker cannot know that what is no dataset is a world
    place = open_dataset(source) if is_dataset(source) else open_world(source)  # type: ignore[arg-type]  # see above
    own = place.settings if isinstance(place, World) else {}
    s = (settings or settings_of(preset, **own)).with_(**changes)
    if out is not None and (Path(out) / "agent.json").exists() and not overwrite:
        raise UserError(f"{out} holds an agent already. Choose another folder, or allow overwriting it.")
    if tensorboard and out is None:
        raise UserError("TensorBoard events need a run folder: give out=... too.")
    if isinstance(features, str):
        s, features = s.with_(features=features), None
    agent, device = untrained(place, s, features), open_device(s.device)
    if s.compile and device.type == "cpu" and not load_updates():
        s = s.with_(compile=False)
    frames = None
    image = agent.representation.observation_encoder.image
    if image:
        each = place.frames_per_step if isinstance(place, World) else image[0]
        held = s.replay_size if isinstance(place, World) else len(place.actions)
        check_memory(held, each or image[0], image[1] * image[2], s.replay_file)
        frames = Frames(image, s.replay_file or None)
    replay = Replay(s.replay_size, device, frames)

    def finish(done: int) -> Agent:
        agent.representation.to("cpu")  # wherever it learned, an agent answers on the CPU
        replay.to("cpu")
        whole = replace(
            agent,
            sample=feature_sample(agent.representation, replay, s.feature_sample, s.seed),
            transitions=lookahead_sample(agent.representation, replay, s.seed),
            updates=done,
        )
        if out is not None:
            whole.save(out, overwrite=True)
        return whole

    done = 0
    flop = update_flop(agent.representation.F, agent.representation.B, s)
    with ExitStack() as stack:
        s = s.with_(threads=s.threads or threads_for(flop, torch.get_num_threads()))
        stack.enter_context(threads(threads_of_one(s)))
        collector, mdp = None, None
        if isinstance(place, World):
            env = place.make_vector(s.environments)
            if place.recipe is not None:  # an environment object stays its owner's to close
                stack.enter_context(closing(env))
            if place.make is not None:
                mdp = finite_mdp(place.make(), s.gamma, MOST_STATES)
            collector = Collector(env, agent.features, s.seed)
        else:
            replay = Replay(max(s.replay_size, len(place.actions)), device, frames)  # data that is given is used whole
            replay.add(place.transitions(agent.features))
        log = None
        if out is not None:
            log = stack.enter_context(MetricsLog(Path(out), tensorboard))
            (Path(out) / "agent.json").unlink(missing_ok=True)  # from here on the folder belongs to this run
        bar = stack.enter_context(TrainingProgress(s.updates, progress))
        seconds, clock, reported, note = 0.0, time.perf_counter(), 0, ""
        try:
            for done, losses in learn(agent.representation, replay, s, collector):
                if done // s.evaluate_every > reported or done == s.updates:
                    reported = done // s.evaluate_every
                    seconds += time.perf_counter() - clock  # of training: evaluating is not counted
                    metrics = {"updates": done, "seconds": seconds, "transitions": replay.added}
                    metrics |= _checked({name: float(value) for name, value in losses.items()}, done)
                    metrics |= _quality(agent, mdp)
                    kind = "quality" if "quality" in metrics else "bellman_loss"
                    note = f"{kind.replace('_', ' ')} {metrics[kind]:.3f}"
                    if log:
                        log.write(metrics)
                    clock = time.perf_counter()
                bar.show(done, note)
        except BaseException as error:
            if done and not isinstance(error, UserError):
                finish(done)  # an interrupted run keeps what it has learned
            raise
    return finish(done)


def untrained(place: World | Dataset, s: Settings, features: Callable[[Any], Any] | None = None) -> Agent:
    """An agent with fresh networks for a world or a dataset; the seed decides their weights."""
    world = place if isinstance(place, World) else None
    space = discrete_actions(place.action_space)
    actions = int(space.n)
    fm = feature_map(
        features or s.features,
        place.observation_space,
        actions,
        s.features_include_action,
        world.feature_names if world else None,
        world.feature_table if world else None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(s.seed)
        representation = fresh_representation(fm, s)
    return Agent(
        representation,
        fm,
        sample=FeatureSample(torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0)),
        settings=s,
        action_start=int(space.start),
        world_name=place.name,
        world_recipe=world.recipe if world else None,
    )


def _checked(losses: dict[str, float], done: int) -> dict[str, float]:
    if not np.isfinite(list(losses.values())).all():
        raise UserError(
            f"Training diverged: after {done:,} updates the losses are {losses}. Lower learning_rate, raise "
            "temperature, or turn layer_norm on."
        )
    return losses


def _quality(agent: Agent, mdp: FiniteMDP | None) -> dict[str, float]:
    """The policy quality shown during training, where the world can be solved exactly."""
    if mdp is None or len(mdp.live) == 0:
        return {}
    most = min(len(mdp.live), MOST_GOALS, max(4, EVALUATION_WORK // mdp.states**3))
    goals = mdp.live[np.unique(np.linspace(0, len(mdp.live) - 1, most).astype(int))]
    soft, greedy = (
        goal_quality(agent.representation, agent.features, mdp, temperature, goals).ratio for temperature in (1.0, 0.0)
    )
    return {"quality": float(soft.mean()), "quality_worst": float(soft.min()), "quality_greedy": float(greedy.mean())}
