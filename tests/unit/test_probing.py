"""Probing recovers what was planted, and its controls sit at chance."""

import inspect
import json
import math

import pytest
import torch

from conceptbind.analysis import probing
from conceptbind.analysis.probing import learning_curve, probe, probe_scores, select_l2
from conceptbind.analysis.recognition import concept_recognition, heads, object_recognition
from conceptbind.kernels.probes import fit_probes
from conceptbind.planted import planted_encoders
from conceptbind.scenes import (
    ConceptSpace,
    SceneKind,
    factorial_scenes,
    object_split,
    scene_split,
    single_object_scenes,
)

SPACE = ConceptSpace(("colour", "shape"), (("red", "green", "blue", "grey"), ("circle", "square", "star")))
SCENES = factorial_scenes(SPACE, 2)
DISTINCT = factorial_scenes(SPACE, 2, repeats="distinct values")
PRODUCT = planted_encoders(SPACE, "product", dim=64, seed=0, noise=0.2)


@pytest.fixture(scope="module")
def product():
    return probe(PRODUCT.scenes(SCENES), SPACE, SCENES)


def test_product_embeddings_give_concepts_and_objects(product):
    for head in ("colour", "all concepts", "objects"):
        row = product.row(head)
        assert row.accuracy > 0.95
        assert row.low <= row.accuracy <= row.high
        assert len(row.by_seed) == 3
        assert row.accuracy == pytest.approx(sum(row.by_seed) / 3)
        assert row.converged


def test_shuffled_labels_are_at_chance(product):
    for head in ("colour", "shape", "all concepts", "objects"):
        row = product.row(head, labels="shuffled")
        # 86 test scenes a seed share their labels' frequencies, hence some slack: 5 standard errors of one
        # seed.
        slack = 5 * math.sqrt(row.chance * (1 - row.chance) / row.n_scenes)
        assert abs(row.accuracy - row.chance) < slack + 0.02


def test_additive_embeddings_give_concepts_but_no_objects():
    encoders = planted_encoders(SPACE, "additive", dim=64, seed=0)
    result = probe(encoders.scenes(DISTINCT), SPACE, DISTINCT, train_fraction=0.6, l2=1e-4)
    assert result.row("all concepts").accuracy == 1
    # The scene and its swap have the same embedding and different objects: at most one of the two can be
    # right, and with both in the test set and neither in training the probe has no way to tell.
    assert result.row("objects").accuracy < 0.35


def test_memorised_embeddings_are_readable_by_a_linear_probe_trained_on_all_objects():
    encoders = planted_encoders(SPACE, "memorised", dim=256, seed=0)
    result = probe(encoders.scenes(SCENES), SPACE, SCENES, controls=False)
    assert result.row("objects").accuracy > 0.99


def test_object_level_split_by_masks():
    split = object_split(SPACE, 0.7, seed=0)
    encoders = planted_encoders(SPACE, "additive", dim=64, seed=0)
    kinds = split.kinds(SCENES)
    train, test = (kinds == SceneKind.TRAIN).unsqueeze(0), (kinds == SceneKind.HELD_OUT).unsqueeze(0)
    result = probe(
        encoders.scenes(SCENES),
        SPACE,
        SCENES,
        train=train,
        test=test,
        seeds=(0,),
        controls=False,
        cluster=True,
    )
    objects, concepts = result.row("objects"), result.row("all concepts")
    assert (objects.n_train, objects.n_scenes) == (int(train.sum()), int(test.sum()))
    # No training scene shows these objects, and that is said.
    assert (objects.unseen, concepts.unseen) == (1, 0)
    assert objects.accuracy == 0
    assert math.isnan(objects.accuracy_seen)
    # The concept parts are the same on every object, so they carry over.
    assert concepts.accuracy == 1


def test_vacuous_scenes_are_left_out_and_counted():
    space = ConceptSpace.of_sizes(4, 2)
    scenes = factorial_scenes(space, 2)
    x = planted_encoders(space, "product", dim=64, seed=0).scenes(scenes)
    row = probe(x, space, scenes, controls=False, seeds=(0,), l2=1e-3).row("c1")
    # Half of the scenes show both values of the second concept.
    test = ~scene_split(len(scenes), seed=0)
    vacuous = int((scenes[test, 0, 1] != scenes[test, 1, 1]).sum())
    assert (row.n_vacuous, row.n_scenes) == (vacuous, int(test.sum()) - vacuous)
    assert row.chance == pytest.approx(1 / 2)


def test_scores_are_those_of_the_kernel():
    x = PRODUCT.scenes(SCENES)
    row = probe(x, SPACE, SCENES, seeds=(5,), l2=1e-3, controls=False).row("objects")
    train = scene_split(len(x), seed=5)
    labels = torch.cat([SCENES, SPACE.object_index(SCENES).unsqueeze(-1)], dim=-1)
    fitted = fit_probes(x, labels, (4, 3, 12), train.unsqueeze(0), l2=1e-3, tol=1e-3)
    scores = fitted.scores(x)[0][~train]
    expected = object_recognition(SPACE, SCENES[~train], scores)
    assert (row.accuracy, row.ties, row.chance) == pytest.approx(
        (expected.accuracy, expected.ties, expected.chance)
    )
    assert row.margin_mean == pytest.approx(expected.margin_mean, rel=1e-3)


def test_the_test_scenes_do_not_influence_the_penalty_or_the_fit():
    x = PRODUCT.scenes(SCENES)
    train = scene_split(len(x), seed=0).unsqueeze(0)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    other = torch.where(train[0].unsqueeze(1), x, noise)
    chosen = [select_l2(data, SPACE, SCENES, train, seeds=(0,)) for data in (x, other)]
    assert torch.equal(*chosen)
    ours, theirs = (probe(data, SPACE, SCENES, seeds=(0,), controls=False) for data in (x, other))
    for head in ("colour", "shape", "all concepts", "objects"):
        assert ours.row(head, scenes="train") == theirs.row(head, scenes="train")
    assert ours.row("objects").accuracy > theirs.row("objects").accuracy


def test_validation_scenes_are_not_fitted_on(monkeypatch):
    """Every fit of the choice is judged on training scenes that it did not see."""
    fitted, judged = [], []
    fit, margins = probing.fit_probes, probing.probe_margins
    monkeypatch.setattr(probing, "fit_probes", lambda *a, **k: fitted.append(a[3]) or fit(*a, **k))
    monkeypatch.setattr(probing, "probe_margins", lambda *a: judged.append((a[1], a[5])) or margins(*a))
    train = scene_split(len(SCENES), seed=0)
    select_l2(PRODUCT.scenes(SCENES), SPACE, SCENES, train.unsqueeze(0), seeds=(0,), grid=(1e-3, 1e-2))
    (masks,) = fitted
    assert len(judged) == len(masks) == 5 * 2
    for number, rows in judged:
        assert bool(rows.any())
        assert torch.equal(masks[number] | rows, train)
        assert not bool((masks[number] & rows).any())


def test_of_equal_penalties_the_largest_wins():
    x = planted_encoders(SPACE, "product", dim=64, seed=0).scenes(SCENES)
    train = scene_split(len(x), train_fraction=0.8, seed=0).unsqueeze(0)
    grid = (1e-5, 1e-4, 1e-6)
    for l2 in grid:
        assert probe(x, SPACE, SCENES, train_fraction=0.8, seeds=(0,), l2=l2).row("objects").accuracy == 1
    assert select_l2(x, SPACE, SCENES, train, seeds=(0,), grid=grid).tolist() == [[1e-4] * 3]


def test_shuffled_labels_do_not_follow_the_split():
    n = 1000
    for seed in range(5):
        train = scene_split(n, seed=seed)
        order = probing._shuffle(n, seed)
        assert not torch.equal(order, torch.randperm(n, generator=torch.Generator().manual_seed(seed)))
        assert torch.equal(order.sort().values, torch.arange(n))
        # The labels of any scenes are training scenes' as often as not: 5 standard errors.
        for part in (train, ~train, torch.arange(n) < 400):
            share = float(train[order][part].double().mean())
            assert abs(share - 0.4) < 5 * math.sqrt(0.24 / int(part.sum()))


def test_intervals_by_objects_when_asked():
    x = planted_encoders(SPACE, "product", dim=64, seed=0, noise=1.0).scenes(SCENES)
    options = {"seeds": (0,), "l2": 1e-3, "controls": False}
    plain, clustered = (probe(x, SPACE, SCENES, cluster=c, **options).row("objects") for c in (False, True))
    assert plain.accuracy == clustered.accuracy
    assert clustered.high - clustered.low > plain.high - plain.low
    test = ~scene_split(len(SCENES), seed=0)
    scores = probe_scores(x, SPACE, SCENES, seed=0, l2=1e-3)[test]
    found = object_recognition(SPACE, SCENES[test], scores, cluster=True)
    assert (clustered.low, clustered.high) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize("name", ["objects", "all concepts"])
def test_a_concept_named_as_a_row_of_the_table_is_refused(name):
    space = ConceptSpace((name, "shape"), SPACE.values)
    with pytest.raises(ValueError, match=f"'{name}'.* rename the concept"):
        probe(PRODUCT.scenes(SCENES), space, SCENES)


def test_select_l2_prefers_the_better_penalty():
    x = PRODUCT.scenes(SCENES)
    train = scene_split(len(x), seed=0).unsqueeze(0)
    chosen = select_l2(x, SPACE, SCENES, train, seeds=(0,), grid=(1e-3, 1e6))
    assert chosen.shape == (1, len(heads(SPACE)))
    assert float(chosen[0, -1]) == 1e-3  # at 1e6 objects are read from the intercept alone


def test_learning_curve_grows_and_shares_its_test_scenes():
    x = planted_encoders(SPACE, "product", dim=64, seed=0, noise=2.0).scenes(SCENES)
    curve = learning_curve(x, SPACE, SCENES, n_train=(10, 30, 90), l2=1e-3)
    rows = [curve[n].row("objects") for n in (10, 30, 90)]
    assert [r.n_train for r in rows] == [10, 30, 90]
    assert {r.n_scenes for r in rows} == {len(SCENES) - 90}
    assert rows[0].accuracy < rows[1].accuracy < rows[2].accuracy
    # Ten scenes show at most 20 slots: some objects are missing, so some test scenes cannot be right.
    assert rows[0].unseen > rows[2].unseen
    assert rows[0].accuracy <= 1 - rows[0].unseen
    # A curve is a batch of ordinary fits.
    train = torch.randperm(len(x), generator=torch.Generator().manual_seed(1)).argsort() < 30
    test = torch.randperm(len(x), generator=torch.Generator().manual_seed(1)).argsort() >= 90
    alone = probe(
        x,
        SPACE,
        SCENES,
        train=train.unsqueeze(0),
        test=test.unsqueeze(0),
        seeds=(1,),
        l2=1e-3,
        controls=False,
    )
    assert curve[30].row("objects").by_seed[1] == pytest.approx(alone.row("objects").accuracy, abs=0.05)


def test_single_object_scenes_can_be_probed():
    scenes = single_object_scenes(SPACE).repeat(10, 1, 1)
    x = planted_encoders(SPACE, "product", dim=64, seed=0, noise=0.2).scenes(scenes)
    assert probe(x, SPACE, scenes, controls=False, seeds=(0,)).row("objects").accuracy > 0.95


def test_rows_are_json_with_both_sides_and_controls(product):
    rows = product.as_dicts()
    assert len(rows) == 4 * 2 * 2
    assert json.loads(json.dumps({"rows": rows, **product.settings}, allow_nan=False))["seeds"] == [0, 1, 2]
    with pytest.raises(KeyError, match="held-out"):
        product.row("texture")


def test_takes_an_embedding_set():
    class Set:
        embeddings, scenes, space = PRODUCT.scenes(SCENES), SCENES, SPACE

    direct = probe(Set.embeddings, SPACE, SCENES, seeds=(0,), l2=1e-3)
    assert probe(Set(), seeds=(0,), l2=1e-3) == direct
    with pytest.raises(ValueError, match="brings its own"):
        probe(Set(), SPACE)
    with pytest.raises(ValueError, match="pass their space"):
        probe(Set.embeddings)


def test_errors_name_the_problem():
    x = PRODUCT.scenes(SCENES)
    train = scene_split(len(x), seed=0).unsqueeze(0)
    with pytest.raises(ValueError, match="both train and test"):
        probe(x, SPACE, SCENES, train=train, test=torch.ones_like(train), seeds=(0,))
    with pytest.raises(ValueError, match="one mask for each"):
        probe(x, SPACE, SCENES, train=train, seeds=(0, 1))
    with pytest.raises(ValueError, match="do not fit 144 scenes"):
        learning_curve(x, SPACE, SCENES, n_train=(10, 144))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu():
    x = PRODUCT.scenes(SCENES)
    options = {"seeds": (0,), "l2": 1e-3, "dtype": torch.float64, "tol": 1e-8}
    ours, theirs = (probe(x, SPACE, SCENES, device=d, **options) for d in ("cpu", "cuda"))
    for a, b in zip(ours.rows, theirs.rows, strict=True):
        assert (a.accuracy, a.margin_mean) == pytest.approx((b.accuracy, b.margin_mean), abs=1e-6)


@pytest.mark.parametrize("l2", [None, 1e-3])
def test_probe_scores_are_the_scores_that_probe_judges(l2):
    x = planted_encoders(SPACE, "product", dim=64, seed=0, noise=3.0).scenes(SCENES)
    scores = probe_scores(x, SPACE, SCENES, seed=3, l2=l2)
    result = probe(x, SPACE, SCENES, seeds=(3,), l2=l2, controls=False)
    test = ~scene_split(len(SCENES), train_fraction=0.4, seed=3)
    concepts = concept_recognition(SPACE, SCENES[test], scores[test])
    found = {
        **concepts.by_concept,
        "all concepts": concepts.overall,
        "objects": object_recognition(SPACE, SCENES[test], scores[test]),
    }
    for head, expected in found.items():
        row = result.row(head)
        assert 0 < row.accuracy < 1
        for key, value in expected.as_dict().items():
            assert getattr(row, key) == pytest.approx(value, rel=1e-5), (head, key)


def test_a_result_prints_a_table_of_held_out_rows():
    space = ConceptSpace.of_sizes(3, 3)
    scenes = factorial_scenes(space, 2)
    text = str(
        probe(planted_encoders(space, "product", dim=64, seed=0).scenes(scenes), space, scenes, seeds=(0,))
    )
    assert text.count("\n") == 8
    assert "shuffled" in text


def test_a_head_without_absent_queries_prints_no_nan():
    space = ConceptSpace.of_sizes(4, 1)
    scenes = factorial_scenes(space, 2)
    x = planted_encoders(space, "product", dim=64, seed=0).scenes(scenes)
    text = str(probe(x, space, scenes, seeds=(0,), l2=1e-3, controls=False))
    (line,) = (line for line in text.splitlines() if line.startswith("c1"))
    assert line.split("true")[1].split(maxsplit=1) == ["–", "nothing is ever absent"]
    assert "nan" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": torch.ones(144, 8, dtype=torch.int64)}, r"floating-point .*int64 of shape \(144, 8\)"),
        ({"data": torch.ones(144)}, r"\(scene, dim\); got torch.float32 of shape \(144,\)"),
        ({"data": torch.ones(144, 8).numpy()}, "got ndarray: torch.as_tensor"),
        ({"seeds": 3}, r"seeds must hold several numbers; got 3: write \(3,\)"),
        ({"seeds": ()}, "seeds is empty"),
        ({"n_train": 10}, r"n_train must hold several numbers; got 10: write \(10,\)"),
        ({"n_train": ()}, "n_train is empty"),
    ],
)
def test_inputs_of_the_wrong_kind_are_named(change, message):
    # Unwrapped: a reader's call is not checked by beartype.
    given = {"data": torch.ones(144, 8), "space": SPACE, "scenes": SCENES, **change}
    if "n_train" not in change:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(probe)(**given)
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(learning_curve)(**{"n_train": (10,), **given})
    if "data" in change:
        with pytest.raises(ValueError, match=message):
            inspect.unwrap(probe_scores)(**given)


def test_embeddings_that_want_a_gradient_are_taken_as_they_are():
    x = PRODUCT.scenes(SCENES)
    wants = x.clone().requires_grad_()
    ours, theirs = (probe_scores(data, SPACE, SCENES, l2=1e-3) for data in (x, wants))
    assert not theirs.requires_grad
    assert torch.equal(ours, theirs)
