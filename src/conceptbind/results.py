"""Tables of long runs: one JSON file each in results/, with the settings and software that made it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from conceptbind.cache import replacing
from conceptbind.claims import find_result, results_dir
from conceptbind.provenance import provenance


def write_table(name: str, rows: Sequence[Mapping[str, Any]], *, settings: Mapping[str, Any]) -> None:
    """Write ``results/<name>.json``: rows, settings, software, date. Replaces the file as a whole.

    Raises ValueError when a row or a setting is not JSON, or is NaN.
    """
    table = {
        "settings": dict(settings),
        "software": provenance(),
        "date": date.today().isoformat(),
        "rows": [dict(r) for r in rows],
    }
    try:
        text = json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the table {name!r} cannot be written as JSON ({error}): rows and settings are numbers, text, lists "
            "and dicts, and None where there is no number"
        ) from None
    path = results_dir() / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_table(name: str) -> dict[str, Any]:
    """Read a table that :func:`write_table` wrote: ``rows``, ``settings``, ``software``, ``date``.

    Raises FileNotFoundError when there is none, ValueError when it is damaged.
    """
    path = find_result(f"{name}.json")
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(table, dict) or not {"rows", "settings", "software", "date"} <= set(table):
            raise ValueError("rows, settings, software or date is missing")
    except ValueError as error:
        raise ValueError(
            f"{path} is not a table of results ({error}): restore it from git, or compute it again"
        ) from None
    return table
