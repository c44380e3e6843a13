"""Which rows show a scene, and which its twin: the scene with one concept's values exchanged between two objects."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
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


@dataclass(frozen=True)
class Twins:
    """Hold scenes and their twins, each with two numbers; build it with :meth:`of`."""

    scenes: Int[Tensor, "scene slot concept"]
    twins: Int[Tensor, "scene slot concept"]
    same: Int[Tensor, "scene"]
    """:func:`same_scene_index` of the scenes."""
    same_twin: Int[Tensor, "scene"]
    """:func:`same_scene_index` of their twins."""
    exact: Int[Tensor, "scene"]
    """Number of the scenes, with the order of their objects."""
    exact_twin: Int[Tensor, "scene"]

    @classmethod
    def of(
        cls,
        space: ConceptSpace,
        scenes: Int[Tensor, "scene slot concept"],
        *,
        concept: int = 0,
        ordered: bool = False,
    ) -> Twins:
        """Exchange the values of a concept. Raises ValueError as :func:`swap_concept` does."""
        twins = swap_concept(scenes, concept)
        same, same_twin = (same_scene_index(space, s, ordered=ordered) for s in (scenes, twins))
        return cls(scenes, twins, same, same_twin, space.scene_index(scenes), space.scene_index(twins))

    @property
    def has_twin(self) -> Bool[Tensor, "scene"]:
        """Whether the twin is another scene."""
        return self.same != self.same_twin

    def take(self, rows: Int[Tensor, "taken"]) -> Twins:
        """Keep the scenes at the given indices."""
        return Twins(
            self.scenes[rows],
            self.twins[rows],
            self.same[rows],
            self.same_twin[rows],
            self.exact[rows],
            self.exact_twin[rows],
        )

    def rows_in(self, gallery: Twins) -> tuple[Int[Tensor, "scene most"], Int[Tensor, "scene"]]:
        """Find the gallery's rows of the same scene: all of them, and one, in the scene's own order where there is one.

        -1 where there are none, or fewer.
        """
        rows = rows_with(gallery.same, self.same)
        return rows, _in_order(rows, gallery.exact, self.exact)

    def twin_rows_in(self, gallery: Twins) -> tuple[Int[Tensor, "scene most"], Int[Tensor, "scene"]]:
        """Find the rows of the twin, as :meth:`rows_in` does; none where the twin is the same scene."""
        rows = torch.where(self.has_twin[:, None], rows_with(gallery.same, self.same_twin), -1)
        return rows, _in_order(rows, gallery.exact, self.exact_twin)


def twin_quads(images: Twins, texts: Twins) -> Int[Tensor, "quad 4"]:
    """List the rows of picture, twin's picture, caption, twin's caption; no two pictures make two quads."""
    own = torch.arange(len(images.scenes), device=images.scenes.device)
    _, other = images.twin_rows_in(images)
    _, caption = images.rows_in(texts)
    _, other_caption = images.twin_rows_in(texts)
    quads = torch.stack([own, other, caption, other_caption], 1)
    quads = quads[(quads >= 0).all(1)]
    pairs = quads[:, :2].sort(1).values
    key = pairs[:, 0] * len(own) + pairs[:, 1]
    order = key.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = key[order][1:] != key[order][:-1]
    return quads[order[first]]


def _in_order(
    rows: Int[Tensor, "scene most"], shown: Int[Tensor, "row"], wanted: Int[Tensor, "scene"]
) -> Int[Tensor, "scene"]:
    """Choose the first row that shows the wanted scene in its order, else the first row, else -1."""
    in_order = (shown[rows.clamp(min=0)] == wanted[:, None]) & (rows >= 0)
    # argmax gives the first of equals; where none is in order, that is column 0
    return rows.gather(1, in_order.long().argmax(1, keepdim=True)).squeeze(1)
