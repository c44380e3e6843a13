"""Encoders that are sums over a scene's objects, many models stacked along a leading ``model`` axis.

=========  =====================================================================================================
kind       z(scene); everything with weights of its own for each model
=========  =====================================================================================================
objects    sum_i G relu(... relu(sum_k W_k E[c_ik] + b)) + g: a perceptron of every object (DeepSets)
additive   sum_i sum_k U[c_ik]: a bag of concepts, blind to which values go together
product    sum_i (sum_k U[c_ik] + C prod_k F[c_ik]): the additive function plus products within each object
=========  =====================================================================================================

The encoding of one value, of no object, leaves the other concepts out: of a perceptron's first sum, and the product
altogether. Values are numbered across concepts, those of concept 1 first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.kernels.transformer import looked_up

Kind = Literal["objects", "additive", "product"]
Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class ObjectSum:
    """Describe an encoder."""

    kind: Kind
    sizes: tuple[int, ...]
    """Values of every concept."""
    width: int
    """Of the value vectors E, or the number of products."""
    depth: int
    """Hidden layers of the perceptron."""
    feed_forward: int
    """Width of the hidden layers."""
    dim: int
    """Of the output."""


def initialise(
    shape: ObjectSum,
    generators: Sequence[torch.Generator],
    *,
    linear_scales: Sequence[float],
    embedding_scales: Sequence[float],
) -> Parameters:
    """Draw every model's weights from its generator, in float32.

    Linear layers have standard deviation ``linear_scale`` / sqrt(fan-in) and biases zero, value vectors
    ``embedding_scale``. Factors are near plus or minus ``embedding_scale``, so that no product starts near zero for
    one factor alone.
    """
    n_values, n_concepts, w, h = sum(shape.sizes), len(shape.sizes), shape.width, shape.feed_forward

    def normal(scales: Sequence[float], *size: int) -> Tensor:
        return torch.stack(
            [s * torch.randn(size, generator=g) for s, g in zip(scales, generators, strict=True)]
        )

    def linear(fan_in: int, *size: int) -> Tensor:
        return normal([s / math.sqrt(fan_in) for s in linear_scales], *size)

    if shape.kind == "objects":
        found = {
            "E": normal(embedding_scales, n_values, w),
            "W0": linear(n_concepts * w, n_concepts * w, h),
            "b0": torch.zeros(len(generators), 1, h),
        }
        for layer in range(1, shape.depth):
            found |= {f"W{layer}": linear(h, h, h), f"b{layer}": torch.zeros(len(generators), 1, h)}
        return found | {"G": linear(h, h, shape.dim), "g": torch.zeros(len(generators), 1, shape.dim)}
    found = {"U": normal(embedding_scales, n_values, shape.dim)}
    if shape.kind == "product":
        sign = torch.stack([torch.randint(2, (n_values, w), generator=g) * 2.0 - 1 for g in generators])
        size = torch.tensor(embedding_scales)[:, None, None]
        factors = size * (sign + normal([0.3] * len(generators), n_values, w))
        found |= {"F": factors, "C": linear(w, w, shape.dim)}
    return found


def n_parameters(shape: ObjectSum) -> int:
    """Count the numbers of one model."""
    n_values, w, h = sum(shape.sizes), shape.width, shape.feed_forward
    if shape.kind == "objects":
        first = n_values * w + len(shape.sizes) * w * h + h
        return first + (shape.depth - 1) * h * (h + 1) + shape.dim * (h + 1)
    return n_values * shape.dim + (w * (n_values + shape.dim) if shape.kind == "product" else 0)


def apply(
    shape: ObjectSum, parameters: Mapping[str, Tensor], values: Int[Tensor, "model scene slot concept"]
) -> Float[Tensor, "model scene dim"]:
    """Encode scenes. ``values``: numbered across concepts."""
    if shape.kind == "objects":
        first = looked_up(_first_layer(shape, parameters), values).sum(-2)
        return _perceptron(shape, parameters, first.flatten(1, 2)).unflatten(1, values.shape[1:3]).sum(2)
    total = looked_up(parameters["U"], values.flatten(2)).sum(2)
    if shape.kind == "additive":
        return total
    products = looked_up(parameters["F"], values).prod(-2).sum(2)
    return torch.baddbmm(total, products, parameters["C"])


def apply_to_values(shape: ObjectSum, parameters: Mapping[str, Tensor]) -> Float[Tensor, "model value dim"]:
    """Encode every value of every concept alone."""
    if shape.kind == "objects":
        return _perceptron(shape, parameters, _first_layer(shape, parameters))
    return parameters["U"]


def _first_layer(shape: ObjectSum, parameters: Mapping[str, Tensor]) -> Float[Tensor, "model value hidden"]:
    """Give W_k E[v] of every value: far fewer than there are objects in a batch."""
    vectors = parameters["E"].split(shape.sizes, 1)
    weights = parameters["W0"].split(shape.width, 1)
    return torch.cat([e @ w for e, w in zip(vectors, weights, strict=True)], 1)


def _perceptron(
    shape: ObjectSum, parameters: Mapping[str, Tensor], first: Float[Tensor, "model row hidden"]
) -> Float[Tensor, "model row dim"]:
    hidden = torch.relu(first + parameters["b0"])
    for layer in range(1, shape.depth):
        hidden = torch.relu(torch.baddbmm(parameters[f"b{layer}"], hidden, parameters[f"W{layer}"]))
    return torch.baddbmm(parameters["g"], hidden, parameters["G"])
