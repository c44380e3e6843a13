"""Write the scorecard and the table of notebooks: results/claims.json, book/*.ipynb -> book/*.md."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import nbformat
from common import ROOT, write_atomically

from conceptbind.claims import FINDINGS, Claim, read_claims

COLUMNS = ("Encoder", "Data", "Preset", "Paper", "Ours", "Verdict")
SIGNS = {"holds": "✓", "does not hold": "✗", "not run here": "–"}

INTRO = """\
# Scorecard

What the paper claims, finding by finding, beside what we measured. Each verdict links to
the figure that shows it.

- **✓ holds**: our number is at most 0.1 below the paper's. Other bounds, all fixed before the first run: toys
  within 0.05 of what the definition demands; what a cut should destroy, at most 0.1; what it should keep, at most
  0.1 below the same encoder before the cut; an untrained baseline within 0.1 of the paper's; harder scenes, for
  which the paper gives no number, at least what the row says; where the paper itself states a bound (F6), that bound.
- **✗ does not hold**: it is not. Such rows stay: a replication that lists only successes is worth little.
- **– not run here**: we have no number of our own, mostly because the weights could not be fetched where the
  book was built. The paper's number stands alone then and is never shown as ours.

A verdict speaks of one encoder, one set of scenes and one size of run, the *preset*: `laptop` is smaller than
the paper's size, `paper` the same. Where the encoder is not the paper's, "holds" means that the claim carries
over, not that a number was hit. A row says nothing of the baselines; the figure behind its verdict shows them.
Brackets hold the 95 % interval; for toys, the smallest and largest of the seeds.
"""


class ScorecardError(Exception):
    """Claims that no scorecard can be made of; the message says which and why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)  # for the tests
    args = parser.parse_args(argv)
    book: Path = args.root / "book"
    try:
        claims = read_claims(args.root / "results")
        verify(claims, book)
    except (ScorecardError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    pages = {
        book / "scorecard.md": scorecard(claims),
        book / "_generated" / "notebooks.md": notebook_table(book),
    }
    stale = 0
    for path, text in pages.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        stale += 1
        name = path.relative_to(args.root).as_posix()
        if args.check:
            print(f"{name} is out of date: run `make html`")
            print("\n".join(difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)))
        else:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, text)
            print(f"wrote {name}")
    return 1 if args.check and stale else 0


def verify(claims: Sequence[Claim], book: Path) -> None:
    """Check that the claims can be shown: none of a smoke run, and each one's figure exists.

    Raises:
        ScorecardError: one cannot.
    """
    for claim in claims:
        if claim.preset == "smoke":
            raise ScorecardError(f"claim {claim.id!r} is of a smoke run: run `make notebooks`")
        page, anchor = claim.figure.split(".html#")
        anchors = anchors_of(book / f"{page}.ipynb")
        if anchor not in anchors:
            known = ", ".join(sorted(anchors)) or "none"
            raise ScorecardError(
                f"claim {claim.id!r} links to {claim.figure}; {page} has the figures: {known}"
            )


def anchors_of(path: Path) -> set[str]:
    """Give the names of a notebook's figures, and its targets `(fig-name)=`; of no notebook, none.

    A control has two outputs, the widget and the figure for readers without JavaScript, so it cannot carry a
    figure's name and gets a target in the text above it.
    """
    if not path.exists():
        return set()
    names: set[str] = set()
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            names |= set(re.findall(r"^\((fig-[\w-]+)\)=$", cell.source, re.M))
        elif name := cell.metadata.get("mystnb", {}).get("figure", {}).get("name"):
            names.add(name)
    return names


def scorecard(claims: Sequence[Claim]) -> str:
    """Write the page: a table for each finding that was tested, then a list of the others."""
    parts = [INTRO]
    for what, toys in (("The paper's findings", False), ("Toys, true by construction", True)):
        of_kind = [c.verdict for c in claims if (c.finding == "T") == toys]
        counts = " · ".join(f"{SIGNS[v]} {of_kind.count(v)} {v}" for v in SIGNS if v in of_kind or not toys)
        if of_kind:
            parts.append(f"{what}: {counts}\n")
    untested = []
    for finding, title in FINDINGS.items():
        rows = [c for c in claims if c.finding == finding]
        if rows:
            parts += [f"## {finding}. {title}\n", _table(rows)]
        else:
            untested.append(f"- {finding}. {title}")
    if untested:
        parts += ["## Not tested yet\n", "\n".join(untested) + "\n"]
    return "\n".join(parts)


def _table(claims: Sequence[Claim]) -> str:
    """Write one table: a heading row for each claim, below it a row for each encoder and data."""
    # ARIA roles: shown as cards (display: block) the elements would lose their meaning for screen readers.
    lines = ['<table class="scorecard" role="table">', '<thead role="rowgroup"><tr role="row">']
    lines += [f'<th role="columnheader" scope="col">{name}</th>' for name in COLUMNS]
    lines.append("</tr></thead>")
    for (_, text), rows in itertools.groupby(claims, key=lambda c: (c.id, c.claim)):
        lines.append('<tbody role="rowgroup">')
        heading = f'<th role="rowheader" scope="rowgroup" colspan="{len(COLUMNS)}">{escape(text)}</th>'
        lines.append(f'<tr role="row" class="claim">{heading}</tr>')
        for claim in rows:
            cells = zip(COLUMNS, _cells(claim), strict=True)
            lines.append('<tr role="row">')
            lines += [f'<td role="cell" data-label="{name}"><div>{cell}</div></td>' for name, cell in cells]
            lines.append("</tr>")
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>", ""])


def _cells(claim: Claim) -> tuple[str, ...]:
    paper = claim.paper if isinstance(claim.paper, str) else _number(claim.paper)
    verdict = f'<span aria-hidden="true">{SIGNS[claim.verdict]}</span> {claim.verdict}'
    link = f'<a href="{escape(claim.figure, quote=True)}">{verdict}</a>'
    return _code(claim.encoder), escape(claim.data), claim.preset, escape(paper), _ours(claim), link


def _ours(claim: Claim) -> str:
    if claim.ours is None or claim.interval is None:
        return _number(claim.ours)
    low, high = (_number(x) for x in claim.interval)
    return f"{_number(claim.ours)} <span>[{low}, {high}]</span>"


def _number(x: float | None) -> str:
    """Three decimals, or three significant digits where that says more; a dash for no number."""
    if x is None:
        return "–"
    return (f"{x:.3g}" if 0 < abs(x) < 0.01 or abs(x) >= 1000 else f"{x:.3f}").replace("-", "−")


def _code(text: str) -> str:
    """An encoder's spec, which may break after a separator."""
    return f"<code>{escape(text).replace('/', '/<wbr>').replace(':', ':<wbr>')}</code>"


def notebook_table(book: Path) -> str:
    """Write the table of executed notebooks, for `{include}`."""
    lines = ["| chapter | preset | run time | key |", "|---|---|---|---|"]
    for path in sorted(book.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        run = notebook.metadata.get("conceptbind", {})
        title = next(
            (line[2:] for c in notebook.cells for line in c.source.splitlines() if line[:2] == "# "),
            path.stem,
        )
        seconds = run.get("seconds", 0)
        duration = f"{seconds} s" if seconds < 120 else f"{seconds / 60:.1f} min"
        lines.append(f"| {title} | {run.get('preset', '?')} | {duration} | `{run.get('key', '?')}` |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
