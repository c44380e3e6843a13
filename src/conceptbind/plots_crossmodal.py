"""Figures of binding between image and text, in the style of :mod:`conceptbind.plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from conceptbind.analysis.choice import Choice
from conceptbind.plots import BLACK, BLUE, GREEN, ORANGE, VERMILION, WIDTH, _closed, share_axis

LOOKS = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "D"), (ORANGE, "^"))
"""Colours and markers of parts, at most four."""
ROW = 0.36


def two_way_by_model(
    models: Mapping[str, Mapping[str, Choice]],
    *,
    xlabel: str = "share of choices that are right",
    title: str = "",
) -> Figure:
    """Draw the accuracy of choices as one point for each model and part, with its interval; chance is dotted.

    ``models[label][part]``: the parts, such as "seen" and "held-out", are the same for every model. A choice that
    judged nothing has no point; one that is flagged as anti-binding is outlined. Above chance is right of the line.
    Raises ValueError for no model, parts that differ between models, more than four parts, or several chances.
    """
    if not models:
        raise ValueError("there is no model to draw: give at least one")
    parts = list(next(iter(models.values())))
    for label, choices in models.items():
        if list(choices) != parts:
            raise ValueError(f"the model {label!r} has the parts {list(choices)}, the first one {parts}")
    if not 1 <= len(parts) <= len(LOOKS):
        raise ValueError(f"a model has room for 1 to {len(LOOKS)} parts; got {len(parts)}: {parts}")
    chances = {c.chance for choices in models.values() for c in choices.values()}
    if len(chances) != 1:
        raise ValueError(f"all choices of a figure need one chance; got {sorted(chances)}")
    pitch = 0.5 + ROW * len(parts)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.66 * pitch * len(models)), layout="constrained")
    for which, (part, (colour, marker)) in enumerate(zip(parts, LOOKS, strict=False)):
        for i, choices in enumerate(models.values()):
            c, y = choices[part], pitch * i + which * ROW
            if not c.n:
                ax.text(1.03, y, "–", va="center", color=colour, size=11)
                continue
            reach = [[max(0.0, c.accuracy - c.low)], [max(0.0, c.high - c.accuracy)]]
            face = "white" if c.anti_binding else colour
            style = {"color": colour, "mfc": face, "mec": colour, "ms": 7, "elinewidth": 1.4, "capsize": 3}
            ax.errorbar(c.accuracy, y, xerr=reach, fmt=marker, **style)
            ax.text(1.03, y, f"{c.accuracy:.2f}", va="center", color=colour, weight="bold", size=11)
        # for the legend: what is drawn above may be outlined
        ax.plot([], [], marker, color=colour, ms=7, ls="", label=part)
    for i, label in enumerate(models):
        ax.text(0, pitch * i - ROW * 0.6, label, va="bottom", size=11)
    share_axis(ax, bottom=pitch * len(models) - 0.5, xlabel=xlabel)
    ax.axvline(chances.pop(), color=BLACK, ls=":", lw=1.6, label="chance")
    fig.legend(loc="outside upper left", ncols=2)
    if title:
        ax.set_title(title, loc="left", size=11)
    return _closed(fig)


def margins(
    groups: Mapping[str, Float[Tensor, "anchor"] | Sequence[float]],
    *,
    bins: int = 40,
    xlabel: str = "cosine with the true one − with the swapped one",
    title: str = "",
) -> Figure:
    """Draw how the margins of two-way choices are distributed, one histogram a group, as shares of the group.

    All groups have the same bins, symmetric about zero, so that none holds margins of both signs; right of the dotted
    line a choice is right. Exact ties lie on it and are counted in the legend.
    Raises ValueError for no group or more than four, a group without margins, or an odd number of bins.
    """
    values = {label: np.asarray(group, dtype=float) for label, group in groups.items()}
    if not 1 <= len(values) <= len(LOOKS):
        raise ValueError(f"a figure tells 1 to {len(LOOKS)} groups apart; got {len(values)}")
    empty = [label for label, v in values.items() if not len(v)]
    if empty:
        raise ValueError(f"these groups have no margins: {empty}; leave them out")
    if bins < 2 or bins % 2:
        raise ValueError(f"bins must be even, so that zero is an edge; got {bins}")
    reach = max(float(np.abs(v).max()) for v in values.values()) or 1.0
    edges = np.linspace(-reach, reach, bins + 1)
    edges[bins // 2] = 0.0
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
    for (label, v), (colour, _), dashes in zip(values.items(), LOOKS, ("-", "--", "-.", ":"), strict=False):
        ties = float((v == 0).mean())
        share = np.histogram(v[v != 0], edges)[0] / len(v)
        name = f"{label}: {(v > 0).mean():.2f} right" + (f", {ties:.2f} tied" if ties else "")
        ax.stairs(share, edges, fill=True, color=colour, alpha=0.15)
        ax.stairs(share, edges, color=colour, lw=1.8, ls=dashes, label=name)
    ax.axvline(0, color=BLACK, ls=":", lw=1.6)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("share of choices")
    fig.legend(loc="outside lower center", ncols=1)
    if title:
        ax.set_title(title, loc="left", size=11)
    return _closed(fig)
