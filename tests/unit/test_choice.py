import math

import pytest
import torch

from conceptbind.analysis.choice import choice_margins, summarise_choice
from conceptbind.analysis.recognition import pigeonhole_interval


def test_margins_are_differences_of_cosines():
    a, t, s = (torch.randn(40, 5, generator=torch.Generator().manual_seed(i)) for i in range(3))
    cos = torch.nn.functional.cosine_similarity
    torch.testing.assert_close(choice_margins(a, 3 * t, s / 7), cos(a, t) - cos(a, s))


def test_rounding_makes_no_difference():
    a, t = (torch.randn(40, 300, generator=torch.Generator().manual_seed(i)) for i in range(2))
    assert (choice_margins(a, t, t * (1 + 3e-7)) == 0).all()
    assert (choice_margins(a, t, t + 1e-4 * a) < 0).all()


def test_the_interval_is_that_of_resampled_anchors():
    margins = torch.where(torch.arange(60) < 21, 1.0, -1.0)
    found = summarise_choice(margins)
    picks = torch.randint(60, (20_000, 60), generator=torch.Generator().manual_seed(0))
    shares = (margins > 0).double()[picks].mean(1)
    low, high = shares.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    assert abs(found.low - low) <= 1 / 60
    assert abs(found.high - high) <= 1 / 60
    assert found.low < found.accuracy < found.high
    assert found.interval == (found.low, found.high)


def test_shared_objects_widen_the_interval():
    objects = torch.cartesian_prod(torch.arange(8), torch.arange(8, 16))
    margins = torch.where(objects[:, 0] < 5, 1.0, -1.0)
    found, alone = summarise_choice(margins, objects=objects), summarise_choice(margins)
    assert (found.low, found.high) == pigeonhole_interval(margins > 0, objects)
    assert found.high - found.low > 1.5 * (alone.high - alone.low)


def test_ties_are_no_anti_binding():
    assert not summarise_choice(torch.zeros(500)).anti_binding
    mostly_tied = torch.cat([torch.zeros(400), -torch.ones(100)])
    assert summarise_choice(mostly_tied).high < 0.5
    assert not summarise_choice(mostly_tied).anti_binding
    assert summarise_choice(torch.cat([torch.zeros(100), -torch.ones(400)])).anti_binding
    # below chance, but not surely
    assert not summarise_choice(torch.where(torch.arange(20) < 8, 1.0, -1.0)).anti_binding


def test_nothing_judged_is_nothing():
    found = summarise_choice(torch.empty(0))
    assert math.isnan(found.accuracy)
    assert found.as_dict()["accuracy"] is None
    assert (found.n, found.anti_binding) == (0, False)


def test_vectors_without_a_direction_are_an_error():
    with pytest.raises(ValueError, match="1 rows of swapped"):
        choice_margins(torch.ones(2, 3), torch.ones(2, 3), torch.tensor([[1.0, 0, 0], [math.nan, 0, 0]]))
