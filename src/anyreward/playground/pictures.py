"""Images as PNG files, without a library for images."""

from __future__ import annotations

import struct
import zlib
from functools import cache

import numpy as np
from scipy import sparse

from anyreward.worlds.spaces import Array

LARGEST = 480
"""Largest width and height of a frame, in pixels; larger images are made smaller."""


def smaller(image: Array) -> Array:
    """An image (height, width, 3) of at most `LARGEST` pixels on each side, by area averaging."""
    height, width = image.shape[:2]
    scale = LARGEST / max(height, width)
    if scale >= 1:
        return image
    down, across = (_averages(side, max(1, round(side * scale))) for side in (height, width))
    rows = (down @ image.reshape(height, -1).astype(np.float32)).reshape(-1, width, 3)
    columns = across @ rows.transpose(1, 0, 2).reshape(width, -1)
    averages: Array = columns.reshape(across.shape[0], -1, 3).transpose(1, 0, 2)
    return np.rint(averages).astype(np.uint8)


@cache
def _averages(side: int, fewer: int) -> sparse.csr_matrix:
    """(fewer, side) the share of each old pixel in each new one."""
    edges, pixels = np.linspace(0, side, fewer + 1)[:, None], np.arange(side)
    shares = np.clip(np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels), 0, None)
    return sparse.csr_matrix((shares * fewer / side).astype(np.float32))


def png(image: Array) -> bytes:
    """An image (height, width, 3) of bytes as a PNG file."""
    height, width = image.shape[:2]
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # each line begins with its filter: 0, none
    lines[:, 1:] = image.reshape(height, -1)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),  # 8 bits, RGB
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
