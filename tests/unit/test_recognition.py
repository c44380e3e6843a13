"""Recognition against cases worked by hand, Monte Carlo and independent formulas."""

import inspect
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from scipy import stats

from conceptbind.analysis.recognition import (
    Recognition,
    chance_level,
    concept_recognition,
    heads,
    mean_over_seeds,
    object_recognition,
    pigeonhole_interval,
    present,
    recognise,
    scene_margins,
    summarise,
    wilson_interval,
)
from conceptbind.scenes import ConceptSpace, factorial_scenes

SPACE = ConceptSpace(("colour", "shape"), (("red", "green", "blue"), ("circle", "square")))


def test_present_by_hand():
    # red square (object 1), blue circle (object 4): queries red green blue | circle square | objects 0-5
    marks = present(SPACE, torch.tensor([[[0, 1], [2, 0]], [[1, 1], [1, 1]]]))
    assert marks.int().tolist() == [
        [1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0],
        [0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0],
    ]
    assert heads(SPACE) == (slice(0, 3), slice(3, 5), slice(5, 11))


def test_recognise_by_hand():
    marks = torch.tensor([[1, 1, 0, 0]] * 4 + [[1, 1, 1, 1]], dtype=torch.bool)
    scores = torch.tensor(
        [
            [0.9, 0.5, 0.4, 0.1],  # correct, margin 0.1
            [0.9, 0.4, 0.4, 0.1],  # tie
            [0.9, 0.1, 0.5, 0.0],  # wrong, margin -0.4
            [3.0, 2.0, 0.0, -1.0],  # correct, margin 2
            [0.0, 0.0, 0.0, 0.0],  # vacuous
        ]
    )
    torch.testing.assert_close(
        scene_margins(scores, marks), torch.tensor([0.1, 0.0, -0.4, 2.0, math.inf]), rtol=1e-6, atol=0
    )
    result = recognise(scores, marks)
    assert (result.accuracy, result.ties, result.n_scenes, result.n_vacuous) == (0.5, 0.25, 4, 1)
    assert result.chance == pytest.approx(1 / 6)
    assert result.margin_mean == pytest.approx(1.7 / 4)
    assert result.margin_median == pytest.approx(0.0)  # the lower of 0 and 0.1
    assert (result.low, result.high) == pytest.approx(wilson_interval(0.5, 4))
    json.dumps(result.as_dict(), allow_nan=False)


def test_ties_within_rounding_and_no_further():
    marks = torch.tensor([[True, False]])
    eps = torch.finfo(torch.float32).eps
    for scale in (1e-6, 1.0, 1e6):
        for ulps, tie in ((-30, True), (0, True), (30, True), (35, False), (-35, False)):
            scores = torch.tensor([[scale * (1 + ulps * eps), scale]])
            assert (float(scene_margins(scores, marks)) == 0) is tie
    exact = torch.tensor([[1 + eps, 1.0]])
    assert recognise(exact, marks, tie_ulps=0.0).accuracy == 1
    # Scores that nearly cancel are compared on the scale of the scene's other scores.
    assert recognise(torch.tensor([[1e-8, 0.0, -1.0]]), torch.tensor([[True, False, False]])).ties == 1
    # float64 scores are held to float64 rounding.
    assert recognise(exact.double(), marks).accuracy == 1


def test_all_scenes_vacuous_is_nan_not_a_crash():
    result = recognise(torch.zeros(3, 2), torch.ones(3, 2, dtype=torch.bool))
    assert math.isnan(result.accuracy)
    assert (result.n_scenes, result.n_vacuous) == (0, 3)


def test_chance_against_monte_carlo():
    space = ConceptSpace.of_sizes(4, 3)
    scenes = factorial_scenes(space, 2)
    n_draws = 400
    scores = torch.randn(n_draws, len(scenes), 19, generator=torch.Generator().manual_seed(0))
    marks = present(space, scenes)
    margins = torch.stack([scene_margins(scores[..., h], marks[:, h]) for h in heads(space)])
    chances = torch.stack([chance_level(marks[:, h]) for h in heads(space)])
    for got, expected in (
        (margins[0], chances[0]),
        (margins[1], chances[1]),
        (margins[:2].amin(0), chances[:2].prod(0)),
        (margins[2], chances[2]),
    ):
        rate = float((got > 0).double().mean())
        p = float(expected.mean())
        assert abs(rate - p) < 5 * math.sqrt(p * (1 - p) / got.numel())


def test_chance_level_by_hand():
    marks = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.bool)
    assert chance_level(marks).tolist() == pytest.approx([1 / 4, 1 / 6, 1 / 4, 1])


def test_concepts_at_once_need_every_concept():
    scenes = torch.tensor([[[0, 0], [0, 0]], [[1, 1], [1, 1]]])
    scores = torch.zeros(2, 11)
    scores[0, [0, 3]] = 1.0  # colour and shape right
    scores[1, [1, 3]] = 1.0  # colour right, shape wrong
    result = concept_recognition(SPACE, scenes, scores)
    assert result.by_concept["colour"].accuracy == 1
    assert result.by_concept["shape"].accuracy == 0.5
    assert result.overall.accuracy == 0.5
    assert result.overall.chance == pytest.approx(1 / 3 * 1 / 2)


def test_a_concept_whose_values_are_all_present_is_left_out():
    scenes = torch.tensor([[[0, 0], [1, 1]], [[0, 0], [1, 0]]])  # both shapes; one shape
    scores = present(SPACE, scenes).float()
    result = concept_recognition(SPACE, scenes, scores)
    assert (result.by_concept["shape"].n_scenes, result.by_concept["shape"].n_vacuous) == (1, 1)
    assert (result.overall.n_scenes, result.overall.accuracy) == (2, 1)
    assert result.overall.chance == pytest.approx((1 / 3 * 1 + 1 / 3 * 1 / 2) / 2)


@given(st.integers(0, 2**31), st.floats(0.01, 100), st.floats(-10, 10))
def test_recognition_ignores_scale_shift_and_query_order(seed, scale, shift):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(20, 6, generator=generator, dtype=torch.float64)
    marks = torch.rand(20, 6, generator=generator) < 0.4
    marks[:, 0] = True
    order = torch.randperm(6, generator=generator)
    before = scene_margins(scores, marks)
    after = scene_margins(scale * scores[:, order] + shift, marks[:, order])
    torch.testing.assert_close(after, scale * before, rtol=1e-9, atol=1e-9)


@given(st.integers(1, 500), st.floats(0, 1))
def test_wilson_solves_its_equation(n, share):
    share = round(share * n) / n
    z = stats.norm.ppf(0.975)
    for p in wilson_interval(share, n):
        assert abs(share - p) == pytest.approx(z * math.sqrt(p * (1 - p) / n), abs=1e-7)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (5, 10), (81, 263), (15, 148), (29, 29)])
def test_wilson_against_scipy(hits, n):
    expected = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson_interval(hits / n, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_against_published_values():
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0 / 20, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson_interval(1 / 29, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


def test_pigeonhole_of_single_object_scenes_is_the_ordinary_bootstrap():
    # One object a scene: the bootstrap of a proportion, whose standard error is sqrt(p (1 - p) / n).
    n, p = 400, 0.3
    correct = torch.arange(n) < p * n
    low, high = pigeonhole_interval(correct, torch.arange(n).unsqueeze(1), n_resamples=4000)
    half = 1.96 * math.sqrt(p * (1 - p) / n)
    assert (low, high) == pytest.approx((p - half, p + half), abs=0.006)


def test_pigeonhole_is_wider_when_an_object_decides():
    # A scene is correct if its first object is even: 20 independent decisions, not 400.
    objects = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    correct = objects[:, 0] % 2 == 0
    low, high = pigeonhole_interval(correct, objects)
    wilson = wilson_interval(0.5, 400)
    # sqrt(.25 / 20) is the standard error that 20 decisions leave.
    assert high - low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 20), rel=0.2)
    assert high - low > 3 * (wilson[1] - wilson[0])
    assert pigeonhole_interval(correct, objects) == (low, high)


def test_pigeonhole_counts_an_object_in_two_slots_once():
    objects = torch.arange(12).unsqueeze(1)
    correct = torch.arange(12) % 3 == 0
    assert pigeonhole_interval(correct, objects.repeat(1, 2)) == pigeonhole_interval(correct, objects)


def test_pigeonhole_draws_again_where_no_scene_was_drawn():
    # Half of all resamples miss one of the two objects; in every other one half of the scenes are correct.
    assert pigeonhole_interval(torch.tensor([True, False]), torch.tensor([[0, 1], [1, 0]])) == (0.5, 0.5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_pigeonhole_has_a_width_where_all_scenes_agree(share):
    scenes = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    correct = torch.full((25,), bool(share))
    assert pigeonhole_interval(correct, scenes) == wilson_interval(share, 5)
    # Three scenes of six objects are three scenes.
    assert pigeonhole_interval(correct[:3], torch.arange(6).view(3, 2)) == wilson_interval(share, 3)


def test_object_recognition_with_clusters():
    scenes = factorial_scenes(SPACE, 2)
    scores = torch.randn(len(scenes), 11, generator=torch.Generator().manual_seed(0))
    plain, clustered = (object_recognition(SPACE, scenes, scores, cluster=c) for c in (False, True))
    assert plain.accuracy == clustered.accuracy
    assert clustered.low <= clustered.accuracy <= clustered.high


def test_errors_name_the_problem():
    scenes = factorial_scenes(SPACE, 1)
    with pytest.raises(ValueError, match=r"6 scenes and 11 queries.*\(6, 10\)"):
        object_recognition(SPACE, scenes, torch.zeros(6, 10))
    marks = torch.tensor([[True, False]])
    with pytest.raises(ValueError, match="NaN"):
        recognise(torch.tensor([[math.nan, 0.0]]), marks)
    with pytest.raises(ValueError, match="at least one present"):
        recognise(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises((ValueError, TypeCheckError)):
        recognise(torch.zeros(1, 3), marks)
    with pytest.raises(ValueError, match=r"are bfloat16.* float32 or float64"):
        recognise(torch.zeros(1, 2, dtype=torch.bfloat16), marks)
    with pytest.raises(ValueError, match="are int64"):
        inspect.unwrap(scene_margins)(torch.zeros(1, 2, dtype=torch.int64), marks)
    with pytest.raises(ValueError, match="n=0"):
        wilson_interval(0.5, 0)
    with pytest.raises(ValueError, match="two different objects"):
        pigeonhole_interval(torch.tensor([True]), torch.tensor([[1, 1]]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu():
    scenes = factorial_scenes(SPACE, 2)
    scores = torch.randn(len(scenes), 11, generator=torch.Generator().manual_seed(0))
    assert object_recognition(SPACE, scenes, scores) == object_recognition(SPACE, scenes, scores.cuda())


def test_summary_counts_only_positive_margins():
    result = summarise(torch.tensor([1.0, 0.0, -1.0, math.inf]), torch.full((4,), 0.5, dtype=torch.float64))
    assert (result.accuracy, result.ties) == pytest.approx((1 / 3, 1 / 3))


def test_means_over_seeds_average_every_field_and_count_whole_scenes():
    a = Recognition(0.5, 0.4, 0.6, 0.1, 0.0, 1.0, 1.0, 10, 0)
    b = Recognition(0.7, 0.5, 0.9, 0.2, 0.2, 3.0, 2.0, 11, 1)
    mean = mean_over_seeds([a, b])
    assert (mean.accuracy, mean.low, mean.high) == pytest.approx((0.6, 0.45, 0.75))
    assert (mean.n_scenes, mean.n_vacuous) == (10, 0)
    assert mean_over_seeds([a]) == a
    with pytest.raises(ValueError, match="nothing to average"):
        mean_over_seeds([])
