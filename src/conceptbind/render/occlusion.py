"""How far one flat shape has to be from another to hide a wanted share of it."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int, UInt8

from conceptbind.render.shapes import mask

MAX_TURN = math.pi / 4
"""The line from one centre to the other is level, or turned by up to this angle either way."""

_BESIDE = 1.5  # offsets this many pixels off the line count too: more of them, so a closer share


def hidden_shares(
    front: UInt8[np.ndarray, "height width"], back: UInt8[np.ndarray, "height2 width2"]
) -> Float[np.ndarray, "dy dx"]:
    """Give, for every offset of the front mask from the back one, the share of the back one's area it hides.

    Masks as :func:`conceptbind.render.shapes.mask` gives them, 0 to 255. The offset (0, 0) is in the middle
    of the result. Hidden is the mean of front(p - offset) over the pixels p, each weighted by back(p).
    """
    reach = (len(front) + len(back)) // 2
    n = 2 * reach + 1
    # The correlation at all offsets at once; it is a sum of whole numbers, so rounding makes it exact.
    both = np.fft.rfft2(back, (n, n)) * np.conj(np.fft.rfft2(front, (n, n)))
    sums = np.rint(np.fft.irfft2(both, (n, n)))
    shift = (len(back) - len(front)) // 2  # the middle of one mask on the middle of the other
    sums = np.roll(sums, (reach - shift, reach - shift), axis=(0, 1))
    return sums / (255.0 * back.sum(dtype=np.int64))


def offset_that_hides(
    front: tuple[str, float], back: tuple[str, float], share: float, *, angle: float
) -> tuple[Int[np.ndarray, "2"], float]:
    """Find the offset (x, y) in pixels, x > 0, at which the front shape hides a share of the back one.

    ``front`` and ``back``: shape and side in pixels. ``angle``: of the line from the back to the front centre,
    within ``MAX_TURN`` of 0, positive is down. To the left instead of right: change the sign of x, shapes
    mirror. Gives the share that is hidden too, the nearest to the wanted one that whole pixels allow.
    Raises ValueError when no offset hides as much.
    """
    shares, near = _near_line(front, back, round(angle, 6))
    best = np.abs(shares - share).argmin()
    if shares.max() < share:
        raise ValueError(
            f"a {front[0]} hides at most {shares.max():.2f} of a {back[0]} beside it; {share:.2f} is wanted"
        )
    return near[best], float(shares[best])


@lru_cache(maxsize=4096)
def _near_line(
    front: tuple[str, float], back: tuple[str, float], angle: float
) -> tuple[Float[np.ndarray, "offset"], Int[np.ndarray, "offset 2"]]:
    shares = _shares(front, back)
    middle = len(shares) // 2
    y, x = np.mgrid[-middle : middle + 1, -middle : middle + 1]
    off_line = np.abs(y * math.cos(angle) - x * math.sin(angle))
    near = (x > 0) & (off_line <= _BESIDE)
    return shares[near], np.stack([x[near], y[near]], axis=1)


@lru_cache(maxsize=256)
def _shares(front: tuple[str, float], back: tuple[str, float]) -> Float[np.ndarray, "dy dx"]:
    return hidden_shares(mask(*front), mask(*back))
