"""Which rows show a scene, and which its twin: the scene with one concept's values exchanged between two objects."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from conceptbind.kernels.ranking import rows_with
from conceptbind.scenes import ConceptSpace


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


def prefer_same_order(
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


def twin_quads(
    space: ConceptSpace,
    scenes: Mapping[str, Int[Tensor, "_scene slot concept"]],
    twins: Mapping[str, Int[Tensor, "_scene slot concept"]],
    same: Mapping[str, Int[Tensor, "_scene"]],
    same_twin: Mapping[str, Int[Tensor, "_scene"]],
) -> Int[Tensor, "quad 4"]:
    """List the rows of picture, twin's picture, caption, twin's caption; no two pictures make two quads.

    The mappings have an entry for "image" and one for "text": scenes, their twins, and the :func:`same_scene_index` of
    both.
    """
    shown, twin = scenes["image"], twins["image"]
    distinct = same["image"] != same_twin["image"]
    columns = [torch.arange(len(shown), device=shown.device)]
    for target, wanted, index in (
        ("image", twin, same_twin["image"]),
        ("text", shown, same["image"]),
        ("text", twin, same_twin["image"]),
    ):
        columns.append(prefer_same_order(space, scenes[target], wanted, rows_with(same[target], index)))
    quads = torch.stack(columns, 1)[distinct & (torch.stack(columns, 1) >= 0).all(1)]
    pairs = quads[:, :2].sort(1).values
    key = pairs[:, 0] * len(shown) + pairs[:, 1]
    order = key.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = key[order][1:] != key[order][:-1]
    return quads[order[first]]
