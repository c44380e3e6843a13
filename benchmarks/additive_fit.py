"""Time, memory and R² of the additive fits against one read of the embeddings, and against the reference protocol.

160,000 x 512 embeddings of all scenes of 20 x 20 objects: object parts with positions, an interaction of the two
objects. Ours: both estimators, avg and avg+pos, with R². Read: the sum of all numbers, and the mean
embedding, each one pass over the array. Reference protocol: a table of parts for each slot and a bias, 10,000 AdamW
steps of batch 2,048 (learning rate 1e-2, cosine schedule); its R² is taken on all scenes at the end. Reads and fits
alternate; ratios are of medians.

    OMP_NUM_THREADS=1 python benchmarks/additive_fit.py [--threads 1] [--steps 10000] [--repeats 9]
"""

from __future__ import annotations

import argparse
import os
import time
from statistics import median

import torch
from common import peak_gb, write_report

from conceptbind.analysis.additive import fit_all, r_squared
from conceptbind.embeddings import EmbeddingSet
from conceptbind.scenes import factorial_scenes
from conceptbind.spaces import CAPTIONS_20

DIM, BATCH, LEARNING_RATE = 512, 2048, 1e-2
BLOCK = 8192


def make(seed: int) -> EmbeddingSet:
    """Build embeddings that are mostly, not wholly, additive, far from the origin as CLIP's are."""
    generator = torch.Generator().manual_seed(seed)
    scenes = factorial_scenes(CAPTIONS_20, 2)
    index = CAPTIONS_20.object_index(scenes)
    parts = torch.randn(2, CAPTIONS_20.n_possible_objects, DIM, generator=generator)
    mixed = torch.randn(2, CAPTIONS_20.n_possible_objects, DIM, generator=generator)
    mean = 3 * torch.randn(DIM, generator=generator)
    x = torch.empty(len(scenes), DIM)
    for low in range(0, len(scenes), BLOCK):
        a, b = index[low : low + BLOCK].unbind(1)
        x[low : low + BLOCK] = parts[0, a] + parts[1, b] + 0.4 * mixed[0, a] * mixed[1, b] + mean
    order = torch.randperm(len(scenes), generator=generator)  # no help from scenes that come in order
    return EmbeddingSet(x[order], scenes[order], CAPTIONS_20)


def reference(data: EmbeddingSet, steps: int) -> tuple[float, float]:
    """Fit avg+pos by AdamW; give seconds and R²."""
    generator = torch.Generator().manual_seed(0)
    index = CAPTIONS_20.object_index(data.scenes)
    tables = torch.nn.ModuleList(torch.nn.Embedding(CAPTIONS_20.n_possible_objects, DIM) for _ in range(2))
    bias = torch.nn.Parameter(torch.zeros(DIM))
    for table in tables:
        torch.nn.init.zeros_(table.weight)
    optimiser = torch.optim.AdamW([*tables.parameters(), bias], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    start = time.perf_counter()
    for _ in range(steps):
        rows = torch.randint(len(index), (BATCH,), generator=generator)
        predicted = tables[0](index[rows, 0]) + tables[1](index[rows, 1]) + bias
        optimiser.zero_grad()
        (predicted - data.embeddings[rows]).square().mean().backward()
        optimiser.step()
        schedule.step()
    seconds = time.perf_counter() - start
    residual = total = 0.0
    mean = data.embeddings.mean(0, dtype=torch.float64)
    with torch.no_grad():
        for low in range(0, len(index), BLOCK):
            z, some = data.embeddings[low : low + BLOCK], index[low : low + BLOCK]
            predicted = tables[0](some[:, 0]) + tables[1](some[:, 1]) + bias
            residual += float((z - predicted).double().square().sum())
            total += float((z - mean).square().sum())
    return seconds, 1 - residual / total


def seconds(function) -> float:
    """Time one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    """Run all sides in one process and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = make(seed=0)
    z = data.embeddings
    before = peak_gb()
    sides = {
        "sum of all numbers": z.sum,
        "mean embedding": lambda: z.mean(0),
        "fit avg and avg+pos": lambda: fit_all(data, levels=("objects",)),
        "fit two levels, avg and avg+pos": lambda: fit_all(data),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.repeats + 1):
        for name, side in sides.items():
            times[name].append(seconds(side))
    took = {name: median(t[1:]) for name, t in times.items()}  # the first round warms up
    peak = peak_gb()
    fits = fit_all(data, levels=("objects",))
    reference_seconds, reference_r2 = reference(data, args.steps)
    own = took["fit avg and avg+pos"]
    write_report(
        "additive_fit",
        {
            "threads": args.threads,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
            "torch": torch.__version__,
            "scenes": len(z),
            "dim": DIM,
            "seconds": took,
            "times_of_one_read": {
                name: own / took[name] for name in ("sum of all numbers", "mean embedding")
            },
            "peak_gb": {"with the data alone": before, "with the fits": peak},
            "reference": {
                "steps": args.steps,
                "batch": BATCH,
                "seconds": reference_seconds,
                "r2": reference_r2,
            },
            "r2": {estimator: fit.r2 for (_, estimator), fit in fits.items()},
            "r2_by_prediction": r_squared(fits["objects", "avg+pos"], data),
            "times_faster_than_reference": reference_seconds / own,
        },
    )


if __name__ == "__main__":
    main()
