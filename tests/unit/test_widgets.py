"""The controls on the Python side: callbacks, frames, bytes, and errors that say what to do."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ipywidgets as w
import numpy as np
import pytest
import torch
import traitlets
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from PIL import Image

from conceptbind import widgets
from conceptbind.analysis.recognition import scene_margins
from conceptbind.scenes import ConceptSpace, ObjectSplit, factorial_scenes
from conceptbind.spaces import CAPTIONS_20, CLEVR_2D
from conceptbind.widgets import SceneEditor, explore, fallback, scene_editor
from conceptbind.widgets.scripts import script

SMALL = CLEVR_2D.subset(colour=["red", "blue"], shape=["square", "circle"])
N_QUERIES = 2 + 2 + 4


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The HTML that a control shows beside itself."""
    outputs: list[str] = []
    monkeypatch.setattr(fallback, "display", lambda html: outputs.append(html.data))
    monkeypatch.delenv("CONCEPTBIND_WIDGETS", raising=False)
    return outputs


def line(k: int, a: str = "x") -> Figure:
    figure, axes = plt.subplots(figsize=(4, 3))
    axes.plot([0, k], label=a)
    return figure


def text(k: int, a: str = "x") -> str:
    return f"<p>{k}{a}</p>"


def frames(widget: w.Widget) -> list[str]:
    if isinstance(widget, w.HTML):
        return [widget.value]
    return [frame for child in widget.children for frame in frames(child)]


def alt(html: str) -> str:
    return re.search(r'alt="(.*?)"', html).group(1)


# ---- explore, live ----


def test_live_calls_back_when_a_control_moves(shown: list[str]) -> None:
    calls = []

    def fn(k: int, a: str) -> str:
        calls.append((k, a))
        return text(k, a)

    box = explore(fn, k=[1, 2, 3], a=w.Dropdown(options=["x", "y"]))
    (slider, dropdown), out = box.children[0].children, box.children[1]
    assert out.value == "<p>1x</p>"
    slider.value = 3
    assert out.value == "<p>3x</p>"
    dropdown.value = "y"
    assert out.value == "<p>3y</p>"
    assert calls == [(1, "x"), (3, "x"), (3, "y")]
    assert shown == []


def test_live_needs_nothing_that_ipywidgets_7_lacks(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(w, "Stack")
    box = explore(line, play="k", k=[1, 2])
    assert box.children[1].value.startswith("<img")
    with pytest.raises(RuntimeError, match="book mode needs ipywidgets 8"):
        explore(line, mode="book", k=[1, 2])


def test_live_shows_an_error_in_place_of_the_old_figure(shown: list[str]) -> None:
    def fn(k: int) -> str:
        return str(1 // (2 - k)) + "<br>"

    box = explore(fn, k=[1, 2])
    with pytest.raises(ZeroDivisionError):
        box.children[0].children[0].value = 2
    assert "ZeroDivisionError" in box.children[1].value
    box.children[0].children[0].value = 1
    assert box.children[1].value == "1<br>"


def test_live_has_no_limit_but_book_has(shown: list[str]) -> None:
    explore(text, k=range(20), limit=10)
    with pytest.raises(ValueError, match=r"20 \(k\) make 20 frames, more than limit=10"):
        explore(text, k=range(20), limit=10, mode="book")


def test_environment_chooses_the_mode(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCEPTBIND_WIDGETS", "book")
    assert isinstance(explore(text, k=[1, 2]).children[1], w.Stack)
    assert not isinstance(explore(text, k=[1, 2], mode="live").children[1], w.Stack)
    monkeypatch.setenv("CONCEPTBIND_WIDGETS", "print")
    with pytest.raises(ValueError, match="environment variable CONCEPTBIND_WIDGETS must be 'book'"):
        explore(text, k=[1, 2])
    with pytest.raises(ValueError, match="mode must be 'book'"):
        explore(text, k=[1, 2], mode="static")


# ---- explore, book ----


def test_book_draws_every_combination_once(shown: list[str]) -> None:
    calls = []

    def fn(k: int, a: str) -> str:
        calls.append((k, a))
        return text(k, a)

    box = explore(fn, mode="book", k=w.IntSlider(value=2, min=0, max=2), a=["x", "y"])
    assert frames(box.children[1]) == [f"<p>{k}{a}</p>" for k in range(3) for a in "xy"]
    assert sorted(calls) == [(k, a) for k in range(3) for a in "xy"]
    assert box.children[1].selected_index == 2
    assert shown == ["<noscript><p>2x</p></noscript>"]


def test_book_links_each_control_to_its_stacks(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    links = []
    monkeypatch.setattr(w, "jsdlink", lambda source, target: links.append((source, target)))
    box = explore(text, mode="book", k=w.IntSlider(max=2), a=["x", "y"])
    k, a = box.children[0].children
    outer = box.children[1]
    assert links[-1] == ((k, "value"), (outer, "selected_index"))
    assert links[:-1] == [((a, "index"), (inner, "selected_index")) for inner in outer.children]


def test_frames_are_the_same_bytes_in_each_run(shown: list[str]) -> None:
    for fmt in ("webp", "png", "svg"):
        first, second = (frames(explore(line, mode="book", fmt=fmt, k=[1, 2]).children[1]) for _ in range(2))
        assert first == second
        assert first[0] != first[1]


def test_a_frame_is_white_sized_and_closed(shown: list[str]) -> None:
    with plt.rc_context({"figure.facecolor": "black", "savefig.facecolor": "black"}):
        (frame,) = frames(explore(line, mode="book", k=[7]).children[1])
    assert plt.get_fignums() == []
    assert 'width="320" height="240"' in frame
    assert "max-width:100%;height:auto" in frame
    data = base64.b64decode(re.search(r"base64,([^\"]+)", frame).group(1))
    image = Image.open(io.BytesIO(data)).convert("RGB")
    assert image.size == (640, 480)
    assert min(image.getpixel((2, 2))) >= 253


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "k = 1, a = x"),
        ("k is {k}", "k is 1"),
        (lambda k, a: f"<{k}> & {a}", "&lt;1&gt; &amp; x"),
    ],
)
def test_alternative_text(shown: list[str], given: object, expected: str) -> None:
    assert alt(explore(line, k=[1], a=["x"], alt=given).children[1].value) == expected


def test_alternative_text_names_the_figure(shown: list[str]) -> None:
    def titled(size: float) -> Figure:
        figure = line(1)
        figure.axes[0].set_title("loss")
        return figure

    box = explore(titled, size=np.array([0.1, 0.1 + 0.2]))
    assert alt(box.children[1].value) == "loss: size = 0.1"
    slider = box.children[0].children[0]
    assert [label for label, _ in slider.options] == ["0.1", "0.3"]
    slider.index = 1
    assert alt(box.children[1].value) == "loss: size = 0.3"


def test_options_may_be_a_mapping_a_tensor_or_one_value(shown: list[str]) -> None:
    assert explore(text, k={"one": 1, "two": 2}).children[1].value == "<p>1x</p>"
    assert explore(text, k=torch.tensor([4, 5])).children[1].value == "<p>4x</p>"
    # a slider with one stop cannot be drawn
    assert isinstance(explore(text, k=[3]).children[0].children[0], w.Dropdown)


def test_play_stands_beside_its_slider_and_starts_there(shown: list[str]) -> None:
    slider = w.SelectionSlider(options=[1, 2, 3], value=2)
    pair = explore(text, play="k", a=["x", "y"], k=slider).children[0].children[1]
    player = pair.children[0]
    assert isinstance(player, w.Play)
    assert (player.min, player.value, player.max) == (0, 1, 2)
    assert pair.children[1] is slider


@pytest.mark.parametrize("mode", ["live", "book"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "at least one parameter"),
        ({"k": []}, "'k' has no values"),
        ({"k": 3}, "functools.partial"),
        ({"k": "abc"}, "functools.partial"),
        ({"k": w.Checkbox()}, r"Checkbox .*ToggleButtons\(options=\[\('off', False\)"),
        ({"k": w.IntSlider(min=1, max=5)}, r"IntSlider .* starts at 1 .* k=range\(1, 6, 1\)"),
        ({"k": w.IntSlider(min=0, max=6, step=2)}, r"steps by 2: .* k=range\(0, 7, 2\)"),
        ({"k": w.FloatSlider()}, "FloatSlider .* give a list of values"),
        ({"k": w.SelectMultiple(options=[1, 2])}, "selects several options at once"),
        ({"k": w.ToggleButtons(options=[1, 2], value=None)}, "nothing selected"),
        ({"k": [1], "play": "j"}, r"play='j' is no parameter: choose one of \('k',\)"),
        ({"k": [1], "fmt": "gif"}, "fmt must be one of"),
        ({"k": [1], "dpi": 0}, "dpi must be positive"),
    ],
)
def test_what_a_static_page_cannot_follow_is_refused_in_both_modes(
    shown: list[str], options: dict, message: str, mode: str
) -> None:
    with pytest.raises(ValueError, match=message):
        explore(text, mode=mode, **options)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "got NoneType: end it with `return figure`"),
        (lambda: line(1).axes[0], "got Axes: return axes.figure"),
    ],
)
def test_a_function_that_returns_something_else_is_named(
    shown: list[str], result: object, message: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        explore(lambda k: result() if callable(result) else result, k=[1])
    plt.close("all")


def test_an_alternative_text_with_an_unknown_name_says_so(shown: list[str]) -> None:
    with pytest.raises(ValueError, match=r"names 'j'; the parameters are \('k',\)"):
        explore(line, k=[1], alt="{j}")


# ---- the scene editor ----


def ramp(n_objects: int = 2, space: ConceptSpace = SMALL) -> torch.Tensor:
    n_scenes = space.n_possible_objects**n_objects
    n_queries = sum(space.n_values) + space.n_possible_objects
    return torch.arange(n_scenes * n_queries, dtype=torch.float32).reshape(n_scenes, n_queries) / 7


def test_scores_make_the_round_trip(shown: list[str]) -> None:
    first, second = ramp(), -ramp().double()
    editor = scene_editor(SMALL, {"a": first, "b": second})
    back = np.frombuffer(editor.scores, "<f4").reshape(2, 16, N_QUERIES)
    np.testing.assert_array_equal(back[0], first.numpy())
    np.testing.assert_array_equal(back[1], second.float().numpy())
    assert editor.model_names == ["a", "b"]
    assert editor.model == "a"
    assert shown == []


def test_rows_follow_the_order_of_the_scenes(shown: list[str]) -> None:
    """The browser finds the row of a scene by the same rule as factorial_scenes lists them."""
    for row, scene in enumerate(factorial_scenes(SMALL, 2)):
        index = 0
        for colour, shape in scene.tolist():
            index = index * 4 + (colour * 2 + shape)
        assert index == row


def test_scene_and_caption_follow(shown: list[str]) -> None:
    editor = scene_editor(SMALL, {"a": ramp()}, template="one {shape} in {colour}", joiner=", ")
    assert editor.scene == [[0, 0], [1, 1]]
    assert editor.caption == "one square in red, one circle in blue"
    heard = []
    editor.observe(lambda change: heard.append(change["new"]), "scene")
    editor.scene = [[1, 0], [1, 1]]
    assert editor.caption == "one square in blue, one circle in blue"
    assert heard == [[[1, 0], [1, 1]]]
    assert repr(editor) == "SceneEditor('one square in blue, one circle in blue', model='a')"


@pytest.mark.parametrize("scene", [[[0, 0]], [[0, 0], [2, 0]], [[0, 0], [0, -1]], [[0], [1]]])
def test_a_scene_outside_the_space_is_refused(shown: list[str], scene: list) -> None:
    editor = scene_editor(SMALL, {"a": ramp()})
    with pytest.raises(traitlets.TraitError, match="a scene is 2 lists of value indices"):
        editor.scene = scene
    with pytest.raises(traitlets.TraitError, match="model must be one of"):
        editor.model = "z"


@pytest.mark.parametrize(
    "start", [[("blue", "circle"), ("red", "circle")], [(1, 1), (0, 1)], torch.tensor([[1, 1], [0, 1]])]
)
def test_start_by_name_or_index(shown: list[str], start: object) -> None:
    assert scene_editor(SMALL, {"a": ramp()}, start=start).scene == [[1, 1], [0, 1]]


def test_split_marks_the_seen_objects(shown: list[str]) -> None:
    seen = torch.tensor([True, False, False, True])
    assert scene_editor(SMALL, {"a": ramp()}, split=ObjectSplit(SMALL, seen)).seen == b"\1\0\0\1"
    assert scene_editor(SMALL, {"a": ramp()}).seen == b""


def test_colours_and_shapes_are_found(shown: list[str]) -> None:
    editor = scene_editor(SMALL, {"a": ramp()})
    assert (editor.colour_concept, editor.shape_concept) == (0, 1)
    assert editor.colours == {"red": "#ad2323", "blue": "#2a4bd7"}
    own = scene_editor(SMALL, {"a": ramp()}, colours={"red": (255, 0, 0), "blue": (0, 0, 255)})
    assert own.colours == {"red": "#ff0000", "blue": "#0000ff"}
    plain = ConceptSpace(("mood", "colour"), (("calm",), ("teal", "red")))
    editor = scene_editor(plain, {"a": ramp(1, plain)}, n_objects=1)
    assert (editor.colour_concept, editor.shape_concept) == (1, -1)
    assert editor.colours["red"] == "#ad2323"
    assert re.fullmatch("#[0-9a-f]{6}", editor.colours["teal"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": {}}, "at least one model"),
        ({"scores": {"a": torch.zeros(15, N_QUERIES)}}, r"'a' must have shape \(16, 8\): .*got \(15, 8\)"),
        ({"scores": {"a": torch.zeros(16, 4)}}, r"4 values and 4 objects; got \(16, 4\)"),
        ({"scores": {"a": torch.full((16, N_QUERIES), torch.nan)}}, "hold 128 values that are not finite"),
        ({"n_objects": 0}, "at least one object"),
        ({"start": [(0, 0)]}, "start must be 2 objects"),
        ({"start": [("pink", 0), (0, 0)]}, "concept 'colour' has no value 'pink'"),
        ({"start": [(5, 0), (0, 0)]}, "indices 0 to 1; got 0 to 5"),
        ({"split": ObjectSplit(CLEVR_2D, torch.arange(24) < 12)}, "split is of another space"),
        ({"colours": {"red": (1, 2, 3)}}, r"colours leaves out \['blue'\]"),
        ({"colours": {"red": (1, 2, 3), "blue": (0, 0, 256)}}, "three numbers from 0 to 255"),
        ({"tolerance": -1.0}, "tolerance must not be negative"),
        ({"template": "a {colour}"}, r"leaves out \['shape'\]"),
        ({"mode": "paper"}, "mode must be 'book'"),
    ],
)
def test_bad_input_is_named(shown: list[str], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scene_editor(SMALL, **{"scores": {"a": ramp()}, **options})


def test_scores_too_big_for_a_page_are_refused_before_they_are_read(shown: list[str]) -> None:
    with pytest.raises(ValueError, match=r"282 MB, too much for a page .* space.subset"):
        scene_editor(CAPTIONS_20, {"a": torch.zeros(1, 1)})


def test_book_shows_the_first_scene_without_script(shown: list[str]) -> None:
    for _ in range(2):
        scene_editor(SMALL, {"bag <1>": ramp()}, mode="book")
    assert shown[0] == shown[1]
    assert shown[0].startswith("<noscript><figure><img")
    assert "bag &lt;1&gt;: scores of the scene" in shown[0]
    # row 3 (objects 0 and 3) of the ramp starts at 24/7 = 3.43
    assert "colour: blue 3.57, red 3.43; shape: circle 3.86, square 3.71" in alt(shown[0])
    assert plt.get_fignums() == []


@pytest.mark.parametrize("space", [CLEVR_2D, ConceptSpace(("size", "pet"), (("big",), ("cat", "dog")))])
def test_book_draws_other_spaces(shown: list[str], space: ConceptSpace) -> None:
    scene_editor(space, {"a": ramp(1, space)}, n_objects=1, mode="book")
    assert len(shown) == 1


def test_the_script_asks_for_nothing_outside() -> None:
    script = str(SceneEditor._esm)
    assert not re.search(r"^\s*import\b|\bimport\(|fetch\(|https?://(?!www\.w3\.org/2000/svg)", script, re.M)
    assert "url(" not in str(SceneEditor._css)
    assert "innerHTML" not in script


def test_the_script_parses() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the browser tests run the script")
    for control in ("scene_editor.js", "point_cloud.js"):
        subprocess.run([node, "--check", "--input-type=module"], input=script(control), text=True, check=True)


def test_the_script_judges_as_recognition_does(shown: list[str]) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    rows = [torch.tensor([1.0, 1 - 2e-6, 0.0, 0.0])]
    for scale in (1e-4, 1.0, 1e4):
        for gap in (0, 2e-6, 3.8e-6, 4e-6, -2e-6, -3.8e-6, -4e-6):
            rows.append(scale * torch.tensor([1.0, 1.0 + gap, 1.0, 0.0]))
            rows.append(scale * torch.tensor([gap, 0.0, -1.0, -1.0]))
    scores = torch.stack(rows)
    scene = [[0, 1]]
    marks = torch.tensor([[False, True, False, False]]).expand(len(rows), -1)
    margins = scene_margins(scores, marks)
    wanted = ["yes" if m > 0 else "no" if m < 0 else "tie" for m in margins.tolist()]
    assert set(wanted) == {"yes", "no", "tie"}
    tolerance = scene_editor(SMALL, {"a": ramp()}).tolerance
    code = (
        script("scene_editor.js")
        + f"""
      const space = {{ sizes: [2, 2] }};
      const head = {{ first: 0, concept: -1, labels: ['a', 'b', 'c', 'd'] }};
      const given = {json.dumps(scores.tolist())};
      const outcomes = given.map((row) => judge(space, head, new Float32Array(row), {scene}, {tolerance}).outcome);
      console.log(JSON.stringify(outcomes));
    """
    )
    done = subprocess.run(
        [node, "--input-type=module"], input=code, text=True, check=True, stdout=subprocess.PIPE
    )
    assert json.loads(done.stdout) == wanted


def test_everything_can_be_imported_without_anywidget() -> None:
    code = """if True:
        import sys
        sys.modules["anywidget"] = None
        from conceptbind.widgets import *
        explore
        try:
            scene_editor()
        except ModuleNotFoundError as err:
            assert "pip install" in str(err)
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "SceneEditor" in widgets.__all__


def test_vendored_anywidget_is_of_the_installed_minor_version() -> None:
    import anywidget

    readme = (Path(__file__).parents[2] / "book" / "assets" / "README.md").read_text(encoding="utf-8")
    vendored = re.search(r"`anywidget` \| (\d+\.\d+)\.", readme).group(1)
    assert anywidget.__version__.startswith(vendored + "."), "run tools/vendor.sh with the installed version"
