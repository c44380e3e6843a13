"""Functional forms of scene embeddings: planted encoders whose form is known, and rows that are stored once."""

import math
import pickle
from dataclasses import dataclass, replace

import pytest
import torch

from conceptbind.analysis.complexity import Subject, complexity_jobs
from conceptbind.analysis.multiplicative import (
    KIND,
    MODEL,
    PER_OBJECT,
    READ,
    Sample,
    form_jobs,
    forms_of,
    forms_sweep,
    judge_forms,
    judge_sample,
)
from conceptbind.approximators.closed_form import Additive
from conceptbind.approximators.networks import Network
from conceptbind.approximators.products import ObjectProduct
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import Architecture, one_hot
from conceptbind.kernels.training import Schedule
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, SceneKind, factorial_scenes, object_split
from conceptbind.store import ResultStore
from conceptbind.sweeps import Ran, run_jobs
from conceptbind.training.checkpoints import CheckpointError
from conceptbind.training.config import config_of
from conceptbind.training.evaluate import KINDS, evaluate
from conceptbind.training.jobs import model_name
from conceptbind.training.run import train

SPACE = ConceptSpace.of_sizes(12, 12)
SPLIT = object_split(SPACE, 0.75, seed=0)
SMALL = ConceptSpace.of_sizes(5, 4)
RANK = 12
ALS = ObjectProduct(ranks=(RANK,), ridges=(0.03,), sum_ridges=(0.0,), restarts=2)


def orthonormal(n, dim, g):
    return torch.linalg.qr(torch.randn(dim, n, generator=g)).Q.T


@dataclass
class Planted:
    """Scenes are sums of object vectors, which are queries too, and maybe one more thing that all values make."""

    space: ConceptSpace
    of_objects: torch.Tensor
    of_values: torch.Tensor
    together: object = None

    def scenes(self, scenes):
        z = self.of_objects[self.space.object_index(scenes)].sum(1)
        return z if self.together is None else z + self.together(scenes)

    def objects(self, index):
        return self.of_objects[index]

    def values(self):
        return self.of_values

    def captions(self, scenes):
        raise AssertionError("captions say nothing about scene embeddings that were replaced")


def planted(space=SPACE, *, product=0.0, together=0.0, seed=0):
    """Sums in some directions, products of signs within objects, or of all values of a scene, in others."""
    g = torch.Generator().manual_seed(seed)
    n_values = sum(space.n_values)
    axes = orthonormal(n_values + 2 * RANK, n_values + 2 * RANK, g)
    sums, head, other = axes.split([n_values, RANK, RANK])
    signs = torch.randint(2, (2, n_values, RANK), generator=g) * 2.0 - 1
    first = torch.tensor([sum(space.n_values[:k]) for k in range(space.n_concepts)])
    at = space.all_objects() + first
    objects = sums[at].sum(1) + product / math.sqrt(RANK) * signs[0][at].prod(1) @ head

    def everything(scenes):
        return together / math.sqrt(RANK) * signs[1][scenes + first].flatten(1, 2).prod(1) @ other

    return Planted(space, objects, sums, everything)


def rows_by_form(sample, forms):
    rows = judge_sample(sample, forms)
    assert [row["functional_form"] for row in rows] == [MODEL, *forms]
    return {row["functional_form"]: row for row in rows}


# ---- planted forms


def test_a_sum_is_explained_by_every_form_and_leaves_nothing_to_explain():
    forms = {
        "additive": Additive(),
        "object products": ALS,
        "by coordinate": replace(ALS, head="none"),
        "global product": Network(Architecture("product", 4), Schedule(n_steps=200, rate=3e-2)),
    }
    rows = rows_by_form(Sample(planted(), SPLIT, 2, n_scenes=600), forms)
    for form, row in rows.items():
        for kind in KINDS.values():
            assert row[f"r2_{kind}"] == pytest.approx(1, abs=0.02 if form == "global product" else 1e-6)
            assert row[f"residual_{kind}"] is None
            assert row[f"concepts_{kind}"] == 1


def test_products_within_objects_explain_what_a_sum_cannot_and_recognise_objects():
    rows = rows_by_form(
        Sample(planted(product=1.5), SPLIT, 2, n_scenes=600),
        {"additive": Additive(), "object products": ALS},
    )
    model, sums, products = rows.values()
    for kind in KINDS.values():
        assert model[f"r2_{kind}"] == model[f"residual_{kind}"] == 1
        assert model[f"objects_{kind}"] > 0.9
        assert sums[f"r2_{kind}"] < 0.7
        assert sums[f"objects_{kind}"] < 0.5
        assert products[f"residual_{kind}"] > 0.97
        assert products[f"objects_{kind}"] == pytest.approx(model[f"objects_{kind}"], abs=0.05)
        assert sums[f"concepts_{kind}"] == products[f"concepts_{kind}"] == 1
        assert sums[f"residual_{kind}"] == 0
    # with a ridge the sum has no more to say about scenes of other objects than it did
    assert products["residual_shrunk_held_out"] > 0.97
    assert products["chosen"]["rank"] == RANK
    assert (model["n_parameters"], model["converged"], model["chosen"]) == (None, None, None)


def test_a_product_over_the_scene_is_explained_by_the_global_product_only():
    split = object_split(SMALL, 0.7, seed=0)
    schedule = Schedule(n_steps=250, rate=4e-2)
    forms = {
        "object products": replace(ALS, ranks=(4,)),
        "trained": Network(Architecture("object products", 16), schedule),
        "global product": Network(Architecture("product", 24), schedule),
        "both products": Network(Architecture("both products", 24), schedule),
    }
    rows = rows_by_form(Sample(planted(SMALL, together=1.5), split, 2), forms)
    assert rows["global product"]["residual_train"] > 0.9
    assert rows["both products"]["residual_train"] > 0.9
    assert rows["object products"]["residual_train"] < 0.2
    assert rows["trained"]["residual_train"] < 0.2


def test_a_table_of_objects_is_not_explained_on_new_ones():
    known = planted_encoders(SPACE, "memorised", dim=64, seed=0, split=SPLIT)
    encoders = Planted(SPACE, known.scene_objects / 8, known.query_values)
    rows = rows_by_form(
        Sample(encoders, SPLIT, 2, n_scenes=600), {"object products": replace(ALS, ranks=(8,))}
    )
    model, products = rows.values()
    assert model["objects_train"] > 0.9
    assert products["residual_held_out"] < 0.1
    assert products["objects_held_out"] < 0.1


def test_the_trained_object_products_find_what_least_squares_finds():
    forms = forms_of("laptop")
    chosen = {name: forms[name] for name in ("object products", "object products, trained")}
    rows = rows_by_form(Sample(planted(product=1.0), SPLIT, 2, n_scenes=600), chosen)
    for name in chosen:
        assert rows[name]["residual_train"] > 0.8
        assert rows[name]["residual_held_out"] > 0.6


# ---- what a row holds


def test_shares_are_of_squares_around_the_mean_and_of_those_that_a_sum_leaves():
    encoders = planted(product=1.0, together=1.0)
    sample = Sample(encoders, SPLIT, 2, n_scenes=700, seed=3)
    row = rows_by_form(sample, {"object products": ALS})["object products"]
    task = sample.task()

    def design(scenes):
        return torch.cat([torch.ones(len(scenes), 1), one_hot(scenes, SPACE.n_values)], 1).double()

    sums = torch.linalg.lstsq(design(task.scenes), task.embeddings.double(), driver="gelsd").solution
    fitted = ALS.fit(task)
    for kind, name in KINDS.items():
        scenes = sample.scenes(kind)
        z = encoders.scenes(scenes).double()
        error = (z - fitted.predict(0, scenes)).square().sum()
        assert row[f"r2_{name}"] == pytest.approx(float(1 - error / (z - z.mean(0)).square().sum()))
        left = (z - design(scenes) @ sums).square().sum()
        assert row[f"residual_{name}"] == pytest.approx(float(1 - error / left), abs=1e-5)
        assert row[f"n_{name}"] == len(scenes) == 700


def test_fits_see_scenes_of_training_objects_only_and_others_than_are_judged():
    sample = Sample(planted(), SPLIT, 2, n_scenes=500)
    task = sample.task()
    assert bool((SPLIT.kinds(task.scenes) == SceneKind.TRAIN).all())
    # more than are judged: an object has to be shown often
    assert len(task.scenes) == PER_OBJECT * 108
    fitted, judged = (
        set(SPACE.scene_index(s).tolist()) for s in (task.scenes, sample.scenes(SceneKind.TRAIN))
    )
    assert len(fitted & judged) < 0.3 * len(judged)
    torch.testing.assert_close(task.embeddings, planted().scenes(task.scenes))


def test_presets_name_forms_that_tables_can_tell_apart():
    for preset in ("smoke", "laptop", "paper"):
        forms = forms_of(preset)
        assert len({form.name for form in forms.values()}) == len(forms) == 6
    with pytest.raises(ValueError, match="PRESET is one of"):
        forms_of("huge")


def test_an_encoder_without_queries_is_read_by_probes():
    space = ConceptSpace.of_sizes(4, 3)
    scenes = factorial_scenes(space, 2)
    encoders = planted_encoders(space, "product", dim=64, seed=0)
    subject = Subject("planted", EmbeddingSet(encoders.scenes(scenes), scenes, space))
    jobs = complexity_jobs(subject, forms_sweep("smoke"))
    rows = {job.settings[0]["name"]: job.run()[0] for job in jobs}
    assert set(rows) == {form.name for form in forms_of("smoke").values()}
    for row in rows.values():
        assert row["ceiling_objects_held_out"] == 1
        assert row["concepts_train"] > 0.9


# ---- trained models


@pytest.fixture(scope="module")
def model():
    return train([config_of("smoke", n_steps=30)]).model(0)


def test_rows_of_a_model_are_stored_once(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    forms = {name: forms_of("smoke")[name] for name in ("additive", "object products")}
    jobs = form_jobs([path], forms, n_scenes=300)
    with ResultStore(tmp_path / "forms.sqlite") as store:
        assert run_jobs(store, jobs, progress=False) == Ran(done=3, skipped=0)
        assert run_jobs(store, form_jobs([path], forms, n_scenes=300), progress=False) == Ran(
            done=0, skipped=3
        )
        more = form_jobs([path], forms_of("smoke") | {"additive": Additive(position=False)}, n_scenes=300)
        assert len(store.missing(more[0].settings, kind=KIND)) == 5
        rows = store.rows(KIND)
    expected = judge_forms(model, forms, n_scenes=300)
    for row, direct in zip(rows, expected, strict=True):
        assert direct.items() <= row.items()
        assert (row["model"], row["coverage"], row["architecture"]) == (
            model_name(model.config),
            0.7,
            "objects",
        )
    # the first row is what the evaluation of the model says
    whole = evaluate(model, n_scenes=300, seed=model.config.seed).row()
    for measure in READ:
        for kind in KINDS.values():
            assert rows[0][f"{measure}_{kind}"] == whole[f"{measure}_{kind}"]


def test_a_job_can_be_sent_to_another_process(model, tmp_path):
    model.save(tmp_path / "model.safetensors")
    (job,) = form_jobs([tmp_path / "model.safetensors"], {"additive": Additive()}, n_scenes=50)
    assert pickle.loads(pickle.dumps(job)).run() == job.run()


def test_files_that_are_no_finished_model_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        form_jobs([tmp_path / "nothing.safetensors"], forms_of("smoke"))
    (tmp_path / "text.safetensors").write_text("not a model")
    with pytest.raises(CheckpointError, match="damaged"):
        form_jobs([tmp_path / "text.safetensors"], forms_of("smoke"))
    stopped = tmp_path / "stopped.safetensors"
    train([config_of("smoke", n_steps=10)], checkpoint=stopped, checkpoint_every=2, stop_after=4)
    with pytest.raises(ValueError, match="stopped after 4 of 10 steps"):
        form_jobs([stopped], forms_of("smoke"))


@pytest.mark.parametrize("architecture", ["objects", "transformer"])
def test_a_kind_without_scenes_has_no_numbers(architecture):
    # one object is held out: no scene of two different ones is
    config = config_of("smoke", sizes=(4, 4), coverage=15 / 16, n_steps=5, architecture=architecture)
    rows = judge_forms(train([config]).model(0), forms_of("smoke"), n_scenes=100)
    for row in rows:
        assert (row["n_held_out"], row["n_mixed"]) == (0, 30)
        held_out = {name: value for name, value in row.items() if "held_out" in name and name != "n_held_out"}
        assert set(held_out.values()) == {None}
        assert row["r2_mixed"] is not None
