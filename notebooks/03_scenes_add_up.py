# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   conceptbind:
#     data: [results/geometry_captions_full.json, results/untrained_variants.json]
# ---

# %% [markdown]
# # Scenes add up
#
# The embedding of *a red circle and a blue square* is one point in a space of a few hundred dimensions. Chapter 2 found
# both objects in it. But *how* are they in there? The simplest answer would be a sum: one vector for the red circle, one
# for the blue square, added. And perhaps the vector of the red circle is a sum itself, of *red* and *circle*.
#
# - **Paper**: section 2, finding F3 {cite:p}`uselis2026bind`; sums of concept vectors in trained models are an old
#   observation {cite:p}`mikolov2013linguistic,trager2023linear`.
# - **You will**: turn a cloud of scenes, objects and concepts; fit both sums and see how much they explain; compare with
#   an untrained network, shuffled labels and noise; and find out that a sum says *less* about binding than it seems.
# - **Time**: 25 minutes to read. The `laptop` preset runs in about 4 minutes on two CPU cores. The `paper` preset is for
#   a GPU.

# %% tags=["hide-input"]
import sys

if "google.colab" in sys.modules:  # Colab keeps its own torch and numpy
    import os
    import subprocess

    repository, clone = "https://github.com/conceptbind/conceptbind", "conceptbind-repository"
    if not os.path.exists(clone):
        subprocess.run(
            ["git", "clone", "--quiet", "--depth=1", "--branch=main", repository, clone], check=True
        )
    install = [sys.executable, "-m", "pip", "install", "--quiet", f"./{clone}[encoders,notebooks]"]
    subprocess.run(install, check=True)
    os.environ["CONCEPTBIND_RESULTS"] = os.path.abspath(f"{clone}/results")

from conceptbind import notebook

notebook.start()

# %% tags=["parameters"]
PRESET = "laptop"
SEED = 0
RERUN = False
TEXT_ENCODERS = [
    "sentence:all-MiniLM-L6-v2",
    "random:all-MiniLM-L6-v2",
    "open_clip:ViT-B-32-quickgelu/openai",
    "random:ViT-B-32",
]
PICTURE_ENCODERS = [
    "efficientnet-lite0",
    "random:efficientnet-lite0",
    "open_clip:ViT-B-32-quickgelu/openai",
    "dinov2:vitb14",
]

# %% tags=["hide-input"]
import math

import ipywidgets
import torch
from IPython.display import Markdown

from conceptbind import plots, results, studies, widgets
from conceptbind.analysis.additive import fit_additive
from conceptbind.analysis.decomposition import decompose
from conceptbind.analysis.part_geometry import concept_share, part_norms, position_alignment, subspace_angles
from conceptbind.analysis.untrained import TABLE, untrained_variants
from conceptbind.claims import Claim, record_claim
from conceptbind.embeddings import EmbeddingSet
from conceptbind.exercises import scenes_add_up as exercises
from conceptbind.kernels.mds import classical_mds
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, captions, factorial_scenes

SEEDS = list(range(SEED, SEED + notebook.choose(PRESET, {"smoke": 1, "laptop": 1, "paper": 3})))

# %% [markdown]
# ## Two levels, three ways to find the parts
#
# Let $z_s$ be the embedding of the scene $s = (o_1, o_2)$ and $\mu$ the mean embedding of all scenes.
#
# $$ \text{Level I:}\quad z_s \approx \mu + u_{o_1} + u_{o_2} \qquad\qquad
#    \text{Level II:}\quad u_o \approx \sum_k u_{c_k} $$
#
# On {term}`Level I <additivity>` every *object* has a part $u_o$, whatever stands beside it. On Level II every *value of a concept*
# has one, and an object's part is the sum of its values' parts. How do you find the part of the red circle? The paper
# has three {term}`estimators <estimator>`:
#
# | | the part of an object is | needs |
# |---|---|---|
# | `avg` | the mean of all centred scenes ($z_s - \mu$) that contain it | scenes |
# | `avg+pos` | the same for each place: one part as first object, another as second | scenes |
# | `single` | the centred embedding of the object alone | scenes of one object |
#
# Why should a mean work? In the scenes with a red circle on the left, every other object stands on the right equally
# often. Their parts average out, and the red circle remains. This is why the scenes must be *balanced*: all pairs, or
# drawn without favour. (Where they are not, the package solves the least-squares problem. On balanced scenes its solution
# *is* these means, so there is nothing to train.)
#
# How good is the sum? We ask three things.
#
# - **{term}`R²`**: which share of the variance of the scenes does the sum explain? 1 is all, 0 is none.
# - **{term}`Retrieval`**: take the sum of the parts of a scene. Is that scene's own embedding nearer to it than every
#   other scene's?
# - **Probing**: do the probes of chapter 2, fitted to real embeddings, find the objects in the *sum*?
#
# ## Look first
#
# Two colours and two shapes make four objects. Below you see the parts of the four concept values, of the four objects,
# the sums of concept parts, and all sixteen real scenes with two of these objects, for MiniLM on captions. Several
# hundred dimensions are pressed into three, such that distances change as little as possible (classical
# multidimensional scaling). Turn the cloud.

# %% tags=["hide-input"]
DATA = [studies.CAPTIONS, studies.FLAT, studies.SOLID]
found, missing = studies.geometry_studies(
    PRESET, data=DATA, text_encoders=TEXT_ENCODERS, picture_encoders=PICTURE_ENCODERS, seed=SEED
)
for study in found:
    e = study.embedded
    print(f"{study.title:33s} {e.n_scenes:5,} scenes, {e.dim:4d} dimensions")
for spec in missing:
    print(f"{studies.NAMES.get(spec, spec):34s} not run here: no weights found")


# %% tags=["hide-input"]
def quadruple(study):
    """Points, labels, kinds, colours and links of two values of each of two concepts."""
    e, space = study.embedded, study.embedded.space
    colours = [space.values[0].index(name) for name in ("red", "blue")]
    shapes = [0, 1]
    objects = torch.tensor([[c, s] for c in colours for s in shapes])
    scenes = torch.stack([objects[torch.tensor([i, j])] for i in range(4) for j in range(4)])
    by_object = fit_additive(e, level="objects", estimator="avg")
    by_concept = fit_additive(e, level="concepts", estimator="avg")
    u = by_object.object_parts()[0][space.object_index(objects)]
    offset = space.n_values[0]
    values = by_concept.parts[0][torch.tensor([*colours, *(offset + s for s in shapes)])]
    sums = torch.stack([values[i] + values[2 + j] for i in range(2) for j in range(2)])
    row = {int(s): r for r, s in enumerate(space.scene_index(e.scenes))}
    real = (
        e.embeddings[torch.tensor([row[int(s)] for s in space.scene_index(scenes)])].double() - by_object.mean
    )
    both = torch.stack([u[i] + u[j] for i in range(4) for j in range(i, 4)])
    name = [f"{space.values[0][c]} {space.values[1][s]}" for c, s in objects.tolist()]
    dye = [space.values[0][c] for c, _ in objects.tolist()]
    kinds = [
        ("concept part", [*(space.values[0][c] for c in colours), *(space.values[1][s] for s in shapes)]),
        ("object part", name),
        ("sum of concept parts", [n.replace(" ", " + ") for n in name]),
        ("scene", captions(space, scenes)),
        ("sum of object parts", [f"{name[i]} + {name[j]}" for i in range(4) for j in range(i, 4)]),
    ]
    points = torch.cat([values, u, sums, real, both])
    labels = [label for _, group in kinds for label in group]
    groups = [kind for kind, group in kinds for _ in group]
    tint = [*(space.values[0][c] for c in colours), "gray", "gray", *dye, *dye]
    tint += [(dye[i], dye[j]) for i in range(4) for j in range(4)]
    tint += [(dye[i], dye[j]) for i in range(4) for j in range(i, 4)]
    pairs = {(i, j): 28 + n for n, (i, j) in enumerate((i, j) for i in range(4) for j in range(i, 4))}
    links = [(4 + i, 8 + i) for i in range(4)]
    links += [(12 + 4 * i + j, pairs[min(i, j), max(i, j)]) for i in range(4) for j in range(4)]
    place, shares = classical_mds(points)
    return widgets.point_cloud(
        place,
        labels,
        groups,
        links=links,
        colours=tint,
        shares=shares,
        title=study.title,
        alt=f"A cloud of 38 points for {study.title}: four concept parts near the middle, four object parts each "
        "close to the sum of its concept parts, and sixteen real scenes around the sums of their object parts.",
    )


cloud_of = next(s for s in found if s.data == studies.CAPTIONS)
quadruple(cloud_of)

# %% [markdown]
# A line joins every object part to the sum of its concept parts, and every scene to the sum of its object parts. Short
# lines mean that the sum is good. Each sum of two different objects has *two* scenes near it, *a red circle and a blue square*
# and *a blue square and a red circle*: `avg` knows no order, the encoder does.
#
# ## How much does the sum explain?
#
# (fig-r2)=
# **Figure.** R² of the sum of object parts. Whiskers: 95 % interval. Black tick: what the same number of
# parts explains when labels say nothing, (parameters − 1) / (scenes − 1).

# %% tags=["hide-input"]
tables = {s.title: (s, decompose(s.embedded, singles=s.singles or None, seeds=SEEDS)) for s in found}


def r2_rows(data, level):
    rows, ticks = {}, {}
    for s, table in tables.values():
        if s.data != data:
            continue
        pair = [table.row(level, e) for e in ("avg", "avg+pos")]
        rows[s.encoder] = [(r.r2, r.r2_low, r.r2_high) for r in pair]
        ticks[s.encoder] = [r.r2_expected for r in pair]
    first = next(t for s, t in tables.values() if s.data == data)
    for labels, name in (("shuffled", "shuffled labels"), ("noise", "isotropic noise")):
        pair = [first.row(level, e, labels=labels) for e in ("avg", "avg+pos")]
        rows[name] = [(r.r2, r.r2_low, r.r2_high) for r in pair]
        ticks[name] = [r.r2_expected for r in pair]
    return rows, ticks


LEVELS = {"Level I: objects": "objects", "Level II: concepts": "concepts"}


def r2_bars(data, level):
    rows, ticks = r2_rows(data, LEVELS[level])
    return plots.grouped_bars(
        rows, series=("avg", "avg+pos"), ticks=ticks, xlabel="R²; black: parts without meaning"
    )


def r2_aloud(data, level):
    rows, _ = r2_rows(data, LEVELS[level])
    said = (f"{name}: avg {a[0]:.2f}, avg+pos {b[0]:.2f}" for name, (a, b) in rows.items())
    return f"R² on {data}, {level}. " + "; ".join(said)


widgets.explore(
    r2_bars,
    data=ipywidgets.ToggleButtons(options=DATA),
    level=ipywidgets.ToggleButtons(options=list(LEVELS)),
    alt=r2_aloud,
)

# %% [markdown]
# (fig-decomposition)=
# **Table.** Level I, `avg` / `avg+pos`. *Held out*: every scene predicted from parts that were fitted without it (five folds,
# `avg+pos`). *Retrieval* and *objects*, the share of sums in which the probes find both objects: `avg+pos`. *Singles*: R² of the
# sum of parts taken from one-object scenes.

# %% tags=["hide-input"]
PAPER_ROWS = [
    "| *paper:* captions 20×20, CLIP ViT-B/32 | .90 / .92 | – | .97 | .99 | – |",
    "| *paper:* captions 20×20, random-init CLIP | .47 / .69 | – | .42 | .82 | – |",
    "| *paper:* CLEVR, CLIP | .78 / .83 | – | .94 | .96 | – |",
    "| *paper:* PUG:SPARE, CLIP | .75 / .84 | – | .93 | .98 | – |",
    "| *paper:* PUG:SPARE, DINOv2 | .78 / .86 | – | .86 | .98 | – |",
]


def number(x, digits=2):
    return "–" if x is None or math.isnan(x) else f"{x:.{digits}f}".replace("-", "−")


def row_of(title, table):
    a, b = (table.row("objects", e) for e in ("avg", "avg+pos"))
    alone = [r.r2 for r in table.rows if r.level == "objects" and r.estimator == "single"]
    return (
        f"| {title} | {number(a.r2)} / {number(b.r2)} | {number(b.r2_held_out)} | {number(b.retrieval)} "
        f"| {number(b.objects)} | {number(alone[0] if alone else None)} |"
    )


HEAD = ["| | R² | held out | retrieval | objects | singles |", "|---|---|---|---|---|---|"]
Markdown("\n".join([*HEAD, *(row_of(title, t) for title, (_, t) in tables.items()), *PAPER_ROWS]))

# %% [markdown]
# **Scenes add up, nearly.** For MiniLM the sum of two object parts explains .94 of the variance of the captions, for EfficientNet
# .91 of that of the pictures, flat or solid; scenes that took no part in the fit lose two points at most. The sum finds its own scene among all
# others in more than nine of ten cases, if the parts know their place. (Without positions a scene and its mirror image have the same
# sum.) So the paper's finding F3 holds here, on encoders that the paper did not use. Parts from single objects
# point the right way, but explain less.
#
# **Now look at the untrained networks.** With positions, their scenes are *more* additive than those of the trained ones: above
# .99 for MiniLM without training, .94 for CLIP's text encoder, .99 for EfficientNet. What an untrained network does to one
# object, it does almost regardless of the other. So a high R² with positions needs no learning.
#
# Training shows in the *other* bar. To an untrained CLIP or EfficientNet, a red circle in the first place and one in the second are
# different things; one part cannot serve both, and R² drops to .71 and .79 or less. In the trained encoders the two bars are nearly
# equal: an object adds the same, wherever it is. (Untrained MiniLM averages its output over all words, so there the place never
# mattered much.)
#
# ## Does additivity mean binding?
#
# If a scene is the sum of its objects, the objects are in it. So does a high R² show that a model binds? Put the question to
# embeddings that we make ourselves, so that we know the answer:
#
# - a **{term}`bag of concepts`**: the part of the red circle is *red* + *circle* and nothing else. Twins get the same embedding. No
#   binding.
# - a **product**: *red* + *circle* + a little of *red* ⊙ *circle*, the two vectors multiplied number by number. A rule that holds for
#   every object.
# - **memorised objects**: an independent random vector for every object. It binds, by heart.
#
# All three are sums of object parts by construction, plus some noise.
#
# (fig-binding)=
# **Table.** What each measure says about each kind of embedding. *Real*: objects found by a probe in the embeddings
# themselves, test scenes. *Concept sums*: objects found by the same probe when each embedding is replaced by its Level II sum.

# %% tags=["hide-input"]
toy = ConceptSpace.of_sizes(8, 8) if PRESET != "smoke" else ConceptSpace.of_sizes(3, 3)
toy_scenes = factorial_scenes(toy, 2)
planted = {
    "bag of concepts (planted)": ("additive", 1.0),
    "weak product (planted)": ("product", 0.3),
    "product (planted)": ("product", 1.0),
    "memorised objects (planted)": ("memorised", 1.0),
}
separating = {}
for name, (kind, strength) in planted.items():
    made = planted_encoders(toy, kind, dim=512, seed=SEED, strength=strength, noise=0.3)
    e = EmbeddingSet(made.scenes(toy_scenes), toy_scenes, toy)
    separating[name] = (e, decompose(e, baselines=False, seeds=[SEED]))
for s, table in tables.values():
    if s.data in (studies.CAPTIONS, studies.FLAT):
        separating[s.title] = (s.embedded, table)

lines = ["| | R² Level I | R² Level II | share of concepts | objects: real | objects: concept sums |"]
lines += ["|---|---|---|---|---|---|"]
shares = {}
for name, (e, table) in separating.items():
    one, two = (table.row(level, "avg+pos") for level in ("objects", "concepts"))
    shares[name] = concept_share(fit_additive(e)).share
    lines.append(
        f"| {name} | {number(one.r2_held_out)} | {number(two.r2_held_out)} | {number(shares[name], 3)} "
        f"| {number(table.probed['objects'].accuracy)} | {number(two.objects)} |"
    )
Markdown("\n".join(lines))

# %% [markdown]
# Read the columns from left to right.
#
# - **R² of Level I** is high in every row. It cannot tell a bag from a rule, nor a rule from a table: all three are sums.
# - **R² of Level II** and the **share of concepts** fall where objects have much of their own: for memorised objects to what counting
#   alone gives, (8 + 8 − 2) / 63 = .22. But a *weak* product looks like a bag to them.
# - **Objects in the real embeddings** show what R² hides: the weak product holds every object, the bag no more than a bag can.
# - **Objects in the concept sums**: replace each embedding by its Level II sum, and the probe falls back to the level of a bag, for
#   every encoder. Whatever binds red to circle is in the remainder. For MiniLM that remainder is one hundredth
#   of the object parts, and it holds all of the binding.
#
# Look at untrained MiniLM: R² .999, and its objects are found in fewer than half of the scenes. **The most additive
# embedding of the table is the one that binds least.** R² asks how much of the variance a sum explains. Binding can live in the last per
# cent. And no column separates the product from the memorised objects: both are sums with a part for every object. For that
# question, objects must be *held out*.
#
# ## Harder scenes
#
# A third object, and pictures in which one object hides a part of the other. The sum has more parts or fewer scenes
# to find them in, so the held-out column counts.

# %% tags=["hide-input"] mystnb={"image": {"alt": "Six pictures: two flat shapes side by side, two rendered solids side by side, a flat shape that hides a part of another, a solid in front of another, three flat shapes, three solids."}, "figure": {"caption": "One scene of each kind of picture.", "name": "fig-kinds"}}
KINDS = [
    studies.FLAT,
    studies.SOLID,
    studies.FLAT_OCCLUDED,
    studies.SOLID_OCCLUDED,
    studies.FLAT_3,
    studies.SOLID_3,
]
harder, _ = studies.geometry_studies(
    PRESET,
    data=[studies.CAPTIONS_3, *KINDS[2:]],
    text_encoders=TEXT_ENCODERS,
    picture_encoders=PICTURE_ENCODERS[:2],
    seed=SEED,
)
one_of = {s.data: s for s in [*found, *harder] if s.renderer is not None}
picked = {kind: one_of[kind].embedded.scenes[len(one_of[kind].embedded.scenes) // 3][None] for kind in KINDS}
plots.gallery(torch.cat([one_of[k].renderer.render(picked[k]) for k in KINDS]), KINDS)

# %% [markdown]
# (fig-harder)=
# **Table.** As above. `avg` / `avg+pos`, Level I.

# %% tags=["hide-input"]
for s in harder:
    tables[s.title] = (s, decompose(s.embedded, baselines=False, seeds=[SEED]))
lines = ["| | scenes | parts + 1 | R² | held out | retrieval | objects |", "|---|---|---|---|---|---|---|"]
for s in harder:
    a, b = (tables[s.title][1].row("objects", e) for e in ("avg", "avg+pos"))
    lines.append(
        f"| {s.title} | {a.n_scenes} | {a.n_parameters} / {b.n_parameters} | {number(a.r2)} / {number(b.r2)} "
        f"| {number(a.r2_held_out)} / {number(b.r2_held_out)} | {number(b.retrieval)} | {number(b.objects)} |"
    )
Markdown("\n".join(lines))

# %% [markdown]
# **Three objects** still add up: held out, MiniLM explains .90 and EfficientNet .80 to .86. **Occlusion** breaks the sum: held out,
# at most two thirds of the variance are explained, before and after training, and `avg`, with half as many parts, does about as well as
# `avg+pos`. Two reasons that these numbers do not tell apart: what an object shows now depends on what stands before it; and
# which object is in front, and where the pair stands, changes from picture to picture, which no part knows. The paper counts
# occluded scenes among those that add up, without a number; in our pictures they do so in part.
#
# ## How additive is a network that has learned nothing?
#
# The paper sets a random-init CLIP beside the trained one, and finds it much less additive: R² .47 / .69, retrieval .42,
# probing .82. We computed the same row for all 160,000 captions, three seeds, with CLIP's ViT-B/32 text encoder as open_clip
# initialises it. Encoding takes a CPU core about half an hour for each seed, so the table is read from a file of
# results; `RERUN = True` computes it again.
#
# (fig-full-size)=
# **Table.** Level I, `avg` / `avg+pos`, all 160,000 captions; retrieval among all of them, for a sample of 10,000. Where there are
# several seeds: mean (smallest – largest).

# %% tags=["hide-input"]
FULL = {
    "sentence:all-MiniLM-L6-v2": [SEED],
    "open_clip:ViT-B-32-quickgelu/openai": [SEED],
    "random:ViT-B-32": [SEED, SEED + 1, SEED + 2],
}
if RERUN or PRESET == "paper":
    rows = studies.full_caption_geometry(FULL)
    settings = {"data": "captions 20x20, all 160,000 scenes", "seeds": FULL, "n_queries": 10_000}
    results.write_table("geometry_captions_full", rows, settings=settings)

full = results.read_table("geometry_captions_full")


def spread(spec, key, level="objects", estimator="avg+pos"):
    """The numbers of all seeds: mean, smallest, largest."""
    values = [
        r[key] for r in full["rows"] if (r["encoder"], r["level"], r["estimator"]) == (spec, level, estimator)
    ]
    return (sum(values) / len(values), min(values), max(values)) if values else None


def written(values, digits=3):
    if values is None:
        return "–"
    mean, low, high = (f"{v:.{digits}f}" for v in values)
    return mean if low == high else f"{mean} ({low} – {high})"


lines = ["| | R² avg | R² avg+pos | held out | retrieval | objects | share of concepts |"]
lines += ["|---|---|---|---|---|---|---|"]
for spec in FULL:
    if spread(spec, "r2"):
        lines.append(
            f"| {studies.NAMES[spec]} | {written(spread(spec, 'r2', estimator='avg'))} | {written(spread(spec, 'r2'))} "
            f"| {written(spread(spec, 'r2_held_out'))} | {written(spread(spec, 'retrieval'))} "
            f"| {written(spread(spec, 'objects'))} | {written(spread(spec, 'concept_share'))} |"
        )
lines.append("| *paper*: CLIP ViT-B/32 | .90 | .92 | – | .97 | .99 | – |")
lines.append("| *paper*: random-init CLIP ViT-B/32 | .47 | .69 | – | .42 | .82 | – |")
Markdown(f"Run of {full['date']}.\n\n" + "\n".join(lines))

# %% [markdown]
# **This row of the paper does not come out.** A truly untrained encoder is far more additive than published: with positions about as
# much as the trained CLIP of the paper, and its sums find their scene in 99 of 100 cases. What is different? We change the untrained
# encoder, one thing at a time.
#
# (fig-variants)=
# **Table.** Level I R² of untrained ViT-B/32 text encoders with one thing changed, captions of 5 × 5 words (625 scenes).
# Mean of three seeds (smallest – largest).

# %% tags=["hide-input"]
if RERUN:
    settings = {
        "grid": "5 x 5 words, all 625 ordered pairs, unless the row says otherwise",
        "seeds": [0, 1, 2],
    }
    results.write_table(TABLE, untrained_variants(progress=True), settings=settings)

variants = results.read_table(TABLE)
of_variant = {}
for r in variants["rows"]:
    of_variant.setdefault((r["question"], r["variant"]), []).append(r)
lines = ["| what was changed | R² avg | R² avg+pos |", "|---|---|---|"]
for (question, name), rows in of_variant.items():
    pair = ([r[key] for r in rows] for key in ("r2_avg", "r2_avg_pos"))
    cells = (
        "not run here" if None in v else written((sum(v) / len(v), min(v), max(v)), digits=2) for v in pair
    )
    lines.append(f"| {question}: {name} | {' | '.join(cells)} |")
lines.append("| *paper*: random-init CLIP (all captions) | .47 | .69 |")
Markdown(f"Run of {variants['date']}.\n\n" + "\n".join(lines))

# %% [markdown]
# **Sharper attention lowers R² most.** Twice as large queries and keys bring it to about .42 / .66, and so do LayerNorm gains of 2. Gains
# drawn at random around 1, with a log-normal spread of .75, give .47 / .73, next to the paper's .47 / .69. Random biases push
# the other way. Number type, activation, seed and the size of the grid hardly matter. Words of one and two tokens, mixed, cost some .1, as
# they shift the second object; but in the paper's captions only *bumpy* has two tokens.
#
# What may have happened? The paper's code makes its random-init encoder from the *pretrained* CLIP: it redraws weight matrices and
# embeddings, and leaves biases and LayerNorm gains as trained. Trained gains are far from 1. Our table says that uneven gains
# alone could explain the published row. It does not prove it: that takes CLIP's own gains, and the row that would have
# them is *not run here* (in Colab it runs).
#
# Two lessons. "Random-init" is not one thing: what is drawn, and how, moves R² from .27 to .85, so a paper must say it. And a baseline of
# .91 means that an R² of .92 is, by itself, no sign of learning.
#
# ## How the parts lie to each other
#
# Level I with positions gives every object two parts, one for each place. Are they the same vector? And do colours and shapes
# use directions of their own?
#
# (fig-geometry)=
# **Table.** *Length*: of the parts of the first place against those of the second. *Alignment*: cosine between an object's two parts,
# over all objects. *Overlap*: mean squared cosine of the {term}`principal angles` between two subspaces, 0 when orthogonal, 1 when the
# same; in brackets what random subspaces of that size have.

# %% tags=["hide-input"]
lines = ["| | length, 1st / 2nd | alignment | overlap of two concepts | of a concept in both places |"]
lines += ["|---|---|---|---|---|"]
geometry = {}
for s in found:
    fit = fit_additive(s.embedded)
    pairs = subspace_angles(fit_additive(s.embedded, level="concepts"))
    across = [p for p in pairs if p.first.split(",")[0] != p.second.split(",")[0]]
    within = [p for p in pairs if p not in across]
    first, second = part_norms(fit)
    geometry[s.title] = (first / second, position_alignment(fit))
    overlaps = (
        f"{sum(p.overlap for p in group) / len(group):.2f} ({sum(p.expected for p in group) / len(group):.2f})"
        for group in (across, within)
    )
    lines.append(
        f"| {s.title} | {geometry[s.title][0]:.2f} | {geometry[s.title][1]:.2f} | {' | '.join(overlaps)} |"
    )
Markdown("\n".join(lines))

# %% [markdown]
# In the trained encoders an object adds nearly the same vector in both places, in an untrained CLIP or EfficientNet two that are
# only related. Attributes and nouns of MiniLM lie as far apart as random subspaces would; colours and shapes of
# EfficientNet share more than that, though little. Again untrained MiniLM is like the trained one.
#
# ## What this shows, and what it does not
#
# - **Shown**: scenes of two and three objects are nearly sums of object parts, for a trained text encoder and a trained picture
#   encoder, on scenes that took no part in the fit. Occluded pictures are so only in part.
# - **Shown**: most of this needs no training. What training adds, in pictures and against untrained CLIP, is that an object's
#   part no longer depends on its place.
# - **Not shown**: binding. A bag of concepts, a rule and a table are all sums, and the most additive encoder of this page binds
#   least. The next two chapters cut parts out and exchange them.
# - **Not reproduced**: the paper's random-init row. Uneven LayerNorm gains would explain it; that is a guess that fits, not a proof.
# - **Not run**: CLIP and DINOv2, whose weights could not be had where this page was built.

# %% tags=["hide-cell"]
PAGE = "03_scenes_add_up.html"
NEAR = 0.1  # a number "holds" when it is at most this far below the paper's; fixed before the first run
SCOPE = (
    0.7  # harder scenes, for which the paper gives no number: about its lowest R² elsewhere; fixed as well
)
MEASURES = {
    "additive-r2-avg": ("R², object parts without position", "avg", "r2"),
    "additive-r2-avg-pos": ("R², object parts with position", "avg+pos", "r2"),
    "additive-retrieval": ("the sum of the parts retrieves its scene", "avg+pos", "retrieval"),
    "additive-probing": ("probes find both objects in the sum", "avg+pos", "objects"),
}
CLIP, DINO = "open_clip:ViT-B-32-quickgelu/openai", "dinov2:vitb14"
PAPER = {
    ("captions 20x20", CLIP): (0.90, 0.92, 0.97, 0.99),
    ("captions 20x20", "random:ViT-B-32"): (0.47, 0.69, 0.42, 0.82),
    ("PUG:SPARE", CLIP): (0.75, 0.84, 0.93, 0.98),
    ("PUG:SPARE", DINO): (0.78, 0.86, 0.86, 0.98),
    ("CLEVR", CLIP): (0.78, 0.83, 0.94, 0.96),
}


def claim(id, text, paper, ours, spec, data, *, preset=PRESET, figure, finding="F3", verdict=None):
    """Record one number beside the paper's; ``ours``: value, low, high, or None where it was not run."""
    number = paper if isinstance(paper, float) else float(str(paper).split()[0])
    verdict = verdict or ("holds" if ours and ours[0] >= number - NEAR else "does not hold")
    record_claim(
        Claim(
            id=id,
            finding=finding,
            claim=text,
            paper=paper,
            ours=ours[0] if ours else None,
            interval=ours[1:] if ours and not math.isnan(ours[1]) else None,
            encoder=spec,
            data=data,
            preset=preset,
            verdict=verdict if ours else "not run here",
            figure=f"{PAGE}#{figure}",
        )
    )


def measured(row, key):
    ends = {"r2": ("r2_low", "r2_high"), "retrieval": ("retrieval_low", "retrieval_high")}.get(key)
    return (getattr(row, key), *((getattr(row, e) for e in ends) if ends else (math.nan, math.nan)))


STANDS_FOR = {studies.CAPTIONS: "captions 20x20", studies.FLAT: "CLEVR", studies.SOLID: "CLEVR"}
for i, (id, (text, estimator, key)) in enumerate(MEASURES.items()):
    for (data, spec), numbers in PAPER.items():
        row = spread(spec, key, estimator=estimator) if data == "captions 20x20" else None
        at = {"figure": "fig-full-size", "preset": "paper"}
        if spec == "random:ViT-B-32":  # a baseline: to hold is to come out near the paper's, not above it
            at["verdict"] = "holds" if abs(row[0] - numbers[i]) <= NEAR else "does not hold"
            text_here = f"Untrained: {text}."
        else:
            text_here = f"A scene is a sum: {text}."
        claim(id, text_here, numbers[i], row, spec, data, **at)
    row = spread("sentence:all-MiniLM-L6-v2", key, estimator=estimator)
    claim(
        id,
        f"A scene is a sum: {text}.",
        f"{PAPER['captions 20x20', CLIP][i]:.2f} (CLIP ViT-B/32)",
        row,
        "sentence:all-MiniLM-L6-v2",
        "captions 20x20",
        preset="paper",
        figure="fig-full-size",
    )
    for s, table in tables.values():
        if s.data in STANDS_FOR and not s.spec.startswith("random:"):
            e = s.embedded
            claim(
                id,
                f"A scene is a sum: {text}.",
                f"{PAPER[STANDS_FOR[s.data], CLIP][i]:.2f} (CLIP ViT-B/32, {STANDS_FOR[s.data]})",
                measured(table.row("objects", estimator), key),
                s.spec,
                f"{s.data}, {e.space.n_possible_objects} objects, {e.n_scenes:,} scenes",
                figure="fig-decomposition",
            )
for s in harder:
    if not s.spec.startswith("random:"):
        row = tables[s.title][1].row("objects", "avg+pos")
        record_claim(
            Claim(
                id="additive-scope",
                finding="F9",
                claim=f"Sums of object parts explain harder scenes, too (held-out R², at least {SCOPE}).",
                paper="no number",
                ours=row.r2_held_out,
                interval=None,
                encoder=s.spec,
                data=f"{s.data}, {row.n_scenes:,} scenes",
                preset=PRESET,
                verdict="holds" if row.r2_held_out >= SCOPE else "does not hold",
                figure=f"{PAGE}#fig-harder",
            )
        )

if PRESET != "smoke":  # at smoke size there is too little to fit on
    for s in found:
        table = tables[s.title][1]
        plain, placed = (table.row("objects", e) for e in ("avg", "avg+pos"))
        assert placed.r2_held_out > 0.8, "scenes add up"
        for labels in ("shuffled", "noise"):
            free = table.row("objects", "avg+pos", labels=labels)
            assert abs(free.r2 - free.r2_expected) < 0.03, "parts without meaning explain what counting says"
            assert free.r2_held_out < 0, "and nothing of other scenes"
        if s.spec in ("sentence:all-MiniLM-L6-v2", "efficientnet-lite0"):
            assert placed.r2 - plain.r2 < 0.05, "after training the place hardly matters"
        if s.spec in ("random:ViT-B-32", "random:efficientnet-lite0"):
            assert placed.r2 - plain.r2 > 0.1, "before training it does"
    objects = {name: table.probed["objects"].accuracy for name, (_, table) in separating.items()}
    assert shares["weak product (planted)"] > 0.95, "a weak product has the share of a bag"
    assert objects["weak product (planted)"] > 0.95, "and holds the objects"
    assert objects["bag of concepts (planted)"] < 0.5, "which a bag does not"
    trained, untrained = (f"captions, {name}" for name in ("MiniLM", "random-init MiniLM"))
    assert shares[untrained] > shares[trained], "the more additive one"
    assert objects[untrained] < objects[trained] - 0.3, "binds less"
    assert all(table.row("concepts", "avg+pos").objects < 0.6 for _, table in separating.values())
    for s in harder:
        held_out = tables[s.title][1].row("objects", "avg+pos").r2_held_out
        assert (held_out < SCOPE) == ("occluded" in s.data), "three objects add up, occluded ones in part"
    assert spread("random:ViT-B-32", "r2")[1] > 0.69 + NEAR, "above the published random-init row"

# %% [markdown]
# (exercises-scenes-add-up)=
# ## Exercises
#
# Fill in the `...`, run the cell, then run the check below it. On this page nothing runs: open the chapter in Colab (the
# rocket at the top) or on your machine.
#
# **1. The part of an object** (easy, 5 minutes). `z` `(scene, dim)` are embeddings of all pairs of objects, `index` `(scene, slot)`
# says which object stands in which slot. Give the `avg+pos` part of object `o` in `slot`.


# %% tags=["solution"]
def object_part(z, index, slot, o):
    """Mean of the centred scenes that have object o in this slot. z: (scene, dim)."""
    # solution begins
    centred = z - z.mean(0)
    return centred[index[:, slot] == o].mean(0)
    # solution ends


# %% tags=["check"]
exercises.check_object_part(object_part)

# %% [markdown]
# **2. R²** (easy, 5 minutes). One number for all dimensions: which share of the squared distance to the mean scene do the
# predictions explain?


# %% tags=["solution"]
def r_squared(z, predicted):
    """1 - squared error / squared distance to the mean scene. z, predicted: (scene, dim)."""
    # solution begins
    error = (z - predicted).square().sum()
    spread = (z - z.mean(0)).square().sum()
    return float(1 - error / spread)
    # solution ends


# %% tags=["check"]
exercises.check_r_squared(r_squared)

# %% [markdown]
# **3. R² for free** (medium, 10 minutes). Labels without meaning still explain something, as every part is one more number to fit
# with. In expectation R² is the number of independent parts divided by the scenes minus one. How many parts of `avg+pos` are
# independent? (The black ticks of the first figure are at this number.)


# %% tags=["solution"]
def free_r_squared(n_objects, n_slots, n_scenes):
    """Expected R² of avg+pos when the labels say nothing."""
    # solution begins
    # In each slot the parts sum to zero, so one of them follows from the others.
    return n_slots * (n_objects - 1) / (n_scenes - 1)
    # solution ends


# %% tags=["check"]
exercises.check_free_r_squared(free_r_squared)

# %% [markdown]
# **4. Predict, then run** (open). Does word order carry the position, or the grammar? Give captions another `joiner`, such as
# `" to the left of "`, with `encode_captions(..., joiner=...)`. Write down what you expect of `avg`, of `avg+pos` and of the
# alignment of the two places, then call `decompose`.
