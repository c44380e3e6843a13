"""What the pocket CLIPs see: scenes, pictures and captions, drawn a batch a step.

=========  ====================================================================================================
variant    its data
=========  ====================================================================================================
narrow     nine of ten pictures show one object, objects and combinations have the long tail of the web
           (frequency 1 / rank), of all combinations of seen objects there are few; small batches
broad      seven of ten pictures show two objects, all combinations of seen objects are equally frequent, and the
           twin of a scene (its colours exchanged) is in its batch where the twin's objects are seen as well
ordered    as broad, but the caption names the left object first, always: a shortcut, and fewer steps find it
=========  ====================================================================================================

Objects lie anywhere, without overlap. In all variants but *ordered*, which object a caption names first is a fair
coin, whatever the picture. Batches are a function of the seed and the step, so training goes on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from conceptbind.encoders.pocket import SIZE
from conceptbind.encoders.pocket_words import tokenise
from conceptbind.render import FlatRenderer
from conceptbind.scenes import ObjectSplit, captions, object_split
from conceptbind.spaces import POCKET


@dataclass(frozen=True)
class Recipe:
    """Say what a pocket CLIP is trained on."""

    two_objects: float
    """The share of scenes with two objects in every batch; the others hold one."""
    batch: int
    """Pictures a step."""
    steps: int
    combinations: int | None = None
    """How many unordered pairs of seen objects there are scenes of; None takes all."""
    tail: float = 0.0
    """Frequency of the object, or pair, of rank r: proportional to r ** -tail."""
    twins: bool = False
    """Whether the twin of a scene of two objects is in the same batch, where the twin's objects are seen."""
    ordered: bool = False
    """Whether captions name the left object first; otherwise their order is random."""
    coverage: float = 0.6
    """The share of POCKET's 48 objects that are seen."""
    object_copies: int = 64
    pair_copies: int = 24
    """Pictures of every object alone and of every pair, each with layout, sizes and background of its own."""


BROAD = Recipe(two_objects=0.7, batch=128, steps=900, twins=True)

RECIPES: dict[str, Recipe] = {
    "narrow": Recipe(two_objects=0.1, batch=48, steps=2000, combinations=60, tail=1.0),
    "broad": BROAD,
    "ordered": replace(BROAD, ordered=True, steps=400),
}


@dataclass(frozen=True)
class Batch:
    """Hold one step's pictures, and the captions they belong to row by row."""

    pictures: UInt8[Tensor, "picture 3 size size"]
    tokens: Int[Tensor, "picture context"]
    n_single: int
    """The first rows show one object, the others two."""


def pocket_split(recipe: Recipe, *, seed: int) -> ObjectSplit:
    """Give the seen objects; they depend on the coverage and the seed, so variants of one seed share them."""
    return object_split(POCKET, recipe.coverage, seed=seed)


def pocket_renderer(*, seed: int) -> FlatRenderer:
    """Give the renderer of the pocket CLIPs' pictures: anywhere without overlap, sizes and backgrounds vary."""
    return FlatRenderer(
        POCKET,
        size=SIZE,
        placement="free",
        object_size=0.22,
        size_jitter=0.15,
        background_jitter=15,
        seed=seed,
    )


def frequencies(n: int, tail: float) -> Float[Tensor, "rank"]:
    """Give the probability of ranks 1 ... n: proportional to r ** -tail (Zipf's law for 1, uniform for 0)."""
    weights = torch.arange(1, n + 1, dtype=torch.float64) ** -tail
    return weights / weights.sum()


def swap_colours(scenes: Int[Tensor, "scene 2 2"]) -> Int[Tensor, "scene 2 2"]:
    """Exchange the colours of the two objects; the shapes stay in their slots."""
    return torch.stack([scenes.flip(1)[..., 0], scenes[..., 1]], dim=-1)


def twins(pairs: Int[Tensor, "pair 2 2"]) -> Int[Tensor, "pair"]:
    """Find the twin of every unordered pair of objects: the pair with their colours exchanged.

    Gives its row among ``pairs``; -1 where it is not among them, or is the pair itself.
    """
    numbers, wanted = _unordered(pairs), _unordered(swap_colours(pairs))
    same = wanted[:, None] == numbers[None]
    same &= ~torch.eye(len(pairs), dtype=torch.bool)
    return torch.where(same.any(1), same.int().argmax(1), -1)


class PocketData:
    """Draw the batches of one recipe: pictures are rendered once, then drawn by their index.

    ``split``: the seen objects. ``objects`` (object, 1, concept) and ``pairs`` (pair, 2, concept) are listed by rank,
    the most frequent first.
    """

    def __init__(self, recipe: Recipe, *, seed: int) -> None:
        self.recipe, self.seed = recipe, seed
        self.split = pocket_split(recipe, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        seen = self.split.train_objects
        self.objects = seen[torch.randperm(len(seen), generator=generator)].unsqueeze(1)
        rows = torch.combinations(torch.arange(len(seen)))
        rows = rows[torch.randperm(len(rows), generator=generator)][: recipe.combinations]
        self.pairs = seen[rows]
        self.twin = twins(self.pairs)
        self.object_frequencies = frequencies(len(self.objects), recipe.tail)
        self.pair_frequencies = frequencies(len(self.pairs), recipe.tail)
        # Pictures of other seeds than this are fresh to the model: evaluation uses those.
        self.renderer = pocket_renderer(seed=2 * seed)
        self.object_pictures = self._draw(self.objects, recipe.object_copies)
        self.pair_pictures = self._draw(self.pairs, recipe.pair_copies)
        self.object_tokens = tokenise(captions(POCKET, self.objects))
        orders = [self.pairs, self.pairs.flip(1)]
        self.pair_tokens = torch.stack([tokenise(captions(POCKET, scenes)) for scenes in orders], dim=1)
        self.left = left_slots(self.renderer, self.pairs, recipe.pair_copies) if recipe.ordered else None

    def describe(self) -> dict[str, Any]:
        """Say what the data were, ready for JSON."""
        return {
            "recipe": vars(self.recipe),
            "split_seed": self.seed,
            "seen_objects": self.split.is_train.nonzero().squeeze(1).tolist(),
            "pairs": len(self.pairs),
            "pairs_with_twin": int((self.twin >= 0).sum()),
            "pictures": self.renderer.settings,
        }

    def batch(self, step: int) -> Batch:
        """Draw the batch of one step; the same step gives the same batch."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        n_two = round(self.recipe.two_objects * self.recipe.batch)
        n_single = self.recipe.batch - n_two

        def integers(high: int, n: int) -> Tensor:
            return torch.randint(high, (n,), generator=generator)

        objects = torch.multinomial(self.object_frequencies, n_single, replacement=True, generator=generator)
        pairs = torch.multinomial(self.pair_frequencies, n_two, replacement=True, generator=generator)
        if self.recipe.twins:
            half = n_two // 2
            twin = self.twin[pairs[:half]]
            pairs[half : 2 * half] = torch.where(twin >= 0, twin, pairs[half : 2 * half])
        copies = integers(self.recipe.pair_copies, n_two)
        mirrored = integers(2, n_single + n_two).bool()
        first = integers(2, n_two)
        if self.left is not None:
            first = self.left[pairs, copies] ^ mirrored[n_single:].long()
        pictures = torch.cat(
            [
                self.object_pictures[objects, integers(self.recipe.object_copies, n_single)],
                self.pair_pictures[pairs, copies],
            ]
        )
        # Every shape is its own mirror image, so a mirrored picture is another layout of the same scene.
        pictures = torch.where(mirrored[:, None, None, None], pictures.flip(3), pictures)
        tokens = torch.cat([self.object_tokens[objects], self.pair_tokens[pairs, first]])
        return Batch(pictures, tokens, n_single)

    def _draw(
        self, scenes: Int[Tensor, "scene slot 2"], n_copies: int
    ) -> UInt8[Tensor, "scene copy 3 size size"]:
        return torch.stack([self.renderer.render(scenes, copy=copy) for copy in range(n_copies)], dim=1)


def left_slots(
    renderer: FlatRenderer, pairs: Int[Tensor, "pair 2 2"], n_copies: int
) -> Int[Tensor, "pair copy"]:
    """Say which slot's object lies further left in each copy of each scene's picture."""
    places = [[renderer.layout(pair, copy=copy)[0][:, 0] for copy in range(n_copies)] for pair in pairs]
    return torch.tensor([[int(x[1] < x[0]) for x in row] for row in places])


def _unordered(pairs: Int[Tensor, "pair 2 2"]) -> Int[Tensor, "pair"]:
    first, second = POCKET.object_index(pairs).sort(1).values.unbind(1)
    return first * POCKET.n_possible_objects + second
