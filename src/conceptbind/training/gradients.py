"""The loss of a step and its gradients, computed in parts that fit the processor's caches.

In the form "query" a scene meets the other scenes of its batch in nothing but the queries. So queries are encoded once,
then scenes a part at a time, forwards and backwards, and at last the queries backwards: the same numbers, in less
memory. On a CPU it is also faster: large tensors that are made and freed all the time cost a page fault every 4 KiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from conceptbind.training.config import TrainingConfig
from conceptbind.training.data import Data, QueryBatch
from conceptbind.training.loss import caption_loss, encoded_queries, scene_losses
from conceptbind.training.models import Parameters, n_tokens

PART = {"cpu": 5 * 2**19}
"""Numbers in the widest hidden layer of a part; on other devices as below."""
PART_ELSEWHERE = 2**28


def loss_and_gradients(
    config: TrainingConfig, parameters: Mapping[str, Tensor], data: Data, step: int
) -> tuple[Float[Tensor, "model"], Parameters]:
    """Give every model's loss on the batch of a step, and its gradients by every parameter.

    ``parameters`` are leaves that require gradients.
    """
    if config.form == "query":
        return query_gradients(config, parameters, data.query_batch(step), data)
    with _precision(config, data.device):
        loss = caption_loss(config, parameters, data.caption_batch(step))
    found = torch.autograd.grad(loss.sum(), list(parameters.values()), materialize_grads=True)
    return loss.detach(), dict(zip(parameters, found, strict=True))


def query_gradients(
    config: TrainingConfig, parameters: Mapping[str, Tensor], batch: QueryBatch, data: Data
) -> tuple[Float[Tensor, "model"], Parameters]:
    """Give the loss of :func:`conceptbind.training.loss.query_loss` and its gradients, part by part."""
    with _precision(config, data.device):
        encoded = encoded_queries(config, parameters, batch, data)
    # leaves in the type of the weights, so that their gradients are added up in it
    queries = tuple(q.detach().to(config.weight_dtype).requires_grad_() for q in encoded)
    ours = [n for n in parameters if not n.startswith("query.")]
    theirs = [n for n in parameters if n.startswith("query.")]
    leaves = [*(parameters[n] for n in ours), *queries]
    loss, total = torch.zeros_like(batch.weights[:, 0, 0]), None
    for part in _parts(config, batch, data.device):
        # autocast remembers weights in low precision, with the graph of one part: each has its own
        with _precision(config, data.device):
            of_part = scene_losses(config, parameters, batch, (queries[0], queries[1]), part).sum(1)
        loss += of_part.detach()
        found = torch.autograd.grad(of_part.sum(), leaves, materialize_grads=True)
        if total is None:
            total = list(found)
        else:
            torch._foreach_add_(total, list(found))
    assert total is not None, "a batch has at least one scene"
    by_queries = [g.to(q.dtype) for g, q in zip(total[len(ours) :], encoded, strict=True)]
    of_queries = torch.autograd.grad(
        encoded, [parameters[n] for n in theirs], by_queries, materialize_grads=True
    )
    gradients = dict(zip([*ours, *theirs], [*total[: len(ours)], *of_queries], strict=True))
    return loss, {n: gradients[n] for n in parameters}


def _parts(config: TrainingConfig, batch: QueryBatch, device: torch.device) -> Iterator[slice]:
    n_models, n_scenes = batch.scenes.shape[:2]
    widest = n_models * n_tokens(config, "scene") * max(config.feed_forward, config.width)
    # equal for models alone and together only up to rounding: parts follow their number
    n_parts = -(-n_scenes * widest // PART.get(device.type, PART_ELSEWHERE))
    size = -(-n_scenes // n_parts)
    return (slice(low, low + size) for low in range(0, n_scenes, size))


def _precision(config: TrainingConfig, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=config.dtype == "bfloat16")
