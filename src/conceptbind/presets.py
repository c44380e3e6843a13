"""How large a run is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

PRESETS = ("smoke", "laptop", "paper")
"""Sizes of a run, smallest first."""


def choose(preset: str, sizes: Mapping[str, T]) -> T:
    """Pick the entry of ``sizes`` for a preset. Raises ValueError for a preset that does not exist."""
    if preset not in PRESETS:
        raise ValueError(f"PRESET is one of {', '.join(PRESETS)}; got {preset!r}")
    return sizes[preset]
