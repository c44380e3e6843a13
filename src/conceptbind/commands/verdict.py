"""``conceptbind verdict``: bag of concepts, simple binding, memorised objects, or undetermined?"""

from __future__ import annotations

import argparse
from pathlib import Path

from conceptbind.commands._subject import add_subject, subject_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_subject(parser)
    parser.add_argument(
        "--store",
        metavar="FILE",
        type=Path,
        default=Path("complexity.sqlite"),
        help="result store that gets the verdict and its evidence",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Judge the binding function, unless the store has the verdict; print it with its reason."""
    import time

    from conceptbind.analysis.verdict import KIND, verdict_job
    from conceptbind.provenance import provenance
    from conceptbind.store import ResultStore

    job = verdict_job(subject_of(args), progress=not args.quiet)
    asked = job.settings[0]
    row = None
    # Nothing is begun for embeddings that cannot be judged: a new store is opened when there is a row for it.
    if args.store.exists():
        with ResultStore(args.store) as store:
            rows = store.rows(KIND)
        row = next((r for r in rows if all(r.get(name) == value for name, value in asked.items())), None)
    if row is None:
        start = time.perf_counter()
        numbers = job.run()
        with ResultStore(args.store) as store:
            store.add(KIND, job.settings, numbers, provenance(), time.perf_counter() - start)
        row = {**asked, **numbers[0]}
    print(f"{row['subject']}: {row['verdict']}: {row['why']}")
    return 0
