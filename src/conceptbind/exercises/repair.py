"""Checks for the exercises of chapter 10."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close


@check("ridge_repair")
def check_ridge_repair(answer: Callable[[Tensor, Tensor, float], Tensor]) -> str:
    """Check exercise 1: least squares on the pairs and, below them, on the rows of the identity."""
    generator = torch.Generator().manual_seed(0)
    for n, dim, strength in ((20, 4, 0.5), (3, 5, 2.0)):
        x, t = torch.randn(2, n, dim, generator=generator, dtype=torch.float64)
        eye = torch.eye(dim, dtype=torch.float64)
        below = strength**0.5 * eye
        right = torch.linalg.lstsq(torch.cat([t, below]), torch.cat([x, below])).solution.T
        plain = torch.linalg.solve(t.T @ t + strength * eye, t.T @ x).T
        backwards = torch.linalg.lstsq(torch.cat([x, below]), torch.cat([t, below])).solution.T
        expect_close(
            answer(x.clone(), t.clone(), strength),
            right,
            what="the matrix",
            mistakes={
                "W acts on captions as W t: that is the transpose of what solves t W = x": right.T,
                "the penalty pulls W to the identity, not to zero: the strength is on the right side, too": plain,
                "that matrix takes pictures to captions": backwards,
                "without the penalty nothing keeps W near the identity": (torch.linalg.pinv(t) @ x).T,
            },
        )
    return "two sets of pairs"


@check("compose")
def check_compose(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check exercise 2: the sum over slots of elementwise products, by a loop."""
    generator = torch.Generator().manual_seed(0)
    for n_scenes, n_slots, dim in ((4, 2, 5), (3, 3, 4)):
        first, second = torch.randn(2, n_scenes, n_slots, dim, generator=generator)
        right = torch.zeros(n_scenes, dim)
        for i in range(n_scenes):
            for j in range(n_slots):
                right[i] += first[i, j] * second[i, j]
        expect_close(
            answer(first.clone(), second.clone()),
            right,
            what="the scenes",
            mistakes={
                "a sum of values forgets what belongs together; multiply": (first + second).sum(1),
                "multiply within each object, then add: a product of sums mixes the objects": first.sum(1)
                * second.sum(1),
                "objects are added up, not multiplied": (first * second).prod(1),
                "add the objects up; that is their mean": (first * second).mean(1),
            },
        )
    return "two sets of scenes"
