"""Garnets: random finite MDPs."""

from __future__ import annotations

import numpy as np

from anyreward.errors import UserError
from anyreward.theory.finite_mdp import FiniteMDP, from_entries


def garnet(states: int, actions: int, branches: int, seed: int, gamma: float = 0.9, ending: float = 0.0) -> FiniteMDP:
    """A random MDP: each (s, a) leads to ``branches`` different states, with Dirichlet(1, ..., 1) probabilities.

    With ``ending``, the episode ends after (s, a) with a probability drawn uniformly from 0 to ``ending``.
    """
    if states < 1 or actions < 1 or not 1 <= branches <= states:
        raise UserError(
            f"garnet got {states} states, {actions} actions and {branches} branches; expected at least one of each, "
            "and no more branches than states."
        )
    if not 0 <= ending <= 1:
        raise UserError(f"ending is {ending}; expected a probability, 0 <= ending <= 1.")
    rng = np.random.default_rng(seed)
    pairs = states * actions
    to = np.stack([rng.choice(states, branches, replace=False) for _ in range(pairs)])  # (S A, branches)
    probabilities = rng.dirichlet(np.ones(branches), pairs) * (1 - ending * rng.random((pairs, 1)))
    rows = np.repeat(np.arange(pairs), branches)
    return from_entries(rows, to.reshape(-1), probabilities.reshape(-1), (states, actions), gamma)
