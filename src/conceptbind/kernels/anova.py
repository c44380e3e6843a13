"""Split the variance of a complete grid of embeddings over all subsets of its factors (functional ANOVA).

On a grid in which every combination of F factors occurs once, z is a unique sum of 2^F components, z = sum_S z_S,
where z_S depends on the factors in S only and has mean 0 over each of them (Hoeffding 1948; Efron and Stein 1981):

    E[z | S] = sum of z_T over T within S          mean |z - mean z|² = sum over S of mean |z_S|²

One orthogonal map an axis separates them: a Householder reflection takes the unit vector of equal entries to the
first axis, so that entry 0 becomes sqrt(V) times the mean over the factor and the other V - 1 entries are coordinates
of the deviations from it. After F reflections the squares whose index is 0 exactly at the factors outside S add up to
the sum of squares of z_S. Nothing is subtracted from anything larger, so a component of 1e-20 of the variance is as
exact as one of a half, and none comes out negative; the differences of mean squares |E[z | S]|² would lose the former.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK_ELEMENTS = 2**21
"""Numbers in work at once on a CPU, 16 MB in float64."""

BLOCK_ELEMENTS_GPU = 2**24
"""The same on another device, 128 MB."""

ROUNDING = 1e-24
"""A component of less than this share of the variance is float64's rounding, and is 0."""


def subsets(n_factors: int) -> list[tuple[int, ...]]:
    """List the 2^F subsets of factors in the order of :func:`anova_energies`: (), (F-1,), (F-2,), (F-2, F-1), ..."""
    bits = itertools.product((False, True), repeat=n_factors)
    return [tuple(f for f, inside in enumerate(row) if inside) for row in bits]


def degrees_of_freedom(sizes: Sequence[int]) -> list[int]:
    """Give prod over f in S of (V_f - 1) for every subset S, in the order of :func:`subsets`; 1 for the mean."""
    return [math.prod(sizes[f] - 1 for f in subset) for subset in subsets(len(sizes))]


def anova_energies(grid: Float[Tensor, "*value dim"]) -> Float[Tensor, "subset"]:
    """Give mean |z_S|² over the cells for every subset S of factors, in the order of :func:`subsets`.

    ``grid``: one axis a factor, V_1 ... V_F, then the embedding. The mean's own entry, the first, is 0, so the sum is
    the total variance. float64, where ``grid`` lies; components below rounding (``ROUNDING``) are 0. Works in blocks
    of dimensions: beside the grid it takes some 0.1 GB (0.5 GB on a GPU).
    Raises ValueError when an axis is empty.
    """
    if not grid.numel():
        raise ValueError(
            f"every factor needs a value and the embeddings a dimension; got shape {tuple(grid.shape)}"
        )
    sizes = grid.shape[:-1]
    n_cells = math.prod(sizes)
    cells = grid.detach().reshape(n_cells, grid.shape[-1])
    at_once = BLOCK_ELEMENTS if grid.device.type == "cpu" else BLOCK_ELEMENTS_GPU
    width = max(1, at_once // n_cells)
    squares = torch.zeros(n_cells, dtype=torch.float64, device=grid.device)
    for columns in cells.split(width, dim=1):
        # One cell is taken off all: it removes what they share without rounding, where their mean would round.
        block = (columns.double() - columns[0].double()).contiguous()
        _reflect(block, sizes)
        squares += block.square_().sum(1)
    for f, size in enumerate(sizes):
        squares = squares.reshape(2**f, size, -1)
        squares = torch.stack([squares[:, 0], squares[:, 1:].sum(1)], dim=1)
    energies = squares.flatten() / n_cells
    energies[0] = 0
    energies[energies < ROUNDING * energies.sum()] = 0
    return energies


def _reflect(block: Float[Tensor, "cell column"], sizes: Sequence[int]) -> None:
    """Apply H = I - 2 w w', w along 1/sqrt(V) - e_0, over every factor, in place."""
    for f, size in enumerate(sizes):
        if size == 1:
            continue
        x = block.view(math.prod(sizes[:f]), size, -1)
        first = x.sum(1).div_(math.sqrt(size))
        x[:, 1:] -= ((first - x[:, 0]) / (math.sqrt(size) - 1)).unsqueeze(1)
        x[:, 0] = first
