"""What a repair of texts mends on seen and on held-out objects, and what it costs elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from conceptbind.analysis.crossmodal import (
    ALIKE,
    IMAGE_TO_TEXT,
    PARTS,
    TEXT_TO_IMAGE,
    cross_modal,
    same_scene_index,
    swap_concept,
)
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.retrieval import retrieve
from conceptbind.repair.swaps import Pairs
from conceptbind.scenes import ObjectSplit, SceneKind

Repair = Callable[[Tensor], Tensor]
"""Text embeddings (text, dim) to text embeddings."""


@dataclass(frozen=True, eq=False)
class Subject:
    """Hold what a repair is judged on: pictures and captions of two objects, and of one.

    Pictures may show a scene several times, in any layout. Raises ValueError for sets or a split of different spaces,
    or when a single object lacks its caption.
    """

    images: EmbeddingSet
    texts: EmbeddingSet
    single_images: EmbeddingSet
    single_texts: EmbeddingSet
    """Every object's caption, in the order of the object index."""
    split: ObjectSplit

    def __post_init__(self) -> None:
        sets = (self.images, self.texts, self.single_images, self.single_texts)
        if any(s.space != self.split.space for s in sets):
            raise ValueError("all sets and the split must be of one concept space")
        every = self.split.space.all_objects().unsqueeze(1)
        if not torch.equal(self.single_texts.scenes, every):
            raise ValueError(
                "single_texts needs the caption of every object in the order of the object index: use "
                "single_object_scenes(space)"
            )


def pairs_of(images: EmbeddingSet, texts: EmbeddingSet, split: ObjectSplit | None = None) -> Pairs:
    """Pair every picture with the caption of its scene and that of its twin, to train a repair on.

    A scene is left out when ``texts`` lack it or its twin, or its twin is the same scene. With ``split``, all objects
    of the scene and of its twin are training objects: held-out objects as wrong answers would teach against themselves.
    Captions of the same objects in another order mean the same.
    Raises ValueError when no picture is left.
    """
    space = images.space
    twins = swap_concept(images.scenes)
    at = {int(number): row for row, number in enumerate(space.scene_index(texts.scenes).tolist())}
    own, swapped = (
        torch.tensor([at.get(number, -1) for number in space.scene_index(scenes).tolist()])
        for scenes in (images.scenes, twins)
    )
    meanings = torch.stack([same_scene_index(space, scenes) for scenes in (images.scenes, twins)], 1)
    keep = (own >= 0) & (swapped >= 0) & (meanings[:, 0] != meanings[:, 1])
    if split is not None:
        keep &= split.kinds(torch.cat([images.scenes, twins], 1)) == SceneKind.TRAIN
    if not bool(keep.any()):
        raise ValueError(
            "no picture has its caption and its twin's caption among texts, with training objects only: give captions "
            "of all ordered scenes, and pictures of objects that differ in both concepts"
        )
    return Pairs(
        images.embeddings[keep], texts.embeddings[own[keep]], texts.embeddings[swapped[keep]], meanings[keep]
    )


def judge(subject: Subject, repair: Repair | None = None, *, seed: int = 0) -> list[dict[str, Any]]:
    """Judge a model with its texts repaired, or as it is; one row for each of "seen", "mixed", "held-out".

    A part holds the scenes whose objects, and their twins', are all, half or none of them training objects. Columns:
    ``two_way``, its 95 % interval ``two_way_low`` and ``_high`` (bootstrap over objects), ``two_way_ties`` and
    ``anti_binding``, of pictures that choose captions; ``two_way_pictures``, the other direction; ``recall_1`` and
    ``recall_1_pictures``, retrieval among all scenes; ``zero_shot_<concept>`` and ``zero_shot_object``, single objects
    named by the nearest caption, of seen or held-out objects (None for mixed). All strict; ``n`` two-way choices.
    """
    texts, single_texts = (_repaired(s, repair) for s in (subject.texts, subject.single_texts))
    found = cross_modal(subject.images, texts, split=subject.split, seed=seed)
    named = _zero_shot(replace(subject, single_texts=single_texts))
    seen = subject.split.is_train[subject.split.space.object_index(subject.single_images.scenes[:, 0])]
    rows = []
    for part in PARTS:
        there, back = (found.of(part + ALIKE, d).as_dict() for d in (IMAGE_TO_TEXT, TEXT_TO_IMAGE))
        of_part = {"seen": seen, "held-out": ~seen}.get(part)
        rows.append(
            {
                "part": part,
                **{f"two_way{s}": there[f"two_way{s}"] for s in ("", "_low", "_high", "_ties")},
                "anti_binding": there["anti_binding"],
                "n": there["two_way_n"],
                "two_way_pictures": back["two_way"],
                "recall_1": there["recall_1"],
                "recall_1_pictures": back["recall_1"],
                **{
                    f"zero_shot_{name}": None if of_part is None else _share(right[of_part])
                    for name, right in named.items()
                },
            }
        )
    return rows


def _repaired(texts: EmbeddingSet, repair: Repair | None) -> EmbeddingSet:
    if repair is None:
        return texts
    with torch.no_grad():
        return replace(texts, embeddings=repair(texts.embeddings))


def _zero_shot(subject: Subject) -> dict[str, Bool[Tensor, "picture"]]:
    """Say which pictures of one object are strictly nearest to the right value's captions, and to the object's."""
    space = subject.split.space
    texts = functional.normalize(subject.single_texts.embeddings, dim=1)
    objects, shown = subject.single_texts.scenes[:, 0], subject.single_images.scenes[:, 0]

    def right(
        classes: Float[Tensor, "_class dim"], labels: Int[Tensor, "picture"]
    ) -> Bool[Tensor, "picture"]:
        return retrieve(subject.single_images.embeddings, classes, labels).correct

    found = {
        name: right(torch.stack([texts[objects[:, k] == v].mean(0) for v in range(size)]), shown[:, k])
        for k, (name, size) in enumerate(zip(space.concepts, space.n_values, strict=True))
    }
    return found | {"object": right(texts, space.object_index(shown))}


def _share(right: Bool[Tensor, "picture"]) -> float | None:
    return float(right.double().mean()) if len(right) else None
