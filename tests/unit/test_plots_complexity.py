"""The bars of the interaction spectrum and of stability have the lengths and numbers they are given."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from conceptbind import plots
from conceptbind.analysis.interactions import INTERACTION_KINDS, STABILITY_PARTS
from conceptbind.plots_complexity import code_lengths, spectrum_bars, stability_bars

NAN = float("nan")


pytestmark = pytest.mark.usefixtures("book_style")


def shares(*values):
    return dict(zip(INTERACTION_KINDS, map(float, values), strict=True))


def bars(ax):
    return [(round(bar.get_x(), 6), round(bar.get_width(), 6)) for bar in ax.patches]


def texts(ax):
    return [t.get_text() for t in ax.texts]


def legend(fig):
    return [t.get_text() for t in fig.legends[0].get_texts()]


def test_the_segments_of_a_bar_follow_each_other():
    fig = spectrum_bars({"MiniLM": shares(0.7, 0.05, 0.2, 0.05), "bag": shares(1, 0, 0, 0)}, title="captions")
    ax = fig.axes[0]
    assert bars(ax)[:4] == [(0, 0.7), (0.7, 0.05), (0.75, 0.2), (0.95, 0.05)]
    assert bars(ax)[4:] == [(0, 1), (1, 0), (1, 0), (1, 0)]
    assert texts(ax) == ["0.70", "0.20", "MiniLM", "1.00", "bag"]  # numbers where they fit
    assert legend(fig) == list(INTERACTION_KINDS)
    colours = [mpl.colors.to_hex(bar.get_facecolor()).upper() for bar in ax.patches[:4]]
    assert colours == [plots.CONCEPT, plots.OBJECT, plots.GREEN, plots.ORANGE]
    assert len({bar.get_hatch() for bar in ax.patches[:4]}) == 4  # told apart without colour
    assert fig.get_figwidth() == plots.WIDTH
    assert ax.get_title(loc="left") == "captions"
    assert plt.get_fignums() == []


def test_the_interactions_alone_fill_their_bars():
    rows = {"a": shares(0.92, 0.06, 0.02, 0), "b": shares(0.6, 0.1, 0.2, 0.1), "bag": shares(1, 0, 0, 0)}
    fig = spectrum_bars(rows, without_concepts=True)
    ax = fig.axes[0]
    assert bars(ax)[:3] == [(0, 0.75), (0.75, 0.25), (1, 0)]
    assert bars(ax)[3:6] == [(0, 0.25), (0.25, 0.5), (0.75, 0.25)]
    assert bars(ax)[6:] == [(0, 0)] * 3
    labels = [t for t in texts(ax) if ":" in t]
    assert labels == ["a: 8 % of the variance", "b: 40 % of the variance", "bag: nothing"]
    assert legend(fig) == list(INTERACTION_KINDS[1:])
    colours = [mpl.colors.to_hex(bar.get_facecolor()).upper() for bar in ax.patches[:3]]
    assert colours == [plots.OBJECT, plots.GREEN, plots.ORANGE]


def test_undefined_and_negative_shares_have_no_length():
    rows = {"noise": shares(NAN, NAN, NAN, NAN), "corrected": shares(0.8, 0.21, -0.01, 0)}
    ax = spectrum_bars(rows).axes[0]
    assert bars(ax) == [(0, 0)] * 4 + [(0, 0.8), (0.8, 0.21), (1.01, 0), (1.01, 0)]
    assert texts(ax) == ["noise", "undefined", "0.80", "0.21", "corrected"]
    ax = spectrum_bars(rows, without_concepts=True).axes[0]
    assert texts(ax)[:2] == ["noise", "undefined"]
    assert bars(ax)[3:] == [(0, 1), (1, 0), (1, 0)]


def test_stability_has_the_same_looks():
    rows = {"MiniLM": dict(zip(STABILITY_PARTS, (0.5, 0.25, 0.15, 0.1), strict=True))}
    fig = stability_bars(rows)
    ax = fig.axes[0]
    assert bars(ax) == [(0, 0.5), (0.5, 0.25), (0.75, 0.15), (0.9, 0.1)]
    assert legend(fig) == [
        "the same everywhere",
        "by the same object",
        "by other objects",
        "by several at once",
    ]
    assert texts(ax)[-1] == "MiniLM"


def test_rows_that_cannot_be_drawn_are_named():
    with pytest.raises(ValueError, match=r"'MiniLM' has no \['higher'\]"):
        spectrum_bars({"MiniLM": {"concepts": 0.5, "within objects": 0.3, "across objects": 0.2}})
    with pytest.raises(ValueError, match=r"has no .*'stable'"):
        stability_bars({"MiniLM": shares(1, 0, 0, 0)})
    with pytest.raises(ValueError, match="at least one encoder"):
        spectrum_bars({})


def test_code_lengths_are_drawn_at_their_means_with_plain_numbers():
    fig = code_lengths(
        [0.5, 0.9], {"sum": [[100.0, 300.0], [400.0, 400.0]], "table": [[0.2, 0.4], [50.0, 70.0]]}
    )
    ax = fig.axes[0]
    drawn = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert drawn == {"sum": [200, 400], "table": [1, 60]}  # less than one bit is drawn as one
    assert ax.get_yscale() == "log"
    fig.draw_without_rendering()
    labels = [t.get_text() for t in ax.get_yticklabels()]
    assert {"1", "10", "100", "200"} <= set(labels)
    assert not any("$" in text for text in labels)
