"""The scene editor shows, for every change, what an independent computation in Python says."""

from __future__ import annotations

import itertools

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

COLOURS, SHAPES = ("red", "blue", "green"), ("square", "triangle", "circle")
OBJECTS = [f"{c} {s}" for c in COLOURS for s in SHAPES]
MODELS = ("bag of concepts", "per-object product", "memorised objects")


def expected(scene: list[tuple[str, str]], model: str) -> dict[str, dict[str, float]]:
    """The scores of the demo's models, from their definitions, one query at a time."""
    names = {f"{c} {s}" for c, s in scene}
    colours, shapes = {c for c, _ in scene}, {s for _, s in scene}
    objects = {}
    for number, (c, s) in enumerate(itertools.product(COLOURS, SHAPES)):
        bag = ((c in colours) + (s in shapes)) / 2
        objects[f"{c} {s}"] = {
            "bag of concepts": bag,
            "per-object product": float(f"{c} {s}" in names),
            "memorised objects": (f"{c} {s}" in names and number % 2 == 0) + 0.25 * bag - 0.1,
        }[model]
    return {
        "colour": {c: float(c in colours) for c in COLOURS},
        "shape": {s: float(s in shapes) for s in SHAPES},
        "objects": objects,
    }


def outcome(scores: dict[str, float], present: set[str]) -> str:
    low = min(scores[q] for q in present)
    high = max((scores[q] for q in scores if q not in present), default=float("-inf"))
    width = 32 * 2**-23 * max(map(abs, scores.values()))
    return "yes" if low - high > width else "no" if high - low > width else "tie"


class Editor:
    def __init__(self, page, index: int = 0) -> None:
        self.page = page
        self.root = page.locator(".cb-editor").nth(index)
        self.root.scroll_into_view_if_needed()

    def text(self, selector: str) -> str:
        return " ".join(self.root.locator(selector).text_content().split())

    def shown(self, head: str) -> dict[str, float]:
        rows = self.root.locator(f".cb-chart[data-head='{head}'] [data-query]")
        return dict(
            rows.evaluate_all("(rows) => rows.map((r) => [r.dataset.query, Number(r.dataset.score)])")
        )

    def check(self, scene: list[tuple[str, str]], model: str) -> None:
        names = [f"{c} {s}" for c, s in scene]
        assert self.text(".cb-caption") == f"“a {names[0]} and a {names[1]}”"
        faces = self.root.locator(".cb-slots .cb-objectname").all_text_contents()
        assert faces == names
        wanted = expected(scene, model)
        for head in ("colour", "shape", "objects"):
            assert self.shown(head) == pytest.approx(wanted[head], abs=1e-6), (scene, model, head)
            marked = self.root.locator(f".cb-chart[data-head='{head}'] .cb-present").evaluate_all(
                "(rows) => rows.map((r) => [r.dataset.query, r.querySelector('.cb-sign').textContent])"
            )
            present = {q for q, _ in marked}
            assert all(sign == "●" for _, sign in marked)
            assert (
                present
                == {
                    "colour": {c for c, _ in scene},
                    "shape": {s for _, s in scene},
                    "objects": set(names),
                }[head]
            )
        # numbers as text: two digits, as shown
        shown = self.root.locator(".cb-chart[data-head='objects'] [data-query] .cb-score").all_text_contents()
        assert [float(t.replace("−", "-")) for t in shown] == pytest.approx(
            list(wanted["objects"].values()), abs=0.0051
        )
        outcomes = {
            "concepts": min(
                (
                    outcome(wanted["colour"], {c for c, _ in scene}),
                    outcome(wanted["shape"], {s for _, s in scene}),
                ),
                key=["no", "tie", "yes"].index,
            ),
            "objects": outcome(wanted["objects"], set(names)),
        }
        for what, word in outcomes.items():
            verdict = self.root.locator(f".cb-verdict[data-what='{what}']")
            assert verdict.get_attribute("data-outcome") == word, (scene, model, what)
            title = verdict.locator(".cb-title").text_content()
            assert (
                title
                == {
                    "yes": f"{what.capitalize()} recognised",
                    "tie": f"{what.capitalize()} not recognised: a tie",
                    "no": f"{what.capitalize()} not recognised",
                }[word]
            )
            assert verdict.locator(".cb-mark").text_content() == {"yes": "✓", "tie": "=", "no": "✗"}[word]
        # values that can make no other objects are no test of binding
        only = len({c for c, _ in scene}) * len({s for _, s in scene}) == len(set(names))
        said = self.text(".cb-conclusion")
        if outcomes["concepts"] != "yes":
            assert said == ""
        elif outcomes["objects"] != "yes":
            assert "bag of concepts" in said
        else:
            assert said.startswith("But this scene is no test" if only else "These scores bind")
        seen = [OBJECTS.index(name) % 2 == 0 for name in names]
        chips = self.root.locator(".cb-slots .cb-chip").all_text_contents()
        assert chips == ["seen in training" if s else "never seen in training" for s in seen]
        kind = self.root.locator(".cb-kind").get_attribute("data-kind")
        assert kind == ("train" if all(seen) else "mixed" if any(seen) else "held-out")
        fills = self.root.locator(".cb-slots .cb-picture").evaluate_all("(p) => p.map((x) => x.dataset.fill)")
        assert fills == [{"red": "#ad2323", "blue": "#2a4bd7", "green": "#1d6914"}[c] for c, _ in scene]


START = [("red", "square"), ("blue", "circle")]


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


def test_every_scene_by_mouse(demo) -> None:
    editor = Editor(demo.page)
    slots = editor.root.locator(".cb-slots .cb-option")
    scene = list(START)
    editor.check(scene, MODELS[0])
    for slot, obj in [(0, (1, 0)), (1, (1, 0)), (0, (2, 2)), (1, (0, 1)), (0, (0, 1)), (1, (2, 2))]:
        slots.nth(slot).click()
        panel = editor.root.locator(".cb-panel:visible")
        assert panel.get_attribute("aria-label") == f"Change object {slot + 1}"
        for k, (names, v) in enumerate(zip((COLOURS, SHAPES), obj, strict=True)):
            panel.locator("fieldset").nth(k).locator(".cb-option", has_text=names[v]).click()
            scene[slot] = (COLOURS[obj[0]], scene[slot][1]) if k == 0 else (scene[slot][0], SHAPES[obj[1]])
            editor.check(scene, MODELS[0])
        for model in (*MODELS[1:], MODELS[0]):
            editor.root.locator(".cb-models .cb-option", has_text=model).click()
            editor.check(scene, model)


def test_by_keyboard(demo) -> None:
    page, editor = demo.page, Editor(demo.page)
    editor.root.locator(".cb-models input").first.focus()
    page.keyboard.press("ArrowRight")
    editor.check(START, MODELS[1])
    page.keyboard.press("Tab")  # the objects
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")  # the swap button
    assert page.evaluate("document.activeElement.textContent") == "⇄ Swap colours"
    page.keyboard.press("Tab")  # the colour of object 2
    page.keyboard.press("ArrowRight")
    editor.check([START[0], ("green", "circle")], MODELS[1])
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    editor.check([START[0], ("green", "triangle")], MODELS[1])
    focus = page.evaluate(
        """() => { const face = document.activeElement.nextElementSibling, style = getComputedStyle(face);
                   return [style.outlineStyle, parseFloat(style.outlineWidth)]; }"""
    )
    assert focus == ["solid", 3]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    editor.check([("green", "square"), ("red", "triangle")], MODELS[1])
    live = editor.text("[aria-live]")
    assert live.startswith("a green square and a red triangle. Concepts recognised.")
    assert "Objects recognised." in live


def test_swap_changes_no_score_of_a_bag(demo) -> None:
    editor = Editor(demo.page)
    before = {head: editor.shown(head) for head in ("colour", "shape", "objects")}
    swap = editor.root.get_by_role("button", name="Swap colours")
    swap.click()
    editor.check([("blue", "square"), ("red", "circle")], MODELS[0])
    assert {head: editor.shown(head) for head in before} == before
    assert editor.text(".cb-swapped") == "Swapped: not one score changed."
    assert "scores exactly as high as" in editor.text(".cb-verdict[data-what='objects'] .cb-why")
    editor.root.locator(".cb-models .cb-option", has_text=MODELS[1]).click()
    assert editor.text(".cb-swapped") == ""
    swap.click()
    editor.check(START, MODELS[1])
    assert "changed most, by 1.00" in editor.text(".cb-swapped")
    assert editor.root.locator(".cb-before").count() > 1  # cells that moved, and the key
    editor.root.locator(".cb-panel:visible .cb-option", has_text="blue").click()
    swap.click()
    assert editor.text(".cb-swapped") == "Both objects have the same colour: nothing to swap."


def test_a_tie_names_the_confusable_object(demo) -> None:
    why = Editor(demo.page).text(".cb-verdict[data-what='objects'] .cb-why")
    assert why == "‘red circle’ (absent) scores exactly as high as ‘red square’ (present)."


def test_targets_are_large_enough_for_a_finger(demo) -> None:
    sizes = (
        Editor(demo.page)
        .root.locator(".cb-option:visible, .cb-button:visible")
        .evaluate_all("(all) => all.map((e) => e.getBoundingClientRect()).map((r) => [r.width, r.height])")
    )
    assert len(sizes) == 3 + 2 + 1 + 6
    assert min(min(size) for size in sizes) >= 40


def test_text_stands_out(demo) -> None:
    """WCAG AA: 4.5 to 1 for every text, against the nearest painted ground."""
    low = Editor(demo.page).root.evaluate(
        """(root) => {
          const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
          const rgba = (colour) => {
            pen.clearRect(0, 0, 1, 1);
            pen.fillStyle = colour;
            pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data];
          };
          const light = (colour) => colour.slice(0, 3).map((v) => v / 255)
            .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const ground = (e) => {
            for (; e; e = e.parentElement) {
              const colour = rgba(getComputedStyle(e).backgroundColor);
              if (colour[3] === 255) return colour;
            }
            return [255, 255, 255];
          };
          const low = [], walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
          while (walker.nextNode()) {
            const text = walker.currentNode.data.trim(), e = walker.currentNode.parentElement;
            if (!text || !e.checkVisibility() || e.closest('svg, .cb-hidden')) continue;
            const pair = [light(rgba(getComputedStyle(e).color)), light(ground(e))];
            const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
            if (ratio < 4.5) low.push([text, e.className, ratio]);
          }
          return low;
        }"""
    )
    assert low == []


def test_three_concepts_one_object_and_a_linked_control(demo) -> None:
    editor = Editor(demo.page, 1)
    assert editor.text(".cb-caption") == "“a small smooth cat”"
    assert editor.root.get_by_role("button", name="Swap").count() == 0
    assert editor.root.locator(".cb-panel fieldset").count() == 3
    # names are text, never HTML
    editor.root.locator(".cb-option", has_text="rough").click()
    assert editor.text(".cb-caption") == "“a small <b>rough</b> cat”"
    assert editor.root.locator("b").count() == 0
    assert editor.text(".cb-letters") == "cat"
    assert editor.root.locator(".cb-kinds").is_hidden()
    # values all score 0: tied; the object is told from the others
    assert editor.root.locator("[data-what='concepts']").get_attribute("data-outcome") == "tie"
    assert editor.root.locator("[data-what='objects']").get_attribute("data-outcome") == "yes"
    demo.page.get_by_label("linked").fill("b")
    editor.root.locator("[data-what='objects'][data-outcome='no']").wait_for()
    assert editor.root.locator(".cb-models input").nth(1).is_checked()
    # the first editor did not follow
    Editor(demo.page).check(START, MODELS[0])


def test_nothing_moves_for_those_who_ask(visit, demo_url: str) -> None:
    one = visit(demo_url, reduced_motion="reduce")
    moving = one.page.evaluate(
        """[...document.querySelectorAll('.cb-editor *')]
             .filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0).length"""
    )
    assert moving == 0
