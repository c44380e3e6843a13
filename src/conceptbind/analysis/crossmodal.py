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
from collections.abc import Mapping
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
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.ranking import rank, rows_with
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind

__all__ = ["Choice", "CrossModal", "CrossModalRow", "cross_modal", "swap_concept", "two_way"]

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


def swap_concept(
    scenes: Int[Tensor, "scene slot concept"], concept: int = 0
) -> Int[Tensor, "scene slot concept"]:
    """Exchange the values of one concept between slots 0 and 1: the twin of every scene.

    Raises ValueError for scenes of fewer than two slots, or a concept that is not there.
    """
    if scenes.shape[1] < 2:
        raise ValueError(
            f"a twin needs two objects to exchange values between; got scenes of {scenes.shape[1]} slot"
        )
    if not 0 <= concept < scenes.shape[2]:
        raise ValueError(f"concepts are numbered 0 to {scenes.shape[2] - 1}; got {concept}")
    twin = scenes.clone()
    twin[:, :2, concept] = scenes[:, :2, concept].flip(1)
    return twin


def same_scene_index(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], *, ordered: bool = False
) -> Int[Tensor, "scene"]:
    """Give the same number to the same scenes; by default the order of the objects does not count."""
    index = space.object_index(scenes)
    if not ordered:
        index = index.sort(1).values
    return space.scene_index(space.objects_from_index(index))


def cross_modal(
    images: EmbeddingSet,
    texts: EmbeddingSet,
    *,
    split: ObjectSplit | None = None,
    concept: int = 0,
    ordered: bool = False,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> CrossModal:
    """Measure binding between pictures and captions of scenes of two objects; see the table at the top.

    The sets may hold different scenes, in any order. ``split``: the objects seen in training, to judge seen and
    held-out ones apart. ``concept``: whose values are exchanged; with two concepts either gives the same objects.
    ``seed``: of the intervals, which are bootstraps over objects. ``device``: where to compute.
    Raises ValueError for sets or a split of different spaces, scenes that do not have two objects, embeddings of
    different lengths or without a direction, or when no anchor can be judged.
    """
    space = _checked(images, texts, split)
    scenes = {"image": images.scenes.to(device), "text": texts.scenes.to(device)}
    vectors = {
        name: unit(e.embeddings.to(device), f"{name} embeddings")
        for name, e in (("image", images), ("text", texts))
    }
    twins = {name: swap_concept(s, concept) for name, s in scenes.items()}
    same = {name: same_scene_index(space, s, ordered=ordered) for name, s in scenes.items()}
    same_twin = {name: same_scene_index(space, s, ordered=ordered) for name, s in twins.items()}
    rows: list[CrossModalRow] = []
    margins: dict[tuple[str, str], Tensor] = {}
    quads = _quads(space, scenes, twins, same, same_twin, vectors)
    quads_right = judge_quads(vectors["image"][quads[:, :2]], vectors["text"][quads[:, 2:]])
    of_image = _parts(scenes["image"], twins["image"], split)
    quads_in = {part: marks[quads[:, :2]].all(1) for part, marks in of_image.items()}
    for source, target, direction in (
        ("image", "text", IMAGE_TO_TEXT),
        ("text", "image", TEXT_TO_IMAGE),
    ):
        own = rows_with(same[target], same[source])
        rival = rows_with(same[target], same_twin[source])
        has_twin = same[source] != same_twin[source]
        rival = torch.where(has_twin[:, None], rival, -1)
        true_row = _prefer_same_order(space, scenes[target], scenes[source], own)
        twin_row = _prefer_same_order(space, scenes[target], twins[source], rival)
        judged = has_twin & (true_row >= 0) & (twin_row >= 0)
        if not bool(judged.any()):
            raise ValueError(
                f"{direction}: none of {len(judged)} scenes can be judged, because the other set lacks them or their "
                "twins, or the twin is the same scene: give both sets scenes that differ in colour and in shape, with "
                "their twins"
            )
        ranked = rank(vectors[source], vectors[target], own, rival)
        margin = vectors[source].new_full((len(judged),), math.nan)
        margin[judged] = choice_margins(
            vectors[source][judged], vectors[target][true_row[judged]], vectors[target][twin_row[judged]]
        )
        objects = space.object_index(scenes[source])
        n_own, n_rival = (own >= 0).sum(1), (rival >= 0).sum(1)
        n_all = len(vectors[target])
        for part, here in _parts(scenes[source], twins[source], split).items():
            counted, findable = here & judged, here & (n_own > 0)
            margins[part, direction] = margin[counted].cpu()
            rows.append(
                CrossModalRow(
                    part=part,
                    direction=direction,
                    two_way=summarise_choice(margin[counted], objects=objects[counted], seed=seed),
                    reverse_recall=_mean(ranked.rival_first[counted]),
                    reverse_recall_chance=_mean(n_rival[counted] / n_all),
                    recall={k: _mean(ranked.within(k)[findable]) for k in CUTOFFS},
                    recall_chance={k: _mean(_found_by_chance(n_own[findable], n_all, k)) for k in CUTOFFS},
                    n_ranked=int(findable.sum()),
                    quads=quads_right.scores(quads_in[part]),
                    n_without_twin=int((here & ~has_twin).sum()),
                    n_missing=int((here & has_twin & ~judged).sum()),
                )
            )
    return CrossModal(tuple(rows), margins)


def _parts(
    scenes: Int[Tensor, "scene slot concept"],
    twins: Int[Tensor, "scene slot concept"],
    split: ObjectSplit | None,
) -> dict[str, Bool[Tensor, "scene"]]:
    every = torch.ones(len(scenes), dtype=torch.bool, device=scenes.device)
    if split is None:
        return {"all": every}
    kinds = split.kinds(scenes)
    parts = {"all": every} | {name: kinds == int(kind) for name, kind in PARTS.items()}
    seen = split.is_train.to(scenes.device)
    n_seen, n_seen_twin = (seen[split.space.object_index(s)].sum(1) for s in (scenes, twins))
    return parts | {name + ALIKE: marks & (n_seen == n_seen_twin) for name, marks in parts.items()}


def _prefer_same_order(
    space: ConceptSpace,
    gallery: Int[Tensor, "row slot concept"],
    wanted: Int[Tensor, "scene slot concept"],
    rows: Int[Tensor, "scene most"],
) -> Int[Tensor, "scene"]:
    """Choose one of the rows that show the wanted scene: the first in its order, else the first, else -1."""
    shown = space.scene_index(gallery)[rows.clamp(min=0)]
    in_order = (shown == space.scene_index(wanted)[:, None]) & (rows >= 0)
    # argmax gives the first of equals; where none is in order, that is column 0
    return rows.gather(1, in_order.long().argmax(1, keepdim=True)).squeeze(1)


def _quads(
    space: ConceptSpace,
    scenes: Mapping[str, Int[Tensor, "_scene slot concept"]],
    twins: Mapping[str, Int[Tensor, "_scene slot concept"]],
    same: Mapping[str, Int[Tensor, "_scene"]],
    same_twin: Mapping[str, Int[Tensor, "_scene"]],
    vectors: Mapping[str, Float[Tensor, "_scene dim"]],
) -> Int[Tensor, "quad 4"]:
    """List picture, twin's picture, caption, twin's caption; no two pictures make two quads."""
    shown, twin = scenes["image"], twins["image"]
    distinct = same["image"] != same_twin["image"]
    columns = [torch.arange(len(shown), device=shown.device)]
    for target, wanted, index in (
        ("image", twin, same_twin["image"]),
        ("text", shown, same["image"]),
        ("text", twin, same_twin["image"]),
    ):
        columns.append(_prefer_same_order(space, scenes[target], wanted, rows_with(same[target], index)))
    quads = torch.stack(columns, 1)[distinct & (torch.stack(columns, 1) >= 0).all(1)]
    pairs = quads[:, :2].sort(1).values
    key = pairs[:, 0] * len(shown) + pairs[:, 1]
    order = key.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = key[order][1:] != key[order][:-1]
    return quads[order[first]]


def _found_by_chance(n_own: Int[Tensor, "scene"], n_all: int, k: int) -> Float[Tensor, "scene"]:
    """Give 1 - C(n - r, k) / C(n, k)."""
    missed = torch.ones(len(n_own), dtype=torch.float64, device=n_own.device)
    for i in range(min(k, n_all)):
        missed *= ((n_all - n_own - i) / (n_all - i)).clamp(min=0)
    return 1 - missed


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else math.nan


def _checked(images: EmbeddingSet, texts: EmbeddingSet, split: ObjectSplit | None) -> ConceptSpace:
    space = images.space
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
