"""``conceptbind results``: what a result store holds, and its rows as CSV or Parquet."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("store", metavar="STORE", type=Path, help="file of a result store")
    parser.add_argument("--export", metavar="FILE", type=Path, help="write the rows as .csv or .parquet")
    parser.add_argument("--kind", help="only rows of this kind")


def run(args: argparse.Namespace) -> int:
    """Print the number of rows of every kind, or export them."""
    from conceptbind.store import ResultStore

    with ResultStore(args.store, create=False) as store:
        if args.export is not None:
            print(f"wrote {store.export(args.export, args.kind)} rows to {args.export}")
        else:
            counts = store.counts(args.kind)
            print("\n".join(f"{kind}  {n_rows}" for kind, n_rows in counts.items()) or "no rows")
    return 0
