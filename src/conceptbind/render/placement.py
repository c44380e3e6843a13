"""What the renderers ask of fixed places and of occlusion, flat or solid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

Places = tuple[tuple[float, float], ...]


def fixed_places(
    n_objects: int, places: Places | None, known: Mapping[int, Places]
) -> Float[np.ndarray, "slot 2"]:
    """Give the place (x, y) of every slot: ``places`` where given, else those ``known`` for the number of objects.

    Raises ValueError when there are none, or another number than objects.
    """
    if places is None:
        places = known.get(n_objects)
    if places is None:
        raise ValueError(
            f"fixed places are known for {min(known)} to {max(known)} objects, the scenes have {n_objects}: give "
            "places=((x, y), ...), one a slot"
        )
    if len(places) != n_objects:
        raise ValueError(
            f"the renderer has {len(places)} places, but the scenes have {n_objects} objects: give one place a slot"
        )
    return np.array(places, dtype=float)


def as_places(places: Sequence[Sequence[float]]) -> Places:
    """Give places as tuples of two numbers."""
    return tuple((float(x), float(y)) for x, y in places)


def occlusion_range(shares: Sequence[float]) -> tuple[float, ...]:
    """Give a range of hidden shares as (low, high). Raises ValueError unless 0 < low <= high < 1."""
    shares = tuple(float(share) for share in shares)
    if len(shares) != 2 or not 0 < shares[0] <= shares[1] < 1:
        raise ValueError(f"occlusion is a range of shares (low, high), 0 < low <= high < 1; got {shares}")
    return shares
