"""Binding between image and text (paper, section 2, F1): two-way choice, retrieval, reverse recall, quads.

The *twin* of a scene of two objects has one concept's values exchanged: "a red circle and a blue square" and "a blue
circle and a red square". A bag of concepts gives both one embedding.

==================  ===========================================================================  ====================
measure             an anchor (a picture, or a caption) counts when, strictly,                   chance
==================  ===========================================================================  ====================
two-way             its true counterpart is nearer than its twin's                               1/2
reverse recall      a twin's counterpart is nearer than every row that shows another scene       rows of the twin / n
recall@k            fewer than k rows that show another scene are as near as its nearest own     1 - C(n-r, k) / C(n, k)
text, image, group  see :mod:`conceptbind.analysis.quads`; a quad is a scene and its twin        1/4, 1/4, 1/6
==================  ===========================================================================  ====================

n rows are ranked, r of them show the anchor's own scene. Chance is that of continuous scores without ties.

Scenes with the same objects in another order count as the same scene, since places and captions may be in any order;
``ordered=True`` tells them apart. Where the other modality has a scene in both orders, the two-way choice and the quads
take the row in the anchor's own order. A scene whose twin is the same scene (two objects of one colour, or of one
shape) cannot be judged: it is left out of the two-way choice and the reverse recall, and counted.

With a split the numbers are also given for seen, mixed and held-out scenes apart. A seen scene may have a twin of
held-out objects: then familiarity alone decides, without any binding. The parts "... alike" hold only scenes whose twin
has as many training objects. A quad belongs to a part if both of its scenes do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.choice import Choice, choice_margins, summarise_choice, two_way, unit
from conceptbind.analysis.quads import (
    GROUP_CHANCE,
    IMAGE_CHANCE,
    TEXT_CHANCE,
    QuadScores,
    judge_quads,
)
from conceptbind.analysis.twins import Twins, same_scene_index, swap_concept, twin_quads
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.ranking import rank
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind

__all__ = [
    "Choice",
    "CrossModal",
    "CrossModalRow",
    "cross_modal",
    "same_scene_index",
    "swap_concept",
    "two_way",
]

Direction = Literal["image to text", "text to image"]
IMAGE_TO_TEXT: Direction = "image to text"
TEXT_TO_IMAGE: Direction = "text to image"
CUTOFFS = (1, 5, 10)
PARTS = {"seen": SceneKind.TRAIN, "mixed": SceneKind.MIXED, "held-out": SceneKind.HELD_OUT}
ALIKE = " alike"


@dataclass(frozen=True)
class CrossModalRow:
    """Hold what was measured on one part, in one direction. Shares are NaN where nothing was judged."""

    part: str
    """"all", "seen", "mixed" or "held-out", each perhaps followed by " alike"."""
    direction: Direction
    """What the anchors are, and what is ranked."""
    two_way: Choice
    reverse_recall: float
    reverse_recall_chance: float
    recall: Mapping[int, float]
    """By the cut-off k."""
    recall_chance: Mapping[int, float]
    n_ranked: int
    """Anchors that have a row of their own scene to find."""
    quads: QuadScores
    """The same in both directions."""
    n_without_twin: int
    """Anchors left out of the two-way choice because their twin is the same scene."""
    n_missing: int
    """Anchors left out of it because the other modality lacks their scene or its twin."""

    def as_dict(self) -> dict[str, Any]:
        """Give one flat dictionary for a table or JSON: NaN becomes None."""
        c = self.two_way.as_dict()
        row = {
            "part": self.part,
            "direction": self.direction,
            "two_way": c["accuracy"],
            **{f"two_way_{key}": c[key] for key in ("low", "high", "ties", "margin", "n", "chance")},
            "anti_binding": self.two_way.anti_binding,
            "reverse_recall": self.reverse_recall,
            "reverse_recall_chance": self.reverse_recall_chance,
        }
        for k in self.recall:
            row |= {f"recall_{k}": self.recall[k], f"recall_{k}_chance": self.recall_chance[k]}
        row["n_ranked"] = self.n_ranked
        chances = {"text": TEXT_CHANCE, "image": IMAGE_CHANCE, "group": GROUP_CHANCE}
        for name, chance in chances.items():
            row |= {f"{name}_score": getattr(self.quads, name), f"{name}_score_chance": chance}
        row |= {
            "n_quads": self.quads.n,
            "n_without_twin": self.n_without_twin,
            "n_missing": self.n_missing,
        }
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}


@dataclass(frozen=True)
class CrossModal:
    """Hold what :func:`cross_modal` measured."""

    rows: tuple[CrossModalRow, ...]
    margins: Mapping[tuple[str, str], Float[Tensor, "anchor"]]
    """Margins of the two-way choice of the anchors judged, by part and direction."""

    def of(self, part: str = "all", direction: str = IMAGE_TO_TEXT) -> CrossModalRow:
        """Give one row. Raises KeyError, naming those there are, when there is none."""
        for row in self.rows:
            if (row.part, row.direction) == (part, direction):
                return row
        raise KeyError(f"no row {(part, direction)}; there are {[(r.part, r.direction) for r in self.rows]}")

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give one flat dictionary a part and direction, for a table or JSON."""
        return [row.as_dict() for row in self.rows]


def cross_modal(
    images: EmbeddingSet,
    texts: EmbeddingSet,
    *,
    split: ObjectSplit | None = None,
    concept: int = 0,
    ordered: bool = False,
    n_anchors: int | None = None,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> CrossModal:
    """Measure binding between pictures and captions of scenes of two objects; see the table at the top.

    The sets may hold different scenes, in any order. ``split``: the objects seen in training, to judge seen and
    held-out ones apart. ``concept``: whose values are exchanged; with two concepts either gives the same objects.
    ``n_anchors``: judge so many pictures, captions and quads, drawn from ``seed``, against all of the other set; None
    judges every one, and takes time with the product of the sets' sizes. ``seed``: also of the intervals, which are
    bootstraps over objects. ``device``: where to compute.
    Raises ValueError for sets or a split of different spaces, scenes that do not have two objects, embeddings of
    different lengths or without a direction, fewer than one anchor, or when no anchor can be judged.
    """
    space = _checked(images, texts, split, n_anchors)
    x, y = (
        unit(e.embeddings.to(device), f"{name} embeddings")
        for name, e in (("image", images), ("text", texts))
    )
    shown, said = (
        Twins.of(space, e.scenes.to(device), concept=concept, ordered=ordered) for e in (images, texts)
    )
    quads = twin_quads(shown, said)
    quads = quads[_drawn(len(quads), n_anchors, seed, device)]
    right = judge_quads(x[quads[:, :2]], y[quads[:, 2:]])
    scores = {part: right.scores(m[quads[:, :2]].all(1)) for part, m in _parts(shown, split).items()}
    rows: list[CrossModalRow] = []
    margins: dict[tuple[str, str], Tensor] = {}
    for direction, anchors, gallery, of_anchors, of_gallery in (
        (IMAGE_TO_TEXT, x, y, shown, said),
        (TEXT_TO_IMAGE, y, x, said, shown),
    ):
        picks = _drawn(len(anchors), n_anchors, seed, device)
        found = _one_direction(
            space, direction, anchors[picks], gallery, of_anchors.take(picks), of_gallery, split, scores, seed
        )
        for row, margin in found:
            rows.append(row)
            margins[row.part, direction] = margin
    return CrossModal(tuple(rows), margins)


def _one_direction(
    space: ConceptSpace,
    direction: Direction,
    anchors: Float[Tensor, "anchor dim"],
    gallery: Float[Tensor, "row dim"],
    of_anchors: Twins,
    of_gallery: Twins,
    split: ObjectSplit | None,
    quads: Mapping[str, QuadScores],
    seed: int,
) -> Iterator[tuple[CrossModalRow, Float[Tensor, "judged"]]]:
    """Give every part's row, with its margins."""
    own, true_row = of_anchors.rows_in(of_gallery)
    rival, twin_row = of_anchors.twin_rows_in(of_gallery)
    judged = (true_row >= 0) & (twin_row >= 0)
    if not bool(judged.any()):
        raise ValueError(
            f"{direction}: none of {len(judged)} scenes can be judged, because the other set lacks them or their "
            "twins, or the twin is the same scene: give both sets scenes of objects that differ in every concept, "
            "with their twins"
        )
    ranked = rank(anchors, gallery, own, rival)
    margin = anchors.new_full((len(judged),), math.nan)
    margin[judged] = choice_margins(anchors[judged], gallery[true_row[judged]], gallery[twin_row[judged]])
    objects = space.object_index(of_anchors.scenes)
    has_twin, n_own, n_rival = of_anchors.has_twin, (own >= 0).sum(1), (rival >= 0).sum(1)
    for part, here in _parts(of_anchors, split).items():
        counted, findable = here & judged, here & (n_own > 0)
        row = CrossModalRow(
            part=part,
            direction=direction,
            two_way=summarise_choice(margin[counted], objects=objects[counted], seed=seed),
            reverse_recall=_mean(ranked.rival_first[counted]),
            reverse_recall_chance=_mean(n_rival[counted] / len(gallery)),
            recall={k: _mean(ranked.within(k)[findable]) for k in CUTOFFS},
            recall_chance={k: _mean(_found_by_chance(n_own[findable], len(gallery), k)) for k in CUTOFFS},
            n_ranked=int(findable.sum()),
            quads=quads[part],
            n_without_twin=int((here & ~has_twin).sum()),
            n_missing=int((here & has_twin & ~judged).sum()),
        )
        yield row, margin[counted].cpu()


def _parts(shown: Twins, split: ObjectSplit | None) -> dict[str, Bool[Tensor, "scene"]]:
    every = torch.ones(len(shown.scenes), dtype=torch.bool, device=shown.scenes.device)
    if split is None:
        return {"all": every}
    kinds = split.kinds(shown.scenes)
    parts = {"all": every} | {name: kinds == int(kind) for name, kind in PARTS.items()}
    seen = split.is_train.to(every.device)
    n_seen, n_seen_twin = (seen[split.space.object_index(s)].sum(1) for s in (shown.scenes, shown.twins))
    return parts | {name + ALIKE: marks & (n_seen == n_seen_twin) for name, marks in parts.items()}


def _drawn(n: int, n_anchors: int | None, seed: int, device: str | torch.device) -> Int[Tensor, "drawn"]:
    """Draw indices without replacement, in their order; all of them where there are no more."""
    if n_anchors is None or n_anchors >= n:
        return torch.arange(n, device=device)
    picks = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:n_anchors]
    return picks.sort().values.to(device)


def _found_by_chance(n_own: Int[Tensor, "scene"], n_all: int, k: int) -> Float[Tensor, "scene"]:
    """Give 1 - C(n - r, k) / C(n, k)."""
    missed = torch.ones(len(n_own), dtype=torch.float64, device=n_own.device)
    for i in range(min(k, n_all)):
        missed *= ((n_all - n_own - i) / (n_all - i)).clamp(min=0)
    return 1 - missed


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else math.nan


def _checked(
    images: EmbeddingSet, texts: EmbeddingSet, split: ObjectSplit | None, n_anchors: int | None
) -> ConceptSpace:
    space = images.space
    if n_anchors is not None and n_anchors < 1:
        raise ValueError(f"n_anchors is at least 1, or None for all; got {n_anchors}")
    if texts.space != space or (split is not None and split.space != space):
        raise ValueError(
            "images, texts and split must be of one concept space: build them from the same ConceptSpace"
        )
    for name, e in (("images", images), ("texts", texts)):
        if e.scenes.shape[1] != 2:
            raise ValueError(f"{name} show scenes of {e.scenes.shape[1]} objects: a twin needs exactly 2")
    if images.dim != texts.dim:
        raise ValueError(
            f"images have {images.dim} dimensions, texts {texts.dim}: embed both with one image-text model, after its "
            "projections"
        )
    return space
