"""Additive models of scene embeddings (paper, section 2, F3).

With z_s the embedding of scene s = (o_1 ... o_m) and mu the mean embedding,

    Level I    z_s ~ mu + sum_i u_{o_i}                a part for every object
    Level II   z_s ~ mu + sum_i sum_k u_{c_ik}         a part for every value of every concept

and *with position* each slot i has parts of its own, u_{i,o} or u_{i,c}. The paper's estimators of u_o:

``avg``      the mean of the centred scenes that contain o (a scene that shows o twice counts twice)
``avg+pos``  the mean of the centred scenes with o in slot i
``single``   the centred embedding of a scene that shows o alone

On a balanced grid of scenes the first two means *are* the least-squares solution. On any other set of scenes
they are not (a red circle that is mostly met beside squares would be credited with them), and here the
least-squares problem is solved, by default, exactly.

Gauge: parts can be shifted against each other without changing any prediction. Here the least-norm solution is
taken, and then the parts of every group (all objects, or all values of a concept; of one slot when positions
are kept) are shifted so that their mean over the fitted scenes is zero. Then the intercept is the mean scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.probing import Embedded
from conceptbind.kernels.scene_sums import SceneSums, scene_sums
from conceptbind.scenes import ConceptSpace, check_scenes

Level = Literal["objects", "concepts"]
Estimator = Literal["avg", "avg+pos", "single"]
Solver = Literal["least squares", "means"]

PREDICT_ROWS = 8192
"""Scenes worked on at once in float64, where only a summary of them, or their float32, is kept."""


@dataclass(frozen=True, eq=False)
class AdditiveFit:
    """Hold an additive model: what every object adds to a scene."""

    space: ConceptSpace
    level: Level
    estimator: Estimator
    mean: Float[Tensor, "dim"]
    """The intercept, float64."""
    parts: Float[Tensor, "slot_or_one part dim"]
    """float64. Level I: one part an object index; Level II: the values of concept 1, ..., of concept K. One
    set for all slots unless the estimator keeps positions."""
    shown: Bool[Tensor, "slot_or_one part"]
    """Parts that the fitted scenes show; the others are zero and no prediction may use them."""
    n_slots: int
    n_scenes: int
    rank: int
    """Independent parameters that the scenes determine, for each dimension, the intercept among them."""
    n_undetermined: int
    """Directions, beyond the gauge, that the fitted scenes leave open; the least-norm solution has 0 there."""
    r2: float
    """On the fitted scenes; for ``single``, NaN."""

    @property
    def keeps_positions(self) -> bool:
        """Whether every slot has parts of its own."""
        return len(self.parts) > 1

    def object_parts(self) -> Float[Tensor, "slot_or_one object dim"]:
        """Give what each of the |O| objects adds; on Level II the sum of its concept parts."""
        if self.level == "objects":
            return self.parts
        return self.parts[:, _value_index(self.space, self.space.all_objects()).to(self.parts.device)].sum(2)

    def objects_shown(self) -> Bool[Tensor, "slot_or_one object"]:
        """Mark the objects whose part, or all of whose concept parts, the fitted scenes show."""
        if self.level == "objects":
            return self.shown
        return self.shown[:, _value_index(self.space, self.space.all_objects()).to(self.shown.device)].all(2)

    def contribution(
        self, scenes: Int[Tensor, "scene slot concept"], slot: int | None = None
    ) -> Float[Tensor, "scene dim"]:
        """Give the sum of the parts of every scene, without the mean, in float64; of one slot, or of all.

        Raises ValueError for a scene of more slots than were fitted with positions, or one that shows an
        object or value which no fitted scene shows in that slot, naming it.
        """
        check_scenes(self.space, scenes, may_be_empty=True)
        scenes = scenes.to(self.parts.device)
        if self.keeps_positions and scenes.shape[1] != self.n_slots:
            raise ValueError(
                f"the parts belong to the slots of scenes with {self.n_slots} objects; these have {scenes.shape[1]}: "
                "use the estimator 'avg' or 'single', which keeps no positions"
            )
        total = torch.zeros(len(scenes), self.parts.shape[2], dtype=torch.float64, device=self.parts.device)
        for i in range(scenes.shape[1]) if slot is None else (slot,):
            at = i if self.keeps_positions else 0
            index = self._part_index(scenes[:, i])
            self._require_shown(scenes[:, i], index, at)
            for column in index.unbind(1):
                total += self.parts[at, column]
        return total

    def predict(self, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Give mu plus the parts of every scene, in float64. Raises ValueError as :meth:`contribution` does."""
        return self.contribution(scenes) + self.mean

    def covers(self, scenes: Int[Tensor, "scene slot concept"]) -> Bool[Tensor, "scene"]:
        """Mark the scenes that can be predicted: all their parts were shown in the fitted scenes."""
        ok = torch.ones(len(scenes), dtype=torch.bool, device=self.parts.device)
        for i in range(scenes.shape[1]):
            at = i if self.keeps_positions else 0
            ok &= self.shown[at][self._part_index(scenes[:, i].to(self.parts.device))].all(1)
        return ok

    def permuted(self, *, seed: int) -> AdditiveFit:
        """Give the same parts under wrong names: the control of removal and editing.

        Level I: the parts of the objects shown are moved along a random cycle, so that none keeps its own;
        Level II the same within each concept. The same permutation in every slot. Parts that are not shown in every
        slot are gone.
        Raises ValueError when a group has fewer than 2 parts that are shown in every slot.
        """
        generator = torch.Generator().manual_seed(seed)
        parts, shown = torch.zeros_like(self.parts), self.shown.all(0)
        for group in self._groups():
            names = torch.arange(group.start, group.stop, device=parts.device)[shown[group]]
            if len(names) < 2:
                raise ValueError(
                    f"fewer than 2 parts of a group are shown in every slot: nothing to permute ({group})"
                )
            cycle = names[torch.randperm(len(names), generator=generator).to(names.device)]
            parts[:, cycle] = self.parts[:, cycle.roll(1)]
        kept = shown.expand_as(self.shown).clone()
        return AdditiveFit(**{**self.__dict__, "parts": parts, "shown": kept, "r2": torch.nan})

    def _groups(self) -> list[slice]:
        return part_groups(self.space, self.level)

    def _part_index(self, objects: Int[Tensor, "scene concept"]) -> Int[Tensor, "scene term"]:
        if self.level == "objects":
            return self.space.object_index(objects).unsqueeze(1)
        return _value_index(self.space, objects)

    def _require_shown(self, objects: Tensor, index: Tensor, at: int) -> None:
        unknown = (~self.shown[at][index]).any(1).nonzero().squeeze(1)
        if len(unknown):
            where = f" in slot {at}" if self.keeps_positions else ""
            name = self.space.describe(objects[unknown[0]])
            raise ValueError(
                f"{len(unknown)} scenes show an object that has no part, the first {name!r}{where}: no fitted scene "
                "shows it. Fit on more scenes, drop these (see covers), or use level='concepts'"
            )


def part_groups(space: ConceptSpace, level: Level) -> list[slice]:
    """Give the slices of the parts that belong together: all objects, or the values of each concept."""
    if level == "objects":
        return [slice(0, space.n_possible_objects)]
    starts = [sum(space.n_values[:k]) for k in range(space.n_concepts)]
    return [slice(a, a + v) for a, v in zip(starts, space.n_values, strict=True)]


def fit_additive(
    data: Embedded,
    *,
    level: str = "objects",
    estimator: str = "avg+pos",
    train: Bool[Tensor, "_scene"] | None = None,
    solver: str = "least squares",
    singles: Sequence[Embedded] | None = None,
) -> AdditiveFit:
    """Fit one additive model. See :func:`fit_all` for several at the cost of one.

    ``estimator``: "avg", "avg+pos", or "single", which needs ``singles`` (see :func:`fit_single`). ``train``: the
    scenes to fit on (all by default). ``solver``: "least squares", or "means" for the plain means of the paper, which
    differ where the scenes are not balanced.
    Raises ValueError for an unknown level, estimator or solver, or a mask of the wrong length or kind.
    """
    return fit_all(
        data, levels=(level,), estimators=(estimator,), train=train, solver=solver, singles=singles
    )[level, estimator]


def fit_all(
    data: Embedded,
    *,
    levels: Sequence[str] = ("objects", "concepts"),
    estimators: Sequence[str] = ("avg", "avg+pos"),
    train: Bool[Tensor, "_scene"] | None = None,
    solver: str = "least squares",
    singles: Sequence[Embedded] | None = None,
) -> dict[tuple[Level, Estimator], AdditiveFit]:
    """Fit several levels and estimators in one pass over the embeddings; arguments as in :func:`fit_additive`."""
    _one_of("level", levels, ("objects", "concepts"))
    _one_of("estimator", estimators, ("avg", "avg+pos", "single"))
    _one_of("solver", (solver,), ("least squares", "means"))
    embeddings, scenes = _training_rows(data, train)
    sums = scene_sums(embeddings, data.space.object_index(scenes).to(embeddings.device))
    fits: dict[tuple[Level, Estimator], AdditiveFit] = {}
    for level in levels:
        for estimator in estimators:
            if estimator == "single":
                if singles is None:
                    raise ValueError(
                        "the estimator 'single' needs singles=[...]: embedding sets of scenes with one object each"
                    )
                fits[level, estimator] = fit_single(singles, sums.mean, level=level)
                if fits[level, estimator].space != data.space:
                    raise ValueError("the single objects and the scenes belong to different concept spaces")
            else:
                fits[level, estimator] = _solve(data.space, sums, level, estimator, solver)
    return fits


def fit_single(
    singles: Sequence[Embedded], mean: Float[Tensor, "dim"], *, level: Level = "objects"
) -> AdditiveFit:
    """Take the parts from scenes with one object each: u_o = z(o alone) - their mean.

    ``singles``: one or more embedding sets of one-slot scenes that show the same objects (the object at the left
    place, the object at the right place): they are averaged. ``mean``: the intercept, the mean of the scenes that the
    parts are to explain. On Level II the object parts are split by a least-squares fit.
    Raises ValueError for scenes of more than one object, an object shown twice in one set, or sets that disagree.
    """
    if not isinstance(singles, Sequence) or not singles:
        raise ValueError(
            "singles must be a list of at least one embedding set of scenes with one object each"
        )
    space = singles[0].space
    names = space.object_index(singles[0].scenes[:, 0]).sort().values
    rows = 0.0
    for some in singles:
        if some.scenes.shape[1] != 1:
            raise ValueError(
                f"single-object scenes have one slot; got scenes with {some.scenes.shape[1]} objects"
            )
        if some.embeddings.shape[1] != len(mean):
            raise ValueError(
                f"single objects have {some.embeddings.shape[1]} dimensions, the scenes {len(mean)}: embed both by "
                "one encoder"
            )
        if some.space != space:
            raise ValueError("the sets of single objects belong to different concept spaces")
        index = space.object_index(some.scenes[:, 0])
        shown, count = index.unique(return_counts=True)
        if int(count.max()) > 1:
            twice = space.objects_from_index(shown[count > 1][:1])[0]
            raise ValueError(f"a set of single objects shows {space.describe(twice)!r} more than once")
        if not torch.equal(shown, names):
            raise ValueError("the sets of single objects show different objects")
        rows = rows + some.embeddings[index.argsort()].double() / len(singles)
    plain = scene_sums(rows, names.unsqueeze(1).to(rows.device))
    fit = _solve(space, plain, level, "avg", "least squares")
    values = {
        **fit.__dict__,
        "mean": mean.double().to(fit.parts.device),
        "estimator": "single",
        "r2": torch.nan,
    }
    return AdditiveFit(**values)


def r_squared(fit: AdditiveFit, data: Embedded, *, keep: Bool[Tensor, "_scene"] | None = None) -> float:
    """Give 1 - sum |z - prediction|² / sum |z - mean|² over the kept scenes, around *their* mean.

    Negative when the model predicts worse than the mean of the judged scenes. NaN when all embeddings are equal.
    Raises ValueError when a kept scene shows a part that the fit has not seen.
    """
    residual, total = squared_errors(fit, data, keep=keep)
    whole = float(total.sum())
    return 1 - float(residual.sum()) / whole if whole > 0 else torch.nan


def squared_errors(
    fit: AdditiveFit, data: Embedded, *, keep: Bool[Tensor, "_scene"] | None = None
) -> tuple[Float[Tensor, "kept"], Float[Tensor, "kept"]]:
    """Give |z - prediction|² and |z - mean|² of every kept scene: for intervals by resampling scenes."""
    embeddings, scenes = _training_rows(data, keep)
    mean = embeddings.mean(0, dtype=torch.float64)
    residual, total = [], []
    for low in range(0, len(scenes), PREDICT_ROWS):
        z = embeddings[low : low + PREDICT_ROWS].double()
        residual.append((z - fit.predict(scenes[low : low + PREDICT_ROWS])).square().sum(1))
        total.append((z - mean).square().sum(1))
    return torch.cat(residual), torch.cat(total)


def _solve(
    space: ConceptSpace, sums: SceneSums, level: Level, estimator: Estimator, solver: Solver
) -> AdditiveFit:
    """Solve the normal equations of one level and estimator from the sums over scenes."""
    n_slots, n_present, dim = sums.sums.shape
    groups = part_groups(space, level)
    n_parts = groups[-1].stop
    # Only parts that occur are unknowns of the equations. Counted by incidence: a scene that shows a part twice
    # counts twice.
    present, normal, right, counts = sums.objects, sums.together, sums.sums, sums.counts
    n_sets = n_slots
    if estimator != "avg+pos":
        n_sets = 1
        normal, right, counts = normal.sum((0, 2))[None, :, None], right.sum(0)[None], counts.sum(0)[None]
    if level == "concepts":
        objects = space.objects_from_index(present.cpu()).to(right.device)
        present, local = _value_index(space, objects).unique(return_inverse=True)
        spread = torch.zeros(n_present, len(present), dtype=torch.float64, device=right.device)
        spread.scatter_(1, local, 1.0)
        normal = torch.einsum("op,ioje,eq->ipjq", spread, normal, spread)
        right = torch.einsum("op,iod->ipd", spread, right)
        counts = torch.einsum("op,io->ip", spread, counts)
    of_group = torch.stack([(present >= g.start) & (present < g.stop) for g in groups])
    q = n_sets * len(present)
    normal, right, counts = normal.reshape(q, q), right.reshape(q, dim), counts.reshape(q)
    member = torch.block_diag(*[of_group.double()] * n_sets).bool()  # (set * group, q)
    centred = normal - torch.outer(counts, counts) / sums.n_scenes
    appears = counts > 0
    theta = right / counts.clamp(min=1).unsqueeze(1)
    n_gauge = int((member & appears).any(1).sum())
    balanced = _means_solve(centred, counts, member)
    if balanced:
        rank = int(appears.sum()) - n_gauge
    else:
        rank, solution = _least_norm(centred, right, scale=float(counts.max()))
        if solver == "least squares":
            theta = solution
    for rows in member:
        weight = counts * rows
        theta = theta - rows.unsqueeze(1) * (weight @ theta / weight.sum().clamp(min=1))
    theta = theta * appears.unsqueeze(1)
    explained = 2 * (theta * right).sum()
    if balanced or solver == "least squares":
        explained = explained / 2  # the normal equations hold: <theta, M theta> = <theta, right>
    else:
        explained = explained - (theta * (centred @ theta)).sum()
    parts = torch.zeros(n_sets, n_parts, dim, dtype=torch.float64, device=theta.device)
    shown = torch.zeros(n_sets, n_parts, dtype=torch.bool, device=theta.device)
    parts[:, present] = theta.reshape(n_sets, len(present), dim)
    shown[:, present] = appears.reshape(n_sets, len(present))
    return AdditiveFit(
        space=space,
        level=level,
        estimator=estimator,
        mean=sums.mean,
        parts=parts,
        shown=shown,
        n_slots=n_slots,
        n_scenes=sums.n_scenes,
        rank=rank + 1,
        n_undetermined=int(appears.sum()) - n_gauge - rank,
        r2=float(explained / sums.total) if sums.total > 0 else torch.nan,
    )


def _means_solve(
    centred: Float[Tensor, "part part"], counts: Float[Tensor, "part"], member: Bool[Tensor, "group part"]
) -> bool:
    """Say whether the means of the centred scenes solve the normal equations M theta = right.

    With theta = right / counts this asks (M - diag(counts)) theta = 0. In each group sum_v counts_v theta_v = 0, so it
    holds when the rows of M - diag(counts) are, within each group, proportional to the counts: true on balanced grids.
    """
    shown = counts > 0
    rest = (centred - counts.diag()) / counts.clamp(min=1)
    scale = 1e-9
    for rows in member:
        block = rest[:, rows & shown]
        if block.numel() and float((block.amax(1) - block.amin(1)).amax()) > scale:
            return False
    return True


def _least_norm(
    matrix: Float[Tensor, "part part"], right: Float[Tensor, "part dim"], *, scale: float
) -> tuple[int, Float[Tensor, "part dim"]]:
    """Solve a positive semi-definite system by its eigenvectors; directions without weight stay at 0."""
    weights, vectors = torch.linalg.eigh(matrix)
    # Entries are counts of about ``scale``: true eigenvalues are far above rounding, null directions at its level.
    kept = weights > 8 * len(weights) * torch.finfo(weights.dtype).eps * scale
    inverse = torch.where(kept, 1 / weights.where(kept, torch.ones_like(weights)), 0.0)
    return int(kept.sum()), vectors @ (inverse.unsqueeze(1) * (vectors.T @ right))


def _value_index(
    space: ConceptSpace, objects: Int[Tensor, "*batch concept"]
) -> Int[Tensor, "*batch concept"]:
    offsets = torch.tensor([sum(space.n_values[:k]) for k in range(space.n_concepts)], device=objects.device)
    return objects + offsets


def _training_rows(data: Embedded, train: Tensor | None) -> tuple[Tensor, Tensor]:
    if train is None:
        return data.embeddings, data.scenes
    if train.dtype != torch.bool or train.shape != (len(data.scenes),):
        raise ValueError(
            f"the mask of scenes must be bool of shape ({len(data.scenes)},); got {train.dtype} {tuple(train.shape)}"
        )
    if not bool(train.any()):
        raise ValueError("the mask keeps no scene: mark at least one")
    return data.embeddings[train.to(data.embeddings.device)], data.scenes[train.to(data.scenes.device)]


def _one_of(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}; got {name!r}")
