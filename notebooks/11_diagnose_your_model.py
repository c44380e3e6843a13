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
# ---

# %% [markdown]
# # Diagnose your model
#
# You have an encoder: one from a hub, one that you trained, one behind an interface that only answers with vectors. Does it bind? This chapter takes you from *a function* to *a verdict* in ten lines, and then
# spends the rest of its length on what the verdict means, and on what would make it worthless.
#
# - **You will**: write three encoders of a few lines whose answers are known, and see that the diagnostic finds them out; read a report, with its baselines; compare models; and run the same from the command line, with no model at all if need be.
# - **Time**: 20 minutes to read. The `laptop` preset runs in about four minutes on two CPU cores.

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
ENCODERS = ["sentence:all-MiniLM-L6-v2"]
POCKETS = ["pocket:narrow", "pocket:broad"]

# %% tags=["hide-input"]
import hashlib
import tempfile
from itertools import pairwise
from pathlib import Path

import ipywidgets
import numpy as np
from IPython.display import HTML, Markdown

from conceptbind import widgets
from conceptbind.encoders import try_load
from conceptbind.exercises import diagnose_your_model as exercises
from conceptbind.files import from_file
from conceptbind.html_tables import html_table
from conceptbind.report.data import data_set
from conceptbind.scenes import captions

# %% [markdown]
# ## Ten lines
#
# Anything that turns a list of texts into rows of numbers is an encoder. Here is the simplest one there is: every word has a random vector, and a caption is the sum of its words.


# %%
def word(text, dim=64):
    """A random vector for a word (or any text), the same every time."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    return np.random.default_rng(seed).standard_normal(dim)


def sum_of_words(texts):
    return np.stack([sum(word(w) for w in text.split()) for text in texts])


from conceptbind.encoders import from_functions
from conceptbind.report.measure import binding_report, report_on

DATA = "captions8" if PRESET != "smoke" else "clevr2d"
QUICK = "smoke"  # 600 of the 4,096 captions: enough for encoders without noise
report = report_on(from_functions(texts=sum_of_words, name="sum of words"), DATA, preset=QUICK, seed=SEED)
print(report.verdict, "because", report.why["text"])

# %% [markdown]
# A **bag of concepts**, as it must be: the sum forgets which word stood beside which. Two more encoders that we know from [](01_what_is_binding.ipynb): one that has a random vector for every *pair* of neighbouring words, which is a table of objects; and one that *multiplies* the vectors of
# an adjective and its noun.


# %%
def table_of_pairs(texts):
    words = [text.split() for text in texts]
    return np.stack([sum(word(f"{a} {b}") + word(a) + word(b) for a, b in pairwise(w)) for w in words])


def products(texts):
    words = [text.split() for text in texts]
    return np.stack([sum(word(a) * word(b) + word(a) + word(b) for a, b in pairwise(w)) for w in words])


known = {"sum of words": report}
for function in (table_of_pairs, products):
    name = function.__name__.replace("_", " ")
    known[name] = report_on(from_functions(texts=function, name=name), DATA, preset=QUICK, seed=SEED)
for name, found in known.items():
    print(f"{name:16s} {found.verdict}")

# %% [markdown]
# (Captions are *a red circle and a blue square*; pairs such as *circle and* are there, too, and do no harm: they are the same in a scene and its twin, or belong to one value each.)
#
# ## Read the report
#
# The verdict is one word. The report behind it has a few dozen numbers, each beside what it has to be compared with:
#
# - **chance**: random scores.
# - **shuffled**: the same measurement with labels dealt out at random. What it reaches, the method brings along.
# - **untrained**: the same architecture with random weights, where there is one. What it reaches, training need not have taught.
#
# (tab-report)=
# **Table.** The main numbers of a report. *Recovered*: of what a sum misses of held-out objects, the share that the best simple function gets right.

# %% tags=["hide-input"]
few = PRESET == "smoke"  # then only one real encoder is asked
specs = {spec: try_load(spec, seed=SEED) for spec in ENCODERS[: 0 if few else None]}
real = {
    spec: report_on(encoder, DATA, preset=PRESET, seed=SEED)
    for spec, (encoder, _) in specs.items()
    if encoder is not None
}
pockets = {
    spec: report_on(try_load(spec)[0], "pocket", preset=PRESET, seed=SEED)
    for spec in POCKETS[: 1 if few else None]
}
reports = {**known, **real}
ROWS = {
    "additive R²": "additive_r2_avg_pos",
    "… held out": "additive_r2_held_out",
    "concepts, probe": "probe_concepts",
    "objects, probe": "probe_objects",
    "concepts without concept parts": "removal_concept_parts_concepts",
    "objects without concept parts": "removal_concept_parts_objects",
    "edit finds its scene": "edit_retrieval",
    "held-out objects, sum": "additive_objects_held_out",
    "held-out objects, product": "product_objects_held_out",
    "recovered": "verdict_recovered",
}


def cell(metrics, name):
    value = metrics.get(name)
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def table_of(metrics, side):
    return [
        [
            words,
            *(cell(metrics, f"{side}_{name}{end}") for end in ("", "_chance", "_shuffled", "_random_init")),
        ]
        for words, name in ROWS.items()
    ]


def report_table(model):
    found = reports[model]
    return f"<p style='white-space: normal'><b>{found.verdict}</b>: {found.why['text']}.</p>" + html_table(
        ["", "measured", "chance", "shuffled", "untrained"], table_of(found.metrics, "text")
    )


widgets.explore(report_table, model=ipywidgets.Dropdown(options=list(reports), value=list(reports)[-1]))

# %% tags=["hide-input"]
lines = []
for spec, found in real.items():
    m = found.metrics
    lines.append(
        f"**{spec}** on {len(data_set(DATA).scenes(10**6, seed=0)):,} captions: *{found.verdict}*, because {found.why['text']}. A probe reads the objects of {cell(m, 'text_probe_objects')} of the scenes, of {cell(m, 'text_probe_objects_random_init')} in the untrained model; "
        f"a sum of parts explains {cell(m, 'text_additive_r2_held_out')} of the variance, and {cell(m, 'text_additive_r2_held_out_random_init')} in the untrained model."
    )
Markdown("\n\n".join(lines) or "No pretrained encoder could be loaded here.")

# %% [markdown]
# ## Two modalities
#
# For an encoder of pictures *and* captions the report asks the same inside each, and then between them ([](09_bag_of_concepts.ipynb)).
#
# (tab-two-modalities)=
# **Table.** Reports on two small image-text models. *Picture → caption*: the true caption is nearer than its twin's.

# %% tags=["hide-input"]
BETWEEN = {
    "picture → caption": "image_to_text_two_way",
    "caption → picture": "text_to_image_two_way",
    "both ways (group)": "cross_group_score",
    "right caption first": "image_to_text_recall_1",
    "objects, probe on pictures": "image_probe_objects",
    "objects, probe on captions": "text_probe_objects",
}


def spread(metrics, name):
    if f"{name}_low" not in metrics:
        return cell(metrics, name)
    return f"{cell(metrics, name)} ({cell(metrics, name + '_low')} to {cell(metrics, name + '_high')})"


HTML(
    html_table(
        ["", *pockets],
        [
            [f"verdict, {side.replace('_', ' ')}", *(r.verdicts.get(side, "–") for r in pockets.values())]
            for side in ("image", "text", "cross_modal")
        ]
        + [[words, *(spread(r.metrics, name) for r in pockets.values())] for words, name in BETWEEN.items()],
    )
)

# %% [markdown]
# Read the *broad* column twice. Its captions are called **memorised objects**, and yet it tells new captions from their twins ([](09_bag_of_concepts.ipynb)). Both are right. The verdict says that nothing *we fitted* to some of its objects predicts the others; the model has a way to do it that is none of our
# sums and products. A verdict is about simple functions, not about what a model can do.
#
# ## No model, no network
#
# If you have only embeddings, two files are enough: `emb.npz` with an array `embeddings` `(n, dim)`, and `labels.csv` with a column for every object and concept.

# %%
space = data_set(DATA).space
scenes = data_set(DATA).scenes(400 if PRESET == "smoke" else 2000, seed=SEED)
folder = Path(tempfile.mkdtemp())
np.savez(folder / "emb.npz", embeddings=products(captions(space, scenes)).astype("float32"))
columns = [f"object{slot}_{concept}" for slot in (1, 2) for concept in space.concepts]
names = [
    ",".join(space.values[k][int(scene[slot, k])] for slot in range(2) for k in range(2)) for scene in scenes
]
(folder / "labels.csv").write_text("\n".join([",".join(columns), *names]) + "\n")
print((folder / "labels.csv").read_text()[:140], "...")

mine = from_file(folder / "emb.npz", folder / "labels.csv")
from_files = binding_report(embeddings=mine, preset=QUICK, seed=SEED, model="mine")
print(from_files.verdict, "because", from_files.why["embedding"])

# %% [markdown]
# (A sample of all pairs will do; what cannot be measured on it is left out, and a note says why.)
#
# The same on the command line, for one model, for many, and for files:
#
# ```
# conceptbind report --model ViT-B-32-quickgelu --pretrained openai --dataset clevr2d captions20
# conceptbind report --pretrained_model models.txt --dataset clevr2d --skip_existing
# conceptbind report --embeddings emb.npz --labels labels.csv
# conceptbind build *_binding.json --output binding.csv
# ```
#
# Each report is a JSON file with the keys of CLIP_benchmark, and a page that can be printed. `build` joins reports to one table, beside results of CLIP_benchmark if you have some.
#
# ## What the verdict says, and what it does not
#
# | verdict | it says | it does not say |
# |---|---|---|
# | **bag of concepts** | values are read, objects are not, and there is hardly any interaction within objects | that no other data would show a binding |
# | **simple binding** | objects are read, and a sum or product fitted to *some* objects predicts *others* | that the model computes a product |
# | **memorised objects** | objects are read, nothing we fitted predicts new ones, though it finds a planted product of the same size every time | that no function could |
# | **undetermined** | the evidence does not decide; the sentence beside it says what is missing | that the model is bad |
#
# Three things make any verdict worthless, and none of them shows in the number itself:
#
# - **Labels that are wrong, or not in the order of the embeddings.** Look at *shuffled*: if your numbers resemble it, check the files first.
# - **Scenes that are not about the question.** If red things are always circles in your data, there is nothing to bind.
# - **Too few objects.** With 24 of them a rule can hardly be told from a table ([](06_how_complex_is_binding.ipynb)); the report then says *undetermined*. Take 64 or more where you can.

# %% tags=["hide-cell"]
if PRESET != "smoke":
    assert {name: r.verdict for name, r in known.items()} == {
        "sum of words": "bag of concepts",
        "table of pairs": "memorised objects",
        "products": "simple binding",
    }
    assert from_files.verdict == "simple binding"

# %% [markdown]
# (exercises-diagnose-your-model)=
# ## Exercises
#
# Fill in the `...`, run the cell, then run the check below it. On this page nothing runs: open the chapter in Colab (the
# rocket at the top) or on your machine.
#
# **1. Did it learn that?** (easy, 5 minutes). `metrics` are those of a report, `name` is one of them, such as `"text_probe_objects"`. Say whether it shows something that the architecture does not have without training: the whole 95 % interval lies above the untrained number.


# %% tags=["solution"]
def beyond_the_architecture(metrics, name):
    """Is the lower end of the interval above what the untrained network reaches?"""
    # solution begins
    return metrics[f"{name}_low"] > metrics[f"{name}_random_init"]
    # solution ends


# %% tags=["check"]
exercises.check_beyond_the_architecture(beyond_the_architecture)

# %% [markdown]
# **2. Bind without a table** (medium, 15 minutes). Write an encoder of captions such as *a red circle and a blue square* that multiplies: the vector of an object is the product, number by number, of `word(colour)` and `word(shape)`; that of a scene is the sum of its objects. (Then run `report_on` on it. Without the sum of words, are its concepts still read?)


# %% tags=["solution"]
def embed_product(texts):
    """Embed captions: sum over objects of word(colour) * word(shape). Gives an array (caption, dim)."""
    # solution begins
    rows = []
    for text in texts:
        objects = [phrase.split()[-2:] for phrase in text.split(" and ")]
        rows.append(sum(word(colour) * word(shape) for colour, shape in objects))
    return np.stack(rows)
    # solution ends


# %% tags=["check"]
exercises.check_embed_product(embed_product)

# %% [markdown]
# **3. Your own** (open). Take a model that you use. Which concepts matter to its users, and what would a twin be there? Write twenty captions and their twins by hand before you write a generator; does the model tell them apart?
