"""The feature map phi(s, a), whose values are the inputs of B, and the names of its columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError
from anyreward.worlds.actions import ActionSet, action_set
from anyreward.worlds.goals import Tolerance
from anyreward.worlds.spaces import Array, Space, leaves, pack, pack_seen, same_kind, seen_space

SOME_ACTIONS = 16
"""Number of actions of a box that stand for all of them, where B sees actions."""


@dataclass(frozen=True)
class FeatureMap:
    """The feature map phi, with the space of its values.

    ``kind`` is "observation", "achieved_goal" or "function" (of a batch of observations, to an array (n, k)). With
    ``include_action`` the features of (s, a) are (phi(s), a), so that B is a function of state and action.
    """

    kind: str
    observation_space: Space
    action_set: ActionSet
    """The actions."""
    include_action: bool = False
    function: Callable[[Any], Any] | None = None
    function_width: int = 0
    names: tuple[str, ...] | None = None
    table: Array | None = None
    tolerance: Tolerance | None = None
    """The tolerance within which a goal counts as reached, if the world defines one and F is a table."""
    ends: bool = False
    """Whether terminal states are states too: F and B see the flag ``ended``, and the episode visits its terminal state
    once, with no state after it."""

    @property
    def actions(self) -> int:
        """The number of listed actions; 0 if every action of a box is possible."""
        return self.action_set.count

    def reached(self, rows: Array, goals: Array) -> Array:
        """(n, m) whether packed features (n, packed) count as the goals (m, packed): equal, or within the tolerance."""
        if self.tolerance is None:
            return np.asarray((rows[:, None] == goals).all(2))
        return np.stack([self.tolerance(rows, goal) for goal in goals], axis=1)

    @property
    def state_space(self) -> Space:
        """The space of phi(s), without the action."""
        if self.kind == "achieved_goal":
            assert isinstance(self.observation_space, gym.spaces.Dict)
            return self.observation_space["achieved_goal"]
        if self.kind == "function":
            return gym.spaces.Box(-np.inf, np.inf, (self.function_width,), np.float32)
        return seen_space(self.observation_space)

    @property
    def seen_space(self) -> Space:
        """The space of what F sees: an observation, and the flag ``ended`` if terminal states are states."""
        space = seen_space(self.observation_space)
        return gym.spaces.Tuple([space, gym.spaces.Discrete(2)]) if self.ends else space

    @property
    def space(self) -> Space:
        """The space of phi(s, a): the features of the state, then ``action`` and ``ended``, if B sees these."""
        beside = [self._action_space] * self.include_action + [gym.spaces.Discrete(2)] * self.ends
        return gym.spaces.Tuple([self.state_space, *beside]) if beside else self.state_space

    @property
    def _action_space(self) -> Space:
        """The space of the action as B sees it: its number, or the numbers of a box in the environment's units."""
        acts = self.action_set
        if acts.box is None:
            return gym.spaces.Discrete(acts.count)
        low, high = (np.asarray(end, dtype=np.float32).ravel() for end in (acts.box.low, acts.box.high))
        return gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def action_width(self) -> int:
        """The number of columns of the action in packed features; 0 if B sees no actions."""
        return (self.action_set.width or 1) if self.include_action else 0

    @property
    def action_columns(self) -> slice:
        """The columns of the action in packed features; none if B sees no actions."""
        return slice(self.state_packed, self.state_packed + self.action_width)

    @property
    def state_packed(self) -> int:
        """The number of packed columns of phi(s), without action and ``ended``."""
        return sum(leaf.packed for leaf in leaves(self.state_space))

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of `readable`."""
        width = self.state_packed if self.table is None else self.table.shape[1]
        names = self.names or tuple(f"f{i}" for i in range(width))
        wide = self.action_width
        acts = ("action",) if wide == 1 else tuple(f"action{i}" for i in range(wide))
        return (*names, *acts, *["ended"] * self.ends)

    def check_fits(self, name: str, observation_space: Space, action_space: Space) -> None:
        """Raise unless observations and actions are those of this agent's world."""
        own, other = self.action_set, action_set(action_space, name)
        fit = own.count == other.count if own.box is None else same_kind(own.box, other.space)
        if not same_kind(self.observation_space, observation_space) or not fit:
            kinds = [f"{acts.count} actions" if acts.box is None else f"actions {acts.box}" for acts in (own, other)]
            raise UserError(
                f"This agent was trained on observations {self.observation_space} and {kinds[0]}; {name} has "
                f"{observation_space} and {kinds[1]}."
            )

    def seen(self, observations: Any, ended: Array | bool = False) -> Array:
        """(n, packed) what F sees of a batch of raw observations; ``ended`` (n,) marks terminal states."""
        return self.marked(pack_seen(self.observation_space, observations), ended)

    def marked(self, packed: Array, ended: Array | bool = False) -> Array:
        """Packed observations with the flag ``ended`` (n,), if terminal states are states; else unchanged."""
        if not self.ends:
            return packed
        flag = np.broadcast_to(np.asarray(ended, dtype=np.float32), len(packed))
        return np.concatenate([packed, flag[:, None]], axis=1, dtype=np.float32)

    def of(self, observations: Any, seen: Array, actions: Array) -> Array:
        """(n, packed features) phi(s, a) of a batch of raw observations, and of what F sees of them (`seen`).

        In a terminal state there is no action: the columns are zero.
        """
        ended = seen[:, -1:] if self.ends else seen[:, :0]
        if self.kind == "achieved_goal":
            state = pack(self.state_space, observations["achieved_goal"])
        elif self.kind == "function":
            state = self._call(observations, len(seen))
        else:
            state = seen[:, : seen.shape[1] - ended.shape[1]]
        if self.include_action:
            taken = self.shown_actions(actions)
            live = taken if not self.ends else np.where(ended > 0, 0, taken)
            return np.concatenate([state, live, ended], axis=1, dtype=np.float32)
        return np.concatenate([state, ended], axis=1, dtype=np.float32) if self.ends else state

    def shown_actions(self, actions: Array) -> Array:
        """(n, width) actions as B sees them: their numbers, or those of a box in the environment's units."""
        if self.action_set.box is None:
            return np.asarray(actions)[:, None]
        return self.action_set.numbers(actions).astype(np.float32)

    def with_action(self, rows: Tensor, action: int | Array) -> Tensor:
        """Packed features (n, packed) with another action, if B sees actions; terminal states have none.

        The action is a number, or that of a box (width,) from -1 to 1.
        """
        if not self.include_action:
            return rows
        rows, columns = rows.clone(), self.action_columns
        rows[:, columns] = torch.from_numpy(self.shown_actions(np.asarray(action)[None])).to(rows)
        if self.ends:
            rows[rows[:, -1] > 0.5, columns] = 0.0
        return rows

    def with_actions(self, rows: Array) -> Array:
        """Phi of packed phi(s) (n, k), with every action, and as a terminal state, if B sees these: (n, m, packed).

        Of a box that is not listed, `SOME_ACTIONS` are taken.
        """
        beside: list[list[float]] = [[]]
        if self.include_action:
            acts = self.action_set
            every = acts.spread(SOME_ACTIONS) if acts.continuous else np.arange(acts.count)
            beside = self.shown_actions(every).astype(float).tolist()
        if self.ends:
            beside = [[*action, 0.0] for action in beside] + [[0.0] * self.action_width + [1.0]]
        whole = [np.concatenate([rows, np.tile(np.asarray(row), (len(rows), 1))], axis=1) for row in beside]
        return np.stack(whole, axis=1).astype(np.float32)

    def packed(self, given: Array, what: Any) -> Array:
        """Packed features (n, packed) of readable or packed ones (n, k); raises if there are no such features.

        ``what`` describes them in error messages.
        """
        names, parts = self.column_names, list(leaves(self.space))
        width = sum(leaf.packed for leaf in parts)
        rows = np.asarray(given, dtype=np.float32)
        if self.table is not None and given.shape[1] == len(names):
            rows = self._looked_up(given, what)
        elif given.shape[1] != width:
            expected = f"{len(names)} number{'s' * (len(names) != 1)} ({', '.join(names)})"
            if self.table is not None:
                beside = names[self.table.shape[1] :]
                expected += f" or {width} ({', '.join(('the number of the state', *beside))})"
            raise UserError(
                f"{what} has {given.shape[1]} numbers; this agent's features have {expected}.{self._by_number}"
            )
        start = 0
        for leaf in parts:
            column = rows[:, start : start + leaf.packed]
            top = leaf.categories - 1 if leaf.kind == "one-hot" else 1
            wrong = ((column < 0) | (column > top) | (column != np.round(column))).any(1)
            if leaf.kind != "number" and wrong.any():
                which = "the number of the state" if self.table is not None and start == 0 else names[start - width]
                bad = f"{which} is {', '.join(f'{x:g}' for x in column[wrong][0])}, which is out of range"
                raise UserError(f"{what}: {bad}; accepted: whole numbers from 0 to {top}.{self._by_number}")
            start += leaf.packed
        return finite_rows(rows, what)

    @property
    def _by_number(self) -> str:
        """How to give states by coordinates, if they are known by their number only; else empty."""
        if self.table is not None or not isinstance(self.state_space, gym.spaces.Discrete):
            return ""
        return (
            " This agent knows its states by their number only. To give goals by coordinates, train with a "
            "feature_table, (number of states, k): a key of the .npz file, or an attribute of the environment "
            "(docs/datasets.md)."
        )

    def _looked_up(self, given: Array, what: Any) -> Array:
        """Packed features of coordinates (n, k) in the table."""
        assert self.table is not None
        k = self.table.shape[1]
        numbers = {tuple(place): number for number, place in enumerate(self.table.tolist())}
        found = [numbers.get(tuple(place)) for place in given[:, :k].tolist()]
        if None in found:
            low, high = self.table.min(0), self.table.max(0)
            spans = ", ".join(f"{n} {a:g} to {b:g}" for n, a, b in zip(self.column_names, low, high, strict=False))
            at = ", ".join(f"{x:g}" for x in given[found.index(None)])
            named = str(what) if at in str(what) else f"{at} ({what})"
            raise UserError(f"There is no state at {named}; accepted: {spans}.")
        return np.concatenate([np.asarray(found)[:, None], given[:, k:]], axis=1, dtype=np.float32)

    def readable(self, rows: Array) -> Array:
        """Packed features (n, packed) as reward functions see them: categories by their coordinates, if known."""
        rows = np.asarray(rows, dtype=np.float64)
        if self.table is None:
            return rows
        coordinates = self.table[rows[:, 0].astype(int)]
        return np.concatenate([coordinates, rows[:, 1:]], axis=1)

    def _call(self, observations: Any, n: int) -> Array:
        if self.function is None:
            raise UserError(
                "This agent's features are a function of the observation, and a function is not saved with an agent. "
                "Pass it again: anyreward.Agent.load(folder, features=function), or to anyreward.resume."
            )
        values = np.asarray(self.function(observations), dtype=np.float32)
        _check_shape(values, n, self.function_width)
        if not np.isfinite(values).all():
            raise UserError("The feature function returned NaN or infinity.")
        return values


def _check_shape(values: Array, n: int, width: int) -> None:
    """Raise unless a feature function returned (n, width), or (n, k) if the width is not known yet."""
    if values.ndim != 2 or len(values) != n or (width and values.shape[1] != width):
        raise UserError(
            f"The feature function returned shape {values.shape} for {n} observations; expected ({n}, {width or 'k'}). "
            "It must be vectorised: one row of features for each observation."
        )


def finite_rows(rows: Array, what: Any) -> Array:
    """Return the rows; raises if one is not finite. ``what`` describes them in the error message."""
    bad = np.flatnonzero(~np.isfinite(rows).all(1))
    if len(bad):
        raise UserError(f"{what}: row {bad[0]} of its features is {rows[bad[0]].tolist()}, which is not finite.")
    return rows


def feature_map(
    kind: str | Callable[[Any], Any],
    observation_space: Space,
    actions: ActionSet | int,
    include_action: bool = False,
    names: tuple[str, ...] | None = None,
    table: Array | None = None,
) -> FeatureMap:
    """The feature map of a setting or a user's function; "auto" takes achieved_goal where the observation has one."""
    actions = ActionSet(actions) if isinstance(actions, int) else actions
    has_goal = isinstance(observation_space, gym.spaces.Dict) and "achieved_goal" in observation_space.spaces
    if callable(kind):
        values = np.asarray(kind(gym.vector.utils.batch_space(observation_space, 2).sample()))
        _check_shape(values, 2, 0)
        return FeatureMap("function", observation_space, actions, include_action, kind, values.shape[1])
    if kind == "auto":
        kind = "achieved_goal" if has_goal else "observation"
    if kind == "achieved_goal" and not has_goal:
        raise UserError(
            f"features is 'achieved_goal', but the observation space is {observation_space}; expected a Dict with "
            "the key 'achieved_goal' (a Gymnasium goal environment). Use 'observation', or give a function."
        )
    if kind == "achieved_goal":
        table = None  # the table describes observations
    fm = FeatureMap(kind, observation_space, actions, include_action, names=names, table=table)
    fits = names is None or table is not None or len(names) == fm.state_packed
    return fm if fits else replace(fm, names=None)
