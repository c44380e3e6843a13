"""Approximations that add up one vector for each object of a scene: a table over (slot, object)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from conceptbind.kernels.scene_sums import SceneSums, scene_sums
from conceptbind.scenes import ConceptSpace

MAX_OBJECTS = 50_000
"""Objects that a table may have: at 512 dimensions and two slots such a table takes 0.2 GB."""


@dataclass(frozen=True, eq=False)
class SlotTables:
    """Hold, for every fit, z_s ~ mean + sum_i table[i, o_i]. The tables of all fits, or of all slots, may be shared."""

    space: ConceptSpace
    means: tuple[Float[Tensor, "dim"], ...]
    tables: tuple[Float[Tensor, "slot object dim"], ...]
    n_parameters: tuple[int, ...]
    converged: tuple[bool, ...]
    details: tuple[dict[str, Any], ...]

    def predict(self, fit: int, scenes: Int[Tensor, "scene slot concept"]) -> Float[Tensor, "scene dim"]:
        """Give one fit's embeddings of scenes, in float32."""
        index = self.space.object_index(scenes)
        total = self.means[fit].expand(len(scenes), -1).clone()
        for slot in range(index.shape[1]):
            total += self.tables[fit][slot, index[:, slot].to(total.device)]
        return total.float()


def refuse_large(space: ConceptSpace) -> None:
    """Raise ValueError for a space with more objects than a table may have."""
    if space.n_possible_objects > MAX_OBJECTS:
        raise ValueError(
            f"{space.n_possible_objects:,} objects are too many for a table of objects (at most {MAX_OBJECTS:,}): "
            "use fewer values, or an approximator without one, such as Network"
        )


def sums_of(
    embeddings: Float[Tensor, "scene dim"], index: Int[Tensor, "scene slot"], keep: Bool[Tensor, "scene"]
) -> SceneSums:
    """Sum the kept scenes by slot and object, in one pass. ``index``: object indices."""
    index = index.to(embeddings.device)
    if bool(keep.all()):
        return scene_sums(embeddings, index)
    return scene_sums(embeddings[keep], index[keep.to(index.device)])


def table_error(
    sums: SceneSums, mean: Float[Tensor, "dim"], table: Float[Tensor, "slot object dim"]
) -> float:
    """Give sum_s |z_s - mean - sum_i table[i, o_i]|² from the sums over those scenes, without a pass over them.

    With m the mean of the scenes, d = m - mean, S and G their sums and counts (see kernels/scene_sums), it is
    total + n |d|² - 2 <S, t> + <t, G t> - 2 <d, sum counts t>, t the table of the objects that occur.
    """
    part = table[:, sums.objects].double()
    n_slots, n_objects, dim = part.shape
    flat = part.reshape(n_slots * n_objects, dim)
    together = sums.together.reshape(len(flat), len(flat))
    shift = sums.mean - mean.double()
    crossed = (sums.sums * part).sum() + shift @ (sums.counts.reshape(-1) @ flat)
    squares = (flat * (together @ flat)).sum() + sums.n_scenes * shift.square().sum()
    return float(sums.total - 2 * crossed + squares)
