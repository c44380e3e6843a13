"""Read the table of trained models: recognition over coverage, and the coverage at which it crosses a level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from conceptbind.analysis.complexity_table import Curve
from conceptbind.training.evaluate import KINDS, MEASURES
from conceptbind.training.jobs import model_name
from conceptbind.training.studies import STUDIES, study

SETTINGS = (
    "sizes",
    "coverage",
    "seed",
    "architecture",
    "form",
    "tokens",
    "width",
    "n_steps",
    "rate",
    "weight_decay",
    "linear_scale",
    "embedding_scale",
    "held_out_negatives",
)
NUMBERS = ("n_possible_objects", "n_parameters_scene", "loss", "learned_temperature")
SUFFIXES = ("", "_low", "_high", "_chance")


def compact(rows: Iterable[Mapping[str, Any]], preset: str) -> list[dict[str, Any]]:
    """Keep of stored models what the figures need, shares rounded to four digits, with the studies they belong to.

    Models of no study are left out.
    """
    studies: dict[str, list[str]] = {}
    for name in STUDIES:
        for config in study(name, preset):
            studies.setdefault(model_name(config), []).append(name)
    measures = [f"{m.replace(' ', '_')}_{kind}" for m in MEASURES for kind in KINDS.values()]
    columns = (*SETTINGS, *NUMBERS, *(m + suffix for m in measures for suffix in SUFFIXES))
    kept = {}
    for row in rows:
        if found := studies.get(row["model"]):
            short = {c: round(row[c], 4) if isinstance(row[c], float) else row[c] for c in columns}
            # a measure that the model does not have, as captions in the form "query", is left out
            short = {c: value for c, value in short.items() if value is not None}
            # judged again, the last counts
            kept[row["model"]] = {"model": row["model"], "studies": found, **short}
    return sorted(kept.values(), key=_order)


@dataclass(frozen=True)
class TrainingTable:
    """Hold the compact rows of trained models."""

    rows: Sequence[Mapping[str, Any]]

    def of(self, name: str, **where: Any) -> list[Mapping[str, Any]]:
        """Give the models of a study whose columns have the given values.

        Raises KeyError when there is none.
        """
        where = {key: list(v) if isinstance(v, tuple) else v for key, v in where.items()}
        found = [
            r
            for r in self.rows
            if name in r["studies"] and all(r.get(key) == value for key, value in where.items())
        ]
        if not found:
            known = sorted({s for r in self.rows for s in r["studies"]})
            raise KeyError(f"no model of study {name!r} with {where}; there are studies {', '.join(known)}")
        return found

    def curve(self, name: str, column: str, *, started: bool = False, **where: Any) -> Curve:
        """Follow one number over coverage: mean, least and largest of the seeds.

        ``started``: leave out, and count, models that do not bind their training objects (see :func:`has_started`).
        Raises KeyError when there is no such model, or no such number; ValueError when there are several models of one
        coverage and seed, which are no repetitions of each other.
        """
        groups: dict[float, dict[int, float]] = {}
        rows = self.of(name, **where)
        counted = [row for row in rows if not started or has_started(row)]
        for row in counted:
            if column in row:
                of_seed = groups.setdefault(row["coverage"], {})
                if row["seed"] in of_seed:
                    raise ValueError(
                        f"study {name!r} with {where} has several models of coverage {row['coverage']} and seed "
                        f"{row['seed']}: name what they differ in, some of {', '.join(SETTINGS)}"
                    )
                of_seed[row["seed"]] = row[column]
        if not groups:
            raise KeyError(f"models of study {name!r} with {where} have no {column!r}")
        at = sorted(groups)
        values = [list(groups[c].values()) for c in at]
        return Curve(
            tuple(at),
            tuple(map(fmean, values)),
            tuple(map(min, values)),
            tuple(map(max, values)),
            len(rows) - len(counted),
        )


def has_started(row: Mapping[str, Any]) -> bool:
    """Say whether a model binds the objects that it trains on, in most of their scenes.

    Judged against exchanged objects that are training objects, too: there our mere sums are right in about a third. One
    that does not has not left the plateau on which every model first is, and tells nothing about objects it never met.
    True where there are no such scenes.
    """
    return row.get("swap_alike_train", 1.0) > 0.5


def crossing(curve: Curve, level: float = 0.5) -> float | None:
    """Give the least coverage from which on the mean stays at a level or above, between two points on the line.

    None when it is below at the last coverage. The first coverage when it is never below.
    """
    points = list(zip(curve.coverages, curve.mean, strict=True))
    if points[-1][1] < level:
        return None
    for (x0, y0), (x1, y1) in reversed(list(pairwise(points))):
        if y0 < level:
            return x0 + (x1 - x0) * (level - y0) / (y1 - y0)
    return points[0][0]


OF_FORMS = ("functional_form", "n_parameters", "converged")
READ = tuple(
    f"{measure}_{kind}"
    for measure in ("r2", "residual", "residual_shrunk", "concepts", "objects", "swap_alike")
    for kind in ("train", "held_out")
)
OF_ABLATIONS = ("condition", "n_directions")
TAKEN = tuple(
    f"{measure}_{kind}"
    for measure in ("left", "product_share", "concepts", "objects", "swap_alike")
    for kind in ("train", "held_out")
)


def compact_fits(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Keep of functional forms, or ablations, of trained models what the figures need, beside the model's name.

    Settings of the models stand in the table of trained models.
    """
    kept = []
    for row in rows:
        columns = (*OF_FORMS, *READ) if "functional_form" in row else (*OF_ABLATIONS, *TAKEN)
        short = {c: round(row[c], 4) if isinstance(row[c], float) else row[c] for c in columns}
        rank = (row["chosen"] or {}).get("rank")
        kept.append({"model": row["model"], **short, "rank": rank})
    return kept


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    first = list(STUDIES).index(row["studies"][0])
    return first, row["architecture"], row["width"], row["sizes"], row["coverage"], row["seed"], row["model"]
