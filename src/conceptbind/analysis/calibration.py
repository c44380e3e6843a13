"""How often the verdict is right: planted binding functions whose answer is known.

A scene of objects o_1 ... o_m has the embedding z = sum_i w_{o_i}, plus noise, with w_o of object o = (c_1 ... c_K)

=================== ==================================================== =================
kind                w_o                                                  answer
=================== ==================================================== =================
additive            sum_k u_{k,c_k}                                      bag of concepts
product             sum_k u_{k,c_k} + prod_k v_{k,c_k}                   simple binding
low-rank product    sum_k u_{k,c_k} + (prod_k f_{k,c_k}) C               simple binding
global product      sum_k u_{k,c_k}, and once prod_i prod_k v_{i,k,c_ik} bag of concepts
memorised           a random vector                                      memorised objects
=================== ==================================================== =================

u, v and the random vectors are those of :mod:`conceptbind.planted`. The global product is one vector a scene, from a
factor of signs for every slot, concept and value: concepts can be read, objects cannot. f has ``RANK`` normal numbers,
C is a normal matrix (rank, dim), and what their product adds, its main effects taken out, has the sum of squares of
what the concepts add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.complexity import Subject
from conceptbind.analysis.interactions import without_main_effects
from conceptbind.analysis.verdict import (
    COVERAGE,
    N_CONTROLS,
    N_SEEDS,
    PRODUCTS,
    Verdict,
    verdict,
)
from conceptbind.approximators.base import Approximator
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.products import multiply_factors
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, factorial_scenes, sample_scenes
from conceptbind.sweeps import Job

Kind = Literal["additive", "product", "low-rank product", "global product", "memorised"]
KINDS: tuple[Kind, ...] = get_args(Kind)

ANSWERS: dict[Kind, Verdict] = {
    "additive": "bag of concepts",
    "product": "simple binding",
    "low-rank product": "simple binding",
    "global product": "bag of concepts",
    "memorised": "memorised objects",
}

KIND = "calibration"
PROTOCOL = 1
"""Part of the settings of every row: raised when a change makes other numbers of the same settings."""

RANK = 4

FACTOR_SALT = 0xFAC70
NOISE_SALT = 0x2015E
"""Added to the seed, so that factors and noise depend on neither the concepts' vectors nor each other."""


def planted_function(
    space: ConceptSpace,
    kind: str,
    *,
    dim: int,
    noise: float,
    seed: int,
    n_objects: int = 2,
    n_scenes: int | None = None,
) -> EmbeddingSet:
    """Plant a binding function (the table at the head of this module) and embed all ordered scenes by it.

    ``n_scenes``: a sample of so many instead of all.

    ``noise``: standard deviation of what is added to every coordinate, in units of the root mean square distance of a
    coordinate from its mean without noise; 1 doubles the variance.
    ``dim``: as in :func:`conceptbind.planted.planted_encoders`.
    Raises ValueError for an unknown kind, a dim that does not fit, negative noise, or more scenes than there are.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}; got {kind!r}")
    if noise < 0:
        raise ValueError(f"noise is a standard deviation, at least 0; got {noise}")
    if n_scenes is None:
        scenes = factorial_scenes(space, n_objects)
    else:
        scenes = sample_scenes(space, n_objects, n_scenes, seed=seed)
    of_objects = kind if kind in ("product", "memorised") else "additive"
    parts = planted_encoders(space, of_objects, dim=dim, seed=seed).scene_objects
    generator = torch.Generator().manual_seed(seed + FACTOR_SALT)
    if kind == "low-rank product":
        parts = parts + _low_rank(space, parts, generator)
    index = space.object_index(scenes)
    z = torch.zeros(len(scenes), dim)
    for slot in range(n_objects):
        z += parts[index[:, slot]]
    if kind == "global product":
        z += _global_product(space, scenes, dim, generator)
    if noise:
        rms = float((z - z.mean(0)).square().mean().sqrt())
        draws = torch.randn(z.shape, generator=torch.Generator().manual_seed(seed + NOISE_SALT))
        z += noise * rms * draws
    return EmbeddingSet(z, scenes, space, {"planted": kind, "dim": dim, "noise": noise, "seed": seed})


def calibrate(
    kinds: Sequence[str],
    spaces: Sequence[ConceptSpace],
    dims: Sequence[int],
    noises: Sequence[float],
    seeds: Sequence[int],
    *,
    candidates: Sequence[Approximator] = PRODUCTS,
    n_scenes: int | None = None,
) -> list[Job]:
    """List one verdict for every combination as a job: a row of the evidence, and whether it is ``right``.

    Columns beside those of :meth:`Judgement.as_row`: ``answer``, ``right`` and ``undetermined``. A verdict that is
    neither right nor undetermined is wrong. ``dims`` and ``n_scenes`` as in :func:`planted_function`.
    """
    return [
        _job(kind, space, dim, noise, seed, tuple(candidates), n_scenes)
        for space in spaces
        for dim in dims
        for kind in kinds
        for noise in noises
        for seed in seeds
    ]


def _job(
    kind: str,
    space: ConceptSpace,
    dim: int,
    noise: float,
    seed: int,
    candidates: tuple[Approximator, ...],
    n_scenes: int | None,
) -> Job:
    settings = {
        "planted": kind,
        "space": list(space.n_values),
        "dim": dim,
        "noise": noise,
        "seed": seed,
        "protocol": PROTOCOL,
        "coverage": COVERAGE,
        "n_splits": N_SEEDS,
        "n_controls": N_CONTROLS,
        "candidates": [dict(c.settings) for c in candidates],
        # Only where it is set: rows of full grids keep the key they had before there were samples.
        **({} if n_scenes is None else {"n_scenes": n_scenes}),
    }
    sizes = " × ".join(map(str, space.n_values))
    name = f"{kind}, {sizes}, {dim} dimensions, noise {noise:g}, seed {seed}"
    if n_scenes is not None:
        name += f", {n_scenes} scenes"

    def run() -> list[dict[str, Any]]:
        data = planted_function(space, kind, dim=dim, noise=noise, seed=seed, n_scenes=n_scenes)
        found = verdict(Subject(name, data), candidates=candidates)
        answer = ANSWERS[kind]
        return [
            {
                "answer": answer,
                "right": found.verdict == answer,
                "undetermined": found.verdict == "undetermined",
                **found.as_row(),
            }
        ]

    return Job(KIND, (settings,), run, name)


def _low_rank(
    space: ConceptSpace, parts: Float[Tensor, "object dim"], generator: torch.Generator
) -> Float[Tensor, "object dim"]:
    normal = {"generator": generator, "dtype": torch.float64}
    factors = [torch.randn(size, RANK, **normal) for size in space.n_values]
    head = torch.randn(RANK, parts.shape[1], **normal)
    added = without_main_effects(space, multiply_factors(factors, space.all_objects()) @ head)
    centred = parts.double() - parts.double().mean(0)
    size = added.square().sum()
    return (added * (centred.square().sum() / size).sqrt()).float() if size > 0 else torch.zeros_like(parts)


def _global_product(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], dim: int, generator: torch.Generator
) -> Float[Tensor, "scene dim"]:
    product = torch.ones(len(scenes), dim)
    for slot in range(scenes.shape[1]):
        for k, size in enumerate(space.n_values):
            signs = torch.randint(2, (size, dim), generator=generator).float() * 2 - 1
            product *= signs[scenes[:, slot, k]]
    return product
