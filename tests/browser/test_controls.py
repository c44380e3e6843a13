"""Every control moves its figure to the right frame in the static page, with no kernel and no network."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCREENS = [
    pytest.param({"width": 1280}, id="1280"),
    pytest.param({"width": 390}, id="390"),
    pytest.param({"width": 1280, "dark": True}, id="1280-dark"),
    pytest.param({"width": 390, "dark": True}, id="390-dark"),
]


class Explorer:
    """The n-th figure with controls of the page."""

    def __init__(self, page, index: int) -> None:
        self.page = page
        self.bar = page.locator(".conceptbind-controls").nth(index)
        self.box = self.bar.locator("..")
        self.bar.scroll_into_view_if_needed()

    def expect(self, alt: str, *levels: int) -> None:
        """Wait for the one frame on show to have this alternative text, then compare its colour."""
        frame = self.box.locator("img.conceptbind-frame:visible")
        self.page.wait_for_function(
            """([box, alt]) => [...box.querySelectorAll('img.conceptbind-frame')]
                 .filter((img) => img.checkVisibility()).map((img) => img.alt).join() === alt""",
            arg=[self.box.element_handle(), alt],
        )
        assert frame.count() == 1
        colour = frame.evaluate(
            """async (img) => {
                 await img.decode();
                 const canvas = document.createElement('canvas');
                 [canvas.width, canvas.height] = [img.naturalWidth, img.naturalHeight];
                 const pen = canvas.getContext('2d');
                 pen.drawImage(img, 0, 0);
                 return [...pen.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data].slice(0, 3);
               }"""
        )
        wanted = [40 + 40 * level for level in (*levels, 0, 0)[:3]]
        # lossy WebP is off by 1 or 2 of 255; neighbouring codes lie 40 apart
        assert all(abs(c - w) <= 2 for c, w in zip(colour, wanted, strict=True)), (alt, colour, wanted)

    def handle(self, index: int = 0):
        return self.bar.get_by_role("slider").nth(index)

    def click_track(self, share: float, index: int = 0) -> None:
        track = self.bar.locator(".noUi-target").nth(index).bounding_box()
        self.page.mouse.click(track["x"] + share * track["width"], track["y"] + track["height"] / 2)


@pytest.fixture(params=SCREENS)
def demo(request, visit, demo_url):
    one = visit(demo_url, **request.param)
    yield one
    one.check()
    one.check_width()


def test_slider_by_keyboard_says_its_name_and_value(demo) -> None:
    one = Explorer(demo.page, 0)
    one.expect("red = 0", 0)
    one.handle().focus()
    assert one.handle().get_attribute("aria-label") == "red"
    for key, level in [("ArrowRight", 1), ("ArrowRight", 2), ("End", 3), ("ArrowLeft", 2), ("Home", 0)]:
        demo.page.keyboard.press(key)
        one.expect(f"red = {level}", level)
        demo.page.wait_for_function(
            "([h, text]) => h.getAttribute('aria-valuetext') === text",
            arg=[one.handle().element_handle(), str(level)],
        )


def test_slider_by_mouse(demo) -> None:
    one = Explorer(demo.page, 0)
    one.click_track(0.66)
    one.expect("red = 2", 2)
    demo.page.wait_for_selector(".noUi-state-tap", state="detached")  # the handle glides there
    start = one.handle().bounding_box()
    track = one.bar.locator(".noUi-target").bounding_box()
    demo.page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    demo.page.mouse.down()
    demo.page.mouse.move(track["x"] + track["width"] * 0.34, start["y"] + 5, steps=5)
    demo.page.mouse.up()
    one.expect("red = 1", 1)


def test_play(demo) -> None:
    one = Explorer(demo.page, 0)
    one.bar.get_by_role("button", name="Play or pause").click()
    one.expect("red = 3", 3)  # it runs to the end
    one.bar.get_by_role("button", name="Stop").click()
    one.expect("red = 0", 0)


def test_integer_slider_and_dropdown(demo) -> None:
    one = Explorer(demo.page, 1)
    one.expect("red 1, green 0", 1, 0)
    one.handle().focus()
    demo.page.keyboard.press("ArrowRight")
    one.expect("red 2, green 0", 2, 0)
    choice = one.bar.get_by_role("combobox")
    choice.select_option("much")
    one.expect("red 2, green 2", 2, 2)
    choice.focus()
    demo.page.keyboard.press("ArrowUp")
    one.expect("red 2, green 1", 2, 1)
    one.click_track(0.02)
    one.expect("red 0, green 1", 0, 1)


def test_three_parameters(demo) -> None:
    one = Explorer(demo.page, 2)
    buttons, choices = one.bar.locator(".widget-toggle-button"), one.bar.get_by_role("radio")
    for red, green, blue in itertools.product((0, 2), (1, 2), (1, 0)):
        buttons.nth(red).click()
        choices.nth(green).check()
        one.handle().focus()
        demo.page.keyboard.press("End" if blue else "Home")
        one.expect(f"{red}-{green}-{blue}", red, green, blue)
    buttons.nth(1).focus()
    demo.page.keyboard.press("Enter")
    one.expect("1-2-0", 1, 2, 0)
    assert buttons.nth(1).get_attribute("aria-pressed") == "true"
    assert buttons.nth(2).get_attribute("aria-pressed") == "false"
    choices.nth(2).focus()
    demo.page.keyboard.press("ArrowUp")
    one.expect("1-1-0", 1, 1, 0)


def test_page_does_not_jump(demo) -> None:
    one = Explorer(demo.page, 0)
    height = one.box.bounding_box()["height"]
    one.handle().focus()
    for key in ("ArrowRight", "End", "Home"):
        demo.page.keyboard.press(key)
        assert one.box.bounding_box()["height"] == pytest.approx(height, abs=1)


def test_maths_is_typeset(demo) -> None:
    demo.page.wait_for_selector("mjx-container")
    assert demo.page.locator("mjx-merror").count() == 0


def test_from_the_file_system(visit, demo_folder: Path) -> None:
    one = visit((demo_folder / "book" / "demo.html").as_uri())
    first, second, third = (Explorer(one.page, i) for i in range(3))
    first.handle().focus()
    one.page.keyboard.press("End")
    first.expect("red = 3", 3)
    second.bar.get_by_role("combobox").select_option("little")
    second.expect("red 1, green 1", 1, 1)
    third.bar.locator(".widget-toggle-button").nth(2).click()
    third.expect("2-0-0", 2, 0, 0)
    one.page.locator(".cb-editor").first.get_by_role("radio", name="green", exact=True).first.check()
    assert "a green square and a blue circle" in one.page.locator(".cb-caption").first.text_content()
    one.page.wait_for_selector("mjx-container")
    one.check()


@pytest.mark.parametrize("width", [1280, 390])
def test_without_script_the_first_frames_show(visit, demo_url: str, width: int) -> None:
    one = visit(demo_url, width=width, script=False)
    shown = one.page.locator(".cell_output img.conceptbind-frame:visible")
    alts = [shown.nth(i).get_attribute("alt") for i in range(shown.count())]
    assert alts[:3] == ["red = 0", "red 1, green 0", "0-0-0"]
    assert "“a red square and a blue circle”" in alts[3]
    assert alts[5].startswith("A cloud of four concept parts")
    assert len(alts) == 6
    assert all(shown.nth(i).bounding_box()["height"] > 50 for i in range(len(alts)))
    one.check_width()
    assert not one.outside


@pytest.mark.parametrize("dark", [False, True])
def test_with_script_the_fallback_leaves_no_strip(visit, demo_url: str, dark: bool) -> None:
    one = visit(demo_url, dark=dark)
    heights = one.page.evaluate(
        "[...document.querySelectorAll('.cell_output .output:has(> noscript)')].map((e) => e.offsetHeight)"
    )
    assert heights == [0] * 6
