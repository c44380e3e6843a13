"""Checks for the exercises of chapter 5."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, expect_equal, wrong


@check("edit_vector")
def check_edit_vector(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Check exercise 1: the parts of the target minus the parts of the source, each slot with its own parts."""
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(2, 6, 8, generator=generator)
    before, after = (torch.randint(6, (30, 2), generator=generator) for _ in range(2))

    def total(index: Tensor, own: Tensor = parts) -> Tensor:
        return own[0][index[:, 0]] + own[1][index[:, 1]]

    first = parts[:1].expand(2, -1, -1)
    expect_close(
        answer(parts, before, after),
        total(after) - total(before),
        what="the edit",
        mistakes={
            "you added the new objects; the old ones have to go, too: subtract theirs": total(after),
            "the signs are exchanged: the target's parts come in, the source's go out": total(before)
            - total(after),
            "slot 1 has parts of its own: parts[1]": total(after, first) - total(before, first),
            "only the first slot is edited; add up both": parts[0][after[:, 0]] - parts[0][before[:, 0]],
        },
    )
    same = answer(parts, before, before)
    expect_close(same, torch.zeros_like(same), what="the edit from a scene to itself")
    return "30 edits of two slots"


@check("strictly_nearest")
def check_strictly_nearest(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check exercise 2: the target's similarity is above that of every other scene, ties excluded."""
    similar = torch.tensor(
        [
            [0.9, 0.5, 0.1, 0.2],
            [0.9, 0.9, 0.1, 0.2],
            [0.2, 0.1, 0.6, 0.6],
            [0.3, 0.9, 0.9, 0.9],
            [0.1, 0.2, 0.3, 0.8],
            [0.5, 0.5, 0.5, 0.5],
            [0.1, 0.7, 0.2, 0.3],
            [-0.4, -0.3, -0.1, -0.2],
        ]
    )
    target = torch.tensor([0, 0, 3, 1, 3, 0, 0, 2])
    before = similar.clone()
    rows = torch.arange(len(target))
    own = similar[rows, target]
    others = similar.clone()
    others[rows, target] = -torch.inf
    best = others.amax(1)
    got = answer(similar, target)
    if not torch.equal(similar, before):
        wrong("your function changes the similarities it was given: work on a copy (clone)")
    if isinstance(got, Tensor) and got.dtype != torch.bool:
        wrong("give one truth value an edit (a Boolean tensor)")
    expect_equal(
        got,
        own > best,
        what="the hits",
        mistakes={
            "a tie counts as a hit for you; the target has to be *strictly* the nearest": own >= best,
            "argmax takes the first of several equal scenes, so a tie may count as a hit": similar.argmax(1)
            == target,
            "no similarity is larger than itself: leave the target out of the maximum": own > similar.amax(1),
            "others set to 0 beat negative similarities: use float('-inf')": own
            > similar.scatter(1, target[:, None], 0.0).amax(1),
        },
    )
    return "ties, and negative similarities"
