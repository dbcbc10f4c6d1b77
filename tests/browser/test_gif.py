"""The films that the page encodes, as Pillow and the browser decode them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

Array = np.ndarray[Any, Any]
Module = Callable[..., Any]
ENCODE = """
({ encodeGif }, { frames, width, height, delay }) => {
  const bytes = (text) => Uint8ClampedArray.from(atob(text), (c) => c.charCodeAt(0));
  const film = encodeGif(frames.map(bytes), width, height, delay);
  if (!(film instanceof Uint8Array)) throw new Error("not bytes");
  return btoa(Array.from(film, (byte) => String.fromCharCode(byte)).join(""));
}
"""


def encoded(module: Module, frames: Array, delay: int = 100) -> bytes:
    """The film of frames (n, height, width, 3)."""
    _, height, width, _ = frames.shape
    pixels = np.concatenate([frames, np.full_like(frames[..., :1], 255)], axis=3).astype(np.uint8)
    texts = [base64.b64encode(frame.tobytes()).decode() for frame in pixels]
    return base64.b64decode(
        module("gif.js", ENCODE, {"frames": texts, "width": width, "height": height, "delay": delay})
    )


def decoded(film: bytes) -> Array:
    with Image.open(io.BytesIO(film)) as image:
        return np.stack([np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)])


def disc(n: int, height: int, width: int) -> Array:
    """A red disc that moves to the right on grey ground."""
    y, x = np.mgrid[:height, :width]
    frames = np.full((n, height, width, 3), 240)
    for i in range(n):
        frames[i][np.hypot(x - 10 - 5 * i, y - 15) < 8] = [200, 30, 10]
    return frames


def slope(n: int, height: int, width: int) -> Array:
    """All shades of red and green, and more blue in each frame."""
    y, x = np.mgrid[:height, :width]
    planes = [np.stack([255 * x // width, 255 * y // height, 0 * x + 40 * i], axis=2) for i in range(n)]
    return np.stack(planes)


def test_a_film_has_its_size_its_frames_and_no_end(module: Module) -> None:
    film = encoded(module, disc(7, 31, 50), delay=70)
    with Image.open(io.BytesIO(film)) as image:
        assert (image.format, image.size, getattr(image, "n_frames", 0)) == ("GIF", (50, 31), 7)
        assert (image.info["loop"], image.info["duration"]) == (0, 70)


def test_few_colours_are_exact_and_what_stays_is_not_repeated(module: Module) -> None:
    frames = disc(12, 31, 90)
    film = encoded(module, frames)
    np.testing.assert_array_equal(decoded(film), frames)
    assert len(film) < 4_000


def test_many_colours_are_about_right(module: Module) -> None:
    frames = slope(4, 120, 150)
    apart = np.abs(decoded(encoded(module, frames)).astype(int) - frames)
    assert apart.mean() < 6
    assert apart.max() < 40


def test_noise_fills_the_dictionary_many_times(module: Module) -> None:
    shades = np.random.default_rng(0).integers(0, 6, (3, 150, 170, 3)) * 51
    np.testing.assert_array_equal(decoded(encoded(module, shades)), shades)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (2, 1, 300), (2, 300, 1), (2, 17, 23)])
def test_any_size(module: Module, shape: tuple[int, int, int]) -> None:
    frames = np.random.default_rng(1).integers(0, 2, (*shape, 3)) * 255
    film = encoded(module, frames)
    np.testing.assert_array_equal(decoded(film), frames)


@pytest.mark.parametrize(
    "pixels", [*range(250, 262), 509, 510, 511, 512, 513, 3_835, 3_836, 3_837, 3_838, 3_839, 3_840]
)
def test_every_length_is_read_to_its_end_code(module: Module, pixels: int) -> None:
    """Where codes become wider, and where the dictionary is full: no pair of these colours comes twice."""
    colours = np.array([[i % 16 * 16, i // 16 * 16, 0] for i in range(256)])
    pairs = np.array([(a, b) for a in range(64) for b in range(a)]).ravel()
    frames = colours[np.resize(pairs, pixels)][None, None]
    film = encoded(module, frames)
    np.testing.assert_array_equal(decoded(film), frames)
    assert codes_of(film)[-1] == 257


def codes_of(film: bytes) -> list[int]:
    """The codes of the first frame, read as a decoder reads them."""
    start = film.index(b"\x21\xf9", 13 + 3 * 256) + 8 + 10
    assert film[start] == 8
    data, at = b"", start + 1
    while film[at]:
        data += film[at + 1 : at + 1 + film[at]]
        at += 1 + film[at]
    bits = int.from_bytes(data, "little")
    codes: list[int] = []
    width, known = 9, 258
    while bits or not codes or codes[-1] != 257:
        code = bits & ((1 << width) - 1)
        bits >>= width
        codes.append(code)
        if code == 257:
            break
        if code == 256:
            width, known = 9, 258
            continue
        if len(codes) > 1 and codes[-2] != 256:
            known = min(known + 1, 4096)
        width = min(max(9, known.bit_length()), 12)
    assert not bits
    return codes


def test_the_browser_shows_a_film(page: Any, module: Module) -> None:
    film = base64.b64encode(encoded(module, disc(3, 20, 30))).decode()
    size = page.evaluate(
        """async (film) => {
          const image = new Image();
          image.src = `data:image/gif;base64,${film}`;
          await image.decode();
          return [image.naturalWidth, image.naturalHeight];
        }""",
        film,
    )
    assert size == [30, 20]


def test_a_film_is_encoded_in_little_time(module: Module) -> None:
    function = """({ encodeGif }) => {
        const [width, height] = [300, 300];
        const frames = Array.from({ length: 20 }, (_, f) =>
          Uint8ClampedArray.from({ length: 4 * width * height }, (_, i) => (i % 4 === 3 ? 255 : (i >> 4) + 3 * f)));
        const before = performance.now();
        encodeGif(frames, width, height, 100);
        return performance.now() - before;
      }"""
    assert module("gif.js", function) < 10_000
