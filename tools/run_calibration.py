"""Judge planted binding functions (conceptbind.analysis.calibration): results/calibration.json.

    OMP_NUM_THREADS=1 python tools/run_calibration.py               # all verdicts; continues where it stopped
    OMP_NUM_THREADS=1 python tools/run_calibration.py --table       # only write the table of what is stored

Verdicts are kept in --store as soon as they are there; the table is written at the end, or when stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import ROOT

from conceptbind.analysis.calibration import KIND, KINDS, PROTOCOL, calibrate
from conceptbind.analysis.verdict import decide
from conceptbind.results import write_table
from conceptbind.scenes import ConceptSpace
from conceptbind.store import ResultStore
from conceptbind.sweeps import Job, run_jobs

TABLE = "calibration"
NOISES = (0.1, 0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Part:
    """Hold verdicts that are asked for together: every kind at every noise."""

    space: tuple[int, ...]
    """Values of each concept."""
    noises: tuple[float, ...]
    dim: int = 64
    seed: int = 0
    n_scenes: int | None = None
    """A sample of so many scenes; None for all."""

    def jobs(self) -> list[Job]:
        """List the verdicts."""
        space = ConceptSpace.of_sizes(*self.space)
        return calibrate(KINDS, [space], [self.dim], self.noises, [self.seed], n_scenes=self.n_scenes)


GRID = (
    Part((8, 8), NOISES),
    Part((8, 3), NOISES),
    Part((6, 6), NOISES),
    *(Part((8, 8), (0.5,), n_scenes=n) for n in (1024, 512, 256)),
    Part((8, 8), (0.5, 2.0), dim=256),
    Part((12, 12), (0.5,), dim=256),
    Part((8, 3), NOISES, seed=1),
    Part((8, 8), (0.5, 1.0), seed=1),
    # Asked for after the rule for controls was made stricter: they had no part in that.
    Part((8, 3), NOISES, seed=2),
    Part((6, 6), (0.5, 1.0), seed=1),
)
"""In this order, so that a stopped run has the most telling ones."""


def jobs() -> list[Job]:
    """List every verdict of the grid."""
    return [job for part in GRID for job in part.jobs()]


def rows(store: ResultStore) -> list[dict[str, Any]]:
    """Read the evidence of this grid, in its order, and take the decision from it by the present rule."""
    by_settings = {_name(row): row for row in store.rows(KIND)}
    found = [by_settings.get(_name(settings)) for job in jobs() for settings in job.settings]
    dropped = ("kind", "key", "created", "candidates")
    return [
        {k: round(v, 4) if isinstance(v, float) else v for k, v in _decided(row).items() if k not in dropped}
        for row in found
        if row is not None
    ]


def _decided(row: dict[str, Any]) -> dict[str, Any]:
    found, why = decide(
        concepts=row["concepts"],
        objects=(row["objects"], row["objects_low"], row["objects_high"]),
        within=row["within"],
        recovered=row["recovered"],
        converged=row["converged"],
        controls=row["controls_recovered"],
    )
    undetermined = found == "undetermined"
    return {
        **row,
        "verdict": found,
        "why": why,
        "right": found == row["answer"],
        "undetermined": undetermined,
    }


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("planted", "space", "dim", "noise", "seed", "protocol", "candidates", "n_scenes")
    return tuple(str(row.get(name)) for name in names)


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
                "grid": [asdict(part) for part in GRID],
            }
            if found:
                write_table(TABLE, found, settings=settings)
    right, open_ = (sum(row[key] for row in found) for key in ("right", "undetermined"))
    wrong = len(found) - right - open_
    print(f"{len(found)} of {len(every)} verdicts: {right} right, {open_} undetermined, {wrong} wrong")


if __name__ == "__main__":
    main()
