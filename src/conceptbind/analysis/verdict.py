"""The verdict on a binding function: bag of concepts, simple binding, memorised objects, or undetermined.

"No simple function fits" says something about an encoder only if a simple function would have been found, had there
been one. So the same procedure is run on *controls*: the encoder's own embeddings, in which the interactions within
objects are exchanged for a product of low rank and the same size, along directions drawn from their covariance. Concept
parts stay; the residuals, what is neither concept nor object, are dealt out anew to the scenes, as noise. The verdict
is

================== ===================================================================================================
bag of concepts    concepts are read in most scenes, objects are not, and interactions within objects are small
simple binding     objects are read in most scenes, and an approximator recovers most of them for held-out objects
memorised objects  objects are read in most scenes, no approximator recovers held-out ones, though most in every control
undetermined       anything else: for one, where a control is not recovered either
================== ===================================================================================================

Objects are read in the scenes that a bag confuses: those in which two objects could exchange a value and the scene
would be another. (In "red circle, red square" the bag of values says which objects are there.) Recovered is
(a - b) / (c - b) with a, b and c the recognition of held-out objects by the approximator, by the additive approximator
and in the real embeddings. The thresholds were fixed before any encoder was judged. That *every* control has to be
recovered is stricter than the first rule, more than half of them: by that one 2 of 120 planted binding functions, both
products of 8 x 3 objects under noise as large as the signal, were called memorised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from tqdm.auto import tqdm

from conceptbind.analysis.additive import AdditiveFit, fit_all
from conceptbind.analysis.complexity import Subject, judge, split_of
from conceptbind.analysis.interactions import without_main_effects
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS
from conceptbind.approximators.base import Approximator, make_task
from conceptbind.approximators.closed_form import Additive
from conceptbind.approximators.networks import Network
from conceptbind.approximators.products import ObjectProduct
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import Architecture
from conceptbind.kernels.products import multiply_factors
from conceptbind.sweeps import Job

Verdict = Literal["bag of concepts", "simple binding", "memorised objects", "undetermined"]

MOST = 0.5
"""Most scenes, and most of what can be recovered."""
LITTLE = 0.2
"""At most so much is recovered of memorised objects."""
SMALL = 0.05
"""Interactions within objects of a bag are at most this share of what concepts add."""
CONTROL_RANK = 4
"""The product in the controls: a simple function has at most so many factors."""
COVERAGE = 0.8
N_SEEDS = 6
"""Splits; the approximator is picked on the odd ones, judged on the even ones."""
N_CONTROLS = 3

KIND = "verdict"
PROTOCOL = 2
"""Part of the settings of every stored verdict: raised when a change may give another verdict."""

PRODUCTS: tuple[Approximator, ...] = (ObjectProduct(), ObjectProduct(head="none"))
"""For embeddings that are sums and products: a perceptron would not find what these do not."""
CANDIDATES: tuple[Approximator, ...] = (*PRODUCTS, Network(Architecture("mlp", 256)))


@dataclass(frozen=True)
class Recovery:
    """Hold how well held-out objects are recognised; means over the judging splits."""

    approximator: str
    objects: float
    additive: float
    """By the additive approximator."""
    ceiling: float
    """In the real embeddings."""
    train_r2: float
    """Of the approximator, on its training scenes."""
    converged: bool
    """In every split."""
    by_split: tuple[float, ...]
    """Recovered share in every judging split."""

    @property
    def recovered(self) -> float:
        """(objects - additive) / (ceiling - additive); 0 where there is nothing to recover."""
        return recovered_share(self.objects, self.additive, self.ceiling)


@dataclass(frozen=True)
class Judgement:
    """Hold the verdict and its evidence."""

    verdict: Verdict
    why: str
    """One sentence with the numbers that decided."""
    concepts: float
    """Scenes in which all concepts are read, by the ruler, in scenes it was not fitted to."""
    objects: float
    objects_low: float
    objects_high: float
    within: float
    """Size of the interactions within objects, as a share of what concepts add; corrected for noise."""
    recovery: Recovery
    controls: tuple[Recovery, ...]
    """Of planted products of rank ``CONTROL_RANK``."""

    @property
    def power(self) -> float:
        """Share of the controls in which most is recovered."""
        return fmean(c.recovered > MOST for c in self.controls) if self.controls else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Give everything for a table or JSON."""
        row = asdict(self)
        row["recovery"]["recovered"] = self.recovery.recovered
        for control, made in zip(row["controls"], self.controls, strict=True):
            control["recovered"] = made.recovered
        return {**row, "power": self.power}

    def as_row(self) -> dict[str, Any]:
        """Give the evidence as one flat row: lists hold one number a control."""
        recovery, controls = self.recovery, self.controls
        return {
            "verdict": self.verdict,
            "why": self.why,
            "concepts": self.concepts,
            "objects": self.objects,
            "objects_low": self.objects_low,
            "objects_high": self.objects_high,
            "within": self.within,
            "approximator": recovery.approximator,
            "recovered": recovery.recovered,
            "held_out": recovery.objects,
            "held_out_additive": recovery.additive,
            "held_out_ceiling": recovery.ceiling,
            "train_r2": recovery.train_r2,
            "converged": recovery.converged,
            "power": self.power if controls else None,
            "controls_recovered": [c.recovered for c in controls],
            "controls_ceiling": [c.ceiling for c in controls],
            "controls_converged": [c.converged for c in controls],
        }


def verdict(
    subject: Subject,
    *,
    coverage: float = COVERAGE,
    seeds: Sequence[int] = tuple(range(N_SEEDS)),
    n_controls: int = N_CONTROLS,
    candidates: Sequence[Approximator] = CANDIDATES,
    control_candidates: Sequence[Approximator] = PRODUCTS,
    progress: bool = False,
) -> Judgement:
    """Judge the binding function of an encoder; see the head of this module.

    ``seeds``: of the splits, at least two. Controls are only made where the verdict depends on them.
    ``progress``: a bar, one step a fit, for each set of embeddings that is fitted.
    Raises ValueError for fewer than two seeds, without candidates, for embeddings that are all equal, or when no scene
    has objects that could be confused.
    """
    if len(seeds) < 2 or not candidates or not control_candidates:
        raise ValueError(
            "a verdict needs at least two seeds, one to pick on and one to judge on, and candidates"
        )
    if bool((subject.data.embeddings == subject.data.embeddings[:1]).all()):
        raise ValueError(
            f"all {subject.data.n_scenes} embeddings are equal: there is no binding function to judge; check how they "
            "were computed"
        )
    unseen = ~subject.ruler.train
    real = subject.ruler.judge(subject.data.embeddings, subject.data.scenes)
    told_apart = unseen & confusable(subject.data.scenes)
    if not bool(told_apart.any()):
        raise ValueError(
            "no scene has two objects that differ in two concepts, so nothing tells a bag from objects: a verdict "
            "needs scenes of two objects or more, with two concepts or more"
        )
    concepts = real[ALL_CONCEPTS]
    objects = subject.ruler.judge(subject.data.embeddings, subject.data.scenes, told_apart)[OBJECTS]
    within = within_share(subject.data)
    found = recovery(subject, candidates, coverage=coverage, seeds=seeds, progress=progress)
    holds_objects = objects.low > MOST
    controls: tuple[Recovery, ...] = ()
    if holds_objects and found.recovered <= MOST:
        controls = tuple(
            recovery(
                Subject(f"control {i}", control(subject.data, rank=CONTROL_RANK, seed=i)),
                control_candidates,
                coverage=coverage,
                seeds=seeds,
                progress=progress,
            )
            for i in range(n_controls)
        )
    decided, why = decide(
        concepts=concepts.accuracy,
        objects=(objects.accuracy, objects.low, objects.high),
        within=within,
        recovered=found.recovered,
        converged=found.converged,
        controls=[c.recovered for c in controls],
    )
    return Judgement(
        decided,
        why,
        concepts.accuracy,
        objects.accuracy,
        objects.low,
        objects.high,
        within,
        found,
        controls,
    )


def verdict_job(subject: Subject, *, progress: bool = False) -> Job:
    """Give the verdict on an encoder, with the settings of this module, as a job: one row of evidence."""
    settings = {
        "subject": subject.name,
        "embeddings": subject.digest,
        "protocol": PROTOCOL,
        "coverage": COVERAGE,
        "n_splits": N_SEEDS,
        "n_controls": N_CONTROLS,
        "candidates": [dict(c.settings) for c in CANDIDATES],
    }
    return Job(
        KIND,
        (settings,),
        lambda: [verdict(subject, progress=progress).as_row()],
        f"verdict on {subject.name}",
    )


def decide(
    *,
    concepts: float,
    objects: tuple[float, float, float],
    within: float,
    recovered: float,
    converged: bool,
    controls: Sequence[float],
) -> tuple[Verdict, str]:
    """Give the verdict from the numbers: see the head of this module.

    ``objects``: share of scenes, and its interval.
    """
    share, low, high = objects
    if concepts <= MOST:
        return "undetermined", f"not even the concepts are read in most scenes ({concepts:.2f})"
    if high < MOST:
        if within <= SMALL:
            return (
                "bag of concepts",
                f"concepts are read in {concepts:.2f} of the scenes, objects in {share:.2f}, and interactions within "
                f"objects are {within:.3f} of what concepts add",
            )
        return (
            "undetermined",
            f"objects are read in only {share:.2f} of the scenes, though interactions within objects are {within:.2f} "
            "of what concepts add",
        )
    if low <= MOST:
        return "undetermined", f"objects are read in {share:.2f} of the scenes ({low:.2f} to {high:.2f})"
    if recovered > MOST:
        return "simple binding", f"an approximator recovers {recovered:.2f} of the held-out objects"
    found = sum(c > MOST for c in controls)
    tail = f"planted products were recovered in {found} of {len(controls)} controls"
    if recovered > LITTLE:
        return (
            "undetermined",
            f"{recovered:.2f} of the held-out objects are recovered, neither most nor little; {tail}",
        )
    if not converged:
        return "undetermined", "the approximator did not converge"
    if not controls or found < len(controls):
        return (
            "undetermined",
            f"{recovered:.2f} of the held-out objects are recovered, but a simple function might not be found either: "
            f"{tail}",
        )
    return "memorised objects", f"only {recovered:.2f} of the held-out objects are recovered, while {tail}"


def recovery(
    subject: Subject,
    candidates: Sequence[Approximator],
    *,
    coverage: float,
    seeds: Sequence[int],
    progress: bool = False,
) -> Recovery:
    """Fit the candidates and the additive approximator, pick on every other split, judge on the rest.

    Picked is the candidate that recognises most held-out objects in the splits of the second, fourth, ... seed; among
    equals one that converged, and that fits its training scenes best. The numbers are of the other splits. Splits
    without a scene of held-out objects only do not count.
    Raises ValueError when fewer than two are left.
    """
    space = subject.data.space
    tasks = [make_task(subject.data, [split_of(space, coverage, seed)], seeds=[seed]) for seed in seeds]
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    with tqdm(total=(1 + len(candidates)) * len(tasks), unit=" fits", disable=not progress) as bar:
        for approximator in (Additive(), *candidates):
            bar.set_description(f"{subject.name}: {approximator.name}")
            rows = by_name.setdefault(approximator.name, [])
            for task in tasks:
                rows.append(judge(subject, task, approximator.fit(task), 0))
                bar.update()
    # Which splits have held-out scenes is up to the scenes, not the approximator.
    usable = [i for i, r in enumerate(by_name[Additive().name]) if r["objects_held_out"] is not None]
    if len(usable) < 2:
        raise ValueError(
            f"only {len(usable)} of {len(seeds)} splits at coverage {coverage} have scenes of held-out objects only: "
            "use a smaller coverage, more seeds or more scenes"
        )
    by_name = {name: [rows[i] for i in usable] for name, rows in by_name.items()}
    additive = by_name[Additive().name]
    # Held-out scenes that the ruler was not fitted to can be missing where there are few: then there is no ceiling.
    ceilings = [r["ceiling_objects_held_out"] for r in additive[::2]]
    known = [c for c in ceilings if c is not None]
    ceiling = fmean(known) if known else 1.0
    names = [a.name for a in candidates]

    def merit(name: str) -> tuple[float, bool, float]:
        of_picking = by_name[name][1::2]
        return (
            fmean(r["objects_held_out"] for r in of_picking),
            all(r["converged"] for r in by_name[name]),
            fmean(r["r2_train"] for r in of_picking),
        )

    picked = max(names, key=merit)
    judged, plain = by_name[picked][::2], additive[::2]
    return Recovery(
        picked,
        fmean(r["objects_held_out"] for r in judged),
        fmean(r["objects_held_out"] for r in plain),
        ceiling,
        fmean(r["r2_train"] for r in judged),
        all(r["converged"] for r in judged),
        tuple(
            recovered_share(r["objects_held_out"], p["objects_held_out"], ceiling)
            for r, p in zip(judged, plain, strict=True)
        ),
    )


def recovered_share(objects: float, additive: float, ceiling: float) -> float:
    """Give (objects - additive) / (ceiling - additive); 0 where the ceiling is no higher than the additive."""
    return (objects - additive) / (ceiling - additive) if ceiling > additive else 0.0


def confusable(scenes: Int[Tensor, "scene slot concept"]) -> Bool[Tensor, "scene"]:
    """Mark the scenes with two objects that differ in at least two concepts: a bag cannot tell who has which."""
    marks = torch.zeros(len(scenes), dtype=torch.bool, device=scenes.device)
    for i in range(scenes.shape[1]):
        for j in range(i):
            marks |= (scenes[:, i] != scenes[:, j]).sum(1) >= 2
    return marks


def within_share(data: EmbeddingSet) -> float:
    """Give the size of the interactions within objects over that of the concepts' sums, corrected for noise.

    Both from additive fits with positions; what the object parts leave is the noise, and its share in a sum of squares
    is its mean square times the degrees of freedom. On a full grid this is the quotient of the two ANOVA shares.
    """
    objects, concepts = _both_levels(data)
    spare = data.n_scenes - objects.rank
    noise = (1 - objects.r2) / spare if spare > 0 else 0.0
    main = concepts.r2 - (concepts.rank - 1) * noise
    inside = objects.r2 - concepts.r2 - (objects.rank - concepts.rank) * noise
    return inside / main if main > 0 else torch.inf


def control(data: EmbeddingSet, *, rank: int, seed: int) -> EmbeddingSet:
    """Exchange the interactions within objects for a product of low rank, and shuffle the residuals.

    z = concepts + interactions + residual, by additive fits to all scenes. The new interactions of slot i are
    (v_1 * ... * v_K) C with random signs times numbers between .5 and 1.5 in v, rows of C drawn from the covariance of
    the old ones, freed of main effects and scaled to the old sum of squares in each slot. Residuals are moved to other
    scenes at random, so that none belongs to its objects.
    """
    generator = torch.Generator().manual_seed(seed)
    space, scenes = data.space, data.scenes
    by_object, by_concept = _both_levels(data)
    index = space.object_index(scenes)
    old = (by_object.parts - by_concept.object_parts()) * by_object.shown.unsqueeze(2)
    factors = []
    for size in space.n_values:
        sign = torch.randint(2, (size, rank), generator=generator) * 2 - 1
        factors.append((sign * (torch.rand(size, rank, generator=generator) + 0.5)).double())
    product = multiply_factors(factors, space.all_objects())
    rows = old.flatten(0, 1)
    mixed = torch.randn(rank, len(rows), generator=generator, dtype=torch.float64) @ rows
    new = without_main_effects(space, product @ mixed)
    residual = data.embeddings.double() - by_object.predict(scenes)
    total = by_concept.predict(scenes) + residual[torch.randperm(len(scenes), generator=generator)]
    for slot in range(scenes.shape[1]):
        size = float(old[slot].square().sum() / new.square().sum().clamp(min=1e-300)) ** 0.5
        total += size * new[index[:, slot]]
    return EmbeddingSet(total.float(), scenes, space)


def _both_levels(data: EmbeddingSet) -> tuple[AdditiveFit, AdditiveFit]:
    fits = fit_all(data, estimators=("avg+pos",))
    return fits["objects", "avg+pos"], fits["concepts", "avg+pos"]
