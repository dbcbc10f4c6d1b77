"""The environments of gymnasium-robotics, which are registered when they are first asked for."""

from __future__ import annotations

import contextlib
import io
from importlib import import_module
from importlib.util import find_spec

import gymnasium as gym


def register(identity: str) -> None:
    """Register these environments if an id is not known, names no package, and the package is installed."""
    if ":" in identity or identity in gym.registry or find_spec("gymnasium_robotics") is None:
        return
    with contextlib.redirect_stderr(io.StringIO()):  # it prints a notice about some environments
        gym.register_envs(import_module("gymnasium_robotics"))
