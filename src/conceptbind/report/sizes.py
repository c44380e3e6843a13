"""How much a report measures, by preset; what it chose is written into its settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from conceptbind.presets import choose


@dataclass(frozen=True)
class Size:
    """Say how many scenes, seeds, edits and fits a report takes."""

    most_scenes: int
    """Of more, a seeded sample is measured."""
    most_judged: int
    """Scenes of the verdict and of products, which are fitted many times: a seeded sample of more."""
    n_seeds: int
    """Splits of probes."""
    n_edits: int
    n_anchors: int
    """Of the cross-modal measures."""
    n_splits: int
    """Of the verdict, half of them to pick the approximator."""
    n_controls: int
    networks: bool
    """Whether the verdict also tries a perceptron."""

    def as_dict(self) -> dict[str, Any]:
        """Give the sizes for the settings of a report."""
        return asdict(self)


def size_of(preset: str) -> Size:
    """Give the sizes of a preset: "smoke" (seconds), "laptop" (two minutes on two cores), "paper".

    Raises ValueError for another preset.
    """
    return choose(
        preset,
        {
            "smoke": Size(600, 600, 1, 200, 200, 2, 1, False),
            "laptop": Size(5_000, 2_500, 2, 2_000, 2_000, 4, 2, False),
            "paper": Size(160_000, 160_000, 3, 20_000, 20_000, 6, 3, True),
        },
    )
