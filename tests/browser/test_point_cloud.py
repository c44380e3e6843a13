"""The point cloud of the demo turns, hides and names its points in the static page, and says so."""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COLOURS, SHAPES = ("red", "blue"), ("square", "circle")
OBJECTS = [f"{c} {s}" for c in COLOURS for s in SHAPES]
LABELS = [*COLOURS, *SHAPES, *OBJECTS, *(f"{c} + {s}" for c in COLOURS for s in SHAPES)]
LABELS += [f"{a}, {b}" for a, b in itertools.product(OBJECTS, OBJECTS)]
GROUPS = {"concept": range(4), "object": range(4, 8), "sum of concepts": range(8, 12), "scene": range(12, 28)}
START = (25.0, 15.0)


class Cloud:
    """What the cloud shows, read from the page."""

    def __init__(self, page) -> None:
        self.page = page
        self.root = page.locator(".cb-cloud")
        self.stage = self.root.locator(".cc-stage")
        self.stage.scroll_into_view_if_needed()
        self.settle()
        self.points = self.read_points()

    def read_points(self) -> list[tuple[float, float, float]]:
        """The coordinates in the state that the page carries."""
        text = self.page.locator(
            "script[type='application/vnd.jupyter.widget-state+json']"
        ).first.text_content()
        (model,) = (m for m in json.loads(text)["state"].values() if "group_names" in m["state"])
        (data,) = (b["data"] for b in model["buffers"] if b["path"] == ["points"])
        return list(struct.iter_unpack("<3f", base64.b64decode(data)))

    def check(self, azimuth: float, elevation: float) -> float:
        """Compare every point that shows with its projection; give the scale in pixels."""
        self.settle()
        places = self.places()
        wanted = {i: look(self.points[i], azimuth, elevation) for i in places}
        pairs = [(a, b) for i in places for a, b in zip(places[i], wanted[i], strict=True)]
        scale = sum(a * b for a, b in pairs) / sum(b * b for _, b in pairs)
        worst = max(abs(a - scale * b) for a, b in pairs)
        # places are rounded to tenths of a pixel, views to tenths of a degree
        assert worst < 0.5, (azimuth, elevation, worst)
        return scale

    def settle(self) -> None:
        """Wait for the frame in which a change is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def places(self) -> dict[int, tuple[float, float]]:
        """Where the points that show are, from the middle of the stage, up and to the right positive."""
        found = self.stage.evaluate(
            """(stage) => {
              const [width, height] = stage.querySelector('svg').getAttribute('viewBox').split(' ').slice(2);
              return [...stage.querySelectorAll('.cc-mark[data-point]')]
                .filter((g) => getComputedStyle(g).display !== 'none').map((g) => {
                  const at = g.transform.baseVal[0].matrix;
                  return [Number(g.dataset.point), at.e - width / 2, height / 2 - at.f];
                });
            }"""
        )
        return {point: (x, y) for point, x, y in found}

    def screen(self, point: int) -> tuple[float, float]:
        return tuple(
            self.stage.locator(f".cc-target[data-point='{point}']").evaluate(
                "(e) => { const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }"
            )
        )

    def middle(self) -> tuple[float, float]:
        box = self.stage.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def labels(self) -> list[str]:
        return self.stage.locator(".cc-label:visible").all_text_contents()

    def readout(self) -> str:
        return self.root.locator(".cc-readout").text_content()

    def choice(self, name: str):
        return self.root.locator(".cc-choice", has_text=name).locator("input")


def look(point: tuple[float, float, float], azimuth: float, elevation: float) -> tuple[float, float]:
    """Turn about the vertical axis, tilt about the horizontal one, look from four radii away."""
    a, e = math.radians(azimuth), math.radians(elevation)
    x, y, z = point
    x, z = x * math.cos(a) + z * math.sin(a), z * math.cos(a) - x * math.sin(a)
    y, z = y * math.cos(e) - z * math.sin(e), y * math.sin(e) + z * math.cos(e)
    return 4 * x / (4 - z), 4 * y / (4 - z)


@pytest.fixture(
    params=[
        pytest.param({"width": 1280}, id="1280"),
        pytest.param({"width": 390}, id="390"),
        pytest.param({"width": 390, "dark": True}, id="390-dark"),
    ]
)
def demo(request, visit, demo_url):
    one = visit(demo_url, **request.param)
    yield one
    one.check()
    one.check_width()


@pytest.fixture
def desk(visit, demo_url):
    """The page at 1280 pixels, for what does not depend on the width."""
    one = visit(demo_url)
    yield one
    one.check()


def test_at_first(demo) -> None:
    cloud = Cloud(demo.page)
    assert len(cloud.places()) == len(LABELS) == len(cloud.points)
    cloud.check(*START)
    assert sorted(cloud.labels()) == sorted(LABELS[:8])
    assert cloud.readout() == ""
    names = cloud.root.locator(".cc-choice").all_text_contents()
    assert names == [f"{name}{len(points)}" for name, points in GROUPS.items()]
    markers = cloud.root.locator(".cc-icon .cc-face").evaluate_all(
        "(all) => all.map((p) => p.getAttribute('d'))"
    )
    outlines = cloud.root.locator(".cc-icon .cc-mark").evaluate_all(
        "(all) => all.map((g) => g.className.baseVal)"
    )
    assert len(set(zip(markers, outlines, strict=True))) == 4
    assert "These three axes carry" in cloud.root.locator(".cc-note").text_content()


def test_labels_do_not_cover_each_other(demo) -> None:
    cloud = Cloud(demo.page)
    cloud.stage.focus()
    for _ in range(12):
        demo.page.keyboard.press("ArrowRight")
        cloud.settle()
        boxes = cloud.stage.locator(".cc-label:visible").evaluate_all(
            "(all) => all.map((e) => e.getBoundingClientRect()).map((r) => [r.left, r.top, r.right, r.bottom])"
        )
        frame = cloud.stage.bounding_box()
        assert len(boxes) == 8
        for a in boxes:
            assert frame["x"] <= a[0] < a[2] <= frame["x"] + frame["width"]
        for a, b in itertools.combinations(boxes, 2):
            width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            least = min((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
            assert max(0, width) * max(0, height) < 0.25 * least


def test_drag_turns_and_tilts(desk) -> None:
    """Half a degree a pixel: to the right turns the near side to the right, downwards tilts it down."""
    cloud, mouse = Cloud(desk.page), desk.page.mouse
    scale = cloud.check(*START)
    x, y = cloud.middle()
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 80, y + 40, steps=4)
    assert cloud.check(65, 35) == pytest.approx(scale, rel=1e-3)
    mouse.move(x + 80, y + 400)
    cloud.check(65, 90)
    mouse.up()
    mouse.move(x, y)
    cloud.check(65, 90)  # no longer held


def test_keys_turn_tilt_zoom_and_reset(desk) -> None:
    cloud, press = Cloud(desk.page), desk.page.keyboard.press
    cloud.stage.focus()
    scale = cloud.check(*START)
    scrolled = desk.page.evaluate("scrollY")
    for key, view in [
        ("ArrowRight", (35, 15)),
        ("ArrowDown", (35, 25)),
        ("ArrowUp", (35, 15)),
        ("ArrowUp", (35, 5)),
        ("ArrowLeft", (25, 5)),
    ]:
        press(key)
        assert cloud.check(*view) == pytest.approx(scale, rel=1e-3)
    press("+")
    assert cloud.check(25, 5) == pytest.approx(1.2 * scale, rel=1e-2)
    press("-")
    press("-")
    assert cloud.check(25, 5) == pytest.approx(scale / 1.2, rel=1e-2)
    press("Home")
    assert cloud.check(*START) == pytest.approx(scale, rel=1e-3)
    for _ in range(40):
        press("ArrowLeft")
    cloud.check(START[0] - 400, START[1])
    assert desk.page.evaluate("scrollY") == scrolled


def test_buttons_do_what_keys_do(desk) -> None:
    cloud = Cloud(desk.page)
    scale = cloud.check(*START)

    def click(name: str) -> None:
        cloud.root.get_by_role("button", name=name).click()

    click("Tilt down")
    cloud.check(25, 25)
    click("Tilt up")
    click("Tilt up")
    cloud.check(25, 5)
    click("Closer")
    assert cloud.check(25, 5) == pytest.approx(1.2 * scale, rel=1e-2)
    click("Further away")
    click("Reset the view")
    assert cloud.check(*START) == pytest.approx(scale, rel=1e-3)


def test_a_group_can_be_hidden(desk) -> None:
    cloud = Cloud(desk.page)

    def links() -> int:
        # by style: a level line has no height, which counts as invisible elsewhere
        return cloud.stage.locator(".cc-link").evaluate_all(
            "(all) => all.filter((e) => getComputedStyle(e).display !== 'none').length"
        )

    assert links() == 8 + 4 + 4 + 2 * 12
    cloud.choice("scene").uncheck()
    cloud.settle()
    assert set(cloud.places()) == set(range(12))
    assert links() == 8 + 4
    cloud.choice("object").uncheck()
    cloud.settle()
    assert set(cloud.places()) == {*GROUPS["concept"], *GROUPS["sum of concepts"]}
    assert sorted(cloud.labels()) == sorted(LABELS[:4])
    cloud.check(*START)
    for name in ("scene", "object"):
        cloud.choice(name).check()
    cloud.settle()
    assert set(cloud.places()) == set(range(28))
    assert links() == 40


def test_a_point_with_the_focus_says_its_name_and_shows_its_links(demo) -> None:
    cloud, page = Cloud(demo.page), demo.page
    cloud.stage.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "red"
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    cloud.settle()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "red + circle"
    assert cloud.readout() == "red + circle (sum of concepts), joined to red, circle and red circle"
    assert cloud.root.locator(".cc-readout[aria-live='polite']").count() == 1
    assert {"red + circle", "red", "circle", "red circle"} <= set(cloud.labels())
    ends = cloud.stage.locator(".cc-link.cc-on").count()
    assert ends == 3
    style = page.evaluate(
        "() => { const s = getComputedStyle(document.activeElement); return [s.stroke, s.strokeWidth]; }"
    )
    assert style[0] != "none"
    assert style[1] == "3px"
    cloud.check(*START)  # the arrow keys went to the points
    # the names of scenes have commas
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    assert cloud.readout() == "red square, red circle (scene), joined to red square and red circle"
    page.keyboard.press("ArrowLeft")
    assert cloud.readout().startswith("red square, red square (scene)")
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    assert cloud.readout().startswith("red square (object), joined to ")
    assert cloud.readout().endswith(" and 5 more")
    page.keyboard.press("Escape")
    cloud.settle()
    assert page.evaluate("document.activeElement.getAttribute('role')") == "application"
    assert cloud.readout() == ""
    assert cloud.stage.locator(".cc-link.cc-on").count() == 0
    # hiding what has the focus leaves it on the stage
    page.keyboard.press("Tab")
    cloud.choice("object").uncheck()
    page.keyboard.press("Home")
    cloud.settle()
    assert cloud.stage.locator("[tabindex='0']:visible").count() == 1


def test_the_cloud_has_two_tab_stops(desk) -> None:
    cloud, page = Cloud(desk.page), desk.page
    cloud.choice("scene").focus()
    stops = []
    for _ in range(3):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate("document.activeElement.getAttribute('role') ?? document.activeElement.tagName")
        )
    assert stops == ["application", "img", "BUTTON"]
    assert cloud.stage.get_attribute("aria-label").startswith("A cloud of four concept parts, four objects")
    help_text = cloud.root.locator(f"[id='{cloud.stage.get_attribute('aria-describedby')}']")
    assert "arrows turn" in help_text.text_content()


def test_hover_and_tap_name_a_point(desk) -> None:
    cloud, mouse = Cloud(desk.page), desk.page.mouse
    top = max(GROUPS["scene"], key=lambda i: cloud.places()[i][1])
    mouse.move(*cloud.screen(top))
    cloud.settle()
    assert LABELS[top] in cloud.labels()
    assert cloud.readout().startswith(f"{LABELS[top]} (scene), joined to ")
    box = cloud.stage.bounding_box()
    y = cloud.middle()[1]
    mouse.move(box["x"] + 5, y)
    cloud.settle()
    assert cloud.readout() == ""
    mouse.click(*cloud.screen(top))
    mouse.move(box["x"] + 5, y)
    cloud.settle()
    assert LABELS[top] in cloud.labels()  # stays until another tap
    mouse.click(box["x"] + 5, y)
    cloud.settle()
    assert cloud.readout() == ""
    assert sorted(cloud.labels()) == sorted(LABELS[:8])


def test_an_ordinary_wheel_scrolls_and_one_with_ctrl_zooms(desk) -> None:
    cloud, page = Cloud(desk.page), desk.page
    page.evaluate("scrollBy(0, -150)")
    cloud.settle()
    scale, scrolled = cloud.check(*START), page.evaluate("scrollY")
    page.mouse.move(*cloud.middle())
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_timeout(100)
    larger = cloud.check(*START)
    assert larger == pytest.approx(scale * math.exp(0.2), rel=0.01)
    assert page.evaluate("scrollY") == scrolled
    page.mouse.wheel(0, 100)
    page.wait_for_function("(before) => scrollY > before", arg=scrolled)
    assert cloud.check(*START) == pytest.approx(larger, rel=1e-3)


def test_a_finger_turns_sideways_and_scrolls_the_page_downwards(visit, demo_url: str) -> None:
    one = visit(demo_url, width=390)
    cloud, page = Cloud(one.page), one.page
    page.evaluate("scrollBy(0, -100)")
    cloud.settle()
    session = one.context.new_cdp_session(page)

    def swipe(dx: float, dy: float) -> None:
        x, y = cloud.middle()
        for kind, share in [
            ("touchStart", 0),
            *(("touchMove", k / 10) for k in range(1, 11)),
            ("touchEnd", 1),
        ]:
            at = [] if kind == "touchEnd" else [{"x": x + share * dx, "y": y + share * dy}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    scrolled = page.evaluate("scrollY")
    swipe(100, 8)
    cloud.settle()
    assert page.evaluate("scrollY") == scrolled
    assert model_view(cloud)[1] == START[1]  # a finger never tilts
    assert model_view(cloud)[0] > START[0] + 30
    turned = model_view(cloud)
    swipe(0, -90)
    page.wait_for_function("(before) => scrollY > before + 40", arg=scrolled)
    assert model_view(cloud) == turned
    one.check()


def model_view(cloud: Cloud) -> tuple[float, float]:
    """The view that fits what is shown, to the degree."""
    places = cloud.places()

    def misfit(view: tuple[float, float]) -> float:
        pairs = [(a, b) for i in places for a, b in zip(places[i], look(cloud.points[i], *view), strict=True)]
        scale = sum(a * b for a, b in pairs) / sum(b * b for _, b in pairs)
        return sum((a - scale * b) ** 2 for a, b in pairs) + 1e9 * (scale < 0)

    return min(((a, e) for a in range(-180, 180) for e in range(-90, 91, 5)), key=misfit)


def test_turning_stops_by_button_drag_and_key(desk) -> None:
    cloud, page = Cloud(desk.page), desk.page
    turn = cloud.root.get_by_role("button", name="Turn by itself")
    place = ".cc-mark[data-point='0']"

    def moves() -> bool:
        before = cloud.stage.locator(place).get_attribute("transform")
        page.wait_for_timeout(250)
        return before != cloud.stage.locator(place).get_attribute("transform")

    assert not moves()
    for stop in (
        turn.click,
        lambda: page.mouse.click(*cloud.middle()),
        lambda: page.keyboard.press("ArrowUp"),
    ):
        turn.click()
        assert turn.get_attribute("aria-pressed") == "true"
        assert moves()
        cloud.stage.focus()
        stop()
        assert turn.get_attribute("aria-pressed") == "false"
        cloud.settle()
        assert not moves()


def test_nothing_moves_by_itself_for_those_who_ask(visit, demo_url: str) -> None:
    one = visit(demo_url, reduced_motion="reduce")
    cloud = Cloud(one.page)
    turn = cloud.root.get_by_role("button", name="Turn by a step")
    turn.click()
    cloud.check(START[0] + 30, START[1])
    one.page.wait_for_timeout(300)
    cloud.check(START[0] + 30, START[1])
    assert turn.get_attribute("aria-pressed") is None


def test_targets_are_large_enough_for_a_finger(demo) -> None:
    sizes = (
        Cloud(demo.page)
        .root.locator(".cc-button, .cc-choice")
        .evaluate_all("(all) => all.map((e) => e.getBoundingClientRect()).map((r) => [r.width, r.height])")
    )
    assert len(sizes) == 6 + 4
    assert min(min(size) for size in sizes) >= 38


def test_text_stands_out(demo) -> None:
    """WCAG AA: 4.5 to 1 for every text against the ground of the box, labels in the picture included."""
    cloud = Cloud(demo.page)
    cloud.stage.focus()
    demo.page.keyboard.press("Tab")
    cloud.settle()
    low = cloud.root.evaluate(
        """(root) => {
          const light = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255)
            .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const ground = light(getComputedStyle(root).backgroundColor);
          const texts = [...root.querySelectorAll('p, strong, span, button, .cc-label.cc-linked, .cc-label.cc-on')];
          return texts.filter((e) => e.textContent.trim() && e.checkVisibility()).map((e) => {
            const style = getComputedStyle(e), ink = light(e.closest('svg') ? style.fill : style.color);
            return [e.textContent, (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05)];
          }).filter(([, ratio]) => !(ratio >= 4.5));
        }"""
    )
    assert low == []


def test_from_the_file_system(visit, demo_folder: Path) -> None:
    one = visit((demo_folder / "book" / "demo.html").as_uri())
    cloud = Cloud(one.page)
    cloud.stage.focus()
    one.page.keyboard.press("ArrowRight")
    cloud.check(35, 15)
    cloud.choice("scene").uncheck()
    cloud.settle()
    assert len(cloud.places()) == 12
    one.check()


def test_on_paper_it_is_a_figure_on_white(visit, demo_url: str) -> None:
    one = visit(demo_url, dark=True)
    cloud = Cloud(one.page)
    assert cloud.root.evaluate("(e) => getComputedStyle(e).backgroundColor") != "rgb(255, 255, 255)"
    one.page.emulate_media(media="print")
    assert cloud.root.evaluate("(e) => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
    for gone in (".cc-tools", ".cc-help", ".cc-box"):
        assert cloud.root.locator(gone).first.is_hidden()
    assert cloud.stage.locator(".cc-mark").first.is_visible()
    assert cloud.root.locator(".cc-choice").count() == 4


def test_on_a_wide_screen_it_fills_its_place_and_does_not_move_the_page(visit, demo_url: str) -> None:
    one = visit(demo_url)
    cloud = Cloud(one.page)
    height = cloud.root.bounding_box()["height"]
    cloud.stage.focus()
    one.page.keyboard.press("Tab")
    for _ in range(27):
        one.page.keyboard.press("ArrowRight")
        assert cloud.root.bounding_box()["height"] == pytest.approx(height, abs=1)
    one.page.set_viewport_size({"width": 700, "height": 900})
    cloud.settle()
    cloud.settle()
    box, view = cloud.stage.bounding_box(), cloud.stage.locator("svg").first.get_attribute("viewBox")
    assert float(view.split()[2]) == pytest.approx(box["width"], abs=1)
    one.check_width()
