"""Batched L-BFGS: many smooth convex problems, each with its own curvature and step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Hager and Zhang (2005): sufficient decrease, and the relative size of rounding noise in a float32 loss that
# a step may add when the slope shows that it does not pass the minimum by much.
DECREASE = 0.1
LOSS_NOISE = 1e-5

Objective = Callable[
    [Float[Tensor, "batch coord column"]],
    tuple[Float[Tensor, "batch problem"], Float[Tensor, "batch coord column"]],
]


@dataclass(frozen=True)
class Minimum:
    """Hold the end of a batched minimisation."""

    point: Float[Tensor, "batch coord column"]
    gradient_norm: Float[Tensor, "batch problem"]
    converged: Bool[Tensor, "batch problem"]
    n_evaluations: int


def minimise(
    objective: Objective,
    start: Float[Tensor, "batch coord column"],
    *,
    problem: Int[Tensor, "column"],
    inverse_hessian: Float[Tensor, "batch coord column"],
    tolerance: Float[Tensor, "batch problem"],
    max_evaluations: int = 500,
    history: int = 10,
) -> Minimum:
    """Minimise many convex functions at once by preconditioned L-BFGS.

    Columns with the same ``problem`` index are the variables of one problem (indices 0 ... P-1, the last axis
    of ``tolerance``). ``objective`` returns every problem's loss and the gradient. ``inverse_hessian`` is a
    positive diagonal guess, which each problem rescales as it learns its curvature. A problem is done when
    the 2-norm of its gradient is at most its ``tolerance``; it then stays where it is.

    Every evaluation serves all problems: one whose trial step is refused keeps its place and tries a shorter
    step in the next evaluation, while the others move on.
    """
    point, tolerance = start.clone(), tolerance.to(start)
    eps = torch.finfo(start.dtype).eps
    member = torch.nn.functional.one_hot(problem, tolerance.shape[1]).to(start)

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(1) @ member

    def spread(value: Tensor) -> Tensor:
        return value[:, problem].unsqueeze(1)

    loss, gradient = objective(point)
    norm = dot(gradient, gradient).sqrt()
    step = torch.ones_like(loss)
    gamma = torch.ones_like(loss)
    stuck = torch.zeros_like(loss, dtype=torch.bool)
    accepted, direction = ~stuck, gradient
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []
    n_evaluations = 1
    while n_evaluations < max_evaluations:
        active = (norm > tolerance) & ~stuck
        if not bool(active.any()):
            break
        fresh = -_apply_inverse(gradient, pairs, inverse_hessian * spread(gamma), dot, spread)
        direction = torch.where(spread(accepted), fresh, direction)
        move = direction * spread(torch.where(active, step, 0.0))
        trial = point + move
        trial_loss, trial_gradient = objective(trial)
        n_evaluations += 1
        # Zeroed where a step went too far to evaluate, so that one problem cannot spoil the sums of another.
        finite = trial_loss.isfinite()
        trial_gradient = torch.where(spread(finite), trial_gradient, 0.0)
        slope, trial_slope = dot(gradient, direction), dot(trial_gradient, direction)
        decreased = trial_loss <= loss + DECREASE * step * slope
        # Near the minimum the loss cannot resolve the decrease any more; the slope along the step still can.
        settled = (trial_loss <= loss + LOSS_NOISE * loss.abs()) & (trial_slope <= (2 * DECREASE - 1) * slope)
        accepted = active & (decreased | settled)
        change = trial_gradient - gradient
        curvature = dot(move, change)
        # A change of gradient within rounding says nothing, and would ask for an enormous next step.
        length = dot(move, move).sqrt()
        usable = accepted & (curvature > 10 * eps * length * norm)
        stuck |= active & ~accepted & (length <= eps * dot(point, point).sqrt())
        # A pair that a problem did not take is zero, and a no-op, for that problem.
        change = torch.where(spread(usable), change, 0.0)
        rho = torch.where(usable, 1 / curvature, 0.0)
        gamma = torch.where(usable, curvature / dot(change, inverse_hessian * change), gamma)
        pairs = [*pairs, (move, change, rho)][-history:]
        taken = spread(accepted)
        point = torch.where(taken, trial, point)
        gradient = torch.where(taken, trial_gradient, gradient)
        loss = torch.where(accepted, trial_loss, loss)
        # A refused step passed the minimum: shorten it to where the slope, taken as linear, vanishes.
        ratio = (slope / (slope - trial_slope)).nan_to_num(0.1).clamp(0.1, 0.7)
        ratio = torch.where(finite, ratio, 0.1)
        # A step that taught nothing about the curvature was too short.
        next_step = torch.where(usable, 1.0, 2 * step)
        step = torch.where(accepted, next_step, torch.where(active, step * ratio, step))
        norm = dot(gradient, gradient).sqrt()
    return Minimum(point, norm, norm <= tolerance, n_evaluations)


def _apply_inverse(
    gradient: Tensor,
    pairs: list[tuple[Tensor, Tensor, Tensor]],
    inverse_hessian: Tensor,
    dot: Callable[[Tensor, Tensor], Tensor],
    spread: Callable[[Tensor], Tensor],
) -> Tensor:
    # The two-loop recursion (Nocedal and Wright, algorithm 7.4), for every problem at once.
    result = gradient.clone()
    weights = []
    for move, change, rho in reversed(pairs):
        weight = rho * dot(move, result)
        result -= spread(weight) * change
        weights.append(weight)
    result *= inverse_hessian
    for (move, change, rho), weight in zip(pairs, reversed(weights), strict=True):
        result += spread(weight - rho * dot(change, result)) * move
    return result
