"""How far do scene embeddings add up from the parts of their objects, and those from concepts (F3)?

One table for one set of embeddings: R² in sample and on held-out scenes, retrieval by the reconstruction, and what
fixed probes read off the reconstruction. R² and retrieval stand beside the same numbers for shuffled labels and for
isotropic noise, the probes beside what they read off the embeddings themselves. The last baseline, an untrained
encoder, is the same call on that encoder's embeddings.

Probes and parts must not share scenes. A part is a mean of embeddings, and holds some of their noise; a probe fitted
to the same noise would recognise it. (On pure noise, 576 scenes of 24 objects, it finds nine in ten.) So each seed's
probes are judged on sums of parts that were fitted to the other scenes only.

The geometry of the parts (how much of an object part its concepts explain, how positions and concepts lie to each
other) is in :mod:`conceptbind.analysis.part_geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.additive import (
    PREDICT_ROWS,
    AdditiveFit,
    Estimator,
    Level,
    fit_all,
    squared_errors,
)
from conceptbind.analysis.fixed_probes import FixedProbes, fit_fixed_probes
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, _numbers
from conceptbind.analysis.recognition import Recognition, plain_row, summarise
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.retrieval import Metric, retrieve

N_FOLDS = 5
N_RESAMPLES = 1000
LABELS = ("true", "shuffled", "noise")
SALT = 0xADD
"""Added to the seed that shuffles labels and draws noise, so that they do not depend on the folds."""


@dataclass(frozen=True)
class DecompositionRow:
    """Hold one line of the table. NaN where a number does not exist (``r2`` of "single" is of its own kind, below)."""

    level: Level
    estimator: Estimator
    labels: str
    """"true"; "shuffled": the scenes' labels permuted; "noise": Gaussian rows in place of the embeddings."""
    r2: float
    """On the scenes fitted. For "single", whose parts were fitted to no scene, on all scenes."""
    r2_low: float
    r2_high: float
    """95 % interval for these objects: the bootstrap over scenes with the model kept."""
    r2_held_out: float
    """Every scene predicted by a model fitted to the other four folds."""
    r2_expected: float
    """What an additive model reaches in sample when labels say nothing: (rank - 1) / (n - 1)."""
    retrieval: float
    """Share of scenes whose reconstruction is nearer to their own embedding than to any other (strictly)."""
    retrieval_low: float
    retrieval_high: float
    """95 % interval, by the bootstrap over objects, which scenes share."""
    retrieval_ties: float
    retrieval_held_out: float
    """The same with the reconstruction by a model that has not seen the scene."""
    retrieval_chance: float
    concepts: float
    """All concepts recognised in the sum of parts, by probes fitted to the embeddings of scenes that the parts were not
    fitted to."""
    objects: float
    """The same for whole objects."""
    n_scenes: int
    n_left_out: int
    """Held-out scenes with a part that the other folds never show."""
    n_parameters: int
    """Independent parameters for each dimension."""


@dataclass(frozen=True)
class Decomposition:
    """Hold what :func:`decompose` measured."""

    rows: tuple[DecompositionRow, ...]
    probed: dict[str, Recognition]
    """The probes on the real embeddings of the same scenes: what a reconstruction can reach at most."""
    settings: dict[str, Any]

    def row(self, level: Level, estimator: Estimator, *, labels: str = "true") -> DecompositionRow:
        """Give one row. Raises KeyError, naming the rows there are, when there is none."""
        for row in self.rows:
            if (row.level, row.estimator, row.labels) == (level, estimator, labels):
                return row
        known = [(r.level, r.estimator, r.labels) for r in self.rows]
        raise KeyError(f"no row {(level, estimator, labels)}; there are {known}")

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give the rows as dictionaries for a table or JSON: NaN becomes None."""
        return [plain_row(row) for row in self.rows]


def decompose(
    data: EmbeddingSet,
    *,
    levels: Sequence[Level] = ("objects", "concepts"),
    estimators: Sequence[Estimator] = ("avg", "avg+pos"),
    singles: Sequence[EmbeddingSet] | None = None,
    baselines: bool = True,
    probes: FixedProbes | bool = True,
    metric: Metric = "cosine",
    n_queries: int | None = 10_000,
    dtype: torch.dtype = torch.float64,
    seeds: Sequence[int] = (0, 1, 2),
) -> Decomposition:
    """Fit additive models and measure how well they stand for the scenes.

    ``singles``: one-object scenes; adds the estimator "single" where given. ``baselines``: also for shuffled labels and
    isotropic noise of the same mean and total variance. ``probes``: True fits them (see
    :func:`conceptbind.analysis.fixed_probes.fit_fixed_probes`) with ``seeds``. ``n_queries``: scenes whose
    reconstruction is retrieved among all, a seeded sample (None: all). ``dtype``: of the similarities; float32 is twice
    as fast, and calls cosines that differ by less than 4e-6 a tie. ``seeds[0]`` draws folds and baselines.
    Raises ValueError for fewer scenes than folds, no seed, or fewer than 1 query.
    """
    seeds = _numbers("seeds", seeds)
    if n_queries is not None and n_queries < 1:
        raise ValueError(f"n_queries must be at least 1, or None for all scenes; got {n_queries}")
    if data.n_scenes < 2 * N_FOLDS:
        raise ValueError(
            f"decomposing needs at least {2 * N_FOLDS} scenes, for {N_FOLDS} folds; got {data.n_scenes}"
        )
    if singles and "single" not in estimators:
        estimators = (*estimators, "single")
    seed = int(seeds[0])
    readers = fit_fixed_probes(data, seeds=seeds) if probes is True else probes or None
    rows = []
    for labels in LABELS if baselines else LABELS[:1]:
        # Parts of single objects are no fit: shuffling the scenes says nothing about them.
        wanted = [e for e in estimators if e != "single" or labels == "true"]
        made = _variant(data, labels, seed)
        read = readers if labels == "true" else None
        rows += _rows(made, labels, levels, wanted, singles, read, metric, n_queries, dtype, seed)
    settings = {
        "metric": metric,
        "dtype": str(dtype).removeprefix("torch."),
        "n_queries": min(n_queries or data.n_scenes, data.n_scenes),
        "n_folds": N_FOLDS,
        "seeds": list(seeds),
    }
    return Decomposition(
        tuple(rows), {} if readers is None else readers.judge(data.embeddings, data.scenes), settings
    )


def reconstruct(
    data: EmbeddingSet, fit: AdditiveFit, keep: Int[Tensor, "kept"] | None = None
) -> Float[Tensor, "kept dim"]:
    """Give the additive predictions of scenes as float32, like embeddings. Raises ValueError as predict does."""
    scenes = data.scenes if keep is None else data.scenes[keep]
    return torch.cat([fit.predict(some).float() for some in scenes.split(PREDICT_ROWS)])


def _variant(data: EmbeddingSet, labels: str, seed: int) -> EmbeddingSet:
    if labels == "true":
        return data
    generator = torch.Generator().manual_seed(seed + SALT)
    if labels == "shuffled":
        return replace(data, scenes=data.scenes[torch.randperm(data.n_scenes, generator=generator)])
    x = data.embeddings
    mean = x.mean(0, dtype=torch.float64)
    spread = float(x.var(0, correction=0).double().mean().sqrt())
    noise = torch.randn(x.shape, generator=generator) * spread + mean.float()
    return replace(data, embeddings=noise)


def _rows(
    data: EmbeddingSet,
    labels: str,
    levels: Sequence[Level],
    estimators: Sequence[Estimator],
    singles: Sequence[EmbeddingSet] | None,
    readers: FixedProbes | None,
    metric: Metric,
    n_queries: int | None,
    dtype: torch.dtype,
    seed: int,
) -> list[DecompositionRow]:
    n = data.n_scenes
    fits = fit_all(data, levels=levels, estimators=estimators, singles=singles)
    generator = torch.Generator().manual_seed(seed + 1)
    asked = torch.randperm(n, generator=generator)[: n_queries or n]
    cross = _cross_predict(data, levels, estimators, singles, asked, seed)
    read = None if readers is None else _read(data, readers, levels, estimators, singles)
    gallery, chance = data.embeddings.to(dtype), torch.full((len(asked),), 1 / n, dtype=torch.float64)
    objects = data.space.object_index(data.scenes[asked])
    rows = []
    for (level, estimator), fit in fits.items():
        residual, total = squared_errors(fit, data)
        found = retrieve(fit.predict(data.scenes[asked]).to(dtype), gallery, asked, metric=metric)
        held_out, covered, errors = cross[level, estimator]
        fresh = covered[asked]
        found_held_out = (
            float(
                retrieve(held_out[fresh].to(dtype), gallery, asked[fresh], metric=metric)
                .correct.double()
                .mean()
            )
            if bool(fresh.any())
            else math.nan
        )
        hits = summarise(found.margin, chance, objects=objects)
        r2_low, r2_high = _ratio_interval(residual, total, seed)
        whole = float(total.sum())
        rows.append(
            DecompositionRow(
                level=level,
                estimator=estimator,
                labels=labels,
                r2=1 - float(residual.sum()) / whole if whole else math.nan,
                r2_low=r2_low,
                r2_high=r2_high,
                r2_held_out=1 - float(errors[covered].sum() / total[covered].sum())
                if covered.any()
                else math.nan,
                r2_expected=math.nan if estimator == "single" else (fit.rank - 1) / (n - 1),
                retrieval=hits.accuracy,
                # Scenes that show one object twice weigh more in a resample: the percentiles may lie beside the share.
                retrieval_low=min(hits.low, hits.accuracy),
                retrieval_high=max(hits.high, hits.accuracy),
                retrieval_ties=hits.ties,
                retrieval_held_out=found_held_out,
                retrieval_chance=1 / n,
                concepts=read[level, estimator][ALL_CONCEPTS] if read else math.nan,
                objects=read[level, estimator][OBJECTS] if read else math.nan,
                n_scenes=n,
                n_left_out=n - int(covered.sum()),
                n_parameters=fit.rank,
            )
        )
    return rows


def _read(
    data: EmbeddingSet,
    readers: FixedProbes,
    levels: Sequence[Level],
    estimators: Sequence[Estimator],
    singles: Sequence[EmbeddingSet] | None,
) -> dict[tuple[Level, Estimator], dict[str, float]]:
    """Judge each seed's probes on sums of parts that were fitted to the scenes which the probes were not."""
    by_seed: dict[tuple[Level, Estimator], list[dict[str, Recognition]]] = {}
    for fit, train in enumerate(readers.train.cpu()):
        parts = fit_all(data, levels=levels, estimators=estimators, train=~train, singles=singles)
        for key, model in parts.items():
            sums = reconstruct(data, model, (~train).nonzero().squeeze(1))
            found = readers.judge_seed(fit, sums, data.scenes[~train])
            by_seed.setdefault(key, []).append(found)
    return {
        key: {head: fmean(s[head].accuracy for s in seeds) for head in (ALL_CONCEPTS, OBJECTS)}
        for key, seeds in by_seed.items()
    }


def _cross_predict(
    data: EmbeddingSet,
    levels: Sequence[Level],
    estimators: Sequence[Estimator],
    singles: Sequence[EmbeddingSet] | None,
    asked: Int[Tensor, "query"],
    seed: int,
) -> dict[tuple[Level, Estimator], tuple[Tensor, Tensor, Tensor]]:
    """Predict every scene from the other folds: predictions of those asked for, which exist, squared errors."""
    n = data.n_scenes
    place = torch.full((n,), -1)
    place[asked] = torch.arange(len(asked))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    fold = torch.empty(n, dtype=torch.int64)
    fold[order] = torch.arange(n) % N_FOLDS
    result: dict[tuple[Level, Estimator], tuple[Tensor, Tensor, Tensor]] = {}
    for f in range(N_FOLDS):
        fits = fit_all(data, levels=levels, estimators=estimators, train=fold != f, singles=singles)
        for key, fit in fits.items():
            if key not in result:
                empty = torch.zeros(len(asked), data.dim, dtype=torch.float64)
                result[key] = (empty, torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.float64))
            made, covered, errors = result[key]
            rows = (fold == f).nonzero().squeeze(1)
            rows = rows[fit.covers(data.scenes[rows])]
            for some in rows.split(PREDICT_ROWS):
                predicted = fit.predict(data.scenes[some])
                errors[some] = (data.embeddings[some].double() - predicted).square().sum(1)
                wanted = place[some] >= 0
                made[place[some][wanted]] = predicted[wanted]
            covered[rows] = True
    return result


def _ratio_interval(
    residual: Float[Tensor, "scene"], total: Float[Tensor, "scene"], seed: int
) -> tuple[float, float]:
    """Give the bootstrap interval of 1 - sum residual / sum total, by weights drawn for blocks of resamples."""
    if float(total.sum()) == 0:
        return math.nan, math.nan
    n = len(residual)
    generator = torch.Generator().manual_seed(seed)
    if n > 20_000:  # the delta method is exact enough there, and needs no draws
        ratio = residual.sum() / total.sum()
        error = (residual - ratio * total).std() / total.mean() / math.sqrt(n)
        return float(1 - ratio - 1.96 * error), float(1 - ratio + 1.96 * error)
    values = []
    for low in range(0, N_RESAMPLES, 50):
        picks = torch.randint(n, (min(50, N_RESAMPLES - low), n), generator=generator)
        values.append(1 - residual[picks].sum(1) / total[picks].sum(1))
    ends = torch.cat(values).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return float(ends[0]), float(ends[1])
