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
#     data: [results/probes_captions_full.json]
# ---

# %% [markdown]
# # Objects inside one modality
#
# In CLIP, a picture of a red circle and a blue square is reported to lie about as close to the caption with the colours
# exchanged as to the right one. Was the binding lost in the picture's embedding, or is it there, and the caption's embedding speaks another
# language? This chapter looks into *one modality at a time*: can a simple reader find whole objects in the embedding of
# a caption, or of a picture?
#
# - **Paper**: section 2, finding F2 {cite:p}`uselis2026bind`; the question goes back to {cite:t}`lewis2022clip` and
#   {cite:t}`koishigarina2025bag`.
# - **You will**: train linear probes on frozen embeddings of text and image encoders; compare each with chance, shuffled
#   labels, a bag of concepts and an untrained network; see how much data a probe needs, and what a third object or a
#   free place does.
# - **Time**: 20 minutes to read. The `laptop` preset runs in about 4 minutes on two CPU cores. The `paper` preset is for
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
TEXT_ENCODERS = ["sentence:all-MiniLM-L6-v2", "open_clip:ViT-B-32-quickgelu/openai", "random:ViT-B-32"]
PICTURE_ENCODERS = ["efficientnet-lite0", "open_clip:ViT-B-32-quickgelu/openai", "random:ViT-B-32"]

# %% tags=["hide-input"]
import math

import ipywidgets
import torch
from IPython.display import Markdown

from conceptbind import plots, results, widgets
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, learning_curve, probe, probe_scores
from conceptbind.claims import Claim, record_claim
from conceptbind.embeddings import EmbeddingSet, encode_captions, encode_pictures
from conceptbind.encoders import try_load
from conceptbind.exercises import objects_inside_one_modality as exercises
from conceptbind.planted import planted_encoders
from conceptbind.render import FlatRenderer
from conceptbind.scenes import captions, factorial_scenes, sample_scenes, scene_split
from conceptbind.spaces import CAPTIONS_20, CLEVR_2D, CLEVR_COLOURS
from conceptbind.studies import NAMES

N_VALUES = notebook.choose(PRESET, {"smoke": 3, "laptop": 8, "paper": 20})
N_HARDER = notebook.choose(PRESET, {"smoke": 30, "laptop": 288, "paper": 576})
SEEDS = range(SEED, SEED + notebook.choose(PRESET, {"smoke": 1, "laptop": 3, "paper": 3}))

# %% [markdown]
# ## What a probe is
#
# A {term}`probe` is the simplest reader we can think of: a weighted sum. For each {term}`head`, *colour*,
# *shape*, or *object*, it turns an embedding $z$ into one score for each of the $V$ possible answers, $W^\top z + b$. Its
# weights are fitted on some scenes and judged on others.
#
# A scene has $m$ objects, so there are $m$ right answers. The probe is asked to spread its belief evenly over them: the
# target $y$ has mass $1/m$ on the answer of each object, and the fit minimises the cross-entropy
#
# $$ \frac1n \sum_{s} \Big[ \log \sum_{v} e^{w_v^\top z_s + b_v} - \sum_v y_{sv} (w_v^\top z_s + b_v) \Big]
#    + \text{a small penalty on } W. $$
#
# Then it is judged by {term}`concept recognition` and {term}`object recognition` exactly as in [](01_what_is_binding.ipynb).
# A *red circle* and a *red square* are different answers of the object probe. If an embedding were a bag of
# concepts, twins would share one embedding and the object probe could not tell them apart, *however it was trained*.
#
# We split the scenes at random: 40 % to fit, 60 % to judge, the {term}`test scenes <test scene>`. Each *object* may occur
# on both sides, only the *ordered pair* is new. The question here is whether the objects are *in* the embedding. Whether
# binding carries over to objects never seen is another, harder question, and not one that this split can answer.
#
# ```{admonition} Never one number alone
# :class: important
# Beside the accuracies of the first table stand four others:
#
# - **chance**: what random scores reach.
# - **shuffled labels**: the same probe, fitted to labels dealt out at random. There is nothing to find, so what it
#   reaches is the method's own doing {cite:p}`hewitt2019control`.
# - **bag of concepts**: the same probe on the planted bag of chapter 1, for the same scenes. It cannot bind, but it is
#   not at zero: scenes with a shared colour or shape are their own twin. What a bag reaches, binding does not explain.
# - **random-init**: the same probe on an untrained CLIP ViT-B/32. What an untrained network reaches, learning need not
#   explain. For CLIP it is the exact baseline; MiniLM and EfficientNet have other architectures, so a difference to them
#   mixes training with architecture.
# ```
#
# ## The scenes
#
# Captions are built from the paper's attributes and nouns; pictures are flat shapes in the colours of
# CLEVR {cite:p}`johnson2017clevr`.

# %% tags=["hide-input"]
colours, nouns = (values[:N_VALUES] for values in CAPTIONS_20.values)
caption_space = CAPTIONS_20.subset(attribute=colours, noun=nouns)
picture_space = CLEVR_2D if PRESET != "smoke" else CLEVR_2D.subset(colour=["red", "blue", "yellow"])
caption_scenes = factorial_scenes(caption_space, n_objects=2)
picture_scenes = factorial_scenes(picture_space, n_objects=2)
renderer = FlatRenderer(picture_space)

print(f"captions: {caption_space.n_possible_objects} objects, {len(caption_scenes)} scenes, such as")
print("   ", captions(caption_space, caption_scenes[[N_VALUES + 1]])[0])
print(f"pictures: {picture_space.n_possible_objects} objects, {len(picture_scenes)} scenes")

# %% mystnb={"image": {"alt": "Four example pictures, each with two flat coloured shapes side by side on light grey, titled with their captions."}, "figure": {"caption": "Four of the pictures. The left object is slot 0, the right one slot 1.", "name": "fig-example-pictures"}}
examples = sample_scenes(picture_space, 2, 4, seed=SEED)
plots.gallery(renderer.render(examples), captions(picture_space, examples))

# %% [markdown]
# ## The encoders
#
# Two pretrained encoders whose weights come with the package, so that this page can be recomputed anywhere: MiniLM
# {cite:p}`wang2020minilm,reimers2019sbert` for captions, EfficientNet-Lite0 {cite:p}`tan2019efficientnet` for pictures.
# CLIP {cite:p}`radford2021clip,cherti2023openclip`, which the paper is about, joins them wherever its weights can be
# had. And a CLIP with *untrained* weights, as the baseline of both.

# %% tags=["hide-input"]
loaded = {spec: try_load(spec, seed=SEED) for spec in dict.fromkeys(TEXT_ENCODERS + PICTURE_ENCODERS)}
texts = {NAMES.get(spec, spec): loaded[spec][0] for spec in TEXT_ENCODERS if loaded[spec][0]}
pictures = {NAMES.get(spec, spec): loaded[spec][0] for spec in PICTURE_ENCODERS if loaded[spec][0]}
for spec, (encoder, _) in loaded.items():
    print(
        f"{NAMES.get(spec, spec):22s}",
        f"{encoder.dim} dimensions" if encoder else "not run here: no weights found",
    )

embedded = {
    "captions": {name: encode_captions(e, caption_space, caption_scenes) for name, e in texts.items()},
    "pictures": {
        name: encode_pictures(e, picture_space, picture_scenes, renderer) for name, e in pictures.items()
    },
}

# %% [markdown]
# ## Are the objects in there?
#
# (fig-probes)=
# **Figure.** Recognition by linear probes on test scenes. Whiskers: 95 % interval; black ticks: chance.

# %% tags=["hide-input"]
probed = {
    modality: {name: probe(e, seeds=SEEDS) for name, e in sets.items()} for modality, sets in embedded.items()
}


def interval(row):
    return row.accuracy, row.low, row.high


for modality, space, scenes in (
    ("captions", caption_space, caption_scenes),
    ("pictures", picture_space, picture_scenes),
):
    bag = planted_encoders(space, "additive", dim=512, seed=SEED, noise=0.5)
    probed[modality]["bag of concepts (planted)"] = probe(bag.scenes(scenes), space, scenes, seeds=SEEDS)


def rows_of(modality):
    """Concept and object recognition of each encoder, then of the shuffled labels of the first."""
    table = {name: (r.row(ALL_CONCEPTS), r.row(OBJECTS)) for name, r in probed[modality].items()}
    first = next(iter(probed[modality].values()))
    table["shuffled labels"] = tuple(first.row(head, labels="shuffled") for head in (ALL_CONCEPTS, OBJECTS))
    return table


def bars(modality):
    table = rows_of(modality)
    return plots.paired_bars(
        {name: tuple(map(interval, pair)) for name, pair in table.items()},
        chance={name: tuple(row.chance for row in pair) for name, pair in table.items()},
    )


def read_aloud(modality):
    return f"Probes on {modality}: " + "; ".join(
        f"{name}, concepts {c.accuracy:.2f}, objects {o.accuracy:.2f}"
        for name, (c, o) in rows_of(modality).items()
    )


widgets.explore(bars, modality=ipywidgets.ToggleButtons(options=list(probed)), alt=read_aloud)

# %% tags=["hide-input"]
lines = ["| | | concepts | objects | chance (concepts, objects) |", "|---|---|---|---|---|"]
for modality in probed:
    for name, (c, o) in rows_of(modality).items():
        lines.append(
            f"| {modality} | {name} | {c.accuracy:.3f} [{c.low:.2f}, {c.high:.2f}] "
            f"| {o.accuracy:.3f} [{o.low:.2f}, {o.high:.2f}] | {c.chance:.4f}, {o.chance:.4f} |"
        )
Markdown("\n".join(lines))

# %% [markdown]
# **They are.** From captions, the probes recover the two objects of nearly every test scene; from pictures, of more than
# 97 in 100. (Concepts and objects have probes of their own, so an object can be found where one of its values is
# missed.) The shuffled labels stay near chance, and the bag of concepts shows what could be had without binding: it gets
# about a third to a half, the scenes whose objects share a value, and some whose mirror image, the same two objects in
# the other order, was among those fitted on. So the paper's finding F2 holds here, on encoders that the paper did not
# use.
#
# **But look at the random-init row.** A CLIP that was never trained does just as well, so learning is not needed to put
# the objects there. One way to think of it: a deep network with random weights scrambles *what* with *where*, and a
# linear reader that is trained on top can unscramble it. This experiment shows that one modality does not *lose* the
# objects. It does not show that training taught the model to bind. We come back to this below.
#
# Do mirror images explain the high numbers? Keep both orders of a pair on the same side of the split and probe again:


# %% tags=["hide-input"]
def split_by_pair(space, scenes, seed):
    """Mark 40 % of the unordered pairs of objects, with all their scenes, for fitting."""
    index = space.object_index(scenes).sort(dim=1).values
    _, pair = index.unique(dim=0, return_inverse=True)
    return scene_split(int(pair.max()) + 1, train_fraction=0.4, seed=seed)[pair]


lines = ["| | | objects, random split | objects, both orders on one side |", "|---|---|---|---|"]
for modality, sets in embedded.items():
    for name, e in sets.items():
        train = torch.stack([split_by_pair(e.space, e.scenes, seed) for seed in SEEDS])
        apart = probe(e, train=train, seeds=SEEDS, controls=False).row(OBJECTS)
        lines.append(
            f"| {modality} | {name} | {probed[modality][name].row(OBJECTS).accuracy:.3f} | {apart.accuracy:.3f} |"
        )
        assert PRESET == "smoke" or abs(apart.accuracy - probed[modality][name].row(OBJECTS).accuracy) < 0.03
Markdown("\n".join(lines))

# %% [markdown]
# They do not: no encoder loses more than about two points.
#
# ## Question the embedding yourself
#
# The same object probes, one encoder at a time. Choose an object, change it, and see what a linear reader makes of the
# embedding of *that* picture. The probe was fitted on 40 % of the scenes, so six in ten of those that you make are new to
# it.

# %%
editor_scores = {name: probe_scores(e, seed=SEED) for name, e in embedded["pictures"].items()}
widgets.scene_editor(picture_space, scores=editor_scores, colours=CLEVR_COLOURS)

# %% [markdown]
# ## How much data does a probe need?
#
# A probe that needs thousands of scenes to find the objects says less about an embedding than one that needs a hundred.
#
# (fig-learning-curves)=
# **Figure.** Recognition on test scenes against the number of scenes that the probe was fitted on. Bands: 95 %
# interval.

# %% tags=["hide-input"]
SIZES = notebook.choose(
    PRESET,
    {
        "smoke": {"captions": [20, 40], "pictures": [20, 40]},
        "laptop": {"captions": [64, 128, 256, 512, 1024], "pictures": [25, 50, 100, 200, 400]},
        "paper": {
            "captions": [500, 1000, 2000, 4000, 8000, 16000, 32000],
            "pictures": [25, 50, 100, 200, 400],
        },
    },
)
grown = {
    (modality, name): learning_curve(e, n_train=SIZES[modality], seeds=SEEDS)
    for modality, sets in embedded.items()
    for name, e in sets.items()
}


def curve(modality, recognition):
    curves = {}
    for (m, name), by_size in grown.items():
        if m == modality:
            rows = [by_size[n].row(recognition) for n in SIZES[modality]]
            curves[name] = [[getattr(r, part) for r in rows] for part in ("accuracy", "low", "high")]
    return plots.curves(
        SIZES[modality],
        curves,
        xlabel=f"{modality} that the probe was fitted on",
        ylabel=f"{recognition} recognised",
        chance=rows[0].chance,
        log=True,
    )


def curve_aloud(modality, recognition):
    rising = {
        name: ", ".join(f"{n}: {by_size[n].row(recognition).accuracy:.2f}" for n in SIZES[modality])
        for (m, name), by_size in grown.items()
        if m == modality
    }
    return f"{recognition} recognised by number of {modality}. " + "; ".join(
        f"{k}: {v}" for k, v in rising.items()
    )


widgets.explore(
    curve,
    modality=ipywidgets.ToggleButtons(options=list(embedded)),
    recognition=ipywidgets.ToggleButtons(options=[OBJECTS, ALL_CONCEPTS]),
    alt=curve_aloud,
)

# %% [markdown]
# On captions concepts come cheap and objects cost more: with 128 captions nearly all concepts are found, and fewer than
# half of the object pairs. Each object is met in few scenes, each value in many. MiniLM needs about half as many captions
# as the untrained network. On pictures EfficientNet's two curves lie together, and the untrained network is ahead.
#
# ## Harder scenes: a third object, and objects anywhere
#
# So far every picture has one object on the left and one on the right, every caption a first and a second. A network,
# even an untrained one, could keep *left* and *right* apart like two pages of a notebook, and bind nothing: a colour on
# the left page goes with the shape on the left page. So make it harder in two ways. Add a **third object**: more to
# hold in the same vector. And draw two objects **anywhere** in the picture, so that no place stands for an object any
# more. Everything else stays: the 24 objects of the pictures, told as captions too, as many scenes, the same 40 % to
# fit.
#
# (fig-harder-scenes)=
# **Figure.** The same number of scenes in each row. Whiskers: 95 % interval; black ticks: chance.

# %% tags=["hide-input"]
space = picture_space
two, three = (sample_scenes(space, n, N_HARDER, seed=SEED) for n in (2, 3))
anywhere = FlatRenderer(space, placement="free", seed=SEED)
harder = {"captions": {}, "pictures": {}}
for name, encoder in texts.items():
    harder["captions"][f"{name}, 2 objects"] = encode_captions(encoder, space, two)
    harder["captions"][f"{name}, 3 objects"] = encode_captions(encoder, space, three)
for name, encoder in pictures.items():
    same = embedded["pictures"][name].subset(space.scene_index(two))
    harder["pictures"][f"{name}, 2 objects"] = same
    harder["pictures"][f"{name}, 3 objects"] = encode_pictures(encoder, space, three, renderer)
    harder["pictures"][f"{name}, 2 objects anywhere"] = encode_pictures(encoder, space, two, anywhere)
for modality in harder:
    for n, scenes in ((2, two), (3, three)):
        bag = planted_encoders(space, "additive", dim=512, seed=SEED, noise=0.5)
        made = EmbeddingSet(bag.scenes(scenes), scenes, space)
        harder[modality][f"bag of concepts, {n} objects"] = made
harder = {
    m: {k: probe(e, seeds=SEEDS, controls=False) for k, e in sets.items()} for m, sets in harder.items()
}


def harder_bars(modality):
    pairs = {name: (r.row(ALL_CONCEPTS), r.row(OBJECTS)) for name, r in harder[modality].items()}
    return plots.paired_bars(
        {name: tuple(map(interval, pair)) for name, pair in pairs.items()},
        chance={name: tuple(row.chance for row in pair) for name, pair in pairs.items()},
    )


def harder_aloud(modality):
    return f"Probes on {modality}: " + "; ".join(
        f"{name}: concepts {r.row(ALL_CONCEPTS).accuracy:.2f}, objects {r.row(OBJECTS).accuracy:.2f}"
        for name, r in harder[modality].items()
    )


widgets.explore(
    harder_bars, modality=ipywidgets.ToggleButtons(options=["pictures", "captions"]), alt=harder_aloud
)

# %% mystnb={"image": {"alt": "Four pictures of two flat coloured shapes each, at arbitrary places on light grey, titled with their captions."}, "figure": {"caption": "Two objects anywhere. Slot 0 is named first in the title, but no place in the picture tells which it is.", "name": "fig-anywhere"}}
plots.gallery(anywhere.render(examples), captions(space, examples))

# %% [markdown]
# Now the encoders differ. On captions MiniLM keeps a clear lead over the untrained network, which stands little above a
# bag of concepts. On pictures the untrained network hardly minds a third object in a fixed place, but objects
# *anywhere* undo it: its concept recognition falls to a third, and its object recognition to a tenth, far below a bag.
# Where not even the concepts are found, the lost objects are no failure of binding in particular; but the near-perfect
# row above was a matter of fixed places, a seating plan. EfficientNet loses about a quarter of its scenes to a third
# object and as many to free places, and keeps two thirds either way.
#
# So when someone shows you that objects can be read off an embedding, ask whether the objects had fixed places.
#
# ## At full size
#
# The paper's caption set has 20 attributes and 20 nouns: 400 objects and all 160,000 ordered pairs. Encoding them takes
# two CPU cores most of an hour, so the table below is read from a file of results; `RERUN = True` computes it again.
#
# (fig-full-size)=
# **Table.** Probes on all 160,000 captions, 64,000 of them to fit.

# %% tags=["hide-input"]
if RERUN or PRESET == "paper":
    every_scene = factorial_scenes(CAPTIONS_20, n_objects=2)
    table = []
    for name, encoder in texts.items():
        result = probe(encode_captions(encoder, CAPTIONS_20, every_scene, progress=True), seeds=SEEDS)
        table += [{"encoder": name, **row} for row in result.as_dicts()]
    settings = {**result.settings, "data": "captions 20x20, all 160,000 scenes", "encoders": TEXT_ENCODERS}
    results.write_table("probes_captions_full", table, settings=settings)

full = results.read_table("probes_captions_full")
lines = [
    f"Run of {full['date']}, {len(full['settings']['seeds'])} seeds, {full['software']['device']}.",
    "",
]
lines += ["| encoder | labels | concepts | objects | chance (objects) |", "|---|---|---|---|---|"]
found = {(r["encoder"], r["labels"], r["head"]): r for r in full["rows"] if r["scenes"] == "held-out"}
for name, labels in dict.fromkeys((r["encoder"], r["labels"]) for r in full["rows"]):
    c, o = found[name, labels, ALL_CONCEPTS], found[name, labels, OBJECTS]
    lines.append(f"| {name} | {labels} | {c['accuracy']:.4f} | {o['accuracy']:.4f} | {o['chance']:.6f} |")
lines.append("| *paper*: CLIP ViT-B/32 | true | 1.00 | 1.00 | – |")
Markdown("\n".join(lines))

# %% [markdown]
# With 400 objects, chance is about one in fifty thousand (one in eighty thousand for two different objects; a scene that
# shows one object twice is easier). MiniLM's objects are read off in 99 of 100 test scenes, and the untrained network
# does slightly better.
#
# ## What this shows, and what it does not
#
# - **Shown**: inside one modality, captions or pictures, whole objects can be read off the embedding by a weighted sum.
#   Being a single vector does not by itself throw the objects away. That CLIP's two sides keep them too is the paper's
#   finding; CLIP could not be run where this page was built.
# - **Not shown**: that the model *uses* what the probe finds, or that training put it there. With fixed places an
#   untrained network does as well.
# - **Not asked**: whether binding carries over to objects never seen. Here each object occurred in training scenes. For
#   that the objects themselves have to be held out, and the question becomes how *simple* the binding function is.

# %% tags=["hide-cell"]
PAGE = "02_objects_inside_one_modality.html"
PAPER = {"captions": {ALL_CONCEPTS: 1.00, OBJECTS: 1.00}, "pictures": {ALL_CONCEPTS: 0.94, OBJECTS: 0.96}}
SAID = {
    ALL_CONCEPTS: "A linear probe on {} recognises the concepts of test scenes.",
    OBJECTS: "A linear probe on {} recognises whole objects in test scenes.",
}
if PRESET != "smoke":  # at smoke size there is too little to fit on
    table = {modality: rows_of(modality) for modality in probed}
    for modality, first in (("captions", "MiniLM"), ("pictures", "EfficientNet-Lite0")):
        ours, untrained, bag = (
            table[modality][name][1] for name in (first, "random-init ViT-B/32", "bag of concepts (planted)")
        )
        assert ours.accuracy > 0.9, "whole objects can be read off"
        assert ours.low > bag.high, "better than a bag of concepts"
        assert untrained.high >= ours.low, "the untrained network does as well"
        assert table[modality]["shuffled labels"][1].accuracy < 0.05, "nothing is found where nothing is"
    untrained, trained = (
        harder["pictures"][f"{name}, 2 objects anywhere"].row(OBJECTS)
        for name in ("random-init ViT-B/32", "EfficientNet-Lite0")
    )
    assert untrained.high < trained.low, "anywhere in the picture, training shows"

NEAR = 0.1  # a number "holds" when it is at most this far below the paper's; fixed before the first run


def claim(modality, recognition, spec, row, *, n_objects, n_scenes, preset, figure):
    """Record one number beside the paper's; ``row``: accuracy, low, high, or None where it was not run."""
    published = PAPER[modality][recognition]
    verdict = "not run here" if not row else "holds" if row[0] >= published - NEAR else "does not hold"
    record_claim(
        Claim(
            id=f"probe-{modality}-{'objects' if recognition == OBJECTS else 'concepts'}",
            finding="F2",
            claim=SAID[recognition].format(modality),
            paper=published if spec.startswith("open_clip:") else f"{published:.2f} (CLIP ViT-B/32)",
            ours=row[0] if row else None,
            interval=row[1:] if row else None,
            encoder=spec,
            data=f"{modality}, {n_objects} objects, {n_scenes:,} scenes, 40 % to fit",
            preset=preset,
            verdict=verdict,
            figure=f"{PAGE}#{figure}",
        )
    )


for recognition in (ALL_CONCEPTS, OBJECTS):
    for modality, specs, space, n in (
        ("captions", TEXT_ENCODERS, caption_space, len(caption_scenes)),
        ("pictures", PICTURE_ENCODERS, picture_space, len(picture_scenes)),
    ):
        for spec in specs:
            if not spec.startswith("random:"):  # that is a baseline, not a claim
                result = probed[modality].get(NAMES.get(spec, spec))
                row = interval(result.row(recognition)) if result else None
                sizes = {"n_objects": space.n_possible_objects, "n_scenes": n}
                claim(modality, recognition, spec, row, **sizes, preset=PRESET, figure="fig-probes")
    for spec in TEXT_ENCODERS:
        row = found.get((NAMES.get(spec, spec), "true", recognition))
        if row and not spec.startswith("random:"):
            row = row["accuracy"], row["low"], row["high"]
            sizes = {"n_objects": 400, "n_scenes": 160_000}
            claim("captions", recognition, spec, row, **sizes, preset="paper", figure="fig-full-size")

# %% [markdown]
# (exercises-objects-inside-one-modality)=
# ## Exercises
#
# Fill in the `...`, run the cell, then run the check below it. On this page nothing runs: open the chapter in Colab (the
# rocket at the top) or on your machine.
#
# **1. Chance** (easy, 5 minutes). Random scores for $V$ queries, $p$ of them present. How likely is it that all $p$ come
# out on top? For 24 objects, two of them present, compare with the chance of objects in the table above, pictures. It
# says 0.0052 and not 1/276 = 0.0036: in one scene of 24 both objects are the same, so $p = 1$. Average over the two
# cases to get it.


# %% tags=["solution"]
def chance(n_queries, n_present):
    """Probability that random scores put the present queries above all others."""
    # solution begins
    # Every set of p queries is equally likely to be the top p.
    return 1 / math.comb(n_queries, n_present)
    # solution ends


# %% tags=["check"]
exercises.check_chance(chance)

# %% [markdown]
# **2. Soft targets** (medium, 10 minutes). Build the probe's targets. `labels` `(scene, slot)` holds, for one head, the
# right answer of each slot. Give a tensor `(scene, class)` with mass $1/m$ on the answer of each of the $m$ slots. Mind
# the scene that shows the same answer twice.


# %% tags=["solution"]
def soft_targets(labels, n_classes):
    """Spread a mass of 1 over the answers of a scene. labels: (scene, slot)."""
    # solution begins
    targets = torch.zeros(len(labels), n_classes)
    share = torch.full(labels.shape, 1 / labels.shape[1])
    return targets.scatter_add_(1, labels, share)
    # solution ends


# %% tags=["check"]
exercises.check_soft_targets(soft_targets)

# %% [markdown]
# **3. Predict, then run** (open). Captions have a seating plan, too: the first object, the second object. Which of the
# two text encoders relies on it? Design a caption in which the objects have no fixed place, for example by a longer
# `template` or another `joiner` for half of the scenes, write down what you expect, and measure it with `encode_captions`
# and `probe`.
#
# ```{dropdown} A hint
# Embed each half with its own template, then put the two sets together:
# `EmbeddingSet(torch.cat([a.embeddings, b.embeddings]), torch.cat([a.scenes, b.scenes]), space)`. Compare with a set in
# which all scenes have the longer template, so that only the *mixing* differs.
# ```
