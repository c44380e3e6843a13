"""Fit functional forms to the models of tools/run_training.py, take their products away, and write the tables.

    python tools/run_forms.py forms       # results/forms.json
    python tools/run_forms.py ablations   # results/ablations.json
    python tools/run_forms.py encoders    # results/forms_encoders.json: encoders that others have trained

Continues where it stopped: what is finished is kept in build/training/results.sqlite. Models that are not trained yet
are left out: run it again when they are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import write_merged

from conceptbind.analysis.ablation import KIND as ABLATION
from conceptbind.analysis.ablation import ablation_jobs
from conceptbind.analysis.complexity import KIND as COMPLEXITY
from conceptbind.analysis.complexity import Subject, complexity_jobs
from conceptbind.analysis.complexity_table import compact
from conceptbind.analysis.multiplicative import KIND as FORMS
from conceptbind.analysis.multiplicative import form_jobs, forms_of, forms_sweep
from conceptbind.encoders.base import PackageMissing, WeightsNotFound
from conceptbind.presets import PRESETS
from conceptbind.store import ResultStore
from conceptbind.subjects import encoder_subject, planted_subject
from conceptbind.sweeps import Job, run_jobs
from conceptbind.training.jobs import model_file
from conceptbind.training.studies import SMALL, study
from conceptbind.training.table import compact_fits

SUBJECTS: Mapping[str, Callable[[], Subject]] = {
    "planted product": lambda: planted_subject("product", values=8),
    "planted memorised": lambda: planted_subject("memorised", values=8),
    "MiniLM": lambda: encoder_subject("sentence:all-MiniLM-L6-v2", values=8),
    "EfficientNet": lambda: encoder_subject("efficientnet-lite0", data="2-D"),
    "CLIP, captions": lambda: encoder_subject("open_clip:ViT-B-32-quickgelu/openai", values=8),
    "CLIP, pictures": lambda: encoder_subject("open_clip:ViT-B-32-quickgelu/openai", data="2-D"),
    "DINOv2, pictures": lambda: encoder_subject("dinov2:vitb14", data="2-D"),
}
OF_FORMS = ("coverage", "capacity", "longer", "recipe", "heads")
OF_ABLATIONS = ("coverage",)
"""Studies whose models are fitted, and of which those of the middle size are taken apart."""
FORMS_OF_ALL = ("additive", "object products", "global product")
"""Of every model; chapter 8 fits all forms to two of them."""
N_SCENES = 2048


def main(argv: list[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("forms", "ablations", "encoders"))
    parser.add_argument("--preset", choices=PRESETS, default="laptop")
    parser.add_argument("--folder", type=Path, default=Path("build/training"))
    args = parser.parse_args(argv)
    if args.what == "encoders":
        return encoders(args.folder, args.preset)
    forms = {name: form for name, form in forms_of(args.preset).items() if name in FORMS_OF_ALL}
    if args.what == "forms":
        jobs = form_jobs(models(args.folder, OF_FORMS, args.preset), forms, n_scenes=N_SCENES)
    else:
        middle = models(args.folder, OF_ABLATIONS, args.preset, sizes=SMALL.sizes)
        jobs = ablation_jobs(middle, n_scenes=N_SCENES)
    how = {name: form.settings for name, form in forms.items()}
    kind, name = (FORMS, "forms") if args.what == "forms" else (ABLATION, "ablations")
    with ResultStore(args.folder / "results.sqlite") as store:
        for number, job in enumerate(jobs, start=1):
            run_jobs(store, [job], progress=False)
            if number % 10 == 0 or number == len(jobs):
                write_merged(
                    name,
                    compact_fits(wanted(store, kind, jobs)),
                    preset=args.preset,
                    folder=args.folder,
                    made_by=store.provenances(kind),
                    judged_scenes=N_SCENES,
                    forms=how,
                )
                print(f"{number} of {len(jobs)} models", flush=True)
    return 0


def models(
    folder: Path, studies: Sequence[str], preset: str, *, sizes: tuple[int, ...] | None = None
) -> list[Path]:
    """List the files of the models of some studies that are trained, of one object space if given."""
    configs = (config for name in studies for config in study(name, preset))
    files = dict.fromkeys(model_file(c, folder / "models") for c in configs if sizes in (None, c.sizes))
    return [path for path in files if path.is_file()]


def wanted(store: ResultStore, kind: str, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Give the stored rows of jobs, and none of another protocol or of other models."""
    keys = {
        (s["model"], str(s["how"]), s["protocol"], s["judged_scenes"]) for job in jobs for s in job.settings
    }
    return [
        row
        for row in store.rows(kind)
        if (row["model"], str(row["how"]), row["protocol"], row["judged_scenes"]) in keys
    ]


def encoders(folder: Path, preset: str) -> int:
    """Fit the forms to frozen encoders, read by probes."""
    with ResultStore(folder / "encoders.sqlite") as store:
        for name, make in SUBJECTS.items():
            try:
                subject = make()
            except (WeightsNotFound, PackageMissing) as error:
                print(f"{name}: not run, {str(error).splitlines()[0]}", flush=True)
                continue
            ran = run_jobs(store, complexity_jobs(subject, forms_sweep(preset)), progress=False)
            print(f"{name}: {ran.done} fits computed, {ran.skipped} were there", flush=True)
            write_merged(
                "forms_encoders",
                compact(store.rows(COMPLEXITY)),
                preset=preset,
                folder=folder,
                made_by=store.provenances(COMPLEXITY),
                by="subject",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
