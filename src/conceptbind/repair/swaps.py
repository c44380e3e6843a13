"""Train a repair of texts so that pictures choose their captions among swapped ones (LABCLIP, arXiv 2502.03566).

Pictures x, their captions t and the swapped captions t' are frozen embeddings; the repair f is trained. Scores are
s(x, t) = scale cos(x, f(t)) with a learned scale. Over a batch of B pairs the loss is the mean of two cross-entropies:

    image to text    -log exp s(x_i, t_i) / sum_j [exp s(x_i, t_j) + exp s(x_i, t'_j)]      2B captions to choose from
    text to image    -log exp s(x_i, t_i) / sum_j exp s(x_j, t_i)                           B pictures

A candidate that means the same as the right one is no wrong answer, and is left out of the sum: the swapped caption of
one scene is the caption of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

MAX_SCALE = 100.0
"""CLIP's bound on the learned scale."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Hold embeddings of pictures, of their captions, and of the same captions swapped.

    Raises ValueError when there is no pair, numbers of rows differ, or a row is not finite or all zeros.
    """

    images: Float[Tensor, "pair dim"]
    texts: Float[Tensor, "_pair text_dim"]
    swapped: Float[Tensor, "_swapped _text_dim"]
    meanings: Int[Tensor, "_pair 2"] | None = None
    """Number of what the caption, and the swapped caption, mean: captions of one number are true of the same pictures.
    None: captions mean the same where their embeddings are equal."""

    def __post_init__(self) -> None:
        shapes = {name: tuple(getattr(self, name).shape) for name in ("images", "texts", "swapped")}
        if not len(self.images):
            raise ValueError("there are no pairs: give at least one picture with its two captions")
        if len({len(getattr(self, name)) for name in shapes}) > 1 or self.texts.shape != self.swapped.shape:
            raise ValueError(
                f"{shapes} do not fit: give one caption and one swapped caption for each picture"
            )
        for name in shapes:
            rows = getattr(self, name)
            bad = ~rows.isfinite().all(1) | (rows == 0).all(1)
            if bool(bad.any()):
                raise ValueError(
                    f"{int(bad.sum())} rows of {name} are NaN, infinite or all zeros (the first: "
                    f"{int(bad.nonzero()[0])}): leave these pairs out, or encode them again"
                )
        if self.meanings is None:
            _, numbers = torch.cat([self.texts, self.swapped]).unique(dim=0, return_inverse=True)
            object.__setattr__(self, "meanings", numbers.view(2, -1).T.contiguous())
        elif self.meanings.shape != (len(self.images), 2):
            raise ValueError(
                f"meanings must be (pair, 2), here ({len(self.images)}, 2); got {tuple(self.meanings.shape)}"
            )

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class SwapTraining:
    """Set how a repair is trained; the defaults are LABCLIP's on CLEVR (paper, section 3 of our summary).

    Raises ValueError when a setting is out of range.
    """

    n_epochs: int = 50
    batch: int = 128
    """Pairs a step."""
    rate: float = 1e-2
    """Of Adam."""
    scale: float = 1 / 0.07
    """Of the cosines at the start, as in CLIP; learned, at most 100."""

    def __post_init__(self) -> None:
        for name in ("n_epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.batch < 2:
            raise ValueError("a batch of one pair has no other picture to choose: use batch=2 or more")
        if self.rate <= 0 or not 0 < self.scale <= MAX_SCALE:
            raise ValueError(
                f"rate must be positive and scale within 0 ... {MAX_SCALE:g}; got {self.rate} and {self.scale}"
            )


def swap_loss(
    images: Float[Tensor, "pair dim"],
    texts: Float[Tensor, "pair dim"],
    swapped: Float[Tensor, "pair dim"],
    scale: float | Float[Tensor, ""],
    meanings: Int[Tensor, "pair 2"],
) -> Float[Tensor, ""]:
    """Give the loss of a batch; the formula is at the head of this module. Lengths do not matter, only directions."""
    images, captions = functional.normalize(images, dim=1), torch.cat([texts, swapped])
    scores = scale * images @ functional.normalize(captions, dim=1).T
    n = len(images)
    alike = meanings[:, :1] == meanings.T.reshape(1, -1)
    alike[:, :n].fill_diagonal_(False)
    scores = scores.masked_fill(alike, -math.inf)
    right = torch.arange(n, device=scores.device)
    to_texts = functional.cross_entropy(scores, right)
    to_images = functional.cross_entropy(scores[:, :n].T, right)
    return (to_texts + to_images) / 2


def train_against_swaps(
    repair: nn.Module, pairs: Pairs, how: SwapTraining | None = None, *, seed: int
) -> tuple[float, list[float]]:
    """Train ``repair``, texts to texts, in place; give the learned scale and each epoch's mean loss.

    ``seed`` orders the pairs of every epoch. A single pair that is left at the end of an epoch is skipped.
    Computed where ``pairs`` are. Raises ValueError for fewer than 2 pairs.
    """
    how = how or SwapTraining()
    if len(pairs) < 2:
        raise ValueError("training needs at least 2 pairs, so that there is a wrong picture to choose; got 1")
    assert pairs.meanings is not None
    log_scale = torch.tensor(math.log(how.scale), device=pairs.images.device, requires_grad=True)
    optimiser = torch.optim.Adam([*repair.parameters(), log_scale], lr=how.rate)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(how.n_epochs):
        total = 0.0
        order = torch.randperm(len(pairs), generator=generator).to(pairs.images.device)
        batches = [rows for rows in order.split(how.batch) if len(rows) > 1]
        for rows in batches:
            both = repair(torch.cat([pairs.texts[rows], pairs.swapped[rows]]))
            texts, swapped = both.split(len(rows))
            loss = swap_loss(pairs.images[rows], texts, swapped, log_scale.exp(), pairs.meanings[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                log_scale.clamp_(max=math.log(MAX_SCALE))
            total += float(loss.detach()) * len(rows)
        losses.append(total / sum(map(len, batches)))
    return float(log_scale.detach().exp()), losses
