"""Several reports beside each other, to choose a model by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from conceptbind.report.metrics import BETTER, ONE_MODALITY, SIDES, describe
from conceptbind.report.page import full_name, number, render
from conceptbind.report.report import Report
from conceptbind.report.words import SUBJECTS

INSIDE = (
    "probe_concepts",
    "probe_objects",
    "additive_r2_held_out",
    "product_objects_held_out",
    "ceiling_objects_held_out",
)
MAIN = (
    *(f"{side}_{base}" for side in ONE_MODALITY for base in INSIDE),
    "image_to_text_two_way",
    "text_to_image_two_way",
    "image_to_text_recall_5",
    "text_to_image_recall_5",
    "cross_group_score",
)
"""The metrics that a comparison shows, where any report has them."""

OTHER_DATA = (
    "Numbers on different data sets do not compare: chance and difficulty differ. The best are marked within "
    "each data set."
)
OTHER_PRESETS = (
    "The presets differ ({}): a larger one measures more scenes, and its verdicts are surer. Compare models at the "
    "same preset."
)

Row = dict[str, Any]


def compare(reports: Sequence[Report]) -> list[Row]:
    """Give one row for each model, weights and data set, sorted by data set, model and weights.

    A row has ``dataset``, ``model``, ``pretrained``, ``preset``, ``verdict``, ``verdicts`` by subject, and the metrics
    of ``MAIN`` that any report has, None where this one has not.
    Raises ValueError without reports, or for two of the same model, weights and data set.
    """
    if not reports:
        raise ValueError("there is nothing to compare: give at least one report")
    shown = [name for name in MAIN if any(name in r.metrics for r in reports)]
    by_key: dict[tuple[str, str, str], Row] = {}
    for report in reports:
        key = (report.dataset, report.model, report.pretrained)
        if key in by_key:
            raise ValueError(
                f"two reports are on {full_name(report.model, report.pretrained)} and the data set "
                f"{report.dataset}: give one of them"
            )
        verdicts = report.verdict
        if between := report.verdicts.get("cross_modal"):
            verdicts = f"{verdicts}; between: {between}" if verdicts else f"between: {between}"
        by_key[key] = {
            "dataset": report.dataset,
            "model": report.model,
            "pretrained": report.pretrained,
            "preset": report.settings.get("preset"),
            "verdict": verdicts,
            "verdicts": dict(report.verdicts),
            **{name: report.metrics.get(name) for name in shown},
        }
    return [by_key[key] for key in sorted(by_key)]


def best(rows: Sequence[Row]) -> list[set[str]]:
    """Say for each row which of its metrics are the best of its data set, where higher is better.

    Equal ones are all the best, unless all are equal; a value that no other row of the data set has is compared with
    nothing, and not marked.
    """
    marks: list[set[str]] = [set() for _ in rows]
    for name in (n for n in MAIN if describe(n).direction == BETTER):
        for dataset in {row["dataset"] for row in rows}:
            values = {
                i: row[name]
                for i, row in enumerate(rows)
                if row["dataset"] == dataset and row.get(name) is not None
            }
            if len(set(values.values())) > 1:
                top = max(values.values())
                for i in (i for i, value in values.items() if value == top):
                    marks[i].add(name)
    return marks


def remarks(rows: Sequence[Row]) -> list[str]:
    """Say what does not compare."""
    found = []
    if len({row["dataset"] for row in rows}) > 1:
        found.append(OTHER_DATA)
    presets = {row["preset"] or "not stated" for row in rows}
    if len(presets) > 1:
        found.append(OTHER_PRESETS.format(", ".join(sorted(presets))))
    return found


def comparison_table(reports: Sequence[Report]) -> str:
    """Write the comparison as plain text: a block for each data set, the best values marked by a star.

    Models are numbered rows, metrics are lines, so that it fits a terminal. Raises ValueError as :func:`compare` does.
    """
    rows = compare(reports)
    marks = best(rows)
    lines: list[str] = []
    numbered = list(enumerate(rows))
    for dataset, group in groupby(numbered, key=lambda pair: pair[1]["dataset"]):
        of_set = list(group)
        lines += [f"data set {dataset}", ""]
        for place, (_, row) in enumerate(of_set, 1):
            lines.append(
                f"  [{place}] {_one_line(full_name(row['model'], row['pretrained']))}: {row['verdict']}"
            )
        names = [n for n in _shown(rows) if any(row[n] is not None for _, row in of_set)]
        if names:
            labels = {name: heading(name) for name in names}
            width = max(map(len, labels.values()))
            lines += ["", " " * (width + 2) + "".join(f"{f'[{i + 1}]':>9}" for i in range(len(of_set)))]
        for name in names:
            cells = []
            for i, row in of_set:
                value = "-" if row[name] is None else number(row[name])
                cells.append(f"{value + ('*' if name in marks[i] else ' '):>9}")
            lines.append(f"  {labels[name]:<{width}}{''.join(cells)}".rstrip())
        lines.append("")
    if any(marks):
        lines.append("* best of its data set")
    lines += remarks(rows)
    return "\n".join(lines).rstrip() + "\n"


def comparison_page(reports: Sequence[Report]) -> str:
    """Write the comparison as a self-contained HTML page: a table a data set and modality, the best values marked.

    Raises ValueError as :func:`compare` does.
    """
    rows = compare(reports)
    sets = [
        {"dataset": dataset, "tables": _tables(list(group))}
        for dataset, group in groupby(zip(rows, best(rows), strict=True), key=lambda pair: pair[0]["dataset"])
    ]
    meanings = {describe(n).label: describe(n).meaning for n in _shown(rows)}
    return render("models.html.jinja", sets=sets, remarks=remarks(rows), meanings=meanings)


def _tables(marked: Sequence[tuple[Row, set[str]]]) -> list[dict[str, Any]]:
    """Give the tables of one data set, one a subject of verdicts; a row for every model that has any of it."""
    tables = []
    for subject, title in SUBJECTS.items():
        names = [
            name
            for name in _shown([row for row, _ in marked])
            if _subject(name) == subject and any(row[name] is not None for row, _ in marked)
        ]
        lines = [
            {
                "name": full_name(row["model"], row["pretrained"]),
                "verdict": row["verdicts"].get(subject, ""),
                "preset": row["preset"] or "",
                "cells": [
                    {"said": "" if row[n] is None else number(row[n]), "best": n in marks} for n in names
                ],
            }
            for row, marks in marked
            if subject in row["verdicts"] or any(row[n] is not None for n in names)
        ]
        heads = [heading(n) if subject == "cross_modal" else describe(n).label for n in names]
        if lines:
            tables.append({"title": title, "heads": heads, "lines": lines})
    return tables


def _subject(name: str) -> str:
    side = describe(name).side
    return side if side in ONE_MODALITY else "cross_modal"


def heading(name: str) -> str:
    """Name a metric together with what it was measured on."""
    metric = describe(name)
    return f"{SIDES[metric.side]}: {metric.label}" if metric.side else metric.label


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in MAIN if name in rows[0]]


def _one_line(text: str) -> str:
    return " ".join(text.split())
