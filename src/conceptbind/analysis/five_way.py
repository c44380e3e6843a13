"""Five-way choice: which of five objects is in a picture of two (after Lewis et al. 2024, arXiv 2212.10537).

Every object of a picture is asked for once. Its rivals are the two *recombined* objects, which exchange one concept's
value between the two that are there ("red square" and "blue circle" of a red circle and a blue square), and two *other*
objects, drawn uniformly from those that are neither in the picture nor recombined. The true object counts when its
cosine with the picture is strictly the largest; the five have no order, so nothing favours the first.

Lewis et al. publish one true and four wrong labels a picture, without the rule that drew the latter; the rule above is
ours, and keeps what the task tests: the true object against recombinations of what is in the picture.

Chance is 1/5. A bag of concepts ties with the recombined objects: its accuracy is 0 where the tie is exact. Where noise
breaks the tie it is above chance, since a bag does tell the two others apart: 1/3 for independent noise in the queries;
1/4 for noise in the pictures, which favours one value of each concept, and the true object needs both. So the choice is
also given against the recombined objects alone, and against the others alone, with a chance of 1/3 each. A picture
whose two objects share a value recombines into itself, and is left out.

An object whose query is near to every picture is found more often than others, whatever is shown. Where that goes by
colour and by shape apart it wins 1/4 against the recombined objects over all, which is below chance, and in a part
anything: so a number below chance is a sign of anti-binding only where :func:`text_only`, which does not look at the
pictures, is not as low.

With a split, "seen" and "held-out" say what the object asked for is. In "... alike" the recombined objects are so, too:
there, familiar objects have no advantage over them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from conceptbind.analysis.choice import Choice, summarise_choice, unit
from conceptbind.analysis.twins import swap_concept
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.retrieval import TIE_ULPS
from conceptbind.scenes import ObjectSplit

N_OTHERS = 2
BLOCK_SCORES = 2**22


@dataclass(frozen=True)
class FiveWayRow:
    """Hold the choices of one part."""

    part: str
    """"all", and with a split "seen", "held-out", "seen alike" and "held-out alike"."""
    five_way: Choice
    recombined: Choice
    """Against the two recombined objects alone."""
    others: Choice
    """Against the two other objects alone."""

    def as_dict(self) -> dict[str, Any]:
        """Give one flat dictionary for a table or JSON: NaN becomes None."""
        row: dict[str, Any] = {"part": self.part}
        for name in ("five_way", "recombined", "others"):
            fields = getattr(self, name).as_dict()
            row[name] = fields.pop("accuracy")
            row |= {f"{name}_{key}": value for key, value in fields.items()}
        return row


@dataclass(frozen=True)
class FiveWay:
    """Hold what :func:`five_way` measured."""

    rows: tuple[FiveWayRow, ...]
    n_left_out: int
    """Pictures whose two objects share a value of the exchanged concept, or everything else."""

    def of(self, part: str = "all") -> FiveWayRow:
        """Give one row. Raises KeyError, naming the parts there are, when there is none."""
        for row in self.rows:
            if row.part == part:
                return row
        raise KeyError(f"no part {part!r}; there are {[r.part for r in self.rows]}")

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give one flat dictionary a part."""
        return [row.as_dict() for row in self.rows]


def five_way(
    images: EmbeddingSet,
    queries: EmbeddingSet,
    *,
    split: ObjectSplit | None = None,
    concept: int = 0,
    seed: int = 0,
) -> FiveWay:
    """Ask for each object of every picture among five.

    ``images``: of two objects. ``queries``: captions of single objects, one for every possible object of the space.
    ``seed``: draws the two other objects, and resamples for the intervals, over objects.
    Raises ValueError for sets or a split of different spaces, other numbers of objects, objects without a query,
    embeddings of different lengths or without a direction, or when no picture can be judged.
    """
    _check(images, queries, split)
    space = images.space
    q = unit(queries.embeddings, "query embeddings")
    vectors = q.new_zeros(space.n_possible_objects, q.shape[1])
    vectors[space.object_index(queries.scenes[:, 0])] = q
    own = space.object_index(images.scenes)
    recombined = space.object_index(swap_concept(images.scenes, concept))
    judged = (own.sort(1).values != recombined.sort(1).values).all(1)
    if not bool(judged.any()):
        raise ValueError(
            "every picture's two objects share a value, so none recombines into other objects: give pictures of "
            "objects that differ in both concepts"
        )
    own, recombined = own[judged], recombined[judged]
    pictures = unit(images.embeddings[judged], "image embeddings")
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[Tensor]] = {"five_way": [], "recombined": [], "others": []}
    for rows in torch.arange(len(own)).split(max(1, BLOCK_SCORES // len(vectors))):
        scores = pictures[rows] @ vectors.T
        others = _others(own[rows], recombined[rows], len(vectors), generator)
        best_recombined = scores.gather(1, recombined[rows]).amax(1, keepdim=True)
        best_other = scores.gather(1, others.flatten(1)).unflatten(1, others.shape[1:]).amax(2)
        true = scores.gather(1, own[rows])
        found["recombined"].append(true - best_recombined)
        found["others"].append(true - best_other)
        found["five_way"].append(true - torch.maximum(best_recombined, best_other))
    noise = TIE_ULPS * torch.finfo(pictures.dtype).eps
    margins = {name: torch.cat(parts) for name, parts in found.items()}
    margins = {name: torch.where(m.abs() <= noise, 0.0, m) for name, m in margins.items()}
    shown = own[:, None].expand(-1, 2, -1)
    chances = {"five_way": 1 / 5, "recombined": 1 / 3, "others": 1 / 3}
    rows_out = [
        FiveWayRow(
            part,
            **{
                name: summarise_choice(m[here], objects=shown[here], chance=chances[name], seed=seed)
                for name, m in margins.items()
            },
        )
        for part, here in _parts(own, recombined, split).items()
    ]
    return FiveWay(tuple(rows_out), int((~judged).sum()))


def text_only(images: EmbeddingSet, queries: EmbeddingSet, **settings: Any) -> FiveWay:
    """Ask without looking: every picture has the mean of all pictures' unit vectors.

    Arguments and errors as in :func:`five_way`; of equal ``seed`` the questions are the same.
    """
    mean = unit(images.embeddings, "image embeddings").mean(0, keepdim=True)
    blind = replace(
        images,
        embeddings=mean.expand(images.n_scenes, -1).contiguous(),
        provenance={**images.provenance, "baseline": "text only"},
    )
    return five_way(blind, queries, **settings)


def _others(
    own: Int[Tensor, "scene 2"], recombined: Int[Tensor, "scene 2"], n_all: int, generator: torch.Generator
) -> Int[Tensor, "scene 2 other"]:
    """Draw other objects for both questions of every picture, without replacement."""
    keys = torch.rand(len(own), 2, n_all, generator=generator)
    taken = torch.cat([own, recombined], 1)[:, None].expand(-1, 2, -1)
    return keys.scatter_(2, taken, -math.inf).topk(N_OTHERS, 2).indices


def _parts(
    own: Int[Tensor, "scene 2"], recombined: Int[Tensor, "scene 2"], split: ObjectSplit | None
) -> dict[str, Bool[Tensor, "scene 2"]]:
    every = torch.ones(own.shape, dtype=torch.bool)
    if split is None:
        return {"all": every}
    seen, others = split.is_train[own], split.is_train[recombined]
    parts = {"all": every, "seen": seen, "held-out": ~seen}
    parts["seen alike"] = seen & others.all(1, keepdim=True)
    parts["held-out alike"] = ~seen & ~others.any(1, keepdim=True)
    return parts


def _check(images: EmbeddingSet, queries: EmbeddingSet, split: ObjectSplit | None) -> None:
    space = images.space
    if queries.space != space or (split is not None and split.space != space):
        raise ValueError(
            "images, queries and split must be of one concept space: build them from the same one"
        )
    slots = images.scenes.shape[1], queries.scenes.shape[1]
    if slots != (2, 1):
        raise ValueError(
            f"five_way asks pictures of 2 objects for single ones; got images of {slots[0]} and queries of {slots[1]}"
        )
    if images.dim != queries.dim:
        raise ValueError(
            f"images have {images.dim} dimensions, queries {queries.dim}: embed both with one image-text model"
        )
    known = space.object_index(queries.scenes[:, 0]).unique()
    if len(known) < space.n_possible_objects:
        raise ValueError(
            f"queries name {len(known)} of the {space.n_possible_objects} objects: give a caption of each, as "
            "single_object_scenes(space) lists them"
        )
    if space.n_possible_objects < 4 + N_OTHERS:
        raise ValueError(
            f"five_way needs a space of at least {4 + N_OTHERS} objects, to draw {N_OTHERS} that are neither in the "
            f"picture nor recombined; this one has {space.n_possible_objects}"
        )
