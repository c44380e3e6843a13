# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Controls
# A page with every kind of control, and maths: $\rho = 0.3$.

# %%
import ipywidgets as w
import torch
from matplotlib.figure import Figure

from conceptbind import widgets
from conceptbind.scenes import ConceptSpace, ObjectSplit, factorial_scenes
from conceptbind.spaces import CLEVR_2D


def coded(red, green=0, blue=0):
    """A figure of one colour, which says what the parameters are."""
    figure = Figure(figsize=(4, 2))
    colour = [(40 + 40 * level) / 255 for level in (red, green, blue)]
    figure.add_axes((0, 0, 1, 1)).axis("off")
    figure.axes[0].fill([0, 0, 1, 1], [0, 1, 1, 0], color=colour)
    figure.axes[0].set(xlim=(0, 1), ylim=(0, 1))
    return figure


# %% tags=["hide-input"]
widgets.explore(coded, play="red", red=range(4))

# %%
widgets.explore(
    coded,
    alt="red {red}, green {green}",
    red=w.IntSlider(value=1, min=0, max=3),
    green=w.Dropdown(options=[("none", 0), ("little", 1), ("much", 2)]),
)

# %%
widgets.explore(
    coded,
    alt=lambda red, green, blue: f"{red}-{green}-{blue}",
    red=w.ToggleButtons(options=[0, 1, 2]),
    green=w.RadioButtons(options=[0, 1, 2]),
    blue=[0, 1],
)

# %%
space = CLEVR_2D.subset(colour=["red", "blue", "green"])
scenes = factorial_scenes(space, 2)
colours, shapes = (torch.zeros(len(scenes), 3).scatter(1, scenes[..., k], 1.0) for k in (0, 1))
objects = torch.zeros(len(scenes), 9).scatter(1, space.object_index(scenes), 1.0)
bag = (colours[:, :, None] + shapes[:, None, :]).flatten(1) / 2
is_train = torch.arange(9) % 2 == 0
memorised = objects * is_train + 0.25 * bag - 0.1
widgets.scene_editor(
    space,
    {
        "bag of concepts": torch.cat([colours, shapes, bag], 1),
        "per-object product": torch.cat([colours, shapes, objects], 1),
        "memorised objects": torch.cat([colours, shapes, memorised], 1),
    },
    split=ObjectSplit(space, is_train),
    start=[("red", "square"), ("blue", "circle")],
)

# %% [markdown]
# The same with three concepts, one object and names that nobody can draw; and a control linked to it.

# %%
plain = ConceptSpace(
    ("size", "texture", "animal"), (("small", "large"), ("smooth", "<b>rough</b>"), ("cat", "dog", "fish"))
)
values = torch.cat([torch.zeros(12, 7), torch.eye(12)], 1)
one = widgets.scene_editor(plain, {"a": values, "b": -values}, n_objects=1)
choose = w.Text(value="a", description="linked")
w.jsdlink((choose, "value"), (one, "model"))
w.VBox([choose, one])
