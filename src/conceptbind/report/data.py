"""The scenes that a report asks an encoder about, by name.

==============  ===============================================  =======================  ========
data            objects                                          pictures                 captions
==============  ===============================================  =======================  ========
``clevr2d``     8 colours x 3 shapes, all 576 ordered pairs      flat, two fixed places   yes
``clevr3d``     8 colours x 3 solids, all 576 ordered pairs      rendered, fixed places   yes
``captions8``   the first 8 attributes x 8 nouns of the next     no                       yes
``captions20``  the paper's 20 attributes x 20 nouns             no                       yes
``pocket``      8 colours x 6 shapes, all 2,304 ordered pairs    flat, anywhere, 64 x 64  yes
==============  ===============================================  =======================  ========

Of more scenes than the preset takes, a seeded sample is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from conceptbind.datasets.rendered import load_rendered
from conceptbind.embeddings import EmbeddingSet, Renderer, encode_captions, encode_pictures
from conceptbind.encoders import Encoder
from conceptbind.render import FlatRenderer
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.spaces import CAPTIONS_20, CLEVR, CLEVR_2D, POCKET
from conceptbind.training.pocket_data import pocket_renderer

PICTURE_SEED = 1
"""Of free places: odd, so no picture that a pocket CLIP was trained on."""


@dataclass(frozen=True)
class DataSet:
    """Name a space, and how its scenes are drawn."""

    name: str
    space: ConceptSpace
    renderer: Callable[[], Renderer] | None
    """Makes what draws them; None for captions only."""

    @property
    def modalities(self) -> tuple[str, ...]:
        """What an encoder can be shown of it."""
        return ("text",) if self.renderer is None else ("image", "text")

    @property
    def n_scenes(self) -> int:
        """How many ordered pairs of objects there are."""
        return self.space.n_possible_objects**2

    def scenes(self, most: int, *, seed: int) -> Int[Tensor, "scene slot concept"]:
        """List all ordered pairs of objects, or draw ``most`` of them, in the order of the list."""
        every = factorial_scenes(self.space, 2)
        if len(every) <= most:
            return every
        return every[sampled(len(every), most, seed=seed)]


def sampled(n: int, most: int, *, seed: int) -> Int[Tensor, "kept"]:
    """Draw ``most`` of n rows without replacement, ascending."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def data_set(name: str) -> DataSet:
    """Give a data set by its name. Raises ValueError for another."""
    sets = {d.name: d for d in _data_sets()}
    if name not in sets:
        raise ValueError(f"there is no data set {name!r}: expected one of {', '.join(sets)}")
    return sets[name]


def _data_sets() -> tuple[DataSet, ...]:
    attributes, nouns = (values[:8] for values in CAPTIONS_20.values)
    return (
        DataSet("clevr2d", CLEVR_2D, lambda: FlatRenderer(CLEVR_2D)),
        DataSet("clevr3d", CLEVR, lambda: load_rendered("clevr_3d")),
        DataSet("captions8", CAPTIONS_20.subset(attribute=attributes, noun=nouns), None),
        DataSet("captions20", CAPTIONS_20, None),
        DataSet("pocket", POCKET, lambda: pocket_renderer(seed=PICTURE_SEED)),
    )


def embed(
    encoder: Encoder, data: DataSet, *, most: int, seed: int, progress: bool = False
) -> dict[str, EmbeddingSet]:
    """Embed the pictures, the captions, or both, whatever encoder and data have in common.

    Raises ValueError when they have nothing in common.
    """
    common = [m for m in data.modalities if m in encoder.modalities]
    if not common:
        (only,) = encoder.modalities
        fitting = [d.name for d in _data_sets() if only in d.modalities]
        raise ValueError(
            f"{encoder.name} encodes {only}s, and {data.name} has none: use another data set, for example "
            f"{', '.join(fitting)}"
        )
    scenes = data.scenes(most, seed=seed)
    found = {}
    if "image" in common:
        assert data.renderer is not None
        found["image"] = encode_pictures(encoder, data.space, scenes, data.renderer(), progress=progress)
    if "text" in common:
        found["text"] = encode_captions(encoder, data.space, scenes, progress=progress)
    return found
