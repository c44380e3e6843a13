"""Figures of the interaction spectrum and of stable effects, in the style of :mod:`conceptbind.plots`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from conceptbind.analysis.interactions import INTERACTION_KINDS, STABILITY_PARTS
from conceptbind.analysis.verdict import LITTLE, MOST
from conceptbind.plots import CONCEPT, GREEN, OBJECT, ORANGE, WIDTH, _closed, share_axis

LOOKS = ((CONCEPT, ""), (OBJECT, "///"), (GREEN, "..."), (ORANGE, "xxx"))
"""Colours and hatches of the segments, by place: the same for kinds and for what an effect depends on."""

HEIGHT, PITCH = 0.42, 0.86
"""Of a bar, and from one to the next."""

STABILITY_NAMES = {
    "stable": "the same everywhere",
    "same object": "by the same object",
    "other objects": "by other objects",
    "higher": "by several at once",
}

ROOM = 0.1
"""A segment of this share of the axis has room for its number."""


def spectrum_bars(
    rows: Mapping[str, Mapping[str, float]], *, without_concepts: bool = False, title: str = ""
) -> Figure:
    """Draw the variance of every encoder as one bar, a segment for each kind of interaction.

    ``rows[label]``: the share of every kind, as from ``InteractionSpectrum.by_kind``; a negative corrected share has no
    length, and NaN leaves the row empty. ``without_concepts``: only the interactions, which often are a few percent:
    each bar on its own scale, filled by them, with their share of the variance beside the label.
    Raises ValueError for a row without one of the kinds.
    """
    _require(rows, INTERACTION_KINDS)
    if not without_concepts:
        return _stacked(rows, INTERACTION_KINDS, xlabel="share of the variance", title=title)
    kinds = INTERACTION_KINDS[1:]
    parts = {}
    for label, row in rows.items():
        lengths = {kind: row[kind] if math.isnan(row[kind]) else max(0.0, row[kind]) for kind in kinds}
        whole = sum(lengths.values())
        beside = f"{label}: nothing" if whole == 0 else f"{label}: {_percent(whole)} of the variance"
        beside = label if math.isnan(whole) else beside
        parts[beside] = {kind: length / whole if whole else 0.0 for kind, length in lengths.items()}
    return _stacked(parts, kinds, looks=LOOKS[1:], xlabel="share of the interactions", title=title)


def stability_bars(rows: Mapping[str, Mapping[str, float]], *, title: str = "") -> Figure:
    """Draw how much of a concept's effect is the same in every scene, and on what the rest depends.

    ``rows[label]``: the parts of one encoder, as from :func:`conceptbind.analysis.interactions.mean_stability`; NaN
    leaves the row empty. Raises ValueError for a row without one of the parts.
    """
    _require(rows, STABILITY_PARTS)
    named = {label: name_parts(row) for label, row in rows.items()}
    return _stacked(named, tuple(STABILITY_NAMES.values()), xlabel="share of the squared change", title=title)


def name_parts(row: Mapping[str, float]) -> dict[str, float]:
    """Give the parts of an effect the names that figures call them by."""
    return {STABILITY_NAMES[part]: row[part] for part in STABILITY_PARTS}


def _require(rows: Mapping[str, Mapping[str, float]], keys: Sequence[str]) -> None:
    if not rows:
        raise ValueError("no row was given: give at least one encoder")
    for label, row in rows.items():
        missing = [key for key in keys if key not in row]
        if missing:
            raise ValueError(f"the row {label!r} has no {missing}; a row needs {tuple(keys)}")


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def _stacked(
    rows: Mapping[str, Mapping[str, float]],
    keys: Sequence[str],
    *,
    looks: Sequence[tuple[str, str]] = LOOKS,
    xlabel: str,
    title: str,
) -> Figure:
    fig, ax = plt.subplots(
        figsize=(WIDTH, 1.35 + 0.25 * bool(title) + 0.6 * PITCH * len(rows)), layout="constrained"
    )
    stack_bars(ax, rows, keys, looks=looks, xlabel=xlabel)
    fig.legend(loc="outside upper left", ncols=2)
    if title:
        ax.set_title(title, loc="left", size=11)
    return _closed(fig)


def stack_bars(
    ax: Axes,
    rows: Mapping[str, Mapping[str, float]],
    keys: Sequence[str],
    *,
    looks: Sequence[tuple[str, str]] = LOOKS,
    xlabel: str,
) -> None:
    """Draw one stacked bar a row, each under its label, with the numbers that have room; every key has a handle."""
    for i, (label, row) in enumerate(rows.items()):
        start, y = 0.0, PITCH * i
        for key, (colour, hatch) in zip(keys, looks, strict=True):
            length = 0.0 if math.isnan(row[key]) else max(0.0, row[key])
            # Every key has a bar in the first row, even without length: the legend is made of them.
            name = key if i == 0 else "_"
            ax.barh(y, length, HEIGHT, left=start, color=colour, hatch=hatch, edgecolor="white", label=name)
            if length >= ROOM:
                ax.text(
                    start + length / 2,
                    y,
                    f"{row[key]:.2f}",
                    ha="center",
                    va="center",
                    size=11,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                )
            start += length
        ax.text(0, y - HEIGHT * 0.6, label, va="bottom", size=11)
        if any(math.isnan(row[key]) for key in keys):
            ax.text(0, y, "undefined", va="center", size=11, style="italic")
    share_axis(ax, bottom=PITCH * (len(rows) - 1) + HEIGHT * 0.75, xlabel=xlabel)
    # No number stands beside a bar here; corrected shares may add up to a little more than 1 without the negative.
    ax.set_xlim(0, 1.02)


def verdict_chart(rows: Mapping[str, Mapping[str, Any]], *, title: str = "") -> Figure:
    """Draw what decides the verdict on each encoder: held-out objects recovered, by it and by its controls.

    ``rows[label]``: a judgement as from ``Judgement.as_dict`` of :mod:`conceptbind.analysis.verdict`. Recovered is 0
    where an approximator is no better than the additive one, 1 where it reaches the real embeddings; shown from -0.1 to
    1.3, what lies beyond at the edge. Encoders whose objects are not read have no marks. Above each row: the verdict.
    Raises ValueError without a row.
    """
    if not rows:
        raise ValueError("no row was given: give at least one judgement")
    fig, ax = plt.subplots(figsize=(WIDTH, 1.5 + 0.56 * len(rows)), layout="constrained")
    left, right = -0.1, 1.3
    for i, (label, row) in enumerate(rows.items()):
        ax.text(left, i - 0.22, f"{label}: {row['verdict']}", va="bottom", size=11)
        ax.plot([left, right], [i, i], color="#e4e4e4", lw=1, zorder=0)
        controls = [min(max(c["recovered"], left), right) for c in row["controls"]]
        ax.plot(controls, [i] * len(controls), "D", color=GREEN, ms=7, mfc="none", mew=1.8)
        if row["objects_low"] > MOST:
            x = min(max(row["recovery"]["recovered"], left), right)
            ax.plot([x], [i], "o", color=OBJECT, ms=9, zorder=3)
    # Drawn without points: rows without controls would leave them out of the legend.
    ax.plot([], [], "o", color=OBJECT, ms=9, label="the encoder")
    ax.plot([], [], "D", color=GREEN, ms=7, mfc="none", mew=1.8, label="controls: a product, planted")
    for x, style in ((LITTLE, ":"), (MOST, "--")):
        ax.axvline(x, color="#555", ls=style, lw=1)
    ax.set_ylim(len(rows) - 0.6, -0.75)
    ax.set_xlim(left, right)
    ax.set_yticks([])
    ax.set_xticks([0, LITTLE, MOST, 1], ["0", f"{LITTLE:g}", f"{MOST:g}", "1"])
    ax.set_xlabel("held-out objects recovered", loc="left")
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    fig.legend(loc="outside upper left", ncols=2)
    if title:
        ax.set_title(title, loc="left", size=11)
    return _closed(fig)


def code_lengths(
    x: Sequence[float], lines: Mapping[str, Sequence[Sequence[float]]], *, title: str = ""
) -> Figure:
    """Draw bits a scene as objects arrive: for each code and coverage the mean of the seeds, and their range.

    ``lines[label]``: for each ``x`` the bits of every seed. The axis is logarithmic; less than one bit is drawn as
    one.
    """
    fig, ax = plt.subplots(figsize=(WIDTH, 3.6), layout="constrained")
    looks = zip((CONCEPT, OBJECT, GREEN, ORANGE), "osD^", strict=True)
    for (label, by_x), (colour, marker) in zip(lines.items(), looks, strict=False):
        seeds = [[max(1.0, bits) for bits in of_x] for of_x in by_x]
        ax.plot(x, [fmean(s) for s in seeds], color=colour, marker=marker, ms=5, label=label)
        ax.fill_between(x, [min(s) for s in seeds], [max(s) for s in seeds], color=colour, alpha=0.15, lw=0)
    ax.set_yscale("log")
    # Plain numbers: 200 says more than 2 x 10^2.
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("coverage when the next objects arrive")
    ax.set_ylabel("bits a scene")
    if title:
        ax.set_title(title, loc="left", size=11)
    fig.legend(loc="outside lower center", ncols=2)
    return _closed(fig)
