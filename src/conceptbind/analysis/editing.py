"""Exchange what a scene embedding shows by adding and subtracting parts (paper, section 2, F5).

An edit is a pair of scenes of the data, source and target (:mod:`conceptbind.analysis.edits`). With the parts of any
additive model
(:mod:`conceptbind.analysis.additive`) the edited embedding is

    z_source + strength * (parts of the target - parts of the source),

so that z - u_o + u_o', a change of colour alone, and an exchange between two slots are one mechanism. What the two
scenes have in common cancels, exactly: where a model gives both scenes the same parts, such as concept parts without
positions for a scene and its twin, the edit is zero and cannot work.

An edit is judged in two ways. *Retrieval*: of all scenes of the data, is the target's own embedding strictly the
nearest to the edited one? *Reading*: do probes that were fitted to the embeddings of other scenes recognise in it all
the target's concepts and objects?

Many edits share a scene, and more share an object: intervals are by the bootstrap over objects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.additive import AdditiveFit
from conceptbind.analysis.edits import Edits
from conceptbind.analysis.fixed_probes import JOINT, FixedProbes, joint_chance
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, Embedded
from conceptbind.analysis.recognition import Recognition, mean_over_seeds, plain_row, summarise
from conceptbind.kernels.retrieval import Metric, retrieve

HEADS = (ALL_CONCEPTS, OBJECTS, JOINT)
BLOCK_FLOATS = 2**24
"""Numbers in the edited embeddings that are made at once: 64 MiB in float32."""

Control = Literal["edit", "no edit", "permuted parts"]
ANY = "any"
"""The name of the model in the row of no edit, which is the same for all."""


def edit_vectors(fit: AdditiveFit, edits: Edits, rows: slice = slice(None)) -> Float[Tensor, "edit dim"]:
    """Give (parts of the target - parts of the source) of some edits, in float64.

    Exactly zero where the model gives both scenes the same parts. Raises ValueError as
    :meth:`AdditiveFit.contribution` does for an object or value that the fitted scenes never show.
    """
    before, after = (_in_order(fit, scenes[rows]) for scenes in (edits.before, edits.after))
    return fit.contribution(after) - fit.contribution(before)


def edited(
    data: Embedded, edits: Edits, fit: AdditiveFit, *, strength: float = 1.0, rows: slice = slice(None)
) -> Float[Tensor, "edit dim"]:
    """Give the edited embeddings, in the type of the data. Raises ValueError as :func:`edit_vectors` does."""
    z = data.embeddings[edits.source[rows].to(data.embeddings.device)]
    return (z.double() + strength * edit_vectors(fit, edits, rows).to(z.device)).to(z.dtype)


@dataclass(frozen=True, eq=False)
class EditRetrieval:
    """Say which scene every edited embedding is nearest to."""

    edits: Edits
    strengths: tuple[float, ...]
    n_scenes: int
    """Scenes to choose from."""
    margin: Float[Tensor, "strength edit"]
    """Similarity of the target minus the largest of the others; 0 for a tie."""
    nearest: Int[Tensor, "strength edit"]
    """The nearest scene; for a tie with the target, the best of the others."""

    def rate(self, strength: float = 1.0, keep: Bool[Tensor, "edit"] | None = None) -> Recognition:
        """Give the share of edits whose target is strictly nearest, its interval, ties, and chance 1/n."""
        at, keep = _at(self.strengths, strength), _all(self.edits, keep)
        chance = torch.full((int(keep.sum()),), 1 / self.n_scenes, dtype=torch.float64)
        return summarise(self.margin[at, keep], chance, objects=self.edits.objects()[keep])

    def source_nearest(self, strength: float = 1.0, keep: Bool[Tensor, "edit"] | None = None) -> float:
        """Give the share of edits after which the unedited source is still the nearest scene."""
        at, keep = _at(self.strengths, strength), _all(self.edits, keep)
        return float((self.nearest[at, keep] == self.edits.source[keep]).double().mean())


def retrieve_edits(
    data: Embedded,
    edits: Edits,
    fit: AdditiveFit,
    *,
    strengths: Sequence[float] = (1.0,),
    metric: Metric = "cosine",
    dtype: torch.dtype = torch.float32,
) -> EditRetrieval:
    """Compare every edited embedding with those of all scenes of the data, source and target among them.

    ``strengths``: how much of the edit to apply; 0 is the source itself. ``dtype``: float64 also tells scenes apart
    whose cosines differ by less than 4e-6. Raises ValueError as :func:`edit_vectors` and ``retrieve`` do.
    """
    gallery = data.embeddings.to(dtype)
    strength = torch.tensor(strengths, dtype=torch.float64, device=gallery.device)
    margins, nearest = [], []
    for rows in _blocks(len(edits), len(strengths) * data.embeddings.shape[1]):
        start, target = (x[rows].to(gallery.device) for x in (edits.source, edits.target))
        vectors = edit_vectors(fit, edits, rows).to(gallery.device)
        queries = (data.embeddings[start].double() + strength[:, None, None] * vectors).to(dtype)
        found = retrieve(queries.flatten(0, 1), gallery, target.repeat(len(strengths)), metric=metric)
        margins.append(found.margin.view(len(strengths), -1).cpu())
        nearest.append(found.nearest.view(len(strengths), -1).cpu())
    return EditRetrieval(
        edits, tuple(map(float, strengths)), len(gallery), torch.cat(margins, 1), torch.cat(nearest, 1)
    )


@dataclass(frozen=True, eq=False)
class EditReading:
    """Say what probes read in every edited embedding."""

    edits: Edits
    strengths: tuple[float, ...]
    margin: Float[Tensor, "strength seed head edit"]
    """Recognition margins of what the target shows; heads "all concepts", "objects" and "joint"."""
    judged: Bool[Tensor, "seed edit"]
    """Edits whose source and target the probes of that seed were not fitted on."""

    def rate(
        self, head: str = JOINT, strength: float = 1.0, keep: Bool[Tensor, "edit"] | None = None
    ) -> Recognition:
        """Give the share of judged edits that read as their target; means over seeds, of intervals too.

        NaN when no edit is judged. Raises KeyError for an unknown head.
        """
        if head not in HEADS:
            raise KeyError(f"no head {head!r}; there are {HEADS}")
        at, keep = _at(self.strengths, strength), _all(self.edits, keep)
        of_seed = []
        for seed, judged in enumerate(self.judged):
            rows = judged & keep
            level = joint_chance(self.edits.space, self.edits.after[rows])[head]
            margin = self.margin[at, seed, HEADS.index(head), rows]
            objects = self.edits.objects()[rows] if bool(rows.any()) else None
            of_seed.append(summarise(margin, level, objects=objects))
        return mean_over_seeds(of_seed)

    def share(self, head: str, strength: float = 1.0, keep: Bool[Tensor, "edit"] | None = None) -> float:
        """Give the accuracy of :meth:`rate` alone, which takes no bootstrap. Raises KeyError for an unknown head."""
        if head not in HEADS:
            raise KeyError(f"no head {head!r}; there are {HEADS}")
        at, keep = _at(self.strengths, strength), _all(self.edits, keep)
        of_seed = []
        for seed, judged in enumerate(self.judged):
            margin = self.margin[at, seed, HEADS.index(head), judged & keep]
            counted = margin[margin != math.inf]  # infinite: nothing is absent that could be confused
            of_seed.append(float((counted > 0).double().mean()))
        return fmean(of_seed)


def read_edits(
    data: Embedded,
    edits: Edits,
    fit: AdditiveFit,
    probes: FixedProbes,
    *,
    strengths: Sequence[float] = (1.0,),
) -> EditReading:
    """Put probes that were fitted to original embeddings to the edited ones.

    Raises ValueError as :func:`edit_vectors` does, and when the probes were fitted to other data.
    """
    if probes.space != edits.space or probes.train.shape[1] != len(data.scenes):
        raise ValueError(
            f"the probes were fitted to {probes.train.shape[1]} scenes of {probes.space.concepts}, the data has "
            f"{len(data.scenes)} of {data.space.concepts}: fit them with fit_fixed_probes(data)"
        )
    blocks = []
    for rows in _blocks(len(edits), data.embeddings.shape[1]):
        z = data.embeddings[edits.source[rows].to(data.embeddings.device)].double()
        vectors = edit_vectors(fit, edits, rows).to(z.device)
        after = edits.after[rows]
        blocks.append(
            torch.stack(
                [
                    torch.stack(
                        [
                            probes.margins(i, (z + s * vectors).to(data.embeddings.dtype), after).cpu()
                            for i in range(probes.n_fits)
                        ]
                    )
                    for s in strengths
                ]
            )
        )
    test = ~probes.train.cpu()
    return EditReading(
        edits,
        tuple(map(float, strengths)),
        torch.cat(blocks, 3),
        torch.stack([edits.within(t) for t in test]),
    )


@dataclass(frozen=True)
class EditRow:
    """Hold one line of the table of edits. NaN where nothing was judged."""

    fit: str
    """The name of the additive model, such as "avg+pos"."""
    control: Control
    """"edit"; "no edit": strength 0; "permuted parts": the parts of wrong objects or values."""
    group: str
    """Which of the edits; a key of :func:`groups`."""
    retrieval: float
    retrieval_low: float
    retrieval_high: float
    retrieval_ties: float
    retrieval_chance: float
    source_nearest: float
    """Share of edits after which the unedited source is still nearest."""
    concepts: float
    objects: float
    joint: float
    joint_low: float
    joint_high: float
    joint_chance: float
    n_edits: int
    n_judged: int
    """Edits that the probes were judged on, the mean over their seeds."""

    def as_dict(self) -> dict[str, Any]:
        """Give the fields for a table or JSON: NaN becomes None."""
        return plain_row(self)


@dataclass(frozen=True)
class EditTable:
    """Hold what :func:`measure_edits` measured."""

    rows: tuple[EditRow, ...]

    def row(self, fit: str, *, control: Control = "edit", group: str = "all") -> EditRow:
        """Give one row. Raises KeyError, naming the rows there are, when there is none."""
        for row in self.rows:
            if (row.fit, row.control, row.group) == (fit, control, group):
                return row
        known = [(r.fit, r.control, r.group) for r in self.rows]
        raise KeyError(f"no row {(fit, control, group)}; there are {known}")


def groups(edits: Edits) -> dict[str, Bool[Tensor, "edit"]]:
    """Sort edits by how much they change, and by whether what they put in shares a value with a neighbour.

    Groups without an edit are left out.
    """
    n_concepts = edits.before.shape[2]
    every = {
        "all": torch.ones(len(edits), dtype=torch.bool),
        "one concept": edits.n_changed == 1,
        "every concept": edits.n_changed == n_concepts,
        "shares with neighbour": edits.shares_with_neighbour,
        "shares nothing": ~edits.shares_with_neighbour,
    }
    return {name: keep for name, keep in every.items() if bool(keep.any())}


def measure_edits(
    data: Embedded,
    edits: Edits,
    fits: Mapping[str, AdditiveFit],
    *,
    probes: FixedProbes | None = None,
    metric: Metric = "cosine",
    dtype: torch.dtype = torch.float32,
    by_group: bool = True,
    controls: bool = True,
    seed: int = 0,
) -> EditTable:
    """Measure edits with several additive models, beside no edit and permuted parts.

    ``by_group``: also for each of :func:`groups`; the controls are measured on all edits. ``seed`` draws the
    permutation. Raises ValueError when there is no model, and as :func:`retrieve_edits` and :func:`read_edits` do.
    """
    if not fits:
        raise ValueError("fits is empty: give at least one additive model by name, such as {'avg': fit}")
    runs: list[tuple[str, Control, AdditiveFit, float]] = []
    for name, fit in fits.items():
        runs.append((name, "edit", fit, 1.0))
        if controls:
            runs.append((name, "permuted parts", fit.permuted(seed=seed), 1.0))
    if controls:  # at strength 0 no parts are used
        runs.append((ANY, "no edit", next(iter(fits.values())), 0.0))
    rows = []
    for name, control, parts, strength in runs:
        found = retrieve_edits(data, edits, parts, strengths=(strength,), metric=metric, dtype=dtype)
        read = None if probes is None else read_edits(data, edits, parts, probes, strengths=(strength,))
        of_group = groups(edits) if by_group and control == "edit" else {"all": _all(edits, None)}
        rows += [_row(name, control, g, strength, keep, found, read) for g, keep in of_group.items()]
    return EditTable(tuple(rows))


def _row(
    fit: str,
    control: Control,
    group: str,
    strength: float,
    keep: Bool[Tensor, "edit"],
    found: EditRetrieval,
    read: EditReading | None,
) -> EditRow:
    top = found.rate(strength, keep)
    judged = read is not None and bool((read.judged & keep).any(1).all())
    joint = read.rate(JOINT, strength, keep) if judged and read else None
    return EditRow(
        fit=fit,
        control=control,
        group=group,
        retrieval=top.accuracy,
        retrieval_low=top.low,
        retrieval_high=top.high,
        retrieval_ties=top.ties,
        retrieval_chance=top.chance,
        source_nearest=found.source_nearest(strength, keep),
        concepts=read.share(ALL_CONCEPTS, strength, keep) if joint and read else math.nan,
        objects=read.share(OBJECTS, strength, keep) if joint and read else math.nan,
        joint=joint.accuracy if joint else math.nan,
        joint_low=joint.low if joint else math.nan,
        joint_high=joint.high if joint else math.nan,
        joint_chance=joint.chance if joint else math.nan,
        n_edits=int(keep.sum()),
        n_judged=joint.n_scenes if joint else 0,
    )


def _in_order(
    fit: AdditiveFit, scenes: Int[Tensor, "scene slot concept"]
) -> Int[Tensor, "scene slot concept"]:
    """Sort what a model without positions cannot tell apart, so that equal sums are summed in the same order."""
    if fit.keeps_positions:
        return scenes
    if fit.level == "concepts":
        return scenes.sort(dim=1).values
    order = fit.space.object_index(scenes).argsort(dim=1)
    return scenes.gather(1, order.unsqueeze(2).expand_as(scenes))


def _blocks(n_edits: int, floats_each: int) -> list[slice]:
    size = max(1, BLOCK_FLOATS // floats_each)
    return [slice(low, min(low + size, n_edits)) for low in range(0, n_edits, size)]


def _at(strengths: tuple[float, ...], strength: float) -> int:
    if strength not in strengths:
        raise ValueError(f"strength {strength} was not measured; there are {strengths}")
    return strengths.index(strength)


def _all(edits: Edits, keep: Tensor | None) -> Bool[Tensor, "edit"]:
    if keep is None:
        return torch.ones(len(edits), dtype=torch.bool)
    if keep.dtype != torch.bool or keep.shape != (len(edits),):
        raise ValueError(
            f"keep must be bool of shape ({len(edits)},), one an edit; got {keep.dtype} {tuple(keep.shape)}"
        )
    return keep
