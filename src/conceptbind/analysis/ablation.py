"""Is the product what binds: scenes without the multiplicative part of their embeddings (paper, section 2, F8).

A form that fits well need not be what the queries read. So every embedding is split into three,

    z = additive part + product part + rest,

the additive part being the least-squares sum over scenes of training objects, and the product part what the object
products (:class:`conceptbind.approximators.products.ObjectProduct`) predict beyond it: the two together are the joint
fit, and nothing that a sum could explain is in the product part. Parts are then taken away, exchanged, or kept alone,
and the encoder's own queries, of all objects, put to what is left. If the product binds, taking it away costs objects
and not concepts, and its control, taking away the part of another scene, costs less.

The part that is taken away is predicted from the labels, which a reader might mind. Projecting out the *directions* in
which product parts lie needs no label; its controls are as many directions at random, and the leading ones of the
additive part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.multiplicative import NOTHING_LEFT, Sample, file_jobs, forms_of, sample_of
from conceptbind.approximators.base import Task
from conceptbind.approximators.closed_form import Additive
from conceptbind.approximators.products import ObjectProduct
from conceptbind.scenes import ObjectSplit
from conceptbind.sweeps import Job
from conceptbind.training.evaluate import KINDS, N_SCENES
from conceptbind.training.run import TrainedModel

KIND = "ablation"
PROTOCOL = 1
"""Part of the settings of every row: raised when a change makes other numbers of the same settings."""

HELD = 0.99
"""Share of the product parts' squares that their leading directions hold."""

CONTROL_SALT = 0xC0DE
"""Added to the seed that draws the scenes whose parts are exchanged, and directions at random."""

CONDITIONS = (
    "original",
    "without product part",
    "without wrong product part",
    "additive part only",
    "product part only",
    "additive + product",
    "without product directions",
    "without random directions",
    "without additive directions",
    "product directions only",
)
"""What is judged, in the order of the rows."""

DIRECTIONS = CONDITIONS[6:]
"""Those that project."""

Embed = Callable[[Int[Tensor, "scene slot concept"]], Float[Tensor, "scene dim"]]


@dataclass(frozen=True, eq=False)
class Parts:
    """Hold what splits the embeddings of scenes; make it with :func:`split_parts`."""

    split: ObjectSplit
    seed: int
    mean: Float[Tensor, "dim"]
    """Of the fitted scenes."""
    additive: Embed
    """The sum with its mean, float64."""
    product: Embed
    """What the object products add to it, float64; zero where they found no product."""
    chosen: dict[str, Any]
    """Rank and ridges of the object products."""
    directions: Float[Tensor, "direction dim"]
    """Orthonormal: the leading right-singular vectors of the product parts of the fitted scenes."""
    additive_directions: Float[Tensor, "_direction dim"]
    """As many of the additive parts around their mean."""
    random_directions: Float[Tensor, "_direction dim"]
    """As many at random."""


def split_parts(task: Task, how: ObjectProduct) -> Parts:
    """Fit the sum and the object products to one split's scenes of training objects."""
    sums, joint = Additive().fit(task), how.fit(task)
    chosen, seed = dict(joint.details[0]), task.seeds[0]

    def additive(scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        return sums.predict(0, scenes).double()

    def beyond(scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        return joint.predict(0, scenes).double() - additive(scenes)

    fitted = task.scenes[task.train[0]]
    mean, dim = sums.means[0].double(), task.embeddings.shape[1]
    centred = additive(fitted) - mean
    # Without a product, ridges alone make the joint fit another sum, or rounding does.
    found = chosen["rank"] != 0 and _squares(beyond(fitted)) > NOTHING_LEFT * _squares(centred)

    def product(scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        return beyond(scenes) if found else torch.zeros(len(scenes), dim, dtype=torch.float64)

    directions = _leading(product(fitted))
    generator = torch.Generator().manual_seed(seed + CONTROL_SALT)
    drawn = torch.randn(dim, len(directions), generator=generator, dtype=torch.float64)
    return Parts(
        task.splits[0],
        seed,
        mean,
        additive,
        product,
        chosen,
        directions,
        _leading(centred, len(directions)),
        torch.linalg.qr(drawn).Q.T,
    )


def ablate(
    model: TrainedModel,
    *,
    how: ObjectProduct | None = None,
    n_scenes: int = N_SCENES,
    seed: int | None = None,
) -> list[dict[str, Any]]:
    """Take parts from a trained model's scene embeddings; arguments as in :func:`ablate_sample`, and of the forms."""
    return ablate_sample(sample_of(model, n_scenes=n_scenes, seed=seed), how=how)


def ablate_sample(sample: Sample, *, how: ObjectProduct | None = None) -> list[dict[str, Any]]:
    """Judge scene embeddings after every one of the ``CONDITIONS``: dictionaries for a table.

    ``how``: the object products, and the ranks they choose from; those of the preset "laptop" unless given.
    ``condition``; ``n_directions`` projected out or kept, None without a projection; ``chosen``, rank and ridges; and
    the recognition of train, mixed and held-out scenes, as of the forms. Of every kind of scene ``left``, the share of
    the variance of the original embeddings that these have, and ``product_share``, that of the product part.
    Where no product was found there are no product directions, and keeping these alone leaves the mean.
    """
    parts = split_parts(sample.task(), how or forms_of("laptop")["object products"])
    scenes = {kind: sample.scenes(kind) for kind in KINDS}
    variance = {kind: _variance(sample.embed(some)) for kind, some in scenes.items()}
    shared: dict[str, Any] = {"chosen": parts.chosen}
    for kind, called in KINDS.items():
        shared[f"product_share_{called}"] = _share(_variance(parts.product(scenes[kind])), variance[kind])
    rows = []
    for condition in CONDITIONS:
        embed = partial(ablated, sample.embed, parts, condition)
        rows.append(
            {
                "condition": condition,
                "n_directions": len(parts.directions) if condition in DIRECTIONS else None,
                **shared,
                **{
                    f"left_{called}": _share(_variance(embed(scenes[kind])), variance[kind])
                    for kind, called in KINDS.items()
                },
                **sample.recognised(embed),
            }
        )
    return rows


def ablated(
    embed: Embed, parts: Parts, condition: str, scenes: Int[Tensor, "scene slot concept"]
) -> Float[Tensor, "scene dim"]:
    """Give the embeddings of scenes under one of the ``CONDITIONS``, in float64.

    The wrong product part of a scene is that of another of the same kind. Projections are around the mean of the fitted
    scenes, which stays.
    Raises ValueError for another condition.
    """
    z = embed(scenes)
    if condition == "original":
        return z
    if condition == "without product part":
        return z - parts.product(scenes)
    if condition == "without wrong product part":
        return z - parts.product(scenes[_others(parts, scenes)])
    if condition == "additive part only":
        return parts.additive(scenes)
    if condition == "product part only":
        return parts.mean + parts.product(scenes)
    if condition == "additive + product":
        return parts.additive(scenes) + parts.product(scenes)
    centred = z - parts.mean
    if condition == "product directions only":
        return parts.mean + _onto(centred, parts.directions)
    by_name = {
        "without product directions": parts.directions,
        "without random directions": parts.random_directions,
        "without additive directions": parts.additive_directions,
    }
    if condition not in by_name:
        raise ValueError(f"condition is one of {', '.join(CONDITIONS)}; got {condition!r}")
    return z - _onto(centred, by_name[condition])


def ablation_jobs(
    models: Sequence[str | Path],
    *,
    how: ObjectProduct | None = None,
    n_scenes: int = N_SCENES,
    device: str = "cpu",
) -> list[Job]:
    """List the ablations of trained models as jobs of kind "ablation": one job a file, one row a condition.

    Arguments and errors as of :func:`conceptbind.analysis.multiplicative.form_jobs`.
    """
    how = how or forms_of("laptop")["object products"]
    return file_jobs(
        KIND,
        models,
        partial(_ablate_file, how=how, n_scenes=n_scenes, device=device),
        column="condition",
        how=dict.fromkeys(CONDITIONS, how.settings),
        judged_scenes=n_scenes,
        protocol=PROTOCOL,
    )


def _ablate_file(path: Path, *, how: ObjectProduct, n_scenes: int, device: str) -> list[dict[str, Any]]:
    return ablate(TrainedModel.load(path, device=device), how=how, n_scenes=n_scenes)


def _others(parts: Parts, scenes: Int[Tensor, "scene slot concept"]) -> Int[Tensor, "scene"]:
    """Give every scene another one of its kind, along one random cycle through all of them."""
    generator = torch.Generator().manual_seed(parts.seed + CONTROL_SALT)
    others, kinds = torch.arange(len(scenes)), parts.split.kinds(scenes)
    for kind in kinds.unique():
        index = (kinds == kind).nonzero().squeeze(1)
        cycle = index[torch.randperm(len(index), generator=generator)]
        others[cycle] = cycle.roll(1)
    return others


def _leading(rows: Float[Tensor, "row dim"], n: int | None = None) -> Float[Tensor, "direction dim"]:
    """Give the n leading right-singular vectors, or as many as hold the share ``HELD`` of the squares."""
    squares, axes = torch.linalg.eigh(rows.T @ rows)
    squares, axes = squares.clamp(min=0).flip(0), axes.T.flip(0)
    if n is None:
        total = float(squares.sum())
        n = int((squares.cumsum(0) < HELD * total).sum()) + 1 if total > 0 else 0
    return axes[:n]


def _onto(rows: Float[Tensor, "row dim"], axes: Float[Tensor, "axis dim"]) -> Float[Tensor, "row dim"]:
    return rows @ axes.T @ axes


def _squares(rows: Float[Tensor, "row dim"]) -> float:
    return float(rows.square().sum())


def _variance(rows: Float[Tensor, "row dim"]) -> float:
    return _squares(rows - rows.mean(0)) if len(rows) else 0.0


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
