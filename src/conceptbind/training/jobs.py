"""Training runs as jobs of a sweep: models that share their shapes are trained and judged as one batched job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from conceptbind.execution.base import Executor
from conceptbind.provenance import digest
from conceptbind.store import ResultStore
from conceptbind.sweeps import FailedJob, Job, Ran, run_jobs
from conceptbind.training.checkpoints import FORMAT, read_progress
from conceptbind.training.config import TrainingConfig
from conceptbind.training.evaluate import N_SCENES, evaluate
from conceptbind.training.models import n_parameters
from conceptbind.training.run import TrainedModel, train

KIND = "training"
PROTOCOL = 1
"""Part of the settings of every row: raised when a change makes other numbers of the same settings."""

TOGETHER = 8
"""Models that are trained as one batch, at most."""

LAST_STEPS = 50
"""Steps whose mean loss a row gives."""


@dataclass(frozen=True)
class Batch:
    """Hold models that are trained together, and how: calling it is what a job of kind "training" runs."""

    configs: tuple[TrainingConfig, ...]
    n_scenes: int
    device: str
    checkpoints: Path | None
    checkpoint_every: int
    models: Path | None

    def __call__(self) -> list[dict[str, Any]]:
        """Train and judge the models; give the numbers of each."""
        trained = train(
            self.configs,
            device=self.device,
            checkpoint=self.checkpoint,
            checkpoint_every=self.checkpoint_every,
        )
        rows = []
        for m, config in enumerate(self.configs):
            model = trained.model(m)
            if self.models is not None:
                model.save(model_file(config, self.models))
            rows.append(numbers_of(model, self.n_scenes))
        return rows

    @property
    def checkpoint(self) -> Path | None:
        """The file that training goes on from: named after the models, in their order."""
        if self.checkpoints is None:
            return None
        return self.checkpoints / f"{digest([model_name(c) for c in self.configs])[:16]}.safetensors"

    def of(self, configs: Sequence[TrainingConfig]) -> Batch:
        """Give a batch of other models that is run in the same way."""
        return replace(self, configs=tuple(configs))

    def job(self) -> Job:
        """Describe it for a sweep, one row a model."""
        settings = tuple(row_settings(config, self.n_scenes) for config in self.configs)
        return Job(KIND, settings, self, _about(self.configs), dtype=self.configs[0].dtype)


def training_jobs(
    configs: Iterable[TrainingConfig],
    *,
    together: int = TOGETHER,
    n_scenes: int = N_SCENES,
    device: str = "cpu",
    checkpoints: str | Path | None = None,
    checkpoint_every: int = 500,
    models: str | Path | None = None,
) -> list[Job]:
    """List training runs as jobs of kind "training"; equal configurations are run once.

    ``together``: models trained as one batch at most; those of similar coverage come together, so that little is
    padded. ``n_scenes``: what each is judged on, of every kind. ``checkpoints``: a folder in which jobs that were
    stopped go on from their last checkpoint; a finished job leaves its weights there. A checkpoint is of one batch:
    with other models beside them, or another ``together``, models start anew, see :func:`unused_checkpoints`.
    ``models``: a folder that gets every model that is trained as ``<name>.safetensors``, see :func:`model_name`.
    Raises ValueError when ``together``, ``n_scenes`` or ``checkpoint_every`` is below 1, and for a device that cannot
    compute.
    """
    given = {"together": together, "n_scenes": n_scenes, "checkpoint_every": checkpoint_every}
    for name, n in given.items():
        if n < 1:
            raise ValueError(f"{name} is a whole number of at least 1; got {n}")
    check_device(device)
    like = Batch(
        (),
        n_scenes,
        device,
        None if checkpoints is None else Path(checkpoints),
        checkpoint_every,
        None if models is None else Path(models),
    )
    return [like.of(group).job() for group in _groups(configs, together)]


def check_device(device: str) -> None:
    """Raise ValueError for what is no device of torch's, or computes nothing, as "meta"."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = "unknown"
    if kind in ("unknown", "meta"):
        raise ValueError(f"device is cpu, cuda, cuda:1 or the like; got {device}")


def batch_of(job: Job) -> Batch:
    """Give what a job of :func:`training_jobs` runs. Raises ValueError for any other job."""
    if not isinstance(job.run, Batch):
        raise ValueError(f"{job.about!r} of kind {job.kind!r} trains no models: give a job of training_jobs")
    return job.run


def missing_jobs(store: ResultStore, jobs: Iterable[Job]) -> list[Job]:
    """List the jobs with a model that has no row; where others of its batch have one, a job without those.

    Call it with the batches of a whole grid: so the same call makes the same again, and finds their checkpoints.
    """
    found = []
    for job in jobs:
        missing = store.missing(job.settings, kind=job.kind)
        if len(missing) == len(job.settings):
            found.append(job)
        elif missing:
            batch = batch_of(job)
            found.append(batch.of([batch.configs[index] for index in missing]).job())
    return found


def run_training(
    store: ResultStore,
    jobs: Sequence[Job],
    *,
    progress: bool = True,
    executor: Executor | None = None,
    on_retry: Callable[[Sequence[FailedJob]], None] | None = None,
) -> Ran:
    """Run training jobs, and where a batch fails, its models one by one: one that diverges takes no other along.

    ``on_retry`` is given the batches that failed, before their models are trained alone. A model that fails alone ends
    nothing: the result lists its job.
    Other arguments, and errors, are those of :func:`conceptbind.sweeps.run_jobs`.
    """
    for job in jobs:
        batch_of(job)

    def run(some: Sequence[Job]) -> Ran:
        return run_jobs(store, some, progress=progress, executor=executor, keep_going=True)

    ran = run(jobs)
    alone = [failed for failed in ran.failed if len(failed.job.settings) == 1]
    if batches := [failed for failed in ran.failed if len(failed.job.settings) > 1]:
        if on_retry is not None:
            on_retry(batches)
        each = [batch_of(failed.job) for failed in batches]
        again = run([batch.of([config]).job() for batch in each for config in batch.configs])
        total = sum(len(job.settings) for job in jobs)
        done, failed = ran.done + again.done, (*alone, *again.failed)
        return Ran(done=done, skipped=total - done - len(failed), failed=failed)
    return ran


@dataclass(frozen=True)
class Unused:
    """Describe a checkpoint that no batch goes on from."""

    path: Path
    n_models: int
    n_done: int
    n_steps: int


def unused_checkpoints(store: ResultStore | None, jobs: Sequence[Job]) -> list[Unused]:
    """List the unfinished checkpoints, in the folders of these jobs, that should be of use to them and are not.

    They hold models of these jobs, none of which is stored yet, batched otherwise: with others, or in another order.
    What cannot be read is no such checkpoint.
    """
    batches = [batch_of(job) for job in jobs]
    # those of models trained alone are gone on from when their batch fails
    alone = [batch.of([config]) for batch in batches for config in batch.configs]
    used = {batch.checkpoint for batch in [*batches, *alone]}
    wanted = {config: batch for batch in batches for config in batch.configs}
    found = []
    for folder in sorted({batch.checkpoints for batch in batches if batch.checkpoints is not None}):
        for path in sorted(set(folder.glob("*.safetensors")) - used):
            try:
                configs, n_done = read_progress(path)
            except (ValueError, OSError):
                continue
            if n_done == configs[0].n_steps or wanted.keys().isdisjoint(configs):
                continue
            batch = next(wanted[config] for config in configs if config in wanted)
            rows = batch.of(configs).job().settings
            if store is None or len(store.missing(rows)) == len(rows):
                found.append(Unused(path, len(configs), n_done, configs[0].n_steps))
    return found


def row_settings(config: TrainingConfig, n_scenes: int = N_SCENES) -> dict[str, Any]:
    """Give all that determines the row of a model in the result store."""
    return {**config.settings(), "judged_scenes": n_scenes, "protocol": PROTOCOL}


def model_name(config: TrainingConfig) -> str:
    """Give the name of a model's file: the start of a hash of its settings."""
    return digest({"format": FORMAT, **config.settings()})[:16]


def model_file(config: TrainingConfig, folder: Path) -> Path:
    """Give the file of a model in the folder of models."""
    return folder / f"{model_name(config)}.safetensors"


def numbers_of(model: TrainedModel, n_scenes: int = N_SCENES) -> dict[str, Any]:
    """Give the numbers of a row: loss, temperature, sizes, and recognition (see Evaluation.row)."""
    counts = n_parameters(model.config)
    return {
        "model": model_name(model.config),
        "n_possible_objects": model.config.space.n_possible_objects,
        "n_training_objects": model.config.n_training_objects,
        "n_parameters_scene": counts["scene"],
        "n_parameters_query": counts["query"],
        "loss": float(model.losses[-LAST_STEPS:].mean()),
        "learned_temperature": model.temperature,
        **evaluate(model, n_scenes=n_scenes, seed=model.config.seed).row(),
    }


def _groups(configs: Iterable[TrainingConfig], together: int) -> list[list[TrainingConfig]]:
    by_shape: dict[str, list[TrainingConfig]] = {}
    for config in dict.fromkeys(configs):
        by_shape.setdefault(json.dumps(config.shared()), []).append(config)
    groups = []
    for same in by_shape.values():
        same.sort(key=lambda c: c.coverage)
        n_batches = -(-len(same) // together)
        # as even as can be: 9 models are 5 and 4, not 8 and 1
        ends = [round(len(same) * b / n_batches) for b in range(n_batches + 1)]
        groups += [same[a:b] for a, b in pairwise(ends)]
    return groups


def _about(configs: Sequence[TrainingConfig]) -> str:
    first = configs[0]
    coverages = sorted({c.coverage for c in configs})
    shown = f"{coverages[0]:g}" + (f" to {coverages[-1]:g}" if len(coverages) > 1 else "")
    return f"{len(configs)} x {first.architecture}, {'x'.join(map(str, first.sizes))}, coverage {shown}"
