from __future__ import annotations

import ast
import builtins
import contextlib
import math
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyreward.errors import UserError
from anyreward.rewards.expression import DEEPEST, LARGEST_EXPONENT, MOST_CHARACTERS, ExpressionError, parse

Array = np.ndarray[Any, Any]
COLUMNS = {
    "x": np.array([0.0, 0.5, 1.0, -2.0, 7.25]),
    "y": np.array([0.25, -0.0, 3.0, 0.1, -1e6]),
    "speed": np.array([2.0, 0.5, 0.0, -3.0, 1e-9]),
}
ACCEPTED_NODES = (
    ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.Call | ast.Constant | ast.Name | ast.Load
    | ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Mod | ast.Pow | ast.UAdd | ast.USub | ast.Not
    | ast.And | ast.Or | ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq
)  # fmt: skip
HERE = "‸"  # stands in a test's text before the character that the caret must point at


def refusal(text: str, columns: Mapping[str, Array] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        parse(text)(columns or COLUMNS)
    return str(caught.value)


def marked(message: str) -> str:
    """The line that an error shows, with the mark at the place of the caret."""
    lines = message.split("\n")
    (at,) = (i for i, line in enumerate(lines) if line.strip() == "^")
    column = lines[at].index("^")
    shown = lines[at - 1]
    assert shown.startswith("    ")
    return shown[4:column] + HERE + shown[column:]


@pytest.mark.parametrize(
    ("text", "x", "y", "expected"),
    [
        ("(x > 0.6) * exp(-((y - 0.2)/0.1)**2)", 0.7, 0.3, math.exp(-1)),
        ("(x > 0.6) * exp(-((y - 0.2)/0.1)**2)", 0.6, 0.2, 0),
        ("(x > 1) - (y > 2)", 0, 3, -1),
        ("0 < x < 1", 0.5, 0, 1),
        ("0 < x < 1", 1.5, 0, 0),
        ("0 < x < 1", -1, 0, 0),
        ("3 > x != y == 2", 1, 2, 1),
        ("x <= y", 2, 2, 1),
        ("x < y", 2, 2, 0),
        ("x >= y", 1, 2, 0),
        ("x and y", 3, -0.5, 1),
        ("x and y", 3, 0, 0),
        ("x or y", 0, 0, 0),
        ("x or y", 0, 7, 1),
        ("not x", 0.1, 0, 0),
        ("not x > 1 and y", 0, 5, 1),
        ("-x**2", 3, 0, -9),
        ("2**-x", 2, 0, 0.25),
        ("2**x**y", 3, 2, 512),
        ("x - y - 1", 5, 2, 2),
        ("x / y / 2", 12, 3, 2),
        ("x // y + x % y", -7, 2, -3),
        ("+x", 4, 0, 4),
        ("True - False", 0, 0, 1),
        ("0x10 + 1_000 + 1e-1", 0, 0, 1016.1),
        ("sin(pi / 2) + log(e)", 0, 0, 2),
        ("abs(x) + sqrt(y)", -3, 16, 7),
        ("log1p(x) + cos(y) + tan(x) + tanh(y)", 0, 0, 1),
        ("arctan2(x, y)", 1, -1, 3 * math.pi / 4),
        ("hypot(x, y)", 3, 4, 5),
        ("sign(x) * floor(y) + ceil(y)", -2, 1.5, 1),
        ("round(x) + round(y)", 2.5, 3.5, 6),  # halves to even, as Python does
        ("min(x, y) + max(x, y, 10, 3)", 1, 2, 11),
        ("clip(x, -1, y)", 5, 2, 2),
        ("clip(x, -1, y)", -5, 2, -1),
        ("where(x > 1, y, -y)", 2, 7, 7),
        ("where(x, y, -y)", 0, 7, -7),
        ("  (x +\n\r\n y)  # a remark", 1, 2, 3),
        ("1or x", 0, 0, 1),  # Python warns of it
    ],
)
def test_examples_by_hand(text: str, x: float, y: float, expected: float) -> None:
    columns = {"x": np.array([x, x]), "y": np.array([y, y])}
    values = parse(text)(columns)
    assert values.dtype == np.float64
    assert values.shape == (2,)
    assert values == pytest.approx(expected, rel=1e-14, abs=1e-15)


def test_a_constant_has_a_value_for_every_row() -> None:
    assert parse("2 > 1")({"x": np.zeros(3)}).tolist() == [1, 1, 1]
    assert parse("7")({"x": np.zeros(0)}).shape == (0,)


def test_columns_may_be_of_other_numbers_and_are_never_handed_back() -> None:
    x = np.array([1.0, 2.0])
    parse("x")({"x": x})[:] = 0
    assert x.tolist() == [1, 2]
    assert parse("-x / 2")({"x": np.array([1, 2], dtype=np.uint8)}).tolist() == [-0.5, -1]
    assert parse("-x - x")({"x": np.array([True, False])}).tolist() == [-2, 0]


def test_nan_and_infinity_pass_without_warnings() -> None:
    x = np.array([0.0, -1.0, 1.0])
    np.testing.assert_array_equal(parse("1 / x")({"x": x}), [np.inf, -1, 1])
    np.testing.assert_array_equal(parse("sqrt(x)")({"x": x}), [0, np.nan, 1])
    np.testing.assert_array_equal(parse("x ** 0.5")({"x": x}), [0, np.nan, 1])
    assert np.isinf(parse("exp(1000) * 2 ** (0 / 0 > 1)")({"x": x})).all()
    assert np.isnan(parse("2 ** (x / 0)")({"x": np.zeros(1)})).all()  # an exponent that is no number


def test_names_and_text() -> None:
    expression = parse(" where(min > 1, sqrt(x), pi) + x \n")
    assert expression.names == {"min", "x", "pi"}
    assert str(expression) == expression.text == "where(min > 1, sqrt(x), pi) + x"
    assert parse("1").names == frozenset()


def test_expressions_are_values() -> None:
    assert parse("x + 1") == parse(" x + 1 ")
    assert parse("x + 1") != parse("x+1")
    assert len({parse("x"), parse("x"), parse("y")}) == 2
    assert "ast" not in repr(parse("x"))
    assert pickle.loads(pickle.dumps(parse("x + 1")))({"x": np.zeros(1)}).tolist() == [1]


def test_a_feature_comes_before_a_constant_or_function_of_its_name() -> None:
    columns = {"e": np.array([5.0]), "min": np.array([2.0])}
    assert parse("e + min(min, 9)")(columns).tolist() == [7]


def test_a_name_may_be_written_in_any_normal_form() -> None:
    """Python's parser turns a micro sign into the Greek letter."""
    assert parse("µ")({"µ": np.array([3.0])}).tolist() == [3]
    assert parse("Δx")({"Δx": np.array([3.0])}).tolist() == [3]


REFUSED = [
    ("x + y‸.real", "attribute access (.real)"),
    ("(x + y) ‸.real", "attribute access (.real)"),
    ("np‸.exp(x)", "attribute access (.exp): write exp alone"),
    ("math‸.pi", "attribute access (.pi): write pi alone"),
    ("().__class__‸.__bases__", "attribute access (.__bases__)"),
    ("1 + x‸[0]", "a subscript"),
    ("(x)‸[0]", "a subscript"),
    ("sqrt(‸[y for y in x])", "a comprehension"),
    ("‸{y for y in x}", "a comprehension"),
    ("‸{y: 1 for y in x}", "a comprehension"),
    ("max‸(y for y in x)", "a comprehension"),
    ("x + (‸lambda: 1)", "a lambda"),
    ("(‸lambda: 1)()", "a lambda"),
    ("x + ‸'a' * 3", "a string"),
    ("x == ‸'\\d'", "a string"),  # Python warns of it
    ("‸b'a'", "a string of bytes"),
    ("‸f'{x}'", "an f-string"),
    ("x + ‸f'{x.y[0]}' 'z'", "an f-string"),
    ("2 * ‸3j", "a complex number"),
    ("x == ‸None", "None"),
    ("x + ‸...", "an ellipsis"),
    ("x ‸if y > 0 else 2", "if/else: write where(condition, a, b)"),
    ("x > 1 ‸& y > 1", "& | ~ : write and, or, not"),
    ("(x > 1) ‸& (y > 1)", "& | ~ : write and, or, not"),
    ("(x > 1)‸|(y > 1)", "& | ~ : write and, or, not"),
    ("1 + ‸~x", "& | ~ : write and, or, not"),
    ("x‸^2", "^ : write ** for a power"),
    ("x ‸<< 2", "a bit shift"),
    ("x + 1 ‸>> 2", "a bit shift"),
    ("x ‸@ y", "matrix multiplication (@)"),
    ("x + (‸y := 2)", "an assignment (:=)"),
    ("x ‸is y", "is: write =="),
    ("0 < x ‸is not y", "is: write =="),
    ("x ‸in y", "in: write comparisons"),
    ("x ‸not in y", "in: write comparisons"),
    ("‸x, y", "a tuple"),
    ("‸[x, y]", "a list"),
    ("‸{x}", "a set"),
    ("‸{**x}", "a dict"),
    ("min(‸*x)", "a starred argument"),
    ("clip(x, 0, ‸high=1)", "a function called with a keyword"),
    ("sqrt(‸**x)", "a function called with a keyword"),
    ("(‸await x)", "await"),
    ("(‸yield x)", "yield"),
    ("(‸yield from x)", "yield"),
    ("1 + ‸qqq(x)", "the function 'qqq' is not known."),
    ("‸sqr(x)", "the function 'sqr' is not known (did you mean 'sqrt'?)"),
    ("‸Exp(x)", "did you mean 'exp'?"),
    ("__import__('os')‸.system('x')", "attribute access (.system)"),
    ("‸__import__('os')", "the function '__import__' is not known"),
    ("‸eval('x')", "the function 'eval' is not known"),
    ("‸2(x)", "a call of something that is not a function"),
    ("‸sqrt(x)(y)", "a call of something that is not a function"),
    ("x + ‸sqrt()", "sqrt called with 0 arguments; it takes 1"),
    ("‸round(x, 2)", "round called with 2 arguments; it takes 1"),
    ("‸clip(x, 2)", "clip called with 2 arguments; it takes 3"),
    ("‸arctan2(x)", "arctan2 called with 1 arguments; it takes 2"),
    ("‸min(x)", "min called with 1 arguments; it takes 2 or more"),
    ("x + ‸1e999", "a number too large"),
    ("-‸1" + 400 * "0", "a number too large"),
    ("x**‸101", "the exponent 101.0; exponents are from -100 to 100"),
    ("x ** ‸-100.5", "the exponent -100.5"),
    ("x ** (‸50 + 51)", "the exponent 101.0"),
    ("x ** ‸exp(1000)", "the exponent inf"),
    ("1 + x ** (‸speed * 60)", "the exponent 120.0"),
    ("(x +\n  y‸.real)", "attribute access"),
    ("(x +\n\n  y *\n\t‸foo(x)\n + 3)", "the function 'foo'"),
    ("(x + # é & ü\r\n  y ‸& x)", "& | ~"),
    ("(é + ü) * x‸[0]", "a subscript"),
    ("(é +\n 日本 ‸| ü)", "& | ~"),
    ("x ‸= 3", "a syntax error (invalid syntax)"),
    ("x +‸", "a syntax error (invalid syntax)"),
    ("(é + ü) * ‸)", "a syntax error (unmatched ')')"),
    ("x + ‸(y", "a syntax error ('(' was never closed)"),
    ("‸import os", "a syntax error"),
    ("x\n‸+ y", "write an expression of several lines in brackets"),
    ("x + ‸\0y", "the character '\\x00'"),
    ("x + ‸\ud800", "the character '\\ud800'"),
    (200 * "(" + "‸" + 300 * "(", "too many nested"),
    ((DEEPEST + 1) * "-" + "‸x", "nesting deeper than 40 levels"),
    ((DEEPEST + 1) * "-" + "‸" + 858 * "-" + "x", "nesting deeper than 40 levels"),
    ((DEEPEST + 1) * "abs(" + "‸x" + (DEEPEST + 1) * ")", "nesting deeper than 40 levels"),
    (DEEPEST * "x**" + "‸x**x", "nesting deeper than 40 levels"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_is_refused_is_named_and_pointed_at(text: str, words: str) -> None:
    message = refusal(text.replace(HERE, ""))
    assert words in message
    assert message.startswith("Not accepted in a reward expression: ")
    assert "Accepted: numbers, names of features, pi, e" in message
    assert "functions abs, sqrt" in message
    (line,) = (line for line in text.split("\n") if HERE in line)
    line = "".join(c if c.isprintable() else " " for c in line.removesuffix("\r"))
    assert marked(message) in line
    assert marked(message) == line or len(line) > 60  # a long line is cut


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_an_error_carries_what_and_where(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text.replace(HERE, ""))(COLUMNS)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert str(error) == str(caught.value)
        assert str(error).startswith(f"Not accepted in a reward expression: {error.what}.")
        assert error.at == text.replace("\r\n", "\n").index(HERE)


def test_a_long_line_is_cut_around_the_caret() -> None:
    message = refusal("x + " * 100 + "y.real" + " + x" * 100)
    assert "x + y‸.real + x" in marked(message)
    assert len(marked(message)) <= 101


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x + ‸spede", "the name 'spede' is not known (did you mean 'speed'?)"),
        ("x + ‸Speed + spede", "the name 'Speed' is not known (did you mean 'speed'?)"),
        ("(x + ‸é\n + zzz)", "the name 'é' is not known."),
        ("x * ‸sqrt", "the name 'sqrt' is not known (it is a function, to be called)"),
        ("‸__builtins__", "the name '__builtins__' is not known"),
        ("sqrt(x, )+‸PI", "the name 'PI' is not known (did you mean 'pi'?)"),
    ],
)
def test_an_unknown_name_is_pointed_at_with_a_guess(text: str, words: str) -> None:
    message = refusal(text.replace(HERE, ""))
    assert words in message
    assert "Names accepted: x, y, speed, pi, e." in message
    assert marked(message) == text.split("\n")[0]
    with pytest.raises(UserError, match="is not known"):
        parse(text.replace(HERE, "")).check_names({"x", "y", "speed"})


def test_check_names_lets_known_names_pass() -> None:
    parse("x + min(y, pi) ** e").check_names(["y", "x", "unused"])


@pytest.mark.parametrize("columns", [{}, {"x": np.zeros(3), "y": np.zeros(4)}, {"x": np.zeros((3, 1))}])
def test_columns_of_the_wrong_shape_are_refused(columns: dict[str, Array]) -> None:
    with pytest.raises(UserError, match=r"all of one shape \(n,\); got "):
        parse("1")(columns)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("x" * (MOST_CHARACTERS + 1), f"has {MOST_CHARACTERS + 1} characters; at most {MOST_CHARACTERS}"),
        (3, "got int"),
        (None, "got NoneType"),
        (b"x", "got bytes"),
    ],
)
def test_what_is_not_text_of_a_sensible_length_is_refused(text: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse(text)


@pytest.mark.parametrize("error", [RecursionError, MemoryError])
def test_a_parser_that_gives_up_is_a_mistake_of_the_user(error: type[Exception]) -> None:
    with mock.patch.object(ast, "parse", side_effect=error), pytest.raises(UserError, match="nesting deeper than"):
        parse("x")


def test_the_limits_themselves_are_accepted() -> None:
    ones = {"x": np.ones(2), "k": np.array([-1.0, 1.0]) * LARGEST_EXPONENT}
    for text in (
        "-" * DEEPEST + "x",
        "abs(" * DEEPEST + "x" + ")" * DEEPEST,
        "x**" * DEEPEST + "x",
        "(" * 150 + "x" + ")" * 150,
        "x * k ** 0 * x ** k",
        f"x ** {LARGEST_EXPONENT} * x ** -{LARGEST_EXPONENT}",
        "x" + " " * (MOST_CHARACTERS - 2) + "# a remark"[:1],
    ):
        assert parse(text)(ones).tolist() == [1, 1]
    terms = MOST_CHARACTERS // 2
    assert parse("+".join("x" * terms))(ones).tolist() == [terms, terms]  # long, but not deep


@dataclass(frozen=True)
class Sample:
    """A random expression: as text with every bracket and with as few as Python needs, and what it should give."""

    full: str
    brief: str
    level: int
    of: Callable[[Mapping[str, Array]], Any]

    def within(self, level: int) -> str:
        return self.brief if self.level >= level else f"({self.brief})"


OR, AND, NOT, COMPARISON, SUM, PRODUCT, UNARY, POWER, ATOM = range(9)
BINARY: dict[str, tuple[int, Callable[..., Any]]] = {
    "+": (SUM, lambda a, b: a + b),
    "-": (SUM, lambda a, b: a - b),
    "*": (PRODUCT, lambda a, b: a * b),
    "/": (PRODUCT, lambda a, b: a / b),
    "//": (PRODUCT, lambda a, b: a // b),
    "%": (PRODUCT, lambda a, b: a % b),
}
PREFIX: dict[str, tuple[int, Callable[..., Any]]] = {
    "-": (UNARY, lambda a: -a),
    "+": (UNARY, lambda a: a),
    "not ": (NOT, lambda a: np.where(a == 0, 1.0, 0.0)),
}
COMPARED: dict[str, Callable[..., Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
JOINED: dict[str, tuple[int, Callable[..., Any]]] = {
    "and": (AND, lambda *values: reduce(lambda a, b: np.where(a == 0, 0.0, np.where(b == 0, 0.0, 1.0)), values)),
    "or": (OR, lambda *values: reduce(lambda a, b: np.where(a != 0, 1.0, np.where(b != 0, 1.0, 0.0)), values)),
}
CALLED: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, lambda a: np.where(np.signbit(a), -a, a)),
    "sqrt": (1, np.sqrt),
    "exp": (1, np.exp),
    "log": (1, np.log),
    "log1p": (1, np.log1p),
    "sin": (1, np.sin),
    "cos": (1, np.cos),
    "tan": (1, np.tan),
    "tanh": (1, np.tanh),
    "arctan2": (2, np.arctan2),
    "hypot": (2, np.hypot),
    "sign": (1, lambda a: np.where(a > 0, 1.0, np.where(a < 0, -1.0, a))),
    "floor": (1, np.floor),
    "ceil": (1, lambda a: -np.floor(-a)),
    "round": (1, np.rint),
    "min": (3, lambda *values: np.min(np.broadcast_arrays(*values), axis=0)),
    "max": (2, lambda *values: np.max(np.broadcast_arrays(*values), axis=0)),
    "clip": (3, np.clip),
    "where": (3, lambda a, b, c: np.where(a == 0, c, b)),
}


def leaf(text: str, value: float) -> Sample:
    return Sample(text, text, ATOM, lambda columns: np.float64(value))


def feature(name: str) -> Sample:
    return Sample(name, name, ATOM, lambda columns: columns[name])


def binary(sign: str, a: Sample, b: Sample) -> Sample:
    level, of = BINARY[sign]
    brief = a.within(level) + sign + b.within(level + 1)
    return Sample(f"({a.full} {sign} {b.full})", brief, level, lambda columns: of(a.of(columns), b.of(columns)))


def power(a: Sample, b: Sample) -> Sample:
    brief = f"{a.within(ATOM)}**{b.within(UNARY)}"
    return Sample(f"({a.full} ** {b.full})", brief, POWER, lambda columns: np.power(a.of(columns), b.of(columns)))


def prefix(sign: str, a: Sample) -> Sample:
    level, of = PREFIX[sign]
    return Sample(f"({sign}{a.full})", sign + a.within(level), level, lambda columns: of(a.of(columns)))


def compared(first: Sample, others: list[tuple[str, Sample]]) -> Sample:
    def of(columns: Mapping[str, Array]) -> Any:
        left: Any = first.of(columns)
        result: Any = 1.0
        for sign, other in others:
            right = other.of(columns)
            result = result * np.where(COMPARED[sign](left, right), 1.0, 0.0)
            left = right
        return result

    full = first.full + "".join(f" {sign} {other.full}" for sign, other in others)
    brief = first.within(SUM) + "".join(sign + other.within(SUM) for sign, other in others)
    return Sample(f"({full})", brief, COMPARISON, of)


def joined(word: str, parts: list[Sample]) -> Sample:
    level, of = JOINED[word]
    brief = f" {word} ".join(part.within(level + 1) for part in parts)
    full = f"({f' {word} '.join(part.full for part in parts)})"
    return Sample(full, brief, level, lambda columns: of(*(part.of(columns) for part in parts)))


def called(name: str, parts: list[Sample]) -> Sample:
    count, of = CALLED[name]
    parts = parts[:count]
    full, brief = (f"{name}({', '.join(texts)})" for texts in zip(*((p.full, p.brief) for p in parts), strict=True))
    return Sample(full, brief, ATOM, lambda columns: of(*(part.of(columns) for part in parts)))


def exponent(a: Sample) -> Sample:
    return called("clip", [a, leaf("0.25", 0.25), leaf("3", 3.0)])


def extended(children: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    small = st.sampled_from([leaf("2", 2), leaf("0.5", 0.5), prefix("-", leaf("1", 1))]) | children.map(exponent)
    small = small | st.builds(power, st.just(leaf("2", 2)), small)
    return st.one_of(
        st.builds(binary, st.sampled_from(sorted(BINARY)), children, children),
        st.builds(power, children, small),
        st.builds(prefix, st.sampled_from(sorted(PREFIX)), children),
        st.builds(
            compared,
            children,
            st.lists(st.tuples(st.sampled_from(sorted(COMPARED)), children), min_size=1, max_size=3),
        ),
        st.builds(joined, st.sampled_from(sorted(JOINED)), st.lists(children, min_size=2, max_size=3)),
        st.builds(called, st.sampled_from(sorted(CALLED)), st.lists(children, min_size=3, max_size=3)),
    )


SAMPLES = st.recursive(
    st.one_of(
        st.sampled_from([feature(name) for name in COLUMNS]),
        st.floats(0, 100).map(lambda value: leaf(repr(value), value)),
        st.integers(0, 10**25).map(lambda value: leaf(str(value), float(value))),
        st.sampled_from([leaf("pi", math.pi), leaf("e", math.e), leaf("True", 1), leaf("False", 0)]),
    ),
    extended,
    max_leaves=8,
)


@given(sample=SAMPLES)
@settings(deadline=None, max_examples=200)
def test_values_agree_with_numpy(sample: Sample) -> None:
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(sample.of(COLUMNS), (5,))
    for text in (sample.full, sample.brief):
        if len(text) <= MOST_CHARACTERS:
            np.testing.assert_array_equal(parse(text)(COLUMNS), expected, err_msg=text)


NAMES = "x|y|speed|e|pi|_|é|µ|sqrt|min|where|exp|__import__|eval|exec|open|print|getattr|__builtins__"
OTHERS = (
    "1|0.5|1e999|2j|'a'|f'{x}'|True|None|...|__import__('os').system('x')|().__class__|.real|.__class__|[0]|(|)|[|]|{|}|"
    ",|:|:=|.|+|-|*|/|//|%|**|@|&|~|^|<<|>>|<|<=|==|!=|=|;|#|!|and|or|not|in|is|if|else|for|lambda|await|yield|async|"
    "import|def|\\|'|\"|\n|\t"
)
TOKENS = [*NAMES.split("|"), *OTHERS.split("|"), "|"]


def refuse_to_run(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"{name} was called")

    return refuse


@contextlib.contextmanager
def nothing_runs() -> Iterator[None]:
    """Fail if anything is run, opened or imported; a text may be parsed, not compiled."""
    compiles, imports = compile, __import__

    def only_parses(source: Any, filename: Any, mode: Any, flags: int = 0, *args: Any, **kwargs: Any) -> Any:
        assert flags & ast.PyCF_ONLY_AST
        return compiles(source, filename, mode, flags, *args, **kwargs)

    def only_for_the_parser(name: str, *args: Any, **kwargs: Any) -> Any:
        assert name in ("collections", "unicodedata")  # which ast.walk and ast.parse import when they are called
        return imports(name, *args, **kwargs)

    patches = {name: refuse_to_run(name) for name in ("eval", "exec", "open", "print", "input", "breakpoint")}
    with contextlib.ExitStack() as stack:
        for name, patch in (patches | {"compile": only_parses, "__import__": only_for_the_parser}).items():
            stack.enter_context(mock.patch.object(builtins, name, patch))
        yield


@given(
    text=st.text(max_size=30)
    | st.text(st.sampled_from("xy0123.+-*/%()<>=!,' \n\r\t\0é"), max_size=30)
    | st.lists(st.sampled_from(TOKENS), max_size=12).map("".join)
    | st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join)
)
@settings(deadline=None, max_examples=500)
def test_any_text_is_a_number_for_each_row_or_a_mistake_of_the_user(text: str) -> None:
    with nothing_runs(), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            expression = parse(text)
            values = expression(COLUMNS)
        except UserError:
            return
    assert type(values) is np.ndarray
    assert values.dtype == np.float64
    assert values.shape == (5,)
    assert all(isinstance(node, ACCEPTED_NODES) for node in ast.walk(expression.tree))


FRAGMENTS = [
    text.replace(HERE, "")
    for text, words in REFUSED
    if len(text) < 60 and "Python" not in words and "in brackets" not in words  # brackets may mend those
]
OPERATIONS = "{}|-{}|not {}|{} + x|x - y * {}|{} ** 2|x ** {}|2 ** {} ** x|{} < x|x < {} < y|x and {} and y|{} or x"
CALLS = "sqrt({})|clip(x, {}, y)|where({}, 1, 2)|min(x, y, 3, {})|{}(x)|foo({})"
AROUND = [*OPERATIONS.split("|"), *CALLS.split("|")]


@given(fragment=st.sampled_from(FRAGMENTS), around=st.lists(st.sampled_from(AROUND), max_size=5))
@settings(deadline=None, max_examples=200)
def test_nothing_refused_is_accepted_inside_something_else(fragment: str, around: list[str]) -> None:
    for frame in around:
        fragment = frame.format(f"({fragment})")
    with nothing_runs(), pytest.raises(UserError) as caught:
        parse(fragment)(COLUMNS)
    assert "\n" in str(caught.value)
