# ---
# jupyter:
#   conceptbind:
#     data: [results/complexity.json, results/verdicts.json, results/calibration.json, results/description_length.json, results/released_protocol.json]
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
# # How complex is binding?
#
# A model has embedded a million scenes. Does it *know a rule* that turns "red" and "circle" into "red circle", or has it
# filled in a *table*, one entry for each object it met? Both can be read by a probe. Only the rule works for a blue
# triangle that nobody has shown it. This chapter measures which of the two a binding function is, and asks a question that
# is easily forgotten: **could the measurement have said anything else?**
#
# - **Paper**: section 2, finding F6, the complexity of the binding function {cite:p}`uselis2026bind`.
# - **You will**: fit functions of growing size to an encoder's embeddings and judge them on objects they never met; see
#   the paper's result appear; find out that it also appears where it should not; build a test that can fail; and take
#   binding functions apart into interactions.
# - **Time**: 30 minutes to read. The `laptop` preset runs in about 2 minutes on two CPU cores; the large sweep behind the
#   first figures takes one to two hours and is read from a file, unless you set `RERUN = True`. The `paper` preset is for a GPU.

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
    "random:ViT-B-32",
    "open_clip:ViT-B-32-quickgelu/openai",
]
PICTURE_ENCODERS = [
    "efficientnet-lite0",
    "random:efficientnet-lite0",
    "open_clip:ViT-B-32-quickgelu/openai",
    "dinov2:vitb14",
]

# %% tags=["hide-input"]
import ipywidgets
from IPython.display import Markdown

from conceptbind import plots, plots_complexity, widgets
from conceptbind.analysis.complexity import (
    COVERAGES,
    Subject,
    complexity_jobs,
    sweep_of,
    sweep_of_more_objects,
)
from conceptbind.analysis.complexity_table import ComplexityTable, compact
from conceptbind.analysis.interactions import (
    effect_stability,
    interaction_spectrum,
    mean_effect,
    mean_stability,
)
from conceptbind.analysis.verdict import verdict
from conceptbind.claims import Claim, record_claim
from conceptbind.embeddings import EmbeddingSet
from conceptbind.exercises import how_complex_is_binding as exercises
from conceptbind.html_tables import html_table
from conceptbind.planted import planted_encoders
from conceptbind.plots_summary import Reading, complexity_summary
from conceptbind.results import read_table, write_table
from conceptbind.scenes import ConceptSpace, factorial_scenes
from conceptbind.store import ResultStore
from conceptbind.studies import CAPTIONS, FLAT, NAMES, SOLID, geometry_studies
from conceptbind.subjects import encoder_subject, planted_subject
from conceptbind.sweeps import run_jobs

# %% [markdown]
# ## A function of a few numbers
#
# Number the values of every concept. Then a scene of two objects is four small integers, and an encoder, restricted to our
# scenes, is a function of them:
#
# $$ B:\ (\text{colour}_1, \text{shape}_1, \text{colour}_2, \text{shape}_2) \ \longmapsto\ z \in \mathbb{R}^d . $$
#
# This is the **binding function**. How complex is it? The paper's idea: try to *imitate* it. Choose a family of functions
# $g$, fit $g \approx B$ on some scenes, and see whether $g$ is right elsewhere. If a small family suffices, $B$ is simple.
#
# Where is "elsewhere"? Not just other scenes: other **objects**. Pick a share $\rho$ of all objects, the
# {term}`coverage`. The approximator $g$ trains on scenes made of these only. {term}`Held-out scenes <training scene, mixed scene, held-out scene>` are made of the others.
# Every *value* occurs in training; the *combinations* do not. A rule carries over to them. A table has no entry.
#
# How do we see whether $g$ is right? By probes that were fitted to the **real** embeddings, with all objects. They are the
# *ruler*: put to $g$'s embedding of a scene, do they still read its concepts, and its objects?
#
# | approximator | $g$ | |
# |---|---|---|
# | additive | $\mu + \sum_i \sum_k u_{i,k,c_{ik}}$ | least squares, exact |
# | object table | the same, plus a vector for each object | ridge, exact |
# | object product | the same as *additive*, plus $\sum_i (v_{i,1,c_{i1}} \odot v_{i,2,c_{i2}})\, C$ | alternating least squares |
# | MLP | hidden layers of width 64 to 4096 on the concepts' codes | AdamW |
# | others | a product over all objects, a small transformer, boosted trees, a random forest | |
#
# Whatever an approximator has to choose (a penalty, a rank, when to stop) it chooses on *validation objects*, a fifth of
# the training objects. No held-out scene is looked at before the judgement.

# %% tags=["hide-input"]
studies, missing = geometry_studies(
    PRESET,
    data=[CAPTIONS, FLAT, SOLID],
    text_encoders=TEXT_ENCODERS,
    picture_encoders=PICTURE_ENCODERS,
    seed=SEED,
)
for spec in missing:
    print(f"not run here: {NAMES.get(spec, spec)}, no weights found")
VALUES = notebook.choose(PRESET, {"smoke": 4, "laptop": 8, "paper": 12})
KINDS = {"bag of concepts": "additive", "product": "product", "memorised objects": "memorised"}
planted = {
    f"planted {name}": planted_subject(kind, values=VALUES, seed=SEED).data for name, kind in KINDS.items()
}

MORE_OBJECTS = {
    "planted: product": lambda: planted_subject("product", values=8),
    "planted: memorised objects": lambda: planted_subject("memorised", values=8),
    "MiniLM, captions": lambda: encoder_subject("sentence:all-MiniLM-L6-v2", values=8),
    "random-init ViT-B/32, captions": lambda: encoder_subject("random:ViT-B-32", values=8),
    "EfficientNet-Lite0, pictures (24 objects)": lambda: encoder_subject("efficientnet-lite0", data="2-D"),
}
"""Embeddings of 64 objects, where a rule can be told from a table, and pictures, of which there are 24."""

if RERUN:  # every encoder that could be loaded
    read = {study.spec for study in studies if study.data == CAPTIONS}
    seen = {study.spec for study in studies if study.data == FLAT}
    swept = [planted_subject(kind) for kind in KINDS.values()]
    swept += [encoder_subject(spec) for spec in TEXT_ENCODERS if spec in read]
    swept += [encoder_subject(spec, data="2-D") for spec in PICTURE_ENCODERS if spec in seen]
    with ResultStore("complexity.sqlite") as store:
        for subject in swept:
            run_jobs(store, complexity_jobs(subject, sweep_of(PRESET)))
        for make in list(MORE_OBJECTS.values())[:-1]:  # the pictures are swept already
            run_jobs(store, complexity_jobs(make(), sweep_of_more_objects(PRESET)))
        write_table("complexity", compact(store.rows("complexity")), settings={"preset": PRESET})
sweep = ComplexityTable(read_table("complexity")["rows"])

# %% [markdown]
# ## The paper's experiment
#
# Choose an embedding and the size of an MLP that imitates it. All embeddings have 24 objects (8 colours × 3 shapes) and
# 576 scenes; some are *planted*, with a binding that we know.
#
# (fig-coverage)=
# **Figure.** MLPs at growing coverage. On their training scenes: R², and scenes in which the ruler reads the objects.
# On scenes of held-out objects: scenes in which it reads the concepts, and the objects. Mean and range over three splits; R²
# below zero is drawn at zero; fits that did not converge are left out. Deep MLPs of width 1024 ran at three coverages. An MLP is
# taken at the step at which it predicts its validation objects best, so its training R² can be lower than it could be.

# %% tags=["hide-input"]
SHORT = {
    "planted product, 24 objects": "planted: product",
    "planted memorised, 24 objects": "planted: memorised objects",
    "planted additive, 24 objects": "planted: bag of concepts",
    "captions, 24 objects, sentence:all-MiniLM-L6-v2": "MiniLM, captions",
    "captions, 24 objects, random:ViT-B-32": "random-init ViT-B/32, captions",
    "2-D, 24 objects, efficientnet-lite0": "EfficientNet-Lite0, pictures",
    "2-D, 24 objects, random:efficientnet-lite0": "random-init EfficientNet, pictures",
}
SMALL = sorted(
    (name for name in sweep.subjects if ", 24 objects" in name),
    key=lambda name: list(SHORT).index(name) if name in SHORT else len(SHORT),
)
SUBJECTS = {SHORT.get(name, name): name for name in SMALL}
LINES = {
    "R², training": "r2_train",
    "objects, training": "objects_train",
    "concepts, held out": "concepts_held_out",
    "objects, held out": "objects_held_out",
}
WIDTHS, DEPTHS = (64, 256, 1024, 4096), (1, 2, 3, 4)
if PRESET == "smoke":
    WIDTHS, DEPTHS = WIDTHS[1:2], DEPTHS[:2]


def perceptron(width, hidden_layers):
    return f"MLP {width}" + (f" x {hidden_layers}" if hidden_layers > 1 else "")


def curve_lines(embedding, width, hidden_layers):
    name = perceptron(width, hidden_layers)
    return {label: sweep.curve(SUBJECTS[embedding], name, column) for label, column in LINES.items()}


def coverage_curve(embedding, width, hidden_layers):
    try:
        found = curve_lines(embedding, width, hidden_layers)
    except KeyError:
        return (
            f"<p>{embedding}: not run with {hidden_layers} hidden layers of width {width}. They belong to the "
            "<code>paper</code> preset, for a GPU.</p>"
        )
    lines = {
        label: tuple([max(0.0, v) for v in part] for part in (c.mean, c.low, c.high))
        for label, c in found.items()
    }
    return plots.curves(
        next(iter(found.values())).coverages,
        lines,
        xlabel="coverage: share of the objects in training",
        ylabel="share of scenes, or R²",
    )


def curve_aloud(embedding, width, hidden_layers):
    spoken = (f"{label}, {c.aloud()}" for label, c in curve_lines(embedding, width, hidden_layers).items())
    return f"{embedding}, {perceptron(width, hidden_layers)}, by coverage. " + "; ".join(spoken)


widgets.explore(
    coverage_curve,
    # without the bag: each embedding weighs a third of a megabyte
    embedding=ipywidgets.Dropdown(
        options=[label for label in SUBJECTS if "bag" not in label], value="MiniLM, captions"
    ),
    width=ipywidgets.SelectionSlider(options=WIDTHS, value=WIDTHS[-2:][0]),
    hidden_layers=ipywidgets.SelectionSlider(options=DEPTHS, value=1),
    alt=curve_aloud,
    dpi=100,
)

# %% [markdown]
# Move the sliders for **MiniLM**. The widest MLPs fit their training scenes almost perfectly, and the ruler reads training
# objects in nearly all of them. On held-out objects it still reads the **concepts**, as soon as $\rho$ is large enough
# that every value occurs. But it reads **hardly any held-out object**, at any width, depth or coverage.
#
# (How much is behind a point? At coverage 0.6 ten of the 24 objects are held out, which make 100 scenes in each split; at 0.9 only two,
# and four scenes. Trust the middle of the curve more than its end.)
#
# That is the paper's finding F6, in our own fits. (In EfficientNet's pictures the concepts are read less often, in three quarters of
# the held-out scenes and more: the scorecard counts it as not holding.) Beside it, the largest networks and the trees of the paper:

# %% tags=["hide-input"]
AT = 0.6
BIG = [
    "additive",
    "object product, by coordinate",
    "MLP 4096",
    "MLP 256 x 4",
    "boosted trees",
    "random forest",
]
COLUMNS = {
    "training R²": "r2_train",
    "after all steps": "r2_all_steps",
    "training objects": "objects_train",
    "mixed objects": "objects_mixed",
    "held-out concepts": "concepts_held_out",
    "held-out objects": "objects_held_out",
}


def cell(name, approximator, column):
    found = sweep.reached(name, column, coverage=AT).get(approximator)
    return "–" if found is None else f"{found:.2f}"


def table_of(embedding):
    rows = [
        [approximator, *(cell(SUBJECTS[embedding], approximator, column) for column in COLUMNS.values())]
        for approximator in BIG
    ]
    return html_table([f"coverage {AT}", *COLUMNS], [row for row in rows if set(row[1:]) != {"–"}])


widgets.explore(table_of, embedding=ipywidgets.Dropdown(options=list(SUBJECTS), value="MiniLM, captions"))

# %% tags=["hide-input"]
LARGE_FITS = ("MLP", "transformer", "global", "boosted", "random")
BINDS = [name for name in SMALL if "additive" not in name]
peaks = []
for name in BINDS:
    for approximator in sweep.names(name):
        if approximator.startswith(LARGE_FITS):
            c = sweep.curve(name, approximator, "objects_held_out")
            peaks += [(mean, rho, approximator, name) for mean, rho in zip(c.mean, c.coverages, strict=True)]
most_objects, at, by, of = max(peaks)
most_at_06 = max(mean for mean, rho, *_ in peaks if rho == AT) if PRESET == "laptop" else most_objects
concepts = {
    approximator: [sweep.reached(name, "concepts_held_out", coverage=AT).get(approximator) for name in BINDS]
    for approximator in BIG
}
lost = ", ".join(
    f"{approximator} {min(found):.2f} to {max(found):.2f}"
    for approximator, values in concepts.items()
    if (found := [v for v in values if v is not None]) and min(found) < 0.8
)
n_left = sum(not r["converged"] for r in sweep.rows)
Markdown(
    f"Of all embeddings but the bag, a network or a forest reads held-out objects in at most **{most_objects:.2f}** of the scenes "
    f"({by}, coverage {at:g}, {next(k for k, v in SUBJECTS.items() if v == of)}), and in at most "
    f"{most_at_06:.2f} at coverage {AT}. Held-out *concepts* are read less than in 0.8 of the scenes, on some embedding, by: "
    f"{lost}. {n_left} of {len(sweep.rows)} fits did not converge; they are in no mean."
)

# %% [markdown]
# This answers the question that we were most curious about: *does "at most 20 % of held-out objects" survive a
# well-optimised fit?* **Yes.** The networks explain nine tenths of their training scenes and more, when all their steps are taken, and
# hardly ever give a held-out object. What does *not* carry over in our fits is the other half: concepts of new objects are lost by deep
# networks, by trees and most of all by random forests.
#
# (The planted *bag* is the exception that proves the ruler: it has no objects to miss, the ruler guesses them from shared values, and
# approximators are as good as the bag itself.)
#
# ## Was it the optimiser?
#
# The question is not idle. The code that was released with the paper trains its approximators at a constant rate of
# 0.01, on targets that are not standardised, because its learning-rate schedule is built but never used. This is what *that*
# protocol, written again by us, reports on the same data (4,000 steps, the number of the epoch that is best on the test scenes, as
# it does; one split, 25 held-out scenes), next to our fits of the same kind. (The page we
# work from does not say how many layers its MLP has: here it has two hidden ones of width 1024, and ours has one. Its product has 1024 factors
# trained by gradient; ours at most 16, by alternating least squares. Ours: means of the splits that converged.)
#
# (tab-released)=
# **Table.** The released protocol and ours, coverage 0.8. R² on training scenes at the last step; the best at any step; objects
# recognised in held-out scenes.

# %% tags=["hide-input"]
released = read_table("released_protocol")["rows"]
OURS = {"MLP": "MLP 1024", "sum+product": "object product"}
SAME = {
    "captions, MiniLM": "captions, 24 objects, sentence:all-MiniLM-L6-v2",
    "planted product": "planted product, 24 objects",
    "2-D, EfficientNet-Lite0": "2-D, 24 objects, efficientnet-lite0",
}
lines = [
    "| data, model | released: R² (best) | released: objects | ours: R² | ours: objects |",
    "|---|---|---|---|---|",
]
for row in (r for r in released if r["coverage"] == 0.8):
    ours = [sweep.at(SAME[row["data"]], OURS[row["model"]], c, 0.8) for c in ("r2_train", "objects_held_out")]
    lines.append(
        f"| {row['data']}, {row['model']} | {row['r2_last']:.2f} ({row['r2_best']:.2f}) | {row['objects_selected']:.2f} | "
        f"{ours[0]:.2f} | {ours[1]:.2f} |"
    )
Markdown("\n".join(lines))

# %% [markdown]
# On MiniLM, whose embeddings are of length one and lie close together, the released protocol is not steady: the MLP explains half
# of its *training* scenes, and the product swings (its best step and its last are far apart), so from its number nothing follows about the encoder.
# On embeddings that are large, ours and EfficientNet's, the same settings fit well. So the settings, not the encoder, decide whether
# anything is measured. With the optimiser mended the fits are good everywhere, and the objects are still missing. Finding F6
# stands, for a better reason.
#
# ## Could it have come out otherwise?
#
# Now choose **planted: product** in the figure above. We built this embedding ourselves: a sum of concept vectors plus a
# *product* of one factor for the colour and one for the shape. There is no simpler way to bind. It is exactly the form
# that, says the paper, makes transformers generalise. And the MLPs recognise **no held-out object** here either, at any
# width.
#
# So with *these approximators* the experiment says "no simple function fits" about every embedding of 24 objects that binds, be it made by a rule
# or by a table. It would be wrong to conclude from it that an encoder has memorised.
#
# Why? Count. Each colour goes with three shapes. At coverage 0.6 about two of the three have been seen, and from two examples the factors of a
# colour cannot be told, unless there are very few: a product with one factor for each coordinate has far more unknowns than that. (In the basis in which we
# planted it every coordinate is a small product of its own, and whoever knows the basis, as the approximator *by coordinate* does, gets some
# objects back at high coverage. No encoder tells us such a basis. A product with a *single* factor could be found with 24 objects, too.)
# **A rule shows itself where there are many more combinations than values.**
#
# So take $8 \times 8 = 64$ objects, 4,096 scenes, and look at the held-out objects again.
#
# (fig-more-objects)=
# **Figure.** The same with 64 objects: scenes in which the ruler reads the held-out objects, by approximator, and in the real
# embeddings. A line has gaps where no fit converged.

# %% tags=["hide-input"]
LARGE = {
    "planted: product": ("planted product, 64 objects", "planted product, 64 objects"),
    "planted: memorised objects": ("planted memorised, 64 objects", "planted memorised, 64 objects"),
    "MiniLM, captions": (
        "captions, 64 objects, sentence:all-MiniLM-L6-v2",
        "captions, MiniLM, 64 objects",
    ),
    "random-init ViT-B/32, captions": (
        "captions, 64 objects, random:ViT-B-32",
        "captions, random-init ViT-B/32, 64 objects",
    ),
    "EfficientNet-Lite0, pictures (24 objects)": (
        "2-D, 24 objects, efficientnet-lite0",
        "2-D, EfficientNet-Lite0, 24 objects",
    ),
}
"""Their names in the sweep, and among the verdicts."""
FAMILY = {
    "additive": "additive",
    "object table": "object table",
    "object product": "product",
    "object product, by coordinate": "product, by coordinate",
    "MLP 256": "MLP 256",
    "MLP 256 x 2": "MLP 256 x 2",
    "MLP 256 x 3": "MLP 256 x 3",
    "MLP 1024": "MLP 1024",
}
IN_FIGURE = ("object table", "object product", "object product, by coordinate", "MLP 256")


def held_out_objects(embedding):
    name, _ = LARGE[embedding]
    found = {FAMILY[a]: sweep.curve(name, a, "objects_held_out") for a in IN_FIGURE}
    found["real embeddings"] = sweep.curve(name, "additive", "ceiling_objects_held_out")
    return found


def with_gaps(curve):
    """Mean and range at every coverage, NaN where no fit converged."""
    parts = []
    for part in (curve.mean, curve.low, curve.high):
        at = dict(zip(curve.coverages, part, strict=True))
        parts.append([at.get(rho, float("nan")) for rho in COVERAGES])
    return tuple(parts)


def more_objects(embedding):
    return plots.curves(
        COVERAGES,
        {label: with_gaps(c) for label, c in held_out_objects(embedding).items()},
        xlabel="coverage: share of the objects in training",
        ylabel="share of scenes",
    )


def more_objects_aloud(embedding):
    spoken = (f"{label}, {c.aloud()}" for label, c in held_out_objects(embedding).items())
    return f"{embedding}: held-out objects by coverage. " + "; ".join(spoken)


widgets.explore(
    more_objects,
    embedding=ipywidgets.ToggleButtons(options=[label for label in LARGE if "24" not in label]),
    alt=more_objects_aloud,
)

# %% [markdown]
# **Now the two kinds of binding part.** For the planted product the approximator *by coordinate* reads no held-out object up to
# coverage 0.3, four fifths of them at 0.5, and all from 0.6 on: where there is a rule, it is found as soon as enough objects have been seen. For
# memorised objects nobody finds anything, as it must be. And in **MiniLM's captions nobody finds anything either**, though the ruler
# reads every object in the real embeddings, and every concept in most approximations.
#
# Look at the **MLP** on the planted product, too. Even here, at coverage 0.9, it reads fewer held-out objects than the *additive*
# approximator, which cannot bind. It is a universal approximator, the ruler reads the objects of nearly all its training scenes, and it does not find a
# rule that is there. An approximator's failure says something about an encoder only if the same approximator would succeed where
# binding is simple.
#
# ### How large, how deep?
#
# (tab-size)=
# **Table.** Coverage 0.8, means of three splits, 64 objects unless noted. The most that any approximator reaches; the approximator of fewest
# parameters that comes within 5 % of that; and the smallest MLP that does.

# %% tags=["hide-input"]
SIZED = {
    "r2_train": "training R²",
    "r2_held_out": "held-out R²",
    "concepts_held_out": "held-out concepts",
    "objects_held_out": "held-out objects",
}


def sized(found):
    return "–" if found is None else f"{FAMILY.get(found[0], found[0])} ({found[1]:,})"


def sizes_of(embedding):
    name, rows = LARGE[embedding][0], []
    for column, words in SIZED.items():
        most = max(sweep.reached(name, column, coverage=0.8).values())
        small, mlp = (sweep.smallest(name, column, coverage=0.8, kind=kind) for kind in (None, "mlp"))
        rows.append([words, f"{most:.2f}", sized(small), sized(mlp)])
    return html_table(["measure", "most", "smallest of all", "smallest MLP"], rows)


widgets.explore(sizes_of, embedding=ipywidgets.Dropdown(options=list(LARGE), value="MiniLM, captions"))

# %% [markdown]
# (tab-depth)=
# **Table.** R² by the number of hidden layers of width 256, from none (a linear map of the values: the additive approximator) to three;
# in brackets, what the layer adds.

# %% tags=["hide-input"]
lines = ["| embedding | none | one | two | three |", "|---|---|---|---|---|"]
for label, (name, _) in LARGE.items():
    for column, words in (("r2_train", "training"), ("r2_held_out", "held out")):
        gains = sweep.depth_gains(name, column, coverage=0.8, width=256)[:4]
        cells = [
            f"{value:.2f}" if not depth else f"{value:.2f} ({gain:+.2f})" for depth, value, gain in gains
        ]
        lines.append(f"| {label}, {words} | " + " | ".join(cells) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# - **MiniLM**: a sum of concepts comes within 5 % of the best held-out R². The MLP of width 1024 is better still, because it also learns
#   what lies *across* objects, and it reads no held-out object. **R² does not measure binding**: what binds is 1 % of the variance.
# - **Planted product**: only the product *by coordinate* comes near; no MLP comes within 5 % of its held-out R².
# - **Memorised objects**: nothing reaches a held-out R² above zero, as it must be.
# - **How deep?** For the captions one hidden layer is what training scenes need; the planted embeddings gain from a second. For new objects of these 64 no
#   number of layers of this width beats the linear map: what they add does not carry over.
#
# ## A test that can fail
#
# We want a test that says *memorised* only if it would have said *simple* of a simple function. So for each encoder we make
# **controls**: the encoder's own embeddings, in which only the interactions within objects are exchanged, for a product of
# rank 4, of the same size, along directions drawn from their covariance. The concept parts stay, and so does the number of scenes; what is neither
# concept nor object is dealt out anew to the scenes, as noise. Two approximators, the products, run on both; on the encoder an MLP of width 256 runs, too. (What it could
# find in a control, the products find.) What counts is the share of
# held-out objects that is **recovered**,
#
# $$ \frac{a - b}{c - b}, $$
#
# where $a$, $b$ and $c$ are the shares of held-out scenes in which objects are recognised: in the approximator's embeddings, in
# the additive approximator's, and in the real ones.
#
# | verdict | when |
# |---|---|
# | **bag of concepts** | concepts are read in most scenes, objects are not, and there is hardly any interaction within objects |
# | **simple binding** | objects are read, and more than half of the held-out ones are recovered |
# | **memorised objects** | objects are read, at most a fifth is recovered, *and from every control more than half is* |
# | **undetermined** | everything else, above all: a control is not recovered either |
#
# Objects are read in the scenes that a bag confuses: in *red circle, red square* the values alone say which objects are
# there. Coverage 0.8, six splits, three controls. The thresholds were fixed before an encoder was judged. Three other rules were mended
# after first runs, and all verdicts made again: at first objects were read in *all* scenes (a planted bag of 24 objects came
# out at one half), and among approximators that recover equally little, one that had not converged could be taken (MiniLM was
# *undetermined* because of it); and *most* controls were enough where now *every* control has to be recovered (2 of the first 120 planted functions below were
# called memorised and are products; the 30 verdicts of the last two parts were asked for afterwards, and the old rule would be wrong in 2 of them, too).
#
# (fig-verdict)=
# **Figure.** The verdict on each embedding. Dotted and dashed: the thresholds 0.2 and 0.5.

# %% tags=["hide-input"] mystnb={"image": {"alt": "A row for each embedding, with the share of held-out objects recovered from it and from its controls. MiniLM captions with 64 objects: nothing is recovered from the encoder, all of the controls. Planted product with 64 objects: everything is recovered. All embeddings of 24 objects: little is recovered, but from their controls little, too."}, "figure": {"caption": "Verdicts; the sentence behind each is in the table below.", "name": "fig-verdict-chart"}}
verdicts = {row["subject"]: row for row in read_table("verdicts")["rows"]}
plots_complexity.verdict_chart(verdicts)

# %% tags=["hide-input"]
lines = ["| embedding | verdict | because |", "|---|---|---|"]
lines += [f"| {name} | **{row['verdict']}** | {row['why']} |" for name, row in verdicts.items()]
Markdown("\n".join(lines))

# %% [markdown]
# **The captions of MiniLM, with 64 objects, are memorised**, as far as products of four factors go: the controls are
# recovered, the encoder is not. (So are those of an untrained ViT text encoder. To mix the words of an object so that they
# cannot be told apart is no achievement; a random network does it.) The embedding of *red circle* is more than *red* plus *circle*, and what is more about it
# cannot be computed from other objects. That is what one would expect of a *language*: a *red herring* is no herring.
#
# **Of pictures with 24 objects nothing can be said**, neither from our fits nor from anybody's: their controls are not recovered.
# The verdict is *undetermined*, and it should be.
#
# ## Is the verdict right?
#
# A diagnostic needs patients whose illness is known. We plant binding functions of five kinds in spaces of different size,
# under growing noise, and ask for the verdict on each.
#
# (tab-power)=
# **Table.** Verdicts that are right / undetermined / wrong, all seeds together; choose what was planted. Scenes: all ordered pairs of objects, or a sample of so
# many. Noise: its standard deviation, in units of the spread of a coordinate without noise. Only the products judge here; an MLP, which is a
# candidate for real embeddings too, could only add to what is recovered.

# %% tags=["hide-input"]
calibration = read_table("calibration")["rows"]
noises = sorted({r["noise"] for r in calibration})


def settings_of(r):
    scenes_of = r.get("n_scenes") or (r["space"][0] * r["space"][1]) ** 2
    return r["planted"], tuple(r["space"]), r["dim"], scenes_of


def power(planted_kind):
    rows = []
    for kind, values, dim, n in sorted({settings_of(r) for r in calibration}):
        if kind != planted_kind:
            continue
        cells = []
        for noise in noises:
            some = [r for r in calibration if (*settings_of(r), r["noise"]) == (kind, values, dim, n, noise)]
            right, unsure = sum(r["right"] for r in some), sum(r["undetermined"] for r in some)
            cells.append(f"{right} / {unsure} / {len(some) - right - unsure}" if some else "")
        rows.append([f"{values[0]} × {values[1]}", str(dim), f"{n:,}", *cells])
    return html_table(["values", "dim", "scenes", *(f"noise {noise:g}" for noise in noises)], rows)


kinds = sorted({r["planted"] for r in calibration})
display(widgets.explore(power, planted_kind=ipywidgets.Dropdown(options=kinds, value="memorised")))
right, unsure = sum(r["right"] for r in calibration), sum(r["undetermined"] for r in calibration)
Markdown(
    f"Of all {len(calibration)} verdicts {right} are right, {unsure} undetermined, "
    f"{len(calibration) - right - unsure} wrong."
)

# %% [markdown]
# No verdict is wrong, and many are *undetermined*: that is the price. The test says *memorised* or *simple* where there are many objects,
# many scenes and little noise: with a quarter of the 4,096 scenes, or under noise as large as the signal, tables and products of low rank are undetermined.
# Bags are recognised nearly everywhere. The same call judges any embeddings, and `conceptbind verdict` does it from the command line:

# %%
small = ConceptSpace.of_sizes(6, 6)
toy = planted_encoders(small, "product", dim=64, seed=SEED, noise=0.5)
judged = verdict(
    Subject(
        "planted", EmbeddingSet(toy.scenes(factorial_scenes(small, 2)), factorial_scenes(small, 2), small)
    ),
    seeds=range(2 if PRESET == "smoke" else 6),
)
print(f"{judged.verdict}: {judged.why}")

# %% [markdown]
# ## Taking a binding function apart
#
# On a full grid of scenes no approximator is needed to say *which* concepts act together. Every function of four discrete
# variables splits, in exactly one way, into a mean, four main effects, six interactions of two, four of three and one of four:
# the **functional ANOVA** {cite:p}`owen2013mc`. Their variances add up to the whole. So we can say how much of an embedding is
#
# - **concepts**: what each value adds wherever it stands,
# - **within objects**: what a colour and a shape add *together*, because they are one object. This is binding,
# - **across objects**: what two values of different objects add together,
# - **higher**: three or four at once.
#
# (fig-spectrum)=
# **Figure.** The interaction spectrum: variance of the embeddings by kind of interaction.

# %% tags=["hide-input"]
grids = {study.title: study.embedded for study in studies} | planted
spectra = {name: interaction_spectrum(e) for name, e in grids.items()}


def spectrum(show):
    shares = {name: s.by_kind() for name, s in spectra.items()}
    return plots_complexity.spectrum_bars(shares, without_concepts=show == "interactions only")


def spectrum_aloud(show):
    rows = (
        f"{name}: " + ", ".join(f"{kind} {share:.4f}" for kind, share in s.by_kind().items())
        for name, s in spectra.items()
    )
    return "Shares of the variance. " + "; ".join(rows)


widgets.explore(
    spectrum,
    show=ipywidgets.ToggleButtons(options=["everything", "interactions only"]),
    alt=spectrum_aloud,
    dpi=110,
)

# %% [markdown]
# Two encoders could hardly differ more. In MiniLM's captions nearly everything is main effects; of the little rest most lies
# *across* objects (which two nouns are named together), and 1 % of the variance binds. In EfficientNet's pictures a fifth of
# the variance binds. Size is not readability, though: in both a probe reads nearly all objects.
#
# The planted bag shows what noise looks like here: most of it counts as *higher*, because it is different in each scene.
#
# ### Does a concept always do the same?
#
# Another view of the same numbers. Change one value, say *red* to *blue*, and leave the rest. The embedding moves. Does it
# move the same way in every scene? With continuous inputs one would look at the *Jacobian*; for values it is a difference. The
# **stability** of concept $f$ is the share of the squared change that is the same everywhere, and it is a quotient of two
# Sobol indices {cite:p}`sobol2001global`: main effect over total effect,
#
# $$ \text{stability}_f \;=\; \frac{\lVert \text{mean change} \rVert^2}{\text{mean} \lVert \text{change} \rVert^2}
#    \;=\; \frac{M_f}{T_f}, \qquad T_f = \sum_{S \ni f} \operatorname{var}_S . $$
#
# (fig-stability)=
# **Figure.** When one value changes: how much of the change is the same in every scene, and on what the rest depends.

# %% tags=["hide-input"] mystnb={"image": {"alt": "Stacked bars, one for each embedding: the stable share is largest for MiniLM captions, about nine tenths, about half for EfficientNet pictures, where a third depends on the same object."}, "figure": {"caption": "Mean over the concepts of both slots.", "name": "fig-stability-bars"}}
plots_complexity.stability_bars({name: mean_stability(effect_stability(s)) for name, s in spectra.items()})

# %% [markdown]
# How *strong* is the change? An approximator that misses the interactions reacts less to a new value than the encoder itself does.
#
# (tab-effect)=
# **Table.** Root mean square change when one value is replaced by another, in units of the spread of the embeddings: the norm of the
# finite-difference Jacobian, of the encoder (exact) and of approximators that were fitted at coverage 0.8. 64 objects unless noted. –: no fit converged.

# %% tags=["hide-input"]
REACT = ("additive", "object table", "object product", "MLP 256", "MLP 256 x 3", "MLP 1024")
shown = list(MORE_OBJECTS)[: 1 if PRESET == "smoke" else None]
large_spectra = {label: interaction_spectrum(MORE_OBJECTS[label]().data) for label in shown}

lines = ["| embedding | encoder | " + " | ".join(FAMILY[a] for a in REACT) + " |", "|---|" + "---|" * 7]
for label, spectrum_of in large_spectra.items():
    reached = sweep.reached(LARGE[label][0], "effect", coverage=0.8)
    cells = [
        f"{mean_effect(spectrum_of):.2f}",
        *(f"{reached[a]:.2f}" if a in reached else "–" for a in REACT),
    ]
    lines.append(f"| {label} | " + " | ".join(cells) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# The additive approximator is among those that react least: it only has the mean change. Networks come closer to the encoder. None reacts more
# strongly than its encoder does: they do not fail on new objects because they run wild there. (Part of what the planted embeddings do is
# noise, which changes with every scene and which no approximator should follow.)

# %% [markdown]
# ## How many bits?
#
# A last view does without thresholds. Two people know the concepts of every scene. One of them has the embeddings and sends
# them to the other, scene by scene, while new objects keep arriving. Both predict the next scenes from what has been sent
# already, and only the *error* of the prediction costs bits. Who predicts with a **rule** pays little for a new object. Who
# keeps a **table** pays for every new object once, and then no more. Who **adds up concepts** always pays for what binds them. The
# length of the message is the *prequential* {term}`description length` {cite:p}`dawid1984prequential,blier2018description`.
# It needs no count of parameters: a function with too many predicts badly for too long.
#
# (fig-bits)=
# **Figure.** Bits that a scene with new objects costs beyond its noise, as the objects arrive: mean and range over three orders
# of arrival.

# %% tags=["hide-input"]
CODES = {
    "additive": "sum of concepts",
    "object table": "table of objects",
    "object product": "product",
    "object product, by coordinate": "product, by coordinate",
}
codes = {row["subject"]: row for row in read_table("description_length")["rows"]}


def code_lengths(embedding):
    row = codes[embedding]
    return plots_complexity.code_lengths(
        row["coverages"], {label: row["blocks"][code] for code, label in CODES.items()}
    )


def codes_aloud(embedding):
    spoken = (f"{label} {codes[embedding]['all'][code]['mean']:.0f}" for code, label in CODES.items())
    return f"{embedding}: bits a scene over all blocks: " + ", ".join(spoken)


widgets.explore(
    code_lengths,
    embedding=ipywidgets.Dropdown(options=list(codes), value="planted product, 64 objects"),
    alt=codes_aloud,
)

# %% tags=["hide-input"]
lines = ["| bits a scene, all blocks | " + " | ".join(CODES.values()) + " |", "|---|" + "---|" * len(CODES)]
for name, row in codes.items():
    shortest = min(CODES, key=lambda code: row["all"][code]["mean"])
    cells = [f"{row['all'][code]['mean']:.0f}" for code in CODES]
    cells = [f"**{c}**" if code == shortest else c for code, c in zip(CODES, cells, strict=True)]
    lines.append(f"| {name} | " + " | ".join(cells) + " |")
Markdown("\n".join(lines))

# %% [markdown]
# - **Planted bag**: all codes are equally long. There is nothing but the sum to know.
# - **Planted memorised objects**: the table is the shortest code over the whole message, and in every block but the first.
# - **Planted product**: look at the right end. When nine tenths of the objects have arrived, the product *by coordinate* is the
#   shortest code, as it should be. At coverage 0.4 to 0.6 it is the longest by far: a rule that is only half determined is wrong with
#   confidence, and that is expensive. Over the whole message the table wins even here. **With 64 objects, most of the
#   message has been sent before the rule can be known.** The total alone is no verdict.
# - **MiniLM**: the table is the shortest throughout. For each scene it saves bits on the objects that it has met, and a product saves
#   a quarter as much. That agrees with the verdict. The product *by coordinate* does worst: the coordinates of this encoder are no products.
#
# A table of objects may also win for a dull reason: its ridge holds concept vectors back, which helps where objects are few, as they
# are in the 24 of the pictures.

# %% [markdown]
# ## One page for one encoder
#
# (fig-summary)=
# **Figure.** Everything above for one embedding: the verdict and its reason; what approximators of growing size read at
# coverage 0.8 (numbers of parameters in brackets); which interactions there are; what the effect of one value depends on; and
# what a scene costs, in bits, by code.


# %% tags=["hide-input"]
def readings_of(embedding):
    """What is read from the approximators that converged, the smallest first."""
    name, _ = LARGE[embedding]
    columns = [
        sweep.reached(name, c, coverage=0.8) for c in ("r2_train", "concepts_held_out", "objects_held_out")
    ]
    found = [
        Reading(label, sweep.n_parameters(name, a, coverage=0.8), *(c[a] for c in columns))
        for a, label in FAMILY.items()
        if a in columns[0]
    ]
    return sorted(found, key=lambda r: r.n_parameters)


def summary(embedding):
    name, judged_as = LARGE[embedding]
    spectrum_of, code = large_spectra[embedding], codes.get(judged_as)
    return complexity_summary(
        verdict=verdicts[judged_as]["verdict"],
        why=verdicts[judged_as]["why"],
        readings=readings_of(embedding),
        ceiling=sweep.at(name, "additive", "ceiling_objects_held_out", 0.8),
        spectrum=spectrum_of.by_kind(),
        stability=mean_stability(effect_stability(spectrum_of)),
        bits={label: code["all"][a]["mean"] for a, label in CODES.items()} if code else None,
    )


def summary_aloud(embedding):
    judged_of = verdicts[LARGE[embedding][1]]
    spoken = "; ".join(
        f"{r.name}: training R² {r.r2_train:.2f}, held-out concepts {r.concepts_held_out:.2f}, held-out objects {r.objects_held_out:.2f}"
        for r in readings_of(embedding)
    )
    return f"{embedding}: {judged_of['verdict']}, because {judged_of['why']}. {spoken}."


widgets.explore(
    summary,
    embedding=ipywidgets.ToggleButtons(options=shown),
    alt=summary_aloud,
    dpi=110,
)

# %% [markdown]
# ## What this shows, and what it does not
#
# - **Shown**: no approximator of the paper's kinds finds more than a few held-out objects in MiniLM's captions or EfficientNet's
#   pictures, though the large ones fit their training scenes well. Finding F6 holds, with an optimiser that works.
# - **Shown**: with 24 objects that says nothing about the encoder. The same holds for an embedding that *is* a product.
# - **Shown**: with 64 objects the question can be asked, and MiniLM's binding is a table to functions of this size.
# - **Not shown**: that no simple function exists. A verdict speaks of products with few factors, and of our approximators. A rule
#   of another kind, in which *cat* and *dog* bind alike because they are animals, is not in the codes that we give them.
# - **Not shown**: anything about CLIP. Its weights could not be loaded where this book was built. With them, `RERUN = True` sweeps
#   them, too, and `conceptbind verdict --encoder open_clip:ViT-B-32-quickgelu/openai --values 8` judges them.

# %% tags=["hide-cell"]
PAGE = "06_how_complex_is_binding.html"
# Bounds of the paper's two sentences, not ours to tune: concepts at least .8 above coverage .3, objects at most .2.
CLAIMS = {
    "MLP 4096": "width 4096",
    "boosted trees": "boosted trees",
    "random forest": "a random forest",
}
SPECS = {
    "captions, 24 objects, sentence:all-MiniLM-L6-v2": ("sentence:all-MiniLM-L6-v2", "captions, 24 objects"),
    "2-D, 24 objects, efficientnet-lite0": ("efficientnet-lite0", "2-D pictures, 24 objects"),
    "captions, 24 objects, open_clip:ViT-B-32-quickgelu/openai": (
        "open_clip:ViT-B-32-quickgelu/openai",
        "captions, 24 objects",
    ),
}


def extreme(name, approximator, column, worst):
    """The worst mean over coverages above .3, with the range of its seeds; None where it was not run."""
    if name not in sweep.subjects:
        return None
    c = sweep.curve(name, approximator, column)
    above = [i for i, rho in enumerate(c.coverages) if rho > 0.35]
    i = worst(above, key=lambda i: c.mean[i])
    return c.mean[i], (c.low[i], c.high[i])


for name, (spec, data) in SPECS.items():
    for approximator, words in CLAIMS.items():
        for head, bound, worst in (("concepts", 0.8, min), ("objects", 0.2, max)):
            found = extreme(name, approximator, f"{head}_held_out", worst)
            ours, interval = found or (None, None)
            holds = found and (ours >= bound if head == "concepts" else ours <= bound)
            record_claim(
                Claim(
                    id=f"complexity-{head}-{approximator.lower().replace(' ', '-')}",
                    finding="F6",
                    claim=f"Above coverage 0.3, held-out {head} are recognised in at {'least' if head == 'concepts' else 'most'} "
                    f"{bound:.0%} of the scenes by approximations with {words}.",
                    paper=f"{'≥' if head == 'concepts' else '≤'} {bound} (CLIP, DINOv2)",
                    ours=ours,
                    interval=interval,
                    encoder=spec,
                    data=data,
                    preset="laptop",
                    verdict="not run here" if found is None else "holds" if holds else "does not hold",
                    figure=f"{PAGE}#fig-coverage",
                )
            )

for name in BINDS:
    found = sweep.reached(name, "r2_all_steps", coverage=0.8)
    if "MLP 4096" in found:
        assert found["MLP 4096"] > 0.9, "the optimiser did its work"
        assert sweep.at(name, "MLP 4096", "objects_held_out", 0.8) < 0.2, "objects do not carry over"
for name in ("captions, 24 objects, sentence:all-MiniLM-L6-v2", "2-D, 24 objects, efficientnet-lite0"):
    assert sweep.at(name, "MLP 4096", "objects_train", 0.8) > 0.9, "the ruler reads what it was fitted to"
    assert sweep.at(name, "MLP 4096", "concepts_held_out", 0.8) > 0.8, "concepts carry over"
assert most_objects <= 0.2
if PRESET == "laptop":
    rule = sweep.curve("planted product, 64 objects", "object product, by coordinate", "objects_held_out")
    at = dict(zip(rule.coverages, rule.mean, strict=True))
    assert at[0.3] < 0.05 < 0.7 < at[0.5] < 0.95 < at[0.6], "a rule that is there is found"
    last_mlp, last_sum = (
        sweep.at("planted product, 64 objects", a, "objects_held_out", 0.9) for a in ("MLP 256", "additive")
    )
    assert last_mlp < last_sum, "and an MLP does not find it"
    for name in ("captions, 64 objects, sentence:all-MiniLM-L6-v2", "planted memorised, 64 objects"):
        for approximator in sweep.names(name):
            assert max(sweep.curve(name, approximator, "objects_held_out").mean) < 0.02
        assert min(sweep.curve(name, "additive", "ceiling_objects_held_out").mean) > 0.95
assert all(row["right"] or row["verdict"] == "undetermined" for row in calibration), "no verdict is wrong"
assert verdicts["planted product, 64 objects"]["verdict"] == "simple binding"
assert verdicts["planted memorised, 64 objects"]["verdict"] == "memorised objects"
assert verdicts["planted additive, 64 objects"]["verdict"] == "bag of concepts"
bits = {name: {code: row["all"][code]["mean"] for code in CODES} for name, row in codes.items()}
last = {code: sum(codes["planted product, 64 objects"]["blocks"][code][-1]) for code in CODES}
by_coordinate = "object product, by coordinate"
assert (
    bits["planted additive, 64 objects"]["additive"] < min(bits["planted additive, 64 objects"].values()) + 1
)
for name in ("planted memorised, 64 objects", "captions, MiniLM, 64 objects"):
    assert min(bits[name], key=bits[name].get) == "object table", "known objects cost nothing more"
assert min(last, key=last.get) == by_coordinate, "at the end the rule is the shortest code"
assert min(bits["planted product, 64 objects"], key=bits["planted product, 64 objects"].get) == "object table"
if PRESET != "smoke":
    shares = {name: s.by_kind(corrected=True) for name, s in spectra.items()}
    assert (
        shares["planted bag of concepts"]["within objects"]
        < 0.01
        < 0.1
        < shares["planted product"]["within objects"]
    )
    assert judged.verdict == "simple binding"

# %% [markdown]
# (exercises-how-complex-is-binding)=
# ## Exercises
#
# Fill in the `...`, run the cell, then run the check below it. On this page nothing runs: open the chapter in Colab (the
# rocket at the top) or on your machine.
#
# **1. How stable is red?** (medium, 15 minutes). `z` `(first, second, dim)` holds the embedding of every combination of two
# values. Change the *first* value from $a$ to $b$, for all pairs $(a, b)$: the share of the squared change that does not
# depend on the second value is the sum over pairs of $\lVert \text{mean over second} \rVert^2$, divided by the sum over pairs
# of the mean over second of $\lVert \cdot \rVert^2$.


# %% tags=["solution"]
def stable_share(z):
    """Give the share of the effect of the first value that is the same for every second. z: (first, second, dim)."""
    # solution begins
    changes = z.unsqueeze(0) - z.unsqueeze(1)  # (a, b, second, dim)
    return changes.mean(2).square().sum() / changes.square().sum(3).mean(2).sum()
    # solution ends


# %% tags=["check"]
exercises.check_stable_share(stable_share)

# %% [markdown]
# **2. The missing corner** (easy, 5 minutes). Of four objects, three have been seen: a red square, a blue circle and a blue
# square. If the embedding of an object is a *product*, one vector for its colour times one for its shape, coordinate by coordinate, then that of the red circle can be computed.
# How?


# %% tags=["solution"]
def missing_corner(red_square, blue_circle, blue_square):
    """Complete a table of products: the embedding of the red circle. All: (dim,)."""
    # solution begins
    return red_square * blue_circle / blue_square
    # solution ends


# %% tags=["check"]
exercises.check_missing_corner(missing_corner)

# %% [markdown]
# **3. How many objects does a verdict need?** (open). Plant a product in spaces of $V \times V$ values and find the smallest
# $V$ at which `verdict` says *simple binding* in every one of five seeds. Then double the noise. Write down your guess first.
#
# ```{dropdown} A hint
# The cell with `planted_encoders(small, ...)` above is all you need; let $V$ run from 3 to 8. `dim` must be a multiple of the
# smallest power of two that is at least $2V$.
# ```
