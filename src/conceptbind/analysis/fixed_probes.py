"""Probes fitted once to real embeddings, then put to other vectors: reconstructions, edits, what is left.

:func:`conceptbind.analysis.probing.probe` asks what *can* be read off some embeddings, and fits anew to each. Here
the reader stays as it is, and the question is whether a changed vector still reads as the scene it should show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.analysis.probing import (
    ALL_CONCEPTS,
    OBJECTS,
    Embedded,
    _numbers,
    _unpack,
    probe_margins,
    select_l2,
)
from conceptbind.analysis.recognition import (
    Recognition,
    chance_by_head,
    head_labels,
    heads,
    mean_over_seeds,
    present,
    summarise,
)
from conceptbind.kernels.probes import LinearProbes, fit_probes
from conceptbind.scenes import ConceptSpace, scene_split

JOINT = "joint"
"""Head of the rows in which concepts and objects must all be recognised."""


@dataclass(frozen=True, eq=False)
class FixedProbes:
    """Hold the probes of one or more seeds; make them with :func:`fit_fixed_probes`."""

    space: ConceptSpace
    probes: LinearProbes
    train: Bool[Tensor, "fit scene"]
    """The scenes that each seed was fitted on; judge on others."""

    @property
    def n_fits(self) -> int:
        """How many seeds."""
        return len(self.train)

    def margins(
        self,
        fit: int,
        embeddings: Float[Tensor, "row dim"],
        scenes: Int[Tensor, "_row slot concept"],
    ) -> Float[Tensor, "head row"]:
        """Give the recognition margins of rows by one seed's probes: all concepts, objects, both.

        A margin is min(present) - max(absent), +inf where nothing is absent (see
        :func:`conceptbind.analysis.recognition.scene_margins`).
        Raises ValueError when there is not one scene for each row.
        """
        if len(embeddings) != len(scenes):
            raise ValueError(
                f"{len(embeddings)} embeddings but {len(scenes)} scenes: give one scene for each row"
            )
        every = torch.ones(len(scenes), dtype=torch.bool)
        by_head = probe_margins(self.probes, fit, embeddings, self.space, scenes, every)
        concepts, objects = by_head[:-1].amin(0), by_head[-1]
        return torch.stack([concepts, objects, torch.minimum(concepts, objects)])

    def judge_seed(
        self, fit: int, embeddings: Float[Tensor, "row dim"], scenes: Int[Tensor, "_row slot concept"]
    ) -> dict[str, Recognition]:
        """Measure one seed's probes on rows that it was not fitted on; heads and errors as in :meth:`judge`."""
        margins = self.margins(fit, embeddings, scenes).cpu()
        chance = joint_chance(self.space, scenes.cpu())
        return {name: summarise(margins[i], level) for i, (name, level) in enumerate(chance.items())}

    def judge(
        self,
        embeddings: Float[Tensor, "row dim"],
        scenes: Int[Tensor, "row slot concept"],
        keep: Bool[Tensor, "fit row"] | None = None,
    ) -> dict[str, Recognition]:
        """Measure how often rows read as ``scenes``: heads "all concepts", "objects" and "joint".

        ``keep``: the rows that each seed may be judged on; by default row i is scene i of the data and every seed is
        judged on the scenes it was not fitted on. Means over seeds, of the ends of the intervals too.
        Raises ValueError when ``keep`` has another shape or keeps no row of some seed.
        """
        if keep is None and len(embeddings) != self.train.shape[1]:
            raise ValueError(
                f"{len(embeddings)} rows are not the {self.train.shape[1]} scenes that the probes were made for: "
                "pass keep=(fit, row), the rows to judge each seed on"
            )
        keep = ~self.train if keep is None else keep
        if keep.shape != (self.n_fits, len(embeddings)) or not bool(keep.any(1).all()):
            raise ValueError(
                f"keep must mark rows for each of {self.n_fits} seeds, shape ({self.n_fits}, {len(embeddings)}); got "
                f"{tuple(keep.shape)} with {keep.sum(-1).tolist()} rows"
            )
        by_seed = [
            self.judge_seed(fit, embeddings[rows.to(embeddings.device)], scenes[rows])
            for fit, rows in enumerate(keep)
        ]
        return {name: mean_over_seeds([s[name] for s in by_seed]) for name in by_seed[0]}


def fit_fixed_probes(
    data: Embedded,
    *,
    train_fraction: float = 0.4,
    seeds: Sequence[int] = (0, 1, 2),
    l2: float | None = None,
    tol: float = 1e-3,
) -> FixedProbes:
    """Fit concept and object probes to a share of the scenes, one random split a seed.

    The same fits as :func:`conceptbind.analysis.probing.probe` makes, penalty chosen in the same way, but kept.
    """
    seeds = _numbers("seeds", seeds)
    x, space, scenes = _unpack(data, None, None, None)
    train = torch.stack([scene_split(len(x), train_fraction=train_fraction, seed=s) for s in seeds])
    sizes = tuple(h.stop - h.start for h in heads(space))
    penalty = select_l2(x, space, scenes, train, seeds=seeds, tol=tol) if l2 is None else l2
    probes = fit_probes(x, head_labels(space, scenes), sizes, train, l2=penalty, tol=tol)
    return FixedProbes(space, probes, train)


def joint_chance(
    space: ConceptSpace, scenes: Int[Tensor, "scene slot concept"]
) -> dict[str, Float[Tensor, "scene"]]:
    """Give the chance of each scene for the heads "all concepts", "objects" and "joint".

    Of "joint" it is that of independent scores, though recognised objects name their concepts.
    """
    chance = chance_by_head(space, present(space, scenes))
    concepts, objects = chance[:-1].prod(0), chance[-1]
    return {ALL_CONCEPTS: concepts, OBJECTS: objects, JOINT: concepts * objects}
