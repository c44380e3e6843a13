"""Taking parts from embeddings: planted encoders in which it is known what binds."""

import math
from dataclasses import dataclass
from functools import partial

import pytest
import torch

from conceptbind.analysis.ablation import (
    CONDITIONS,
    KIND,
    ablate,
    ablate_sample,
    ablated,
    ablation_jobs,
    split_parts,
)
from conceptbind.analysis.multiplicative import Sample
from conceptbind.approximators.products import ObjectProduct
from conceptbind.kernels.networks import one_hot
from conceptbind.scenes import ConceptSpace, SceneKind, object_split
from conceptbind.store import ResultStore
from conceptbind.sweeps import Ran, run_jobs
from conceptbind.training.checkpoints import CheckpointError
from conceptbind.training.config import config_of
from conceptbind.training.evaluate import KINDS, evaluate
from conceptbind.training.run import train

SPACE = ConceptSpace.of_sizes(12, 12)
SPLIT = object_split(SPACE, 0.75, seed=0)
RANK, DIM = 12, 64
ALS = ObjectProduct(ranks=(RANK,), ridges=(0.03,), sum_ridges=(0.0,), restarts=2)
PROJECTED = ("without product directions", "without random directions", "without additive directions")


@dataclass
class Planted:
    """Scenes are sums of object vectors, which are queries too."""

    of_objects: torch.Tensor
    of_values: torch.Tensor

    def scenes(self, scenes):
        return self.of_objects[SPACE.object_index(scenes)].sum(1)

    def objects(self, index):
        return self.of_objects[index]

    def values(self):
        return self.of_values

    def captions(self, scenes):
        return None


def planted(strength):
    """Values in 24 directions of their own, products of signs within objects in 12 others."""
    g = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(DIM, 24 + RANK, generator=g)).Q.T
    signs = torch.randint(2, (24, RANK), generator=g) * 2.0 - 1
    at = SPACE.all_objects() + torch.tensor([0, 12])
    products = signs[at].prod(1) @ axes[24:] / math.sqrt(RANK)
    return Planted(axes[at].sum(1) + strength * products, axes[:24]), axes[24:].double()


def sample(strength, n_scenes=400):
    return Sample(planted(strength)[0], SPLIT, 2, n_scenes=n_scenes)


@pytest.fixture(scope="module")
def rows():
    return {row["condition"]: row for row in ablate_sample(sample(1.5), how=ALS)}


@pytest.fixture(scope="module")
def parts():
    return split_parts(sample(1.5).task(), ALS)


# ---- what binds


def test_the_product_part_is_what_binds_and_the_sum_what_tells_concepts(rows):
    assert tuple(rows) == CONDITIONS
    for kind in KINDS.values():
        objects = {name: row[f"objects_{kind}"] for name, row in rows.items()}
        concepts = {name: row[f"concepts_{kind}"] for name, row in rows.items()}
        assert objects["original"] > 0.9
        assert objects["additive + product"] > 0.9
        for name in ("without product part", "without product directions", "additive part only"):
            assert objects[name] < 0.5 * objects["original"]
            assert concepts[name] == 1
        for name in ("product part only", "product directions only"):
            assert concepts[name] < 0.2
    # a sum tells the objects of scenes in which both share a value; else four are alike, and two of them guessed
    scenes = sample(1.5).scenes(SceneKind.HELD_OUT)
    sharing = float((scenes[:, 0] == scenes[:, 1]).any(1).double().mean())
    for name in ("without product part", "without product directions", "additive part only"):
        assert rows[name]["objects_held_out"] < sharing + (1 - sharing) / 6 + 0.05


def test_controls_cost_less_than_the_product_does(rows):
    for kind in KINDS.values():
        lost = {
            name: rows["original"][f"objects_{kind}"] - row[f"objects_{kind}"] for name, row in rows.items()
        }
        assert lost["without wrong product part"] < 0.7 * lost["without product part"]
        for name in ("without random directions", "without additive directions"):
            assert lost[name] < 0.7 * lost["without product directions"]
        assert rows["without wrong product part"][f"concepts_{kind}"] > 0.9


def test_without_a_product_nothing_is_taken_away():
    rows = {row["condition"]: row for row in ablate_sample(sample(0.0), how=ALS)}
    original = rows["original"]
    for name in (*CONDITIONS[1:4], "additive + product", *PROJECTED):
        for kind in KINDS.values():
            assert rows[name][f"concepts_{kind}"] == original[f"concepts_{kind}"] == 1
            assert rows[name][f"left_{kind}"] == pytest.approx(1, abs=1e-5)
    assert {rows[name]["n_directions"] for name in PROJECTED} == {0}
    for name in ("product part only", "product directions only"):
        assert rows[name]["left_held_out"] == pytest.approx(0, abs=1e-9)
        assert rows[name]["concepts_held_out"] < 0.05
    assert original["product_share_train"] == 0


# ---- what the parts are


def test_the_parts_are_the_planted_ones(parts):
    encoders, axes = planted(1.5)
    # products lie in the planted directions, and nowhere else
    torch.testing.assert_close(parts.directions @ axes.T @ axes, parts.directions, atol=0.02, rtol=0)
    assert len(parts.directions) in (RANK - 1, RANK)
    scenes = sample(1.5).scenes(SceneKind.HELD_OUT)
    z = encoders.scenes(scenes).double()
    left = z - parts.additive(scenes) - parts.product(scenes)
    assert left.square().sum() < 0.02 * (z - z.mean(0)).square().sum()


def test_the_additive_part_is_the_least_squares_sum_to_training_scenes(parts):
    task = sample(1.5).task()

    def design(scenes):
        return torch.cat([torch.ones(len(scenes), 1), one_hot(scenes, SPACE.n_values)], 1).double()

    sums = torch.linalg.lstsq(design(task.scenes), task.embeddings.double(), driver="gelsd").solution
    expected = design(task.scenes) @ sums
    torch.testing.assert_close(parts.additive(task.scenes), expected, atol=1e-5, rtol=0)
    # so that no sum explains anything of what is left of the scenes it was fitted to
    rest = task.embeddings.double() - parts.additive(task.scenes)
    assert (design(task.scenes).T @ rest).abs().max() < 1e-2
    axes = torch.linalg.svd(expected - expected.mean(0))[2][: len(parts.directions)]
    torch.testing.assert_close(
        parts.additive_directions.T @ parts.additive_directions, axes.T @ axes, atol=1e-3, rtol=0
    )


def test_directions_are_orthonormal_and_hold_nearly_all_of_the_products(parts):
    n = len(parts.directions)
    for axes in (parts.directions, parts.additive_directions, parts.random_directions):
        torch.testing.assert_close(axes @ axes.T, torch.eye(n, dtype=torch.float64))
    products = parts.product(sample(1.5).task().scenes)
    singular = torch.linalg.svdvals(products).square()
    assert singular[: n - 1].sum() < 0.99 * singular.sum() <= singular[:n].sum()


def test_conditions_add_up(parts):
    some = sample(1.5, n_scenes=60)
    scenes = torch.cat([some.scenes(kind) for kind in KINDS])
    z = some.embed(scenes)
    found = {c: ablated(some.embed, parts, c, scenes) for c in CONDITIONS}
    taken = z - found["without product part"]
    torch.testing.assert_close(taken, found["product part only"] - parts.mean)
    torch.testing.assert_close(taken, found["additive + product"] - found["additive part only"])
    torch.testing.assert_close(
        found["without product directions"] + found["product directions only"], z + parts.mean
    )
    # the wrong parts are the right ones in another order, of scenes of the same kind, none in its place
    wrong = z - found["without wrong product part"]
    for rows in torch.arange(len(z)).split(60):
        distance = torch.cdist(wrong[rows], taken[rows])
        places = distance.argmin(1)
        assert places.sort().values.tolist() == list(range(60))
        assert distance.amin(1).max() < 1e-6
        assert not bool((places == torch.arange(60)).any())
    with pytest.raises(ValueError, match="condition is one of original"):
        ablated(some.embed, parts, "nothing", scenes)


# ---- trained models


def test_rows_of_a_model_are_stored_once(tmp_path):
    model = train([config_of("smoke", n_steps=30)]).model(0)
    path = tmp_path / "model.safetensors"
    model.save(path)
    small = ObjectProduct(ranks=(2,), ridges=(0.1,), sum_ridges=(0.0,), restarts=1)
    jobs = partial(ablation_jobs, [path], how=small, n_scenes=200)
    with ResultStore(tmp_path / "rows.sqlite") as store:
        assert run_jobs(store, jobs(), progress=False) == Ran(done=len(CONDITIONS), skipped=0)
        assert run_jobs(store, jobs(), progress=False) == Ran(done=0, skipped=len(CONDITIONS))
        rows = store.rows(KIND)
    for row, direct in zip(rows, ablate(model, how=small, n_scenes=200), strict=True):
        assert direct.items() <= row.items()
        assert row["coverage"] == model.config.coverage
    whole = evaluate(model, n_scenes=200, seed=model.config.seed).row()
    assert rows[0]["objects_train"] == whole["objects_train"]
    assert rows[0]["left_train"] == 1


def test_files_that_are_no_model_are_refused(tmp_path):
    path = tmp_path / "text.safetensors"
    path.write_text("not a model")
    with pytest.raises(CheckpointError, match="damaged"):
        ablation_jobs([path])


@pytest.mark.parametrize("architecture", ["objects", "transformer"])
def test_a_kind_without_scenes_has_no_numbers(architecture):
    config = config_of("smoke", sizes=(4, 4), coverage=15 / 16, n_steps=5, architecture=architecture)
    rows = ablate(train([config]).model(0), n_scenes=100)
    assert len(rows) == len(CONDITIONS)
    for row in rows:
        assert {value for name, value in row.items() if "held_out" in name} == {None}
        assert row["left_mixed"] is not None
