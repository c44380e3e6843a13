"""Pairs of scenes, source and target: what an edit of an embedding starts from and should arrive at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from conceptbind.analysis.probing import Embedded
from conceptbind.scenes import MAX_ENUMERATED, ConceptSpace, check_scenes

LISTED = 2**20
"""Up to so many candidates are listed even where a sample is asked for."""


@dataclass(frozen=True, eq=False)
class Edits:
    """Hold edits: rows of the data that they start from, and that they should arrive at."""

    space: ConceptSpace
    what: str
    """In words: "replace an object"."""
    source: Int[Tensor, "edit"]
    target: Int[Tensor, "edit"]
    before: Int[Tensor, "edit slot concept"]
    """What the source shows."""
    after: Int[Tensor, "edit slot concept"]
    """What the target shows."""
    n_missing: int = 0
    """Edits tried and left out because no scene of the data shows the target."""
    n_unchanged: int = 0
    """Edits tried and left out because they would leave the scene, or its objects, as they are."""

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def n_changed(self) -> Int[Tensor, "edit"]:
        """How many values differ, over all slots and concepts."""
        return (self.before != self.after).sum((1, 2))

    @cached_property
    def shares_with_neighbour(self) -> Bool[Tensor, "edit"]:
        """Whether an object that the edit puts in shares a value with an object of another slot of the target."""
        changed = (self.before != self.after).any(2)
        shares = torch.zeros(len(self), dtype=torch.bool)
        for i in range(self.after.shape[1]):
            for j in range(self.after.shape[1]):
                if i != j:
                    shares |= changed[:, i] & (self.after[:, i] == self.after[:, j]).any(1)
        return shares

    def objects(self) -> Int[Tensor, "edit object"]:
        """Give the object indices of both scenes: what two edits may have in common."""
        return torch.cat([self.space.object_index(self.before), self.space.object_index(self.after)], dim=1)

    def within(self, mask: Bool[Tensor, "scene"]) -> Bool[Tensor, "edit"]:
        """Mark the edits whose source and target both lie in a set of scenes."""
        return mask[self.source] & mask[self.target]

    def subset(self, keep: Bool[Tensor, "edit"]) -> Edits:
        """Keep some edits. Raises ValueError when none is left."""
        if not bool(keep.any()):
            raise ValueError(
                f"no edit is left of {len(self)} ({self.what}): loosen the condition, or draw more"
            )
        parts = {name: getattr(self, name)[keep] for name in ("source", "target", "before", "after")}
        return Edits(self.space, self.what, **parts, n_missing=self.n_missing, n_unchanged=self.n_unchanged)


@dataclass(frozen=True, eq=False)
class _Labels:
    """The scenes of the data, on the CPU, wherever its embeddings are: edits are made there."""

    scenes: Int[Tensor, "scene slot concept"]
    space: ConceptSpace


def replace_object(
    data: Embedded, *, n: int | None = None, seed: int = 0, among: Bool[Tensor, "scene"] | None = None
) -> Edits:
    """Put another object in one slot: every (scene, slot, other object), or at most ``n`` of them drawn at random.

    ``among``: a mask that source and target must both lie in. Edits whose target is no scene of the data are counted
    in ``n_missing`` and left out. A sample is drawn without listing all, without replacement.
    Raises ValueError when a scene occurs twice in the data, when there is no such edit, or more than 10 million of
    them to list.
    """
    data = _Labels(data.scenes.cpu(), data.space)
    space, n_slots = data.space, _n_slots(data)
    others = space.n_possible_objects - 1

    def decode(code: Tensor) -> tuple[Tensor, Tensor]:
        row, rest = code // (n_slots * others), code % (n_slots * others)
        slot, other = rest // others, rest % others
        after = data.scenes[row].clone()
        every = torch.arange(len(code))
        own = space.object_index(after[every, slot])
        after[every, slot] = space.objects_from_index(other + (other >= own))  # skips the object itself
        return row, after

    return _edits(
        data, "replace an object", decode, len(data.scenes) * n_slots * others, n=n, seed=seed, among=among
    )


def change_concept(
    data: Embedded,
    concept: str,
    *,
    n: int | None = None,
    seed: int = 0,
    among: Bool[Tensor, "scene"] | None = None,
) -> Edits:
    """Give the object in one slot another value of one concept: every (scene, slot, other value), or at most ``n``.

    Arguments and errors as in :func:`replace_object`; ValueError for an unknown concept, too.
    """
    data = _Labels(data.scenes.cpu(), data.space)
    k, n_slots = _concept(data.space, concept), _n_slots(data)
    others = data.space.n_values[k] - 1

    def decode(code: Tensor) -> tuple[Tensor, Tensor]:
        row, rest = code // (n_slots * others), code % (n_slots * others)
        slot, other = rest // others, rest % others
        after = data.scenes[row].clone()
        every = torch.arange(len(code))
        after[every, slot, k] = other + (other >= after[every, slot, k])
        return row, after

    total = len(data.scenes) * n_slots * others
    return _edits(data, f"change the {concept} of an object", decode, total, n=n, seed=seed, among=among)


def swap_objects(
    data: Embedded,
    slots: tuple[int, int] = (0, 1),
    *,
    n: int | None = None,
    seed: int = 0,
    among: Bool[Tensor, "scene"] | None = None,
) -> Edits:
    """Exchange the objects of two slots; scenes where both are the same object are counted in ``n_unchanged``.

    Arguments and errors as in :func:`replace_object`; ValueError for slots that do not exist, too.
    """
    data = _Labels(data.scenes.cpu(), data.space)
    i, j = _slots(data, slots)

    def decode(code: Tensor) -> tuple[Tensor, Tensor]:
        after = data.scenes[code].clone()
        after[:, [i, j]] = after[:, [j, i]]
        return code, after

    return _edits(data, "swap two objects", decode, len(data.scenes), n=n, seed=seed, among=among)


def exchange_concept(
    data: Embedded,
    concept: str,
    slots: tuple[int, int] = (0, 1),
    *,
    n: int | None = None,
    seed: int = 0,
    among: Bool[Tensor, "scene"] | None = None,
) -> Edits:
    """Exchange one concept's values between two slots: red circle, blue square -> blue circle, red square, the twin.

    Where the target shows the same objects as the source (a value in common makes it a mere swap of places, or
    nothing) the edit is counted in ``n_unchanged`` and left out. Arguments and errors as in :func:`swap_objects`.
    """
    data = _Labels(data.scenes.cpu(), data.space)
    k, (i, j) = _concept(data.space, concept), _slots(data, slots)

    def decode(code: Tensor) -> tuple[Tensor, Tensor]:
        after = data.scenes[code].clone()
        after[:, [i, j], k] = after[:, [j, i], k]
        return code, after

    what = f"exchange the {concept} of two objects"
    return _edits(
        data, what, decode, len(data.scenes), n=n, seed=seed, among=among, same=_same_objects(data.space)
    )


def _edits(
    data: _Labels,
    what: str,
    decode: Callable[[Tensor], tuple[Tensor, Tensor]],
    total: int,
    *,
    n: int | None,
    seed: int,
    among: Bool[Tensor, "scene"] | None,
    same: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Edits:
    """Collect edits from the numbers 0 ... total - 1 that ``decode`` turns into (source row, target scene)."""
    rows_of = _row_finder(data)
    allowed = torch.ones(len(data.scenes), dtype=torch.bool) if among is None else among.cpu()
    if allowed.dtype != torch.bool or allowed.shape != (len(data.scenes),):
        raise ValueError(
            f"among must be bool of shape ({len(data.scenes)},), one a scene; got {allowed.dtype} "
            f"{tuple(allowed.shape)}"
        )
    if n is not None and n < 1:
        raise ValueError(f"n is how many edits to draw, at least 1; got {n}")
    if n is None and total > MAX_ENUMERATED:
        raise ValueError(f"{total:,} edits ({what}) are too many to list: draw some with n=...")
    n_missing = n_unchanged = 0

    def collect(code: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Give code, source, target and target scene of those that exist; count the others."""
        nonlocal n_missing, n_unchanged
        source, after = decode(code)
        ok = allowed[source]
        code, source, after = code[ok], source[ok], after[ok]
        before = data.scenes[source]
        unchanged = (before == after).all(2).all(1) if same is None else same(before, after)
        n_unchanged += int(unchanged.sum())
        code, source, after = code[~unchanged], source[~unchanged], after[~unchanged]
        target = rows_of(after)
        exists = target >= 0
        n_missing += int((~exists).sum())
        exists &= allowed[target.clamp(min=0)]
        return code[exists], source[exists], target[exists], after[exists]

    if n is None or total <= LISTED:
        kept = [collect(code) for code in torch.arange(total).split(2**20)]
        if n is not None:
            found = sum(len(k[0]) for k in kept)
            order = torch.randperm(found, generator=torch.Generator().manual_seed(seed))[:n]
            kept = [tuple(torch.cat(column)[order] for column in zip(*kept, strict=True))]  # type: ignore[list-item]
    else:
        kept = [_drawn(collect, total, n, seed)]
    _, source, target, after = (torch.cat(column) for column in zip(*kept, strict=True))
    if not len(source):
        raise ValueError(
            f"there is no such edit ({what}): {n_missing:,} targets are no scene of the data, {n_unchanged:,} edits "
            "change nothing. Give more scenes"
        )
    return Edits(
        data.space,
        what,
        source,
        target,
        data.scenes[source],
        after,
        n_missing=n_missing,
        n_unchanged=n_unchanged,
    )


def _drawn(
    collect: Callable[[Tensor], tuple[Tensor, Tensor, Tensor, Tensor]], total: int, n: int, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw few out of many: with replacement, dropping repeats, until enough are found or it seems hopeless."""
    generator = torch.Generator().manual_seed(seed)
    tried = torch.empty(0, dtype=torch.int64)
    found: list[tuple[Tensor, ...]] = []
    for _ in range(100):
        code = torch.randint(total, (2 * n,), generator=generator).unique()
        code = code[~torch.isin(code, tried)]
        tried = torch.cat([tried, code])
        found.append(collect(code))
        if sum(len(f[0]) for f in found) >= n:
            break
    columns = [torch.cat(column) for column in zip(*found, strict=True)]
    order = torch.randperm(len(columns[0]), generator=generator)[:n]
    code, source, target, after = (column[order] for column in columns)
    return code, source, target, after


def _row_finder(data: _Labels) -> Callable[[Tensor], Tensor]:
    """Make a function that gives the row of every scene in the data, -1 where there is none."""
    check_scenes(data.space, data.scenes)
    index = data.space.scene_index(data.scenes)
    known, order = index.sort()
    if len(known) > 1 and bool((known[1:] == known[:-1]).any()):
        first = int((known[1:] == known[:-1]).nonzero()[0])
        shown = " and ".join(data.space.describe(o) for o in data.scenes[order[first]])
        raise ValueError(
            f"the scene {shown!r} occurs more than once, so that an edit has no one target: keep one copy of each"
        )

    def find(scenes: Tensor) -> Tensor:
        wanted = data.space.scene_index(scenes)
        at = torch.searchsorted(known, wanted).clamp(max=len(known) - 1)
        return torch.where(known[at] == wanted, order[at], -1)

    return find


def _same_objects(space: ConceptSpace) -> Callable[[Tensor, Tensor], Tensor]:
    def same(before: Tensor, after: Tensor) -> Tensor:
        a, b = (space.object_index(s).sort(1).values for s in (before, after))
        return (a == b).all(1)

    return same


def _n_slots(data: _Labels) -> int:
    check_scenes(data.space, data.scenes)
    return data.scenes.shape[1]


def _concept(space: ConceptSpace, concept: str) -> int:
    if concept not in space.concepts:
        raise ValueError(f"no concept {concept!r}; there are {space.concepts}")
    return space.concepts.index(concept)


def _slots(data: _Labels, slots: tuple[int, int]) -> tuple[int, int]:
    n = _n_slots(data)
    i, j = slots
    if i == j or not (0 <= i < n and 0 <= j < n):
        raise ValueError(f"slots must be two different ones of 0 to {n - 1}; got {slots}")
    return i, j
