"""Check every kernel on a GPU against float64 on the CPU, time it, and say how much of the hardware it uses.

One prepared command for a machine with a GPU, at most 8 minutes; ``--device cpu --small`` rehearses it anywhere.

    python benchmarks/gpu/run.py [--device cuda] [--small]

Writes gpu.json beside the other reports. *Attainable* is measured in the same run: a copy of a large array for bytes, a
large float32 matrix product (no TF32) for operations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from conceptbind.analysis.additive import fit_all
from conceptbind.analysis.recognition import head_labels, heads
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.probes import fit_probes
from conceptbind.kernels.retrieval import retrieve
from conceptbind.kernels.scene_sums import scene_sums
from conceptbind.scenes import ConceptSpace, factorial_scenes, scene_split

DIM = 512


def seconds(call: Callable[[], Any], device: torch.device, repeats: int = 5) -> float:
    """Give the median time of one call after a warm-up, by device events on a GPU."""
    call()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return median(times)


def attainable(device: torch.device, small: bool) -> dict[str, float]:
    """Measure bytes and float32 operations per second."""
    n = 2**22 if small else 2**28
    a, b = torch.zeros(n, device=device), torch.zeros(n, device=device)
    side = 512 if small else 8192
    m = torch.randn(side, side, device=device)
    return {
        "bytes_per_second": 8 * n / seconds(lambda: b.copy_(a), device),
        "flops_per_second": 2 * side**3 / seconds(lambda: m @ m, device),
    }


def data(n_values: int) -> EmbeddingSet:
    """Make embeddings of a factorial grid that are mostly additive."""
    generator = torch.Generator().manual_seed(0)
    space = ConceptSpace.of_sizes(n_values, n_values)
    scenes = factorial_scenes(space, 2)
    index = space.object_index(scenes)
    parts, mixed = (torch.randn(2, space.n_possible_objects, DIM, generator=generator) for _ in range(2))
    x = parts[0, index[:, 0]] + parts[1, index[:, 1]] + 0.4 * mixed[0, index[:, 0]] * mixed[1, index[:, 1]]
    return EmbeddingSet(x + 3 * torch.randn(DIM, generator=generator), scenes, space)


def moved(e: EmbeddingSet, device: torch.device) -> Any:
    """Give the set with its tensors on the device (an EmbeddingSet itself stays on the CPU)."""
    return type(
        "OnDevice",
        (),
        {"embeddings": e.embeddings.to(device), "scenes": e.scenes.to(device), "space": e.space},
    )()


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    """Give the largest difference, in units of the largest reference value."""
    a, b = a.double().cpu(), b.double().cpu()
    return float((a - b).abs().max() / b.abs().max())


def run(device: torch.device, small: bool) -> dict[str, Any]:
    """Check and time every kernel."""
    torch.backends.cuda.matmul.allow_tf32 = False
    limits = attainable(device, small)
    e = data(6 if small else 20)
    on = moved(e, device)
    n, size = e.n_scenes, e.embeddings.numel() * 4
    index = e.space.object_index(e.scenes)
    report: dict[str, Any] = {"attainable": limits, "scenes": n, "dim": DIM, "kernels": {}}

    def add(name: str, difference: float, took: float, *, bytes_moved: float = 0, flops: float = 0) -> None:
        of = bytes_moved / limits["bytes_per_second"] + flops / limits["flops_per_second"]
        report["kernels"][name] = {
            "worst_difference": difference,
            "seconds": took,
            "share_of_attainable": of / took,
        }

    index_on = index.to(device)
    exact = scene_sums(e.embeddings.double(), index)
    sums = scene_sums(on.embeddings, index_on)
    took = seconds(lambda: scene_sums(on.embeddings, index_on), device)
    add("scene_sums", worst(sums.sums, exact.sums), took, bytes_moved=size)

    reference = fit_all(e)
    fits = fit_all(on)
    difference = max(worst(fits[key].parts, reference[key].parts) for key in fits)
    add("fit_all", difference, seconds(lambda: fit_all(on), device), bytes_moved=size)

    n_queries = min(n, 256 if small else 10_000)
    rows = torch.arange(n_queries)
    queries = e.embeddings[:n_queries] + 0.01
    check = retrieve(queries[:256].double(), e.embeddings.double(), rows[:256])
    queries_on, rows_on = queries.to(device), rows.to(device)
    found = retrieve(queries_on, on.embeddings, rows_on)
    took = seconds(lambda: retrieve(queries_on, on.embeddings, rows_on), device)
    add("retrieve", worst(found.margin[:256], check.margin), took, flops=2 * n_queries * n * DIM)

    labels, sizes = head_labels(e.space, e.scenes), tuple(h.stop - h.start for h in heads(e.space))
    train = scene_split(n, seed=0).unsqueeze(0)
    arguments = {"l2": 1e-3, "tol": 1e-3}
    few = slice(0, n if small else 20_000)
    probes = fit_probes(
        on.embeddings[few], labels[few].to(device), sizes, train[:, few].to(device), **arguments
    )
    plain = fit_probes(e.embeddings[few], labels[few], sizes, train[:, few], **arguments)
    scores, expected = probes.scores(on.embeddings[:512]), plain.scores(e.embeddings[:512])
    took = seconds(
        lambda: fit_probes(
            on.embeddings[few], labels[few].to(device), sizes, train[:, few].to(device), **arguments
        ),
        device,
        repeats=2,
    )
    # No count of operations: the number of iterations depends on the data.
    add("fit_probes", worst(scores, expected), took)
    return report


def main() -> None:
    """Run on one device and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "no CUDA device here: run on a machine with a GPU, or rehearse with --device cpu --small"
        )
    start = time.perf_counter()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    report = {"device": name, "torch": torch.__version__, "small": args.small, **run(device, args.small)}
    report["total_seconds"] = time.perf_counter() - start
    if device.type == "cuda":
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        from common import write_report  # the benchmarks', which are scripts and no package

        write_report("gpu", report)
    else:
        print(report)  # a rehearsal is no measurement


if __name__ == "__main__":
    main()
