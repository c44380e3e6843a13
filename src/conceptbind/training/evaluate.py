"""Judge a model on train, mixed and held-out scenes, against all objects as queries.

=============  ===============================================================================  ====================
measure        a scene counts when, strictly,                                                   chance
=============  ===============================================================================  ====================
concepts       every value in it scores above every value not in it, for all concepts           prod_k 1 / C(V_k, p_k)
objects        every object in it scores above every other possible object                      1 / C(|O|, p)
swap           every object in it scores above all objects with two values exchanged            1 / C(p + s, p)
swap alike     the same, only of scenes where every exchange leaves as many training objects    1 / C(p + s, p)
sampled        every object in it scores above the exchanged ones and a sample of objects that  1 / C(p + q, p)
               occur in scenes of its kind: about what the released code reports
caption        (form "clip") its caption scores above all captions with two values exchanged    1 / (1 + s)
=============  ===============================================================================  ====================

p different objects (values) are in the scene; s exchanged objects (captions) and q others are not. Scores are cosines.
A query encoder may learn which objects there are: then even a scene encoder that is blind to binding prefers training
objects to exchanged ones that are held out. "Swap alike" leaves no room for that.
A margin within rounding of zero is a tie and does not count (see analysis/recognition).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from conceptbind.analysis.recognition import (
    TIE_ULPS,
    Recognition,
    chance_level,
    scene_margins,
    summarise,
)
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind
from conceptbind.training.config import Repeats
from conceptbind.training.judged import judged_scenes, pairs_of, swapped_objects, swapped_scenes
from conceptbind.training.run import TrainedModel

KINDS = {SceneKind.TRAIN: "train", SceneKind.MIXED: "mixed", SceneKind.HELD_OUT: "held_out"}
MEASURES = ("concepts", "objects", "swap", "swap alike", "sampled", "caption")
N_SCENES = 4096
N_SAMPLED = 64
MAX_SCORES = 2**24
"""Scores that are in memory at a time."""


@runtime_checkable
class Encoders(Protocol):
    """What is judged: a scene encoder and a query encoder."""

    def scenes(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes."""

    def objects(self, index: Int[Tensor, "object"]) -> Float[Tensor, "object dim"]:
        """Embed objects, by object index, as queries."""

    def values(self) -> Float[Tensor, "value dim"]:
        """Embed the values of concept 1, ..., of concept K, as queries."""

    def captions(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"] | None:
        """Embed captions of scenes; None where there are none."""


@dataclass(frozen=True)
class Evaluation:
    """Hold the recognition of every measure and kind of scene; None where there are no such scenes or captions."""

    found: Mapping[tuple[str, SceneKind], Recognition | None]

    def of(self, measure: str, kind: SceneKind) -> Recognition | None:
        """Give one of them. Raises ValueError for a measure that does not exist."""
        if measure not in MEASURES:
            raise ValueError(f"measure is one of {', '.join(MEASURES)}; got {measure!r}")
        return self.found[measure, kind]

    def row(self) -> dict[str, Any]:
        """Give all as a row of a table: ``objects_held_out``, with ``_low``, ``_high``, ``_chance``, ``_ties``, ``_n``.

        ``_low`` and ``_high`` are the ends of the 95 % interval over objects, ``_n`` is the number of scenes counted.
        """
        row: dict[str, Any] = {}
        for measure in MEASURES:
            for kind, name in KINDS.items():
                r, key = self.found[measure, kind], f"{measure.replace(' ', '_')}_{name}"
                values = (None,) * 5 if r is None else (r.accuracy, r.low, r.high, r.chance, r.ties)
                for suffix, value in zip(("", "_low", "_high", "_chance", "_ties"), values, strict=True):
                    row[key + suffix] = None if value is None or math.isnan(value) else value
                row[f"{key}_n"] = 0 if r is None else r.n_scenes
        return row


def evaluate(model: TrainedModel, *, n_scenes: int = N_SCENES, seed: int = 0) -> Evaluation:
    """Judge a trained model; arguments as in :func:`evaluate_encoders`."""
    c = model.config
    return evaluate_encoders(
        model, c.split, n_objects=c.n_objects, repeats=c.repeats, n_scenes=n_scenes, seed=seed
    )


@torch.no_grad()
def evaluate_encoders(
    encoders: Encoders,
    split: ObjectSplit,
    *,
    n_objects: int,
    repeats: Repeats = "distinct objects",
    n_scenes: int = N_SCENES,
    n_sampled: int = N_SAMPLED,
    seed: int = 0,
) -> Evaluation:
    """Judge two encoders on all scenes of every kind, or on ``n_scenes`` of a kind, drawn from ``seed``.

    ``n_sampled``: objects of the measure "sampled". Memory does not grow with the number of possible objects, beside
    a few numbers for each.
    """
    scenes_of = {
        kind: judged_scenes(split, kind, n_objects, n_scenes, seed=seed, repeats=repeats) for kind in KINDS
    }
    found: dict[tuple[str, SceneKind], Recognition | None] = {
        (measure, kind): None for measure in MEASURES for kind in KINDS
    }
    kinds = [kind for kind, scenes in scenes_of.items() if len(scenes)]
    scenes = torch.cat([scenes_of[kind] for kind in kinds])
    rows = dict(zip(kinds, _consecutive([len(scenes_of[k]) for k in kinds]), strict=True))
    margins = _margins(encoders, split, scenes, rows, n_sampled, seed)
    index = split.space.object_index(scenes)
    for kind, some in rows.items():
        for measure, (margin, chance) in margins.items():
            counted = index[some][margin[some] != math.inf]
            # with a single object a bootstrap over objects cannot be
            shared = index[some] if len(counted.unique()) > 1 else None
            found[measure, kind] = summarise(margin[some], chance[some], objects=shared, seed=seed)
    return Evaluation(found)


def _margins(
    encoders: Encoders,
    split: ObjectSplit,
    scenes: Int[Tensor, "scene slot concept"],
    rows: Mapping[SceneKind, slice],
    n_sampled: int,
    seed: int,
) -> dict[str, tuple[Float[Tensor, "scene"], Float[Tensor, "scene"]]]:
    """Give the margin of every scene and its chance level, for every measure."""
    space, index = split.space, split.space.object_index(scenes)
    z = _unit(encoders.scenes(scenes))
    found = {"concepts": _concepts(z @ _unit(encoders.values()).T, scenes, space.n_values)}
    exchanges = space.object_index(swapped_objects(scenes))
    after = exchanges.flatten(1)
    wanted = torch.cat([index, after], 1)
    best, largest, scores = _against_every_object(encoders, z, index, wanted, space.n_possible_objects)
    n_slots = index.shape[1]
    own, exchanged = scores[:, :n_slots], scores[:, n_slots:]
    least = own.amin(1)
    n_own = _n_different(index)
    vacuous = n_own == space.n_possible_objects
    found["objects"] = (
        _margin(least, best, largest, vacuous),
        _chance(n_own, space.n_possible_objects - n_own),
    )
    # an exchanged object that is in the scene anyway, as of two red ones, is no wrong answer
    wrong = ~(after[:, :, None] == index[:, None]).any(2)
    n_wrong = _n_different(torch.where(wrong, after, -1)) - (~wrong).any(1).long()
    worst = exchanged.masked_fill(~wrong.to(z.device), -math.inf)
    highest = worst.amax(1) if worst.shape[1] else torch.full_like(least, -math.inf)
    found["swap"] = (_margin(least, highest, largest, n_wrong == 0), _chance(n_own, n_wrong))
    margin, chance = found["swap"]
    alike = (
        split.is_train[exchanges].sum(2) == split.is_train[pairs_of(index, exchanges.shape[1])].sum(2)
    ).all(1)
    found["swap alike"] = (margin.masked_fill(~alike.to(margin.device), math.inf), chance)
    found["sampled"] = _sampled(
        encoders, z, index, after, wrong, highest, least, largest, rows, n_sampled, seed
    )
    captions = encoders.captions(scenes)
    if captions is not None:
        found["caption"] = _captions(encoders, z, space, scenes, _unit(captions))
    return {name: (margin.cpu(), chance.cpu()) for name, (margin, chance) in found.items()}


def _concepts(
    scores: Float[Tensor, "scene value"], scenes: Int[Tensor, "scene slot concept"], sizes: tuple[int, ...]
) -> tuple[Float[Tensor, "scene"], Float[Tensor, "scene"]]:
    margins, chances, start = [], [], 0
    for k, size in enumerate(sizes):
        marks = functional.one_hot(scenes[..., k], size).amax(1).bool().to(scores.device)
        margins.append(scene_margins(scores[:, start : start + size], marks))
        chances.append(chance_level(marks))
        start += size
    return torch.stack(margins).amin(0), torch.stack(chances).prod(0)


def _against_every_object(
    encoders: Encoders,
    z: Float[Tensor, "scene dim"],
    index: Int[Tensor, "scene slot"],
    wanted: Int[Tensor, "scene wanted"],
    n_all: int,
) -> tuple[Float[Tensor, "scene"], Float[Tensor, "scene"], Float[Tensor, "scene wanted"]]:
    """Score every scene against every object, a part at a time.

    Gives the best score of the objects that are not in the scene, the largest absolute score, and those of the wanted
    objects.
    """
    best, largest = torch.full_like(z[:, 0], -math.inf), torch.zeros_like(z[:, 0])
    scores = torch.zeros(wanted.shape, dtype=z.dtype, device=z.device)
    index, wanted = index.to(z.device), wanted.to(z.device)
    size = max(1, min(n_all, MAX_SCORES // len(z)))
    for low in range(0, n_all, size):
        high = min(low + size, n_all)
        # one column more, for what lies in another part
        part = z.new_zeros(len(z), high - low + 1)
        torch.mm(z, _unit(encoders.objects(torch.arange(low, high, device=z.device))).T, out=part[:, :-1])
        _finite(part)
        largest = torch.maximum(largest, part.abs().amax(1))
        here = (wanted >= low) & (wanted < high)
        scores = torch.where(here, part.gather(1, torch.where(here, wanted - low, high - low)), scores)
        inside = (index >= low) & (index < high)
        part[:, -1] = -math.inf
        part.scatter_(1, torch.where(inside, index - low, high - low), -math.inf)
        best = torch.maximum(best, part.amax(1))
    return best, largest, scores


def _sampled(
    encoders: Encoders,
    z: Tensor,
    index: Int[Tensor, "scene slot"],
    after: Int[Tensor, "scene swap"],
    wrong: Bool[Tensor, "scene swap"],
    highest: Float[Tensor, "scene"],
    least: Float[Tensor, "scene"],
    largest: Float[Tensor, "scene"],
    rows: Mapping[SceneKind, slice],
    n_sampled: int,
    seed: int,
) -> tuple[Float[Tensor, "scene"], Float[Tensor, "scene"]]:
    generator = torch.Generator().manual_seed(seed)
    best, n_absent = highest.clone(), torch.zeros(len(z), dtype=torch.int64)
    for some in rows.values():
        pool = index[some].unique()
        sample = pool[torch.randperm(len(pool), generator=generator)[:n_sampled]]
        own = (sample[None, None] == index[some][..., None]).any(1)
        scores = z[some] @ _unit(encoders.objects(sample.to(z.device))).T
        scores = scores.masked_fill(own.to(z.device), -math.inf)
        best[some] = torch.maximum(best[some], scores.amax(1))
        asked = torch.cat([torch.where(own, -1, sample), torch.where(wrong[some], after[some], -1)], 1)
        n_absent[some] = _n_different(asked) - (asked == -1).any(1).long()
    margin = _margin(least, best, largest, n_absent == 0)
    return margin, _chance(_n_different(index), n_absent)


def _captions(
    encoders: Encoders,
    z: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    captions: Float[Tensor, "scene dim"],
) -> tuple[Float[Tensor, "scene"], Float[Tensor, "scene"]]:
    others = swapped_scenes(scenes)
    n_swaps = others.shape[1]
    true = (z * captions).sum(1)
    if not n_swaps:
        return torch.full_like(true, math.inf), torch.ones(len(scenes), dtype=torch.float64)
    # an exchange that changes nothing, or only the order of the objects, makes no wrong caption
    named = space.object_index(others).sort(-1).values
    wrong = (named != space.object_index(scenes).sort(-1).values[:, None]).any(-1)
    same = (named[:, :, None] == named[:, None]).all(-1)
    repeated = (same & torch.ones(n_swaps, n_swaps, dtype=torch.bool).tril(-1)).any(-1)
    n_wrong = (wrong & ~repeated).sum(1)
    scores = torch.stack([(z * _unit(_captioned(encoders, others[:, s]))).sum(1) for s in range(n_swaps)], 1)
    largest = torch.maximum(scores.abs().amax(1), true.abs())
    best = scores.masked_fill(~wrong.to(z.device), -math.inf).amax(1)
    return _margin(true, best, largest, n_wrong == 0), 1 / (1 + n_wrong.double())


def _captioned(encoders: Encoders, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
    found = encoders.captions(scenes)
    assert found is not None, "asked for only where there are captions"
    return found


def _margin(
    least: Float[Tensor, "scene"],
    best: Float[Tensor, "scene"],
    largest: Float[Tensor, "scene"],
    vacuous: Bool[Tensor, "scene"],
) -> Float[Tensor, "scene"]:
    """Give the least score of what is right minus the best of what is wrong, as recognition.scene_margins does."""
    margin = least - best
    noise = TIE_ULPS * torch.finfo(margin.dtype).eps * largest
    return torch.where(margin.abs() <= noise, 0.0, margin).masked_fill(vacuous.to(margin.device), math.inf)


def _chance(n_right: Int[Tensor, "scene"], n_wrong: Int[Tensor, "scene"]) -> Float[Tensor, "scene"]:
    pairs, index = torch.stack([n_right, n_wrong], 1).unique(dim=0, return_inverse=True)
    levels = [1 / math.comb(p + q, p) for p, q in pairs.tolist()]
    return torch.tensor(levels, dtype=torch.float64)[index]


def _n_different(rows: Int[Tensor, "scene entry"]) -> Int[Tensor, "scene"]:
    ordered = rows.sort(1).values
    return (ordered[:, 1:] != ordered[:, :-1]).sum(1) + (1 if rows.shape[1] else 0)


def _consecutive(lengths: Sequence[int]) -> list[slice]:
    ends = list(accumulate(lengths, initial=0))
    return [slice(a, b) for a, b in pairwise(ends)]


def _unit(x: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
    return functional.normalize(x, dim=1)


def _finite(scores: Float[Tensor, "scene query"]) -> None:
    if not bool(scores.isfinite().all()):
        raise ValueError("scores hold NaN or infinite numbers: an embedding of a scene or a query does")
