"""Figures of the chapter on removal, in the style of :mod:`conceptbind.plots`."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from conceptbind.plots import (
    BLACK,
    BLUE,
    CONCEPT,
    GREEN,
    OBJECT,
    ORANGE,
    VERMILION,
    WIDTH,
    Numbers,
    _closed,
    share_axis,
)


def clouds(
    panels: Mapping[str, Float[Tensor, "point 2"]], group: Int[Tensor, "point"], names: Mapping[int, str]
) -> Figure:
    """Draw the same points in one panel or more, side by side, marked by group, with every group's mean.

    ``names[g]``: what group g is called; points of other groups are not drawn. All panels have one scale.
    Raises ValueError for more than four groups.
    """
    if not 1 <= len(names) <= 4:
        raise ValueError(f"there are looks for 1 to 4 groups; got {len(names)}")
    fig, axes = plt.subplots(
        1, len(panels), figsize=(WIDTH, 3.2), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    for ax, (title, points) in zip(axes.flat, panels.items(), strict=True):
        for (g, name), colour, marker in zip(
            names.items(), [VERMILION, BLUE, GREEN, ORANGE], "os^D", strict=False
        ):
            of_group = points[group == g].numpy()
            ax.scatter(*of_group.T, s=14, color=colour, marker=marker, alpha=0.45, lw=0, label=name)
            x, y = of_group.mean(0)
            ax.scatter(x, y, s=130, color=colour, marker=marker, edgecolor=BLACK, lw=1.8, zorder=3)
        ax.set_title(title, loc="left", size=11)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_box_aspect(1)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(names))
    return _closed(fig)


def before_after(
    rows: Mapping[str, tuple[Numbers, Numbers]], *, chance: Mapping[str, float], n_concepts: int
) -> Figure:
    """Draw what is recognised before (outlined) and after (filled) a cut, two bars a head.

    ``rows[head] = (before, after)``, each ``(accuracy, low, high)``; ``chance[head]`` is a black tick. The first
    ``n_concepts`` heads have the colour of concepts, the others that of objects.
    """
    height = 0.3
    fig, ax = plt.subplots(figsize=(WIDTH, 1.0 + 0.66 * len(rows)), layout="constrained")
    for i, (head, pair) in enumerate(rows.items()):
        colour = CONCEPT if i < n_concepts else OBJECT
        for j, (value, low, high) in enumerate(pair):
            y = i + j * height
            face = "white" if j == 0 else colour
            ax.barh(y, value, height * 0.86, facecolor=face, edgecolor=colour, lw=1.4)
            # An interval by resampling need not hold the value itself.
            reach = [[max(0.0, value - low)], [max(0.0, high - value)]]
            ax.errorbar(value, y, xerr=reach, ecolor="#333", elinewidth=1.2, capsize=3)
            ax.plot([chance[head]] * 2, [y - height * 0.46, y + height * 0.46], color=BLACK, lw=2.5)
            weight = "bold" if j else "normal"
            ax.text(1.03, y, f"{value:.2f}", va="center", color=colour, weight=weight, size=11)
        ax.text(0, i - height * 0.62, head, va="bottom", size=11)
    share_axis(ax, bottom=len(rows) - 0.5, xlabel="share of scenes recognised; black: chance")
    looks = {"before": "white", "after the cut": "#555"}
    handles = [Patch(facecolor=face, edgecolor="#555", label=label) for label, face in looks.items()]
    fig.legend(handles=handles, loc="outside upper left", ncols=2)
    return _closed(fig)
