"""Rewards as text: a small expression language over named features, read by Python's parser and never executed."""

from __future__ import annotations

import ast
import difflib
import functools
import math
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyreward.errors import UserError
from anyreward.worlds.spaces import Array

MOST_CHARACTERS = 1_000
"""Largest number of characters in an expression."""

DEEPEST = 40
"""Largest number of nested levels; the terms of a chain such as a + b - c are on one level."""

LARGEST_EXPONENT = 100
"""The largest absolute value of the right side of **."""

CONSTANTS = {"pi": math.pi, "e": math.e}
"""Named constants; a feature of the same name takes precedence."""

_ONE_ARGUMENT = ("abs", "sqrt", "exp", "log", "log1p", "sin", "cos", "tan", "tanh", "sign", "floor", "ceil", "round")

FUNCTIONS: dict[str, tuple[Callable[..., Any], int, float]] = {
    **{name: (getattr(np, name), 1, 1) for name in _ONE_ARGUMENT},
    "arctan2": (np.arctan2, 2, 2),
    "hypot": (np.hypot, 2, 2),
    "min": (lambda *values: functools.reduce(np.minimum, values), 2, math.inf),
    "max": (lambda *values: functools.reduce(np.maximum, values), 2, math.inf),
    "clip": (np.clip, 3, 3),
    "where": (lambda condition, a, b: np.where(condition != 0, a, b), 3, 3),
}
"""The functions by name, each with its smallest and largest number of arguments."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.remainder,
    ast.Pow: np.power,
    ast.UAdd: np.positive,
    ast.USub: np.negative,
    ast.Not: np.logical_not,
    ast.And: np.logical_and,
    ast.Or: np.logical_or,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}

_ACCEPTED = (
    "Accepted: numbers, names of features, pi, e, brackets, + - * / // % **, < <= > >= == !=, and, or, not, and the "
    f"functions {', '.join(FUNCTIONS)}."
)

# Descriptions for error messages; _check and _OPERATORS decide what is accepted. Other nodes (a lambda, a list, a set,
# a dict) are described by the name of their class.
_REFUSED: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "a comprehension"),
    **dict.fromkeys((ast.BitAnd, ast.BitOr, ast.Invert), "& | ~ : write and, or, not"),
    **dict.fromkeys((ast.LShift, ast.RShift), "a bit shift (<< >>)"),
    **dict.fromkeys((ast.Is, ast.IsNot), "is: write == or !="),
    **dict.fromkeys((ast.In, ast.NotIn), "in: write comparisons, joined by and or or"),
    **dict.fromkeys((ast.Yield, ast.YieldFrom), "yield"),
    ast.BitXor: "^ : write ** for a power",
    ast.MatMult: "matrix multiplication (@): write * for a product",
    ast.IfExp: "if/else: write where(condition, a, b)",
    ast.NamedExpr: "an assignment (:=)",
    ast.Subscript: "a subscript ([...])",
    ast.Starred: "a starred argument (*)",
    ast.Tuple: "a tuple (values with a comma between them)",
    ast.JoinedStr: "an f-string",
    ast.Await: "await",
}


class ExpressionError(UserError):
    """A part of an expression that is not accepted, and where it is."""

    def __init__(self, message: str, what: str, at: int) -> None:
        super().__init__(message)
        self.what = what
        """What is not accepted, in a few words."""
        self.at = at
        """Its position in the expression's text, which begins and ends without white space."""

    def __reduce__(self) -> tuple[type[ExpressionError], tuple[str, str, int]]:
        return type(self), (str(self), self.what, self.at)  # for other processes: by default, without what and at


@dataclass(frozen=True)
class Expression:
    """A checked reward expression, made by `parse`: a function of named columns of features."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)

    @property
    def names(self) -> frozenset[str]:
        """The names used, without the functions called; pi and e are among them where they are used.

        Names are in Unicode normal form NFKC, as Python's parser gives them.
        """
        return frozenset(node.id for node in _names(self.tree))

    def check_names(self, accepted: Collection[str]) -> None:
        """Raise an ExpressionError that points at the first name which is neither accepted nor pi or e."""
        known = {_normal(name): name for name in (*accepted, *CONSTANTS)}
        for node in _names(self.tree):
            if node.id not in known:
                hint = " (it is a function, to be called)" if node.id in FUNCTIONS else _guess(node.id, known.values())
                what = f"the name '{node.id}' is not known{hint}"
                raise _error(self.text, _start(self.text, node), what, f"Names accepted: {', '.join(known.values())}.")

    def __call__(self, columns: Mapping[str, Array]) -> Array:
        """The values (n,) for columns (n,) by name; they may be NaN or infinite, which is not checked here."""
        self.check_names(columns)
        arrays = {_normal(name): np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        shapes = {array.shape for array in arrays.values()}
        if len(shapes) != 1 or len(shape := shapes.pop()) != 1:
            given = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
            raise UserError(f"A reward expression takes columns of features, all of one shape (n,); got {given}.")
        with np.errstate(all="ignore"):
            return np.array(np.broadcast_to(_value(self.text, self.tree, arrays), shape))  # a copy, not a column itself

    def __str__(self) -> str:
        return self.text


def parse(text: str) -> Expression:
    """Parse and check an expression; an ExpressionError points at the first part that is not accepted."""
    if not isinstance(text, str):
        raise UserError(f"A reward expression is text such as '(x > 0.6) * exp(-y)', got {type(text).__name__}.")
    text = re.sub("\r\n?", "\n", text.strip())  # line ends as in Python's parser
    if not text:
        raise UserError(f"The reward expression is empty. Write one such as '(x > 0.6) * exp(-y)'. {_ACCEPTED}")
    if len(text) > MOST_CHARACTERS:
        raise UserError(
            f"The reward expression has {len(text)} characters; at most {MOST_CHARACTERS} are accepted. Give a longer "
            "reward as a function: anyreward.reward(function)."
        )
    if unreadable := re.search("[\0\ud800-\udfff]", text):
        raise _error(text, unreadable.start(), f"the character {unreadable[0]!a}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about strings, refused below, and numbers such as 1or x
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise _syntax_error(text, error) from None
    except (RecursionError, MemoryError):
        raise _error(text, 0, f"nesting deeper than {DEEPEST} levels") from None
    with np.errstate(all="ignore"):
        _check(text, tree, 0)
    return Expression(text, tree)


def _check(text: str, node: ast.expr, depth: int) -> None:
    """Raise a UserError unless a node and all its descendants are accepted."""
    if depth > DEEPEST:
        raise _error(text, _start(text, node), f"nesting deeper than {DEEPEST} levels")
    match node:
        case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare():
            operators, operands = _parts(node)
            for before, operator in zip(operands, operators, strict=False):
                if type(operator) not in _OPERATORS:
                    at = _start(text, node) if isinstance(node, ast.UnaryOp) else _after(text, before)
                    raise _error(text, at, _words(operator))
            for operand in operands:
                _check(text, operand, depth + 1)
            for operator, exponent in zip(operators, operands[1:], strict=False):
                if isinstance(operator, ast.Pow) and not _names(exponent):
                    _check_exponent(text, exponent, _value(text, exponent, {}))
        case ast.Call():
            _check_call(text, node, depth)
        case ast.Constant(value=int() | float() as number):  # a bool is an int
            if number > sys.float_info.max:
                raise _error(text, _start(text, node), "a number too large for floating point")
        case ast.Name():
            pass  # checked by check_names, once the features are known
        case ast.Attribute(value=first) | ast.Subscript(value=first) | ast.IfExp(body=first):
            raise _error(text, _after(text, first), _words(node))
        case _:
            raise _error(text, _start(text, node), _words(node))


def _check_call(text: str, node: ast.Call, depth: int) -> None:
    at = _start(text, node)
    if not isinstance(node.func, ast.Name):
        _check(text, node.func, depth + 1)  # the error may be in the called expression, as in x.sum()
        raise _error(text, at, "a call of something that is not a function: write * for a product")
    name = node.func.id
    if name not in FUNCTIONS:
        raise _error(text, at, f"the function '{name}' is not known{_guess(name, FUNCTIONS)}")
    for keyword in node.keywords:
        raise _error(text, _start(text, keyword), "a function called with a keyword: give its arguments in order")
    for argument in node.args:
        _check(text, argument, depth + 1)
    _, least, most = FUNCTIONS[name]
    if not least <= len(node.args) <= most:
        takes = f"{least}" if least == most else f"{least} or more"
        raise _error(text, at, f"{name} called with {len(node.args)} arguments; it takes {takes}")


def _check_exponent(text: str, node: ast.expr, exponent: Array) -> None:
    large = np.extract(np.abs(exponent) > LARGEST_EXPONENT, exponent)
    if len(large):
        limits = f"exponents are from -{LARGEST_EXPONENT} to {LARGEST_EXPONENT}"
        raise _error(text, _start(text, node), f"the exponent {float(large[0])}; {limits}")


def _value(text: str, node: ast.expr, columns: Mapping[str, Array]) -> Array:
    """The value of a checked node: a float64 array of the columns' shape, or of shape () if it is constant."""
    value = functools.partial(_value, text, columns=columns)
    result: Any
    match node:
        case ast.Constant(value=int() | float() as number):
            result = float(number)
        case ast.Name():
            result = columns[node.id] if node.id in columns else CONSTANTS[node.id]
        case ast.Call(func=ast.Name(id=name)):
            result = FUNCTIONS[name][0](*map(value, node.args))
        case ast.UnaryOp():
            result = _OPERATORS[type(node.op)](value(node.operand))
        case ast.BoolOp():
            result = functools.reduce(_OPERATORS[type(node.op)], map(value, node.values))
        case ast.Compare():
            sides = [value(side) for side in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
            result = functools.reduce(np.logical_and, (_OPERATORS[type(op)](a, b) for op, a, b in pairs))
        case ast.BinOp():
            operators, operands = _parts(node)
            result = value(operands[0])
            for operator, operand in zip(operators, operands[1:], strict=True):
                right = value(operand)
                if isinstance(operator, ast.Pow):
                    _check_exponent(text, operand, right)
                result = _OPERATORS[type(operator)](result, right)
        case _:
            raise AssertionError(f"{type(node).__name__} was not checked")
    return np.asarray(result, dtype=np.float64)


def _parts(node: ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare) -> tuple[list[Any], list[ast.expr]]:
    """The operators and operands of a node; a + b - c counts as one node, so that long sums are not nested deeply."""
    match node:
        case ast.UnaryOp():
            return [node.op], [node.operand]
        case ast.BoolOp():
            return [node.op], node.values
        case ast.Compare():
            return list(node.ops), [node.left, *node.comparators]
    first: ast.expr = node
    links: list[ast.BinOp] = []
    while isinstance(first, ast.BinOp):
        links.insert(0, first)
        first = first.left
    return [link.op for link in links], [first, *(link.right for link in links)]


def _names(tree: ast.expr) -> list[ast.Name]:
    """The names in the order of the text, without called functions."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called]
    return sorted(names, key=lambda node: (node.lineno, node.col_offset))


def _normal(name: str) -> str:
    """A name in Unicode normal form NFKC, as Python's parser gives it."""
    return unicodedata.normalize("NFKC", name)


def _guess(name: str, accepted: Collection[str]) -> str:
    by_lower = {known.lower(): known for known in accepted}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean '{by_lower[close[0]]}'?)" if close else ""


def _words(node: ast.AST) -> str:
    """A description of a node that is not accepted."""
    if isinstance(node, ast.Attribute):
        return f"attribute access (.{node.attr})" + f": write {node.attr} alone" * (node.attr in FUNCTIONS | CONSTANTS)
    if isinstance(node, ast.Constant):
        words = {str: "a string", bytes: "a string of bytes", complex: "a complex number", type(None): "None"}
        return words.get(type(node.value), "an ellipsis (...)")
    return _REFUSED.get(type(node), f"a {type(node).__name__.lower()}")


def _start(text: str, node: ast.expr | ast.keyword) -> int:
    return _offset(text, node.lineno, node.col_offset)


def _after(text: str, node: ast.expr) -> int:
    """The position of the next token after a node and its closing brackets."""
    rest = text[_offset(text, node.end_lineno or 1, node.end_col_offset or 0) :]
    return len(text) - len(rest.lstrip(" \t\f\n\\)"))


def _offset(text: str, line: int, column: int) -> int:
    """The position in the text of a line (from 1) and a column (from 0, in bytes, as Python counts)."""
    lines = text.split("\n")
    return sum(len(before) + 1 for before in lines[: line - 1]) + len(
        lines[line - 1].encode()[:column].decode(errors="ignore")
    )


def _syntax_error(text: str, error: SyntaxError) -> ExpressionError:
    lines = text.split("\n")
    line = min(error.lineno or 1, len(lines))
    before = lines[line - 1][: error.offset - 1 if error.offset else None]  # none or 0: the text ended too early
    several = "; write an expression of several lines in brackets" if len(lines) > 1 else ""
    return _error(text, _offset(text, line, len(before.encode())), f"a syntax error ({error.msg}){several}")


def _error(text: str, at: int, what: str, accepted: str = _ACCEPTED) -> ExpressionError:
    """The error for what is not accepted, with a caret below its position, and a list of what is accepted."""
    start = text.rfind("\n", 0, at) + 1
    line, column = text[start:].split("\n")[0], at - start
    cut = max(column - 60, 0)  # a shorter line does not wrap, so that the caret stays below its position
    shown = "".join(c if c.isprintable() else " " for c in line[cut : column + 40])
    caret = " " * (column - cut) + "^"
    message = f"Not accepted in a reward expression: {what}.\n    {shown}\n    {caret}\n{accepted}"
    return ExpressionError(message, what, at)
