"""The point cloud on the Python side: what travels to the browser, the figure, and errors that say what to do."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
import traitlets
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg

from conceptbind.widgets import PointCloud, fallback, point_cloud, point_cloud_figure
from conceptbind.widgets.point_cloud_figure import (
    EYE,
    MARKERS,
    check_cloud,
    project,
    shares_text,
    unit_points,
)
from conceptbind.widgets.scripts import script

POINTS = torch.tensor([[0.0, 0, 0], [4, 0, 0], [0, 3, 0], [4, 3, 1]])
LABELS = ["red", "blue", "red square", "blue circle"]
GROUPS = ["concept", "concept", "object", "object"]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The HTML that a control shows beside itself."""
    outputs: list[str] = []
    monkeypatch.setattr(fallback, "display", lambda html: outputs.append(html.data))
    monkeypatch.delenv("CONCEPTBIND_WIDGETS", raising=False)
    return outputs


def cloud(**options: object) -> PointCloud:
    given = {"points": POINTS, "labels": LABELS, "groups": GROUPS, "alt": "Four points.", **options}
    return point_cloud(given.pop("points"), given.pop("labels"), given.pop("groups"), **given)


def run_script(code: str) -> object:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the browser tests run the script")
    done = subprocess.run(
        [node, "--input-type=module"],
        input=script("point_cloud.js") + code,
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(done.stdout)


# ---- what travels ----


@pytest.mark.parametrize(
    "points", [POINTS, POINTS.double().numpy(), POINTS.requires_grad_(False) * 1e6 - 5e6]
)
def test_points_are_centred_and_scaled_to_radius_1(shown: list[str], points: object) -> None:
    """The middle of the box is (2, 1.5, 0.5), and every corner of it lies as far away as the next."""
    back = np.frombuffer(cloud(points=points).points, "<f4").reshape(4, 3)
    wanted = (POINTS.numpy() - [2, 1.5, 0.5]) / math.hypot(2, 1.5, 0.5)
    np.testing.assert_allclose(back, wanted, atol=1e-6)
    assert shown == []


def test_points_in_one_place_stay_finite(shown: list[str]) -> None:
    assert np.frombuffer(cloud(points=torch.ones(4, 3)).points, "<f4").tolist() == [0.0] * 12


def test_groups_links_and_names_travel_as_numbers(shown: list[str]) -> None:
    widget = cloud(links=[(2, 0), (3, 1)], groups=["b", "a", "b", "c"], named=["c"])
    assert widget.group_names == ["b", "a", "c"]
    assert widget.group == [0, 1, 0, 2]
    assert widget.named == [False, False, True]
    assert widget.links == [[2, 0], [3, 1]]
    assert (widget.labels, widget.alt, widget.view, widget.hidden) == (
        LABELS,
        "Four points.",
        [25, 15, 1],
        [],
    )


def test_the_state_is_small(shown: list[str]) -> None:
    """A quadruple with all its scenes: below 100 bytes a point."""
    widget = cloud(
        points=torch.randn(44, 3, generator=torch.Generator().manual_seed(0)),
        labels=["a red circle"] * 44,
        groups=["scene"] * 44,
        links=[(i, (i + 1) % 44) for i in range(44)],
        colours=["red"] * 44,
    )
    own = ("labels", "group", "group_names", "links", "colours", "markers", "named", "alt", "view", "hidden")
    state = json.dumps({name: getattr(widget, name) for name in own})
    assert len(widget.points) == 44 * 3 * 4
    assert len(state) < 44 * 100


def test_every_group_has_a_marker_of_its_own(shown: list[str]) -> None:
    assert cloud().markers == ["circle", "square"]
    assert cloud(markers={"object": "circle"}).markers == ["square", "circle"]
    groups = [f"g{i}" for i in range(len(MARKERS))]
    widget = cloud(points=torch.eye(3).repeat(3, 1)[: len(groups)], labels=groups, groups=groups)
    assert widget.markers == list(MARKERS)


def test_colours_become_hex(shown: list[str]) -> None:
    given = ["red", "#2A4BD7", ("blue", "white"), "rebeccapurple"]
    assert cloud(colours=given).colours == [["#ff0000"], ["#2a4bd7"], ["#0000ff", "#ffffff"], ["#663399"]]
    first, second, third, fourth = cloud().colours
    assert first == second != third == fourth


def test_the_first_groups_are_named_as_long_as_labels_fit(shown: list[str]) -> None:
    groups = ["a"] * 4 + ["b"] * 8 + ["c"]
    widget = cloud(points=torch.arange(39.0).reshape(13, 3), labels=["x"] * 13, groups=groups)
    assert widget.named == [True, True, False]


def test_view_and_hidden_may_be_set_and_are_checked(shown: list[str]) -> None:
    widget = cloud(view=(-30.0, 90.0), title="Parts")
    assert widget.view == [-30, 90, 1]
    widget.hidden = ["object"]
    with pytest.raises(traitlets.TraitError, match=r"hidden must list some of \['concept', 'object'\]"):
        widget.hidden = ["scene"]
    for view in ([0.0, 0.0], [0.0, 91.0, 1.0], [0.0, 0.0, 0.0]):
        with pytest.raises(traitlets.TraitError, match="view is degrees turned"):
            widget.view = view
    assert repr(widget) == "PointCloud(4 points, 'Parts')"


def test_shares_are_said_and_add_up() -> None:
    assert shares_text(()) == ""
    said = shares_text((0.524, 0.364, 0.064))  # 95.2 %; rounded one by one they would sum to 94
    assert said == "These three axes carry 95 % of the squared distances (53 %, 36 % and 6 %)."
    for shares in torch.rand(50, 3, generator=torch.Generator().manual_seed(0)).softmax(1) * 0.97:
        whole, *each = map(int, re.findall(r"(\d+) %", shares_text(shares.tolist())))
        assert sum(each) == whole == round(100 * float(shares.sum()))
        assert all(abs(a - 100 * float(b)) <= 1 for a, b in zip(each, shares, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": torch.zeros(4, 2)}, r"shape \(n, 3\).*got \(4, 2\)"),
        ({"points": torch.full((4, 3), torch.nan)}, "12 numbers that are not finite"),
        ({"points": np.zeros((0, 3)), "labels": [], "groups": []}, "1 to 500 points; got 0"),
        ({"points": np.zeros((501, 3))}, "got 501: show a sample"),
        ({"labels": LABELS[:3]}, "4 points but 3 labels"),
        ({"groups": [*GROUPS, "x"]}, "4 points but 5 groups"),
        ({"colours": ["red"]}, "4 points but 1 colours"),
        ({"labels": "abcd"}, "labels must be a list"),
        ({"links": [(0, 4)]}, r"numbered 0 to 3; got \(0, 4\)"),
        ({"links": [(-1, 2)]}, r"numbered 0 to 3; got \(-1, 2\)"),
        ({"links": [(1, 1)]}, "joins two different points"),
        ({"colours": ["red", "reddish", "red", "red"]}, "colour of 'blue' is 'reddish', which is none"),
        ({"colours": ["red", "red", ("red", "reddish"), "red"]}, "pair of them for the left"),
        ({"markers": {"object": "banana"}}, "one of .*'open square'.*got {'object': 'banana'}"),
        ({"markers": {"object": "star", "concept": "star"}}, "a marker of its own"),
        ({"markers": {"scene": "star"}}, r"markers names the groups \['scene'\]"),
        ({"points": torch.zeros(9, 3), "labels": [*"123456789"], "groups": [*"123456789"]}, "9 groups"),
        ({"named": ["scene"]}, r"named must list some of the groups \['concept', 'object'\]"),
        ({"shares": [0.5, 0.2]}, "three numbers from 0 to 1"),
        ({"shares": torch.tensor([0.5, 0.4, 0.2])}, "sum to at most 1"),
        ({"shares": [0.5, torch.nan, 0.2]}, "three numbers from 0 to 1"),
        ({"view": (0.0, 100.0)}, "the second from -90 to 90"),
        ({"view": (math.inf, 0.0)}, "two angles in degrees"),
        ({"alt": " "}, "alt is empty"),
        ({"mode": "paper"}, "mode must be 'book'"),
    ],
)
def test_bad_input_is_named(shown: list[str], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cloud(**options)


# ---- projection ----


def test_projection_of_known_views() -> None:
    """Turned by 90 degrees axis 3 points right; tilted by 90 degrees one looks down on axes 1 and 3."""
    point = np.array([[0.3, 0.5, 0.2]])
    for view, (x, y, z) in {
        (0.0, 0.0): (0.3, 0.5, 0.2),
        (90.0, 0.0): (0.2, 0.5, -0.3),
        (180.0, 0.0): (-0.3, 0.5, -0.2),
        (0.0, 90.0): (0.3, -0.2, 0.5),
        (90.0, -90.0): (0.2, -0.3, -0.5),
    }.items():
        near = EYE / (EYE - z)
        np.testing.assert_allclose(project(point, *view), [[x * near, y * near, z]], atol=1e-12)


def test_the_browser_projects_as_python_does() -> None:
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (20, 3))
    views = [(25.0, 15.0), (-170.0, -60.0), (300.0, 90.0), (0.0, 0.0)]
    ours = run_script(
        f"""
      const seen = {json.dumps(views)}.map((view) => {points.tolist()}.map((p) => project(p, ...view)));
      console.log(JSON.stringify([EYE, seen.map((all) => all.map(({{x, y, depth}}) => [x, y, depth]))]));
    """
    )
    assert ours[0] == EYE
    for view, seen in zip(views, ours[1], strict=True):
        np.testing.assert_allclose(seen, project(points, *view), atol=1e-12)


# ---- the script ----


def test_labels_avoid_each_other_and_stay_on_the_stage() -> None:
    """Two points in one place, one in a corner, and one that is left out rather than written over another."""
    wanted = [
        {"index": i, "x": x, "y": y, "radius": 6, "width": 80, "height": 17, "side": None, "optional": False}
        for i, (x, y) in enumerate([(150, 100), (150, 100), (295, 3), (5, 198)])
    ]
    filler = [{**wanted[0], "index": 10 + i, "x": 150, "y": 100, "optional": True} for i in range(20)]
    placed = run_script(
        f"console.log(JSON.stringify(placeLabels({json.dumps(wanted + filler)}, [], [300, 200])));"
    )
    assert [p["index"] for p in placed[:4]] == [0, 1, 2, 3]
    assert 4 < len(placed) < 4 + len(filler)
    for i, a in enumerate(placed):
        left, top, right, bottom = a["box"]
        assert 0 <= left < right <= 300
        assert 0 <= top < bottom <= 200
        assert (right - left, bottom - top) == pytest.approx((80, 17))
        for b in placed[:i]:
            x0, y0, x1, y1 = b["box"]
            assert min(right, x1) <= max(left, x0) or min(bottom, y1) <= max(top, y0)


def test_a_label_keeps_its_side_while_the_cloud_turns() -> None:
    label = {"index": 0, "x": 150, "y": 100, "radius": 6, "width": 80, "height": 17, "side": 2}
    sides = run_script(
        f"""
      const label = {json.dumps(label)};
      const side = (one) => placeLabels([one], [], [300, 200])[0].side;
      console.log(JSON.stringify([side(label), side({{...label, side: null}})]));
    """
    )
    assert sides == [2, 0]


def test_the_script_asks_for_nothing_outside() -> None:
    script, style = str(PointCloud._esm), str(PointCloud._css)
    assert not re.search(r"^\s*import\b|\bimport\(|fetch\(|https?://(?!www\.w3\.org/2000/svg)", script, re.M)
    assert "url(" not in style
    assert "innerHTML" not in script


# ---- the figure ----


def test_book_shows_two_views_without_script(shown: list[str]) -> None:
    for _ in range(2):
        cloud(mode="book", alt="Four <points>.", shares=[0.5, 0.2, 0.1])
    assert shown[0] == shown[1]
    assert shown[0].startswith("<noscript><figure><img")
    assert 'alt="Four &lt;points&gt;."' in shown[0]
    assert "These three axes carry 80 % of the squared distances" in shown[0]
    assert plt.get_fignums() == []


def test_the_figure_draws_every_point_where_it_is_seen() -> None:
    figure = point_cloud_figure(
        POINTS, LABELS, GROUPS, links=[(0, 2)], named=["object"], title="Parts", view=(0.0, 0.0)
    )
    first, second = figure.axes
    for ax, azimuth in ((first, 0.0), (second, 90.0)):
        wanted = project(unit_points(POINTS.double().numpy()), azimuth, 0.0)[:, :2]
        dots = [line for line in ax.lines if line.get_marker() not in ("None", None, "")]
        np.testing.assert_allclose([dot.get_xydata()[0] for dot in dots], wanted, atol=1e-12)
        assert [dot.get_marker() for dot in dots] == ["o", "o", "s", "s"]
        links = [line for line in ax.lines if line.get_color() == "#9aa2ab"]
        np.testing.assert_allclose(links[0].get_xydata(), wanted[[0, 2]], atol=1e-12)
        assert len(links) == 1
        assert sorted(text.get_text() for text in ax.texts) == ["blue circle", "red square"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["concept", "object"]
    assert figure.get_suptitle() == "Parts"


def test_two_colours_of_an_open_marker_are_its_two_halves() -> None:
    figure = point_cloud_figure(
        torch.zeros(1, 3),
        ["x"],
        ["scene"],
        colours=[("#ff0000", "#0000ff")],
        markers={"scene": "open circle"},
    )
    figure.set_layout_engine("none")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ax = figure.axes[0]
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    x, y = ax.transData.transform((0, 0))
    x, y = round(x), pixels.shape[0] - round(y)
    around = pixels[y - 12 : y + 13]
    left, right = around[:, x - 12 : x - 1].reshape(-1, 3), around[:, x + 2 : x + 13].reshape(-1, 3)
    for half, strong in ((left, 0), (right, 2)):
        coloured = half[half.max(1) - half.min(1) > 100]
        assert len(coloured) > 10
        assert (coloured.argmax(1) == strong).all()


def test_a_checked_cloud_is_complete() -> None:
    one = check_cloud(POINTS, LABELS, GROUPS)
    assert (one.links, one.shares, one.view) == ((), (), (25.0, 15.0))
    assert one.markers == {"concept": "circle", "object": "square"}
