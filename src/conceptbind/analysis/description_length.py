"""How many bits a scene's embedding costs somebody who knows its concepts, while the objects arrive.

A code that knows a rule pays little for an object it has never met; a table of memorised objects pays for every new
object once, and then not again; a sum of concepts pays for their interactions in every scene. The *prequential*
(online) code length sums this up in one number (Dawid 1984, Journal of the Royal Statistical Society A 147, 278-292;
Rissanen 1984, IEEE Transactions on Information Theory 30, 629-636; Blier and Ollivier 2018, NeurIPS, as a measure of
what models learn). Nobody counts parameters: whoever needs many scenes to find theirs predicts badly for a long time.

Objects arrive in blocks, along the nested splits of one seed. At coverage rho_b an approximator is fitted to the scenes
of training objects and predicts the scenes of the next block, all those that can be made of the objects of rho_{b+1}
and show at least one new one. They are coded around the prediction, and then belong to the scenes of the next fit. The
scenes of the first coverage are given to everybody.

With e_j the error of a scene on principal axis j, its bits are

    sum_j  1/2 log2(sigma_j² / tau_j²) + ((e_j² + delta_j²) / sigma_j² - 1) / (2 ln 2)

the length of a Gaussian code of variance sigma_j², minus what a scene costs on average whose error is no more than
tau_j². So 0 is a scene that is known up to its noise. Both ends know beforehand (:class:`SideInformation`; the same for
all codes, therefore without weight in their comparison):

- the principal axes of all centred embeddings;
- the resolution tau_j²: what no function of single objects explains, the mean square that a Level-I fit with positions
  leaves on the axis, times n / (n - rank) since a fit to the same scenes leaves too little. An encoder may leave almost
  nothing, and then every bit of its rounding would count: so it is at least ``floor`` times the mean variance of an
  axis, and for noise-free embeddings it is that floor. A code that also predicts how objects act on each other may
  cost less than 0;
- delta_j², 0 except where the floor applies: what is missing there. The embedding is blurred to its resolution by a
  noise of this variance, so that a perfect prediction costs 0 and not -0.7 bits an axis. Only its mean matters, nothing
  is drawn.

The variance sigma_j² is what the decoder can know: nothing but the errors of *earlier* blocks, apart for scenes of new
objects only and for mixed scenes,

    sigma_j² = max(tau_j², (n m_j + p_j) / (n + 1))        p_j = tau_j² + r max(s_j² + delta_j² - tau_j², 0)

m_j: their mean of e_j² + delta_j², every block weighted by its number of new objects (scenes that share a new object
share its error, so that scenes would count too much), and by half for every block that has passed since, as codes get
better. n: the sum of these weights. s_j²: the variance of the axis in the training scenes so far. r: the share of what
could be explained, sum_j (m_j - tau_j²) / sum_j max(s_j² + delta_j² - tau_j², 0), that this code has got wrong; before
its first block 1. With r = 1 throughout, one vague pseudo-object would cost a good code up to a bit on every axis.

Mixed scenes and scenes of new objects only ask different things. A mixed scene also shows an object met before, and
whoever has memorised it pays nothing more for it; for a scene of new objects only nothing but a rule helps.

Bits count every axis alike, whatever its variance. A code whose errors spread over axes on which nothing varies (a
network, a product coordinate by coordinate) pays for that, and the more the smaller the floor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.additive import PREDICT_ROWS, fit_additive
from conceptbind.analysis.probing import Embedded
from conceptbind.analysis.recognition import plain_row
from conceptbind.approximators.base import Approximation, Approximator, make_task
from conceptbind.embeddings import EmbeddingSet
from conceptbind.scenes import ConceptSpace, ObjectSplit, check_scenes, object_split

CodedScenes = Literal["all", "mixed", "new"]
"""All scenes of the blocks; those of new and known objects; those of new objects only."""

COVERAGES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Where blocks end by default; the full set follows. Of these, only those at which the space can show every value."""

FADING = 0.5
"""Weight of a block's errors, relative to the block after it."""

MIN_SCENES = 4
"""The smallest ``max_scenes_per_block``."""


@dataclass(frozen=True, eq=False)
class SideInformation:
    """Hold what both ends of the code know before the first scene; :func:`side_information` makes it."""

    mean: Float[Tensor, "dim"]
    """float32."""
    axes: Float[Tensor, "dim axis"]
    """Principal axes above rounding, orthonormal, float64 like all that follows."""
    variance: Float[Tensor, "axis"]
    """Of all embeddings, decreasing."""
    resolution: Float[Tensor, "axis"]
    """tau²."""
    blur: Float[Tensor, "axis"]
    """delta²: tau² minus what Level I leaves, where that is below the floor."""


@dataclass(frozen=True)
class CodeRow:
    """Hold what one block cost one code."""

    approximator: str
    seed: int
    """Of the order in which objects arrive."""
    coverage: float
    """At which the approximator was fitted."""
    next_coverage: float
    """With the block."""
    n_new_objects: int
    n_scenes: int
    """In the block; n_mixed + n_new."""
    n_coded: int
    """How many of them stand for all."""
    bits: float
    """Bits a scene, the mean over the block."""
    n_mixed: int
    """Scenes of new and known objects."""
    mixed_bits: float
    """Bits a scene of these; NaN without any."""
    n_new: int
    """Scenes of new objects only."""
    new_bits: float
    """Bits a scene of these; NaN without any."""


@dataclass(frozen=True)
class Bits:
    """Hold bits a scene, averaged over seeds."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]


@dataclass(frozen=True)
class DescriptionLength:
    """Hold what :func:`description_length` measured."""

    rows: tuple[CodeRow, ...]
    """By approximator, seed and block."""
    approximators: tuple[str, ...]
    seeds: tuple[int, ...]
    coverages: tuple[float, ...]
    """Where fits were made; the last block completes the full set."""
    n_axes: int
    total_variance: float
    """mean |z - mean z|²."""
    resolution_share: float
    """sum_j tau_j² over the total variance."""

    def total(self, approximator: str, *, scenes: str = "all") -> Bits:
        """Give the bits a scene of all blocks: for each seed, all bits over all scenes, so large blocks count more.

        ``scenes``: one of ``CodedScenes``, all, or those of new and known objects, or those of new objects only.
        ``low`` and ``high`` are the smallest and largest of the seeds: the spread over orders of arrival, not an
        interval of confidence. NaN without such scenes. Raises KeyError for an unknown name, and ValueError for unknown
        ``scenes``.
        """
        found = self._by_seed(approximator, scenes)
        return Bits(math.fsum(found) / len(found), min(found), max(found), found)

    def saving(self, a: str, b: str, *, scenes: str = "all") -> Bits:
        """Give how many bits a scene code ``a`` is shorter than code ``b``; negative where it is longer.

        Both code the same blocks, so the difference is taken within every seed. ``low`` and ``high`` bound the mean
        over seeds at 95 %: mean ± t s.e., t the quantile of Student's distribution with (seeds - 1) degrees of freedom,
        4.3 for three seeds. It says how far the order of arrival matters; the embeddings are the same for all seeds.
        NaN for one seed. Raises as :meth:`total` does.
        """
        of_a, of_b = self._by_seed(a, scenes), self._by_seed(b, scenes)
        differences = tuple(y - x for x, y in zip(of_a, of_b, strict=True))
        n = len(differences)
        mean = math.fsum(differences) / n
        half = math.nan
        if n > 1:
            variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1)
            half = student_quantile(n - 1) * math.sqrt(variance / n)
        return Bits(mean, mean - half, mean + half, differences)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give the rows as dictionaries for a table or JSON: NaN becomes None."""
        return [plain_row(row) for row in self.rows]

    def __str__(self) -> str:
        """Print a table of the codes, the shortest first."""
        width = max(len(name) for name in (*self.approximators, "code"))
        lines = [f"{'code':{width}s}  bits a scene        spread   first block   last block"]
        for name in sorted(self.approximators, key=lambda name: self.total(name).mean):
            found = self.total(name)
            ends = []
            for at in (min, max):
                coverage = at(self.coverages)
                block = [r.bits for r in self.rows if r.approximator == name and r.coverage == coverage]
                ends.append(math.fsum(block) / len(block))
            spread = f"{found.low:.1f} – {found.high:.1f}"
            lines.append(
                f"{name:{width}s}  {found.mean:12.1f}  {spread:>16s}  {ends[0]:11.1f}  {ends[1]:11.1f}"
            )
        return "\n".join(lines)

    def _by_seed(self, approximator: str, scenes: str) -> tuple[float, ...]:
        if approximator not in self.approximators:
            raise KeyError(f"no code {approximator!r}; there are {', '.join(map(repr, self.approximators))}")
        if scenes not in get_args(CodedScenes):
            raise ValueError(
                f"scenes must be one of {', '.join(map(repr, get_args(CodedScenes)))}; got {scenes!r}"
            )
        bits, n = {
            "all": ("bits", "n_scenes"),
            "mixed": ("mixed_bits", "n_mixed"),
            "new": ("new_bits", "n_new"),
        }[scenes]
        found = []
        for seed in self.seeds:
            rows = [r for r in self.rows if r.approximator == approximator and r.seed == seed]
            cost = [(getattr(r, n), getattr(r, bits)) for r in rows if getattr(r, n)]
            whole = sum(count for count, _ in cost)
            found.append(math.fsum(count * b for count, b in cost) / whole if whole else math.nan)
        return tuple(found)


def side_information(data: Embedded, *, floor: float = 1e-4) -> SideInformation:
    """Find the axes and their resolution, as the head of this module defines them.

    ``floor``: of the resolution, relative to the mean variance of an axis, above 0. Axes whose variance is below
    what float32 can resolve beside the largest embedding are left out.
    Raises ValueError when embeddings and scenes differ in number, all embeddings are equal, the floor is not above 0,
    or there are so few scenes that the Level-I fit leaves no degree of freedom.
    """
    _check(data)
    if not floor > 0:
        raise ValueError(f"the floor of the resolution must be above 0; got {floor}")
    mean, centred = _centred(data)
    n, dim = centred.embeddings.shape
    squares, total = torch.zeros(dim, dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    for z in centred.embeddings.split(PREDICT_ROWS):
        squares += z.double().T @ z.double()
        total += z.double().sum(0)
    squares = squares / n - torch.outer(total / n, total / n)
    variance, axes = torch.linalg.eigh(squares)
    variance, axes = variance.flip(0), axes.flip(1)
    # float32 moves a row by less than this; the sums above, in float64, by less than dim units of rounding.
    rounding = (torch.finfo(torch.float32).eps * float(data.embeddings.norm(dim=1).max())) ** 2
    kept = variance > max(rounding, dim * torch.finfo(torch.float64).eps * float(variance[0]))
    if not bool(kept.any()):
        raise ValueError(f"all {n:,} embeddings are equal up to rounding: there is nothing to describe")
    variance, axes = variance[kept], axes[:, kept]
    fit = fit_additive(centred, level="objects", estimator="avg+pos")
    if fit.rank >= n:
        raise ValueError(
            f"{n:,} scenes have {fit.rank:,} independent parts of objects, which leave no degree of freedom to tell "
            "what no function of single objects explains: use scenes of two objects or more, or more of them"
        )
    left = torch.zeros_like(variance)
    for rows in torch.arange(n).split(PREDICT_ROWS):
        error = centred.embeddings[rows].double() - fit.predict(centred.scenes[rows])
        left += (error @ axes).square().sum(0)
    left = left / (n - fit.rank)
    resolution = left.clamp(min=floor * float(variance.mean()))
    return SideInformation(mean, axes, variance, resolution, resolution - left)


def description_length(
    data: Embedded,
    approximators: Sequence[Approximator],
    *,
    coverages: Sequence[float] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    floor: float = 1e-4,
    max_scenes_per_block: int = 4096,
    side: SideInformation | None = None,
) -> DescriptionLength:
    """Measure how many bits a scene costs each code while objects arrive, as the head of this module says.

    ``approximators``: the codes; ``Additive()`` is the sum of concepts, ``ObjectTable()`` memorises objects, products
    and networks know rules. ``coverages``: where fits are made, increasing, strictly between 0 and 1; by default those
    of ``COVERAGES`` that show every value, that have scenes to train on and that add some. A smaller coverage may leave
    values unseen, which then add nothing. ``seeds``: each is an order of arrival, and of everything that is drawn.
    ``max_scenes_per_block``: of a larger block, a seeded sample stands for all; mixed scenes and scenes of new objects
    are sampled, and weighted, apart. ``side``: from :func:`side_information`, to compare on the same axes; from these
    data and ``floor`` by default. A fit sees the training scenes of its coverage only, less the mean of ``side``.
    Raises ValueError for coverages that do not increase or are fewer than 2, a coverage without a training scene, a
    block without a scene, repeated seeds or names of approximators, no approximators, or predictions that are not
    finite.
    """
    _check(data)
    names = [a.name for a in approximators]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"approximators must be at least one, with different names; got {names}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be at least one, and differ; got {tuple(seeds)}")
    if max_scenes_per_block < MIN_SCENES:
        raise ValueError(f"max_scenes_per_block must be at least {MIN_SCENES}; got {max_scenes_per_block}")
    index = data.space.object_index(data.scenes)
    if coverages is None:
        coverages = _usable_coverages(data.space, index, seeds)
    coverages = tuple(coverages)
    _check_coverages(coverages)
    if side is None:
        side = side_information(data, floor=floor)
    elif side.axes.shape[0] != data.embeddings.shape[1]:
        raise ValueError(
            f"the side information is of {side.axes.shape[0]} dimensions, the embeddings have "
            f"{data.embeddings.shape[1]}: make it from embeddings of the same encoder"
        )
    _, centred = _centred(data, side.mean)
    orders = [_Order.of(centred, index, coverages, seed, max_scenes_per_block) for seed in seeds]
    memories = {(name, seed): _Memory() for name in names for seed in seeds}
    rows: list[CodeRow] = []
    moments = [_Moments.of(centred, order.blocks[0].known, side) for order in orders]
    for b, _ in enumerate(coverages):
        spread = [m.variance for m in moments]
        splits = [order.blocks[b].split for order in orders]
        for some, task in make_task(centred, splits, seeds=seeds).batches():
            for approximator in approximators:
                found = approximator.fit(task)
                for fit, which in enumerate(some):
                    order = orders[which]
                    memory = memories[approximator.name, order.seed]
                    where = (approximator.name, order.seed, order.blocks[b])
                    rows.append(_code(*where, found, fit, centred, side, spread[which], memory))
        for order, m in zip(orders, moments, strict=True):
            m.add(centred, order.blocks[b].arrives, side)
    rows.sort(key=lambda row: (names.index(row.approximator), list(seeds).index(row.seed), row.coverage))
    whole = float(side.variance.sum())
    share = float(side.resolution.sum()) / whole
    return DescriptionLength(
        tuple(rows), tuple(names), tuple(seeds), coverages, len(side.variance), whole, share
    )


def student_quantile(df: int) -> float:
    """Give the t with P(|T| < t) = 0.95 for Student's distribution with ``df`` degrees of freedom.

    By bisection of the finite sums for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
    Raises ValueError for df < 1.
    """
    if df < 1:
        raise ValueError(f"Student's distribution needs at least 1 degree of freedom; got {df}")

    def inside(angle: float) -> float:
        cosine, term, total = math.cos(angle), 1.0, 0.0
        if df % 2:
            for k in range(1, (df + 1) // 2):
                term = cosine if k == 1 else term * cosine**2 * (2 * k - 2) / (2 * k - 1)
                total += term
            return 2 / math.pi * (angle + math.sin(angle) * total)
        for k in range(df // 2):
            term = 1.0 if k == 0 else term * cosine**2 * (2 * k - 1) / (2 * k)
            total += term
        return math.sin(angle) * total

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
    return math.sqrt(df) * math.tan(low)


@dataclass(frozen=True, eq=False)
class _Block:
    """Scenes that are coded together, and what is known when they arrive."""

    coverage: float
    next_coverage: float
    n_new_objects: int
    split: ObjectSplit
    known: Bool[Tensor, "scene"]
    """Scenes of training objects."""
    arrives: Bool[Tensor, "scene"]
    mixed: Int[Tensor, "coded_mixed"]
    """Row numbers of the sample."""
    new: Int[Tensor, "coded_new"]
    n_mixed: int
    n_new: int


@dataclass(frozen=True, eq=False)
class _Order:
    """One order of arrival."""

    seed: int
    blocks: list[_Block]

    @classmethod
    def of(
        cls,
        data: EmbeddingSet,
        index: Int[Tensor, "scene slot"],
        coverages: Sequence[float],
        seed: int,
        limit: int,
    ) -> _Order:
        masks = _masks(data.space, coverages, seed)
        blocks = []
        for b, (coverage, old, now) in enumerate(zip(coverages, masks, masks[1:], strict=False)):
            following = coverages[b + 1] if b + 1 < len(coverages) else 1.0
            known, unknown = old[index].all(1), ~old[index].any(1)
            arrives = now[index].all(1) & ~known
            if not bool(known.any()):
                raise ValueError(
                    f"coverage {coverage:.2f} leaves no scene of training objects only among {len(index):,} scenes "
                    f"(seed {seed}): start at a larger coverage, or use more scenes"
                )
            if not bool(arrives.any()):
                raise ValueError(
                    f"no scene arrives between coverage {coverage:.2f} and {following:.2f} (seed {seed}), a block "
                    "would be empty: use fewer coverages, further apart, or more scenes"
                )
            mixed, new = (arrives & ~unknown).nonzero().squeeze(1), (arrives & unknown).nonzero().squeeze(1)
            generator = torch.Generator().manual_seed(seed)
            n_new = _quota(len(new), len(mixed), limit)
            n_mixed = min(len(mixed), limit - n_new)
            blocks.append(
                _Block(
                    coverage=coverage,
                    next_coverage=following,
                    n_new_objects=int((now & ~old).sum()),
                    split=ObjectSplit(data.space, old),
                    known=known,
                    arrives=arrives,
                    mixed=mixed[torch.randperm(len(mixed), generator=generator)[:n_mixed]],
                    new=new[torch.randperm(len(new), generator=generator)[:n_new]],
                    n_mixed=len(mixed),
                    n_new=len(new),
                )
            )
        return cls(seed, blocks)


@dataclass
class _Moments:
    """Sums over the scenes that have arrived, on the axes."""

    n: int
    sums: Float[Tensor, "axis"]
    squares: Float[Tensor, "axis"]

    @classmethod
    def of(cls, data: EmbeddingSet, rows: Bool[Tensor, "scene"], side: SideInformation) -> _Moments:
        zero = torch.zeros_like(side.variance)
        found = cls(0, zero, zero)
        found.add(data, rows, side)
        return found

    def add(self, data: EmbeddingSet, rows: Bool[Tensor, "scene"], side: SideInformation) -> None:
        for some in rows.nonzero().squeeze(1).split(PREDICT_ROWS):
            on = data.embeddings[some].double() @ side.axes
            self.sums = self.sums + on.sum(0)
            self.squares = self.squares + on.square().sum(0)
        self.n += int(rows.sum())

    @property
    def variance(self) -> Float[Tensor, "axis"]:
        return (self.squares / self.n - (self.sums / self.n).square()).clamp(min=0)


@dataclass
class _Memory:
    """What one decoder has seen of its errors, mixed scenes and scenes of new objects apart."""

    errors: dict[str, list[tuple[int, Float[Tensor, "axis"]]]] = field(
        default_factory=lambda: {"mixed": [], "new": []}
    )
    """For each block its number of new objects and its mean of e² + delta²."""

    def variance(
        self, kind: str, spread: Float[Tensor, "axis"], side: SideInformation
    ) -> Float[Tensor, "axis"]:
        """Give sigma²; ``spread`` is s²."""
        tau, seen = side.resolution, self.errors[kind]
        explainable = (spread + side.blur - tau).clamp(min=0)
        if not seen:
            return tau + explainable
        weights = [n * FADING ** (len(seen) - 1 - b) for b, (n, _) in enumerate(seen)]
        n = math.fsum(weights)
        mean = torch.stack([w / n * m for w, (_, m) in zip(weights, seen, strict=True)]).sum(0)
        whole = float(explainable.sum())
        wrong = max(0.0, float((mean - tau).sum()) / whole) if whole else 0.0
        return torch.maximum((n * mean + tau + wrong * explainable) / (n + 1), tau)


def _code(
    name: str,
    seed: int,
    block: _Block,
    found: Approximation,
    fit: int,
    data: EmbeddingSet,
    side: SideInformation,
    spread: Float[Tensor, "axis"],
    memory: _Memory,
) -> CodeRow:
    """Code one block; then remember its errors."""
    bits: dict[str, float] = {}
    for kind, rows in (("mixed", block.mixed), ("new", block.new)):
        bits[kind] = math.nan
        if not len(rows):
            continue
        sigma = memory.variance(kind, spread, side)
        cost, errors = 0.0, torch.zeros_like(sigma)
        for some in rows.split(PREDICT_ROWS):
            predicted = found.predict(fit, data.scenes[some])
            if not bool(predicted.isfinite().all()):
                raise ValueError(
                    f"{name!r}, fitted at coverage {block.coverage:.2f} (seed {seed}), predicts embeddings that are "
                    "NaN or infinite, which no code can correct: leave it out, or start at a larger coverage"
                )
            error = (data.embeddings[some].double() - predicted.double()) @ side.axes
            squared = error.square() + side.blur
            cost += float(_bits(squared, sigma, side.resolution).sum())
            errors += squared.sum(0)
        bits[kind] = cost / len(rows)
        memory.errors[kind].append((block.n_new_objects, errors / len(rows)))
    n_scenes = block.n_mixed + block.n_new
    weighted = [n * bits[kind] for kind, n in (("mixed", block.n_mixed), ("new", block.n_new)) if n]
    return CodeRow(
        approximator=name,
        seed=seed,
        coverage=block.coverage,
        next_coverage=block.next_coverage,
        n_new_objects=block.n_new_objects,
        n_scenes=n_scenes,
        n_coded=len(block.mixed) + len(block.new),
        bits=math.fsum(weighted) / n_scenes,
        n_mixed=block.n_mixed,
        mixed_bits=bits["mixed"],
        n_new=block.n_new,
        new_bits=bits["new"],
    )


def _bits(
    squared: Float[Tensor, "scene axis"], sigma: Float[Tensor, "axis"], tau: Float[Tensor, "axis"]
) -> Float[Tensor, "scene"]:
    """Give the bits of every scene from its squared errors, sigma² and tau²."""
    return ((sigma / tau).log2() + (squared / sigma - 1) / math.log(2)).sum(1) / 2


def _quota(n_new: int, n_mixed: int, limit: int) -> int:
    """Give how many scenes of new objects to code: in proportion, but a quarter of the limit for either kind."""
    if n_new + n_mixed <= limit:
        return n_new
    wanted = max(round(limit * n_new / (n_new + n_mixed)), min(n_new, limit // 4))
    return min(n_new, wanted, limit - min(n_mixed, limit // 4))


def _masks(space: ConceptSpace, coverages: Sequence[float], seed: int) -> list[Bool[Tensor, "object"]]:
    masks = [object_split(space, c, seed=seed, every_value=False).is_train for c in coverages]
    return [*masks, torch.ones(space.n_possible_objects, dtype=torch.bool)]


def _usable_coverages(
    space: ConceptSpace, index: Int[Tensor, "scene slot"], seeds: Sequence[int]
) -> tuple[float, ...]:
    """Keep the default coverages that show every value and, for every seed, have and add scenes."""
    n_all = space.n_possible_objects
    able = [c for c in COVERAGES if max(space.n_values) <= round(c * n_all) < n_all]
    counts = [[int(mask[index].all(1).sum()) for mask in _masks(space, able, s)] for s in seeds]
    kept: list[float] = []
    before = [0] * len(seeds)
    for c, now in zip(able, zip(*(row[:-1] for row in counts), strict=True), strict=True):
        whole = [row[-1] for row in counts]
        if all(a < n < w for a, n, w in zip(before, now, whole, strict=True)):
            kept.append(c)
            before = list(now)
    if len(kept) < 2:
        raise ValueError(
            f"of the default coverages {COVERAGES} only {kept} show every value of {n_all} objects, and have and add "
            f"scenes among {len(index):,}: give coverages, at least 2, or use a larger space or more scenes"
        )
    return tuple(kept)


def _check_coverages(coverages: Sequence[float]) -> None:
    if len(coverages) < 2:
        raise ValueError(
            f"coverages must be at least 2, so that at least 2 blocks are coded, the second with what the first has "
            f"shown; got {tuple(coverages)}"
        )
    if not all(0 < c < 1 for c in coverages):
        raise ValueError(
            f"coverages lie strictly between 0 and 1; got {tuple(coverages)}. The full set is added by itself"
        )
    if any(b <= a for a, b in itertools.pairwise(coverages)):
        raise ValueError(f"coverages must increase: every block adds objects; got {tuple(coverages)}")


def _check(data: Embedded) -> None:
    check_scenes(data.space, data.scenes)
    if len(data.embeddings) != len(data.scenes):
        raise ValueError(
            f"{len(data.embeddings)} embeddings but {len(data.scenes)} scenes: give one scene for each embedding"
        )


def _centred(
    data: Embedded, mean: Float[Tensor, "dim"] | None = None
) -> tuple[Float[Tensor, "dim"], EmbeddingSet]:
    """Take off a mean, that of all embeddings by default: a large common offset would cost digits."""
    if mean is None:
        mean = data.embeddings.mean(0, dtype=torch.float64).float()
    return mean, EmbeddingSet(data.embeddings.float() - mean, data.scenes, data.space)
