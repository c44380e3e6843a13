"""Checks for the exercises of chapter 11."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, expect_equal, one_number, wrong

COLOURS = ("red", "blue", "green", "yellow", "purple", "orange", "pink", "brown")
SHAPES = ("circle", "square", "star", "cone", "heart", "bird", "car", "tree")


@check("beyond_the_architecture")
def check_beyond_the_architecture(answer: Callable[[Mapping[str, float], str], bool]) -> str:
    """Check exercise 1: the lower end of the interval is above the untrained number, else training shows nothing."""
    cases: list[tuple[dict[str, float], bool]] = []
    for low, value, untrained, shuffled in (
        (0.80, 0.85, 0.60, 0.05),
        (0.80, 0.85, 0.84, 0.05),
        (0.80, 0.85, 0.90, 0.05),
        (0.10, 0.20, 0.05, 0.15),
        (0.30, 0.40, 0.35, 0.36),
        (0.50, 0.60, 0.50, 0.10),
    ):
        metrics = {
            "text_probe_objects": value,
            "text_probe_objects_low": low,
            "text_probe_objects_high": 2 * value - low,
            "text_probe_objects_chance": 0.01,
            "text_probe_objects_random_init": untrained,
            "text_probe_objects_shuffled": shuffled,
        }
        cases.append((metrics, low > untrained))
    given = [one_number(answer(metrics, "text_probe_objects"), "the answer") for metrics, _ in cases]
    for got in given:
        if not isinstance(got, bool | np.bool_):
            wrong(f"the answer is {got!r}, expected True or False")
    expect_equal(
        [bool(g) for g in given],
        [right for _, right in cases],
        what="the answers for six models",
        mistakes={
            "a number above another may be chance: take the lower end of the interval": [
                m["text_probe_objects"] > m["text_probe_objects_random_init"] for m, _ in cases
            ],
            "shuffled labels say what the method reports when there is nothing to find; the question is about "
            "training: _random_init": [
                m["text_probe_objects_low"] > m["text_probe_objects_shuffled"] for m, _ in cases
            ],
            "chance is low; an untrained network may reach far more: _random_init": [
                m["text_probe_objects_low"] > m["text_probe_objects_chance"] for m, _ in cases
            ],
        },
    )
    return "six models"


def _rows(got: Any, n: int) -> Tensor:
    try:
        rows = torch.as_tensor(got).double()
    except (TypeError, ValueError, RuntimeError):
        wrong(f"{n} captions gave a {type(got).__name__}: give an array, one row of numbers for each caption")
    if rows.ndim != 2 or len(rows) != n:
        wrong(f"{n} captions gave shape {tuple(rows.shape)}: one row of numbers for each caption")
    return rows


@check("embed_product")
def check_embed_product(answer: Callable[[list[str]], Any]) -> str:
    """Check exercise 2: sums over objects of products of their words' vectors; twins differ, order is free."""
    scene, twin = "a red circle and a blue square", "a blue circle and a red square"
    turned = "a blue square and a red circle"
    z = _rows(answer([scene, twin, turned]), 3)
    if bool((z[0] - z[1]).abs().max() < 1e-6):
        wrong(
            "a scene and its twin have one embedding: adding up words forgets what belongs together; multiply"
        )
    again = _rows(answer([scene, twin, turned]), 3)
    expect_close(again, z, what="the same captions, embedded again")
    expect_close(z[2], z[0], what="the caption with its objects in the other order")
    objects = _rows(answer([f"a {c} {s}" for c in COLOURS for s in SHAPES]), len(COLOURS) * len(SHAPES))
    table = objects.view(len(COLOURS), len(SHAPES), -1)
    # v_c * w_s: each coordinate is a matrix of rank one
    first = table[:1] * table[:, :1] / table[:1, :1]
    if not bool(torch.isfinite(first).all()) or bool((first - table).abs().max() > 1e-4 * table.abs().max()):
        wrong(
            "the embedding of one object is not a product of a vector for its colour and one for its shape: in each "
            "coordinate, (red circle) (blue square) must equal (red square) (blue circle)"
        )
    both = _rows(answer([scene]), 1)[0]
    _sum = objects[COLOURS.index("red") * 8 + SHAPES.index("circle")] + objects[8 + SHAPES.index("square")]
    expect_close(
        both,
        _sum,
        what="a scene of two objects",
        mistakes={"add the objects up; that is their mean": _sum / 2},
    )
    return "64 objects"
