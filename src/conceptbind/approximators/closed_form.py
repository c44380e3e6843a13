"""Approximators with a closed form: the anchors below which no well-fitted function of more freedom may stay.

``Additive`` adds one vector for every value, found by least squares. ``ObjectTable`` adds to these one vector for every
object, the full interaction within objects; both are held back by a ridge, since a table alone knows nothing of new
objects. What it says about a held-out object is its sum of concepts. ``PairTable`` adds one vector for every pair of
values within an object instead: with two concepts that is the object table, with more it knows of a new object what its
pairs tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from conceptbind.analysis.additive import fit_additive
from conceptbind.approximators.base import Task
from conceptbind.approximators.slot_tables import SlotTables, refuse_large, sums_of, table_error
from conceptbind.kernels.scene_sums import SceneSums
from conceptbind.scenes import ConceptSpace

SUM_RIDGES = (1e-6, 0.1, 0.3, 1.0, 3.0)
OBJECT_RIDGES = (0.01, 0.1, 1.0, 10.0)
DEFAULT_RIDGES = (0.1, 0.1)
"""Without validation objects."""


@dataclass(frozen=True)
class Additive:
    """Sum of concept vectors: z_s ~ mean + sum_i sum_k u_{i,k,c_ik}, by least squares."""

    position: bool = True
    """Whether every slot has vectors of its own."""

    @property
    def name(self) -> str:
        """What figures call it."""
        return "additive" if self.position else "additive, no position"

    @property
    def settings(self) -> dict[str, Any]:
        """All that determines a fit beside the task."""
        return {"approximator": "additive", "position": self.position}

    def fit(self, task: Task) -> SlotTables:
        """Fit every split of the task."""
        refuse_large(task.space)
        fits = [
            fit_additive(task, level="concepts", estimator="avg+pos" if self.position else "avg", train=mask)
            for mask in task.train
        ]
        n_slots = task.scenes.shape[1]
        return SlotTables(
            task.space,
            tuple(f.mean for f in fits),
            # The part of a value that was not shown is zero.
            tuple(f.object_parts().expand(n_slots, -1, -1) for f in fits),
            tuple(f.rank * task.embeddings.shape[1] for f in fits),
            (True,) * task.n_fits,
            ({},) * task.n_fits,
        )


@dataclass(frozen=True)
class ObjectTable:
    """Concept vectors plus a vector for every object: z_s ~ mean + sum_i (sum_k u_{i,k,c_ik} + w_{i,o_i}), by ridge.

    Minimises sum_s |z_s - ...|² + a n_u |u|² + b n_w |w|², with n_u and n_w the mean count of scenes of a value and of
    an object that occurs; a and b are chosen on the validation objects, ``DEFAULT_RIDGES`` where there are none.
    """

    sum_ridges: tuple[float, ...] = SUM_RIDGES
    object_ridges: tuple[float, ...] = OBJECT_RIDGES

    name = "object table"

    @property
    def settings(self) -> dict[str, Any]:
        """All that determines a fit beside the task."""
        return {
            "approximator": self.name,
            "sum_ridges": list(self.sum_ridges),
            "object_ridges": list(self.object_ridges),
        }

    def fit(self, task: Task) -> SlotTables:
        """Fit every split of the task."""
        return _fit_tables(task, self.sum_ridges, self.object_ridges, _whole_objects, "object_ridge")


@dataclass(frozen=True)
class PairTable:
    """Concept vectors plus one for every pair of values: z_s ~ mean + sum_i (sum_k u_{i,k} + sum_{k<l} w_{i,kl}).

    The one-hot codes of the concepts and all their products of two, within each object. Ridges as in
    :class:`ObjectTable`, with n_w for each pair of concepts the mean count of a pair of values that occurs.
    """

    sum_ridges: tuple[float, ...] = SUM_RIDGES
    pair_ridges: tuple[float, ...] = OBJECT_RIDGES

    name = "pair table"

    @property
    def settings(self) -> dict[str, Any]:
        """All that determines a fit beside the task."""
        return {
            "approximator": self.name,
            "sum_ridges": list(self.sum_ridges),
            "pair_ridges": list(self.pair_ridges),
        }

    def fit(self, task: Task) -> SlotTables:
        """Fit every split of the task. Raises ValueError for a space of a single concept, which has no pairs."""
        if task.space.n_concepts < 2:
            raise ValueError("a table of pairs needs two concepts or more; the space has one: use Additive")
        return _fit_tables(task, self.sum_ridges, self.pair_ridges, _pairs_of_values, "pair_ridge")


def _whole_objects(
    objects: Int[Tensor, "object concept"], n_values: Sequence[int]
) -> Int[Tensor, "object 1"]:
    """Number the objects: the groups whose members share a vector beside their concepts'."""
    number = torch.zeros_like(objects[:, :1])
    for k, size in enumerate(n_values):
        number = number * size + objects[:, k : k + 1]
    return number


def _pairs_of_values(
    objects: Int[Tensor, "object concept"], n_values: Sequence[int]
) -> Int[Tensor, "object pair"]:
    """Number the pairs of values, a column for each two concepts."""
    pairs = list(combinations(range(len(n_values)), 2))
    return torch.stack([objects[:, k] * n_values[m] + objects[:, m] for k, m in pairs], dim=1)


Groups = Callable[[Int[Tensor, "object concept"], Sequence[int]], Int[Tensor, "object group"]]


def _fit_tables(
    task: Task, sum_ridges: tuple[float, ...], own_ridges: tuple[float, ...], groups: Groups, called: str
) -> SlotTables:
    """Fit concept vectors and a vector for each group of objects, the penalties chosen on the validation objects."""
    refuse_large(task.space)
    index = task.space.object_index(task.scenes)
    means, tables, sizes, chosen = [], [], [], []
    for f in range(task.n_fits):
        ridges = DEFAULT_RIDGES
        if task.validates:
            inner = sums_of(task.embeddings, index, task.inner[f])
            outside = sums_of(task.embeddings, index, task.validation[f])
            errors = {
                (a, b): table_error(outside, mean, table)
                for (a, b), (mean, table) in _tables(
                    task.space, inner, sum_ridges, own_ridges, groups
                ).items()
            }
            ridges = min(errors, key=errors.__getitem__)
        sums = sums_of(task.embeddings, index, task.train[f])
        mean, table = _tables(task.space, sums, ridges[:1], ridges[1:], groups)[ridges]
        tables.append(table)
        means.append(mean)
        sizes.append(_n_parts(task.space, sums, groups) * task.embeddings.shape[1])
        chosen.append({"sum_ridge": ridges[0], called: ridges[1]})
    return SlotTables(
        task.space, tuple(means), tuple(tables), tuple(sizes), (True,) * task.n_fits, tuple(chosen)
    )


def _n_parts(space: ConceptSpace, sums: SceneSums, groups: Groups) -> int:
    """Count the vectors that the scenes determine: the rank of the groups' codes, and the mean.

    The codes of a slot's groups span those of its concepts, and a constant, which all slots and the mean share.
    """
    every = groups(space.all_objects().to(sums.objects.device), space.n_values)
    rank = 1
    for counts in sums.counts:
        shown = every[sums.objects[counts > 0]]
        codes = [torch.nn.functional.one_hot(column.unique(return_inverse=True)[1]) for column in shown.T]
        rank += int(torch.linalg.matrix_rank(torch.cat(codes, 1).double())) - 1
    return rank


def _tables(
    space: ConceptSpace,
    sums: SceneSums,
    sum_ridges: tuple[float, ...],
    own_ridges: tuple[float, ...],
    groups: Groups,
) -> dict[tuple[float, float], tuple[Float[Tensor, "dim"], Float[Tensor, "slot object dim"]]]:
    """Solve the ridge problem for every pair of penalties; give its intercept and its table.

    With the prior covariance A = u's + w's of object parts, the parts of shown objects are A (G A + I)^-1 S, and those
    of all others follow from their concepts. The intercept has no penalty: it is the mean scene less its mean part,
    which is 0 only where every object occurs equally often.
    """
    n_slots, n_shown, dim = sums.sums.shape
    q = n_slots * n_shown
    counts = sums.counts.reshape(q)
    together = sums.together.reshape(q, q) - torch.outer(counts, counts) / sums.n_scenes
    right = sums.sums.reshape(q, dim)
    every = space.all_objects().to(right.device)
    seen = every[sums.objects]
    # (object, shown object): how many values, and groups, they share, each in units of 1 / (its mean count).
    shared = torch.zeros(len(every), n_shown, dtype=torch.float64, device=right.device)
    for k in range(space.n_concepts):
        n_values = len(seen[:, k].unique())
        shared += (every[:, k, None] == seen[None, :, k]).double() * (n_slots * n_values / counts.sum())
    same = torch.zeros_like(shared)
    for column in groups(every, space.n_values).T:
        n_groups = len(column[sums.objects].unique())
        same += (column[:, None] == column[sums.objects]).double() * (n_slots * n_groups / counts.sum())
    found = {}
    for a in sum_ridges:
        for b in own_ridges:
            prior = shared / a + same / b
            block = torch.block_diag(*[prior[sums.objects]] * n_slots)
            eye = torch.eye(q, dtype=torch.float64, device=right.device)
            weights = torch.linalg.solve(together @ block + eye, right).reshape(n_slots, n_shown, dim)
            table = prior @ weights
            average = (sums.counts.unsqueeze(2) * table[:, sums.objects]).sum((0, 1)) / sums.n_scenes
            found[a, b] = sums.mean - average, table
    return found
