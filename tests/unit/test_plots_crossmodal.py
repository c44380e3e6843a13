"""The figures of chapter 9 show the numbers they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from conceptbind import plots
from conceptbind.analysis.choice import summarise_choice
from conceptbind.plots_crossmodal import margins, two_way_by_model

pytestmark = pytest.mark.usefixtures("book_style")

RIGHT = torch.where(torch.arange(40) < 30, 1.0, -1.0)
MODELS = {
    "narrow": {"seen": summarise_choice(RIGHT), "held-out": summarise_choice(-torch.ones(40))},
    "broad": {"seen": summarise_choice(torch.ones(40)), "held-out": summarise_choice(torch.empty(0))},
}


def test_points_are_the_accuracies_and_chance_is_a_line():
    fig = two_way_by_model(MODELS, title="Two-way choice")
    ax = fig.axes[0]
    points = [line for line in ax.lines if line.get_marker() in "os" and len(line.get_xdata()) == 1]
    assert [p.get_xdata()[0] for p in points] == [0.75, 1.0, 0.0]
    assert [p.get_markerfacecolor() == "white" for p in points] == [False, False, True]
    assert [t.get_text() for t in ax.texts] == ["0.75", "1.00", "0.00", "–", "narrow", "broad"]
    chance = next(line for line in ax.lines if line.get_label() == "chance")
    assert list(chance.get_xdata()) == [0.5, 0.5]
    assert [t.get_text() for t in fig.legends[0].get_texts()] == ["seen", "held-out", "chance"]
    assert fig.get_figwidth() == plots.WIDTH
    assert plt.get_fignums() == []


def test_intervals_are_drawn():
    fig = two_way_by_model({"narrow": {"seen": MODELS["narrow"]["seen"]}})
    (segment,) = fig.axes[0].collections[0].get_segments()
    choice = MODELS["narrow"]["seen"]
    assert sorted(segment[:, 0].tolist()) == pytest.approx([choice.low, choice.high])


def test_models_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="no model"):
        two_way_by_model({})
    with pytest.raises(ValueError, match="'b' has the parts"):
        two_way_by_model({"a": MODELS["narrow"], "b": {"seen": MODELS["narrow"]["seen"]}})
    with pytest.raises(ValueError, match="one chance"):
        two_way_by_model({"a": {"seen": summarise_choice(RIGHT), "x": summarise_choice(RIGHT, chance=0.2)}})
    with pytest.raises(ValueError, match="1 to 4 parts"):
        two_way_by_model({"a": {str(i): summarise_choice(RIGHT) for i in range(5)}})


def test_histograms_are_shares_and_zero_is_an_edge():
    values = torch.tensor([0.4, 0.3, -0.1, 0.0])
    fig = margins({"seen": values, "held-out": [0.1, -0.2]}, bins=4)
    filled = [p for p in fig.axes[0].patches if p.get_fill()]
    assert len(filled) == 2
    share, edges, _ = filled[0].get_data()
    np.testing.assert_allclose(edges, [-0.4, -0.2, 0.0, 0.2, 0.4], atol=1e-7)
    np.testing.assert_allclose(share, [0, 0.25, 0, 0.5])
    labels = [t.get_text() for t in fig.legends[0].get_texts()]
    assert labels == ["seen: 0.50 right, 0.25 tied", "held-out: 0.50 right"]


def test_a_bag_that_ties_everywhere_can_be_drawn():
    fig = margins({"bag": torch.zeros(5)})
    assert fig.legends[0].get_texts()[0].get_text() == "bag: 0.00 right, 1.00 tied"


def test_margins_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="no margins"):
        margins({"a": []})
    with pytest.raises(ValueError, match="even"):
        margins({"a": [0.1]}, bins=5)
    with pytest.raises(ValueError, match="1 to 4 groups"):
        margins({})
