"""Checks for the exercises of chapter 9."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, expect_equal, one_number


@check("chooses_right")
def check_chooses_right(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Check exercise 1: the cosine with the true caption is strictly above that with the twin's, by a loop."""
    generator = torch.Generator().manual_seed(0)
    for n, dim in ((40, 3), (60, 5)):
        pictures, own, twin = torch.randn(3, n, dim, generator=generator, dtype=torch.float64)
        own *= 0.2 + 4 * torch.rand(n, 1, generator=generator, dtype=torch.float64)
        twin[: n // 4] = own[: n // 4]  # a bag gives both captions one embedding
        cosines = [
            [float(p @ t) / float(t.square().sum()) ** 0.5 for p, t in zip(pictures, texts, strict=True)]
            for texts in (own, twin)
        ]
        strict = torch.tensor([a > b for a, b in zip(*cosines, strict=True)])
        dots = (pictures * own).sum(1) > (pictures * twin).sum(1)
        distances = (pictures - own).square().sum(1) < (pictures - twin).square().sum(1)
        given = answer(pictures.clone(), own.clone(), twin.clone())
        expect_equal(
            given,
            strict,
            what="the choices",
            mistakes={
                "a tie is no recognition: use >, not >=": torch.tensor(
                    [a >= b for a, b in zip(*cosines, strict=True)]
                ),
                "the score is the cosine: long captions win a dot product": dots,
                "the score is the cosine, not the distance": distances,
                "that is true where the twin wins": torch.tensor(
                    [a < b for a, b in zip(*cosines, strict=True)]
                ),
            },
        )
    return "100 pictures"


@check("group_score")
def check_group_score(answer: Callable[[Tensor], float]) -> str:
    """Check exercise 2: all four comparisons of a quad are right, by a loop over quads."""
    generator = torch.Generator().manual_seed(0)
    for n in (200, 300):
        scores = torch.rand(n, 2, 2, generator=generator, dtype=torch.float64)
        text, image = [], []
        for (a, b), (c, d) in scores.tolist():
            text.append(a > b and d > c)  # of two captions each picture takes its own
            image.append(a > c and d > b)  # of two pictures each caption takes its own
        group = [t and i for t, i in zip(text, image, strict=True)]
        sums = [a + d > b + c for (a, b), (c, d) in scores.tolist()]
        either = [t or i for t, i in zip(text, image, strict=True)]
        expect_close(
            one_number(answer(scores.clone()), "the group score"),
            sum(group) / n,
            what="the group score",
            mistakes={
                "that is the text score; each caption has to take its own picture, too": sum(text) / n,
                "that is the image score; each picture has to take its own caption, too": sum(image) / n,
                "the sums of the two pairings hide which comparison failed: all four have to be right": sum(
                    sums
                )
                / n,
                "all four comparisons have to be right, not two of them": sum(either) / n,
                "text score times image score would be right if they were independent": sum(text)
                * sum(image)
                / n**2,
                "that is the number of quads; give their share": float(sum(group)),
            },
        )
    return "500 quads"
