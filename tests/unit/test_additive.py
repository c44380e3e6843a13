"""Additive fits against dense least squares, against the paper's means, and on planted embeddings."""

import numpy as np
import pytest
import torch

from conceptbind.analysis.additive import fit_additive, fit_all, fit_single, r_squared, squared_errors
from conceptbind.embeddings import EmbeddingSet
from conceptbind.planted import planted_encoders
from conceptbind.scenes import (
    ConceptSpace,
    factorial_scenes,
    sample_scenes,
    scene_split,
    single_object_scenes,
)

SPACE = ConceptSpace.of_sizes(4, 3)
ALL_MODELS = [(level, e) for level in ("objects", "concepts") for e in ("avg", "avg+pos")]


def random_set(scenes, space=SPACE, dim=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return EmbeddingSet(torch.randn(len(scenes), dim, generator=generator) + 3, scenes, space)


def planted_set(kind, scenes, space=SPACE, noise=0.0, dim=64):
    return EmbeddingSet(
        planted_encoders(space, kind, dim=dim, seed=1, noise=noise).scenes(scenes), scenes, space
    )


def design(scenes, space, level, positions):
    """The dense matrix of the model, column by column, with numpy alone."""
    blocks = []
    for i in range(scenes.shape[1]):
        if level == "objects":
            names = np.ravel_multi_index(tuple(scenes[:, i].numpy().T), space.n_values)
            blocks.append(np.eye(space.n_possible_objects)[names])
        else:
            blocks.append(
                np.hstack([np.eye(v)[scenes[:, i, k].numpy()] for k, v in enumerate(space.n_values)])
            )
    columns = np.hstack(blocks) if positions else sum(blocks)
    return np.hstack([np.ones((len(scenes), 1)), columns])


SCENES = {
    "all pairs": factorial_scenes(SPACE, 2),
    "distinct objects": factorial_scenes(SPACE, 2, repeats="distinct objects"),
    "no shared value, as PUG:SPARE": factorial_scenes(SPACE, 2, repeats="distinct values"),
    "a sample": sample_scenes(SPACE, 2, 60, seed=3),
    "three objects": sample_scenes(SPACE, 3, 200, seed=4),
    "fewer scenes than parts": sample_scenes(SPACE, 2, 9, seed=5),
    "one scene": factorial_scenes(SPACE, 2)[:1],
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(("level", "estimator"), ALL_MODELS)
def test_predictions_and_rank_are_those_of_dense_least_squares(name, level, estimator):
    data = random_set(SCENES[name])
    fit = fit_additive(data, level=level, estimator=estimator)
    matrix = design(data.scenes, SPACE, level, estimator == "avg+pos")
    solution, _, rank, _ = np.linalg.lstsq(matrix, data.embeddings.double().numpy(), rcond=1e-10)
    np.testing.assert_allclose(fit.predict(data.scenes).numpy(), matrix @ solution, atol=1e-9)
    assert fit.rank == rank


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize(("level", "estimator"), ALL_MODELS)
def test_the_gauge_is_as_stated(name, level, estimator):
    data = random_set(SCENES[name])
    fit = fit_additive(data, level=level, estimator=estimator)
    torch.testing.assert_close(fit.mean, data.embeddings.double().mean(0))
    slots = range(data.scenes.shape[1])
    if level == "objects":
        weighted = sum(
            fit.parts[i if fit.keeps_positions else 0][SPACE.object_index(data.scenes[:, i])] for i in slots
        )
        assert float(weighted.sum(0).abs().max()) < 1e-9
        return
    for k in range(SPACE.n_concepts):
        offset = sum(SPACE.n_values[:k])
        for i in slots:
            if fit.keeps_positions:
                assert float(fit.parts[i][data.scenes[:, i, k] + offset].sum(0).abs().max()) < 1e-9
        if not fit.keeps_positions:
            assert (
                float(sum(fit.parts[0][data.scenes[:, i, k] + offset] for i in slots).sum(0).abs().max())
                < 1e-9
            )


@pytest.mark.parametrize(("level", "estimator"), ALL_MODELS)
@pytest.mark.parametrize("name", ["all pairs", "a sample", "three objects"])
def test_r2_agrees_with_its_definition(name, level, estimator):
    data = random_set(SCENES[name])
    fit = fit_additive(data, level=level, estimator=estimator)
    z = data.embeddings.double().numpy()
    residual = ((z - fit.predict(data.scenes).numpy()) ** 2).sum()
    expected = 1 - residual / ((z - z.mean(0)) ** 2).sum()
    assert fit.r2 == pytest.approx(expected, abs=1e-12)
    assert r_squared(fit, data) == pytest.approx(expected, abs=1e-12)


def test_on_a_balanced_grid_the_fits_are_the_papers_means():
    data = random_set(SCENES["all pairs"])
    index = SPACE.object_index(data.scenes)
    centred = data.embeddings.double() - data.embeddings.double().mean(0)
    by_place = fit_additive(data, estimator="avg+pos")
    plain = fit_additive(data, estimator="avg")
    means = fit_additive(data, estimator="avg", solver="means")
    for o in range(SPACE.n_possible_objects):
        here = [centred[index[:, i] == o] for i in range(2)]
        for i in range(2):
            torch.testing.assert_close(by_place.parts[i, o], here[i].mean(0))
        torch.testing.assert_close(plain.parts[0, o], torch.cat(here).mean(0))
        torch.testing.assert_close(means.parts[0, o], torch.cat(here).mean(0))


def test_off_balance_the_means_are_not_the_best_and_r2_says_so():
    data = planted_set("product", SCENES["no shared value, as PUG:SPARE"])
    exact = fit_additive(data)
    means = fit_additive(data, solver="means")
    assert exact.r2 == pytest.approx(1, abs=1e-12)
    assert means.r2 < 0.99
    assert means.r2 == pytest.approx(r_squared(means, data), abs=1e-12)


@pytest.mark.parametrize("kind", ["additive", "product", "memorised"])
def test_object_parts_of_planted_scenes_are_recovered(kind):
    encoders = planted_encoders(SPACE, kind, dim=64, seed=1)
    data = planted_set(kind, SCENES["a sample"])
    fit = fit_additive(data, estimator="avg")
    assert fit.n_undetermined == 0
    parts = fit.object_parts()[0]
    true = encoders.scene_objects.double()
    torch.testing.assert_close(parts - parts.mean(0), true - true.mean(0))
    unseen = factorial_scenes(SPACE, 2)
    torch.testing.assert_close(fit.predict(unseen).float(), encoders.scenes(unseen))


def test_concept_parts_explain_a_bag_wholly_and_memorised_objects_hardly():
    scenes = SCENES["all pairs"]
    r2 = {
        kind: fit_additive(planted_set(kind, scenes), level="concepts", estimator="avg").r2
        for kind in ("additive", "memorised")
    }
    assert r2["additive"] == pytest.approx(1, abs=1e-12)
    # Independent vectors: (sum V_k - K) of the (|O| - 1) directions are concepts', on average.
    assert r2["memorised"] == pytest.approx((7 - 2) / (12 - 1), abs=0.12)


def test_random_embeddings_have_the_r2_that_the_number_of_parameters_buys():
    data = random_set(SCENES["all pairs"], dim=400)
    fit = fit_additive(data, estimator="avg+pos")
    assert fit.rank == 1 + 2 * 11
    assert fit.r2 == pytest.approx(22 / 143, abs=0.01)


def test_single_objects_give_the_parts_without_any_scene_of_two():
    encoders = planted_encoders(SPACE, "product", dim=64, seed=1)
    alone = single_object_scenes(SPACE)
    left = EmbeddingSet(encoders.scenes(alone) + 7, alone, SPACE)
    order = torch.randperm(len(alone), generator=torch.Generator().manual_seed(0))
    right = EmbeddingSet(encoders.scenes(alone[order]) - 7, alone[order], SPACE)
    data = planted_set("product", SCENES["all pairs"])
    fit = fit_additive(data, estimator="single", singles=[left, right])
    torch.testing.assert_close(fit.predict(data.scenes).float(), data.embeddings)
    bag = fit_single([left], fit.mean, level="concepts")
    expected = fit_additive(left, level="concepts", estimator="avg")
    torch.testing.assert_close(bag.parts, expected.parts)


def test_one_pass_gives_all_the_fits():
    data = random_set(SCENES["a sample"])
    for (level, estimator), fit in fit_all(data).items():
        torch.testing.assert_close(fit.parts, fit_additive(data, level=level, estimator=estimator).parts)


def test_training_scenes_alone_are_fitted_and_the_rest_is_predicted():
    data = planted_set("product", SCENES["all pairs"])
    train = scene_split(len(data.scenes), train_fraction=0.5, seed=0)
    fit = fit_additive(data, train=train)
    alone = fit_additive(data.subset(train))
    torch.testing.assert_close(fit.parts, alone.parts)
    assert r_squared(fit, data, keep=~train) == pytest.approx(1, abs=1e-9)
    residual, total = squared_errors(fit, data, keep=~train)
    assert len(residual) == len(total) == int((~train).sum())


def test_a_part_that_no_scene_shows_is_missed_by_name():
    scenes = SCENES["all pairs"]
    data = random_set(scenes)
    train = (SPACE.object_index(scenes) != 5).all(1)
    fit = fit_additive(data, train=train)
    covered = fit.covers(scenes)
    assert torch.equal(covered, train)
    with pytest.raises(ValueError, match=r"1 2.*no fitted scene shows it"):
        fit.predict(scenes)
    assert len(fit.predict(scenes[covered])) == int(train.sum())
    assert fit_additive(data, train=train, level="concepts").covers(scenes).all()


def test_permuted_parts_are_the_same_parts_under_other_names():
    data = random_set(SCENES["all pairs"])
    for level in ("objects", "concepts"):
        fit = fit_additive(data, level=level)
        wrong = fit.permuted(seed=0)
        distance = torch.cdist(wrong.parts[0], fit.parts[0])
        assert float(distance.diagonal().min()) > 0.1, "no part keeps its name"
        assert torch.equal(distance.argmin(1).sort().values, torch.arange(fit.parts.shape[1])), (
            "each is used once"
        )
        if level == "concepts":
            assert (distance.argmin(1)[:4] < 4).all(), "colours stay colours"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": "object"}, "level must be one of"),
        ({"estimator": "mean"}, "estimator must be one of"),
        ({"solver": "adam"}, "solver must be one of"),
        ({"estimator": "single"}, r"needs singles=\[...\]"),
        ({"train": torch.ones(3, dtype=torch.bool)}, "mask of scenes must be bool of shape"),
        ({"train": torch.zeros(144, dtype=torch.bool)}, "keeps no scene"),
    ],
)
def test_wrong_requests_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_additive(random_set(SCENES["all pairs"]), **arguments)


def test_permuted_parts_leave_out_what_is_not_shown_in_every_slot():
    scenes = SCENES["all pairs"]
    data = random_set(scenes)
    fit = fit_additive(data, train=SPACE.object_index(scenes)[:, 0] != 5)
    wrong = fit.permuted(seed=0)
    assert fit.shown[1, 5]
    assert not wrong.shown[:, 5].any()
    assert not wrong.parts[:, 5].any()


def test_wrong_single_objects_are_named():
    data = random_set(SCENES["all pairs"])
    alone = single_object_scenes(SPACE)
    mean = torch.zeros(5)
    with pytest.raises(ValueError, match="have one slot"):
        fit_single([data], mean)
    with pytest.raises(ValueError, match="more than once"):
        fit_single([random_set(torch.cat([alone, alone[:1]]))], mean)
    with pytest.raises(ValueError, match="different objects"):
        fit_single([random_set(alone), random_set(alone[1:])], mean)
    with pytest.raises(ValueError, match="a list of at least one"):
        fit_single([], mean)
    with pytest.raises(ValueError, match="by one encoder"):
        fit_single([random_set(alone, dim=4)], mean)
    other = ConceptSpace.of_sizes(3, 4)
    with pytest.raises(ValueError, match="different concept spaces"):
        fit_single([random_set(alone), random_set(single_object_scenes(other), other)], mean)
    with pytest.raises(ValueError, match="different concept spaces"):
        fit_additive(data, estimator="single", singles=[random_set(single_object_scenes(other), other)])


def test_parts_with_positions_belong_to_their_number_of_slots():
    fit = fit_additive(random_set(SCENES["all pairs"]))
    with pytest.raises(ValueError, match="scenes with 2 objects; these have 3"):
        fit.predict(SCENES["three objects"])
    plain = fit_additive(random_set(SCENES["all pairs"]), estimator="avg")
    assert plain.predict(SCENES["three objects"]).shape == (200, 5)
