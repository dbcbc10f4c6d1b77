"""Tasks as the page sends them: a list of weighted terms as JSON, checked and turned into a reward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from anyreward.errors import UserError, shown
from anyreward.rewards.painted import from_runs, painted
from anyreward.rewards.reward import LARGEST, Reward
from anyreward.rewards.terms import demonstration, goal, reward
from anyreward.worlds.spaces import Array

if TYPE_CHECKING:
    from anyreward.playground.scene import Scene

MOST_TERMS = 200
"""Largest number of terms of a task."""
MOST_STATES = 2_000
"""Largest number of states of a demonstration."""


def reward_of(task: Any, scene: Scene) -> Reward:
    """The reward of a task, {"terms": [...]}; raises a UserError that says what is wrong."""
    terms = task.get("terms") if isinstance(task, dict) else None
    if not isinstance(terms, list) or set(task) != {"terms"}:
        raise UserError(f'A task is {{"terms": [...]}}, got {shown(task)}.')
    if len(terms) > MOST_TERMS:
        raise UserError(f"This task has {len(terms):,} terms; at most {MOST_TERMS} are accepted.")
    return sum((_term(term, scene) for term in terms), start=Reward(()))


def _term(term: Any, scene: Scene) -> Reward:
    make = KINDS.get(term["kind"]) if isinstance(term, dict) and isinstance(term.get("kind"), str) else None
    if make is None or set(term) != {"kind", "weight", make[0]}:
        kinds = ", ".join(f"{kind} with {what} and weight" for kind, (what, _) in KINDS.items())
        raise UserError(f"A term of a task is {shown(term)}; accepted: {kinds}.")
    (weight,) = numbers([term["weight"]], "A weight", 1)
    return float(weight) * make[1](term[make[0]], scene)


def _goal(at: Any, scene: Scene) -> Reward:
    return goal(numbers(at, "A goal", 64).tolist())


def _expression(text: Any, scene: Scene) -> Reward:
    if not isinstance(text, str):
        raise UserError(f"An expression is text, got {shown(text)}.")
    return reward(text)


def _paint(runs: Any, scene: Scene) -> Reward:
    first, second = scene.axes
    values = from_runs([second.points, first.points], runs)
    return painted(values, (first.low, second.low), (first.high, second.high), (first.name, second.name))


def _demonstration(states: Any, scene: Scene) -> Reward:
    if not isinstance(states, list) or not 0 < len(states) <= MOST_STATES:
        raise UserError(f"A demonstration holds 1 to {MOST_STATES:,} states, got {shown(states)}.")
    return demonstration(scene.observations_at(np.stack([numbers(one, "A state", 2, 2) for one in states])))


def numbers(given: Any, what: str, most: int, least: int = 1) -> Array:
    """A list of finite numbers as an array; raises if it is none, or has another length."""
    plain = isinstance(given, list) and all(type(x) in (int, float) and abs(x) <= LARGEST for x in given)
    if not plain or not least <= len(given) <= most:
        raise UserError(f"{what} is {shown(given)}; expected finite numbers ({least} to {most} of them).")
    return np.asarray(given, dtype=np.float64)


KINDS: dict[str, tuple[str, Callable[[Any, Scene], Reward]]] = {
    "goal": ("at", _goal),
    "expression": ("text", _expression),
    "paint": ("runs", _paint),
    "demonstration": ("states", _demonstration),
}
"""The kinds of terms: the name of what they hold, and the function that reads it."""
