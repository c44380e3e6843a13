"""Figures of trained models: the phase diagram, and what fits say about recognition."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conceptbind.analysis.complexity_table import Curve
from conceptbind.plots import BLACK, BLUE, GREEN, ORANGE, PINK, SKY, VERMILION, WIDTH, _closed

LINES = tuple(zip((BLUE, VERMILION, GREEN, ORANGE, PINK, SKY), "osD^vP", strict=True))
"""Colours and markers of curves and groups."""
BARS = ((SKY, ""), (ORANGE, "..."), (BLUE, "///"))
"""Colours and hatches of kinds of scenes."""
COVERAGE = "coverage: share of the objects in training"
LABEL = 20
"""Characters of a label of which two fit side by side."""
Point = tuple[float, float]
Style = tuple[str, str]
T = TypeVar("T")


def coverage_curves(curves: Mapping[str, Curve], *, ylabel: str = "held-out objects") -> Figure:
    """Draw a share over coverage: mean and range of the seeds, every line at coverages of its own.

    Raises ValueError for more than six curves, which no colours are left to tell apart.
    """
    lines = _styled(curves.items(), LINES)
    fig, ax = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")
    _draw(ax, lines)
    _unit_axis(ax, COVERAGE, ylabel)
    # two long labels side by side are wider than the figure
    fig.legend(loc="outside lower center", ncols=2 if max(map(len, curves)) <= LABEL else 1)
    return _closed(fig)


def phase_point(
    curves: Mapping[str, Curve],
    bars: Mapping[str, Sequence[float]],
    *,
    at: tuple[str, float],
    floor: tuple[str, Curve] | None = None,
    kinds: Sequence[str] = ("training", "mixed", "held out"),
) -> Figure:
    """Draw recognition over coverage, one line for each label, a ring around one point, and its numbers below.

    ``bars[measure]``: a share for each of the ``kinds`` of scenes, NaN where it was not measured. ``at``: a label and a
    coverage of ``curves``; no ring where the curve has no such coverage. ``floor``: what a model reaches that does not
    bind, dotted.
    Raises ValueError for more than six curves, or three kinds.
    """
    lines, parts = _styled(curves.items(), LINES), _styled(kinds, BARS)
    fig, (top, below) = plt.subplots(
        2, 1, figsize=(WIDTH, 5.2), layout="constrained", gridspec_kw={"height_ratios": [1.5, 1]}
    )
    _draw(top, lines, chosen=at[0])
    if floor is not None:
        top.plot(floor[1].coverages, floor[1].mean, color=BLACK, ls=":", lw=1.6, label=floor[0])
    if at[1] in curves[at[0]].coverages:
        height = curves[at[0]].mean[curves[at[0]].coverages.index(at[1])]
        top.plot([at[1]], [height], "o", ms=15, mfc="none", mec=BLACK, mew=2, clip_on=False)
    _unit_axis(top, COVERAGE, "held-out objects")
    fig.legend(loc="outside upper left", ncols=2)
    width = 0.8 / max(1, len(kinds))
    for k, (kind, (colour, hatch)) in enumerate(parts):
        places = [i + (k - (len(kinds) - 1) / 2) * width for i in range(len(bars))]
        heights = [row[k] for row in bars.values()]
        below.bar(places, heights, width * 0.94, color=colour, hatch=hatch, edgecolor="white", label=kind)
        for x, height in zip(places, heights, strict=True):
            missing = math.isnan(height)
            below.text(
                x,
                0.02 if missing else min(height, 0.98) + 0.02,
                "–" if missing else f"{height:.2f}",
                ha="center",
                size=9,
            )
    below.set_xticks(range(len(bars)), [textwrap.fill(label, 14) for label in bars])
    below.set_ylim(0, 1.2)
    below.set_xlim(-0.5, len(bars) - 0.5)
    below.set_yticks([0, 0.5, 1])
    below.grid(axis="x", visible=False)
    below.set_title(f"{at[0]}, coverage {at[1]:g}: share of scenes", loc="left", size=11)
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.45), ncols=len(kinds), frameon=False)
    return _closed(fig)


def scatter(groups: Mapping[str, Sequence[Point]], *, xlabel: str, ylabel: str, title: str = "") -> Figure:
    """Draw one point for each model, coloured by group; both axes from zero to one, lower values at the edge.

    Raises ValueError for more than six groups.
    """
    styled = _styled(groups.items(), LINES)
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2), layout="constrained")
    for (label, points), (colour, marker) in styled:
        x, y = ([max(-0.05, p[axis]) for p in points] for axis in (0, 1))
        ax.plot(x, y, marker, ms=6, color=colour, alpha=0.75, mec="white", mew=0.6, label=label)
    _unit_axis(ax, xlabel, ylabel)
    ax.set_xlim(-0.08, 1.03)
    ax.set_ylim(-0.08, 1.03)
    if title:
        ax.set_title(title, loc="left", size=11)
    fig.legend(loc="outside lower center", ncols=2)
    return _closed(fig)


def _draw(ax: Axes, lines: Sequence[tuple[tuple[str, Curve], Style]], *, chosen: str = "") -> None:
    for (label, c), (colour, marker) in lines:
        strong = label == chosen
        ax.plot(
            c.coverages, c.mean, color=colour, marker=marker, ms=5, lw=2.8 if strong else 1.6, label=label
        )
        ax.fill_between(c.coverages, c.low, c.high, color=colour, alpha=0.22 if strong else 0.12, lw=0)


def _styled(things: Collection[T], styles: Sequence[Style]) -> list[tuple[T, Style]]:
    if len(things) > len(styles):
        raise ValueError(
            f"a figure tells {len(styles)} curves, groups or kinds apart; got {len(things)}: draw several figures"
        )
    return list(zip(things, styles, strict=False))


def _unit_axis(ax: Axes, xlabel: str, ylabel: str) -> None:
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
