"""One figure for one encoder: what approximators of growing size read, what interacts, what a scene costs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from conceptbind.analysis.interactions import INTERACTION_KINDS
from conceptbind.plots import CONCEPT, GREEN, OBJECT, WIDTH, _closed
from conceptbind.plots_complexity import STABILITY_NAMES, name_parts, stack_bars


@dataclass(frozen=True)
class Reading:
    """Hold what is read from one approximator, all as shares of scenes or R²."""

    name: str
    n_parameters: int
    r2_train: float
    concepts_held_out: float
    objects_held_out: float


def complexity_summary(
    *,
    verdict: str,
    why: str,
    readings: Sequence[Reading],
    ceiling: float,
    spectrum: Mapping[str, float],
    stability: Mapping[str, float],
    bits: Mapping[str, float] | None = None,
) -> Figure:
    """Draw the binding function of one encoder in four panels, under its verdict and the sentence behind it.

    ``readings``: one row an approximator, in the order given; negative R² is drawn at 0. ``ceiling``: objects read in
    the real embeddings of the same scenes. ``spectrum``, ``stability``: shares as from ``InteractionSpectrum.by_kind``
    and :func:`conceptbind.analysis.interactions.mean_stability`. ``bits``: bits a scene by code; without them the
    panel is left out. Raises ValueError without a reading.
    """
    if not readings:
        raise ValueError("no reading was given: give at least one approximator")
    rows = 0.28 * len(readings) + 1.25
    sentence = textwrap.wrap(f"{why[:1].upper()}{why[1:]}.", 56)
    head = 0.45 + 0.2 * len(sentence)
    heights = [head, rows, 1.95, 1.95] + ([0.28 * len(bits) + 0.85] if bits else [])
    fig = plt.figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    title, *parts = fig.subfigures(len(heights), 1, height_ratios=heights)
    title.text(0.02, 0.95, verdict, size=15, weight="bold", va="top")
    title.text(0.02, 0.95 - 0.36 / head, "\n".join(sentence), size=11, va="top", linespacing=1.25)
    _readings(parts[0], readings, ceiling)
    stack_bars(
        parts[1].subplots(),
        {"variance of the embeddings": spectrum},
        INTERACTION_KINDS,
        xlabel="share of the variance",
    )
    stack_bars(
        parts[2].subplots(),
        {"what a change of one value depends on": name_parts(stability)},
        tuple(STABILITY_NAMES.values()),
        xlabel="share of the squared change",
    )
    for part in parts[1:3]:
        part.legend(loc="outside upper left", ncols=2, fontsize=11)
    if bits:
        _bits(parts[3], bits)
    return _closed(fig)


def _readings(part: SubFigure, readings: Sequence[Reading], ceiling: float) -> None:
    ax = part.subplots()
    y = range(len(readings))
    ax.axvline(ceiling, color=OBJECT, ls="--", lw=1.2, zorder=0, label="objects, real")
    ax.plot([max(0.0, r.r2_train) for r in readings], y, "|", color="#333", ms=13, mew=2, label="training R²")
    concepts = [r.concepts_held_out for r in readings]
    ax.plot(concepts, y, "o", color=CONCEPT, ms=9, mfc="none", mew=2, label="concepts, held out")
    ax.plot([r.objects_held_out for r in readings], y, "s", color=OBJECT, ms=6, label="objects, held out")
    ax.set_yticks(list(y), [f"{r.name} ({_short(r.n_parameters)})" for r in readings], size=11)
    ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    ax.set_xlim(-0.04, 1.06)
    _rows(ax, len(readings))
    ax.set_xlabel("share of scenes, or R²", loc="left")
    part.legend(loc="outside upper left", ncols=2, fontsize=11)


def _bits(part: SubFigure, bits: Mapping[str, float]) -> None:
    ax = part.subplots()
    y = range(len(bits))
    ax.barh(y, list(bits.values()), 0.6, color=GREEN)
    most = max(bits.values())
    for i, value in enumerate(bits.values()):
        ax.text(value + most * 0.02, i, f"{value:.0f}", va="center", size=11)
    ax.set_yticks(list(y), list(bits), size=11)
    ax.set_xlim(0, most * 1.25)
    _rows(ax, len(bits))
    ax.set_xlabel("bits a scene, by code", loc="left")


def _rows(ax: Axes, n: int) -> None:
    ax.set_ylim(n - 0.4, -0.6)
    ax.grid(axis="x", color="#e4e4e4")
    ax.grid(axis="y", visible=False)


def _short(n: int) -> str:
    """Write a count with two digits: 3.8k, 105k, 1.7M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.2g}{unit}" if n < 100 * size else f"{n / size:.0f}{unit}"
    return str(n)
