"""Rewards as values: weighted sums of terms, which can be added, subtracted and scaled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from anyreward.errors import UserError, shown
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.regression import Estimate, RewardStatistics

Array = np.ndarray[Any, Any]

LARGEST, SMALLEST = 1e30, 1e-30
"""Rewards, weights and z up to the largest are accepted, and z from the smallest: float32 holds their products."""


class Part(NamedTuple):
    """The contribution of a term to z_R."""

    z: Tensor
    """(d,) float64"""
    values: Array | None = None
    """(n,) the term at the rows of the sample of rho, if it is a function of the features"""
    estimate: Estimate | None = None
    """if z was estimated from samples of the reward"""
    statistics: RewardStatistics | None = None
    """of those samples"""


class Term(ABC):
    """One kind of reward. A new kind is a subclass with the methods `part` and `values`."""

    has_values: ClassVar[bool] = True
    """Whether the term has values of its own; else it represents the reward linear in B that has its z."""
    is_goal: ClassVar[bool] = False
    """Whether goal-oriented DQN, which supports single goals only, can answer it."""

    @abstractmethod
    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """E_rho[r B]; warns if the answer will be poor, unless ``quiet``."""

    @abstractmethod
    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """(n,) the reward of packed features (n, packed)."""

    def atoms(self, knowledge: Knowledge) -> Tensor | None:
        """(m, packed) the points of a term that is a unit of mass shared among m points; None if it is a function."""
        return None

    def settled(self, knowledge: Knowledge) -> Term:
        """The same term after estimation: samples and demonstrations become a z, other terms stay the same."""
        return self

    def check_agent(self, fingerprint: str) -> None:
        """Raise if the term belongs to another agent."""
        return None

    def goal_rows(self, knowledge: Knowledge) -> Tensor | None:
        """(m, packed) the packed features of a goal; None for other terms."""
        return None

    @property
    def in_sum(self) -> str:
        """How the term is written in a sum."""
        return str(self)


@dataclass(frozen=True, eq=False)
class Reward:
    """A weighted sum of terms; closed under +, - and * number."""

    terms: tuple[tuple[float, Term], ...] = field(default=())

    @property
    def has_values(self) -> bool:
        """Whether all terms have values of their own."""
        return all(term.has_values for _, term in self.terms)

    @property
    def is_goal(self) -> bool:
        """Whether this is a single goal with a positive weight; the size of the weight changes no policy."""
        return len(self.terms) == 1 and self.terms[0][0] > 0 and self.terms[0][1].is_goal

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """(n,) the reward of packed features (n, packed)."""
        total = np.zeros(len(rows))
        for weight, term in self.terms:
            total += weight * term.values(knowledge, rows)
        return total

    def settled(self, knowledge: Knowledge) -> Reward:
        """The same reward, with samples and demonstrations replaced by their z."""
        return Reward(tuple((weight, term.settled(knowledge)) for weight, term in self.terms))

    def split_atoms(self, knowledge: Knowledge) -> tuple[Reward, list[tuple[float, Tensor]]]:
        """The terms that are functions as one reward, and the others as weights with their points (m, packed)."""
        functions: list[tuple[float, Term]] = []
        masses: list[tuple[float, Tensor]] = []
        for weight, term in self.terms:
            atoms = term.atoms(knowledge)
            if atoms is None:
                functions.append((weight, term))
            else:
                masses.append((weight, atoms))
        return Reward(tuple(functions)), masses

    def __add__(self, other: Reward) -> Reward:
        return Reward(self.terms + other.terms) if isinstance(other, Reward) else NotImplemented

    def __radd__(self, other: object) -> Reward:
        return self if other == 0 else NotImplemented  # so that sum([...]) works

    def __mul__(self, weight: float) -> Reward:
        if not isinstance(weight, int | float | np.integer | np.floating):
            return NotImplemented
        if not -LARGEST <= weight <= LARGEST or any(abs(weight * w) > LARGEST for w, _ in self.terms):
            size = f"only finite weights up to {LARGEST:g} are accepted (the scale of a reward changes no policy)"
            raise UserError(f"A reward was multiplied by {shown(weight)}; {size}.")
        return Reward(tuple((float(weight) * w, term) for w, term in self.terms))

    __rmul__ = __mul__

    def __truediv__(self, weight: float) -> Reward:
        if not isinstance(weight, int | float | np.integer | np.floating):
            return NotImplemented
        if weight == 0 or not -LARGEST <= weight <= LARGEST:
            zero = "zero" if weight == 0 else f"{shown(weight)}; only finite numbers up to {LARGEST:g} are accepted"
            raise UserError(f"A reward was divided by {zero}.")
        return self * (1 / float(weight))

    def __neg__(self) -> Reward:
        return self * -1.0

    def __sub__(self, other: Reward) -> Reward:
        return self + (-other) if isinstance(other, Reward) else NotImplemented

    def __str__(self) -> str:
        text = ""
        for weight, term in self.terms:
            sign = " - " if weight < 0 else " + "
            size = "" if abs(weight) == 1 else f"{abs(weight):g} * "
            name = term.in_sum if len(self.terms) > 1 else str(term)
            text += (sign if text else sign.strip().replace("+", "")) + size + name
        return text or "0"
