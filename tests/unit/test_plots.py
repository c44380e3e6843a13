"""Figures show the numbers they are given, and stay readable."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

from conceptbind import plots

ROWS = {"MiniLM": ((0.9, 0.85, 0.95), (0.4, 0.3, 0.5)), "shuffled": ((0.0, 0.0, 0.1), (0.1, 0.0, 0.2))}


pytestmark = pytest.mark.usefixtures("book_style")


def test_bars_are_as_long_as_their_numbers_and_say_them():
    ax = plots.paired_bars(ROWS, chance={k: (0.2, 0.05) for k in ROWS}).axes[0]
    assert sorted(round(bar.get_width(), 6) for bar in ax.patches) == [0.0, 0.1, 0.4, 0.9]
    texts = [t.get_text() for t in ax.texts]
    assert {"MiniLM", "shuffled", "0.90", "0.40", "0.00", "0.10"} <= set(texts)
    ticks = [
        line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 2.5
    ]
    assert sorted(ticks) == [0.05, 0.05, 0.2, 0.2]


def test_curves_pass_through_their_points():
    fig = plots.curves([1, 2], {"a": ([0.1, 0.2], [0, 0.1], [0.2, 0.3])}, xlabel="x", ylabel="y", chance=0.05)
    line, chance = fig.axes[0].lines
    assert list(line.get_ydata()) == [0.1, 0.2]
    assert list(chance.get_ydata()) == [0.05, 0.05]


def test_growth_counts():
    lines = plots.growth({"square": lambda v: v * v}, values=(2, 5)).axes[0].lines
    assert list(lines[0].get_ydata()) == [4, 25]


def test_a_gallery_shows_every_picture_and_refuses_a_missing_title():
    pictures = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    fig = plots.gallery(pictures, ["a", "b", "c"])
    assert [ax.get_title() for ax in fig.axes if ax.images] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="3 pictures but 2 titles"):
        plots.gallery(pictures, ["a", "b"])


def test_figures_are_closed_and_white():
    fig = plots.paired_bars(ROWS)
    assert plt.get_fignums() == []
    assert mpl.colors.to_hex(fig.get_facecolor()) == "#ffffff"
