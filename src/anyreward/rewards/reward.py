"""Rewards as values, in whatever form they are known: added, subtracted and scaled."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from anyreward.errors import UserError
from anyreward.rewards.expression import Expression, parse
from anyreward.storage.files import read_json

Array = np.ndarray[Any, Any]

ROWS_AT_ONCE = 2**16
"""Rows of features that a function is given at a time."""
TASK_FORMAT = 1
"""Version of the file that holds a z."""


@dataclass(frozen=True, eq=False)
class Goal:
    """A reward of one where the features equal ``at``, or those of an observation."""

    at: tuple[float, ...] = ()
    state: Any = None

    def __str__(self) -> str:
        return f"goal({', '.join(f'{x:g}' for x in self.at)})" if self.at else "goal(state)"


@dataclass(frozen=True, eq=False)
class Function:
    """A reward that is a vectorised function of the readable features, (n, k) to (n,), or an expression.

    With ``of_action`` it is one of the features without the action, (n, k), and the action, (n,).
    """

    of: Callable[..., Any]
    name: str
    of_action: bool = False

    def __call__(self, features: Array, names: Sequence[str]) -> Array:
        """The rewards (n,) of features (n, k) with these column names, checked; in pieces that fit in memory."""
        pieces = [self._piece(features[i : i + ROWS_AT_ONCE], names, i) for i in range(0, len(features), ROWS_AT_ONCE)]
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def _piece(self, features: Array, names: Sequence[str], first: int) -> Array:
        if isinstance(self.of, Expression):
            values = self.of(columns(features, names))
        elif not self.of_action:
            values = self.of(features)
        elif names[-1] == "action":
            values = self.of(features[:, :-1], features[:, -1].astype(np.int64))
        else:
            raise UserError(
                f"The reward {self.name} takes features and actions, but this agent's B sees no actions. Train with "
                "features_include_action=True, or give a function of the features alone."
            )
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (len(features),):
            raise UserError(
                f"The reward {self.name} returned shape {values.shape} for {len(features)} rows of features; expected "
                f"({len(features)},). It must be vectorised: it is given an array (n, {features.shape[1]})."
            )
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise UserError(
                f"The reward {self.name} is {values[bad[0]]} in row {first + bad[0]}, for the features "
                f"{features[bad[0]].tolist()}; rewards must be finite."
            )
        return values

    def __str__(self) -> str:
        return self.name


def columns(features: Array, names: Sequence[str]) -> dict[str, Array]:
    """The columns of features (n, k) by name, and by number as f0, f1, ..."""
    return {f"f{i}": column for i, column in enumerate(features.T)} | dict(zip(names, features.T, strict=True))


@dataclass(frozen=True, eq=False)
class Samples:
    """Rewards (n,) seen at features (n, k), from the training distribution or from another one."""

    features: Array
    rewards: Array
    distribution: Literal["training", "other"]

    def __str__(self) -> str:
        where = "" if self.distribution == "training" else " of another distribution"
        return f"{len(self.rewards):,} samples{where}"


@dataclass(frozen=True, eq=False)
class Demonstration:
    """To be where a trajectory of observations was; with actions, where B sees those."""

    observations: Any
    actions: Array | None

    def __str__(self) -> str:
        return "demonstration"


@dataclass(frozen=True, eq=False)
class TaskVector:
    """z_R itself, which means something to one agent only."""

    z: tuple[float, ...]
    agent: str | None
    """The fingerprint of its agent; None if that is not known."""
    name: str = "z"

    def __str__(self) -> str:
        return self.name


Term = Goal | Function | Samples | Demonstration | TaskVector


@dataclass(frozen=True, eq=False)
class Reward:
    """A weighted sum of ways to give a reward; closed under +, - and * number."""

    terms: tuple[tuple[float, Term], ...] = field(default=())

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
            name = f"({term})" if len(self.terms) > 1 and isinstance(term, Function) else str(term)
            text += (sign if text else sign.strip().replace("+", "")) + size + name
        return text or "0"


@runtime_checkable
class Predicts(Protocol):
    """A reward model, as scikit-learn has them."""

    def predict(self, features: Any) -> Any:
        """The rewards (n,) of features (n, k)."""
        ...


def goal(*at: Any, state: Any = None) -> Reward:
    """Reward one for being at a goal, zero elsewhere.

    ``goal(2, 8)`` or ``goal((2, 8))``: the readable features of the goal (in a maze its x, from the left, and y, from
    the top); ``goal(37)``: the state's number, where observations are Discrete; ``goal(state=observation)``: where the
    features are those of an observation. Where B sees actions, a goal that names none is reached with any.
    """
    if state is not None:
        if at:
            raise UserError("goal() takes features or a state, not both.")
        return Reward(((1.0, Goal(state=state)),))
    values = at[0] if len(at) == 1 and np.ndim(at[0]) > 0 else at
    numbers = tuple(_finite(values, f"goal({values!r})").ravel().tolist())
    if np.ndim(values) > 1 and np.shape(values)[0] != 1:
        raise UserError(f"goal() is one goal, got an array of shape {np.shape(values)}; for several use goals(array).")
    if not numbers:
        raise UserError("goal() needs numbers, one for each feature.")
    return Reward(((1.0, Goal(numbers)),))


def goals(at: Any, weights: Any = None) -> Reward:
    """Several goals at once: an array (n, k) of features, with weights (n,) that are one unless given."""
    places = _finite(at, "goals()")
    if places.ndim == 1:
        places = places[:, None]  # numbers of states
    w = np.ones(len(places)) if weights is None else _finite(weights, "The weights of goals()")
    if places.ndim != 2 or w.shape != (len(places),):
        raise UserError(f"goals() got goals {places.shape} and weights {w.shape}; expected (n, k) and (n,).")
    return Reward(tuple((float(weight), Goal(tuple(place))) for weight, place in zip(w, places.tolist(), strict=True)))


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
    except (TypeError, ValueError):  # some built-in functions do not tell
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters) == 2


def samples(features: Any = (), rewards: Any = (), distribution: Literal["training", "other"] = "training") -> Reward:
    """Rewards (n,) seen at features (n, k); noisy ones are welcome.

    From the ``"training"`` distribution they are averaged (or, if few, fitted); from any ``"other"`` one they are
    fitted by regression on B. With none yet, they can come while acting: `Policy.observe`.
    """
    if distribution not in ("training", "other"):
        raise UserError(f"distribution is {distribution!r}; accepted: 'training', 'other'.")
    return Reward(((1.0, Samples(*sample_arrays(features, rewards), distribution)),))


def sample_arrays(features: Any, rewards: Any) -> tuple[Array, Array]:
    """Features (n, k) and rewards (n,) that belong together, checked."""
    r = np.atleast_1d(_finite(rewards, "The rewards of samples"))
    phi = _finite(features, "The features of samples")
    if phi.ndim < 2:  # one number each, or one sample
        phi = phi.reshape(1, -1) if len(r) == 1 and phi.size else phi.reshape(-1, 1)
    if r.ndim != 1 or phi.ndim != 2 or len(phi) != len(r):
        raise UserError(f"Samples have features of shape {phi.shape} and rewards {r.shape}; expected (n, k) and (n,).")
    return phi, r


def demonstration(observations: Any, actions: Any = None) -> Reward:
    """To do as a trajectory of observations does: z is the average of B along it.

    Where B sees actions they are needed too, one for each observation but perhaps the last.
    """
    if not isinstance(observations, dict | tuple) and (np.ndim(observations) == 0 or len(observations) == 0):
        raise UserError("demonstration() takes a trajectory of observations, got none.")
    if actions is not None:
        actions = _finite(actions, "The actions of demonstration()").astype(np.int64)
        if actions.ndim != 1:
            raise UserError(f"The actions of demonstration() have shape {actions.shape}; expected (n,).")
    return Reward(((1.0, Demonstration(observations, actions)),))


def from_z(z: Any, agent: str | None = None, name: str = "z") -> Reward:
    """z_R itself: an array (d,) of an agent (by its fingerprint), or a file that `Policy.save` has written."""
    if isinstance(z, str | Path):
        data = read_task(Path(z))
        return Reward(((1.0, TaskVector(tuple(data["z_R"]), data["agent"], str(data["reward"]))),))
    vector = _finite(z, "from_z()")
    if vector.ndim != 1:
        raise UserError(f"from_z() got shape {vector.shape}; expected (d,).")
    return Reward(((1.0, TaskVector(tuple(vector.tolist()), agent, name)),))


def check_task_path(path: str | Path) -> Path:
    """Where a z may be written: to a .json file that is new, or holds a z already."""
    path = Path(path)
    if path.suffix != ".json":
        raise UserError(f"A z is written as JSON; {path.name} does not end in .json.")
    if path.exists():
        read_task(path)
    return path


def read_task(path: Path) -> dict[str, Any]:
    """The file of a z, checked."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != TASK_FORMAT or not {"agent", "z_R", "reward"} <= set(data):
        raise UserError(f"{path} is no saved z: it must be written by Policy.save (format {TASK_FORMAT}).")
    if _finite(data["z_R"], str(path)).ndim != 1:
        raise UserError(f"z_R of {path} is not a list of numbers.")
    return data


def _finite(values: Any, what: str) -> Array:
    """Numbers as float64; NaN and infinity raise, with the index of the first."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} is not a list of numbers.") from error
    if not np.isfinite(numbers).all():
        bad = np.argwhere(~np.isfinite(numbers))[0].tolist()
        where = f" at index {bad[0] if len(bad) == 1 else tuple(bad)}" if bad else ""
        raise UserError(f"{what}: {numbers[tuple(bad)]}{where}; only finite numbers are accepted.")
    return numbers
