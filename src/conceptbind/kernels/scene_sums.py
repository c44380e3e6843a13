"""One pass over the embeddings that leaves everything an additive fit needs.

An additive model of a scene is linear in which object stands in which slot. Its least-squares solution and
its R² need the embeddings only through

    S[i, o] = sum of the centred embeddings of the scenes with object o in slot i,
    G[i, o, j, o'] = number of scenes with o in slot i and o' in slot j,
    the mean embedding and the total sum of squares around it.

These are small, so levels, estimators and R² of one data set cost one read of its embeddings together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK_ROWS = 256
"""Rows in work at once: a block stays in a core's cache until all its sums are taken."""

FLUSH_ROWS = 32_768
"""After so many rows sums in float32 are added to the totals in float64, so that rounding cannot pile up."""

MAX_PARTS = 20_000
"""Objects times slots that the table of counts can hold: its square is 3.2 GB."""

EXACT_ELEMENTS = 2**24
"""Up to so many numbers every sum is in float64 throughout: the exact way costs nothing there."""


@dataclass(frozen=True)
class SceneSums:
    """Hold sums over scenes; all in float64. Objects are those that occur, in the order of ``objects``."""

    objects: Int[Tensor, "object"]
    """Object indices that occur in some slot, increasing."""
    n_scenes: int
    mean: Float[Tensor, "dim"]
    total: float
    """Sum of squares around the mean: sum_s |z_s - mean|²."""
    sums: Float[Tensor, "slot object dim"]
    """S: sums of z_s - mean."""
    together: Float[Tensor, "slot object slot object"]
    """G: counts, exact."""

    @property
    def counts(self) -> Float[Tensor, "slot object"]:
        """How many scenes show object o in slot i."""
        m, p = self.together.shape[:2]
        return self.together.reshape(m * p, m * p).diagonal().reshape(m, p)


def scene_sums(x: Float[Tensor, "scene dim"], index: Int[Tensor, "_scene slot"]) -> SceneSums:
    """Sum embeddings by slot and object, in one pass over ``x``.

    ``index``: object indices of the scenes. Above ``EXACT_ELEMENTS`` numbers, blocks are summed in float32
    after a rough mean is taken off, and added up in float64: relative error about 1e-6. Works where ``x``
    lies. Raises ValueError when there is no scene, the lengths differ, or more than ``MAX_PARTS`` objects
    and slots occur.
    """
    x = x.detach()
    if not len(x) or len(x) != len(index):
        raise ValueError(
            f"need one row of objects for each embedding, and at least one; got {len(x)} and {len(index)}"
        )
    n_scenes, n_slots = index.shape
    objects, position = _present(index)
    n_parts = n_slots * len(objects)
    if n_parts > MAX_PARTS:
        raise ValueError(
            f"{len(objects):,} different objects in {n_slots} slots make {n_parts:,} parts, at most {MAX_PARTS:,} can "
            "be fitted: use scenes of fewer objects"
        )
    column = position + torch.arange(n_slots, device=x.device) * len(objects)
    work = torch.float64 if x.numel() <= EXACT_ELEMENTS or x.dtype == torch.float64 else torch.float32
    # A rough mean is enough: what it misses is taken off exactly below. It keeps the sum of squares from being
    # the small difference of two large numbers, since embeddings of one kind of scene share most of their length.
    shift = x[:: max(1, n_scenes // 256)].mean(0, dtype=torch.float64).to(work)
    sums = torch.zeros(n_parts, x.shape[1], dtype=torch.float64, device=x.device)
    squares = torch.zeros((), dtype=torch.float64, device=x.device)
    part = torch.zeros_like(sums, dtype=work)
    columns = column.T.contiguous()
    block_rows = BLOCK_ROWS if x.device.type == "cpu" else FLUSH_ROWS
    buffer = torch.empty(min(block_rows, n_scenes), x.shape[1], dtype=work, device=x.device)
    for start in range(0, n_scenes, FLUSH_ROWS):
        end = min(start + FLUSH_ROWS, n_scenes)
        for low in range(start, end, block_rows):
            rows = slice(low, min(low + block_rows, end))
            # One buffer for all blocks: it stays in the cache, where fresh memory would not.
            block = torch.sub(x[rows], shift, out=buffer[: rows.stop - low])
            squares += torch.dot(block.flatten(), block.flatten())
            for slot in range(n_slots):
                part.index_add_(0, columns[slot, rows], block)
        sums += part
        part.zero_()
    together = _counts_together(column, n_parts)
    sums = sums.reshape(n_slots, len(objects), -1)
    off = sums[0].sum(0) / n_scenes  # mean - shift: every scene has one object in slot 0
    counts = together.diagonal().reshape(n_slots, -1, 1)
    return SceneSums(
        objects=objects,
        n_scenes=n_scenes,
        mean=shift.double() + off,
        total=max(0.0, float(squares - n_scenes * off.square().sum())),
        sums=sums - counts * off,
        together=together.reshape(n_slots, len(objects), n_slots, len(objects)),
    )


def _present(index: Int[Tensor, "scene slot"]) -> tuple[Int[Tensor, "object"], Int[Tensor, "scene slot"]]:
    """Give the objects that occur, and the scenes in their numbering."""
    n_possible = int(index.max()) + 1
    if n_possible > index.numel():  # a large space of which little occurs: sorting is cheaper than counting
        return index.unique(return_inverse=True)
    occurs = torch.bincount(index.flatten(), minlength=n_possible) > 0
    return occurs.nonzero().squeeze(1), (occurs.cumsum(0) - 1)[index]


def _counts_together(column: Int[Tensor, "scene slot"], n_parts: int) -> Float[Tensor, "part part"]:
    total = torch.zeros(n_parts, n_parts, dtype=torch.float64, device=column.device)
    n_slots = column.shape[1]
    for i in range(n_slots):
        total += torch.bincount(column[:, i], minlength=n_parts).diag()
        for j in range(i):
            pairs = torch.bincount(column[:, i] * n_parts + column[:, j], minlength=n_parts * n_parts)
            pairs = pairs.reshape(n_parts, n_parts)
            total += pairs + pairs.T
    return total
