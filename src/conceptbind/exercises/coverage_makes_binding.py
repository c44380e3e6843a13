"""Checks for the exercises of chapter 7."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, one_number


@check("share_of_scenes")
def check_share_of_scenes(answer: Callable[[int, int, int], float]) -> str:
    """Check exercise 1: of all sets of m objects, C(t, m) / C(n, m) hold training objects only."""
    for n, t, m in ((256, 128, 2), (24, 12, 2), (10, 6, 3)):
        expect_close(
            one_number(answer(n, t, m), "the share of scenes"),
            math.comb(t, m) / math.comb(n, m),
            what=f"the share for {n} objects, {t} of them in training, {m} in a scene",
            mistakes={
                "that is the coverage, the share of *objects*; a scene has several": t / n,
                "no object is twice in a scene: after the first one is taken, one fewer is left": (t / n)
                ** m,
                "that is the share of scenes with held-out objects only": math.comb(n - t, m)
                / math.comb(n, m),
            },
        )
    return "three spaces"


def _over_scenes(scores: Tensor, present: Tensor) -> float:
    log_p = scores.log_softmax(dim=0)
    return float(-((log_p * present).sum(1) / present.sum(1)).mean())


@check("contrastive_loss")
def check_contrastive_loss(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check exercise 2: the cross-entropy with mass shared by the true queries, by a loop over scenes and queries."""
    generator = torch.Generator().manual_seed(0)
    for n_scenes, n_queries in ((3, 5), (4, 7)):
        scores = 3 * torch.randn(n_scenes, n_queries, generator=generator)
        present = torch.zeros(n_scenes, n_queries, dtype=torch.bool)
        for scene in range(n_scenes):
            order = torch.randperm(n_queries, generator=generator)
            present[scene, order[: 1 + scene % 3]] = True
        losses, summed, wrong_total, log_of_sum, pairs = [], [], [], [], []
        for row, true in zip(scores.tolist(), present.tolist(), strict=True):
            total = math.log(sum(map(math.exp, row)))
            rest = math.log(sum(math.exp(v) for v, t in zip(row, true, strict=True) if not t))
            mine = [v for v, t in zip(row, true, strict=True) if t]
            losses.append(total - sum(mine) / len(mine))
            summed.append(len(mine) * total - sum(mine))
            wrong_total.append(rest - sum(mine) / len(mine))
            log_of_sum.append(total - math.log(sum(map(math.exp, mine))))
            pairs += [total - v for v in mine]
        expect_close(
            one_number(answer(scores, present), "the loss"),
            sum(losses) / n_scenes,
            what="the loss",
            mistakes={
                "the true queries of a scene *share* a mass of one: divide by their number": sum(summed)
                / n_scenes,
                "the sum over scenes; take their mean": sum(losses),
                "the denominator of the softmax holds all queries, the true ones too": sum(wrong_total)
                / n_scenes,
                "logs first, then the mean: a scene is right when *each* of its true queries scores high": sum(
                    log_of_sum
                )
                / n_scenes,
                "every scene counts once: first the mean over its true queries, then over scenes": sum(pairs)
                / len(pairs),
                "the softmax goes over the queries of a scene, dim=1": _over_scenes(scores, present),
                "the sign: a good score makes the loss smaller": -sum(losses) / n_scenes,
            },
        )
    return "two batches"
