"""How often an action is repeated in training: until the state has changed visibly.

In an environment with small time steps, one step changes the state by less than F distinguishes, and an episode has
more steps than the discount reaches. With repeated actions, a transition covers more of the way.
"""

from __future__ import annotations

import math

import numpy as np

from anyreward.worlds.actions import action_set
from anyreward.worlds.spaces import Array
from anyreward.worlds.stepping import opened
from anyreward.worlds.world import World

CHANGE = 0.25
"""Change of the state by one transition, in standard deviations, that is aimed at: a mean over its numbers."""
MOST = 16
"""Largest number of repetitions."""
DECISIONS = 25
"""Smallest number of transitions of an episode with a time limit."""
ENVIRONMENTS, STEPS = 4, 500
"""Number of environments, and of steps in each, in which the change is measured, with random actions."""


def chosen_repeat(world: World, seed: int) -> int:
    """The number of times that an action is repeated in training."""
    acts, random = action_set(world.action_space, world.name), np.random.default_rng(seed)
    most = MOST if world.time_limit is None else min(MOST, max(1, world.time_limit // DECISIONS))
    if acts.box is None or most == 1:
        return 1
    rows, begins, actions = [], [], acts.sample(random, ENVIRONMENTS)
    with opened(world, 1 if world.recipe is None else ENVIRONMENTS) as stepper:
        stepper.reset(seed)
        anew = np.ones(stepper.num_envs, dtype=bool)
        for t in range(STEPS):
            rows.append(np.array(stepper.packed, dtype=np.float64))
            begins.append(anew)
            if t % most == 0:
                actions = acts.sample(random, stepper.num_envs)
            anew = stepper.step(acts.outward(actions)).over
    return repeat_of(np.stack(rows), np.stack(begins), most)


def repeat_of(rows: Array, begins: Array, most: int) -> int:
    """The smallest power of two, up to ``most``, after which states (T, n, p) have changed by `CHANGE`.

    ``begins`` (T, n) marks the first states of episodes. Numbers that do not change within episodes do not count.
    """
    episode = begins.cumsum(0)
    spread = rows.reshape(-1, rows.shape[-1]).std(0)
    for power in range(int(math.log2(most)) + 1):
        k = int(2**power)
        same = episode[k:] == episode[:-k]
        change = np.abs(rows[k:] - rows[:-k])[same].mean(0)
        moving = (change > 1e-9) & (spread > 1e-9)
        if not moving.any() or (change[moving] / spread[moving]).mean() >= CHANGE:
            break
    return k
