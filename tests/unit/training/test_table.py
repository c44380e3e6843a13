"""The table of trained models: who belongs where, curves over coverage, and where they cross a level."""

import math
from dataclasses import replace

import pytest

from conceptbind.analysis.complexity_table import Curve
from conceptbind.training.jobs import model_name, numbers_of, row_settings
from conceptbind.training.run import train
from conceptbind.training.studies import study
from conceptbind.training.table import TrainingTable, compact, crossing, has_started


def row(coverage, seed, objects, **more):
    return {
        "studies": ["coverage"],
        "sizes": [4, 4],
        "coverage": coverage,
        "seed": seed,
        "o": objects,
        **more,
    }


TABLE = TrainingTable(
    [row(0.5, 0, 0.4), row(0.5, 1, 0.8), row(0.2, 0, 0.1), row(0.2, 1, 0.3, sizes=[8, 8], c=0.9)]
)


def test_a_curve_has_mean_and_range_of_the_seeds():
    found = TABLE.curve("coverage", "o")
    assert found.coverages == (0.2, 0.5)
    assert found.mean == pytest.approx((0.2, 0.6))
    assert (found.low, found.high) == ((0.1, 0.4), (0.3, 0.8))
    assert TABLE.curve("coverage", "o", sizes=(4, 4)).mean == pytest.approx((0.1, 0.6))
    assert TABLE.curve("coverage", "c").coverages == (0.2,)


def test_models_that_differ_in_more_than_the_seed_are_no_repetitions():
    two = TrainingTable([row(0.5, 0, 0.4), row(0.5, 0, 0.8, sizes=[8, 8])])
    with pytest.raises(ValueError, match=r"several models of coverage 0.5 and seed 0: .* sizes"):
        two.curve("coverage", "o")
    assert two.curve("coverage", "o", sizes=(8, 8)).mean == (0.8,)


def test_models_that_never_started_are_left_out_and_counted():
    rows = [row(0.5, 0, 0.8, swap_alike_train=0.9), row(0.5, 1, 0.2, swap_alike_train=0.3), row(0.2, 0, 0.1)]
    assert [has_started(r) for r in rows] == [True, False, True]  # nothing to judge by in the last
    table = TrainingTable(rows)
    assert table.curve("coverage", "o").mean == pytest.approx((0.1, 0.5))
    found = table.curve("coverage", "o", started=True)
    assert (found.mean, found.n_left_out) == ((0.1, 0.8), 1)


def test_what_is_not_there_is_named():
    with pytest.raises(KeyError, match=r"no model of study 'clip' .* there are studies coverage"):
        TABLE.of("clip")
    with pytest.raises(KeyError, match="'c'"):
        TABLE.curve("coverage", "c", sizes=(4, 4))


def curve(*mean):
    at = tuple(round(0.1 * (i + 1), 1) for i in range(len(mean)))
    return Curve(at, mean, mean, mean, 0)


@pytest.mark.parametrize(
    ("mean", "level", "expected"),
    [
        ((0.0, 0.2, 0.6, 1.0), 0.5, 0.275),
        ((0.6, 0.7), 0.5, 0.1),
        ((0.0, 0.4), 0.5, None),
        # a peak on the way does not count: what is asked is from where on it stays
        ((0.0, 0.9, 0.2, 0.7), 0.5, 0.36),
        ((0.0, 0.8), 0.8, 0.2),
    ],
)
def test_the_crossing_lies_on_the_line_between_two_points(mean, level, expected):
    found = crossing(curve(*mean), level)
    assert found is None if expected is None else math.isclose(found, expected)


def test_a_compact_row_keeps_what_was_measured_and_the_studies():
    config = study("recipe", "smoke")[0]
    alone = replace(config, seed=config.seed + 1)
    rows = []
    for c in (config, alone):
        model = train([c]).model(0)
        rows.append({**row_settings(c, 20), **numbers_of(model, 20)})
    (kept,) = compact(rows, "smoke")  # the other is of no study
    assert kept["model"] == model_name(config)
    assert {"coverage", "recipe"} <= set(kept["studies"])
    assert kept["objects_held_out"] == round(rows[0]["objects_held_out"], 4)
    assert kept["sizes"] == [4, 4]
    assert not any(key.startswith("caption") for key in kept)
    assert TrainingTable([kept]).of("recipe", sizes=(4, 4)) == [kept]
