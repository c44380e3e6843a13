"""Approximators: what a task promises, that none sees a held-out scene, and each against its own formula."""

import dataclasses
import json

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conceptbind.analysis.additive import fit_additive
from conceptbind.approximators import slot_tables
from conceptbind.approximators.base import Approximation, Approximator, make_task, validation_objects
from conceptbind.approximators.closed_form import Additive, ObjectTable, PairTable
from conceptbind.approximators.networks import CHECKS, Network
from conceptbind.approximators.products import ObjectProduct, _Parts
from conceptbind.approximators.slot_tables import table_error
from conceptbind.embeddings import EmbeddingSet
from conceptbind.kernels.networks import READOUTS, Architecture, apply, initialise, one_hot
from conceptbind.kernels.scene_sums import scene_sums
from conceptbind.kernels.training import Schedule, train
from conceptbind.planted import planted_encoders
from conceptbind.scenes import (
    ConceptSpace,
    ObjectSplit,
    SceneKind,
    factorial_scenes,
    object_split,
    sample_scenes,
)

SPACE = ConceptSpace.of_sizes(6, 5)
SCENES = factorial_scenes(SPACE, 2)
SPLITS = [object_split(SPACE, 0.7, seed=s) for s in range(3)]
PLANTED = planted_encoders(SPACE, "product", dim=16, seed=0, noise=0.3)
DATA = EmbeddingSet(PLANTED.scenes(SCENES), SCENES, SPACE)

SHORT = Schedule(n_steps=30, rate=0.01)
EVERY = [
    Additive(),
    Additive(position=False),
    ObjectTable(),
    PairTable(),
    ObjectProduct(ranks=(1, 2), restarts=2),
    ObjectProduct(head="none", restarts=2),
    Network(Architecture("mlp", 16), SHORT),
    Network(Architecture("mlp", 8, 2), SHORT),
    Network(Architecture("product", 8), SHORT),
    Network(Architecture("decoder", 32), Schedule(n_steps=15, rate=0.01)),
]


def names(approximator):
    return approximator.name


def r2(guess, data, keep):
    z = data.embeddings[keep].double()
    return 1 - float((guess[keep] - z).square().sum() / (z - z.mean(0)).square().sum())


def objects_of(space, scenes):
    return space.object_index(scenes)


# ---- tasks


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(2, 7), min_size=2, max_size=3), st.floats(0.02, 0.98), st.integers(0, 2**31))
def test_validation_objects_are_spared_from_the_training_objects(sizes, coverage, seed):
    space = ConceptSpace.of_sizes(*sizes)
    n_train = round(coverage * space.n_possible_objects)
    assume(1 <= n_train < space.n_possible_objects)
    split = object_split(space, coverage, seed=seed % 1000, every_value=False)
    chosen = validation_objects(split, seed=seed)
    assert torch.equal(chosen, validation_objects(split, seed=seed))
    assert not bool((chosen & ~split.is_train).any())
    rest = space.all_objects()[split.is_train & ~chosen]
    for k in range(space.n_concepts):
        assert set(rest[:, k].tolist()) == set(split.train_objects[:, k].tolist())
    wanted = max(1, round(0.2 * n_train))
    assert int(chosen.sum()) <= wanted
    if int(chosen.sum()) < wanted:  # then no other could have been spared
        counts = [torch.bincount(rest[:, k], minlength=v) for k, v in enumerate(space.n_values)]
        for obj in rest.tolist():
            assert any(int(count[v]) == 1 for count, v in zip(counts, obj, strict=True))


def test_every_training_object_validates_equally_often():
    split = object_split(ConceptSpace.of_sizes(5, 5), 0.8, seed=0)
    n = 2000
    counts = sum(validation_objects(split, seed=s).long() for s in range(n))[split.is_train]
    # 4 of 20 each time. Objects whose values are rarer are spared less often only where values run out.
    assert int(counts.sum()) == 4 * n
    assert ((counts / n - 0.2).abs() < 4.5 * (0.2 * 0.8 / n) ** 0.5 + 0.01).all()


def test_validation_objects_do_not_follow_the_split():
    """With one seed for both, what is drawn for the one must not decide the other."""
    split = object_split(SPACE, 0.7, seed=5)
    drawn = {tuple(validation_objects(split, seed=s).nonzero().flatten().tolist()) for s in range(20)}
    assert len(drawn) > 15


@pytest.mark.parametrize("balanced", [True, False])
def test_inner_and_validation_scenes_divide_the_training_scenes(balanced):
    scenes = SCENES if balanced else sample_scenes(SPACE, 3, 400, seed=0)
    data = EmbeddingSet(torch.randn(len(scenes), 4), scenes, SPACE)
    seeds = [3, 4, 5]
    task = make_task(data, SPLITS, seeds=seeds)
    assert task.n_fits == 3
    assert task.validates
    for f, split in enumerate(SPLITS):
        assert torch.equal(task.train[f], split.kinds(scenes) == SceneKind.TRAIN)
        assert not bool((task.inner[f] & task.validation[f]).any())
        assert torch.equal(task.inner[f] | task.validation[f], task.train[f])
        validate = validation_objects(split, seed=seeds[f])[objects_of(SPACE, scenes)]
        assert not bool(validate[task.inner[f]].any())
        assert bool(validate[task.validation[f]].any(1).all())


def test_too_few_objects_leave_none_to_validate():
    """One object a value: none can be spared."""
    space = ConceptSpace.of_sizes(4, 4)
    split = ObjectSplit(space, torch.eye(4, dtype=torch.bool).flatten())
    scenes = factorial_scenes(space, 2)
    data = EmbeddingSet(torch.randn(len(scenes), 8), scenes, space)
    assert not bool(validation_objects(split, seed=0).any())
    task = make_task(data, [split], seeds=[0])
    # All training scenes are then inner, or none is; either way nothing validates.
    assert not task.validates
    assert not bool(task.validation.any())
    for approximator in EVERY:
        found = approximator.fit(task)
        assert bool(found.predict(0, scenes).isfinite().all())


def test_task_errors():
    with pytest.raises(ValueError, match="3 splits but 1 seeds: give one seed for each split"):
        make_task(DATA, SPLITS, seeds=[0])
    with pytest.raises(ValueError, match="0 splits"):
        make_task(DATA, [], seeds=[])
    other = object_split(ConceptSpace.of_sizes(5, 6), 0.5, seed=0)
    with pytest.raises(ValueError, match="drawn for another concept space"):
        make_task(DATA, [other], seeds=[0])
    few = EmbeddingSet(DATA.embeddings[:1], SCENES[:1], SPACE)  # object 0 twice
    mask = torch.ones(30, dtype=torch.bool)
    mask[0] = False
    with pytest.raises(ValueError, match=r"leaves no scene of training objects only among 1 scenes"):
        make_task(few, [ObjectSplit(SPACE, mask)], seeds=[0])


# ---- what holds for all


@pytest.mark.parametrize("approximator", EVERY, ids=names)
def test_scenes_that_do_not_train_change_nothing(approximator):
    """Neither predictions nor choices: of the embeddings of mixed and held-out scenes nothing is read."""
    hidden = DATA.embeddings.clone()
    task = make_task(DATA, SPLITS[:1], seeds=[0])
    out = ~task.train[0]
    assert int(out.sum()) > 400
    hidden[out] = 1e3 * torch.randn(int(out.sum()), 16, generator=torch.Generator().manual_seed(1))
    other = make_task(EmbeddingSet(hidden, SCENES, SPACE), SPLITS[:1], seeds=[0])
    ours, theirs = approximator.fit(task), approximator.fit(other)
    assert torch.equal(ours.predict(0, SCENES), theirs.predict(0, SCENES))
    assert ours.details == theirs.details
    assert ours.converged == theirs.converged
    assert ours.n_parameters == theirs.n_parameters


@pytest.mark.parametrize("approximator", EVERY, ids=names)
def test_choices_are_made_on_the_validation_scenes_alone(approximator):
    """Embeddings of validation scenes change what is chosen at most: the inner fit, and so its errors, never sees them.

    With targets that only the validation scenes know to be the mean, every choice falls on the most cautious.
    """
    chosen = approximator.fit(make_task(DATA, SPLITS[:1], seeds=[0])).details[0]
    json.dumps(chosen)
    if not isinstance(approximator, ObjectTable | ObjectProduct):
        return
    task = make_task(DATA, SPLITS[:1], seeds=[0])
    g = torch.Generator().manual_seed(2)
    z = DATA.embeddings.clone()
    z[task.inner[0]] += 5 * torch.randn(int(task.inner.sum()), 16, generator=g)  # nothing but noise to learn
    z[task.validation[0]] = z[task.inner[0]].mean(0)
    noisy = approximator.fit(make_task(EmbeddingSet(z, SCENES, SPACE), SPLITS[:1], seeds=[0])).details[0]
    if isinstance(approximator, ObjectTable):
        assert noisy == {"sum_ridge": 3.0, "object_ridge": noisy["object_ridge"]}
    else:
        assert noisy["rank"] == 0
        assert noisy["sum_ridge"] == 0.5


@pytest.mark.parametrize("approximator", EVERY, ids=names)
def test_fits_made_together_are_fits_made_alone(approximator):
    task = make_task(DATA, SPLITS, seeds=[7, 8, 9])
    if isinstance(approximator, Network):  # equal numbers, also without the validation objects
        assert len(set(task.inner.sum(1).tolist())) == 1
    together = approximator.fit(task)
    for f in range(3):
        alone = approximator.fit(make_task(DATA, SPLITS[f : f + 1], seeds=[7 + f]))
        torch.testing.assert_close(
            alone.predict(0, SCENES), together.predict(f, SCENES), rtol=0, atol=2e-3, msg=approximator.name
        )
        for name, value in alone.details[0].items():
            other = together.details[f][name]
            assert value == other or value == pytest.approx(other, rel=1e-4)
        assert alone.n_parameters[0] == together.n_parameters[f]
        assert alone.converged[0] == together.converged[f]


@pytest.mark.parametrize("approximator", EVERY, ids=names)
def test_they_are_approximators_whose_settings_and_details_are_json(approximator):
    found = approximator.fit(make_task(DATA, SPLITS[:2], seeds=[0, 1]))
    assert isinstance(approximator, Approximator)
    assert isinstance(found, Approximation)
    assert json.loads(json.dumps(approximator.settings)) == approximator.settings
    assert json.loads(json.dumps(list(found.details))) == list(found.details)
    assert len(found.n_parameters) == len(found.converged) == len(found.details) == 2
    guess = found.predict(1, SCENES[:7])
    assert guess.dtype == torch.float32
    assert guess.shape == (7, 16)
    torch.testing.assert_close(guess[3:4], found.predict(1, SCENES[3:4]), atol=1e-5, rtol=0)
    # The mean training scene is not far: no unit and no offset is lost.
    assert r2(found.predict(0, SCENES), DATA, found_train := SPLITS[0].kinds(SCENES) == SceneKind.TRAIN) > 0.2
    assert int(found_train.sum()) == 21**2


def test_names_and_settings_tell_approximators_apart():
    assert len({a.name for a in EVERY}) == len(EVERY)
    assert len({json.dumps(a.settings) for a in EVERY}) == len(EVERY)
    for schedule in (Schedule(n_steps=31), Schedule(rate=0.1), Schedule(batch=7)):
        one, other = (Network(Architecture("mlp", 16), s).settings for s in (Schedule(), schedule))
        assert one != other


def test_tables_of_too_many_objects_are_refused(monkeypatch):
    monkeypatch.setattr(slot_tables, "MAX_OBJECTS", 29)
    task = make_task(DATA, SPLITS[:1], seeds=[0])
    for approximator in EVERY[:6]:
        with pytest.raises(ValueError, match="30 objects are too many for a table of objects"):
            approximator.fit(task)


# ---- additive


@pytest.mark.parametrize("position", [True, False])
@pytest.mark.parametrize("balanced", [True, False])
def test_additive_is_least_squares_on_the_training_scenes(position, balanced):
    """Against a dense solution on rows; on all scenes, for what training scenes show determines all sums here."""
    scenes = SCENES if balanced else sample_scenes(SPACE, 2, 500, seed=0)
    data = EmbeddingSet(PLANTED.scenes(scenes), scenes, SPACE)
    task = make_task(data, SPLITS[:1], seeds=[0])
    found = Additive(position=position).fit(task)
    x = one_hot(scenes, SPACE.n_values).double()
    if not position:
        x = x[:, :11] + x[:, 11:]
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    keep = task.train[0]
    solution = torch.linalg.lstsq(x[keep], data.embeddings[keep].double(), driver="gelsd").solution
    torch.testing.assert_close(found.predict(0, scenes).double(), x @ solution, rtol=0, atol=1e-5)
    assert found.n_parameters[0] == int(torch.linalg.matrix_rank(x[keep])) * 16
    fit = fit_additive(data, level="concepts", estimator="avg+pos" if position else "avg", train=keep)
    covered = fit.covers(scenes)
    torch.testing.assert_close(found.predict(0, scenes[covered]), fit.predict(scenes[covered]).float())


@pytest.mark.parametrize(
    "approximator", [Additive(), Additive(position=False), ObjectTable(), PairTable()], ids=names
)
def test_a_value_that_no_training_scene_shows_adds_nothing(approximator):
    """What is left is the intercept and the parts of the values that were shown: the same whatever the unseen value."""
    mask = torch.ones(6, 5, dtype=torch.bool)
    mask[4:, :] = False
    mask[0, 0] = False
    task = make_task(DATA, [ObjectSplit(SPACE, mask.flatten())], seeds=[0])
    found = approximator.fit(task)
    kept = torch.tensor([[[1, 2], [2, 3]]])
    for unseen in (4, 5):
        scene = kept.clone()
        scene[0, 0] = torch.tensor([unseen, 2])
        other = scene.clone()
        other[0, 0, 0] = 9 - unseen
        assert torch.equal(found.predict(0, scene), found.predict(0, other))
    if isinstance(approximator, Additive):
        fit = fit_additive(
            DATA,
            level="concepts",
            estimator="avg+pos" if approximator.position else "avg",
            train=task.train[0],
        )
        first, second = fit.parts[0], fit.parts[-1]
        expected = fit.mean + first[6 + 2] + second[2] + second[6 + 3]
        torch.testing.assert_close(found.predict(0, scene)[0], expected.float(), rtol=0, atol=1e-5)


# ---- table of objects


def dense_table(data, keep, a, b):
    """Solve the ridge problem on scene rows: one column for each (slot, value) and (slot, object), all centred."""
    index = data.space.object_index(data.scenes)
    return dense_ridge(data, keep, a, b, [(index, data.space.n_possible_objects)])


def dense_ridge(data, keep, a, b, groups):
    """The same for any groups of values, each given as the group in every (scene, slot) and their number."""
    space, n_slots = data.space, data.scenes.shape[1]
    of_values = one_hot(data.scenes, space.n_values).double()
    of_groups = [torch.nn.functional.one_hot(i, n_all).double() for index, n_all in groups for i in index.T]
    x = torch.cat([of_values, *of_groups], dim=1)
    n = int(keep.sum())
    # Mean counts: n scenes in each slot, over the values of a concept, or the objects, that occur in any slot.
    penalties = []
    for _ in range(n_slots):
        for k, size in enumerate(space.n_values):
            penalties += [a * n / len(data.scenes[keep][:, :, k].unique())] * size
    for index, n_all in groups:
        penalties += [b * n / len(index[keep].unique())] * (n_slots * n_all)
    mean_x, mean_z = x[keep].mean(0), data.embeddings[keep].double().mean(0)
    stacked = torch.cat([x[keep] - mean_x, torch.tensor(penalties, dtype=torch.float64).sqrt().diag()])
    right = torch.cat(
        [data.embeddings[keep].double() - mean_z, torch.zeros(x.shape[1], data.embeddings.shape[1])]
    )
    return mean_z + (x - mean_x) @ torch.linalg.lstsq(stacked, right).solution


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.1), (1e-3, 3.0), (2.0, 0.01)])
@pytest.mark.parametrize("n_slots", [1, 2, 3])
def test_an_object_table_is_the_ridge_solution_on_scenes(a, b, n_slots):
    """Scenes of which some objects occur often and some not at all."""
    space = ConceptSpace.of_sizes(4, 3)
    g = torch.Generator().manual_seed(0)
    scenes = sample_scenes(space, n_slots, min(300, 12**n_slots), seed=1)
    scenes = scenes[torch.rand(len(scenes), generator=g) < 0.3 + 0.7 * (scenes[:, 0, 0] == 1)]
    data = EmbeddingSet(torch.randn(len(scenes), 5, generator=g) + 3, scenes, space)
    split = object_split(space, 0.75, seed=2)
    task = make_task(data, [split], seeds=[0])
    found = ObjectTable(sum_ridges=(a,), object_ridges=(b,)).fit(task)
    truth = dense_table(data, task.train[0], a, b)
    torch.testing.assert_close(found.predict(0, scenes).double(), truth, rtol=0, atol=1e-5)
    assert found.details[0] == {"sum_ridge": a, "object_ridge": b}


THREE = ConceptSpace.of_sizes(3, 4, 2)


def three_concepts(n_slots):
    """Some objects occur often, some not at all."""
    g = torch.Generator().manual_seed(0)
    scenes = sample_scenes(THREE, n_slots, min(300, 24**n_slots), seed=1)
    scenes = scenes[torch.rand(len(scenes), generator=g) < 0.3 + 0.7 * (scenes[:, 0, 0] == 1)]
    return EmbeddingSet(torch.randn(len(scenes), 5, generator=g) + 3, scenes, THREE)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.1), (1e-3, 3.0), (2.0, 0.01)])
@pytest.mark.parametrize("n_slots", [1, 2])
def test_a_pair_table_is_the_ridge_solution_on_scenes(a, b, n_slots):
    data = three_concepts(n_slots)
    task = make_task(data, [object_split(THREE, 0.75, seed=2)], seeds=[0])
    found = PairTable(sum_ridges=(a,), pair_ridges=(b,)).fit(task)
    pairs = [
        (data.scenes[..., k] * THREE.n_values[m] + data.scenes[..., m], THREE.n_values[k] * THREE.n_values[m])
        for k, m in ((0, 1), (0, 2), (1, 2))
    ]
    truth = dense_ridge(data, task.train[0], a, b, pairs)
    torch.testing.assert_close(found.predict(0, data.scenes).double(), truth, rtol=0, atol=1e-5)
    assert found.details[0] == {"sum_ridge": a, "pair_ridge": b}
    design = torch.cat([torch.nn.functional.one_hot(i, n) for index, n in pairs for i in index.T], 1)
    rank = int(torch.linalg.matrix_rank(design[task.train[0]].double()))
    if n_slots == 1:  # of two slots a sample of scenes may not tell all vectors apart
        assert found.n_parameters[0] == rank * 5


def test_pairs_of_two_concepts_are_objects():
    task = make_task(DATA, SPLITS, seeds=[0, 1, 2])
    pairs, objects = PairTable().fit(task), ObjectTable().fit(task)
    for f in range(3):
        torch.testing.assert_close(pairs.predict(f, SCENES), objects.predict(f, SCENES), rtol=0, atol=1e-5)
    assert tuple(pairs.n_parameters) == tuple(objects.n_parameters)


def test_a_pair_table_knows_new_objects_by_their_pairs():
    """Every pair of values has a vector: with all pairs seen, objects that were never seen are predicted."""
    g = torch.Generator().manual_seed(0)
    space = ConceptSpace.of_sizes(4, 4, 4)
    scenes = space.all_objects().unsqueeze(1)
    vectors = torch.randn(3, 4, 4, 32, generator=g)
    z = sum(vectors[i][scenes[:, 0, k], scenes[:, 0, m]] for i, (k, m) in enumerate(((0, 1), (0, 2), (1, 2))))
    data = EmbeddingSet(z, scenes, space)
    split = object_split(space, 0.8, seed=0)
    task = make_task(data, [split], seeds=[0])
    new = split.kinds(scenes) == SceneKind.HELD_OUT
    assert r2(PairTable(pair_ridges=(1e-4, 1e-2)).fit(task).predict(0, scenes), data, new) > 0.95
    assert r2(ObjectTable().fit(task).predict(0, scenes), data, new) < 0.6


def test_a_single_concept_has_no_pairs():
    space = ConceptSpace.of_sizes(5)
    scenes = factorial_scenes(space, 2)
    data = EmbeddingSet(torch.randn(25, 4, generator=torch.Generator().manual_seed(0)), scenes, space)
    task = make_task(data, [ObjectSplit(space, torch.arange(5) < 4)], seeds=[0])
    with pytest.raises(ValueError, match="two concepts or more"):
        PairTable().fit(task)


def test_the_ridges_are_those_that_predict_the_validation_scenes_best():
    approximator = ObjectTable(sum_ridges=(1e-4, 0.1, 1.0, 10.0), object_ridges=(0.01, 1.0, 100.0))
    for seed in range(3):
        task = make_task(DATA, SPLITS[:1], seeds=[seed])
        check = task.validation[0]
        errors = {
            (a, b): float((dense_table(DATA, task.inner[0], a, b) - DATA.embeddings)[check].square().sum())
            for a in approximator.sum_ridges
            for b in approximator.object_ridges
        }
        best = min(errors, key=errors.__getitem__)
        assert tuple(approximator.fit(task).details[0].values()) == best


def test_a_memorised_object_is_known_only_where_it_was_shown():
    """Independent vectors: a table learns the training objects, and its guess of the others is no better than none."""
    encoders = planted_encoders(SPACE, "memorised", dim=64, seed=0)
    data = EmbeddingSet(encoders.scenes(SCENES), SCENES, SPACE)
    task = make_task(data, SPLITS[:1], seeds=[0])
    guess = ObjectTable(sum_ridges=(1.0,), object_ridges=(0.001,)).fit(task).predict(0, SCENES)
    kinds = SPLITS[0].kinds(SCENES)
    assert r2(guess, data, kinds == SceneKind.TRAIN) > 0.99
    assert r2(guess, data, kinds == SceneKind.HELD_OUT) < 0.1
    assert r2(Additive().fit(task).predict(0, SCENES), data, kinds == SceneKind.TRAIN) < 0.7


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 3))
def test_the_error_of_a_table_is_the_sum_over_scenes(seed, n_slots):
    g = torch.Generator().manual_seed(seed)
    index = torch.randint(9, (40, n_slots), generator=g)
    index[index == 4] = 5  # an object that never occurs
    z = torch.randn(40, 3, generator=g, dtype=torch.float64) + 10
    mean = torch.randn(3, generator=g, dtype=torch.float64) + 9
    table = torch.randn(n_slots, 12, 3, generator=g, dtype=torch.float64)
    guess = mean + sum(table[i, index[:, i]] for i in range(n_slots))
    direct = float((z - guess).square().sum())
    assert table_error(scene_sums(z, index), mean, table) == pytest.approx(direct, rel=1e-9)


# ---- products


LARGER = ConceptSpace.of_sizes(8, 7)


def low_rank(rank, dim=40, noise=0.0, seed=0):
    """Sums of random concept vectors plus a product of random factors through a random head, in two slots."""
    g = torch.Generator().manual_seed(seed)
    scenes = factorial_scenes(LARGER, 2)
    head = torch.randn(rank, dim, generator=g)
    z = torch.zeros(len(scenes), dim)
    for slot in range(2):
        product = 1.0
        for k, size in enumerate(LARGER.n_values):
            at = scenes[:, slot, k]
            z = z + 0.5 * torch.randn(size, dim, generator=g)[at]
            product = product * torch.randn(size, rank, generator=g)[at]
        z = z + product @ head
    return EmbeddingSet(z + noise * torch.randn(z.shape, generator=g), scenes, LARGER)


@pytest.mark.parametrize("dim", [40, 100])  # more rows than dimensions, or fewer: then on axes of their own
def test_a_linear_head_finds_a_planted_product_on_held_out_objects(dim):
    data = low_rank(2, dim=dim, noise=0.05)
    splits = [object_split(LARGER, 0.75, seed=s) for s in range(2)]
    task = make_task(data, splits, seeds=[0, 1])
    found = ObjectProduct(ranks=(1, 2, 4)).fit(task)
    additive = Additive().fit(task)
    for f in range(2):
        out = splits[f].kinds(data.scenes) == SceneKind.HELD_OUT
        assert r2(additive.predict(f, data.scenes), data, out) < 0.4
        assert r2(found.predict(f, data.scenes), data, out) > 0.85
        assert found.details[f]["rank"] in (2, 4)
        assert found.converged[f]


def test_products_by_coordinate_find_the_planted_kind():
    space = ConceptSpace.of_sizes(7, 6)
    scenes = factorial_scenes(space, 2)
    data = EmbeddingSet(
        planted_encoders(space, "product", dim=32, seed=0, noise=0.1).scenes(scenes), scenes, space
    )
    split = object_split(space, 0.75, seed=0)
    task = make_task(data, [split], seeds=[0])
    out = split.kinds(scenes) == SceneKind.HELD_OUT
    found = ObjectProduct(head="none").fit(task)
    additive = r2(Additive().fit(task).predict(0, scenes), data, out)
    assert r2(found.predict(0, scenes), data, out) > additive + 0.4
    assert found.details[0]["rank"] is None


def test_where_nothing_interacts_no_product_is_chosen():
    """Additive embeddings and noise: the rank is 0, or the product is negligible beside the sum."""
    encoders = planted_encoders(SPACE, "additive", dim=16, seed=0, noise=1.0)
    data = EmbeddingSet(encoders.scenes(SCENES), SCENES, SPACE)
    task = make_task(data, SPLITS, seeds=[0, 1, 2])
    found, additive = ObjectProduct().fit(task), Additive().fit(task)
    for f in range(3):
        out = SPLITS[f].kinds(SCENES) == SceneKind.HELD_OUT
        loss = r2(additive.predict(f, SCENES), data, out) - r2(found.predict(f, SCENES), data, out)
        assert loss < 0.05


@pytest.mark.parametrize("sizes", [(4, 3), (3, 3, 2)])
@pytest.mark.parametrize("rank", [0, 1, 2, None])
def test_parameters_are_those_that_the_objects_determine(sizes, rank):
    """As many as the rank of the derivative of all parts by all numbers, at a random point, all objects shown."""
    space = ConceptSpace.of_sizes(*sizes)
    scenes = factorial_scenes(space, 2)
    dim = 5
    data = EmbeddingSet(torch.randn(len(scenes), dim), scenes, space)
    task = make_task(data, [object_split(space, 0.5, seed=0)], seeds=[0])
    everything = torch.ones(1, len(scenes), dtype=torch.bool)
    parts = _Parts.of(task, everything)
    g = torch.Generator().manual_seed(0)
    width = dim if rank is None else rank
    shapes = [(1, dim), *[(2, v, dim) for v in sizes], *[(2, v, width) for v in sizes]]
    shapes += [] if rank is None else [(rank, dim)]
    point = [torch.randn(s, generator=g, dtype=torch.float64) for s in shapes]
    n = len(sizes)
    objects = space.all_objects()
    index = space.object_index(scenes)

    def embed(*p):
        total, product = 0.0, 1.0
        for k in range(n):
            total = total + p[1 + k][:, objects[:, k]]
            product = product * p[1 + n + k][:, objects[:, k]]
        table = total + (product if rank is None else product @ p[-1])
        return (p[0] + table[0, index[:, 0]] + table[1, index[:, 1]]).flatten()

    jacobian = torch.autograd.functional.jacobian(embed, tuple(point))
    matrix = torch.cat([j.reshape(len(scenes) * dim, -1) for j in jacobian], dim=1)
    expected = int(torch.linalg.matrix_rank(matrix, rtol=1e-9))
    assert parts.n_parameters(0, rank) == expected


def test_object_tables_have_the_parameters_of_level_one():
    task = make_task(DATA, SPLITS[:1], seeds=[0])
    fit = fit_additive(DATA, train=task.train[0])
    assert ObjectTable().fit(task).n_parameters[0] == fit.rank * 16 == (1 + 2 * 20) * 16


# ---- networks


def test_a_wide_network_fits_more_than_a_sum():
    task = make_task(DATA, SPLITS[:1], seeds=[0])
    network = Network(Architecture("mlp", 128), Schedule(n_steps=150, rate=0.01))
    # Without validation objects it takes all steps.
    blind = dataclasses.replace(
        task, inner=torch.zeros_like(task.inner), validation=torch.zeros_like(task.inner)
    )
    found = network.fit(blind)
    train = task.train[0]
    fitted = r2(found.predict(0, SCENES), DATA, train)
    assert fitted > 0.9 > r2(Additive().fit(task).predict(0, SCENES), DATA, train) + 0.1
    assert fitted == pytest.approx(found.details[0]["train_r2_end"], abs=0.01)
    assert found.converged == (True,)


# More training scenes than dimensions, or fewer; Adam moves every coordinate by the rate, so many need a lower one.
@pytest.mark.parametrize(("dim", "rate"), [(16, 0.02), (448, 0.003)])
def test_a_network_stops_where_the_validation_error_is_least(dim, rate):
    """The same two trainings by hand: the first says when to stop, the second is stopped there."""
    encoders = planted_encoders(SPACE, "product", dim=dim, seed=0)
    data = EmbeddingSet(encoders.scenes(SCENES), SCENES, SPACE)
    # Validation scenes are nearer to the mean than what the inner scenes teach: training soon goes too far.
    check = make_task(data, SPLITS[:1], seeds=[3]).validation[0]
    z = data.embeddings.clone()
    z[check] = z.mean(0) + 0.3 * (z[check] - z.mean(0))
    data = EmbeddingSet(z, SCENES, SPACE)
    task = make_task(data, SPLITS[:1], seeds=[3])
    architecture, schedule = Architecture("mlp", 64), Schedule(n_steps=45, rate=rate)
    found = Network(architecture, schedule).fit(task)
    codes = one_hot(SCENES, SPACE.n_values)

    def trained(mask):
        z = data.embeddings[mask]
        mean, n = z.mean(0), int(mask.sum())
        scale = (z - mean).square().sum(1).mean().sqrt()
        aims, axes = (z - mean) / scale, torch.eye(dim)
        if n <= dim:
            left, singular, axes = torch.linalg.svd(aims, full_matrices=False)
            aims = left * singular
        start = initialise(architecture, 2, SPACE.n_values, aims.shape[1], seeds=[3])
        guesses = {}

        def watch(step, weights):
            out = apply(architecture, weights, codes, SPACE.n_values)[0]
            guesses[step] = (out @ axes) * scale + mean

        def predict(w, x):
            return apply(architecture, w, x, SPACE.n_values)

        watched = {"watch": watch, "watch_every": 3}
        train(
            predict, start, codes[mask][None], aims[None], schedule, seeds=[3], readouts=READOUTS, **watched
        )
        return guesses

    errors = {
        step: float((guess - data.embeddings)[check].square().sum())
        for step, guess in trained(task.inner[0]).items()
    }
    assert len(errors) == CHECKS
    best = min(errors, key=errors.__getitem__)
    assert 3 < best < 45, "else this test says nothing"
    assert found.details[0]["steps"] == best
    torch.testing.assert_close(found.predict(0, SCENES), trained(task.train[0])[best], rtol=0, atol=1e-3)


def test_a_network_stopped_too_early_says_so():
    task = make_task(DATA, SPLITS[:1], seeds=[0])
    found = Network(Architecture("mlp", 16), Schedule(n_steps=3, rate=3e-3)).fit(task)
    assert found.converged == (False,)
    assert bool(found.predict(0, SCENES).isfinite().all())


def test_networks_of_unequal_numbers_of_scenes_are_refused():
    splits = [object_split(SPACE, c, seed=0) for c in (0.5, 0.7)]
    with pytest.raises(
        ValueError, match=r"equal numbers of training scenes; got \[225, 441\]: fit them in tasks"
    ):
        Network(Architecture("mlp", 8), SHORT).fit(
            dataclasses.replace(
                task := make_task(DATA, splits, seeds=[0, 1]),
                inner=torch.zeros_like(task.inner),
                validation=torch.zeros_like(task.inner),
            )
        )


def test_embeddings_that_are_all_equal_are_met():
    data = EmbeddingSet(torch.full((len(SCENES), 16), 3.0), SCENES, SPACE)
    for approximator in EVERY:
        found = approximator.fit(make_task(data, SPLITS[:1], seeds=[0]))
        torch.testing.assert_close(found.predict(0, SCENES), data.embeddings, rtol=0, atol=1e-4)
