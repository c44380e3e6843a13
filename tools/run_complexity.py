"""Fit the approximators of chapter 6 and write results/complexity.json and results/verdicts.json.

    python tools/run_complexity.py sweep        # continues where it stopped; fits are kept in build/complexity.sqlite
    python tools/run_complexity.py verdicts     # one row as soon as it is there
    python tools/run_complexity.py codes        # results/description_length.json, in the same way

The sweep is `conceptbind complexity` on 24 objects, one encoder after another, and a smaller one of the same kind on 64
objects, where a rule can be told from a table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import known_rows

from conceptbind.analysis.complexity import KIND, PROTOCOL, Subject, complexity_jobs, sweep_of_more_objects
from conceptbind.analysis.complexity_table import compact
from conceptbind.analysis.description_length import description_length
from conceptbind.analysis.verdict import COVERAGE, N_CONTROLS, N_SEEDS, decide, verdict
from conceptbind.approximators.closed_form import Additive, ObjectTable
from conceptbind.approximators.products import ObjectProduct
from conceptbind.cli import main as conceptbind
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import KINDS, planted_encoders
from conceptbind.results import write_table
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.store import ResultStore
from conceptbind.studies import CAPTIONS, FLAT, SOLID, geometry_studies
from conceptbind.subjects import encoder_subject, planted_subject
from conceptbind.sweeps import run_jobs

TEXTS = ("sentence:all-MiniLM-L6-v2", "random:all-MiniLM-L6-v2", "random:ViT-B-32")
PICTURES = ("efficientnet-lite0", "random:efficientnet-lite0")
CODES = (Additive(), ObjectTable(), ObjectProduct(), ObjectProduct(head="none"))
SEEDS = (0, 1, 2)
PER_BLOCK = 1024
SWEEPS = (
    ("--planted", "product"),
    ("--encoder", "sentence:all-MiniLM-L6-v2"),
    ("--encoder", "efficientnet-lite0", "--data", "2-D"),
    ("--planted", "memorised"),
    ("--encoder", "random:ViT-B-32"),
    ("--planted", "additive"),
)
LARGE_SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "planted product": lambda: planted_subject("product", values=8),
    "MiniLM": lambda: encoder_subject("sentence:all-MiniLM-L6-v2", values=8),
    "planted memorised": lambda: planted_subject("memorised", values=8),
    "random ViT-B/32": lambda: encoder_subject("random:ViT-B-32", values=8),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("sweep", "verdicts", "codes"))
    parser.add_argument("--store", type=Path, default=Path("build/complexity.sqlite"))
    args = parser.parse_args(argv)
    if args.what == "verdicts":
        return verdicts()
    if args.what == "codes":
        return codes()
    return sweep(args.store)


def sweep(path: Path) -> int:
    """Fit what the store does not have yet; the table is written anew after each subject."""
    for options in SWEEPS:
        if status := conceptbind(["complexity", *options, "--store", str(path), "--quiet"]):
            return status
        _write_sweep(path)
    for make in LARGE_SUBJECTS.values():
        subject = make()
        with ResultStore(path) as store:
            ran = run_jobs(store, complexity_jobs(subject, sweep_of_more_objects("laptop")), progress=False)
        print(f"{subject.name}: {ran.done} fits computed, {ran.skipped} were there", flush=True)
        _write_sweep(path)
    return 0


def _write_sweep(path: Path) -> None:
    with ResultStore(path) as store:
        rows = [row for row in store.rows(KIND) if row["protocol"] == PROTOCOL]
    write_table("complexity", compact(rows), settings={"preset": "laptop"})


def codes() -> int:
    """Measure description lengths; rows that are there are kept."""
    settings = {"seeds": list(SEEDS), "codes": [a.settings for a in CODES], "scenes_per_block": PER_BLOCK}
    rows = known_rows("description_length", settings)
    for title, make in _subjects().items():
        if "random" in title or "3-D" in title or any(r["subject"] == title for r in rows):
            continue
        found = description_length(make(), CODES, seeds=SEEDS, max_scenes_per_block=PER_BLOCK)
        row: dict[str, Any] = {
            "subject": title,
            "axes": found.n_axes,
            "resolution_share": found.resolution_share,
            "coverages": list(found.coverages),
            "blocks": {
                a.name: [
                    [r.bits for r in found.rows if (r.approximator, r.coverage) == (a.name, c)]
                    for c in found.coverages
                ]
                for a in CODES
            },
        }
        for scenes in ("all", "mixed", "new"):
            row[scenes] = {a.name: asdict(found.total(a.name, scenes=scenes)) for a in CODES}
            row[f"{scenes}_saved"] = {
                a.name: asdict(found.saving(a.name, CODES[0].name, scenes=scenes)) for a in CODES[1:]
            }
        rows.append(row)
        write_table("description_length", rows, settings=settings)
        print(title, {name: round(bits["mean"], 1) for name, bits in row["all"].items()}, flush=True)
    return 0


def verdicts() -> int:
    """Judge every encoder, and planted embeddings of 64 objects; of rows that are there the evidence is kept."""
    settings = {"coverage": COVERAGE, "seeds": N_SEEDS, "controls": N_CONTROLS}
    rows = [_decided(row) for row in known_rows("verdicts", settings)]
    if rows:
        write_table("verdicts", rows, settings=settings)
    for title, make in _subjects().items():
        if any(r["subject"] == title for r in rows):
            continue
        start = time.perf_counter()
        found = verdict(Subject(title, make()))
        rows.append({"subject": title, **found.as_dict(), "seconds": round(time.perf_counter() - start)})
        write_table("verdicts", rows, settings=settings)
        print(f"{title}: {found.verdict}: {found.why}", flush=True)
    return 0


def _decided(row: dict[str, Any]) -> dict[str, Any]:
    """Take the decision from the evidence by the present rule."""
    found, why = decide(
        concepts=row["concepts"],
        objects=(row["objects"], row["objects_low"], row["objects_high"]),
        within=row["within"],
        recovered=row["recovery"]["recovered"],
        converged=row["recovery"]["converged"],
        controls=[c["recovered"] for c in row["controls"]],
    )
    return {**row, "verdict": found, "why": why}


def _subjects() -> dict[str, Callable[[], EmbeddingSet]]:
    studies, _ = geometry_studies(
        "laptop", data=[FLAT, SOLID, CAPTIONS], text_encoders=TEXTS, picture_encoders=PICTURES
    )
    found: dict[str, Callable[[], EmbeddingSet]] = {}
    for study in studies:
        n_objects = study.embedded.space.n_possible_objects
        found[f"{study.title}, {n_objects} objects"] = lambda e=study.embedded: e
    space = ConceptSpace.of_sizes(8, 8)
    scenes = factorial_scenes(space, 2)
    for kind in KINDS:
        found[f"planted {kind}, 64 objects"] = lambda kind=kind: EmbeddingSet(
            planted_encoders(space, kind, dim=512, seed=0, noise=0.5).scenes(scenes), scenes, space
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
