"""The summary of one encoder shows the numbers it is given, each in its panel."""

import matplotlib.pyplot as plt
import pytest

from conceptbind import plots
from conceptbind.analysis.interactions import INTERACTION_KINDS, STABILITY_PARTS
from conceptbind.plots_summary import Reading, complexity_summary

pytestmark = pytest.mark.usefixtures("book_style")

READINGS = [
    Reading("additive", 7_296, 0.9, 1.0, 0.05),
    Reading("MLP 1024", 417_152, -0.3, 0.8, 0.25),
    Reading("MLP 4096", 1_667_456, 0.99, 0.7, 0.125),
]
SPECTRUM = dict(zip(INTERACTION_KINDS, (0.7, 0.15, 0.1, 0.05), strict=True))
STABILITY = dict(zip(STABILITY_PARTS, (0.5, 0.25, 0.15, 0.1), strict=True))


def summary(**more):
    return complexity_summary(
        **{
            "verdict": "memorised objects",
            "why": "only 0.00 of the held-out objects are recovered",
            "readings": READINGS,
            "ceiling": 0.95,
            "spectrum": SPECTRUM,
            "stability": STABILITY,
            "bits": {"additive": 80.0, "object table": 65.4},
            **more,
        }
    )


def line(ax, label):
    return next(drawn for drawn in ax.lines if drawn.get_label().startswith(label))


def test_every_panel_shows_its_numbers():
    fig = summary()
    head, readings, spectrum, stability, bits = fig.subfigs
    assert head.texts[0].get_text() == "memorised objects"
    assert "Only 0.00 of the held-out objects" in head.texts[1].get_text()
    (ax,) = readings.axes
    assert line(ax, "objects, real").get_xdata()[0] == 0.95
    assert list(line(ax, "training R²").get_xdata()) == [0.9, 0, 0.99]  # negative R² at 0
    assert list(line(ax, "concepts").get_xdata()) == [1.0, 0.8, 0.7]
    assert list(line(ax, "objects, held out").get_xdata()) == [0.05, 0.25, 0.125]
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "additive (7.3k)",
        "MLP 1024 (417k)",
        "MLP 4096 (1.7M)",
    ]
    widths = [round(bar.get_width(), 6) for part in (spectrum, stability) for bar in part.axes[0].patches]
    assert widths == [*SPECTRUM.values(), *STABILITY.values()]
    assert [bar.get_width() for bar in bits.axes[0].patches] == [80, 65.4]
    assert [t.get_text() for t in bits.axes[0].texts] == ["80", "65"]
    assert fig.get_figwidth() == plots.WIDTH
    assert plt.get_fignums() == []


def test_nothing_overlaps_the_edge_of_the_figure():
    fig = summary(why="x" * 40 + " and a long sentence " * 6)
    fig.draw_without_rendering()
    whole = fig.bbox
    texts = [t for part in fig.subfigs for t in part.findobj(plt.Text) if t.get_text() and t.get_visible()]
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= whole.x0 - 1, text.get_text()
        assert box.x1 <= whole.x1 + 1, text.get_text()
        assert box.y0 >= whole.y0 - 1, text.get_text()
        assert box.y1 <= whole.y1 + 1, text.get_text()


def test_codes_may_be_missing_and_readings_may_not():
    assert len(summary(bits=None).subfigs) == 4
    with pytest.raises(ValueError, match="at least one approximator"):
        summary(readings=[])
