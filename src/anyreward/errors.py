"""The exception for mistakes that the user can correct."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user; the message says what was given, what is accepted and what to do.

    The command line prints its text without a traceback.
    """
