"""``conceptbind build``: one table of many reports."""

import csv
import json

import pytest

from conceptbind import cli
from conceptbind.report.report import Report

BENCHMARK = """acc1,acc5,dataset,language,mean_per_class_recall,model,model_fullname,pretrained,task
0.1,0.2,clevr2d,en,,ViT,ViT openai,openai,zeroshot_classification
0.3,,clevr2d,en,,ViT,ViT openai,openai,linear_probe
0.63,0.88,imagenet1k,en,0.62,ViT,ViT openai,openai,zeroshot_classification
0.4,,imagenet1k,cn,,ViT,ViT openai,openai,zeroshot_classification
0.9,,clevr2d,en,,RN50,RN50 other,other,zeroshot_classification
"""


def write(folder, name, dataset="clevr2d", model="ViT", pretrained="openai", verdicts=None, **numbers):
    path = folder / f"{name}.json"
    verdicts = verdicts or {"image": "simple binding"}
    Report(dataset, model, pretrained, numbers, verdicts, {}, (), {"preset": "smoke"}).write(path)
    return str(path)


@pytest.fixture
def reports(tmp_path):
    return [
        write(tmp_path, "1", text_probe_objects=0.25, image_probe_objects=0.1),
        write(
            tmp_path, "2", model="RN50", image_probe_objects_low=0.125, verdicts={"text": "bag, of concepts"}
        ),
        write(tmp_path, "3", dataset="a", model="embeddings", pretrained=""),
    ]


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_is_a_report_with_the_columns_of_clip_benchmark(reports, tmp_path, capsys):
    output = tmp_path / "new" / "binding.csv"
    assert cli.main(["build", *reports, "--output", str(output)]) == 0
    rows = rows_of(output)
    assert list(rows[0]) == [
        "model",
        "pretrained",
        "dataset",
        "task",
        "language",
        "model_fullname",
        "verdict",
        "verdict_image",
        "verdict_text",
        "preset",
        "image_probe_objects",
        "image_probe_objects_low",
        "text_probe_objects",
    ]
    assert [r["model"] for r in rows] == ["RN50", "ViT", "embeddings"]
    assert rows[1] == {
        "model": "ViT",
        "pretrained": "openai",
        "dataset": "clevr2d",
        "task": "binding_report",
        "language": "en",
        "model_fullname": "ViT openai",
        "verdict": "simple binding",
        "verdict_image": "simple binding",
        "verdict_text": "",
        "preset": "smoke",
        "image_probe_objects": "0.1",
        "image_probe_objects_low": "",
        "text_probe_objects": "0.25",
    }
    assert rows[0]["verdict"] == "bag, of concepts"
    assert rows[2]["model_fullname"] == "embeddings"
    out = capsys.readouterr().out
    assert f"wrote 3 rows to {output}" in out
    assert "[2] ViT (openai): simple binding" in out


def test_the_order_of_files_does_not_matter(reports, tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    cli.main(["build", *reports, "--output", str(one)])
    cli.main(["build", *reversed(reports), "--output", str(two)])
    assert one.read_bytes() == two.read_bytes()


def test_joins_on_model_pretrained_and_dataset(reports, tmp_path, capsys):
    (tmp_path / "benchmark.csv").write_text(BENCHMARK)
    output = tmp_path / "binding.csv"
    join = ["--join", str(tmp_path / "benchmark.csv")]
    assert cli.main(["build", *reports, "--output", str(output), *join]) == 0
    rows = {r["model"]: r for r in rows_of(output)}
    joined = [c for c in rows["ViT"] if ":" in c]
    assert joined == [
        "linear_probe:acc1",
        "zeroshot_classification:acc1",
        "zeroshot_classification:acc5",
    ]
    assert [rows["ViT"][c] for c in joined] == ["0.3", "0.1", "0.2"]
    assert all(rows[m][c] == "" for m in ("RN50", "embeddings") for c in joined)
    out = capsys.readouterr().out
    assert "joined 1 of them" in out
    assert "add --join-models" in out


def test_joins_other_data_sets_only_where_asked(reports, tmp_path, capsys):
    (tmp_path / "benchmark.csv").write_text("\ufeff" + BENCHMARK, encoding="utf-8")
    again = write(tmp_path, "4", dataset="captions20")
    output = tmp_path / "binding.csv"
    join = ["--join", str(tmp_path / "benchmark.csv"), "--join-models"]
    assert cli.main(["build", *reports, again, "--output", str(output), *join]) == 0
    rows = {(r["model"], r["dataset"]): r for r in rows_of(output)}
    here, there = rows["ViT", "clevr2d"], rows["ViT", "captions20"]
    for row in (here, there):
        assert row["imagenet1k:zeroshot_classification:acc1"] == "0.63"
        assert row["imagenet1k:zeroshot_classification:mean_per_class_recall"] == "0.62"
        assert row["imagenet1k:zeroshot_classification@cn:acc1"] == "0.4"
    assert (here["linear_probe:acc1"], here["clevr2d:linear_probe:acc1"]) == ("0.3", "")
    assert (there["linear_probe:acc1"], there["clevr2d:linear_probe:acc1"]) == ("", "0.3")
    assert rows["RN50", "clevr2d"]["imagenet1k:zeroshot_classification:acc1"] == ""
    out = capsys.readouterr().out
    assert "joined 2 of them" in out
    assert "add --join-models" not in out


def test_writes_a_page_to_compare(reports, tmp_path, capsys):
    page = tmp_path / "models.html"
    assert cli.main(["build", *reports, "--output", str(tmp_path / "b.csv"), "--page", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "RN50 (openai)" in text
    assert "Data set clevr2d" in text
    assert f"wrote the comparison to {page}" in capsys.readouterr().out


def refused(capsys, *arguments):
    assert cli.main(["build", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_two_reports_on_the_same_are_refused_by_name(reports, tmp_path, capsys):
    again = write(tmp_path, "again")
    output = tmp_path / "b.csv"
    err = refused(capsys, *reports, again, "--output", output)
    assert f"{reports[0]} and {again} are reports on the same model, pretrained and dataset" in err
    assert not output.exists()


CLIP = {
    "dataset": "cifar10",
    "model": "ViT",
    "pretrained": "openai",
    "task": "zeroshot_classification",
    "metrics": {},
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(CLIP), "result of CLIP_benchmark, task 'zeroshot_classification': make a CSV of those"),
        (json.dumps([1]), "it holds a JSON list"),
        (json.dumps({"task": "binding_report", "model": "m"}), "it has no dataset, pretrained, metrics"),
        ("a,b\n1,2\n", "is no JSON file"),
        ('{"task": ', "is no JSON file"),
    ],
)
def test_a_file_that_is_no_report_is_named_with_what_it_is(reports, tmp_path, capsys, content, message):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(content)
    output = tmp_path / "b.csv"
    output.write_text("before")
    err = refused(capsys, *reports, wrong, "--output", output)
    assert str(wrong) in err
    assert message in err
    assert output.read_text() == "before"


def test_a_missing_file_is_named(reports, tmp_path, capsys):
    assert "none.json" in refused(capsys, *reports, tmp_path / "none.json", "--output", tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model,acc1\nViT,0.5\n", "has no column pretrained, dataset, task"),
        ("", "has no column model, pretrained, dataset, task"),
        ("model,pretrained,dataset,task,acc1\nViT,openai,d,t\n", "line 2: expected 5 cells"),
        ("model,pretrained,dataset,task,acc1\nViT,openai,d,t,1,2\n", "line 2: expected 5 cells"),
        (
            "model,pretrained,dataset,task,acc1\nViT,openai,d,t,1\nViT,openai,d,t,2\n",
            "line 2 and {0}, line 3 are rows on the same",
        ),
        (b"\xff\xfe\x00", "is no CSV file"),
    ],
)
def test_a_csv_that_cannot_be_joined_is_refused(reports, tmp_path, capsys, content, message):
    path = tmp_path / "benchmark.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    err = refused(capsys, *reports, "--output", tmp_path / "b.csv", "--join", path)
    assert str(path) in err
    assert message.format(path) in err
    assert not (tmp_path / "b.csv").exists()


def test_names_that_would_overwrite_are_refused(reports, tmp_path, capsys):
    assert "one of the files to read" in refused(capsys, *reports, "--output", reports[0])
    same = tmp_path / "b.csv"
    assert "are both" in refused(capsys, *reports, "--output", same, "--page", same)
    assert "--join-models says how to join" in refused(capsys, *reports, "--output", same, "--join-models")
    assert json.loads((tmp_path / "1.json").read_text())["model"] == "ViT"
