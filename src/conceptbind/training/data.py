"""Training data: scenes, queries with soft targets, captions and swapped negatives, made on the device.

Every draw is a function of a model's key, the step and a position (kernels/counter_random): a model meets the same
data alone and among others, on every device, before and after a restart. Objects are numbered as in ConceptSpace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.kernels.counter_random import below, draws, key_of
from conceptbind.training.config import TrainingConfig, check_together


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """Hold the scenes of a step, and which objects are put to them as queries."""

    scenes: Int[Tensor, "model scene slot concept"]
    objects: Int[Tensor, "model query"]
    """Object indices."""
    asked: Bool[Tensor, "model query"]
    """False for places that hold no query: repeats, padding, held-out objects."""
    columns: Int[Tensor, "model scene slot"]
    """The query that is the object of each slot; any number where the weight is zero."""
    weights: Float[Tensor, "model scene slot"]
    """Soft targets: the different objects of a scene share a mass of 1 among those that are asked for. All zero for a
    scene of which no object is."""


@dataclass(frozen=True, eq=False)
class CaptionBatch:
    """Hold the scenes of a step, their captions, and captions with two values exchanged."""

    singles: Int[Tensor, "model single 1 concept"]
    """Scenes of one object; they are their own captions."""
    scenes: Int[Tensor, "model scene slot concept"]
    captions: Int[Tensor, "model scene slot concept"]
    """The same scenes, the objects in the order in which they are named."""
    swapped: Int[Tensor, "model swap slot concept"]
    asked: Bool[Tensor, "model swap"]
    """False where a swapped caption names a held-out object and must not; and, where captions keep the order of the
    scene, if it names the objects of the scene: the same caption, or one that only the order makes wrong."""


class Data:
    """Make the batches of models that are trained together."""

    def __init__(self, configs: Sequence[TrainingConfig], *, device: torch.device | str = "cpu") -> None:
        check_together(configs)
        self.config = c = configs[0]
        self.device = torch.device(device)
        pools = [config.split.is_train.nonzero().squeeze(1) for config in configs]
        self.counts = torch.tensor([len(pool) for pool in pools]).to(self.device)
        # padded with objects that are never drawn, for models of other coverages
        self.pools = torch.nn.utils.rnn.pad_sequence(pools, batch_first=True).to(self.device)
        self.is_train = torch.stack([config.split.is_train for config in configs]).to(self.device)
        self.sizes = torch.tensor(c.sizes, device=self.device)
        self.strides = torch.tensor([math.prod(c.sizes[k + 1 :]) for k in range(len(c.sizes))]).to(
            self.device
        )
        # one number a scene: which object is in each slot, and what is exchanged
        self._each = (*(f"slot {i}" for i in range(c.n_objects)), "first", "second", "concept")
        self._keys = self._keys_of(configs, self._each)
        self._others, self._order = (self._keys_of(configs, (name,)) for name in ("others", "order"))
        if c.asks_every_object:
            self._set_up_every_object()

    def query_batch(self, step: int) -> QueryBatch:
        """Make the scenes and queries of a step."""
        c = self.config
        bits = self._bits(step)
        index = self._objects_of(bits, c.n_objects)
        scenes = self.values_of(index)
        swapped = self._swapped(scenes, bits)[0] if c.swaps else None
        if c.asks_every_object:
            objects, asked, columns = self._every_object(index, swapped)
            weight = _first_time(index).to(c.weight_dtype)
        else:
            objects, asked, columns, found = self._some_objects(index, swapped, step)
            weight = (_first_time(index) & found).to(c.weight_dtype)
        weights = weight / weight.sum(-1, keepdim=True).clamp(min=1)
        return QueryBatch(scenes, objects, asked, columns, weights)

    def caption_batch(self, step: int) -> CaptionBatch:
        """Make the scenes and captions of a step."""
        c, bits = self.config, self._bits(step)
        single = self._objects_of(bits[:, :, : c.n_singles], 1)
        bits = bits[:, :, c.n_singles :]
        scenes = self.values_of(self._objects_of(bits, c.n_objects))
        n_models, n_scenes = scenes.shape[:2]
        captions = scenes
        if c.caption_order == "random":
            # equal numbers, which are rare, leave their slots in order
            each = draws(self._order, step, n_scenes * c.n_objects).view(n_models, n_scenes, -1)
            captions = _taken(scenes, each.argsort(dim=-1, stable=True))
        if not c.swaps:
            nothing = captions[:, :0]
            return CaptionBatch(self.values_of(single), scenes, captions, nothing, nothing[..., 0, 0] > 0)
        _, swapped = self._swapped(captions, bits)
        named = self.index_of(swapped)
        asked = torch.ones(n_models, n_scenes, dtype=torch.bool, device=self.device)
        if not c.held_out_negatives:
            asked = self.is_train.gather(1, named.flatten(1)).view(named.shape).all(-1)
        if c.caption_order == "scene":
            asked &= (named.sort(-1).values != self.index_of(captions).sort(-1).values).any(-1)
        return CaptionBatch(self.values_of(single), scenes, captions, swapped, asked)

    def values_of(self, index: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch concept"]:
        """Give the values of objects."""
        return index.unsqueeze(-1) // self.strides % self.sizes

    def index_of(self, objects: Int[Tensor, "*batch concept"]) -> Int[Tensor, "*batch"]:
        """Number objects; values are not checked."""
        return (objects * self.strides).sum(-1)

    def _keys_of(self, configs: Sequence[TrainingConfig], names: Sequence[str]) -> Int[Tensor, "key"]:
        return torch.tensor([key_of(c.seed, name) for name in names for c in configs]).to(self.device)

    def _bits(self, step: int) -> Int[Tensor, "stream model scene"]:
        """Draw all that a scene is made from, in one go."""
        bits = draws(self._keys, step, self.config.batch)
        return bits.view(len(self._each), len(self.pools), -1)

    def _objects_of(
        self, bits: Int[Tensor, "stream model scene"], n_slots: int
    ) -> Int[Tensor, "model scene slot"]:
        """Fill the slots of scenes with training objects."""
        distinct = self.config.repeats == "distinct objects"
        picks: list[Tensor] = []
        for slot in range(n_slots):
            pick = below(bits[slot], self.counts[:, None] - (slot if distinct else 0))
            if distinct and picks:
                # the pick-th of the objects that are not in the scene yet
                for taken in torch.stack(picks, -1).sort(-1).values.unbind(-1):
                    pick = pick + (pick >= taken)
            picks.append(pick)
        places = torch.stack(picks, -1)
        return self.pools.gather(1, places.flatten(1)).view(places.shape)

    def _swapped(
        self, scenes: Int[Tensor, "model scene slot concept"], bits: Int[Tensor, "stream model scene"]
    ) -> tuple[Int[Tensor, "model scene 2 concept"], Int[Tensor, "model scene slot concept"]]:
        """Exchange a random concept's value between two random slots: the two new objects, and the whole scene."""
        n_slots, n_concepts = scenes.shape[2:]
        first, second = below(bits[-3], n_slots), below(bits[-2], n_slots - 1)
        second = second + (second >= first)
        concept = below(bits[-1], n_concepts)
        pair = torch.stack([first, second], -1)
        before = _taken(scenes, pair)
        moves = torch.arange(n_concepts, device=scenes.device) == concept[..., None, None]
        after = torch.where(moves, before.flip(2), before)
        at = pair[..., None].expand(-1, -1, -1, n_concepts)
        return after, scenes.scatter(2, at, after)

    def _set_up_every_object(self) -> None:
        c, n_models = self.config, len(self.pools)
        self.columns = torch.zeros_like(self.is_train, dtype=torch.int64)
        if c.held_out_negatives:
            every = torch.arange(c.space.n_possible_objects, device=self.device)
            self.columns[:] = every
            self.asked_first, self.objects = self.is_train, every.expand(n_models, -1)
            return
        places = torch.arange(self.pools.shape[1], device=self.device)
        self.asked_first, self.objects = places < self.counts[:, None], self.pools
        # the padding, object 0, must not overwrite the place of object 0
        for model in range(n_models):
            n = int(self.counts[model])
            self.columns[model, self.pools[model, :n]] = places[:n]

    def _every_object(
        self, index: Int[Tensor, "model scene slot"], swapped: Int[Tensor, "model scene 2 concept"] | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        asked = self.asked_first
        if swapped is not None and self.config.held_out_negatives:
            asked = asked.scatter(1, self.index_of(swapped).flatten(1), True)
        columns = self.columns.gather(1, index.flatten(1)).view(index.shape)
        return self.objects, asked, columns

    def _some_objects(
        self,
        index: Int[Tensor, "model scene slot"],
        swapped: Int[Tensor, "model scene 2 concept"] | None,
        step: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        c = self.config
        n_scenes = min(c.batch, c.object_queries // c.n_objects)
        found = [index[:, :n_scenes].flatten(1)]
        n_others = c.object_queries - n_scenes * c.n_objects
        if n_others and n_scenes == c.batch:
            others = below(draws(self._others, step, n_others), self.counts[:, None])
            found.append(self.pools.gather(1, others))
        if swapped is not None:
            negatives = self.index_of(swapped[:, :n_scenes]).flatten(1)
            if not c.held_out_negatives:
                nothing = c.space.n_possible_objects
                negatives = torch.where(self.is_train.gather(1, negatives), negatives, nothing)
            found.append(negatives)
        objects = torch.cat(found, 1).sort(1).values
        asked = objects < c.space.n_possible_objects
        asked[:, 1:] &= objects[:, 1:] != objects[:, :-1]
        columns = torch.searchsorted(objects, index.flatten(1)).clamp(max=objects.shape[1] - 1)
        hit = objects.gather(1, columns) == index.flatten(1)
        objects = objects.masked_fill(~asked, 0)
        return objects, asked, columns.view(index.shape), hit.view(index.shape)


def _first_time(index: Int[Tensor, "model scene slot"]) -> Bool[Tensor, "model scene slot"]:
    """Mark the slots whose object is in no earlier slot."""
    n_slots = index.shape[-1]
    same = index[..., :, None] == index[..., None, :]
    earlier = torch.ones(n_slots, n_slots, dtype=torch.bool, device=index.device).tril(-1)
    return ~(same & earlier).any(-1)


def _taken(
    scenes: Int[Tensor, "model scene slot concept"], slots: Int[Tensor, "model scene taken"]
) -> Int[Tensor, "model scene taken concept"]:
    return scenes.gather(2, slots[..., None].expand(-1, -1, -1, scenes.shape[-1]))
