"""How the parts of an additive model lie to each other: concepts in objects, positions, subspaces (F3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from conceptbind.analysis.additive import AdditiveFit, fit_additive, part_groups
from conceptbind.embeddings import EmbeddingSet

RANK_TOL = 1e-6
"""Directions of a subspace with a smaller share of its largest singular value do not count."""


@dataclass(frozen=True)
class ConceptShare:
    """Say how much of the object parts their concepts explain."""

    share: float
    """1 - sum |u_o - sum_k u_{c_k}|² / sum |u_o - mean u|², over objects (and slots, where the fit keeps them)."""
    by_slot: tuple[float, ...]
    expected: float
    """What independent random object vectors reach: independent concept parts / (objects - 1)."""


def concept_share(fit: AdditiveFit) -> ConceptShare:
    """Split the object parts of a Level-I fit into concept parts, and give the share explained.

    A bag of concepts has 1; independent vectors have (sum_k V_k - K) / (|O| - 1) on average. Objects that no scene
    shows are left out. Raises ValueError for a Level-II fit or fewer than 2 objects.
    """
    if fit.level != "objects":
        raise ValueError(f"concept_share splits object parts: fit with level='objects'; got {fit.level!r}")
    residual, total, expected = [], [], []
    for parts, shown in zip(fit.parts, fit.shown, strict=True):
        objects = fit.space.all_objects()[shown.cpu()].unsqueeze(1)
        rows = parts[shown].float()
        if len(rows) < 2:
            raise ValueError("the share of concepts needs at least 2 objects with a part")
        split = fit_additive(EmbeddingSet(rows, objects, fit.space), level="concepts", estimator="avg")
        left = rows.double() - split.predict(objects)
        residual.append(float(left.square().sum()))
        total.append(float((rows.double() - rows.double().mean(0)).square().sum()))
        expected.append((split.rank - 1) / (len(rows) - 1))
    shares = tuple(1 - r / t if t else math.nan for r, t in zip(residual, total, strict=True))
    whole = sum(total)
    return ConceptShare(
        1 - sum(residual) / whole if whole else math.nan, shares, sum(expected) / len(expected)
    )


def part_norms(fit: AdditiveFit) -> tuple[float, ...]:
    """Give the root mean square length of the object parts of every slot (one number without positions)."""
    parts, shown = fit.object_parts(), fit.objects_shown()
    return tuple(
        float(p[s].square().sum(1).mean().sqrt()) if bool(s.any()) else math.nan
        for p, s in zip(parts, shown, strict=True)
    )


def position_alignment(fit: AdditiveFit, first: int = 0, second: int = 1) -> float:
    """Give how alike an object's parts in two slots are: sum_o <u_1o, u_2o> / sqrt(sum |u_1o|² sum |u_2o|²).

    1 when a place does not change what an object adds, 0 when the places use unrelated directions. Over the objects
    shown in both slots. Raises ValueError for a fit without positions.
    """
    if not fit.keeps_positions:
        raise ValueError("only a fit that keeps positions (estimator='avg+pos') has parts for each slot")
    parts, shown = fit.object_parts(), fit.objects_shown()
    for slot in (first, second):
        if not 0 <= slot < len(parts):
            raise ValueError(f"slots run from 0 to {len(parts) - 1}; got {slot}")
    both = shown[first] & shown[second]
    a, b = parts[first][both], parts[second][both]
    return float((a * b).sum() / (a.square().sum() * b.square().sum()).sqrt())


@dataclass(frozen=True)
class SubspacePair:
    """Compare the spans of two sets of parts."""

    first: str
    second: str
    angles: tuple[float, ...]
    """Principal angles in degrees, smallest first."""
    overlap: float
    """Mean squared cosine of the principal angles: 0 orthogonal, 1 one inside the other."""
    expected: float
    """The overlap of two random subspaces of these dimensions: max(p, q) / d."""


def subspace_angles(fit: AdditiveFit) -> list[SubspacePair]:
    """Compare the subspaces of every two concepts, in every slot, and of every concept in two slots.

    For a Level-II fit. Concept k of slot i spans the directions of its value parts. Raises ValueError for Level I.
    """
    if fit.level != "concepts":
        raise ValueError(f"subspaces belong to concepts: fit with level='concepts'; got {fit.level!r}")
    bases: dict[tuple[int, str], Tensor] = {}
    for slot, (parts, shown) in enumerate(zip(fit.parts, fit.shown, strict=True)):
        for name, group in zip(fit.space.concepts, part_groups(fit.space, "concepts"), strict=True):
            bases[slot, name] = _basis(parts[group][shown[group]])
    pairs = []
    keys = list(bases)
    for i, a in enumerate(keys):
        for b in keys[i + 1 :]:
            if a[0] == b[0] or a[1] == b[1]:
                pairs.append(_compare(fit, a, b, bases[a], bases[b]))
    return pairs


def _compare(fit: AdditiveFit, a: tuple[int, str], b: tuple[int, str], p: Tensor, q: Tensor) -> SubspacePair:
    def name(key: tuple[int, str]) -> str:
        return f"{key[1]}, slot {key[0]}" if fit.keeps_positions else key[1]

    if not p.shape[1] or not q.shape[1]:
        return SubspacePair(name(a), name(b), (), math.nan, math.nan)
    cosines = torch.linalg.svdvals(p.T @ q).clamp(0, 1)
    angles = tuple(float(x) for x in torch.rad2deg(torch.arccos(cosines)))
    overlap = float(cosines.square().mean())
    return SubspacePair(name(a), name(b), angles, overlap, max(p.shape[1], q.shape[1]) / len(p))


def _basis(parts: Float[Tensor, "part dim"]) -> Float[Tensor, "dim rank"]:
    """Give an orthonormal basis of the span of parts around their mean."""
    _, weights, rows = torch.linalg.svd(parts - parts.mean(0), full_matrices=False)
    return rows[weights > RANK_TOL * weights[0].clamp(min=torch.finfo(weights.dtype).tiny)].T
