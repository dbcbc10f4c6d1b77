"""Samples of the reward of an environment, by running the exploration policy again."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import numpy as np
import torch

from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.progress import TrainingProgress
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward
from anyreward.rewards.terms import samples
from anyreward.worlds.stepping import opened
from anyreward.worlds.world import World

STEPS_AT_ONCE = 500
"""Steps between two updates of the progress bar."""


def sample_rewards(
    world: World, knowledge: Knowledge, budget: int, environments: int, seed: int, progress: bool
) -> Reward:
    """Rewards of ``budget`` steps of the exploration policy, as samples of the training distribution."""
    model, s = knowledge.model, knowledge.settings
    if budget < 1:
        raise UserError(f"budget is {budget}; it must be positive.")
    model.phi.check_fits(world.name, world.observation_space, world.action_space)
    new_z = partial(knowledge.training_z, random=torch.Generator().manual_seed(seed))
    phi, rewards = [], []
    with ExitStack() as stack:
        collector = Collector(stack.enter_context(opened(world, environments)), model.phi, seed)
        bar = stack.enter_context(TrainingProgress(budget, progress, what=("asking", "steps")))
        for done in range(0, budget, STEPS_AT_ONCE):
            steps = min(STEPS_AT_ONCE, budget - done)
            rows, received = collector.collect_rewarded(steps, s.exploration, model.greedy, new_z)
            phi.append(model.phi.readable(rows.features.numpy())[:steps])
            rewards.append(received[:steps])
            bar.show(done + steps)
    return samples(np.concatenate(phi), np.concatenate(rewards))
