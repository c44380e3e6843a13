"""The scene editor's first scene as a picture, for readers without JavaScript."""

from __future__ import annotations

import html

from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon, Rectangle
from torch import Tensor

from conceptbind.scenes import ConceptSpace
from conceptbind.widgets.fallback import figure_html

PRESENT, ABSENT = "#0072b2", "#d0d5da"  # Okabe and Ito's blue, and grey; the present ones are also hatched
_MOST_ROWS = 12


def scene_figure_html(
    space: ConceptSpace,
    scene: Int[Tensor, "slot concept"],
    scores: Float[Tensor, "query"],
    model: str,
    caption: str,
    colours: dict[str, str],
    colour: int,
    shape: int,
) -> str:
    """Draw the scene and a bar chart for each head, as an ``<img>`` with alternative text and a caption.

    ``colour`` and ``shape`` number the concepts that are drawn as such, or are -1.
    """
    heads = _heads(space, scene, scores)
    # The figure is no pyplot figure: nothing to close, and the notebook's settings do not change it.
    figure = Figure(figsize=(6.5, 2.6 + 0.17 * max(len(rows) for _, rows in heads)), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.7, figure.get_size_inches()[1] - 1.7])
    axes = top.subplots(1, len(scene), squeeze=False)[0]
    for ax, obj in zip(axes, scene, strict=True):
        names = [values[int(v)] for values, v in zip(space.values, obj, strict=True)]
        _draw(ax, names[shape] if shape >= 0 else "", colours.get(names[colour], "#9a9a9a"))
        ax.set_title(" ".join(names), y=-0.22, fontsize=10)
    top.suptitle(f"“{caption}”", fontsize=11, style="italic")
    for ax, (title, rows) in zip(bottom.subplots(1, len(heads), squeeze=False)[0], heads, strict=True):
        bars = ax.barh([name for name, _, _ in rows], [score for _, score, _ in rows], height=0.7)
        for patch, (_, _, present) in zip(bars, rows, strict=True):
            patch.set(
                facecolor=PRESENT if present else ABSENT, hatch="///" if present else None, edgecolor="white"
            )
        ax.invert_yaxis()
        ax.set_title(title, fontsize=10)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    picture = figure_html(figure, _describe(caption, model, heads))
    return (
        f"<figure>{picture}<figcaption>{html.escape(model)}: scores of the scene; the values and objects "
        "in it are blue and hatched. With JavaScript you can change the scene.</figcaption></figure>"
    )


def _heads(
    space: ConceptSpace, scene: Int[Tensor, "slot concept"], scores: Float[Tensor, "query"]
) -> list[tuple[str, list[tuple[str, float, bool]]]]:
    """For each head its title and the rows (name, score, present), the highest first."""
    names = [*space.values, [space.describe(obj) for obj in space.all_objects()]]
    present = [*(set(column) for column in scene.T.tolist()), set(space.object_index(scene).tolist())]
    heads, first = [], 0
    for title, labels, inside in zip((*space.concepts, "objects"), names, present, strict=True):
        part = scores[first : first + len(labels)].tolist()
        first += len(labels)
        rows = [(label, part[i], i in inside) for i, label in enumerate(labels)]
        rows.sort(key=lambda row: -row[1])
        heads.append((title, rows[:_MOST_ROWS]))
    return heads


def _describe(caption: str, model: str, heads: list[tuple[str, list[tuple[str, float, bool]]]]) -> str:
    parts = [
        f"{title}: " + ", ".join(f"{name} {score:.2f}" for name, score, _ in rows[:4])
        for title, rows in heads
    ]
    return f"The scene “{caption}” and the highest scores of {model}. " + "; ".join(parts) + "."


def _draw(ax: Axes, shape: str, colour: str) -> None:
    look = {"facecolor": colour, "edgecolor": "black", "linewidth": 1.2}
    if shape in ("circle", "sphere"):
        ax.add_patch(Circle((0.5, 0.5), 0.4, **look))
    elif shape in ("triangle", "cone", "pyramid"):
        ax.add_patch(Polygon([(0.5, 0.9), (0.93, 0.12), (0.07, 0.12)], **look))
    elif shape == "cube":
        ax.add_patch(
            Polygon([(0.1, 0.7), (0.32, 0.92), (0.92, 0.92), (0.92, 0.32), (0.7, 0.1), (0.1, 0.1)], **look)
        )
        ax.plot([0.1, 0.7, 0.7], [0.7, 0.7, 0.1], color="black", linewidth=1)
        ax.plot([0.7, 0.92], [0.7, 0.92], color="black", linewidth=1)
    elif shape == "cylinder":
        ax.add_patch(Rectangle((0.2, 0.1), 0.6, 0.8, **look))
    elif shape == "square":
        ax.add_patch(Rectangle((0.12, 0.12), 0.76, 0.76, **look))
    else:
        ax.add_patch(Rectangle((0.12, 0.12), 0.76, 0.76, **look))
        ax.text(0.5, 0.5, shape[:3], ha="center", va="center", fontsize=14, weight="bold")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.axis("off")
