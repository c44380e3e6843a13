"""The training part of the run on a GPU: do steps agree with float64 on the CPU, how fast are they, and some models.

agreement   Loss and gradients of the first step of two models, by encoder and form. The worst difference of a weight's
            gradient is in units of the largest entry of that gradient. Both sides make the data themselves.
together    M small models as one batch against one after the other (the transformers of chapters 7 and 8, and their
            perceptrons of every object).
paper step  A step of the paper's size in bfloat16. Its operations are those of all matrix products, forwards and
            backwards, counted as they run; attainable is a matrix product in bfloat16. What makes the data of a step is
            timed alone, too.
models      As many models of the study "coverage" as fit in a given time, all of a space as one batch. Rows are stored
            as tools/run_training.py stores them: a next run goes on, and so does that script, given the same --folder.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from measuring import print_table, seconds, worst
from torch.utils.flop_counter import FlopCounterMode

from conceptbind.execution.base import InProcess
from conceptbind.store import ResultStore
from conceptbind.sweeps import Job, run_jobs
from conceptbind.training.config import TrainingConfig, config_of
from conceptbind.training.data import Data
from conceptbind.training.evaluate import N_SCENES, evaluate
from conceptbind.training.gradients import loss_and_gradients
from conceptbind.training.jobs import KIND, model_name, training_jobs
from conceptbind.training.models import Parameters, initialise
from conceptbind.training.optimiser import StackedAdamW
from conceptbind.training.run import TrainedModel
from conceptbind.training.studies import HEADS, SMALL, study

CLIP = {"form": "clip", "caption_order": "random", "single_share": 0.25}
STEPS: dict[str, dict[str, Any]] = {
    "transformer, compact": {},
    "transformer, paper": {"tokens": "paper"},
    "objects": {"architecture": "objects", **HEADS["objects"]},
    "product": {"architecture": "product", **HEADS["product"]},
    "clip": CLIP,
    "transformer, paper, bfloat16": {"tokens": "paper", "dtype": "bfloat16"},
}
"""What is compared, as changes of the small transformer."""

TOLERANCES = {"float32": 1e-4, "bfloat16": 0.1}
"""On CPUs float32 differs from float64 by less than 1e-5, and bfloat16 by .04."""

TOGETHER: dict[str, dict[str, Any]] = {"transformer": {}, "objects": STEPS["objects"]}
MODELS = (1, 4, 16, 64)
STEPS_A_CALL = 4

BATCH = 32
"""Models of a study that are trained together, at most."""

MARGIN = 1.2
"""By which a job may take longer than is expected of it."""


class Trainer:
    """Take steps of models that are trained together, as training.run does."""

    def __init__(self, configs: Sequence[TrainingConfig], device: torch.device) -> None:
        self.config, self.data = configs[0], Data(configs, device=device)
        self.parameters = initialise(configs, device=device)
        self.optimiser = StackedAdamW(configs, self.parameters)
        self.n_done = 0

    def gradients(self) -> tuple[torch.Tensor, Parameters]:
        """Give losses and gradients of the next step."""
        leaves = {n: p.detach().requires_grad_() for n, p in self.parameters.items()}
        return loss_and_gradients(self.config, leaves, self.data, self.n_done)

    def steps(self, n: int = STEPS_A_CALL) -> None:
        """Take steps."""
        for _ in range(n):
            _, gradients = self.gradients()
            self.optimiser.step(self.n_done, gradients)
            self.n_done += 1

    def seconds_a_step(self, device: torch.device, repeats: int = 3) -> float:
        """Time them."""
        return seconds(self.steps, device, repeats) / STEPS_A_CALL


def measure(
    device: torch.device, small: bool, limits: dict[str, float], report: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Measure all but the models. ``report`` gets each part as soon as it is there."""
    torch.backends.cuda.matmul.allow_tf32 = False
    report = {} if report is None else report
    base = study("coverage", "smoke")[-1] if small else SMALL
    report["agreement"] = agreement(device, base)
    report["together"] = together(device, base, MODELS[:2] if small else MODELS)
    paper = config_of("paper")
    if small:
        tiny = {"width": 16, "feed_forward": 32, "n_heads": 2, "dim": 16, "depth": 2}
        paper = replace(paper, sizes=(5, 5, 5), batch=16, object_queries=64, **tiny)
    report["paper step"] = paper_step(device, paper, limits)
    return report


def agreement(device: torch.device, base: TrainingConfig) -> dict[str, dict[str, Any]]:
    """Compare a step with float64 on the CPU, by what is trained."""
    report = {}
    for name, changes in STEPS.items():
        # two models, of different coverage: the second one's queries are more, those of the first are padded
        configs = [
            replace(base, **{"coverage": rho, "seed": s, **changes}) for s, rho in enumerate((0.5, 0.7))
        ]
        loss, found = Trainer(configs, device).gradients()
        exact = [replace(c, dtype="float64") for c in configs]
        exact_loss, expected = Trainer(exact, torch.device("cpu")).gradients()
        differences = {n: worst(found[n], expected[n]) for n in expected}
        where = max(differences, key=differences.__getitem__)
        tolerance = TOLERANCES[configs[0].dtype]
        of_loss = worst(loss, exact_loss)
        report[name] = {
            "loss_difference": of_loss,
            "gradient_difference": differences[where],
            "of": where,
            "tolerance": tolerance,
            # NaN agrees with nothing
            "agrees": of_loss <= tolerance and all(d <= tolerance for d in differences.values()),
        }
    names = ("loss_difference", "gradient_difference", "of", "tolerance", "agrees")
    print_table(
        ("a step against float64", *(n.replace("_", " ") for n in names)),
        [(name, *(r[n] for n in names)) for name, r in report.items()],
    )
    return report


def together(device: torch.device, base: TrainingConfig, models: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Time M models as one batch, and one after the other."""
    report: dict[str, dict[str, Any]] = {}
    for name, changes in TOGETHER.items():
        report[name] = {}
        for m in models:
            configs = [replace(base, **changes, seed=s) for s in range(m)]
            batched = Trainer(configs, device).seconds_a_step(device)
            alone = [Trainer([c], device) for c in configs]

            def in_turn(alone: list[Trainer] = alone) -> None:
                for trainer in alone:
                    trainer.steps()

            one_by_one = seconds(in_turn, device, repeats=3) / STEPS_A_CALL
            report[name][str(m)] = {
                "steps_per_second": 1 / batched,
                "model_steps_per_second": m / batched,
                "model_steps_per_second_one_by_one": m / one_by_one,
                "times_faster": one_by_one / batched,
            }
    print_table(
        ("together", "models", "steps/s", "steps/s of all", "one by one", "times faster"),
        [(name, int(m), *r.values()) for name, of_m in report.items() for m, r in of_m.items()],
    )
    return report


def paper_step(device: torch.device, config: TrainingConfig, limits: dict[str, float]) -> dict[str, Any]:
    """Time a step, and the data of a step."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    trainer = Trainer([config], device)
    took = trainer.seconds_a_step(device, repeats=5)
    peak = torch.cuda.max_memory_allocated(device) / 1e9 if on_gpu else None
    with FlopCounterMode(display=False) as counter:
        trainer.gradients()
    flops = counter.get_total_flops()

    def batches() -> None:
        for step in range(STEPS_A_CALL):
            trainer.data.query_batch(step)

    of_data = seconds(batches, device) / STEPS_A_CALL
    report = {
        "dtype": config.dtype,
        "milliseconds": 1e3 * took,
        "teraflops": flops / 1e12,
        "teraflops_per_second": flops / took / 1e12,
        "attainable_teraflops_per_second": limits["bfloat16_flops_per_second"] / 1e12,
        "share_of_attainable": flops / took / limits["bfloat16_flops_per_second"],
        "peak_gb": peak,
        "data_milliseconds": 1e3 * of_data,
        "data_share": of_data / took,
    }
    print_table(("a step of the paper's size", ""), [(n.replace("_", " "), v) for n, v in report.items()])
    return report


@dataclass(frozen=True)
class Expected:
    """Hold what a job is expected to take, in seconds."""

    training: float
    judging: float

    @property
    def total(self) -> float:
        """Both."""
        return self.training + self.judging


def expected(configs: Sequence[TrainingConfig], device: torch.device, n_scenes: int) -> Expected:
    """Time a few steps of a job and the judging of one model that is not trained."""
    trainer = Trainer(configs, device)
    training = trainer.seconds_a_step(device) * configs[0].n_steps
    one = {n: w[-1:].detach() for n, w in trainer.parameters.items()}
    begin = time.perf_counter()
    evaluate(TrainedModel(configs[-1], one, torch.zeros(1)), n_scenes=n_scenes)
    return Expected(training, len(configs) * (time.perf_counter() - begin))


def train_models(
    device: torch.device, folder: Path, allowed: float, *, small: bool, together: int = BATCH
) -> dict[str, Any]:
    """Train models of the study "coverage" for at most ``allowed`` seconds, and store their rows in ``folder``.

    A job starts if it can be expected to end in time; one that is too long leaves its place to shorter ones. What was
    killed goes on from its last checkpoint.
    """
    begin = time.perf_counter()
    n_scenes = 64 if small else N_SCENES
    jobs = training_jobs(
        study("coverage", "smoke" if small else "laptop"),
        together=together,
        n_scenes=n_scenes,
        device=str(device),
        checkpoints=folder / "checkpoints",
        models=folder / "models",
    )
    report: dict[str, Any] = {
        "allowed_seconds": allowed,
        "trained": 0,
        "were_there": 0,
        "left": 0,
        "jobs": [],
    }
    slower, estimating = MARGIN, 0.0
    with ResultStore(folder / "results.sqlite") as store:
        for job in jobs:
            n_absent = len(store.missing(job.settings, kind=job.kind))
            report["were_there"] += len(job.settings) - n_absent
            if not n_absent:
                continue
            configs, start = configs_of(job), time.perf_counter()
            if start - begin + estimating >= allowed:
                report["left"] += n_absent
                continue
            guess = expected(configs, device, n_scenes)
            now = time.perf_counter()
            estimating = max(estimating, now - start)
            if now - begin + slower * guess.total > allowed:
                print(f"{job.about}: {guess.total:.0f} s, no time left for it", flush=True)
                report["left"] += n_absent
                continue
            ran = run_jobs(
                store, [job], progress=False, executor=InProcess(device=str(device)), keep_going=True
            )
            took = time.perf_counter() - now
            slower = max(slower, MARGIN * took / guess.total)
            report["trained"] += ran.done
            report["left"] += n_absent - ran.done
            report["jobs"].append(
                {
                    "about": job.about,
                    "trained": ran.done,
                    "seconds": took,
                    "expected_training_seconds": guess.training,
                    "expected_judging_seconds": guess.judging,
                    "failed": [failed.reason for failed in ran.failed],
                }
            )
            print(f"{job.about}: {ran.done} models trained in {took:.1f} s", flush=True)
            for failed in ran.failed:
                print(f"failed: {failed.reason}", flush=True)
            _print_rows(store, configs)
    report["seconds"] = time.perf_counter() - begin
    print(
        f"{report['trained']} models trained, {report['were_there']} were there, {report['left']} left; "
        f"{report['seconds']:.0f} of {allowed:g} s",
        flush=True,
    )
    return report


def configs_of(job: Job) -> list[TrainingConfig]:
    """Give the models of a job."""
    names = [f.name for f in fields(TrainingConfig)]
    return [TrainingConfig.from_settings({n: given[n] for n in names}) for given in job.settings]


def _print_rows(store: ResultStore, configs: Sequence[TrainingConfig]) -> None:
    ours = {model_name(c) for c in configs}
    rows = [row for row in store.rows(KIND) if row["model"] in ours]
    if not rows:
        return
    numbers = ("loss", "objects_train", "objects_held_out", "swap_alike_held_out", "concepts_held_out")
    print_table(
        ("objects", "coverage", "seed", *(n.replace("_", " ") for n in numbers)),
        [
            ("x".join(map(str, row["sizes"])), row["coverage"], row["seed"], *(row[n] for n in numbers))
            for row in rows
        ],
    )
