"""A linear map of text embeddings: trained as LABCLIP does (arXiv 2502.03566), or solved in closed form.

Images x and texts t are scaled to length 1 first; cosines after the map do not depend on the lengths.

==========  ========================================================================================
ridge       min_W sum_i |W t_i - x_i|^2 + l |W - I|^2, so W = (X'T + l I)(T'T + l I)^-1
procrustes  min_W sum_i |W t_i - x_i|^2 over orthogonal W, so W = U V' with X'T = U S V'
margins     min_W sum_i (x_i . W d_i - m)^2 + l |W - I|^2, d_i = t_i - t'_i caption less swapped caption
==========  ========================================================================================

Ridge and Procrustes never see the swapped captions. Margins ask that every picture prefer its caption by m, with the
least change. Along the change W - I the gradient is a sum of x_i d_i', so W = I + sum_i a_i x_i d_i'. Put into the
objective this is kernel ridge regression, with K_ij = (x_i . x_j)(d_i . d_j) and the margins b_i = x_i . d_i there are
before the map:

    (K + l I) a = m - b

The penalty l is relative: ``ridge`` times the mean diagonal of T'T, or of K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from conceptbind.repair.swaps import Pairs, SwapTraining, train_against_swaps

MAX_KERNEL = 8192
"""Pairs that the margins are solved for: their kernel takes 0.5 GB."""

LEAST_RIDGE = 1e-6
"""Above the rounding of float32 embeddings: directions that no text has stay as they are."""


class LinearMap(nn.Module):
    """Map text embeddings by a matrix without bias: t -> W t; the identity at the start.

    Raises ValueError for a dimension below 1.
    """

    def __init__(self, dim: int, out_dim: int | None = None) -> None:
        super().__init__()
        out_dim = dim if out_dim is None else out_dim
        if min(dim, out_dim) < 1:
            raise ValueError(f"a map needs dimensions of at least 1; got {dim} to {out_dim}")
        self.weight = nn.Parameter(torch.eye(out_dim, dim))

    @classmethod
    def of(cls, weight: Float[Tensor, "out_dim dim"]) -> LinearMap:
        """Make the map of a matrix, in float32."""
        found = cls(weight.shape[1], weight.shape[0]).to(weight.device)
        found.load_state_dict({"weight": weight.float()})
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """What the class is called with to make it anew."""
        return {"dim": self.weight.shape[1], "out_dim": self.weight.shape[0]}

    def forward(self, texts: Float[Tensor, "text dim"]) -> Float[Tensor, "text out_dim"]:
        """Map text embeddings, (text, dim)."""
        return texts @ self.weight.T


def train_linear_map(
    pairs: Pairs, how: SwapTraining | None = None, *, seed: int
) -> tuple[LinearMap, Mapping[str, Any]]:
    """Train the map against swapped captions; give it with its learned ``scale`` and the ``losses`` of the epochs.

    Raises ValueError when images and texts have different dimensions: there is no identity to start from.
    """
    _same_dimensions(pairs)
    found = LinearMap(pairs.texts.shape[1]).to(pairs.texts)
    scale, losses = train_against_swaps(found, pairs, how, seed=seed)
    return found, {"scale": scale, "losses": losses}


def ridge_map(pairs: Pairs, *, ridge: float = 0.1) -> LinearMap:
    """Solve for the map from texts to images that changes little; ``ridge`` is relative, at least 0.

    Raises ValueError for a negative ridge, or different dimensions.
    """
    _same_dimensions(pairs)
    _not_negative(ridge)
    x, t = _unit(pairs.images), _unit(pairs.texts)
    square = t.T @ t
    eye = torch.eye(len(square), dtype=square.dtype, device=square.device)
    level = square.diagonal().mean() * max(ridge, LEAST_RIDGE)
    return LinearMap.of(torch.linalg.solve(square + level * eye, (x.T @ t + level * eye).T).T)


def procrustes_map(pairs: Pairs) -> LinearMap:
    """Solve for the rotation (or reflection) that takes texts nearest to their images (Schönemann 1966).

    Raises ValueError for different dimensions.
    """
    _same_dimensions(pairs)
    u, _, vh = torch.linalg.svd(_unit(pairs.images).T @ _unit(pairs.texts))
    return LinearMap.of(u @ vh)


def margin_map(pairs: Pairs, *, margin: float = 0.1, ridge: float = 0.1) -> LinearMap:
    """Solve for the least change by which every picture prefers its caption to the swapped one by ``margin``.

    ``margin``: m of the cosine-like x . W (t - t'), positive. ``ridge``: relative, positive.
    Raises ValueError for settings out of range, more than 8,192 pairs, or different dimensions.
    """
    _same_dimensions(pairs)
    if margin <= 0 or ridge <= 0:
        raise ValueError(f"margin and ridge must be positive; got {margin} and {ridge}")
    if len(pairs) > MAX_KERNEL:
        raise ValueError(
            f"{len(pairs):,} pairs are too many for one kernel matrix: draw at most {MAX_KERNEL:,} of them"
        )
    x, d = _unit(pairs.images), _unit(pairs.texts) - _unit(pairs.swapped)
    kernel = (x @ x.T) * (d @ d.T)
    level = kernel.diagonal().mean()
    if float(level) == 0:
        raise ValueError(
            "every caption has the embedding of its swapped caption, so no map tells them apart: the text encoder "
            "has lost the order of the words"
        )
    kernel.diagonal().add_(ridge * level)
    a = torch.linalg.solve(kernel, margin - (x * d).sum(1))
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return LinearMap.of(eye + (x * a[:, None]).T @ d)


def _unit(rows: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
    return functional.normalize(rows.double(), dim=1)


def _same_dimensions(pairs: Pairs) -> None:
    if pairs.images.shape[1] != pairs.texts.shape[1]:
        raise ValueError(
            f"images have {pairs.images.shape[1]} dimensions, texts {pairs.texts.shape[1]}: a map that starts at the "
            "identity needs embeddings of one model, with one space for both"
        )


def _not_negative(ridge: float) -> None:
    if not (ridge >= 0 and math.isfinite(ridge)):
        raise ValueError(f"ridge must be a finite number of at least 0; got {ridge}")
