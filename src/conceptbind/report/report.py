"""A binding report: flat metrics, verdicts, and everything that determined them, as CLIP_benchmark writes results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conceptbind.cache import replacing

TASK = "binding_report"
KEYS = ("dataset", "model", "pretrained", "task", "metrics", "language", "verdict", "settings")
"""What every report file has; the first six as CLIP_benchmark's files."""
SHUFFLED, RANDOM_INIT = "_shuffled", "_random_init"
"""End of the name of a metric measured with labels dealt out at random, or on the architecture untrained."""


@dataclass(frozen=True)
class Report:
    """Hold what :func:`conceptbind.report.measure.binding_report` found."""

    dataset: str
    model: str
    pretrained: str
    """Tag or file of the weights; "" where the model's name says all."""
    metrics: Mapping[str, float]
    """Finite numbers by name; see :mod:`conceptbind.report.metrics`. What could not be measured is not there."""
    verdicts: Mapping[str, str]
    """By modality, "image", "text" or "embedding"; and "cross_modal" where both were measured."""
    why: Mapping[str, str]
    """One sentence of evidence for each verdict."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why; what was sampled."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All that determined the numbers, ready for JSON."""

    @property
    def verdict(self) -> str:
        """The verdict on the one modality; or "image: ...; text: ...", unless both are the same."""
        of_scenes = {m: v for m, v in self.verdicts.items() if m != "cross_modal"}
        if len(set(of_scenes.values())) == 1:
            return next(iter(of_scenes.values()))
        return "; ".join(f"{modality}: {found}" for modality, found in of_scenes.items())

    def as_dict(self) -> dict[str, Any]:
        """Give the report as its file holds it."""
        return {
            "dataset": self.dataset,
            "model": self.model,
            "pretrained": self.pretrained,
            "task": TASK,
            "metrics": dict(self.metrics),
            "language": "en",
            "verdict": self.verdict,
            "verdicts": dict(self.verdicts),
            "why": dict(self.why),
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def write(self, path: str | Path) -> None:
        """Write the report as JSON, as a whole or not at all. Raises ValueError for a metric that is not finite."""
        bad = [name for name, value in self.metrics.items() if not math.isfinite(value)]
        if bad:
            raise ValueError(f"metrics {bad} are not finite: leave out what was not measured")
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        with replacing(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")


def read_report(path: str | Path) -> Report:
    """Read a report file. Raises FileNotFoundError when it is missing, ValueError when it is none."""
    path = Path(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no JSON file ({error}): write the report again") from None
    if not isinstance(found, dict) or found.get("task") != TASK or not set(KEYS) <= set(found):
        raise ValueError(
            f"{path} is no binding report: expected a file that `conceptbind report` wrote, with the keys "
            f"{', '.join(KEYS)} and the task {TASK!r}"
        )
    return Report(
        found["dataset"],
        found["model"],
        found["pretrained"],
        found["metrics"],
        found.get("verdicts", {"embedding": found["verdict"]}),
        found.get("why", {}),
        tuple(found.get("notes", ())),
        found["settings"],
    )
