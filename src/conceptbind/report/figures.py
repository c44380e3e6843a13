"""Figures of a report's page, as inline SVG: only what was measured is drawn."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from conceptbind.plots import STYLE, grouped_bars
from conceptbind.report.metrics import ONE_MODALITY, SIDES
from conceptbind.report.report import RANDOM_INIT, SHUFFLED, Report

VARIANTS = {"": "trained", SHUFFLED: "shuffled labels", RANDOM_INIT: "untrained"}
"""Endings of metrics, and what a figure calls them."""

Bar = tuple[float, float, float]


@dataclass(frozen=True)
class Picture:
    """Hold a figure for a page."""

    heading: str
    caption: str
    alt: str
    """The numbers in words, for those who do not see the figure."""
    svg: str


def pictures(report: Report) -> list[Picture]:
    """Draw the figures of a report, in the order of the page."""
    m = report.metrics
    sides = [s for s in ONE_MODALITY if any(name.startswith(f"{s}_probe") for name in m)]
    removed = {
        "nothing": "probe",
        "concept parts": "removal_concept_parts",
        "object parts": "removal_object_parts",
        "wrong parts": "removal_permuted_concept_parts",
    }
    concept_object = ("concepts", "objects")
    drawn = [
        _picture(
            m,
            {
                _row(side, words): [f"{side}_probe_{what}{ending}" for what in concept_object]
                for side in sides
                for ending, words in VARIANTS.items()
            },
            concept_object,
            xlabel="share of new scenes recognised",
            heading="What can be read from an embedding",
            caption="A linear probe reads all values of a scene (concepts) and which of them belong together "
            "(objects). Beside it, the same probe for labels dealt out at random, and for the architecture untrained: "
            "where that does as well, it is not training that put it there.",
        ),
        _picture(
            m,
            {
                _row(side, words): [
                    f"{side}_additive_{base}{ending}" for base in ("r2_concepts", "r2_avg_pos")
                ]
                for side in ONE_MODALITY
                for ending, words in VARIANTS.items()
            },
            ("a sum of values", "a sum of objects"),
            xlabel="variance explained, R²",
            heading="How far embeddings are sums",
            caption="A sum of one vector for each value and place cannot bind; what a sum of objects explains beyond "
            "it depends on which values go together.",
        ),
        _picture(
            m,
            {
                _row(side, f"{words} removed"): [f"{side}_{base}_{what}" for what in concept_object]
                for side in ONE_MODALITY
                for words, base in removed.items()
                if any(name.startswith(f"{side}_removal") for name in m)
            },
            concept_object,
            xlabel="share recognised by a new probe",
            heading="What is left when parts are removed",
            caption="Without concept parts, concepts fall to chance by construction. Objects that are still read were "
            "not in the sum of values.",
        ),
        _picture(
            m,
            {
                _row("", words): [f"{d}_two_way{ending}" for d in ("image_to_text", "text_to_image")]
                for ending, words in {**VARIANTS, "_text_only": "captions alone"}.items()
            },
            (SIDES["image_to_text"], SIDES["text_to_image"]),
            xlabel="share of choices that are right",
            heading="The right one of two",
            caption="A picture and two captions with the same values, one of them with the values on the wrong "
            "objects (or a caption and two such pictures): how often is the right one nearer?",
        ),
    ]
    return [picture for picture in drawn if picture]


def _row(side: str, words: str) -> str:
    return f"{SIDES[side]}: {words}" if side else words


def _picture(
    m: Mapping[str, float],
    names: Mapping[str, Sequence[str]],
    series: Sequence[str],
    *,
    xlabel: str,
    heading: str,
    caption: str,
) -> Picture | None:
    """Draw the rows that have a number; None without any. ``names[row]``: a metric for each of the series."""
    rows = {row: [_bar(m, name) for name in of_row] for row, of_row in names.items()}
    rows = {row: bars for row, bars in rows.items() if any(not math.isnan(bar[0]) for bar in bars)}
    if not rows:
        return None
    chance = {
        row: [
            math.nan if math.isnan(bar[0]) else _chance(m, n) for n, bar in zip(names[row], bars, strict=True)
        ]
        for row, bars in rows.items()
    }
    has_chance = any(not math.isnan(c) for cs in chance.values() for c in cs)
    with mpl.rc_context(STYLE):
        figure = grouped_bars(
            rows, series=series, ticks=chance, xlabel=xlabel + ("; tick: chance" if has_chance else "")
        )
        svg = as_svg(figure)
    said = []
    for row, bars in rows.items():
        numbers = [
            f"{name} {bar[0]:.2f}" + ("" if math.isnan(c) else f" (chance {c:.2f})")
            for name, bar, c in zip(series, bars, chance[row], strict=True)
            if not math.isnan(bar[0])
        ]
        said.append(f"{row}: {', '.join(numbers)}")
    return Picture(heading, caption, f"Bar chart, {xlabel}. {'; '.join(said)}.", svg)


def _bar(m: Mapping[str, float], name: str) -> Bar:
    value, low, high = (float(m.get(name + ending, math.nan)) for ending in ("", "_low", "_high"))
    return value, low, high


def _chance(m: Mapping[str, float], name: str) -> float:
    """Give a metric's chance; that of its controls is the same."""
    for ending in (*filter(None, VARIANTS), "_text_only"):
        name = name.removesuffix(ending)
    return float(m.get(f"{name}_chance", math.nan))


def as_svg(figure: Figure) -> str:
    """Write a figure as an SVG element for a page of its own: no date, no size but its shape, no address."""
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # Transparent: the page may be dark.
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # Width and height in points would win over the page's style sheet.
    head, rest = text.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f"{head}>{rest}".strip()
