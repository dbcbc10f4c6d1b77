"""Coverage: which part of the range of each feature the training data has visited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.reward import Reward
from anyreward.worlds.spaces import bounds_of, leaves

Array = np.ndarray[Any, Any]

BINS = 20
"""Number of equal parts of a bounded range."""
EDGE = 0.2
"""Smallest share of a bounded range, at one of its ends, that is named if it was never seen."""
ENDS = 5
"""Terminal states beyond all others from which it is concluded that episodes terminate there."""
HUGE = 1e30
"""Bounds of this size and more, such as the largest float32, are no bounds."""
MOST_NAMED, MOST_SHOWN = 3, 30
"""Largest numbers of features that are named in a message, and shown in a table."""
POINTS = 4_096
"""Number of points at which a reward that is zero in the training data is evaluated elsewhere."""
REMEDY = "train for longer (updates=, --updates), make episodes longer, or let them start in more states"


@dataclass(frozen=True)
class FeatureCoverage:
    """The values of one feature that the training data has visited."""

    name: str
    low: float
    """The smallest value seen."""
    high: float
    """The largest value seen."""
    bounds: tuple[float, float]
    """The bounds of the observation space; infinite where there are none."""
    share: float | None
    """Share of `BINS` equal parts of the bounded range, or of all values of a category, that were visited; None
    without finite bounds."""
    values: tuple[int, int] | None = None
    """Categories: how many values were seen, and how many there are."""
    ends: tuple[bool, bool] = (False, False)
    """Whether episodes terminate at the smallest and at the largest value, so that nothing lies beyond."""

    @property
    def seen(self) -> str:
        """The range that was seen, as text."""
        return f"{self.low:.4g} to {self.high:.4g}"

    @property
    def missing(self) -> str:
        """The ends of a bounded range that were never seen, unless nothing lies beyond; empty if there are none."""
        low, high = self.bounds
        if self.values or not np.isfinite([low, high]).all() or high <= low:
            return ""
        below = self.low - low > EDGE * (high - low) and not self.ends[0]
        above = high - self.high > EDGE * (high - low) and not self.ends[1]
        if not below and not above:
            return ""
        where = f"outside {self.low:.3g} to {self.high:.3g}"
        if below != above:
            where = f"below {self.low:.3g}" if below else f"above {self.high:.3g}"
        return f"{self.name} {where} (of {low:.3g} to {high:.3g})"


@dataclass(frozen=True)
class Coverage:
    """Which part of the state space the training data has visited, feature by feature; print it for a table."""

    features: tuple[FeatureCoverage, ...]
    rows: int
    """The number of states that it was measured on: a sample of the training data, or all distinct ones."""
    states: tuple[int, int] | None = None
    """Where features are coordinates of states, as in mazes: how many states were seen, and how many there are."""

    @property
    def note(self) -> str:
        """A sentence on what was never seen within the bounds of the observation space; empty if nothing is missing."""
        missing = [feature.missing for feature in self.features if feature.missing]
        if not missing:
            return ""
        return (
            f"Never seen in training: {shortened(missing)}. If this can be reached, {REMEDY}: rewards there cannot be "
            "answered."
        )

    def __str__(self) -> str:
        table = [("feature", "lowest seen", "highest seen", "bounds", "visited")]
        for f in self.features[:MOST_SHOWN]:
            bounded = " to ".join(f"{bound:.4g}" if np.isfinite(bound) else "infinity" for bound in f.bounds)
            visited = "-" if f.share is None else f"{f.share:.0%}"
            if f.values:
                visited = f"{f.values[0]} of {f.values[1]} values"
            none = not np.isfinite(f.bounds).any()
            table.append((f.name, f"{f.low:.4g}", f"{f.high:.4g}", "none" if none else bounded, visited))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
        if len(self.features) > MOST_SHOWN:
            lines.append(f"... and {len(self.features) - MOST_SHOWN} more features")
        if self.states:
            lines.append(f"{self.states[0]:,} of {self.states[1]:,} states were visited (the walls of a maze count).")
        if any(f.share is not None and not f.values for f in self.features):
            lines.append(f"A share is that of {BINS} equal parts of the range between the bounds.")
        return "\n".join([*lines, self.note] if self.note else lines)


def coverage(knowledge: Knowledge) -> Coverage:
    """Measure the coverage of an agent's sample of its training data."""
    phi, packed = knowledge.model.phi, knowledge.sample.rows.numpy()
    if len(packed) == 0:
        raise UserError("This agent has no training data yet; train it first.")
    rows, limits = phi.readable(packed), bounds_of(phi.space)
    kinds = [leaf.kind != "number" for leaf in leaves(phi.space) for _ in range(leaf.packed)]
    sizes = [int(high - low) + 1 if category else 0 for (low, high), category in zip(limits, kinds, strict=True)]
    states = None
    if phi.table is not None:
        limits = np.concatenate([np.stack([phi.table.min(0), phi.table.max(0)], axis=1), limits[1:]])
        sizes = [len(np.unique(column)) for column in phi.table.T] + sizes[1:]
        states = (len(np.unique(packed[:, 0])), len(phi.table))
    ended = rows[:, -1] > 0.5 if phi.ends else np.zeros(len(rows), dtype=bool)
    columns = zip(phi.column_names, rows.T, limits, sizes, strict=True)
    return Coverage(tuple(_measured(*column, ended) for column in columns), len(rows), states)


def _measured(name: str, seen: Array, limits: Array, size: int, ended: Array) -> FeatureCoverage:
    """The coverage of one feature with values (n,), of which those of ``ended`` (n,) are in terminal states."""
    low, high = float(seen.min()), float(seen.max())
    first, second = (float(bound) if abs(bound) < HUGE else float(np.sign(bound)) * np.inf for bound in limits)
    bounds = (first, second)
    if size:
        found = len(np.unique(seen))
        return FeatureCoverage(name, low, high, bounds, found / size, (found, size))
    share = None
    if np.isfinite(bounds).all() and bounds[0] < bounds[1]:
        share = float((np.histogram(seen, BINS, bounds)[0] > 0).mean())
    last, on = seen[ended], seen[~ended]
    ends = (False, False)
    if len(on):
        ends = (bool((last < on.min()).sum() >= ENDS), bool((last > on.max()).sum() >= ENDS))
    return FeatureCoverage(name, low, high, bounds, share, None, ends)


def shortened(texts: Sequence[str]) -> str:
    """Texts in a row, the first few of them if there are many."""
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more


def beyond(rows: Tensor, knowledge: Knowledge) -> list[str]:
    """The features of packed rows (n, packed) that lie outside the range seen in training, with their values."""
    phi, known = knowledge.model.phi, knowledge.sample.rows
    if len(known) == 0:
        return []
    found = []
    for i, name in enumerate(phi.column_names[: phi.state_packed] if phi.table is None else ()):
        low, high, given = known[:, i].min(), known[:, i].max(), rows[:, i]
        apart = torch.maximum(low - given, given - high)
        if float(apart.max()) > 0:
            found.append(f"{name} = {float(given[apart.argmax()]):.4g} (seen: {float(low):.4g} to {float(high):.4g})")
    return found


def pays_elsewhere(reward: Reward, knowledge: Knowledge) -> str:
    """Where a reward that is zero in the training data pays, if that is beyond the range seen of a feature; as text.

    The reward is evaluated at random points between the bounds of the observation space.
    """
    phi, rng = knowledge.model.phi, np.random.default_rng(0)
    if phi.table is not None or knowledge.categorical:
        return ""
    features = coverage(knowledge).features[: phi.state_packed]
    rows = knowledge.sample.rows[torch.from_numpy(rng.integers(len(knowledge.sample.rows), size=POINTS))].clone()
    for i, feature in enumerate(features):
        if feature.values is None:
            low, high = (
                b if np.isfinite(b) else s for b, s in zip(feature.bounds, (feature.low, feature.high), strict=True)
            )
            rows[:, i] = torch.from_numpy(rng.uniform(low, high, POINTS))
    try:
        paid = reward.values(knowledge, rows) != 0
    except UserError:  # a reward that cannot be evaluated there
        return ""
    found = []
    for i, feature in enumerate(features):
        values = rows[paid, i].numpy()
        if len(values) and ((values < feature.low) | (values > feature.high)).all():
            found.append(f"{feature.name} is {values.min():.3g} to {values.max():.3g} (seen: {feature.seen})")
    return f"It pays where {shortened(found)}; {REMEDY}." if found else ""
