"""``conceptbind complexity``: how complex is the binding function of an encoder?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from conceptbind.commands._subject import add_subject, subject_of

if TYPE_CHECKING:
    from conceptbind.analysis.complexity_table import ComplexityTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_subject(parser)
    parser.add_argument("--preset", choices=("smoke", "laptop", "paper"), default="laptop")
    parser.add_argument(
        "--store", metavar="FILE", type=Path, default=Path("complexity.sqlite"), help="result store to fill"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def stored_in(args: argparse.Namespace) -> Path:
    """Say where finished fits are kept."""
    return args.store


def run(args: argparse.Namespace) -> int:
    """Run the sweep that is missing from the store, and say what there is."""
    from conceptbind.analysis.complexity import KIND, PROTOCOL, complexity_jobs, sweep_of
    from conceptbind.analysis.complexity_table import ComplexityTable, compact
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import run_jobs

    subject = subject_of(args)
    jobs = complexity_jobs(subject, sweep_of(args.preset))
    if not jobs:
        raise ValueError(
            f"{subject.name}: no coverage leaves both a training and a held-out object with a scene: give more "
            "objects, or more scenes"
        )
    with ResultStore(args.store) as store:
        ran = run_jobs(store, jobs, progress=not args.quiet)
        known = (subject.name, subject.digest, PROTOCOL)
        rows = [r for r in store.rows(KIND) if (r["subject"], r["embeddings"], r["protocol"]) == known]
    print(f"{subject.name}: {ran.done} fits computed, {ran.skipped} were there; they are in {args.store}")
    print("\n".join(_summary(ComplexityTable(compact(rows)), subject.name)))
    return 0


COLUMNS = {
    "training R²": "r2_train",
    "training objects": "objects_train",
    "held-out concepts": "concepts_held_out",
    "held-out objects": "objects_held_out",
}


def _summary(table: ComplexityTable, subject: str) -> list[str]:
    """Write one line an approximator, at its largest coverage that has held-out scenes; means over the seeds."""
    lines = [f"{'':32s} coverage  {'  '.join(COLUMNS)}  did not converge"]
    for name in table.names(subject):
        of_name = table.of(subject, name)
        able = [r["coverage"] for r in of_name if r["objects_held_out"] is not None and r["converged"]]
        cells = [f"{'–':>{len(words)}s}" for words in COLUMNS]
        if able:
            cells = [
                f"{table.at(subject, name, column, max(able)):{len(words)}.2f}"
                for words, column in COLUMNS.items()
            ]
        failed = sum(not r["converged"] for r in of_name)
        coverage = f"{max(able):8.2f}" if able else f"{'–':>8s}"
        lines.append(f"{name:32s} {coverage}  {'  '.join(cells)}  {failed} of {len(of_name)}")
    return lines
