"""Train the models of chapters 7 and 8 and write results/training.json.

    python tools/run_training.py               # all studies; continues where it stopped
    python tools/run_training.py heads clip    # some of them

Studies and their models are listed in conceptbind.training.studies; `conceptbind sweep` trains any other grid. What is
finished is kept in build/training/: rows in results.sqlite, weights in models/, unfinished runs in checkpoints/.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

from common import write_merged

from conceptbind.presets import PRESETS
from conceptbind.store import ResultStore
from conceptbind.training.config import TrainingConfig
from conceptbind.training.jobs import KIND, PROTOCOL, run_training, training_jobs
from conceptbind.training.studies import STUDIES, study
from conceptbind.training.table import compact


def main(argv: list[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("studies", nargs="*", metavar="study", help=f"{', '.join(STUDIES)}; all unless named")
    parser.add_argument("--preset", choices=PRESETS, default="laptop")
    parser.add_argument("--folder", type=Path, default=Path("build/training"))
    parser.add_argument("--seeds", type=int, nargs="*", help="only models of these seeds")
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.studies) - set(STUDIES)):
        parser.error(f"there are no studies {', '.join(unknown)}: name some of {', '.join(STUDIES)}")
    for name in args.studies or STUDIES:
        # seed after seed, so that there is a whole picture early
        for seed, configs in groupby(study(name, args.preset), key=lambda c: c.seed):
            if args.seeds is None or seed in args.seeds:
                _train(list(configs), args.folder)
                write(args.folder, args.preset)
    return 0


def write(folder: Path, preset: str) -> None:
    """Write the table of all models that are finished; those that it had before and the store has not stay."""
    with ResultStore(folder / "results.sqlite") as store:
        rows = compact((row for row in store.rows(KIND) if row["protocol"] == PROTOCOL), preset)
        write_merged("training", rows, preset=preset, folder=folder, made_by=store.provenances(KIND))


def _train(configs: list[TrainingConfig], folder: Path) -> None:
    jobs = training_jobs(configs, together=3, checkpoints=folder / "checkpoints", models=folder / "models")
    with ResultStore(folder / "results.sqlite") as store:
        for job in jobs:
            ran = run_training(store, [job], progress=False)
            print(f"{job.about}: {ran.done} models trained, {ran.skipped} were there", flush=True)
            for failed in ran.failed:
                print(f"{failed.job.about} failed: {failed.reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
