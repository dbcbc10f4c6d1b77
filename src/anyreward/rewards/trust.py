"""How far an answer can be trusted: what can be said of it without knowing the best one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from anyreward.learning.replay import Transitions
from anyreward.representation.latent import preprocess_z
from anyreward.rewards.inference import FeatureSample, Inferred

Array = np.ndarray[Any, Any]
Verdict = Literal["good", "doubtful", "do not rely on it"]

GOOD, DOUBTFUL = 0.9, 0.7
"""Predicted scores from which on an answer is good, or doubtful; docs/trust.md has the figures."""
RIDGE = 1e-4
"""Directions of B with less than this share of the largest variance count as not learned."""
THIN_NEIGHBOUR, THIN_ROWS = 10, 2_000
"""Among numbers, data is thin where this neighbour, of so many rows, is more than twice as far as usual."""
CLOSE = 0.05
"""In standard deviations: no distance below this is called far, however often rows repeat."""
EXACT = "donot_use_mm_for_euclid_dist"
"""How distances are computed where equal rows must be at none."""
THIN_SHARE = 0.1
"""Among categories, data is thin where it is less than this share of an even spread."""
MOST_THIN = 0.5
"""Share of the reward that may lie where data is thin before that makes an answer doubtful."""
DOUBTFUL_ERROR, LARGEST_ERROR = 0.5, 1.0
"""Standard error of z, relative to z, from which on an answer is doubtful, or not to be relied on."""
LEAST_TRANSITIONS = 1_000
"""Held-out transitions below which a small world of them says little."""
RARE = 0.01
"""A z is outside the range of training if no more than this share of training's z are further out."""


@dataclass(frozen=True)
class Trust:
    """What can be said of an answer without knowing the best one. None: cannot be known here."""

    verdict: Verdict
    reasons: tuple[str, ...]
    predicted: float | None
    """The score that is expected of the policy, 0 for random and 1 for optimal, from trying it out in a small world
    made of held-out transitions; where z was estimated, times the cosine that it should have with the true one."""
    value: float | None
    """What it earns there, discounted, in units of the reward: the mean over places."""
    represented: float | None
    """R^2 under rho of the reward on the span of B; what B cannot represent is treated as zero. Of samples, that of the
    rewards seen: what is missing is noise, or beyond B. None for a goal among continuous features, a demonstration or a
    z, which have no values."""
    residual: float | None
    """Of Q = F . z_R for this reward on held-out transitions, how far it is from its own Bellman equation: root mean
    square, relative to the spread of Q."""
    typical: float
    """The share of training's z that lie further out than this one: near 0, F was not trained for it."""
    rank: float
    """The effective rank of Cov B: how many directions it would have if all were alike."""
    condition: float
    """The conditioning of Cov B, among directions that were learned."""
    thin: float | None
    """The share of the reward that lies where training data is thin."""
    samples: int
    """Reward samples that z was estimated from; 0 if it was not."""
    effective_samples: float
    """As many equally large ones would count as much."""
    error: float
    """The standard error of z, relative to its size."""

    def __str__(self) -> str:
        def known(value: float | None, text: str) -> str:
            return "cannot be known here" if value is None else text.format(value)

        lines = [
            ("trust", f"{self.verdict}: {'; '.join(self.reasons)}"),
            ("predicted", known(self.predicted, "score {:.2f} (0 = random, 1 = optimal)")),
            ("value", known(self.value, "{:.4g}, discounted")),
            ("represented", known(self.represented, "{:.2f} of the reward lies in the span of B (R^2)")),
            ("consistent", known(self.residual, "Bellman residual {:.2f} of the spread of Q, on held-out transitions")),
            ("z", f"{self.typical:.0%} of training's z are further out"),
            ("Cov B", f"effective rank {self.rank:.1f}, condition {self.condition:.3g}"),
            ("coverage", known(self.thin, "{:.0%} of the reward lies where training data is thin")),
        ]
        if self.samples:
            effective = f"{self.effective_samples:,.0f} that count"
            lines.append(("samples", f"{self.samples:,}, {effective}, standard error of z {self.error:.0%}"))
        return "\n".join(f"{name:<12} {text}" for name, text in lines)


def judge(
    predicted: float | None,
    represented: float | None,
    thin: float | None,
    typical: float,
    found: Inferred,
    transitions: int,
) -> tuple[Verdict, tuple[str, ...]]:
    """A verdict in words, with its reasons: the predicted score decides, the rest can only lower it."""
    if not found.z.any():
        return "do not rely on it", ("z is zero, so this policy acts at random",)
    order: list[Verdict] = ["good", "doubtful", "do not rely on it"]
    if predicted is None:
        level = 1
        reasons = [
            f"it cannot be tried out: {transitions:,} held-out transitions are too few ({LEAST_TRANSITIONS:,} needed)"
        ]
    else:
        level = 0 if predicted >= GOOD else 1 if predicted >= DOUBTFUL else 2
        reasons = [f"expected to earn {predicted:.2f} of what is possible (0 = random, 1 = optimal)"]
    lowered = [
        (1, thin is not None and thin > MOST_THIN, "most of the reward lies where training data is thin"),
        (
            1,
            found.samples > 0 and found.seen < found.of,
            f"samples tell {found.seen} of {found.of} directions of B apart",
        ),
        (1, relative_error(found) > DOUBTFUL_ERROR, f"the standard error of z is {relative_error(found):.0%} of it"),
        (2, relative_error(found) > LARGEST_ERROR, "which is more than all of it"),
        (
            2,
            predicted is None and represented is not None and represented < 0.5,
            "B cannot represent half of the reward",
        ),
        (1, predicted is None and typical <= RARE, "z lies outside the range that F was trained on"),
    ]
    for least, holds, reason in lowered:
        if holds:
            level, reasons = max(level, least), [*reasons, reason]
    return order[level], tuple(reasons)


def relative_error(found: Inferred) -> float:
    """The standard error of z, relative to its size."""
    size = float(found.z.norm())
    return found.error / size if size > 0 else 0.0


def represented(values: Array, sample: FeatureSample) -> float:
    """1 - |r - Pr|^2 / |r|^2 in L2(rho), P the (slightly ridged) projection on the span of B."""
    r = torch.from_numpy(np.asarray(values, dtype=np.float64))
    covariance = sample.covariance
    size = float((sample.weights * r.square()).sum())
    if size == 0.0:
        return 1.0
    ridge = RIDGE * torch.linalg.eigvalsh(covariance)[-1]
    z = (sample.weights * r) @ sample.B
    coefficients = torch.linalg.solve(covariance + ridge * torch.eye(len(z), dtype=torch.float64), z)
    residual = r - sample.B @ coefficients
    return 1.0 - float((sample.weights * residual.square()).sum()) / size


def conditioning(covariance: Tensor) -> tuple[float, float]:
    """The effective rank exp(entropy) of Cov B, and the ratio of its extreme eigenvalues among learned directions."""
    values = torch.linalg.eigvalsh(covariance).clamp(min=0.0)
    share = values / values.sum()
    rank = torch.exp(-torch.special.xlogy(share, share).sum())
    learned = values[values > RIDGE * values[-1]]
    return float(rank), float(learned[-1] / learned[0])


def typicality(z: Tensor, training: Tensor) -> float:
    """The share of training's z (n, d) whose Mahalanobis distance, as F sees z, is larger than that of z (d,)."""
    seen, one = (preprocess_z(x.double()) for x in (training, z[None]))
    moment = seen.T @ seen / len(seen)
    moment += 1e-6 * moment.trace() / len(z) * torch.eye(len(z), dtype=torch.float64)
    far = [(x * torch.linalg.solve(moment, x.T).T).sum(1) for x in (seen, one)]
    return float((far[0] >= far[1] * (1 - 1e-9)).double().mean())


def bellman_residual(
    Q: Tensor, next_Q: Tensor, rows: Transitions, r: Tensor, gamma: float, temperature: float
) -> float:
    """Root mean square of Q(s, a) - r - gamma V(s') relative to the spread of Q, both (n, A), on transitions.

    V is that of the policy which Q is of: softmax(Q / temperature), as in training, or greedy at temperature 0.
    """
    pi = torch.softmax(next_Q / temperature, 1) if temperature > 0 else None
    V = next_Q.amax(1) if pi is None else (pi * next_Q).sum(1)
    now = Q.gather(1, rows.actions[:, None]).squeeze(1)
    error = now - r - torch.where(rows.terminated, 0.0, gamma * V)
    return float(error.square().mean().sqrt() / now.std().clamp(min=1e-12))


def thin_rows(rows: Tensor, sample: FeatureSample, categorical: bool) -> Tensor:
    """(n,) whether training data is thin at packed features (n, packed)."""
    if categorical:
        even = 1 / len(sample.rows)
        common = {row.tobytes() for row in sample.rows[sample.weights >= THIN_SHARE * even].numpy()}
        return torch.tensor([row.tobytes() not in common for row in rows.numpy()])
    known = sample.rows[:: -(-len(sample.rows) // THIN_ROWS)].double()
    size = known.std(0)
    size = torch.where(size > 0, size, 1.0)
    k = min(THIN_NEIGHBOUR, len(known) - 1)

    def far(x: Tensor) -> Tensor:
        pieces = torch.split(x / size, 2_048)
        distances = (torch.cdist(piece, known / size, compute_mode=EXACT) for piece in pieces)
        return torch.cat([d.kthvalue(k, dim=1).values for d in distances])

    usual = far(known).median().clamp(min=CLOSE)
    return far(rows.double()) > 2 * usual
