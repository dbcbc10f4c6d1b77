"""The one exception for mistakes that a user can mend."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in what was asked: says what was given, what is accepted and what to do.

    The command line prints its text without a traceback.
    """
