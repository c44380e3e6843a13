"""Time and memory of the fits of binding functions: one fit, a whole sweep, and 160,000 scenes of 512 dimensions.

fit     MLP 1024 on MiniLM captions of 24 objects (576 x 384), coverage .8. Baseline: a plain loop over one fit, 4,000
        full-batch Adam steps of one hidden layer on concatenated concept embeddings of 64 numbers; as released
        (learning rate 1e-2, targets as they are), and fairer (1e-3, targets standardised). Ours: three seeds in one
        batch, the run that chooses the number of steps among what is timed. In one process the sides alternate: after
        each 100 of the first 500 steps of a baseline, ours is fitted; ratios are medians over these pairs, of wall
        time and of processor time, which other jobs on the machine hardly change. Per fit, at equal thread counts. The
        first thread count has all 4,000 steps, which give the training R², and the step at which the baseline comes to
        ours; the others have fewer, and time is taken in proportion.
sweep   What the laptop preset fits at every coverage, deeper networks apart, with its judging, on the same captions,
        by approximator: nine coverages, four widths, three seeds, closed forms, products.
memory  All scenes of 20 x 20 objects, an additive part, a product of rank 4 and noise; each approximator in a process
        of its own. One fit at coverage .6, and the five of the paper preset at its largest coverage, .9. Networks take
        few steps, in minibatches, and five products are fitted with one rank, the largest, and one pair of ridges:
        memory does not depend on how many. The peak has the data and the library in it.

    OMP_NUM_THREADS=2 python benchmarks/complexity.py [fit] [sweep] [memory] [--threads 1 2]

All parts unless some are named; those that are not run keep what the report says of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import peak_gb, write_report

from conceptbind.analysis.complexity import Subject, complexity_jobs, split_of, sweep_of
from conceptbind.approximators.base import Approximation, Approximator, Task, make_task
from conceptbind.approximators.closed_form import Additive, ObjectTable
from conceptbind.approximators.networks import Network
from conceptbind.approximators.products import ObjectProduct
from conceptbind.approximators.released import LEARNING_RATE, N_STEPS, ReleasedMLP, plain_fit
from conceptbind.embeddings import EmbeddingSet, encode_captions
from conceptbind.encoders import load
from conceptbind.kernels.networks import Architecture
from conceptbind.scenes import factorial_scenes
from conceptbind.spaces import CAPTIONS_20, CLEVR_2D

Times = tuple[float, float]
KEYS = ("seconds", "processor_seconds")

PARTS = ("fit", "sweep", "memory")
SEEDS = (0, 1, 2)
COVERAGE = 0.8
WIDTH = 1024
CHUNK = 100
PAIRS = 5
"""Times that both sides are timed, at most."""

DIM, RANK, NOISE, BLOCK = 512, 4, 0.5, 8192
LIMIT_GB = 6.0
NETWORK = Network(Architecture("mlp", WIDTH))
APPROXIMATORS: Mapping[str, Approximator] = {
    a.name: a for a in (NETWORK, Additive(), ObjectTable(), ObjectProduct(), ObjectProduct(head="none"))
}


def minilm() -> EmbeddingSet:
    """Embed the captions of all 576 scenes."""
    scenes = factorial_scenes(CLEVR_2D, 2)
    return encode_captions(load("sentence:all-MiniLM-L6-v2"), CLEVR_2D, scenes)


def task_of(data: EmbeddingSet, coverage: float, seeds: tuple[int, ...]) -> Task:
    """Split the objects for every seed."""
    return make_task(data, [split_of(data.space, coverage, s) for s in seeds], seeds=seeds)


def r2(z: torch.Tensor, predicted: torch.Tensor) -> float:
    """Give R² around the mean of z."""
    z = z.double()
    return 1 - float((z - predicted.double()).square().sum() / (z - z.mean(0)).square().sum())


def train_r2(task: Task, fitted: Approximation) -> list[float]:
    """Give R² of every fit on its training scenes."""
    return [
        r2(task.embeddings[mask], fitted.predict(f, task.scenes[mask])) for f, mask in enumerate(task.train)
    ]


def load_average() -> float:
    """Give the mean number of running processes in the last minute; above that of cores, seconds measure little."""
    return os.getloadavg()[0]


def now() -> Times:
    """Give wall and processor time."""
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    """Give the wall and processor seconds since then."""
    return tuple(b - a for a, b in zip(start, now(), strict=True))


class Baseline:
    """One fit by a plain loop, to the training scenes of the first seed."""

    def __init__(self, task: Task, *, rate: float, standardised: bool) -> None:
        z = task.embeddings[task.train[0]]
        self.mean, self.scale = torch.zeros(z.shape[1]), 1.0
        if standardised:
            self.mean = z.mean(0)
            self.scale = float((z - self.mean).square().mean().sqrt())
        self.z, self.scenes, self.rate, self.space = z, task.scenes[task.train[0]], rate, task.space

    def run(self, n_steps: int, between: Callable[[], None]) -> tuple[list[Times], list[float]]:
        """Fit anew; ``between`` is called after every chunk. Give the times of every chunk and R² after it."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = ReleasedMLP(self.space, self.scenes.shape[1], self.z.shape[1], WIDTH, depth=1)
        targets = (self.z - self.mean) / self.scale
        chunks, scores = [], []

        def after_chunk(step: int, loss: float) -> None:
            nonlocal begin
            chunks.append(since(begin))
            scores.append(self._r2(model))
            between()
            begin = now()

        begin = now()
        plain_fit(
            model,
            self.scenes,
            targets,
            n_steps=n_steps,
            learning_rate=self.rate,
            every=CHUNK,
            callback=after_chunk,
        )
        return chunks, scores

    @torch.no_grad()
    def _r2(self, model: torch.nn.Module) -> float:
        return r2(self.z, model(self.scenes) * self.scale + self.mean)


def measure_fit(threads: list[int], short_steps: int) -> dict[str, Any]:
    """Time one fit on both sides."""
    task = task_of(minilm(), COVERAGE, SEEDS)
    sides = {
        "released": Baseline(task, rate=LEARNING_RATE, standardised=False),
        "fairer": Baseline(task, rate=1e-3, standardised=True),
    }
    report: dict[str, Any] = {
        "scenes": len(task.scenes),
        "training scenes": int(task.train[0].sum()),
        "dim": task.embeddings.shape[1],
        "coverage": COVERAGE,
        "width": WIDTH,
        "steps of the baseline": N_STEPS,
        "threads": {},
    }
    for n in threads:
        torch.set_num_threads(n)
        fitted = NETWORK.fit(task)  # warms up, too
        plain_fit(
            ReleasedMLP(task.space, 2, task.embeddings.shape[1], WIDTH, depth=1),
            task.scenes[task.train[0]],
            task.embeddings[task.train[0]],
            n_steps=20,
        )
        full = n == threads[0]
        load_before, run = load_average(), {}
        for name, side in sides.items():
            own: list[Times] = []

            def ours(own: list[Times] = own) -> None:
                if len(own) < PAIRS:
                    begin = now()
                    NETWORK.fit(task)
                    own.append(since(begin))

            chunks, scores = side.run(N_STEPS if full else short_steps, ours)
            a, b = torch.tensor(chunks[:PAIRS]) * N_STEPS / CHUNK, torch.tensor(own) / task.n_fits
            run[name] = {
                "steps_run": CHUNK * len(chunks),
                "times_faster": {
                    key: {"median": r.median().item(), "least": r.min().item(), "most": r.max().item()}
                    for key, r in zip(KEYS, (a / b).T, strict=True)
                },
                "baseline": dict(zip(KEYS, a.median(0).values.tolist(), strict=True)),
                "ours": dict(zip(KEYS, b.median(0).values.tolist(), strict=True)),
            }
            print(json.dumps({name: run[name]}), flush=True)
            if full:
                mine = train_r2(task, fitted)[0]
                reached = next((i + 1 for i, score in enumerate(scores) if score >= mine), None)
                ratio = run[name]["times_faster"]["processor_seconds"]["median"]
                report[name] = {
                    "rate": side.rate,
                    "train_r2": scores[-1],
                    "train_r2_best": max(scores),
                    "train_r2_every_400_steps": scores[3::4],
                    "steps_to_train_r2_of_ours": reached and reached * CHUNK,
                    "times_faster_to_that": reached and ratio * reached * CHUNK / N_STEPS,
                }
                print(json.dumps({name: report[name]}), flush=True)
        if full:
            report["ours"] = {
                "seeds": SEEDS,
                "train_r2": train_r2(task, fitted),
                "train_r2_of_all_steps": [d["train_r2_end"] for d in fitted.details],
                "steps": [d["steps"] for d in fitted.details],
                "steps_at_most": NETWORK.schedule.n_steps,
            }
        run["load_average"] = [load_before, load_average()]
        report["threads"][str(n)] = run
    lowest = min(report["ours"]["train_r2"])
    # Of all three seeds, though the baseline has the first.
    report["train_r2_at_least_as_high"] = {name: lowest >= report[name]["train_r2"] for name in sides}
    return report


def measure_sweep(threads: int) -> dict[str, Any]:
    """Fit and judge everything that the laptop preset has at every coverage, and time it by approximator."""
    torch.set_num_threads(threads)
    subject = Subject("captions, MiniLM", minilm())
    load_before = load_average()
    begin = now()
    _ = subject.ruler
    report: dict[str, Any] = {"threads": threads, "seconds_of_ruler": since(begin)[0]}
    every = sweep_of("laptop")
    shallow = tuple(a for a in every.approximators if not isinstance(a, Network) or a.architecture.depth == 1)
    jobs = complexity_jobs(subject, replace(every, approximators=shallow, slow=(), slow_coverages=()))
    by_name: dict[str, list[Times]] = {}
    converged: dict[str, list[bool]] = {}
    for job in jobs:
        start, name = now(), job.settings[0]["name"]
        converged.setdefault(name, []).extend(row["converged"] for row in job.run())
        by_name.setdefault(name, []).append(since(start))
        print(job.about, *by_name[name][-1], flush=True)
    seconds, processor = since(begin)
    total = {name: [sum(t) for t in zip(*times, strict=True)] for name, times in by_name.items()}
    return report | {
        "fits": sum(map(len, converged.values())),
        "seconds": seconds,
        "processor_seconds": processor,
        "limit_seconds": 240,
        "seconds_by_approximator": {name: wall for name, (wall, _) in total.items()},
        "processor_seconds_by_approximator": {name: cpu for name, (_, cpu) in total.items()},
        "converged": {name: sum(c) / len(c) for name, c in converged.items()},
        "load_average": [load_before, load_average()],
    }


def large(seed: int) -> EmbeddingSet:
    """Make embeddings of all 160,000 scenes, in place: besides them, only blocks are in memory."""
    generator = torch.Generator().manual_seed(seed)
    space, scenes = CAPTIONS_20, factorial_scenes(CAPTIONS_20, 2)
    every, index = space.all_objects(), space.object_index(scenes)
    head = torch.randn(RANK, DIM, generator=generator) / RANK**0.5
    parts = torch.zeros(2, len(every), DIM)
    for slot in range(2):
        factor = torch.ones(len(every), RANK)
        for k, size in enumerate(space.n_values):
            parts[slot] += torch.randn(size, DIM, generator=generator)[every[:, k]]
            factor *= torch.randn(size, RANK, generator=generator)[every[:, k]]
        parts[slot] += factor @ head
    x = torch.empty(len(scenes), DIM)
    for rows in torch.arange(len(scenes)).split(BLOCK):
        low, high = int(rows[0]), int(rows[-1]) + 1
        block = x[low:high].normal_(generator=generator).mul_(NOISE)
        for slot in range(2):
            block += parts[slot, index[low:high, slot]]
    return EmbeddingSet(x, scenes, space)


def memory_of(name: str, coverage: float, n_fits: int, threads: int, steps: int) -> dict[str, Any]:
    """Fit one approximator in this process."""
    torch.set_num_threads(threads)
    approximator = APPROXIMATORS[name]
    if isinstance(approximator, Network):
        approximator = replace(approximator, schedule=replace(approximator.schedule, n_steps=steps))
    if isinstance(approximator, ObjectProduct) and n_fits > 1:
        approximator = replace(approximator, ranks=approximator.ranks[-1:], ridges=(0.3,), sum_ridges=(0.1,))
    data = large(seed=0)
    task = task_of(data, coverage, tuple(range(n_fits)))
    before, begin = peak_gb(), time.perf_counter()
    fitted = approximator.fit(task)
    seconds, peak = time.perf_counter() - begin, peak_gb()
    some = task.train[0].nonzero().squeeze(1)[::50]
    return {
        "name": name,
        "coverage": coverage,
        "fits": n_fits,
        "training scenes": int(task.train[0].sum()),
        "steps": steps if isinstance(approximator, Network) else None,
        "peak_gb_before": before,
        "peak_gb": peak,
        "seconds": seconds,
        "train_r2_of_some": r2(data.embeddings[some], fitted.predict(0, data.scenes[some])),
    }


def measure_memory(threads: int, steps: int) -> dict[str, Any]:
    """Fit every approximator in a process of its own; this process must be small still, a child inherits its peak."""
    sides = [(name, 0.6, 1) for name in APPROXIMATORS] + [(name, 0.9, 5) for name in APPROXIMATORS]
    runs = []
    for name, coverage, n_fits in sides:
        what = [name, str(coverage), str(n_fits), str(threads), str(steps)]
        done = subprocess.run(
            [sys.executable, __file__, "--memory-of", *what], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{name}, {n_fits} fits at coverage {coverage}: {done.stderr}")
        runs.append(json.loads(done.stdout))
        print(done.stdout.strip(), flush=True)
    return {
        "scenes": CAPTIONS_20.n_possible_objects**2,
        "dim": DIM,
        "threads": threads,
        "embeddings_gb": CAPTIONS_20.n_possible_objects**2 * DIM * 4 / 1e9,
        "peak_gb": max(run["peak_gb"] for run in runs),
        "limit_gb": LIMIT_GB,
        "runs": runs,
        "load_average": load_average(),
    }


def main() -> None:
    """Run the parts that are asked for and write them into the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all, unless some are named")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="of fit; the others take the last"
    )
    parser.add_argument(
        "--short-steps", type=int, default=2 * CHUNK, help="of the baseline at all but the first"
    )
    parser.add_argument("--memory-steps", type=int, default=10)
    parser.add_argument("--memory-of", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        name, coverage, *numbers = args.memory_of
        print(json.dumps(memory_of(name, float(coverage), *map(int, numbers))))
        return
    parts = args.parts or PARTS
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "memory": lambda: measure_memory(args.threads[-1], args.memory_steps),
        "fit": lambda: measure_fit(args.threads, args.short_steps),
        "sweep": lambda: measure_sweep(args.threads[-1]),
    }
    software = {"torch": torch.__version__, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
    path = Path(__file__).parent / "results" / "complexity.json"
    for part, measure in measures.items():
        if part in parts:
            found = software | measure()
            report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            report[part] = found
            write_report("complexity", {name: report[name] for name in PARTS if name in report})


if __name__ == "__main__":
    main()
