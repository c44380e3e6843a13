"""Approximators of a binding function: g(concept indices of a scene) -> embedding (paper, section 2, F6).

All share one interface. A :class:`Task` holds the scenes and, for one or more fits, which of them train; an
:class:`Approximator` fits all of them together and gives an :class:`Approximation`, which predicts embeddings of any
scene. Nothing here sees a scene with a held-out object before it is judged.

What an approximator chooses (a penalty, a rank, when to stop) it chooses on *validation objects*: a share of the
training objects. It is fitted to the scenes without them (``inner``), judged on the other training scenes
(``validation``), and then fitted once more, with that choice, to all training scenes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.probing import Embedded
from conceptbind.scenes import ConceptSpace, ObjectSplit

VALIDATION_SHARE = 0.2
"""Share of the training objects that validate."""

VALIDATION_SALT = 0x7A11D
"""Added to the seed that draws the validation objects, so that they do not depend on the split."""


@dataclass(frozen=True, eq=False)
class Task:
    """Hold what one or more fits are made from; make it with :func:`make_task`."""

    embeddings: Float[Tensor, "scene dim"]
    scenes: Int[Tensor, "scene slot concept"]
    space: ConceptSpace
    splits: tuple[ObjectSplit, ...]
    """One a fit."""
    train: Bool[Tensor, "fit scene"]
    """Scenes made of training objects only."""
    inner: Bool[Tensor, "fit scene"]
    """Training scenes without a validation object; empty where there are too few objects to spare any."""
    validation: Bool[Tensor, "fit scene"]
    """The other training scenes, where ``inner`` is not empty."""
    seeds: tuple[int, ...]
    """One a fit: of everything that is drawn."""

    @property
    def n_fits(self) -> int:
        """How many fits are made together."""
        return len(self.train)

    @property
    def validates(self) -> bool:
        """Whether every fit has validation objects."""
        return bool(self.inner.any(1).all() and self.validation.any(1).all())

    def select(self, fits: Sequence[int]) -> Task:
        """Keep some of the fits, in the order given."""
        masks = (mask[list(fits)] for mask in (self.train, self.inner, self.validation))
        splits, seeds = (tuple(every[f] for f in fits) for every in (self.splits, self.seeds))
        return Task(self.embeddings, self.scenes, self.space, splits, *masks, seeds)

    def batches(self) -> list[tuple[list[int], Task]]:
        """Group the fits by their numbers of training scenes, with and without validation objects.

        Networks are only stacked where both agree; on a full grid of scenes that is one group. Give the places of the
        fits in this task, and the task of each group.
        """
        sizes = zip(self.train.sum(1).tolist(), self.inner.sum(1).tolist(), strict=True)
        groups: dict[tuple[int, int], list[int]] = {}
        for fit, size in enumerate(sizes):
            groups.setdefault(size, []).append(fit)
        return [(fits, self.select(fits)) for fits in groups.values()]


@runtime_checkable
class Approximation(Protocol):
    """What an approximator found, for all fits of a task."""

    @property
    def n_parameters(self) -> Sequence[int]:
        """Of every fit: numbers that the training scenes determine."""
        ...

    @property
    def converged(self) -> Sequence[bool]:
        """Of every fit: whether the optimiser did its work, as the approximator defines it."""
        ...

    @property
    def details(self) -> Sequence[dict[str, Any]]:
        """Of every fit: what was chosen on the validation objects, ready for JSON."""
        ...

    def predict(self, fit: int, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Give one fit's embeddings of scenes; a value that it never saw adds nothing."""
        ...


@runtime_checkable
class Approximator(Protocol):
    """A family of functions and the way it is fitted."""

    @property
    def name(self) -> str:
        """What figures call it."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines a fit beside the task, ready for JSON."""
        ...

    def fit(self, task: Task) -> Approximation:
        """Fit every split of the task."""
        ...


def make_task(data: Embedded, splits: Sequence[ObjectSplit], *, seeds: Sequence[int]) -> Task:
    """Put together the fits of several object splits.

    A fifth of the training objects of each split, at least one, validate. They are drawn such that the other training
    objects still show every value that the training objects show; where that leaves none, or no training scene
    without them, the split has no validation objects.
    Raises ValueError when a split belongs to another space, or leaves no training scene, or the numbers differ.
    """
    if len(splits) != len(seeds) or not splits:
        raise ValueError(f"{len(splits)} splits but {len(seeds)} seeds: give one seed for each split")
    space, scenes = data.space, data.scenes
    if any(s.space != space for s in splits):
        raise ValueError("a split was drawn for another concept space: draw it with object_split(space, ...)")
    names = space.object_index(scenes)
    train, inner = [], []
    for split, seed in zip(splits, seeds, strict=True):
        mask = split.is_train.to(names.device)
        train.append(mask[names].all(1))
        if not bool(train[-1].any()):
            raise ValueError(
                f"coverage {split.coverage:.2f} leaves no scene of training objects only among {len(scenes)} scenes: "
                "use a larger coverage, or more scenes"
            )
        kept = mask & ~validation_objects(split, seed=seed).to(mask.device)
        rows = kept[names].all(1)
        inner.append(rows if bool((train[-1] & ~rows).any()) else torch.zeros_like(rows))
    stacked, inside = torch.stack(train), torch.stack(inner)
    outside = stacked & ~inside & inside.any(1, keepdim=True)
    return Task(
        data.embeddings, scenes, space, tuple(splits), stacked, inside, outside, tuple(int(s) for s in seeds)
    )


def validation_objects(split: ObjectSplit, *, seed: int) -> Bool[Tensor, "object"]:
    """Draw a fifth of the training objects, at least one, none of which is the only one to show a value.

    All False where no training object can be spared.
    """
    generator = torch.Generator().manual_seed(seed + VALIDATION_SALT)
    index = split.is_train.nonzero().squeeze(1)
    objects = split.space.objects_from_index(index)
    wanted = max(1, round(VALIDATION_SHARE * len(index)))
    counts = [torch.bincount(objects[:, k], minlength=v) for k, v in enumerate(split.space.n_values)]
    chosen = torch.zeros_like(split.is_train)
    for i in torch.randperm(len(index), generator=generator).tolist():
        if int(chosen.sum()) == wanted:
            break
        if all(int(count[v]) > 1 for count, v in zip(counts, objects[i].tolist(), strict=True)):
            chosen[index[i]] = True
            for count, v in zip(counts, objects[i].tolist(), strict=True):
                count[v] -= 1
    return chosen
