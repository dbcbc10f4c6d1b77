"""The reward of an environment as a black box: run the exploration policy again, and see what it pays."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial

import numpy as np
import torch

from anyreward.errors import UserError
from anyreward.learning.collect import Collector
from anyreward.learning.presets import Settings
from anyreward.learning.progress import TrainingProgress
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.inference import FeatureSample, training_z
from anyreward.rewards.reward import Reward, samples
from anyreward.worlds.world import World

STEPS_AT_ONCE = 500
"""Steps between two looks at the progress bar."""


def sample_rewards(
    world: World,
    sample: FeatureSample,
    features: FeatureMap,
    representation: Representation,
    s: Settings,
    budget: int,
    seed: int,
    progress: bool,
) -> Reward:
    """Rewards of ``budget`` steps of the exploration policy, as samples of the training distribution."""
    if budget < 1:
        raise UserError(f"budget is {budget}; it must be positive.")
    features.check_fits(world.name, world.observation_space, world.action_space)
    draw_z = partial(training_z, sample, s, random=torch.Generator().manual_seed(seed))
    env = world.make_vector(s.environments)
    phi, rewards = [], []
    with ExitStack() as stack:
        if world.recipe is not None:  # an environment object stays its owner's to close
            stack.enter_context(closing(env))
        collector = Collector(env, features, seed)
        bar = stack.enter_context(TrainingProgress(budget, progress, what=("asking", "steps")))
        for done in range(0, budget, STEPS_AT_ONCE):
            steps = min(STEPS_AT_ONCE, budget - done)
            rows, paid = collector.collect_rewarded(steps, s.exploration, representation.greedy, draw_z)
            phi.append(features.readable(rows.features.numpy())[:steps])
            rewards.append(paid[:steps])
            bar.show(done + steps)
    return samples(np.concatenate(phi), np.concatenate(rewards))
