"""Judge planted binding functions (conceptbind.analysis.calibration): results/calibration.json.

    OMP_NUM_THREADS=1 python tools/run_calibration.py               # all verdicts; continues where it stopped
    OMP_NUM_THREADS=1 python tools/run_calibration.py --table       # only write the table of what is stored

Verdicts are kept in --store as soon as they are there; the table is written at the end, or when stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import ROOT

from conceptbind.analysis.calibration import KIND, KINDS, PROTOCOL, calibrate
from conceptbind.results import write_table
from conceptbind.scenes import ConceptSpace
from conceptbind.store import ResultStore
from conceptbind.sweeps import Job, run_jobs

TABLE = "calibration"
NOISES = (0.1, 0.5, 1.0, 2.0)
GRID: tuple[tuple[tuple[int, ...], int, tuple[float, ...], int], ...] = (
    ((8, 8), 64, (0.5,), 0),
    ((8, 3), 64, (0.5, 2.0), 0),
    ((8, 8), 64, (0.1, 1.0, 2.0), 0),
    ((6, 6), 64, NOISES, 0),
    ((8, 8), 256, (0.5, 2.0), 0),
    ((12, 12), 256, (0.5,), 0),
    ((8, 3), 64, (0.1, 1.0), 0),
    ((8, 3), 64, NOISES, 1),
    ((8, 8), 64, (0.5, 1.0), 1),
)
"""Values of each concept, dimensions, noises, seed; in this order, so that a stopped run has the most telling ones."""


def jobs() -> list[Job]:
    """List every verdict of the grid."""
    return [
        job
        for sizes, dim, noises, seed in GRID
        for job in calibrate(KINDS, [ConceptSpace.of_sizes(*sizes)], [dim], noises, [seed])
    ]


def rows(store: ResultStore) -> list[dict[str, Any]]:
    """Read the verdicts of this grid, in its order, without what the store adds but the seconds."""
    by_settings = {_name(row): row for row in store.rows(KIND)}
    found = [by_settings.get(_name(settings)) for job in jobs() for settings in job.settings]
    dropped = ("kind", "key", "created", "candidates")
    return [
        {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items() if k not in dropped}
        for row in found
        if row is not None
    ]


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        str(row[key]) for key in ("planted", "space", "dim", "noise", "seed", "protocol", "candidates")
    )


def main() -> None:
    """Compute the verdicts that are missing, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--store", type=Path, default=ROOT / "build" / "calibration.sqlite", help="result store to fill"
    )
    parser.add_argument(
        "--table", action="store_true", help="compute nothing, write the table of what is stored"
    )
    args = parser.parse_args()
    every = jobs()
    with ResultStore(args.store) as store:
        try:
            if not args.table:
                run_jobs(store, every)
        finally:
            found = rows(store)
            settings = {
                "protocol": PROTOCOL,
                "kinds": list(KINDS),
                "grid": [
                    {"space": list(sizes), "dim": dim, "noises": list(noises), "seed": seed}
                    for sizes, dim, noises, seed in GRID
                ],
            }
            if found:
                write_table(TABLE, found, settings=settings)
    right, open_ = (sum(row[key] for row in found) for key in ("right", "undetermined"))
    wrong = len(found) - right - open_
    print(f"{len(found)} of {len(every)} verdicts: {right} right, {open_} undetermined, {wrong} wrong")


if __name__ == "__main__":
    main()
