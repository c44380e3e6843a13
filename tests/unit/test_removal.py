"""Removal takes what was planted, leaves the rest, and its controls do what their formulas say."""

import inspect
import itertools
import math

import numpy as np
import pytest
import torch

from conceptbind.analysis import removal as removing
from conceptbind.analysis.additive import fit_additive, fit_all
from conceptbind.analysis.probing import ALL_CONCEPTS, OBJECTS, probe
from conceptbind.analysis.recognition import head_labels, heads
from conceptbind.analysis.removal import (
    CONCEPT_PARTS,
    OBJECT_PARTS,
    ORIGINAL,
    OTHER_CONCEPT_PARTS,
    OTHER_OBJECT_PARTS,
    PERMUTED_CONCEPT_PARTS,
    PERMUTED_OBJECT_PARTS,
    REMOVALS,
    SHUFFLED,
    THROUGH_OBJECTS,
    UNCHANGED,
    another_scene,
    left_after,
    one_concept,
    only_concept,
    recognise_heads,
    removal,
    through_objects,
)
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.probes import fit_probes
from conceptbind.planted import planted_encoders
from conceptbind.scenes import (
    ConceptSpace,
    factorial_scenes,
    sample_scenes,
    scene_split,
    single_object_scenes,
)

SPACE = ConceptSpace(("colour", "shape"), (("red", "green", "blue", "grey"), ("circle", "square", "star")))
SCENES = factorial_scenes(SPACE, 2)
GRID = (1e-3,)

# Enough scenes to tell accuracies apart.
MANY = ConceptSpace(("colour", "shape"), (("red", "green", "blue", "grey", "pink", "brown"), SPACE.values[1]))
MANY_SCENES = factorial_scenes(MANY, 2)


def embed(kind, space=SPACE, scenes=SCENES, *, noise=0.3, dim=64, seed=0):
    return EmbeddingSet(
        planted_encoders(space, kind, dim=dim, seed=seed, noise=noise).scenes(scenes), scenes, space
    )


def measure(data, **arguments):
    return removal(data, **{"seeds": (0, 1, 2), "grid": GRID, "controls": False, **arguments})


@pytest.fixture(scope="module")
def measured():
    names = (*REMOVALS, *map(one_concept, SPACE.concepts))
    return {
        kind: measure(embed(kind, MANY, MANY_SCENES), removals=names)
        for kind in ("additive", "product", "memorised")
    }


def at_chance(row, slack=5.0):
    """Within some standard errors of chance; the seeds share scenes, so one seed's count."""
    return (
        abs(row.accuracy - row.chance)
        < slack * math.sqrt(row.chance * (1 - row.chance) / row.n_scenes) + 0.01
    )


def one_hot(space, scenes, level, positions):
    """Write the design of the additive model down, one scene at a time."""
    n_slots = scenes.shape[1]
    sizes = space.n_values if level == "concepts" else (space.n_possible_objects,)
    design = np.zeros((len(scenes), (n_slots if positions else 1) * sum(sizes)))
    for row, scene in zip(design, scenes.tolist(), strict=True):
        for slot, values in enumerate(scene):
            names = values if level == "concepts" else [int(space.object_index(torch.tensor(values)))]
            for k, v in enumerate(names):
                row[(slot if positions else 0) * sum(sizes) + sum(sizes[:k]) + v] += 1
    return design


# What is taken and what stays


def test_a_bag_keeps_nothing_once_its_concept_parts_are_gone(measured):
    bag = measured["additive"]
    for head in ("colour", "shape", ALL_CONCEPTS, OBJECTS):
        assert at_chance(bag.reading(CONCEPT_PARTS, head))
        assert at_chance(bag.reading(CONCEPT_PARTS, head, reader=UNCHANGED))
    assert bag.reading(ORIGINAL, ALL_CONCEPTS).accuracy == 1
    # Four parts of +-1 coordinates and a noise of 0.09: the signal is most of the variance.
    assert bag.of(CONCEPT_PARTS).left < 0.1


@pytest.mark.parametrize("kind", ["product", "memorised"])
def test_other_embeddings_keep_their_objects_and_lose_linear_concepts(measured, kind):
    result = measured[kind]
    assert result.reading(ORIGINAL, OBJECTS).accuracy > 0.95
    assert result.reading(CONCEPT_PARTS, OBJECTS).accuracy > 0.8
    for head in ("colour", "shape", ALL_CONCEPTS):
        assert at_chance(result.reading(CONCEPT_PARTS, head))
    # The concepts are still there, for a reader that asks for objects first.
    through = result.reading(CONCEPT_PARTS, ALL_CONCEPTS, reader=THROUGH_OBJECTS)
    assert through.accuracy >= result.reading(CONCEPT_PARTS, OBJECTS).accuracy


@pytest.mark.parametrize("kind", ["additive", "product", "memorised"])
def test_without_object_parts_nothing_is_left(measured, kind):
    for head in ("colour", "shape", ALL_CONCEPTS, OBJECTS):
        assert at_chance(measured[kind].reading(OBJECT_PARTS, head))


def test_what_a_product_keeps_is_its_doubly_centred_product():
    toy = planted_encoders(SPACE, "product", dim=64, seed=3)
    data = EmbeddingSet(toy.scenes(SCENES), SCENES, SPACE)
    fits = fit_all(data, estimators=("avg+pos",))
    left = left_after(data, fits["concepts", "avg+pos"])
    w = toy.scene_objects.reshape(*SPACE.n_values, -1)
    centred = w - w.mean(0, keepdim=True) - w.mean(1, keepdim=True) + w.mean((0, 1))
    expected = sum(centred[SCENES[:, i, 0], SCENES[:, i, 1]] for i in range(2)) + data.embeddings.mean(0)
    torch.testing.assert_close(left, expected, atol=1e-4, rtol=0)
    # Without its objects only the mean is left, and rounding is not signal.
    left = left_after(data, fits["objects", "avg+pos"])
    assert bool((left == left[0]).all())


def test_one_concept_at_a_time(measured):
    bag = measured["additive"]
    # Shape parts stay and are not quite independent of colour in a random sample, hence some slack.
    assert at_chance(bag.reading(one_concept("colour"), "colour"), slack=7)
    assert bag.reading(one_concept("colour"), "shape").accuracy == 1
    assert bag.reading(one_concept("shape"), "colour").accuracy == 1
    assert bag.reading(one_concept("colour"), OBJECTS).accuracy < bag.reading(ORIGINAL, OBJECTS).accuracy / 2
    assert measured["product"].reading(one_concept("colour"), OBJECTS).accuracy > 0.8


def test_the_parts_of_the_concepts_add_up():
    fit = fit_additive(embed("product"), level="concepts")
    one_by_one = sum(only_concept(fit, name).contribution(SCENES) for name in SPACE.concepts)
    torch.testing.assert_close(one_by_one, fit.contribution(SCENES))
    with pytest.raises(ValueError, match="no concept 'size'"):
        only_concept(fit, "size")
    with pytest.raises(ValueError, match="level='concepts'"):
        only_concept(fit_additive(embed("product")), "colour")


# By construction


@pytest.mark.parametrize("level", ["concepts", "objects"])
@pytest.mark.parametrize("estimator", ["avg", "avg+pos"])
def test_what_is_left_are_the_residuals_of_dense_least_squares(level, estimator):
    data = embed("memorised", seed=4)
    train = scene_split(len(SCENES), seed=7)
    fit = fit_additive(data, level=level, estimator=estimator, train=train)
    design = one_hot(SPACE, SCENES, level, estimator == "avg+pos")
    design = np.hstack([design, np.ones((len(design), 1))])
    z = data.embeddings.double().numpy()
    solution, *_ = np.linalg.lstsq(design[train], z[train], rcond=None)
    covered = train | fit.covers(SCENES)
    expected = torch.from_numpy(z - design @ solution).float()[covered]
    torch.testing.assert_close(left_after(data, fit)[covered] - fit.mean.float(), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("fit_on", ["train", "all"])
def test_the_moments_vanish_where_the_parts_were_fitted(fit_on):
    data = embed("memorised", seed=5)
    train = scene_split(len(SCENES), seed=1)
    fit = fit_additive(data, level="concepts", train=train if fit_on == "train" else None)
    left = left_after(data, fit).double().numpy() - fit.mean.numpy()
    counts = one_hot(SPACE, SCENES, "concepts", False)
    on_train, on_test = (counts[side].T @ left[side] for side in (train, ~train))
    size = np.abs(counts[train].T @ data.embeddings[train].double().numpy()).max()
    if fit_on == "train":
        assert np.abs(on_train).max() < 1e-5 * size
        assert np.abs(on_test).max() > 1e-2 * size
    else:
        # The trap: what a probe learns on the training scenes is the opposite of what holds on the test scenes.
        assert np.abs(on_train).max() > 1e-2 * size
        np.testing.assert_allclose(on_train, -on_test, atol=1e-5 * size)


def test_parts_fitted_on_all_scenes_push_a_retrained_probe_below_chance():
    data = embed("additive", MANY, MANY_SCENES, noise=1.0, dim=256)
    shape = {
        fit_on: measure(data, removals=[CONCEPT_PARTS], fit_on=fit_on).reading(CONCEPT_PARTS, "shape")
        for fit_on in ("train", "all")
    }
    assert at_chance(shape["train"])
    assert shape["all"].accuracy < shape["all"].chance - 0.1
    assert not at_chance(shape["all"])


def test_fitted_on_all_scenes_a_probe_loses_on_test_scenes_what_it_gains_on_training_scenes():
    data = embed("memorised", MANY, MANY_SCENES)
    left = left_after(data, fit_additive(data, level="concepts"))
    train = scene_split(len(MANY_SCENES), seed=0)
    sizes = (*MANY.n_values, MANY.n_possible_objects)
    probes = fit_probes(left, head_labels(MANY, MANY_SCENES), sizes, train.unsqueeze(0), l2=1e-3)
    scores = probes.scores(left)[0, :, :6].double()
    shown = torch.stack([(MANY_SCENES[:, :, 0] == v).sum(1) for v in range(6)], dim=1).double()
    shown -= shown.mean(0)
    on_train, on_test = ((shown * scores)[side].sum() for side in (train, ~train))
    assert on_train > 10
    torch.testing.assert_close(on_test, -on_train, atol=1e-2, rtol=0)


def test_zero_moments_are_seen_and_only_they():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(SCENES), 8, generator=generator)
    labels = head_labels(SPACE, SCENES)
    sizes = tuple(h.stop - h.start for h in heads(SPACE))
    assert not removing._nothing_to_find(x, labels, sizes)
    design = one_hot(SPACE, SCENES, "objects", False)
    solution, *_ = np.linalg.lstsq(design, x.double().numpy(), rcond=None)
    left = (x.double() - torch.from_numpy(design @ solution)).float()
    assert removing._nothing_to_find(left, labels, sizes)
    assert removing._nothing_to_find(torch.full_like(left, 0.1), labels, sizes)
    left[:, 3] += 0.01 * torch.from_numpy(design[:, 5]).float()
    assert not removing._nothing_to_find(left, labels, sizes)


def test_choosing_a_penalty_changes_nothing_where_nothing_can_be_found(monkeypatch):
    data = embed("memorised")
    short = measure(data, removals=[OBJECT_PARTS], seeds=(0,))
    monkeypatch.setattr(removing, "_nothing_to_find", lambda *_: False)
    long = measure(data, removals=[OBJECT_PARTS], seeds=(0,))
    for head in (ALL_CONCEPTS, OBJECTS):
        assert short.reading(OBJECT_PARTS, head).accuracy == long.reading(OBJECT_PARTS, head).accuracy


# Controls


@pytest.mark.parametrize("kind", ["additive", "product", "memorised"])
def test_a_wrong_name_that_is_the_same_everywhere_can_be_undone(measured, kind):
    result = measured[kind]
    before = result.reading(ORIGINAL, ALL_CONCEPTS).accuracy
    assert result.reading(PERMUTED_CONCEPT_PARTS, ALL_CONCEPTS).accuracy > before - 0.05
    # The probes that were not trained again are confused by it.
    assert result.reading(PERMUTED_CONCEPT_PARTS, ALL_CONCEPTS, reader=UNCHANGED).accuracy < before - 0.1


def test_wrong_object_parts_bind_a_bag():
    # u_{pi(o)} is a vector of the object o that does not split into its concepts: subtracting it adds binding.
    space = ConceptSpace.of_sizes(8, 3)
    bag = embed("additive", space, factorial_scenes(space, 2), noise=0.05)
    result = measure(bag, removals=[PERMUTED_OBJECT_PARTS])
    assert result.reading(PERMUTED_OBJECT_PARTS, OBJECTS).low > result.reading(ORIGINAL, OBJECTS).high


def test_another_scene_buries_the_values_that_both_show():
    # Without noise a bag counts values: own - partner's. A present value is lost where its count is not above that of
    # an absent one. 8 values, so that an absent one that the partner does not show exists always.
    space = ConceptSpace.of_sizes(8, 3)
    scenes = factorial_scenes(space, 2)
    data = embed("additive", space, scenes, noise=0.02, dim=64)
    result = measure(data, removals=[OTHER_CONCEPT_PARTS], seeds=(0,))
    partner = scenes[another_scene(len(scenes), seed=0)]
    kept = []
    for own, other in zip(scenes[:, :, 0].tolist(), partner[:, :, 0].tolist(), strict=True):
        net = [own.count(v) - other.count(v) for v in range(8)]
        kept.append(min(net[v] for v in own) > max(net[v] for v in range(8) if v not in own))
    test = ~scene_split(len(scenes), seed=0)
    expected = np.array(kept)[test.numpy()].mean()
    # A tie of counts is broken by the probe, sometimes rightly.
    assert expected - 0.02 < result.reading(OTHER_CONCEPT_PARTS, "c0").accuracy < expected + 0.15


@pytest.mark.parametrize("n", [2, 3, 50])
def test_another_scene_is_never_the_same(n):
    partner = another_scene(n, seed=4)
    assert sorted(partner.tolist()) == list(range(n))
    assert not bool((partner == torch.arange(n)).any())
    assert torch.equal(partner, another_scene(n, seed=4))
    if n == 50:
        assert not torch.equal(partner, another_scene(n, seed=5))


def test_shuffled_labels_are_at_chance():
    result = removal(embed("product"), removals=[CONCEPT_PARTS], grid=GRID)
    for name, head in itertools.product((ORIGINAL, CONCEPT_PARTS), ("colour", "shape", OBJECTS)):
        assert at_chance(result.reading(name, head, reader=SHUFFLED))


# Readers and numbers


def test_the_original_is_what_probing_finds():
    data = embed("product", noise=1.5)
    ours = measure(data, removals=[], grid=(1e-3,))
    theirs = probe(data, l2=1e-3, controls=False)
    for head in ("colour", "shape", ALL_CONCEPTS, OBJECTS):
        a, b = ours.reading(ORIGINAL, head), theirs.row(head)
        assert (a.accuracy, a.low, a.high, a.chance) == pytest.approx((b.accuracy, b.low, b.high, b.chance))
        assert a.by_seed == pytest.approx(b.by_seed)
    assert ours.of(ORIGINAL).left == 1
    assert 0.5 < ours.reading(ORIGINAL, OBJECTS).accuracy < 1  # the comparison is of something


def test_a_value_scores_as_its_best_object():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(50, sum(SPACE.n_values) + SPACE.n_possible_objects, generator=generator)
    got = through_objects(SPACE, scores)
    for row in range(50):
        for k, v in [(0, 0), (0, 3), (1, 2)]:
            best = max(
                float(scores[row, 7 + o])
                for o, values in enumerate(SPACE.all_objects().tolist())
                if values[k] == v
            )
            assert float(got[row, k * 4 + v]) == best
    assert torch.equal(got[:, 7:], scores[:, 7:])


def test_whoever_recognises_objects_recognises_their_concepts():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(len(SCENES), 19, generator=generator)
    scores[:, 7:].scatter_(1, SPACE.object_index(SCENES), 9.0)
    found = recognise_heads(SPACE, SCENES, through_objects(SPACE, scores))
    assert (found[OBJECTS].accuracy, found[ALL_CONCEPTS].accuracy) == (1, 1)


def test_shares_are_sums_of_squares_of_the_test_scenes():
    data = embed("product", noise=0.5)
    result = measure(data, removals=[CONCEPT_PARTS], seeds=(3,))
    train = scene_split(len(SCENES), seed=3)
    fit = fit_additive(data, level="concepts", train=train)
    z, parts = data.embeddings.double()[~train], fit.contribution(SCENES)[~train]
    whole, taken, left = (float((a - a.mean(0)).square().sum()) for a in (z, parts, z - parts))
    row = result.of(CONCEPT_PARTS)
    assert (row.subtracted, row.left) == pytest.approx((taken / whole, left / whole), rel=1e-4)


def test_the_controls_subtract_as_much():
    result = measure(embed("additive"), removals=REMOVALS)
    for own, others in [
        (CONCEPT_PARTS, (PERMUTED_CONCEPT_PARTS, OTHER_CONCEPT_PARTS)),
        (OBJECT_PARTS, (PERMUTED_OBJECT_PARTS, OTHER_OBJECT_PARTS)),
    ]:
        for other in others:
            assert result.of(other).subtracted == pytest.approx(result.of(own).subtracted, rel=0.1)
            # Independent of the scene's own parts, so the variances add up.
            assert result.of(other).left > 1.5


def test_strength():
    data = embed("additive")
    none, half = (measure(data, removals=[CONCEPT_PARTS], strength=s) for s in (0.0, 0.5))
    assert none.reading(CONCEPT_PARTS, OBJECTS).by_seed == none.reading(ORIGINAL, OBJECTS).by_seed
    assert half.reading(CONCEPT_PARTS, ALL_CONCEPTS).accuracy == 1
    assert half.of(CONCEPT_PARTS).left == pytest.approx(0.25, abs=0.05)


def test_the_same_call_gives_the_same_numbers():
    one, two = (measure(embed("product"), removals=REMOVALS, seeds=(5,)) for _ in range(2))
    assert one == two
    assert one != measure(embed("product"), removals=REMOVALS, seeds=(6,))


def test_parts_from_single_objects_are_a_ruler_of_their_own():
    toy = planted_encoders(SPACE, "additive", dim=64, seed=0)
    alone = single_object_scenes(SPACE)
    data = embed("additive", noise=0.0)
    singles = [EmbeddingSet(toy.scenes(alone), alone, SPACE)]
    result = measure(data, removals=[OBJECT_PARTS], estimator="single", singles=singles)
    assert result.of(OBJECT_PARTS).left == pytest.approx(0, abs=1e-9)
    # A constant embedding: every scene gets the same ranking.
    assert result.reading(OBJECT_PARTS, OBJECTS).accuracy < 0.1


# Scenes the fit does not cover


def test_scenes_without_parts_are_left_out_and_counted():
    scenes = sample_scenes(SPACE, 3, 60, seed=0)
    data = embed("product", SPACE, scenes)
    result = measure(data, removals=REMOVALS, seeds=(2,))
    train = scene_split(60, seed=2)
    shown = [{int(o) for o in SPACE.object_index(scenes[train, slot])} for slot in range(3)]
    everywhere = set.intersection(*shown)
    out = sum(not set(SPACE.object_index(s).tolist()) <= everywhere for s in scenes[~train])
    assert out > 0
    for row in result.removed:
        assert row.n_left_out == out
    for name in REMOVALS:
        assert result.reading(name, OBJECTS).n_scenes == int((~train).sum()) - out
    # Concept parts are shown by more scenes.
    fewer = measure(data, removals=[CONCEPT_PARTS], seeds=(2,)).of(CONCEPT_PARTS)
    assert fewer.n_left_out < out


def test_too_few_scenes_are_an_error():
    scenes = sample_scenes(SPACE, 3, 12, seed=0)
    with pytest.raises(ValueError, match="have all their parts in the fit"):
        measure(embed("product", SPACE, scenes), removals=[OBJECT_PARTS])


# Errors and tables


def test_wrong_arguments():
    data = embed("additive")
    with pytest.raises(ValueError, match="'size parts'"):
        removal(data, removals=["size parts"])
    with pytest.raises(ValueError, match="fit_on must be"):
        inspect.unwrap(removal)(data, fit_on="test")
    with pytest.raises(ValueError, match="seeds is empty"):
        removal(data, seeds=())
    with pytest.raises(ValueError, match="singles="):
        removal(data, estimator="single")
    with pytest.raises(ValueError, match="at least 2 scenes"):
        another_scene(1, seed=0)
    with pytest.raises(ValueError, match="give one each"):
        left_after(data, fit_additive(data), shown=SCENES[:3])
    space = ConceptSpace(("object", "shape"), SPACE.values)
    with pytest.raises(ValueError, match="rename the concept"):
        removal(EmbeddingSet(data.embeddings, SCENES, space))


def test_tables(measured):
    result = measured["product"]
    with pytest.raises(KeyError, match="colour parts"):
        result.reading("nothing", OBJECTS)
    with pytest.raises(KeyError, match="object parts"):
        result.of("nothing")
    rows = result.as_dicts()
    assert len(rows) == len(result.readings)
    assert {"removal", "reader", "head", "accuracy", "chance"} <= set(rows[0])
    lines = str(result).splitlines()
    assert len(lines) == 1 + len(result.removed)
    assert f"{result.reading(CONCEPT_PARTS, OBJECTS).accuracy:.3f}" in lines[2]
