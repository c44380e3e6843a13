"""Probe frozen embeddings for concepts and whole objects (paper, section 2, F2).

A probe is fitted to training scenes and judged by recognition on held-out scenes, beside chance and beside
the same probe fitted to shuffled labels. The remaining control, an untrained encoder, is the same call on
that encoder's embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.recognition import (
    chance_by_head,
    head_labels,
    heads,
    margins_by_head,
    plain_row,
    present,
    summarise,
)
from conceptbind.kernels.probes import DECAY, LinearProbes, Solver, fit_probes
from conceptbind.scenes import ConceptSpace, scene_split

L2_GRID = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
N_FOLDS = 5
ENOUGH_VALIDATION = 1000
"""Folds are added until so many scenes have been validated on, or all five have."""

ROUGH_TOL = 1e-2
"""Fits that only rank penalties stop here, if not earlier: it halves the time and rarely moves the choice."""

SHUFFLE_SALT = 0x5EED
"""Added to the seed that shuffles the labels, so that they do not depend on the split."""

ALL_CONCEPTS = "all concepts"
OBJECTS = "objects"


@runtime_checkable
class Embedded(Protocol):
    """Anything with embeddings and their scenes, such as conceptbind.embeddings.EmbeddingSet."""

    @property
    def embeddings(self) -> Tensor: ...
    @property
    def scenes(self) -> Tensor: ...
    @property
    def space(self) -> ConceptSpace: ...


@dataclass(frozen=True)
class ProbeRow:
    """Hold one number of a table, with all that belongs beside it. Means are over seeds."""

    head: str
    """A concept's name, "all concepts" (all of a scene's at once) or "objects"."""
    labels: str
    """"true", or "shuffled": the scenes' labels permuted."""
    scenes: str
    """"held-out" or "train"."""
    accuracy: float
    low: float
    high: float
    """The 95 % interval: means over seeds of the ends of each seed's own, as seeds share scenes."""
    by_seed: tuple[float, ...]
    chance: float
    ties: float
    margin_mean: float
    margin_median: float
    n_train: float
    n_scenes: float
    """Scenes counted."""
    n_vacuous: float
    """Scenes left out, because nothing is absent from them."""
    unseen: float
    """Share of the counted scenes that show a value, or an object, which no training scene shows."""
    accuracy_seen: float
    """Accuracy on the other scenes."""
    l2: tuple[float, ...]
    """Penalty of every seed; for "all concepts" the largest of the concepts'."""
    converged: bool


@dataclass(frozen=True)
class ProbeResult:
    """Hold what :func:`probe` measured."""

    rows: tuple[ProbeRow, ...]
    settings: dict[str, Any]

    def row(self, head: str, *, labels: str = "true", scenes: str = "held-out") -> ProbeRow:
        """Give one row. Raises KeyError, naming the heads there are, when there is none."""
        for row in self.rows:
            if (row.head, row.labels, row.scenes) == (head, labels, scenes):
                return row
        known = list(dict.fromkeys((r.head, r.labels, r.scenes) for r in self.rows))
        raise KeyError(f"no row {(head, labels, scenes)}; there are {known}")

    def __str__(self) -> str:
        """Print a table of the held-out rows."""
        lines = [f"{'head':14s} {'labels':9s} accuracy  95 % interval  chance   ties"]
        for r in self.rows:
            if r.scenes != "held-out":
                continue
            if r.n_scenes:
                numbers = f"{r.accuracy:8.3f}  {r.low:.3f} – {r.high:.3f}  {r.chance:.4f}  {r.ties:.3f}"
            else:
                numbers = f"{'–':>8s}  nothing is ever absent"
            lines.append(f"{r.head:14s} {r.labels:9s} {numbers}")
        return "\n".join(lines)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Give the rows as dictionaries for a table or JSON: NaN becomes None."""
        return [plain_row(row) for row in self.rows]


def probe(
    data: Embedded | Float[Tensor, "scene dim"],
    space: ConceptSpace | None = None,
    scenes: Int[Tensor, "scene slot concept"] | None = None,
    *,
    train_fraction: float = 0.4,
    seeds: Sequence[int] = (0, 1, 2),
    train: Bool[Tensor, "fit scene"] | None = None,
    test: Bool[Tensor, "fit scene"] | None = None,
    l2: float | None = None,
    decay: float = DECAY,
    solver: Solver = "softmax",
    controls: bool = True,
    cluster: bool = False,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    tol: float = 1e-3,
) -> ProbeResult:
    """Measure how well linear probes recognise concepts and objects on held-out scenes.

    ``data``: an EmbeddingSet, or embeddings with their ``space`` and ``scenes``. ``train``, ``test``: masks
    for one or more fits (an object-level split, say) instead of one random split of the scenes a seed;
    ``test`` defaults to all other scenes. ``seeds`` then seeds the validation folds and the shuffling, one a
    fit.
    ``l2``: the penalty; None chooses one per seed and head from ``L2_GRID`` by recognition on validation
    scenes, cut from the training scenes (up to five folds). ``decay``, ``solver``, ``tol``: see
    :func:`conceptbind.kernels.probes.fit_probes`.
    ``controls``: also fit the same probes, with the same penalties, to shuffled labels.
    ``cluster``: intervals by the bootstrap over objects, for scenes that share few objects.
    ``device``: where to compute; None means where the embeddings are.
    Raises ValueError for missing or mismatched inputs, for a scene that is in both training and test, and for
    a concept named "objects" or "all concepts".
    """
    seeds = _numbers("seeds", seeds)
    x, space, scenes = _unpack(data, space, scenes, device)
    train, test = (m.to(x.device) for m in _masks(len(x), train_fraction, seeds, train, test))
    settings = {
        "train_fraction": float(train.double().mean()),
        "seeds": list(seeds),
        "l2": l2,
        "decay": decay,
        "solver": solver,
        "cluster": cluster,
        "tol": tol,
        "dtype": str(dtype).removeprefix("torch."),
        "device": x.device.type,
    }
    fit = {"decay": decay, "solver": solver, "dtype": dtype, "tol": tol}
    rows = _probe_all(x, space, scenes, train, test, seeds, l2, controls, cluster, fit)
    return ProbeResult(tuple(rows), settings)


def learning_curve(
    data: Embedded | Float[Tensor, "scene dim"],
    space: ConceptSpace | None = None,
    scenes: Int[Tensor, "scene slot concept"] | None = None,
    *,
    n_train: Sequence[int],
    n_test: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    l2: float | None = None,
    decay: float = DECAY,
    solver: Solver = "softmax",
    controls: bool = False,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    tol: float = 1e-3,
) -> dict[int, ProbeResult]:
    """Probe with growing numbers of training scenes, judged on the same test scenes.

    For every seed the scenes are put in a random order: the first n of ``n_train`` train, the last ``n_test``
    (all but the largest n by default) test. All sizes and seeds are fitted together. Arguments as in
    :func:`probe`.
    Raises ValueError as :func:`probe` does, and when training and test scenes would overlap.
    """
    seeds = _numbers("seeds", seeds)
    x, space, scenes = _unpack(data, space, scenes, device)
    n_train = tuple(dict.fromkeys(_numbers("n_train", n_train)))
    n_test = len(x) - max(n_train) if n_test is None else n_test
    if min(n_train) < 1 or n_test < 1 or max(n_train) + n_test > len(x):
        raise ValueError(
            f"n_train {n_train} and n_test {n_test} do not fit {len(x)} scenes: each must be at least 1, and "
            "the largest n_train plus n_test at most the number of scenes"
        )
    ranks = torch.stack(
        [torch.randperm(len(x), generator=torch.Generator().manual_seed(s)).argsort() for s in seeds]
    )
    ranks = ranks.to(x.device)
    train = torch.cat([ranks < n for n in n_train])
    test = (ranks >= len(x) - n_test).repeat(len(n_train), 1)
    fit = {"decay": decay, "solver": solver, "dtype": dtype, "tol": tol}
    every = list(seeds) * len(n_train)
    groups = [range(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(n_train))]
    rows = _probe_all(x, space, scenes, train, test, every, l2, controls, False, fit, groups)
    per_size = len(rows) // len(n_train)
    return {
        n: ProbeResult(
            tuple(rows[i * per_size : (i + 1) * per_size]),
            {
                "n_train": n,
                "n_test": n_test,
                "seeds": list(seeds),
                "l2": l2,
                "decay": decay,
                "solver": solver,
            },
        )
        for i, n in enumerate(n_train)
    }


def probe_scores(
    data: Embedded | Float[Tensor, "scene dim"],
    space: ConceptSpace | None = None,
    scenes: Int[Tensor, "scene slot concept"] | None = None,
    *,
    train_fraction: float = 0.4,
    seed: int = 0,
    l2: float | None = None,
    tol: float = 1e-3,
) -> Float[Tensor, "scene query"]:
    """Fit the probes of one seed, as :func:`probe` does, and give their scores of every scene.

    Training scenes are among them. The columns are the queries: values of concept 1, ..., of concept K, objects.
    Raises ValueError for missing or mismatched inputs, as :func:`probe` does.
    """
    x, space, scenes = _unpack(data, space, scenes, None)
    train, _ = _masks(len(x), train_fraction, (seed,), None, None)
    sizes = tuple(h.stop - h.start for h in heads(space))
    penalty = select_l2(x, space, scenes, train, seeds=(seed,), tol=tol) if l2 is None else l2
    return fit_probes(x, head_labels(space, scenes), sizes, train, l2=penalty, tol=tol).scores(x)[0]


def select_l2(
    x: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    train: Bool[Tensor, "fit scene"],
    *,
    seeds: Sequence[int],
    grid: Sequence[float] = L2_GRID,
    **fit: Any,
) -> Float[Tensor, "fit head"]:
    """Choose the penalty of every fit and head by recognition on validation scenes.

    A fifth of the training scenes, never a test scene, validates a fit to the rest; up to ``N_FOLDS`` such
    folds are used, as many as give ``ENOUGH_VALIDATION`` validation scenes. All folds and penalties are
    fitted together. Of equal penalties the largest wins. ``fit``: arguments of fit_probes. Raises ValueError
    for fewer than 2 training scenes.
    """
    n_fits = len(train)
    smallest = int(train.sum(1).min())
    if smallest < 2:
        raise ValueError("choosing l2 needs at least 2 training scenes a fit, to cut one off: pass l2")
    n_folds = min(N_FOLDS, smallest, math.ceil(ENOUGH_VALIDATION * N_FOLDS / smallest))
    folds = torch.stack(
        [_folds(mask, min(N_FOLDS, smallest), seed) for mask, seed in zip(train, seeds, strict=True)]
    )
    validate = torch.stack([folds == f for f in range(n_folds)], dim=1)  # (fit, fold, scene)
    inner = train.unsqueeze(1) & ~validate
    labels, sizes = head_labels(space, scenes), tuple(h.stop - h.start for h in heads(space))
    correct = torch.zeros(n_fits, len(grid), len(sizes), dtype=torch.float64)
    fit["tol"] = max(ROUGH_TOL, fit.get("tol", 0.0))
    penalties = torch.tensor(grid, dtype=torch.float64, device=x.device)
    # One fit at a time bounds the weights in memory; its folds and penalties are computed together.
    for i in range(n_fits):
        probes = fit_probes(
            x,
            labels,
            sizes,
            inner[i].repeat_interleave(len(grid), 0),
            l2=penalties.repeat(n_folds).unsqueeze(1).expand(-1, len(sizes)),
            **fit,
        )
        for j in range(n_folds * len(grid)):
            margins = probe_margins(probes, j, x, space, scenes, validate[i, j // len(grid)])
            counted = margins != math.inf
            correct[i, j % len(grid)] += ((margins > 0) & counted).sum(1).cpu()
    # Summed over folds; flipped, so that argmax takes the largest penalty among equals.
    order = penalties.argsort(descending=True)
    return penalties[order][correct[:, order.cpu()].argmax(1).to(x.device)]


def _probe_all(
    x: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    train: Bool[Tensor, "fit scene"],
    test: Bool[Tensor, "fit scene"],
    seeds: Sequence[int],
    l2: float | None,
    controls: bool,
    cluster: bool,
    fit: dict[str, Any],
    groups: Sequence[Sequence[int]] | None = None,
) -> list[ProbeRow]:
    reserved = {ALL_CONCEPTS, OBJECTS}.intersection(space.concepts)
    if reserved:
        raise ValueError(
            f"concepts {space.concepts}: {sorted(reserved)} are names of rows in a probe's table; rename the concept"
        )
    groups = [range(len(train))] if groups is None else groups
    sizes = tuple(h.stop - h.start for h in heads(space))
    if l2 is None:
        penalty = select_l2(x, space, scenes, train, seeds=seeds, **fit)
    else:
        penalty = torch.full((len(train), len(sizes)), l2, dtype=torch.float64, device=x.device)
    every_scenes = {"true": [scenes] * len(train)}
    if controls:
        every_scenes["shuffled"] = [scenes[_shuffle(len(x), s)] for s in seeds]
    n_kinds = len(every_scenes)
    labels = torch.stack([head_labels(space, s) for kind in every_scenes.values() for s in kind])
    probes = fit_probes(x, labels, sizes, train.repeat(n_kinds, 1), l2=penalty.repeat(n_kinds, 1), **fit)
    summaries = [
        _summaries(
            probes,
            k * len(train) + i,
            x,
            space,
            shown[i],
            train[i],
            {"held-out": test[i], "train": train[i]},
            cluster,
        )
        for k, shown in enumerate(every_scenes.values())
        for i in range(len(train))
    ]
    rows = []
    for group in groups:
        for k, kind in enumerate(every_scenes):
            of_group = [summaries[k * len(train) + i] for i in group]
            rows += [
                _row([s[key] for s in of_group], head=key[0], labels=kind, scenes=key[1])
                for key in of_group[0]
            ]
    return rows


def _summaries(
    probes: LinearProbes,
    fit: int,
    x: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    train: Bool[Tensor, "scene"],
    sides: dict[str, Bool[Tensor, "scene"]],
    cluster: bool,
) -> dict[tuple[str, str], dict[str, Any]]:
    """Summarise one fit for every head and side."""
    names = (*space.concepts, ALL_CONCEPTS, OBJECTS)
    result = {}
    seen = present(space, scenes[train]).any(0)
    for side, rows in sides.items():
        shown = scenes[rows]
        marks = present(space, shown)
        margins = probe_margins(probes, fit, x, space, scenes, rows)
        chance = chance_by_head(space, marks)
        unseen = torch.stack([(marks[:, h] & ~seen[h]).any(1) for h in heads(space)])
        l2, converged = probes.l2[fit], probes.converged[fit]
        # Before the last head, the objects, goes the one that asks for all concepts of a scene at once.
        margins = torch.cat([margins[:-1], margins[:-1].amin(0, keepdim=True), margins[-1:]])
        chance = torch.cat([chance[:-1], chance[:-1].prod(0, keepdim=True), chance[-1:]])
        unseen = torch.cat([unseen[:-1], unseen[:-1].any(0, keepdim=True), unseen[-1:]])
        l2 = torch.cat([l2[:-1], l2[:-1].amax(0, keepdim=True), l2[-1:]])
        converged = torch.cat([converged[:-1], converged[:-1].all(0, keepdim=True), converged[-1:]])
        objects = space.object_index(shown) if cluster else None
        for i, name in enumerate(names):
            counted = margins[i] != math.inf
            known = counted & ~unseen[i]
            result[name, side] = {
                **summarise(margins[i], chance[i], objects=objects).as_dict(),
                "n_train": int(train.sum()),
                "unseen": _mean(unseen[i][counted].double()),
                "accuracy_seen": _mean((margins[i][known] > 0).double()),
                "l2": float(l2[i]),
                "converged": bool(converged[i]),
            }
    return result


def _row(of_seeds: list[dict[str, Any]], **names: str) -> ProbeRow:
    def mean(key: str) -> float:
        return _mean(torch.tensor([s[key] for s in of_seeds], dtype=torch.float64))

    averaged = "accuracy low high chance ties margin_mean margin_median "
    averaged += "n_train n_scenes n_vacuous unseen accuracy_seen"
    return ProbeRow(
        **names,
        **{key: mean(key) for key in averaged.split()},
        by_seed=tuple(s["accuracy"] for s in of_seeds),
        l2=tuple(s["l2"] for s in of_seeds),
        converged=all(s["converged"] for s in of_seeds),
    )


def probe_margins(
    probes: LinearProbes,
    fit: int,
    x: Float[Tensor, "scene dim"],
    space: ConceptSpace,
    scenes: Int[Tensor, "scene slot concept"],
    rows: Bool[Tensor, "scene"],
) -> Float[Tensor, "head row"]:
    """Give the margins of one fit on some scenes, for every head, in blocks of scenes.

    The heads are concept 1, ..., concept K, and the objects. Raises ValueError as
    :func:`conceptbind.analysis.recognition.scene_margins` does.
    """
    weight, bias = probes.weight[fit], probes.bias[fit]
    blocks = []
    for index in rows.nonzero().squeeze(1).split(max(1, 2**22 // len(bias))):
        scores = x[index].to(weight) @ weight + bias
        blocks.append(margins_by_head(space, scores, present(space, scenes[index].to(scores.device))))
    return torch.cat(blocks, dim=1)


def _unpack(
    data: Any,
    space: ConceptSpace | None,
    scenes: Int[Tensor, "scene slot concept"] | None,
    device: str | torch.device | None,
) -> tuple[Float[Tensor, "scene dim"], ConceptSpace, Int[Tensor, "scene slot concept"]]:
    if isinstance(data, Tensor):
        if space is None or scenes is None:
            raise ValueError("embeddings alone do not say what they show: pass their space and scenes, too")
        x = data
    elif isinstance(data, Embedded):
        if space is not None or scenes is not None:
            raise ValueError("an embedding set brings its own space and scenes: leave these out")
        x, space, scenes = data.embeddings, data.space, data.scenes
    else:
        raise ValueError(
            f"data must be an EmbeddingSet or a torch tensor; got {type(data).__name__}: "
            "torch.as_tensor(...) makes a tensor of an array"
        )
    if x.ndim != 2 or not x.is_floating_point():
        raise ValueError(
            f"embeddings must be floating-point numbers (scene, dim); got {x.dtype} of shape {tuple(x.shape)}: "
            "convert them with .float(), and give one row for each scene"
        )
    if len(x) != len(scenes):
        raise ValueError(f"{len(x)} embeddings but {len(scenes)} scenes: give one scene for each embedding")
    device = x.device if device is None else device
    return x.detach().to(device), space, scenes.to(device)


def _numbers(name: str, values: Any) -> tuple[int, ...]:
    """Give several integers as a tuple. Raises ValueError for a single number, or none."""
    if not hasattr(values, "__iter__"):
        raise ValueError(f"{name} must hold several numbers; got {values}: write ({values},) for one")
    values = tuple(int(v) for v in values)
    if not values:
        raise ValueError(f"{name} is empty: give at least one")
    return values


def _masks(
    n_scenes: int,
    train_fraction: float,
    seeds: Sequence[int],
    train: Bool[Tensor, "fit scene"] | None,
    test: Bool[Tensor, "fit scene"] | None,
) -> tuple[Bool[Tensor, "fit scene"], Bool[Tensor, "fit scene"]]:
    if train is None:
        if test is not None:
            raise ValueError("test scenes without training scenes: pass train, too")
        train = torch.stack([scene_split(n_scenes, train_fraction=train_fraction, seed=s) for s in seeds])
    test = ~train if test is None else test
    if train.shape != (len(seeds), n_scenes) or test.shape != train.shape:
        raise ValueError(
            f"train {tuple(train.shape)} and test {tuple(test.shape)} must both be (fit, scene) = "
            f"({len(seeds)}, {n_scenes}): one mask for each of the seeds {tuple(seeds)}"
        )
    if bool((train & test).any()):
        raise ValueError("some scenes are in both train and test: a probe must be judged on other scenes")
    if not bool(train.any(1).all() and test.any(1).all()):
        raise ValueError("every fit needs at least one training scene and one test scene")
    return train, test


def _folds(train: Bool[Tensor, "scene"], n_folds: int, seed: int) -> Int[Tensor, "scene"]:
    """Number the validation fold of every training scene; -1 elsewhere."""
    folds = torch.full(train.shape, -1)
    index = train.cpu().nonzero().squeeze(1)
    order = torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))
    folds[index[order]] = torch.arange(len(index)) % n_folds
    return folds.to(train.device)


def _shuffle(n: int, seed: int) -> Int[Tensor, "scene"]:
    # The split draws its permutation from the seed itself: the same one would tie the labels to the split.
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed + SHUFFLE_SALT))


def _mean(values: Float[Tensor, "value"]) -> float:
    return float(values.mean()) if len(values) else math.nan
