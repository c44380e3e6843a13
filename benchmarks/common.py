"""What the benchmarks share."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from conceptbind.cache import replacing


def peak_gb() -> float:
    """Give the largest resident set so far (Linux counts it in KiB, macOS in bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def write_report(name: str, report: dict[str, Any]) -> None:
    """Print a report and write it to results/<name>.json beside this file."""
    text = json.dumps(report, indent=1)
    print(text)
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
