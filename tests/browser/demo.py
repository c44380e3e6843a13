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
from conceptbind.kernels.mds import classical_mds
from conceptbind.planted import planted_encoders
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

# %% [markdown]
# One quadruple in three dimensions: the parts of four concept values and of the four objects made of them, and
# the scenes of two of these objects, noise included.

# %%
quad = CLEVR_2D.subset(colour=["red", "blue"], shape=["square", "circle"])
planted = planted_encoders(quad, "product", dim=64, seed=0, strength=0.7, noise=0.4)
four, pairs = quad.all_objects(), factorial_scenes(quad, 2)
values = planted.query_values.reshape(2, 2, -1)
values = values - values.mean(1, keepdim=True)
parts = planted.scene_objects - planted.scene_objects.mean(0)
sums = values[0][four[:, 0]] + values[1][four[:, 1]]
seen = planted.scenes(pairs)
names = [quad.describe(obj) for obj in four]
index = quad.object_index(pairs).tolist()
labels = [*quad.values[0], *quad.values[1], *names, *(" + ".join(name.split()) for name in names)]
labels += [f"{names[i]}, {names[j]}" for i, j in index]
kinds = ["concept"] * 4 + ["object"] * 4 + ["sum of concepts"] * 4 + ["scene"] * 16
paint = {"red": "#ad2323", "blue": "#2a4bd7"}
own = [paint[name.split()[0]] for name in names]
links = [(8 + i, [c, 2 + s][k]) for i, (c, s) in enumerate(four.tolist()) for k in (0, 1)]
links += [(4 + i, 8 + i) for i in range(4)]
links += [(12 + n, 4 + i) for n, pair in enumerate(index) for i in sorted(set(pair))]
places, shares = classical_mds(torch.cat([values.flatten(0, 1), parts, sums, seen - seen.mean(0)]))
widgets.point_cloud(
    places,
    labels,
    kinds,
    links=links,
    colours=[*paint.values(), "silver", "silver", *own, *own, *((own[i], own[j]) for i, j in index)],
    markers={"sum of concepts": "open square", "object": "square"},
    named=["concept", "object"],
    title="Two colours, two shapes",
    alt="A cloud of four concept parts, four objects, the sums of their concept parts, and 16 scenes. Each "
    "sum lies near its object.",
    shares=shares,
)
