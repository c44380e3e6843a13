"""Figures of the book: one palette, one style, readable at phone width and in black and white."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

Numbers = Sequence[float | int]

# Okabe and Ito's palette, told apart with any kind of colour vision.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION, YELLOW, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#000000",
)
CONCEPT, OBJECT = BLUE, VERMILION
"""Concept recognition is blue, object recognition is vermilion, in every figure."""

STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 80,
    "savefig.dpi": 160,
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "lines.linewidth": 2,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
    "svg.hashsalt": "conceptbind",
}

WIDTH = 4.8
"""Inches. At this width 12 pt text stays readable when the figure shrinks to a 390 px screen."""


def use_style() -> None:
    """Apply the book's style to every figure drawn from here on."""
    mpl.rcParams.update(STYLE)


def paired_bars(
    rows: Mapping[str, tuple[Numbers, Numbers]],
    *,
    chance: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
) -> Figure:
    """Draw concept and object recognition as two horizontal bars a row, with intervals and chance.

    ``rows[label] = (concept, object)``, each ``(accuracy, low, high)`` in 0 to 1.
    ``chance[label] = (concept, object)``, drawn as a black tick across the bar.
    """
    return grouped_bars(
        rows,
        series=("concepts", "objects"),
        ticks=chance,
        xlabel="share of scenes recognised" + ("; black: chance" if chance else ""),
        title=title,
    )


def grouped_bars(
    rows: Mapping[str, Sequence[Numbers]],
    *,
    series: Sequence[str],
    ticks: Mapping[str, Sequence[float]] | None = None,
    xlabel: str,
    title: str = "",
) -> Figure:
    """Draw a few numbers from 0 to 1 as horizontal bars for each row, with intervals and a black tick each.

    ``rows[label]`` holds ``(value, low, high)`` for each of the ``series`` (up to four); NaN draws no bar, and a
    negative value a bar without length, with its number beside it. ``ticks[label]``: a reference for each bar, or NaN.
    Raises ValueError for more than four series, or a row with another number of values than there are series.
    """
    if not 1 <= len(series) <= 4:
        raise ValueError(f"a row has room for 1 to 4 bars; got {len(series)} series: {tuple(series)}")
    for label, row in rows.items():
        if len(row) != len(series):
            raise ValueError(
                f"the row {label!r} has {len(row)} values, there are {len(series)} series: {series}"
            )
    labels = list(rows)
    height = 0.3 if len(series) < 3 else 0.26
    pitch = 0.4 + height * len(series)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.0 + 0.66 * pitch * len(labels)), layout="constrained")
    looks = [(CONCEPT, ""), (OBJECT, "///"), (GREEN, "..."), (ORANGE, "xxx")]
    for which, (name, (colour, hatch)) in enumerate(zip(series, looks, strict=False)):
        values = np.array([rows[label][which] for label in labels], dtype=float)
        y = pitch * np.arange(len(labels)) + which * height
        lengths = np.clip(np.nan_to_num(values[:, 0]), 0, None)
        ax.barh(y, lengths, height * 0.92, color=colour, hatch=hatch, edgecolor="white", label=name)
        # An interval by resampling need not hold the value itself.
        errors = np.clip((np.clip(values[:, 1:], 0, None) - lengths[:, None]).T * [[-1], [1]], 0, None)
        ax.errorbar(lengths, y, xerr=errors, fmt="none", ecolor="#333", elinewidth=1.2, capsize=3)
        for yi, value in zip(y, values[:, 0], strict=True):
            if not np.isnan(value):
                ax.text(1.03, yi, f"{value:.2f}", va="center", color=colour, weight="bold", size=11)
        for yi, label in zip(y, labels, strict=True):
            c = ticks[label][which] if ticks and label in ticks else np.nan
            if not np.isnan(c):
                ax.plot([c, c], [yi - height * 0.46, yi + height * 0.46], color=BLACK, lw=2.5)
    for i, label in enumerate(labels):
        # Above its bars and not beside them: on a phone the bars keep the whole width.
        ax.text(0, pitch * i - height * 0.62, label, va="bottom", size=11)
    share_axis(ax, bottom=pitch * len(labels) - 0.5, xlabel=xlabel)
    ax.spines["left"].set_position(("data", 0))
    fig.legend(loc="outside upper left", ncols=2 if len(series) < 3 else len(series))
    if title:
        ax.set_title(title, loc="left", size=11)
    return _closed(fig)


def share_axis(ax: Axes, *, bottom: float, xlabel: str) -> None:
    """Lay out an axes for horizontal bars of shares: 0 to 1, room for a number beside, rows down to ``bottom``."""
    ax.set_yticks([])
    ax.set_ylim(bottom, -0.62)
    ax.set_xlim(0, 1.16)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
    ax.set_xlabel(xlabel, loc="left")
    ax.grid(axis="x", color="#e4e4e4")
    ax.grid(axis="y", visible=False)


def curves(
    x: Numbers,
    lines: Mapping[str, tuple[Numbers, Numbers, Numbers]],
    *,
    xlabel: str,
    ylabel: str,
    chance: float | None = None,
    log: bool = False,
    title: str = "",
) -> Figure:
    """Draw lines with bands: ``lines[label] = (y, low, high)``, one value for each ``x``."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")
    markers = "osD^vP*X"
    colours = [BLUE, VERMILION, GREEN, ORANGE, PINK, SKY, BLACK]
    for i, (label, (y, low, high)) in enumerate(lines.items()):
        colour = colours[i % len(colours)]
        ax.plot(x, y, color=colour, marker=markers[i % len(markers)], ms=5, label=label)
        ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    if chance is not None:
        ax.axhline(chance, color=BLACK, ls=":", lw=1.5, label=f"chance ({chance:.3f})")
    if log:
        ax.set_xscale("log")
        ax.set_xticks(x, [f"{v:g}" for v in x])
        ax.minorticks_off()
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    if title:
        ax.set_title(title, loc="left", size=11)
    fig.legend(loc="outside lower center", ncols=2)
    return _closed(fig)


def gallery(
    pictures: UInt8[Tensor, "picture 3 height width"], titles: Sequence[str], *, columns: int = 2
) -> Figure:
    """Show pictures in a grid, each under its title."""
    if len(pictures) != len(titles):
        raise ValueError(f"{len(pictures)} pictures but {len(titles)} titles: give one title a picture")
    rows = -(-len(pictures) // columns)
    fig, axes = plt.subplots(
        rows, columns, figsize=(WIDTH, WIDTH / columns * rows * 1.12), layout="constrained", squeeze=False
    )
    for ax in axes.flat:
        ax.set_axis_off()
    ax: Axes
    for ax, picture, title in zip(axes.flat, pictures, titles, strict=False):
        ax.imshow(picture.permute(1, 2, 0).numpy())
        ax.set_title(textwrap.fill(title, 48 // columns), size=10)
    return _closed(fig)


def growth(
    lines: Mapping[str, Callable[[int], int]], *, values: Sequence[int] = (2, 5, 10, 20, 50)
) -> Figure:
    """Draw how the number of stored vectors grows with the number of values a concept has, on log axes."""
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    for (label, count), colour, marker in zip(
        lines.items(), [VERMILION, GREEN, BLUE, ORANGE], "osD^", strict=False
    ):
        numbers = [count(v) for v in values]
        ax.plot(values, numbers, color=colour, marker=marker, label=label)
        ax.annotate(
            f"{numbers[-1]:,}", (values[-1], numbers[-1]), (6, -4), textcoords="offset points", size=10
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(values, values)
    ax.minorticks_off()
    ax.set_xlim(right=values[-1] * 1.5)
    ax.set_xlabel("values of each concept, V")
    ax.set_ylabel("vectors stored")
    fig.legend(loc="outside lower center", ncols=2)
    return _closed(fig)


def _closed(fig: Figure) -> Figure:
    """Take a figure from pyplot's hands: a notebook would show it twice, as an open figure and as a cell's value."""
    plt.close(fig)
    return fig
