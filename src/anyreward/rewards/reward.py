"""Rewards as values: goals and functions of the features, added, subtracted and scaled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anyreward.errors import UserError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Goal:
    """A reward of one where the features equal ``at``."""

    at: tuple[float, ...]

    def __str__(self) -> str:
        return f"goal({', '.join(f'{x:g}' for x in self.at)})"


@dataclass(frozen=True)
class Function:
    """A reward that is a vectorised function of the readable features, (n, k) to (n,)."""

    of: Callable[[Array], Any]
    name: str

    def __call__(self, features: Array) -> Array:
        """The rewards (n,) of features (n, k), checked."""
        values = np.asarray(self.of(features), dtype=np.float64)
        if values.shape != (len(features),):
            raise UserError(
                f"The reward {self.name} returned shape {values.shape} for {len(features)} rows of features; expected "
                f"({len(features)},). It must be vectorised: it is given an array (n, {features.shape[1]})."
            )
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values))[0])
            raise UserError(
                f"The reward {self.name} is {values[bad]} in row {bad}, for the features {features[bad].tolist()}; "
                "rewards must be finite."
            )
        return values

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reward:
    """A weighted sum of goals and functions. Made by `goal` and `reward`; closed under +, - and * number."""

    terms: tuple[tuple[float, Goal | Function], ...]

    def __add__(self, other: Reward) -> Reward:
        return Reward(self.terms + other.terms) if isinstance(other, Reward) else NotImplemented

    def __radd__(self, other: object) -> Reward:
        return self if other == 0 else NotImplemented  # so that sum([...]) works

    def __mul__(self, weight: float) -> Reward:
        if not isinstance(weight, int | float | np.number):
            return NotImplemented
        if not math.isfinite(weight):
            raise UserError(f"A reward was multiplied by {weight}; weights must be finite.")
        return Reward(tuple((float(weight) * w, term) for w, term in self.terms))

    __rmul__ = __mul__

    def __truediv__(self, weight: float) -> Reward:
        if weight == 0:
            raise UserError("A reward was divided by zero.")
        return self * (1 / weight)

    def __neg__(self) -> Reward:
        return self * -1.0

    def __sub__(self, other: Reward) -> Reward:
        return self + (-other) if isinstance(other, Reward) else NotImplemented

    def __str__(self) -> str:
        text = ""
        for weight, term in self.terms:
            sign = " - " if weight < 0 else " + "
            size = "" if abs(weight) == 1 else f"{abs(weight):g} * "
            text += (sign if text else sign.strip().replace("+", "")) + size + str(term)
        return text or "0"


def goal(*at: Any) -> Reward:
    """Reward one for being at a goal, zero elsewhere.

    ``goal(2, 8)`` or ``goal((2, 8))``: the readable features of the goal (in a maze its x, from the left, and y, from
    the top); ``goal(37)``: the state's number, where observations are Discrete.
    """
    values = at[0] if len(at) == 1 and np.ndim(at[0]) > 0 else at
    try:
        numbers = tuple(float(value) for value in np.ravel(np.asarray(values, dtype=np.float64)))
    except (TypeError, ValueError) as error:
        raise UserError(f"goal({at!r}) is not a list of numbers: give the features of the goal.") from error
    if not numbers or not all(math.isfinite(x) for x in numbers):
        raise UserError(f"goal({values!r}) needs finite numbers, one for each feature.")
    return Reward(((1.0, Goal(numbers)),))


def reward(function: Callable[[Array], Any], name: str | None = None) -> Reward:
    """A reward given by a vectorised function of the readable features, (n, k) to (n,)."""
    if not callable(function):
        raise UserError(f"reward() takes a function of the features, got {type(function).__name__}.")
    return Reward(((1.0, Function(function, name or str(getattr(function, "__name__", "function")))),))
