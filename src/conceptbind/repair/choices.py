"""Which of five objects is in the picture (Lewis et al., arXiv 2212.10537)?

The right one is an object (a, n) of the scene, each slot's in turn. The wrong ones of a scene with two objects (a, n)
and (b, m): the exchanged (a, m) and (b, n), and (a, n') and (a', n) with words n', a' that the scene does not have. Of
a single object: (a, n'), (a, n''), (a', n) and (a'', n). Chance is 1/5.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.recognition import TIE_ULPS, wilson_interval
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind, check_scenes

CHANCE = 1 / 5
PARTS = {"seen": SceneKind.TRAIN, "held-out": SceneKind.HELD_OUT}


@dataclass(frozen=True)
class FiveWay:
    """Summarise choices; shares are between 0 and 1."""

    accuracy: float
    """Share of choices where the right object scores strictly above the four others."""
    low: float
    high: float
    """Wilson's 95 % interval of the accuracy."""
    ties: float
    """Share where the best wrong object scores as high as the right one."""
    n: int


def five_candidates(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], *, seed: int = 0
) -> Int[Tensor, "scene slot 5"]:
    """Give the indices of five objects for every slot of every scene, the right one first.

    ``seed`` draws the words that the scene does not have.
    Raises ValueError for another number of concepts than 2 or of slots than 1 or 2, two objects that share a word, or
    too few other words.
    """
    check_scenes(space, scenes)
    n_scenes, n_slots, n_concepts = scenes.shape
    if n_concepts != 2 or n_slots > 2:
        raise ValueError(
            f"five-way choices are for 1 or 2 objects of 2 concepts; got scenes {tuple(scenes.shape)}"
        )
    if n_slots == 2 and bool((scenes[:, 0] == scenes[:, 1]).any()):
        raise ValueError(
            "some scenes hold two objects that share a word, so that exchanging words leaves them as they are: leave "
            "these out (repeats='distinct values')"
        )
    n_others = 3 - n_slots
    if min(space.n_values) < n_slots + n_others:
        raise ValueError(
            f"every concept needs {n_slots + n_others} values for five different objects; got {space.n_values}"
        )
    generator = torch.Generator().manual_seed(seed)
    found = []
    for slot in range(n_slots):
        right = scenes[:, slot].cpu()
        wrong = []
        for concept in range(2):
            if n_slots == 2:
                exchanged = right.clone()
                exchanged[:, concept] = scenes[:, 1 - slot, concept].cpu()
                wrong.append(exchanged)
            drawn = torch.rand(n_scenes, space.n_values[concept], generator=generator)
            drawn.scatter_(1, scenes[..., concept].cpu(), -1.0)
            for word in drawn.topk(n_others).indices.unbind(1):
                other = right.clone()
                other[:, concept] = word
                wrong.append(other)
        found.append(torch.stack([space.object_index(x) for x in (right, *wrong)], 1))
    return torch.stack(found, 1).to(scenes.device)


def five_way(
    scores: Float[Tensor, "picture object"],
    candidates: Int[Tensor, "choice 5"],
    pictures: Int[Tensor, "choice"],
) -> FiveWay:
    """Choose among ``candidates``, the right one first, by the scores of ``pictures``; rows name pictures.

    Margins within 32 machine epsilons of the largest score are ties.
    Raises ValueError when there is no choice, or a score is not finite.
    """
    if not len(candidates):
        raise ValueError("there is no choice to make: give at least one picture with five candidates")
    chosen = scores[pictures].gather(1, candidates)
    if not bool(chosen.isfinite().all()):
        raise ValueError("scores hold NaN or infinite numbers: an embedding does, or has no direction")
    margin = chosen[:, 0] - chosen[:, 1:].amax(1)
    tied = margin.abs() <= TIE_ULPS * torch.finfo(scores.dtype).eps * chosen.abs().amax(1)
    accuracy = float(((margin > 0) & ~tied).double().mean())
    low, high = wilson_interval(accuracy, len(margin))
    return FiveWay(accuracy, low, high, float(tied.double().mean()), len(margin))


def five_way_by_part(
    split: ObjectSplit,
    scenes: Int[Tensor, "picture slot concept"],
    scores: Float[Tensor, "picture object"],
    *,
    seed: int = 0,
) -> dict[str, FiveWay]:
    """Choose for pictures of seen objects only, and of held-out objects only: "seen" and "held-out", if there are any.

    ``scores``: of every object of the space, by its index. ``seed`` and errors as in :func:`five_candidates`.
    """
    kinds, found = split.kinds(scenes), {}
    for part, kind in PARTS.items():
        pictures = (kinds == kind).nonzero().squeeze(1)
        if len(pictures):
            candidates = five_candidates(split.space, scenes[pictures], seed=seed).to(scores.device)
            rows = pictures.to(scores.device).repeat_interleave(candidates.shape[1])
            found[part] = five_way(scores, candidates.flatten(0, 1), rows)
    return found
