"""The studies of chapters 7 and 8: what is varied, and what is not."""

from collections import Counter

import pytest

from conceptbind.training.studies import COVERAGES, HEADS, SEEDS, SMALL, STUDIES, recipes, study


def differing(configs):
    """Name the settings in which the models differ."""
    rows = [c.settings() for c in configs]
    return {key for key in rows[0] if len({str(r[key]) for r in rows}) > 1}


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("preset", ["smoke", "laptop", "paper"])
def test_every_study_lists_models_seed_after_seed(name, preset):
    configs = study(name, preset)
    assert len(set(configs)) == len(configs) > 1
    seeds = [c.seed for c in configs]
    assert seeds == sorted(seeds)
    assert set(seeds) == ({0} if preset == "smoke" else set(SEEDS))


def test_coverages_of_a_space_differ_in_nothing_else():
    configs = study("coverage")
    assert differing(configs) == {"sizes", "coverage", "seed"}
    counts = Counter(c.sizes for c in configs)
    # a tenth of 64 objects is 6: too few to show 8 values
    assert counts == {(8, 8): 3 * 8, (12, 12): 3 * 9, (16, 16): 3 * 9}
    assert {c.coverage for c in configs} == set(COVERAGES)


@pytest.mark.parametrize(
    ("name", "varied"),
    [
        ("capacity", {"width", "feed_forward", "dim", "coverage", "seed"}),
        ("longer", {"coverage", "seed"}),
        ("larger", {"n_steps", "coverage", "seed"}),
        ("clip", {"coverage", "seed"}),
        ("negatives", {"coverage", "seed"}),
    ],
)
def test_what_a_study_varies(name, varied):
    assert differing(study(name)) == varied


def test_the_middle_of_a_comparison_is_the_same_model():
    of_coverage = set(study("coverage"))
    assert {c for c in study("recipe") if c in of_coverage} == {
        c for c in of_coverage if c.sizes == SMALL.sizes and c.coverage == 0.7
    }
    for preset, n_seeds in (("smoke", 1), ("laptop", 3), ("paper", 3)):
        assert len(study("recipe", preset)) == len(recipes(SMALL)) * n_seeds
    assert {c.architecture for c in study("heads")} == set(HEADS)
    assert not of_coverage & set(study("heads"))


def test_an_unknown_study_or_preset_is_refused():
    with pytest.raises(ValueError, match=r"a study is one of coverage, .*; got 'size'"):
        study("size")
    with pytest.raises(ValueError, match="PRESET"):
        study("coverage", "huge")
