"""Train stacked networks: AdamW with a warm-up and a cosine to zero, all fits at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Predict = Callable[[Mapping[str, Tensor], Tensor], Tensor]
Watch = Callable[[int, dict[str, Tensor]], None]


@dataclass(frozen=True)
class Schedule:
    """Set how a network is trained. The rate of a matrix of fan-in above 64 is divided by the root of fan-in / 64."""

    n_steps: int = 300
    rate: float = 5e-3
    weight_decay: float = 0.01
    warm_up: float = 0.05
    """Share of the steps."""
    batch: int = 4096
    """Scenes a step; all of them where there are no more."""


def train(
    predict: Predict,
    parameters: Mapping[str, Tensor],
    inputs: Float[Tensor, "fit scene input"],
    targets: Float[Tensor, "fit scene dim"],
    schedule: Schedule,
    *,
    seeds: Sequence[int],
    readouts: Collection[str] = (),
    watch: Watch | None = None,
    watch_every: int = 1,
) -> tuple[dict[str, Tensor], Float[Tensor, "step fit"]]:
    """Minimise each fit's mean squared error, summed over the dimensions; give the weights and the losses.

    ``readouts``: weights whose last axis is the output. Each of their rows has one second moment, the mean over the
    outputs, so that rotated targets give rotated steps, and an output of small variance is not blown up.
    ``watch`` gets (steps done, weights) after every ``watch_every`` steps, and must not keep the weights, which go on
    changing. Scenes of a batch are drawn anew each epoch, those of a fit from its seed; what is left of an epoch and
    does not fill a batch is skipped. Fits made together are fits made alone.
    Raises ValueError for another number of seeds than of fits.
    """
    if len(seeds) != len(inputs):
        raise ValueError(f"{len(inputs)} fits but {len(seeds)} seeds: give one seed for each fit")
    weights = {name: p.clone().requires_grad_() for name, p in parameters.items()}
    names = list(weights)
    first = {n: torch.zeros_like(weights[n]) for n in names}
    second = {n: torch.zeros_like(weights[n][..., :1] if n in readouts else weights[n]) for n in names}
    rates = {n: schedule.rate * _scale(weights[n]) for n in names}
    n_scenes = inputs.shape[1]
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    order, at = torch.empty(0), n_scenes
    each = torch.arange(len(inputs), device=inputs.device)[:, None]
    losses = []
    warm = max(1, round(schedule.warm_up * schedule.n_steps))
    for step in range(1, schedule.n_steps + 1):
        if n_scenes > schedule.batch:
            if at + schedule.batch > n_scenes:
                order = torch.stack([torch.randperm(n_scenes, generator=g) for g in generators]).to(
                    inputs.device
                )
                at = 0
            rows = order[:, at : at + schedule.batch]
            at += schedule.batch
            x, y = inputs[each, rows], targets[each, rows]
        else:
            x, y = inputs, targets
        loss = (predict(weights, x) - y).square().sum(2).mean(1)
        gradients = torch.autograd.grad(loss.sum(), [weights[n] for n in names])
        losses.append(loss.detach())
        progress = min(step / warm, 1.0) * (1 + math.cos(math.pi * (step - 1) / schedule.n_steps)) / 2
        with torch.no_grad():
            for name, gradient in zip(names, gradients, strict=True):
                _adamw(
                    weights[name], gradient, first[name], second[name], rates[name] * progress, step, schedule
                )
        if watch is not None and step % watch_every == 0:
            watch(step, {n: w.detach() for n, w in weights.items()})
    return {n: w.detach() for n, w in weights.items()}, torch.stack(losses)


def _adamw(
    weight: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    rate: float,
    step: int,
    schedule: Schedule,
) -> None:
    beta1, beta2 = 0.9, 0.99
    first.lerp_(gradient, 1 - beta1)
    square = gradient.square()
    if second.shape != square.shape:
        square = square.mean(-1, keepdim=True)
    second.lerp_(square, 1 - beta2)
    root = (second / (1 - beta2**step)).sqrt_().add_(1e-12)
    weight.mul_(1 - rate * schedule.weight_decay)
    weight.addcdiv_(first, root.expand_as(first), value=-rate / (1 - beta1**step))


def _scale(weight: Tensor) -> float:
    fan_in = weight.shape[1]
    return min(1.0, math.sqrt(64 / fan_in)) if fan_in > 1 else 1.0
