"""Networks as approximators: perceptrons, the global product, a small transformer decoder; trained batched."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.additive import fit_additive
from conceptbind.approximators.base import Task
from conceptbind.kernels.networks import (
    READOUTS,
    Architecture,
    Parameters,
    apply,
    initialise,
    n_parameters,
    one_hot,
)
from conceptbind.kernels.training import Schedule, Watch, train
from conceptbind.scenes import ConceptSpace

CHECKS = 15
"""How often the validation error is looked at during training."""

ALLOWANCE = 0.01
"""A fit counts as converged if its training R², after all steps, is at most this far below that of the additive
function, whose best fit is known: every network here can be additive, so one that is worse was not optimised."""

LAST_STEPS = 5
"""Training R² after all steps is a mean over so many: batches differ."""

PREDICT_ROWS = 4096

NAMES = {
    "mlp": "MLP",
    "product": "global product",
    "object products": "object products",
    "both products": "both products",
    "decoder": "transformer",
}


@dataclass(frozen=True)
class Network:
    """A network from concept values to embeddings, fitted by AdamW on standardised targets.

    Targets are centred by the training mean and divided by the root of their mean squared norm, so that the loss is
    1 - R². The number of steps is the one with the lowest error on the validation objects, found in a first run on the
    scenes without them; without validation objects, all steps are taken.
    """

    architecture: Architecture
    schedule: Schedule = field(default_factory=lambda: Schedule(n_steps=150, rate=3e-3))

    @property
    def name(self) -> str:
        """What figures call it."""
        a = self.architecture
        layers = f" x {a.depth}" if a.depth > 1 else ""
        return f"{NAMES[a.kind]} {a.width}{layers}"

    @property
    def settings(self) -> dict[str, Any]:
        """All that determines a fit beside the task."""
        return {"approximator": "network", **asdict(self.architecture), **asdict(self.schedule)}

    def fit(self, task: Task) -> NetworkFits:
        """Fit every split of the task; all splits need equal numbers of training scenes to be batched."""
        codes = one_hot(task.scenes, task.space.n_values).to(task.embeddings.device)
        best = [_last_check(self.schedule.n_steps)] * task.n_fits
        if task.validates:
            best = self._best_steps(task, codes)
        run = _Run.of(task, task.train, codes)
        kept: dict[int, Parameters] = {}

        def keep(step: int, weights: Parameters) -> None:
            for f in (f for f, b in enumerate(best) if b == step):
                kept[f] = {name: w[f : f + 1].clone() for name, w in weights.items()}

        losses = self._train(run, task, keep)
        reached = 1 - losses[-LAST_STEPS:].mean(0)
        wanted = [fit_additive(task, level="concepts", train=mask).r2 for mask in task.train]
        return NetworkFits(
            self.architecture,
            task.space,
            task.scenes.shape[1],
            tuple(kept[f] for f in range(task.n_fits)),
            run.means,
            run.scales,
            run.axes,
            tuple(float(r) >= w - ALLOWANCE for r, w in zip(reached, wanted, strict=True)),
            tuple({"steps": best[f], "train_r2_end": float(reached[f])} for f in range(task.n_fits)),
        )

    def _best_steps(self, task: Task, codes: Float[Tensor, "scene code"]) -> list[int]:
        run = _Run.of(task, task.inner, codes)
        best: list[tuple[float, int]] = [(torch.inf, _last_check(self.schedule.n_steps))] * task.n_fits
        aims = [run.aim(f, task.embeddings[task.validation[f]]) for f in range(task.n_fits)]

        def look(step: int, weights: Parameters) -> None:
            for f, (aim, off_axes) in enumerate(aims):
                one = {name: w[f : f + 1] for name, w in weights.items()}
                error = off_axes
                inputs = codes[task.validation[f]]
                for low in range(0, len(aim), PREDICT_ROWS):
                    rows = slice(low, low + PREDICT_ROWS)
                    out = apply(self.architecture, one, inputs[rows], task.space.n_values)[0]
                    error += float((aim[rows] - out).square().sum())
                best[f] = min(best[f], (error, step))

        self._train(run, task, look)
        return [step for _, step in best]

    def _train(self, run: _Run, task: Task, watch: Watch) -> Float[Tensor, "step fit"]:
        sizes, n_slots = task.space.n_values, task.scenes.shape[1]
        start = initialise(self.architecture, n_slots, sizes, run.targets.shape[2], seeds=task.seeds)
        start = {name: w.to(run.targets) for name, w in start.items()}
        _, losses = train(
            lambda w, x: apply(self.architecture, w, x, sizes),
            start,
            run.inputs,
            run.targets,
            self.schedule,
            seeds=task.seeds,
            readouts=READOUTS,
            watch=watch,
            watch_every=max(1, self.schedule.n_steps // CHECKS),
        )
        return losses


@dataclass(frozen=True, eq=False)
class NetworkFits:
    """Hold the trained networks of a task."""

    architecture: Architecture
    space: ConceptSpace
    n_slots: int
    weights: tuple[Parameters, ...]
    means: tuple[Float[Tensor, "dim"], ...]
    scales: tuple[float, ...]
    axes: tuple[Float[Tensor, "axis dim"] | None, ...]
    converged: tuple[bool, ...]
    details: tuple[dict[str, Any], ...]

    @property
    def n_parameters(self) -> tuple[int, ...]:
        """Numbers of every network, with an output of the embeddings' size."""
        size = n_parameters(self.architecture, self.n_slots, self.space.n_values, len(self.means[0]))
        return (size,) * len(self.weights)

    def predict(self, fit: int, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Give one fit's embeddings of scenes."""
        rows = []
        for block in scenes.split(PREDICT_ROWS):
            code = one_hot(block, self.space.n_values).to(self.means[fit].device)
            out = apply(self.architecture, self.weights[fit], code, self.space.n_values)[0]
            axes = self.axes[fit]
            rows.append((out if axes is None else out @ axes) * self.scales[fit] + self.means[fit])
        return torch.cat(rows)


def _last_check(n_steps: int) -> int:
    every = max(1, n_steps // CHECKS)
    return n_steps // every * every


@dataclass(frozen=True, eq=False)
class _Run:
    """Inputs and standardised targets of one training run, on the axes that the targets span."""

    inputs: Float[Tensor, "fit row code"]
    targets: Float[Tensor, "fit row axis"]
    means: tuple[Float[Tensor, "dim"], ...]
    scales: tuple[float, ...]
    axes: tuple[Float[Tensor, "axis dim"] | None, ...]

    @classmethod
    def of(cls, task: Task, masks: Bool[Tensor, "fit scene"], codes: Float[Tensor, "scene code"]) -> _Run:
        counts = masks.sum(1).tolist()
        if len(set(counts)) > 1:
            raise ValueError(
                f"fits of one batch need equal numbers of training scenes; got {sorted(set(counts))}: fit them in "
                "tasks of their own"
            )
        n_rows, dim = counts[0], task.embeddings.shape[1]
        inputs = torch.stack([codes[mask] for mask in masks])
        # All fits in one array from the start: with large data, every further copy of the targets is gigabytes.
        targets = task.embeddings.new_empty(len(masks), n_rows, min(n_rows, dim))
        means, scales, axes = [], [], []
        for mask, aims in zip(masks, targets, strict=True):
            z = task.embeddings[mask]
            mean = z.mean(0)
            z -= mean
            scale = float(torch.linalg.vector_norm(z, dim=1).square().mean().sqrt()) or 1.0
            z /= scale
            basis = None
            if n_rows - 1 < dim:
                left, singular, basis = torch.linalg.svd(z, full_matrices=False)
                z = left * singular
            aims.copy_(z)
            means.append(mean)
            scales.append(scale)
            axes.append(basis)
        return cls(inputs, targets, tuple(means), tuple(scales), tuple(axes))

    def aim(self, fit: int, z: Float[Tensor, "row dim"]) -> tuple[Float[Tensor, "row axis"], float]:
        """Standardise other embeddings in the same way; also give their squares off the axes."""
        z = (z - self.means[fit]) / self.scales[fit]
        axes = self.axes[fit]
        if axes is None:
            return z, 0.0
        on = z @ axes.T
        return on, float(z.square().sum() - on.square().sum())
