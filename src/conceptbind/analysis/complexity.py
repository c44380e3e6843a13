"""How complex is a binding function: approximators at growing coverage, judged on objects they never met (F6).

For every coverage and seed the objects are split; an approximator g(concept indices) -> embedding is fitted to the
scenes of training objects and judged on train, mixed and held-out scenes, by R² and by recognition: probes that were
fitted to the *real* embeddings, of all objects, are put to the approximator's embeddings. They are the ruler, and what
they read in the real embeddings is the ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from conceptbind.analysis.fixed_probes import FixedProbes, fit_fixed_probes
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS
from conceptbind.approximators.base import Approximation, Approximator, Task, make_task
from conceptbind.approximators.closed_form import Additive, ObjectTable, PairTable
from conceptbind.approximators.networks import Network
from conceptbind.approximators.products import ObjectProduct
from conceptbind.approximators.trees import BoostedTrees, RandomForest
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import Architecture
from conceptbind.kernels.training import Schedule
from conceptbind.presets import choose
from conceptbind.provenance import tensor_digest
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind, object_split
from conceptbind.sweeps import Job

KIND = "complexity"
PROTOCOL = 2
"""Part of the settings of every row: raised when a change makes other numbers of the same settings."""

KINDS = {SceneKind.TRAIN: "train", SceneKind.MIXED: "mixed", SceneKind.HELD_OUT: "held_out"}
"""How the columns of a row call the kinds of scenes."""

MAX_JUDGED = 4096
"""Scenes of each kind that a fit is judged on: all, or a seeded sample of so many."""

COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
WIDTHS = (64, 256, 1024, 4096)
DEPTHS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Sweep:
    """List the fits of one encoder; make it with :func:`sweep_of`."""

    coverages: tuple[float, ...]
    seeds: tuple[int, ...]
    approximators: tuple[Approximator, ...]
    """At every coverage."""
    slow: tuple[Approximator, ...] = ()
    """At the coverages ``slow_coverages`` only."""
    slow_coverages: tuple[float, ...] = ()


def sweep_of(preset: str) -> Sweep:
    """Give the sweep of a preset.

    "smoke": one coverage, a handful of small fits. "laptop": nine coverages, three seeds, closed forms, products,
    perceptrons of one hidden layer at all four widths and deeper ones of width 64 and 256; deeper ones of width 1024,
    transformers and trees at three coverages.
    "paper": all widths at all depths, five seeds, everything at all coverages; it is for a GPU.
    Raises ValueError for another preset.
    """
    closed = (Additive(position=False), Additive(), ObjectTable(), PairTable())
    products = (ObjectProduct(), ObjectProduct(head="none"))
    others = (Network(Architecture("decoder", 64, 2)), BoostedTrees(), RandomForest())
    wide = tuple(Network(Architecture("mlp", width)) for width in WIDTHS)
    deep = {
        width: tuple(Network(Architecture("mlp", width, depth)) for depth in DEPTHS[1:]) for width in WIDTHS
    }
    every = tuple(Network(Architecture("mlp", width, depth)) for width in WIDTHS for depth in DEPTHS)
    product = Network(Architecture("product", 64), Schedule(n_steps=300, rate=1e-2))
    few = (Additive(), ObjectTable(), ObjectProduct(ranks=(2,)), Network(Architecture("mlp", 16)))
    return choose(
        preset,
        {
            "smoke": Sweep((0.5,), (0,), few),
            "laptop": Sweep(
                COVERAGES,
                (0, 1, 2),
                (*closed, *products, product, *wide, *deep[64], *deep[256]),
                (*deep[1024], *others),
                (0.3, 0.6, 0.9),
            ),
            "paper": Sweep(COVERAGES, tuple(range(5)), (*closed, *products, product, *every, *others)),
        },
    )


def sweep_of_more_objects(preset: str) -> Sweep:
    """Give a sweep for some 64 objects, 4,096 scenes, where a rule can be told from a table.

    As :func:`sweep_of`, without fits that take minutes: perceptrons of width 256 and up to three hidden layers, at
    "laptop" the one of width 1024 at coverage .8 only, no transformer, no trees.
    Raises ValueError for another preset.
    """
    closed = (Additive(), ObjectTable(), ObjectProduct(), ObjectProduct(head="none"))
    narrow = tuple(Network(Architecture("mlp", 256, depth)) for depth in DEPTHS[:3])
    wide = (Network(Architecture("mlp", 1024)),)
    return choose(
        preset,
        {
            "smoke": sweep_of("smoke"),
            "laptop": Sweep(COVERAGES, (0, 1, 2), (*closed, *narrow), wide, (0.8,)),
            "paper": Sweep(COVERAGES, tuple(range(5)), (*closed, *narrow, *wide)),
        },
    )


@dataclass(frozen=True, eq=False)
class Subject:
    """Hold embeddings and the ruler that approximations of them are read with."""

    name: str
    """What tables and figures call it."""
    data: EmbeddingSet

    @cached_property
    def ruler(self) -> FixedProbes:
        """Probes on 40 % of the scenes, of all objects; one seed."""
        return fit_fixed_probes(self.data, seeds=(0,))

    @cached_property
    def digest(self) -> str:
        """Identify the embeddings and their scenes."""
        return tensor_digest({"embeddings": self.data.embeddings, "scenes": self.data.scenes})[:16]


def split_of(space: ConceptSpace, coverage: float, seed: int) -> ObjectSplit:
    """Draw the training objects; a small coverage may leave values that no training object shows."""
    return object_split(space, coverage, seed=seed, every_value=False)


def complexity_jobs(subject: Subject, sweep: Sweep) -> list[Job]:
    """List the fits of one encoder as jobs: all seeds of one approximator and coverage together.

    Coverages that leave no training or no held-out object, which a small space can have, are left out; so are tables of
    pairs in a space of two concepts, where they are tables of objects.
    """
    n_all = subject.data.space.n_possible_objects
    batches = {
        coverage: _batches(subject.data, coverage, sweep.seeds)
        for coverage in dict.fromkeys((*sweep.coverages, *sweep.slow_coverages))
        if 1 <= round(coverage * n_all) < n_all
    }
    jobs = []
    for approximator in (*sweep.approximators, *sweep.slow):
        if isinstance(approximator, PairTable) and subject.data.space.n_concepts < 3:
            continue
        for coverage in sweep.coverages if approximator in sweep.approximators else sweep.slow_coverages:
            for seeds in batches.get(coverage, ()):
                jobs.append(_job(subject, approximator, coverage, seeds))
    return jobs


def judge(subject: Subject, task: Task, fitted: Approximation, fit: int) -> dict[str, Any]:
    """Measure one fit on train, mixed and held-out scenes, beside the ceiling: a dictionary for a table.

    For each kind of scene: ``r2`` (around the mean of the judged scenes), ``concepts`` and ``objects`` recognised
    with the ends of their 95 % intervals, chance, and ``ceiling_...``: the same probes on the real embeddings of
    those judged scenes that they were not fitted to. ``unseen``: share of the scenes that show a value which no
    training object shows. ``effect``: root mean square change of the approximation when one value is replaced, in
    units of the root mean square distance of the embeddings from their mean; the finite-difference form of the norm
    of its Jacobian. None where there are no scenes.
    """
    split, data = task.splits[fit], subject.data
    kinds = split.kinds(data.scenes).cpu()
    shown = [torch.zeros(v, dtype=torch.bool) for v in data.space.n_values]
    for k, marks in enumerate(shown):
        marks[split.train_objects[:, k]] = True
    row: dict[str, Any] = {
        "n_parameters": int(fitted.n_parameters[fit]),
        "converged": bool(fitted.converged[fit]),
        "chosen": dict(fitted.details[fit]),
        "validated": task.validates,
    }
    for kind, name in KINDS.items():
        index = _sample((kinds == kind).nonzero().squeeze(1), task.seeds[fit], MAX_JUDGED)
        scenes = data.scenes[index].cpu()
        row |= {f"{key}_{name}": value for key, value in _read(subject, fitted, fit, index).items()}
        known = torch.stack([shown[k][scenes[..., k]] for k in range(data.space.n_concepts)], -1)
        row[f"unseen_{name}"] = float((~known.flatten(1).all(1)).double().mean()) if len(index) else None
        row[f"n_{name}"] = int((kinds == kind).sum())
    every = _sample(torch.arange(len(kinds)), task.seeds[fit], 256)
    row["effect"] = _effect(subject, fitted, fit, every, task.seeds[fit])
    return row


def _read(subject: Subject, fitted: Approximation, fit: int, index: Int[Tensor, "row"]) -> dict[str, Any]:
    names = ("r2", "concepts", "objects", "concepts_low", "concepts_high", "objects_low", "objects_high")
    row: dict[str, Any] = dict.fromkeys(
        (*names, "chance_objects", "ties_objects", "ceiling_concepts", "ceiling_objects")
    )
    if not len(index):
        return row
    z, scenes = subject.data.embeddings[index].double(), subject.data.scenes[index].cpu()
    predicted = fitted.predict(fit, scenes).to(z.device)  # trees predict on the CPU
    total = float((z - z.mean(0)).square().sum())
    row["r2"] = 1 - float((z - predicted.double()).square().sum()) / total if total > 0 else None
    found = subject.ruler.judge_seed(0, predicted, scenes)
    for name, head in (("concepts", ALL_CONCEPTS), ("objects", OBJECTS)):
        r = found[head]
        row |= {name: r.accuracy, f"{name}_low": r.low, f"{name}_high": r.high}
    row |= {"chance_objects": found[OBJECTS].chance, "ties_objects": found[OBJECTS].ties}
    new = index[~subject.ruler.train[0][index]]
    if len(new):
        real = subject.ruler.judge_seed(0, subject.data.embeddings[new], subject.data.scenes[new])
        row |= {"ceiling_concepts": real[ALL_CONCEPTS].accuracy, "ceiling_objects": real[OBJECTS].accuracy}
    return {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in row.items()}


def _effect(
    subject: Subject, fitted: Approximation, fit: int, index: Int[Tensor, "row"], seed: int
) -> float | None:
    data = subject.data
    scenes = data.scenes[index].cpu()
    generator = torch.Generator().manual_seed(seed)
    before = fitted.predict(fit, scenes).double()
    changes = []
    for slot in range(scenes.shape[1]):
        for k, size in enumerate(data.space.n_values):
            if size < 2:
                continue
            other = scenes.clone()
            step = torch.randint(1, size, (len(scenes),), generator=generator)
            other[:, slot, k] = (scenes[:, slot, k] + step) % size
            changes.append((fitted.predict(fit, other).double() - before).square().sum(1))
    z = data.embeddings[index].double()
    spread = float((z - z.mean(0)).square().sum(1).mean())
    return math.sqrt(float(torch.cat(changes).mean()) / spread) if changes and spread > 0 else None


def _job(subject: Subject, approximator: Approximator, coverage: float, seeds: Sequence[int]) -> Job:
    settings = tuple(
        {
            "subject": subject.name,
            "embeddings": subject.digest,
            "name": approximator.name,
            "coverage": coverage,
            "seed": seed,
            "protocol": PROTOCOL,
            "how": dict(approximator.settings),
        }
        for seed in seeds
    )

    # no closure: it can be sent to another process
    run = partial(_fit_and_judge, subject, approximator, coverage, seeds)
    return Job(KIND, settings, run, f"{subject.name}: {approximator.name}, coverage {coverage:.1f}")


def _fit_and_judge(
    subject: Subject, approximator: Approximator, coverage: float, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    data = subject.data
    task = make_task(data, [split_of(data.space, coverage, s) for s in seeds], seeds=seeds)
    fitted = approximator.fit(task)
    return [judge(subject, task, fitted, f) for f in range(task.n_fits)]


def _batches(data: EmbeddingSet, coverage: float, seeds: Iterable[int]) -> list[tuple[int, ...]]:
    """Group the seeds that are fitted together (see Task.batches); those without a training scene are left out."""
    splits = {seed: split_of(data.space, coverage, seed) for seed in seeds}
    usable = [s for s, split in splits.items() if bool((split.kinds(data.scenes) == SceneKind.TRAIN).any())]
    if not usable:
        return []
    task = make_task(data, [splits[s] for s in usable], seeds=usable)
    return [tuple(usable[f] for f in fits) for fits, _ in task.batches()]


def _sample(index: Int[Tensor, "row"], seed: int, n: int) -> Int[Tensor, "_row"]:
    if len(index) <= n:
        return index
    generator = torch.Generator().manual_seed(seed)
    return index[torch.randperm(len(index), generator=generator)[:n]].sort().values
