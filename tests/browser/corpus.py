"""Expressions that Python and the page must treat alike, and the few texts that they need not treat alike."""

from __future__ import annotations

import random
import re
import string
import sys
from pathlib import Path

from anyreward.selfcheck.expressions import NUMBERS, grown, mutated
from tests.rewards.test_expression import HERE, REFUSED, TOKENS

FILE = Path(__file__).parent / "expressions.txt"
ESCAPE = re.compile(r"\\(x..|.)")
ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "\\": "\\"}
WORDS = (
    *("x", "y", "speed", "e", "pi", "1", "2", "0.5", "(", ")", "(", ")", ",", "+", "-", "*", "/", "**", "//", "%"),
    *("<", "<=", "==", "=", "and", "or", "not", "sqrt(", "exp(", "min(", "where(", "if", "else"),
)
STRAY = re.compile(r"\\[^\n]|\\$")


def written() -> list[str]:
    """Expressions written by hand: one on each line of a file, with escapes for what cannot be seen."""
    rows = FILE.read_text(encoding="utf-8").splitlines()
    seen = [ESCAPE.sub(lambda match: ESCAPED.get(match[1]) or chr(int(match[1][1:], 16)), row) for row in rows]
    return [*seen, *(text.replace(HERE, "") for text, _ in REFUSED)]


def decided_by_the_parser(text: str) -> bool:
    """Whether the place of a syntax error depends on details of CPython's parser that the page does not follow.

    What strings hold (escapes, f-strings); mistakes within braces, comprehensions and the parameters of a lambda; a
    second backslash in continued lines; and, because they differ between versions of Python, calls with an unpacked or
    an empty argument, names that begin as the soft keyword "type" does, a "not" after an operator, and a lone "*".
    """
    strange = ("{", "'", '"', "for", "lambda /", "lambda/", "=)", "= )", "=,", "= ,")
    unpacked = re.search(r"[(,] *\*\*.*[(,] *\*", text)
    return bool(
        any(mark in text for mark in strange)
        or len(STRAY.findall(text)) > 1
        or ("\\\n" in text and STRAY.search(text))
        or unpacked
        or (sys.version_info >= (3, 13) and re.search(r"[-+*/%] *not\b|[(,] *\*[ )]", text))
        or re.search(r"\bt(y(pe?)?)?\b", text)
    )


def random_texts(seed: int, count: int) -> list[str]:
    """Random expressions, some of them mutated, and random tokens."""
    rng, texts = random.Random(seed), []
    for _ in range(count):
        texts.append(grown(rng, rng.choice((1, 2, 3, 4))))
        texts.append(mutated(rng, grown(rng, rng.choice((1, 2, 3)))))
        texts.append(" ".join(rng.choices(WORDS, k=rng.randint(1, 9))))
        texts.append(rng.choice(("", " ")).join(rng.choices(TOKENS, k=rng.randint(1, 12))))
        texts.append("".join(rng.choices(string.printable, k=rng.randint(1, 9))))
    return texts


def steady_texts(seed: int, count: int) -> list[str]:
    """Random expressions without constants that make rounding errors large."""
    rng = random.Random(seed)
    texts = (grown(rng, rng.choice((2, 3, 4))) for _ in range(2 * count))
    extreme = [number for number in NUMBERS if len(number) > 5 or "e" in number[1:]]
    return [text for text in texts if not any(number in text for number in extreme)][:count]
