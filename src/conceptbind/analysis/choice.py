"""Two-way choice: is the true caption nearer to a picture than the one with two values exchanged?

The score is the cosine, the comparison strict. A margin within rounding of zero is a tie and does not count: a model
that gives every input one embedding has accuracy 0 and ties 1, not the .5 of a coin or the 1 of an ``argmax`` that
finds the right answer at index 0.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.recognition import pigeonhole_interval, wilson_interval
from conceptbind.kernels.retrieval import TIE_ULPS

CHANCE = 0.5
"""Accuracy of scores that are independent of the scene; ties lower it by half their share."""

N_RESAMPLES = 2000


@dataclass(frozen=True)
class Choice:
    """Summarise choices; shares are between 0 and 1, NaN where nothing was judged."""

    accuracy: float
    """Share of anchors that are strictly nearer to the true than to the swapped one."""
    low: float
    """Lower end of the 95 % interval of the accuracy."""
    high: float
    ties: float
    """Share of anchors with a margin of zero up to rounding."""
    margin: float
    """Mean of cosine(anchor, true) - cosine(anchor, swapped), between -2 and 2."""
    n: int
    """Anchors judged."""
    chance: float
    anti_binding: bool
    """Whether the 95 % interval lies below chance even if every tie counts as right: wrong more often than chance.

    In a part where rivals are of another kind, more familiar ones say, that alone can do it: see the baselines."""

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends of the 95 % interval."""
        return self.low, self.high

    def as_dict(self) -> dict[str, Any]:
        """Give the fields as a dictionary for a table row or JSON: NaN becomes None."""
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(self).items()}


def two_way(
    anchors: Float[Tensor, "anchor dim"],
    true: Float[Tensor, "anchor dim"],
    swapped: Float[Tensor, "anchor dim"],
    *,
    objects: Int[Tensor, "anchor slot"] | None = None,
    seed: int = 0,
) -> Choice:
    """Choose for every anchor between its true and its swapped counterpart.

    ``objects``: object indices of the anchors' scenes. Scenes that share objects are not independent: given them, the
    interval is the pigeonhole bootstrap over objects, otherwise the bootstrap over anchors.
    Raises ValueError as :func:`choice_margins` does.
    """
    return summarise_choice(choice_margins(anchors, true, swapped), objects=objects, seed=seed)


def choice_margins(
    anchors: Float[Tensor, "anchor dim"],
    true: Float[Tensor, "anchor dim"],
    swapped: Float[Tensor, "anchor dim"],
) -> Float[Tensor, "anchor"]:
    """Give cosine(anchor, true) - cosine(anchor, swapped); exactly 0 within 32 machine epsilons of the inputs' type.

    Raises ValueError when the three differ in type, or a row is zero, NaN or infinite.
    """
    if not anchors.dtype == true.dtype == swapped.dtype:
        raise ValueError(
            f"anchors are {anchors.dtype}, true {true.dtype}, swapped {swapped.dtype}: give all in one type, "
            "such as float32"
        )
    a, t, s = unit(anchors, "anchors"), unit(true, "true"), unit(swapped, "swapped")
    margin = (a * (t - s)).sum(1)
    return torch.where(margin.abs() <= TIE_ULPS * torch.finfo(margin.dtype).eps, 0.0, margin)


def summarise_choice(
    margins: Float[Tensor, "anchor"],
    *,
    objects: Int[Tensor, "anchor slot"] | None = None,
    chance: float = CHANCE,
    seed: int = 0,
) -> Choice:
    """Summarise margins, where a positive one is right and 0 is a tie; arguments as in :func:`two_way`.

    Where all anchors are right, or none is, a bootstrap says nothing: the interval is then Wilson's.
    """
    n = len(margins)
    if not n:
        nan = math.nan
        return Choice(nan, nan, nan, nan, nan, 0, chance, False)
    margins = margins.double().cpu()
    right, not_wrong = margins > 0, margins >= 0

    def interval(hits: Tensor) -> tuple[float, float]:
        if objects is not None and len(objects.unique()) > 1:
            return pigeonhole_interval(hits, objects.cpu(), seed=seed)
        return _bootstrap(float(hits.double().mean()), n, seed)

    low, high = interval(right)
    ties = float((margins == 0).double().mean())
    most = high if not ties else interval(not_wrong)[1]
    accuracy = float(right.double().mean())
    return Choice(accuracy, low, high, ties, float(margins.mean()), n, chance, most < chance)


def unit(rows: Float[Tensor, "row dim"], name: str) -> Float[Tensor, "row dim"]:
    """Scale every row to length 1. Raises ValueError, naming the input, for a row that has no direction."""
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    bad = (~(length.isfinite() & (length > 0))).squeeze(1).nonzero().squeeze(1).tolist()
    if bad:
        raise ValueError(
            f"{len(bad)} rows of {name} are zero, NaN or infinite (the first: {bad[0]}) and have no cosine: drop them "
            "with their scenes, or encode them again in fp32"
        )
    return rows / length


def _bootstrap(share: float, n: int, seed: int) -> tuple[float, float]:
    if share in (0.0, 1.0):
        return wilson_interval(share, n)
    # The mean of n draws with replacement from n zeros and ones is a binomial number over n.
    counts = torch.full((N_RESAMPLES,), float(n), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.binomial(counts, torch.full_like(counts, share), generator=generator) / n
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
