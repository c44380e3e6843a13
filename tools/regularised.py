"""Train pocket CLIPs with and without the binding regulariser, on the same batches for the same steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from conceptbind.encoders.pocket import PREPROCESSING, build_pocket
from conceptbind.repair.regulariser import EMPTY, BindingRegulariser
from conceptbind.spaces import POCKET
from conceptbind.training.pocket import MAX_LOG_SCALE, Optimiser
from conceptbind.training.pocket_data import RECIPES as OF_PACKAGE
from conceptbind.training.pocket_data import PocketData, Recipe

RECIPES = {**OF_PACKAGE, "uniform": Recipe(two_objects=0.3, batch=48, steps=800)}
"""*uniform* has pictures of all pairs of seen objects, equally often, and no twins: small batches, where a bag of
concepts tells most scenes apart."""

HEAD_RATE = 10
"""The regulariser's tables, which see few values each, learn so many times faster than the model."""


def objects_of(data: PocketData, tokens: Tensor) -> Tensor:
    """Give the objects that captions name, (caption, 2 slots, concept); the second slot of one object is empty."""
    known = {
        tuple(row): [*scene.tolist(), [EMPTY, EMPTY]]
        for row, scene in zip(data.object_tokens.tolist(), data.objects, strict=True)
    }
    for both, scene in zip(data.pair_tokens.tolist(), data.pairs, strict=True):
        # the same objects whatever their order
        known |= {tuple(row): scene.tolist() for row in both}
    return torch.tensor([known[tuple(row)] for row in tokens.tolist()])


def train_regularised(
    variant: str, *, weight: float, steps: int, seed: int, tell: Callable[[int, float], None] | None = None
) -> tuple[nn.Module, PocketData, dict[str, Any]]:
    """Train a pocket CLIP on the data of ``variant``; its loss is CLIP's plus ``weight`` times the regulariser's.

    The weights at the start and all batches depend on ``seed`` only. With ``weight`` 0 it is plain training.
    """
    from open_clip.loss import ClipLoss

    data = PocketData(replace(RECIPES[variant], steps=steps), seed=seed)
    model, how, clip_loss = build_pocket(seed=seed).train(), Optimiser(), ClipLoss()
    binding = BindingRegulariser(model.text_projection.shape[1], POCKET.n_values, rank=16, seed=seed)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": how.weight_decay, "times": 1},
        {"params": others, "weight_decay": 0.0, "times": 1},
    ]
    if weight:
        groups.append({"params": list(binding.parameters()), "weight_decay": 0.0, "times": HEAD_RATE})
    adam = torch.optim.AdamW(groups, lr=how.rate, betas=how.betas)
    terms: list[tuple[float, float]] = []
    for step in range(steps):
        batch = data.batch(step)
        for group in adam.param_groups:
            group["lr"] = group["times"] * how.rate_at(step, steps)
        images = model.encode_image(PREPROCESSING.normalise(batch.pictures), normalize=True)
        texts = model.encode_text(batch.tokens, normalize=True)
        loss = clip_loss(images, texts, model.logit_scale.exp())
        if tell is not None:
            tell(step, float(loss.detach()))
        if weight:
            objects = objects_of(data, batch.tokens)
            loss = loss + weight * (binding(images, objects) + binding(texts, objects))
            if step >= steps - 50:
                with torch.no_grad():
                    found = binding.terms(images, objects)
                    terms.append((float(found.form), float(found.choice)))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOG_SCALE)
    last = torch.tensor(terms).mean(0).tolist() if terms else [None, None]
    return model.eval(), data, {"form": last[0], "choice": last[1]}
