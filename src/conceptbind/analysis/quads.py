"""Winoground's scores of quads: two pictures, two captions, which belongs to which (Thrush et al. 2022, 2204.03162).

With s(c, i) the cosine of caption c and picture i, a quad (c0, i0), (c1, i1) scores

    text    s(c0, i0) > s(c1, i0)  and  s(c1, i1) > s(c0, i1)      chance 1/4
    image   s(c0, i0) > s(c0, i1)  and  s(c1, i1) > s(c1, i0)      chance 1/4
    group   both                                                   chance 1/6

Chance is that of four independent continuous scores: the group score asks that both of one pair exceed both of the
other, 2! 2! of 4! orders. Comparisons are strict up to rounding, so ties lower it, and so does a caption that is nearer
to every picture than its twin, down to 0: unlike in a two-way choice, a score below chance is no sign of anti-binding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from conceptbind.kernels.retrieval import TIE_ULPS

TEXT_CHANCE, IMAGE_CHANCE, GROUP_CHANCE = 0.25, 0.25, 1 / 6


@dataclass(frozen=True)
class QuadScores:
    """Hold the three scores, shares of quads; NaN where there is no quad."""

    text: float
    image: float
    group: float
    n: int


@dataclass(frozen=True)
class QuadsRight:
    """Say for each quad whether each score counts it."""

    text: Bool[Tensor, "quad"]
    image: Bool[Tensor, "quad"]

    def scores(self, keep: Bool[Tensor, "quad"] | None = None) -> QuadScores:
        """Average over the quads, or over those marked."""
        text, image = (self.text, self.image) if keep is None else (self.text[keep], self.image[keep])
        if not len(text):
            return QuadScores(math.nan, math.nan, math.nan, 0)
        shares = (float(right.double().mean()) for right in (text, image, text & image))
        return QuadScores(*shares, n=len(text))


def judge_quads(images: Float[Tensor, "quad 2 dim"], texts: Float[Tensor, "quad 2 dim"]) -> QuadsRight:
    """Judge quads from unit vectors of one type; see the table at the top of this module."""
    return quads_right(images @ texts.mT)


def quads_right(scores: Float[Tensor, "quad image=2 text=2"]) -> QuadsRight:
    """Judge quads from their scores, a row for each picture and a column for each caption."""
    noise = TIE_ULPS * torch.finfo(scores.dtype).eps
    own = scores.diagonal(dim1=1, dim2=2)
    for_image = scores.flip(2).diagonal(dim1=1, dim2=2)
    for_text = scores.flip(1).diagonal(dim1=1, dim2=2)
    text = (own - for_image > noise).all(1)
    image = (own - for_text > noise).all(1)
    return QuadsRight(text, image)
