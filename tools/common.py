"""What the tools share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""


def write_atomically(path: Path, text: str) -> None:
    """Write a text file through a temporary file beside it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)


def decided(
    row: dict[str, Any], *, recovered: float, converged: bool, controls: Sequence[float]
) -> dict[str, Any]:
    """Give a stored verdict with the decision that the present rule takes from its evidence."""
    from conceptbind.analysis.verdict import decide

    found, why = decide(
        concepts=row["concepts"],
        objects=(row["objects"], row["objects_low"], row["objects_high"]),
        within=row["within"],
        recovered=recovered,
        converged=converged,
        controls=controls,
    )
    return {**row, "verdict": found, "why": why}


def known_rows(name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the rows of a table of results that was made with the same settings; none where there is no such table."""
    from conceptbind.results import read_table

    try:
        table = read_table(name)
    except FileNotFoundError:
        return []
    return table["rows"] if table["settings"] == settings else []


def write_merged(
    name: str,
    rows: Sequence[dict[str, Any]],
    *,
    preset: str,
    folder: Path,
    made_by: Sequence[dict[str, Any]],
    by: str = "model",
    **settings: Any,
) -> None:
    """Write a table of trained models, or of what was measured on them or on other subjects, into results/.

    ``by``: the column that names what a row is of. What the table had before and ``rows`` do not name keeps its rows: a
    part that is computed again, as in a fresh clone, loses nothing of the rest. ``made_by``: provenances of the rows;
    those of kept rows are kept. Tables of other presets than "laptop" go to ``folder``, since the book shows that one.
    """
    from conceptbind.results import read_table, write_table

    if preset != "laptop":
        os.environ["CONCEPTBIND_RESULTS"] = str(folder)
    try:
        before = read_table(name)
        before = before if before["settings"].get("preset") == preset else {"rows": [], "settings": {}}
    except FileNotFoundError:
        before = {"rows": [], "settings": {}}
    new = {row[by] for row in rows}
    kept = [row for row in before["rows"] if row[by] not in new]
    made = [*before["settings"].get("made_by", ()), *made_by] if kept else list(made_by)
    made = [p for i, p in enumerate(made) if p not in made[:i]]
    write_table(name, [*kept, *rows], settings={"preset": preset, **settings, "made_by": made})
