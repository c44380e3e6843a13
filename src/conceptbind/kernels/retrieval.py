"""Is the right row of a gallery the nearest? Exact, in blocks, without ever holding all similarities.

Nearly all of the time goes into one matrix product. What surrounds it is kept small: a query's length changes no
order, so only the gallery is scaled, a block at a time; and the largest of a block is found in two steps, the
maximum of every ``GROUP`` columns and then the place within the best group, because a maximum alone is fast to
take and a maximum with its place is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Metric = Literal["cosine", "euclidean"]

TIE_ULPS = 32.0
"""A margin within so many machine epsilons is a tie; of the cosine: 3.8e-6 in float32, 7e-15 in float64."""

BLOCK_SIMILARITIES = 2**24
"""Similarities computed at once, 64 MiB in float32: few, large steps, so that threads seldom wait for each other."""

GROUP = 64
"""Columns whose maximum is taken first."""


@dataclass(frozen=True)
class Retrieved:
    """Say for each query how the right row compares with the best wrong one."""

    margin: Float[Tensor, "query"]
    """Similarity of the right row minus the largest of all other rows; exactly 0 for a tie. For "euclidean" half the
    difference of the squared distances."""
    nearest: Int[Tensor, "query"]
    """The most similar row; for a tie with the right row, the best of the others."""

    @property
    def correct(self) -> Bool[Tensor, "query"]:
        """Whether the right row is strictly the nearest."""
        return self.margin > 0

    @property
    def tied(self) -> Bool[Tensor, "query"]:
        """Whether another row is as near as the right one, and none nearer."""
        return self.margin == 0


def retrieve(
    queries: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "row dim"],
    right: Int[Tensor, "query"],
    *,
    metric: Metric = "cosine",
    block: int | None = None,
) -> Retrieved:
    """Compare every query with every row of the gallery; ``right`` is the row that should be nearest.

    ``metric``: "cosine" ranks by q.g / |q| |g|, "euclidean" by q.g - |g|²/2, which orders rows as the distance does.
    ``block``: similarities held at once; None chooses by the device. Computed where the inputs are, in their type.
    Raises ValueError for a gallery of fewer than 2 rows, a row index out of range, mismatched dimensions, numbers
    that are not finite, or, for the cosine, a row or query of zeros.
    """
    lengths, row_lengths = _check(queries, gallery, right, metric)
    squares = row_lengths.square()
    if block is None:
        block = BLOCK_SIMILARITIES if queries.device.type == "cpu" else 2**27
    n_rows, n_queries = len(gallery), len(queries)
    columns = min(n_rows, max(GROUP, int((4 * block) ** 0.5) // GROUP * GROUP))
    rows = min(n_queries, max(1, block // columns))
    best = queries.new_full((n_queries,), -torch.inf)
    own = queries.new_zeros(n_queries)
    where = torch.zeros(n_queries, dtype=torch.int64, device=queries.device)
    buffer = queries.new_empty(rows * columns)
    for start in range(0, n_rows, columns):
        part = slice(start, min(start + columns, n_rows))
        keys = gallery[part]
        if metric == "cosine":
            keys = keys / row_lengths[part, None]
        n_keys = len(keys)
        inside_all = (right >= part.start) & (right < part.stop)
        for low in range(0, n_queries, rows):
            some = slice(low, min(low + rows, n_queries))
            query = queries[some]
            similar = torch.mm(query, keys.T, out=buffer[: len(query) * n_keys].view(len(query), n_keys))
            if metric == "euclidean":
                similar -= squares[part] / 2
            inside = inside_all[some].nonzero().squeeze(1)
            at = right[some][inside] - part.start
            own[some][inside] = similar[inside, at]
            similar[inside, at] = -torch.inf
            top, place = _largest(similar)
            better = top > best[some]
            where[some] = torch.where(better, place + part.start, where[some])
            best[some] = torch.where(better, top, best[some])
    margin = own - best
    # Rounding follows the length of what is multiplied, not the result: two rows at right angles to a query may tie.
    scale = lengths
    if metric == "euclidean":
        longest = torch.maximum(row_lengths[right], row_lengths[where])
        scale = torch.maximum(lengths * longest, longest.square() / 2)
    tied = margin.abs() <= TIE_ULPS * torch.finfo(margin.dtype).eps * scale
    margin = torch.where(tied, 0.0, margin)
    if metric == "cosine":
        margin = margin / lengths
    return Retrieved(margin, torch.where(margin > 0, right, where))


def _largest(similar: Float[Tensor, "query row"]) -> tuple[Float[Tensor, "query"], Int[Tensor, "query"]]:
    """Give the maximum of every row and where it is: max(1), but faster."""
    n_queries, n_rows = similar.shape
    whole = n_rows // GROUP * GROUP
    if not whole:
        top, place = similar.max(1)
        return top, place
    grouped = similar[:, :whole].unflatten(1, (-1, GROUP))
    top, group = grouped.amax(2).max(1)
    inside = grouped[torch.arange(n_queries, device=similar.device), group].argmax(1)
    place = group * GROUP + inside
    if whole < n_rows:
        rest, at = similar[:, whole:].max(1)
        place = torch.where(rest > top, at + whole, place)
        top = torch.maximum(top, rest)
    return top, place


def _check(
    queries: Tensor, gallery: Tensor, right: Tensor, metric: str
) -> tuple[Float[Tensor, "query"], Float[Tensor, "row"]]:
    """Give the lengths of all queries and rows, having checked everything."""
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f"metric must be 'cosine' or 'euclidean'; got {metric!r}")
    if not len(queries) or len(gallery) < 2:
        raise ValueError(
            f"retrieval needs at least 1 query and 2 rows to choose from; got {len(queries)} and {len(gallery)}"
        )
    if queries.shape[1] != gallery.shape[1] or right.shape != queries.shape[:1]:
        raise ValueError(
            f"queries {tuple(queries.shape)}, gallery {tuple(gallery.shape)} and right {tuple(right.shape)} do not "
            "fit: give one right row a query, and one number of dimensions"
        )
    if queries.dtype != gallery.dtype:
        raise ValueError(
            f"queries are {queries.dtype}, the gallery {gallery.dtype}: give both one type, such as float32"
        )
    if int(right.min()) < 0 or int(right.max()) >= len(gallery):
        raise ValueError(
            f"right names rows 0 to {len(gallery) - 1}; got {int(right.min())} to {int(right.max())}"
        )
    lengths = {}
    for name, rows in (("queries", queries), ("gallery", gallery)):
        lengths[name] = torch.linalg.vector_norm(rows, dim=1)
        bad = (~lengths[name].isfinite()).nonzero().squeeze(1).tolist()
        if bad:
            raise ValueError(f"{len(bad)} rows of {name} hold NaN or infinite numbers (the first: {bad[0]})")
        zero = (lengths[name] == 0).nonzero().squeeze(1).tolist()
        if zero and metric == "cosine":
            raise ValueError(
                f"{len(zero)} rows of {name} are all zeros (the first: {zero[0]}): they have no cosine"
            )
    return lengths["queries"], lengths["gallery"]
