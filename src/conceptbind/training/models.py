"""The two encoders of a model as functions of stacked parameters: M models are one batched computation.

A scene is a list of objects; an object query is a scene of one object, a value query a single value. Parameters are a
flat dictionary, names of the encoders' weights after "scene." and "query."; every tensor has a leading axis ``model``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.kernels import object_sums, transformer
from conceptbind.kernels.counter_random import seed_of
from conceptbind.kernels.object_sums import ObjectSum
from conceptbind.kernels.transformer import Transformer
from conceptbind.training.config import TrainingConfig, check_together

Side = Literal["scene", "query"]
SIDES: tuple[Side, ...] = ("scene", "query")
Parameters = dict[str, Tensor]

LOG_SCALE = "log_scale"
"""The name of the parameter that is minus the logarithm of the temperature."""

POSITION_NOISE = 0.1
"""Compact tokens: standard deviation of a position around its slot's vector at the start, next to the slots'."""


def shape_of(config: TrainingConfig, side: Side) -> Transformer | ObjectSum:
    """Describe one encoder."""
    c, kind = config, config.architecture_of(side)
    if kind != "transformer":
        return ObjectSum(kind, c.sizes, c.width, c.depth, c.feed_forward, c.dim)
    n_slots = c.n_objects if side == "scene" or c.form == "clip" else 1
    paper = c.tokens == "paper"
    return Transformer(
        n_tokens=sum(c.sizes) + (3 if paper else 0),
        n_positions=n_slots * (len(c.sizes) + 2) + 1 if paper else n_slots * len(c.sizes),
        width=c.width,
        depth=c.depth,
        n_heads=c.n_heads,
        feed_forward=c.feed_forward,
        dim=c.dim,
        pool="last" if paper else "mean",
    )


def initialise(configs: Sequence[TrainingConfig], *, device: torch.device | str = "cpu") -> Parameters:
    """Draw the weights of every model from its seed; on the CPU, so that they are the same on every device."""
    check_together(configs)
    found: Parameters = {}
    for side in SIDES:
        shape = shape_of(configs[0], side)
        generators = [torch.Generator().manual_seed(seed_of(c.seed, f"weights of {side}")) for c in configs]
        linear, embedding = [c.linear_scale for c in configs], [c.embedding_scale for c in configs]
        if isinstance(shape, Transformer):
            positions = None if configs[0].tokens == "paper" else _slot_positions(shape, configs, generators)
            drawn = transformer.initialise(
                shape, generators, linear_scales=linear, embedding_scales=embedding, positions=positions
            )
        else:
            drawn = object_sums.initialise(
                shape, generators, linear_scales=linear, embedding_scales=embedding
            )
        found |= {f"{side}.{name}": weight for name, weight in drawn.items()}
    found[LOG_SCALE] = torch.tensor([-math.log(c.temperature) for c in configs])
    return {n: w.to(device, configs[0].weight_dtype).contiguous() for n, w in found.items()}


def n_parameters(config: TrainingConfig) -> dict[Side, int]:
    """Count the numbers of each encoder."""
    shapes = {side: shape_of(config, side) for side in SIDES}
    return {
        side: transformer.n_parameters(s) if isinstance(s, Transformer) else object_sums.n_parameters(s)
        for side, s in shapes.items()
    }


def n_tokens(config: TrainingConfig, side: Side) -> int:
    """Count what one encoder computes for a scene: tokens of a transformer, objects of the others."""
    shape = shape_of(config, side)
    return shape.n_positions if isinstance(shape, Transformer) else config.n_objects


def encode(
    config: TrainingConfig,
    parameters: Mapping[str, Tensor],
    side: Side,
    scenes: Int[Tensor, "model scene slot concept"],
) -> Float[Tensor, "model scene dim"]:
    """Embed scenes, of one object or more, by one encoder of every model; not normalised."""
    shape, weights = shape_of(config, side), _of(side, parameters)
    n_models, n_scenes, n_slots, n_concepts = scenes.shape
    values = scenes + _first_values(config, scenes.device)
    if isinstance(shape, ObjectSum):
        return object_sums.apply(shape, weights, values)
    if config.tokens == "compact":
        positions = torch.arange(n_slots * n_concepts, device=scenes.device)
        return transformer.apply(shape, weights, values.flatten(2), positions)
    start, end, end_of_scene = (
        torch.full((n_models, n_scenes, n_slots, 1), token, device=scenes.device)
        for token in range(sum(config.sizes), sum(config.sizes) + 3)
    )
    tokens = torch.cat([torch.cat([start, values, end], -1).flatten(2), end_of_scene[:, :, 0]], -1)
    return transformer.apply(shape, weights, tokens, torch.arange(tokens.shape[-1], device=scenes.device))


def encode_values(
    config: TrainingConfig, parameters: Mapping[str, Tensor]
) -> Float[Tensor, "model value dim"]:
    """Embed every value alone by the query encoder: those of concept 1, ..., of concept K; not normalised."""
    shape, weights = shape_of(config, "query"), _of("query", parameters)
    if isinstance(shape, ObjectSum):
        return object_sums.apply_to_values(shape, weights)
    device, n_models = parameters[LOG_SCALE].device, len(parameters[LOG_SCALE])
    values = torch.arange(sum(config.sizes), device=device)[:, None]
    if config.tokens == "compact":
        # a value stands where it would stand in an object
        sizes = torch.tensor(config.sizes, device=device)
        positions = torch.arange(len(config.sizes), device=device).repeat_interleave(sizes)[:, None]
    else:
        values = torch.cat([values, torch.full_like(values, sum(config.sizes) + 2)], 1)
        positions = torch.arange(2, device=device)
    return transformer.apply(shape, weights, values.expand(n_models, *values.shape), positions)


def scale(parameters: Mapping[str, Tensor]) -> Float[Tensor, "model"]:
    """Give 1 / temperature, at most 100."""
    return parameters[LOG_SCALE].clamp(max=math.log(100)).exp()


def _of(side: Side, parameters: Mapping[str, Tensor]) -> Parameters:
    return {n.removeprefix(f"{side}."): w for n, w in parameters.items() if n.startswith(f"{side}.")}


def _first_values(config: TrainingConfig, device: torch.device) -> Int[Tensor, "concept"]:
    return torch.tensor([sum(config.sizes[:k]) for k in range(len(config.sizes))], device=device)


def _slot_positions(
    shape: Transformer, configs: Sequence[TrainingConfig], generators: Sequence[torch.Generator]
) -> Float[Tensor, "model position width"]:
    """Give all positions of a slot nearly the same vector."""
    n_concepts = len(configs[0].sizes)
    tables = []
    for config, g in zip(configs, generators, strict=True):
        slots = torch.randn(shape.n_positions // n_concepts, 1, shape.width, generator=g)
        noise = torch.randn(len(slots), n_concepts, shape.width, generator=g)
        tables.append(config.embedding_scale * (slots + POSITION_NOISE * noise).flatten(0, 1))
    return torch.stack(tables)
