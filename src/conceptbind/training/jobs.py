"""Training runs as jobs of a sweep: models that share their shapes are trained and judged as one batched job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from conceptbind.provenance import digest
from conceptbind.sweeps import Job
from conceptbind.training.checkpoints import FORMAT
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
    stopped go on from their last checkpoint; a finished job leaves its weights there. ``models``: a folder that gets
    every trained model as ``<name>.safetensors``, see :func:`model_name`.
    Raises ValueError when ``together`` is below 1.
    """
    if together < 1:
        raise ValueError(f"together is the number of models of a batch, at least 1; got {together}")
    jobs = []
    for group in _groups(configs, together):
        settings = tuple(row_settings(config, n_scenes) for config in group)
        run = partial(
            run_job,
            group,
            n_scenes=n_scenes,
            device=device,
            checkpoint=None if checkpoints is None else Path(checkpoints) / f"{_name_of(group)}.safetensors",
            checkpoint_every=checkpoint_every,
            models=None if models is None else Path(models),
        )
        jobs.append(Job(KIND, settings, run, _about(group)))
    return jobs


def row_settings(config: TrainingConfig, n_scenes: int = N_SCENES) -> dict[str, Any]:
    """Give all that determines the row of a model in the result store."""
    return {**config.settings(), "judged_scenes": n_scenes, "protocol": PROTOCOL}


def model_name(config: TrainingConfig) -> str:
    """Give the name of a model's file: the start of a hash of its settings."""
    return digest({"format": FORMAT, **config.settings()})[:16]


def run_job(
    configs: Sequence[TrainingConfig],
    *,
    n_scenes: int,
    device: str,
    checkpoint: Path | None,
    checkpoint_every: int,
    models: Path | None,
) -> list[dict[str, Any]]:
    """Train and judge models of one shape; give the numbers of each."""
    trained = train(configs, device=device, checkpoint=checkpoint, checkpoint_every=checkpoint_every)
    rows = []
    for m, config in enumerate(configs):
        model = trained.model(m)
        if models is not None:
            model.save(models / f"{model_name(config)}.safetensors")
        rows.append(numbers_of(model, n_scenes))
    return rows


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


def _name_of(configs: Sequence[TrainingConfig]) -> str:
    return digest([model_name(c) for c in configs])[:16]


def _about(configs: Sequence[TrainingConfig]) -> str:
    first = configs[0]
    coverages = sorted({c.coverage for c in configs})
    shown = f"{coverages[0]:g}" + (f" to {coverages[-1]:g}" if len(coverages) > 1 else "")
    return f"{len(configs)} x {first.architecture}, {'x'.join(map(str, first.sizes))}, coverage {shown}"
