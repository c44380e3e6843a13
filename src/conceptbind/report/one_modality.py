"""What a report measures inside one modality, by the functions behind chapters 2 to 8.

Names of metrics: see :mod:`conceptbind.report.metrics`. Each part that cannot be measured on the scenes given, as when
there are too few of them, is left out, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from conceptbind.analysis import editing
from conceptbind.analysis.additive import fit_all
from conceptbind.analysis.complexity import Subject, judge, split_of
from conceptbind.analysis.decomposition import decompose
from conceptbind.analysis.edits import replace_object
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, probe
from conceptbind.analysis.removal import (
    CONCEPT_PARTS,
    OBJECT_PARTS,
    PERMUTED_CONCEPT_PARTS,
    RETRAINED,
    removal,
)
from conceptbind.analysis.verdict import CANDIDATES, COVERAGE, PRODUCTS, Judgement, verdict
from conceptbind.approximators.base import make_task
from conceptbind.approximators.closed_form import Additive
from conceptbind.approximators.products import ObjectProduct
from conceptbind.embeddings import EmbeddingSet
from conceptbind.report.data import sampled
from conceptbind.report.sizes import Size

Numbers = dict[str, float]
Measured = dict[str, float | None]
"""As the analyses give them: None or NaN where there was nothing to measure."""


@dataclass
class Found:
    """Collect metrics, and why others are missing."""

    metrics: Numbers = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take(self, what: str, measure: Callable[[], Measured]) -> None:
        """Add the numbers that ``measure`` gives, those that exist; note its ValueError instead."""
        try:
            numbers = measure()
        except ValueError as error:
            self.notes.append(f"{what} not measured: {' '.join(str(error).split())}")
            return
        self.metrics |= {k: float(v) for k, v in numbers.items() if v is not None and math.isfinite(v)}


def measure_inside(data: EmbeddingSet, size: Size, *, seed: int, tick: Callable[[str], None]) -> Found:
    """Measure everything but the verdict. ``tick`` is called with the name of each part before it begins."""
    found = Found()
    for what, measure in PARTS.items():
        tick(what)
        found.take(what, lambda measure=measure: measure(data, size, seed))
    return found


def _additivity(data: EmbeddingSet, size: Size, seed: int) -> Measured:
    table = decompose(
        data,
        baselines=False,
        probes=False,
        seeds=(seed,),
        n_queries=min(2_000, data.n_scenes),
        dtype=torch.float32,
    )
    plain, placed = (table.row("objects", estimator) for estimator in ("avg", "avg+pos"))
    concepts = table.row("concepts", "avg+pos")
    return {
        "additive_r2_avg": plain.r2,
        "additive_r2_avg_low": plain.r2_low,
        "additive_r2_avg_high": plain.r2_high,
        "additive_r2_avg_pos": placed.r2,
        "additive_r2_avg_pos_low": placed.r2_low,
        "additive_r2_avg_pos_high": placed.r2_high,
        "additive_r2_avg_pos_chance": placed.r2_expected,
        "additive_r2_held_out": placed.r2_held_out,
        "additive_r2_concepts": concepts.r2,
        "additive_r2_concepts_low": concepts.r2_low,
        "additive_r2_concepts_high": concepts.r2_high,
        "additive_retrieval": placed.retrieval_held_out,
        "additive_retrieval_chance": placed.retrieval_chance,
    }


def _probes(data: EmbeddingSet, size: Size, seed: int) -> Measured:
    found = probe(data, seeds=range(seed, seed + size.n_seeds), controls=False)
    numbers = {}
    for name, head in (("probe_concepts", ALL_CONCEPTS), ("probe_objects", OBJECTS)):
        row = found.row(head)
        numbers |= {
            name: row.accuracy,
            f"{name}_low": row.low,
            f"{name}_high": row.high,
            f"{name}_chance": row.chance,
            f"{name}_ties": row.ties,
        }
    return numbers


def _removals(data: EmbeddingSet, size: Size, seed: int) -> Measured:
    removals = {
        "concept_parts": CONCEPT_PARTS,
        "object_parts": OBJECT_PARTS,
        "permuted_concept_parts": PERMUTED_CONCEPT_PARTS,
    }
    found = removal(data, removals=tuple(removals.values()), seeds=(seed,), controls=False)
    numbers = {}
    for name, removed in removals.items():
        for read, head in (("concepts", ALL_CONCEPTS), ("objects", OBJECTS)):
            reading = found.reading(removed, head, reader=RETRAINED)
            key = f"removal_{name}_{read}"
            numbers |= {
                key: reading.accuracy,
                f"{key}_low": reading.low,
                f"{key}_high": reading.high,
                f"{key}_chance": reading.chance,
            }
    return numbers


def _edits(data: EmbeddingSet, size: Size, seed: int) -> Measured:
    edits = replace_object(data, n=size.n_edits, seed=seed)
    fit = fit_all(data, levels=("objects",), estimators=("avg+pos",))["objects", "avg+pos"]
    table = editing.measure_edits(data, edits, {"avg+pos": fit}, by_group=False, seed=seed)
    edit, without = table.row("avg+pos"), table.row("any", control="no edit")
    return {
        "edit_retrieval": edit.retrieval,
        "edit_retrieval_low": edit.retrieval_low,
        "edit_retrieval_high": edit.retrieval_high,
        "edit_retrieval_chance": edit.retrieval_chance,
        "edit_retrieval_ties": edit.retrieval_ties,
        "edit_retrieval_no_edit": without.retrieval,
    }


def _products(data: EmbeddingSet, size: Size, seed: int) -> Measured:
    data = fewer(data, size.most_judged, seed=seed)
    subject = Subject("report", data)
    split = split_of(data.space, COVERAGE, seed)
    task = make_task(data, [split], seeds=[seed])
    additive = judge(subject, task, Additive().fit(task), 0)
    fits = [judge(subject, task, form.fit(task), 0) for form in (ObjectProduct(), ObjectProduct(head="none"))]
    product = max(fits, key=lambda row: row["r2_train"] or 0.0)
    if product["objects_held_out"] is None:
        raise ValueError("no scene is made of held-out objects only: give more scenes or objects")
    return {
        "product_r2_held_out": product["r2_held_out"],
        "product_objects_held_out": product["objects_held_out"],
        "product_objects_held_out_low": product["objects_low_held_out"],
        "product_objects_held_out_high": product["objects_high_held_out"],
        "product_objects_held_out_chance": product["chance_objects_held_out"],
        "additive_objects_held_out": additive["objects_held_out"],
        "ceiling_objects_held_out": product["ceiling_objects_held_out"],
    }


PARTS: dict[str, Callable[[EmbeddingSet, Size, int], Measured]] = {
    "additivity": _additivity,
    "probes": _probes,
    "removal": _removals,
    "edits": _edits,
    "product form": _products,
}
"""In the order in which they are measured."""


def judge_binding(
    data: EmbeddingSet, size: Size, *, seed: int, progress: bool = False
) -> tuple[Judgement, Numbers]:
    """Give the verdict on the binding function, and its evidence as metrics.

    Raises ValueError as :func:`conceptbind.analysis.verdict.verdict` does.
    """
    found = verdict(
        Subject("verdict", fewer(data, size.most_judged, seed=seed)),
        seeds=tuple(range(seed, seed + size.n_splits)),
        n_controls=size.n_controls,
        candidates=CANDIDATES if size.networks else PRODUCTS,
        progress=progress,
    )
    numbers: dict[str, Any] = {
        "verdict_concepts": found.concepts,
        "verdict_objects": found.objects,
        "verdict_objects_low": found.objects_low,
        "verdict_objects_high": found.objects_high,
        "verdict_within": found.within,
        "verdict_recovered": found.recovery.recovered,
        "verdict_train_r2": found.recovery.train_r2,
        "verdict_power": found.power if found.controls else None,
    }
    return found, {k: float(v) for k, v in numbers.items() if v is not None and math.isfinite(v)}


def fewer(data: EmbeddingSet, most: int, *, seed: int) -> EmbeddingSet:
    """Keep at most so many scenes, a seeded sample."""
    return data if data.n_scenes <= most else data.subset(sampled(data.n_scenes, most, seed=seed))


def named(side: str, numbers: Iterable[tuple[str, float]], ending: str = "") -> Numbers:
    """Put the side before each name and the ending behind; intervals and the like are of the true labels only."""
    own = ("_low", "_high", "_chance", "_ties")
    return {f"{side}_{name}{ending}": value for name, value in numbers if not (ending and name.endswith(own))}
