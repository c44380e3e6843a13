"""``conceptbind complexity``: how complex is the binding function of an encoder?"""

from __future__ import annotations

import argparse
from pathlib import Path

from conceptbind.commands._subject import add_subject, subject_of


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
    from conceptbind.analysis.complexity import complexity_jobs, sweep_of
    from conceptbind.store import ResultStore
    from conceptbind.sweeps import run_jobs

    subject = subject_of(args)
    jobs = complexity_jobs(subject, sweep_of(args.preset))
    with ResultStore(args.store) as store:
        ran = run_jobs(store, jobs, progress=not args.quiet)
    print(f"{subject.name}: {ran.done} fits computed, {ran.skipped} were there; they are in {args.store}")
    return 0
