"""A binding regulariser: pull scene embeddings toward sums of per-object products while a contrastive model trains.

A head of its own, thrown away after training, writes the embedding of a scene s = (o_1 ... o_m) as

    p(s) = sum_i [ sum_k u_{k,c_ik} + (v_{1,c_i1} * ... * v_{K,c_iK}) C ]            (* elementwise)

with learned u (value x dim), v (value x rank) and C (rank x dim). Two terms compare a batch of embeddings z with it:

form    sum |z - p|^2 / sum |z|^2, both less their means over the batch: 1 - R2 of the product form. 0 for embeddings
        of that form; additive ones are of it too (v = 0), so this term alone does not ask for binding.
choice  cross-entropy of picking p(s) for z by cosine / temperature, among the batch's scenes and their *twins*, in
        which two objects have exchanged a concept. Embeddings that add up give a scene and its twin one z, hence at
        least log 2 on average over a scene and its twin, whatever the head; embeddings of the product form come as near
        to 0 as the temperature allows.

Objects that the head never saw share their u and v with those it did: what it asks of an embedding holds for new
combinations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from conceptbind.repair.swaps import MAX_SCALE

EMPTY = -1
"""Every concept of a slot without an object."""

FLAT = 1e-3
"""Embeddings that vary by less than this share of their squares are divided by that: gradients stay bounded."""


@dataclass(frozen=True)
class Terms:
    """Hold the two terms of a batch."""

    form: Float[Tensor, ""]
    choice: Float[Tensor, ""]


class BindingRegulariser(nn.Module):
    """Give a loss that is low when a batch of scene embeddings has the form of per-object products.

    In training with open_clip (``objects``: value indices, (scene, slot, concept), -1 where a slot is empty)::

        binding = BindingRegulariser(dim=512, n_values=(8, 6))       # its parameters go to the optimiser, too
        images, texts, scale = model(pictures, tokens)               # both of length 1
        loss = clip_loss(images, texts, scale) + 0.5 * (binding(images, objects) + binding(texts, objects))

    ``dim``: of the embeddings. ``n_values``: of every concept. ``rank``: products an object. ``form`` and ``choice``
    weight the terms. ``seed`` draws the start. One module for both modalities gives both one form.
    Raises ValueError for fewer than two concepts, sizes below 1, or negative weights.
    """

    def __init__(
        self,
        dim: int,
        n_values: Sequence[int],
        *,
        rank: int = 64,
        form: float = 0.1,
        choice: float = 1.0,
        scale: float = 1 / 0.07,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if len(n_values) < 2:
            raise ValueError(f"binding needs two concepts or more; got n_values={tuple(n_values)}")
        if min(dim, rank, *n_values) < 1:
            raise ValueError(
                f"dim, rank and n_values are at least 1; got {dim}, {rank} and {tuple(n_values)}"
            )
        if min(form, choice) < 0 or not 0 < scale <= MAX_SCALE:
            raise ValueError(
                f"form and choice are weights of at least 0, scale is within 0 ... {MAX_SCALE:g}; got {form}, "
                f"{choice} and {scale}"
            )
        self.n_values, self.form, self.choice = tuple(n_values), form, choice
        generator = torch.Generator().manual_seed(seed)
        n = sum(n_values)
        # signs with some spread: no product starts near zero for one factor alone
        factors = torch.randint(2, (n, rank), generator=generator) * 2.0 - 1
        self.factors = nn.Parameter(factors + 0.3 * torch.randn(n, rank, generator=generator))
        self.sums = nn.Parameter(torch.randn(n, dim, generator=generator) / math.sqrt(dim))
        self.head = nn.Parameter(torch.randn(rank, dim, generator=generator) / math.sqrt(rank * dim))
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        starts = [sum(n_values[:k]) for k in range(len(n_values))]
        self.register_buffer("starts", torch.tensor(starts), persistent=False)

    def forward(
        self, embeddings: Float[Tensor, "scene dim"], objects: Int[Tensor, "_scene slot concept"]
    ) -> Float[Tensor, ""]:
        """Give form times its term plus choice times its; errors as in :meth:`terms`."""
        found = self.terms(embeddings, objects)
        return self.form * found.form + self.choice * found.choice

    def terms(
        self, embeddings: Float[Tensor, "scene dim"], objects: Int[Tensor, "_scene slot concept"]
    ) -> Terms:
        """Give both terms of a batch.

        Raises ValueError for fewer than 2 scenes, shapes that do not fit, or values out of range.
        """
        self._check(embeddings, objects)
        twins, has_twin = self._twins(objects)
        p = self.scene_vectors(objects)
        z_centred, p_centred = embeddings - embeddings.mean(0), p - p.mean(0)
        varies = torch.maximum(z_centred.square().sum(), FLAT * embeddings.square().sum())
        form = (z_centred - p_centred).square().sum() / varies
        every = torch.cat([objects, twins[has_twin]])
        candidates = torch.cat([p, self.scene_vectors(twins[has_twin])])
        scale = self.log_scale.exp().clamp(max=MAX_SCALE)
        scores = scale * functional.normalize(embeddings, dim=1) @ functional.normalize(candidates, dim=1).T
        # the same objects in another order are the same answer
        names = self._numbers(every).sort(1).values
        _, kind = names.unique(dim=0, return_inverse=True)
        n = len(objects)
        alike = kind[:n, None] == kind[None]
        alike[:, :n].fill_diagonal_(False)
        right = torch.arange(n, device=scores.device)
        return Terms(form, functional.cross_entropy(scores.masked_fill(alike, -math.inf), right))

    def scene_vectors(self, objects: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Write scenes as the head does: p(s). Empty slots add nothing."""
        filled = (objects >= 0).all(2)
        index = objects.clamp(min=0) + self.starts
        products = functional.embedding(index, self.factors).prod(2)
        sums = functional.embedding(index, self.sums).sum(2)
        return ((products @ self.head + sums) * filled[..., None]).sum(1)

    def _twins(self, objects: Tensor) -> tuple[Int[Tensor, "twin slot concept"], Bool[Tensor, "twin"]]:
        """Exchange each concept between each two slots; say which results are scenes of other objects.

        Of two concepts, exchanging the second is exchanging the first, but for the order.
        """
        n_slots, n_concepts = objects.shape[1:]
        filled = (objects >= 0).all(2)
        twins, differ = [], []
        for a, b in combinations(range(n_slots), 2):
            for k in range(1 if n_concepts == 2 else n_concepts):
                twin = objects.clone()
                twin[:, a, k], twin[:, b, k] = objects[:, b, k], objects[:, a, k]
                changed = objects[:, a] != objects[:, b]
                twins.append(twin)
                differ.append(filled[:, a] & filled[:, b] & changed[:, k] & (changed.sum(1) > 1))
        if not twins:
            return objects[:0], torch.zeros(0, dtype=torch.bool, device=objects.device)
        return torch.cat(twins), torch.cat(differ)

    def _numbers(self, objects: Tensor) -> Int[Tensor, "scene slot"]:
        number = torch.zeros_like(objects[..., 0])
        for k, size in enumerate(self.n_values):
            number = number * size + objects[..., k]
        return torch.where((objects >= 0).all(2), number, EMPTY)

    def _check(self, embeddings: Tensor, objects: Tensor) -> None:
        if embeddings.shape[1] != self.sums.shape[1]:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} dimensions, the regulariser {self.sums.shape[1]}: make it "
                f"with dim={embeddings.shape[1]}"
            )
        if len(embeddings) < 2:
            raise ValueError(
                f"the regulariser compares the scenes of a batch, 2 or more; got {len(embeddings)}"
            )
        if len(objects) != len(embeddings) or objects.shape[2] != len(self.n_values):
            raise ValueError(
                f"objects {tuple(objects.shape)} do not fit {len(embeddings)} embeddings and "
                f"{len(self.n_values)} concepts: give value indices (scene, slot, concept)"
            )
        empty = (objects == EMPTY).all(2, keepdim=True)
        sizes = torch.tensor(self.n_values, device=objects.device)
        if bool(((objects < 0) | (objects >= sizes)).logical_and(~empty).any()):
            raise ValueError(
                f"values of objects run from 0 to one below {self.n_values}; a slot without an object is {EMPTY} in "
                "every concept"
            )
        if bool(empty.all(1).any()):
            raise ValueError("some scene has no object at all: leave it out of the batch")
