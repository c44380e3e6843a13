"""Structured products: concept vectors plus a product of concept factors for every object (paper, section 2, F8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.additive import fit_additive
from conceptbind.approximators.base import Task
from conceptbind.approximators.slot_tables import SlotTables, refuse_large, sums_of, table_error
from conceptbind.kernels.products import ProductFits, fit_products
from conceptbind.scenes import ConceptSpace

Head = Literal["linear", "none"]

Choice = tuple[int | None, float, float]
"""Rank, ridge, ridge of the sum."""

DEFAULT_RIDGE = 0.1
"""Without validation objects."""

RESTART_SALT = 0x9E3779B1
"""Between the seeds of two random starts of a fit."""

ROUGH_SWEEPS = 40
"""Fits that only rank ranks and ridges stop here, if not earlier."""


@dataclass(frozen=True)
class ObjectProduct:
    """Sum of concept vectors plus one product for each object: z_s ~ mean + sum_i (sum_k u + (v_1 * ... * v_K) C).

    The scenes of a split are all made of the same objects, so what the function says of a slot is fitted to the
    objects' parts there, found by least squares (Level I); on a full grid of training objects that is the least-squares
    fit to the scenes themselves, and elsewhere it weighs every object by its number of scenes.
    ``head``: "linear" (C is a matrix and the product has ``ranks`` factors) or "none" (every coordinate of the
    embedding is a product of its own). The rank, rank 0 among them, and the ridges are chosen on the validation
    objects; of ``restarts`` random starts the one with the lowest training error is kept.
    """

    head: Head = "linear"
    ranks: tuple[int, ...] = (1, 2, 4, 8, 16)
    ridges: tuple[float, ...] = (0.03, 0.3)
    sum_ridges: tuple[float, ...] = (0.0, 0.1, 0.5)
    restarts: int = 4

    @property
    def name(self) -> str:
        """What figures call it."""
        return "object product" if self.head == "linear" else "object product, by coordinate"

    @property
    def settings(self) -> dict[str, Any]:
        """All that determines a fit beside the task."""
        return {
            "approximator": "object product",
            "head": self.head,
            "ranks": list(self.ranks) if self.head == "linear" else None,
            "ridges": list(self.ridges),
            "sum_ridges": list(self.sum_ridges),
            "restarts": self.restarts,
        }

    def fit(self, task: Task) -> SlotTables:
        """Fit every split of the task."""
        refuse_large(task.space)
        chosen: list[Choice]
        if task.validates:
            chosen = self._choose(task)
        else:
            rank = min(self.ranks, key=lambda r: abs(r - 4)) if self.head == "linear" else None
            chosen = [(rank, DEFAULT_RIDGE, DEFAULT_RIDGE)] * task.n_fits
        parts = _Parts.of(task, task.train)
        tables: list[Tensor | None] = [None] * task.n_fits
        converged = [True] * task.n_fits
        for rank in dict.fromkeys(rank for rank, _, _ in chosen):
            fits = [f for f, choice in enumerate(chosen) if choice[0] == rank]
            ridge, ridge_sums = (
                torch.tensor([chosen[f][i] for f in fits], dtype=torch.float64) for i in (1, 2)
            )
            best = self._restarted(parts, fits, rank, ridge, ridge_sums, [task.seeds[f] for f in fits])
            for f, table, done in zip(fits, best.tables, best.converged, strict=True):
                tables[f], converged[f] = table, done
        sizes = [parts.n_parameters(f, rank) for f, (rank, _, _) in enumerate(chosen)]
        return SlotTables(
            task.space,
            parts.means,
            tuple(tables),
            tuple(sizes),
            tuple(converged),
            tuple({"rank": r, "ridge": a, "sum_ridge": b} for r, a, b in chosen),
        )

    def _choose(self, task: Task) -> list[Choice]:
        """Give every fit the rank and ridges with the lowest error on its validation scenes.

        The ridge of the sum is chosen first, without a product, then rank and ridge beside it, and then the ridge of
        the sum once more: a sum alone takes the product for noise, and wants a larger ridge than beside it. A full grid
        would take three times as long.
        """
        parts = _Parts.of(task, task.inner)
        index = task.space.object_index(task.scenes)
        outside = [sums_of(task.embeddings, index, mask) for mask in task.validation]
        every = list(range(task.n_fits))
        best: list[tuple[float, Choice]] = [(torch.inf, (0, 0.0, 0.0))] * task.n_fits

        def compare(fits: Sequence[int], rank: int | None, pairs: Sequence[tuple[float, float]]) -> None:
            ridge, ridge_sums = (torch.tensor(r, dtype=torch.float64) for r in zip(*pairs, strict=True))
            seeds = [task.seeds[f] for f in fits]
            found = self._restarted(parts, fits, rank, ridge, ridge_sums, seeds, rough=True)
            for f, table, pair in zip(fits, found.tables, pairs, strict=True):
                error = table_error(outside[f], parts.means[f], table)
                if error < best[f][0]:
                    best[f] = error, (rank, *pair)

        for b in self.sum_ridges:
            compare(every, 0, [(0.0, b)] * task.n_fits)
        of_sum = [choice[2] for _, choice in best]
        for rank in self.ranks if self.head == "linear" else (None,):
            for a in self.ridges:
                compare(every, rank, [(a, b) for b in of_sum])
        so_far = [choice for _, choice in best]
        for rank in dict.fromkeys(choice[0] for choice in so_far if choice[0] != 0):
            fits = [f for f in every if so_far[f][0] == rank]
            for b in self.sum_ridges:
                compare(fits, rank, [(so_far[f][1], b) for f in fits])
        return [choice for _, choice in best]

    def _restarted(
        self,
        parts: _Parts,
        fits: Sequence[int],
        rank: int | None,
        ridge: Float[Tensor, "fit"],
        ridge_sums: Float[Tensor, "fit"],
        seeds: Sequence[int],
        *,
        rough: bool = False,
    ) -> _Best:
        """Fit from several random starts at once and keep the best of each fit; roughly, where fits are only ranked."""
        n_starts = 1 if rank == 0 else min(2, self.restarts) if rough else self.restarts
        targets, weight, axes = parts.targets(fits, rotate=rank is not None)
        fitted = fit_products(
            targets.repeat(n_starts, 1, 1),
            parts.slots,
            parts.objects,
            weight.repeat(n_starts, 1),
            parts.space.n_values,
            rank=rank,
            ridge=ridge.to(targets).repeat(n_starts),
            ridge_sums=ridge_sums.to(targets).repeat(n_starts),
            seeds=[seed + RESTART_SALT * start for start in range(n_starts) for seed in seeds],
            max_sweeps=ROUGH_SWEEPS if rough else 200,
        )
        return _best(fitted, len(fits), parts, axes)


@dataclass(frozen=True)
class _Best:
    tables: tuple[Float[Tensor, "slot object dim"], ...]
    converged: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class _Parts:
    """The Level-I parts of the objects that some fit shows; rows are (slot, object)."""

    space: ConceptSpace
    means: tuple[Float[Tensor, "dim"], ...]
    parts: Float[Tensor, "fit row dim"]
    weight: Float[Tensor, "fit row"]
    slots: Int[Tensor, "row"]
    objects: Int[Tensor, "row concept"]

    @classmethod
    def of(cls, task: Task, train: Bool[Tensor, "fit scene"]) -> _Parts:
        fits = [fit_additive(task, train=mask) for mask in train]
        index = task.space.object_index(task.scenes)
        n_all = task.space.n_possible_objects
        counts = torch.stack(
            [
                torch.stack([torch.bincount(slot, minlength=n_all) for slot in index[mask].unbind(1)])
                for mask in train
            ]
        ).to(task.embeddings.device)
        rows = counts.flatten(1).any(0).nonzero().squeeze(1)
        return cls(
            task.space,
            tuple(f.mean for f in fits),
            torch.stack([f.parts.flatten(0, 1)[rows] for f in fits]),
            counts.flatten(1)[:, rows].double(),
            rows // n_all,
            task.space.objects_from_index(rows % n_all),
        )

    def n_parameters(self, fit: int, rank: int | None) -> int:
        """Count the numbers that the objects of one fit determine, if each value is shown by several of them.

        Not determined are a constant of every concept's sums, a scale of every factor but one, and of two concepts a
        constant of every factor: it changes the product by a sum. There are never more than of Level I.
        """
        shown = self.weight[fit] > 0
        dim, n_concepts, n_slots = self.parts.shape[2], self.space.n_concepts, int(self.slots.max()) + 1
        marks = torch.cat([self.slots[shown, None], self.objects[shown]], dim=1)
        n_values = sum(len(marks[:, [0, 1 + k]].unique(dim=0)) for k in range(n_concepts))
        total = dim * (1 + n_values - n_slots * n_concepts)
        if n_concepts > 1 and rank != 0:
            factors = n_values - n_slots * (n_concepts - 1) - (n_slots * n_concepts if n_concepts == 2 else 0)
            total += dim * factors if rank is None else rank * (factors + dim - 1)
        return min(total, dim * (1 + int(shown.sum()) - n_slots))

    def targets(
        self, fits: Sequence[int], *, rotate: bool
    ) -> tuple[Float[Tensor, "fit row axis"], Float[Tensor, "fit row"], Float[Tensor, "fit axis dim"] | None]:
        """Give the parts of some fits, on the axes that they span where that saves any.

        A rotation changes nothing for a model with a linear head: it cannot tell one basis from another.
        """
        parts, weight = self.parts[list(fits)], self.weight[list(fits)]
        n_rows, dim = parts.shape[1:]
        if not rotate or n_rows >= dim:
            return parts, weight, None
        left, singular, axes = torch.linalg.svd(parts, full_matrices=False)
        return left * singular.unsqueeze(1), weight, axes


def _best(
    fitted: ProductFits, n_fits: int, parts: _Parts, axes: Float[Tensor, "fit axis dim"] | None
) -> _Best:
    n_slots = int(parts.slots.max()) + 1
    every = parts.space.all_objects().to(parts.slots.device)
    slots = torch.arange(n_slots, device=every.device).repeat_interleave(len(every))
    objects = every.repeat(n_slots, 1)
    error = fitted.error.unflatten(0, (-1, n_fits))  # (start, fit) or (start, fit, dim)
    start = error.argmin(0)
    # Prediction by prediction: those of all starts together would not fit for large spaces.
    tables, converged = [], []
    for f in range(n_fits):
        if fitted.head is not None or error.ndim == 2:
            row = int(start[f]) * n_fits + f
            table = _one(fitted, row).predict(slots, objects, parts.space.n_values)[0]
            converged.append(bool(fitted.converged[row]))
        else:
            table = torch.zeros(len(slots), error.shape[2], dtype=torch.float64, device=error.device)
            done = fitted.converged.unflatten(0, (-1, n_fits))[:, f]
            for s in range(len(error)):
                chosen = start[f] == s
                row = _one(fitted, s * n_fits + f).predict(slots, objects, parts.space.n_values)[0]
                table[:, chosen] = row[:, chosen]
            converged.append(bool(done[start[f]].all()))
        if axes is not None:
            table = table @ axes[f]
        tables.append(table.reshape(n_slots, len(every), -1))
    return _Best(tuple(tables), tuple(converged))


def _one(fitted: ProductFits, fit: int) -> ProductFits:
    only = slice(fit, fit + 1)
    return ProductFits(
        fitted.mean[only],
        tuple(u[only] for u in fitted.sums),
        tuple(v[only] for v in fitted.factors),
        None if fitted.head is None else fitted.head[only],
        fitted.error[only],
        fitted.converged[only],
        fitted.n_sweeps,
    )
