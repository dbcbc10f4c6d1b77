"""The public functions `train` and `resume`; `training.run` implements the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv

from anyreward.acting.play import measures
from anyreward.agent import Agent
from anyreward.errors import UserError
from anyreward.folder import holds_agent, load_run
from anyreward.learning.datasets import Dataset, is_dataset, open_dataset
from anyreward.learning.landmarks import Landmarks
from anyreward.learning.methods import method_of, settled_dim
from anyreward.learning.repeat import chosen_repeat
from anyreward.learning.settings import BOX, RunChanges, RunSettings, SettingChanges, Settings, split_changes
from anyreward.learning.settings import preset as settings_of
from anyreward.learning.tables import MOST_DIM, can_list, listed
from anyreward.model.features import FeatureMap, feature_map
from anyreward.rewards.knowledge import FeatureSample, Knowledge
from anyreward.storage import user_path
from anyreward.storage.lock import locked
from anyreward.storage.metrics import check_metrics
from anyreward.training.run import Resumed, Run
from anyreward.worlds.actions import action_set
from anyreward.worlds.goals import Tolerance
from anyreward.worlds.spaces import channels_last, image_shape
from anyreward.worlds.world import World, open_world

LONGER, LARGEST_GAMMA = 5, 0.999
"""Where gamma is chosen: the horizon 1 / (1 - gamma) in units of the world's time limit, and the largest gamma."""
MOST_LISTED = 32
"""Largest number of actions of a box that are listed."""
Source = World | Dataset | str | Path | gym.Env[Any, Any] | VectorEnv[Any, Any, Any]


def train(
    source: Source,
    *,
    preset: str = "fast",
    settings: Settings | None = None,
    run: RunSettings | None = None,
    features: str | Callable[[Any], Any] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = True,
    tensorboard: bool = False,
    minutes: float | None = None,
    **changes: Unpack[SettingChanges],
) -> Agent:
    """Learn a representation without reward, online in a world or offline from a dataset.

    Args:
        source: a world (``"four-rooms"``, a Gymnasium id, a maze drawing in a .txt file, an environment object, single
            or vector) or a dataset (an .npz or HDF5 file, a folder, ``"minari:ID"``; docs/datasets.md).
        preset: ``fast``, ``paper``, or ``published``, the size of the literature on continuous actions.
        settings: all settings at once, instead of a preset.
        run: how to run it, such as threads and device.
        features: phi, if not that of the settings: a vectorised function of a batch of observations.
        out: the run folder, for metrics.jsonl and the saved agent; nothing is written without it.
        overwrite: whether ``out`` may hold an agent already.
        progress: whether to show progress.
        tensorboard: whether to write TensorBoard events to the run folder too.
        minutes: stop after this time; `resume` continues the run.
        changes: settings to change, by name, such as ``dim=50`` or ``seed=1``.
    """
    opened = _open(source, progress)
    given, of_run = split_changes(changes)
    own, own_run = split_changes(opened.settings_for(given.get("method", "fb")) if isinstance(opened, World) else {})
    box = action_set(opened.action_space, opened.name).box is not None
    own = (BOX.get(preset, {}) if box else {}) | own
    s = settings.with_(**given) if settings else settings_of(preset, **{**own, **given})
    run = run.with_(**of_run) if run else RunSettings(**{**own_run, **of_run})
    folder = None if out is None else user_path(out)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise UserError(f"out is {out}, which is a file; give a folder for the run.")
    if tensorboard and folder is None:
        raise UserError("TensorBoard events need a run folder: set out=...")
    if isinstance(features, str):
        s, features = s.with_(features=features), None
    choose_gamma = settings is None and preset == "fast" and "gamma" not in own | given
    with nullcontext() if folder is None else locked(folder):
        if folder is not None and holds_agent(folder) and not overwrite:
            raise UserError(
                f"{out} holds an agent already. Choose another folder, or pass overwrite=True (--overwrite)."
            )
        if folder is not None:
            check_metrics(folder)
        agent = untrained(opened, s, run, features, choose_gamma)
        return Run(opened, agent, folder, progress, tensorboard, minutes).execute()


def resume(
    folder: str | Path,
    *,
    updates: int | None = None,
    source: Source | None = None,
    features: Callable[[Any], Any] | None = None,
    progress: bool = True,
    tensorboard: bool = False,
    minutes: float | None = None,
    **changes: Unpack[RunChanges],
) -> Agent:
    """Continue a run that was stopped, or train for longer.

    A run that was stopped, at any moment and by anything, continues exactly where it was last saved: it ends with the
    same weights as one that was never stopped. Exceptions are announced when a run begins: environments whose state
    cannot be saved, and replay buffers that do not fit on the disk.

    Args:
        folder: the run folder.
        updates: total number of updates, if not that of the run's settings.
        source: its world or dataset, if it was an environment object or a dataset, which cannot be opened by name.
        features: the feature function, if the run had one.
        progress: whether to show progress.
        tensorboard: whether to write TensorBoard events too.
        minutes: stop after this time.
        changes: ``replay_size``, ``threads``, ``device``, ``compile``, ``environments``, ``evaluate_every``,
            ``save_every``, ``step_timeout``, ``replay_file``.
    """
    refused = sorted(set(changes) - set(RunChanges.__annotations__))
    if refused:
        raise UserError(
            f"A resumed run keeps its settings; {', '.join(refused)} cannot be changed. These can: updates, "
            f"{', '.join(sorted(RunChanges.__annotations__))}."
        )
    given, of_run = split_changes(changes)
    folder = user_path(folder)
    if not folder.is_dir():
        raise UserError(f"There is no agent folder at {folder}.")
    with locked(folder):
        saved, state, files = load_run(folder, features)
        agent = Agent(*saved)
        s = agent.settings.with_(**given) if updates is None else agent.settings.with_(updates=updates, **given)
        if s.updates <= agent.updates:
            raise UserError(
                f"{folder} has done its {agent.updates:,} updates; to continue, set a larger total (updates)."
            )
        opened = agent.world() if source is None else _open(source, progress)
        agent.model.phi.check_fits(opened.name, opened.observation_space, opened.action_space)
        agent = replace(agent, knowledge=replace(agent.knowledge, settings=s), run=agent.run.with_(**of_run))
        return Run(opened, agent, folder, progress, tensorboard, minutes, Resumed(state, files)).execute()


def _open(source: Source, progress: bool) -> World | Dataset:
    # mypy does not infer that a source that is not a dataset is a world
    if is_dataset(source):
        return open_dataset(source, progress=progress)
    return open_world(source)  # type: ignore[arg-type]  # see above


def with_ends_and_actions(phi: FeatureMap, s: Settings, source: World | Dataset) -> FeatureMap:
    """The feature map with terminal states, where episodes may terminate, and with actions, if they are not set.

    B sees actions by itself where tables can list all pairs of a state and an action. Images, other encodings than
    "plain", goal-oriented DQN and successor measures from t = 1 know no terminal states.
    """
    may_end = not source.never_terminates if isinstance(source, World) else bool(source.terminated.any())
    plain = s.encoding == "plain" and not s.method.startswith("goal-") and s.first_step == 0
    image = image_shape(phi.seen_space) is not None or channels_last(phi.seen_space)
    phi = replace(phi, ends=may_end and plain and not image)
    discrete = phi.action_set.box is None
    if s.features_include_action is None and discrete and phi.ends and Landmarks.possible(phi, s):
        listed_pairs = listed(phi.space, phi.ends) * phi.actions
        categorical = can_list(phi.space, phi.ends, numbers=0)
        phi = replace(phi, include_action=categorical and listed_pairs <= MOST_DIM)
    return phi


def with_listed_actions(phi: FeatureMap, s: Settings) -> FeatureMap:
    """The feature map with a list of the actions of a box, where the method needs one: for tables, and for DQN."""
    if not phi.action_set.continuous:
        return phi
    listed = replace(phi, action_set=phi.action_set.listed(s.action_levels))
    few = s.action_levels**phi.action_set.width <= MOST_LISTED
    if s.method.startswith("goal-"):
        if not few:
            raise UserError(
                f"method is {s.method}, which needs a list of actions; {s.action_levels} values for each of "
                f"{phi.action_set.width} numbers are more than {MOST_LISTED} actions. Lower action_levels, or use "
                "method='fb'."
            )
        return listed
    return listed if few and Landmarks.possible(listed, s) else phi


def with_repeat(s: Settings, world: World | None, tables: bool) -> Settings:
    """The settings with the number of times that an action is repeated, if that is to be chosen: once for tables."""
    if s.action_repeat:
        return s
    if tables or world is None or world.make is None:
        return s.with_(action_repeat=1)
    return s.with_(action_repeat=chosen_repeat(world, s.seed))


def untrained(
    source: World | Dataset,
    s: Settings,
    run: RunSettings | None = None,
    features: Callable[[Any], Any] | None = None,
    choose_gamma: bool = False,
) -> Agent:
    """An untrained agent for a world or a dataset; the seed determines the weights of its networks.

    With ``choose_gamma``, tables in a world whose episodes may terminate have a horizon 1 / (1 - gamma) beyond its time
    limit, if that is longer than the setting's: their policies are then good for the return without a discount, too.
    """
    world = source if isinstance(source, World) else None
    phi = feature_map(
        features or s.features,
        source.observation_space,
        action_set(source.action_space, source.name),
        bool(s.features_include_action),
        source.feature_names,
        source.feature_table,
    )
    phi = with_listed_actions(with_ends_and_actions(phi, s, source), s)
    s = with_repeat(s, world, Landmarks.possible(phi, s))
    test = world.goal_test if world else None
    if Landmarks.possible(phi, s) and test and isinstance(test.reached, Tolerance) and measures(test, phi):
        phi = replace(phi, tolerance=test.reached)
    if choose_gamma and world and world.time_limit and phi.ends and Landmarks.possible(phi, s):
        decisions = world.time_limit / s.action_repeat
        s = s.with_(gamma=max(s.gamma, min(1 - 1 / (LONGER * decisions), LARGEST_GAMMA)))
    s = settled_dim(phi, s)
    with torch.random.fork_rng():
        torch.manual_seed(s.seed)
        model = method_of(phi, s).fresh(phi, s)
    nothing = FeatureSample(torch.empty(0), torch.empty(0), torch.empty(0, s.dim))
    knowledge = Knowledge(model, s, nothing)
    return Agent(knowledge, run or RunSettings(), source.name, world.recipe if world else None)
