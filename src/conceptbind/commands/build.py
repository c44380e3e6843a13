"""``conceptbind build``: one CSV of many reports, joined to CLIP_benchmark's, and a table to choose a model by."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "reports", metavar="REPORT", type=Path, nargs="+", help="JSON files of conceptbind report"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("binding.csv"),
        help="CSV file (default: binding.csv)",
    )
    parser.add_argument(
        "--page", metavar="FILE", type=Path, help="also write an HTML table to compare the models"
    )
    parser.add_argument(
        "--join",
        metavar="CSV",
        type=Path,
        nargs="+",
        default=[],
        help="CSV files of clip_benchmark build: their metrics of the same model, pretrained and dataset become "
        "columns task:metric",
    )
    parser.add_argument(
        "--join-models",
        action="store_true",
        help="also join the metrics of the same model and pretrained on other data sets, as columns "
        "dataset:task:metric",
    )


def run(args: argparse.Namespace) -> int:
    """Write the CSV, and the page where asked for; print the comparison."""
    from conceptbind.report.compare import comparison_page, comparison_table
    from conceptbind.report.page import write_text
    from conceptbind.report.table import as_csv, join, read_benchmarks, read_reports, report_rows

    if args.join_models and not args.join:
        raise ValueError("--join-models says how to join: give the CSV files with --join")
    inputs = {path.resolve() for path in (*args.reports, *args.join)}
    outputs = [path for path in (args.output, args.page) if path is not None]
    for path in outputs:
        if path.resolve() in inputs:
            raise ValueError(f"{path} is one of the files to read: give another name to write to")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise ValueError(f"--output and --page are both {args.output}: give two names")
    reports = read_reports(args.reports)
    rows = report_rows(reports)
    benchmark = read_benchmarks(args.join)
    n_joined = join(rows, benchmark, other_data=args.join_models)
    page = comparison_page(reports) if args.page else None
    write_text(as_csv(rows), args.output)
    if page is not None:
        write_text(page, args.page)
    print(comparison_table(reports))
    print(f"wrote {len(rows)} {'row' if len(rows) == 1 else 'rows'} to {args.output}")
    if args.join:
        print(f"joined {n_joined} of them")
        if n_joined < len(rows) and not args.join_models:
            print("for metrics of the same models on other data sets, add --join-models")
    if args.page:
        print(f"wrote the comparison to {args.page}")
    return 0
