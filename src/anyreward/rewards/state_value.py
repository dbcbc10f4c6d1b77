"""The part of Q besides F . z_R: V-bar of a bias (Theorem "main2"), and r if successor measures count from t = 1.

It is the same for all actions, so only values need it, not policies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward

MOST_ROWS = 1_000
"""Largest number of features in the expectation over rho: m-bar is computed for every pair with an observation."""
PAIRS_AT_ONCE = 100_000


def state_value(reward: Reward, knowledge: Knowledge, z: Tensor, packed: Tensor, features: Tensor | None) -> Tensor:
    """(n,) r(phi(s)), if successor measures count from t = 1, plus E_rho[m-bar(s, z, g) r(g)] of a bias.

    Args:
        reward: the reward.
        knowledge: F, B and m-bar, with a sample of rho.
        z: (d,) of the policy, as F sees it.
        packed: (n, packed) observations.
        features: (n, packed features) of the observations, needed only for t = 1.
    """
    model, sample = knowledge.model, knowledge.sample
    reward = reward.settled(knowledge)
    function, masses = reward.split_atoms(knowledge)
    total = torch.zeros(len(packed), dtype=torch.float64)
    if knowledge.settings.first_step == 1:
        if features is None:
            raise UserError("With first_step=1, values need the reward of the current state: pass its features.")
        total += torch.from_numpy(function.values(knowledge, features))
    if model.bias is None:
        return total
    rows, weights = sample.rows, sample.weights
    if len(rows) > MOST_ROWS:
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MOST_ROWS]
        rows, weights = rows[chosen], weights[chosen] / weights[chosen].sum()
    mass = weights * torch.from_numpy(function.values(knowledge, rows))
    for weight, atoms in masses:
        rows = torch.cat([rows, atoms.to(rows)])
        mass = torch.cat([mass, torch.full((len(atoms),), weight / len(atoms), dtype=torch.float64)])
    pieces = torch.split(packed, max(1, PAIRS_AT_ONCE // len(rows)))
    return total + torch.cat([model.bias_map(piece, z, rows).double() @ mass for piece in pieces])
