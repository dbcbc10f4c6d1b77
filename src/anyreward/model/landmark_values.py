"""Values of a few landmarks, by which near states that are far apart for every policy are told apart.

Two places on two sides of a thin wall, or of a corner at which two walls meet, are near each other in numbers. But
what follows from them differs, and F has learned that: F(s, pi_z(s), z) . z, the value of a goal, jumps from one side
to the other. A model of transitions that compares such values beside the numbers does not lead through walls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from anyreward.model.basis import far_points
from anyreward.model.latent import trained_length
from anyreward.model.model import ROWS_AT_ONCE, Model

LANDMARKS = 4
"""Number of landmarks."""
MOST_FEATURES = 2_000
"""Number of features among which they are chosen."""
COMPARED, NEIGHBOUR = 2_000, 10
"""Number of states whose values are compared with those of a neighbour, and which neighbour that is."""


@dataclass(frozen=True, eq=False)
class LandmarkValues:
    """The values of a few landmarks at packed observations."""

    model: Model
    Z: Tensor
    """(m, d) the z of the landmarks as goals"""
    unit: float = 1.0
    """the values are divided by it"""

    @classmethod
    def among(cls, features: Tensor, model: Model) -> LandmarkValues:
        """Landmarks are those of packed features (n, packed) whose B are farthest from each other."""
        some = torch.linspace(0, len(features) - 1, min(len(features), MOST_FEATURES)).long()
        B = model.backward_map(features[some]).cpu()
        far, _ = far_points(B.double(), min(LANDMARKS, len(B)))
        return cls(model, trained_length(far.to(B), "sphere"))

    def __call__(self, packed: Tensor) -> Tensor:
        """(n, m) F(s, pi_z(s), z) . z for each landmark, in units, at packed observations (n, packed)."""
        return torch.cat([self._of(piece) for piece in torch.split(packed, ROWS_AT_ONCE)]) / self.unit

    def _of(self, packed: Tensor) -> Tensor:
        m, n = len(self.Z), len(packed)
        Q = self.model.choose(packed.repeat(m, 1), self.Z.repeat_interleave(n, 0))[1]
        return Q.view(m, n).T.double()


def unit_of(values: Tensor, x: Tensor) -> float:
    """The unit in which ``values`` (n, m) of neighbours differ as much as their numbers x (n, p), by the median."""
    some = torch.linspace(0, len(x) - 1, min(len(x), COMPARED)).long()
    k = min(NEIGHBOUR, len(x) - 1)
    near = torch.from_numpy(np.asarray(KDTree(x.numpy()).query(x[some].numpy(), [k + 1])[1])[:, 0])
    apart = (x[some] - x[near]).norm(dim=1)
    differ = (values[some] - values[near]).norm(dim=1)
    ratio = (differ / apart)[apart > 0]
    return max(float(ratio.median()), 1e-12) if len(ratio) else 1.0
