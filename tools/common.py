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
