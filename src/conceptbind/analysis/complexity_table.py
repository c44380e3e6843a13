"""Read a sweep of approximators: curves over coverage, the smallest network that is enough, the gain of each layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

COLUMNS = (
    "subject",
    "name",
    "coverage",
    "seed",
    "converged",
    "n_parameters",
    *(
        f"{measure}_{kind}"
        for measure in ("r2", "concepts", "objects")
        for kind in ("train", "mixed", "held_out")
    ),
    "ceiling_objects_held_out",
    "n_held_out",
    "effect",
)
"""What a compact row keeps of a fit. Of a network are added its kind, width and depth, and ``r2_all_steps``: training
R² after all steps. It says whether the optimiser did its work; the weights that are kept are of the step, perhaps an
earlier one, at which validation objects were predicted best."""


def compact(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Keep of stored fits what the figures need, shares rounded to four digits."""
    kept = []
    for row in rows:
        short = {c: round(row[c], 4) if isinstance(row[c], float) else row[c] for c in COLUMNS}
        how, end = row["how"], row["chosen"].get("train_r2_end")
        network = {key: how.get(key) for key in ("kind", "width", "depth")}
        kept.append({**short, **network, "r2_all_steps": None if end is None else round(end, 4)})
    return sorted(kept, key=lambda r: (r["subject"], r["name"], r["coverage"], r["seed"]))


@dataclass(frozen=True)
class Curve:
    """Hold a number at growing coverage: mean, smallest and largest over the seeds."""

    coverages: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n_left_out: int
    """Fits that did not converge; they are in no mean."""

    def aloud(self) -> str:
        """Say the mean at every coverage, for who cannot see the figure: ``"0.1: 0.05, 0.2: 0.12"``."""
        return ", ".join(f"{x:g}: {y:.2f}" for x, y in zip(self.coverages, self.mean, strict=True))


@dataclass(frozen=True)
class ComplexityTable:
    """Hold the compact rows of a sweep over one or more subjects."""

    rows: Sequence[Mapping[str, Any]]

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """Names of the embeddings."""
        return tuple(dict.fromkeys(r["subject"] for r in self.rows))

    def names(self, subject: str) -> tuple[str, ...]:
        """Names of the approximators that a subject was fitted with."""
        return tuple(dict.fromkeys(r["name"] for r in self.of(subject)))

    def of(self, subject: str, name: str | None = None, **where: Any) -> list[Mapping[str, Any]]:
        """Give the rows of a subject, of one approximator if named, whose columns have the given values.

        Raises KeyError, naming what there is, when there is none.
        """
        found = [
            r
            for r in self.rows
            if r["subject"] == subject
            and name in (None, r["name"])
            and all(r[key] == value for key, value in where.items())
        ]
        if not found:
            known = self.subjects if subject not in self.subjects else self.names(subject)
            raise KeyError(f"no row of {subject!r}, {name!r} with {where}; there are {', '.join(known)}")
        return found

    def curve(self, subject: str, name: str, column: str) -> Curve:
        """Follow one number over coverage. Fits that did not converge are left out and counted."""
        rows = self.of(subject, name)
        good = [r for r in rows if r["converged"] and r[column] is not None]
        at = sorted({r["coverage"] for r in good})
        groups = [[r[column] for r in good if r["coverage"] == c] for c in at]
        return Curve(
            tuple(at),
            tuple(map(fmean, groups)),
            tuple(map(min, groups)),
            tuple(map(max, groups)),
            sum(not r["converged"] for r in rows),
        )

    def at(self, subject: str, name: str, column: str, coverage: float) -> float:
        """Give the mean over the converged seeds at one coverage. Raises KeyError when there is none."""
        good = [
            r[column]
            for r in self.of(subject, name, coverage=coverage)
            if r["converged"] and r[column] is not None
        ]
        if not good:
            raise KeyError(
                f"no converged fit of {name!r} to {subject!r} at coverage {coverage} has {column!r}"
            )
        return fmean(good)

    def reached(self, subject: str, column: str, *, coverage: float) -> dict[str, float]:
        """Give the mean of every approximator that has a converged fit at a coverage."""
        found = {}
        for name in self.names(subject):
            try:
                found[name] = self.at(subject, name, column, coverage)
            except KeyError:
                continue
        return found

    def smallest(
        self, subject: str, column: str, *, coverage: float, fraction: float = 0.95, kind: str | None = None
    ) -> tuple[str, int] | None:
        """Name the approximator of fewest parameters that reaches a fraction of the best of all, and count them.

        ``kind``: only of networks of this kind ("mlp"); the best is still that of all. None where the best is not
        above zero, for then there is nothing to reach, or where none of the kind reaches it.
        """
        reached = self.reached(subject, column, coverage=coverage)
        if not reached or max(reached.values()) <= 0:
            return None
        sizes = {
            n: self.n_parameters(subject, n, coverage=coverage)
            for n, value in reached.items()
            if value >= fraction * max(reached.values())
            and kind in (None, self.of(subject, n, coverage=coverage)[0]["kind"])
        }
        if not sizes:
            return None
        name = min(sizes, key=sizes.__getitem__)
        return name, sizes[name]

    def n_parameters(self, subject: str, name: str, *, coverage: float) -> int:
        """Count the numbers of an approximator, in the mean of the seeds: a chosen rank may differ between them."""
        return round(fmean(r["n_parameters"] for r in self.of(subject, name, coverage=coverage)))

    def depth_gains(
        self, subject: str, column: str, *, coverage: float, width: int
    ) -> list[tuple[int, float, float]]:
        """Give (hidden layers, value, gain over one fewer) for perceptrons of a width; 0 layers is the additive fit."""
        depths = sorted({r["depth"] for r in self.of(subject) if r["kind"] == "mlp" and r["width"] == width})
        found: list[tuple[int, float, float]] = [(0, self.at(subject, "additive", column, coverage), 0.0)]
        for depth in depths:
            name = next(r["name"] for r in self.of(subject, kind="mlp", width=width, depth=depth))
            value = self.at(subject, name, column, coverage)
            found.append((depth, value, value - found[-1][1]))
        return found
