"""Rank correlations against scipy and planted relations, with and without a third number held fixed."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from conceptbind.analysis.association import rank_correlation


def drawn(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n)


@pytest.mark.parametrize("decimals", [3, 0])
def test_it_is_spearmans(decimals):
    x = drawn(80).round(decimals)
    y = (0.5 * x + drawn(80, 1)).round(decimals)
    found = rank_correlation(x, y)
    assert found.correlation == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert found.n_models == 80
    assert found.low < found.correlation < found.high


def test_one_group_is_no_group():
    x, y = drawn(30), drawn(30, 1)
    assert rank_correlation(x, y, groups=["a"] * 30) == rank_correlation(x, y)


def test_what_follows_from_the_group_alone_vanishes_within_groups():
    coverage = np.repeat(np.arange(9) / 10, 40)
    x, y = coverage + 0.05 * drawn(360), coverage + 0.05 * drawn(360, 1)
    assert rank_correlation(x, y).correlation > 0.9
    fixed = rank_correlation(x, y, groups=coverage.tolist())
    assert abs(fixed.correlation) < 0.15
    assert fixed.low < 0 < fixed.high


def test_what_holds_within_groups_is_found_against_the_trend_of_the_groups():
    group = np.repeat(np.arange(6), 50)
    x = 10.0 * group + drawn(300)
    y = -10.0 * group + drawn(300) + 0.3 * drawn(300, 1)
    assert rank_correlation(x, y).correlation < -0.9
    fixed = rank_correlation(x, y, groups=group.tolist())
    assert fixed.low > 0.8


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Of normal pairs with correlation r, Spearman's is 6 / pi asin(r / 2); 95 % of 100 intervals, give or take."""
    truth = 6 / np.pi * np.arcsin(0.6 / 2)
    hits = 0
    for seed in range(100):
        g = np.random.default_rng(seed)
        x = g.standard_normal(60)
        y = 0.6 * x + 0.8 * g.standard_normal(60)
        found = rank_correlation(x, y, seed=seed)
        hits += found.low <= truth <= found.high
    assert 87 <= hits <= 100


def test_models_alone_in_their_group_are_not_counted():
    found = rank_correlation([1, 2, 3, 9], [1, 2, 3, 0], groups=["a", "a", "a", "b"])
    assert found.n_models == 3
    assert found.correlation == pytest.approx(1)


def test_what_does_not_vary_has_no_correlation():
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3]).correlation)


@pytest.mark.parametrize(
    ("x", "y", "groups", "message"),
    [
        ([1, 2, 3], [1, 2], None, "3 and 2 numbers"),
        ([1, 2, 3], [1, 2, 3], ["a"], "1 groups"),
        ([1, 2], [1, 2], None, "three models"),
        ([1, 2, 3, 4], [1, 2, 3, 4], "abcd", "in groups of two or more; got 0"),
        ([1, 2, float("nan")], [1, 2, 3], None, "NaN or infinite"),
    ],
)
def test_lists_that_do_not_fit_are_refused(x, y, groups, message):
    with pytest.raises(ValueError, match=message):
        rank_correlation(x, y, groups=groups)
