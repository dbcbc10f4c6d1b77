"""What Q has beside F . z_R: V-bar of a bias (Theorem "main2"), and r where successor measures count from t = 1.

It is the same for all actions, so no policy needs it: only values do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.representation.fb import Representation
from anyreward.representation.features import FeatureMap
from anyreward.rewards.inference import FeatureSample, reward_values, settled
from anyreward.rewards.places import goal_rows
from anyreward.rewards.reward import Goal, Reward

MOST_ROWS = 1_000
"""Features that the expectation over rho takes, at most: m-bar is asked for every pair with an observation."""
PAIRS_AT_ONCE = 100_000


def baseline(
    target: Reward,
    z: Tensor,
    packed: Tensor,
    here: Tensor | None,
    sample: FeatureSample,
    features: FeatureMap,
    representation: Representation,
    first_step: int,
) -> Tensor:
    """(n,) r(phi(s)), where successor measures count from t = 1, and E_rho[m-bar(s, z, g) r(g)], where there is a bias.

    Args:
        target: the reward.
        z: (d,) of the policy, as F sees it.
        packed: (n, packed) observations.
        here: (n, packed features) theirs, which only the first part needs.
        sample: of rho.
        features: phi.
        representation: F, B and m-bar.
        first_step: from which t on successor measures count.
    """
    target = settled(target, sample, features, representation)
    points: list[tuple[float, Tensor]] = []  # goals among numbers: a unit of mass at one point
    if not representation.feature_encoder.categorical:
        for weight, term in target.terms:
            if isinstance(term, Goal):
                rows = torch.from_numpy(goal_rows(term, features, representation))
                points += [(weight / len(rows), row) for row in rows]
        target = Reward(tuple((w, term) for w, term in target.terms if not isinstance(term, Goal)))

    def paid(rows: Tensor) -> Tensor:
        return torch.from_numpy(reward_values(target, rows, features, representation, sample))

    total = torch.zeros(len(packed), dtype=torch.float64)
    if first_step == 1:
        if here is None:
            raise UserError("Values from t = 1 on need what the state itself pays: give its features too.")
        total += paid(here)
    if representation.bias is None:
        return total
    rows, weights = sample.rows, sample.weights
    if len(rows) > MOST_ROWS:
        chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:MOST_ROWS]
        rows, weights = rows[chosen], weights[chosen] / weights[chosen].sum()
    mass = weights * paid(rows)
    if points:
        rows = torch.cat([rows, torch.stack([row for _, row in points]).to(rows)])
        mass = torch.cat([mass, torch.tensor([weight for weight, _ in points], dtype=torch.float64)])
    pieces = torch.split(packed, max(1, PAIRS_AT_ONCE // len(rows)))
    return total + torch.cat([representation.bias_map(piece, z, rows).double() @ mass for piece in pieces])
