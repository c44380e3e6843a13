"""Check every kernel on a GPU against float64 on the CPU, time it, and say how much of the hardware it uses.

One prepared command for a machine with a GPU, at most 10 minutes; ``--device cpu --small`` rehearses it anywhere.

    python benchmarks/gpu/run.py [kernels] [training] [--device cuda] [--small] [--train-seconds N] [--folder DIR]

kernels    The numerical core, at most 8 minutes.
training   Steps of training, see training_part.py; a minute or two.

Both unless one is named. ``--train-seconds`` trains models after that, for so many seconds at most, and keeps them in
a folder: rows in results.sqlite, weights in models/, unfinished runs in checkpoints/.
Prints tables and writes gpu.json beside the other reports, in place of that of an earlier run. *Attainable* is measured
in the same run: a copy of a large array for bytes, a large matrix product (float32 without TF32, or bfloat16) for
operations. Fails when a step of training differs from float64 by more than its tolerance.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
import training_part
from measuring import attainable, print_table, seconds, worst

from conceptbind.analysis.additive import fit_all
from conceptbind.analysis.recognition import head_labels, heads
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.anova import anova_energies
from conceptbind.kernels.networks import Architecture, apply, initialise, one_hot
from conceptbind.kernels.probes import fit_probes
from conceptbind.kernels.products import fit_products
from conceptbind.kernels.retrieval import retrieve
from conceptbind.kernels.scene_sums import scene_sums
from conceptbind.kernels.training import Schedule
from conceptbind.kernels.training import train as train_networks
from conceptbind.scenes import ConceptSpace, factorial_scenes, scene_split

PARTS = ("kernels", "training")
DIM = 512


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


def run(device: torch.device, small: bool) -> dict[str, Any]:
    """Check and time every kernel."""
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

    # factorial_scenes lists a grid in order: a view of the embeddings has an axis for every factor.
    sizes_of_grid = (*e.space.n_values, *e.space.n_values)
    grid = on.embeddings.reshape(*sizes_of_grid, DIM)
    energies = anova_energies(e.embeddings.double().reshape(*sizes_of_grid, DIM))
    difference = worst(anova_energies(grid), energies)
    # The float32 embeddings once: what the walk over the factors moves in float64 stays near the cores.
    add("anova", difference, seconds(lambda: anova_energies(grid), device), bytes_moved=size)

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

    # Parts of all objects in both slots, a product of rank 4: factors start at the same numbers, drawn on the CPU.
    generator = torch.Generator().manual_seed(0)
    n_fits, rank = (2 if small else 20), 4
    every = e.space.all_objects()
    objects, slots = every.repeat(2, 1), torch.arange(2).repeat_interleave(len(every))
    targets = torch.randn(n_fits, len(slots), DIM, generator=generator)
    for k, size_k in enumerate(e.space.n_values):
        targets += torch.randn(n_fits, size_k, DIM, generator=generator)[:, objects[:, k]]
    tables = [torch.randn(n_fits, v, rank, generator=generator) for v in e.space.n_values]
    product = tables[0][:, objects[:, 0]] * tables[1][:, objects[:, 1]]
    targets += product @ torch.randn(n_fits, rank, DIM, generator=generator)

    def products(where: torch.device, dtype: torch.dtype, fits: int) -> torch.Tensor:
        ridge = torch.full((fits,), 0.1, dtype=dtype, device=where)
        found = fit_products(
            targets[:fits].to(where, dtype),
            slots.to(where),
            objects.to(where),
            torch.ones(fits, len(slots), dtype=dtype, device=where),
            e.space.n_values,
            rank=rank,
            ridge=ridge,
            ridge_sums=ridge,
            seeds=range(fits),
            max_sweeps=40,
        )
        return found.predict(slots.to(where), objects.to(where), e.space.n_values)

    # In float64 on both sides, as approximators do. No count of operations: that of sweeps depends on the data.
    difference = worst(products(device, torch.float64, 2), products(torch.device("cpu"), torch.float64, 2))
    took = seconds(lambda: products(device, torch.float64, n_fits), device, repeats=2)
    add("fit_products", difference, took)

    architecture, width = Architecture("mlp", 64 if small else 1024), 64 if small else 1024
    few = min(n, 4096)
    n_fits = 2 if small else 20
    codes = one_hot(e.scenes[torch.randperm(n, generator=generator)[:few]], e.space.n_values)
    aims = torch.randn(few, DIM, generator=generator) / DIM**0.5
    n_codes = codes.shape[1]

    def losses(where: torch.device, n_steps: int, fits: int) -> torch.Tensor:
        start = initialise(architecture, 2, e.space.n_values, DIM, seeds=range(fits))
        _, found = train_networks(
            lambda w, x: apply(architecture, w, x, e.space.n_values),
            {name: w.to(where) for name, w in start.items()},
            codes.to(where).expand(fits, -1, -1),
            aims.to(where).expand(fits, -1, -1),
            Schedule(n_steps=n_steps),
            seeds=range(fits),
        )
        return found

    # Later steps are no measure: rounding grows from step to step.
    difference = worst(losses(device, 20, 2)[-1], losses(torch.device("cpu"), 20, 2)[-1])
    n_steps = 20 if small else 200
    took = seconds(lambda: losses(device, n_steps, n_fits), device, repeats=2)
    add("train", difference, took, flops=n_fits * n_steps * 6 * few * width * (n_codes + DIM))
    return report


def main() -> None:
    """Run on one device and write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; both unless named")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--train-seconds", type=float, default=0.0, metavar="N")
    parser.add_argument("--folder", type=Path, default=Path("build/gpu_training"))
    args = parser.parse_args()
    if unknown := sorted(set(args.parts) - set(PARTS)):
        parser.error(f"there are no parts {', '.join(unknown)}: name some of {', '.join(PARTS)}")
    if not 0 <= args.train_seconds < math.inf:
        parser.error(f"--train-seconds is a number of at least 0; got {args.train_seconds}")
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "no CUDA device here: run on a machine with a GPU, or rehearse with --device cpu --small"
        )
    start = time.perf_counter()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    report: dict[str, Any] = {"device": name, "torch": torch.__version__, "small": args.small}
    try:
        measure(device, args, report)
    finally:  # a part that fails does not take the others with it
        report["total_seconds"] = time.perf_counter() - start
        if device.type == "cuda":
            sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
            from common import write_report  # the benchmarks', which are scripts and no package

            write_report("gpu", report)
        else:
            print(report)  # a rehearsal is no measurement
    steps = report.get("training", {}).get("agreement", {})
    if wrong := [name for name, step in steps.items() if not step["agrees"]]:
        raise SystemExit(f"steps differ from float64 by more than the tolerance: {'; '.join(wrong)}")


def measure(device: torch.device, args: argparse.Namespace, report: dict[str, Any]) -> None:
    """Run the parts that are asked for; each is in the report as soon as it is finished."""
    parts = args.parts or PARTS
    if "kernels" in parts:
        report |= run(device, args.small)
        names = ("worst_difference", "seconds", "share_of_attainable")
        print_table(
            ("kernel", *(n.replace("_", " ") for n in names)),
            [(kernel, *(r[n] for n in names)) for kernel, r in report["kernels"].items()],
        )
    if "training" in parts:
        if "attainable" not in report:
            report["attainable"] = attainable(device, args.small)
        report["training"] = {}
        training_part.measure(device, args.small, report["attainable"], report["training"])
    if args.train_seconds:
        report["models"] = training_part.train_models(
            device, args.folder, args.train_seconds, small=args.small
        )


if __name__ == "__main__":
    main()
