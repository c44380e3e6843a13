"""Checks for the exercises of chapter 3."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from conceptbind.exercises.machinery import check, expect_close, one_number
from conceptbind.scenes import ConceptSpace, factorial_scenes

_SPACE = ConceptSpace.of_sizes(2, 3)


@check("object_part")
def check_object_part(answer: Callable[[Tensor, Tensor, int, int], Tensor]) -> str:
    """Check exercise 1: the mean of the centred scenes with object o in a slot, by a loop over scenes."""
    scenes = factorial_scenes(_SPACE, 2)
    index = _SPACE.object_index(scenes)
    z = torch.randn(len(scenes), 5, generator=torch.Generator().manual_seed(0)) + 2
    mean = z.mean(0)
    for slot, o in [(0, 1), (1, 1), (1, 4)]:
        rows = [z[i] - mean for i, scene in enumerate(index.tolist()) if scene[slot] == o]
        everywhere = [z[i] - mean for i, scene in enumerate(index.tolist()) if o in scene]
        total = torch.stack(rows).sum(0)
        expect_close(
            answer(z, index, slot, o),
            total / len(rows),
            what=f"the part of object {o} in slot {slot}",
            mistakes={
                "subtract the mean scene: what all scenes share belongs to no object": total / len(rows)
                + mean,
                "that is the sum; take the mean over the scenes with the object": total,
                "that is the mean over scenes with the object in *either* slot; this part is for one slot": torch.stack(
                    everywhere
                ).mean(0),
                "divide by the number of scenes *with the object*, not of all scenes": total / len(scenes),
                "you centred with the mean of the scenes that have the object, so nothing is left": total * 0,
            },
        )
    return "three parts of a small grid"


@check("r_squared")
def check_r_squared(answer: Callable[[Tensor, Tensor], float]) -> str:
    """Check exercise 2: 1 - squared error / squared distance to the mean, summed over everything."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(30, 4, generator=generator) * torch.tensor([1.0, 2.0, 5.0, 0.5]) + 3
    for noise in (0.5, 3.0):
        predicted = z + noise * torch.randn(z.shape, generator=generator)
        error, spread = (z - predicted).square(), (z - z.mean(0)).square()
        expect_close(
            one_number(answer(z, predicted), "R²"),
            float(1 - error.sum() / spread.sum()),
            what="R²",
            mistakes={
                "measure the distance to the mean scene, not to zero": float(
                    1 - error.sum() / z.square().sum()
                ),
                "that is the share *not* explained: take it from 1": float(error.sum() / spread.sum()),
                "sum over dimensions first: in the mean of their R² a still dimension counts as much": float(
                    (1 - error.sum(0) / spread.sum(0)).mean()
                ),
                "one mean for all numbers is not the mean scene: use z.mean(0)": float(
                    1 - error.sum() / (z - z.mean()).square().sum()
                ),
                "squares, not lengths": float(1 - error.sum().sqrt() / spread.sum().sqrt()),
            },
        )
    return "a good and a bad prediction"


@check("free_r_squared")
def check_free_r_squared(answer: Callable[[int, int, int], float]) -> str:
    """Check exercise 3: independent parts over scenes minus one."""
    for n_objects, n_slots, n_scenes in [(24, 2, 576), (24, 3, 288), (64, 2, 4096)]:
        free = n_slots * (n_objects - 1)
        expect_close(
            one_number(answer(n_objects, n_slots, n_scenes), "the expected R²"),
            free / (n_scenes - 1),
            what=f"R² without meaning for {n_objects} objects, {n_slots} slots and {n_scenes} scenes",
            mistakes={
                "in each slot one part follows from the others, since they sum to zero": n_slots
                * n_objects
                / (n_scenes - 1),
                "every slot has parts of its own: count them all": (n_objects - 1) / (n_scenes - 1),
                "the mean takes one of the scenes' degrees of freedom: divide by n − 1": free / n_scenes,
                "only one constraint? The parts of *each* slot sum to zero": (n_slots * n_objects - 1)
                / (n_scenes - 1),
            },
            atol=1e-6,
        )
    return "two and three objects"
