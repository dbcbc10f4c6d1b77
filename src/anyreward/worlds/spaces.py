"""Gymnasium spaces: which are supported, and how a batch of their elements is packed into rows of numbers.

A *packed* element is its shortest row of numbers: one number for a Discrete value, all entries of a Box. The replay
buffer stores packed rows; `anyreward.model.encoding` turns them into inputs of the networks, which agree with
`gymnasium.spaces.flatten` (one-hot for Discrete) up to the normalisation of Box entries. Images stay bytes. Text that
is a part of a Tuple or Dict is left out: it has no packed columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from anyreward.errors import UserError, shown

Array = np.ndarray[Any, Any]
Space = gym.Space[Any]

SUPPORTED = "Discrete, Box, MultiDiscrete, MultiBinary, and Tuple or Dict of these"
MOST_LETTERS = 4_096
"""Largest length of a text in the space of a loaded agent, if the saved space had none."""
SMALLEST_IMAGE = 36
"""Smallest side, in pixels, of an image for convolutions; the pixels of smaller images are treated as numbers."""
MOST_EXACT = 2**24
"""Float32, the type of packed rows, holds all whole numbers up to this one."""
GOAL_KEYS = {"observation", "achieved_goal", "desired_goal"}
"""The parts of an observation of a Gymnasium goal environment."""


class Leaf(NamedTuple):
    """Consecutive packed columns of one kind."""

    kind: Literal["one-hot", "number", "binary"]
    packed: int
    """The number of packed columns."""
    categories: int = 0
    """one-hot: the number of categories; such a leaf has one packed column."""


def is_text(space: Space) -> bool:
    """Whether the elements of a space are strings: Text, or a space of another package, as MiniGrid's missions."""
    return space.dtype is not None and space.dtype.kind == "U"


def places(space: Space) -> list[tuple[Any, str, Space]]:
    """The parts of a Tuple or Dict: key or index, what to call it, and its space; empty for any other space."""
    match space:
        case spaces.Tuple():
            return [(index, f"part {index}", part) for index, part in enumerate(space.spaces)]
        case spaces.Dict():
            return [(key, repr(key), part) for key, part in space.spaces.items()]
    return []


def parts_of(space: Space) -> list[tuple[Any, str, Space]]:
    """The parts of a Tuple or Dict that are not text: key or index, what to call it, and its space."""
    return [place for place in places(space) if not is_text(place[2])]


def texts(space: Space) -> list[str]:
    """The names of the parts of a space that are text, such as "'mission'"."""
    inner = [f"{text} of {name}" for _, name, part in parts_of(space) for text in texts(part)]
    return [name for _, name, part in places(space) if is_text(part)] + inner


def leaves(space: Space, where: str = "the space") -> Iterator[Leaf]:
    """The leaves of a space in the order of `gymnasium.spaces.flatten`; raises for an unsupported space.

    Text beside other parts is left out.
    """
    match space:
        case spaces.Discrete():
            yield Leaf("one-hot", 1, int(space.n))
        case spaces.MultiDiscrete():
            for n in space.nvec.ravel():
                yield Leaf("one-hot", 1, int(n))
        case spaces.MultiBinary():
            yield Leaf("binary", int(np.prod(space.shape)))
        case spaces.Box():
            yield Leaf("number", int(np.prod(space.shape)))
        case spaces.Tuple() | spaces.Dict():
            for _, name, part in parts_of(space):
                yield from leaves(part, f"{name} of {where}")
        case _:
            raise UserError(
                f"{type(space).__name__} ({where}) is not supported. Supported: {SUPPORTED}. "
                "Wrap the environment with gymnasium.wrappers.TransformObservation to turn it into one of these."
            )


def bounds_of(space: Space) -> Array:
    """(packed, 2) the smallest and the largest value of each packed column; infinite where there is none.

    The range of an integer type, such as 0 to 255 for bytes, is not a bound: it says how numbers are stored.
    """
    match space:
        case spaces.Tuple() | spaces.Dict():
            return np.concatenate([np.zeros((0, 2)), *(bounds_of(part) for _, _, part in parts_of(space))])
        case spaces.Box():
            ends = np.stack([space.low.ravel(), space.high.ravel()], axis=1).astype(np.float64)
            if space.dtype is not None and space.dtype.kind in "iu":
                whole = np.iinfo(space.dtype)
                ends[(ends == (whole.min, whole.max)).all(1)] = (-np.inf, np.inf)
            return ends
    each = [(0, leaf.categories - 1 if leaf.categories else 1) for leaf in leaves(space) for _ in range(leaf.packed)]
    return np.array(each, dtype=np.float64)


def image_shape(space: Space) -> tuple[int, int, int] | None:
    """(frames, height, width) of a space of stacked uint8 images; None for any other space, and for small images."""
    if isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8:
        frames, height, width = space.shape
        if min(height, width) >= SMALLEST_IMAGE:
            return frames, height, width
    return None


def channels_last(space: Space) -> bool:
    """Whether a space holds uint8 images of shape (height, width, channels), such as a screen in colour."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    return space.shape[2] <= 4 and min(space.shape[:2]) >= SMALLEST_IMAGE


def seen_space(space: Space) -> Space:
    """The space of what F sees: the whole observation, or its entry ``observation`` in a goal environment."""
    return space["observation"] if isinstance(space, spaces.Dict) and set(space.spaces) >= GOAL_KEYS else space


def pack_seen(space: Space, batch: Any) -> Array:
    """(n, packed) what F sees of a batch of observations, packed."""
    seen = seen_space(space)
    return pack(seen, batch if seen is space else batch["observation"])


def pack(space: Space, batch: Any) -> Array:
    """A batch of elements, (n, ...) at every leaf, as packed rows (n, packed) of float32, or uint8 for images."""
    if image_shape(space):
        images = np.asarray(batch)
        if images.dtype != np.uint8:
            raise UserError(f"Expected images of bytes (uint8), got {images.dtype}.")
        return images.reshape(len(images), -1).copy()  # a copy: the environment may reuse its memory
    parts = list(_pack(space, batch))
    return (
        parts[0].astype(np.float32, order="C") if len(parts) == 1 else np.concatenate(parts, axis=1, dtype=np.float32)
    )


def _pack(space: Space, batch: Any) -> Iterator[Array]:
    match space:
        case spaces.Tuple() | spaces.Dict():
            for key, _, part in parts_of(space):
                yield from _pack(part, batch[key])
        case _:
            values = np.asarray(batch)
            if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
                values = values - space.start
                _check_categories(space, values)
            elif isinstance(space, spaces.MultiBinary) and values.size and not ((values == 0) | (values == 1)).all():
                raise UserError(f"A value of {shown(space)} is neither 0 nor 1.")
            kind, size = values.dtype.kind, values.dtype.itemsize
            if size > 2 and kind in "iu" and not _few(space) and values.size:
                largest = max(int(values.max()), -int(values.min()))
                if largest > MOST_EXACT:
                    raise UserError(
                        f"A whole number is as large as {largest}; beyond 2**24 = {MOST_EXACT} numbers would be "
                        "rounded. Rescale it (gymnasium.wrappers.TransformObservation)."
                    )
            elif size > 4 and kind == "f":
                with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which is refused
                    values = values.astype(np.float32)
            yield values.reshape(len(values), -1)


def _few(space: Space) -> bool:
    """Whether float32 holds all values of a space."""
    return isinstance(space, spaces.Discrete) and space.n <= MOST_EXACT


def _check_categories(space: spaces.Discrete | spaces.MultiDiscrete, values: Array) -> None:
    """Raise if a category, counted from zero, is not one of the space."""
    size = space.n if isinstance(space, spaces.Discrete) else space.nvec
    wrong = (values < 0) | (values >= size)
    if values.dtype.kind == "f":
        wrong |= values != np.floor(values)
    if np.count_nonzero(wrong):  # faster than any()
        first = tuple(np.argwhere(wrong)[0])
        start, n = (np.broadcast_to(part, values.shape)[first] for part in (space.start, size))
        raise UserError(
            f"The value {values[first] + start} is outside {shown(space)}; accepted: whole numbers from {start} to "
            f"{start + n - 1}."
        )


def one_line(text: object, most: int = 600) -> str:
    """A text in one line, cut after ``most`` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 4] + " ..."


def is_single(space: Space, element: Any) -> bool:
    """Whether ``element`` is one element of the space rather than a batch of them; raises when it is neither."""
    match space:
        case spaces.Tuple():
            if not isinstance(element, tuple | list) or len(element) != len(space.spaces):
                raise UserError(f"Expected a tuple of {len(space.spaces)} parts, got {type(element).__name__}.")
            index, _, part = parts_of(space)[0]
            return is_single(part, element[index])
        case spaces.Dict():
            key, _, part = parts_of(space)[0]
            if not hasattr(element, "keys") or key not in element:
                raise UserError(
                    f"Expected a dictionary with the keys {list(space.spaces)}, got {type(element).__name__}."
                )
            return is_single(part, element[key])
    expected, given = space.shape or (), np.shape(element)
    if given == expected:
        return True
    if given[1:] == expected and len(given) == len(expected) + 1:
        return False
    raise UserError(
        f"Expected one element of shape {expected} or a batch of shape (n, *{expected}), got shape {given}."
    )


def stack(space: Space, elements: Sequence[Any]) -> Any:
    """Stack elements of a space into a batch."""
    if not elements:
        raise UserError("There are no observations to stack.")
    empty: Any = gym.vector.utils.create_empty_array(space, len(elements))
    return gym.vector.utils.concatenate(space, elements, empty)


def take(space: Space, batch: Any, index: Any) -> Any:
    """``batch[index]`` at every leaf; with None, one element as a batch of one."""
    match space:
        case spaces.Tuple():
            return tuple(take(part, b, index) for part, b in zip(space.spaces, batch, strict=True))
        case spaces.Dict():
            return {key: take(part, batch[key], index) for key, part in space.spaces.items()}
    return np.asarray(batch)[index]


def with_final(space: Space, observations: Any, final: Any, done: Array) -> Any:
    """A batch of observations with those of episodes that are ``done`` (n,) taken from ``final``.

    ``final`` is the ``final_obs`` of Gymnasium's autoreset mode SAME_STEP: a batch, or an array of elements with None
    where an episode continues.
    """
    if isinstance(final, np.ndarray) and final.dtype == object:
        final = list(final)

    def part_of(key: Any) -> Any:
        return [None if e is None else e[key] for e in final] if isinstance(final, list) else final[key]

    match space:
        case spaces.Tuple():
            return tuple(with_final(part, observations[i], part_of(i), done) for i, part in enumerate(space.spaces))
        case spaces.Dict():
            return {key: with_final(part, observations[key], part_of(key), done) for key, part in space.spaces.items()}
    following = np.array(observations, dtype=object if is_text(space) else None)  # strings have different lengths
    for i in np.flatnonzero(done):
        following[i] = final[i]
    return following


def space_to_json(space: Space) -> dict[str, Any]:
    """A space as JSON; infinite bounds are null."""
    match space:
        case spaces.Discrete():
            return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
        case spaces.MultiBinary():
            return {"type": "MultiBinary", "shape": list(space.shape)}
        case spaces.Box():
            data: dict[str, Any] = {"type": "Box", "shape": list(space.shape), "dtype": str(space.dtype)}
            if space.dtype is not None and space.dtype.kind != "b":
                for name, bound in (("low", space.low), ("high", space.high)):
                    same = bound.size > 0 and bool((bound == bound.flat[0]).all())
                    data[name] = _finite_or_none(bound.flat[0] if same else bound)
            return data
        case spaces.Tuple():
            return {"type": "Tuple", "spaces": [space_to_json(part) for part in space.spaces]}
        case spaces.Dict():
            return {"type": "Dict", "spaces": [[key, space_to_json(part)] for key, part in space.spaces.items()]}
    if is_text(space):
        return {"type": "Text", "max_length": int(getattr(space, "max_length", MOST_LETTERS))}
    raise UserError(f"{type(space).__name__} is not supported. Supported: {SUPPORTED}.")


def _finite_or_none(bound: Any) -> Any:
    """Nested lists of numbers, with None for infinite ones."""
    return [_finite_or_none(part) for part in bound] if np.ndim(bound) else bound.item() if np.isfinite(bound) else None


def _or_widest(bound: Any, widest: float) -> Any:
    if isinstance(bound, list):
        return np.array([_or_widest(part, widest) for part in bound])
    return widest if bound is None else bound


def same_kind(a: Space, b: Space) -> bool:
    """Whether two spaces have the same elements; a Box without bounds matches any bounds, and text any text."""
    match a, b:
        case spaces.Box(), spaces.Box():
            unbounded = any(not np.isfinite(np.stack([box.low, box.high])).any() for box in (a, b))
            return a.shape == b.shape and a.dtype == b.dtype and (unbounded or a == b)
        case spaces.MultiBinary(), spaces.MultiBinary():
            return a.shape == b.shape  # they may be given by a number or by a shape
        case spaces.Tuple(), spaces.Tuple():
            return len(a.spaces) == len(b.spaces) and all(map(same_kind, a.spaces, b.spaces))
        case spaces.Dict(), spaces.Dict():
            return list(a.spaces) == list(b.spaces) and all(same_kind(a[key], b[key]) for key in a.spaces)
    return a == b or (is_text(a) and is_text(b))


def space_from_json(data: dict[str, Any]) -> Space:
    """The inverse of `space_to_json`; spaces of more than `MOST_EXACT` numbers are refused before they are made."""
    shape = data.get("shape", data.get("nvec", []))
    sides = [shape] if isinstance(shape, int) else shape if "shape" in data else [len(shape)]
    if any(type(side) is not int or side < 0 for side in sides) or math.prod(sides) > MOST_EXACT:
        raise UserError(f"A space of shape {shape} in a saved agent is not valid; at most {MOST_EXACT:,} numbers are.")
    match data["type"]:
        case "Discrete":
            return spaces.Discrete(data["n"], start=data["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(data["nvec"], start=data["start"])
        case "MultiBinary":
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        case "Box":
            dtype = np.dtype(data["dtype"])
            if dtype.kind == "b":
                return spaces.Box(0, 1, shape=tuple(data["shape"]), dtype=dtype.type)
            widest = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            low, high = (
                np.broadcast_to(_or_widest(data.get(name), bound), data["shape"]).astype(dtype)
                for name, bound in zip(("low", "high"), widest, strict=True)
            )
            return spaces.Box(low, high, dtype=dtype.type)
        case "Tuple":
            return spaces.Tuple([space_from_json(part) for part in data["spaces"]])
        case "Dict":
            return spaces.Dict([(key, space_from_json(part)) for key, part in data["spaces"]])
        case "Text":
            return spaces.Text(data["max_length"])
    raise UserError(f"Unknown space type {data['type']!r} in a saved agent; was it written by a newer anyreward?")
