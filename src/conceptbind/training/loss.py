"""What a model minimises; M models at once, each with a loss of its own.

Scores are cosines divided by a learned temperature. With soft targets p the loss of a scene is the cross-entropy
logsumexp_j s_j - sum_j p_j s_j, the mass of 1 shared equally by all candidates that are true of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from conceptbind.training.config import TrainingConfig
from conceptbind.training.data import CaptionBatch, Data, QueryBatch
from conceptbind.training.models import Side, encode, encode_values, scale


def query_loss(
    config: TrainingConfig, parameters: Mapping[str, Tensor], batch: QueryBatch, data: Data
) -> Float[Tensor, "model"]:
    """Give the cross-entropy over objects plus ``concept_weight`` times that over the values of all concepts.

    Scenes none of whose objects is among the queries are left out of the first.
    """
    queries = encoded_queries(config, parameters, batch, data)
    return scene_losses(config, parameters, batch, queries).sum(1)


def encoded_queries(
    config: TrainingConfig, parameters: Mapping[str, Tensor], batch: QueryBatch, data: Data
) -> tuple[Float[Tensor, "model query dim"], Float[Tensor, "model value dim"]]:
    """Embed a batch's object queries, and all values."""
    objects = encode(config, parameters, "query", data.values_of(batch.objects).unsqueeze(2))
    return objects, encode_values(config, parameters)


def scene_losses(
    config: TrainingConfig,
    parameters: Mapping[str, Tensor],
    batch: QueryBatch,
    queries: tuple[Float[Tensor, "model query dim"], Float[Tensor, "model value dim"]],
    part: slice = slice(None),
) -> Float[Tensor, "model scene"]:
    """Give what the scenes of a batch, or a part of them, add to its loss."""
    columns, weights = batch.columns[:, part], batch.weights[:, part]
    scenes = encode(config, parameters, "scene", batch.scenes[:, part])
    scores = scaled_cosines(parameters, scenes, queries[0]).masked_fill(~batch.asked[:, None], -torch.inf)
    # a place without weight may hold -inf, and 0 times that is no number
    true = torch.where(weights > 0, scores.gather(2, columns), 0.0) * weights
    counted = batch.weights.sum(-1).sum(1, keepdim=True).clamp(min=1)
    total = (log_total(scores) * weights.sum(-1) - true.sum(-1)) / counted
    if config.concept_weight:
        scores = scaled_cosines(parameters, scenes, queries[1])
        of_values = soft_cross_entropy(scores, shown_values(config, batch.scenes[:, part]))
        total = total + config.concept_weight / batch.scenes.shape[1] * of_values
    return total


def caption_loss(
    config: TrainingConfig, parameters: Mapping[str, Tensor], batch: CaptionBatch
) -> Float[Tensor, "model"]:
    """Give the symmetric contrastive loss (InfoNCE): half of scenes to captions, half of captions to scenes.

    Scenes choose among swapped captions, too. A caption that is true of several scenes of the batch is a target of
    each.
    """
    images = _encoded(config, parameters, "scene", batch.singles, batch.scenes)
    texts = _encoded(config, parameters, "query", batch.singles, batch.captions)
    shown, named = _named(config, batch.singles, batch.scenes), _named(config, batch.singles, batch.captions)
    n_models, n = images.shape[:2]
    asked = torch.ones(n_models, n, dtype=torch.bool, device=images.device)
    true = _equal(config, shown, named)
    to_images = soft_cross_entropy(scaled_cosines(parameters, texts, images), true.transpose(1, 2))
    if batch.swapped.shape[1]:
        texts = torch.cat([texts, encode(config, parameters, "query", batch.swapped)], 1)
        asked = torch.cat([asked, batch.asked], 1)
        true = torch.cat([true, _equal(config, shown, _numbered(config, batch.swapped))], 2)
    scores = scaled_cosines(parameters, images, texts).masked_fill(~asked[:, None], -torch.inf)
    return (soft_cross_entropy(scores, true & asked[:, None]) + to_images).mean(1) / 2


def scaled_cosines(
    parameters: Mapping[str, Tensor],
    a: Float[Tensor, "model row dim"],
    b: Float[Tensor, "model column dim"],
) -> Float[Tensor, "model row column"]:
    """Give cosines divided by the temperature, in the type of the weights."""
    factor = scale(parameters)
    with torch.autocast(a.device.type, enabled=False):
        a, b = (functional.normalize(x.to(factor.dtype), dim=-1) for x in (a, b))
        return torch.bmm(a * factor[:, None, None], b.mT)


def log_total(scores: Float[Tensor, "model row column"]) -> Float[Tensor, "model row"]:
    """Give logsumexp of every row, without columns that add less than the square of the machine precision.

    At a low temperature most probabilities would be subnormal numbers, with which a CPU multiplies a hundred times more
    slowly.
    """
    with torch.no_grad():
        least = scores.amax(-1, keepdim=True) + 2 * math.log(torch.finfo(scores.dtype).eps)
    return scores.masked_fill(scores < least, -torch.inf).logsumexp(-1)


def soft_cross_entropy(
    scores: Float[Tensor, "model row column"], true: Bool[Tensor, "model row column"]
) -> Float[Tensor, "model row"]:
    """Give the cross-entropy of rows whose mass is shared by their true columns; scores may be -inf elsewhere."""
    return log_total(scores) - torch.where(true, scores, 0.0).sum(-1) / true.sum(-1)


def shown_values(
    config: TrainingConfig, scenes: Int[Tensor, "model scene slot concept"]
) -> Bool[Tensor, "model scene value"]:
    """Mark the values in each scene: those of concept 1, ..., of concept K."""
    marks = [functional.one_hot(scenes[..., k], size).amax(2) for k, size in enumerate(config.sizes)]
    return torch.cat(marks, -1).bool()


def _encoded(
    config: TrainingConfig, parameters: Mapping[str, Tensor], side: Side, singles: Tensor, scenes: Tensor
) -> Float[Tensor, "model scene dim"]:
    parts = [encode(config, parameters, side, x) for x in (singles, scenes) if x.shape[1]]
    return torch.cat(parts, 1)


def _named(config: TrainingConfig, singles: Tensor, scenes: Tensor) -> Int[Tensor, "model scene slot"]:
    padded = _numbered(config, singles)
    # a slot without an object has a number of its own
    padded = functional.pad(padded, (0, scenes.shape[2] - 1), value=-1)
    return torch.cat([padded, _numbered(config, scenes)], 1)


def _numbered(config: TrainingConfig, scenes: Tensor) -> Int[Tensor, "model scene slot"]:
    index = scenes[..., 0]
    for k, size in enumerate(config.sizes[1:], start=1):
        index = index * size + scenes[..., k]
    return index


def _equal(
    config: TrainingConfig,
    scenes: Int[Tensor, "model scene slot"],
    captions: Int[Tensor, "model caption slot"],
) -> Bool[Tensor, "model scene caption"]:
    """Say which captions are true of which scenes: the order of the objects counts if captions keep it."""
    if config.caption_order == "random":
        scenes, captions = scenes.sort(-1).values, captions.sort(-1).values
    return (scenes[:, :, None] == captions[:, None]).all(-1)
