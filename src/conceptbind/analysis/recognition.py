"""Recognition: is everything in a scene scored above everything that is not (paper, section 1).

A scene counts as correct on a head when min(score of its present queries) > max(score of its absent ones).
The difference of the two is the scene's *margin*. The comparison is strict, and a margin within a few
rounding errors of zero is a tie: a bag of concepts scores the swapped objects equally, and rounding alone
must not decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.scenes import ConceptSpace

TIE_ULPS = 32.0
"""Margins up to this many machine epsilons of the scene's largest absolute score count as ties."""


@dataclass(frozen=True)
class Recognition:
    """Summarise recognition over scenes; all shares are between 0 and 1, NaN when every scene is vacuous."""

    accuracy: float
    """Share of scenes whose margin is positive (ties are not)."""
    low: float
    """Lower end of the 95 % interval of the accuracy."""
    high: float
    """Upper end of the 95 % interval of the accuracy."""
    chance: float
    """Expected accuracy of independent continuous scores, the mean of prod_heads 1 / C(V, p) over scenes."""
    ties: float
    """Share of scenes whose margin is zero up to rounding."""
    margin_mean: float
    margin_median: float
    """The lower median when the number of scenes is even."""
    n_scenes: int
    """Scenes counted."""
    n_vacuous: int
    """Scenes left out because no query of the head is absent from them: nothing could be wrong."""

    def as_dict(self) -> dict[str, Any]:
        """Give the fields as a dictionary for a table row or JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ConceptRecognition:
    """Hold recognition for every concept, and for all concepts of a scene at once."""

    overall: Recognition
    by_concept: dict[str, Recognition]


def heads(space: ConceptSpace) -> tuple[slice, ...]:
    """Give the slice of the query axis of concept 1, ..., of concept K, and of the objects."""
    ends = accumulate((*space.n_values, space.n_possible_objects), initial=0)
    return tuple(slice(a, b) for a, b in pairwise(ends))


def head_labels(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"]
) -> Int[Tensor, "scene slot head"]:
    """Give what every slot shows to each head: its value of concept 1 ... K, then its object index."""
    return torch.cat([scenes, space.object_index(scenes).unsqueeze(-1)], dim=-1)


def present(space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"]) -> Bool[Tensor, "scene query"]:
    """Mark the queries that are in each scene: values of concept 1, ..., of concept K, then all objects."""
    every = heads(space)
    offsets = torch.tensor([h.start for h in every], device=scenes.device)
    index = (head_labels(space, scenes) + offsets).flatten(1)
    marks = torch.zeros(len(scenes), every[-1].stop, dtype=torch.bool, device=scenes.device)
    return marks.scatter_(1, index, True)


def scene_margins(
    scores: Float[Tensor, "*fit scene query"],
    present: Bool[Tensor, "scene query"],
    *,
    tie_ulps: float = TIE_ULPS,
) -> Float[Tensor, "*fit scene"]:
    """Give min(present score) - max(absent score) of one head; +inf for vacuous scenes, exactly 0 for ties.

    A margin of at most ``tie_ulps`` machine epsilons of the scores' type, times the scene's largest absolute
    score, is a tie: rounding a dot product of a few hundred terms is rarely off by more (in float32 4e-6 for
    a cosine of 1).
    Raises ValueError when shapes differ, a scene has no present query, or a score is not finite, or not
    float32 or float64: 32 machine epsilons of a bfloat16 are a quarter of the score.
    """
    if scores.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"scores are {str(scores.dtype).removeprefix('torch.')}, but ties are told by the rounding of float32 or "
            "float64: compute the scores in one of these, from embeddings and queries of that type"
        )
    if scores.shape[-2:] != present.shape:
        raise ValueError(
            f"scores (scene, query) are {tuple(scores.shape[-2:])} but present is {tuple(present.shape)}: "
            "give both for the same scenes and queries"
        )
    if not bool(present.any(1).all()):
        raise ValueError("every scene needs at least one present query; some row of present is all False")
    if not bool(scores.isfinite().all()):
        raise ValueError(
            "scores hold NaN or infinite numbers: an embedding or a query does, or was divided by a zero norm"
        )
    low = scores.masked_fill(~present, math.inf).amin(-1)
    high = scores.masked_fill(present, -math.inf).amax(-1)
    margin = low - high
    noise = tie_ulps * torch.finfo(scores.dtype).eps * scores.abs().amax(-1)
    vacuous = present.all(1)
    return torch.where((margin.abs() <= noise) & ~vacuous, 0.0, margin)


def chance_level(present: Bool[Tensor, "scene query"]) -> Float[Tensor, "scene"]:
    """Give the probability 1 / C(V, p) that independent continuous scores put the p present ones on top."""
    n_queries = present.shape[1]
    table = torch.tensor(
        [1 / math.comb(n_queries, p) for p in range(n_queries + 1)],
        dtype=torch.float64,
        device=present.device,
    )
    return table[present.sum(1)]


def margins_by_head(
    space: ConceptSpace,
    scores: Float[Tensor, "scene query"],
    present: Bool[Tensor, "scene query"],
) -> Float[Tensor, "head scene"]:
    """Give the margins of concept 1, ..., of concept K, and of the objects; see :func:`scene_margins` for errors."""
    return torch.stack([scene_margins(scores[:, h], present[:, h]) for h in heads(space)])


def chance_by_head(space: ConceptSpace, present: Bool[Tensor, "scene query"]) -> Float[Tensor, "head scene"]:
    """Give the :func:`chance_level` of concept 1, ..., of concept K, and of the objects."""
    return torch.stack([chance_level(present[:, h]) for h in heads(space)])


def recognise(
    scores: Float[Tensor, "scene query"],
    present: Bool[Tensor, "scene query"],
    *,
    objects: Int[Tensor, "scene slot"] | None = None,
    tie_ulps: float = TIE_ULPS,
    seed: int = 0,
) -> Recognition:
    """Measure the recognition of one head.

    The interval is Wilson's over scenes. Where scenes share few objects (an object-level split) they are not
    independent: pass their ``objects`` (object indices) for the pigeonhole bootstrap over objects instead.
    Raises ValueError as :func:`scene_margins` does.
    """
    margins = scene_margins(scores, present, tie_ulps=tie_ulps)
    return summarise(margins, chance_level(present), objects=objects, seed=seed)


def concept_recognition(
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    scores: Float[Tensor, "scene query"],
    *,
    cluster: bool = False,
    tie_ulps: float = TIE_ULPS,
    seed: int = 0,
) -> ConceptRecognition:
    """Measure recognition per concept, and of all concepts at once (the smallest of a scene's margins).

    ``scores`` has every query, the objects too, in the order of :func:`present`. ``cluster`` asks for
    intervals by the bootstrap over objects. Raises ValueError when the query axis has another length.
    """
    marks = _checked_present(space, scenes, scores)
    objects = space.object_index(scenes) if cluster else None
    by_head = [
        (scene_margins(scores[:, h], marks[:, h], tie_ulps=tie_ulps), chance_level(marks[:, h]))
        for h in heads(space)[:-1]
    ]
    margins = torch.stack([m for m, _ in by_head]).amin(0)
    chance = torch.stack([c for _, c in by_head]).prod(0)
    return ConceptRecognition(
        overall=summarise(margins, chance, objects=objects, seed=seed),
        by_concept={
            name: summarise(m, c, objects=objects, seed=seed)
            for name, (m, c) in zip(space.concepts, by_head, strict=True)
        },
    )


def object_recognition(
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    scores: Float[Tensor, "scene query"],
    *,
    cluster: bool = False,
    tie_ulps: float = TIE_ULPS,
    seed: int = 0,
) -> Recognition:
    """Measure the recognition of whole objects; arguments and errors as in :func:`concept_recognition`."""
    marks = _checked_present(space, scenes, scores)
    head = heads(space)[-1]
    objects = space.object_index(scenes) if cluster else None
    return recognise(scores[:, head], marks[:, head], objects=objects, tie_ulps=tie_ulps, seed=seed)


def summarise(
    margins: Float[Tensor, "scene"],
    chance: Float[Tensor, "scene"],
    *,
    objects: Int[Tensor, "scene slot"] | None = None,
    seed: int = 0,
) -> Recognition:
    """Summarise margins as :func:`scene_margins` gives them; scenes with margin +inf are vacuous."""
    counted = margins != math.inf
    n = int(counted.sum())
    n_vacuous = len(margins) - n
    if not n:
        nan = math.nan
        return Recognition(nan, nan, nan, nan, nan, nan, nan, 0, n_vacuous)
    margins, chance = margins[counted].double(), chance[counted].double()
    correct = margins > 0
    accuracy = float(correct.double().mean())
    if objects is None:
        low, high = wilson_interval(accuracy, n)
    else:
        low, high = pigeonhole_interval(correct, objects[counted], seed=seed)
    return Recognition(
        accuracy=accuracy,
        low=low,
        high=high,
        chance=float(chance.mean()),
        ties=float((margins == 0).double().mean()),
        margin_mean=float(margins.mean()),
        margin_median=float(margins.median()),
        n_scenes=n,
        n_vacuous=n_vacuous,
    )


def mean_over_seeds(of_seeds: Sequence[Recognition]) -> Recognition:
    """Average recognition over seeds that share scenes: of every field, the ends of the intervals among them.

    Numbers of scenes are rounded. Raises ValueError when there is no seed.
    """
    if not of_seeds:
        raise ValueError("there is nothing to average: give the recognition of at least one seed")
    rows = [r.as_dict() for r in of_seeds]
    mean = {key: fmean(row[key] for row in rows) for key in rows[0]}
    return Recognition(**{**mean, "n_scenes": round(mean["n_scenes"]), "n_vacuous": round(mean["n_vacuous"])})


def plain_row(row: Any) -> dict[str, Any]:
    """Turn a dataclass that holds a row of a table into a dictionary for JSON: NaN becomes None, a tuple a list."""
    return {
        k: None if isinstance(v, float) and math.isnan(v) else list(v) if isinstance(v, tuple) else v
        for k, v in asdict(row).items()
    }


def wilson_interval(share: float, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Give Wilson's score interval of a proportion: the p with |share - p| <= z sqrt(p (1 - p) / n).

    Unlike share +- z s.e. it stays within 0 ... 1 and has a positive width at 0 and 1 (Wilson 1927).
    Raises ValueError for n < 1, or a share or level outside 0 ... 1.
    """
    if n < 1 or not 0 <= share <= 1 or not 0 < level < 1:
        raise ValueError(
            f"need n >= 1, 0 <= share <= 1, 0 < level < 1; got n={n}, share={share}, level={level}"
        )
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if share == 0 else (centre - half) / scale
    high = 1.0 if share == 1 else (centre + half) / scale
    return low, high


def pigeonhole_interval(
    correct: Bool[Tensor, "scene"],
    objects: Int[Tensor, "scene slot"],
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Give the bootstrap interval of the share of correct scenes when scenes share objects.

    Objects are drawn with replacement, and a scene counts as often as all its objects were drawn together:
    the product of the draws of its distinct objects (the pigeonhole bootstrap, Owen 2007, for crossed data;
    it is somewhat conservative). Percentile interval. Resamples that draw no scene at all are drawn again.
    Where all scenes are correct, or none is, every resample says the same: then the interval is Wilson's, with
    n the number of distinct objects, or of scenes where these are fewer.
    Raises ValueError when there is no scene, or when only one object occurs.
    """
    if not len(correct):
        raise ValueError("no scenes to resample")
    names, index = objects.cpu().unique(return_inverse=True)
    if len(names) < 2:
        raise ValueError("a bootstrap over objects needs scenes of at least two different objects")
    share = float(correct.double().mean())
    if share in (0, 1):
        return wilson_interval(share, min(len(names), len(correct)), level=level)
    # An object that fills several slots is one object: count its draws once.
    ordered = index.sort(dim=1).values
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    hits = correct.cpu().float()
    generator = torch.Generator().manual_seed(seed)
    shares: list[Tensor] = []
    n_found = 0
    block = max(1, 2**24 // len(ordered))
    while n_found < n_resamples:
        picks = torch.randint(len(names), (min(block, n_resamples), len(names)), generator=generator)
        draws = torch.zeros(len(picks), len(names)).scatter_add_(1, picks, torch.ones(picks.shape))
        weight = torch.ones(len(picks), len(ordered))
        for slot in range(ordered.shape[1]):
            weight *= torch.where(first[:, slot], draws[:, ordered[:, slot]], 1.0)
        total = weight.sum(1)
        shares.append((weight @ hits / total)[total > 0])
        n_found += len(shares[-1])
    drawn = torch.cat(shares)[:n_resamples].double()
    tail = (1 - level) / 2
    low, high = drawn.quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return low, high


def _checked_present(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"], scores: Float[Tensor, "scene query"]
) -> Bool[Tensor, "scene query"]:
    n_queries = heads(space)[-1].stop
    if scores.shape != (len(scenes), n_queries):
        raise ValueError(
            f"expected scores of {len(scenes)} scenes and {n_queries} queries (the {sum(space.n_values)} "
            f"values of {space.concepts}, then {space.n_possible_objects} objects); got "
            f"{tuple(scores.shape)}"
        )
    return present(space, scenes.to(scores.device))
