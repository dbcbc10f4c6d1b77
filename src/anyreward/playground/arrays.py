"""Arrays as text: base64 of little-endian numbers, which the page reads without parsing each number."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np


def encoded(values: Any, dtype: str = "<f4") -> str:
    """An array as base64 of little-endian numbers."""
    return base64.b64encode(np.ascontiguousarray(np.asarray(values), dtype=dtype).tobytes()).decode()
