"""Which function of the concepts is a scene embedding: a sum, or also products (paper, section 2, F8).

==========================  =====================================================================================
functional form             z ~ mean + sum_i sum_k u_{i,k,c_ik}, and
==========================  =====================================================================================
additive                    nothing else: blind to which values go together
object products             sum_i (prod_k v_{i,k,c_ik}) C: what goes together within an object
... by coordinate           the same with C = 1
... trained                 the same with C_i for every slot, by gradient descent
global product              (prod_i prod_k v_{i,k,c_ik}) C
both products               both of them
==========================  =====================================================================================

Every form is fitted to scenes of training objects only and read in two ways. *How much it explains*: R², and, since the
sum explains most of any embedding, the share of what the sum leaves, ``residual`` = 1 - err(form) / err(additive). Of
few training objects the least-squares sum misses new ones by more than it has to, and any form that is held back gains
on it there; ``residual_shrunk`` is against a sum with the ridge that suits the validation objects. *What it
recognises*: the encoder's own queries, of all objects, are put to the form's embeddings of scenes.
All factors belong to a slot; ``object products`` share C between slots, as a transformer may read the same product
anywhere, the trained ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.complexity import COVERAGES, Sweep
from conceptbind.approximators.base import Approximation, Approximator, Task, make_task
from conceptbind.approximators.closed_form import Additive
from conceptbind.approximators.networks import Network
from conceptbind.approximators.products import ObjectProduct
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import Architecture, Kind
from conceptbind.kernels.training import Schedule
from conceptbind.presets import choose
from conceptbind.scenes import ObjectSplit, SceneKind
from conceptbind.sweeps import Job
from conceptbind.training.config import Repeats
from conceptbind.training.evaluate import KINDS, N_SCENES, Encoders, Evaluation, evaluate_encoders
from conceptbind.training.jobs import model_name
from conceptbind.training.judged import judged_scenes
from conceptbind.training.run import TrainedModel

KIND = "forms"
PROTOCOL = 1
"""Part of the settings of every row: raised when a change makes other numbers of the same settings."""

MODEL = "model"
"""Functional form of the row of the embeddings themselves: the ceiling."""

FIT_SALT = 0xF17
"""Added to the seed that draws the scenes of a fit: where there are more than are drawn, others than those judged."""

PER_OBJECT = 8
"""Scenes fitted to show a training object in a slot so often on average, or more: its part is told from chance."""

NOTHING_LEFT = 1e-6
"""Below this share of the variance, what the sum leaves is rounding, and no share of it is given."""

SHRUNK = ObjectProduct(ranks=(0,), ridges=(0.0,), sum_ridges=(0.0, 0.1, 0.3, 1.0, 3.0, 10.0), restarts=1)
"""The sum with a ridge: object products without factors."""

READ = {
    "concepts": ("", "_low", "_high"),
    "objects": ("", "_low", "_high", "_chance", "_ties"),
    "swap_alike": ("",),
}
"""Columns of an evaluation that a row keeps, of every kind of scene."""


def forms_of(preset: str) -> dict[str, Approximator]:
    """Give the functional forms of a preset.

    "smoke": seconds together; "laptop": some ten seconds for 4,096 scenes of 500 objects on one core; "paper": more
    ranks, starts and steps.
    Raises ValueError for another preset.
    """
    ranks = {"smoke": (2,), "laptop": (4, 16, 32), "paper": (2, 4, 8, 16, 32, 64)}
    # Encoders bind in many directions: ranks above those of complexity.py, and so larger ridges.
    ridges = {"smoke": (0.1,), "laptop": (0.3, 1.0), "paper": (0.03, 0.1, 0.3, 1.0, 3.0)}
    n_starts = {"smoke": 1, "laptop": 1, "paper": 4}
    als = {
        "ridges": choose(preset, ridges),
        "sum_ridges": (0.0, 0.1),
        "restarts": choose(preset, n_starts),
    }
    width, n_steps = choose(preset, {"smoke": (8, 60), "laptop": (64, 200), "paper": (128, 1000)})
    # Decay keeps free products from learning the training objects by heart; it stands for the ridge.
    schedule = Schedule(n_steps=n_steps, rate=2e-2, weight_decay=3.0, batch=1024)

    def trained(kind: Kind) -> Network:
        return Network(Architecture(kind, width), schedule)

    return {
        "additive": Additive(),
        "object products": ObjectProduct(ranks=choose(preset, ranks), **als),
        "object products, by coordinate": ObjectProduct(head="none", **als),
        "object products, trained": trained("object products"),
        "global product": trained("product"),
        "both products": trained("both products"),
    }


def forms_sweep(preset: str) -> Sweep:
    """Give the sweep over coverages of an encoder without queries: probes read its fits (see analysis/complexity)."""
    forms = tuple(forms_of(preset).values())
    sizes = {
        "smoke": ((0.5,), (0,)),
        "laptop": ((0.6, 0.9), (0, 1, 2)),
        "paper": (COVERAGES, tuple(range(5))),
    }
    coverages, seeds = choose(preset, sizes)
    return Sweep(coverages, seeds, forms)


@dataclass(frozen=True, eq=False)
class Replaced:
    """An encoder whose scene embeddings are another function's; the queries are its own."""

    encoders: Encoders
    embed: Callable[[Int[Tensor, "scene slot concept"]], Float[Tensor, "scene dim"]]

    def scenes(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes by the other function, in the type of the queries."""
        return self.embed(scenes).to(self.encoders.values())

    def objects(self, index: Int[Tensor, "object"]) -> Float[Tensor, "object dim"]:
        """Embed objects as queries."""
        return self.encoders.objects(index)

    def values(self) -> Float[Tensor, "value dim"]:
        """Embed values as queries."""
        return self.encoders.values()

    def captions(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"] | None:
        """Give none: they are not of what is replaced."""
        return None


@dataclass(frozen=True, eq=False)
class Sample:
    """Hold an encoder and the scenes that its embeddings are fitted to and judged on."""

    encoders: Encoders
    split: ObjectSplit
    n_objects: int
    repeats: Repeats = "distinct objects"
    n_scenes: int = N_SCENES
    """Judged on, of every kind, at most; and fitted to, unless there are so many objects that it takes more."""
    seed: int = 0

    def scenes(self, kind: SceneKind) -> Int[Tensor, "scene slot concept"]:
        """Give the scenes of a kind that are judged, those of :func:`conceptbind.training.evaluate.evaluate`."""
        return self._drawn(kind, self.n_scenes, self.seed)

    def task(self) -> Task:
        """Give the fit to scenes of training objects. Raises ValueError where there are none."""
        n_fitted = max(self.n_scenes, PER_OBJECT * int(self.split.is_train.sum()))
        scenes = self._drawn(SceneKind.TRAIN, n_fitted, self.seed + FIT_SALT)
        embeddings = self.embed(scenes).float()
        return make_task(EmbeddingSet(embeddings, scenes, self.split.space), [self.split], seeds=[self.seed])

    @torch.no_grad()
    def embed(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes by the encoder, on the CPU, in float64. There may be none: a kind of scene may not exist."""
        if not len(scenes):  # which encoders may refuse
            return torch.empty(0, self.encoders.values().shape[1], dtype=torch.float64)
        return self.encoders.scenes(scenes).double().cpu()

    def recognised(
        self, embed: Callable[[Int[Tensor, "scene slot concept"]], Float[Tensor, "scene dim"]]
    ) -> dict[str, Any]:
        """Put the encoder's queries, of all objects, to other embeddings of the scenes: the columns ``READ``."""
        found = evaluate_encoders(
            Replaced(self.encoders, embed),
            self.split,
            n_objects=self.n_objects,
            repeats=self.repeats,
            n_scenes=self.n_scenes,
            seed=self.seed,
        )
        return columns_of(found)

    def _drawn(self, kind: SceneKind, n_scenes: int, seed: int) -> Int[Tensor, "scene slot concept"]:
        return judged_scenes(self.split, kind, self.n_objects, n_scenes, seed=seed, repeats=self.repeats)


def sample_of(model: TrainedModel, *, n_scenes: int = N_SCENES, seed: int | None = None) -> Sample:
    """Take the scenes of a trained model. ``seed``: that of the model unless given, as its evaluation does."""
    c = model.config
    return Sample(model, c.split, c.n_objects, c.repeats, n_scenes, c.seed if seed is None else seed)


def judge_forms(
    model: TrainedModel,
    forms: Mapping[str, Approximator],
    *,
    n_scenes: int = N_SCENES,
    seed: int | None = None,
) -> list[dict[str, Any]]:
    """Fit functional forms to a trained model's scenes of training objects; arguments as in :func:`sample_of`.

    One row for the model itself, then one for each form, see :func:`judge_sample`.
    """
    return judge_sample(sample_of(model, n_scenes=n_scenes, seed=seed), forms)


def judge_sample(sample: Sample, forms: Mapping[str, Approximator]) -> list[dict[str, Any]]:
    """Fit functional forms and read them, on train, mixed and held-out scenes: dictionaries for a table.

    ``functional_form``: "model" in the first row, the embeddings themselves. Of every kind of scene ``r2``, around the
    mean of those scenes; ``residual`` and ``residual_shrunk``, the share explained of what the sum leaves, by least
    squares and with a ridge; and the recognition of ``READ``. Shares may be negative, and are None where there are no
    such scenes, or nothing is left to explain.
    ``n_parameters``, ``converged`` and ``chosen`` are those of the fit, None for the model.
    """
    task = sample.task()
    scenes = {kind: sample.scenes(kind) for kind in KINDS}
    real = {kind: sample.embed(some) for kind, some in scenes.items()}
    total = {kind: _squares(z - z.mean(0)) for kind, z in real.items()}
    fits = {name: form.fit(task) for name, form in forms.items()}
    sums = {"residual": Additive().fit(task), "residual_shrunk": SHRUNK.fit(task)}
    left = {
        (share, kind): _squares(real[kind] - fit.predict(0, some).double())
        for share, fit in sums.items()
        for kind, some in scenes.items()
    }

    def row(name: str, embed: Callable[[Tensor], Tensor], fit: Approximation | None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "functional_form": name,
            "n_parameters": None if fit is None else int(fit.n_parameters[0]),
            "converged": None if fit is None else bool(fit.converged[0]),
            "chosen": None if fit is None else dict(fit.details[0]),
        }
        for kind, called in KINDS.items():
            error = _squares(real[kind] - embed(scenes[kind]).double())
            found[f"r2_{called}"] = 1 - error / total[kind] if total[kind] > 0 else None
            for share in sums:
                rest = left[share, kind]
                there = rest > NOTHING_LEFT * total[kind]
                found[f"{share}_{called}"] = 1 - error / rest if there else None
            found[f"n_{called}"] = len(scenes[kind])
        return found | sample.recognised(embed)

    return [
        row(MODEL, sample.embed, None),
        *(row(name, partial(fit.predict, 0), fit) for name, fit in fits.items()),
    ]


def columns_of(found: Evaluation) -> dict[str, Any]:
    """Keep the columns ``READ`` of an evaluation."""
    every = found.row()
    return {
        f"{measure}_{kind}{suffix}": every[f"{measure}_{kind}{suffix}"]
        for measure, suffixes in READ.items()
        for kind in KINDS.values()
        for suffix in suffixes
    }


def form_jobs(
    models: Sequence[str | Path],
    forms: Mapping[str, Approximator],
    *,
    n_scenes: int = N_SCENES,
    device: str = "cpu",
) -> list[Job]:
    """List the fits to trained models as jobs of kind "forms": one job a file, one row a form and one of the model.

    ``models``: files that ``training_jobs(..., models=...)`` wrote. Rows hold the settings of the model, its name
    ``model`` as in rows of kind "training", ``functional_form``, and ``how`` that was fitted.
    Raises as :meth:`TrainedModel.load` does.
    """
    how: dict[str, Any] = {MODEL: None, **{name: dict(form.settings) for name, form in forms.items()}}
    run = partial(_judge_file, forms=dict(forms), n_scenes=n_scenes, device=device)
    return file_jobs(
        KIND, models, run, column="functional_form", how=how, judged_scenes=n_scenes, protocol=PROTOCOL
    )


def file_jobs(
    kind: str,
    models: Sequence[str | Path],
    run: Callable[[Path], list[dict[str, Any]]],
    *,
    column: str,
    how: Mapping[str, Any],
    **shared: Any,
) -> list[Job]:
    """List jobs on files of trained models: one a file, with one row for each name of ``how``, kept as ``column``.

    ``run`` gives a file's rows in that order. Rows hold the settings of the model, its name ``model`` as in rows of
    kind "training", how they were made, and what is ``shared``.
    Raises as :meth:`TrainedModel.load` does.
    """
    jobs = []
    for path in map(Path, models):
        config = TrainedModel.load(path).config
        settings = tuple(
            {**config.settings(), "model": model_name(config), column: name, "how": made, **shared}
            for name, made in how.items()
        )
        jobs.append(Job(kind, settings, partial(_rows_of_file, run, column, path), f"{kind} of {path.stem}"))
    return jobs


def _judge_file(
    path: Path, *, forms: Mapping[str, Approximator], n_scenes: int, device: str
) -> list[dict[str, Any]]:
    return judge_forms(TrainedModel.load(path, device=device), forms, n_scenes=n_scenes)


def _rows_of_file(
    run: Callable[[Path], list[dict[str, Any]]], column: str, path: Path
) -> list[dict[str, Any]]:
    # the store keeps the name among the settings
    return [{key: value for key, value in row.items() if key != column} for row in run(path)]


def _squares(x: Float[Tensor, "row dim"]) -> float:
    return float(x.square().sum())
