"""Train new texts against the locked pictures of a pocket CLIP that binds, on narrow data.

The pictures still hold which colour belongs to which shape, and the texts need not say it: few captions name two
objects. That is how CLIP's embeddings are on CLEVR (paper, F1 and F2), in small, and what a repair of texts is for.
"""

from __future__ import annotations

import torch
from torch import nn

from conceptbind.encoders.pocket import PREPROCESSING, build_pocket, read_weights, weights_file
from conceptbind.training.pocket import MAX_LOG_SCALE, Optimiser
from conceptbind.training.pocket_data import RECIPES, PocketData


def train_locked(*, steps: int, seed: int) -> tuple[nn.Module, PocketData]:
    """Train the texts of a new model for ``steps``; its pictures are those of ``pocket:broad`` of the same seed."""
    from open_clip.loss import ClipLoss

    data, how, clip_loss = PocketData(RECIPES["narrow"], seed=seed), Optimiser(), ClipLoss()
    _, weights = read_weights(weights_file(f"broad-{seed}"))
    # texts start where no model of this seed started
    model = build_pocket(seed=seed + 100).train()
    visual = {n.removeprefix("visual."): w.float() for n, w in weights.items() if n.startswith("visual.")}
    model.visual.load_state_dict(visual, strict=True)
    model.visual.requires_grad_(False).eval()
    free = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.AdamW(free, lr=how.rate, betas=how.betas, weight_decay=how.weight_decay)
    for step in range(steps):
        batch = data.batch(step)
        for group in adam.param_groups:
            group["lr"] = how.rate_at(step, steps)
        with torch.no_grad():
            images = model.encode_image(PREPROCESSING.normalise(batch.pictures), normalize=True)
        texts = model.encode_text(batch.tokens, normalize=True)
        loss = clip_loss(images, texts, model.logit_scale.exp())
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOG_SCALE)
    return model.eval(), data
