"""Checks for the exercises of chapter 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.analysis.recognition import scene_margins
from conceptbind.exercises.machinery import check, expect_close, expect_equal, wrong
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.spaces import CLEVR_2D


@check("twin")
def check_twin(answer: Callable[[Tensor], Tensor]) -> str:
    """Check exercise 1: exchange the colours (concept 0) of slots 0 and 1."""
    scenes = factorial_scenes(CLEVR_2D, 2)
    given = scenes.clone()
    got = answer(given)
    right = scenes.clone()
    right[:, :, 0] = scenes.flip(1)[:, :, 0]
    if not torch.equal(given, scenes):
        wrong("you changed `scenes` itself: work on a copy, `scenes.clone()`")
    overwritten = scenes.clone()
    overwritten[:, 0, 0] = scenes[:, 1, 0]
    other_way = scenes.clone()
    other_way[:, 1, 0] = scenes[:, 0, 0]
    shapes = scenes.clone()
    shapes[:, :, 1] = scenes.flip(1)[:, :, 1]
    expect_equal(
        got,
        right,
        what="the scenes",
        mistakes={
            "slot 0 got the colour of slot 1, but not the other way round. If you assign in place, the first colour "
            "is overwritten before you read it: read from `scenes`, write to the copy": overwritten,
            "slot 1 got the colour of slot 0, but not the other way round": other_way,
            "you exchanged whole objects; only the colour, concept 0, should move": scenes.flip(1),
            "you exchanged the shapes (concept 1); the colour is concept 0": shapes,
            "nothing changed": scenes,
        },
    )
    return "all 576 scenes"


@check("recognised")
def check_recognised(answer: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Check exercise 2: min present > max absent, for each scene."""
    present = torch.tensor([[1, 1, 0, 0]] * 4 + [[1, 0, 0, 0]]).bool()
    scores = torch.tensor(
        [
            [0.9, 0.8, 0.1, 0.2],  # right
            [0.9, 0.1, 0.5, 0.2],  # the best query is present, the other is not on top
            [0.9, 0.5, 0.5, 0.2],  # a tie
            [-0.1, -0.2, -0.3, -0.4],  # right, and all scores negative
            [-0.5, -0.9, -0.8, -0.7],  # right, one object twice
        ]
    )
    right = torch.tensor([True, False, False, True, True])
    got = answer(scores, present)
    if not isinstance(got, Tensor) or got.dtype != torch.bool:
        wrong("give a Boolean tensor, one value a scene: end with a comparison such as `lowest > highest`")
    zeroed = (scores * present).amin(1) > (scores * ~present).amax(1)
    expect_equal(
        got,
        right,
        what="the result",
        mistakes={
            "a tie counts as recognised: the definition is *strictly* above, `>`": torch.tensor(
                [True, False, True, True, True]
            ),
            "only the best query is looked at: *every* present one has to be above every absent one": torch.tensor(
                [True, True, True, True, True]
            ),
            "multiplying by the mask puts zeros where the others stood, and a zero can be the lowest or the highest: "
            "use masked_fill with ±inf": zeroed,
        },
    )
    generator = torch.Generator().manual_seed(0)
    many = torch.randn(200, 6, generator=generator)
    marks = torch.rand(200, 6, generator=generator) < 0.4
    marks[:, 0], marks[:, 1] = True, False
    expect_equal(answer(many, marks), scene_margins(many, marks) > 0, what="the result on 200 random scenes")
    return "ties, negative scores and 200 random scenes"


@check("share_recognised")
def check_share_recognised(answer: Callable[[int, int], float]) -> str:
    """Check exercise 3 against a bag of concepts that is measured for several sizes."""
    for n_colours, n_shapes in [(8, 3), (2, 2), (5, 4)]:
        space = ConceptSpace.of_sizes(n_colours, n_shapes)
        scenes = factorial_scenes(space, 2)
        bag = planted_encoders(space, "additive", dim=64, seed=0).scenes(scenes)
        twins = scenes.clone()
        twins[:, :, 0] = scenes.flip(1)[:, :, 0]
        is_other = (twins != scenes).any(-1).any(-1) & (twins != scenes.flip(1)).any(-1).any(-1)
        if not torch.equal(bag[space.scene_index(twins)], bag):
            raise RuntimeError("a bag of concepts must not tell twins apart")
        right = 1 - float(is_other.double().mean())
        both = 1 / n_colours + 1 / n_shapes
        expect_close(
            answer(n_colours, n_shapes),
            right,
            what=f"for {n_colours} colours and {n_shapes} shapes the share",
            mistakes={
                "that is the share of scenes that are *lost*; the question asks for those recognised": 1
                - right,
                "scenes that share both colour and shape are counted twice": both,
                "these are only the scenes of one object twice; sharing the colour *or* the shape is enough": 1
                / (n_colours * n_shapes),
                "a bag is not blind to every scene: what if both objects have the same colour?": 0.0,
            },
        )
    return "8 × 3, 2 × 2 and 5 × 4, against counting all scenes"
