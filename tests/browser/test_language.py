"""The expression language in JavaScript and in Python: the same texts are accepted, with the same values and errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from anyreward.errors import UserError
from anyreward.rewards.expression import CONSTANTS, FUNCTIONS, ExpressionError, parse
from tests.browser.corpus import decided_by_the_parser, random_texts, steady_texts, written

Array = np.ndarray[Any, Any]
Module = Callable[..., Any]
COLUMNS = {
    "x": [0.0, 0.5, 1.0, -2.0, 7.25, 3.0, -0.1],
    "y": [0.25, -0.0, 3.0, 0.1, -11.0, 2.0, 1e-9],
    "speed": [2.0, 0.5, 0.0, -3.0, 1e-9, 3.0, 40.0],
}
ODD = {
    "x": [0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324, -1.5],
    "y": [-0.0, 0.0, 1.0, math.inf, 2.0, math.nan, -1e308, 2.5],
    "speed": [1.0, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-300, 0.5],
}
ANSWERS = """
({ parse, valuesOf }, [texts, columns]) => {
  const n = Object.values(columns)[0].length;
  const given = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, Float64Array.from(values)]));
  return JSON.parse(texts).map((text) => {
    try {
      return { values: [...valuesOf(parse(text), given, n)] };
    } catch (error) {
      if (error.name !== "ExpressionError") throw new Error(`${JSON.stringify(text)}: ${error.stack}`);
      return { what: error.what, at: error.at, message: error.message, accepted: error.accepted };
    }
  });
}
"""


def by_page(module: Module, texts: list[str], columns: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """What the page makes of each text; the texts are sent in ASCII, so that half of a surrogate pair arrives."""
    answers: list[dict[str, Any]] = module("expression.js", ANSWERS, [json.dumps(texts), columns])
    return [
        answer | {key: np.array(answer[key], dtype=float) for key in answer if key == "values"} for answer in answers
    ]


def by_python(text: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"values": parse(text)({name: np.asarray(column) for name, column in columns.items()})}
    except ExpressionError as error:
        plain = re.sub("\r\n?", "\n", text.strip())
        units = plain[: error.at].encode("utf-16-le", "surrogatepass")  # JavaScript counts these
        return {"what": error.what, "at": len(units) // 2, "message": str(error)}
    except UserError as error:
        return {"what": str(error), "at": None, "message": str(error)}


def differences(module: Module, texts: list[str]) -> list[str]:
    """The texts in which the page accepts, points at or says something else than Python."""
    found = []
    for text, page in zip(texts, by_page(module, texts, COLUMNS), strict=True):
        python = by_python(text, COLUMNS)
        if ("values" in page) != ("values" in python):
            found.append(f"{text!a}: page {page}, Python {python}")
            continue
        same = "values" in page or (page["at"], worded(page)) == (python["at"], worded(python))
        if not same and not decided_by_the_parser(text):
            found.append(f"{text!a}: page {page['at']} {page['what']}, Python {python['at']} {python['what']}")
    return found


def worded(error: Mapping[str, Any]) -> str:
    """What an error says; without digits that depend on rounding, and what only Python's parser knows."""
    what = re.sub(r"the exponent -?([0-9.]{1,6}).*?;", r"the exponent \1;", error["what"])
    what = re.split(r"\.$|\. (?:Give|Write)", what)[0]  # Python adds advice
    return "a syntax error" if what.startswith("a syntax error") else what


def test_expressions_written_by_hand(module: Module) -> None:
    texts = written()
    assert len(texts) > 600
    assert not differences(module, texts)


@pytest.mark.parametrize("seed", range(2))
def test_random_expressions(module: Module, seed: int) -> None:
    assert not differences(module, random_texts(seed, 600))


def test_few_texts_are_left_to_the_parser() -> None:
    refused = [text for text in written() if "syntax error" in by_python(text, COLUMNS).get("what", "")]
    left = [text for text in refused if decided_by_the_parser(text)]
    assert len(left) < 0.06 * len(refused)


@pytest.mark.parametrize("columns", [COLUMNS, ODD])
def test_values_of_expressions_written_by_hand(module: Module, columns: dict[str, list[float]]) -> None:
    texts = [text for text in written() if "values" in by_python(text, columns)]
    texts = [text for text in texts if columns == COLUMNS or "0.5" not in text]  # NumPy takes ** 0.5 for a square root
    assert len(texts) > 200
    for text, page in zip(texts, by_page(module, texts, columns), strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(page["values"], by_python(text, columns)["values"], 1e-12, 0, True, text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_of_functions_on_many_numbers(module: Module, name: str) -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=2_000) * 10.0 ** rng.integers(-12, 3, 2_000)
    columns = {"x": size, "y": rng.permutation(size), "z": rng.normal(size=2_000)}
    text = f"{name}({', '.join('xyz'[: FUNCTIONS[name][1]])})"
    page = by_page(module, [text], {key: column.tolist() for key, column in columns.items()})[0]
    np.testing.assert_allclose(page["values"], by_python(text, columns)["values"], 1e-14)


def test_values_of_random_expressions(module: Module) -> None:
    """Where they change little if the features change by a part in 10^11; else rounding decides."""
    texts = steady_texts(5, 800)
    compared = 0
    for text, page in zip(texts, by_page(module, texts, COLUMNS), strict=True):
        if "values" not in page:
            continue
        exact = by_python(text, COLUMNS)["values"]
        moved = [by_python(text, {n: np.array(c) * (1 + s) for n, c in COLUMNS.items()}) for s in (-1e-11, 1e-11)]
        steady = np.all([np.isclose(m.get("values", math.inf), exact, 1e-6, 0, True) for m in moved], axis=0)
        np.testing.assert_allclose(page["values"][steady], exact[steady], 1e-12, 0, True, text)
        compared += steady.sum()
    assert compared > 0.7 * len(texts) * len(COLUMNS["x"])


@pytest.mark.parametrize(
    ("text", "what", "at", "accepted"),
    [
        (
            "  x + spede",
            "the name 'spede' is not known (did you mean 'speed'?)",
            4,
            "Names accepted: x, y, speed, pi, e.",
        ),
        ("x + sqr(y)", "the function 'sqr' is not known (did you mean 'sqrt'?)", 4, "Accepted: numbers, names of"),
        ("(x y)", "a syntax error (invalid syntax. Perhaps you forgot a comma?)", 1, "functions abs, sqrt, exp"),
        ("x y", "a syntax error (invalid syntax)", 2, ""),
        ("sqrt(x", "a syntax error ('(' was never closed)", 4, ""),
        ("(x = 3)", "a syntax error (invalid syntax. Maybe you meant '==' or ':=' instead of '='?)", 1, ""),
        ("x\n+ y", "a syntax error (invalid syntax); write an expression of several lines in brackets", 2, ""),
        ("x ^ 2", "^ : write ** for a power", 2, ""),
        ("x ** 101", "the exponent 101.0; exponents are from -100 to 100", 5, ""),
        ("\U0001d465 + ²", "a syntax error (invalid character '²' (U+00B2))", 5, ""),  # one character, two units
    ],
)
def test_an_error_says_what_and_where(module: Module, text: str, what: str, at: int, accepted: str) -> None:
    (error,) = by_page(module, [text], COLUMNS)
    assert (error["what"], error["at"]) == (what, at)
    assert error["message"] == f"Not accepted in a reward expression: {what}."
    assert accepted in error["accepted"]
    python = by_python(text, COLUMNS)
    assert python["message"].startswith(error["message"])
    assert python["message"].endswith(error["accepted"])


@pytest.mark.parametrize("name", ["constructor", "toString", "hasOwnProperty", "µ", "ﬁ", "e", "min"])
def test_features_may_have_any_name(module: Module, name: str) -> None:
    assert by_page(module, [f"{name} + 1"], {name: [1.0, 2.0]})[0]["values"].tolist() == [2, 3]
    error = by_page(module, [f"{name}(1)", f"1 + {name}"], {"x": [1.0]})
    known = name in (*FUNCTIONS, *CONSTANTS)
    assert known or all("is not known" in answer["what"] for answer in error)


def test_results_must_be_finite(module: Module) -> None:
    function = """({ parse, evaluate }, text) => {
        try {
          return [...evaluate(parse(text), { x: new Float64Array([1, 0]) }, 2)];
        } catch (error) {
          return [error.message, error.at];
        }
      }"""
    assert module("expression.js", function, "x + 1") == [2, 1]
    finite = "rewards must be finite, and at most 1e+30."
    message = f"The reward 1 / x is inf in row 1, for x = 0.0; {finite}"
    assert module("expression.js", function, "1 / x") == [message, None]
    assert f"The reward 1e31 is 1e+31 in row 0; {finite}" in module("expression.js", function, "1e31")
    assert "at most 1000" in module("expression.js", function, 600 * "+x")[0]
    assert "is empty" in module("expression.js", function, " \n")[0]


def test_evaluation_is_fast(module: Module) -> None:
    function = """({ parse, evaluate }, text) => {
        const [x, y] = [0, 1].map(() => Float64Array.from({ length: 10000 }, Math.random));
        const expression = parse(text);
        const times = Array.from({ length: 100 }, () => {
          const before = performance.now();
          evaluate(expression, { x, y }, 10000);
          return performance.now() - before;
        });
        return Math.min(...times);
      }"""
    assert module("expression.js", function, "(x > 0.6) * exp(-((y - 0.2) / 0.1)**2)") < 3


def test_long_and_deep_texts_take_little_time(module: Module) -> None:
    texts = ["(" * 199 + "x" + ")" * 199, "(" * 199 + "x y", "-" * 999 + "x", "not " * 249 + "x", "+".join("x" * 500)]
    texts += ["(x if " * 166, "[" * 199 + "x for", "lambda:" * 142 + "x y", "(lambda:" * 110, "(x=" * 199, "x " * 500]
    texts += ["f(x y, " * 140, "{x:" * 199, "x[" * 199 + "=", "**".join("x" * 330) + "**", "(x:=" * 199, "(*" * 199]
    function = """({ parse }, texts) => texts.map((text) => {
        const before = performance.now();
        try { parse(text); } catch (error) { if (error.name !== "ExpressionError") return `${text}: ${error}`; }
        return performance.now() - before;
      })"""
    times = module("expression.js", function, texts)
    assert all(isinstance(time, int | float) for time in times), times
    assert max(times) < 1_000, dict(zip(texts, times, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sp|", ["speed feature"]),
        ("x + S|", ["speed feature", "sqrt function", "sin function", "sign function"]),
        ("(x > 0) * ex|", ["exp function"]),
        ("p|", ["pi constant"]),
        ("e|", ["e feature", "exp function"]),
        ("x|y", ["x feature"]),
        ("2e|", []),
        ("x.s|", []),
        ("x |", []),
        ("x # s|", []),
        ("q|", []),
    ],
)
def test_names_are_completed(module: Module, text: str, expected: list[str]) -> None:
    before = text.index("|")
    function = "({ complete }, [text, caret]) => complete(text, caret, ['x', 'y', 'speed', 'e'])"
    found = module("expression.js", function, [text.replace("|", ""), before])
    assert [f"{option['label']} {option['kind']}" for option in found["options"]] == expected
    typed = re.search(r"[\w.]*$", text[:before])
    assert typed is not None
    assert found["from"] == typed.start()


@pytest.mark.parametrize(
    ("text", "any_name"), [("", True), ("x * ", True), ("min(x,", True), ("x and ", True), ("x)", False)]
)
def test_where_a_name_may_begin_all_are_offered(module: Module, text: str, any_name: bool) -> None:
    found = module("expression.js", "({ complete }, text) => complete(text, text.length, ['x'])", text)
    assert len(found["options"]) == (1 + len(FUNCTIONS) + len(CONSTANTS) if any_name else 0)
    assert found["from"] == len(text)
