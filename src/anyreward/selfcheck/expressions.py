"""Random reward expressions, by a grammar and mutated: each must have the value that Python gives it, or be refused."""

from __future__ import annotations

import ast
import math
import random
import sys
import time
import traceback
import warnings
from typing import Any

import numpy as np

from anyreward.errors import UserError
from anyreward.rewards.terms import Function, reward

NAMES = ("x", "y", "speed")
FEATURES = np.array([[0.0, 0.25, 2.0], [0.5, -0.5, 0.5], [1.0, 3.0, 0.0], [-2.0, 0.1, -3.0], [7.25, -1e6, 1e-9]])
# fmt: off
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!=", "and", "or"]
ONE = ["abs", "sqrt", "exp", "log", "log1p", "sin", "cos", "tan", "tanh", "sign", "floor", "ceil", "round", "-", "not "]
TWO = ["arctan2", "hypot", "min", "max"]
NUMBERS = ["0", "1", "2", "0.5", "1e-3", "3.7", "1e308", "5e-324", "0x10", "1_0", "pi", "e", "True", "1e999", "9" * 30]
ODD = [*"\0\n\r\t\\éﬁπ²١\u202e\ud800\U0001f600'\"#;@&|~^", "lambda: 1", "__import__", "x.real", "[x]", "{x}"]
ODD += ["9**9**9**9", "x,", "*x", "1j", "None", "...", ":=", "b'a'", "x[0]", "x(y)", " if x else ", " in ", " is "]
ODD += ["yield ", "(" * 300, ")" * 300, "-" * 400, "not " * 100, "x" * 500, "9" * 900, "0x" + "f" * 500, " for x in y"]
# fmt: on
PARTS = [*NUMBERS, *NAMES, *OPERATORS, *ONE, *TWO]
SLOW = 1.0
"""Seconds of computing that one expression may take."""


def grown(rng: random.Random, depth: int) -> str:
    """An expression of the language."""
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return rng.choice(NAMES if rng.random() < 0.6 else NUMBERS)
    if kind < 0.65:
        return f"({grown(rng, depth - 1)} {rng.choice(OPERATORS)} {grown(rng, depth - 1)})"[rng.randrange(4) == 0 :]
    if kind < 0.85:
        return f"{rng.choice(ONE)}({grown(rng, depth - 1)})"
    if kind < 0.95:
        return f"{rng.choice(TWO)}({grown(rng, depth - 1)}, {grown(rng, depth - 1)})"
    return f"{rng.choice(('clip', 'where'))}({', '.join(grown(rng, depth - 1) for _ in range(3))})"


def mutated(rng: random.Random, text: str) -> str:
    """A text with some characters deleted, doubled, moved or replaced by odd ones."""
    for _ in range(rng.randint(1, 4)):
        i, j = sorted(rng.choices(range(len(text) + 1), k=2))
        odd = rng.choice((rng.choice(ODD), chr(rng.randrange(0x300)), rng.choice(PARTS)))
        text = rng.choice((text[:i] + text[j:], text[:j] + text[i:], text[:i] + odd + text[i:], text[i:] + text[:i]))
    return text


class Floats(ast.NodeTransformer):
    """Python's tree of an expression, with numbers as floats, and 0.0 or 1.0 for what is true or false."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:  # noqa: D102 (ast calls it)
        assert isinstance(node.value, int | float)
        return ast.copy_location(ast.Constant(float(node.value)), node)

    def _called(self, name: str, node: ast.expr, *arguments: ast.expr) -> ast.AST:
        return ast.copy_location(ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), [*arguments], []), node)

    def _truth(self, node: ast.expr) -> ast.AST:
        self.generic_visit(node)
        return self._called("truth", node, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:  # noqa: D102 (ast calls it)
        self.generic_visit(node)
        return self._called("power", node, node.left, node.right) if isinstance(node.op, ast.Pow) else node

    visit_Compare = visit_BoolOp = _truth

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:  # noqa: D102 (ast calls it)
        return self._truth(node) if isinstance(node.op, ast.Not) else self.generic_visit(node)


def _scalar(name: str) -> Any:
    return lambda *values: float(getattr(np, name)(*values))


CALLED: dict[str, Any] = {name: _scalar(name) for name in (*ONE[:-2], "arctan2", "hypot", "clip")}
CALLED |= {"min": lambda *v: float(np.min(v)), "max": lambda *v: float(np.max(v))}  # of NaN: NaN
CALLED |= {"where": lambda c, a, b: a if c else b, "truth": lambda v: float(bool(v))}
CALLED["power"] = lambda a, b: float(a**b)  # a complex number raises
CALLED |= {"pi": math.pi, "e": math.e, "__builtins__": {}}


def by_python(text: str, columns: Any) -> list[float]:
    """The value of an accepted expression in each row, by Python's own evaluation; NaN where Python raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about numbers such as 1or x
        tree = Floats().visit(ast.parse(text.strip(), mode="eval"))
    code, values = compile(tree, "", "eval"), []
    for row in columns.tolist():
        try:
            value = eval(code, CALLED, dict(zip((*NAMES, "f0", "f1", "f2"), row * 2, strict=True)))
            values.append(float(value) if isinstance(value, int | float) else math.nan)
        except (ArithmeticError, ValueError, TypeError):  # 1 / 0, which where(...) may leave out; (-1) ** 0.5 < 1
            values.append(math.nan)
    return values


def same(values: Any, text: str) -> bool:
    """Whether values (n,) are those of Python, where Python has one that does not change by rounding."""
    expected = np.array(by_python(text, FEATURES))
    close = np.isclose(values, expected, rtol=1e-9, atol=1e-300) | ~np.isfinite(expected)
    if close.all():
        return True
    around = [np.array(by_python(text, FEATURES * (1 + size))) for size in (-1e-12, 1e-12)]
    steady = np.isclose(around[0], expected, rtol=1e-9) & np.isclose(around[1], expected, rtol=1e-9)
    return bool((close | ~steady).all())


def outcome(text: str) -> str:
    """What an expression leads to: accepted, refused, tracebacks or silent."""
    began = time.process_time()
    try:
        (_, term), *_ = reward(text).terms
        assert isinstance(term, Function)
        values = term(FEATURES, NAMES)
    except UserError as error:
        late = time.process_time() - began > SLOW or len(str(error)) > 3_000
        return "silent" if late else "refused"
    except Exception:
        traceback.print_exc()
        return "tracebacks"
    late = time.process_time() - began > SLOW
    fine = values.shape == (len(FEATURES),) and values.dtype == np.float64 and np.isfinite(values).all()
    return "accepted" if fine and not late and same(values, text) else "silent"


def attack(count: int, seed: int) -> dict[str, int]:
    """Parse and evaluate ``count`` random expressions; how many were accepted, refused or went wrong."""
    rng = random.Random(seed)
    counts = dict.fromkeys(("tried", "accepted", "refused", "tracebacks", "silent"), 0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        for _ in range(count):
            text = grown(rng, rng.choice((1, 2, 2, 3, 3, 4)))
            if rng.random() < 0.4:
                text = mutated(rng, text)
            result = outcome(text)
            counts["tried"] += 1
            counts[result] += 1
            if result in ("tracebacks", "silent"):
                print(result, ascii(text)[:300], file=sys.stderr)
    return counts
