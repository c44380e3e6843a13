"""Spaces, scenes, captions and splits against counting formulas, round trips and the split's promises."""

import itertools
import math
import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conceptbind.scenes import (
    MAX_ENUMERATED,
    ConceptSpace,
    ObjectSplit,
    SceneKind,
    captions,
    factorial_scenes,
    object_split,
    sample_scenes,
    scene_split,
    single_object_scenes,
)
from conceptbind.spaces import CAPTIONS_20, CLEVR, CLEVR_2D, CLEVR_COLOURS

PUG = ConceptSpace.of_sizes(12, 8)
SMALL = ConceptSpace(("colour", "shape"), (("red", "blue"), ("circle", "square", "star")))
TWO_HUNDRED_BITS = ConceptSpace.of_sizes(*[2] * 200)

# Sizes, not spaces: beartype's checks inside a strategy would draw from Python's random module.
sizes_of_a_space = st.lists(st.integers(1, 6), min_size=1, max_size=4)
seeds = st.integers(0, 2**31)


def rows(tensor):
    return [tuple(itertools.chain.from_iterable(scene)) for scene in tensor.tolist()]


# ---- spaces and indices


def test_paper_spaces_have_the_paper_sizes():
    assert CAPTIONS_20.n_values == (20, 20)
    assert CAPTIONS_20.n_possible_objects == 400
    assert CLEVR.n_values == CLEVR_2D.n_values == (8, 3)
    assert CLEVR.n_possible_objects == 24
    assert CLEVR.values[1] == ("cube", "cylinder", "sphere")
    assert CLEVR_2D.values[1] == ("square", "triangle", "circle")
    assert len(set(CLEVR_COLOURS.values())) == 8


@settings(deadline=None)
@given(sizes_of_a_space)
def test_object_index_is_the_row_major_rank(sizes):
    space = ConceptSpace.of_sizes(*sizes)
    objects = space.all_objects()
    expected = list(itertools.product(*(range(n) for n in space.n_values)))
    assert [tuple(o) for o in objects.tolist()] == expected
    assert space.object_index(objects).tolist() == list(range(space.n_possible_objects))


@settings(deadline=None)
@given(sizes_of_a_space, st.data())
def test_object_and_scene_indices_round_trip(sizes, data):
    space = ConceptSpace.of_sizes(*sizes)
    n_objects = data.draw(st.integers(1, 4))
    n_scenes = space.n_possible_objects**n_objects
    index = torch.tensor(data.draw(st.lists(st.integers(0, n_scenes - 1), min_size=1, max_size=20)))
    scenes = space.scenes_from_index(index, n_objects)
    assert scenes.shape == (len(index), n_objects, space.n_concepts)
    assert torch.equal(space.scene_index(scenes), index)
    # scene_index is object_index in base |O|, the last slot the lowest digit
    digits = space.object_index(scenes).tolist()
    by_hand = [sum(d * space.n_possible_objects**p for p, d in enumerate(reversed(row))) for row in digits]
    assert by_hand == index.tolist()
    assert torch.equal(space.objects_from_index(space.object_index(scenes)), scenes)


def test_indices_keep_any_batch_shape():
    objects = torch.randint(0, 2, (3, 4, 5, 2), generator=torch.Generator().manual_seed(0))
    assert SMALL.object_index(objects).shape == (3, 4, 5)
    assert SMALL.scene_index(objects).shape == (3, 4)
    assert torch.equal(SMALL.scenes_from_index(SMALL.scene_index(objects), 5), objects)


def test_indices_of_125000_objects_in_three_slots_are_exact():
    space = ConceptSpace.of_sizes(50, 50, 50)
    last = space.scenes_from_index(torch.tensor([125_000**3 - 1]), 3)
    assert (last == 49).all()
    assert space.scene_index(last).tolist() == [125_000**3 - 1]


def test_small_integer_types_do_not_overflow():
    space = ConceptSpace.of_sizes(300, 3)
    assert space.object_index(torch.tensor([[120, 2]], dtype=torch.int8)).tolist() == [362]


def test_spaces_are_equal_and_hash_by_their_names():
    again = ConceptSpace(("colour", "shape"), (("red", "blue"), ("circle", "square", "star")))
    assert again == SMALL
    assert hash(again) == hash(SMALL)
    assert SMALL.subset() == SMALL


def test_describe_and_subset():
    assert SMALL.describe(torch.tensor([1, 2])) == "blue star"
    kept = SMALL.subset(shape=["star", "circle"])
    assert kept.values == (("red", "blue"), ("star", "circle"))
    assert kept.describe(torch.tensor([1, 0])) == "blue star"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConceptSpace((), ()), "needs at least one concept; got none"),
        (
            lambda: ConceptSpace(("a",), (("x",), ("y",))),
            "1 concepts .* but 2 lists of values: give one list",
        ),
        (lambda: ConceptSpace(("a", "a"), (("x",), ("y",))), r"concepts must differ; repeated: \['a'\]"),
        (
            lambda: ConceptSpace(("a",), (("x", "x"),)),
            r"values of concept 'a' must differ; repeated: \['x'\]",
        ),
        (lambda: ConceptSpace(("a",), ((),)), "concept 'a' has no values: give at least one"),
        (lambda: ConceptSpace.of_sizes(3, 0), r"at least one value; got sizes \(3, 0\)"),
        (
            lambda: SMALL.subset(size=["big"]),
            r"unknown concepts \['size'\]; this space has \('colour', 'shape'\)",
        ),
        (lambda: SMALL.subset(colour=["pink"]), r"no values \['pink'\]; it has \('red', 'blue'\)"),
        (lambda: SMALL.subset(colour="red"), r"for example \('red',\); got the text 'red'"),
        (lambda: SMALL.subset(colour=[]), "concept 'colour' has no values: give at least one"),
        (lambda: SMALL.check(torch.zeros(2, 3).long()), r"expected 2 concepts .* got shape \(2, 3\)"),
        (lambda: SMALL.check(torch.tensor([[0, 3]])), "'shape' has 3 values, indices 0 to 2; got 3 to 3"),
        (lambda: SMALL.check(torch.tensor([[-1, 0]])), "'colour' has 2 values, indices 0 to 1; got -1 to -1"),
        (lambda: SMALL.objects_from_index(torch.tensor([0, 6])), "run from 0 to 5; got 0 to 6"),
        (lambda: SMALL.objects_from_index(torch.tensor([-1])), "run from 0 to 5; got -1 to -1"),
        (lambda: SMALL.scenes_from_index(torch.tensor([36]), 2), "run from 0 to 35; got 36 to 36"),
        (lambda: SMALL.scenes_from_index(torch.tensor([0]), 0), "at least one object; got n_objects=0"),
        (
            lambda: CLEVR.scenes_from_index(torch.tensor([0]), 14),
            "more scenes than 64 bits .*use fewer slots",
        ),
        (lambda: TWO_HUNDRED_BITS.object_index(torch.zeros(1, 200).long()), "use fewer concepts or values"),
        (lambda: ConceptSpace.of_sizes(*[2] * 24).all_objects(), "too many to list: use objects_from_index"),
    ],
)
def test_space_errors_name_the_input_and_the_way_out(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_one_text_where_names_are_expected_is_refused():
    # Beartype accepts a str as a sequence of str in subset; in the constructor it may speak first.
    with pytest.raises(Exception, match=r"red"):
        ConceptSpace(("colour",), ("red",))
    with pytest.raises(Exception, match=r"colour"):
        ConceptSpace("colour", (("red",),))


# ---- all scenes


@settings(deadline=None)
@given(sizes_of_a_space, st.integers(1, 3))
def test_factorial_scenes_are_counted_by_the_formulas(sizes, n_objects):
    space = ConceptSpace.of_sizes(*sizes)
    n = space.n_possible_objects
    assume(n**n_objects <= 50_000)
    every = factorial_scenes(space, n_objects)
    assert len(every) == n**n_objects
    assert space.scene_index(every).tolist() == list(range(n**n_objects))
    if n_objects <= n:
        distinct = factorial_scenes(space, n_objects, repeats="distinct objects")
        assert len(distinct) == math.perm(n, n_objects)
        assert all(len(set(row)) == n_objects for row in space.object_index(distinct).tolist())
    if n_objects <= min(space.n_values):
        apart = factorial_scenes(space, n_objects, repeats="distinct values")
        assert len(apart) == math.prod(math.perm(v, n_objects) for v in space.n_values)
        for k in range(space.n_concepts):
            assert all(len(set(row)) == n_objects for row in apart[:, :, k].tolist())
        assert (space.scene_index(apart).diff() > 0).all()


def test_published_counts():
    assert len(factorial_scenes(CAPTIONS_20, 2)) == 160_000
    assert len(factorial_scenes(CLEVR, 2)) == 576
    assert len(factorial_scenes(CLEVR, 3)) == 24**3
    assert len(factorial_scenes(PUG, 2, repeats="distinct values")) == 7_392


def test_single_object_scenes_are_the_objects_in_order():
    single = single_object_scenes(CAPTIONS_20)
    assert single.shape == (400, 1, 2)
    assert torch.equal(single, factorial_scenes(CAPTIONS_20, 1))


@pytest.mark.parametrize(
    ("n_objects", "repeats", "message"),
    [
        (0, "allowed", "at least one object; got n_objects=0"),
        (7, "distinct objects", "7 distinct objects .* only 6 exist: use fewer slots, or repeats='allowed'"),
        (
            3,
            "distinct values",
            "share no value .*'colour' has only 2 values: use fewer slots, or repeats='distinct o",
        ),
        (12, "allowed", "too many to list: draw some with sample_scenes"),
    ],
)
def test_impossible_factorial_scenes(n_objects, repeats, message):
    with pytest.raises(ValueError, match=message):
        factorial_scenes(SMALL, n_objects, repeats=repeats)


def test_sampling_refuses_the_same_impossible_requests():
    for n_objects, repeats in ((0, "allowed"), (7, "distinct objects"), (3, "distinct values")):
        with pytest.raises(ValueError, match="object"):
            sample_scenes(SMALL, n_objects, 1, seed=0, repeats=repeats)


# ---- sampled scenes


@settings(max_examples=60, deadline=None)
@given(sizes_of_a_space, st.integers(1, 3), seeds, st.data())
def test_sampled_scenes_are_distinct_legal_and_seeded(sizes, n_objects, seed, data):
    space = ConceptSpace.of_sizes(*sizes)
    assume(space.n_possible_objects**n_objects <= 50_000)
    repeats = data.draw(st.sampled_from(["allowed", "distinct objects", "distinct values"]))
    try:
        legal = set(rows(factorial_scenes(space, n_objects, repeats=repeats)))
    except ValueError:
        assume(False)
    n_scenes = data.draw(st.integers(1, min(len(legal), 300)))
    drawn = sample_scenes(space, n_objects, n_scenes, seed=seed, repeats=repeats)
    assert drawn.shape == (n_scenes, n_objects, space.n_concepts)
    assert drawn.dtype == torch.int64
    assert len(set(rows(drawn))) == n_scenes
    assert set(rows(drawn)) <= legal
    assert torch.equal(drawn, sample_scenes(space, n_objects, n_scenes, seed=seed, repeats=repeats))


@pytest.mark.parametrize("n_scenes", [1, 30])
@pytest.mark.parametrize("repeats", ["allowed", "distinct objects", "distinct values"])
def test_sampled_scenes_are_uniform(n_scenes, repeats):
    """Chi-square over the legal scenes, for one scene (drawn) and for 30 at once (listed)."""
    space = ConceptSpace.of_sizes(3, 4)
    legal = {row: i for i, row in enumerate(rows(factorial_scenes(space, 2, repeats=repeats)))}
    n_runs = 1500 // n_scenes + 100
    counts = torch.zeros(len(legal))
    for seed in range(n_runs):
        for row in rows(sample_scenes(space, 2, n_scenes, seed=seed, repeats=repeats)):
            counts[legal[row]] += 1
    expected = n_runs * n_scenes / len(legal)
    # Without replacement the counts vary less, by the factor 1 - (n - 1)/(N - 1).
    chi2 = ((counts - expected) ** 2 / expected).sum() / (1 - (n_scenes - 1) / (len(legal) - 1))
    df = len(legal) - 1
    assert abs(chi2 - df) < 4 * math.sqrt(2 * df)


def test_both_ways_of_sampling_are_uniform_over_the_first_slot():
    """Of 10,000 scenes 40 are drawn, 400 are listed first; every object occurs as often as any other."""
    space = ConceptSpace.of_sizes(10, 10)
    for n_scenes in (40, 400):
        counts = torch.zeros(100)
        for seed in range(100):
            index = space.object_index(sample_scenes(space, 2, n_scenes, seed=seed)).flatten()
            counts += torch.bincount(index, minlength=100)
        expected = 2 * n_scenes
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi2 - 99) < 4 * math.sqrt(2 * 99)


def test_sampling_all_scenes_gives_all_in_random_order():
    drawn = sample_scenes(SMALL, 2, 36, seed=3)
    index = SMALL.scene_index(drawn)
    assert index.sort()[0].tolist() == list(range(36))
    assert index.tolist() != list(range(36))


def test_sampling_from_given_objects_uses_them_only():
    objects = CLEVR.objects_from_index(torch.tensor([3, 5, 5, 20]))
    drawn = sample_scenes(CLEVR, 2, 9, seed=0, objects=objects)
    assert set(CLEVR.object_index(drawn).flatten().tolist()) == {3, 5, 20}
    with pytest.raises(ValueError, match=r"10 scenes of 2 out of 3 objects .*only 9 exist: ask for fewer"):
        sample_scenes(CLEVR, 2, 10, seed=0, objects=objects)
    with pytest.raises(ValueError, match=r"out of 0 objects .*only 0 exist"):
        sample_scenes(CLEVR, 2, 1, seed=0, objects=objects[:0])
    with pytest.raises(ValueError, match="'shape' has 3 values"):
        sample_scenes(CLEVR, 2, 1, seed=0, objects=torch.tensor([[0, 3]]))


def test_sampling_where_listing_is_impossible():
    space = ConceptSpace.of_sizes(50, 50, 50)
    assert space.n_possible_objects**2 > MAX_ENUMERATED
    drawn = sample_scenes(space, 2, 5000, seed=0, repeats="distinct values")
    assert len(drawn.unique(dim=0)) == 5000
    assert (drawn[:, 0] != drawn[:, 1]).all()
    huge = ConceptSpace.of_sizes(*[2] * 40)  # its objects cannot be listed either
    assert sample_scenes(huge, 3, 10, seed=0).shape == (10, 3, 40)


def test_sampling_nearly_all_of_a_pool_too_large_to_list(monkeypatch):
    monkeypatch.setattr("conceptbind.scenes.MAX_ENUMERATED", 100)
    drawn = sample_scenes(CLEVR, 2, 570, seed=0)
    assert len(drawn.unique(dim=0)) == 570
    with pytest.raises(
        ValueError, match=r"577 scenes of 2 out of 24 objects .*only 576 were found.*ask for fewer"
    ):
        sample_scenes(CLEVR, 2, 577, seed=0)


def test_sampling_errors():
    with pytest.raises(ValueError, match="n_scenes must be at least 1; got 0"):
        sample_scenes(SMALL, 2, 0, seed=0)
    with pytest.raises(
        ValueError, match="37 scenes of 2 out of 6 objects with repeats='allowed', but only 36"
    ):
        sample_scenes(SMALL, 2, 37, seed=0)
    with pytest.raises(ValueError, match="64 bits"):
        sample_scenes(TWO_HUNDRED_BITS, 2, 5, seed=0)


# ---- captions


def test_captions_read_as_in_the_paper():
    scenes = factorial_scenes(CAPTIONS_20, 2)
    written = captions(CAPTIONS_20, scenes)
    assert written[0] == "a red circle and a red circle"
    assert written[1 * 20 * 400 + 1] == "a blue circle and a red square"
    assert written[-1] == "a glossy fish and a glossy fish"
    assert len(set(written)) == 160_000


def test_captions_of_one_and_three_objects_and_of_other_wordings():
    one = torch.tensor([[[0, 2]]])
    three = torch.tensor([[[0, 0], [1, 1], [0, 2]]])
    assert captions(SMALL, one) == ["a red star"]
    assert captions(SMALL, three) == ["a red circle and a blue square and a red star"]
    assert captions(SMALL, three, template="the {shape} is {colour}", joiner=", ") == [
        "the circle is red, the square is blue, the star is red"
    ]
    assert captions(SMALL, one, template="{{x}} {colour!s:>5} {shape} {shape}") == ["{x}   red star star"]
    assert captions(SMALL, three[:0]) == []


def test_captions_keep_names_that_look_like_format_fields():
    space = ConceptSpace(("the {0} colour", "k.ind"), (("re{d}",), ("x!r:y",)))
    assert captions(space, torch.zeros(1, 1, 2, dtype=torch.int64)) == ["a re{d} x!r:y"]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a {colour}", r"leaves out \['shape'\]"),
        ("a {{colour}} {shape}", r"leaves out \['colour'\]"),
        ("a {colour} {shape} {size}", r"names unknown concepts \['size'\]"),
        ("a {colour} {shape} {}", r"names unknown concepts \[''\]"),
        ("a {colour.real} {colour} {shape}", r"names unknown concepts \['colour.real'\]"),
        ("a {colour} {shape", r"cannot be read \(expected '}' before end of string\)"),
    ],
)
@pytest.mark.parametrize("n_scenes", [0, 1])
def test_template_errors_name_the_template_and_the_concepts(template, message, n_scenes):
    scenes = torch.zeros(n_scenes, 1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=message) as caught:
        captions(SMALL, scenes, template=template)
    assert repr(template) in str(caught.value)
    assert "name every concept of ('colour', 'shape') once or more, in braces" in str(caught.value)


def test_captions_that_would_not_tell_objects_apart_are_refused():
    space = ConceptSpace(("a", "b"), (("x", "x y"), ("y z", "z")))
    with pytest.raises(ValueError, match=r"\[0, 0\] and \[1, 1\] are both written 'a x y z'.*rename values"):
        captions(space, factorial_scenes(space, 1))
    assert captions(space, factorial_scenes(space, 1), template="{a}, {b}")[0] == "x, y z"


# ---- splits


sizes_of_a_split = st.lists(st.integers(2, 9), min_size=2, max_size=3)


@settings(max_examples=150, deadline=None)
@given(sizes_of_a_split, st.floats(0.01, 0.99), seeds)
def test_object_splits_keep_their_promises(sizes, coverage, seed):
    space = ConceptSpace.of_sizes(*sizes)
    n_all = space.n_possible_objects
    n_train = round(coverage * n_all)
    assume(max(space.n_values) <= n_train < n_all)
    split = object_split(space, coverage, seed=seed)
    train, held_out = (set(rows(t.unsqueeze(1))) for t in (split.train_objects, split.held_out_objects))
    assert train | held_out == set(rows(single_object_scenes(space)))
    assert not train & held_out
    assert len(train) == n_train
    assert abs(split.coverage - coverage) <= 0.5 / n_all + 1e-12
    for k, n_values in enumerate(space.n_values):
        assert set(split.train_objects[:, k].tolist()) == set(range(n_values))
    assert torch.equal(split.is_train, object_split(space, coverage, seed=seed).is_train)


@settings(max_examples=60, deadline=None)
@given(sizes_of_a_split, st.floats(0.2, 0.9), st.integers(1, 3), seeds)
def test_no_scene_leaks_an_object(sizes, coverage, n_objects, seed):
    space = ConceptSpace.of_sizes(*sizes)
    n_all = space.n_possible_objects
    assume(max(space.n_values) <= round(coverage * n_all) < n_all)
    split = object_split(space, coverage, seed=seed)
    scenes = sample_scenes(space, n_objects, min(200, n_all**n_objects), seed=seed)
    train = set(rows(split.train_objects.unsqueeze(1)))
    for kind, scene in zip(split.kinds(scenes).tolist(), scenes.tolist(), strict=True):
        n_seen = sum(tuple(obj) in train for obj in scene)
        expected = {n_objects: SceneKind.TRAIN, 0: SceneKind.HELD_OUT}.get(n_seen, SceneKind.MIXED)
        assert kind == expected


def test_kinds_are_counted_by_the_formula():
    """Of 24^2 scenes with 12 training objects, 12^2 are train, 12^2 held out, and 2 * 12 * 12 mixed."""
    split = object_split(CLEVR, 0.5, seed=0)
    kinds = split.kinds(factorial_scenes(CLEVR, 2))
    assert [(kinds == kind).sum().item() for kind in SceneKind] == [144, 288, 144]
    assert split.kinds(torch.zeros(0, 2, 2, dtype=torch.int64)).shape == (0,)


def test_scenes_of_one_side_can_be_sampled():
    split = object_split(CLEVR, 0.5, seed=0)
    for objects, kind in (
        (split.train_objects, SceneKind.TRAIN),
        (split.held_out_objects, SceneKind.HELD_OUT),
    ):
        assert (split.kinds(sample_scenes(CLEVR, 2, 100, seed=1, objects=objects)) == kind).all()


def test_every_object_is_a_training_object_equally_often():
    space = ConceptSpace.of_sizes(4, 3)
    n_runs = 4000
    counts = sum(object_split(space, 0.5, seed=seed).is_train.long() for seed in range(n_runs))
    # Each count is binomial(n_runs, 1/2); 12 of them, so 4.5 standard deviations.
    assert ((counts - n_runs / 2).abs() < 4.5 * math.sqrt(n_runs / 4)).all()


def test_the_smallest_split_does_not_tie_concepts_together():
    """8 x 3 x 3 with 8 training objects: the third value must not be a function of the second."""
    space = ConceptSpace.of_sizes(8, 3, 3)
    pairs = [len(object_split(space, 8 / 72, seed=s).train_objects[:, 1:].unique(dim=0)) for s in range(200)]
    assert max(pairs) > 6
    assert sum(pairs) / len(pairs) > 4.5  # 3 when the orders repeat; 9 (1 - (8/9)^8) = 5.5 for free draws


@pytest.mark.parametrize(
    ("sizes", "coverage", "message"),
    [
        ((8, 3), 0.0, "strictly between 0 and 1; got 0.0"),
        ((8, 3), 1.0, "strictly between 0 and 1; got 1.0"),
        ((8, 3), 0.1, "trains on 2, but 8 are needed to show every value once: use at least 0.34"),
        ((8, 3), 0.99, "leaves none held out: use at most 23/24"),
        ((50, 50), 0.9999, "use at most 2499/2500"),
        ((6,), 0.5, "none can be held out: a split needs two concepts of two or more values"),
        ((6, 1), 0.5, "none can be held out"),
    ],
)
def test_impossible_coverages(sizes, coverage, message):
    with pytest.raises(ValueError, match=message):
        object_split(ConceptSpace.of_sizes(*sizes), coverage, seed=0)


@settings(deadline=None)
@given(sizes_of_a_split, st.floats(0.001, 0.999))
def test_the_advice_of_the_error_works(sizes, coverage):
    space = ConceptSpace.of_sizes(*sizes)
    try:
        object_split(space, coverage, seed=0)
    except ValueError as error:
        advice = re.search(r"use at (?:least|most) ([\d.]+)(?:/(\d+))?", str(error))
        object_split(space, float(advice[1]) / float(advice[2] or 1), seed=0)


@settings(max_examples=150, deadline=None)
@given(sizes_of_a_split, st.floats(0.001, 0.999), seeds)
def test_splits_that_may_miss_values_show_as_many_as_their_objects_can(sizes, coverage, seed):
    space = ConceptSpace.of_sizes(*sizes)
    n_all = space.n_possible_objects
    n_train = round(coverage * n_all)
    assume(1 <= n_train < n_all)
    split = object_split(space, coverage, seed=seed, every_value=False)
    assert len(split.train_objects) == n_train
    for k, n_values in enumerate(space.n_values):
        assert len(split.train_objects[:, k].unique()) == min(n_values, n_train)
    if n_train >= max(space.n_values):  # then it is the split that shows every value
        assert torch.equal(split.is_train, object_split(space, coverage, seed=seed).is_train)


@settings(max_examples=150, deadline=None)
@given(sizes_of_a_split, st.floats(0.001, 0.999), st.floats(0.001, 0.999), seeds)
def test_a_larger_coverage_only_adds_objects(sizes, one, other, seed):
    space = ConceptSpace.of_sizes(*sizes)
    n_all = space.n_possible_objects
    low, high = sorted((one, other))
    assume(1 <= round(low * n_all) and round(high * n_all) < n_all)
    few, many = (object_split(space, c, seed=seed, every_value=False).is_train for c in (low, high))
    assert not bool((few & ~many).any())


def test_fewer_objects_than_values_are_drawn_without_favour():
    """2 of 4 x 3 objects, no value twice: each object in 2 of 12 splits."""
    space = ConceptSpace.of_sizes(4, 3)
    n_runs = 3000
    counts = sum(
        object_split(space, 2 / 12, seed=s, every_value=False).is_train.long() for s in range(n_runs)
    )
    assert ((counts - n_runs / 6).abs() < 4.5 * math.sqrt(n_runs * 5 / 36)).all()


def test_a_split_without_an_object_is_refused_however_values_are_shown():
    with pytest.raises(
        ValueError, match=r"coverage 0\.02 of 24 objects leaves none to train on: use at least 1/24"
    ):
        object_split(CLEVR, 0.02, seed=0, every_value=False)
    with pytest.raises(ValueError, match=r"use at least 0\.34, or every_value=False"):
        object_split(CLEVR, 0.1, seed=0)
    assert len(object_split(CLEVR, 0.1, seed=0, every_value=False).train_objects) == 2


def test_a_split_must_fit_its_space():
    with pytest.raises(ValueError, match=r"one entry for each of the 24 possible objects; got shape \(23,\)"):
        ObjectSplit(CLEVR, torch.ones(23, dtype=torch.bool))


@settings(deadline=None)
@given(st.integers(2, 500), st.floats(0, 1), seeds)
def test_scene_split_has_the_asked_share(n_scenes, fraction, seed):
    n_train = round(fraction * n_scenes)
    if not 0 < n_train < n_scenes:
        with pytest.raises(ValueError, match="both sides need at least one"):
            scene_split(n_scenes, train_fraction=fraction, seed=seed)
        return
    is_train = scene_split(n_scenes, train_fraction=fraction, seed=seed)
    assert is_train.shape == (n_scenes,)
    assert int(is_train.sum()) == n_train
    assert torch.equal(is_train, scene_split(n_scenes, train_fraction=fraction, seed=seed))


def test_scene_split_is_uniform():
    n_runs = 4000
    counts = sum(scene_split(10, seed=seed).long() for seed in range(n_runs))
    assert counts.sum() == 4 * n_runs
    assert ((counts - 0.4 * n_runs).abs() < 4.5 * math.sqrt(0.24 * n_runs)).all()


def test_seeds_ignore_and_leave_alone_the_global_generator():
    def everything():
        split = object_split(CLEVR, 0.5, seed=7).is_train
        drawn = sample_scenes(CLEVR, 2, 5, seed=7)  # drawn
        listed = sample_scenes(CLEVR, 2, 500, seed=7)
        return [split, drawn, listed, scene_split(50, seed=7)]

    torch.manual_seed(0)
    first = everything()
    state = torch.get_rng_state()
    torch.manual_seed(123)
    second = everything()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    torch.manual_seed(0)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first[2], sample_scenes(CLEVR, 2, 500, seed=8))


def test_a_split_of_numbers_is_refused():
    space = ConceptSpace.of_sizes(2, 2)
    with pytest.raises(ValueError, match=r"is_train must be a bool tensor.*got torch\.int64"):
        # Past the type checks of the tests, which users do not have.
        ObjectSplit.__post_init__(SimpleNamespace(space=space, is_train=torch.tensor([0, 1, 1, 0])))
