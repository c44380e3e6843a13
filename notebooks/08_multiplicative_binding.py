# ---
# jupyter:
#   conceptbind:
#     data: [results/training.json, results/forms.json, results/ablations.json, results/forms_encoders.json, results/models/transformer_0.3.safetensors, results/models/transformer_0.8.safetensors]
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
# # Multiplicative binding
#
# The models of [](07_coverage_makes_binding.ipynb) bind objects that they have never met. They cannot have looked them up. So there must be something
# about *red* and something about *circle*, learned from other objects, that together make a *red circle*. A sum of the two does not
# do: sums are blind to what goes together. The simplest thing that does is a **product**. Is it what these models have learned? And if so, is it *why*
# they bind?
#
# - **Paper**: section 2, finding F8, the functional form of binding {cite:p}`uselis2026bind`.
# - **You will**: fit sums and products to a trained model; see over all our models whether those with a product bind; put the same question to
#   encoders that others trained; and then do what a correlation cannot: take the product away, or never give it.
# - **Time**: 25 minutes to read. The `laptop` preset runs in about a minute on two CPU cores; fits to all models are read from a table
#   (`python tools/run_forms.py` makes them again).

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

# %% tags=["hide-input"]
from math import prod
from statistics import fmean

import ipywidgets
import torch
from IPython.display import HTML, Markdown

from conceptbind import plots, plots_training, widgets
from conceptbind.analysis.association import rank_correlation
from conceptbind.analysis.complexity_table import ComplexityTable
from conceptbind.analysis.multiplicative import forms_of, judge_forms
from conceptbind.claims import Claim, find_result, record_claim
from conceptbind.exercises import multiplicative_binding as exercises
from conceptbind.html_tables import html_table
from conceptbind.results import read_table
from conceptbind.training.run import TrainedModel
from conceptbind.training.table import TrainingTable, has_started

# %% [markdown]
# ## Sums and products
#
# Take a scene of two objects, $s = (o_1, o_2)$; object $i$ has the value $c_{ik}$ of concept $k$. Four forms that its embedding may have, each with vectors $u$ and factors $v$ to be found:
#
# | form | $z(s) \approx \mu \; +$ | what it can tell |
# |---|---|---|
# | **additive** | $\sum_i \sum_k u_{i,k,c_{ik}}$ | which values are there |
# | **object products** | additive $+ \sum_i \big(\prod_k v_{i,k,c_{ik}}\big)\, C$ | and which belong together |
# | **global product** | additive $+ \big(\prod_i \prod_k v_{i,k,c_{ik}}\big)\, C$ | and which scene it is, as a whole |
# | **both products** | additive + object products + global product | all of it |
#
# The products are taken coordinate by coordinate: each $v$ is a short vector of *factors*, and $C$ is a linear map to the embedding. A form is
# fitted to scenes made of **training objects** only. Then it predicts the scenes of held-out objects. What it knows of a new object it must have put
# together from the factors of its values.
#
# A sum explains most of nearly every embedding, so R² alone says little ([](03_scenes_add_up.ipynb)). We look at the **rest**, what the sum leaves. Which share of it does the form explain?
#
# $$ \text{share of the rest} \;=\; 1 - \frac{\lVert z - z_{\text{form}} \rVert^2}{\lVert z - z_{\text{additive}} \rVert^2} . $$
#
# On held-out scenes the sum below the line is a *shrunk* one, with a ridge that suits the validation objects: where training objects are few, the sum that fits them best is a poor one for new objects, and anything
# that is held back beats it. (That is why the plain sum itself can be below zero there.)
#
# And since in the end recognition counts, we put the model's own queries, of all objects, to the embeddings that the form predicts. If the form is what the model does, these
# recognise the same objects.
#
# ## Two models on the bench
#
# Two transformers from the last chapter, of 256 objects, which differ in the coverage alone: one saw 0.3 of the objects, the other 0.8. (Of each the first seed; others at 0.8 recognise fewer objects.)

# %%
bench = {rho: TrainedModel.load(find_result(f"models/transformer_{rho}.safetensors")) for rho in (0.3, 0.8)}
forms = forms_of("smoke" if PRESET == "smoke" else "laptop")
judged = {
    rho: judge_forms(model, forms, n_scenes=256 if PRESET == "smoke" else 2048)
    for rho, model in bench.items()
}

# %% [markdown]
# (tab-bench)=
# **Table.** Forms fitted in the cell above; held-out scenes, but for the first column of each pair. *Rest*: the share of the rest that the form explains. *Objects*: scenes whose objects the model's queries recognise in the
# form's embeddings, and *pairs alike* the same against exchanged objects that are held out, too; the last row is the model itself. (On a phone the table scrolls to the right.)

# %% tags=["hide-input"]
BENCH = {f"coverage {rho:g}": rho for rho in judged}
SHOWN = {
    "additive": "additive",
    "object products": "object products",
    "global product": "global product",
    "both products": "both products",
    "model": "the model itself",
}


def shown(value):
    return "–" if value is None else f"{value:.2f}".replace("-0.00", "0.00")


def of_form(rows, form):
    return next(r for r in rows if r["functional_form"] == form)


BENCH_COLUMNS = {
    "rest, training": "residual_train",
    "rest": "residual_shrunk_held_out",
    "objects, training": "objects_train",
    "objects": "objects_held_out",
    "pairs alike": "swap_alike_held_out",
    "concepts": "concepts_held_out",
}


def on_the_bench(model):
    rows = judged[BENCH[model]]
    return html_table(
        ["form", *BENCH_COLUMNS],
        [
            [words, *(shown(of_form(rows, form)[c]) for c in BENCH_COLUMNS.values())]
            for form, words in SHOWN.items()
        ],
    )


widgets.explore(on_the_bench, model=ipywidgets.ToggleButtons(options=list(BENCH), value=list(BENCH)[-1]))


# %% tags=["hide-input"]
def on(rho, form, column):
    return of_form(judged[rho], form)[column]


low, high = sorted(judged)
product = "object products"
Markdown(
    f"**Both** models have products for the objects that they trained on: of what a sum leaves of training scenes, object products explain "
    f"{on(low, product, 'residual_train'):.2f} at coverage {low} and {on(high, product, 'residual_train'):.2f} at {high}. They differ on **new** objects. At {high} the same factors explain "
    f"{on(high, product, 'residual_shrunk_held_out'):.2f} there, and through them the queries recognise {on(high, product, 'objects_held_out'):.2f} of the scenes (the model itself {on(high, 'model', 'objects_held_out'):.2f}; a sum {on(high, 'additive', 'objects_held_out'):.2f}). At {low} they explain "
    f"{shown(on(low, product, 'residual_shrunk_held_out'))}: what was learned for some objects says nothing about the others. A product over the *whole scene* explains nothing in either "
    f"({shown(on(low, 'global product', 'residual_train'))} and {shown(on(high, 'global product', 'residual_train'))})."
)

# %% [markdown]
# So the form that carries over is the product *within* objects. And it is not all: even at the higher coverage these products (up to 32 factors) leave part of the binding unexplained, and the model recognises more
# than they do.
#
# ## Over all models
#
# Two models may differ in many ways. So take all of them: transformers of three sizes on three object spaces, trained by good and by bad
# recipes, per-object perceptrons, sums and products; nine coverages, up to three seeds. For each: how well does the product form fit, and does the model recognise held-out objects?
#
# There are several ways to say "fits well". R² on **training** scenes is what one would compute first, and what the paper's claim is about. The share of the **rest** looks at what the sum leaves. On training scenes it does
# not need to know any held-out object. On **held-out** scenes it does, and there it is nearly the same question as recognition: read that one as a check, not as evidence.
#
# (fig-scatter)=
# **Figure.** One point for each model: fit of *object products* against held-out object recognition of the model itself. Values below −0.05 are drawn there. (Models that are sums leave no rest on training scenes and are not in that view; nor are fits that did not converge.)

# %% tags=["hide-input"]
models = {r["model"]: r for r in read_table("training")["rows"]}
fits = [r for r in read_table("forms")["rows"] if r["model"] in models]
QUALITY = {
    "R², training": "r2_train",
    "rest, training": "residual_train",
    "rest, held out": "residual_shrunk_held_out",
}
FAMILIES = {
    "transformers": lambda m: m["architecture"] == "transformer",
    "perceptrons": lambda m: m["architecture"] == "objects",
    "sum and product": lambda m: m["architecture"] == "product",
    "sum": lambda m: m["architecture"] == "additive",
}


def family(model):
    return next(name for name, belongs in FAMILIES.items() if belongs(models[model]))


def points(quality, started=False):
    """(family, coverage, quality of the fit, held-out objects) of every model whose fit converged."""
    return [
        (
            family(r["model"]),
            models[r["model"]]["coverage"],
            r[QUALITY[quality]],
            models[r["model"]]["objects_held_out"],
        )
        for r in fits
        if r["functional_form"] == "object products" and r["converged"] and r[QUALITY[quality]] is not None
        if not started or has_started(models[r["model"]])
    ]


def scattered(fit_quality):
    some = points(fit_quality)
    groups = {name: [(x, y) for f, _, x, y in some if f == name] for name in FAMILIES}
    return plots_training.scatter(
        {name: g for name, g in groups.items() if g},
        xlabel=f"object products: {fit_quality}",
        ylabel="held-out objects recognised",
    )


def correlations(quality, families=tuple(FAMILIES), started=False):
    some = [p for p in points(quality, started) if p[0] in families]
    x, y = [p[2] for p in some], [p[3] for p in some]
    return rank_correlation(x, y), rank_correlation(x, y, groups=[(p[0], p[1]) for p in some])


def said(a):
    return f"{a.correlation:.2f} ({a.low:.2f} to {a.high:.2f})"


def scattered_aloud(fit_quality):
    free, fixed = correlations(fit_quality)
    return f"{fit_quality} against held-out objects, {free.n_models} models: rank correlation {said(free)}; coverage held fixed {said(fixed)}."


widgets.explore(
    scattered,
    fit_quality=ipywidgets.ToggleButtons(options=list(QUALITY), value="rest, training"),
    alt=scattered_aloud,
)

# %% [markdown]
# (tab-correlation)=
# **Table.** Spearman's rank correlation with the 95 % interval over models. *Coverage held fixed*: ranks within models of one coverage and one kind of model only.

# %% tags=["hide-input"]
KIN = {
    "all models": {},
    "transformers": {"families": ("transformers",)},
    "transformers that bind training objects": {"families": ("transformers",), "started": True},
}
found = {(who, q): correlations(q, **some) for who, some in KIN.items() for q in QUALITY}
HTML(
    html_table(
        ["models, quality of the fit", "rank correlation", "coverage held fixed", "models"],
        [
            [f"{who}: {q}", said(free), said(fixed), str(free.n_models)]
            for (who, q), (free, fixed) in found.items()
        ],
    )
)

# %% tags=["hide-input"]
train_free, train_fixed = found["all models", "rest, training"]
r2_free, r2_fixed = found["all models", "R², training"]
new_free, new_fixed = found["all models", "rest, held out"]
Markdown(
    f"On training scenes the share of the rest that products explain and held-out recognition have a rank correlation of **{said(train_free)}** over {train_free.n_models} models; with coverage and kind of model held fixed it is "
    f"**{said(train_fixed)}**. Plain R² on training scenes says something else: {said(r2_free)}, and {said(r2_fixed)} held fixed. On held-out scenes it is {said(new_free)} and {said(new_fixed)}."
)

# %% [markdown]
# So it depends on what *fits well* means. **Plain R² does not do**: where training objects are few everything fits their scenes, and a model that binds has more in it that is no sum. **The share of the rest does**, over all models, within one coverage,
# and among transformers that bind their training objects at all: models whose binding is more of a product on objects they know recognise more objects they do not know. With coverage held fixed the relation is weaker, as it must be when coverage drives both, and it does not vanish. (Models of one coverage still
# differ in object space, size and recipe, so something else may drive both there.)
#
# ## The same question to encoders that others trained
#
# Frozen encoders have no queries, so their fits are read by probes, as in [](06_how_complex_is_binding.ipynb).
#
# (fig-encoders)=
# **Table.** Forms fitted to encoders, means of three splits: held-out R², and concepts and objects of held-out scenes. *By coordinate*: without $C$, each coordinate of the embedding is a product of its own. *By gradient*: with $C$, by gradient descent instead of
# alternating least squares. –: no fit converged. (At coverage 0.9 few objects are held out.)

# %% tags=["hide-input"]
frozen = ComplexityTable(read_table("forms_encoders")["rows"])
AT = 0.6
WHO = {
    "captions, 64 objects, sentence:all-MiniLM-L6-v2": "MiniLM, captions, 64 objects",
    "2-D, 24 objects, efficientnet-lite0": "EfficientNet-Lite0, pictures, 24 objects",
    "captions, 64 objects, open_clip:ViT-B-32-quickgelu/openai": "CLIP ViT-B/32, captions, 64 objects",
    "2-D, 24 objects, open_clip:ViT-B-32-quickgelu/openai": "CLIP ViT-B/32, pictures, 24 objects",
    "2-D, 24 objects, dinov2:vitb14": "DINOv2, pictures, 24 objects",
    "planted product, 64 objects": "planted product, 64 objects",
    "planted memorised, 64 objects": "planted memorised objects, 64 objects",
}
ENCODERS = {words: name for name, words in WHO.items() if name in frozen.subjects}
FORM_NAMES = {
    "additive": "additive",
    "object product": "object products",
    "object product, by coordinate": "object products, by coordinate",
    "object products 64": "object products, by gradient",
    "global product 64": "global product",
    "both products 64": "both products",
}
FROZEN_COLUMNS = {"R²": "r2_held_out", "concepts": "concepts_held_out", "objects": "objects_held_out"}


def of_encoder(encoder, coverage):
    name, rows = ENCODERS[encoder], []
    for form in frozen.names(name):
        found = [
            frozen.reached(name, column, coverage=coverage).get(form) for column in FROZEN_COLUMNS.values()
        ]
        rows.append([FORM_NAMES.get(form, form), *(shown(v) for v in found)])
    real = frozen.at(name, "additive", "ceiling_objects_held_out", coverage)
    return html_table(
        ["form", *FROZEN_COLUMNS], [*rows, ["the embeddings themselves", "1.00", "", f"{real:.2f}"]]
    )


widgets.explore(
    of_encoder,
    encoder=ipywidgets.Dropdown(options=list(ENCODERS)),
    coverage=ipywidgets.ToggleButtons(options=[0.6, 0.9]),
)

# %% [markdown]
# **MiniLM**: a sum explains nine tenths of it, no product adds anything to that, and no form recognises a single held-out object, though every concept is there. **EfficientNet**: no form recognises a held-out object either, but there the fits themselves fail: R² on held-out scenes is below zero for the sum and for every product. That says little about its form.
# The paper reports of CLIP and DINOv2 what we see in MiniLM. But look at the *planted* product before you conclude anything: in an embedding that is
# a product by construction only the form *by coordinate* finds it with these 64 objects, and recognises nearly all; those with a linear head $C$ recognise no more than a sum. Where the embedding's own coordinates are no products, 64 objects may be too few to tell ([](06_how_complex_is_binding.ipynb)).
#
# ## Cause, part one: never give it a product
#
# A correlation over models leaves a doubt: whatever makes a model generalise might make it look like a product, too. So let us decide the form ourselves. Four models with
# the same data and the same loss: one that **can only add**, one that can add and **multiply**, a perceptron that is applied to each object alone, and the free transformer. Each has settings that suit it (rate, decay, start), so do not compare the coverages at which they rise.
#
# (fig-heads)=
# **Figure.** Object recognition by what the encoders can compute; 256 objects. Transformers that do not bind their training objects are left out, as in the last chapter.

# %% tags=["hide-input"]
table = TrainingTable(list(models.values()))
HEADS = {
    "sum": ("heads", "additive"),
    "sum + product": ("heads", "product"),
    "perceptron": ("heads", "objects"),
    "transformer": ("coverage", "transformer"),
}
SCENES = {"training": "objects_train", "held out": "objects_held_out"}


def spelt(scenes):
    return scenes.replace("held out", "held-out")


def heads(scenes):
    return {
        label: table.curve(
            study, SCENES[scenes], sizes=(16, 16), architecture=kind, started=kind == "transformer"
        )
        for label, (study, kind) in HEADS.items()
    }


def heads_aloud(scenes):
    return f"{scenes} scenes. " + ". ".join(f"{label}: {c.aloud()}" for label, c in heads(scenes).items())


widgets.explore(
    lambda scenes: plots_training.coverage_curves(heads(scenes), ylabel=f"objects, {spelt(scenes)} scenes"),
    scenes=ipywidgets.ToggleButtons(options=list(SCENES), value="held out"),
    alt=heads_aloud,
)

# %% [markdown]
# The mere **sum** never gets much above a third, on training scenes neither: without an interaction there is no binding to carry over. **One elementwise product per object is enough**: that model has no hidden layer, and it gets as far as the transformer. So a product is
# *sufficient*. It is not *necessary* in the sense of an ingredient that has to be built in: perceptrons and transformers, which are not given this product, get there by themselves. (Attention multiplies, too, but not the values of an object, coordinate by coordinate.) (At low coverage the product is worse than the sum: its factors are known from too few partners, and wrong with confidence.)
#
# ## Cause, part two: take the product away
#
# Now a trained transformer, as it is. Split each of its embeddings in three:
#
# $$ z \;=\; \underbrace{\text{what a sum explains}}_{\text{additive part}} \;+\; \underbrace{\text{what products add to it}}_{\text{product part}} \;+\; \text{rest}, $$
#
# fitted to training scenes, predicted for all. Take the product part of a scene away, and ask the model's queries again. If it is what binds, objects go and concepts stay. The **control** takes away the
# product part of *another* scene: as long a vector, from the same place, but the wrong one. And since the part was predicted with knowledge of the labels, a second way: project out all *directions* in which product parts lie, without knowing the
# scene; its controls are as many random directions, and as many directions of the additive part. (As many, not as much variance.)
#
# (fig-ablation)=
# **Figure.** Transformers of 256 objects with parts taken away or kept alone: share of scenes in which all concepts, and all objects, are recognised. Mean and range of the seeds.

# %% tags=["hide-input"]
ablations = [r for r in read_table("ablations")["rows"] if r["model"] in models]
CONDITIONS = {
    "original": "the embedding",
    "without product part": "without product part",
    "without wrong product part": "without another scene's product part",
    "additive part only": "additive part alone",
    "additive + product": "additive and product part",
    "without product directions": "without product directions",
    "without random directions": "without random directions",
    "without additive directions": "without additive directions",
}


def chosen(coverage, condition):
    return [
        r
        for r in ablations
        if r["condition"] == condition
        and models[r["model"]]["coverage"] == coverage
        and models[r["model"]]["architecture"] == "transformer"
        and models[r["model"]]["sizes"] == [16, 16]
        and "coverage" in models[r["model"]]["studies"]
    ]


def ablated(coverage, scenes):
    kind = {"training": "train", "held out": "held_out"}[scenes]
    rows = {}
    for condition, words in CONDITIONS.items():
        some = chosen(coverage, condition)
        rows[words] = [
            (fmean(v), min(v), max(v))
            for v in ([r[f"{m}_{kind}"] for r in some] for m in ("concepts", "objects"))
        ]
    return rows


def ablation_figure(coverage, scenes):
    return plots.grouped_bars(
        ablated(coverage, scenes), series=("concepts", "objects"), xlabel=f"share of {spelt(scenes)} scenes"
    )


def ablation_aloud(coverage, scenes):
    spoken = "; ".join(
        f"{words}: concepts {c[0]:.2f}, objects {o[0]:.2f}"
        for words, (c, o) in ablated(coverage, scenes).items()
    )
    return f"coverage {coverage:g}, {scenes} scenes. {spoken}"


widgets.explore(
    ablation_figure,
    coverage=ipywidgets.SelectionSlider(options=[0.2, 0.5, 0.8], value=0.8),
    scenes=ipywidgets.ToggleButtons(options=["training", "held out"], value="held out"),
    alt=ablation_aloud,
    dpi=100,
)

# %% tags=["hide-input"]
AT_ABLATION, OTHER_PART = 0.8, "without another scene's product part"
numbers = ablated(AT_ABLATION, "held out")
n_directions = {r["n_directions"] for r in chosen(AT_ABLATION, "without product directions")}


def pair(words):
    (concepts, *_), (objects, *_) = numbers[words]
    return f"objects {objects:.2f}, concepts {concepts:.2f}"


Markdown(
    f"At coverage {AT_ABLATION}, on held-out scenes: the embedding itself, {pair('the embedding')}. Without the product *directions*, {' to '.join(map(str, sorted(n_directions)))} of 64: **{pair('without product directions')}**. Without as many random ones: {pair('without random directions')}; "
    f"without as many of the additive part: {pair('without additive directions')}. Without the predicted product *part*: {pair('without product part')}; without that of another scene: {pair(OTHER_PART)}."
)

# %% [markdown]
# **At coverage 0.8 what binds sits in a few directions, and these are the directions of the product.** Take them away and what is left is nearly a bag of concepts: all values are still read in nine scenes of ten, and objects as badly as from a sum. Take away as many others and objects suffer little, or concepts suffer first. At lower coverage
# (move the slider) there is no such division: products vary in more directions, these are the ones in which the concepts vary, and projecting them out destroys both.
#
# **Subtracting what the product form predicts shows little.** Objects suffer, but the product part of *another* scene, as long and wrong, does nearly as much harm, and on training scenes more. By this test we cannot say that it is *this* scene's product that binds. The directions are better evidence. And what remains in them after subtracting is enough to tell most objects
# apart: products explain only about half of the rest (see the first table), they approximate what happens in these directions, and are not all of it.
#
# ## What this shows, and what it does not
#
# - **Shown**: in a model that binds new objects, about half of the interaction between the values of an object is a product of factors, learned from some objects and right for others. In one that does not, products describe the training objects and no others.
# - **Shown**: at coverage 0.8 what binds sits in a few directions of 64; without them nine in ten scenes still show all concepts, and objects are gone. And a model that is given nothing but a sum and a product binds.
# - **Does not hold here**: the paper's correlation read as plain R² on training scenes. Over our models it is negative. Only the share of *the rest* goes with recognition.
# - **Not shown**: that these models *compute* a product. They compute something that a product approximates, and that leaves part of it open. "Sum plus product" is the simplest form that does the job, and our tests compare it with a few others only.
# - **Not shown**: that the product is why some recipes carry over and others do not. Coverage, recipe, product and recognition move together; we set the first two, and the form of the head, by hand, but not the fit.
# - **Not shown**: anything about CLIP. Its weights could not be loaded where this book was built; where they can be had, `python tools/run_forms.py encoders` fits the same forms to CLIP and DINOv2.

# %% tags=["hide-cell"]
PAGE = "08_multiplicative_binding.html"
TRANSFORMERS = "models trained here (training.studies)"
SPANS = {prod(models[r["model"]]["sizes"]) for r in fits}
for q in ("R², training", "rest, training"):
    for fixed in (False, True):
        a = found["all models", q][fixed]
        record_claim(
            Claim(
                id=f"product-fit-{QUALITY[q]}-{'fixed' if fixed else 'free'}",
                finding="F8",
                claim=f"Over models trained from scratch, the fit of object products ({q}) and held-out object recognition rise together"
                + (
                    ", with coverage and kind of model held fixed (rank correlation)."
                    if fixed
                    else " (rank correlation)."
                ),
                paper=None if fixed else "correlated",
                ours=a.correlation,
                interval=(min(a.low, a.correlation), max(a.high, a.correlation)),
                encoder=TRANSFORMERS,
                data=f"{a.n_models} models, {min(SPANS)} to {max(SPANS)} objects",
                preset="laptop",
                verdict="holds" if a.low > 0 else "does not hold",
                figure=f"{PAGE}#fig-scatter",
            )
        )
SPECS = {
    "captions, 64 objects, sentence:all-MiniLM-L6-v2": ("sentence:all-MiniLM-L6-v2", "captions, 64 objects"),
    "2-D, 24 objects, efficientnet-lite0": ("efficientnet-lite0", "2-D pictures, 24 objects"),
    "captions, 64 objects, open_clip:ViT-B-32-quickgelu/openai": (
        "open_clip:ViT-B-32-quickgelu/openai",
        "captions, 64 objects",
    ),
    "2-D, 24 objects, dinov2:vitb14": ("dinov2:vitb14", "2-D pictures, 24 objects"),
}
for name, (spec, data) in SPECS.items():
    for column, words, paper in (
        ("concepts_held_out", "recover held-out concepts", "recovered"),
        ("objects_held_out", "recover held-out objects", "close to zero"),
    ):
        ours = None
        if name in frozen.subjects:
            reached = frozen.reached(name, column, coverage=AT)
            ours = max(value for form, value in reached.items() if "product" in form)
        bound = ours is not None and (ours >= 0.8 if column.startswith("concepts") else ours <= 0.2)
        record_claim(
            Claim(
                id=f"product-probes-{column.partition('_')[0]}",
                finding="F8",
                claim=f"Fitted to a frozen encoder, product forms {words} (the best of them).",
                paper=f"{paper} (CLIP, DINOv2)",
                ours=ours,
                interval=None,
                encoder=spec,
                data=data,
                preset="laptop",
                verdict="not run here" if ours is None else "holds" if bound else "does not hold",
                figure=f"{PAGE}#fig-encoders",
            )
        )

if PRESET != "smoke":
    assert on(high, product, "objects_held_out") > 0.5 > 0.25 > on(low, product, "objects_held_out")
    assert (
        on(high, product, "residual_shrunk_held_out")
        > 0.4
        > 0.1
        > on(low, product, "residual_shrunk_held_out")
    )
    assert abs(on(high, "global product", "residual_train")) < 0.05
assert train_free.low > 0.4, "the share of the rest goes with recognition"
assert train_fixed.low > 0.1, "also within one coverage"
assert r2_free.correlation < 0, "plain R² does not"
by_head = heads("held out")
assert max(by_head["sum"].mean) < 0.4 < 0.9 < min(by_head[h].mean[-1] for h in by_head if h != "sum")
without, random_ones = (numbers[w] for w in ("without product directions", "without random directions"))
assert without[1][0] < 0.2 < 0.6 < random_ones[1][0], "objects go"
assert without[0][0] > 0.9, "and concepts stay"
for encoder in ("MiniLM, captions, 64 objects", "EfficientNet-Lite0, pictures, 24 objects"):
    assert max(frozen.reached(ENCODERS[encoder], "objects_held_out", coverage=AT).values()) < 0.02

# %% [markdown]
# (exercises-multiplicative-binding)=
# ## Exercises
#
# Fill in the `...`, run the cell, then run the check below it. On this page nothing runs: open the chapter in Colab (the
# rocket at the top) or on your machine.
#
# **1. Beyond a sum** (medium, 10 minutes). `table` `(colour, shape, dim)` holds the part of every object. Subtract what a sum of one vector for each colour and one for each shape explains, in
# the sense of least squares. What remains is what binds.


# %% tags=["solution"]
def beyond_a_sum(table):
    """Give what the best sum of a row vector and a column vector leaves of a table. table: (first, second, dim)."""
    # solution begins
    return table - table.mean(1, keepdim=True) - table.mean(0, keepdim=True) + table.mean((0, 1))
    # solution ends


# %% tags=["check"]
exercises.check_beyond_a_sum(beyond_a_sum)

# %% [markdown]
# **2. Project it out** (medium, 10 minutes). `z` `(scene, dim)` are embeddings; `directions` `(direction, dim)` span a subspace, neither orthogonal nor of length one. Give the embeddings without
# their part in that subspace.


# %% tags=["solution"]
def without_directions(z, directions):
    """Remove from every row of z (scene, dim) its projection onto the span of the rows of directions."""
    # solution begins
    basis = torch.linalg.qr(directions.T).Q
    return z - z @ basis @ basis.T
    # solution ends


# %% tags=["check"]
exercises.check_without_directions(without_directions)

# %% [markdown]
# **3. Another form** (open). The product form multiplies factors of values. Think of a function that binds and is *not* a product of this kind: perhaps a bilinear form in which every colour has a matrix that acts on the
# shape's vector (the *type-logical* composition of {cite:t}`lewis2022clip`). How many numbers does it have for $V$ values? Would it carry over to held-out objects? Plant one with a few lines of `torch`, and fit `forms_of("laptop")` to it.
#
# ```{dropdown} A hint
# With enough coordinates a product with a linear head $C$ can be *any* bilinear form: what differs is how many numbers it takes, and so how many objects have to be seen.
# ```
