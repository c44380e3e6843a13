"""The real book: CONCEPTBIND_BOOK, or what `make html` built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOOK = Path(os.environ.get("CONCEPTBIND_BOOK") or ROOT / "_build" / "html")
PAGES = sorted(
    str(path.relative_to(BOOK))
    for path in BOOK.rglob("*.html")
    if not str(path.relative_to(BOOK)).startswith("_") and "bd-article" in path.read_text(encoding="utf-8")
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pages = pytest.mark.parametrize("name", PAGES or ["no book"])


@pytest.fixture(scope="module")
def address(serve_folder) -> Iterator[str]:
    if not PAGES:
        pytest.fail(
            f"{BOOK} holds no page of a book: run `make html`, or set CONCEPTBIND_BOOK to a built book"
        )
    with serve_folder(BOOK) as url:
        yield url


@pages
def test_page(visit, address: str, name: str) -> None:
    """Nothing from outside, no complaint, no missing file, alternative texts, maths typeset."""
    one = visit(f"{address}/{name}")
    one.page.wait_for_function(
        "() => [...document.querySelectorAll('article .math')].every((e) => e.querySelector('mjx-container'))"
    )
    assert one.page.locator("article mjx-merror").count() == 0
    nameless = one.page.eval_on_selector_all(
        "article img",
        "(all) => all.filter((img) => !img.alt.trim()).map((img) => img.outerHTML.slice(0, 200))",
    )
    assert not nameless, f"{name} has pictures without alternative text: {nameless}"
    one.check()


@pages
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_on_a_phone(visit, address: str, name: str, dark: bool) -> None:
    one = visit(f"{address}/{name}", width=390, dark=dark)
    one.check_width()
    one.check()


@pages
def test_every_control_changes_its_figure(visit, address: str, name: str) -> None:
    one = visit(f"{address}/{name}")
    page = one.page
    page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
    for box in page.locator(".widget-box:has(> .conceptbind-controls)").all():
        frame = """(box) => [...box.querySelectorAll('.widget-html-content')]
                     .filter((e) => e.checkVisibility()).map((e) => e.innerHTML).join()"""

        def changes(box, act, frame=frame) -> None:
            before = box.evaluate(frame)
            assert before, f"{name}: a figure is empty"
            act()
            page.wait_for_function(
                f"([box, before]) => ({frame})(box) !== before", arg=[box.element_handle(), before]
            )

        for handle in box.get_by_role("slider").all():
            at_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
            changes(box, lambda h=handle, key="ArrowLeft" if at_end else "ArrowRight": h.press(key))
        for choice in box.locator("select").all():
            n = choice.locator("option").count()
            index = choice.evaluate("(e) => e.selectedIndex")
            if n > 1:
                changes(box, lambda c=choice, i=(index + 1) % n: c.select_option(index=i))
        for group in box.locator(".widget-toggle-buttons").all():
            changes(box, group.locator("button:not(.mod-active)").first.click)
        for group in box.locator(".widget-radio").all():
            changes(box, group.locator("input:not(:checked)").first.check)
    for cloud in page.locator(".cb-cloud").all():
        stage = cloud.locator(".cc-stage")
        marks = "(stage) => [...stage.querySelectorAll('.cc-mark')].map((m) => m.getAttribute('transform')).join()"
        before = stage.evaluate(marks)
        stage.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            f"([stage, before]) => ({marks})(stage) !== before", arg=[stage.element_handle(), before]
        )
    for editor in page.locator(".cb-editor").all():
        before = editor.locator(".cb-caption").text_content()
        editor.locator(".cb-panel:visible .cb-radio:not(:checked)").first.check()
        assert editor.locator(".cb-caption").text_content() != before
        assert editor.locator(".cb-verdict").count() == 2
    one.check()


@pages
def test_without_script_every_control_shows_a_figure(visit, address: str, name: str) -> None:
    one = visit(f"{address}/{name}", script=False)
    views = one.page.locator("script[type='application/vnd.jupyter.widget-view+json']").count()
    fallbacks = one.page.locator(".cell_output noscript").count()
    assert fallbacks >= views, (
        f"{name}: {views} controls, but {fallbacks} figures for readers without JavaScript"
    )
    one.check_width()
