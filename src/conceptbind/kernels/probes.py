"""Linear probes on frozen embeddings: many fits and heads in one computation, on CPU or GPU.

A head has one class for each query (a value of a concept, or an object). A scene with m slots puts mass 1/m
on the class of every slot, so the target Y_n of head h is a distribution. With standardised inputs x
(training mean 0, training standard deviation 1) a probe minimises, for every fit and head on its own,

    softmax:  mean_n [logsumexp(z_n) - <Y_n, z_n> + decay/2 |z_n|^2] + l2/2 (|W|^2 + |b|^2)
    ridge:    mean_n |z_n - Y_n|^2 / 2 + l2/2 |W|^2            where z_n = x_n W + b

The softmax penalises the intercept too: the problem is then strictly convex with one finite optimum, even
where a class never occurs in training. Weights are given back in the original coordinates, so that the scores
are x @ weight + bias.

``decay`` holds the logits back, not the weights. Without it the cross-entropy of a separable problem (always
so when n_train < dim) sends the logits far out, where the softmax is flat: the optimum then depends on l2
only, which favours the input directions of large variance, and what tells objects apart is often a direction
of small variance. It also bounds the condition number by about 1 + 1/(2 decay) on the preconditioned problem.
A large decay makes the softmax linear and gives ridge on Y - 1/V; 0 gives the plain softmax.

Inside, the standardised inputs are rotated to their principal axes. That changes neither objective, leaves
min(n_train, dim) coordinates, solves ridge at once for every l2, and makes the Hessian of the softmax nearly
diagonal: at W = 0 it is variance_j (I - 11'/V) / V + decay variance_j + l2, which preconditions L-BFGS. The
targets enter only through the moments X'Y, so no array is larger than the training inputs of the fits
computed together, the weights, and one block of logits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.kernels.lbfgs import minimise

Solver = Literal["softmax", "ridge"]
SOLVERS: tuple[Solver, ...] = ("softmax", "ridge")

DECAY = 1e-3
"""Default weight of the squared logits.

Held-out object recognition at the best l2 tried on MiniLM captions, as ridge / decay 0 / 1e-3 / 1e-2:
12,000 scenes of 400 objects .55 / .64 / .79 / .74; 576 scenes of 24 objects 1.00 / .96 / 1.00 / 1.00, and with
noise of .01 added .52 / .53 / .53 / .53.
"""

# Floats in one block of logits, in the inputs and in the weights of the fits that are computed together.
LOGIT_BLOCK = 2**23
INPUT_BLOCK = 2**26
WEIGHT_BLOCK = 2**22


@dataclass(frozen=True)
class LinearProbes:
    """Hold fitted probes; ``class`` runs over the classes of head 1, then of head 2, ..."""

    weight: Float[Tensor, "fit dim class"]
    bias: Float[Tensor, "fit class"]
    n_classes: tuple[int, ...]
    """Classes of every head."""
    l2: Float[Tensor, "fit head"]
    gradient: Float[Tensor, "fit head"]
    """Norm of the gradient at the end, relative to the gradient at zero weights; 0 for ridge."""
    converged: Bool[Tensor, "fit head"]
    n_evaluations: int
    """Gradient evaluations of the slowest fit; 0 for ridge."""

    def scores(self, x: Float[Tensor, "scene dim"]) -> Float[Tensor, "fit scene class"]:
        """Give the logits x @ weight + bias, in the type of the weights."""
        return x.to(self.weight) @ self.weight + self.bias.unsqueeze(1)


@dataclass(frozen=True)
class _Problem:
    """One chunk of fits: ``mask`` distinct training sets, each with the same number of variants (fits)."""

    coords: Float[Tensor, "mask row coord"]
    """Training inputs on their principal axes, then a 1 for the intercept; rows beyond a fit's own are 0."""
    row_weight: Float[Tensor, "mask row"]
    """1/n_train of the mask, 0 on padding."""
    variance: Float[Tensor, "mask coord"]
    """Mean square of every coordinate."""
    moment: Float[Tensor, "mask coord column"]
    """mean_n x_n Y_n; columns are (head, variant, class), head slowest."""
    n_variants: int
    problem: Int[Tensor, "column"]
    """Problems are (head, variant), head slowest."""
    n_classes: tuple[int, ...]


def fit_probes(
    x: Float[Tensor, "scene dim"],
    labels: Int[Tensor, "scene slot head"] | Int[Tensor, "fit scene slot head"],
    n_classes: Sequence[int],
    train: Bool[Tensor, "fit scene"],
    *,
    l2: float | Float[Tensor, "fit head"] = 1e-3,
    decay: float = DECAY,
    solver: Solver = "softmax",
    dtype: torch.dtype = torch.float32,
    tol: float = 1e-4,
    max_evaluations: int = 500,
) -> LinearProbes:
    """Fit one linear probe for every fit and head.

    ``labels``: the class that each slot shows to each head, shared by all fits or one set a fit.
    ``train``: the training scenes of every fit; fits with equal rows share their inputs.
    ``l2``: the penalty on the weights, above 0, in standardised coordinates. ``decay``: the penalty on the
    logits, at least 0; ridge has none.
    ``tol``: a softmax fit is done when its gradient norm is below ``tol`` times that at zero weights; the
    rest are reported in ``converged`` and warned of. Computed on the device of ``x``, in ``dtype``; sums that
    fix the coordinates are float64.
    Raises ValueError for shapes that do not fit, labels out of range, an empty training set, or l2 <= 0.
    """
    labels, l2 = _validate(x, labels, n_classes, train, l2, decay, solver)
    n_classes = tuple(n_classes)
    n_fits, n_heads = l2.shape
    out = LinearProbes(
        weight=torch.zeros(n_fits, x.shape[1], sum(n_classes), dtype=dtype, device=x.device),
        bias=torch.zeros(n_fits, sum(n_classes), dtype=dtype, device=x.device),
        n_classes=n_classes,
        l2=l2,
        gradient=torch.zeros(n_fits, n_heads, device=x.device),
        converged=torch.ones(n_fits, n_heads, dtype=torch.bool, device=x.device),
        n_evaluations=0,
    )
    for fits in _chunks(train, x.shape[1], sum(n_classes)):
        n_variants = fits.shape[1]
        masks = train[fits[:, 0]]
        to_coords, shift, variance = _principal_axes(x, masks)
        problem = _assemble(x, labels, n_classes, masks, fits, to_coords, shift, variance, dtype)
        penalty = l2[fits].transpose(1, 2).flatten(1)[:, problem.problem].unsqueeze(1).to(dtype)
        if solver == "ridge":
            solution = _solve_ridge(problem, penalty)
        else:
            # Coordinates are uncorrelated, so mean_n |z_n|^2 = sum_j variance_j W_j^2 (the intercept's
            # "variance" is 1).
            penalty = penalty + decay * problem.variance.unsqueeze(2)
            solution, gradient, done, n_evaluations = _solve_softmax(problem, penalty, tol, max_evaluations)
            by_fit = (len(fits), n_heads, n_variants)
            out.gradient[fits] = gradient.view(by_fit).transpose(1, 2).to(out.gradient)
            out.converged[fits] = done.view(by_fit).transpose(1, 2)
            out = replace(out, n_evaluations=max(out.n_evaluations, n_evaluations))
        # z = (x A + c) W + b = x (A W) + (c W + b)
        solution = solution.double()
        weight = to_coords @ solution[:, :-1]
        bias = (shift.unsqueeze(1) @ solution[:, :-1]).squeeze(1) + solution[:, -1]
        out.weight[fits] = _by_variant(weight, n_classes, n_variants).to(dtype)
        out.bias[fits] = _by_variant(bias, n_classes, n_variants).to(dtype)
    if not bool(out.converged.all()):
        warnings.warn(
            f"{int((~out.converged).sum())} of {out.converged.numel()} probes did not converge in "
            f"{max_evaluations} evaluations (largest relative gradient {float(out.gradient.max()):.1e}, "
            f"tol {tol:.0e}): raise l2 or max_evaluations, or use dtype=torch.float64",
            RuntimeWarning,
            stacklevel=2,
        )
    return out


def _solve_ridge(p: _Problem, penalty: Float[Tensor, "mask 1 column"]) -> Float[Tensor, "mask coord column"]:
    # (X'X/n + l2) W = X'Y/n, and X'X/n is diagonal on the principal axes; the intercept is the mean target.
    penalty = penalty.repeat(1, p.moment.shape[1], 1)
    penalty[:, -1] = 0
    return p.moment / (p.variance.unsqueeze(2) + penalty)


def _solve_softmax(
    p: _Problem, penalty: Float[Tensor, "mask coord column"], tol: float, max_evaluations: int
) -> tuple[
    Float[Tensor, "mask coord column"], Float[Tensor, "mask problem"], Bool[Tensor, "mask problem"], int
]:
    n_problems = len(p.n_classes) * p.n_variants
    sizes = torch.tensor(p.n_classes).repeat_interleave(p.n_variants).to(p.moment)[p.problem]
    member = torch.nn.functional.one_hot(p.problem, n_problems).to(p.moment)
    # At zero weights every probability is 1/V and the inputs average 0, so only the intercept has a mean
    # term.
    at_zero = -p.moment
    at_zero[:, -1] += 1 / sizes
    scale = (at_zero.square().sum(1) @ member).sqrt()

    def objective(
        theta: Float[Tensor, "mask coord column"],
    ) -> tuple[Float[Tensor, "mask problem"], Float[Tensor, "mask coord column"]]:
        log_sums, gradient = _log_sums(p, theta)
        gradient -= p.moment
        rest = (theta * (penalty / 2 * theta - p.moment)).sum(1) @ member
        return log_sums + rest, gradient + penalty * theta

    minimum = minimise(
        objective,
        torch.zeros_like(p.moment),
        problem=p.problem,
        inverse_hessian=1 / (p.variance.unsqueeze(2) / sizes + penalty),
        tolerance=tol * scale,
        max_evaluations=max_evaluations,
    )
    relative = minimum.gradient_norm / scale.clamp(min=torch.finfo(scale.dtype).tiny)
    return minimum.point, relative, minimum.converged, minimum.n_evaluations


def _log_sums(
    p: _Problem, theta: Float[Tensor, "mask coord column"]
) -> tuple[Float[Tensor, "mask problem"], Float[Tensor, "mask coord column"]]:
    """Give mean_n logsumexp(z_n) of every problem, and its gradient mean_n x_n softmax(z_n), in blocks."""
    n_masks, n_rows, _ = p.coords.shape
    block = max(1, LOGIT_BLOCK // (n_masks * theta.shape[2]))
    total = theta.new_zeros(n_masks, len(p.n_classes) * p.n_variants)
    gradient = torch.zeros_like(theta)
    for start in range(0, n_rows, block):
        coords = p.coords[:, start : start + block]
        weight = p.row_weight[:, start : start + block]
        logits = coords @ theta
        sums = []
        for part in logits.split([v * p.n_variants for v in p.n_classes], dim=2):
            head = part.unflatten(2, (p.n_variants, -1))
            top = head.amax(-1, keepdim=True)
            head.sub_(top).exp_()
            norm = head.sum(-1, keepdim=True)
            sums.append(((top + norm.log()).squeeze(-1) * weight.unsqueeze(2)).sum(1))
            head.mul_(weight[:, :, None, None] / norm)
        total += torch.cat(sums, dim=1)
        gradient.baddbmm_(coords.transpose(1, 2), logits)
    return total, gradient


def _principal_axes(
    x: Float[Tensor, "scene dim"], masks: Bool[Tensor, "mask scene"]
) -> tuple[Float[Tensor, "mask dim coord"], Float[Tensor, "mask coord"], Float[Tensor, "mask coord"]]:
    """Give A, c and the variances such that x A + c are the principal coordinates of the standardised inputs.

    A is D V: D divides by the training standard deviations (0 for a constant input), V has orthonormal
    columns that span the rows of the standardised training inputs. Fits of lower rank are padded with zero
    columns. float64.
    """
    maps, shifts, variances = [], [], []
    for mask in masks:
        rows = x[mask]
        n = len(rows)
        mean = rows.mean(0, dtype=torch.float64)
        variance = (
            sum(((b.double() - mean).square().sum(0) for b in rows.split(2**14)), torch.zeros_like(mean)) / n
        )
        # An input that varies by no more than rounding is constant. Its own mean sets that scale, and so does the size
        # of all inputs: an encoder's dead unit may vary by 1e-33, and standardised it would drown every other input
        # as soon as the probe is put to a vector that is not exactly dead there.
        size = torch.maximum(mean.square(), (mean.square() + variance).mean())
        constant = variance <= torch.finfo(x.dtype).eps ** 2 * size
        inverse = torch.where(constant, 0.0, variance.clamp(min=torch.finfo(torch.float64).tiny).rsqrt())
        if n > x.shape[1]:
            gram = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
            for b in rows.split(2**14):
                # Rotating by any orthogonal V is exact, so a float32 product is enough to choose V by.
                b = ((b.double() - mean) * inverse).to(x.dtype)
                gram += b.T @ b
            squares, axes = torch.linalg.eigh(gram / n)
        else:
            _, singular, rows_t = torch.linalg.svd((rows.double() - mean) * inverse, full_matrices=False)
            squares, axes = singular.square() / n, rows_t.T
            # Axes that the inputs do not span carry no weight at the optimum.
            axes = axes * (squares > squares.amax() * 1e-12)
        a = inverse.unsqueeze(1) * axes
        maps.append(a)
        shifts.append(-mean @ a)
        variances.append(squares.clamp(min=0))
    width = max(a.shape[1] for a in maps)
    pad = torch.nn.functional.pad
    return (
        torch.stack([pad(a, (0, width - a.shape[1])) for a in maps]),
        torch.stack([pad(c, (0, width - len(c))) for c in shifts]),
        torch.stack([pad(v, (0, width - len(v))) for v in variances]),
    )


def _assemble(
    x: Float[Tensor, "scene dim"],
    labels: Int[Tensor, "label_set scene slot head"],
    n_classes: tuple[int, ...],
    masks: Bool[Tensor, "mask scene"],
    fits: Int[Tensor, "mask variant"],
    to_coords: Float[Tensor, "mask dim coord"],
    shift: Float[Tensor, "mask coord"],
    variance: Float[Tensor, "mask coord"],
    dtype: torch.dtype,
) -> _Problem:
    n_masks, n_variants = fits.shape
    n_heads, n_slots = len(n_classes), labels.shape[2]
    counts = masks.sum(1).tolist()
    n_coords = variance.shape[1] + 1
    n_columns = sum(n_classes) * n_variants
    coords = torch.zeros(n_masks, max(counts), n_coords, dtype=dtype, device=x.device)
    row_weight = torch.zeros(n_masks, max(counts), dtype=dtype, device=x.device)
    moment = torch.zeros(n_masks, n_coords, n_columns, dtype=dtype, device=x.device)
    offsets = torch.tensor([sum(n_classes[:k]) for k in range(n_heads)], device=x.device) * n_variants
    sizes = torch.tensor(n_classes, device=x.device)
    block = max(1, LOGIT_BLOCK // max(n_columns, x.shape[1]))
    for m, mask in enumerate(masks):
        n = counts[m]
        row_weight[m, :n] = 1 / n
        index = mask.nonzero().squeeze(1)
        for start in range(0, n, block):
            rows = index[start : start + block]
            part = coords[m, start : start + len(rows)]
            part[:, :-1] = (x[rows].double() @ to_coords[m] + shift[m]).to(dtype)
            part[:, -1] = 1
            target = torch.zeros(len(rows), n_columns, dtype=dtype, device=x.device)
            for j, fit in enumerate(fits[m].tolist()):
                own = labels[fit if len(labels) > 1 else 0, rows]
                column = (own + offsets + j * sizes).flatten(1)
                target.scatter_add_(1, column, torch.full_like(column, 1 / (n_slots * n), dtype=dtype))
            moment[m] += part.T @ target
    problem = torch.arange(n_heads * n_variants, device=x.device).repeat_interleave(
        sizes.repeat_interleave(n_variants)
    )
    return _Problem(
        coords=coords,
        row_weight=row_weight,
        variance=torch.nn.functional.pad(variance, (0, 1), value=1.0).to(dtype),
        moment=moment,
        n_variants=n_variants,
        problem=problem,
        n_classes=n_classes,
    )


def _by_variant(
    columns: Float[Tensor, "mask *coord column"], n_classes: tuple[int, ...], n_variants: int
) -> Float[Tensor, "mask variant *coord class"]:
    """Regroup columns (head, variant, class) by variant."""
    parts = columns.split([v * n_variants for v in n_classes], dim=-1)
    return torch.cat([part.unflatten(-1, (n_variants, -1)) for part in parts], dim=-1).movedim(-2, 1)


def _chunks(
    train: Bool[Tensor, "fit scene"], dim: int, n_columns: int
) -> Iterator[Int[Tensor, "mask variant"]]:
    """Group fits into chunks (distinct training set, variant) whose inputs and weights fit in memory.

    Training sets of similar size go together, so that little is padded.
    """
    _, which = train.unique(dim=0, return_inverse=True)
    groups = [(which == g).nonzero().squeeze(1) for g in range(int(which.max()) + 1)]
    sizes = train.sum(1).tolist()
    groups.sort(key=lambda fits: (len(fits), sizes[int(fits[0])]))
    chunk: list[Tensor] = []
    for group in groups:
        for fits in group.split(max(1, WEIGHT_BLOCK // (min(dim, sizes[int(group[0])]) * n_columns))):
            n_masks = len(chunk) + 1
            rows, width = sizes[int(fits[0])], min(dim, sizes[int(fits[0])])
            if chunk and (
                len(fits) != len(chunk[0])
                or n_masks * rows * width > INPUT_BLOCK
                or n_masks * len(fits) * width * n_columns > WEIGHT_BLOCK
            ):
                yield torch.stack(chunk)
                chunk = []
            chunk.append(fits)
    if chunk:
        yield torch.stack(chunk)


def _validate(
    x: Tensor,
    labels: Tensor,
    n_classes: Sequence[int],
    train: Tensor,
    l2: float | Tensor,
    decay: float,
    solver: str,
) -> tuple[Int[Tensor, "label_set scene slot head"], Float[Tensor, "fit head"]]:
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {SOLVERS}; got {solver!r}")
    if decay < 0:
        raise ValueError(f"decay is a penalty, at least 0; got {decay}")
    if labels.ndim == 3:
        labels = labels.unsqueeze(0)
    n_fits, n_scenes = train.shape
    if x.shape[0] != n_scenes or labels.shape[1] != n_scenes or labels.shape[0] not in (1, n_fits):
        raise ValueError(
            f"x has {x.shape[0]} scenes, labels {tuple(labels.shape)} (fit, scene, slot, head), train "
            f"{tuple(train.shape)} (fit, scene): the scenes must agree, and labels be shared or one a fit"
        )
    if labels.shape[3] != len(n_classes):
        raise ValueError(f"labels have {labels.shape[3]} heads, n_classes names {len(n_classes)}")
    low, high = labels.amin((0, 1, 2)).tolist(), labels.amax((0, 1, 2)).tolist()
    for k, (a, b, size) in enumerate(zip(low, high, n_classes, strict=True)):
        if a < 0 or b >= size:
            raise ValueError(f"head {k} has {size} classes, 0 to {size - 1}; labels run from {a} to {b}")
    if not bool(train.any(1).all()):
        raise ValueError("every fit needs at least one training scene; some row of train is all False")
    if not bool(x.isfinite().all()):
        raise ValueError("the embeddings hold NaN or infinite numbers; check the encoder's output")
    l2 = torch.as_tensor(l2, dtype=torch.float64, device=x.device).expand(n_fits, len(n_classes))
    if not bool((l2 > 0).all()):
        raise ValueError("l2 must be above 0: without a penalty the optimum can lie at infinity")
    return labels.to(x.device), l2
