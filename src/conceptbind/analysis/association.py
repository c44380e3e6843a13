"""Do two numbers rise together over many models, and still do where a third one is held fixed?

Over models of many coverages the quality of a fit and recognition both rise with coverage, and so with each other, even
if neither had to do with the other. Held fixed means: ranks are taken within the models of one coverage, and compared
there only.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

N_RESAMPLED = 2000


@dataclass(frozen=True)
class Association:
    """Hold a rank correlation, -1 to 1, and its interval."""

    correlation: float
    """Spearman's; NaN when one of the two does not vary."""
    low: float
    high: float
    """Ends of the 95 % interval, by resampling models, within groups where there are groups."""
    n_models: int
    """In groups of two and more, where there are groups: a model alone says nothing about its group."""


def rank_correlation(
    x: Iterable[float | int],
    y: Iterable[float | int],
    *,
    groups: Iterable[Hashable] | None = None,
    seed: int = 0,
) -> Association:
    """Correlate the ranks of two numbers of every model; equal numbers share their mean rank.

    ``groups``: one label a model. Ranks are then taken within the models of a label, as deviations from their mean in
    units of the number of models, and all of them are correlated together.
    Raises ValueError for lists of different length, fewer than three models, or numbers that are not finite.
    """
    a, b = (torch.tensor([float(v) for v in values], dtype=torch.float64) for values in (x, y))
    labels = list(range(len(a)) if groups is None else groups)
    if not len(a) == len(b) == len(labels):
        raise ValueError(
            f"{len(a)} and {len(b)} numbers and {len(labels)} groups: give one of each for every model"
        )
    if not bool((a.isfinite() & b.isfinite()).all()):
        raise ValueError("the numbers hold NaN or infinite values: leave out models without a number")
    members = _members(labels, together=groups is None)
    n = sum(map(len, members))
    if n < 3:
        raise ValueError(f"a correlation needs three models, in groups of two or more; got {n}")
    generator = torch.Generator().manual_seed(seed)
    drawn = [m[torch.randint(len(m), (N_RESAMPLED, len(m)), generator=generator)] for m in members]
    found = _correlations(a, b, drawn)
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    known = found[found.isfinite()]
    low, high = known.quantile(ends).tolist() if len(known) else (math.nan, math.nan)
    return Association(float(_correlations(a, b, [m[None] for m in members])), low, high, n)


def _members(labels: Sequence[Hashable], *, together: bool) -> list[Int[Tensor, "member"]]:
    """Give the places of every group of two or more."""
    if together:
        return [torch.arange(len(labels))]
    by_label: dict[Hashable, list[int]] = {}
    for place, label in enumerate(labels):
        by_label.setdefault(label, []).append(place)
    return [torch.tensor(places) for places in by_label.values() if len(places) > 1]


def _correlations(
    a: Float[Tensor, "model"], b: Float[Tensor, "model"], members: Sequence[Int[Tensor, "draw member"]]
) -> Float[Tensor, "draw"]:
    """Correlate the ranks of every draw; NaN where one of the two does not vary."""
    x, y = (torch.cat([_ranks(v[m]) for m in members], 1) for v in (a, b))
    return (x * y).sum(1) / (x.square().sum(1) * y.square().sum(1)).sqrt()


def _ranks(values: Float[Tensor, "draw member"]) -> Float[Tensor, "draw member"]:
    """Rank each row, ties at their mean, as deviations from the mean rank over the number of values."""
    ordered = values.sort(1).values
    below = torch.searchsorted(ordered, values)
    up_to = torch.searchsorted(ordered, values, right=True)
    return (below + up_to - values.shape[1]).double() / (2 * values.shape[1])
