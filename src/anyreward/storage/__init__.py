"""Run folders: atomic files and metrics; and the paths that a user gives."""

from __future__ import annotations

from pathlib import Path

from anyreward.errors import UserError, shown


def user_path(given: str | Path) -> Path:
    """A path that a user gave, with ``~`` replaced by the home folder."""
    if not isinstance(given, str | Path) or "\0" in str(given):
        raise UserError(f"{shown(given)} is not a path; give text or a pathlib.Path, without null characters.")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:  # ~name of a user who does not exist
        raise UserError(f"{given} cannot be expanded: {error}. Give the folder in full.") from error
