"""Which interactions of concepts an embedding holds, and how stable the effect of a concept is.

On a complete grid every concept of every slot is a factor, F = m K of them, and the embedding of a scene is a unique
sum of a component for every subset S of factors (functional ANOVA, :mod:`conceptbind.kernels.anova`):

=================  ==================================================  ==========================================
kind               S                                                   for example
=================  ==================================================  ==========================================
concepts           one factor                                          what *red* adds in slot 0
within objects     two or more concepts of one slot                    *red* with *circle*: binding
across objects     two factors, in two slots                           *red* in slot 0 with *red* in slot 1
higher             three or more factors, in two slots or more         a red circle beside a blue object
=================  ==================================================  ==========================================

A bag of concepts with positions (Level II of :mod:`conceptbind.analysis.additive`) has "concepts" only, a sum of
objects with positions (Level I) "concepts" and "within objects".

Noise correction. Vectors without any structure put mean square sigma² on every degree of freedom, so the many
degrees of freedom of high interactions collect a large share of nothing in particular. As in a factorial experiment
without replicates, the interaction of *all* factors serves as the noise stratum: its mean square MS_top is taken off
every degree of freedom,

    corrected SS_S = SS_S - df_S MS_top         MS_top = SS_top / df_top

which has the mean of SS_S without the noise, and may be slightly negative. An encoder has no noise of its own: what
the top interaction of its embeddings holds is treated as if it were. Only where the top interaction is of the kind
"higher" is there a noise stratum; one slot, or two slots of one concept, have none, and corrected values are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.probing import Embedded
from conceptbind.analysis.recognition import plain_row
from conceptbind.kernels.anova import anova_energies, degrees_of_freedom, subsets
from conceptbind.scenes import check_scenes

InteractionKind = Literal["concepts", "within objects", "across objects", "higher"]
INTERACTION_KINDS: tuple[InteractionKind, ...] = ("concepts", "within objects", "across objects", "higher")

STABILITY_PARTS = ("stable", "same object", "other objects", "higher")
"""What the effect of a concept consists of: the part that is the same in every context, and the rest by what it
depends on."""

MAX_FACTORS = 16
"""Slots times concepts: 2^16 rows."""

Factor = tuple[int, str]
"""A slot and the name of a concept."""


@dataclass(frozen=True)
class SpectrumRow:
    """Hold the component of one subset of factors."""

    factors: tuple[Factor, ...]
    kind: InteractionKind
    share: float
    """Of the total variance, 0 to 1; NaN when all embeddings are equal."""
    df: int
    """prod over its factors of (V_f - 1); 0 when one of them has a single value."""
    mean_square: float
    """SS_S / df_S, with SS_S summed over scenes and dimensions: in squared units of the embedding. NaN for df 0."""
    corrected_share: float
    """Corrected SS_S over the corrected total; NaN without a noise stratum, or when it leaves nothing."""


@dataclass(frozen=True)
class InteractionSpectrum:
    """Hold what :func:`interaction_spectrum` measured."""

    rows: tuple[SpectrumRow, ...]
    """Every subset but the empty one: single factors first, then pairs, ...; slots and concepts in their order."""
    factors: tuple[Factor, ...]
    sizes: tuple[int, ...]
    """V_f: how many values of each factor the scenes show."""
    n_scenes: int
    total: float
    """Total variance: mean |z - mean z|²."""
    noise_mean_square: float
    """MS_top, in the units of ``mean_square``; NaN where there is no noise stratum."""

    @property
    def noise_share(self) -> float:
        """Give the share of the total variance that is noise if MS_top is: (n - 1) MS_top / SS_total.

        Near 1 nothing but noise is left, and corrected shares divide by almost nothing. NaN without a stratum.
        """
        if not self.total:
            return math.nan
        return (self.n_scenes - 1) * self.noise_mean_square / (self.n_scenes * self.total)

    @property
    def within_ratio(self) -> float:
        """Give MS("within objects", pooled) / MS_top: about 1 when objects are no more than noise.

        inf when MS_top = 0 and objects interact within; NaN when both are 0, or one of them does not exist.
        """
        within = [row for row in self.rows if row.kind == "within objects"]
        df = sum(row.df for row in within)
        if not df or not self.total:
            return math.nan
        pooled = self.n_scenes * self.total * sum(row.share for row in within) / df
        if self.noise_mean_square == 0:
            return math.inf if pooled else math.nan
        return pooled / self.noise_mean_square

    def by_kind(self, *, corrected: bool = False) -> dict[InteractionKind, float]:
        """Give the share of every kind; they sum to 1. A kind that the grid does not have gets 0.

        ``corrected``: after the noise correction (all NaN where it is undefined).
        """
        shares = {
            kind: math.fsum(
                row.corrected_share if corrected else row.share for row in self.rows if row.kind == kind
            )
            for kind in INTERACTION_KINDS
        }
        undefined = any(math.isnan(share) for share in shares.values())
        return dict.fromkeys(INTERACTION_KINDS, math.nan) if undefined else shares

    def row(self, *factors: Factor) -> SpectrumRow:
        """Give the row of these factors, in any order. Raises KeyError, naming the factors there are."""
        for row in self.rows:
            if set(row.factors) == set(factors):
                return row
        raise KeyError(f"no row for {factors}; the factors are {self.factors}")

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give the rows as dictionaries for a table or JSON: NaN becomes None."""
        return [plain_row(row) for row in self.rows]

    def __str__(self) -> str:
        """Print a table of the kinds."""
        lines = [f"{'kind':15s}   share  corrected      df"]
        shares, corrected = self.by_kind(), self.by_kind(corrected=True)
        for kind in INTERACTION_KINDS:
            df = sum(row.df for row in self.rows if row.kind == kind)
            after = "–" if math.isnan(corrected[kind]) else f"{corrected[kind]:.4f}"
            lines.append(f"{kind:15s}  {shares[kind]:6.4f}  {after:>9s}  {df:6,d}")
        return "\n".join(lines)


def interaction_spectrum(data: Embedded) -> InteractionSpectrum:
    """Split the variance of embeddings over all sets of concepts that may interact.

    The scenes, in any order, must be a complete grid: every combination of the values that occur in each slot, each
    once. Values that occur in no scene are left out; a concept with a single value takes part with 0 degrees of
    freedom.
    Raises ValueError when the grid is not complete or a scene occurs twice, when embeddings and scenes differ in
    number, or for more than 16 factors.
    """
    grid, sizes = _on_grid(data)
    names = [(slot, name) for slot in range(data.scenes.shape[1]) for name in data.space.concepts]
    n = math.prod(sizes)
    energies = anova_energies(grid).tolist()
    total = math.fsum(energies)
    dfs = degrees_of_freedom(sizes)
    parts = sorted(
        zip(subsets(len(sizes)), energies, dfs, strict=True), key=lambda part: (len(part[0]), part[0])
    )
    varying = tuple(f for f, size in enumerate(sizes) if size > 1)
    noise = math.nan  # a degree of freedom's share of mean |z - mean z|²
    for subset, energy, df in parts:
        if subset == varying and subset and _kind([names[f] for f in subset]) == "higher":
            noise = energy / df
    left = total - (n - 1) * noise
    rows = []
    for subset, energy, df in parts[1:]:
        factors = tuple(names[f] for f in subset)
        rows.append(
            SpectrumRow(
                factors=factors,
                kind=_kind(factors),
                share=energy / total if total else math.nan,
                df=df,
                mean_square=n * energy / df if df else math.nan,
                corrected_share=(energy - df * noise) / left if left > 0 else math.nan,
            )
        )
    return InteractionSpectrum(tuple(rows), tuple(names), tuple(sizes), n, total, n * noise)


@dataclass(frozen=True)
class StabilityRow:
    """Say how much of the effect of one concept is the same in every scene; see :func:`effect_stability`."""

    slot: int
    concept: str
    main: float
    """M_f, as a share of the total variance."""
    total: float
    """T_f, as a share of the total variance."""
    stability: float
    """M_f / T_f, 0 to 1; NaN when the concept has no effect."""
    same_object: float
    """Share of T_f that depends on the other concepts of its object."""
    other_objects: float
    """Share of T_f that depends on one concept of another object."""
    higher: float
    """Share of T_f that depends on two concepts or more, not all of its own object."""
    expected: float
    """The stability of vectors without structure, 1 / number of contexts."""
    corrected_stability: float
    """M_f / T_f after the noise correction; NaN where that is undefined. May leave 0 to 1 slightly."""


def effect_stability(spectrum: InteractionSpectrum) -> list[StabilityRow]:
    """Give, for every concept of every slot, how much of its effect does not depend on the rest of the scene.

    A discrete concept has finite differences in place of a Jacobian: with c the other values of the scene (its
    context),

        Delta(a, b, c) = z(f = b, c) - z(f = a, c)

    Over all a, b and c, with M_f = mean |z_{f}|² and T_f = sum of mean |z_S|² over all S that contain f,

        mean |Delta|² = 2 T_f           mean over a, b of |mean over c of Delta|² = 2 M_f

    so stability M_f / T_f is the share of the squared change that is the same in every context. The rest is split by
    the kinds of S: ``same_object`` ("within objects"), ``other_objects`` ("across objects") and ``higher``; the four
    sum to 1. M_f and T_f are the first-order and total Sobol' indices times the variance (Sobol' 2001, Mathematics
    and Computers in Simulation 55, 271-280; Owen 2013, SIAM/ASA Journal on Uncertainty Quantification 1, 19-41).
    """
    found = []
    for f, (slot, concept) in enumerate(spectrum.factors):
        inside = [row for row in spectrum.rows if (slot, concept) in row.factors]
        total = math.fsum(row.share for row in inside)
        main = spectrum.row((slot, concept))
        parts = {
            kind: math.fsum(row.share for row in inside if row.kind == kind) / total
            if total > 0
            else math.nan
            for kind in INTERACTION_KINDS
        }
        corrected = math.fsum(row.corrected_share for row in inside)
        found.append(
            StabilityRow(
                slot=slot,
                concept=concept,
                main=main.share,
                total=total,
                stability=parts["concepts"],
                same_object=parts["within objects"],
                other_objects=parts["across objects"],
                higher=parts["higher"],
                expected=spectrum.sizes[f] / spectrum.n_scenes,
                corrected_stability=main.corrected_share / corrected if corrected > 0 else math.nan,
            )
        )
    return found


def mean_stability(rows: Sequence[StabilityRow]) -> dict[str, float]:
    """Average stability and the parts of the rest over the factors with an effect: keys ``STABILITY_PARTS``.

    NaN when no factor has an effect.
    """
    able = [row for row in rows if not math.isnan(row.stability)]
    columns = zip(*((r.stability, r.same_object, r.other_objects, r.higher) for r in able), strict=True)
    means = [math.fsum(column) / len(able) for column in columns] or [math.nan] * len(STABILITY_PARTS)
    return dict(zip(STABILITY_PARTS, means, strict=True))


def mean_effect(spectrum: InteractionSpectrum) -> float:
    """Give the root mean square change of the embedding when one value is replaced by another, in units of its spread.

    sqrt(mean over f of 2 T_f V_f / (V_f - 1)), with T_f the total Sobol' index of factor f, over the factors with two
    values or more; spread is the root mean square distance of the embeddings from their mean. It is what the columns
    ``effect`` of :mod:`conceptbind.analysis.complexity` estimate for an approximation of them. NaN without an effect.
    """
    squares = [
        2 * row.total * size / (size - 1)
        for row, size in zip(effect_stability(spectrum), spectrum.sizes, strict=True)
        if size > 1
    ]
    return math.sqrt(math.fsum(squares) / len(squares)) if spectrum.total and squares else math.nan


def _kind(factors: Sequence[Factor]) -> InteractionKind:
    if len(factors) == 1:
        return "concepts"
    if len({slot for slot, _ in factors}) == 1:
        return "within objects"
    return "across objects" if len(factors) == 2 else "higher"


def _on_grid(data: Embedded) -> tuple[Float[Tensor, "*value dim"], list[int]]:
    """Arrange the embeddings by the values that occur in every slot and concept."""
    check_scenes(data.space, data.scenes)
    embeddings, columns = data.embeddings, data.scenes.flatten(1)
    if len(embeddings) != len(columns):
        raise ValueError(
            f"{len(embeddings)} embeddings but {len(columns)} scenes: give one scene for each embedding"
        )
    if columns.shape[1] > MAX_FACTORS:
        raise ValueError(
            f"{data.scenes.shape[1]} slots of {data.space.n_concepts} concepts are {columns.shape[1]} factors, at most "
            f"{MAX_FACTORS} have a spectrum: its rows are all subsets of them. Use fewer slots or concepts"
        )
    positions, sizes = [], []
    for column in columns.unbind(1):
        shown, place = column.unique(return_inverse=True)
        positions.append(place)
        sizes.append(len(shown))
    n = len(columns)
    cell = torch.zeros_like(columns[:, 0])
    if math.prod(sizes) == n:
        for place, size in zip(positions, sizes, strict=True):
            cell = cell * size + place
    _require_complete(columns, cell, sizes)
    if not torch.equal(cell, torch.arange(n, device=cell.device)):
        embeddings = embeddings[cell.argsort().to(embeddings.device)]
    return embeddings.reshape(*sizes, -1), sizes


def _require_complete(
    columns: Int[Tensor, "scene factor"], cell: Int[Tensor, "scene"], sizes: Sequence[int]
) -> None:
    n_cells = math.prod(sizes)
    if n_cells == len(cell) and bool((cell.bincount(minlength=n_cells) == 1).all()):
        return
    n_different = len(columns.unique(dim=0))
    raise ValueError(
        "the interaction spectrum needs every scene of a grid once. The values that occur make "
        f"{' x '.join(map(str, sizes))} = {n_cells:,} scenes: {n_cells - n_different:,} of them are missing, and "
        f"{len(cell) - n_different:,} of the {len(cell):,} rows repeat a scene. Embed factorial_scenes(space, "
        "n_objects), or use fit_additive or decompose, which take any set of scenes"
    )


def without_main_effects(
    space: ConceptSpace, table: Float[Tensor, "object dim"]
) -> Float[Tensor, "object dim"]:
    """Take the mean and all main effects off a table of vectors, one for every possible object.

    What is left sums to zero over the objects that show a value, for every value: the interactions within objects.
    """
    objects = space.all_objects().to(table.device)
    left = table - table.mean(0)
    for k, size in enumerate(space.n_values):
        shows = torch.nn.functional.one_hot(objects[:, k], size).to(table)
        left = left - shows @ ((shows.T @ left) / shows.sum(0).unsqueeze(1))
    return left
