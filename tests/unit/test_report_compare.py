"""Reports beside each other."""

import re

import pytest

from conceptbind.report.compare import (
    MAIN,
    best,
    compare,
    comparison_page,
    comparison_table,
    heading,
    remarks,
)
from conceptbind.report.metrics import OTHER, describe
from conceptbind.report.report import Report


def report(model, dataset="clevr2d", *, pretrained="openai", preset="laptop", verdicts=None, **numbers):
    settings = {"preset": preset} if preset else {}
    verdicts = {"image": "bag of concepts"} if verdicts is None else verdicts
    return Report(dataset, model, pretrained, numbers, verdicts, {}, (), settings)


A = report("a", image_probe_objects=0.5, image_probe_concepts=0.9, image_additive_r2_held_out=0.7)
B = report("b", image_probe_objects=0.75, image_probe_concepts=0.9, image_additive_r2_held_out=0.8)
C = report("c", image_probe_objects=0.75, image_verdict_within=0.1)
OTHER_SET = report("a", "captions20", text_probe_objects=0.25, verdicts={"text": "simple binding"})


def test_every_metric_shown_is_described():
    for name in MAIN:
        assert describe(name).group != OTHER
        assert describe(name).ending == ""
    assert len(set(map(heading, MAIN))) == len(MAIN)


def test_rows_are_sorted_and_hold_the_main_metrics():
    rows = compare([B, OTHER_SET, A])
    assert [(r["dataset"], r["model"]) for r in rows] == [
        ("captions20", "a"),
        ("clevr2d", "a"),
        ("clevr2d", "b"),
    ]
    assert rows == compare([A, B, OTHER_SET])
    assert rows[2]["image_probe_objects"] == 0.75
    assert rows[2]["text_probe_objects"] is None
    assert rows[0]["verdict"] == "simple binding"
    assert "image_verdict_within" not in compare([C])[0]
    assert list(rows[0]) == list(rows[1])


def test_weights_of_one_model_are_rows_of_their_own():
    rows = compare([A, report("a", pretrained="laion", image_probe_objects=0.1)])
    assert [r["pretrained"] for r in rows] == ["laion", "openai"]


def test_the_verdict_between_modalities_is_said_too():
    verdicts = {"image": "simple binding", "text": "simple binding", "cross_modal": "bag of concepts"}
    (row,) = compare([report("m", verdicts=verdicts)])
    assert row["verdict"] == "simple binding; between: bag of concepts"
    assert row["verdicts"] == verdicts
    assert compare([report("m", verdicts={"cross_modal": "binds"})])[0]["verdict"] == "between: binds"


def test_the_best_of_each_data_set_are_marked_where_higher_is_better():
    # captions20 a; clevr2d a, b, c: b and c share the best; concepts are equal; R² has no better end
    assert best(compare([A, B, C, OTHER_SET])) == [
        set(),
        set(),
        {"image_probe_objects"},
        {"image_probe_objects"},
    ]


def test_a_better_value_on_another_data_set_takes_no_mark_away():
    easy = report("a", "easy", image_probe_objects=0.99)
    assert best(compare([A, B, easy])) == [set(), {"image_probe_objects"}, set()]


@pytest.mark.parametrize(
    ("reports", "data", "presets"),
    [
        ([A, B], False, None),
        ([A, OTHER_SET], True, None),
        ([A, report("b", preset="smoke")], False, "laptop, smoke"),
        ([A, report("b", preset=None)], False, "laptop, not stated"),
    ],
)
def test_what_does_not_compare_is_said(reports, data, presets):
    said = " ".join(remarks(compare(reports)))
    assert ("different data sets" in said) == data
    assert ("The presets differ" in said) == (presets is not None)
    assert presets is None or f"({presets})" in said
    for text in (comparison_table(reports), comparison_page(reports)):
        assert ("different data sets" in text) == data
        assert ("The presets differ" in text) == (presets is not None)


def test_the_table_holds_numbers_and_stars_in_columns():
    text = comparison_table([A, B, OTHER_SET])
    captions, clevr = text.split("data set clevr2d")
    assert "[1] a (openai): simple binding" in captions
    assert "[2] b (openai): bag of concepts" in clevr
    lines = {line.strip().split("  ")[0]: line for line in clevr.splitlines()}
    assert lines["image: objects recognised"].split()[-2:] == ["0.500", "0.750*"]
    assert lines["image: concepts recognised"].split()[-2:] == ["0.900", "0.900"]
    assert lines["image: R² on held-out scenes"].split()[-2:] == ["0.700", "0.800"]
    assert "text: objects recognised" not in lines
    ends = {len(lines[name].rstrip("*")) for name in lines if name.startswith("image:")}
    assert len(ends) == 1, "columns are straight"


def test_the_table_leaves_a_dash_where_there_is_no_number():
    text = comparison_table([A, C])
    line = next(line for line in text.splitlines() if "concepts recognised" in line)
    assert line.split()[-2:] == ["0.900", "-"]
    assert "*" not in comparison_table([A])
    assert "[1] m (openai): bag of concepts" in comparison_table([report("m")])


def test_the_page_marks_the_best_and_explains_its_columns():
    text = comparison_page([A, B, OTHER_SET])
    assert re.findall(r'class="best">([0-9.]+)', text) == ["0.750"]
    assert text.count("<h2>Data set ") == 2
    assert describe("image_probe_objects").meaning in text
    assert describe("image_to_text_two_way").meaning not in text
    tables = re.findall(r"<h3>(.*?)</h3>", text)
    assert tables == ["Captions", "Pictures"]


def test_the_page_has_a_row_for_a_model_without_any_number():
    text = comparison_page([report("bare")])
    assert '<th role="rowheader" scope="row">bare (openai)</th>' in text
    assert "What the columns mean" not in text


def test_the_page_escapes_every_text():
    bad = "<script>alert(1)</script>"
    verdicts = {"image": bad}
    text = comparison_page([report(bad, bad, pretrained=bad, preset=bad, verdicts=verdicts), A])
    assert "<script" not in text
    assert "http" not in re.sub(r'<a href="https://github.com/conceptbind/conceptbind">', "", text)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="at least one report"):
        compare([])
    with pytest.raises(ValueError, match=r"two reports are on a \(openai\) and the data set clevr2d"):
        compare([A, B, A])
