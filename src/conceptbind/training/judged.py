"""Scenes that a model is judged on: of train, mixed or held-out kind, all of them or a seeded sample."""

from __future__ import annotations

import math
from itertools import product

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from conceptbind.scenes import ObjectSplit, SceneKind
from conceptbind.training.config import Repeats

MAX_LISTED = 2_000_000
"""Where there are more scenes than this, of all kinds, they are drawn and never listed."""


def judged_scenes(
    split: ObjectSplit,
    kind: SceneKind,
    n_objects: int,
    n_scenes: int,
    *,
    seed: int,
    repeats: Repeats = "distinct objects",
) -> Int[Tensor, "scene slot concept"]:
    """Give all scenes of a kind, or ``n_scenes`` different ones drawn uniformly where there are more.

    There may be none: a split with one held-out object has no scene of two different ones.
    """
    if n_objects < 1 or n_scenes < 1:
        raise ValueError(f"n_objects and n_scenes are at least 1; got {n_objects} and {n_scenes}")
    space = split.space
    if space.n_possible_objects**n_objects <= MAX_LISTED:
        index = torch.arange(space.n_possible_objects**n_objects)
        places = space.n_possible_objects ** torch.arange(n_objects - 1, -1, -1)
        scenes = index[:, None] // places % space.n_possible_objects
        scenes = scenes[_of_kind(split, scenes, kind) & _allowed(scenes, repeats)]
        if len(scenes) > n_scenes:
            generator = torch.Generator().manual_seed(seed)
            keep = torch.randperm(len(scenes), generator=generator)[:n_scenes]
            scenes = scenes[keep.sort().values]
    else:
        scenes = _drawn(split, kind, n_objects, n_scenes, seed, repeats)
    return space.objects_from_index(scenes)


def swapped_objects(
    scenes: Int[Tensor, "scene slot concept"],
) -> Int[Tensor, "scene swap 2 concept"]:
    """Exchange one concept's value between two objects, for every pair of slots and every concept.

    With two concepts one of them is enough: exchanging the other gives the same two objects. The order is that of the
    pairs (1, 2), (1, 3), ..., the concepts running fastest.
    """
    n_concepts = scenes.shape[2]
    swaps = []
    for pair in _pairs(scenes.shape[1]):
        for k in range({1: 0, 2: 1}.get(n_concepts, n_concepts)):
            objects = scenes[:, pair]
            objects[:, :, k] = objects[:, :, k].flip(1)
            swaps.append(objects)
    return torch.stack(swaps, 1) if swaps else scenes[:, :0, None, :].expand(-1, 0, 2, -1)


def pairs_of(index: Int[Tensor, "scene slot"], n_swaps: int) -> Int[Tensor, "scene swap 2"]:
    """Give the two object indices that each of the :func:`swapped_objects` exchanges values of."""
    pairs = _pairs(index.shape[1])
    if not n_swaps:
        return index[:, :0, None].expand(-1, 0, 2)
    return torch.stack([index[:, pair] for pair in pairs], 1).repeat_interleave(n_swaps // len(pairs), 1)


def swapped_scenes(scenes: Int[Tensor, "scene slot concept"]) -> Int[Tensor, "scene swap slot concept"]:
    """Put the :func:`swapped_objects` in their slots."""
    pairs, after = _pairs(scenes.shape[1]), swapped_objects(scenes)
    n_each = after.shape[1] // max(1, len(pairs))
    whole = scenes[:, None].repeat(1, after.shape[1], 1, 1)
    for p, pair in enumerate(pairs):
        some = slice(p * n_each, (p + 1) * n_each)
        whole[:, some, pair] = after[:, some]
    return whole


def _pairs(n_slots: int) -> list[list[int]]:
    return [[i, j] for i in range(n_slots) for j in range(i + 1, n_slots)]


def _of_kind(split: ObjectSplit, scenes: Int[Tensor, "scene slot"], kind: SceneKind) -> Bool[Tensor, "scene"]:
    seen = split.is_train[scenes]
    if kind == SceneKind.TRAIN:
        return seen.all(1)
    return ~seen.any(1) if kind == SceneKind.HELD_OUT else seen.any(1) & ~seen.all(1)


def _allowed(scenes: Int[Tensor, "scene slot"], repeats: Repeats) -> Bool[Tensor, "scene"]:
    if repeats == "allowed":
        return torch.ones(len(scenes), dtype=torch.bool)
    ordered = scenes.sort(1).values
    return (ordered[:, 1:] != ordered[:, :-1]).all(1)


def _drawn(
    split: ObjectSplit, kind: SceneKind, n_objects: int, n_scenes: int, seed: int, repeats: Repeats
) -> Int[Tensor, "scene slot"]:
    """Draw which slots hold training objects, in proportion to the scenes that do so, then the objects."""
    pools = [(~split.is_train).nonzero().squeeze(1), split.is_train.nonzero().squeeze(1)]
    wanted = {SceneKind.TRAIN: {n_objects}, SceneKind.HELD_OUT: {0}}.get(kind, set(range(1, n_objects)))
    patterns = [p for p in product((0, 1), repeat=n_objects) if sum(p) in wanted]
    counts = [_n_scenes_of(p, [len(pool) for pool in pools], repeats) for p in patterns]
    n_all = sum(counts)
    if not n_all:
        return torch.empty(0, n_objects, dtype=torch.int64)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.tensor(patterns)
    share = torch.tensor([c / n_all for c in counts], dtype=torch.float64)
    n_scenes = min(n_scenes, n_all)
    found = torch.empty(0, n_objects, dtype=torch.int64)
    # few out of many, or nearly all of few: the share of new scenes falls slowly enough for a few rounds
    while len(found) < n_scenes:
        rows = chosen[torch.multinomial(share, 2 * n_scenes, replacement=True, generator=generator)]
        picks = torch.stack(
            [
                pool[torch.randint(len(pool), rows.shape, generator=generator)] if len(pool) else rows
                for pool in pools
            ]
        )
        scenes = torch.where(rows == 1, picks[1], picks[0])
        found = torch.cat([found, scenes[_allowed(scenes, repeats)]]).unique(dim=0)
    return found[torch.randperm(len(found), generator=generator)[:n_scenes]]


def _n_scenes_of(pattern: tuple[int, ...], sizes: list[int], repeats: Repeats) -> int:
    """Count the scenes with training objects in the slots that the pattern marks."""
    n_train, n_slots = sum(pattern), len(pattern)
    if repeats == "allowed":
        return sizes[1] ** n_train * sizes[0] ** (n_slots - n_train)
    return math.perm(sizes[1], n_train) * math.perm(sizes[0], n_slots - n_train)
