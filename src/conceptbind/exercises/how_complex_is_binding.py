"""Checks for the exercises of chapter 6."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, one_number


@check("stable_share")
def check_stable_share(answer: Callable[[Tensor], float]) -> str:
    """Check exercise 1: |mean difference|² over mean |difference|², by loops over pairs of values and contexts."""
    generator = torch.Generator().manual_seed(0)
    for n_first, n_second in ((3, 4), (2, 5)):
        z = torch.randn(n_first, n_second, 6, generator=generator)
        z = (
            z
            + 2 * torch.randn(n_first, 1, 6, generator=generator)
            + torch.randn(1, n_second, 6, generator=generator)
        )
        stable = total = stable_root = root = 0.0
        for a in range(n_first):
            for b in range(n_first):
                changes = torch.stack([z[b, context] - z[a, context] for context in range(n_second)])
                stable += float(changes.mean(0).square().sum())
                total += float(changes.square().sum(1).mean())
                stable_root += float(changes.mean(0).norm())
                root += float(changes.norm(dim=1).mean())
        other = z.transpose(0, 1)
        crossed = other.unsqueeze(0) - other.unsqueeze(1)
        expect_close(
            one_number(answer(z), "the stable share"),
            stable / total,
            what="the stable share",
            mistakes={
                "that is the share that *depends* on the second concept: take it from 1": 1 - stable / total,
                "squares, not lengths": stable_root / root,
                "you changed the second concept; change the first": float(
                    crossed.mean(2).square().sum() / crossed.square().sum(3).mean(2).sum()
                ),
            },
        )
    return "two grids"


@check("missing_corner")
def check_missing_corner(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> str:
    """Check exercise 2: in a table of products a_i b_j, the corner (0, 0) is (0, 1) times (1, 0) over (1, 1)."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        first, second = (torch.rand(2, 8, generator=generator) + 0.5 for _ in range(2))
        corner = [[first[i] * second[j] for j in range(2)] for i in range(2)]
        expect_close(
            answer(corner[0][1], corner[1][0], corner[1][1]),
            corner[0][0],
            what="the embedding of the red circle",
            mistakes={
                "that is how a *sum* would be completed; here the table is one of products": corner[0][1]
                + corner[1][0]
                - corner[1][1],
                "the blue square is in both of the others: divide it out": corner[0][1] * corner[1][0],
                "one of the three is on the wrong side of the fraction": corner[0][1]
                * corner[1][1]
                / corner[1][0],
            },
        )
    return "two tables of products"
