"""A labelled point cloud in three dimensions: what it holds, and two views of it for print and without JavaScript."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from conceptbind.widgets.fallback import figure_html

# Every point can be focused and named: more of them would be neither readable nor quick on a phone.
MAX_POINTS = 500
MARKERS = ("circle", "square", "diamond", "triangle", "cross", "star", "open circle", "open square")
"""What a group's points look like, in this order unless told otherwise; open ones are larger than filled ones."""

# The eye stands this far from the middle, in units of the cloud's radius. point_cloud.js has the same number.
EYE = 4.0
# Blue, vermilion, green, orange, pink and sky blue of Okabe and Ito, for groups without colours.
_PALETTE = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9")
_MPL_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^", "cross": "X", "star": "*"}
_INK = "#1d2329"
# Labels that stand beside their points without being asked for, unless told otherwise.
_N_LABELS = 12

Points = Float[Tensor, "point axis"] | Float[np.ndarray, "point axis"]
Colour = str | tuple[str, str]


@dataclass(frozen=True)
class Cloud:
    """Hold a point cloud that was checked; made by :func:`check_cloud`."""

    points: Float[np.ndarray, "point 3"]
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    """The kind of every point."""
    links: tuple[tuple[int, int], ...]
    colours: tuple[tuple[str, ...], ...]
    """One ``#rrggbb`` for every point, or two: left and right half."""
    markers: dict[str, str]
    """The marker of every group, in the groups' order of appearance."""
    named: tuple[str, ...]
    """Groups whose labels always stand beside their points."""
    shares: tuple[float, ...]
    """The shares of the three axes, or nothing."""
    view: tuple[float, float]
    """Degrees turned about the vertical axis and tilted towards the viewer."""


def check_cloud(
    points: Points,
    labels: Sequence[str],
    groups: Sequence[str],
    *,
    links: Sequence[tuple[int, int]] = (),
    colours: Sequence[Colour] | None = None,
    markers: Mapping[str, str] | None = None,
    named: Sequence[str] | None = None,
    shares: Sequence[float] | Float[Tensor, "axis"] | None = None,
    view: tuple[float, float] = (25.0, 15.0),
) -> Cloud:
    """Check the arguments of :func:`conceptbind.widgets.point_cloud` and fill in what was left out.

    Raises ValueError where they do not fit together.
    """
    coordinates = np.asarray(
        points.detach().cpu() if isinstance(points, Tensor) else points, dtype=np.float64
    )
    n = len(coordinates)
    if coordinates.shape != (n, 3):
        raise ValueError(f"points must have shape (n, 3): three coordinates each; got {coordinates.shape}")
    if not 1 <= n <= MAX_POINTS:
        raise ValueError(f"a cloud holds 1 to {MAX_POINTS} points; got {n}: show a sample of them")
    if not np.isfinite(coordinates).all():
        raise ValueError(f"points hold {int((~np.isfinite(coordinates)).sum())} numbers that are not finite")
    for name, given in (("labels", labels), ("groups", groups), ("colours", colours)):
        if isinstance(given, str):
            raise ValueError(f"{name} must be a list, one entry for each point; got the string {given!r}")
        if given is not None and len(given) != n:
            raise ValueError(f"{n} points but {len(given)} {name}: give one for each point")
    for pair in links:
        if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= int(i) < n for i in pair):
            raise ValueError(f"a link joins two different points, numbered 0 to {n - 1}; got {tuple(pair)}")
    kinds = list(dict.fromkeys(groups))
    chosen = _markers(kinds, markers)
    if named is None:
        sizes = np.cumsum([list(groups).count(kind) for kind in kinds])
        named = [kind for kind, size in zip(kinds, sizes, strict=True) if size <= _N_LABELS]
    unknown = [kind for kind in named if kind not in kinds]
    if unknown or isinstance(named, str):
        raise ValueError(f"named must list some of the groups {kinds}; got {named}")
    if colours is None:
        colours = [_PALETTE[kinds.index(kind) % len(_PALETTE)] for kind in groups]
    if not all(math.isfinite(degrees) for degrees in view) or not -90 <= view[1] <= 90:
        raise ValueError(f"view must be two angles in degrees, the second from -90 to 90; got {view}")
    return Cloud(
        points=coordinates,
        labels=tuple(labels),
        groups=tuple(groups),
        links=tuple((int(i), int(j)) for i, j in links),
        colours=tuple(_hex(colour, label) for colour, label in zip(colours, labels, strict=True)),
        markers=chosen,
        named=tuple(named),
        shares=_shares(shares),
        view=(float(view[0]), float(view[1])),
    )


def _markers(kinds: list[str], markers: Mapping[str, str] | None) -> dict[str, str]:
    given = dict(markers or {})
    unknown = [kind for kind in given if kind not in kinds]
    if unknown:
        raise ValueError(f"markers names the groups {unknown}; the groups are {kinds}")
    free = [marker for marker in MARKERS if marker not in given.values()]
    chosen = {kind: given[kind] if kind in given else free.pop(0) if free else "" for kind in kinds}
    wrong = [marker for marker in given.values() if marker not in MARKERS]
    if wrong or "" in chosen.values() or len(set(chosen.values())) < len(kinds):
        raise ValueError(
            f"every group needs a marker of its own, one of {MARKERS}; got {given} for {len(kinds)} groups"
        )
    return chosen


def _hex(colour: Colour, label: str) -> tuple[str, ...]:
    """One or two colours as ``#rrggbb``."""
    parts = (colour,) if isinstance(colour, str) else tuple(colour)
    try:
        if len(parts) not in (1, 2):
            raise ValueError
        return tuple(to_hex(part) for part in parts)
    except ValueError:
        raise ValueError(
            f"the colour of {label!r} is {colour!r}, which is none: give a CSS colour name or #rrggbb, or a "
            "pair of them for the left and the right half"
        ) from None


def _shares(shares: Sequence[float] | Float[Tensor, "axis"] | None) -> tuple[float, ...]:
    if shares is None:
        return ()
    values = tuple(float(share) for share in shares)
    if len(values) != 3 or not all(0 <= share <= 1 for share in values) or sum(values) > 1 + 1e-6:
        raise ValueError(f"shares must be three numbers from 0 to 1 that sum to at most 1; got {values}")
    return values


def shares_text(shares: Sequence[float]) -> str:
    """Say how much of the distances the three axes show; nothing without shares.

    The single percentages are rounded so that they add up to the whole (largest remainders).
    """
    if not shares:
        return ""
    whole = round(100 * sum(shares))
    each = [math.floor(100 * share) for share in shares]
    order = sorted(range(3), key=lambda axis: each[axis] - 100 * shares[axis])
    for axis in order[: whole - sum(each)]:
        each[axis] += 1
    return (
        f"These three axes carry {whole} % of the squared distances "
        f"({each[0]} %, {each[1]} % and {each[2]} %)."
    )


def unit_points(points: Float[np.ndarray, "point 3"]) -> Float[np.ndarray, "point 3"]:
    """Move the middle of the bounding box to 0 and scale the farthest point to radius 1."""
    centred = points - (points.min(0) + points.max(0)) / 2
    return centred / (np.linalg.norm(centred, axis=1).max() or 1.0)


def project(
    points: Float[np.ndarray, "point 3"], azimuth: float, elevation: float
) -> Float[np.ndarray, "point 3"]:
    """Look at points in perspective: right, up and towards the viewer.

    Axis 1 points right, axis 2 up and axis 3 towards the viewer before the cloud is turned by ``azimuth``
    degrees about the vertical axis and tilted by ``elevation`` degrees, so that one sees its upper side.
    """
    turn, tilt = math.radians(azimuth), math.radians(elevation)
    x, y, z = points.T
    x, z = x * math.cos(turn) + z * math.sin(turn), z * math.cos(turn) - x * math.sin(turn)
    y, z = y * math.cos(tilt) - z * math.sin(tilt), y * math.sin(tilt) + z * math.cos(tilt)
    near = EYE / (EYE - z)
    return np.stack([x * near, y * near, z], 1)


def point_cloud_figure(
    points: Points,
    labels: Sequence[str],
    groups: Sequence[str],
    *,
    links: Sequence[tuple[int, int]] = (),
    colours: Sequence[Colour] | None = None,
    markers: Mapping[str, str] | None = None,
    named: Sequence[str] | None = None,
    title: str = "",
    shares: Sequence[float] | Float[Tensor, "axis"] | None = None,
    view: tuple[float, float] = (25.0, 15.0),
) -> Figure:
    """Draw a point cloud from two sides, a quarter turn about the vertical axis apart.

    The arguments are those of :func:`conceptbind.widgets.point_cloud`. Raises ValueError as it does.
    """
    cloud = check_cloud(
        points,
        labels,
        groups,
        links=links,
        colours=colours,
        markers=markers,
        named=named,
        shares=shares,
        view=view,
    )
    return draw_cloud(cloud, title)


def cloud_figure_html(cloud: Cloud, title: str, alt: str) -> str:
    """Draw the cloud as an ``<img>`` with alternative text and a caption, for readers without JavaScript."""
    caption = f"The cloud from two sides. {shares_text(cloud.shares)} With JavaScript you can turn it."
    return (
        f"<figure>{figure_html(draw_cloud(cloud, title), alt)}"
        f"<figcaption>{html.escape(' '.join(caption.split()))}</figcaption></figure>"
    )


def draw_cloud(cloud: Cloud, title: str) -> Figure:
    """Draw the two views of a checked cloud."""
    # The figure is no pyplot figure: nothing to close.
    figure = Figure(figsize=(4.8, 8.1), layout="constrained", facecolor="white")
    unit = unit_points(cloud.points)
    for ax, turned in zip(figure.subplots(2, 1), (0.0, 90.0), strict=True):
        _draw_view(ax, cloud, unit, cloud.view[0] + turned)
        ax.set_title("" if turned == 0 else "after a quarter turn", loc="left", fontsize=10)
    handles = [
        Line2D(
            [],
            [],
            linestyle="",
            label=kind,
            **_look(marker, 7.0),
            **_fill(marker, _group_colours(cloud, kind)),
        )
        for kind, marker in cloud.markers.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=10, frameon=False)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _group_colours(cloud: Cloud, kind: str) -> tuple[str, ...]:
    """The colour that all points of a group have, or grey."""
    all_colours = {colour for colour, group in zip(cloud.colours, cloud.groups, strict=True) if group == kind}
    return all_colours.pop() if len(all_colours) == 1 else ("#9aa2ab",)


def _look(marker: str, size: float) -> dict[str, object]:
    shape = marker.removeprefix("open ")
    grown = size * (1.5 if marker != shape else 1.4 if shape in ("star", "cross") else 1.0)
    return {"marker": _MPL_MARKERS[shape], "markersize": grown}


def _fill(marker: str, colours: tuple[str, ...]) -> dict[str, object]:
    if marker.startswith("open "):
        return {"fillstyle": "none", "markeredgecolor": colours[0], "markeredgewidth": 1.8}
    sides = {"fillstyle": "left", "markerfacecoloralt": colours[-1]} if len(colours) == 2 else {}
    return {"markerfacecolor": colours[0], "markeredgecolor": _INK, "markeredgewidth": 0.8, **sides}


def _draw_view(ax: Axes, cloud: Cloud, unit: Float[np.ndarray, "point 3"], azimuth: float) -> None:
    low, high = unit.min(0), unit.max(0)
    corners = np.array([[(low, high)[i >> axis & 1][axis] for axis in range(3)] for i in range(8)])
    box = project(corners, azimuth, cloud.view[1])
    for i in range(8):
        for axis in range(3):
            j = i | 1 << axis
            if j != i:
                ax.plot(*box[[i, j], :2].T, color="#d5dade", linewidth=0.8, zorder=0)
    flat = project(unit, azimuth, cloud.view[1])
    for i, j in cloud.links:
        ax.plot(*flat[[i, j], :2].T, color="#9aa2ab", linewidth=0.7, zorder=1)
    for i in range(len(unit)):
        marker, colours, depth = cloud.markers[cloud.groups[i]], cloud.colours[i], float(flat[i, 2])
        size = 6.5 * EYE / (EYE - depth)
        look = {"linestyle": "", "zorder": 3 + depth, **_look(marker, size)}
        x, y = flat[i, :2]
        halves = colours if marker.startswith("open ") and len(colours) == 2 else (None,)
        for side, colour in enumerate(halves):
            (line,) = ax.plot([x], [y], **look, **_fill(marker, colours if colour is None else (colour,)))
            if colour is not None:  # an outline has no left and right: show half of each
                line.set_clip_path(Rectangle((x - 1 + side, y - 1), 1, 2, transform=ax.transData))
    ax.set(xlim=(-1.12, 1.12), aspect="equal")
    ax.axis("off")
    beside = [i for i in range(len(unit)) if cloud.groups[i] in cloud.named]
    _write_labels(ax, cloud, flat, beside)


def _write_labels(ax: Axes, cloud: Cloud, flat: Float[np.ndarray, "point 3"], which: list[int]) -> None:
    """Write each label where it covers the least of the points and of the labels written so far."""
    # Data units of a 10 pt letter in an axes 4.6 inches wide that shows 2.24 units.
    letter, line, gap = 0.036, 0.085, 0.06
    half = np.array([[0.06 if cloud.markers[kind].startswith("open ") else 0.042] for kind in cloud.groups])
    points = np.concatenate([flat[:, :2] - half, flat[:, :2] + half], 1)
    written: list[tuple[float, float, float, float]] = []
    for i in sorted(which, key=lambda i: -flat[i, 2]):
        width = letter * len(cloud.labels[i])
        best = None
        for order, (dx, dy) in enumerate(
            [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)]
        ):
            cx = np.clip(flat[i, 0] + dx * (gap + width / 2), width / 2 - 1.12, 1.12 - width / 2)
            cy = flat[i, 1] + dy * (gap + line / 2)
            box = (cx - width / 2, cy - line / 2, cx + width / 2, cy + line / 2)
            cost = 8 * sum(_overlap(box, other) for other in written)
            cost += sum(_overlap(box, tuple(other)) for other in points) + 1e-4 * order
            if best is None or cost < best[0]:
                best = (cost, cx, cy, box)
        written.append(best[3])
        text = ax.text(best[1], best[2], cloud.labels[i], ha="center", va="center", fontsize=10, zorder=6)
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The area that two boxes (left, bottom, right, top) share."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, float(width)) * max(0.0, float(height))
