"""Composition models on frozen pictures (Lewis et al., arXiv 2212.10537): vectors of two words make one of an object.

=============  =====================================  ==================================================
kind           vector of an object with words a, n
=============  =====================================  ==================================================
add            a + n                                  additive: swapped objects have the same sum
mult           a * n                                  elementwise
conv           a (*) n                                circular convolution, a product of Fourier series
role-filler    a (*) r_a + n (*) r_n                  r are roles; linear in a and n, so additive too
type-logical   A n                                    adjectives are matrices
=============  =====================================  ==================================================

The score of an object for a picture x is scale cos(x, vector). Words (and roles) are trained with x frozen, by the
cross-entropy over the objects that training scenes are made of, the mass of 1 shared by the objects in the picture.
Held-out objects are made of the same words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from conceptbind.analysis.five_way import FiveWay, five_way
from conceptbind.embeddings import EmbeddingSet
from conceptbind.repair.swaps import MAX_SCALE
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind, check_scenes, single_object_scenes

Kind = Literal["add", "mult", "conv", "role-filler", "type-logical"]
KINDS: tuple[Kind, ...] = ("add", "mult", "conv", "role-filler", "type-logical")


@dataclass(frozen=True)
class CompositionTraining:
    """Set how words are trained: Adam, the rate falling to zero along half a cosine."""

    n_steps: int = 400
    batch: int = 512
    """Pictures a step; all where there are no more."""
    rate: float = 1e-2
    scale: float = 1 / 0.07
    """Of the cosines at the start; learned, at most 100."""


class Composition(nn.Module):
    """Make object vectors of two words; one of the five kinds.

    ``space``: two concepts, the first the adjective. ``dim``: of the pictures. ``seed`` draws the words.
    Raises ValueError for an unknown kind, another number of concepts, or a dim below 1.
    """

    def __init__(
        self, kind: Kind, space: ConceptSpace, dim: int, *, scale: float = 1 / 0.07, seed: int
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}; got {kind!r}")
        if space.n_concepts != 2:
            raise ValueError(
                f"composition models join an adjective and a noun, two concepts; the space has {space.n_concepts}: "
                f"{space.concepts}"
            )
        if dim < 1:
            raise ValueError(f"dim is at least 1; got {dim}")
        self.kind: Kind = kind
        self.space = space
        generator = torch.Generator().manual_seed(seed)

        def drawn(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(size, generator=generator) / math.sqrt(dim))

        n_adjectives, n_nouns = space.n_values
        self.adjectives = drawn(n_adjectives, *([dim, dim] if kind == "type-logical" else [dim]))
        self.nouns = drawn(n_nouns, dim)
        self.roles = drawn(2, dim) if kind == "role-filler" else None
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))

    def objects(self) -> Float[Tensor, "object dim"]:
        """Compose every object of the space, in the order of the object index."""
        a, n = self.adjectives, self.nouns
        if self.kind == "type-logical":
            return torch.einsum("aij,nj->ani", a, n).flatten(0, 1)
        if self.kind == "role-filler":
            assert self.roles is not None
            a, n = convolve(a, self.roles[:1]), convolve(n, self.roles[1:])
        a, n = a[:, None], n[None]
        joined = a * n if self.kind == "mult" else convolve(a, n) if self.kind == "conv" else a + n
        return joined.flatten(0, 1)

    def forward(self, images: Float[Tensor, "picture dim"]) -> Float[Tensor, "picture object"]:
        """Score every object for every picture: scale cos(x, vector)."""
        scale = self.log_scale.exp().clamp(max=MAX_SCALE)
        return scale * functional.normalize(images, dim=1) @ functional.normalize(self.objects(), dim=1).T


def convolve(a: Float[Tensor, "*batch dim"], b: Float[Tensor, "*others dim"]) -> Float[Tensor, "*joined dim"]:
    """Convolve circularly along the last axis: c_j = sum_i a_i b_{j - i mod dim}; other axes broadcast."""
    return torch.fft.irfft(torch.fft.rfft(a) * torch.fft.rfft(b), n=a.shape[-1])


def train_composition(
    kind: Kind,
    images: Float[Tensor, "picture dim"],
    scenes: Int[Tensor, "_picture slot concept"],
    split: ObjectSplit,
    how: CompositionTraining | None = None,
    *,
    seed: int,
) -> Composition:
    """Train the words of one kind on the pictures whose objects are all training objects; others are left out.

    Held-out objects are never among the candidates. ``seed`` draws the words and the batches. Computed where the images
    are, in float32.
    Raises ValueError when pictures and scenes differ in number, numbers are not finite, or no picture has training
    objects only.
    """
    how = how or CompositionTraining()
    check_scenes(split.space, scenes)
    if len(images) != len(scenes):
        raise ValueError(f"{len(images)} pictures but {len(scenes)} scenes: give one scene for each picture")
    keep = split.kinds(scenes) == SceneKind.TRAIN
    if not bool(keep.any()):
        raise ValueError(
            "no picture is made of training objects only: give pictures of the split's train_objects"
        )
    device = images.device
    x = images[keep.to(device)].float()
    if not bool(x.isfinite().all()):
        raise ValueError("images hold NaN or infinite numbers: encode them again, or leave those rows out")
    present = functional.one_hot(split.space.object_index(scenes[keep]), split.space.n_possible_objects)
    is_train = split.is_train.to(device)
    target = present.amax(1).float().to(device)[:, is_train]
    target = target / target.sum(1, keepdim=True)
    model = Composition(kind, split.space, x.shape[1], scale=how.scale, seed=seed).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=how.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, how.n_steps)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(len(x), device=device)
    for _ in range(how.n_steps):
        if len(x) > how.batch:
            rows = torch.randperm(len(x), generator=generator)[: how.batch].to(device)
        loss = functional.cross_entropy(model(x[rows])[:, is_train], target[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.requires_grad_(False)


def judge_composition(
    model: Composition, images: EmbeddingSet, split: ObjectSplit | None = None, *, seed: int = 0
) -> FiveWay:
    """Let pictures of two objects choose among five composed ones; see :mod:`conceptbind.analysis.five_way`.

    ``split``: judges seen and held-out objects apart. Raises ValueError as :func:`five_way` does.
    """
    composed = model.objects().detach().cpu()
    queries = EmbeddingSet(composed, single_object_scenes(model.space), model.space)
    return five_way(images, queries, split=split, seed=seed)
