"""What cross-modal numbers are without one modality, or without the pairing.

================  ==============================================================  ======================================
baseline          embeddings                                                      what it shows
================  ==============================================================  ======================================
text only         every picture has the mean of all pictures' unit vectors        captions preferred whatever is shown
image only        every caption has the mean of all captions' unit vectors        pictures preferred whatever is said
shuffled pairs    pictures exchanged at random among the scenes                   what chance gives with these vectors
================  ==============================================================  ======================================

A caption and its twin are each other's twin, so over all scenes a preference for one of the two is right once and wrong
once: "text only" is at most 1/2 from image to text. In a part it need not be: where twins are of another part, as seen
scenes with twins of held-out objects, it shows what familiarity alone reaches. In its own direction of no use, text to
image, all pictures tie.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conceptbind.analysis.choice import unit
from conceptbind.analysis.crossmodal import CrossModal, cross_modal
from conceptbind.embeddings import EmbeddingSet

TEXT_ONLY, IMAGE_ONLY, SHUFFLED = "text only", "image only", "shuffled pairs"


def cross_modal_baselines(
    images: EmbeddingSet, texts: EmbeddingSet, *, seed: int = 0, **settings: Any
) -> dict[str, CrossModal]:
    """Measure the baselines of the table above, by name.

    ``settings``: the other arguments of :func:`conceptbind.analysis.crossmodal.cross_modal`, whose errors it raises.
    ``seed``: also of the shuffling.
    """
    order = torch.randperm(images.n_scenes, generator=torch.Generator().manual_seed(seed))
    pairs = {
        TEXT_ONLY: (_with(images, _mean_of(images, "image embeddings"), TEXT_ONLY), texts),
        IMAGE_ONLY: (images, _with(texts, _mean_of(texts, "text embeddings"), IMAGE_ONLY)),
        SHUFFLED: (_with(images, images.embeddings[order], SHUFFLED), texts),
    }
    return {name: cross_modal(*pair, seed=seed, **settings) for name, pair in pairs.items()}


def _mean_of(data: EmbeddingSet, name: str) -> Tensor:
    mean = unit(data.embeddings, name).mean(0, keepdim=True)
    return mean.expand(data.n_scenes, -1).contiguous()


def _with(data: EmbeddingSet, embeddings: Tensor, name: str) -> EmbeddingSet:
    return replace(data, embeddings=embeddings, provenance={**data.provenance, "baseline": name})
