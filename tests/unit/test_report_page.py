"""The words of metrics and the page of a report."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from conceptbind.analysis.verdict import Verdict
from conceptbind.report import metrics, page, words
from conceptbind.report.figures import pictures
from conceptbind.report.metrics import BETTER, BETWEEN, ENDINGS, GROUPS, METRICS, NEITHER, OTHER, describe
from conceptbind.report.report import Report

ROOT = Path(__file__).parents[2]
REPORT = Report(
    "clevr2d",
    "ViT-B-32",
    "openai",
    {
        "image_probe_concepts": 0.97531,
        "image_probe_objects": 0.81,
        "image_probe_objects_low": 0.78,
        "image_probe_objects_high": 0.84,
        "image_probe_objects_chance": 0.0417,
        "image_probe_objects_ties": 0.002,
        "image_probe_objects_shuffled": 0.044,
        "image_probe_objects_random_init": 0.5,
        "image_to_text_two_way": 0.52,
        "image_to_text_two_way_chance": 0.5,
        "image_to_text_two_way_text_only": 0.49,
    },
    {"image": "simple binding", "text": "undetermined", "cross_modal": "bag of concepts"},
    {"image": "an approximator recovers 0.81 of the held-out objects"},
    ("text: nothing was read",),
    {"preset": "laptop", "n_scenes": {"image": 1234}, "seed": 7},
)


class Reader(HTMLParser):
    """Collect tags, attributes and text; a tag that is closed wrongly is an error."""

    VOID = ("meta", "br", "path", "use", "link")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += " " + " ".join(data.split()) if data.strip() else ""

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def row_of(text, label, side):
    """Give the cells, by column, of a metric's line in the table of all numbers."""
    body = next(
        b for b in re.findall(r"<tbody.*?</tbody>", text, re.S) if f">{label}<" in b.replace(" <", "<")
    )
    line = next(r for r in re.findall(r"<tr role=\"row\">.*?</tr>", body, re.S) if f">{side}<" in r)
    return dict(re.findall(r'data-label="([^"]*)">([^<]*)</td>', line))


@pytest.mark.parametrize(
    ("name", "side", "base", "ending"),
    [
        ("image_probe_objects", "image", "probe_objects", ""),
        ("text_probe_objects_low", "text", "probe_objects", "_low"),
        ("embedding_edit_retrieval_no_edit", "embedding", "edit_retrieval_no_edit", ""),
        ("embedding_edit_retrieval_no_edit_shuffled", "embedding", "edit_retrieval_no_edit", "_shuffled"),
        ("image_to_text_two_way_text_only", "image_to_text", "two_way", "_text_only"),
        ("image_to_text_two_way_margin_random_init", "image_to_text", "two_way_margin", "_random_init"),
        ("text_to_image_recall_10_chance", "text_to_image", "recall_10", "_chance"),
        ("text_to_image_recall_1", "text_to_image", "recall_1", ""),
        ("cross_text_score", "cross", "text_score", ""),
        ("image_additive_r2_avg_pos_high", "image", "additive_r2_avg_pos", "_high"),
        ("image_additive_r2_avg_ties", "image", "additive_r2_avg", "_ties"),
    ],
)
def test_a_name_is_taken_apart(name, side, base, ending):
    found = describe(name)
    assert (found.side, found.base, found.ending) == (side, base, ending)
    assert found.meaning == METRICS[base].meaning


@pytest.mark.parametrize(
    "name", ["", "n_scenes", "image_", "image_probe_objects_new", "video_probe_objects", "cross_probe_objects",
             "image_two_way", "probe_objects", "_low"],
)  # fmt: skip
def test_a_name_that_is_not_known_gets_neutral_words(name):
    found = describe(name)
    assert (found.group, found.direction, found.side) == (OTHER, NEITHER, "")
    assert found.label == name.replace("_", " ")


def test_every_metric_has_words_of_its_own_and_a_place():
    labels = [m.label for m in METRICS.values()]
    assert len(set(labels)) == len(labels)
    for base, metric in METRICS.items():
        assert metric.group in GROUPS[:-1]
        assert 2 <= len(metric.label.replace(",", "").split()) <= 6, metric.label
        assert re.fullmatch(r"[A-Z].*[^.]\.", metric.meaning), metric.meaning
        side = "cross" if metric.group == BETWEEN else "text"
        for ending in ENDINGS:
            assert describe(f"{side}_{base}{ending}").base == base
    for base in (
        "removal_concept_parts_objects",
        "verdict_within",
        "additive_objects_held_out",
        "reverse_recall",
    ):
        assert METRICS[base].direction == NEITHER
    for base in ("probe_objects", "two_way", "recall_5", "edit_retrieval", "group_score"):
        assert METRICS[base].direction == BETTER


def test_metrics_are_sorted_by_side_then_as_on_a_page_then_by_ending():
    names = ["zzz", "cross_group_score", "text_probe_objects", "image_probe_objects_low", "image_probe_objects",
             "image_verdict_objects", "image_to_text_two_way", "aaa"]  # fmt: skip
    assert sorted(names, key=metrics.sort_key) == [
        "image_verdict_objects",
        "image_probe_objects",
        "image_probe_objects_low",
        "text_probe_objects",
        "image_to_text_two_way",
        "cross_group_score",
        "aaa",
        "zzz",
    ]


def test_every_verdict_has_a_meaning_and_limits():
    for verdict in (*Verdict.__args__, "binds", "anti-binding"):
        subject = "image" if verdict in Verdict.__args__ else "cross_modal"
        assert words.meaning(subject, verdict)
        assert len(words.limits({subject: verdict})) == 1 + len(words.ALWAYS)
    assert words.meaning("image", "bag of concepts") != words.meaning("cross_modal", "bag of concepts")
    assert words.meaning("image", "new") == ""
    both = words.limits({"image": "simple binding", "text": "simple binding"})
    assert len(set(both)) == len(both) == 1 + len(words.ALWAYS)


def test_the_page_says_verdicts_evidence_notes_and_settings():
    text = page.page(REPORT)
    read = Reader(text).text
    for said in (
        "How does ViT-B-32 (openai) bind concepts?",
        "simple binding",
        words.MEANING["simple binding"],
        "an approximator recovers 0.81 of the held-out objects.",
        words.BETWEEN["bag of concepts"],
        words.LIMITS["simple binding"],
        "text: nothing was read",
        "preset laptop",
        "1,234 scenes (image)",
        '"seed": 7',
    ):
        assert said in read, said


def test_the_table_has_each_number_under_its_heading():
    text = page.page(REPORT)
    assert row_of(text, "objects recognised", "image") == {
        "value": "0.810",
        "95 % interval": "0.780 to 0.840",
        "chance": "0.042",
        "shuffled labels": "0.044",
        "untrained": "0.500",
    }
    assert row_of(text, "concepts recognised", "image")["value"] == "0.975"
    assert row_of(text, "concepts recognised", "image")["chance"] == ""
    assert "ties, which count as wrong: 0.002" in text
    assert "by the captions alone: 0.490" in text
    assert METRICS["two_way"].meaning in Reader(text).text


def test_figures_show_what_there_is_and_say_it_in_words():
    drawn = pictures(REPORT)
    assert [p.heading for p in drawn] == ["What can be read from an embedding", "The right one of two"]
    assert "image: trained: concepts 0.98, objects 0.81 (chance 0.04)" in drawn[0].alt
    assert "image: shuffled labels: objects 0.04 (chance 0.04)" in drawn[0].alt
    assert "image: untrained: objects 0.50 (chance 0.04)" in drawn[0].alt
    assert "text:" not in drawn[0].alt
    assert "captions alone: image to text 0.49 (chance 0.50)" in drawn[1].alt
    assert pictures(Report("d", "m", "", {"image_verdict_within": 1.0}, {"image": "undetermined"}, {})) == []
    images = [a for t, a in Reader(page.page(REPORT)).tags if a.get("role") == "img"]
    assert [a["aria-label"] for a in images] == [p.alt for p in drawn]


def test_a_page_is_the_same_every_time():
    assert page.page(REPORT) == page.page(REPORT)


@pytest.mark.parametrize("verdicts", [{"embedding": v} for v in Verdict.__args__] + [{}, {"video": "new"}])
def test_a_page_is_made_of_few_numbers(verdicts):
    text = page.page(Report("labels", "mine", "", {"embedding_new_thing": 3.25}, verdicts, {}))
    read = Reader(text)
    assert "3.250" in read.text
    assert "embedding new thing" in read.text
    assert not read.all("svg")
    assert all(v in read.text for v in verdicts.values())
    assert "How does mine bind concepts?" in read.text
    assert "All numbers" not in Reader(page.page(Report("labels", "mine", "", {}, {}, {}))).text


def test_nothing_is_loaded_and_nothing_runs():
    read = Reader(page.page(REPORT))
    assert len(read.all("svg")) == 2
    for tag, attrs in read.tags:
        assert tag not in ("script", "img", "iframe", "object", "embed", "base", "form")
        assert "src" not in attrs
        assert not any(name.startswith("on") for name in attrs)
        if tag != "a":
            assert attrs.get("href", "#").startswith("#")
            assert attrs.get("xlink:href", "#").startswith("#")
    css = page._file("page.css")
    assert "url(" not in css
    assert "@import" not in css
    assert "prefers-color-scheme: dark" in css
    assert "@media print" in css


def test_every_text_of_a_report_is_escaped():
    bad = "<script>alert(1)</script>\"'&"
    report = Report(
        bad, bad, bad, {bad: 1.0, "image_probe_objects": 0.5}, {"image": bad, bad: bad}, {"image": bad}, (bad,),
        {"preset": bad, "n_scenes": {bad: 3}, bad: bad},
    )  # fmt: skip
    text = page.page(report)
    assert "<script" not in text
    read = Reader(text)
    assert not read.all("script")
    assert read.text.count("alert(1)") > 8
    assert not any("alert" in str(a) for _, a in read.tags)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.12345, "0.123"), (-0.5, "−0.500"), (-0.0001, "0.000"), (0, "0.000"), (12345.0, "1.23e+04")],
)
def test_numbers_have_three_decimals(value, said):
    assert page.number(value) == said


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "page.html"
    page.write_page(REPORT, path)
    assert path.read_text(encoding="utf-8") == page.page(REPORT)

    def fails(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(OSError, match="disk full"):
        page.write_page(Report("d", "other", "", {}, {}, {}), path)
    assert path.read_bytes().decode() == page.page(REPORT)
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_the_citation_is_that_of_the_repository():
    bib = (ROOT / "book/references.bib").read_text(encoding="utf-8")
    assert page.CITE.split("\n@software")[0] in bib
    cff = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = dict(re.findall(r'^(title|version|repository-code): "?(.*?)"?$', cff, re.M))
    software = dict(re.findall(r"(\w+) += \{(.*?)\}", page.CITE.split("@software")[1]))
    assert software["title"] == found["title"]
    assert software["version"] == found["version"]
    assert software["url"] == found["repository-code"] == page.HOME


def test_settings_that_json_does_not_know_are_shown_as_text():
    report = Report("d", "m", "", {}, {}, {}, (), {"path": Path("a/b"), "none": None})
    shown = re.search(r"<details>.*?<pre>(.*?)</pre>", page.page(report), re.S).group(1)
    assert json.loads(shown.replace("&#34;", '"')) == {"path": "a/b", "none": None}


def test_a_bar_without_an_interval_has_none():
    from conceptbind.report.figures import _bar

    value, low, high = _bar({"x": 0.5, "x_low": 0.4}, "x")
    assert (value, low) == (0.5, 0.4)
    assert math.isnan(high)


def test_a_tick_of_chance_stands_only_where_a_bar_is():
    from conceptbind.report.figures import _picture

    m = {"a": 0.7, "a_chance": 0.5, "b_chance": 0.25}
    drawn = _picture(m, {"row": ["a", "b"]}, ("first", "second"), xlabel="x", heading="h", caption="c")
    assert drawn.alt == "Bar chart, x. row: first 0.70 (chance 0.50)."
    ticks = [m | {"b": 0.5}, m]
    svgs = [
        _picture(n, {"row": ["a", "b"]}, ("first", "second"), xlabel="x", heading="h", caption="c").svg
        for n in ticks
    ]
    black = [svg.count("stroke: #000000; stroke-width: 2.5") for svg in svgs]
    assert black == [2, 1]
