"""Pre-norm transformer encoders, many models stacked along a leading ``model`` axis.

x_0 = E[token] + P[position];  x <- x + attention(norm x);  x <- x + G gelu(F norm x + f) + g;  z = C norm(pooled x) + c

The norms have no gain or bias: the linear layer behind each has both. Attention goes both ways; tokens are not masked,
so sequences of one call have one length. ``pool`` says what is read: the "last" token, or the "mean" of all. Neither
needs all of the last block: with "last" only one token's attention and feed-forward are computed, with "mean" the last
linear layer is applied to the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

Pool = Literal["last", "mean"]
Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Transformer:
    """Describe an encoder: sizes, and what is read at its end."""

    n_tokens: int
    """Different tokens."""
    n_positions: int
    width: int
    depth: int
    n_heads: int
    feed_forward: int
    dim: int
    """Of the output."""
    pool: Pool


def initialise(
    shape: Transformer,
    generators: Sequence[torch.Generator],
    *,
    linear_scales: Sequence[float],
    embedding_scales: Sequence[float],
    positions: Float[Tensor, "model position width"] | None = None,
) -> Parameters:
    """Draw every model's weights from its generator, in float32.

    Linear layers have standard deviation ``linear_scale`` / sqrt(fan-in) and biases zero, tables of embeddings
    ``embedding_scale``. ``positions``: the table of positions, if it is not to be drawn like the one of tokens.
    """
    w, h = shape.width, shape.feed_forward

    def normal(scales: Sequence[float], *size: int) -> Tensor:
        return torch.stack(
            [s * torch.randn(size, generator=g) for s, g in zip(scales, generators, strict=True)]
        )

    def linear(fan_in: int, fan_out: int) -> Tensor:
        return normal([s / math.sqrt(fan_in) for s in linear_scales], fan_in, fan_out)

    def bias(size: int) -> Tensor:
        return torch.zeros(len(generators), 1, size)

    found = {"E": normal(embedding_scales, shape.n_tokens, w)}
    found["P"] = normal(embedding_scales, shape.n_positions, w) if positions is None else positions
    for layer in range(shape.depth):
        # one matrix for queries, keys and values, drawn as three of fan-in width
        found[f"A{layer}"], found[f"a{layer}"] = linear(w, 3 * w), bias(3 * w)
        found[f"O{layer}"], found[f"o{layer}"] = linear(w, w), bias(w)
        found[f"F{layer}"], found[f"f{layer}"] = linear(w, h), bias(h)
        found[f"G{layer}"], found[f"g{layer}"] = linear(h, w), bias(w)
    return found | {"C": linear(w, shape.dim), "c": bias(shape.dim)}


def n_parameters(shape: Transformer) -> int:
    """Count the numbers of one model."""
    w, h = shape.width, shape.feed_forward
    block = 3 * w * (w + 1) + w * (w + 1) + h * (w + 1) + w * (h + 1)
    return (shape.n_tokens + shape.n_positions) * w + shape.depth * block + shape.dim * (w + 1)


def apply(
    shape: Transformer,
    parameters: Mapping[str, Tensor],
    tokens: Int[Tensor, "model sequence token"],
    positions: Int[Tensor, "*sequence token"],
) -> Float[Tensor, "model sequence dim"]:
    """Encode sequences of one length. ``positions``: one for each token, the same for all sequences or not."""
    x = looked_up(parameters["E"], tokens) + parameters["P"][:, positions].view(
        len(tokens), *(positions.shape if positions.ndim == 2 else (1, *positions.shape)), shape.width
    )
    for layer in range(shape.depth - 1):
        x = _feed_forward(x + _attention(shape, parameters, layer, x), parameters, layer)
    layer = shape.depth - 1
    if shape.pool == "last":
        pooled = x[:, :, -1:] + _attention(shape, parameters, layer, x, last=True)
        pooled = _feed_forward(pooled, parameters, layer).squeeze(2)
    else:
        x = x + _attention(shape, parameters, layer, x)
        hidden = _hidden(x, parameters, layer).mean(2)
        pooled = x.mean(2) + torch.baddbmm(parameters[f"g{layer}"], hidden, parameters[f"G{layer}"])
    return torch.baddbmm(parameters["c"], normalised(pooled), parameters["C"])


def looked_up(
    tables: Float[Tensor, "model entry width"], index: Int[Tensor, "model *batch"]
) -> Float[Tensor, "model *batch width"]:
    """Look entries up, every model in a table of its own."""
    n_models, n_entries = tables.shape[:2]
    first = torch.arange(n_models, device=index.device).view(-1, *[1] * (index.ndim - 1)) * n_entries
    return functional.embedding(index + first, tables.flatten(0, 1))


def normalised(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Subtract the mean of the last axis and divide by its standard deviation."""
    return functional.layer_norm(x, x.shape[-1:])


def _attention(
    shape: Transformer,
    parameters: Mapping[str, Tensor],
    layer: int,
    x: Float[Tensor, "model sequence token width"],
    *,
    last: bool = False,
) -> Float[Tensor, "model sequence read width"]:
    n_models, n_sequences, n_tokens, w = x.shape
    flat = normalised(x).flatten(1, 2)
    weight, bias = parameters[f"A{layer}"], parameters[f"a{layer}"]

    def heads(part: Tensor, length: int) -> Tensor:
        return part.reshape(n_models * n_sequences, length, shape.n_heads, -1).transpose(1, 2)

    if last:
        ends = flat.view(x.shape)[:, :, -1]
        query = heads(torch.baddbmm(bias[..., :w], ends, weight[..., :w]), 1)
        pair = torch.baddbmm(bias[..., w:], flat, weight[..., w:])
        key, value = (heads(part, n_tokens) for part in pair.split(w, -1))
    else:
        triple = torch.baddbmm(bias, flat, weight)
        query, key, value = (heads(part, n_tokens) for part in triple.split(w, -1))
    mixed = functional.scaled_dot_product_attention(query, key, value)
    mixed = mixed.transpose(1, 2).reshape(n_models, -1, w)
    out = torch.baddbmm(parameters[f"o{layer}"], mixed, parameters[f"O{layer}"])
    return out.view(n_models, n_sequences, -1, w)


def _feed_forward(
    x: Float[Tensor, "model sequence token width"], parameters: Mapping[str, Tensor], layer: int
) -> Float[Tensor, "model sequence token width"]:
    hidden = _hidden(x, parameters, layer).flatten(1, 2)
    return x + torch.baddbmm(parameters[f"g{layer}"], hidden, parameters[f"G{layer}"]).view(x.shape)


def _hidden(
    x: Float[Tensor, "model sequence token width"], parameters: Mapping[str, Tensor], layer: int
) -> Float[Tensor, "model sequence token hidden"]:
    flat = normalised(x).flatten(1, 2)
    hidden = torch.baddbmm(parameters[f"f{layer}"], flat, parameters[f"F{layer}"])
    return functional.gelu(hidden).view(*x.shape[:3], -1)
