"""The picture of a two-way choice: a scene and its twin, their captions, and the four scores between them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from torch import Tensor

from conceptbind.plots import VERMILION, WIDTH, _closed

DARK_GREEN = "#00664a"


def quad_figure(
    pictures: UInt8[Tensor, "2 3 height width"],
    captions: Sequence[str],
    scores: Float[Tensor, "2 2"],
    *,
    title: str = "",
) -> Figure:
    """Show two pictures in columns, two captions in rows, and the score of each pair; column i belongs to row i.

    ``scores[i, j]``: of picture i with caption j. In each column the caption with the higher score is set in bold with
    a tick when it is the right one, with a cross when not; a tie gets an equals sign.
    Raises ValueError unless there are two captions.
    """
    if len(captions) != 2:
        raise ValueError(f"a quad has two captions, of the scene and of its twin; got {len(captions)}")
    fig, axes = plt.subplots(
        2,
        2,
        figsize=(WIDTH, 4.1),
        layout="constrained",
        gridspec_kw={"height_ratios": [1.9, 1.5]},
    )
    for i, (above, below) in enumerate(axes.T):
        above.imshow(pictures[i].permute(1, 2, 0).cpu().numpy())
        own, other = float(scores[i, i]), float(scores[i, 1 - i])
        below.set_xlim(0, 1)
        below.set_ylim(0, 1)
        for j, height in ((0, 0.72), (1, 0.22)):
            mark, colour = _mark(own, other, chosen=(own > other) == (i == j), right=i == j)
            below.text(
                0.5,
                height + 0.06,
                textwrap.fill(captions[j], 20),
                ha="center",
                va="bottom",
                size=9,
                color="#333",
            )
            below.text(
                0.5,
                height + 0.03,
                f"{float(scores[i, j]):.3f} {mark}".rstrip(),
                ha="center",
                va="top",
                size=12,
                color=colour,
                weight="bold" if mark in "✓✗" and mark else "normal",
            )
        for ax in (above, below):
            ax.set_xticks([])
            ax.set_yticks([])
            ax.grid(visible=False)
            ax.spines[:].set_visible(False)
    if title:
        fig.suptitle(title, size=11)
    return _closed(fig)


def _mark(own: float, other: float, *, chosen: bool, right: bool) -> tuple[str, str]:
    if own == other:
        return "=", "#333"
    if not chosen:
        return "", "#777"
    return ("✓", DARK_GREEN) if right else ("✗", VERMILION)
