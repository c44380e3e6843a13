"""Checks for the exercises of chapter 4."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, wrong


@check("cut_out")
def check_cut_out(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check exercise 1: every value's scenes are moved onto the mean of all scenes."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(4, (60,), generator=generator)
    z = torch.randn(60, 5, generator=generator) + torch.randn(4, 5, generator=generator)[values] + 2
    of_value = (values == torch.arange(4).unsqueeze(1)).float()
    means = (of_value @ z / of_value.sum(1, keepdim=True))[values]
    right = z - means + z.mean(0)
    given = z.clone()
    got = answer(given, values)
    if not torch.equal(given, z):
        wrong("you changed `z` itself: work on a copy, or write `z - ...`")
    expect_close(
        got,
        right,
        what="what is left",
        mistakes={
            "the mean of *all* scenes is taken off; each scene loses the mean of those with *its* value": z
            - z.mean(0),
            "the cloud has moved to zero: a part is a *difference* from the mean of all scenes, put that back": z
            - means,
            "that is what has to be subtracted, not what is left": means,
            "these are the parts; subtract them from z": means - z.mean(0),
        },
    )
    counts = of_value.sum(1)
    if counts.max() == counts.min():
        raise RuntimeError("the values must occur in different numbers")
    return "4 values in different numbers"


@check("colours_through_objects")
def check_colours_through_objects(answer: Callable[[Tensor, int, int], Tensor]) -> str:
    """Check exercise 2: a colour scores as its best object, over the shapes."""
    generator = torch.Generator().manual_seed(1)
    for n_colours, n_shapes in [(8, 3), (2, 5), (4, 4)]:
        scores = torch.randn(30, n_colours * n_shapes, generator=generator)
        grid = scores.reshape(30, n_colours, n_shapes)
        misread = scores.reshape(30, n_shapes, n_colours).amax(1)
        linear = "is linear again, and to that the cut has made it blind: take the best"
        expect_close(
            answer(scores, n_colours, n_shapes),
            grid.amax(2),
            what=f"the scores of {n_colours} colours",
            mistakes={
                f"a mean of linear scores {linear}": grid.mean(2),
                f"a sum of linear scores {linear}": grid.sum(2),
                "that is the best object of each *shape*; go over the shapes, keep the colours": grid.amax(1),
                "objects 0, 1, … are the shapes of the first colour: reshape to (scene, colour, shape)": misread,
                "that is *which* object is the best one; the score is asked for (amax, not argmax)": grid.argmax(
                    2
                ),
            },
        )
    return "8 × 3, 2 × 5 and 4 × 4 objects"
