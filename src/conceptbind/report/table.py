"""One CSV of many reports, with the columns of CLIP_benchmark's own; and joined to those.

A report becomes a row: ``model, pretrained, dataset, task, language, model_fullname``, the verdicts, the preset, and
every metric as a column of its name. Columns joined from CLIP_benchmark's CSV files are called

================================  =====================================================================
``task:metric``                   of the same model, weights and data set
``dataset:task:metric``           of the same model and weights on another data set, where asked for
================================  =====================================================================

with ``task@language`` for a language that is not English. Few benchmarks use the data sets of a report, so that most
questions ("do models that bind also classify better?") need the second kind.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conceptbind.report.metrics import sort_key
from conceptbind.report.report import KEYS, TASK, Report, read_report

KEY = ("model", "pretrained", "dataset")
HEAD = (*KEY, "task", "language", "model_fullname", "verdict")
SIDES_OF_VERDICTS = ("image", "text", "embedding", "cross_modal")

Row = dict[str, Any]
Benchmark = dict[tuple[str, str], dict[tuple[str, str, str], Mapping[str, str]]]
"""By model and weights, and by data set, task and language, the metrics."""


def read_reports(paths: Iterable[Path]) -> list[Report]:
    """Read report files. Raises ValueError for a file that is none, saying what it is, and for two of one subject."""
    found: dict[tuple[str, ...], tuple[Path, Report]] = {}
    for path in paths:
        report = _read(path)
        key = (report.model, report.pretrained, report.dataset)
        if key in found:
            raise ValueError(
                f"{found[key][0]} and {path} are reports on the same model, pretrained and dataset {key}: give one"
            )
        found[key] = path, report
    return [report for _, report in found.values()]


def _read(path: Path) -> Report:
    try:
        return read_report(path)
    except ValueError as error:
        hint = _what_it_is(path)
        raise ValueError(f"{error}{hint}") from None


def _what_it_is(path: Path) -> str:
    """Give a hint for a JSON file that is no report."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return ""
    if not isinstance(found, dict):
        return f"; it holds a JSON {type(found).__name__}"
    if found.get("task") != TASK and {"dataset", "model", "pretrained", "task", "metrics"} <= set(found):
        return (
            f"; it looks like a result of CLIP_benchmark, task {found['task']!r}: make a CSV of those with "
            "`clip_benchmark build`, and give it to --join"
        )
    if missing := [key for key in KEYS if key not in found]:
        return f"; it has no {', '.join(missing)}"
    return ""


def report_rows(reports: Iterable[Report]) -> list[Row]:
    """Give one row a report, sorted by model, pretrained and dataset; columns in a fixed order."""
    reports = sorted(reports, key=lambda r: (r.model, r.pretrained, r.dataset))
    sides = [s for s in SIDES_OF_VERDICTS if any(s in r.verdicts for r in reports)]
    names = sorted({name for r in reports for name in r.metrics}, key=sort_key)
    return [
        {
            "model": r.model,
            "pretrained": r.pretrained,
            "dataset": r.dataset,
            "task": TASK,
            "language": "en",
            "model_fullname": f"{r.model} {r.pretrained}".strip(),
            "verdict": r.verdict,
            **{f"verdict_{side}": r.verdicts.get(side) for side in sides},
            "preset": r.settings.get("preset"),
            **{name: r.metrics.get(name) for name in names},
        }
        for r in reports
    ]


def read_benchmarks(paths: Iterable[Path]) -> Benchmark:
    """Read CSV files that ``clip_benchmark build`` wrote.

    Raises ValueError for a file without its columns, or when two rows are on the same model, weights, data set, task
    and language.
    """
    found: Benchmark = {}
    seen: dict[tuple[str, ...], str] = {}
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.DictReader(file, strict=True)
                head = reader.fieldnames or []
                rows = [(reader.line_num, row) for row in reader]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(
                f"{path} is no CSV file ({error}): give one that clip_benchmark build wrote"
            ) from None
        if missing := [name for name in (*KEY, "task") if name not in head]:
            raise ValueError(
                f"{path} has no column {', '.join(missing)}: --join takes CSV files of clip_benchmark build, with the "
                f"columns {', '.join(KEY)}, task and one for each metric"
            )
        for line, row in rows:
            if None in row or None in row.values():
                raise ValueError(f"{path}, line {line}: expected {len(head)} cells, as in the first line")
            language = row.get("language") or "en"
            key = (row["model"], row["pretrained"], row["dataset"], row["task"], language)
            where = f"{path}, line {line}"
            if key in seen:
                raise ValueError(f"{seen[key]} and {where} are rows on the same {key}: leave one out")
            seen[key] = where
            numbers = {name: cell for name, cell in row.items() if name not in (*HEAD, "language") and cell}
            found.setdefault(key[:2], {})[key[2:]] = numbers
    return found


def join(rows: Sequence[Row], benchmark: Benchmark, *, other_data: bool = False) -> int:
    """Add the columns of benchmarks to rows of :func:`report_rows`, in place; give how many rows got any.

    ``other_data``: also add what the same models reach on other data sets.
    """
    added: list[Row] = []
    for row in rows:
        of_model = benchmark.get((row["model"], row["pretrained"]), {})
        new: Row = {}
        for (dataset, task, language), numbers in of_model.items():
            same = dataset == row["dataset"]
            if same or other_data:
                start = ("" if same else f"{dataset}:") + task + ("" if language == "en" else f"@{language}")
                new |= {f"{start}:{name}": cell for name, cell in numbers.items()}
        added.append(new)
    names = sorted({name for new in added for name in new})
    for row, new in zip(rows, added, strict=True):
        row.update({name: new.get(name) for name in names})
    return sum(bool(new) for new in added)


def as_csv(rows: Sequence[Row]) -> str:
    """Write rows that have the same columns as CSV; None is an empty cell."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
