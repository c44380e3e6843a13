"""Targeted removal: take the parts of a scene out of its embedding and probe what is left (paper, section 2, F4).

With the additive fits of :mod:`conceptbind.analysis.additive`, z_s the embedding of scene s and P(s) the sum of some
of its parts, what is left is z_s - P(s). The *removals*:

==================================  =========================================================================
``original``                        P = 0
``concept parts``                   Level II: sum_i sum_k u_{c_ik}
``object parts``                    Level I: sum_i u_{o_i}
``colour parts`` (any concept)      the terms of this concept in the Level II fit
``permuted concept parts``          control: every value's part under a wrong name, the same everywhere
``permuted object parts``           control: every object's part under a wrong name, the same everywhere
``another scene's concept parts``   control: P(s') of another scene, drawn at random
``another scene's object parts``    control: P(s') of another scene, drawn at random
==================================  =========================================================================

Readers of what is left:

``retrained``         linear probes fitted to what is left of the training scenes
``unchanged``         the probes that were fitted to the original embeddings, applied to what is left
``shuffled labels``   as ``retrained``, fitted to the labels of other scenes
``through objects``   a value scores as much as the best object that has it, by the retrained object probe: a reader of
                      concepts that is not linear

What must come out, whatever the encoder. A linear probe sees its labels only through the moments
X'Y = sum_s z_s y_s' of the training scenes. The normal equations of the least-squares parts say that, once they are
removed, the moments of the same scenes and labels are zero. A retrained linear probe then ends with zero weights and
ranks the answers alike for every scene: it knows their frequencies, and is at chance. Object parts span concept parts,
so removing them does this to both. That a removal *destroys* linear decoding is so by construction; that it *leaves*
something (objects without concept parts) is not.

``fit_on="train"``, the default, fits parts on the training scenes of the probe, where this holds exactly, and no
label of a test scene is used. With ``fit_on="all"`` the moments of *all* scenes vanish, so those of the training scenes
are exactly opposite to those of the test scenes, and so are the summed scores of any linear probe: what it gains on the
ones it loses on the others. A retrained probe then falls below chance on planted embeddings. It need not: recognition
counts scenes, and where a few lose by very much, many others can win.

The two controls differ. Where a wrong name is the same everywhere, what is left is still a fixed vector for every value
(or object) shown, and a retrained probe can undo the change. Another scene's parts are not a function of the scene:
where the two scenes share a value its part cancels, and a linear probe of it has nothing left to read; the rest is
noise. A wrong name for a whole object is no harmless control either: it subtracts from "red circle" the part of, say,
"blue star", which does not split into a part for red and one for circle, and so it can *add* binding to a bag of
concepts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.additive import PREDICT_ROWS, AdditiveFit, Estimator, fit_all, part_groups
from conceptbind.analysis.probing import ALL_CONCEPTS, L2_GRID, OBJECTS, SHUFFLE_SALT, Embedded, select_l2
from conceptbind.analysis.recognition import (
    Recognition,
    chance_by_head,
    head_labels,
    heads,
    margins_by_head,
    plain_row,
    present,
    summarise,
)
from conceptbind.kernels.probes import LinearProbes, fit_probes
from conceptbind.scenes import ConceptSpace, scene_split

FitOn = Literal["train", "all"]

ORIGINAL = "original"
CONCEPT_PARTS, OBJECT_PARTS = "concept parts", "object parts"
PERMUTED_CONCEPT_PARTS, PERMUTED_OBJECT_PARTS = "permuted concept parts", "permuted object parts"
OTHER_CONCEPT_PARTS, OTHER_OBJECT_PARTS = "another scene's concept parts", "another scene's object parts"
REMOVALS = (
    ORIGINAL,
    CONCEPT_PARTS,
    OBJECT_PARTS,
    PERMUTED_CONCEPT_PARTS,
    PERMUTED_OBJECT_PARTS,
    OTHER_CONCEPT_PARTS,
    OTHER_OBJECT_PARTS,
)
"""The rows of the table, in order; the names of :func:`one_concept` come besides."""

RETRAINED, UNCHANGED, SHUFFLED, THROUGH_OBJECTS = (
    "retrained",
    "unchanged",
    "shuffled labels",
    "through objects",
)

PARTNER_SALT = 0x0DD5
"""Added to the seed that draws another scene, so that it does not depend on the split."""

ROUNDING = 8 * torch.finfo(torch.float32).eps
"""What varies by less than this share of the largest coordinate is rounding of float32 embeddings, no signal."""


@dataclass(frozen=True)
class Reading:
    """Hold one accuracy on test scenes, with all that belongs beside it. Means are over seeds."""

    removal: str
    reader: str
    head: str
    """A concept's name, "all concepts" (all of a scene's at once) or "objects"."""
    accuracy: float
    low: float
    high: float
    """The 95 % interval: means over seeds of the ends of each seed's own, as seeds share scenes."""
    by_seed: tuple[float, ...]
    chance: float
    ties: float
    n_scenes: float
    """Test scenes counted."""
    n_vacuous: float
    """Test scenes left out of this head because nothing is absent from them."""


@dataclass(frozen=True)
class Removed:
    """Say how much a removal took. Means over seeds of the test scenes' sums of squares around their mean."""

    removal: str
    subtracted: float
    """Of what was subtracted, as a share of the original's."""
    left: float
    """Of what is left, as a share of the original's; above 1 where subtracting added something."""
    n_left_out: float
    """Test scenes not judged: they show a part that the fitted scenes do not show in every slot."""


@dataclass(frozen=True)
class RemovalResult:
    """Hold what :func:`removal` measured."""

    readings: tuple[Reading, ...]
    removed: tuple[Removed, ...]
    settings: dict[str, Any]

    def reading(self, removal: str, head: str, *, reader: str = RETRAINED) -> Reading:
        """Give one number. Raises KeyError, naming what there is, when it was not measured."""
        for row in self.readings:
            if (row.removal, row.reader, row.head) == (removal, reader, head):
                return row
        known = [
            list(dict.fromkeys(getattr(r, f) for r in self.readings)) for f in ("removal", "reader", "head")
        ]
        raise KeyError(
            f"no reading {(removal, reader, head)}; there are the removals, readers and heads {known}"
        )

    def of(self, removal: str) -> Removed:
        """Say how much a removal took. Raises KeyError, naming the removals there are, when it was not measured."""
        for row in self.removed:
            if row.removal == removal:
                return row
        raise KeyError(f"no removal {removal!r}; there are {[r.removal for r in self.removed]}")

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give the readings as dictionaries for a table or JSON: NaN becomes None."""
        return [plain_row(row) for row in self.readings]

    def __str__(self) -> str:
        """Print concept and object recognition of the retrained probes, as the paper's table does."""
        lines = [f"{'removed':32s} concepts  objects  share left"]
        for row in self.removed:
            c, o = (self.reading(row.removal, head).accuracy for head in (ALL_CONCEPTS, OBJECTS))
            lines.append(f"{row.removal:32s} {c:8.3f} {o:8.3f} {row.left:11.3f}")
        return "\n".join(lines)


def one_concept(concept: str) -> str:
    """Name the removal of one concept's parts: ``one_concept("colour")`` is "colour parts"."""
    return f"{concept} parts"


def removal(
    data: Embedded,
    *,
    removals: Sequence[str] = REMOVALS,
    estimator: Estimator = "avg+pos",
    fit_on: FitOn = "train",
    singles: Sequence[Embedded] | None = None,
    strength: float = 1.0,
    train_fraction: float = 0.4,
    seeds: Sequence[int] = (0, 1, 2),
    controls: bool = True,
    grid: Sequence[float] = L2_GRID,
    tol: float = 1e-3,
) -> RemovalResult:
    """Remove parts from every scene, and judge on test scenes what probes can still read.

    ``removals``: among the names at the top of this module; ``original`` is always measured, first, since its probes
    are the ``unchanged`` ones. ``fit_on``: the scenes that parts are fitted on, see there. ``estimator``, ``singles``:
    see :func:`conceptbind.analysis.additive.fit_all`. ``strength``: multiplies what is subtracted.
    ``train_fraction``, ``seeds``: every seed splits the scenes, and draws the controls. ``controls``: also fit to
    shuffled labels. ``grid``: penalties to choose from, for every removal, seed and head, by validation on training
    scenes. Test scenes with a part that the fitted scenes do not show in every slot are not judged, and counted;
    training scenes are left out for that reason only where the parts were not fitted on them. Computed where the
    embeddings are.
    Raises ValueError for an unknown removal or fit_on, a concept named "concept" or "object", fewer than two scenes on
    a side, a part to permute without a partner, or when no test scene can be judged.
    """
    names = _checked_names(data.space, removals)
    if fit_on not in ("train", "all"):
        raise ValueError(f"fit_on must be 'train' or 'all'; got {fit_on!r}")
    if not len(seeds):
        raise ValueError("seeds is empty: give at least one")
    data = _Rows(data.embeddings, data.scenes.to(data.embeddings.device), data.space)
    readings: dict[tuple[str, str, str], list[Recognition]] = {}
    shares: dict[str, list[tuple[float, float, int]]] = {name: [] for name in names}
    for seed in seeds:
        train = scene_split(len(data.scenes), train_fraction=train_fraction, seed=seed).to(
            data.embeddings.device
        )
        fits = _fit(data, names, estimator, None if fit_on == "all" else train, singles)
        fitted_here = fit_on == "train" and estimator != "single"
        train, test, n_left_out = _sides(data.scenes, train, fits, keep_train=fitted_here)
        kinds = {RETRAINED: data.scenes}
        if controls:
            generator = torch.Generator().manual_seed(seed + SHUFFLE_SALT)
            kinds[SHUFFLED] = data.scenes[torch.randperm(len(data.scenes), generator=generator)]
        whole = _sum_of_squares(data.embeddings[test])
        unchanged: LinearProbes | None = None
        for name in names:
            x, taken = data.embeddings, 0.0
            if name != ORIGINAL:
                x = _left_after(data, name, fits, train | test, strength, seed)
                taken = _sum_of_squares(data.embeddings[test] - x[test])
            parts_of_whole = [s / whole if whole > 0 else math.nan for s in (taken, _sum_of_squares(x[test]))]
            shares[name].append((*parts_of_whole, n_left_out))
            probes = _fit_probes(x, data.space, list(kinds.values()), train, seed, grid, tol)
            unchanged = probes if unchanged is None else unchanged
            for key, found in _read(x, data.space, kinds, test, probes, unchanged).items():
                readings.setdefault((name, *key), []).append(found)
    settings = {
        "estimator": estimator,
        "fit_on": fit_on,
        "strength": strength,
        "train_fraction": train_fraction,
        "seeds": list(seeds),
        "grid": list(grid),
        "tol": tol,
    }
    return RemovalResult(
        readings=tuple(_reading(*key, found) for key, found in readings.items()),
        removed=tuple(
            Removed(name, *(_mean(column) for column in zip(*rows, strict=True)))
            for name, rows in shares.items()
        ),
        settings=settings,
    )


def left_after(
    data: Embedded,
    fit: AdditiveFit,
    *,
    shown: Int[Tensor, "scene slot concept"] | None = None,
    strength: float = 1.0,
) -> Float[Tensor, "scene dim"]:
    """Subtract from every embedding the parts of its own scene, or of the scenes ``shown`` in their place. float32.

    The mean stays. A dimension in which nothing but float32 rounding is left is made constant, so that no probe
    reads rounding. Raises ValueError as :meth:`AdditiveFit.contribution` does, or when lengths differ.
    """
    shown = data.scenes if shown is None else shown
    if len(shown) != len(data.scenes):
        raise ValueError(
            f"{len(data.scenes)} embeddings but {len(shown)} scenes whose parts to subtract: give one each"
        )
    left = torch.empty_like(data.embeddings)
    for low in range(0, len(shown), PREDICT_ROWS):
        rows = slice(low, low + PREDICT_ROWS)
        left[rows] = (data.embeddings[rows].double() - strength * fit.contribution(shown[rows])).to(
            left.dtype
        )
    constant = left.amax(0) - left.amin(0) <= ROUNDING * data.embeddings.abs().amax(0)
    left[:, constant] = left[:1, constant]
    return left


def only_concept(fit: AdditiveFit, concept: str) -> AdditiveFit:
    """Keep the parts of one concept of a Level II fit; those of the others become zero.

    Raises ValueError for a Level I fit or an unknown concept.
    """
    if fit.level != "concepts":
        raise ValueError(
            "parts of one concept need a fit with level='concepts'; this one has level='objects'"
        )
    if concept not in fit.space.concepts:
        raise ValueError(f"there is no concept {concept!r}; there are {fit.space.concepts}")
    group = part_groups(fit.space, "concepts")[fit.space.concepts.index(concept)]
    parts = torch.zeros_like(fit.parts)
    parts[:, group] = fit.parts[:, group]
    return replace(fit, parts=parts, r2=math.nan)


def another_scene(n_scenes: int, *, seed: int) -> Int[Tensor, "scene"]:
    """Give every scene another one, along one random cycle: a permutation that leaves none where it is.

    Raises ValueError for fewer than 2 scenes.
    """
    if n_scenes < 2:
        raise ValueError(f"another scene needs at least 2 scenes; got {n_scenes}")
    cycle = torch.randperm(n_scenes, generator=torch.Generator().manual_seed(seed + PARTNER_SALT))
    partner = torch.empty_like(cycle)
    partner[cycle] = cycle.roll(1)
    return partner


def through_objects(
    space: ConceptSpace, scores: Float[Tensor, "scene query"]
) -> Float[Tensor, "scene query"]:
    """Score every value by the best object that has it: max over the objects with c_k = v. Objects stay as they are.

    Where the objects of a scene are recognised, so are its concepts: an absent value belongs to absent objects only.
    """
    objects = scores[:, heads(space)[-1]].reshape(len(scores), *space.n_values)
    axes = range(1, space.n_concepts + 1)
    values = [
        objects.amax([a for a in axes if a != k + 1]) if space.n_concepts > 1 else objects
        for k in range(space.n_concepts)
    ]
    return torch.cat([*values, scores[:, heads(space)[-1]]], dim=1)


def recognise_heads(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], scores: Float[Tensor, "scene query"]
) -> dict[str, Recognition]:
    """Give the recognition of every concept, of all concepts at once, and of objects; ``scores`` as of a probe."""
    marks = present(space, scenes)
    margins, chance = margins_by_head(space, scores, marks), chance_by_head(space, marks)
    every = margins[:-1].amin(0), chance[:-1].prod(0)
    by_head = dict(zip(space.concepts, zip(margins[:-1], chance[:-1], strict=True), strict=True))
    by_head |= {ALL_CONCEPTS: every, OBJECTS: (margins[-1], chance[-1])}
    return {head: summarise(*of_head) for head, of_head in by_head.items()}


def _checked_names(space: ConceptSpace, removals: Sequence[str]) -> list[str]:
    reserved = {"concept", "object", OBJECTS, ALL_CONCEPTS}.intersection(space.concepts)
    if reserved:
        raise ValueError(
            f"concepts {space.concepts}: {sorted(reserved)} are words of the table; rename the concept"
        )
    known = (*REMOVALS, *map(one_concept, space.concepts))
    for name in removals:
        if name not in known:
            raise ValueError(f"removals must be among {', '.join(map(repr, known))}; got {name!r}")
    return list(dict.fromkeys([ORIGINAL, *removals]))


def _fit(
    data: Embedded,
    names: Sequence[str],
    estimator: Estimator,
    train: Bool[Tensor, "scene"] | None,
    singles: Sequence[Embedded] | None,
) -> dict[str, AdditiveFit]:
    """Fit the levels that the removals need."""
    levels = list(dict.fromkeys(_level(name) for name in names if name != ORIGINAL))
    if not levels:
        return {}
    fits = fit_all(data, levels=levels, estimators=(estimator,), train=train, singles=singles)
    return {level: fits[level, estimator] for level in levels}


def _level(name: str) -> Literal["objects", "concepts"]:
    return "objects" if name in (OBJECT_PARTS, PERMUTED_OBJECT_PARTS, OTHER_OBJECT_PARTS) else "concepts"


def _in_every_slot(fit: AdditiveFit) -> AdditiveFit:
    """Count a part as shown only where every slot shows it: the others cannot be permuted."""
    return replace(fit, shown=fit.shown.all(0, keepdim=True).expand_as(fit.shown))


def _sides(
    scenes: Int[Tensor, "scene slot concept"],
    train: Bool[Tensor, "scene"],
    fits: dict[str, AdditiveFit],
    *,
    keep_train: bool,
) -> tuple[Bool[Tensor, "scene"], Bool[Tensor, "scene"], int]:
    """Give the training and the test scenes whose parts can be removed, and how many test scenes are left out."""
    usable = torch.ones_like(train)
    for fit in fits.values():
        usable &= _in_every_slot(fit).covers(scenes)
    # Where the parts were fitted on the training scenes, all are covered, and dropping some would break the normal
    # equations.
    kept, test = (train if keep_train else train & usable), ~train & usable
    if int(kept.sum()) < 2 or int(test.sum()) < 2:
        raise ValueError(
            f"{int(kept.sum())} training and {int(test.sum())} test scenes have all their parts in the fit, and 2 "
            "are needed: fit on more scenes (train_fraction, fit_on='all') or remove concept parts only"
        )
    return kept, test, int((~train & ~usable).sum())


def _left_after(
    data: Embedded,
    name: str,
    fits: dict[str, AdditiveFit],
    usable: Bool[Tensor, "scene"],
    strength: float,
    seed: int,
) -> Float[Tensor, "scene dim"]:
    """Give what a removal leaves; scenes that are not usable stay as they are."""
    fit = fits[_level(name)]
    if name in (PERMUTED_CONCEPT_PARTS, PERMUTED_OBJECT_PARTS):
        fit = fit.permuted(seed=seed)
    elif name not in REMOVALS:
        fit = only_concept(fit, name.removesuffix(" parts"))
    rows = usable.nonzero().squeeze(1)
    some = _Rows(data.embeddings[rows], data.scenes[rows], data.space)
    shown = some.scenes
    if name in (OTHER_CONCEPT_PARTS, OTHER_OBJECT_PARTS):
        shown = shown[another_scene(len(rows), seed=seed)]
    left = data.embeddings.clone()
    left[rows] = left_after(some, fit, shown=shown, strength=strength)
    return left


@dataclass(frozen=True)
class _Rows:
    """Hold scenes of a set, without its provenance, on the device of the embeddings."""

    embeddings: Tensor
    scenes: Tensor
    space: ConceptSpace


def _fit_probes(
    x: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    kinds: Sequence[Int[Tensor, "scene slot concept"]],
    train: Bool[Tensor, "scene"],
    seed: int,
    grid: Sequence[float],
    tol: float,
) -> LinearProbes:
    """Fit one probe for every kind of labels, all with the penalties that suit the first."""
    masks = train.unsqueeze(0)
    sizes = tuple(h.stop - h.start for h in heads(space))
    labels = torch.stack([head_labels(space, scenes) for scenes in kinds])
    if _nothing_to_find(x[train], labels[0, train], sizes):
        # The optimum has zero weights at any penalty; validating would take long, as every fold has moments of its own.
        l2 = torch.full((1, len(sizes)), max(grid), dtype=torch.float64, device=x.device)
    else:
        l2 = select_l2(x, space, kinds[0], masks, seeds=(seed,), grid=grid, tol=tol)
    return fit_probes(x, labels, sizes, masks.repeat(len(kinds), 1), l2=l2.repeat(len(kinds), 1), tol=tol)


def _nothing_to_find(
    x: Float[Tensor, "scene dim"], labels: Int[Tensor, "scene slot head"], sizes: Sequence[int]
) -> bool:
    """Say whether no dimension correlates with how often a scene shows any value or object, beyond rounding."""
    for k, size in enumerate(sizes):
        counts = torch.zeros(len(x), size, dtype=torch.float64, device=x.device)
        counts.scatter_add_(1, labels[:, :, k], torch.ones_like(labels[:, :, k], dtype=torch.float64))
        a, b = (m - m.mean(0) for m in (x.double(), counts))
        a, b = (m / m.norm(dim=0).clamp(min=torch.finfo(m.dtype).tiny) for m in (a, b))
        if float((a.T @ b).abs().max()) > 1e-4:
            return False
    return True


def _read(
    x: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    kinds: dict[str, Int[Tensor, "scene slot concept"]],
    test: Bool[Tensor, "scene"],
    probes: LinearProbes,
    unchanged: LinearProbes,
) -> dict[tuple[str, str], Recognition]:
    """Judge every reader and head on the test scenes. ``probes``: one fit for each kind of labels."""
    scenes = kinds[RETRAINED][test]
    scores = dict(zip(kinds, probes.scores(x[test]), strict=True))
    found = {
        (reader, head): row
        for reader, of_reader in {**scores, UNCHANGED: unchanged.scores(x[test])[0]}.items()
        for head, row in recognise_heads(
            space, kinds[reader][test] if reader in kinds else scenes, of_reader
        ).items()
    }
    through = recognise_heads(space, scenes, through_objects(space, scores[RETRAINED]))
    return found | {(THROUGH_OBJECTS, head): row for head, row in through.items() if head != OBJECTS}


def _reading(removal: str, reader: str, head: str, found: Sequence[Recognition]) -> Reading:
    means = {
        field: _mean([getattr(f, field) for f in found])
        for field in ("accuracy", "low", "high", "chance", "ties", "n_scenes", "n_vacuous")
    }
    return Reading(
        removal=removal, reader=reader, head=head, by_seed=tuple(f.accuracy for f in found), **means
    )


def _sum_of_squares(x: Float[Tensor, "scene dim"]) -> float:
    """Sum the squared distances to the mean, in blocks."""
    mean = x.mean(0, dtype=torch.float64)
    return sum(float((block.double() - mean).square().sum()) for block in x.split(PREDICT_ROWS))


def _mean(values: Sequence[float | int]) -> float:
    return sum(values) / len(values)
