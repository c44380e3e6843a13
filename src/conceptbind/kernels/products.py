"""Products of concept factors, fitted to object parts by alternating least squares; many fits at once.

The part of object o = (c_1 ... c_K) in slot i is modelled as a sum plus a product of one factor for each concept,

    t_{i,o} ~ mu_i + sum_k u_{i,k,c_k} + (v_{i,1,c_1} * ... * v_{i,K,c_K}) C            (* elementwise)

with R-dimensional factors v and a linear head C (R x dim), shared by all slots; *coordinate-wise* R = dim and C = 1:
every coordinate is a product of its own. Without the sum this is the CP (PARAFAC) decomposition of a table that is
known only in part (Carroll and Chang 1970; Harshman 1970). Given all other factors, the u and v of one concept are the
solution of a ridge regression for each of its values, and so is C: each sweep solves them in turn. Objects that show a
value nobody else shows cannot tell its u from its v: without a ridge on u, v is zero, and the model is additive there;
with one, the two share what there is to explain.

Ridges are relative: of u to the mean count of rows of a value, of v and C to the mean diagonal of their normal
equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SETTLED = 1e-4
"""A fit is done when all sweeps to come promise to lower its squared error by less than this share of what the sum
alone leaves: if each gains q times what the one before it gained, gain q + gain q² + ... = gain q / (1 - q). A small
gain alone means little: on their way these fits cross long plateaus."""

ROUNDING = 10
"""Machine epsilons that a difference of sums may be off by, in units of the sums."""

ROW_BLOCK = 2**25
"""Floats in the largest temporary array."""


@dataclass(frozen=True)
class ProductFits:
    """Hold fitted sums and products. ``value`` runs over the values of concept 1 of slot 0, ..., slot by slot."""

    mean: Float[Tensor, "fit slot dim"]
    sums: tuple[Float[Tensor, "fit _slot_value dim"], ...]
    """u, one a concept; 0 for a value without a row."""
    factors: tuple[Float[Tensor, "fit _slot_value rank"], ...]
    """v, one a concept; 0 for a value without a row."""
    head: Float[Tensor, "fit rank dim"] | None
    """C; None where the product is coordinate-wise."""
    error: Float[Tensor, "fit"] | Float[Tensor, "fit dim"]
    """Weighted sum of squared errors on the rows; coordinate by coordinate without a head."""
    converged: Bool[Tensor, "fit"]
    n_sweeps: int

    def predict(
        self, slots: Int[Tensor, "row"], objects: Int[Tensor, "row concept"], sizes: Sequence[int]
    ) -> Float[Tensor, "fit row dim"]:
        """Give the parts of objects in slots; ``sizes``: values of each concept."""
        total, product = self.mean[:, slots], 1.0
        for k, size in enumerate(sizes):
            at = slots * size + objects[:, k]
            total = total + self.sums[k][:, at]
            product = product * self.factors[k][:, at]
        return total + (product if self.head is None else product @ self.head)


def fit_products(
    targets: Float[Tensor, "fit row dim"],
    slots: Int[Tensor, "row"],
    objects: Int[Tensor, "row concept"],
    weight: Float[Tensor, "fit row"],
    sizes: Sequence[int],
    *,
    rank: int | None,
    ridge: Float[Tensor, "fit"],
    ridge_sums: Float[Tensor, "fit"],
    seeds: Sequence[int],
    max_sweeps: int = 200,
) -> ProductFits:
    """Fit the sum and the product to the rows of every fit.

    ``weight``: of every row, 0 where a fit must not see it. ``sizes``: values of each concept. ``rank``: R, or None for
    coordinate-wise products, or 0 for the sum alone. ``ridge`` of v and C, ``ridge_sums`` of u, at least 0; see the
    head of this module. Factors start at random signs, times numbers between .5 and 1.5, drawn from ``seeds``, one a
    fit. A fit stops when it has settled, whatever the others do: fits made together are fits made alone. Computed on
    the device and in the type of the targets.
    Raises ValueError for a negative rank, a fit without rows, or another number of seeds than of fits.
    """
    if rank is not None and rank < 0:
        raise ValueError(f"the rank of a product is at least 0; got {rank}")
    if not bool((weight > 0).any(1).all()):
        raise ValueError("every fit needs at least one row of positive weight")
    n_fits, n_rows, dim = targets.shape
    if len(seeds) != n_fits:
        raise ValueError(f"{n_fits} fits but {len(seeds)} seeds: give one seed for each fit")
    n_slots, width = int(slots.max()) + 1, dim if rank is None else rank
    index = [slots * size + objects[:, k] for k, size in enumerate(sizes)]
    lengths = [n_slots * size for size in sizes]
    # (fit, value, row): the weights of the rows that show the value, to sum over them.
    members = [
        torch.zeros(n_fits, n, n_rows, dtype=targets.dtype, device=targets.device).scatter_(
            1, at.expand(n_fits, 1, n_rows), weight.unsqueeze(1)
        )
        for at, n in zip(index, lengths, strict=True)
    ]
    counts = [m.sum(2, keepdim=True) for m in members]
    shown = [c > 0 for c in counts]
    shrunk = [
        c + ridge_sums[:, None, None] * c.sum(1, keepdim=True) / s.sum(1, keepdim=True)
        for c, s in zip(counts, shown, strict=True)
    ]
    tiny = torch.finfo(targets.dtype).tiny
    of_slot = torch.nn.functional.one_hot(slots, n_slots).to(targets).T  # (slot, row)
    in_slot = of_slot * weight.unsqueeze(1)
    mean = in_slot @ targets / in_slot.sum(2, keepdim=True).clamp(min=tiny)
    centred = targets - mean[:, slots]
    w = weight.unsqueeze(2)

    generators = [torch.Generator().manual_seed(s) for s in seeds]

    def start(n: int) -> Tensor:
        drawn = []
        for generator in generators:
            sign = torch.randint(2, (n, width), generator=generator) * 2 - 1
            drawn.append(sign * (torch.rand(n, width, generator=generator) + 0.5))
        return torch.stack(drawn).to(targets)

    sums = _solve_sums(members, [s - c for s, c in zip(shrunk, counts, strict=True)], index, centred)
    factors = [start(n) * (c > 0) for n, c in zip(lengths, counts, strict=True)]
    head = (
        None if rank is None else torch.zeros(n_fits, rank, dim, dtype=targets.dtype, device=targets.device)
    )

    def rest(skip: int | None = None) -> Tensor:
        left = centred
        for k, at in enumerate(index):
            if k != skip:
                left = left - sums[k][:, at]
        return left

    def product(skip: int | None = None) -> Tensor:
        total = torch.ones(n_fits, n_rows, width, dtype=targets.dtype, device=targets.device)
        for k, at in enumerate(index):
            if k != skip:
                total = total * factors[k][:, at]
        return total

    def error() -> Tensor:
        fitted = product() if head is None else product() @ head
        squares = (rest() - fitted).square() * w
        return squares.sum(1) if head is None else squares.sum((1, 2))

    scale = (rest().square() * w).sum((1, 2)).clamp(min=tiny)
    before, gain = scale, torch.zeros_like(scale)
    if rank == 0:
        max_sweeps = 0
    converged = torch.zeros(n_fits, dtype=torch.bool, device=targets.device)
    n_sweeps = 0
    while n_sweeps < max_sweeps and not bool(converged.all()):
        n_sweeps += 1
        kept = [*sums, *factors, *([] if head is None else [head])]
        if head is not None:
            head = _solve_head(product(), rest(), w, ridge)
        for k in range(len(sizes)):
            sums[k], factors[k] = _solve_values(members[k], shrunk[k], rest(k), product(k), head, ridge)
            # The size of a factor and of what it multiplies are not determined apart: keep the factor at 1.
            size = factors[k].square().sum(1, keepdim=True)
            size = (size / shown[k].sum(1, keepdim=True)).sqrt()
            ok = size > tiny**0.5
            factors[k] = torch.where(ok, factors[k] / size.clamp(min=tiny**0.5), factors[k])
            if head is None:
                other = (k + 1) % len(sizes)
                factors[other] = torch.where(ok, factors[other] * size, factors[other])
            else:
                head = torch.where(ok, head.transpose(1, 2) * size, head.transpose(1, 2)).transpose(1, 2)
        # What had settled before this sweep stays as it was.
        now = [*sums, *factors, *([] if head is None else [head])]
        now = [torch.where(converged[:, None, None], a, b) for a, b in zip(kept, now, strict=True)]
        sums, factors = now[: len(sizes)], now[len(sizes) : 2 * len(sizes)]
        head = None if head is None else now[-1]
        after = error() if head is not None else error().sum(1)
        last, gain, before = gain, (before - after).abs(), after
        ratio = (gain / last.clamp(min=tiny)).clamp(max=1.0)
        rounding = SETTLED * torch.finfo(targets.dtype).eps ** 0.5
        converged = converged | (gain * ratio <= SETTLED * scale * (1 - ratio)) | (gain <= rounding * scale)
    done = converged if rank != 0 else ~converged
    return ProductFits(mean, tuple(sums), tuple(factors), head, error(), done, n_sweeps)


def multiply_factors(
    factors: Sequence[Float[Tensor, "_value rank"]], objects: Int[Tensor, "row concept"]
) -> Float[Tensor, "row rank"]:
    """Multiply, for every object, the factors of its values: v_{1,c_1} * ... * v_{K,c_K}, one table a concept."""
    product = factors[0][objects[:, 0]]
    for k, factor in enumerate(factors[1:], start=1):
        product = product * factor[objects[:, k]]
    return product


def _solve_sums(
    members: Sequence[Float[Tensor, "fit _value row"]],
    ridges: Sequence[Float[Tensor, "fit _value 1"]],
    index: Sequence[Int[Tensor, "row"]],
    centred: Float[Tensor, "fit row dim"],
) -> list[Float[Tensor, "fit _value dim"]]:
    """Solve the sum alone, the start of every product: the values of all concepts together, by least norm."""
    lengths = [m.shape[1] for m in members]
    weighted = torch.cat(list(members), dim=1)
    design = torch.cat(
        [torch.nn.functional.one_hot(at, n) for at, n in zip(index, lengths, strict=True)], dim=1
    )
    normal = weighted @ design.to(centred) + torch.diag_embed(torch.cat(list(ridges), dim=1).squeeze(2))
    rtol = 8 * normal.shape[1] * torch.finfo(centred.dtype).eps
    solution = torch.linalg.pinv(normal, rtol=rtol, hermitian=True) @ (weighted @ centred)
    return list(solution.split(lengths, dim=1))


def _solve_head(
    features: Float[Tensor, "fit row rank"],
    left: Float[Tensor, "fit row dim"],
    w: Float[Tensor, "fit row 1"],
    ridge: Float[Tensor, "fit"],
) -> Float[Tensor, "fit rank dim"]:
    weighted = (features * w).transpose(1, 2)
    return _ridge(weighted @ features, weighted @ left, ridge)


def _solve_values(
    members: Float[Tensor, "fit value row"],
    shrunk: Float[Tensor, "fit value 1"],
    left: Float[Tensor, "fit row dim"],
    others: Float[Tensor, "fit row rank"],
    head: Float[Tensor, "fit rank dim"] | None,
    ridge: Float[Tensor, "fit"],
) -> tuple[Float[Tensor, "fit value dim"], Float[Tensor, "fit value rank"]]:
    """Regress what is left on a constant (u) and the other factors' product (v), for every value.

    ``shrunk``: counts of rows plus the ridge on u.
    """
    tiny = torch.finfo(left.dtype).tiny
    n = shrunk.clamp(min=tiny)
    # With a ridge on u, it takes sum(left - product) / n: what remains of both is orthogonal to it.
    left_mean, others_mean = members @ left / n, members @ others / n
    if head is None:
        raw = members @ others.square()
        square = (raw - n * others_mean.square()).clamp(min=0)
        cross = members @ (others * left) - n * others_mean * left_mean
        # Where each value has one row, square and cross are rounding: the second term keeps their quotient small.
        shrink = ridge[:, None, None] * square.mean(1, keepdim=True)
        shrink = shrink + ROUNDING * torch.finfo(left.dtype).eps * raw.mean(1, keepdim=True)
        values = cross / (square + shrink + tiny**0.5)
        return left_mean - others_mean * values, values
    rank = head.shape[1]
    gram = head @ head.transpose(1, 2)
    onto = left @ head.transpose(1, 2)
    cross = members @ (others * onto) - n * others_mean * (left_mean @ head.transpose(1, 2))
    outer = torch.empty(*cross.shape, rank, dtype=left.dtype, device=left.device)
    block = max(1, ROW_BLOCK // max(1, others.shape[0] * others.shape[1] * rank))
    for low in range(0, rank, block):
        columns = others[:, :, low : low + block]
        pairs = (others.unsqueeze(3) * columns.unsqueeze(2)).flatten(2)
        outer[..., low : low + block] = (members @ pairs).unflatten(2, (rank, -1))
    raw = (outer.diagonal(dim1=-2, dim2=-1) * gram.diagonal(dim1=-2, dim2=-1).unsqueeze(1)).flatten(1).mean(1)
    outer -= n.unsqueeze(3) * others_mean.unsqueeze(3) * others_mean.unsqueeze(2)
    normal = outer * gram.unsqueeze(1)
    # One scale for all values of a fit: a value with a single row must not escape the ridge.
    values = _ridge(normal, cross.unsqueeze(3), ridge, at_least=raw).squeeze(3)
    return left_mean - (others_mean * values) @ head, values


def _ridge(
    normal: Float[Tensor, "fit *value rank rank"],
    right: Float[Tensor, "fit *value rank column"],
    ridge: Float[Tensor, "fit"],
    *,
    at_least: Float[Tensor, "fit"] | None = None,
) -> Float[Tensor, "fit *value rank column"]:
    """Solve (normal + ridge * its mean diagonal) x = right. ``at_least``: the size that rounding is measured by."""
    diagonal = normal.diagonal(dim1=-2, dim2=-1)
    level = diagonal.flatten(1).mean(1)
    size = level if at_least is None else torch.maximum(level, at_least)
    rounding = ROUNDING * torch.finfo(normal.dtype).eps * normal.shape[-1]
    penalty = ridge * level + rounding * size + torch.finfo(normal.dtype).tiny ** 0.5
    shape = (-1,) + (1,) * (normal.ndim - 1)
    eye = torch.eye(normal.shape[-1], dtype=normal.dtype, device=normal.device)
    factor, _ = torch.linalg.cholesky_ex(normal + penalty.view(shape) * eye)
    return torch.cholesky_solve(right, factor)
