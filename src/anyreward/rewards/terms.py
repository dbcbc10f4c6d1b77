"""The kinds of reward, and the functions that make them. A new kind is a `Term` with `part` and `values`."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from anyreward.errors import UserError, shown
from anyreward.model.features import finite_rows
from anyreward.rewards.coverage import REMEDY, beyond, shortened
from anyreward.rewards.expression import Expression, parse
from anyreward.rewards.knowledge import Knowledge
from anyreward.rewards.regression import (
    ENOUGH,
    RewardStatistics,
    mean_z,
    no_statistics,
    regression_z,
    statistics,
    warn_if_blind,
)
from anyreward.rewards.reward import LARGEST, Part, Reward, Term
from anyreward.storage import user_path
from anyreward.storage.files import read_json
from anyreward.storage.generations import index_hash
from anyreward.worlds.actions import ActionSet
from anyreward.worlds.spaces import is_single, stack, take

Array = np.ndarray[Any, Any]

ROWS_AT_ONCE = 2**16
"""Number of rows of features in one call of a reward function."""
SAMPLES_AT_ONCE = 8_192
"""Number of samples in one pass of B."""
FEW = 0.05
"""Share of samples outside the training data above which there is a warning."""
Estimator = Literal["auto", "mean", "regression"]
NO_ACTIONS = (
    "The reward {} depends on the action, but this agent's B sees no actions. Train with "
    "features_include_action=True, or give a reward of the features alone."
)
NO_ENDS = (
    "This agent knows no terminal states, because its world never terminates an episode, or because of its settings "
    "(images, an encoding other than 'plain', first_step=1). Give a reward of the states instead."
)
NEVER_VISITED = (
    "was never visited in training, so this agent knows nothing about it. In a maze, check that it is not a wall. "
    "Otherwise explore more, or add data that visits it."
)
TASK_FORMAT = 1
"""Version of the file that holds a z."""
LARGEST_TASK = 2**24
"""Largest size of that file, in bytes."""
LONGEST_NAME = 1_000
"""Number of characters of the name of a saved reward that are read."""
ACTION = r"action\d*"
"""The names of the columns of actions."""
UNFIT = (ValueError, TypeError, KeyError, IndexError, OverflowError)
"""What NumPy and Gymnasium raise for observations that are not of a space."""


@dataclass(frozen=True, eq=False)
class Goal(Term):
    """A reward of one where the features equal ``at``, or those of an observation."""

    at: tuple[float, ...] = ()
    state: Any = None
    is_goal = True

    def goal_rows(self, knowledge: Knowledge) -> Tensor:
        """(m, packed) the packed features of the goal: with every action, and as a terminal state, if B sees these."""
        phi = knowledge.model.phi
        if not self.at:
            try:
                single = is_single(phi.observation_space, self.state)
                batch = take(phi.observation_space, self.state, None) if single else self.state
                seen = phi.seen(batch)
            except UNFIT as error:
                unfit = f"{phi.observation_space}; {shown(self.state)} is not one"
                raise UserError(f"goal(state=...) takes an observation of {unfit}.") from error
            if not single:
                raise UserError("goal(state=...) takes one observation; for several, add several goals.")
            rows = phi.of(batch, seen, phi.action_set.none(1))[:, : phi.state_packed]
            return torch.from_numpy(finite_rows(phi.with_actions(rows)[0], self))
        given, beside = np.asarray(self.at)[None], phi.action_width + phi.ends
        whole = (len(phi.column_names), phi.state_packed + beside)
        if given.shape[1] in [n - beside for n in whole]:
            given = phi.with_actions(given)[0]
        elif phi.action_width and phi.ends and given.shape[1] in [n - 1 for n in whole]:  # with an action
            given = np.concatenate([given, [[0.0]]], axis=1)
        return torch.from_numpy(phi.packed(given, self))

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """z_R of the goal; raises or warns if training never visited it."""
        rows, sample = self.goal_rows(knowledge), knowledge.sample
        if knowledge.categorical:
            if not sample.frequency(rows).any():
                raise UserError(f"{self} {NEVER_VISITED}")
        elif not quiet and (apart := beyond(rows, knowledge)):
            text = f"{self} lies outside the training data: {shortened(apart)}. Do not rely on this policy; {REMEDY}."
            warnings.warn(text, stacklevel=4)
        return Part(knowledge.goal_z(rows[None])[0])

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """One where the goal is reached; raises for a point among continuous features, which no row equals."""
        here = knowledge.model.phi.reached(rows.numpy(), self.goal_rows(knowledge).numpy()).sum(1)
        if len(rows) and knowledge.model.goals_are_points and not np.any(here):
            raise UserError(
                f"{self} is a single point among continuous features, so no state has its reward. For fine-tuning or "
                "evaluation, give it a size: anyreward.reward('hypot(x - 0.2, y - 0.5) < 0.05')."
            )
        return np.asarray(here, dtype=np.float64)

    def atoms(self, knowledge: Knowledge) -> Tensor | None:
        """The goal itself, if it is a point among continuous features."""
        return self.goal_rows(knowledge) if knowledge.model.goals_are_points else None

    def __str__(self) -> str:
        return f"goal({', '.join(f'{x:g}' for x in self.at)})" if self.at else "goal(state)"


@dataclass(frozen=True, eq=False)
class Function(Term):
    """A reward that is a vectorised function of the readable features, (n, k) to (n,), or an expression.

    With ``of_action`` it is a function of the features without the action, (n, k), and of the action: its number (n,),
    or the numbers of a box (n, width).
    """

    of: Callable[..., Any]
    name: str
    of_action: bool = False

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """E_rho[r B] over the sample of rho."""
        return over_sample(self, knowledge)

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """The function's values."""
        phi = knowledge.model.phi
        return self(phi.readable(rows.numpy()), phi.column_names, phi.action_set.box is not None)

    def __call__(self, features: Array, names: Sequence[str], box: bool = False) -> Array:
        """The rewards (n,) of features (n, k) with these column names, checked; in pieces that fit in memory.

        ``box`` says that actions are those of a box.
        """
        starts = range(0, len(features), ROWS_AT_ONCE)
        pieces = [self._piece(features[i : i + ROWS_AT_ONCE], names, i, box) for i in starts]
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def _call(self, features: Array, names: Sequence[str], box: bool) -> Any:
        if isinstance(self.of, Expression):
            missing = self.of.names - set(names)
            if "ended" in missing:
                raise UserError(NO_ENDS)
            if any(re.fullmatch(ACTION, name) for name in missing):
                raise UserError(NO_ACTIONS.format(self.name))
            return self.of(columns(features, names))
        if not self.of_action:
            return self.of(features)
        action = [i for i, name in enumerate(names) if re.fullmatch(ACTION, name)]
        if not action:
            raise UserError(NO_ACTIONS.format(self.name))
        others, taken = np.delete(features, action, axis=1), features[:, action]
        return self.of(others, taken if box else taken[:, 0].astype(np.int64))

    def _piece(self, features: Array, names: Sequence[str], first: int, box: bool) -> Array:
        try:
            values = plain_numbers(self._call(features, names, box), f"What the reward {self.name} returned")
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise UserError(
                f"The reward {self.name} failed: {error}. It must be vectorised: it is given an array (n, "
                f"{features.shape[1]}) of features, and returns an array (n,)."
            ) from error
        if values.shape != (len(features),):
            raise UserError(
                f"The reward {self.name} returned shape {values.shape} for {len(features)} rows of features; expected "
                f"({len(features)},). It must be vectorised: it is given an array (n, {features.shape[1]})."
            )
        bad = np.flatnonzero(~(np.abs(values) <= LARGEST))
        if len(bad):
            raise UserError(
                f"The reward {self.name} is {values[bad[0]]} in row {first + bad[0]}, for the features "
                f"{features[bad[0]].tolist()}; rewards must be finite, and at most {LARGEST:g}."
            )
        return values

    @property
    def in_sum(self) -> str:
        """In brackets."""
        return f"({self.name})"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class AtEnd(Term):
    """Another term, paid only on arrival in a terminal state."""

    of: Term

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """E_rho[r B] over the sample of rho."""
        return over_sample(self, knowledge)

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """The values of the term in terminal states, else zero."""
        if not knowledge.model.phi.ends:
            raise UserError(NO_ENDS)
        return np.asarray(self.of.values(knowledge, rows) * rows[:, -1].numpy())

    def __str__(self) -> str:
        return f"end({self.of})"


def over_sample(term: Term, knowledge: Knowledge) -> Part:
    """E_rho[r B] over the sample of rho, of a term that is a function."""
    sample = knowledge.sample
    values = term.values(knowledge, sample.rows)
    return Part(sample.mean_with(values), values)


def columns(features: Array, names: Sequence[str]) -> dict[str, Array]:
    """The columns of features (n, k) by name, and by number as f0, f1, ..."""
    return {f"f{i}": column for i, column in enumerate(features.T)} | dict(zip(names, features.T, strict=True))


@dataclass(frozen=True, eq=False)
class TaskVector(Term):
    """z_R itself, which is valid for one agent only."""

    z: tuple[float, ...]
    agent: str | None
    """The fingerprint of its agent; None if it is not known."""
    name: str = "z"
    span: tuple[float, float] = (-np.inf, np.inf)
    """The range of its values: where the reward was not sampled, B . w may be far outside of it."""
    has_values = False
    is_goal = True

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """The vector."""
        if len(self.z) != knowledge.dim:
            raise UserError(f"This z has {len(self.z)} numbers; a z of this agent has {knowledge.dim}.")
        return Part(torch.tensor(self.z, dtype=torch.float64))

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """The values of the reward linear in B that has this z."""
        w = knowledge.linear_reward(self.part(knowledge).z)
        return np.asarray(np.clip((knowledge.B(rows) @ w).numpy(), *self.span))

    def check_agent(self, fingerprint: str) -> None:
        """Raise unless the vector is this agent's."""
        if self.agent not in (None, fingerprint):
            raise UserError(
                f"This z ({self}) belongs to the agent {str(self.agent)[:12]}..., and this agent is "
                f"{fingerprint[:12]}...: agents cannot use each other's z. Ask this agent for the reward."
            )

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Samples(Term):
    """Rewards (n,) seen at features (n, k), from the training distribution or from another one.

    A reward that was seen on a step into a terminal state is the reward of the step plus gamma times that of the
    terminal state, whose features (m, k) are ``ends``, for the samples ``ended`` (m,).
    """

    features: Array
    rewards: Array
    distribution: Literal["training", "other"]
    estimator: Estimator = "auto"
    ended: Array | None = None
    ends: Array | None = None
    has_values = False
    _known: WeakKeyDictionary[Knowledge, Part] = field(default_factory=WeakKeyDictionary, init=False, repr=False)

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """The estimate of z_R; it is kept, because trust and refinement need it again."""
        if quiet and knowledge in self._known:
            return self._known[knowledge]
        self._known[knowledge] = self._estimated(knowledge, quiet)
        return self._known[knowledge]

    def _estimated(self, knowledge: Knowledge, quiet: bool) -> Part:
        """A regression on B or, for samples of rho, a mean, whichever has the smaller standard error."""
        rows, white = sample_rows(self.features, knowledge), knowledge.sample.white
        seen = sample_statistics(rows, self.rewards, knowledge, self.ended, self.ends)
        estimate = mean_z(seen) if self.estimator == "mean" else regression_z(seen, white, knowledge.one)
        may_average = self.distribution == "training" and self.ends is None
        if self.estimator == "auto" and may_average and seen.samples >= ENOUGH * len(white.into):
            mean = mean_z(seen)
            estimate = mean._replace(explained=estimate.explained) if mean.error < estimate.error else estimate
        if not quiet:
            _warn_if_unvisited(rows, knowledge, f"{seen.samples:,} samples")
            if seen.rr > 0:
                warn_if_blind(estimate, seen.samples)
        return Part(estimate.z, estimate=estimate, statistics=seen)

    def settled(self, knowledge: Knowledge) -> Term:
        """The z that was estimated."""
        return replace(_vector(self, knowledge), span=self._span(knowledge.model.phi.ends))

    def _span(self, ends: bool) -> tuple[float, float]:
        """The range of the rewards. Terminal states may pay nothing, or a part of the reward of the last step."""
        if len(self.rewards) == 0:
            return 0.0, 0.0
        low, high = float(self.rewards.min()), float(self.rewards.max())
        apart = high - low if self.ends is not None else 0.0
        return (min(low - apart, 0.0), max(high + apart, 0.0)) if ends else (low, high)

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """The values of the reward linear in B that has this z, within the range of the rewards."""
        return self.settled(knowledge).values(knowledge, rows)

    def __str__(self) -> str:
        where = "" if self.distribution == "training" else " from another distribution"
        return f"{len(self.rewards):,} samples{where}"


@dataclass(frozen=True, eq=False)
class Demonstration(Term):
    """A reward for following a trajectory of observations, and of actions if B sees actions."""

    observations: Any
    actions: Array | None
    """as numbered by the environment"""
    has_values = False

    def part(self, knowledge: Knowledge, quiet: bool = False) -> Part:
        """The average of B along the trajectory."""
        rows = self.rows(knowledge)
        if not quiet:
            _warn_if_unvisited(rows, knowledge, "the demonstration")
        return Part(knowledge.model.backward_map(rows).double().mean(0))

    def settled(self, knowledge: Knowledge) -> Term:
        """The z of the trajectory."""
        return _vector(self, knowledge)

    def values(self, knowledge: Knowledge, rows: Tensor) -> Array:
        """The values of the reward linear in B that has this z."""
        return self.settled(knowledge).values(knowledge, rows)

    def rows(self, knowledge: Knowledge) -> Tensor:
        """(n, packed) the packed features along the trajectory."""
        phi, observations = knowledge.model.phi, self.observations
        space = phi.observation_space
        try:
            if isinstance(observations, list):
                observations = stack(space, observations)
            single = is_single(space, observations)
            packed = None if single else phi.seen(observations)
        except UNFIT as error:
            first = self.observations[0] if isinstance(self.observations, list) else self.observations
            raise UserError(f"A demonstration holds observations of {space}; {shown(first)} is not one.") from error
        if packed is None:
            raise UserError(
                "A demonstration is a trajectory of observations; this is a single one. Use goal(state=...)."
            )
        if not np.isfinite(packed).all():
            raise UserError(
                f"The demonstration holds NaN or infinity in row {int(np.argwhere(~np.isfinite(packed))[0][0])}."
            )
        actions = phi.action_set.none(len(packed))
        if phi.include_action:
            actions = self._checked_actions(len(packed), phi.action_set)
            packed = packed[: len(actions)]
            observations = take(space, observations, slice(0, len(actions)))
        return torch.from_numpy(finite_rows(phi.of(observations, packed, actions), "The demonstration"))

    def _checked_actions(self, n: int, acts: ActionSet) -> Array:
        """The actions as the library counts them, one for each of n observations, with or without the last."""
        given = self.actions
        if given is None or len(given) not in (n, n - 1):
            raise UserError(
                f"This agent's B sees actions, so a demonstration needs them: one for each of its {n} observations, "
                f"with or without the last; got {'none' if given is None else len(given)}."
            )
        return acts.checked(given, "The demonstration's actions")

    def __str__(self) -> str:
        return "demonstration"


def _vector(term: Term, knowledge: Knowledge) -> TaskVector:
    return TaskVector(tuple(term.part(knowledge, quiet=True).z.tolist()), None, str(term))


def sample_rows(features: Array, knowledge: Knowledge) -> Tensor:
    """Packed features (n, packed) of samples, from readable or packed ones (n, k)."""
    if len(features) == 0:
        return torch.zeros(0, knowledge.model.feature_encoder.packed)
    return torch.from_numpy(knowledge.model.phi.packed(features, "A sample"))


def sample_statistics(
    rows: Tensor, rewards: Array, knowledge: Knowledge, ended: Array | None = None, ends: Array | None = None
) -> RewardStatistics:
    """The statistics of rewards (n,) at packed features (n, packed), in pieces that fit in memory.

    The samples ``ended`` (m,) are steps into terminal states with the features ``ends`` (m, k).
    """
    total, r = no_statistics(knowledge.dim), torch.from_numpy(rewards)
    where = np.zeros(0, dtype=np.int64) if ended is None else ended
    after = None if ends is None else sample_rows(ends, knowledge)
    for i in range(0, len(rows), SAMPLES_AT_ONCE):
        piece = slice(i, i + SAMPLES_AT_ONCE)
        B = knowledge.model.backward_map(rows[piece]).double()
        here = np.flatnonzero((where >= i) & (where < i + SAMPLES_AT_ONCE))
        if after is not None and len(here):
            B[torch.from_numpy(where[here] - i)] += knowledge.settings.gamma * knowledge.B(after[here])
        total = total.plus(statistics(B, r[piece]))
    return total


def _outside(rows: Tensor, known: Tensor) -> Tensor:
    """(n,) whether rows (n, packed) lie outside the range of the known ones (m, packed)."""
    low, high = (known.amin(0), known.amax(0)) if len(known) else (rows, rows)
    return ((rows < low) | (rows > high)).any(1)


def _warn_if_unvisited(rows: Tensor, knowledge: Knowledge, what: str) -> None:
    sample = knowledge.sample
    outside = int((sample.frequency(rows) == 0).sum() if knowledge.categorical else _outside(rows, sample.rows).sum())
    if outside > FEW * len(rows):
        apart = [] if knowledge.categorical else beyond(rows, knowledge)
        text = f"Of {what}, {outside:,} of {len(rows):,} rows lie outside the training data, where B is not reliable"
        warnings.warn(f"{text}: {shortened(apart)}." if apart else f"{text}.", stacklevel=5)


@runtime_checkable
class Predicts(Protocol):
    """A reward model, as in scikit-learn."""

    def predict(self, features: Any) -> Any:
        """The rewards (n,) of features (n, k)."""
        ...


def goal(*at: Any, state: Any = None) -> Reward:
    """A reward of one at a goal, zero elsewhere.

    ``goal(2, 8)`` or ``goal((2, 8))``: the readable features of the goal (in a maze its x, from the left, and y, from
    the top); ``goal(37)``: the number of the state, if observations are Discrete; ``goal(state=observation)``: the
    features of an observation. If B sees actions, a goal without an action is reached with any action.
    """
    if state is not None:
        if at:
            raise UserError("goal() takes features or a state, not both.")
        return Reward(((1.0, Goal(state=state)),))
    given = at[0] if len(at) == 1 else at
    values = finite_numbers(given, f"goal({shown(given)})")
    if values.ndim > 1 and len(values) != 1:
        raise UserError(f"goal() is one goal, got an array of shape {values.shape}; for several use goals(array).")
    if not values.size:
        raise UserError("goal() needs numbers, one for each feature.")
    return Reward(((1.0, Goal(tuple(values.ravel().tolist()))),))


def goals(at: Any, weights: Any = None) -> Reward:
    """A reward for several goals: an array (n, k) of features, with weights (n,), by default one."""
    rows = finite_numbers(at, "goals()")
    if rows.ndim == 0:
        raise UserError(f"goals() takes several goals, (n, k), got {shown(at)}; for one use goal().")
    if rows.ndim == 1:
        rows = rows[:, None]  # numbers of states
    w = np.ones(len(rows)) if weights is None else finite_numbers(weights, "The weights of goals()")
    if rows.ndim != 2 or w.shape != (len(rows),):
        raise UserError(f"goals() got goals {rows.shape} and weights {w.shape}; expected (n, k) and (n,).")
    return Reward(tuple((float(weight), Goal(tuple(row))) for weight, row in zip(w, rows.tolist(), strict=True)))


def reward(of: Callable[..., Any] | Predicts | str, name: str | None = None) -> Reward:
    """A reward given by a function, an expression or a model of the readable features.

    Args:
        of: a vectorised function of the features, (n, k) to (n,), or of features and action, (n, k) and (n,) to (n,);
            an expression over the features' names, such as ``"(x > 6) * exp(-y)"``; or anything with
            ``predict(features)``.
        name: what to call it.
    """
    if isinstance(of, str):
        return Reward(((1.0, Function(parse(of), name or of.strip())),))
    if isinstance(of, Predicts) and not isinstance(of, type):
        return Reward(((1.0, Function(of.predict, name or type(of).__name__)),))
    if not callable(of):
        raise UserError(
            f"reward() takes a function of the features, an expression or a model with predict(), got "
            f"{type(of).__name__}."
        )
    return Reward(((1.0, Function(of, name or str(getattr(of, "__name__", "function")), _takes_two(of))),))


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) == 2


def samples(
    features: Any = (),
    rewards: Any = (),
    distribution: Literal["training", "other"] = "training",
    estimator: Estimator = "auto",
) -> Reward:
    """A reward given by samples: rewards (n,), possibly noisy, at features (n, k).

    z_R is estimated by a regression of the rewards on B, which is right for samples of any distribution. Samples of the
    ``"training"`` distribution can also be averaged, E[r B], as in the paper; ``estimator`` is ``"regression"``,
    ``"mean"``, or ``"auto"`` for the one with the smaller standard error. Samples can also be added while acting:
    `Policy.observe`.
    """
    if distribution not in ("training", "other"):
        raise UserError(f"distribution is {distribution!r}; accepted: 'training', 'other'.")
    if estimator not in get_args(Estimator):
        raise UserError(f"estimator is {estimator!r}; accepted: {', '.join(map(repr, get_args(Estimator)))}.")
    if estimator == "mean" and distribution == "other":
        raise UserError("estimator is 'mean', which needs samples of the training distribution; use 'regression'.")
    return Reward(((1.0, Samples(*sample_arrays(features, rewards), distribution, estimator)),))


def end(where: str | Callable[..., Any] | None = None) -> Reward:
    """A reward of one on arrival in a terminal state: ``end()`` in any, ``end("x > 0.5")`` where a condition holds.

    ``where`` is an expression, or a vectorised function of the features, which the reward is multiplied by.
    """
    if where is None:
        return reward("ended", name="end")
    if isinstance(where, str):
        return reward(f"ended * ({where})", name=f"end({where})")
    given = reward(where)
    return Reward(tuple((weight, AtEnd(term)) for weight, term in given.terms))


def sample_arrays(features: Any, rewards: Any) -> tuple[Array, Array]:
    """Check and return features (n, k) and their rewards (n,)."""
    r = np.atleast_1d(finite_numbers(rewards, "The rewards of samples"))
    phi = finite_numbers(features, "The features of samples")
    if phi.ndim < 2:  # one number each, or one sample
        phi = phi.reshape(1, -1) if len(r) == 1 and phi.size else phi.reshape(-1, 1)
    if r.ndim != 1 or phi.ndim != 2 or len(phi) != len(r):
        raise UserError(f"Samples have features of shape {phi.shape} and rewards {r.shape}; expected (n, k) and (n,).")
    return phi, r


def demonstration(observations: Any, actions: Any = None) -> Reward:
    """A reward for following a trajectory of observations: z is the average of B along it.

    If B sees actions, they are needed too, (n,) or (n, width): one for each observation, with or without the last.
    """
    batch = isinstance(observations, dict | tuple)  # of a Dict or Tuple space
    one_by_one = isinstance(observations, list)  # of any space, so that it may not be an array
    if not (batch or (len(observations) if one_by_one else np.shape(observations)[:1] not in ((), (0,)))):
        raise UserError("demonstration() takes a trajectory of observations, got none.")
    if actions is not None:
        actions = finite_numbers(actions, "The actions of demonstration()")  # which exist depends on the agent
    return Reward(((1.0, Demonstration(observations, actions)),))


def from_z(z: Any, agent: str | None = None, name: str = "z") -> Reward:
    """A reward given by z_R: an array (d,) of an agent (by its fingerprint), or a file written by `Policy.save`."""
    if isinstance(z, str | Path):
        data = read_task(user_path(z))
        return Reward(((1.0, TaskVector(tuple(data["z_R"]), data["agent"], data["reward"])),))
    vector = finite_numbers(z, "from_z()")
    if vector.ndim != 1:
        raise UserError(f"from_z() got shape {vector.shape}; expected (d,).")
    return Reward(((1.0, TaskVector(tuple(vector.tolist()), agent, name)),))


def check_task_path(path: str | Path) -> Path:
    """Check the path for saving a z: a .json file that is new, or holds a z already."""
    path = user_path(path)
    if path.suffix != ".json":
        raise UserError(f"A z is written as JSON; {path.name} does not end in .json.")
    if path.exists():
        read_task(path)
    return path


def read_task(path: Path) -> dict[str, Any]:
    """Read and check the file of a z."""
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a file; give one that was written by Policy.save.")
        large = path.exists() and path.stat().st_size > LARGEST_TASK
        data = None if large else read_json(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error
    data = data if isinstance(data, dict) else {}
    saved = data.pop("sha256", None)  # missing in files of earlier versions
    if saved is not None and saved != index_hash(data):
        raise UserError(f"{path} is damaged: its content does not have the SHA-256 that it was saved with.")
    version, z = data.get("format"), data.get("z_R")
    if type(version) is int and version > TASK_FORMAT and "z_R" in data:
        raise UserError(
            f"{path} has the format {shown(version)} of a z, and this anyreward reads format {TASK_FORMAT}: it was "
            "saved by a newer version. Install that version, or save the z again with this one."
        )
    if type(version) is not int or version != TASK_FORMAT or not {"agent", "z_R", "reward"} <= set(data):
        raise UserError(f"{path} is not a saved z: it must be written by Policy.save (format {TASK_FORMAT}).")
    if not isinstance(z, list) or not z or any(type(number) not in (int, float) for number in z):
        raise UserError(f"z_R of {path} is not a list of numbers.")
    finite_numbers(z, f"z_R of {path}")
    for name in ("agent", "reward", "tensors_sha256"):
        if not isinstance(data.get(name, ""), str):
            raise UserError(f"{path} is not a saved z: {name} is {shown(data[name])}; expected text.")
    scale: Any = data.get("scale", None if "tensors_sha256" in data else 1.0)
    if type(scale) not in (int, float) or not 0 < scale <= LARGEST:
        raise UserError(f"{path} is not a saved z: its scale is {shown(scale)}; expected a positive number.")
    name = "".join(c if c.isprintable() else " " for c in data["reward"][:LONGEST_NAME])  # it is printed
    return {**data, "z_R": [float(number) for number in z], "reward": name}


def plain_numbers(values: Any, what: str) -> Array:
    """Numbers as float64, NaN and infinity included; text and other types raise."""
    try:
        given = np.asarray(values)
        text = given.dtype.kind == "O" and any(isinstance(x, str | bytes) for x in given.flat)
        if given.dtype.kind in "biufO" and not text:
            return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # unequal lengths, 10**400, a tensor with a gradient
        pass
    raise UserError(f"{what} is not a list of numbers.")


def finite_numbers(values: Any, what: str) -> Array:
    """Numbers as float64; NaN, infinity and numbers that float32 cannot hold raise, with the index of the first."""
    numbers = plain_numbers(values, what)
    wrong = ~(np.abs(numbers) <= LARGEST)
    if wrong.any():
        bad = np.argwhere(wrong)[0].tolist()
        where = f" at index {bad[0] if len(bad) == 1 else tuple(bad)}" if bad else ""
        size = f"too large or not finite; accepted: numbers up to {LARGEST:g}"
        raise UserError(f"{what}: {numbers[tuple(bad)]}{where} is {size}.")
    return numbers
