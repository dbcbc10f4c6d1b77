"""Generalised policy improvement: sup over z' of F(s, a, z') . z_R (the end of Theorem "main-extended")."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.acting.policy import Correction, Policy
from anyreward.errors import UserError
from anyreward.learning.presets import Settings
from anyreward.representation.latent import on_sphere
from anyreward.rewards.inference import FeatureSample, training_z

Array = np.ndarray[Any, Any]

MOST_GOALS = 256
"""Training features whose B serve as z', at most."""
ROWS_AT_ONCE = 4_096
"""Rows that go through F together."""


def improvement(Z: Tensor) -> Correction:
    """Take the best of what each policy pi_z', z' in Z (m, d), and pi_z itself promise for the asked reward."""

    def best(policy: Policy, packed: Tensor, Q: Tensor) -> Tensor:
        F = policy.representation
        for z in torch.split(Z.to(policy.z), max(1, ROWS_AT_ONCE // max(len(packed), 1))):
            m, n = len(z), len(packed)
            promised = F.forward_map(packed.repeat(m, 1), z.repeat_interleave(n, 0)).cpu() @ policy.z  # (m n, A)
            Q = torch.maximum(Q, promised.view(m, n, -1).amax(0).to(Q.dtype))
        return Q

    return best


def other_z(improve: int | str | Array, sample: FeatureSample, s: Settings) -> Tensor:
    """(m, d) the z' of `Agent.ask`'s ``improve``: drawn as in training, B of training features, or given."""
    d = sample.B.shape[1]
    if isinstance(improve, int | np.integer) and not isinstance(improve, bool) and improve > 0:
        return training_z(sample, s, int(improve), torch.Generator().manual_seed(s.seed))
    if isinstance(improve, str) and improve == "goals":
        Z = sample.B[:: -(-len(sample.B) // MOST_GOALS)]
    else:
        Z = torch.zeros(0)
        if not isinstance(improve, str | int):
            Z = torch.as_tensor(np.asarray(improve, dtype=np.float64))
        if Z.ndim != 2 or Z.shape[1] != d or len(Z) == 0 or not torch.isfinite(Z).all():
            raise UserError(
                f"improve is {improve!r}; accepted: a positive number of z' to draw, 'goals', or finite z' themselves, "
                f"(m, {d})."
            )
    return on_sphere(Z, sample.own(Z)) if s.z_norm == "sphere" else Z
