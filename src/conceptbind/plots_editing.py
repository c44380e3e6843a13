"""The picture of an edit: what it started from, what it should give, and which scenes the result is nearest to."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from conceptbind.plots import GREEN, VERMILION, WIDTH, _closed

NAMES = ("before", "wanted")
FRAME = 4
"""Points; the frames say which pictures are the wanted scene."""


def edit_gallery(
    captions: Sequence[str],
    pictures: UInt8[Tensor, "picture 3 height width"] | None = None,
    *,
    similarity: Sequence[float] | None = None,
    title: str = "",
) -> Figure:
    """Show an edit: above the scene before and the wanted scene, below the scenes nearest to the edited embedding.

    ``captions`` in the order before, wanted, nearest, second, ...: at least three, each scene's name. ``pictures``: one
    for each, or None to show the captions as text. ``similarity``: of the edited embedding to each of the nearest
    scenes. A nearest scene with the wanted scene's caption gets a green solid frame and a tick, others a dashed one.
    Raises ValueError when the numbers of captions, pictures and similarities disagree.
    """
    n_nearest = len(captions) - 2
    if n_nearest < 1:
        raise ValueError(
            f"got {len(captions)} captions: give those of the scene before, the wanted one, and one or more nearest"
        )
    if pictures is not None and len(pictures) != len(captions):
        raise ValueError(f"{len(pictures)} pictures but {len(captions)} captions: give one a scene")
    if similarity is not None and len(similarity) != n_nearest:
        raise ValueError(f"{len(similarity)} similarities but {n_nearest} nearest scenes: give one a scene")
    height = (1.75 if pictures is not None else 1.2) * (1 + (n_nearest > 1))
    fig = plt.figure(figsize=(WIDTH, height + 1.3), layout="constrained")
    fig.get_layout_engine().set(h_pad=0.06, w_pad=0.05)
    grid = fig.add_gridspec(2, 2 * n_nearest)
    for i, caption in enumerate(captions):
        if i < 2:
            # Both above in the middle, as wide as the pictures below where there are two or more of these.
            start = max(0, n_nearest - 2) + 2 * i if n_nearest > 1 else i
            ax = fig.add_subplot(grid[0, start : start + min(2, n_nearest)])
            name, colour, style = NAMES[i], "#777" if i == 0 else GREEN, "solid"
        else:
            ax = fig.add_subplot(grid[1, 2 * (i - 2) : 2 * (i - 1)])
            right = caption == captions[1]
            name = f"{'nearest' if i == 2 else f'{i - 1}.'} {'✓' if right else '✗'}"
            if similarity is not None:
                name += f" {similarity[i - 2]:.3f}"
            colour, style = (GREEN, "solid") if right else (VERMILION, "dashed")
        _panel(ax, caption, None if pictures is None else pictures[i], name, colour, style)
    if title:
        fig.suptitle(title, size=11)
    return _closed(fig)


def _panel(ax: Axes, caption: str, picture: Tensor | None, name: str, colour: str, style: str) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set(visible=True, color=colour, linewidth=FRAME, linestyle=style)
    ax.set_title(name, size=11, color=colour if colour != GREEN else "#00664a", weight="bold", pad=5)
    text = textwrap.fill(caption, 17)
    if picture is None:
        ax.text(0.5, 0.5, text, ha="center", va="center", size=10, transform=ax.transAxes)
        return
    ax.imshow(picture.permute(1, 2, 0).cpu().numpy())
    ax.set_xlabel(text, size=9, labelpad=4)
