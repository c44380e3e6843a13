"""Embeddings with known binding: what a probe or a query should find is fixed by a formula.

A scene encoder and a query encoder are built from the same parts and agree on *training objects*:

========== ======================================================== ================== =====================
kind       vector w_o of object o = (c_1 ... c_K)                   concepts           objects
========== ======================================================== ================== =====================
additive   sum_k u_{k,c_k}                                          everywhere         nowhere: exact ties
product    sum_k u_{k,c_k} + strength * prod_k v_{k,c_k}            everywhere         everywhere
memorised  an independent random vector for every object            training objects   training objects
========== ======================================================== ================== =====================

The embedding of a scene is the sum over its objects, sum_i w_{o_i} (Level-I additivity, paper section 2, F3);
an object query is w_o; the query of value v of concept k is u_{k,v}. A memorised encoder has no u: its query
of a value is the mean of w_o over the training objects with that value, and on held-out objects the scene
encoder and the query encoder have independent vectors.

Every coordinate of u, v and w is +1 or -1, and the u are exactly orthogonal (signed rows of a Hadamard
matrix). Scenes, dot products and squared norms are therefore integers, exact in float32 in any order of
summation: "red circle, blue square" and "blue circle, red square" get the same additive embedding bit for
bit, and the four objects made of their values get the same score. The product and memorised kinds rest on
random vectors being nearly orthogonal, so they hold for a ``dim`` that is large against the number of objects
in a scene.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.scenes import ConceptSpace, ObjectSplit

Kind = Literal["additive", "product", "memorised"]
KINDS: tuple[Kind, ...] = ("additive", "product", "memorised")


@dataclass(frozen=True)
class PlantedEncoders:
    """Hold a scene encoder and a query encoder; build one with :func:`planted_encoders`."""

    space: ConceptSpace
    kind: Kind
    scene_objects: Float[Tensor, "object dim"]
    """w_o of the scene encoder, by object index."""
    query_objects: Float[Tensor, "object dim"]
    """w_o of the query encoder; the same wherever the two encoders agree."""
    query_values: Float[Tensor, "value dim"]
    """Queries of the values of concept 1, ..., of concept K."""
    noise: float
    seed: int

    def scenes(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Embed scenes: sum_i w_{o_i}, plus ``noise`` times standard normal numbers.

        The noise is drawn from ``seed`` for the whole call, so row i gets the same noise in every call of one
        size.
        """
        index = self.space.object_index(scenes)
        total = torch.zeros(len(index), self.scene_objects.shape[1])
        for slot in range(index.shape[1]):
            total += self.scene_objects[index[:, slot]]
        if self.noise:
            generator = torch.Generator().manual_seed(self.seed)
            total += self.noise * torch.randn(total.shape, generator=generator)
        return total

    def queries(self) -> Float[Tensor, "query dim"]:
        """Embed every query: the values of concept 1, ..., of concept K, then all objects."""
        return torch.cat([self.query_values, self.query_objects])

    def scores(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene query"]:
        """Give the cosine similarity of every scene and every query.

        The dot products are divided by the norms last, so that equal integers stay equal scores.
        """
        embeddings, queries = self.scenes(scenes), self.queries()
        norms = embeddings.norm(dim=1, keepdim=True) * queries.norm(dim=1)
        # A scene embedding can only vanish when +1 and -1 cancel everywhere; it then scores 0 on every query.
        return embeddings @ queries.T / norms.clamp(min=torch.finfo(norms.dtype).tiny)


def planted_encoders(
    space: ConceptSpace,
    kind: Kind,
    *,
    dim: int,
    seed: int,
    split: ObjectSplit | None = None,
    strength: float = 1.0,
    noise: float = 0.0,
) -> PlantedEncoders:
    """Plant two encoders that bind as ``kind`` says (the table at the top of this module).

    ``dim``: a multiple of the smallest power of two that is at least sum_k V_k, so that the u can be
    orthogonal.
    ``split``: the objects the two memorised encoders agree on; all of them when None. The other kinds follow
    their formula on every object and ignore it.
    ``strength``: the weight of the product. ``noise``: standard deviation added to every coordinate of a
    scene, in units of the +-1 coordinates of one part.
    Raises ValueError for an unknown kind, a dim that does not fit, a split of another space, or negative
    noise.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}; got {kind!r}")
    if noise < 0:
        raise ValueError(f"noise is a standard deviation, at least 0; got {noise}")
    if split is not None and split.space != space:
        raise ValueError(
            "the split was drawn for another concept space: draw it with object_split(space, ...)"
        )
    order = 1 << (sum(space.n_values) - 1).bit_length()
    if dim < 1 or dim % order:
        raise ValueError(
            f"dim must be a multiple of {order}, the smallest power of two that holds the "
            f"{sum(space.n_values)} concept values as orthogonal vectors; got {dim}, the next that fits is "
            f"{max(1, -(-dim // order)) * order}"
        )
    generator = torch.Generator().manual_seed(seed)
    n_all, objects = space.n_possible_objects, space.all_objects()
    if kind == "memorised":
        known = torch.ones(n_all, dtype=torch.bool) if split is None else split.is_train
        in_scenes = _signs(n_all, dim, generator)
        in_queries = torch.where(known.unsqueeze(1), in_scenes, _signs(n_all, dim, generator))
        shown = torch.cat(
            [objects[:, k] == torch.arange(v).unsqueeze(1) for k, v in enumerate(space.n_values)]
        )
        shown = (shown & known).float()
        values = shown @ in_queries / shown.sum(1, keepdim=True).clamp(min=1)
        return PlantedEncoders(space, kind, in_scenes, in_queries, values, noise, seed)
    values = _orthogonal_signs(sum(space.n_values), order, dim, generator)
    offsets = torch.tensor([sum(space.n_values[:k]) for k in range(space.n_concepts)])
    parts = values[objects + offsets].sum(1)
    if kind == "product":
        factors = _signs(sum(space.n_values), dim, generator)
        parts = parts + strength * factors[objects + offsets].prod(1)
    return PlantedEncoders(space, kind, parts, parts, values, noise, seed)


def _signs(n: int, dim: int, generator: torch.Generator) -> Float[Tensor, "n dim"]:
    return torch.randint(2, (n, dim), generator=generator).float() * 2 - 1


def _orthogonal_signs(n: int, order: int, dim: int, generator: torch.Generator) -> Float[Tensor, "n dim"]:
    hadamard = torch.ones(1, 1)
    while len(hadamard) < order:  # Sylvester's construction
        hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
    rows = hadamard[torch.randperm(order, generator=generator)[:n]]
    # One sign a column, the same for all rows, keeps them orthogonal.
    return rows.repeat(1, dim // order) * _signs(1, dim, generator)
