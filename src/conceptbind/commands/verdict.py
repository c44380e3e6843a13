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


def stored_in(args: argparse.Namespace) -> Path:
    """Say where the verdict is kept."""
    return args.store


def run(args: argparse.Namespace) -> int:
    """Judge the binding function, unless the store has the verdict; print it with its reason."""
    from conceptbind.analysis.verdict import KIND, verdict_job
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import run_jobs

    job = verdict_job(subject_of(args))
    with ResultStore(args.store) as store:
        run_jobs(store, [job], progress=False)
        asked = job.settings[0]
        row = next(r for r in store.rows(KIND) if all(r[name] == value for name, value in asked.items()))
    print(f"{row['subject']}: {row['verdict']}: {row['why']}")
    return 0
