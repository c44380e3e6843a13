"""Peak memory and time of probing 160,000 scenes of 512 dimensions for 20 + 20 values and 400 objects.

The embeddings are planted (per-object products) with noise; 40 % of the scenes train. Peak memory is the
largest resident set of this process, the embeddings and the library included.

    OMP_NUM_THREADS=2 python benchmarks/probe_memory.py [--threads 2] [--seeds 1] [--controls]
"""

from __future__ import annotations

import argparse
import time

import torch
from common import peak_gb, write_report

from conceptbind.analysis.probing import probe
from conceptbind.planted import planted_encoders
from conceptbind.scenes import factorial_scenes
from conceptbind.spaces import CAPTIONS_20

LIMIT_GB = 4.0


def main() -> None:
    """Probe once and write what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--controls", action="store_true", help="shuffled labels, too")
    parser.add_argument("--choose", action="store_true", help="choose l2 on validation scenes")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    scenes = factorial_scenes(CAPTIONS_20, 2)
    x = planted_encoders(CAPTIONS_20, "product", dim=512, seed=0, strength=0.5, noise=2.0).scenes(scenes)
    before = peak_gb()
    start = time.perf_counter()
    result = probe(
        x,
        CAPTIONS_20,
        scenes,
        seeds=tuple(range(args.seeds)),
        l2=None if args.choose else 1e-6,
        controls=args.controls,
    )
    report = {
        "scenes": len(x),
        "dim": x.shape[1],
        "seeds": args.seeds,
        "controls": args.controls,
        "l2_chosen": args.choose,
        "threads": args.threads,
        "input_gb": x.numel() * x.element_size() / 1e9,
        "peak_gb_before": before,
        "peak_gb": peak_gb(),
        "limit_gb": LIMIT_GB,
        "seconds": time.perf_counter() - start,
        "concepts": result.row("all concepts").accuracy,
        "objects": result.row("objects").accuracy,
        "converged": all(row.converged for row in result.rows),
    }
    write_report("probe_memory", report)
    assert report["peak_gb"] < LIMIT_GB, f"peak {report['peak_gb']:.2f} GB is above {LIMIT_GB} GB"


if __name__ == "__main__":
    main()
