"""The phase diagram and the scatter show the numbers they are given."""

import matplotlib.pyplot as plt
import pytest

from conceptbind import plots
from conceptbind.analysis.complexity_table import Curve
from conceptbind.plots_training import coverage_curves, phase_point, scatter

pytestmark = pytest.mark.usefixtures("book_style")

SMALL = Curve((0.2, 0.4), (0.1, 0.3), (0.0, 0.2), (0.2, 0.4), 0)
LARGE = Curve((0.1, 0.2, 0.4), (0.1, 0.5, 1.0), (0.1, 0.4, 1.0), (0.1, 0.6, 1.0), 0)
BARS = {"concepts": (1.0, 0.9, 0.8), "objects": (0.7, 0.4, 0.123)}


def lines(ax):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}


def test_every_line_keeps_its_own_coverages():
    fig = coverage_curves({"8 x 8": SMALL, "16 x 16": LARGE})
    found = lines(fig.axes[0])
    assert found["8 x 8"] == ([0.2, 0.4], [0.1, 0.3])
    assert found["16 x 16"] == ([0.1, 0.2, 0.4], [0.1, 0.5, 1.0])
    assert fig.get_figwidth() == plots.WIDTH
    assert plt.get_fignums() == []


@pytest.mark.parametrize("label", ["16 x 16", "16 x 16, 5,000 steps", "captions, asked for objects"])
def test_the_legend_lies_within_the_figure(label):
    fig = coverage_curves({label: SMALL, f"{label[:-1]}!": LARGE})
    fig.canvas.draw()
    box, whole = fig.legends[0].get_window_extent(), fig.bbox
    assert 0 <= box.x0 < box.x1 <= whole.width


def test_the_ring_is_at_the_chosen_point_and_the_bars_are_its_numbers():
    fig = phase_point({"8 x 8": SMALL, "16 x 16": LARGE}, BARS, at=("16 x 16", 0.2))
    top, below = fig.axes
    ring = top.lines[-1]
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([0.2], [0.5])
    widths = {line.get_label(): line.get_linewidth() for line in top.lines}
    assert widths["16 x 16"] > widths["8 x 8"]
    # kind by kind: training, mixed, held out
    assert [bar.get_height() for bar in below.patches] == [1.0, 0.7, 0.9, 0.4, 0.8, 0.123]
    assert [t.get_text() for t in below.texts] == ["1.00", "0.70", "0.90", "0.40", "0.80", "0.12"]
    assert [t.get_text() for t in below.get_xticklabels()] == ["concepts", "objects"]
    assert len({bar.get_hatch() for bar in below.patches}) == 3  # told apart without colour


def test_a_coverage_that_was_not_run_has_no_ring():
    fig = phase_point({"8 x 8": SMALL, "16 x 16": LARGE}, BARS, at=("8 x 8", 0.1))
    assert len(fig.axes[0].lines) == 2


def test_what_was_not_measured_has_no_bar_and_the_floor_is_dotted():
    bars = {"concepts": (1.0, 0.5, float("nan"))}
    fig = phase_point({"8 x 8": SMALL}, bars, at=("8 x 8", 0.2), floor=("a sum", LARGE))
    top, below = fig.axes
    assert [t.get_text() for t in below.texts] == ["1.00", "0.50", "–"]
    (floor,) = [line for line in top.lines if line.get_label() == "a sum"]
    assert floor.get_linestyle() == ":"
    assert list(floor.get_ydata()) == [0.1, 0.5, 1.0]


def test_points_below_zero_stand_at_the_edge():
    fig = scatter(
        {"a": [(0.5, 0.2), (-3.0, 0.1)], "b": [(1.0, 1.0)]}, xlabel="fit", ylabel="objects", title="t"
    )
    (ax,) = fig.axes
    assert lines(ax) == {"a": ([0.5, -0.05], [0.2, 0.1]), "b": ([1.0], [1.0])}
    assert ax.get_xlim()[0] < -0.05
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title(loc="left")) == ("fit", "objects", "t")


def test_coverages_are_never_cut_off():
    wide = Curve((0.01, 0.5, 0.99), (0.0, 0.5, 1.0), (0.0, 0.4, 1.0), (0.0, 0.6, 1.0), 0)
    for fig in (coverage_curves({"a": wide}), phase_point({"a": wide}, BARS, at=("a", 0.5))):
        low, high = fig.axes[0].get_xlim()
        assert low < 0.01
        assert high > 0.99


def test_a_curve_without_a_colour_is_an_error_and_not_left_out():
    curves = {str(n): SMALL for n in range(7)}
    points = {str(n): [(0.5, 0.5)] for n in range(7)}
    kinds = ("training", "mixed", "held out", "new")
    bars = {"concepts": (1.0, 0.9, 0.8, 0.7)}
    with pytest.raises(ValueError, match="tells 6 curves, groups or kinds apart; got 7"):
        coverage_curves(curves)
    with pytest.raises(ValueError, match="got 7"):
        phase_point(curves, BARS, at=("0", 0.2))
    with pytest.raises(ValueError, match="got 7"):
        scatter(points, xlabel="x", ylabel="y")
    with pytest.raises(ValueError, match="tells 3 curves, groups or kinds apart; got 4"):
        phase_point({"0": SMALL}, bars, at=("0", 0.2), kinds=kinds)
    assert plt.get_fignums() == []
    del curves["6"]
    assert len(coverage_curves(curves).axes[0].lines) == 6
