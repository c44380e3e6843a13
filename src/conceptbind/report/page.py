"""The page of a report: one HTML file with figures and words, no script, nothing to load."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import conceptbind
from conceptbind.cache import replacing
from conceptbind.report.figures import pictures
from conceptbind.report.metrics import BETTER, GROUPS, ORDER, SIDES, TEXT_ONLY, describe, sort_key
from conceptbind.report.report import RANDOM_INIT, SHUFFLED, Report
from conceptbind.report.words import SUBJECTS, limits, meaning

HOME = "https://github.com/conceptbind/conceptbind"
CITE = f"""@inproceedings{{uselis2026bind,
  title     = {{How can embedding models bind concepts?}},
  author    = {{Uselis, Arnas and Koishigarina, Darina and Oh, Seong Joon}},
  booktitle = {{International Conference on Machine Learning}},
  year      = {{2026}},
  note      = {{arXiv:2605.31503}}
}}
@software{{conceptbind,
  title   = {{conceptbind: measure how an embedding model binds concepts}},
  author  = {{{{The conceptbind authors}}}},
  version = {{{conceptbind.__version__}}},
  url     = {{{HOME}}}
}}"""
"""BibTeX of the paper and of this package."""

VALUE, INTERVAL, CHANCE = "value", "95 % interval", "chance"
COLUMNS = {"": VALUE, "_chance": CHANCE, SHUFFLED: "shuffled labels", RANDOM_INIT: "untrained"}
"""Endings of metrics, and the columns that they get."""
HEADS = (VALUE, INTERVAL, CHANCE, "shuffled labels", "untrained")
EXTRA = {"_ties": "ties, which count as wrong: {}", TEXT_ONLY: "by the captions alone: {}"}
"""Endings whose numbers are said in words."""


@dataclass
class _Line:
    """One metric of one side, with its controls."""

    side: str
    cells: dict[str, str] = field(default_factory=lambda: dict.fromkeys(HEADS, ""))
    extra: list[str] = field(default_factory=list)


@dataclass
class _Entry:
    """One metric, a line for each side that has it."""

    label: str
    meaning: str
    better: bool
    lines: dict[str, _Line] = field(default_factory=dict)


@dataclass(frozen=True)
class _Table:
    entries: list[_Entry]

    @property
    def columns(self) -> list[str]:
        """Give the columns in which any line has a number."""
        return [h for h in HEADS if any(line.cells[h] for e in self.entries for line in e.lines.values())]


def page(report: Report) -> str:
    """Write a report as a self-contained HTML page."""
    subjects = [
        *(s for s in SUBJECTS if s in report.verdicts),
        *(s for s in report.verdicts if s not in SUBJECTS),
    ]
    verdicts = [
        {
            "on": SUBJECTS.get(subject, subject),
            "is_": report.verdicts[subject],
            "meaning": meaning(subject, report.verdicts[subject]),
            "why": report.why.get(subject, "").rstrip("."),
        }
        for subject in subjects
    ]
    drawn = [
        {"heading": p.heading, "caption": p.caption, "alt": p.alt, "svg": Markup(p.svg)}
        for p in pictures(report)
    ]
    return render(
        "page.html.jinja",
        report=report,
        name=full_name(report.model, report.pretrained),
        about=_about(report),
        verdicts=verdicts,
        limits=limits(report.verdicts),
        pictures=drawn,
        groups=_groups(report),
        cite=CITE,
        settings=json.dumps(dict(report.settings), indent=2, ensure_ascii=False, default=str),
    )


def write_page(report: Report, path: str | Path) -> None:
    """Write the page of a report, as a whole or not at all."""
    write_text(page(report), path)


def write_text(text: str, path: str | Path) -> None:
    """Write a text file as a whole or not at all; makes its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def full_name(model: str, pretrained: str) -> str:
    """Name a model with its weights, where these have a name."""
    return f"{model} ({pretrained})" if pretrained else model


def render(template: str, **values: Any) -> str:
    """Fill in a template of this folder. Every value is escaped, but Markup."""
    css = Markup(_file("page.css"))
    made = _environment().from_string(_file(template))
    return made.render(css=css, home=HOME, version=conceptbind.__version__, **values)


def number(value: float | int) -> str:
    """Write a number for a page: three decimals, and a true minus."""
    text = f"{value:.3f}" if abs(value) < 1000 else f"{value:.3g}"
    return "0.000" if text == "-0.000" else text.replace("-", "−")


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@cache
def _file(name: str) -> str:
    return resources.files("conceptbind.report").joinpath(name).read_text(encoding="utf-8")


def _about(report: Report) -> str:
    """Say how much was measured, as far as the settings tell."""
    parts = [f"preset {report.settings['preset']}"] if "preset" in report.settings else []
    counted = report.settings.get("n_scenes")
    if isinstance(counted, dict):
        parts += [
            f"{n:,} scenes ({SIDES.get(side, side)})" for side, n in counted.items() if isinstance(n, int)
        ]
    return "".join(f" · {part}" for part in parts)


def _groups(report: Report) -> dict[str, _Table]:
    """Give the tables of all metrics, by group: controls are columns, not lines of their own."""
    found: dict[str, dict[str, _Entry]] = {}
    m = report.metrics
    for name in sorted(m, key=sort_key):
        metric = describe(name)
        entries = found.setdefault(metric.group, {})
        entry = entries.setdefault(
            metric.base, _Entry(metric.label, metric.meaning, metric.direction == BETTER)
        )
        line = entry.lines.setdefault(metric.side, _Line(SIDES.get(metric.side, "")))
        said, ending = number(m[name]), metric.ending
        if ending in COLUMNS:
            line.cells[COLUMNS[ending]] = said
        elif ending in EXTRA and not (ending == "_ties" and m[name] == 0):
            line.extra.append(EXTRA[ending].format(said))
        elif ending == "_low" and name.removesuffix("_low") + "_high" in m:
            line.cells[INTERVAL] = f"{said} to {number(m[name.removesuffix('_low') + '_high'])}"
    return {
        group: _Table(
            [found[group][b] for b in sorted(found[group], key=lambda b: (ORDER.get(b, len(ORDER)), b))]
        )
        for group in GROUPS
        if group in found
    }
