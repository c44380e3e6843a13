"""Grids: every combination once, values of the right type, and errors that say what was expected."""

import itertools
import json
from dataclasses import fields

import pytest

from conceptbind.training.config import TrainingConfig, config_of
from conceptbind.training.grid import MAX_POINTS, Grid, expand, parse, read_grids, show

BASE = config_of("smoke")
AXES = {"coverage": (0.3, 0.5), "seed": (0, 1, 2), "sizes": ((6, 6), (8, 8))}


def points(expanded):
    return [(c.coverage, c.seed, c.sizes) for c in expanded.configs]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sizes", "24x24", (24, 24)),
        ("sizes", "7", (7,)),
        ("coverage", ".3", 0.3),
        ("coverage", "1", 1.0),
        ("rate", "1e-3", 0.001),
        ("seed", "7", 7),
        ("split_seed", "none", None),
        ("split_seed", "3", 3),
        ("swap_negatives", "true", True),
        ("swap_negatives", "false", False),
        ("tokens", "paper", "paper"),
        ("query_architecture", "none", None),
        ("query_architecture", "product", "product"),
        ("repeats", "distinct objects", "distinct objects"),
    ],
)
def test_a_value_has_the_type_of_its_setting(name, text, value):
    found = parse(name, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_every_setting_is_read_as_it_is_shown(preset):
    config = config_of(preset)
    for field in fields(TrainingConfig):
        value = getattr(config, field.name)
        assert parse(field.name, show(value)) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "colour",
            "red",
            "there is no setting 'colour'; a model is determined by sizes, n_objects, coverage",
        ),
        ("coverage", "much", "coverage is a number; got 'much'"),
        ("seed", "1.5", "seed is a whole number; got '1.5'"),
        ("split_seed", "some", "split_seed is a whole number or none; got 'some'"),
        ("sizes", "24,24", "sizes is numbers of values such as 24x24; got '24,24'"),
        ("swap_negatives", "1", "swap_negatives is true or false; got '1'"),
        ("form", "clap", "form is query, clip; got 'clap'"),
        ("query_architecture", "x", "transformer, objects, additive, product or none; got 'x'"),
    ],
)
def test_a_wrong_value_is_named(name, text, message):
    with pytest.raises(ValueError, match=message):
        parse(name, text)


def test_a_grid_is_every_combination_once_in_order():
    found = expand([Grid(BASE, AXES)])
    assert points(found) == list(itertools.product(*AXES.values()))
    assert found.left_out == 0
    assert {(c.width, c.n_steps) for c in found.configs} == {(BASE.width, BASE.n_steps)}
    assert expand([Grid(BASE, {})]).configs == (BASE,)
    # values, and combinations of two grids, that are given twice are trained once
    twice = expand([Grid(BASE, AXES | {"seed": (1, 0, 1)}), Grid(BASE, AXES)])
    assert set(points(twice)) == set(points(found))
    assert len(twice.configs) == 12


def test_a_draw_is_without_replacement_and_a_larger_one_begins_with_the_smaller():
    grids = [Grid(BASE, AXES), Grid(BASE, {"seed": (7, 8)})]
    every = expand(grids).configs
    draws = [expand(grids, draw=n).configs for n in range(1, 15)]
    assert set(draws[-1]) == set(every)
    for n, draw in enumerate(draws, 1):
        assert len(set(draw)) == n
        assert draw == draws[-1][:n]
    assert draws[-1] != every
    others = {expand(grids, draw=3, draw_seed=seed).configs for seed in range(10)}
    assert len(others) > 5
    for n in (0, -1, 15):
        with pytest.raises(ValueError, match=f"1 to 14 combinations can be drawn from this grid; got {n}"):
            expand(grids, draw=n)


def test_draws_are_even():
    # of 300 draws of 2 of 4, every one is in half; five standard deviations are 43
    grid = [Grid(BASE, {"seed": (0, 1, 2, 3)})]
    drawn = [c.seed for s in range(300) for c in expand(grid, draw=2, draw_seed=s).configs]
    assert all(abs(drawn.count(seed) - 150) < 43 for seed in range(4))


def test_impossible_combinations_are_an_error_or_left_out():
    # 0.1 of 36 objects is 4, too few to show 6 values; of 100, 10 show 10
    axes = {"coverage": (0.1, 0.5), "sizes": ((6, 6), (10, 10))}
    with pytest.raises(
        ValueError, match=r"the combination coverage 0.1, sizes 6x6 cannot be: coverage 0.1 of 36"
    ):
        expand([Grid(BASE, axes)])
    found = expand([Grid(BASE, axes)], leave_out_impossible=True)
    assert [(c.coverage, c.sizes) for c in found.configs] == [(0.1, (10, 10)), (0.5, (6, 6)), (0.5, (10, 10))]
    assert found.left_out == 1
    for seed in range(4):  # those that are left out are not counted as drawn
        drawn = expand([Grid(BASE, axes)], draw=3, draw_seed=seed, leave_out_impossible=True)
        assert set(drawn.configs) == set(found.configs)
    with pytest.raises(
        ValueError, match=r"none of the 2 combinations can be, the first because coverage 0.01 of 36"
    ):
        expand([Grid(BASE, {"coverage": (0.01, 0.02)})], leave_out_impossible=True)


def test_a_grid_says_what_is_wrong_with_it():
    with pytest.raises(ValueError, match="there is no setting 'colour'"):
        Grid(BASE, {"colour": (1,)})
    with pytest.raises(ValueError, match="seed has no values"):
        Grid(BASE, {"seed": ()})
    many = Grid(BASE, {"seed": range(1001), "split_seed": range(1000)})
    with pytest.raises(ValueError, match=f"at most {MAX_POINTS:,} combinations; got 1,001,000"):
        expand([many], draw=3)


def test_a_grid_is_read_from_json(tmp_path):
    path = tmp_path / "grid.json"

    def read(content):
        path.write_text(json.dumps(content))
        return read_grids(path)

    given = {
        "sizes": ["24x24", [50, 50]],
        "coverage": [1, 0.5],
        "seed": 3,
        "split_seed": None,
        "tokens": "paper",
    }
    expected = {"sizes": [(24, 24), (50, 50)], "coverage": [1.0, 0.5], "seed": [3], "split_seed": [None]}
    assert read(given) == [expected | {"tokens": ["paper"]}]
    assert type(read(given)[0]["coverage"][0]) is float
    assert read({"sizes": [6, 7]}) == [{"sizes": [(6, 7)]}]  # one space, not two
    assert read([{"seed": [0]}, {"swap_negatives": [True, False]}]) == [
        {"seed": [0]},
        {"swap_negatives": [True, False]},
    ]
    for wrong, message in (
        ([], "holds no grid"),
        (7, "holds no grid"),
        ([{"seed": 1}, 2], "holds no grid"),
        ({"seed": [1.5]}, r"grid.json: seed is a whole number; got '1.5'"),
        ({"seed": {"from": 1}}, "grid.json: seed is a whole number"),
        ({"colour": 1}, "grid.json: there is no setting 'colour'"),
    ):
        with pytest.raises(ValueError, match=message):
            read(wrong)
    path.write_text("{seed: 1}")
    with pytest.raises(ValueError, match=r"grid\.json is not JSON"):
        read_grids(path)
    with pytest.raises(FileNotFoundError):
        read_grids(tmp_path / "none.json")
