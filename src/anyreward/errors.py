"""The exception for mistakes that the user can correct, and how it shows what was given."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user; the message says what was given, what is accepted and what to do.

    The command line prints its text without a traceback.
    """


MOST_SHOWN = 80
"""Largest number of characters of a value in a message."""


def shown(value: object) -> str:
    """A value as text for a message: in one line, shortened if it is long."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # a whole number of thousands of digits, a deeply nested list
        return f"a value of type {type(value).__name__}, too long to show"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 4]} ..."
