"""Run the paper's released protocol (conceptbind.approximators.released): results/released_protocol.json.

    OMP_NUM_THREADS=1 python tools/run_released.py                  # all rows; continues where it stopped
    python tools/run_released.py --models sum+product --coverages 0.4 0.8
    python tools/run_released.py --time 20                          # estimates only, from 20 steps of each fit

One row a data set, coverage, model and seed. Rows that are there are kept as long as the settings are the same; a
table of other settings is begun anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from common import known_rows

from conceptbind.analysis.fixed_probes import fit_fixed_probes
from conceptbind.approximators import released
from conceptbind.embeddings import EmbeddingSet, encode_captions, encode_pictures
from conceptbind.encoders import load
from conceptbind.planted import planted_encoders
from conceptbind.render import FlatRenderer
from conceptbind.results import write_table
from conceptbind.scenes import factorial_scenes, object_split
from conceptbind.spaces import CLEVR_2D

TABLE = "released_protocol"
COVERAGES = (0.4, 0.6, 0.8, 0.9)
SCENES = factorial_scenes(CLEVR_2D, 2)
PLANTED = {"kind": "product", "dim": 512, "seed": 0, "noise": 0.5}
SETTINGS: dict[str, Any] = {
    "n_steps": released.N_STEPS,
    "evaluate_every": 100,
    "learning_rate": released.LEARNING_RATE,
    "depth": released.DEPTH,
    "value_dim": released.VALUE_DIM,
    "planted": PLANTED,
    "probe_seeds": [0],
}
KEYS = ("data", "coverage", "model", "width", "seed")


def planted_product() -> EmbeddingSet:
    """Plant embeddings in which a product binds: what an approximator of this form could find."""
    kind, rest = PLANTED["kind"], {k: v for k, v in PLANTED.items() if k != "kind"}
    return EmbeddingSet(planted_encoders(CLEVR_2D, kind, **rest).scenes(SCENES), SCENES, CLEVR_2D)


DATA: dict[str, Callable[[], EmbeddingSet]] = {
    "captions, MiniLM": lambda: encode_captions(load("sentence:all-MiniLM-L6-v2"), CLEVR_2D, SCENES),
    "2-D, EfficientNet-Lite0": lambda: encode_pictures(
        load("efficientnet-lite0"), CLEVR_2D, SCENES, FlatRenderer(CLEVR_2D)
    ),
    "planted product": planted_product,
}


def main() -> None:
    """Compute the rows that are missing, one line of print a fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--models", nargs="+", choices=released.MODELS, default=list(released.MODELS))
    parser.add_argument("--coverages", nargs="+", type=float, default=list(COVERAGES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--time", type=int, metavar="STEPS", help="only estimate, from so many steps a fit")
    args = parser.parse_args()
    rows = known_rows(TABLE, SETTINGS)
    done = {tuple(row[key] for key in KEYS) for row in rows}
    total = 0.0
    for name in args.data:
        data = DATA[name]()
        probes = fit_fixed_probes(data, seeds=SETTINGS["probe_seeds"])
        for model in args.models:
            for coverage in args.coverages:
                for seed in args.seeds:
                    key = (name, coverage, model, args.width, seed)
                    if key in done:
                        continue
                    split = object_split(CLEVR_2D, coverage, seed=seed)
                    began = time.perf_counter()
                    run = released.released_protocol(
                        data,
                        split,
                        probes,
                        model=model,
                        width=args.width,
                        n_steps=args.time or SETTINGS["n_steps"],
                        evaluate_every=SETTINGS["evaluate_every"],
                        seed=seed,
                    )
                    seconds = time.perf_counter() - began
                    if args.time:
                        whole = seconds * SETTINGS["n_steps"] / args.time
                        total += whole
                        print(f"{key}: about {whole:.0f} s, so far {total / 60:.0f} minutes", flush=True)
                        continue
                    row = {"data": name, "coverage": coverage, **run.as_dict(), "seconds": round(seconds, 1)}
                    rows.append(row)
                    write_table(TABLE, rows, settings=SETTINGS)
                    print(
                        f"{key}: {seconds:.0f} s; training R² {run.last.r2:.3f} last, {run.r2_median:.3f} median, "
                        f"{run.r2_best:.3f} best; objects "
                        f"{run.selected.objects.accuracy:.2f} selected (step {run.selected.step}), "
                        f"{run.last.objects.accuracy:.2f} last; concepts {run.selected.concepts.accuracy:.2f}, "
                        f"{run.last.concepts.accuracy:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
