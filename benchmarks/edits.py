"""Time and memory of edits with retrieval, against a plain matrix product of the same size, in one process.

100,000 edits of 512-dimensional embeddings, each compared with all 160,000 scenes, by parts of objects with positions.
Baseline: the products alone, edited embeddings times gallery, written block by block into one buffer, at the fastest of
several block sizes; nothing is done with the result. A share of the edits is timed, with baseline and ours taking
turns, as the machine may be busy; times are of the process on all its threads, ratios are medians over the turns.
``--full`` also runs all edits once, for the peak memory.

    OMP_NUM_THREADS=2 python benchmarks/edits.py [--threads 2] [--turns 5] [--timed 4096] [--full]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from common import peak_gb, write_report
from torch import Tensor

from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.editing import edited, retrieve_edits
from conceptbind.analysis.edits import replace_object
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import factorial_scenes
from conceptbind.spaces import CAPTIONS_20

LIMIT_GB = 4.0
LIMIT_RATIO = 1.5
BLOCKS = ((512, 2048), (1024, 4096), (4096, 4096), (2048, 8192))
"""Rows and columns of the baseline's blocks."""


def product(queries: Tensor, gallery: Tensor, rows: int, columns: int) -> None:
    """Multiply queries and gallery, block by block into one buffer."""
    buffer = torch.empty(rows * columns)
    for start in range(0, len(gallery), columns):
        keys = gallery[start : start + columns].T
        for low in range(0, len(queries), rows):
            some = queries[low : low + rows]
            torch.mm(some, keys, out=buffer[: len(some) * keys.shape[1]].view(len(some), -1))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Give processor seconds of all threads, and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    """Run both sides in turns and write times, ratio and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--edits", type=int, default=100_000)
    parser.add_argument("--timed", type=int, default=4096, help="edits that are timed")
    parser.add_argument("--small", action="store_true", help="10 x 10 values: 10,000 scenes, 5,000 edits")
    parser.add_argument("--full", action="store_true", help="all edits once, for the peak memory")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    space, n_edits, n_timed = CAPTIONS_20, args.edits, args.timed
    if args.small:
        attributes, nouns = (values[:10] for values in CAPTIONS_20.values)
        space, n_edits, n_timed = CAPTIONS_20.subset(attribute=attributes, noun=nouns), 5000, 5000
    scenes = factorial_scenes(space, 2)
    toy = planted_encoders(space, "product", dim=512, seed=0, strength=0.5, noise=1.0)
    data = EmbeddingSet(toy.scenes(scenes), scenes, space)
    fit = fit_additive(data)
    edits = replace_object(data, n=n_edits, seed=0)
    some = edits.subset(torch.arange(n_edits) < n_timed)
    queries = edited(data, some, fit)
    tried = {
        shape: min(timed(lambda shape=shape: product(queries, data.embeddings, *shape))[0] for _ in range(2))
        for shape in BLOCKS
    }
    rows, columns = min(tried, key=lambda shape: tried[shape])
    turns = []
    for _ in range(args.turns):
        plain = timed(lambda: product(queries, data.embeddings, rows, columns))
        ours = timed(lambda: retrieve_edits(data, some, fit))
        turns.append((plain, ours))
    report = {
        "scenes": len(scenes),
        "dim": data.dim,
        "edits": n_edits,
        "edits_timed": n_timed,
        "threads": args.threads,
        "torch": torch.__version__,
        "turns": args.turns,
        "product_block": [rows, columns],
        "product_cpu_ms_per_edit": 1e3 * statistics.median(p[0] for p, _ in turns) / n_timed,
        "ours_cpu_ms_per_edit": 1e3 * statistics.median(o[0] for _, o in turns) / n_timed,
        "product_wall_ms_per_edit": 1e3 * statistics.median(p[1] for p, _ in turns) / n_timed,
        "ours_wall_ms_per_edit": 1e3 * statistics.median(o[1] for _, o in turns) / n_timed,
        "ratio_cpu": statistics.median(o[0] / p[0] for p, o in turns),
        "ratio_wall": statistics.median(o[1] / p[1] for p, o in turns),
        "ratio_cpu_by_turn": [o[0] / p[0] for p, o in turns],
        "limit_ratio": LIMIT_RATIO,
        "all_edits_run": args.full,
        "top1": None,
        "limit_gb": LIMIT_GB,
    }
    if args.full:
        found: list[float] = []
        _, report["all_edits_wall_seconds"] = timed(
            lambda: found.append(float((retrieve_edits(data, edits, fit).margin > 0).double().mean()))
        )
        report["top1"] = found[0]
    report["peak_gb"] = peak_gb()
    write_report("edits_small" if args.small else "edits", report)
    assert report["peak_gb"] < LIMIT_GB, f"peak {report['peak_gb']:.2f} GB is above {LIMIT_GB} GB"
    if not args.small:
        assert report["ratio_cpu"] <= LIMIT_RATIO, f"{report['ratio_cpu']:.2f} times the plain product"


if __name__ == "__main__":
    main()
