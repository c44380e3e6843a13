"""How many wrong rows of a gallery come before the right ones? Exact, in blocks, without ever holding all cosines.

Where :mod:`conceptbind.kernels.retrieval` knows one right row for each query and asks whether it is the nearest, here
a query may have several right rows, and a second group of rows of its own, the rivals: a caption in two orders, and the
caption with two values exchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.kernels.retrieval import BLOCK_SIMILARITIES, TIE_ULPS

ABSENT = -1
"""Stands in a table of rows where a query has fewer of them than others."""


@dataclass(frozen=True)
class Ranked:
    """Say for each query what comes before its right rows, and whether a rival comes before all else."""

    n_before: Int[Tensor, "query"]
    """Rows that are not right and at least as near as the nearest right one: ties count against. Meaningless for a
    query without a right row."""
    rival_first: Bool[Tensor, "query"]
    """Whether a rival is strictly nearer than every row that is no rival."""

    def within(self, k: int) -> Bool[Tensor, "query"]:
        """Say whether a right row is among the nearest ``k``, ties counted against it."""
        return self.n_before < k


def rank(
    queries: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "row dim"],
    right: Int[Tensor, "query right"],
    rivals: Int[Tensor, "query rival"],
    *,
    block: int = BLOCK_SIMILARITIES,
) -> Ranked:
    """Rank the gallery by its cosine with every query.

    ``queries``, ``gallery``: unit vectors of one type, on one device. ``right``, ``rivals``: rows of the gallery, -1
    where there is none; no row is in both. ``block``: cosines held at once.
    Two cosines within 32 machine epsilons of the vectors' type are tied.
    Raises ValueError for a row index outside the gallery.
    """
    for name, table in (("right", right), ("rivals", rivals)):
        if table.numel() and not (ABSENT <= int(table.min()) and int(table.max()) < len(gallery)):
            raise ValueError(
                f"{name} names rows 0 to {len(gallery) - 1} of the gallery, or -1 for none; got {int(table.min())} "
                f"to {int(table.max())}"
            )
    noise = TIE_ULPS * torch.finfo(queries.dtype).eps
    best_right, best_rival = (nearest_of(queries, gallery, table) for table in (right, rivals))
    threshold = best_right - noise
    n_before = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    best_other = best_right.clone()
    columns = min(len(gallery), max(1, int((4 * block) ** 0.5)))
    rows = max(1, block // columns)
    for start in range(0, len(gallery), columns):
        part = gallery[start : start + columns]
        for low in range(0, len(queries), rows):
            some = slice(low, low + rows)
            cosines = queries[some] @ part.T
            _hide(cosines, right[some] - start)
            n_before[some] += (cosines >= threshold[some, None]).sum(1)
            _hide(cosines, rivals[some] - start)
            best_other[some] = torch.maximum(best_other[some], cosines.amax(1))
    return Ranked(n_before, best_rival > best_other + noise)


def nearest_of(
    queries: Float[Tensor, "query dim"], gallery: Float[Tensor, "row dim"], table: Int[Tensor, "query row_of"]
) -> Float[Tensor, "query"]:
    """Give the largest dot product of every query with its rows of the table; -inf where it has none."""
    best = queries.new_full((len(queries),), -torch.inf)
    for column in table.unbind(1):
        dots = (queries * gallery[column.clamp(min=0)]).sum(1)
        best = torch.maximum(best, dots.masked_fill(column == ABSENT, -torch.inf))
    return best


def rows_with(labels: Int[Tensor, "row"], wanted: Int[Tensor, "query"]) -> Int[Tensor, "query most"]:
    """List the rows that have the wanted label, in their order, as many columns as the most frequent one needs.

    -1 where there are fewer. At least one column.
    """
    order = labels.argsort(stable=True)
    ordered = labels[order]
    start = torch.searchsorted(ordered, wanted)
    count = torch.searchsorted(ordered, wanted, right=True) - start
    most = max(1, int(count.max())) if len(count) else 1
    offsets = torch.arange(most, device=labels.device)
    places = (start[:, None] + offsets).clamp(max=max(0, len(labels) - 1))
    return torch.where(offsets < count[:, None], order[places], ABSENT)


def _hide(cosines: Float[Tensor, "query column"], places: Int[Tensor, "query row_of"]) -> None:
    inside = (places >= 0) & (places < cosines.shape[1])
    query, which = inside.nonzero(as_tuple=True)
    cosines[query, places[query, which]] = -torch.inf
