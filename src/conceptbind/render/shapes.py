"""Flat shapes of equal area, and their anti-aliased masks.

Every shape has area 1, its centre of area at the origin (y points down), and mirrors left to right. So
neither the amount of colour nor its centre tells shapes apart, and a mirrored picture shows the swapped
scene.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float, UInt8


def _star(n_points: int, inner: float) -> Float[np.ndarray, "corner 2"]:
    """Give a star with ``n_points`` points, the first one up; inner radius ``inner`` for outer radius 1."""
    angles = np.pi * np.arange(2 * n_points) / n_points
    radii = np.where(np.arange(2 * n_points) % 2, inner, 1.0)
    return np.stack([radii * np.sin(angles), -radii * np.cos(angles)], axis=1)


def _regular(n: int) -> Float[np.ndarray, "corner 2"]:
    return _star(n, math.cos(math.pi / n))  # the inner corners lie on the edges of the polygon


def _with_unit_area(corners: Float[np.ndarray, "corner 2"]) -> Float[np.ndarray, "corner 2"]:
    x, y = corners.T
    doubled = np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
    return corners / math.sqrt(abs(doubled) / 2)


_CROSS = [
    (1, 1),
    (1, 3),
    (-1, 3),
    (-1, 1),
    (-3, 1),
    (-3, -1),
    (-1, -1),
    (-1, -3),
    (1, -3),
    (1, -1),
    (3, -1),
    (3, 1),
]

POLYGONS: dict[str, Float[np.ndarray, "corner 2"]] = {
    name: _with_unit_area(np.asarray(corners, dtype=float))
    for name, corners in {
        "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        "triangle": _regular(3),
        "diamond": [(0, -1.3), (1, 0), (0, 1.3), (-1, 0)],
        "hexagon": _regular(6),
        "star": _star(5, 0.5),
        "cross": _CROSS,
    }.items()
}

SHAPES: tuple[str, ...] = ("square", "triangle", "circle", "star", "cross", "diamond", "hexagon")
"""What can be drawn."""

REACH: dict[str, float] = {
    name: 1 / math.sqrt(math.pi) if name == "circle" else float(np.hypot(*POLYGONS[name].T).max())
    for name in SHAPES
}
"""The distance from the centre to the farthest point of a shape of area 1."""

_ROWS = 16  # a pixel is covered in _ROWS thin rows, each measured exactly across


@lru_cache(maxsize=4096)
def mask(shape: str, side: float) -> UInt8[np.ndarray, "height width"]:
    """Give how much of each pixel a shape of area ``side``^2 pixels covers, 0 to 255.

    The centre of area lies at the middle of the mask, a corner between four pixels.
    """
    half = math.ceil(REACH[shape] * side) + 1
    y = (np.arange(2 * half * _ROWS) + 0.5) / _ROWS - half
    if shape == "circle":
        reach = np.sqrt(np.clip((REACH["circle"] * side) ** 2 - y**2, 0, None))
        crossings = np.stack([-reach, reach], axis=1)
    else:
        crossings = _crossings(side * POLYGONS[shape], y)
    # A row is inside between its 1st and 2nd crossing, its 3rd and 4th, ...: of each pixel, the part left of
    # an even crossing counts, less the part left of the odd one before.
    edges = np.arange(-half, half)
    left_of = np.clip(crossings[:, :, None] - edges, 0, 1)
    covered = left_of[:, 1::2].sum(1) - left_of[:, ::2].sum(1)
    pixels = covered.reshape(2 * half, _ROWS, 2 * half).mean(1)
    out = np.rint(255 * (pixels + pixels[:, ::-1]) / 2).astype(np.uint8)
    out.flags.writeable = False
    return out


def _crossings(
    corners: Float[np.ndarray, "corner 2"], y: Float[np.ndarray, "row"]
) -> Float[np.ndarray, "row crossing"]:
    """Give where the outline crosses each row, sorted; rows with fewer crossings repeat the right end."""
    (x0, y0), (x1, y1) = corners.T, np.roll(corners, -1, axis=0).T
    rows = y[:, None]
    crosses = (y0 <= rows) != (y1 <= rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = x0 + (rows - y0) / (y1 - y0) * (x1 - x0)
    far = np.abs(corners).max() + 1
    # An outline crosses a row an even number of times, so the padding comes in pairs that cancel.
    return np.sort(np.where(crosses, x, far), axis=1)[:, : 2 * (crosses.sum(1).max() // 2)]
