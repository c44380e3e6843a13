"""What the benchmarks share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conceptbind.cache import replacing


def write_report(name: str, report: dict[str, Any]) -> None:
    """Print a report and write it to results/<name>.json beside this file."""
    text = json.dumps(report, indent=1)
    print(text)
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
