"""The clouds of the chapter on removal show the points and means they are given."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

from conceptbind import plots
from conceptbind.plots_removal import before_after, clouds

pytestmark = pytest.mark.usefixtures("book_style")


def test_clouds_show_every_point_of_a_named_group_and_its_mean():
    points = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0], [9.0, 9.0]])
    group = torch.tensor([0, 0, 2, 1])
    fig = clouds({"before": points, "after": points * 0}, group, {0: "red", 2: "blue"})
    before, after = fig.axes
    offsets = [c.get_offsets().tolist() for c in before.collections]
    assert offsets == [[[0, 0], [2, 0]], [[1, 0]], [[5, 5]], [[5, 5]]]
    assert [c.get_offsets().tolist() for c in after.collections][1] == [[0, 0]]
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["before", "after"]
    assert before.get_xlim() == after.get_xlim()
    assert {t.get_text() for t in fig.legends[0].get_texts()} == {"red", "blue"}
    assert plt.get_fignums() == []


def test_bars_before_and_after_say_their_numbers_in_the_colours_of_the_book():
    rows = {"colour": ((0.9, 0.8, 1.0), (0.1, 0.0, 0.2)), "objects": ((0.7, 0.6, 0.8), (0.4, 0.3, 0.5))}
    ax = before_after(rows, chance={"colour": 0.05, "objects": 0.01}, n_concepts=1).axes[0]
    lengths = [round(bar.get_width(), 6) for bar in ax.patches]
    assert lengths == [0.9, 0.1, 0.7, 0.4]
    colours = [mpl.colors.to_hex(bar.get_edgecolor()).upper() for bar in ax.patches]
    assert colours == [plots.CONCEPT] * 2 + [plots.OBJECT] * 2
    assert {"colour", "objects", "0.90", "0.10", "0.70", "0.40"} == {t.get_text() for t in ax.texts}
    ticks = [line.get_xdata()[0] for line in ax.lines if line.get_linewidth() == 2.5]
    assert ticks == [0.05, 0.05, 0.01, 0.01]
