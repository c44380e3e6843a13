"""Checks for the exercises of chapter 8."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close


@check("beyond_a_sum")
def check_beyond_a_sum(answer: Callable[[Tensor], Tensor]) -> str:
    """Check exercise 1: what is left of a table after mean, rows and columns, by a least-squares fit of a sum."""
    generator = torch.Generator().manual_seed(0)
    for n_first, n_second in ((3, 4), (4, 2)):
        table = torch.randn(n_first, n_second, 5, generator=generator) + 2
        marks = torch.zeros(n_first * n_second, n_first + n_second)
        for i in range(n_first):
            for j in range(n_second):
                marks[i * n_second + j, i] = marks[i * n_second + j, n_first + j] = 1.0
        flat = table.flatten(0, 1)
        left = flat - marks @ (torch.linalg.pinv(marks) @ flat)
        mean, rows, columns = table.mean((0, 1)), table.mean(1, keepdim=True), table.mean(0, keepdim=True)
        expect_close(
            answer(table.clone()),
            left.view_as(table),
            what="the part beyond a sum",
            mistakes={
                "the mean of all is in the row means and in the column means: put it back once": table
                - rows
                - columns,
                "that is the sum itself; subtract it": rows + columns - mean,
                "take off the means of the rows *and* of the columns": table - mean,
                "the means of the rows are still in it": table - columns,
                "the means of the columns are still in it": table - rows,
            },
        )
    return "two tables"


@check("without_directions")
def check_without_directions(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check exercise 2: the residuals of a regression of z on the directions, by the normal equations."""
    generator = torch.Generator().manual_seed(1)
    for n, dim in ((6, 5), (3, 8)):
        z = torch.randn(n, dim, generator=generator, dtype=torch.float64)
        directions = torch.randn(2, dim, generator=generator, dtype=torch.float64)
        onto = z @ directions.T @ torch.linalg.inv(directions @ directions.T) @ directions
        one_by_one, in_turn = z.clone(), z.clone()
        for d in directions:
            one_by_one -= (z @ d)[:, None] * d / d.square().sum()
            in_turn -= (in_turn @ d)[:, None] * d / d.square().sum()
        expect_close(
            answer(z.clone(), directions.clone()),
            z - onto,
            what="the embeddings without the directions",
            mistakes={
                "that is what lies *in* the directions; subtract it from z": onto,
                "the directions are not orthonormal: `torch.linalg.qr(directions.T).Q` is a basis that is": z
                - z @ directions.T @ directions,
                "the directions are not at right angles, what they share is taken off twice": one_by_one,
                "the directions are not at right angles: taking off the second puts back some of the first": in_turn,
            },
        )
    return "two sets of directions"
