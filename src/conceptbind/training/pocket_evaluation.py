"""What a pocket CLIP has learned: its concepts, and which colour belongs to which shape."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from conceptbind.encoders.base import Encoder
from conceptbind.render import FlatRenderer
from conceptbind.scenes import (
    ObjectSplit,
    SceneKind,
    captions,
    factorial_scenes,
    sample_scenes,
    single_object_scenes,
)
from conceptbind.spaces import POCKET
from conceptbind.training.pocket_data import left_slots, pocket_renderer, swap_colours

PARTS = {SceneKind.TRAIN: "seen", SceneKind.MIXED: "mixed", SceneKind.HELD_OUT: "held-out"}
"""Which of the objects in question were seen in training: all, some, none."""


def evaluate_pocket(
    encoder: Encoder, split: ObjectSplit, *, seed: int, copies: int = 4, n_scenes: int | None = None
) -> dict[str, Any]:
    """Measure a pocket CLIP on pictures it was not trained on, ready for JSON.

    ``split``: its seen objects. ``seed`` draws the pictures, and ``n_scenes`` of the 1,680 ordered pairs of objects
    that share no value (all unless given). ``copies``: pictures of every object and every scene; of mixed scenes,
    which are many, there is one.

    ``"zero-shot"``: for seen and held-out single objects, the accuracy of naming the colour (of 8), the shape (of 6)
    and the object (of 48) of a picture by the closest caption; a colour's text embedding is the mean over the captions
    of all its objects. ``"swap"``: two-way choices between a caption and its twin with the colours exchanged, given
    the picture, and between the pictures of both, given the caption; by the parts of ``PARTS``, where the objects of
    the twin count too, and by the order of the caption: ``"left first"``, ``"right first"`` (in both pictures, where
    two are shown) and ``"any"``. Every accuracy is strict, ties are counted apart; chance is .5.
    """
    # Training pictures have even seeds.
    renderer = pocket_renderer(seed=2 * seed + 1)
    scenes = factorial_scenes(POCKET, 2, repeats="distinct values")
    if n_scenes is not None:
        scenes = sample_scenes(POCKET, 2, n_scenes, seed=seed, repeats="distinct values")
    return {
        "seed": seed,
        "pictures": renderer.settings,
        "zero-shot": _zero_shot(encoder, split, renderer, copies),
        "swap": _swap(encoder, split, renderer, scenes, copies),
    }


def _zero_shot(
    encoder: Encoder, split: ObjectSplit, renderer: FlatRenderer, copies: int
) -> list[dict[str, Any]]:
    scenes = single_object_scenes(POCKET)
    texts = normalize(encoder.encode_texts(captions(POCKET, scenes)), dim=1)
    pictures = torch.cat([renderer.render(scenes, copy=copy) for copy in range(copies)])
    images = normalize(encoder.encode_images(pictures), dim=1)
    objects = scenes[:, 0]
    asked = {
        name: (objects[:, k], torch.stack([texts[objects[:, k] == v].mean(0) for v in range(size)]))
        for k, (name, size) in enumerate(zip(POCKET.concepts, POCKET.n_values, strict=True))
    }
    asked["object"] = (torch.arange(len(objects)), texts)
    rows = []
    for name, (labels, classes) in asked.items():
        scores = images @ normalize(classes, dim=1).T
        right, tied = strictly_best(scores, labels.repeat(copies))
        for part, kept in (("seen", split.is_train), ("held-out", ~split.is_train)):
            chosen = kept.repeat(copies)
            rows.append(
                {
                    "asked": name,
                    "part": part,
                    "chance": 1 / len(classes),
                    **_share(right[chosen], tied[chosen]),
                }
            )
    return rows


def strictly_best(
    scores: Float[Tensor, "row answer"], labels: Int[Tensor, "row"]
) -> tuple[Bool[Tensor, "row"], Bool[Tensor, "row"]]:
    """Say in which rows the label's score is above all others, and in which it ties with the best of them."""
    true = scores.gather(1, labels[:, None]).squeeze(1)
    others = scores.scatter(1, labels[:, None], -torch.inf).amax(1)
    return true > others, true == others


def _swap(
    encoder: Encoder,
    split: ObjectSplit,
    renderer: FlatRenderer,
    scenes: Int[Tensor, "scene 2 2"],
    copies: int,
) -> list[dict[str, Any]]:
    twins = swap_colours(scenes)
    kinds = split.kinds(torch.cat([scenes, twins], dim=1))
    rows = []
    for kind, part in PARTS.items():
        of_kind = kinds == kind
        if not of_kind.any():
            continue
        n_copies = 1 if kind == SceneKind.MIXED else copies
        choices = _choices(encoder, renderer, scenes[of_kind], twins[of_kind], n_copies)
        for direction, (margins, orders) in choices.items():
            for order, chosen in orders.items():
                row = {"direction": direction, "order": order, "part": part, "chance": 0.5}
                rows.append({**row, **_share(margins[chosen] > 0, margins[chosen] == 0)})
    return rows


def _choices(
    encoder: Encoder,
    renderer: FlatRenderer,
    scenes: Int[Tensor, "scene 2 2"],
    twins: Int[Tensor, "scene 2 2"],
    copies: int,
) -> dict[str, tuple[Float[Tensor, "choice"], dict[str, Bool[Tensor, "choice"]]]]:
    """Give both directions' cosine to the true other less that to the twin's, and which choices are of which order."""

    def read(asked: Tensor) -> Tensor:
        return normalize(encoder.encode_texts(captions(POCKET, asked)), dim=1).repeat(copies, 1)

    def look(asked: Tensor) -> tuple[Tensor, Tensor]:
        drawn = [encoder.encode_images(renderer.render(asked, copy=copy)) for copy in range(copies)]
        return normalize(torch.cat(drawn), dim=1), left_slots(renderer, asked, copies).T.flatten() == 0

    def orders(*left_first: Tensor) -> dict[str, Tensor]:
        lefts = torch.stack(left_first)
        return {"any": torch.ones_like(lefts[0]), "left first": lefts.all(0), "right first": ~lefts.any(0)}

    (images, left), (twin_images, twin_left) = look(scenes), look(twins)
    texts = read(scenes)
    true = (images * texts).sum(1)
    return {
        "image to text": (true - (images * read(twins)).sum(1), orders(left)),
        # A choice between two pictures is of an order when both are.
        "text to image": (true - (twin_images * texts).sum(1), orders(left, twin_left)),
    }


def _share(right: Bool[Tensor, "row"], tied: Bool[Tensor, "row"]) -> dict[str, Any]:
    n = len(right)
    share = round(float(right.double().mean()), 4) if n else None
    return {"accuracy": share, "ties": int(tied.sum()), "n": n}
