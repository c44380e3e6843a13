"""Trees find what a step function can say, choose on validation scenes only, and say which library they miss."""

import dataclasses
import json
import sys

import pytest
import torch

from conceptbind.approximators.base import Approximation, Approximator, make_task
from conceptbind.approximators.trees import BoostedTrees, RandomForest
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import ConceptSpace, ObjectSplit, SceneKind, factorial_scenes, object_split

SPACE = ConceptSpace.of_sizes(5, 4)
SCENES = factorial_scenes(SPACE, 2)
SPLIT = object_split(SPACE, 0.6, seed=0)
PRODUCT = EmbeddingSet(
    planted_encoders(SPACE, "product", dim=64, seed=0, noise=0.5).scenes(SCENES), SCENES, SPACE
)
BOTH = [BoostedTrees(), RandomForest(n_trees=20)]


def names(approximator):
    return approximator.name


def one_concept():
    """An embedding that the first concept of the second slot decides alone."""
    table = torch.randn(5, 12, generator=torch.Generator().manual_seed(1))
    return EmbeddingSet(table[SCENES[:, 1, 0]], SCENES, SPACE)


# A forest that may try every code at every split; of fewer codes, some trees split on what merely goes along.
@pytest.mark.parametrize("trees", [BoostedTrees(), RandomForest(n_trees=20, max_features=1.0)], ids=names)
def test_a_function_of_one_concept_is_found_exactly_on_scenes_never_seen(trees):
    data = one_concept()
    found = trees.fit(make_task(data, [SPLIT], seeds=[0]))
    torch.testing.assert_close(found.predict(0, SCENES), data.embeddings, atol=1e-3, rtol=0)
    assert found.details[0]["variance_kept"] == pytest.approx(1)
    assert found.details[0]["n_components"] == 4, "five centred points span four axes"
    assert found.converged == [True]


@pytest.mark.parametrize("trees", BOTH, ids=names)
def test_they_are_approximators_whose_settings_and_details_are_json(trees):
    found = trees.fit(make_task(PRODUCT, [SPLIT], seeds=[0]))
    assert isinstance(trees, Approximator)
    assert isinstance(found, Approximation)
    assert json.loads(json.dumps(trees.settings))["approximator"] == trees.name
    assert "n_jobs" not in trees.settings
    assert json.loads(json.dumps(list(found.details))) == list(found.details)
    assert found.predict(0, SCENES[:0]).shape == (0, 64)


@pytest.mark.parametrize("trees", BOTH, ids=names)
def test_what_they_do_not_train_on_changes_nothing(trees):
    task = make_task(PRODUCT, [SPLIT], seeds=[0])
    hidden = PRODUCT.embeddings.clone()
    hidden[~task.train[0]] = torch.nan
    blind = dataclasses.replace(task, embeddings=hidden)
    found, blindly = trees.fit(task), trees.fit(blind)
    assert torch.equal(found.predict(0, SCENES), blindly.predict(0, SCENES))
    assert found.details == blindly.details


def test_rounds_are_chosen_on_the_validation_scenes():
    """Validation targets that nothing predicts stop the boosting at once, though training targets are learnable."""
    data, trees = one_concept(), BoostedTrees()
    task = make_task(data, [SPLIT], seeds=[0])
    assert task.validates
    opposite = data.embeddings.clone()
    mean = opposite[task.inner[0]].mean(0)
    opposite[task.validation[0]] = 2 * mean - opposite[task.validation[0]]
    misled = dataclasses.replace(task, embeddings=opposite)
    found, stopped = trees.fit(task).details[0], trees.fit(misled).details[0]
    assert stopped["rounds"] == 1 < found["rounds"]


def test_without_validation_objects_the_number_of_rounds_is_given():
    # Every training object is the only one to show a value, so none can be spared.
    diagonal = SPACE.object_index(torch.tensor([[0, 0], [1, 1], [2, 2], [3, 3]]))
    mask = torch.zeros(20, dtype=torch.bool)
    mask[diagonal] = True
    task = make_task(PRODUCT, [ObjectSplit(SPACE, mask)], seeds=[0])
    assert not task.validates
    found = BoostedTrees(rounds_unvalidated=7).fit(task)
    assert found.details[0]["rounds"] == 7
    assert "no validation objects" in found.details[0]["note"]
    assert found.converged == [True]


def test_boosting_that_is_cut_off_has_not_converged():
    task = make_task(PRODUCT, [SPLIT], seeds=[0])
    assert BoostedTrees(max_rounds=3).fit(task).converged == [False]


@pytest.mark.parametrize("trees", BOTH, ids=names)
def test_a_fit_is_the_same_again_alone_and_among_others(trees):
    splits = [SPLIT, object_split(SPACE, 0.4, seed=3), object_split(SPACE, 0.9, seed=4)]
    together = trees.fit(make_task(PRODUCT, splits, seeds=[0, 1, 2]))
    for fit, split in enumerate(splits):
        alone = trees.fit(make_task(PRODUCT, [split], seeds=[fit]))
        assert torch.equal(together.predict(fit, SCENES), alone.predict(0, SCENES))
        assert together.n_parameters[fit] == alone.n_parameters[0]
        assert together.details[fit] == alone.details[0]


@pytest.mark.parametrize("trees", BOTH, ids=names)
def test_they_learn_training_scenes_within_the_axes_that_are_kept(trees):
    task = make_task(PRODUCT, [SPLIT], seeds=[0])
    z = PRODUCT.embeddings[task.train[0]]
    few = dataclasses.replace(trees, n_components=3).fit(task)
    singular = torch.linalg.svdvals((z - z.mean(0)).double()).square()
    assert few.details[0]["n_components"] == 3
    assert few.details[0]["variance_kept"] == pytest.approx(float(singular[:3].sum() / singular.sum()))
    assert torch.linalg.matrix_rank((few.predict(0, SCENES) - z.mean(0)).double(), atol=1e-3) == 3
    every = trees.fit(task)
    error = (every.predict(0, SCENES[task.train[0]]) - z).square().sum()
    assert 1 - error / (z - z.mean(0)).square().sum() > 0.8


@pytest.mark.parametrize("trees", BOTH, ids=names)
def test_one_axis_will_do(trees):
    found = dataclasses.replace(trees, n_components=1).fit(make_task(PRODUCT, [SPLIT], seeds=[0]))
    assert found.predict(0, SCENES).shape == PRODUCT.embeddings.shape
    assert found.details[0]["n_components"] == 1


def test_parameters_are_leaves_times_outputs():
    # A tree of depth 1 has two leaves; a forest that never splits has one each.
    task = make_task(PRODUCT, [SPLIT], seeds=[0])
    stumps = BoostedTrees(max_depth=1, max_rounds=5, n_components=3).fit(task)
    assert stumps.n_parameters[0] == stumps.details[0]["rounds"] * 2 * 3
    assert RandomForest(n_trees=4, min_samples_leaf=1000, n_components=3).fit(task).n_parameters == [4 * 3]


@pytest.mark.parametrize("trees", BOTH, ids=names)
def test_a_value_that_was_never_shown_adds_nothing(trees):
    mask = SPACE.all_objects()[:, 0] < 3
    mask[0] = False
    found = trees.fit(make_task(PRODUCT, [ObjectSplit(SPACE, mask)], seeds=[0]))
    unseen = torch.tensor([[[3, 1], [1, 2]], [[4, 1], [1, 2]]])
    predicted = found.predict(0, unseen)
    assert torch.equal(predicted[0], predicted[1])


@pytest.mark.parametrize(
    ("trees", "module", "message"),
    [
        (BOTH[0], "xgboost", r"BoostedTrees needs xgboost: pip install 'conceptbind\[trees\]'"),
        (BOTH[1], "sklearn.ensemble", r"RandomForest needs scikit-learn: pip install 'conceptbind\[trees\]'"),
    ],
    ids=["boosted", "forest"],
)
def test_a_missing_library_is_named(trees, module, message, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=message):
        trees.fit(make_task(PRODUCT, [SPLIT], seeds=[0]))


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="n_components is at least 1; got 0"):
        BoostedTrees(n_components=0)
    with pytest.raises(ValueError, match="learning_rate is above 0"):
        BoostedTrees(learning_rate=0.0)
    with pytest.raises(ValueError, match="max_features is 'sqrt'"):
        RandomForest(max_features="all")
    with pytest.raises(ValueError, match="max_features is 'sqrt'"):
        RandomForest(max_features=1.5)
    found = BOTH[0].fit(make_task(PRODUCT, [SPLIT], seeds=[0]))
    with pytest.raises(ValueError, match="scenes of 2 slots; these have 3"):
        found.predict(0, factorial_scenes(SPACE, 3)[:5])


def test_held_out_scenes_are_beyond_a_forest_that_memorises():
    """Independent vectors for every object: no approximator can know those it never saw."""
    encoders = planted_encoders(SPACE, "memorised", dim=64, seed=0)
    data = EmbeddingSet(encoders.scenes(SCENES), SCENES, SPACE)
    for trees in BOTH:
        found = trees.fit(make_task(data, [SPLIT], seeds=[0]))
        rows = SPLIT.kinds(SCENES) == SceneKind.HELD_OUT
        z = data.embeddings[rows]
        error = (found.predict(0, SCENES[rows]) - z).square().sum()
        assert 1 - error / (z - z.mean(0)).square().sum() < 0.1
