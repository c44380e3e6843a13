"""Time of training steps, of their data, and of many small models at once.

step      The reference configuration: two transformers of 6 blocks, width 256, 4 heads, feed-forward 2048, d_out 64;
          20 x 20 objects in pairs, 512 scenes a step; all 40 values are queries (a limit of 64 leaves them all), and
          the 64 objects of the first 32 scenes with those that come from exchanging two values, each once. Baseline:
          training_baseline.py. Both sides make their own data, labels included, and take whole steps. Each has a
          process of its own, so that neither finds memory that the other left; they alternate, and ratios are medians
          over pairs. The losses of both on the same weights and batches must agree to 1e-4.
data      Scenes, queries and soft targets of a step of the same configuration. The baseline's draws are a small part of
          its time; tokens and label loops are the rest.
together  M small models as one batch against M models one after the other, for M = 1, 4, 16; a transformer and a
          perceptron of every object.

    OMP_NUM_THREADS=1 python benchmarks/training.py [step] [data] [together] [--pairs 6]

All parts unless some are named; those that are not run keep what the report says of them. Seconds are wall time and
processor time; other jobs on the machine hardly change the latter.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import peak_gb, write_report
from training_baseline import PlainBatch, PlainTrainer

from conceptbind.kernels.transformer import Transformer
from conceptbind.training.config import TrainingConfig
from conceptbind.training.data import Data, QueryBatch
from conceptbind.training.gradients import loss_and_gradients, query_gradients
from conceptbind.training.models import LOG_SCALE, SIDES, initialise, n_parameters, shape_of
from conceptbind.training.optimiser import StackedAdamW

PARTS = ("step", "data", "together")
REFERENCE = TrainingConfig(
    sizes=(20, 20),
    tokens="paper",
    width=256,
    depth=6,
    n_heads=4,
    feed_forward=2048,
    dim=64,
    batch=512,
    object_queries=64,
)
SMALL = TrainingConfig(
    sizes=(10, 10), width=32, depth=2, n_heads=2, feed_forward=64, dim=32, batch=128, n_steps=1000
)
MODELS = (1, 4, 16)
TOLERANCE = 1e-4

Times = tuple[float, float]


class Trainer:
    """Take our steps."""

    def __init__(self, configs: Sequence[TrainingConfig]) -> None:
        self.config, self.data = configs[0], Data(configs)
        self.parameters = initialise(configs)
        self.optimiser = StackedAdamW(configs, self.parameters)
        self.n_done = 0

    def leaves(self) -> dict[str, torch.Tensor]:
        """Give the weights so that gradients by them can be asked for."""
        return {n: p.detach().requires_grad_() for n, p in self.parameters.items()}

    def step(self) -> None:
        """Take a step."""
        _, gradients = loss_and_gradients(self.config, self.leaves(), self.data, self.n_done)
        self.optimiser.step(self.n_done, gradients)
        self.n_done += 1


def plain_trainer() -> PlainTrainer:
    """Build the baseline with our weights of the same seed."""
    shapes = {side: shape_of(REFERENCE, side) for side in SIDES}
    plain = PlainTrainer(REFERENCE, {s: x for s, x in shapes.items() if isinstance(x, Transformer)})
    weights = initialise([REFERENCE])
    for side, encoder in (("scene", plain.scene), ("query", plain.query)):
        encoder.load({n.removeprefix(f"{side}."): w[0] for n, w in weights.items() if n.startswith(side)})
    with torch.no_grad():
        plain.log_scale.copy_(weights[LOG_SCALE][0])
    return plain


def plain_batch(batch: QueryBatch, data: Data) -> PlainBatch:
    """Write a batch of ours for the baseline."""
    objects = data.values_of(batch.objects[0][batch.asked[0]]).tolist()
    return PlainBatch(
        [[tuple(o) for o in scene] for scene in batch.scenes[0].tolist()],
        [(k, v) for k, size in enumerate(REFERENCE.sizes) for v in range(size)],
        [tuple(o) for o in objects],
    )


def compare_losses(n_batches: int = 2) -> dict[str, Any]:
    """Give the losses of both sides on the same weights and batches."""
    ours, plain = Trainer([REFERENCE]), plain_trainer()
    pairs, queries = [], []
    for step in range(n_batches):
        batch = ours.data.query_batch(step)
        loss, _ = query_gradients(REFERENCE, ours.leaves(), batch, ours.data)
        given = plain_batch(batch, ours.data)
        with torch.no_grad():
            pairs.append((float(loss), float(plain.loss(given))))
        queries.append(len(given.objects))
        # the next batch with other weights, on both sides those of ours
        ours.step()
        weights = ours.parameters
        for side, encoder in (("scene", plain.scene), ("query", plain.query)):
            encoder.load({n.removeprefix(f"{side}."): w[0] for n, w in weights.items() if n.startswith(side)})
        with torch.no_grad():
            plain.log_scale.copy_(weights[LOG_SCALE][0])
    difference = max(abs(a - b) for a, b in pairs)
    assert difference < TOLERANCE, f"losses differ by {difference}: {pairs}"
    return {"losses": pairs, "largest_difference": difference, "object_queries": queries}


def timed(call: Callable[[], Any]) -> Times:
    """Give wall and processor seconds of a call."""
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def serve(side: str, threads: int) -> None:
    """Take a step for every line that comes in, and write its times; at the end the largest memory."""
    torch.set_num_threads(threads)
    if side == "ours":
        step = Trainer([REFERENCE]).step
    else:
        plain, rng = plain_trainer(), random.Random(0)

        def step() -> None:
            plain.step(plain.make_batch(rng))

    for _ in sys.stdin:
        print(json.dumps(timed(step)), flush=True)
    print(json.dumps(peak_gb()), flush=True)


def measure_step(threads: int, pairs: int) -> dict[str, Any]:
    """Time whole steps of both sides in turn."""
    report: dict[str, Any] = {"parameters": n_parameters(REFERENCE), "threads": threads, "pairs": pairs}
    load_before = os.getloadavg()[0]
    report |= compare_losses()
    sides = {
        side: subprocess.Popen(
            [sys.executable, __file__, "--serve", side, "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for side in ("baseline", "ours")
    }
    times: dict[str, list[Times]] = {side: [] for side in sides}
    for n in range(pairs + 1):
        for side, process in sides.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("step\n")
            process.stdin.flush()
            took = json.loads(process.stdout.readline())
            if n:  # the first warms up
                times[side].append(took)
    for side, process in sides.items():
        report[f"peak_gb_{side}"] = float(process.communicate()[0])
    return (
        report
        | ratios(times["baseline"], times["ours"])
        | {"load_average": [load_before, os.getloadavg()[0]]}
    )


def measure_data(threads: int, pairs: int) -> dict[str, Any]:
    """Time the data of steps."""
    torch.set_num_threads(threads)
    data, plain, rng = Data([REFERENCE]), plain_trainer(), random.Random(0)
    steps = iter(range(10**9))

    def baseline() -> None:
        batch = plain.make_batch(rng)
        plain.tokens_of_scenes(batch)
        plain.tokens_of_queries(batch)
        plain.labels(batch)

    def ours() -> None:
        for _ in range(20):
            data.query_batch(next(steps))

    baseline(), ours()
    a, b, draws = [], [], []
    for _ in range(5 * pairs):
        a.append(timed(baseline))
        b.append(tuple(t / 20 for t in timed(ours)))
        draws.append(timed(lambda: plain.make_batch(rng)))
    return ratios(a, b) | {
        "baseline_draws_alone": dict(zip(KEYS, map(median, zip(*draws, strict=True)), strict=True))
    }


def measure_together(threads: int, pairs: int) -> dict[str, Any]:
    """Time M models as one batch, and one after the other."""
    torch.set_num_threads(threads)
    report: dict[str, Any] = {}
    for name, config in (
        ("transformer 32 x 2", SMALL),
        ("objects 32 x 2", replace(SMALL, architecture="objects")),
    ):
        report[name] = {}
        for m in MODELS:
            configs = [replace(config, seed=s) for s in range(m)]
            batched, alone = Trainer(configs), [Trainer([c]) for c in configs]

            def one_batch(batched: Trainer = batched) -> None:
                for _ in range(4):
                    batched.step()

            def in_turn(alone: list[Trainer] = alone) -> None:
                for trainer in alone:
                    for _ in range(4):
                        trainer.step()

            one_batch(), in_turn()
            a, b = [], []
            for _ in range(pairs):
                a.append(timed(in_turn))
                b.append(timed(one_batch))
            report[name][str(m)] = ratios(a, b)
    return report


KEYS = ("seconds", "processor_seconds")


def ratios(baseline: list[Times], ours: list[Times]) -> dict[str, Any]:
    """Give medians of both sides, and the median and the extremes of the ratios of pairs."""
    a, b = torch.tensor(baseline, dtype=torch.float64), torch.tensor(ours, dtype=torch.float64)
    return {
        "times_faster": {
            key: {"median": r.median().item(), "least": r.min().item(), "most": r.max().item()}
            for key, r in zip(KEYS, (a / b).T, strict=True)
        },
        "baseline": dict(zip(KEYS, a.median(0).values.tolist(), strict=True)),
        "ours": dict(zip(KEYS, b.median(0).values.tolist(), strict=True)),
    }


def main() -> None:
    """Measure the parts that are named and write the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; all unless named")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--serve", choices=("baseline", "ours"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.threads)
        return
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there are no parts {sorted(unknown)}: name some of {', '.join(PARTS)}")
    torch.set_num_threads(args.threads)
    measures = {"step": measure_step, "data": measure_data, "together": measure_together}
    path = Path(__file__).parent / "results" / "training.json"
    report = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    report |= {"torch": torch.__version__, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
    for part in args.parts or PARTS:
        report[part] = measures[part](args.threads, args.pairs)
        print(json.dumps({part: report[part]}), flush=True)
    write_report("training", report)


if __name__ == "__main__":
    main()
