"""Samples of the reward of an environment, by running the exploration policy again."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import numpy as np
import torch

from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.explorer import EPSILON, Explorer
from anyreward.learning.method import Behaviour
from anyreward.learning.progress import TrainingProgress
from anyreward.learning.replay import Transitions
from anyreward.learning.transition_model import TransitionModel
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import Samples
from anyreward.worlds.spaces import Array
from anyreward.worlds.stepping import opened
from anyreward.worlds.world import World

STEPS_AT_ONCE = 100
"""Steps between two updates of the progress bar, and of the plan of what to visit."""


def sample_rewards(
    world: World, knowledge: Knowledge, budget: int, environments: int, seed: int, progress: bool
) -> Reward:
    """Rewards of ``budget`` steps of the exploration policy, as samples."""
    model, s = knowledge.model, knowledge.settings
    if budget < 1:
        raise UserError(f"budget is {budget}; it must be positive.")
    model.phi.check_fits(world.name, world.observation_space, world.action_space)
    explorer = explorer_of(knowledge, seed)
    behaviour = Behaviour(model.greedy, partial(knowledge.training_z, random=torch.Generator().manual_seed(seed)))
    epsilon = s.exploration
    if explorer is not None:
        behaviour, epsilon = Behaviour(explorer.greedy, explorer.new_tasks), EPSILON
    parts: list[Transitions] = []
    rewards = []
    with ExitStack() as stack:
        stepper = stack.enter_context(opened(world, environments))
        collector = Collector(stepper, model.phi, seed, repeat=s.action_repeat)
        bar = stack.enter_context(TrainingProgress(budget, progress, what=("asking", "steps")))
        done = 0
        while done < budget:
            rows, received = collector.collect_rewarded(min(STEPS_AT_ONCE, budget - done), epsilon, *behaviour)
            if explorer is not None:
                explorer.visited(rows.observations, rows.actions)
                explorer.plan()
            steps = ~rows.terminated if model.phi.ends else torch.ones_like(rows.terminated)  # no reward after the end
            parts.append(rows.at(torch.nonzero(steps).squeeze(1)))
            rewards.append(received[steps.numpy()])
            done += len(rewards[-1])
            bar.show(min(done, budget))
    return rewarded(knowledge, parts[0].joined(*parts[1:]), np.concatenate(rewards), budget)


def rewarded(knowledge: Knowledge, rows: Transitions, rewards: Array, most: int) -> Reward:
    """At most ``most`` transitions with the rewards (n,) of their steps, as samples; they are not drawn from rho."""
    phi = knowledge.model.phi
    rows = rows.map(lambda column: column[:most])
    ended, ends = None, None
    if phi.ends and rows.next_features is not None:
        ended = np.flatnonzero(rows.next_observations[:, -1].numpy() > 0.5)
        ends = phi.readable(rows.next_features[torch.from_numpy(ended)].numpy())
    features = phi.readable(rows.features.numpy())
    return Reward(((1.0, Samples(features, rewards[:most], "other", "auto", ended, ends)),))


def explorer_of(knowledge: Knowledge, seed: int) -> Explorer | None:
    """A policy that visits what an agent with tables knows, what it visited least first; None for networks."""
    model = knowledge.model
    F = model.landmarks
    if F is None or len(F.P.states) == 0:
        return None
    explorer = Explorer(model.observation_encoder, model.phi, seed)
    explorer.know(F.P.states, TransitionModel(F.P.following, F.P.share / knowledge.settings.gamma, F.P.seen))
    return explorer
