"""Checks for the exercises of chapter 2."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, wrong


@check("chance")
def check_chance(answer: Callable[[int, int], float]) -> str:
    """Check exercise 1: the share of orders of V queries with the p present ones first, by counting subsets."""
    for n_queries, n_present in [(24, 2), (8, 2), (3, 1), (24, 3)]:
        subsets = list(itertools.combinations(range(n_queries), n_present))
        expect_close(
            answer(n_queries, n_present),
            1 / len(subsets),
            what=f"chance for {n_present} of {n_queries}",
            mistakes={
                "that is the chance that *one* present query comes first; all of them have to": n_present
                / n_queries,
                "drawn with replacement: after the first, only V − 1 are left": n_queries**-n_present,
                "the order among the present ones does not matter: they are counted too often": 1
                / len(list(itertools.permutations(range(n_queries), n_present))),
                "that is 1 / V, the chance for a scene of one object": 1 / n_queries,
            },
            atol=1e-9,
        )
    return "counted for four sizes"


@check("soft_targets")
def check_soft_targets(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Check exercise 2: mass 1/m on the class of each slot, adding up where two slots agree."""
    labels = torch.tensor([[0, 2], [1, 1], [3, 0]])
    right = torch.tensor([[0.5, 0, 0.5, 0], [0, 1.0, 0, 0], [0.5, 0, 0, 0.5]])
    got = answer(labels, 4)
    if not isinstance(got, Tensor) or not got.is_floating_point():
        wrong("give a tensor of floats of shape (scene, class)")
    expect_close(
        got,
        right,
        what="the targets",
        mistakes={
            "two slots with the same class should add up to 1: `scatter_` overwrites, `scatter_add_` adds": right.clamp(
                max=0.5
            ),
            "each row should sum to 1: divide by the number of objects": right * 2,
            "these marks say only what is present; the target is a distribution, each row sums to 1": (
                right > 0
            ).float(),
        },
    )
    generator = torch.Generator().manual_seed(0)
    triples = torch.randint(5, (40, 3), generator=generator)
    expect_close(
        answer(triples, 5),
        torch.nn.functional.one_hot(triples, 5).double().mean(1).float(),
        what="the targets of 40 scenes of three objects",
    )
    return "two and three objects, repeats included"
